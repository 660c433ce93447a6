//! What a layer begins with. The one place where the layer meets a concrete store.

use crate::{
    algorithm::Algorithm, layer::RateLimitLayer, limit::Limit, respond::Http, store::Local,
};

impl<Rule: Algorithm> RateLimitLayer<Limit<Rule>, Local<Rule>, Http> {
    /// Limits everybody together by `rule`, in memory, and answers over HTTP and gRPC.
    pub fn new(rule: Rule) -> Self {
        Self::from_parts(Limit::new(rule), Local::new(), Http::new())
    }
}
