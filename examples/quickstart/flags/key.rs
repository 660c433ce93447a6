//! The key of the limit: `--key`.

use std::{fmt, str::FromStr};

use axum::http::{HeaderName, HeaderValue, Request};
use tollgate::{
    Error,
    key::{Extracted, Forwarded, ForwardedFor, Global, Header, KeyExtractor, MissingKey, PeerIp},
};

/// A key chosen at run time. An application with a fixed key writes `.key(PeerIp::new())`.
#[derive(Clone)]
pub(crate) struct ClientKey {
    text: String,
    by: By,
}

#[derive(Clone)]
enum By {
    Peer(PeerIp),
    Global,
    Header(Header, HeaderName),
    ForwardedFor(ForwardedFor),
    Forwarded(Forwarded),
}

impl<B> KeyExtractor<Request<B>> for ClientKey {
    fn extract(&self, req: &Request<B>) -> Result<Extracted, MissingKey> {
        match &self.by {
            By::Peer(key) => key.extract(req),
            By::Global => Global.extract(req),
            By::Header(key, _) => key.extract(req),
            By::ForwardedFor(key) => key.extract(req),
            By::Forwarded(key) => key.extract(req),
        }
    }
}

impl ClientKey {
    /// Returns an example of the header that a client must send.
    pub(crate) fn example_header(&self) -> Option<(HeaderName, HeaderValue)> {
        match &self.by {
            By::Peer(_) | By::Global => None,
            By::Header(_, name) => Some((name.clone(), HeaderValue::from_static("alice"))),
            By::ForwardedFor(_) => Some((
                HeaderName::from_static("x-forwarded-for"),
                HeaderValue::from_static("192.0.2.7"),
            )),
            By::Forwarded(_) => Some((
                HeaderName::from_static("forwarded"),
                HeaderValue::from_static("for=192.0.2.7"),
            )),
        }
    }
}

impl FromStr for ClientKey {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let by = match text.split_once(':') {
            None if text == "peer" => By::Peer(PeerIp::new()),
            None if text == "global" => By::Global,
            Some(("header", name)) => {
                let header = Header::try_new(name)?;
                let name = name
                    .parse()
                    .map_err(|_| Error::new(format!("`{name}` is no header")))?;
                By::Header(header, name)
            }
            Some(("forwarded-for", networks)) => {
                By::ForwardedFor(ForwardedFor::try_trusting(each_of(networks))?)
            }
            Some(("forwarded", networks)) => {
                By::Forwarded(Forwarded::try_trusting(each_of(networks))?)
            }
            _ => {
                return Err(Error::new(format!(
                    "`{text}` is no key: expected `peer`, `global`, `header:NAME` as in \
                     `header:x-api-key`, or `forwarded-for:CIDR[,CIDR]` or `forwarded:CIDR[,CIDR]` as in \
                     `forwarded-for:10.0.0.0/8`"
                )));
            }
        };
        Ok(Self {
            text: text.to_owned(),
            by,
        })
    }
}

fn each_of(networks: &str) -> impl Iterator<Item = &str> {
    networks.split(',').map(str::trim)
}

impl fmt::Display for ClientKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
