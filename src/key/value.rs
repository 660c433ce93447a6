//! The key itself: a small value without allocation.

use std::{
    fmt,
    hash::{Hash, Hasher},
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

/// Who is limited: a small `Copy` value, the same on every node.
///
/// Holds up to 40 bytes; of longer input it holds a BLAKE3 digest of 128 bits, which
/// costs no allocation either. Keys of different kinds never meet
/// (`Key::from("7")` is not `Key::from(7_u64)`), nor do joined keys whose parts
/// are cut elsewhere.
///
/// A key never prints what it holds, unless it is [labelled](Self::labelled).
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
    /// The content, zero behind its end. In words, because a hash reads words: what was written
    /// in bytes an instant before would be slow to read so.
    words: [u64; INLINE / 8],
    /// In bits 0 to 15 the [head](Self::head), in bit 16 whether the content may be printed.
    meta: u64,
}

const LABELLED: u64 = 1 << 16;

const INLINE: usize = 40;
/// What a part has in front of its content when keys are joined: kind and length.
const HEAD: usize = 2;
const DIGEST: usize = 16;
/// Marks a digest in the byte of the kind.
const DIGESTED: u8 = 0x80;
/// What four keys at their longest take up when they are joined.
const JOINED: usize = 4 * (HEAD + INLINE);

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
enum Kind {
    Global = 0,
    Text = 1,
    Bytes = 2,
    Number = 3,
    V4 = 4,
    V6 = 5,
    Joined = 6,
    Shared = 7,
}

const fn meta(kind: Kind, len: u8) -> u64 {
    kind as u64 | (len as u64) << 8
}

impl Key {
    /// The one key that everybody shares.
    pub const GLOBAL: Self = Self {
        words: [0; INLINE / 8],
        meta: meta(Kind::Global, 0),
    };

    #[inline]
    fn new(kind: Kind, input: &[u8]) -> Self {
        if input.len() > INLINE {
            return Self::digested(kind, input);
        }
        let mut words = Self::GLOBAL.words;
        words[0] = word(input, 0);
        if input.len() > 8 {
            words[1] = word(input, 1);
        }
        // At once: branches for each length would be guessed wrong.
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

    /// A key of up to 16 bytes of content.
    #[inline]
    fn short(kind: Kind, len: u8, content: u128) -> Self {
        let mut key = Self::GLOBAL;
        key.meta = meta(kind, len);
        key.words[0] = content as u64;
        key.words[1] = (content >> 64) as u64;
        key
    }

    #[cold]
    fn digested(kind: Kind, input: &[u8]) -> Self {
        let mut key = Self::new(kind, &blake3::hash(input).as_bytes()[..DIGEST]);
        key.meta |= u64::from(DIGESTED);
        key
    }

    /// A key of bytes, which never equals one of text.
    pub fn bytes(input: &[u8]) -> Self {
        Self::new(Kind::Bytes, input)
    }

    /// A key that clients without one of their own share, by name.
    ///
    /// Never equals a key that a client could send.
    pub fn shared(name: &str) -> Self {
        Self::new(Kind::Shared, name.as_bytes())
    }

    /// A key of several parts, unambiguous however they are cut.
    ///
    /// Allocates only for more than four parts.
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
        Self::new(Kind::Joined, &joined)
    }

    /// A digest of 64 bits, the same on every node and in every version: what a rule spreads keys by.
    ///
    /// The first eight bytes of the BLAKE3 digest of kind, length and content.
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

    /// 128 bits of the BLAKE3 digest of kind, length and content under a secret.
    pub(crate) fn digest_under(&self, secret: &[u8; 32]) -> [u8; DIGEST] {
        let mut hasher = blake3::Hasher::new_keyed(secret);
        hasher.update(&self.head().to_le_bytes());
        hasher.update(self.content(&mut [0; INLINE]));
        let digest = hasher.finalize();
        digest.as_bytes().first_chunk().copied().unwrap_or_default()
    }

