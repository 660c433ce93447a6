//! Limits from a file: routes, keys and rules as text, reloaded while the server runs.
//!
//! ```toml
//! [limits]
//! login   = { rule = "sliding-log 5/15m", key = "peer-ip", charge-if = "status 401" }
//! api     = { rule = "token-bucket 100/1m", key = "header x-api-key", exempt = ["/health"] }
//! address = { rule = "token-bucket 20/1s", key = "peer-ip", exempt = ["10.0.0.0/8"] }
//! next    = { rule = "token-bucket 50/1m", key = "header x-api-key", dry-run = true }
//!
//! [[routes]]
//! match  = "POST /login"
//! limits = ["login"]
//!
//! [[routes]]
//! match  = "/v1/{*rest}"
//! limits = ["api", "address", "next"]
//!
//! [default]
//! limits = ["address"]
//! ```
//!
//! [`RouteLimits`] is the layer; [`LimitsFile`] a file that was checked as a whole, with its
//! mistakes and warnings all at once; [`Changes`] what another file would change, in sentences.
//! The store, failure policies, answers, and what no file can say stay code:
//! [`RouteLimits::builder`] takes them, limits of the program included, which routes then name.
//!
//! # Limits
//!
//! Each has a name, which clients read and under which the store keeps its states, and:
//!
//! | word | value | as in the builder | default |
//! |---|---|---|---|
//! | `rule` | a rule, as [`AnyRule`](crate::AnyRule) lists them | `Limit::new` | |
//! | `key` | a key, as [`AnyKey`](crate::key::AnyKey) lists them | [`key`](crate::Limit::key) | `"global"` |
//! | `cost` | units of a request | [`cost`](crate::Limit::cost) | 1 |
//! | `charge` | `"status 401"`, `"status 401 403 5xx"`, `"not status 2xx"`: only these, after the response: a burst is handled as a whole | [`charge_after`](crate::Limit::charge_after) | all requests |
//! | `charge-if` | the same, but reserved before and refunded after, as guesses must be | [`charge_if`](crate::Limit::charge_if) | |
//! | `exempt` | paths, as they are sent, and networks of clients | [`exempt_paths`](crate::key::KeyExtractorExt::exempt_paths), [`exempt_networks`](crate::key::PeerIp::exempt_networks) | `[]` |
//! | `dry-run` | `true` | [`dry_run`](crate::Limit::dry_run) | `false` |
//! | `enforce-for` | a percentage of the keys | [`enforce_for`](crate::Limit::enforce_for) | 100 |
//! | `compared-with` | the limit that a dry run is compared with, in all lists that have both | [`compared_with`](crate::Limit::compared_with) | |
//! | `was` | the name under which the store keeps the states, after the limit was given another one | [`with_states_of`](crate::Policy::with_states_of) | its name |
//!
//! A limit of the rule `in-flight` has neither `charge` nor `charge-if`: its calls give back what
//! they hold.
//!
//! Networks are compared with the client's address as the limit's key reads it (`forwarded-for`,
//! `forwarded`), or else with that of the peer.
//!
//! # Routes
//!
//! A request has the limits of the most specific route that matches, or those of `[default]`, which
//! a file must have. All limits of a list are charged together or not at all, in one call to the
//! store. `[]` limits nothing. Limits that stand in several lists share their states.
//!
//! - `match` is a pattern, or a method and a pattern. Patterns are those of axum: `/users/{id}` is
//!   one segment, `/v1/{*rest}` all that follows, and literal parts win over these. Of two routes
//!   with one pattern, that with the method of the request wins; `GET` also stands for `HEAD`,
//!   which routers answer by the same handler.
//! - A method that no route of a pattern names has the next best route: with `POST /v1/login` and
//!   `/v1/{*rest}`, `GET /v1/login` is of the second.
//! - gRPC calls match by their path: `POST /package.Service/Method`, or
//!   `/package.Service/{method}`.
//! - The path is matched as it was sent, as axum does. Inside of a nested router it is without the
//!   prefix; put the layer outside.
//!
//! | the client sends | it has the limits of |
//! |---|---|
//! | `/v1/users?page=2` | `/v1/{*rest}`: a query does not count |
//! | `/v1`, `/v1/` | not of `/v1/{*rest}`, which matches one character at least, as in axum; the file is warned of |
//! | `/login/`, `//login`, `/./login`, `/%6Cogin` | `/login`, if no route matches the path as it is: its plain form is tried then, and that with or without a slash at the end |
//! | `/v1//users` | `/v1/{*rest}`, which matches it as it is |
//! | `/v1%2Fusers` | the default: an encoded slash is none |
//! | `HEAD /login` | `GET /login`, unless there is a route of `HEAD` |
//!
//! # Reload
//!
//! [`reload`](RouteLimits::reload) takes a text, and [`watch`](RouteLimits::watch) follows a file.
//! A file with a mistake changes nothing, is logged and [counted](RouteLimits::reloads). States
//! stay: what a client has spent under a limit stays spent when its rule is raised, lowered, or has
//! another name by `was`. A rule of another algorithm, or another key, begins a state of its own.
//! So do, on a [store of counters](crate::store::driver::CounterStore), windows of another length,
//! offset or number of slices. [`Changes`] lists it. A limit that was removed ends with the
//! requests that it admitted, and observers [get an event](crate::observe::Observer::gone).

mod changes;
mod document;
mod file;
mod in_use;
mod key;
mod limits;
mod lint;
mod problem;
mod read;
mod routes;
mod statuses;
mod watch;

pub use self::{
    changes::Changes,
    document::Document,
    file::LimitsFile,
    limits::{ReloadStats, RouteLimit, RouteLimits, RouteLimitsBuilder},
    problem::{Problem, Problems},
};
