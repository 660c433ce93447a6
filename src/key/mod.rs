//! Keys of clients, and the extractors that derive them from requests.
//!
//! The [guide](crate::guide::behind_a_proxy#which-key) says which key is for whom. Several are one
//! key as a tuple, as in `(PeerIp::new(), Method)`; anything else is a closure
//! <code>|req: &Request\<Body>| …</code>, combined by [`from_fn`].
//!
//! A request without a key is refused with 400, or with 500 if the server is at fault. The methods
//! of [`KeyExtractorExt`] choose something else, and exempt requests:
//!
//! ```
//! use http::Request;
//! use tollgate::key::{Extracted, Header, Key, KeyExtractor, KeyExtractorExt};
//!
//! let key = Header::new("x-api-key")
//!     .or_shared("anonymous")
//!     .exempt_paths(["/health"]);
//!
//! let anonymous = Request::new(());
//! assert_eq!(key.extract(&anonymous), Ok(Extracted::Key(Key::shared("anonymous"))));
//! ```
//!
//! A key limits a client only if the client cannot forge it. Addresses in headers are used only as
//! far as proxies are trusted; other headers and tokens are as reliable as the check behind them.

mod any;
mod client_ip;
mod combinators;
mod extractor;
mod header;
#[cfg(feature = "introspect")]
#[cfg_attr(docsrs, doc(cfg(feature = "introspect")))]
pub mod introspect;
mod missing_key;
mod target;

#[doc(no_inline)]
pub use ipnet::IpNet;

#[cfg(feature = "introspect")]
#[cfg_attr(docsrs, doc(cfg(feature = "introspect")))]
pub use self::introspect::Introspect;
#[cfg(feature = "axum")]
pub use self::target::MatchedPath;
pub use self::{
    any::AnyKey,
    client_ip::{Forwarded, ForwardedFor, PeerIp},
    combinators::KeyExtractorExt,
    extractor::{Extracted, Global, IntoKey, KeyExtractor, from_fn},
    header::{BearerToken, Cookie, Header},
    missing_key::{MissingKey, OperatorHelp},
    target::{Extension, Host, Method, Path},
};

#[cfg(any(feature = "config", feature = "listen"))]
pub(crate) use self::client_ip::Networks;
#[cfg(feature = "listen")]
pub(crate) use self::client_ip::peer_socket;
#[cfg(feature = "introspect")]
pub(crate) use self::header::{bearer_token, has_bearer_scheme, only_value};
#[cfg(feature = "config")]
pub(crate) use self::{client_ip::parse_network, header::percent_decoded};

