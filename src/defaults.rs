//! What a layer begins with. The one place where the layer meets rules and a concrete store.

use crate::{
    algorithm::Algorithm,
    error::Error,
    middleware::{Limit, RateLimitLayer},
    respond::Http,
    store::Local,
};

impl<Rule: Algorithm> RateLimitLayer<Limit<Rule>, Local<Rule>, Http> {
    /// Limits everybody together by `rule`, in memory, and answers over HTTP and gRPC.
    ///
    /// # Panics
    ///
    /// Where [`try_new`](Self::try_new) fails: never with the feature `tokio`.
    #[track_caller]
    pub fn new(rule: Rule) -> Self {
        Self::from_parts(Limit::new(rule), Local::new(), Http::new())
    }

    /// Limits everybody together by a `rule` that configuration chose, in memory, and answers over HTTP and gRPC.
    ///
    /// # Errors
    ///
    /// When the rule [may delay](Algorithm::may_delay) requests, and the crate was built without the feature `tokio`, which holds
    /// them.
    pub fn try_new(rule: Rule) -> Result<Self, Error> {
        let limit = Limit::try_new(rule)?;
        Ok(Self::from_parts(limit, Local::new(), Http::new()))
    }
}

impl<Rule: Algorithm> Limit<Rule> {
    /// A limit named `default`, with one key for everybody and a cost of 1.
    ///
    /// # Panics
    ///
    /// Where [`try_new`](Self::try_new) fails: never with the feature `tokio`.
    #[track_caller]
    pub fn new(rule: Rule) -> Self {
        Self::try_new(rule).unwrap_or_else(|error| panic!("{error}"))
    }

    /// A limit by a `rule` that configuration chose, named `default`, with one key for everybody and a cost of 1.
    ///
    /// # Errors
    ///
    /// When the rule [may delay](Algorithm::may_delay) requests, and the crate was built without the feature `tokio`, which holds
    /// them.
    pub fn try_new(rule: Rule) -> Result<Self, Error> {
        if rule.may_delay() && !cfg!(feature = "tokio") {
            return Err(Error::new(
                "a rule that delays requests, and nothing that could hold them: expected tollgate's feature `tokio` where a \
                 limit has such a rule; enable it, or take a rule that answers at once, such as `token-bucket`, `warm-up`, or \
                 `leaky-bucket` with `queue=0`",
            ));
        }
        Ok(Self::of_rule(rule))
    }
}
