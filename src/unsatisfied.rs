//! Methods that cannot be called, beside those that can, and a trait of others: each has a bound
//! that nothing satisfies, whose message says what to do. The compiler could not say that of a
//! method that does not exist.

use tower_layer::Layer;

use crate::{
    charging::{HandOver, LookFirst, Reserve},
    middleware::{Limit, RateLimitLayer},
    policy::Policy,
};

/// Implemented by nothing: bounds the settings of one limit on a layer that has several.
#[diagnostic::on_unimplemented(
    message = "a layer with several limits has no `key`, `rule`, `cost`, `named`, `charge_if`, `dry_run` and the like of its own",
    label = "this layer has several limits",
    note = "set those of the first limit before `.also(…)`, and those of each further one on itself: \
            `.also(Limit::new(rule).named(\"daily\").key(key))`"
)]
pub trait OneLimit {}

macro_rules! settings_of_one_limit {
    ([$($parameter:ident),*] $Limits:ty, $($setting:ident $(<$Argument:ident>)? ($($argument:ty),*);)*) => {
        impl<$($parameter,)* S, R> RateLimitLayer<$Limits, S, R> {
            $(
                #[doc(hidden)]
                pub fn $setting $(<$Argument>)? (self, $(_: $argument),*) -> Self
                where
                    $Limits: OneLimit,
                {
                    self
                }
            )*
        }
    };
    ($($settings:tt)*) => {
        settings_of_one_limit! { [A, B] (A, B), $($settings)* }
        settings_of_one_limit! { [L] Vec<L>, $($settings)* }
    };
}

settings_of_one_limit! {
    key<K>(K);
    rule<P>(P);
    cost<C>(C);
    named(&str);
    policy(Policy);
    charge_handle();
    charge_if<F>(F);
    charge_after<F>(F);
    dry_run();
    enforce_for(u8);
    candidate<Rule>(&str, Rule);
}

/// Implemented by nothing: bounds a second condition.
#[diagnostic::on_unimplemented(
    message = "this limit has a condition already",
    label = "has `.charge_if(…)` or `.charge_after(…)` already",
    note = "a limit has one of `.charge_if(…)` and `.charge_after(…)`: join both conditions in one closure"
)]
pub trait OneCondition {}

/// Implemented by nothing: bounds a charge after the response of a limit with a handle.
#[diagnostic::on_unimplemented(
    message = "a limit with a charge handle charges before the response",
    label = "has `.charge_handle()`",
    note = "use `.charge_if(…)` instead of `.charge_after(…)`: it charges first, and gives back by the response"
)]
pub trait ChargedAtOnce {}

/// Implemented by nothing: bounds a second handle.
#[diagnostic::on_unimplemented(
    message = "this limit has a charge handle already",
    label = "has `.charge_handle()` already"
)]
pub trait OneHandle {}

/// Implemented by nothing: bounds the handle of a charge that is made after the response.
#[diagnostic::on_unimplemented(
    message = "a limit that charges after the response has no charge to hand over",
    label = "has `.charge_after(…)`",
    note = "use `.charge_if(…)` instead of `.charge_after(…)`: it charges first, and gives back by the response"
)]
pub trait ChargedBefore {}

macro_rules! charged_otherwise {
    ($($Settle:ident { $($setting:ident $(<$Argument:ident>)? ($($argument:ty)?) needs $Need:ident;)* })*) => {
        $(
            impl<Rule, B, F> Limit<Rule, B, $Settle<F>> {
                $(
                    #[doc(hidden)]
                    pub fn $setting $(<$Argument>)? (self, $(_: $argument)?) -> Self
                    where
                        $Settle<F>: $Need,
                    {
                        self
                    }
                )*
            }

            impl<Rule, B, F, S, R> RateLimitLayer<Limit<Rule, B, $Settle<F>>, S, R> {
                $(
                    #[doc(hidden)]
                    pub fn $setting $(<$Argument>)? (self, $(_: $argument)?) -> Self
                    where
                        $Settle<F>: $Need,
                    {
                        self
                    }
                )*
            }
        )*
    };
}