use std::{
    fmt,
    hash::{Hash, Hasher},
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

/// The identity of a client: a small `Copy` value, equal on every node.
///
/// A key contains up to 40 bytes of input, or a BLAKE3 digest of 128 bits of longer input. Neither
/// takes an allocation. Keys of different kinds are never equal (`Key::from("7")` is not
/// `Key::from(7_u64)`), nor are joined keys with different parts.
///
/// `Debug` hides the content, unless the key is [labelled](Self::labelled).
///
/// # Examples
///
/// ```
/// use tollgate::key::Key;
///
/// assert_ne!(Key::join(["a:b", "c"]), Key::join(["a", "b:c"]));
/// assert_eq!(format!("{:?}", Key::from("secret")), "Key(text)");
/// assert_eq!(format!("{:?}", Key::from("plan-7").labelled()), "Key(text plan-7)");
/// ```
#[derive(Clone, Copy)]
pub struct Key {
    /// The content, followed by zeros. In words, because hashing reads words, and reading bytes as
    /// words right after they were written is slow.
    words: [u64; INLINE / 8],
    /// The [head](Self::head) in bits 0 to 15; in bit 16, 1 if the content may be printed.
    meta: u64,
}

const LABELLED: u64 = 1 << 16;

/// The maximum length of content that is not digested, in bytes.
const INLINE: usize = 40;
/// The length of the head of each part of a joined key, in bytes: its kind and its length.
const HEAD: usize = 2;
/// The length of the digest of longer input, in bytes.
const DIGEST: usize = 16;
/// The length of four joined keys of maximum length.
const JOINED: usize = 4 * (HEAD + INLINE);

const fn meta(kind: KeyKind, len: u8) -> u64 {
    kind as u64 | (len as u64) << 8
}

impl Key {
    /// The key of [`Global`], which all requests share.
    pub const GLOBAL: Self = Self {
        words: [0; INLINE / 8],
        meta: meta(KeyKind::Global, 0),
    };

    /// Creates a key of bytes, which never equals a key of text.
    pub fn bytes(input: &[u8]) -> Self {
        Self::new(KeyKind::Bytes, input)
    }

    /// Creates a key that several clients share, by name.
    ///
    /// It never equals a key that a client could send.
    pub fn shared(name: &str) -> Self {
        Self::new(KeyKind::Shared, name.as_bytes())
    }

    /// Creates a key of several parts.
    ///
    /// Lists of different parts give different keys. Allocates only for more than four parts.
    pub fn join<I>(parts: I) -> Self
    where
        I: IntoIterator<Item: Into<Self>>,
    {
        let mut joined = smallvec::SmallVec::<[u8; JOINED]>::new();
        for part in parts {
            let part: Self = part.into();
            joined.extend_from_slice(&part.head().to_le_bytes());
            joined.extend_from_slice(part.content(&mut [0; INLINE]));
        }
        Self::new(KeyKind::Joined, &joined)
    }

    /// Allows the content to be printed and stored in readable form.
    ///
    /// The key still equals the one without a label. Input above 40 bytes stays a digest. Remote
    /// stores write the kind and the content, as in `text=plan-7`, or `text~` and the digest.
    #[must_use]
    pub fn labelled(mut self) -> Self {
        self.meta |= LABELLED;
        self
    }

    /// Returns `true` if the content may be printed.
    pub fn is_labelled(&self) -> bool {
        self.meta & LABELLED != 0
    }

    /// Returns `true` for [`GLOBAL`](Self::GLOBAL) and [shared](Self::shared) keys.
    pub(crate) fn is_shared(&self) -> bool {
        let kind = KeyKind::from_byte(self.kind());
        matches!(kind, KeyKind::Global | KeyKind::Shared)
    }

    /// Returns a digest of 64 bits, equal on every node and in every version.
    ///
    /// It is the first eight bytes of the BLAKE3 digest of kind, length and content. Rules use it
    /// to spread keys over time.
    pub fn digest(&self) -> u64 {
        let mut input = [0; HEAD + INLINE];
        let content = &mut [0; INLINE];
        let content = self.content(content);
        input[..HEAD].copy_from_slice(&self.head().to_le_bytes());
        input[HEAD..HEAD + content.len()].copy_from_slice(content);
        let digest = blake3::hash(&input[..HEAD + content.len()]);
        let first = digest.as_bytes().first_chunk().copied();
        u64::from_le_bytes(first.unwrap_or_default())
    }

    #[inline]
    fn new(kind: KeyKind, input: &[u8]) -> Self {
        if input.len() > INLINE {
            return Self::digested(kind, input);
        }
        let mut words = Self::GLOBAL.words;
        words[0] = word(input, 0);
        if input.len() > 8 {
            words[1] = word(input, 1);
        }
        // All three at once: a branch for each length would be mispredicted.
        if input.len() > 16 {
            words[2] = word(input, 2);
            words[3] = word(input, 3);
            words[4] = word(input, 4);
        }
        Self {
            words,
            meta: meta(kind, input.len() as u8),
        }
    }

    /// Creates a key of up to 16 bytes of content.
    #[inline]
    fn short(kind: KeyKind, len: u8, content: u128) -> Self {
        let mut key = Self::GLOBAL;
        key.meta = meta(kind, len);
        key.words[0] = content as u64;
        key.words[1] = (content >> 64) as u64;
        key
    }

    #[cold]
    fn digested(kind: KeyKind, input: &[u8]) -> Self {
        let mut key = Self::new(kind, &blake3::hash(input).as_bytes()[..DIGEST]);
        key.meta |= u64::from(DIGESTED);
        key
    }

    /// Returns a hash for this process alone, in a few instructions. Clients that choose their keys
    /// can cause collisions.
    #[inline]
    pub(crate) fn quick_hash(&self) -> u64 {
        const ODD: [u64; 3] = [
            0x9e37_79b9_7f4a_7c15,
            0xbf58_476d_1ce4_e5b9,
            0x94d0_49bb_1331_11eb,
        ];
        let [a, b, c, d, e] = self.words;
        let folded = |first: u64, second: u64| {
            let product = u128::from(first) * u128::from(second);
            product as u64 ^ (product >> 64) as u64
        };
        folded(a ^ ODD[0], b ^ ODD[1])
            ^ folded(c ^ ODD[1], d ^ ODD[2])
            ^ folded(e ^ ODD[2], (self.meta & !LABELLED) ^ ODD[0])
    }

    /// Returns 128 bits of the BLAKE3 digest of kind, length and content, keyed with a secret.
    pub(crate) fn digest_under(&self, secret: &[u8; 32]) -> [u8; DIGEST] {
        let mut hasher = blake3::Hasher::new_keyed(secret);
        hasher.update(&self.head().to_le_bytes());
        hasher.update(self.content(&mut [0; INLINE]));
        let digest = hasher.finalize();
        digest.as_bytes().first_chunk().copied().unwrap_or_default()
    }

    /// Returns the byte of the [kind](Self::kind), and the length of the content in bytes above it.
    #[inline]
    fn head(&self) -> u16 {
        self.meta as u16
    }

    /// Returns the byte of the kind: a [`KeyKind`], and [`DIGESTED`] if the content is a digest.
    fn kind(&self) -> u8 {
        self.meta as u8
    }

    #[inline]
    fn len(&self) -> u8 {
        (self.meta >> 8) as u8
    }

    /// Returns the content in bytes, written to `buffer`.
    fn content<'a>(&self, buffer: &'a mut [u8; INLINE]) -> &'a [u8] {
        for (bytes, word) in buffer.chunks_exact_mut(8).zip(self.words) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        &buffer[..usize::from(self.len())]
    }
}

