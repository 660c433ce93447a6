//! The request of a line of an access log, as far as the log knows it.

use std::net::IpAddr;

use http::{HeaderName, HeaderValue, Method, Request, StatusCode, header};
use tollgate::key::{AnyKey, Extracted, Key, KeyExtractor};

use crate::access_log::Entry;

/// The header in which a request of a log has its user.
const USER: HeaderName = HeaderName::from_static("remote-user");

/// Returns the request of a line: method, target, the peer's address, and the headers `user-agent`,
/// `referer` and `remote-user`. What is no valid part of a request is left out.
pub(crate) fn request_of(entry: &Entry<'_>) -> Request<()> {
    let mut request = Request::new(());
    if let Some(method) = entry
        .method
        .and_then(|method| Method::from_bytes(method).ok())
    {
        *request.method_mut() = method;
    }
    if let Some(uri) = entry.target.and_then(|target| target.try_into().ok()) {
        *request.uri_mut() = uri;
    }
    let headers = [
        (USER, entry.user),
        (header::REFERER, entry.referer),
        (header::USER_AGENT, entry.agent),
    ];
    for (name, text) in headers {
        if let Some(value) = text.and_then(|text| HeaderValue::from_bytes(text).ok()) {
            request.headers_mut().insert(name, value);
        }
    }
    if let Some(address) = address(entry.host) {
        request.extensions_mut().insert(address);
    }
    if let Some(status) = entry
        .status
        .and_then(|status| StatusCode::from_u16(status).ok())
    {
        request.extensions_mut().insert(status);
    }
    request
}

fn address(host: &[u8]) -> Option<IpAddr> {
    std::str::from_utf8(host).ok()?.parse().ok()
}

/// Reads the keys of lines.
pub(crate) struct KeyReader {
    key: AnyKey,
    text: String,
}

impl KeyReader {
    pub(crate) fn new(key: AnyKey) -> Self {
        Self {
            text: key.to_string(),
            key,
        }
    }

    /// Returns the text of the key, as for `--key`.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Returns the key of a line as text; `None` if it has none.
    pub(crate) fn read(&self, entry: &Entry<'_>) -> Option<Vec<u8>> {
        match self.text.as_str() {
            // Servers log targets that are no URI, too.
            "path" => return entry.path.map(<[u8]>::to_vec),
            // Some log the name of a host.
            "peer-ip" if address(entry.host).is_none() => return Some(entry.host.to_vec()),
            _ => {}
        }
        match self.key.extract(&request_of(entry)) {
            Ok(Extracted::Key(key)) => Some(name_of(key).into_bytes()),
            Ok(Extracted::Exempt) | Err(_) => None,
        }
    }
}

/// Returns a key as text, for a report. Keys of more than 40 bytes are digests.
pub(crate) fn name_of(key: Key) -> String {
    let text = format!("{:?}", key.labelled());
    let text = text
        .strip_prefix("Key(")
        .and_then(|text| text.strip_suffix(')'));
    let text = text.unwrap_or_default();
    let of_client = ["ip ", "text ", "bytes ", "joined "];
    let name = of_client.iter().find_map(|kind| text.strip_prefix(kind));
    name.unwrap_or(text).to_owned()
}
