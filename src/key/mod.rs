//! From a request to the key of the client that sent it.
//!
//! # Which key?
//!
//! | who is limited | key |
//! |---|---|
//! | everybody together | [`Global`], the default |
//! | clients that connect directly, by address | [`PeerIp`] |
//! | clients behind proxies that write `X-Forwarded-For` | [`ForwardedFor::trusting`] |
//! | … that write `Forwarded` (RFC 7239) | [`Forwarded::trusting`] |
//! | … that write a header of their own | [`ForwardedFor::in_header`] |
//! | holders of an API key or a token | [`Header`], [`BearerToken`] |
//! | users, tenants, plans: whatever takes a look-up | [`Extension`], filled by an outer layer |
//! | a path or a method | [`Path`], [`Method`] |
#![cfg_attr(feature = "axum", doc = "| a route of axum | [`MatchedPath`] |")]
//! | several of these at once: each user on each route | a tuple, as in `(PeerIp::new(), Method)` |
//! | anything else | a closure <code>\|req: &Request\<Body>\| …</code>, combined by [`from_fn`] |
//!
//! A request without a key is refused with 400, or with 500 where the server is at fault.
//! [`KeyExtractorExt`] says what to do instead, and exempts requests:
//!
//! ```
//! use http::Request;
//! use tollgate::key::{Extracted, Header, Key, KeyExtractor, KeyExtractorExt, paths};
//!
//! let key = Header::new("x-api-key")
//!     .or_shared("anonymous")
//!     .exempting(paths(["/health"]));
//!
//! let anonymous = Request::new(());
//! assert_eq!(key.extract(&anonymous), Ok(Extracted::Key(Key::shared("anonymous"))));
//! ```
//!
//! Only what the client cannot choose limits it. Addresses are believed where the setting says so;
//! headers and tokens are as good as the check behind them.

mod client_ip;
mod compose;
mod exempt;
mod ext;
mod extension;
mod extractor;
mod from_fn;
mod header;
mod help;
mod missing;
mod target;
mod value;

#[doc(no_inline)]
pub use ipnet::IpNet;

#[cfg(feature = "axum")]
pub use self::target::MatchedPath;
pub use self::{
    client_ip::{Forwarded, ForwardedFor, PeerIp},
    compose::{Exempting, Labelled, Or, OrExempt, OrRefuse, OrShared, Tagged},
    exempt::{Paths, Predicate, cors_preflight, paths},
    ext::KeyExtractorExt,
    extension::Extension,
    extractor::{Extracted, Global, IntoKey, KeyExtractor},
    from_fn::{FromFn, from_fn},
    header::{BearerToken, Header},
    help::OperatorHelp,
    missing::MissingKey,
    target::{Method, Path},
    value::Key,
};
