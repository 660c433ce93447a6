//! The layer of a file: it chooses the limits of a request by its route, and takes another file
//! while requests go on.
//!
//! A file is one generation: routes, limits and rules, made as a whole and swapped in by one
//! pointer. A request reads the pointer once, so it is decided by one file alone, and settles its
//! charges by the rules that made them.

use std::{
    fmt,
    sync::{Arc, Mutex},
    task::{Context, Poll},
};

use arc_swap::ArcSwap;
use http::{Method, Request, Response};
use tower_layer::Layer;
use tower_service::Service;

use super::{
    changes::Changes,
    document::Document,
    file::{Charge, FileLimit, LimitsFile},
    in_use::PoliciesInUse,
    key::FileKey,
    problem::{Problem, Problems},
};
use crate::{
    AnyRule,
    dry_run::{DryRun, DryRunReport},
    error::Error,
    locks::lock,
    middleware::{BoxLimit, BoxSettle, Config, Limit, RateLimitLayer, ResponseFuture, SettleLater},
    observe::Observer,
    policy::Policy,
    respond::{Http, Respond},
    stats::stats,
    store::{Backend, Local, NeverFails, Store},
};

/// A limit of a file or of the program.
type AnyLimit<B, Out> = BoxLimit<Request<B>, AnyRule, Response<Out>>;

/// The limits of a request, and where their states are.
type RouteConfig<B, S, R, Out> = Arc<Config<Vec<AnyLimit<B, Out>>, S, R>>;

/// Limits requests as a [file](LimitsFile) says, which may change while the server runs.
///
/// It is a layer; [`reload`](Self::reload) and [`watch`](Self::watch) of any clone change the file
/// of all services that it made. Requests are `http`'s, with a body of the type `B`; responses have
/// a body of the type `Out`.
///
/// ```
/// use axum::{Router, body::Body, extract::Request, routing::{get, post}};
/// use tollgate::config::RouteLimits;
///
/// let text = r#"
///     [limits]
///     login   = { rule = "sliding-log 5/15m", key = "peer-ip", charge-if = "status 401" }
///     address = { rule = "token-bucket 20/1s", key = "peer-ip" }
///
///     [[routes]]
///     match = "POST /login"
///     limits = ["login", "address"]
///
///     [default]
///     limits = ["address"]
/// "#;
/// let limits = RouteLimits::new(text)?;
/// let app: Router = Router::new()
///     .route("/login", post(async || "welcome"))
///     .route("/", get(async || "hello"))
///     .layer(limits.clone());
///
/// let changes = limits.reload(&text.replace("20/1s", "10/1s"))?;
/// assert!(changes.to_string().starts_with("limit `address`: the rule `token-bucket 20/s`"));
/// // A file with a mistake changes nothing.
/// assert!(limits.reload(&text.replace("sliding-log", "sliding-lock")).is_err());
/// assert_eq!((limits.reloads().taken, limits.reloads().failed), (1, 1));
/// # let _ = app;
/// # Ok::<(), tollgate::config::Problems>(())
/// ```
#[doc(alias("hot reload", "configuration", "toml", "yaml"))]
#[must_use = "a layer does nothing until it is added to a service"]
pub struct RouteLimits<B, S = Local<AnyRule>, R = Http, Out = B>(Arc<Live<B, S, R, Out>>);

/// The parts that all clones and services share.
struct Live<B, S, R, Out> {
    current: ArcSwap<Generation<B, S, R, Out>>,
    parts: Parts<B, S, R, Out>,
    /// Locked by who changes the file, and never by a request.
    reload: Mutex<()>,
    reloads: ReloadCounters,
}

/// The parts that stay when the file changes.
struct Parts<B, S, R, Out> {
    of_program: Vec<AnyLimit<B, Out>>,
    /// The store, the responder, the observer and the counts, of all routes. It has no limits.
    layer: RateLimitLayer<Vec<AnyLimit<B, Out>>, S, R>,
    policies: PoliciesInUse,
}

/// A file, ready for requests.
struct Generation<B, S, R, Out> {
    file: Arc<LimitsFile>,
    /// One for each route.
    configs: Vec<RouteConfig<B, S, R, Out>>,
    default: RouteConfig<B, S, R, Out>,
    /// The dry runs of the file, by name.
    dry_runs: Vec<(String, DryRun)>,
}

