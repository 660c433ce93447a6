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
//! | `stacked` | merging of `RateLimit` fields with those of an inner layer |
//! | `write` | all fields of one response, [`Fields`] |

mod draft;
mod entry;
mod format;
mod legacy;
pub(super) mod names;
mod policy_header;
mod stacked;
mod write;

pub(super) use self::policy_header::CachedPolicyHeader;
pub use self::{format::Headers, names::EXPOSED_HEADERS, write::Fields};
