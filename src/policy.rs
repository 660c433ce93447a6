//! Policies: names of limits, and what clients read about them.
//!
//! A partition key (`pk`) is a digest under a secret that the user gives. Without a secret, all of
//! IPv4 can be tried in minutes; a secret of the process would differ between nodes.

use std::{fmt, sync::Arc};

use crate::{
    error::{Error, or_panic},
    key::Key,
};

/// The name of a limit, in headers, in outcomes, and in a store's keys.
///
/// 1 to 128 printable ASCII characters, so that it can be written as a Structured Field String (RFC
/// 9651 §3.3.3). The name of a policy of [blocks](crate::store::Blocks) ends with `!blocked`, and
/// no other does. A policy also holds settings for what clients read about the limit. A clone does
/// not allocate.
///
/// ```
/// use tollgate::{Policy, RateLimitLayer, TokenBucket, Unit};
///
/// let policy = Policy::new("upload").with_unit(Unit::ContentBytes);
/// assert_eq!(policy.name(), "upload");
/// let layer = RateLimitLayer::new(TokenBucket::per_hour(5_000_000)).policy(policy);
/// # let _ = layer;
///
/// assert!(Policy::try_new("naïve").is_err());
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Policy {
    name: Name,
    /// Replaces the name of the states where a store hashes it with every key.
    digest: u64,
    unit: Unit,
    /// 1 if exceeding the limit is abnormal.
    abnormal: u64,
    /// A pointer, because few policies have one and all are copied.
    rare: Option<Arc<RareSettings>>,
}

/// The unit that a limit counts, in the `qu` parameter of `RateLimit-Policy`.
///
/// ```
/// use tollgate::{Policy, Unit};
///
/// assert_eq!(Policy::new("api").unit(), Unit::Requests);
/// assert_eq!(Policy::new("upload").with_unit(Unit::ContentBytes).unit(), Unit::ContentBytes);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[repr(u64)]
pub enum Unit {
    /// Requests, or anything else that one unit of cost stands for. The default, which is not
    /// written.
    #[default]
    Requests,
    /// Bytes of content.
    ContentBytes,
}

impl Policy {
    /// Returns a policy of this name. Meant for literals; see [`try_new`](Self::try_new) for names
    /// from data.
    ///
    /// # Panics
    ///
    /// When [`try_new`](Self::try_new) fails.
    #[track_caller]
    pub fn new(name: &str) -> Self {
        or_panic(Self::try_new(name))
    }

