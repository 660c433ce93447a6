//! A limit: its name, its rule, the parts that read requests and responses, and when it charges.
//!
//! It has a type parameter for the parts that read a request ([`By`]), and one for those that read
//! its response. All else are values, in [`LimitSettings`]: branches for the layers that use them.

use std::sync::Arc;

use super::{
    boxed::{BoxBy, BoxLimit, BoxSettle},
    config::{LimitSettings, When},
    layer::RateLimitLayer,
    per_request::{By, ReadRequest},
};
use crate::{
    algorithm::Algorithm,
    charging::{HandOver, LookFirst, Reserve, Settle},
    decision::Cost,
    dry_run::DryRun,
    error::{Error, or_panic},
    key::Global,
    live_rule::{LiveRule, OwnRule, check_rule},
    policy::Policy,
};

/// A limit: its name, its rule, the key that it counts by, and the cost of a request.
///
/// A layer has one to begin with; [`also`](RateLimitLayer::also) adds more, each with a name of its
/// own. A request passes if all limits of its layer admit it. It is charged to all of them, or to
/// none, but for a charge [after the response](Self::charge_after).
///
/// | parameter | | default |
/// |---|---|---|
/// | `Rule` | the type of the rule, such as [`TokenBucket`](crate::TokenBucket), or [`AnyRule`](crate::AnyRule) for rules from text | |
/// | `B` | the parts that read a request: [`By`] its key, its cost and its own rule | one key, a cost of 1, no own rule |
/// | `T` | the charge that the response settles: [`Reserve`], [`HandOver`] or [`LookFirst`] | `()`: nothing |
///
/// [`boxed`](Self::boxed) turns the last two into types that do not depend on closures, for limits
/// in a struct or a list.
///
/// ```
/// use http::Request;
/// use tollgate::{Cost, TokenBucket, key::{Header, PeerIp}, Limit, RateLimitLayer};
///
/// let uploads = Limit::new(TokenBucket::per_hour(1_000_000).burst(5_000_000))
///     .named("upload-kilobytes")
///     .key(Header::new("x-api-key"))
///     .cost(|request: &Request<String>| {
///         Cost::new(request.body().len() as u64 / 1024).unwrap_or(Cost::ONE)
///     });
/// let layer = RateLimitLayer::new(TokenBucket::per_second(10)).key(PeerIp::new()).also(uploads);
/// # let _ = layer;
/// ```
#[derive(Clone)]
#[must_use = "a limit does nothing until a layer has it"]
pub struct Limit<Rule, B = By<Global>, T = ()> {
    pub(super) settings: LimitSettings<Rule>,
    pub(super) by: B,
    pub(super) settle: T,
}

impl<Rule: Algorithm> Limit<Rule> {
    /// Returns a limit by `rule`, named `default`, with one key for all requests and a cost of 1.
    ///
    /// # Panics
    ///
    /// When [`try_new`](Self::try_new) fails: never with the feature `tokio`.
    #[track_caller]
    pub fn new(rule: Rule) -> Self {
        or_panic(Self::try_new(rule))
    }

    /// Returns a limit by a `rule` from configuration, named `default`, with one key for all
    /// requests and a cost of 1.
    ///
    /// # Errors
    ///
    /// When the rule [may delay](Algorithm::may_delay) requests, and the crate was built without
    /// the feature `tokio`, which delays need.
    pub fn try_new(rule: Rule) -> Result<Self, Error> {
        check_rule(&rule)?;
        Ok(Self::of(OwnRule::Fixed(rule)))
    }

    /// Returns a limit by a rule that may change at any time, named `default`, with one key for all
    /// requests and a cost of 1.
    ///
    /// # Panics
    ///
    /// When [`try_live`](Self::try_live) fails: never with the feature `tokio`.
    #[track_caller]
    pub fn live(rule: &LiveRule<Rule>) -> Self {
        or_panic(Self::try_live(rule))
    }

    /// Returns a limit by a rule from configuration that may change at any time, named `default`,
    /// with one key for all requests and a cost of 1.
    ///
    /// # Errors
    ///
    /// When the current rule [may delay](Algorithm::may_delay) requests, and the crate was built
    /// without the feature `tokio`, which delays need.
    pub fn try_live(rule: &LiveRule<Rule>) -> Result<Self, Error> {
        Ok(Self::of(OwnRule::Live {
            _watch: rule.watch(check_rule)?,
            rule: rule.clone(),
        }))
    }

