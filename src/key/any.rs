//! Keys as text: `bearer or refuse 401`.

use std::{
    fmt,
    hash::{Hash, Hasher},
    ops::ControlFlow,
    str::{FromStr, SplitWhitespace},
};

use http::{HeaderName, Request, StatusCode};
use smallvec::SmallVec;

#[cfg(feature = "axum")]
use super::MatchedPath;
use super::{
    BearerToken, Cookie, Extracted, Forwarded, ForwardedFor, Global, Header, Host, Key,
    KeyExtractor, Method, MissingKey, Path, PeerIp, client_ip::parse_network,
    combinators::replaced, extractor::joined_part, header,
};
use crate::error::Error;

/// The longest text of a key, in bytes.
const MAX_TEXT: usize = 1024;
/// The maximum number of parts.
const MAX_PARTS: usize = 16;

/// A key from text, for flags and configuration.
///
/// | text | the key, as in the builder |
/// |---|---|
/// | `peer-ip`, `peer-ip/48`, `peer-ip ipv4=/24` | [`PeerIp`], with [`ipv6_prefix(48)`](PeerIp::ipv6_prefix), with [`ipv4_prefix(24)`](PeerIp::ipv4_prefix) |
/// | `forwarded-for 10.0.0.0/8 192.0.2.1` | [`ForwardedFor::trusting`] these networks |
/// | `forwarded-for hops=1` | [`ForwardedFor::hops`] |
/// | `forwarded-for 10.0.0.0/8 header=cf-connecting-ip` | [`in_header`](ForwardedFor::in_header) |
/// | `forwarded 10.0.0.0/8`, `forwarded hops=1` | [`Forwarded`] |
/// | `header x-api-key` | [`Header`] |
/// | `bearer` | [`BearerToken`] |
/// | `cookie session` | [`Cookie`] |
/// | `host`, `path`, `method` | [`Host`], [`Path`], [`Method`] |
/// | `route` | `MatchedPath` (feature `axum`) |
/// | `global` | [`Global`], one key for all requests; the default |
/// | `header x-api-key + method` | a tuple: one key of both |
/// | `bearer or peer-ip` | [`or`](super::KeyExtractorExt::or) |
/// | `bearer or exempt` | [`or_exempt`](super::KeyExtractorExt::or_exempt) |
/// | `bearer or shared anonymous` | [`or_shared`](super::KeyExtractorExt::or_shared) |
/// | `bearer or refuse 401` | [`or_refuse`](super::KeyExtractorExt::or_refuse) |
///
/// Words are separated by blanks, those around `+`, too. `+` binds tighter than `or`: `host +
/// bearer or peer-ip` is the key of host and token, or else the address. The forms of addresses all
/// take prefixes, as `peer-ip` does.
///
/// `Display` writes the canonical text, which is parsed to an equal key. Two keys are equal if
/// their canonical texts are.
///
/// ```
/// use http::Request;
/// use tollgate::key::{AnyKey, Extracted, Key, KeyExtractor};
///
/// let key: AnyKey = "header  x-api-key or shared anonymous".parse()?;
/// assert_eq!(key.to_string(), "header x-api-key or shared anonymous");
/// assert_eq!(key.extract(&Request::new(())), Ok(Extracted::Key(Key::shared("anonymous"))));
///
/// let error = "headr x-api-key".parse::<AnyKey>().unwrap_err();
/// assert!(error.to_string().contains("expected `peer-ip`"));
/// # Ok::<(), tollgate::Error>(())
/// ```
#[derive(Clone)]
pub struct AnyKey {
    /// The canonical text.
    text: Box<str>,
    /// Never empty. Each is the parts of one key.
    alternatives: SmallVec<[SmallVec<[Part; 1]>; 1]>,
    /// The answer to a request without a key; `None` is the error of the last alternative.
    otherwise: Option<Result<Extracted, StatusCode>>,
}

/// An extractor of this module.
#[derive(Clone)]
enum Part {
    PeerIp(PeerIp),
    ForwardedFor(ForwardedFor),
    Forwarded(Forwarded),
    Header(Header),
    Bearer,
    Host,
    Cookie(Cookie),
    Path,
    Method,
    #[cfg(feature = "axum")]
    Route,
    Global,
}

impl AnyKey {
    /// The first words of parts.
    pub(crate) const WORDS: &[&str] = &[
        "peer-ip",
        "forwarded-for",
        "forwarded",
        "header",
        "bearer",
        "host",
        "cookie",
        "path",
        "method",
        "route",
        "global",
    ];