    /// How a remote store names it: a digest of 128 bits in hexadecimal digits, or the label.
    #[cfg(feature = "tokio")]
    pub(crate) fn stored(&self) -> impl fmt::Display {
        struct Stored(Key);
        impl fmt::Display for Stored {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let Self(key) = self;
                let content = &mut [0; INLINE];
                let content = key.content(content);
                if key.is_labelled() {
                    // No brace of its own: braces tell a cluster where the client's keys belong.
                    write!(f, "{}=", Kind::of(key.kind()).name())?;
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
        Stored(*self)
    }

    /// The same key, whose content may be printed and stored in readable form.
    ///
    /// It still equals the one without a label. Long input stays a digest.
    #[must_use]
    pub fn labelled(mut self) -> Self {
        self.meta |= LABELLED;
        self
    }

    /// Whether the content may be printed.
    pub fn is_labelled(&self) -> bool {
        self.meta & LABELLED != 0
    }

    /// The kind (a [`Kind`], and whether the content is a digest), and the length of the content in bytes.
    #[inline]
    fn head(&self) -> u16 {
        self.meta as u16
    }

    fn kind(&self) -> u8 {
        self.meta as u8
    }

    #[inline]
    fn len(&self) -> u8 {
        (self.meta >> 8) as u8
    }

    /// The content in bytes.
    fn content<'a>(&self, room: &'a mut [u8; INLINE]) -> &'a [u8] {
        for (bytes, word) in room.chunks_exact_mut(8).zip(self.words) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        &room[..usize::from(self.len())]
    }
}

/// Bytes 8 · `index` and on, as many as there are, zero behind them.
#[inline]
fn word(input: &[u8], index: usize) -> u64 {
    let (begin, len) = (8 * index, input.len());
    if let Some(last) = len.checked_sub(8) {
        // The eight bytes that end where the input ends, if it ends sooner.
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
        // The length says how many words follow: no key is the beginning of another one.
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
        Self::new(Kind::Text, text.as_bytes())
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
        Self::short(Kind::Number, 8, number.into())
    }
}

impl From<Ipv4Addr> for Key {
    #[inline]
    fn from(address: Ipv4Addr) -> Self {
        Self::short(Kind::V4, 4, u32::from_le_bytes(address.octets()).into())
    }
}

impl From<Ipv6Addr> for Key {
    #[inline]
    fn from(address: Ipv6Addr) -> Self {
        Self::short(Kind::V6, 16, u128::from_le_bytes(address.octets()))
    }
}

impl From<IpAddr> for Key {
    /// The address as it is; masking is the extractors' work.
    #[inline]
    fn from(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(address) => address.into(),
            IpAddr::V6(address) => address.into(),
        }
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({}", Kind::of(self.kind()).name())?;
        if self.is_labelled() {
            f.write_str(" ")?;
            write_content(f, self.kind(), self.content(&mut [0; INLINE]))?;
        }
        f.write_str(")")
    }
}

impl Kind {
    fn of(head: u8) -> Self {
        match head & !DIGESTED {
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

fn write_content(f: &mut fmt::Formatter<'_>, head: u8, content: &[u8]) -> fmt::Result {
    if head & DIGESTED != 0 {
        return content.iter().try_for_each(|byte| write!(f, "{byte:02x}"));
    }
    match Kind::of(head) {
        Kind::Number => {
            let number = content.try_into().map_or(0, u64::from_le_bytes);
            write!(f, "{number}")
        }
        Kind::V4 => {
            let octets: [u8; 4] = content.try_into().unwrap_or_default();
            write!(f, "{}", Ipv4Addr::from(octets))
        }
        Kind::V6 => {
            let octets: [u8; 16] = content.try_into().unwrap_or_default();
            write!(f, "{}", Ipv6Addr::from(octets))
        }
        Kind::Joined => write_parts(f, content),
        Kind::Global | Kind::Text | Kind::Bytes | Kind::Shared => {
            write!(f, "{}", content.escape_ascii())
        }
    }
}

fn write_parts(f: &mut fmt::Formatter<'_>, mut parts: &[u8]) -> fmt::Result {
    let mut comma = "";
    while let [head, len, rest @ ..] = parts {
        let (content, rest) = rest.split_at(usize::from(*len).min(rest.len()));
        write!(f, "{comma}{} ", Kind::of(*head).name())?;
        write_content(f, *head, content)?;
        (parts, comma) = (rest, ", ");
    }
    Ok(())
}
