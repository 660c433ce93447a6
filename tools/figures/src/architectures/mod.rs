//! Architectures: how the nodes of a fleet share a limit.
//!
//! Each architecture is one file that implements `Architecture`, and a variant of `Kind`. It decides by the rules of tollgate; the file models
//! only how counts travel. A store wrapper of tollgate needs no file: `stored` runs nodes with the real wrappers on the simulated store. A
//! background synchronization of counts is the next wrapper to be added there.
//!
//! | file | architecture |
//! |---|---|
//! | `stored` | the central store, asked for each call or by leases |
//! | `lock` | a lock round the key |
//! | `get_then_set` | reads the state, decides, and writes it without a condition |
//! | `sticky` | all calls of a key go to one node, until the fleet is scaled |
//! | `balancers` | the load balancers limit, and send their entries to each other |
//! | `broadcast` | each node sends its counts to all others |
//! | `aggregates` | each call is an event; counts are aggregated and sent to all nodes |
//! | `no_sync` | each node has the whole limit for itself |

mod aggregates;
mod architecture;
mod balancers;
mod broadcast;
mod figure;
mod get_then_set;
mod kind;
mod lock;
mod no_sync;
mod pictures;
mod run;
mod score;
mod settings;
mod states;
mod sticky;
mod stored;
mod world;

pub(crate) use self::figure::FleetFigure;
pub use self::{kind::Kind, run::run, score::Score, settings::FleetSettings};
