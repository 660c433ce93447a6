//! What all limits in front of a service said of one request.

mod name;
mod partition;
mod taken;

use std::fmt;

use smallvec::SmallVec;

use self::{name::Name, partition::Partition, taken::Taken};

use crate::{
    decision::{Charge, Decision, Verdict},
    error::Error,
    key::Key,
    store::Decisions,
};

/// The name of a limit: in headers, in outcomes, and in a store's keys.
///
/// 1 to 128 printable ASCII characters, so that it can be written as a
/// Structured Field String (RFC 9651 §3.3.3). A clone costs no allocation.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Policy {
    name: Name,
    /// Stands for the name where a store hashes it with every key.
    digest: u64,
    unit: Unit,
    /// Whether exceeding it is abnormal: 1 if so.
    abnormal: u64,
    partition: Option<Partition>,
}

/// What a policy counts, as the `qu` parameter of its `RateLimit-Policy` tells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[repr(u64)]
pub enum Unit {
    /// Requests, or whatever one unit of cost stands for: the default, which is not written.
    #[default]
    Requests,
    /// Bytes of content.
    ContentBytes,
    /// Requests under way at once.
    ConcurrentRequests,
}

impl Policy {
    /// A policy of this name.
    ///
    /// # Errors
    ///
    /// When the name is empty, longer than 128 characters, or holds a
    /// character that a header cannot carry.
    pub fn try_new(name: &str) -> Result<Self, Error> {
        if name.is_empty() || name.len() > 128 {
            return Err(Error::new(format!(
                "a policy name of {} bytes: expected 1 to 128; choose a short word, as in `api`",
                name.len()
            )));
        }
        if let Some(at) = name.bytes().position(|byte| !(0x20..0x7f).contains(&byte)) {
            return Err(Error::new(format!(
                "the policy name {name:?} cannot be written in a header: \
                 expected printable ASCII characters only; spell it without the one at byte {at}"
            )));
        }
        Ok(Self::of(name))
    }

    fn of(name: &str) -> Self {
        let hash = blake3::hash(name.as_bytes());
        let digest = hash.as_bytes()[..8]
            .try_into()
            .map_or(0, u64::from_le_bytes);
        Self {
            name: Name::new(name),
            digest,
            unit: Unit::default(),
            abnormal: 0,
            partition: None,
        }
    }

    /// The same policy, counting another unit than requests.
    #[must_use]
    pub fn counting(self, unit: Unit) -> Self {
        Self { unit, ..self }
    }

    /// The same policy, exceeding which is abnormal: its problem document says
    /// `abnormal-usage-detected` instead of `quota-exceeded`.
    #[must_use]
    pub fn marking_abnormal_usage(self) -> Self {
        Self {
            abnormal: 1,
            ..self
        }
    }

