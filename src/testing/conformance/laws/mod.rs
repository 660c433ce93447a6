//! The calls that check each law.

mod cancel;
mod change;
mod fault;
mod keys;
mod kinds;
mod limit;
mod nodes;
mod race;
mod reset;
mod settle;
mod several;
mod sync;
mod timeline;
mod wait;
