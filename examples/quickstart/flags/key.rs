//! An example of what the clients of a key must send.

use axum::http::{HeaderName, HeaderValue, header};
use tollgate::key::AnyKey;

/// Returns an example of a header that a client must send for the first part of a key.
pub(crate) fn example_header(key: &AnyKey) -> Option<(HeaderName, HeaderValue)> {
    let text = key.to_string();
    let mut words = text.split([' ', '/']);
    let (name, value) = match (words.next()?, words.next()) {
        ("header", Some(name)) => (name.parse().ok()?, "alice".to_owned()),
        ("bearer", _) => (header::AUTHORIZATION, "Bearer alice".to_owned()),
        ("cookie", Some(name)) => (header::COOKIE, format!("{name}=alice")),
        ("forwarded-for", _) => (
            HeaderName::from_static("x-forwarded-for"),
            "192.0.2.7".to_owned(),
        ),
        ("forwarded", _) => (header::FORWARDED, "for=192.0.2.7".to_owned()),
        _ => return None,
    };
    Some((name, value.parse().ok()?))
}