    /// The same policy, telling clients which share of it is theirs: the `pk` of
    /// [`Headers::Draft`](crate::respond::Headers::Draft). Off unless asked for.
    ///
    /// Responses about one key bear one `pk`, and those about another key another one: 128 bits of the key's BLAKE3
    /// digest under `secret`. Take at least 16 random bytes, the same on every node: an address can be
    /// found out by trying all of them, by those who know the secret.
    ///
    /// ```
    /// use http::{Request, Response};
    /// use std::convert::Infallible;
    /// use tollgate::{Policy, RateLimitLayer, TokenBucket, key::Header};
    /// use tower::{ServiceBuilder, ServiceExt, service_fn};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Infallible> {
    /// let policy = Policy::new("api").telling_partitions(b"from the configuration");
    /// let service = ServiceBuilder::new()
    ///     .layer(RateLimitLayer::new(TokenBucket::per_minute(9)).policy(policy).key(Header::new("x-api-key")))
    ///     .service(service_fn(async |_: Request<()>| Ok::<_, Infallible>(Response::new(String::new()))));
    ///
    /// let request = Request::builder().header("x-api-key", "s3cret").body(()).unwrap();
    /// let response = service.oneshot(request).await?;
    /// assert!(response.headers()["ratelimit"].to_str().unwrap().starts_with("\"api\";r=8;t=54;pk=:"));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn telling_partitions(self, secret: &[u8]) -> Self {
        Self {
            partition: Some(Partition::new(secret)),
            ..self
        }
    }

    /// Which share of the policy an outcome tells: of a policy that [tells
    /// partitions](Self::telling_partitions), as the outcome of a request has it.
    pub fn partition(&self) -> Option<&[u8]> {
        Some(self.partition.as_ref()?.digest()?)
    }

    /// The policy as the outcome of a request of this key has it.
    #[inline]
    fn of_key(&self, key: &Key) -> Self {
        let mut policy = self.clone();
        if let Some(partition) = &mut policy.partition {
            *partition = partition.of(key);
        }
        policy
    }

    /// What it counts.
    pub fn unit(&self) -> Unit {
        self.unit
    }

    /// Whether exceeding it is abnormal.
    pub fn marks_abnormal_usage(&self) -> bool {
        self.abnormal == 1
    }

    /// Whether the other one reads the same in a header; tells names apart as stores do.
    #[inline]
    pub(crate) fn reads_as(&self, other: &Self) -> bool {
        self.digest == other.digest && self.unit == other.unit
    }

    #[inline]
    pub(crate) fn digest(&self) -> u64 {
        self.digest
    }

    /// A policy of this name.
    ///
    /// # Panics
    ///
    /// Where [`try_new`](Self::try_new) fails; meant for literals.
    #[track_caller]
    pub fn new(name: &str) -> Self {
        match Self::try_new(name) {
            Ok(policy) => policy,
            Err(error) => panic!("{error}"),
        }
    }

    /// The name.
    pub fn name(&self) -> &str {
        self.name.as_str()
    }
}

impl Default for Policy {
    /// The policy named `default`.
    fn default() -> Self {
        Self::of("default")
    }
}

impl fmt::Debug for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Policy({:?})", self.name())
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The decisions of a request's limits, each with the name of its policy.
///
/// Layers that are stacked append to one outcome, the outermost first. Handlers find
/// it in the request's extensions, and outer layers in the extensions of a
/// refusal.
///
/// A limit that a request is exempt from has no decision: [`get`](Self::get) finds none, and the outcome
/// [is empty](Self::is_empty) where no limit applies.
///
/// ```
/// use std::convert::Infallible;
/// use http::{Request, Response};
/// use tollgate::{Outcome, RateLimitLayer, TokenBucket, key::{Global, KeyExtractorExt, paths}};
/// use tower::{ServiceBuilder, ServiceExt, service_fn};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Infallible> {
/// let service = ServiceBuilder::new()
///     .layer(RateLimitLayer::new(TokenBucket::per_minute(9)).named("api").key(Global.exempting(paths(["/health"]))))
///     .service(service_fn(async |request: Request<()>| {
///         let outcome = request.extensions().get::<Outcome>().cloned().unwrap_or_default();
///         let told = match outcome.get("api") {
///             Some(decision) => format!("{:?} left", decision.remaining()),
///             None => "exempt".to_owned(),
///         };
///         Ok::<_, Infallible>(Response::new(told))
///     }));
///
/// let get = |path| Request::builder().uri(path).body(()).unwrap();
/// assert_eq!(service.clone().oneshot(get("/")).await?.body(), "Some(8) left");
/// assert_eq!(service.oneshot(get("/health")).await?.body(), "exempt");
/// # Ok(()) }
/// ```
#[derive(Clone, Default)]
pub struct Outcome {
    entries: SmallVec<[Entry; 1]>,
}

/// What one limit decided.
#[derive(Clone)]
struct Entry {
    policy: Policy,
    decision: Decision,
    /// Whether its charge was taken.
    taken: Taken,
}

impl Entry {
    #[inline]
    fn new(policy: Policy, decision: Decision) -> Self {
        Self {
            policy,
            decision: decision.shared(),
            taken: Taken::default(),
        }
    }
}

impl Outcome {
    /// An outcome without decisions: nothing limited the request.
    pub fn new() -> Self {
        Self::default()
    }

