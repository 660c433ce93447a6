//! The rate limit fields of a response, in each of their formats.

mod draft;
mod fields;
mod format;
mod legacy;
mod policy_header;
mod stacked;

pub(super) use self::policy_header::CachedHeader;
pub use self::{
    fields::{EXPOSED_HEADERS, Fields},
    format::Headers,
};
