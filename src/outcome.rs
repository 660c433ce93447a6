//! The outcome of a request: the decisions of all limits in front of a service.
//!
//! A store answers with `Decisions`, the service makes the `Outcome`: names are attached only where
//! somebody reads them. To clone a policy's name for each request would make all threads write one
//! reference count.
//!
//! Outcomes do not depend on headers: operators that hide limits from clients still read the class
//! in handlers. An exempt request has an empty outcome, because a handler must work for every
//! request that reaches it.
//!
//! An outcome costs an allocation, and nobody can know whether a handler will ask for it, so it is
//! on unless [turned off](crate::respond::Http::outcome). It cannot be made when a handler asks:
//! what it is made of must come along with the request, and `http::Extensions` boxes each value,
//! so the allocation would be the same. A thread-local, set while the inner service is polled,
//! would need none, but a handler behind a buffer or in a task of its own would find it empty.

use std::{
    fmt, mem, slice,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
};

use smallvec::SmallVec;

use crate::{
    algorithm::StateKind,
    decision::{Charge, Decision, Decisions, Verdict},
    error::Error,
    key::Key,
    permit::Permit,
    policy::Policy,
    store::StoreId,
};

/// The decisions of a request's limits, each with the name of its policy.
///
/// Stacked layers append to one outcome, the outermost first. Handlers find it in the request's
/// extensions, and outer layers in the extensions of a refusal. One that is removed from a request
/// holds what its call [holds](Permit), and takes the permit away from the handler: clone it
/// instead.
///
/// A limit that a request is exempt from has no decision, and [`get`](Self::get) returns `None` for
/// it. The outcome [is empty](Self::is_empty) if no limit applies.
///
/// ```
/// use std::convert::Infallible;
/// use http::{Request, Response};
/// use tollgate::{Outcome, RateLimitLayer, TokenBucket, key::{Global, KeyExtractorExt}};
/// use tower::{ServiceBuilder, ServiceExt, service_fn};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Infallible> {
/// let service = ServiceBuilder::new()
///     .layer(
///         RateLimitLayer::new(TokenBucket::per_minute(9))
///             .named("api")
///             .key(Global.exempt_paths(["/health"])),
///     )
///     .service(service_fn(async |request: Request<()>| {
///         let outcome = request.extensions().get::<Outcome>().cloned().unwrap_or_default();
///         let body = match outcome.get("api") {
///             Some(decision) => format!("{:?} left", decision.remaining()),
///             None => "exempt".to_owned(),
///         };
///         Ok::<_, Infallible>(Response::new(body))
///     }));
///
/// let get = |path| Request::builder().uri(path).body(()).unwrap();
/// assert_eq!(service.clone().oneshot(get("/")).await?.body(), "Some(8) left");
/// assert_eq!(service.oneshot(get("/health")).await?.body(), "exempt");
/// # Ok(()) }
/// ```
#[derive(Default)]
pub struct Outcome {
    entries: OutcomeEntries,
    /// The states of dry runs that are not shown. Boxed, because most outcomes have none.
    hidden: Option<Box<SmallVec<[StateHash; 4]>>>,
    /// What the call of the request holds.
    permit: Option<Permit>,
}

impl Clone for Outcome {
    /// Returns an outcome of the same decisions, which does not hold what a call in flight holds.
    fn clone(&self) -> Self {
        Self {
            entries: self.entries.clone(),
            hidden: self.hidden.clone(),
            permit: self.permit.as_ref().map(Permit::reference),
        }
    }
}