    /// Returns the client's address by the first address in the key, or else by the peer.
    #[cfg(feature = "config")]
    pub(crate) fn client<B>(&self, req: &Request<B>) -> Option<std::net::IpAddr> {
        let address = self.parts().find_map(|part| match part {
            Part::PeerIp(key) => Some(key.client(req)),
            Part::ForwardedFor(key) => Some(key.client(req)),
            Part::Forwarded(key) => Some(key.client(req)),
            _ => None,
        });
        address.unwrap_or_else(|| PeerIp::new().client(req))
    }

    /// Returns `true` if the address is read of a header that proxies write.
    #[cfg(feature = "config")]
    pub(crate) fn reads_forwarded(&self) -> bool {
        self.parts()
            .any(|part| matches!(part, Part::ForwardedFor(_) | Part::Forwarded(_)))
    }

    /// Returns `true` if a client can have another key for each request, by a value that it
    /// invents.
    #[cfg(feature = "config")]
    pub(crate) fn is_chosen_by_clients(&self) -> bool {
        // The first alternative alone: without a part that clients choose, every request has it.
        let first = self.alternatives.first();
        first.into_iter().flatten().any(Part::is_chosen_by_clients)
    }

    #[cfg(feature = "config")]
    fn parts(&self) -> impl Iterator<Item = &Part> {
        self.alternatives.iter().flatten()
    }

    /// Returns the only part of the key.
    #[inline]
    fn only(&self) -> Option<&Part> {
        match (self.alternatives.as_slice(), &self.otherwise) {
            ([parts], None) => match parts.as_slice() {
                [part] => Some(part),
                _ => None,
            },
            _ => None,
        }
    }
}

impl Part {
    fn extract<B>(&self, req: &Request<B>) -> Result<Extracted, MissingKey> {
        match self {
            Self::PeerIp(key) => key.extract(req),
            Self::ForwardedFor(key) => key.extract(req),
            Self::Forwarded(key) => key.extract(req),
            Self::Header(key) => key.extract(req),
            Self::Bearer => BearerToken.extract(req),
            Self::Host => Host.extract(req),
            Self::Cookie(key) => key.extract(req),
            Self::Path => Path.extract(req),
            Self::Method => Method.extract(req),
            #[cfg(feature = "axum")]
            Self::Route => MatchedPath.extract(req),
            Self::Global => Global.extract(req),
        }
    }

    #[cfg(feature = "config")]
    fn is_chosen_by_clients(&self) -> bool {
        match self {
            Self::PeerIp(_) | Self::ForwardedFor(_) | Self::Forwarded(_) | Self::Global => false,
            #[cfg(feature = "axum")]
            Self::Route => false,
            Self::Header(_) | Self::Bearer | Self::Host | Self::Cookie(_) => true,
            // A method may be any word.
            Self::Path | Self::Method => true,
        }
    }
}

impl<B> KeyExtractor<Request<B>> for AnyKey {
    fn extract(&self, req: &Request<B>) -> Result<Extracted, MissingKey> {
        if let Some(part) = self.only() {
            return part.extract(req);
        }
        let mut alternatives = self.alternatives.iter();
        // There is one at least.
        let first = alternatives
            .next()
            .map_or(Ok(Extracted::Key(Key::GLOBAL)), |parts| joined(parts, req));
        // No part returns an absent value, of which a combinator would keep the first error.
        let found = alternatives.fold(first, |found, parts| {
            replaced(found, |_| joined(parts, req))
        });
        replaced(found, |missing| match self.otherwise {
            None => Err(missing),
            Some(answer) => answer.map_err(|status| missing.combined().with_status(status)),
        })
    }

    #[inline]
    fn key_at_hand(&self, req: &Request<B>) -> Option<Key> {
        match self.only()? {
            Part::PeerIp(key) => key.key_at_hand(req),
            Part::Global => Some(Key::GLOBAL),
            _ => None,
        }
    }
}

/// Returns the key of all parts, as that of a tuple of them.
fn joined<B>(parts: &[Part], req: &Request<B>) -> Result<Extracted, MissingKey> {
    if let [part] = parts {
        return part.extract(req);
    }
    let mut first = None;
    let mut keys = SmallVec::<[Key; 4]>::new();
    for part in parts {
        match joined_part(part.extract(req), &mut first) {
            ControlFlow::Continue(key) => keys.push(key),
            ControlFlow::Break(result) => return result,
        }
    }
    match first {
        None => Ok(Extracted::Key(Key::join(keys))),
        Some(missing) => Err(missing),
    }
}

