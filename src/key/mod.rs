//! Keys of clients, and the extractors that derive them from requests.
//!
//! # Which key?
//!
//! | to limit | key |
//! |---|---|
//! | everybody together | [`Global`], the default |
//! | clients that connect directly, by address | [`PeerIp`] |
//! | clients behind proxies that write `X-Forwarded-For` | [`ForwardedFor::trusting`] |
//! | clients behind proxies that write `Forwarded` (RFC 7239) | [`Forwarded::trusting`] |
//! | clients behind proxies that write another header | [`ForwardedFor::in_header`] |
//! | holders of an API key, a token or a session | [`Header`], [`BearerToken`], [`Cookie`] |
//! | users, tenants or plans, after a look-up | [`Extension`], filled by an outer layer |
#![cfg_attr(
    feature = "introspect",
    doc = "| users or plans, by a token that the authorization server looks up | [`Introspect`], an outer layer |"
)]
//! | a path, a method or a host | [`Path`], [`Method`], [`Host`] |
#![cfg_attr(feature = "axum", doc = "| a route of axum | [`MatchedPath`] |")]
//! | several of these at once: each user on each route | a tuple, as in `(PeerIp::new(), Method)` |
//! | anything else | a closure <code>\|req: &Request\<Body>\| …</code>, combined by [`from_fn`] |
//!
//! A request without a key is refused with 400, or with 500 if the server is at fault. The methods of [`KeyExtractorExt`]
//! choose something else, and exempt requests:
//!
//! ```
//! use http::Request;
//! use tollgate::key::{Extracted, Header, Key, KeyExtractor, KeyExtractorExt, paths};
//!
//! let key = Header::new("x-api-key")
//!     .or_shared("anonymous")
//!     .exempt_if(paths(["/health"]));
//!
//! let anonymous = Request::new(());
//! assert_eq!(key.extract(&anonymous), Ok(Extracted::Key(Key::shared("anonymous"))));
//! ```
//!
//! A key limits a client only if the client cannot forge it. Addresses in headers are used only as far as proxies are
//! trusted; other headers and tokens are as reliable as the check behind them.

mod bearer_token;
mod client_ip;
mod combinators;
mod cookie;
mod exempt;
mod extension;
mod extracted;
mod extractor;
mod extractor_ext;
mod from_fn;
mod global;
mod header;
mod host;
mod into_key;
#[cfg(feature = "introspect")]
#[cfg_attr(docsrs, doc(cfg(feature = "introspect")))]
pub mod introspect;
#[expect(clippy::module_inception, reason = "a file is named for what is in it")]
mod key;
mod key_kind;
mod key_text;
mod missing_key;
mod operator_help;
mod target;

#[doc(no_inline)]
pub use ipnet::IpNet;

#[cfg(feature = "introspect")]
#[cfg_attr(docsrs, doc(cfg(feature = "introspect")))]
pub use self::introspect::Introspect;
#[cfg(feature = "axum")]
pub use self::target::MatchedPath;
pub use self::{
    bearer_token::BearerToken,
    client_ip::{Forwarded, ForwardedFor, InNetworks, PeerIp},
    combinators::{ExemptIf, Labelled, Or, OrExempt, OrRefuse, OrShared, Tagged},
    cookie::Cookie,
    exempt::{Paths, Predicate, cors_preflight, paths},
    extension::Extension,
    extracted::Extracted,
    extractor::KeyExtractor,
    extractor_ext::KeyExtractorExt,
    from_fn::{FromFn, from_fn},
    global::Global,
    header::Header,
    host::Host,
    into_key::IntoKey,
    key::Key,
    missing_key::MissingKey,
    operator_help::OperatorHelp,
    target::{Method, Path},
};
