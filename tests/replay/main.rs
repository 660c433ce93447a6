//! The replay example as its user meets it: a program, what is piped through it, and what it draws.

#[path = "../../examples/replay/calendar.rs"]
#[allow(dead_code, reason = "the plot's part of it is seen in the plot")]
mod calendar;

#[path = "../../examples/replay/numbers.rs"]
mod numbers;

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
#[path = "../common/rate.rs"]
mod rate;