impl Default for AnyKey {
    /// Returns the key `global`.
    fn default() -> Self {
        Self {
            text: "global".into(),
            alternatives: SmallVec::from_elem(SmallVec::from_elem(Part::Global, 1), 1),
            otherwise: None,
        }
    }
}

impl PartialEq for AnyKey {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for AnyKey {}

impl Hash for AnyKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.text.hash(state);
    }
}

impl fmt::Display for AnyKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for AnyKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AnyKey({self})")
    }
}

#[cfg(feature = "serde")]
crate::quota::as_text!(AnyKey);

impl FromStr for AnyKey {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        if text.len() > MAX_TEXT {
            return Err(too_long(text.len()));
        }
        let mut words = KeyWords::of(text);
        let mut alternatives = SmallVec::new();
        let (mut parts, mut otherwise) = (SmallVec::new(), None);
        let mut number = 0;
        loop {
            number += 1;
            if number > MAX_PARTS {
                return Err(words.wrong(format!(
                    "a key of more than {MAX_PARTS} parts: expected {MAX_PARTS} at most; take fewer"
                )));
            }
            parts.push(words.part()?);
            match words.next() {
                Some("+") => words.push("+"),
                Some("or") => {
                    words.push("or");
                    alternatives.push(std::mem::take(&mut parts));
                    otherwise = words.otherwise()?;
                    if otherwise.is_some() {
                        break;
                    }
                }
                None => {
                    alternatives.push(parts);
                    break;
                }
                Some(other) => {
                    return Err(words.wrong(format!(
                        "`{}` does not belong to a key here: expected `+`, `or`, or the end, as in `bearer or refuse 401`",
                        other.escape_debug()
                    )));
                }
            }
        }
        if let Some(word) = words.next() {
            return Err(words.wrong(format!(
                "`{}` stands behind the end of the key: expected nothing; `or exempt`, `or shared NAME` and `or refuse STATUS` are last",
                word.escape_debug()
            )));
        }
        // Some addresses are longer in their canonical form.
        if words.canonical.len() > MAX_TEXT {
            return Err(too_long(words.canonical.len()));
        }
        Ok(Self {
            text: words.canonical.into(),
            alternatives,
            otherwise,
        })
    }
}

fn too_long(bytes: usize) -> Error {
    Error::new(format!(
        "a key of {bytes} bytes: expected {MAX_TEXT} at most; take fewer parts"
    ))
}

/// Parses a number without a sign.
fn digits<T: FromStr>(text: &str) -> Option<T> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_number)
}

/// The words of a text, and the canonical text so far.
struct KeyWords<'a> {
    text: &'a str,
    words: std::iter::Peekable<SplitWhitespace<'a>>,
    /// The column of the word that was read last, in bytes.
    column: usize,
    canonical: String,
}

impl<'a> KeyWords<'a> {
    fn of(text: &'a str) -> Self {
        Self {
            text,
            words: text.split_whitespace().peekable(),
            column: 1,
            canonical: String::with_capacity(text.len()),
        }
    }