stats! {
    /// The counts of the files of a [`RouteLimits`] layer since it was made.
    ///
    /// ```
    /// use tollgate::config::{ReloadStats, RouteLimits};
    ///
    /// let limits: RouteLimits<()> = RouteLimits::new("default.limits = []")?;
    /// assert_eq!(limits.reloads(), ReloadStats::default());
    /// # Ok::<(), tollgate::config::Problems>(())
    /// ```
    pub struct ReloadStats {
        counted {
            /// Files that took the place of another one, and mean something else.
            taken = "tollgate_limits_files_total"["outcome" = "taken"],
            /// Files that had mistakes, or could not be read, and changed nothing.
            failed = "tollgate_limits_files_total"["outcome" = "failed"],
        }
        given {}
    }
    struct ReloadCounters;
}

impl<B: 'static, Out: 'static> RouteLimits<B, Local<AnyRule>, Http, Out> {
    /// Limits requests by a file of TOML, with states in memory and answers over HTTP and gRPC.
    ///
    /// # Errors
    ///
    /// All mistakes of the file.
    pub fn new(text: &str) -> Result<Self, Problems> {
        Self::builder().build(text)
    }

    /// Begins with states in memory and answers over HTTP and gRPC.
    pub fn builder() -> RouteLimitsBuilder<B, Local<AnyRule>, Http, Out> {
        RouteLimitsBuilder(Parts {
            of_program: Vec::new(),
            layer: RateLimitLayer::of(Vec::new()),
            policies: PoliciesInUse::default(),
        })
    }
}

/// The parts of a program beside a file: the store, the responder, observers, and limits that a
/// file cannot say. Made by [`RouteLimits::builder`].
///
/// ```
/// use http::Request;
/// use tollgate::{AnyRule, config::RouteLimits, prelude::*};
///
/// /// Inserted by an outer layer that has checked the token.
/// struct User { id: u64 }
///
/// let by_user = Limit::new("token-bucket 100/1m".parse::<AnyRule>()?)
///     .named("user")
///     .key(tollgate::key::Extension::new(|user: &User| user.id));
/// let limits: RouteLimits<String, _> = RouteLimits::builder()
///     .store(Local::new().fail_open())
///     .limit(by_user.boxed())
///     .build("default.limits = [\"user\"]")?;
/// # let _ = limits;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a builder does nothing until `build`"]
pub struct RouteLimitsBuilder<B, S, R, Out>(Parts<B, S, R, Out>);

impl<B: 'static, S, R, Out: 'static> RouteLimitsBuilder<B, S, R, Out> {
    /// Keeps the states in another store, as
    /// [`RateLimitLayer::store`](crate::RateLimitLayer::store) does.
    pub fn store<T>(self, store: T) -> RouteLimitsBuilder<B, T, R, Out>
    where
        T: Backend<Error: NeverFails> + Store<AnyRule> + Clone + Send + Sync + 'static,
    {
        RouteLimitsBuilder(Parts {
            of_program: self.0.of_program,
            layer: self.0.layer.store(store),
            policies: self.0.policies,
        })
    }

    /// Changes the answers, as [`RateLimitLayer::respond`](crate::RateLimitLayer::respond) does.
    pub fn respond<T>(self, respond: T) -> RouteLimitsBuilder<B, S, T, Out> {
        RouteLimitsBuilder(Parts {
            of_program: self.0.of_program,
            layer: self.0.layer.respond(respond),
            policies: self.0.policies,
        })
    }

    /// Reports what all limits do to one more observer, as
    /// [`RateLimitLayer::observe`](crate::RateLimitLayer::observe) does.
    pub fn observe(mut self, observer: impl Observer + Send + Sync + 'static) -> Self {
        self.0.layer = self.0.layer.observe(observer);
        self
    }

    /// Adds a limit that no file can say, such as one by a key of the program. Routes of the file
    /// have it if they name it.
    pub fn limit(mut self, limit: BoxLimit<Request<B>, AnyRule, Response<Out>>) -> Self {
        self.0.of_program.push(limit);
        self
    }

    /// Reads the file, as TOML.
    ///
    /// # Errors
    ///
    /// All mistakes of the file, among them rules that the store cannot run.
    pub fn build(self, text: &str) -> Result<RouteLimits<B, S, R, Out>, Problems>
    where
        S: Backend<Error: NeverFails> + Store<AnyRule> + Clone + Send + Sync + 'static,
        R: Clone,
    {
        self.build_from(&Document::from_toml(text)?)
    }