    fn of(rule: OwnRule<Rule>) -> Self {
        Self {
            settings: LimitSettings {
                policy: Policy::default(),
                rule,
                waits: |rule| rule.waits_for_turn().is_some(),
                is_fixed: true,
                when: When::AtOnce,
                dry_run: None,
                is_shown: false,
                compared_with: None,
                is_candidate: false,
            },
            by: By {
                key: Global,
                cost: Cost::ONE,
                rule: (),
            },
            settle: (),
        }
    }
}

/// Writes each setting of a limit twice: for a limit, and for the only limit of a layer.
///
/// The head has the limits that have the setting, and the doc of the layer's block; `[B, T]` stands
/// for a limit of these parameters, or a layer with it.
macro_rules! settings {
    ([$($parameter:ident),*] $Now:ty, $T0:ty:
    $(
        $(#[$doc:meta])*
        fn $setting:ident $(<$Argument:ident>)? ($self:ident $(, $argument:ident: $Type:ty)*) -> [$B:ty, $T:ty] $body:block
    )*) => {
        impl<Rule, $($parameter),*> Limit<Rule, $Now, $T0> {
            $(
                $(#[$doc])*
                pub fn $setting $(<$Argument>)? ($self $(, $argument: $Type)*) -> Limit<Rule, $B, $T> $body
            )*
        }

        /// Settings of the layer's one limit. Call them before [`also`](Self::also), and set
        /// further limits up by themselves.
        impl<Rule, $($parameter,)* S, R> RateLimitLayer<Limit<Rule, $Now, $T0>, S, R> {
            $(
                $(#[$doc])*
                pub fn $setting $(<$Argument>)? ($self $(, $argument: $Type)*) -> RateLimitLayer<Limit<Rule, $B, $T>, S, R> {
                    // Not in a closure: a panic shows the caller's line.
                    let (limit, layer) = $self.take_limits();
                    layer.with_limits(limit.$setting($($argument),*))
                }
            )*
        }
    };
}

settings! { [K, C, P, T] By<K, C, P>, T:
    /// Counts by `key`: each key has the whole quota. Unless set, all requests share one.
    ///
    /// See [`key`](crate::key) for the extractors of this crate. An extractor of your own is a
    /// closure, or a type that implements [`KeyExtractor`](crate::key::KeyExtractor):
    ///
    /// ```
    /// use std::collections::HashSet;
    /// use http::{Request, StatusCode};
    /// use tollgate::{RateLimitLayer, TokenBucket, key::{Extracted, Key, KeyExtractor, MissingKey}};
    ///
    /// /// Limits each tenant, exempts the health check, and refuses banned tenants.
    /// #[derive(Clone)]
    /// struct Tenant {
    ///     banned: HashSet<String>,
    /// }
    ///
    /// impl<B> KeyExtractor<Request<B>> for Tenant {
    ///     fn extract(&self, request: &Request<B>) -> Result<Extracted, MissingKey> {
    ///         if request.uri().path() == "/health" {
    ///             return Ok(Extracted::Exempt);
    ///         }
    ///         let tenant = request.headers().get("x-tenant").and_then(|value| value.to_str().ok());
    ///         let tenant = tenant.ok_or(MissingKey::new("no header `x-tenant`"))?;
    ///         if self.banned.contains(tenant) {
    ///             let banned = MissingKey::new("the tenant is banned");
    ///             return Err(banned.with_status(StatusCode::FORBIDDEN));
    ///         }
    ///         Ok(Extracted::Key(Key::from(tenant)))
    ///     }
    /// }
    ///
    /// let tenant = Tenant { banned: HashSet::from(["mallory".to_owned()]) };
    /// let request = |name| Request::builder().header("x-tenant", name).body(()).unwrap();
    /// let of = |name| tenant.extract(&request(name));
    /// assert_eq!(of("alice"), Ok(Extracted::Key(Key::from("alice"))));
    /// assert_eq!(of("mallory").unwrap_err().status(), StatusCode::FORBIDDEN);
    /// let layer = RateLimitLayer::new(TokenBucket::per_second(10)).key(tenant);
    /// # let _ = layer;
    /// ```
    #[doc(alias("per ip", "identifier", "ban"))]
    fn key<L>(self, key: L) -> [By<L, C, P>, T] {
        self.reading(|by| By { key, cost: by.cost, rule: by.rule })
    }

    /// Selects the rule for each request: a closure `Fn(&Req) -> Option<Rule>`, or any
    /// [`SelectRule`](crate::SelectRule). `None` is the limit's own rule.
    ///
    /// Rules of one algorithm share the state of a key, and so one budget, in the memory of the
    /// rule that was asked last. So they may differ in their amounts, as plans do. Rules of
    /// different lengths need a limit each, [`also`](RateLimitLayer::also): a call under `100/1m`
    /// drops what only `1000/1h` would still count, or cuts a bucket of an hour to the level of a
    /// minute.
    ///
    /// A rule that delays a request needs tokio to hold it. Without the feature `tokio`, or outside
    /// of a runtime of tokio, the request is refused instead, its charge is refunded, and
    /// `Retry-After` is the delay.
    ///
    /// A selected rule that does not [fit](crate::store::Store::fits) the layer's store is noticed
    /// only when it is used. Its request is refused as the server's fault (500; gRPC: `INTERNAL`),
    /// [counted](RateLimitLayer::misconfigured), and logged once for each policy and cause.
    #[doc(alias("plan", "tier"))]
    fn rule<Q>(self, per_request: Q) -> [By<K, C, Q>, T] {
        let mut limit = self.reading(|by| By { key: by.key, cost: by.cost, rule: per_request });
        limit.settings.is_fixed = false;
        limit
    }

    /// Changes the cost of a request, 1 unless set: a [`Cost`], a closure `Fn(&Req) -> Cost`, or
    /// any [`RequestCost`](crate::RequestCost).
    #[doc(alias = "weight")]
    fn cost<D>(self, cost: D) -> [By<K, D, P>, T] {
        self.reading(|by| By { key: by.key, cost, rule: by.rule })
    }
}

settings! { [B, T] B, T:
    /// Changes the limit's name, which is `default` unless set.
    ///
    /// Stacked layers need different names: clients, [outcomes](crate::Outcome::get) and shared
    /// stores distinguish limits by name. Layers do not see each other, so equal names are no error
    /// there, as they are in [`also`](RateLimitLayer::also). Responses and outcomes then report
    /// only the limit of that name that is nearest to exhaustion.
    ///
    /// # Panics
    ///
    /// When the name is no [`Policy`]: empty, too long, or not printable ASCII. Use
    /// [`Policy::try_new`] and [`policy`](Self::policy) for names from data.
    #[track_caller]
    fn named(self, name: &str) -> [B, T] {
        self.policy(Policy::new(name))
    }

    /// Changes the limit's policy: its name, and what clients read about it.
    fn policy(self, policy: Policy) -> [B, T] {
        self.with_settings(|settings| settings.policy = policy)
    }

    /// Puts the limit on a dry run: it decides, counts and reports, but refuses and delays nothing.
    ///
    /// Its decisions are in the [report](RateLimitLayer::dry_run_report) and go to the layer's
    /// [observers](crate::observe::Observer::dry_run). Response headers and outcomes do not contain
    /// them, unless they are [shown](Self::dry_run_shown). A request without a key proceeds as if
    /// it were exempt, and is counted.
    ///
    /// The limit decides as if it were alone: it charges its own state, for requests that another
    /// limit refuses, too, unless it charges by the response or has a handle: such a request gets
    /// neither. Its keys take room in the layer's store, as those of any limit do.
    ///
    /// The layer asks the store for each limit on a dry run by itself, at the same time as for the
    /// others, and waits for its answer. If the store fails, or does not support the rule, the
    /// request proceeds and is counted as undecided. A request that is dropped before all answers
    /// are there is not counted.
    ///
    /// A [handle](Limit::charge_handle) exists only for a request that the dry run would have
    /// admitted, and is one more handle beside those of other limits, so handlers must select
    /// theirs by [name](crate::ChargeHandle::of). With [`charge_after`](Limit::charge_after) the
    /// limit reserves and settles as [`charge_if`](Limit::charge_if) does.
    ///
    /// ```
    /// use std::convert::Infallible;
    /// use http::{Request, Response};
    /// use tollgate::{RateLimitLayer, TokenBucket};
    /// use tower::{ServiceBuilder, ServiceExt, service_fn};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Infallible> {
    /// let layer = RateLimitLayer::new(TokenBucket::per_minute(1)).named("api").dry_run();
    /// let service = ServiceBuilder::new()
    ///     .layer(layer.clone())
    ///     .service(service_fn(async |_: Request<()>| {
    ///         Ok::<_, Infallible>(Response::new(String::from("hello")))
    ///     }));
    ///
    /// for _ in 0..3 {
    ///     assert_eq!(service.clone().oneshot(Request::new(())).await?.body(), "hello");
    /// }
    /// let report = layer.dry_run_report("api").unwrap();
    /// assert_eq!((report.admitted, report.refused), (1, 2));
    /// # Ok(()) }
    /// ```
    #[doc(alias("shadow", "log only"))]
    fn dry_run(self) -> [B, T] {
        self.enforce_for(0)
    }

    /// Enforces the limit for a percentage of its keys, and is a [dry run](Self::dry_run) for the
    /// others.
    ///
    /// The [digest](crate::key::Key::digest) of a key selects it, so every node enforces the limit
    /// for the same keys, a higher percentage includes the keys of a lower one, and limits with
    /// equal percentages and keys are enforced for the same clients. 0 is a dry run. 100 enforces
    /// the limit, and refuses requests without a key, which proceed at any lower percentage.
    ///
    /// # Panics
    ///
    /// When `percent` is above 100; see [`Limit::try_enforce_for`].
    #[doc(alias("roll-out", "canary"))]
    #[track_caller]
    fn enforce_for(self, percent: u8) -> [B, T] {
        or_panic(self.try_enforce_for(percent))
    }

    /// Shows the decisions of a [dry run](Self::dry_run) in response headers, under the limit's
    /// name, and in the [`Outcome`](crate::Outcome). A limit that is on none is not changed.
    ///
    /// ```
    /// use std::convert::Infallible;
    /// use http::{Request, Response};
    /// use tollgate::{RateLimitLayer, TokenBucket};
    /// use tower::{ServiceBuilder, ServiceExt, service_fn};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Infallible> {
    /// let service = ServiceBuilder::new()
    ///     .layer(
    ///         RateLimitLayer::new(TokenBucket::per_minute(60))
    ///             .named("next")
    ///             .dry_run()
    ///             .dry_run_shown(),
    ///     )
    ///     .service(service_fn(async |_: Request<()>| {
    ///         Ok::<_, Infallible>(Response::new(String::new()))
    ///     }));
    ///
    /// let response = service.oneshot(Request::new(())).await?;
    /// assert_eq!(response.headers()["ratelimit"], "\"next\";r=59;t=59");
    /// # Ok(()) }
    /// ```
    fn dry_run_shown(self) -> [B, T] {
        self.with_settings(|settings| settings.is_shown = true)
    }
}

impl<Rule, K, C, P, T> Limit<Rule, By<K, C, P>, T> {
    fn reading<B>(self, change: impl FnOnce(By<K, C, P>) -> B) -> Limit<Rule, B, T> {
        Limit {
            settings: self.settings,
            by: change(self.by),
            settle: self.settle,
        }
    }

    /// Returns a candidate for the rule, on a dry run beside this limit.
    pub(super) fn candidate(&self, policy: Policy, rule: Rule) -> Limit<Rule, By<K, C>, T>
    where
        K: Clone,
        C: Clone,
        T: Clone,
    {
        Limit {
            settings: LimitSettings {
                policy,
                rule: OwnRule::Fixed(rule),
                is_fixed: true,
                // A dry run never does.
                waits: |_| false,
                // On a dry run, looks are reservations.
                when: self.settings.when,
                dry_run: Some(DryRun::default()),
                is_shown: false,
                compared_with: Some(self.settings.policy.clone()),
                is_candidate: true,
            },
            by: By {
                key: self.by.key.clone(),
                cost: self.by.cost.clone(),
                rule: (),
            },
            settle: self.settle.clone(),
        }
    }
}

impl<Rule, B, T> Limit<Rule, B, T> {
    /// Enforces the limit for a share of its keys, as [`enforce_for`](Limit::enforce_for) does,
    /// with a percentage from configuration.
    ///
    /// # Errors
    ///
    /// When `percent` is above 100.
    pub fn try_enforce_for(mut self, percent: u8) -> Result<Self, Error> {
        let dry_run = self.settings.dry_run.get_or_insert_default();
        dry_run.enforce_for(percent)?;
        Ok(self)
    }

    /// Compares the decisions of a [dry run](Limit::dry_run) with those of another limit of the
    /// layer, for the [report](RateLimitLayer::dry_run_report): how often would one of them refuse
    /// and the other not? A limit that is on no dry run is not changed.
    ///
    /// The limits are compared one by one: a request that `live` admits counts as admitted by it,
    /// even if a third limit refuses the request. The layer must have the limit `live` when
    /// [`also`](RateLimitLayer::also) gives it a further one; otherwise `also` fails.
    pub fn compared_with(self, live: Policy) -> Self {
        self.with_settings(|settings| settings.compared_with = Some(live))
    }

    /// Returns the limit with types that do not depend on its key, its cost, its rule for each
    /// request, or its condition, for a list or a field of a struct.
    ///
    /// ```
    /// use axum::body::Body;
    /// use http::{Request, Response};
    /// use tollgate::{AnyRule, BoxLimit, Limit, key::{Header, PeerIp}};
    ///
    /// let limits: Vec<BoxLimit<Request<Body>, AnyRule>> = vec![
    ///     Limit::new("token-bucket 10/1s".parse()?).key(PeerIp::new()).boxed(),
    ///     Limit::new("fixed-window 1000/1d".parse()?)
    ///         .named("daily")
    ///         .key(Header::new("x-api-key"))
    ///         .charge_if(|response: &Response<Body>| response.status().is_success())
    ///         .boxed(),
    /// ];
    /// # assert_eq!(limits.len(), 2);
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    pub fn boxed<Req, Res>(self) -> BoxLimit<Req, Rule, Res>
    where
        B: ReadRequest<Req, Rule> + Send + Sync + 'static,
        T: Settle<Req, Res> + Send + Sync + 'static,
    {
        let settle = self.settings.settles().then(|| Arc::new(self.settle) as _);
        Limit {
            settings: self.settings,
            by: BoxBy(Arc::new(self.by)),
            settle: BoxSettle(settle),
        }
    }

    /// Returns the limit's policy.
    #[cfg(feature = "config")]
    pub(crate) fn own_policy(&self) -> &Policy {
        &self.settings.policy
    }

    /// Returns the counts of the dry run that the limit is on.
    #[cfg(feature = "config")]
    pub(crate) fn counts_of_dry_run(&self) -> Option<&DryRun> {
        self.settings.dry_run.as_ref()
    }

    /// Has a dry run go on counting in that of an earlier limit.
    #[cfg(feature = "config")]
    pub(crate) fn counting_in(mut self, earlier: Option<&DryRun>) -> Self {
        if let (Some(dry_run), Some(earlier)) = (&mut self.settings.dry_run, earlier) {
            dry_run.count_in(earlier);
        }
        self
    }

    fn with_settings(mut self, change: impl FnOnce(&mut LimitSettings<Rule>)) -> Self {
        change(&mut self.settings);
        self
    }

    fn settled_by<U>(self, when: When, change: impl FnOnce(T) -> U) -> Limit<Rule, B, U> {
        let settings = self.with_settings(|settings| settings.when = when);
        Limit {
            settings: settings.settings,
            by: settings.by,
            settle: change(settings.settle),
        }
    }
}

settings! { [B] B, ():
    /// Charges only requests whose response fulfils a condition: a closure `Fn(&Response) -> bool`,
    /// or any [`ChargeIf`](crate::ChargeIf).
    ///
    /// **Reserve, then settle.** The cost is charged when the request is admitted, and refunded
    /// if the response does not fulfil the condition. So requests in progress count against the
    /// limit: of ten concurrent logins under "3 failures", seven are refused although no login
    /// failed, and of ten guesses three are tried. Use [`charge_after`](Self::charge_after) where
    /// that is wrong.
    ///
    /// A request without a response stays charged: its handler panicked or returned an error, or
    /// its client went away.
    ///
    /// ```
    /// use http::Response;
    /// use tollgate::{RateLimitLayer, TokenBucket, key::PeerIp};
    ///
    /// // Answers from the cache are free.
    /// let layer = RateLimitLayer::new(TokenBucket::per_minute(100))
    ///     .key(PeerIp::new())
    ///     .charge_if(|response: &Response<String>| !response.headers().contains_key("x-cache-hit"));
    /// # let _ = layer;
    /// ```
    fn charge_if<F>(self, condition: F) -> [B, Reserve<F>] {
        self.settled_by(When::Reserve, |()| Reserve { condition })
    }

    /// Charges only requests whose response fulfils a condition, after that response: a closure
    /// `Fn(&Response) -> bool`, or any [`ChargeIf`](crate::ChargeIf).
    ///
    /// **Look, then charge.** A request is refused if the limit would refuse it now, and otherwise
    /// proceeds without a charge. Requests in progress do not count: ten concurrent correct logins
    /// under "3 failures" all pass. If the response fulfils the condition, the limit is charged; if
    /// it refuses by then, because concurrent requests have exhausted it, the response is dropped
    /// and the client gets the refusal instead. So no client gets more such responses than the
    /// limit admits, however many requests it sends at once. What other limits have charged stays
    /// charged, and the refusal has their waits, too; its [outcome](crate::Outcome) has the limits
    /// of this layer alone. But all of these are *handled*, and those that are not charged are
    /// answered: of a burst of guessed passwords, the right one. Use [`charge_if`](Self::charge_if)
    /// where the attempts must be bounded.
    ///
    /// A request without a response is charged when it ends: its handler panicked or returned an
    /// error, or its client went away. A store on a server makes that charge in the background.
    ///
    /// If a request costs more than 1, the wait in a refusal is until the key is unused, which may
    /// be longer than necessary. Delays of the rule are not observed. With a store on a server, the
    /// store is asked once before the request and once after it, if it is charged, and once more if
    /// that is refused and there are other limits.
    ///
    /// ```
    /// use std::convert::Infallible;
    /// use http::{Request, Response, StatusCode};
    /// use tollgate::{RateLimitLayer, TokenBucket};
    /// use tower::{ServiceBuilder, ServiceExt, service_fn};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Infallible> {
    /// // Three invalid numbers an hour. Valid ones are free, however many are in progress.
    /// let limit = RateLimitLayer::new(TokenBucket::per_hour(3));
    /// let square = ServiceBuilder::new()
    ///     .layer(limit.charge_after(|response: &Response<String>| {
    ///         response.status() == StatusCode::BAD_REQUEST
    ///     }))
    ///     .service(service_fn(async |number: Request<&str>| {
    ///         let mut response = Response::new(String::new());
    ///         match number.body().parse::<u32>() {
    ///             Ok(number) => *response.body_mut() = u64::from(number).pow(2).to_string(),
    ///             Err(_) => *response.status_mut() = StatusCode::BAD_REQUEST,
    ///         }
    ///         Ok::<_, Infallible>(response)
    ///     }));
    ///
    /// let status = async |number| {
    ///     square.clone().oneshot(Request::new(number)).await.unwrap().status()
    /// };
    /// for _ in 0..10 {
    ///     assert_eq!(status("7").await, StatusCode::OK);
    /// }
    /// for _ in 0..3 {
    ///     assert_eq!(status("seven").await, StatusCode::BAD_REQUEST);
    /// }
    /// assert_eq!(status("seven").await, StatusCode::TOO_MANY_REQUESTS);
    /// # Ok(()) }
    /// ```
    fn charge_after<F>(self, condition: F) -> [B, LookFirst<F>] {
        self.settled_by(When::LookFirst, |()| LookFirst { condition })
    }

    /// Puts a [`ChargeHandle`](crate::ChargeHandle) into the extensions of each request that is
    /// charged, so that its handler can correct the charge to the actual cost.
    ///
    /// The [cost](Limit::cost) is reserved: it counts against the limit until it is settled. A
    /// handle that is dropped leaves it charged. If the store answers at once, the rate limit
    /// fields of the response have the numbers after the settlement.
    fn charge_handle(self) -> [B, HandOver] {
        self.settled_by(When::Reserve, |()| HandOver { condition: () })
    }
}

settings! { [B, F] B, Reserve<F>:
    /// Puts a [`ChargeHandle`](crate::ChargeHandle) into the extensions of each request that is
    /// charged, beside the condition: the handler may correct the charge, or the response gives it
    /// back.
    fn charge_handle(self) -> [B, HandOver<F>] {
        self.settled_by(When::Reserve, |settle| HandOver { condition: settle.condition })
    }
}

settings! { [B] B, HandOver:
    /// Charges only requests whose response fulfils a condition, unless their handler has settled
    /// the charge; see the condition of a limit [without a handle](Limit::charge_if).
    fn charge_if<F>(self, condition: F) -> [B, HandOver<F>] {
        self.settled_by(When::Reserve, |_| HandOver { condition })
    }
}

impl_debug!([Rule: std::fmt::Debug, B, T] Limit<Rule, B, T>, |it|
    policy = it.settings.policy, rule = it.settings.rule
);