impl Outcome {
    /// Returns an outcome without decisions: no limit applied to the request.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the outcome of a store's decisions, one for each ask. Without the charges of calls
    /// in flight, which permits give back.
    #[inline]
    pub(crate) fn of<'a>(
        mut asked: impl Iterator<Item = (&'a Policy, &'a Key, StateHash)>,
        decisions: &Decisions,
    ) -> Self {
        let (decisions, first) = match (decisions.as_slice(), asked.next()) {
            ([decision], Some((policy, key, state))) => {
                return Self::one(policy, key, state, &decision.without_held_charge());
            }
            others => others,
        };
        let asked = first.into_iter().chain(asked).zip(decisions);
        let entries = asked.map(|((policy, key, state), decision)| {
            let decision = decision.without_held_charge();
            OutcomeEntry::new(policy.for_key(key), decision, state)
        });
        Self {
            entries: entries.collect(),
            hidden: None,
            permit: None,
        }
    }

    /// Returns the outcome of one limit.
    #[inline]
    pub(crate) fn one(policy: &Policy, key: &Key, state: StateHash, decision: &Decision) -> Self {
        let entry = OutcomeEntry::new(policy.for_key(key), *decision, state);
        Self {
            entries: OutcomeEntries::One(entry),
            hidden: None,
            permit: None,
        }
    }

    /// Appends the decision of one more limit.
    #[inline]
    pub fn push(&mut self, policy: Policy, decision: Decision) {
        self.push_entry(policy, decision, StateHash::default());
    }

    /// Appends the decision about a state.
    #[inline]
    pub(crate) fn push_entry(&mut self, policy: Policy, decision: Decision, state: StateHash) {
        let entry = OutcomeEntry::new(policy, decision, state);
        self.entries.append(OutcomeEntries::One(entry));
    }

    /// Adds what the call of the request holds.
    #[inline]
    pub(crate) fn carry(&mut self, permit: Permit) {
        let outer = self.permit.take().and_then(Permit::found);
        self.permit = Permit::of_both(outer, Some(permit));
    }

    /// Returns what the call of the request holds; of a clone, a [reference](Permit::reference).
    pub(crate) fn permit(&self) -> Option<&Permit> {
        self.permit.as_ref()
    }

    /// Takes what the call of the request holds; of a clone, a [reference](Permit::reference).
    pub(crate) fn take_permit(&mut self) -> Option<Permit> {
        self.permit.take()
    }

    /// Remembers the state of a dry run that is not shown, for [`has`](Self::has) alone.
    pub(crate) fn hide(&mut self, state: StateHash) {
        if state.is_known() {
            self.hidden.get_or_insert_default().push(state);
        }
    }

    /// Returns `true` if a decision is about this state, even that of a dry run that is not shown.
    pub(crate) fn has(&self, state: StateHash) -> bool {
        let mut entries = self.entries.as_slice().iter();
        let mut hidden = self.hidden.iter().flat_map(|hidden| hidden.iter());
        state.is_known()
            && (entries.any(|entry| entry.state == state) || hidden.any(|other| *other == state))
    }

    /// Appends the decisions of an inner layer's limits.
    #[inline]
    pub fn append(&mut self, inner: Self) {
        self.entries.append(inner.entries);
        self.permit = Permit::of_both(self.permit.take(), inner.permit);
        if let Some(hidden) = inner.hidden {
            self.hidden.get_or_insert_default().extend(*hidden);
        }
    }

    /// Iterates over the decisions in the order of their limits.
    #[inline]
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&Policy, &Decision)> + Clone {
        let entries = self.entries.as_slice().iter();
        entries.map(|entry| (&entry.policy, &entry.decision))
    }

    /// Returns the decision if it is the only one.
    #[inline]
    pub(crate) fn only(&self) -> Option<(&Policy, &Decision)> {
        match self.entries.as_slice() {
            [entry] => Some((&entry.policy, &entry.decision)),
            _ => None,
        }
    }

    /// Returns the decision of the limit of this name, or `None` if the request is exempt from it.
    ///
    /// If stacked layers have the same name, returns the decision that is nearest to exhaustion.
    pub fn get(&self, policy: &str) -> Option<&Decision> {
        self.iter()
            .filter(|(entry, _)| entry.name() == policy)
            .map(|(_, decision)| decision)
            .min_by(|a, b| a.nearness(b))
    }

    /// Takes the charge of the limit of this name, to correct it by a
    /// [settlement](crate::store::driver::Settlement).
    ///
    /// All clones of an outcome share its charges: one of them takes a charge, the others get an
    /// error.
    ///
    /// ```
    /// use tollgate::{Cost, Outcome, Policy, TokenBucket};
    /// use tollgate::store::{Local, driver::Ask};
    ///
    /// let (store, api, rule) = (Local::new(), Policy::new("api"), TokenBucket::per_minute(100));
    /// let ask = Ask::new(&api, &rule, "alice".into(), Cost::new(40).unwrap());
    /// // A handler finds it in the extensions of its request.
    /// let mut outcome = Outcome::new();
    /// outcome.push(api.clone(), store.decide(&ask));
    ///
    /// let clone = outcome.clone();
    /// assert_eq!(clone.take_charge("api")?.cost, 40);
    /// let again = outcome.take_charge("api").unwrap_err();
    /// assert!(again.to_string().contains("taken already"));
    /// let error = outcome.take_charge("web").unwrap_err();
    /// assert!(error.to_string().contains("expected one of `api`"));
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// When no limit of this name decided, when it charged nothing, or when its charge was taken
    /// before. Also when the layer settles the charge, by a
    /// [`charge_handle`](crate::Limit::charge_handle) or a [condition](crate::Limit::charge_if).
    pub fn take_charge(&self, policy: &str) -> Result<Charge, Error> {
        let mut named = self
            .entries
            .as_slice()
            .iter()
            .filter(|entry| entry.policy.name() == policy)
            .peekable();
        if named.peek().is_none() {
            let names: Vec<_> = self
                .iter()
                .map(|(policy, _)| format!("`{policy}`"))
                .collect();
            let names = match names.as_slice() {
                [] => "a request that was limited".to_owned(),
                names => format!("one of {}", names.join(", ")),
            };
            return Err(Error::new(format!(
                "no limit named `{policy}` decided about this request: expected {names}; use the name that its limit was \
                 given by `named`"
            )));
        }
        let mut charged = named
            .filter_map(|entry| Some((entry, entry.decision.charge()?)))
            .peekable();
        if charged.peek().is_none() {
            return Err(Error::new(format!(
                "the limit `{policy}` charged nothing for this request, or its layer settles the charge: expected an admission by a limit \
                 without `charge_handle` and `charge_if`; look at its decision first, and take a `ChargeHandle` from the request's extensions"
            )));
        }
        let first = charged.find(|(entry, _)| entry.taken.take());
        first.map(|(_, charge)| charge).ok_or_else(|| {
            Error::new(format!(
                "the charge of the limit `{policy}` was taken already: expected one settlement for each charge; \
                 settle it where it was taken"
            ))
        })
    }

    /// Returns the number of decisions.
    #[inline]
    pub fn len(&self) -> usize {
        self.entries.as_slice().len()
    }

    /// Returns `true` if there are no decisions: the request is exempt from all limits in front of
    /// the service.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.entries.as_slice().is_empty()
    }

    /// Returns `true` if every limit admitted the request, and if there is none.
    pub fn is_admitted(&self) -> bool {
        self.iter().all(|(_, decision)| decision.is_admitted())
    }

    /// Returns `true` if a limit refused a cost that it can never admit, so that the request must
    /// not be sent again as it is.
    ///
    /// See [`Decision::is_oversized`].
    pub fn is_oversized(&self) -> bool {
        self.iter().any(|(_, decision)| decision.is_oversized())
    }

    /// Returns the decision that is nearest to exhaustion; a refusal is nearer than any admission.
    pub fn nearest(&self) -> Option<(&Policy, &Decision)> {
        self.iter().min_by(|(_, a), (_, b)| a.nearness(b))
    }

    /// Iterates over the decisions, those nearest to exhaustion first.
    pub fn by_nearness(&self) -> impl Iterator<Item = (&Policy, &Decision)> {
        let mut sorted: SmallVec<[_; 4]> = self.iter().collect();
        sorted.sort_by(|(_, a), (_, b)| a.nearness(b));
        sorted.into_iter()
    }

    /// Iterates over the decisions that refused.
    #[inline]
    pub fn refusals(&self) -> impl Iterator<Item = (&Policy, &Decision)> {
        self.iter()
            .filter(|(_, decision)| decision.verdict() == Verdict::Refuse)
    }
}