    /// Reads the file from a document of any format.
    ///
    /// # Errors
    ///
    /// All mistakes of the file, among them rules that the store cannot run.
    pub fn build_from(self, document: &Document) -> Result<RouteLimits<B, S, R, Out>, Problems>
    where
        S: Backend<Error: NeverFails> + Store<AnyRule> + Clone + Send + Sync + 'static,
        R: Clone,
    {
        let file = self.0.read(document)?;
        let first = self.0.generation(file, &[])?;
        self.0.take_effect(&first);
        Ok(RouteLimits(Arc::new(Live {
            current: ArcSwap::from_pointee(first),
            parts: self.0,
            reload: Mutex::default(),
            reloads: ReloadCounters::default(),
        })))
    }
}

impl<B: 'static, S, R, Out: 'static> Parts<B, S, R, Out>
where
    S: Backend<Error: NeverFails> + Store<AnyRule> + Clone + Send + Sync + 'static,
    R: Clone,
{
    fn read(&self, document: &Document) -> Result<LimitsFile, Problems> {
        let policies: Vec<_> = self
            .of_program
            .iter()
            .map(|limit| limit.own_policy())
            .collect();
        let names: Vec<_> = policies.iter().map(|policy| policy.name()).collect();
        let file = LimitsFile::with_limits(document, &names)?;
        let of_file = file.limits.iter();
        let mut others: Vec<_> = of_file
            .map(|limit| (&*limit.name, limit.stored_name()))
            .collect();
        for policy in policies {
            let (name, stored_name) = (policy.name(), policy.stored_name());
            let is_taken = |other: &&(&str, &str)| other.0 == name || other.1 == stored_name;
            if let Some((other, _)) = others.iter().find(is_taken) {
                let text = format!(
                    "the limit `{name}` of the program has the name or the states of the limit `{other}`: expected its own; give it \
                     another `Policy`"
                );
                return Err(Problem::new(None, "limits", text).into());
            }
            others.push((name, stored_name));
        }
        Ok(file)
    }

    /// Makes a file ready for requests. Dry runs go on counting in those of the `old` ones that
    /// have their names.
    fn generation(
        &self,
        file: LimitsFile,
        old: &[(String, DryRun)],
    ) -> Result<Generation<B, S, R, Out>, Problems> {
        let mut problems = Problems::default();
        let (mut limits, mut dry_runs) = (Vec::new(), Vec::new());
        for (limit, place) in file.limits.iter().zip(&file.marks.rules) {
            let before = old.iter().find(|(name, _)| *name == limit.name);
            match self.limit(limit, before.map(|(_, dry_run)| dry_run)) {
                Ok(made) => {
                    let dry_run = made.counts_of_dry_run().cloned();
                    dry_runs.extend(dry_run.map(|dry_run| (limit.name.clone(), dry_run)));
                    limits.push(made);
                }
                Err(error) => {
                    let path = format!("limits.{}.rule", limit.name);
                    problems.push(Problem::new(*place, path, error.to_string()));
                }
            }
        }
        problems.into_result()?;
        limits.extend(self.of_program.iter().cloned());

        let mut made: Vec<(&[String], RouteConfig<B, S, R, Out>)> = Vec::new();
        let mut config_of = |names| -> Result<_, Problems> {
            if let Some((_, config)) = made.iter().find(|(others, _)| *others == names) {
                return Ok(Arc::clone(config));
            }
            let config = self.config(&limits, names);
            let config = config.map_err(|error| Problem::new(None, "routes", error.to_string()))?;
            made.push((names, Arc::clone(&config)));
            Ok(config)
        };
        let configs = file.routes.iter().map(|route| config_of(&route.limits));
        let configs = configs.collect::<Result<_, _>>()?;
        let default = config_of(&file.default)?;
        Ok(Generation {
            file: Arc::new(file),
            configs,
            default,
            dry_runs,
        })
    }

    /// Has the layer's observer hear of the end of these limits. Not of those that never limited
    /// a request: of a file that is refused, or only compared.
    fn take_effect(&self, generation: &Generation<B, S, R, Out>) {
        if let Some(observer) = self.layer.observer() {
            let names = generation.file.limits.iter().map(|limit| &*limit.name);
            self.policies.report_to(observer, names);
        }
    }

    /// Returns a limit of the file, in the words of the builder.
    fn limit(&self, limit: &FileLimit, before: Option<&DryRun>) -> Result<AnyLimit<B, Out>, Error> {
        let mut policy = Policy::try_new(&limit.name)?;
        if let Some(was) = &limit.was {
            policy = policy.with_states_of(&Policy::try_new(was)?);
        }
        let in_use = self.policies.hold(&policy);
        let mut made = Limit::try_new(limit.rule.clone())?
            .policy(policy)
            .key(FileKey::new(limit.key.clone(), &limit.exempt, in_use))
            .cost(limit.cost);
        if limit.enforced < 100 {
            made = made.try_enforce_for(limit.enforced)?.counting_in(before);
        }
        if let Some(live) = &limit.compared_with {
            made = made.compared_with(Policy::try_new(live)?);
        }
        let made = match &limit.charge {
            Charge::All => made.boxed(),
            Charge::After(statuses) => made.charge_after(statuses.clone()).boxed(),
            Charge::If(statuses) => made.charge_if(statuses.clone()).boxed(),
        };
        // Here, and not only in a list, so that a mistake has the place of the rule.
        self.layer.check_limit(&made)?;
        Ok(made)
    }

    fn config(
        &self,
        limits: &[AnyLimit<B, Out>],
        names: &[String],
    ) -> Result<RouteConfig<B, S, R, Out>, Error> {
        let named = names.iter().filter_map(|name| {
            let mut limits = limits.iter();
            limits
                .find(|limit| limit.own_policy().name() == name)
                .cloned()
        });
        self.layer.config_of(named.collect())
    }
}