    fn next(&mut self) -> Option<&'a str> {
        let word = self.words.next()?;
        let before = word.as_ptr() as usize - self.text.as_ptr() as usize;
        self.column = before + 1;
        Some(word)
    }

    /// Returns the next word if it is a setting of the part before it.
    fn setting(&mut self) -> Option<&'a str> {
        let is_setting = |word: &&str| *word != "+" && *word != "or";
        self.words.peek().filter(|word| is_setting(word))?;
        self.next()
    }

    /// Appends a canonical word.
    fn push(&mut self, word: impl fmt::Display) {
        use fmt::Write;
        let blank = if self.canonical.is_empty() { "" } else { " " };
        // Writing to memory cannot fail.
        let _ = write!(self.canonical, "{blank}{word}");
    }

    /// Returns an error about the word that was read last.
    fn wrong(&self, text: String) -> Error {
        Error::new(text).at_column(self.column)
    }

    fn part(&mut self) -> Result<Part, Error> {
        let Some(word) = self.next() else {
            let error = Error::new(
                "the key ends too early: expected a part of it, as in `peer-ip` or `header x-api-key`",
            );
            return Err(error.at_column(self.text.len() + 1));
        };
        let (name, bits) = match word.split_once('/') {
            Some((name, bits)) => (name, Some(bits)),
            None => (word, None),
        };
        let is_address = ["peer-ip", "forwarded-for", "forwarded"].contains(&name);
        if let (Some(bits), false, true) = (bits, is_address, AnyKey::WORDS.contains(&name)) {
            return Err(self.wrong(format!(
                "`/{}` is no setting of `{}`: expected a prefix only behind an address, as in `peer-ip/48`",
                bits.escape_debug(),
                name.escape_debug()
            )));
        }
        Ok(match name {
            "peer-ip" | "forwarded-for" | "forwarded" => self.address(name, bits)?,
            "header" => {
                let name = self.name("header x-api-key")?;
                let name =
                    header::parse_name(name).map_err(|error| self.wrong(error.to_string()))?;
                self.push(format_args!("header {name}"));
                Part::Header(Header::try_new(name.as_str())?)
            }
            "cookie" => {
                let name = self.name("cookie session")?;
                let cookie =
                    Cookie::try_new(name).map_err(|error| self.wrong(error.to_string()))?;
                self.push(format_args!("cookie {name}"));
                Part::Cookie(cookie)
            }
            "bearer" => self.plain(name, Part::Bearer),
            "host" => self.plain(name, Part::Host),
            "path" => self.plain(name, Part::Path),
            "method" => self.plain(name, Part::Method),
            "global" => self.plain(name, Part::Global),
            #[cfg(feature = "axum")]
            "route" => self.plain(name, Part::Route),
            #[cfg(not(feature = "axum"))]
            "route" => {
                return Err(self.wrong(
                    "`route` is the route that axum matched, of which this build does not know: expected tollgate's feature `axum`; \
                     enable it"
                        .to_owned(),
                ));
            }
            _ => {
                return Err(self.wrong(format!(
                    "unknown key `{}`: expected `peer-ip`, `forwarded-for`, `forwarded`, `header`, `bearer`, `host`, `cookie`, `path`, \
                     `method`, `route` or `global`, as in `header x-api-key` or `forwarded-for 10.0.0.0/8`",
                    word.escape_debug()
                )));
            }
        })
    }

    fn plain(&mut self, name: &str, part: Part) -> Part {
        self.push(name);
        part
    }

    /// Returns the name behind a word. It may be any, `or` and `+` among them.
    fn name(&mut self, example: &str) -> Result<&'a str, Error> {
        self.next()
            .ok_or_else(|| self.wrong(format!("there is no name: expected one, as in `{example}`")))
    }

    /// Returns an address, with its settings.
    fn address(&mut self, name: &str, bits: Option<&str>) -> Result<Part, Error> {
        let mut settings = AddressSettings::default();
        if let Some(bits) = bits {
            let ipv6 = digits(bits).ok_or_else(|| {
                self.wrong(format!(
                    "`/{}` is no prefix: expected 1 to 128 bits, as in `{name}/48`",
                    bits.escape_debug()
                ))
            })?;
            let checked = PeerIp::new().try_ipv6_prefix(ipv6);
            checked.map_err(|error| error.at_column(self.column))?;
            settings.ipv6 = Some(ipv6);
        }
        let mut given: SmallVec<[&str; 4]> = SmallVec::new();
        while let Some(word) = self.setting() {
            let setting = word.split_once('=').map(|(setting, _)| setting);
            if let Some(setting) = setting.filter(|setting| given.contains(setting)) {
                return Err(self.wrong(format!(
                    "`{}=` stands twice in `{name}`: expected it once; remove one of them",
                    setting.escape_debug()
                )));
            }
            given.extend(setting);
            self.address_setting(name, word, &mut settings)?;
        }
        let column = self.column;
        let part = settings
            .part(name)
            .map_err(|error| error.at_column(column))?;
        self.push(settings.text(name));
        Ok(part)
    }

    fn address_setting(
        &self,
        name: &str,
        word: &str,
        settings: &mut AddressSettings,
    ) -> Result<(), Error> {
        let is_forwarded = name != "peer-ip";
        let wrong = |expected: &str| {
            self.wrong(format!(
                "`{}` is no setting of `{name}`: expected {expected}",
                word.escape_debug()
            ))
        };
        if let Some(bits) = word.strip_prefix("ipv4=") {
            let bits = bits.strip_prefix('/').and_then(digits);
            settings.ipv4 = Some(bits.ok_or_else(|| wrong("a prefix, as in `ipv4=/24`"))?);
        } else if let (Some(hops), true) = (word.strip_prefix("hops="), is_forwarded) {
            let hops = digits(hops);
            settings.hops = Some(hops.ok_or_else(|| wrong("a number of proxies, as in `hops=1`"))?);
        } else if let (Some(header), "forwarded-for") = (word.strip_prefix("header="), name) {
            let header = header::parse_name(header);
            settings.header = Some(header.map_err(|error| self.wrong(error.to_string()))?);
        } else if is_forwarded && word.contains('=') {
            let settings = if name == "forwarded" {
                ""
            } else {
                "`header=`, "
            };
            return Err(wrong(&format!(
                "`hops=`, {settings}`ipv4=` or a network, as in `{name} 10.0.0.0/8`"
            )));
        } else if is_forwarded {
            let network = parse_network(word).map_err(|error| self.wrong(error.to_string()))?;
            settings.networks.push(network.trunc());
        } else {
            return Err(wrong(
                "`+`, `or`, the end, or a prefix of IPv4, as in `ipv4=/24`",
            ));
        }
        Ok(())
    }

    /// Returns what becomes of requests without a key, if that is next.
    fn otherwise(&mut self) -> Result<Option<Result<Extracted, StatusCode>>, Error> {
        let word = self.words.peek().copied();
        if !matches!(word, Some("exempt" | "shared" | "refuse")) {
            return Ok(None);
        }
        Ok(Some(match self.next() {
            Some("shared") => {
                let name = self.name("or shared anonymous")?;
                self.push(format_args!("shared {name}"));
                Ok(Extracted::Key(Key::shared(name)))
            }
            Some("refuse") => {
                let status = self.name("or refuse 401")?;
                let parsed: Option<StatusCode> = status.parse().ok();
                let is_error =
                    |status: &StatusCode| status.is_client_error() || status.is_server_error();
                let status = parsed.filter(is_error).ok_or_else(|| {
                    self.wrong(format!(
                        "`{}` is no status of a refusal: expected 400 to 599, as in `or refuse 401`",
                        status.escape_debug()
                    ))
                })?;
                self.push(format_args!("refuse {}", status.as_u16()));
                Err(status)
            }
            _ => {
                self.push("exempt");
                Ok(Extracted::Exempt)
            }
        }))
    }
}

