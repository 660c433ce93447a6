//! Policies: the names of limits, and what clients are told about them.

use std::fmt;

use super::{name::Name, partition::Partition};
use crate::{error::Error, key::Key};

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
    pub(crate) fn of_key(&self, key: &Key) -> Self {
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