impl fmt::Debug for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

/// A list that stores a single entry inline, because most requests have one limit.
// Not a `SmallVec`: an entry would be moved into its union, and is long to move.
#[derive(Clone, Default)]
#[expect(
    clippy::large_enum_variant,
    reason = "most lists are a single entry, which must not be allocated"
)]
enum OutcomeEntries {
    #[default]
    None,
    One(OutcomeEntry),
    Several(Vec<OutcomeEntry>),
}

impl OutcomeEntries {
    #[inline]
    fn as_slice(&self) -> &[OutcomeEntry] {
        match self {
            Self::None => &[],
            Self::One(entry) => slice::from_ref(entry),
            Self::Several(entries) => entries,
        }
    }

    /// Appends the entries of another list.
    #[inline]
    fn append(&mut self, other: Self) {
        if !other.as_slice().is_empty() {
            self.append_some(other);
        }
    }

    #[cold]
    fn append_some(&mut self, other: Self) {
        if self.as_slice().is_empty() {
            *self = other;
            return;
        }
        let mut entries = mem::take(self).into_vec();
        entries.append(&mut other.into_vec());
        *self = Self::Several(entries);
    }

    fn into_vec(self) -> Vec<OutcomeEntry> {
        match self {
            Self::None => Vec::new(),
            Self::One(entry) => vec![entry],
            Self::Several(entries) => entries,
        }
    }
}