/// The settings of an address.
#[derive(Default)]
struct AddressSettings {
    ipv6: Option<u8>,
    ipv4: Option<u8>,
    hops: Option<usize>,
    header: Option<HeaderName>,
    networks: Vec<ipnet::IpNet>,
}

/// Applies the prefixes to any extractor of addresses.
macro_rules! with_prefixes {
    ($settings:ident, $key:expr) => {{
        let key = $key.try_ipv6_prefix($settings.ipv6.unwrap_or(64))?;
        key.try_ipv4_prefix($settings.ipv4.unwrap_or(32))?
    }};
}

impl AddressSettings {
    fn part(&self, name: &str) -> Result<Part, Error> {
        if name == "peer-ip" {
            return Ok(Part::PeerIp(with_prefixes!(self, PeerIp::new())));
        }
        let networks = self.networks.iter().copied();
        let is_one = self.hops.is_some() == self.networks.is_empty();
        if !is_one {
            return Err(Error::new(format!(
                "`{name}` does not say which proxies to trust: expected their networks or their number, and not both, as in \
                 `{name} 10.0.0.0/8` or `{name} hops=1`"
            )));
        }
        Ok(match (name, self.hops) {
            ("forwarded", Some(hops)) => {
                Part::Forwarded(with_prefixes!(self, Forwarded::hops(hops)))
            }
            ("forwarded", None) => {
                Part::Forwarded(with_prefixes!(self, Forwarded::trusting(networks)))
            }
            (_, hops) => {
                let key = match hops {
                    Some(hops) => ForwardedFor::hops(hops),
                    None => ForwardedFor::trusting(networks),
                };
                let key = match &self.header {
                    Some(header) => key.try_in_header(header.as_str())?,
                    None => key,
                };
                Part::ForwardedFor(with_prefixes!(self, key))
            }
        })
    }

    fn text(&self, name: &str) -> String {
        let mut text = name.to_owned();
        if let Some(bits) = self.ipv6.filter(|bits| *bits != 64) {
            text.push_str(&format!("/{bits}"));
        }
        for network in &self.networks {
            match network.prefix_len() == network.max_prefix_len() {
                true => text.push_str(&format!(" {}", network.addr())),
                false => text.push_str(&format!(" {network}")),
            }
        }
        if let Some(hops) = self.hops {
            text.push_str(&format!(" hops={hops}"));
        }
        if let Some(header) = self
            .header
            .as_ref()
            .filter(|name| *name != "x-forwarded-for")
        {
            text.push_str(&format!(" header={header}"));
        }
        if let Some(bits) = self.ipv4.filter(|bits| *bits != 32) {
            text.push_str(&format!(" ipv4=/{bits}"));
        }
        text
    }
}
