//! Introspection of bearer tokens: the subject and the plan of a request, from the authorization
//! server.
//!
//! An [`Introspect`] layer outside of the limit takes the token from `Authorization: Bearer`, looks
//! it up through an [`Endpoint`] (RFC 7662) or [any async function](LookUp), and inserts an
//! [`Introspected`] into the request's extensions.
//!
//! | request | answer |
//! |---|---|
//! | active token | passed on, with [`Introspected::claims`] |
//! | token that is unknown, expired, revoked or malformed | 401, `WWW-Authenticate: Bearer error="invalid_token"` (RFC 6750 §3.1) |
//! | no token | 401, `WWW-Authenticate: Bearer`; or [passed on](IntrospectBuilder::allow_anonymous) |
//! | token that cannot be checked: the look-up fails, is late, or has an answer that cannot be read | [the last answer for some time](IntrospectBuilder::serve_stale); then 503 with `Retry-After`, or [passed on](IntrospectBuilder::fail_open), unless the token may be the cause |
//! | token that is not looked up, because too many are | the last answer that it is active, for one [`max_age`](IntrospectBuilder::max_age) more, or while the renewals of others fail as in the row above; otherwise 503 with `Retry-After`, whatever is chosen for an outage, because anybody can cause this |
//!
//! An active token is renewed after 70 to 90 % of its `max_age`; the share differs for each token
//! and time. The request that starts the renewal is answered from the cache, so none waits.
//!
//! # Bounds
//!
//! An attacker can send any number of invented tokens, each of which looks like a new client's.
//!
//! - **Memory:** the cache has a [`capacity`](IntrospectBuilder::capacity) for active tokens and
//!   another one for inactive ones. So invented tokens evict only each other, and never a token
//!   that the server has confirmed. Active tokens compete with active tokens alone.
//! - **Look-ups:** look-ups of tokens that are not cached as active have a
//!   [rate](IntrospectBuilder::max_rate) and a [number in flight](IntrospectBuilder::max_lookups).
//!   Above either, a request with an unknown token is refused with 503. Tokens that were active
//!   have a number of their own, so a flood does not keep them from being renewed.
//! - Requests with the same token share one look-up. It goes on if the request that started it is
//!   dropped.
//! - **Inner service:** a request that waits for a look-up takes no place of the service inside,
//!   such as one of a concurrency limit. It waits for one after its look-up.
//!
//! One effect remains: during such a flood, a client with a *new* token competes with the invented
//! ones for look-ups. Put a limit by address outside of this layer, so that one address cannot use
//! them up.
//!
//! # Secrets
//!
//! A token is kept in clear only while it is looked up. The cache has its BLAKE3 digest. `Debug`
//! prints no token, subject or credential, and the log of failures removes the token from the
//! errors of look-ups.

pub use crate::introspect::{
    Claims, Endpoint, Introspect, IntrospectBuilder, IntrospectStats, Introspected, InvalidAnswer,
    LookUp, Token,
};