impl FromIterator<OutcomeEntry> for OutcomeEntries {
    fn from_iter<I: IntoIterator<Item = OutcomeEntry>>(entries: I) -> Self {
        Self::Several(entries.into_iter().collect())
    }
}

/// A hash of what names a state: its store, policy, key and kind. 0 if the store has no identity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct StateHash(u64);

impl StateHash {
    #[inline]
    pub(crate) fn new(store: Option<StoreId>, policy: &Policy, key: &Key, kind: StateKind) -> Self {
        let Some(store) = store else {
            return Self::default();
        };
        let limit = policy.digest().rotate_left(32) ^ kind.as_u64();
        // Two keys have one hash by chance only. A client that finds such keys makes a wrong line
        // in the log.
        Self(key.quick_hash() ^ limit ^ store.number())
    }

    pub(crate) fn is_known(self) -> bool {
        self.0 != 0
    }
}

/// The decision of one limit, with what the layers need to know about its charge.
#[derive(Clone)]
struct OutcomeEntry {
    policy: Policy,
    decision: Decision,
    /// Set once the charge was taken out of the outcome.
    taken: Taken,
    state: StateHash,
}

impl OutcomeEntry {
    #[inline]
    fn new(policy: Policy, decision: Decision, state: StateHash) -> Self {
        Self {
            policy,
            decision: decision.shared(),
            taken: Taken::default(),
            state,
        }
    }
}

/// A flag that clones share, and that one of them sets.
///
/// It is allocated with the first clone: most outcomes are never cloned.
#[derive(Default)]
pub(crate) struct Taken(OnceLock<Arc<AtomicBool>>);

impl Taken {
    /// Sets the flag; returns `false` if it was set before.
    pub(crate) fn take(&self) -> bool {
        // Relaxed: it only matters that one of them is the first.
        !self.flag().swap(true, Ordering::Relaxed)
    }

    /// Returns `true` if the flag is set.
    pub(crate) fn is_taken(&self) -> bool {
        let flag = self.0.get();
        flag.is_some_and(|flag| flag.load(Ordering::Relaxed))
    }

    /// Returns `true` if there is a clone.
    pub(crate) fn is_shared(&self) -> bool {
        self.0.get().is_some_and(|flag| Arc::strong_count(flag) > 1)
    }

    fn flag(&self) -> &Arc<AtomicBool> {
        self.0.get_or_init(Arc::default)
    }
}

impl Clone for Taken {
    fn clone(&self) -> Self {
        Self(OnceLock::from(Arc::clone(self.flag())))
    }
}
