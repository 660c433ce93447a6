//! The futures that programs write down: of the layer, and of stores of your own.
//!
//! All other futures of this crate are awaited where they are made. What wraps a store or a limiter
//! names them through their trait, as in `<Timeout<S> as Store<Rule>>::Answer`.

pub use crate::{
    middleware::ResponseFuture,
    store::{boxed::BoxFuture, traits::SyncFuture},
};