charged_otherwise! {
    Reserve {
        charge_if<G>(G) needs OneCondition;
        charge_after<G>(G) needs OneCondition;
    }
    HandOver {
        charge_after<G>(G) needs ChargedAtOnce;
        charge_handle() needs OneHandle;
    }
    LookFirst {
        charge_if<G>(G) needs OneCondition;
        charge_after<G>(G) needs OneCondition;
        charge_handle() needs ChargedBefore;
    }
}

/// Implemented by nothing: bounds the use of a limit as a layer.
#[diagnostic::on_unimplemented(
    message = "a `Limit` is not a layer",
    label = "expected a layer, found a limit",
    note = "begin with `RateLimitLayer::new(rule)`, which has the same methods; a `Limit` is added to such a layer by `.also(limit)`"
)]
pub trait UseRateLimitLayer {}

#[doc(hidden)]
impl<Svc, Rule, B, T> Layer<Svc> for Limit<Rule, B, T>
where
    Self: UseRateLimitLayer,
{
    type Service = Svc;

    fn layer(&self, inner: Svc) -> Svc {
        inner
    }
}

/// Implemented by nothing: bounds methods that need the feature `tokio`.
#[cfg(not(feature = "tokio"))]
#[diagnostic::on_unimplemented(
    message = "this method needs the feature `tokio` of tollgate",
    label = "needs the feature `tokio`",
    note = "enable it in Cargo.toml: `tollgate = {{ version = \"0.1\", features = [\"tokio\"] }}`"
)]
pub trait FeatureTokio {}

#[cfg(not(feature = "tokio"))]
mod pacer {
    use std::future::{Ready, ready};

    use super::FeatureTokio;
    use crate::{algorithm::Algorithm, decision::Cost, pace::Pacer};

    impl<A: Algorithm, C> Pacer<A, C> {
        #[doc(hidden)]
        pub fn until_ready(&self) -> Ready<()>
        where
            A: FeatureTokio,
        {
            ready(())
        }

        #[doc(hidden)]
        pub fn until_ready_for(&self, _: Cost) -> Ready<()>
        where
            A: FeatureTokio,
        {
            ready(())
        }

        #[doc(hidden)]
        pub fn stream<S>(&self, inner: S) -> S
        where
            A: FeatureTokio,
        {
            inner
        }

        #[doc(hidden)]
        pub fn stream_by<S, F>(&self, inner: S, _: F) -> S
        where
            A: FeatureTokio,
        {
            inner
        }
    }
}

/// Implemented by nothing: bounds methods that need the feature `redis-tls`.
#[cfg(all(feature = "redis", not(feature = "redis-tls")))]
#[diagnostic::on_unimplemented(
    message = "this method needs the feature `redis-tls` of tollgate",
    label = "needs the feature `redis-tls`",
    note = "enable it in Cargo.toml: `tollgate = {{ version = \"0.1\", features = [\"redis-tls\"] }}`"
)]
pub trait FeatureRedisTls {}

#[cfg(all(feature = "redis", not(feature = "redis-tls")))]
mod redis_tls {
    use super::FeatureRedisTls;
    use crate::store::RedisBuilder;

    // A bound without a parameter or a lifetime would be an error here, where it must be one of
    // callers.
    impl<Rule> RedisBuilder<Rule> {
        #[doc(hidden)]
        pub fn root_certificate(self, _: impl Into<Vec<u8>>) -> Self
        where
            for<'a> &'a Self: FeatureRedisTls,
        {
            self
        }

        #[doc(hidden)]
        pub fn client_certificate(self, _: impl Into<Vec<u8>>, _: impl Into<Vec<u8>>) -> Self
        where
            for<'a> &'a Self: FeatureRedisTls,
        {
            self
        }

        #[doc(hidden)]
        pub fn plain_sentinels(self) -> Self
        where
            for<'a> &'a Self: FeatureRedisTls,
        {
            self
        }
    }
}
