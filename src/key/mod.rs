//! From a request to the key of the client that sent it.

mod extractor;
mod value;

pub use self::{
    extractor::{Extracted, Global, IntoKey, KeyExtractor, MissingKey},
    value::Key,
};