/// Returns the eight bytes from 8 · `index` on, with zeros beyond the end of the input.
#[inline]
fn word(input: &[u8], index: usize) -> u64 {
    let (begin, len) = (8 * index, input.len());
    if let Some(last) = len.checked_sub(8) {
        // Near the end of the input, its last eight bytes are read and shifted.
        let at = begin.min(last);
        let bytes = input[at..].first_chunk().copied().unwrap_or_default();
        let beyond = 8 * (begin - at) as u32;
        return u64::from_le_bytes(bytes).checked_shr(beyond).unwrap_or(0);
    }
    let rest = input.get(begin..).unwrap_or_default();
    rest.iter()
        .rev()
        .fold(0, |word, byte| word << 8 | u64::from(*byte))
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        (self.words, self.head()) == (other.words, other.head())
    }
}

impl Eq for Key {}

impl Hash for Key {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        // The length determines how many words follow, so no key is a prefix of another.
        state.write_u16(self.head());
        state.write_u64(self.words[0]);
        if self.len() > 8 {
            state.write_u64(self.words[1]);
        }
        if self.len() > 16 {
            state.write_u64(self.words[2]);
            state.write_u64(self.words[3]);
            state.write_u64(self.words[4]);
        }
    }
}

impl From<&str> for Key {
    #[inline]
    fn from(text: &str) -> Self {
        Self::new(KeyKind::Text, text.as_bytes())
    }
}

impl From<&String> for Key {
    fn from(text: &String) -> Self {
        Self::from(text.as_str())
    }
}

impl From<String> for Key {
    fn from(text: String) -> Self {
        Self::from(text.as_str())
    }
}

impl From<u64> for Key {
    fn from(number: u64) -> Self {
        Self::short(KeyKind::Number, 8, number.into())
    }
}

impl From<Ipv4Addr> for Key {
    #[inline]
    fn from(address: Ipv4Addr) -> Self {
        Self::short(KeyKind::V4, 4, u32::from_le_bytes(address.octets()).into())
    }
}

impl From<Ipv6Addr> for Key {
    #[inline]
    fn from(address: Ipv6Addr) -> Self {
        Self::short(KeyKind::V6, 16, u128::from_le_bytes(address.octets()))
    }
}

impl From<IpAddr> for Key {
    /// Creates a key of the whole address. Only extractors mask addresses.
    #[inline]
    fn from(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(address) => address.into(),
            IpAddr::V6(address) => address.into(),
        }
    }
}