impl<B, S, R, Out> Generation<B, S, R, Out> {
    /// Returns the limits of a request.
    #[inline]
    fn config(&self, method: &Method, path: &str) -> &RouteConfig<B, S, R, Out> {
        let route = self.file.table.find(method, path);
        route
            .and_then(|index| self.configs.get(index))
            .unwrap_or(&self.default)
    }
}

impl<B: 'static, S, R, Out: 'static> RouteLimits<B, S, R, Out>
where
    S: Backend<Error: NeverFails> + Store<AnyRule> + Clone + Send + Sync + 'static,
    R: Clone,
{
    /// Takes another file, as TOML, for all requests that arrive from now on, and returns what it
    /// changes.
    ///
    /// What clients have spent stays spent, unless the changes say that they begin anew. Requests
    /// in progress end by the file that admitted them.
    ///
    /// # Errors
    ///
    /// All mistakes of the file. Then nothing is changed; the mistakes are
    /// [counted](Self::reloads), and logged with the feature `tracing`.
    pub fn reload(&self, text: &str) -> Result<Changes, Problems> {
        let document = Document::from_toml(text);
        self.noted(document.and_then(|document| self.take(&document)))
    }

    /// Takes another file from a document of any format, as [`reload`](Self::reload) does.
    ///
    /// # Errors
    ///
    /// All mistakes of the file. Then nothing is changed.
    pub fn reload_from(&self, document: &Document) -> Result<Changes, Problems> {
        self.noted(self.take(document))
    }

    fn take(&self, document: &Document) -> Result<Changes, Problems> {
        let live = &*self.0;
        // Dropped after the lock, with its thousand routes.
        let _replaced;
        let _one_at_a_time = lock(&live.reload);
        let file = live.parts.read(document)?;
        let old = live.current.load();
        let changes = old.file.changes_to(&file);
        let new = live.parts.generation(file, &old.dry_runs)?;
        live.parts.take_effect(&new);
        _replaced = live.current.swap(Arc::new(new));
        if !changes.is_empty() {
            live.reloads.taken.increment();
            #[cfg(feature = "tracing")]
            crate::log::limits_changed(&changes);
        }
        Ok(changes)
    }

    /// Notes the mistakes of a file that was to be taken.
    fn noted(&self, taken: Result<Changes, Problems>) -> Result<Changes, Problems> {
        taken.inspect_err(|problems| self.note_failure(problems))
    }

    /// Counts and logs a file that changes nothing because of its mistakes.
    pub(super) fn note_failure(&self, problems: &dyn fmt::Display) {
        self.0.reloads.failed.increment();
        #[cfg(feature = "tracing")]
        crate::log::limits_unchanged(problems);
        #[cfg(not(feature = "tracing"))]
        let _ = problems;
    }

    /// Returns what a file, as TOML, would change.
    ///
    /// # Errors
    ///
    /// All mistakes of the file.
    pub fn diff(&self, text: &str) -> Result<Changes, Problems> {
        let parts = &self.0.parts;
        let file = parts.read(&Document::from_toml(text)?)?;
        let changes = self.file().changes_to(&file);
        parts.generation(file, &[])?;
        Ok(changes)
    }
}

impl<B, S, R, Out> RouteLimits<B, S, R, Out> {
    /// Returns the file by which requests are decided now.
    pub fn file(&self) -> Arc<LimitsFile> {
        Arc::clone(&self.0.current.load().file)
    }

    /// Returns the numbers of files that were taken and that failed.
    pub fn reloads(&self) -> ReloadStats {
        self.0.reloads.read()
    }