    /// The decisions of a store, each under the policy that asked, and for the key.
    #[inline]
    pub(crate) fn of<'a>(
        mut asked: impl Iterator<Item = (&'a Policy, &'a Key)>,
        decisions: &Decisions,
    ) -> Self {
        let entries = match (decisions.as_slice(), asked.next()) {
            ([decision], Some((policy, key))) => {
                SmallVec::from_buf([Entry::new(policy.of_key(key), *decision)])
            }
            (decisions, first) => {
                let asked = first.into_iter().chain(asked);
                asked
                    .zip(decisions)
                    .map(|((policy, key), decision)| Entry::new(policy.of_key(key), *decision))
                    .collect()
            }
        };
        Self { entries }
    }

    /// Appends what one more limit said.
    #[inline]
    pub fn push(&mut self, policy: Policy, decision: Decision) {
        self.entries.push(Entry::new(policy, decision));
    }

    /// Appends what an inner layer's limits said.
    #[inline]
    pub fn append(&mut self, inner: Self) {
        self.entries.extend(inner.entries);
    }

    /// The decisions in the order of their limits.
    #[inline]
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&Policy, &Decision)> + Clone {
        self.entries
            .iter()
            .map(|entry| (&entry.policy, &entry.decision))
    }

    /// The decision, if it is the only one.
    #[inline]
    pub(crate) fn only(&self) -> Option<(&Policy, &Decision)> {
        match self.entries.as_slice() {
            [entry] => Some((&entry.policy, &entry.decision)),
            _ => None,
        }
    }

    /// The decision of the limit of this name; of stacked layers that have the same one, that which leaves the least.
    pub fn get(&self, policy: &str) -> Option<&Decision> {
        self.iter()
            .filter(|(entry, _)| entry.name() == policy)
            .map(|(_, decision)| decision)
            .min_by(|a, b| a.nearness(b))
    }

    /// Takes out what the limit of this name charged, to be [settled](crate::store::Settlement) once.
    ///
    /// All clones of an outcome share its charges: one of them takes it, the others get an error.
    ///
    /// ```
    /// use tollgate::{Cost, Outcome, Policy, TokenBucket};
    /// use tollgate::store::{Ask, Local};
    ///
    /// let (store, api, rule) = (Local::new(), Policy::new("api"), TokenBucket::per_minute(100));
    /// let ask = Ask::new(&api, &rule, "alice".into(), Cost::new(40).unwrap());
    /// // As a handler finds it in the extensions of a request.
    /// let mut outcome = Outcome::new();
    /// outcome.push(api.clone(), store.decide(&ask));
    ///
    /// let clone = outcome.clone();
    /// assert_eq!(clone.take_charge("api")?.cost, 40);
    /// let again = outcome.take_charge("api").unwrap_err();
    /// assert!(again.to_string().contains("taken already"));
    /// assert!(outcome.take_charge("web").unwrap_err().to_string().contains("expected one of `api`"));
    /// # Ok::<(), tollgate::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// When no limit of this name decided, when it charged nothing, or when its charge was taken already.
    pub fn take_charge(&self, policy: &str) -> Result<Charge, Error> {
        let mut named = self
            .entries
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
                "no limit named `{policy}` decided about this request: expected {names}; give the name that its limit was \
                 given by `named`"
            )));
        }
        let mut charged = named
            .filter_map(|entry| Some((entry, entry.decision.charge()?)))
            .peekable();
        if charged.peek().is_none() {
            return Err(Error::new(format!(
                "the limit `{policy}` charged nothing for this request: expected an admission; look at its decision first"
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

    /// The number of decisions.
    #[inline]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are no decisions: the request is exempt from all limits in front of the service.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Whether every limit let the request pass, as it does where there is none.
    pub fn is_admitted(&self) -> bool {
        self.entries
            .iter()
            .all(|entry| entry.decision.is_admitted())
    }

    /// The decision that leaves the least: a refusal before any admission.
    pub fn nearest(&self) -> Option<(&Policy, &Decision)> {
        self.iter().min_by(|(_, a), (_, b)| a.nearness(b))
    }

    /// The decisions ordered by how near to exhaustion they are, the nearest first.
    pub fn by_nearness(&self) -> impl Iterator<Item = (&Policy, &Decision)> {
        let mut sorted: SmallVec<[_; 4]> = self.iter().collect();
        sorted.sort_by(|(_, a), (_, b)| a.nearness(b));
        sorted.into_iter()
    }

    /// The decisions that refused.
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
