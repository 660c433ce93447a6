//! Bounds that nothing satisfies, of methods that stand where others are missing: the compiler then says what to do, which it
//! cannot say of a method that is not there.

/// Implemented by nothing: a setting of one limit, where a layer has several.
#[diagnostic::on_unimplemented(
    message = "a layer with several limits has no `key`, `rule`, `cost`, `named` or `policy` of its own",
    label = "this layer has several limits",
    note = "set those of the first limit before `.also(…)`, and those of each further one on itself: \
            `.also(Limit::new(rule).named(\"daily\").key(key))`"
)]
pub trait OneLimit {}

/// Implemented by nothing: what it bounds needs the feature `tokio`.
#[cfg(not(feature = "tokio"))]
#[diagnostic::on_unimplemented(
    message = "this method needs the feature `tokio` of tollgate",
    label = "needs the feature `tokio`",
    note = "enable it in Cargo.toml: `tollgate = {{ version = \"0.1\", features = [\"tokio\"] }}`"
)]
pub trait FeatureTokio {}

/// Implemented by nothing: what it bounds needs the feature `redis-tls`.
#[cfg(all(feature = "redis", not(feature = "redis-tls")))]
#[diagnostic::on_unimplemented(
    message = "this method needs the feature `redis-tls` of tollgate",
    label = "needs the feature `redis-tls`",
    note = "enable it in Cargo.toml: `tollgate = {{ version = \"0.1\", features = [\"redis-tls\"] }}`"
)]
pub trait FeatureRedisTls {}
