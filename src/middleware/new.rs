//! Constructors with the defaults. The one file of the middleware that names algorithms, a concrete
//! store and a protocol.

use super::{layer::RateLimitLayer, limit::Limit};
use crate::{algorithm::Algorithm, error::Error, respond::Http, store::Local};

impl<Rule: Algorithm> RateLimitLayer<Limit<Rule>, Local<Rule>, Http> {
    /// Limits all requests together by `rule`, with state in memory and answers over HTTP and gRPC.
    ///
    /// # Panics
    ///
    /// When [`try_new`](Self::try_new) fails: never with the feature `tokio`.
    #[track_caller]
    pub fn new(rule: Rule) -> Self {
        Self::from_parts(Limit::new(rule), Local::new(), Http::new())
    }

    /// Limits all requests together by a `rule` from configuration, with state in memory and
    /// answers over HTTP and gRPC.
    ///
    /// # Errors
    ///
    /// When the rule [may delay](Algorithm::may_delay) requests, and the crate was built without
    /// the feature `tokio`, which delays need.
    pub fn try_new(rule: Rule) -> Result<Self, Error> {
        let limit = Limit::try_new(rule)?;
        Ok(Self::from_parts(limit, Local::new(), Http::new()))
    }
}

impl<Rule: Algorithm> Limit<Rule> {
    /// Returns a limit by `rule`, named `default`, with one key for all requests and a cost of 1.
    ///
    /// # Panics
    ///
    /// When [`try_new`](Self::try_new) fails: never with the feature `tokio`.
    #[track_caller]
    pub fn new(rule: Rule) -> Self {
        Self::try_new(rule).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Returns a limit by a `rule` from configuration, named `default`, with one key for all
    /// requests and a cost of 1.
    ///
    /// # Errors
    ///
    /// When the rule [may delay](Algorithm::may_delay) requests, and the crate was built without
    /// the feature `tokio`, which delays need.
    pub fn try_new(rule: Rule) -> Result<Self, Error> {
        if rule.may_delay() && !cfg!(feature = "tokio") {
            return Err(Error::new(
                "the rule delays requests, which this build cannot: expected tollgate's feature `tokio`; enable it, or \
                 take a rule that answers at once, such as `token-bucket`, `warm-up`, or `leaky-bucket` with `queue=0`",
            ));
        }
        Ok(Self::of_rule(rule))
    }
}
