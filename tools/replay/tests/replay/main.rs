//! The program as its user meets it: its flags, what is piped through it, and what it draws.

mod calls;
mod capped;
mod dates;
mod figures;
mod flags;
mod logs;
mod oracle;
mod others;
mod picture;
mod program;
