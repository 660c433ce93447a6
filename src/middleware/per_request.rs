//! The parts of a limit that read a request: its key, its cost, and its own rule.

use crate::{
    decision::Cost,
    key::{Extracted, Key, KeyExtractor, MissingKey},
};

/// The parts of a limit that are read of a request: its key, its cost, and its own rule.
///
/// | parameter | set by | default |
/// |---|---|---|
/// | `K` | [`key`](crate::Limit::key): a [`KeyExtractor`] | [`Global`](crate::key::Global), one key for all requests |
/// | `C` | [`cost`](crate::Limit::cost): a [`RequestCost`] | [`Cost`], the same for all requests: 1 |
/// | `P` | [`rule`](crate::Limit::rule): a [`SelectRule`] | `()`: no request has a rule of its own |
///
/// ```
/// use tollgate::{
///     By, Limit, RateLimitLayer, TokenBucket, key::PeerIp, respond::Http, store::Local,
/// };
///
/// struct App {
///     layer: RateLimitLayer<Limit<TokenBucket, By<PeerIp>>, Local<TokenBucket>, Http>,
/// }
/// let app = App { layer: RateLimitLayer::new(TokenBucket::per_second(10)).key(PeerIp::new()) };
/// # let _ = app.layer;
/// ```
#[derive(Clone, Copy, Debug)]
pub struct By<K, C = Cost, P = ()> {
    pub(super) key: K,
    pub(super) cost: C,
    pub(super) rule: P,
}

/// Reads what a limit needs of a request. A rule for the request goes to `rule`.
// As few functions as can be: each is a call by pointer for boxed limits.
#[doc(hidden)]
pub trait ReadRequest<Req, Rule> {
    /// Returns the key and the cost if the key is [at hand](KeyExtractor::key_at_hand).
    fn read_at_hand(&self, req: &Req, rule: &mut Option<Rule>) -> Option<(Key, Cost)>;

    /// Returns the key and the cost; `None` if the request is exempt.
    fn read(&self, req: &Req, rule: &mut Option<Rule>) -> Result<Option<(Key, Cost)>, MissingKey>;
}

impl<Req, Rule, K, C, P> ReadRequest<Req, Rule> for By<K, C, P>
where
    K: KeyExtractor<Req>,
    C: RequestCost<Req>,
    P: SelectRule<Req, Rule>,
{
    #[inline(always)]
    fn read_at_hand(&self, req: &Req, rule: &mut Option<Rule>) -> Option<(Key, Cost)> {
        let key = self.key.key_at_hand(req)?;
        let cost = self.cost.cost_of(req);
        *rule = self.rule.select_rule(req);
        Some((key, cost))
    }

    #[inline(always)]
    fn read(&self, req: &Req, rule: &mut Option<Rule>) -> Result<Option<(Key, Cost)>, MissingKey> {
        let Extracted::Key(key) = self.key.extract(req)? else {
            return Ok(None);
        };
        let cost = self.cost.cost_of(req);
        *rule = self.rule.select_rule(req);
        Ok(Some((key, cost)))
    }
}

/// Selects the rule of a request.
///
/// Implemented by closures `Fn(&Req) -> Option<Rule>`, and by `()`, which leaves each request to
/// the limit's own rule. Given to
/// [`RateLimitLayer::rule`](crate::RateLimitLayer::rule) or [`Limit::rule`](crate::Limit::rule).
///
/// ```
/// use http::Request;
/// use tollgate::{RateLimitLayer, SelectRule, TokenBucket, key::Header};
///
/// /// A larger quota for some API keys.
/// #[derive(Clone)]
/// struct Plans {
///     premium: Vec<String>,
/// }
///
/// impl<B> SelectRule<Request<B>, TokenBucket> for Plans {
///     fn select_rule(&self, request: &Request<B>) -> Option<TokenBucket> {
///         let key = request.headers().get("x-api-key")?.to_str().ok()?;
///         let premium = self.premium.iter().any(|premium| premium == key);
///         premium.then(|| TokenBucket::per_second(1_000))
///     }
/// }
///
/// let layer = RateLimitLayer::new(TokenBucket::per_second(10))
///     .key(Header::new("x-api-key"))
///     .rule(Plans { premium: vec!["s3cret".to_owned()] });
/// # let _ = layer;
/// ```
pub trait SelectRule<Req, Rule> {
    /// Returns the rule for `req`, or `None` for the limit's own rule.
    fn select_rule(&self, req: &Req) -> Option<Rule>;
}

impl<Req, Rule> SelectRule<Req, Rule> for () {
    #[inline]
    fn select_rule(&self, _: &Req) -> Option<Rule> {
        None
    }
}

impl<Req, Rule, F: Fn(&Req) -> Option<Rule>> SelectRule<Req, Rule> for F {
    fn select_rule(&self, req: &Req) -> Option<Rule> {
        self(req)
    }
}

/// Returns the cost of a request.
///
/// Implemented by closures `Fn(&Req) -> Cost`, and by [`Cost`], which is the cost of every request.
/// Given to [`RateLimitLayer::cost`](crate::RateLimitLayer::cost) or
/// [`Limit::cost`](crate::Limit::cost).
///
/// ```
/// use http::Request;
/// use tollgate::{Cost, RateLimitLayer, RequestCost, TokenBucket};
///
/// /// One unit for each started kilobyte of the body.
/// #[derive(Clone)]
/// struct Kilobytes;
///
/// impl RequestCost<Request<String>> for Kilobytes {
///     fn cost_of(&self, request: &Request<String>) -> Cost {
///         Cost::new(request.body().len().div_ceil(1024) as u64).unwrap_or(Cost::ONE)
///     }
/// }
///
/// assert_eq!(Kilobytes.cost_of(&Request::new("x".repeat(3_000))), Cost::new(3).unwrap());
/// let layer = RateLimitLayer::new(TokenBucket::per_second(100)).cost(Kilobytes);
/// # let _ = layer;
/// ```
pub trait RequestCost<Req> {
    /// Returns the cost of `req`.
    fn cost_of(&self, req: &Req) -> Cost;
}

impl<Req> RequestCost<Req> for Cost {
    #[inline]
    fn cost_of(&self, _: &Req) -> Cost {
        *self
    }
}

impl<Req, F: Fn(&Req) -> Cost> RequestCost<Req> for F {
    fn cost_of(&self, req: &Req) -> Cost {
        self(req)
    }
}
