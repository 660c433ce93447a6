//! The futures of the layer and of the stores.
//!
//! Programs await them and need not write their types down. A service or a store of your own that
//! wraps another one names them, as in `type Future = ResponseFuture<…>`.

pub use crate::{
    charging::Settling,
    limiter::LimiterFuture,
    middleware::ResponseFuture,
    store::{
        boxed::BoxFuture,
        check::CheckFuture,
        traits::SyncFuture,
        wrappers::{
            CircuitBreakerFuture, FallbackDone, FallbackFuture, ForgetFuture, OnFailureFuture,
            RememberFuture,
        },
    },
};

#[cfg(feature = "introspect")]
#[cfg_attr(docsrs, doc(cfg(feature = "introspect")))]
pub use crate::introspect::IntrospectFuture;
#[cfg(feature = "http-body")]
#[cfg_attr(docsrs, doc(cfg(feature = "http-body")))]
pub use crate::respond::metered::SettleByBodyFuture;
#[cfg(feature = "tokio")]
#[cfg_attr(docsrs, doc(cfg(feature = "tokio")))]
pub use crate::store::{counter::CounterStoreFuture, wrappers::TimeoutFuture};