    /// Returns a policy of this name.
    ///
    /// # Errors
    ///
    /// When the name is empty, longer than 128 characters, or not printable ASCII, or ends with
    /// `!blocked`, as the names do under which a store keeps [blocks](crate::store::Blocks).
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
        if name.ends_with(Self::OF_BLOCKS) {
            return Err(Error::new(format!(
                "the policy name `{name}` ends with `{}`: expected another one, because stores keep blocks of keys under such \
                 names; choose another last word",
                Self::OF_BLOCKS
            )));
        }
        Ok(Self::unchecked(name))
    }

    /// The name of a limit that was given none.
    const UNNAMED: &str = "default";

    /// The end of the names of policies of blocks.
    const OF_BLOCKS: &str = "!blocked";

    /// Returns the policy under which a store keeps the blocks of this one's keys. No other policy
    /// has its name.
    pub(crate) fn of_blocks(&self) -> Self {
        Self::unchecked(&format!("{}{}", self.stored_name(), Self::OF_BLOCKS))
    }

    /// Returns `true` if this is such a policy.
    #[inline]
    pub(crate) fn is_of_blocks(&self) -> bool {
        // Of bytes: a name that is text takes longer to make than to compare.
        self.name.as_bytes().ends_with(Self::OF_BLOCKS.as_bytes())
    }

    fn unchecked(name: &str) -> Self {
        Self {
            name: Name::new(name),
            digest: digest_of(name),
            unit: Unit::default(),
            abnormal: 0,
            rare: None,
        }
    }

    /// Sets the unit that the limit counts: [`Unit::Requests`] unless set.
    #[must_use]
    pub fn with_unit(self, unit: Unit) -> Self {
        Self { unit, ..self }
    }

    /// Declares that only abnormal usage exceeds the limit: a refusal's problem document has the
    /// type `abnormal-usage-detected` instead of `quota-exceeded`.
    ///
    /// ```
    /// use tollgate::Policy;
    ///
    /// assert!(Policy::new("scan").with_abnormal_usage().is_abnormal_usage());
    /// ```
    #[must_use]
    pub fn with_abnormal_usage(self) -> Self {
        Self {
            abnormal: 1,
            ..self
        }
    }

    /// Adds a partition key, `pk`, to the fields of
    /// [`Headers::Draft`](crate::respond::Headers::Draft). Unless set, there is none.
    ///
    /// Responses about one key have one `pk`, and those about another key a different one: 128 bits
    /// of the key's BLAKE3 digest under `secret`. Use at least 16 random bytes, the same on every
    /// node. Anyone who has the secret can find the address behind a `pk`, because there are few
    /// enough addresses to try them all.
    ///
    /// ```
    /// use http::{Request, Response};
    /// use std::convert::Infallible;
    /// use tollgate::{Policy, RateLimitLayer, TokenBucket, key::Header};
    /// use tower::{ServiceBuilder, ServiceExt, service_fn};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Infallible> {
    /// let policy = Policy::new("api").with_partition_key(b"from the configuration");
    /// let service = ServiceBuilder::new()
    ///     .layer(
    ///         RateLimitLayer::new(TokenBucket::per_minute(9))
    ///             .policy(policy)
    ///             .key(Header::new("x-api-key")),
    ///     )
    ///     .service(service_fn(async |_: Request<()>| {
    ///         Ok::<_, Infallible>(Response::new(String::new()))
    ///     }));
    ///
    /// let request = Request::builder().header("x-api-key", "s3cret").body(()).unwrap();
    /// let response = service.oneshot(request).await?;
    /// let field = response.headers()["ratelimit"].to_str().unwrap();
    /// assert!(field.starts_with("\"api\";r=8;t=54;pk=:"));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn with_partition_key(self, secret: &[u8]) -> Self {
        let secret = Some(*blake3::hash(secret).as_bytes());
        self.with_rare(|rare| rare.secret = secret)
    }

    /// Keeps the states of the limit where those of `other` are, so that a limit that is given
    /// another name begins with what clients have spent under the old one.
    ///
    /// Clients, outcomes, logs and metrics have the new name. Stores know the limit by the old one
    /// for as long as this setting stays. Two limits on one store must not share states.
    ///
    /// ```
    /// use tollgate::{Policy, RateLimitLayer, TokenBucket};
    ///
    /// let policy = Policy::new("login").with_states_of(&Policy::new("sign-in"));
    /// assert_eq!((policy.name(), policy.stored_name()), ("login", "sign-in"));
    /// let layer = RateLimitLayer::new(TokenBucket::per_hour(5)).policy(policy);
    /// # let _ = layer;
    /// ```
    #[must_use]
    #[doc(alias = "rename")]
    pub fn with_states_of(mut self, other: &Self) -> Self {
        let stored = other.stored_name().to_owned();
        self.digest = other.digest;
        let stored = (stored != self.name()).then(|| stored.into());
        self.with_rare(|rare| rare.stored_name = stored)
    }

    /// Returns the policy with a rare setting.
    fn with_rare(mut self, change: impl FnOnce(&mut RareSettings)) -> Self {
        let rare = self.rare.take();
        let mut rare = rare.map_or_else(Default::default, |rare| RareSettings::clone(&rare));
        change(&mut rare);
        rare.name_digest = digest_of(self.name());
        self.rare = Some(Arc::new(rare));
        self
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        self.name.as_str()
    }

    /// Returns the name under which stores keep the states: the [name](Self::name), unless the
    /// limit has the [states of another one](Self::with_states_of).
    pub fn stored_name(&self) -> &str {
        let stored = self
            .rare
            .as_ref()
            .and_then(|rare| rare.stored_name.as_ref());
        stored.map_or(self.name(), |stored| stored)
    }

    /// Returns the unit that the limit counts.
    pub fn unit(&self) -> Unit {
        self.unit
    }

    /// Returns `true` if only abnormal usage exceeds the limit; see
    /// [`with_abnormal_usage`](Self::with_abnormal_usage).
    pub fn is_abnormal_usage(&self) -> bool {
        self.abnormal == 1
    }

    /// Returns the partition key of the request, if this is a policy in an
    /// [`Outcome`](crate::Outcome) and has [partition keys](Self::with_partition_key).
    pub fn partition_key(&self) -> Option<&[u8]> {
        Some(self.rare.as_ref()?.partition.as_ref()?)
    }

    /// Returns the policy with the partition key of `key`, if it has partition keys.
    #[inline]
    pub(crate) fn for_key(&self, key: &Key) -> Self {
        // Field by field: a policy that is changed after it was copied is moved once more.
        Self {
            name: self.name.clone(),
            rare: self.rare.as_ref().map(|rare| rare.for_key(key)),
            ..*self
        }
    }

    /// Returns `true` if both policies have the same entry in `RateLimit-Policy`. Compares names by
    /// their digests, as stores do.
    #[inline]
    pub(crate) fn same_entry(&self, other: &Self) -> bool {
        self.name_digest() == other.name_digest() && self.unit == other.unit
    }

    /// Returns `true` if refusals by both policies are described by the same problem document.
    #[inline]
    pub(crate) fn same_problem(&self, other: &Self) -> bool {
        self.name_digest() == other.name_digest() && self.abnormal == other.abnormal
    }

    /// Returns the first 64 bits of the BLAKE3 digest of the [stored name](Self::stored_name).
    #[inline]
    pub(crate) fn digest(&self) -> u64 {
        self.digest
    }

    /// Returns the first 64 bits of the name's BLAKE3 digest.
    #[inline]
    pub(crate) fn name_digest(&self) -> u64 {
        let rare = self.rare.as_ref();
        rare.map_or(self.digest, |rare| rare.name_digest)
    }
}