    /// Returns the counts of a dry run of the file, over all files that had one of this name
    /// without a pause; `None` if the current one has none.
    pub fn dry_run_report(&self, limit: &str) -> Option<DryRunReport> {
        let generation = self.0.current.load();
        let mut dry_runs = generation.dry_runs.iter();
        let (_, dry_run) = dry_runs.find(|(name, _)| name == limit)?;
        Some(dry_run.report())
    }

    /// Returns the number of requests that were dropped before their turn; see
    /// [`RateLimitLayer::cancelled`](crate::RateLimitLayer::cancelled).
    pub fn cancelled(&self) -> u64 {
        self.0.parts.layer.cancelled()
    }

    /// Returns the number of requests that were refused or decided twice because the server is set
    /// up wrongly; see [`RateLimitLayer::misconfigured`](crate::RateLimitLayer::misconfigured).
    pub fn misconfigured(&self) -> u64 {
        self.0.parts.layer.misconfigured()
    }

    /// Returns the number of charges that may not have been corrected; see
    /// [`RateLimitLayer::unsettled`](crate::RateLimitLayer::unsettled).
    pub fn unsettled(&self) -> u64
    where
        S: Backend,
    {
        self.0.parts.layer.unsettled()
    }

    /// Returns a handle that does not keep the layer.
    pub(super) fn downgrade(&self) -> impl Fn() -> Option<Self> + use<B, S, R, Out> {
        let live = Arc::downgrade(&self.0);
        move || live.upgrade().map(Self)
    }
}

impl_clone!(RouteLimits<B, S, R, Out>, { 0 });

impl<B, S, R, Out> fmt::Debug for RouteLimits<B, S, R, Out> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RouteLimits").field(&self.file()).finish()
    }
}

impl_debug!(RouteLimitsBuilder<B, S, R, Out>);

impl<Svc, B, S, R, Out> Layer<Svc> for RouteLimits<B, S, R, Out> {
    type Service = RouteLimit<Svc, B, S, R, Out>;

    fn layer(&self, inner: Svc) -> Self::Service {
        RouteLimit {
            inner,
            limits: self.clone(),
        }
    }
}

/// Limits the requests to an inner service by their routes. Made by a [`RouteLimits`] layer.
///
/// Clones share one budget.
///
/// ```
/// use tollgate::config::{RouteLimit, RouteLimits};
/// use tower::Layer;
///
/// let limits: RouteLimits<String> = RouteLimits::new("default.limits = []")?;
/// let service: RouteLimit<_, _, _, _, _> = limits.layer("the inner service");
/// assert_eq!(service.get_ref(), &"the inner service");
/// # Ok::<(), tollgate::config::Problems>(())
/// ```
#[must_use = "services do nothing unless called"]
pub struct RouteLimit<Svc, B, S, R, Out> {
    inner: Svc,
    limits: RouteLimits<B, S, R, Out>,
}

impl<Svc, B, S, R, Out> RouteLimit<Svc, B, S, R, Out> {
    /// Returns a reference to the inner service.
    pub fn get_ref(&self) -> &Svc {
        &self.inner
    }
}

impl_clone!([Svc: Clone, B, S, R, Out] RouteLimit<Svc, B, S, R, Out>, { inner, limits });

impl<Svc: fmt::Debug, B, S, R, Out> fmt::Debug for RouteLimit<Svc, B, S, R, Out> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RouteLimit")
            .field("inner", &self.inner)
            .field("limits", &self.limits)
            .finish()
    }
}

impl<Svc, B, S, R, Out> Service<Request<B>> for RouteLimit<Svc, B, S, R, Out>
where
    Svc: Service<Request<B>, Response = Response<Out>> + Clone,
    S: Store<AnyRule, Error: NeverFails>,
    R: Respond<Request<B>, Response<Out>, Svc::Error>,
    BoxSettle<Request<B>, Response<Out>>: SettleLater<
            Request<B>,
            Response<Out>,
            Svc::Error,
            Vec<BoxLimit<Request<B>, AnyRule, Response<Out>>>,
            S,
            R,
        >,
{
    type Response = Response<Out>;
    type Error = Svc::Error;
    type Future =
        ResponseFuture<Svc, Request<B>, Vec<BoxLimit<Request<B>, AnyRule, Response<Out>>>, S, R>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, req: Request<B>) -> Self::Future {
        let generation = self.limits.0.current.load();
        let config = generation.config(req.method(), req.uri().path());
        ResponseFuture::decide(&mut self.inner, config, req)
    }
}
