//! The laws, each as the calls that show whether a store keeps it.

mod cancel;
mod change;
mod fault;
mod keys;
mod kinds;
mod limit;
mod race;
mod reset;
mod settle;
mod several;
mod timeline;
mod wait;