/// The kind of a key. Keys of different kinds never equal each other.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
enum KeyKind {
    Global = 0,
    Text = 1,
    Bytes = 2,
    Number = 3,
    V4 = 4,
    V6 = 5,
    Joined = 6,
    Shared = 7,
}

/// The bit that marks a digest in the byte of the kind.
const DIGESTED: u8 = 0x80;

impl KeyKind {
    /// Returns the kind in a byte of the kind, with or without [`DIGESTED`].
    fn from_byte(byte: u8) -> Self {
        match byte & !DIGESTED {
            1 => Self::Text,
            2 => Self::Bytes,
            3 => Self::Number,
            4 => Self::V4,
            5 => Self::V6,
            6 => Self::Joined,
            7 => Self::Shared,
            _ => Self::Global,
        }
    }
}

impl KeyKind {
    fn name(self) -> &'static str {
        match self {
            Self::Global => "global",
            Self::Text => "text",
            Self::Bytes => "bytes",
            Self::Number => "number",
            Self::V4 | Self::V6 => "ip",
            Self::Joined => "joined",
            Self::Shared => "shared",
        }
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({}", KeyKind::from_byte(self.kind()).name())?;
        if self.is_labelled() {
            f.write_str(" ")?;
            write_content(f, self.kind(), self.content(&mut [0; INLINE]))?;
        }
        f.write_str(")")
    }
}

fn write_content(f: &mut fmt::Formatter<'_>, head: u8, content: &[u8]) -> fmt::Result {
    if head & DIGESTED != 0 {
        return content.iter().try_for_each(|byte| write!(f, "{byte:02x}"));
    }
    match KeyKind::from_byte(head) {
        KeyKind::Number => {
            let number = content.try_into().map_or(0, u64::from_le_bytes);
            write!(f, "{number}")
        }
        KeyKind::V4 => {
            let octets: [u8; 4] = content.try_into().unwrap_or_default();
            write!(f, "{}", Ipv4Addr::from(octets))
        }
        KeyKind::V6 => {
            let octets: [u8; 16] = content.try_into().unwrap_or_default();
            write!(f, "{}", Ipv6Addr::from(octets))
        }
        KeyKind::Joined => write_parts(f, content),
        KeyKind::Global | KeyKind::Text | KeyKind::Bytes | KeyKind::Shared => {
            write!(f, "{}", content.escape_ascii())
        }
    }
}

fn write_parts(f: &mut fmt::Formatter<'_>, mut parts: &[u8]) -> fmt::Result {
    let mut comma = "";
    while let [head, len, rest @ ..] = parts {
        let (content, rest) = rest.split_at(usize::from(*len).min(rest.len()));
        write!(f, "{comma}{} ", KeyKind::from_byte(*head).name())?;
        write_content(f, *head, content)?;
        (parts, comma) = (rest, ", ");
    }
    Ok(())
}

/// A key as the name of a remote store's entry: a digest of 128 bits in hexadecimal digits, or the
/// label: its kind, `=` and the content, or its kind, `~` and the digest of longer content.
#[cfg(feature = "tokio")]
struct StoredKey(Key);

#[cfg(feature = "tokio")]
impl Key {
    /// Displays the key as the name of a remote store's entry.
    pub(crate) fn stored(&self) -> impl fmt::Display {
        StoredKey(*self)
    }
}

#[cfg(feature = "tokio")]
impl fmt::Display for StoredKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(key) = self;
        let content = &mut [0; INLINE];
        let content = key.content(content);
        if key.is_labelled() {
            // A client can send the bytes of a digest, so a digest has a mark of its own.
            let mark = match key.kind() & DIGESTED {
                0 => '=',
                _ => '~',
            };
            write!(f, "{}{mark}", KeyKind::from_byte(key.kind()).name())?;
            // Braces are escaped: Redis Cluster selects the slot by the text between braces.
            return content.escape_ascii().try_for_each(|byte| match byte {
                b'{' | b'}' => write!(f, "\\x{byte:02x}"),
                _ => write!(f, "{}", char::from(byte)),
            });
        }
        let mut hasher = blake3::Hasher::new();
        hasher.update(&key.head().to_le_bytes());
        hasher.update(content);
        let digest = hasher.finalize();
        let hex = digest.to_hex();
        f.write_str(&hex[..2 * DIGEST])
    }
}
