//! The rate limit fields of a response, in each of their formats.
//!
//! | file | content |
//! |---|---|
//! | `names` | the names of all fields |
//! | `format` | the choice of the application, [`Headers`] |
//! | `entry` | a decision with the numbers that fields need |
//! | `draft` | the values of `RateLimit` and `RateLimit-Policy` |
//! | `policy_header` | the values that are equal for all requests, cached |
//! | `legacy` | the values and fields of older formats |
//! | `structured` | a parser of structured fields |
//! | `upstream` | the fields that a response has already, in any format |
//! | `merge` | adding the fields of a layer to those |
//! | `write` | all fields of one response, [`Fields`] |

mod draft;
mod entry;
mod format;
mod legacy;
mod merge;
pub(super) mod names;
mod policy_header;
mod structured;
mod upstream;
mod write;

pub(super) use self::policy_header::CachedPolicyHeader;
pub use self::{format::Headers, names::EXPOSED_HEADERS, upstream::UpstreamFields, write::Fields};
