//! Architectures: how the nodes of a fleet share a limit.
//!
//! Each architecture is one file that implements `Architecture`, and a variant of `Kind`. It
//! decides by the rules of tollgate; the file models only how counts travel. Leases and background
//! synchronisation are the real wrappers of tollgate, on a simulated store.
//!
//! | file | architecture |
//! |---|---|
//! | `stored` | the central store, asked for each call or by leases |
//! | `synced`, `transport` | nodes decide by themselves, and push what they admitted later by some way |
//! | `central_store`, `kafka` | these ways |
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
mod central_store;
mod figure;
mod get_then_set;
mod kafka;
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
mod synced;
mod transport;
mod world;

pub(crate) use self::figure::FleetFigure;
pub use self::{kind::Kind, run::run, score::Score, settings::FleetSettings};