impl Default for Policy {
    /// Returns the policy named `default`.
    fn default() -> Self {
        Self::unchecked(Self::UNNAMED)
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

/// Text of which up to 24 bytes are copied, and longer ones shared.
///
/// Every outcome carries a name or two, and all threads would write one reference count.
// Words, as in all of a policy: bytes that were just written one by one are slow to copy in words.
#[derive(Clone, PartialEq, Eq, Hash)]
enum Name {
    Short { length: u64, words: [u64; 3] },
    Long(Arc<str>),
}

impl Name {
    fn new(text: &str) -> Self {
        let mut words = [0; 3];
        match bytemuck::bytes_of_mut(&mut words).get_mut(..text.len()) {
            Some(bytes) => {
                bytes.copy_from_slice(text.as_bytes());
                Self::Short {
                    length: text.len() as u64,
                    words,
                }
            }
            None => Self::Long(text.into()),
        }
    }

    #[inline]
    fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Short { length, words } => &bytemuck::bytes_of(words)[..*length as usize],
            Self::Long(text) => text.as_bytes(),
        }
    }

    fn as_str(&self) -> &str {
        match self {
            // It was made from text.
            Self::Short { .. } => std::str::from_utf8(self.as_bytes()).unwrap_or_default(),
            Self::Long(text) => text,
        }
    }
}

/// Returns the first 64 bits of a name's BLAKE3 digest.
fn digest_of(name: &str) -> u64 {
    let hash = blake3::hash(name.as_bytes());
    let bytes = hash.as_bytes()[..8].try_into();
    bytes.map_or(0, u64::from_le_bytes)
}

/// The settings that few policies have.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
struct RareSettings {
    /// Set if it is not the policy's own name.
    stored_name: Option<Box<str>>,
    name_digest: u64,
    /// The secret of partition keys.
    secret: Option<[u8; 32]>,
    /// The partition key of the request that an outcome is about.
    partition: Option<[u8; 16]>,
}

impl RareSettings {
    /// Returns the settings with the partition key of `key`, if they have a secret.
    #[cold]
    fn for_key(self: &Arc<Self>, key: &Key) -> Arc<Self> {
        let Some(secret) = &self.secret else {
            return Arc::clone(self);
        };
        Arc::new(Self {
            partition: Some(key.digest_under(secret)),
            ..Self::clone(self)
        })
    }
}
