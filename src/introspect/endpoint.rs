//! Look-ups at an introspection endpoint (RFC 7662).
//!
//! The client is any tower service, because TLS, proxies, certificates and retries are the choice
//! of the application, and no choice of `rustls` provider would fit all. The built-in one is
//! hyper-util's, without TLS, for servers on the same machine or behind a mesh; `reqwest` would
//! bring a second HTTP stack of settings for one POST. Redirects are not followed, since they would
//! carry tokens elsewhere.

use std::{future::Future, sync::Arc};

use bytes::Bytes;
use form_urlencoded::byte_serialize;
use http::{
    HeaderValue, Method, Request, Response, StatusCode, Uri,
    header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE},
    uri::Scheme,
};
use http_body::Body;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};
use serde_json::Value;
use tower_service::Service;

use super::{Claims, InvalidAnswer, LookUp, Token, look_up::BoxError};
use crate::{error::Error, respond::base64, time::Timestamp};

/// The maximum length of an answer, in bytes.
const MAX_BODY: usize = 64 * 1024;

/// The client of [`Endpoint::new`]: HTTP/1.1 without TLS.
type PlainClient = Client<HttpConnector, Full<Bytes>>;

/// An introspection endpoint (RFC 7662), called over HTTP.
///
/// The token is sent as the form parameter `token`, with `token_type_hint=access_token`. An answer
/// must have the status 200 and up to 64 KiB of JSON, with `active` as a boolean. Of an active
/// token, `sub`, `client_id`, `scope`, the [plan](Self::plan_claim) and `exp` are read: texts, and
/// whole seconds since the Unix epoch. Any other answer is an [`InvalidAnswer`], which may be about
/// the token alone, except for the statuses 401, 408, 429 and 5xx: these are an outage, for which
/// [`fail_open`](super::IntrospectBuilder::fail_open) is meant. Redirects are not followed, because
/// they would send the token elsewhere.
///
/// # TLS
///
/// Tokens and credentials must not cross a network in clear (RFC 7662 §4). [`new`](Self::new) is
/// for endpoints on the same machine or behind an encrypting proxy. For `https`, pass a client of
/// your own to [`with_client`](Self::with_client). With
/// [hyper-rustls](https://docs.rs/hyper-rustls):
///
/// ```no_run
/// use hyper_util::{client::legacy::Client, rt::{TokioExecutor, TokioTimer}};
/// use tollgate::key::introspect::{Endpoint, Introspect};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let https = hyper_rustls::HttpsConnectorBuilder::new()
///     .with_native_roots()?
///     .https_only()
///     .enable_http1()
///     .build();
/// let client = Client::builder(TokioExecutor::new())
///     .pool_timer(TokioTimer::new())
///     .build(https);
/// let secret = std::env::var("INTROSPECTION_SECRET")?;
/// let endpoint = Endpoint::with_client("https://login.example.com/oauth2/introspect", client)?
///     .basic("api", &secret);
/// let layer = Introspect::new(endpoint);
/// # let _ = layer; Ok(()) }
/// ```
///
/// # Examples
///
/// ```
/// use tollgate::key::introspect::{Endpoint, Introspect};
///
/// let endpoint = Endpoint::new("http://localhost:8080/introspect")?
///     .basic("api", "s3cret")
///     .plan_claim("tier");
/// assert!(!format!("{endpoint:?}").contains("s3cret"));
/// let layer = Introspect::new(endpoint);
/// # let _ = layer;
///
/// let error = Endpoint::new("https://localhost/introspect").unwrap_err();
/// assert!(error.to_string().contains("`Endpoint::with_client`"));
/// # Ok::<(), tollgate::Error>(())
/// ```
#[doc(alias = "rfc7662")]
#[derive(Clone)]
pub struct Endpoint<C = PlainClient> {
    client: C,
    uri: Uri,
    authorization: Option<HeaderValue>,
    plan_claim: Arc<str>,
}

impl Endpoint {
    /// Creates an endpoint at an `http` URL, called over HTTP/1.1.
    ///
    /// # Errors
    ///
    /// Returns an error if the URL is not valid, has another scheme, or contains credentials.
    pub fn new(url: &str) -> Result<Self, Error> {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .build(connector);
        let endpoint = Self::with_client(url, client)?;
        if endpoint.uri.scheme() != Some(&Scheme::HTTP) {
            return Err(Error::new(
                "the URL of an introspection endpoint begins with `https:`, which `Endpoint::new` cannot ask: expected `http:`; \
                 pass a client with TLS to `Endpoint::with_client`",
            ));
        }
        Ok(endpoint)
    }
}

impl<C> Endpoint<C> {
    /// Creates an endpoint that is called through `client`, which is any tower service of `http`
    /// requests.
    ///
    /// A client that retries should do so within the
    /// [deadline](super::IntrospectBuilder::deadline).
    ///
    /// # Errors
    ///
    /// Returns an error if the URL is not valid, or contains credentials.
    pub fn with_client(url: &str, client: C) -> Result<Self, Error> {
        // The URL is not part of the message, because it may contain a password.
        let invalid = |what: &str| {
            Error::new(format!(
                "the URL of an introspection endpoint {what}: expected http or https, a host and a path, as in `https://auth.example/introspect`"
            ))
        };
        let uri: Uri = url.parse().map_err(|_| invalid("is not valid"))?;
        if ![Some(&Scheme::HTTP), Some(&Scheme::HTTPS)].contains(&uri.scheme()) {
            return Err(invalid("has no scheme, or an unknown one"));
        }
        if uri
            .authority()
            .is_some_and(|host| host.as_str().contains('@'))
        {
            return Err(invalid(
                "contains credentials, which belong into `Endpoint::basic`",
            ));
        }
        Ok(Self {
            client,
            uri,
            authorization: None,
            plan_claim: "plan".into(),
        })
    }

    /// Authenticates this service by client credentials (RFC 6749 §2.3.1).
    #[must_use]
    pub fn basic(self, client_id: &str, secret: &str) -> Self {
        let encoded = |text: &str| byte_serialize(text.as_bytes()).collect::<String>();
        let pair = format!("{}:{}", encoded(client_id), encoded(secret));
        let digits = base64(pair.as_bytes());
        let padding = "=".repeat((4 - digits.len() % 4) % 4);
        let value = [b"Basic ", &digits[..], padding.as_bytes()].concat();
        // Base64 is always a valid value.
        self.authorize(HeaderValue::from_maybe_shared(Bytes::from(value)).ok())
    }

    /// Authenticates this service by a bearer token (RFC 6750).
    ///
    /// # Errors
    ///
    /// Returns an error if the token contains anything but visible ASCII characters.
    pub fn bearer(self, token: &str) -> Result<Self, Error> {
        if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(Error::new(
                "the bearer token for an introspection endpoint is not valid: expected visible ASCII characters without blanks; \
                 check for a line break at its end",
            ));
        }
        let value = HeaderValue::from_str(&format!("Bearer {token}"));
        Ok(self.authorize(value.ok()))
    }

    fn authorize(mut self, value: Option<HeaderValue>) -> Self {
        self.authorization = value.map(|mut value| {
            value.set_sensitive(true);
            value
        });
        self
    }

    /// Sets the member of the answer that names the plan. Default: `plan`.
    #[must_use]
    pub fn plan_claim(mut self, name: &str) -> Self {
        self.plan_claim = name.into();
        self
    }

    fn request(&self, token: &Token) -> Request<Full<Bytes>> {
        let token: String = byte_serialize(token.expose().as_bytes()).collect();
        let form = format!("token={token}&token_type_hint=access_token");
        let mut request = Request::new(Full::from(form));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.uri.clone();
        let headers = request.headers_mut();
        let form = HeaderValue::from_static("application/x-www-form-urlencoded");
        headers.insert(CONTENT_TYPE, form);
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        if let Some(authorization) = &self.authorization {
            headers.insert(AUTHORIZATION, authorization.clone());
        }
        request
    }
}

impl<C, B> LookUp for Endpoint<C>
where
    C: Service<Request<Full<Bytes>>, Response = Response<B>, Future: Send>
        + Clone
        + Send
        + Sync
        + 'static,
    C::Error: Into<BoxError>,
    B: Body<Data: Send, Error: Into<BoxError>> + Send,
{
    fn look_up(
        &self,
        token: Token,
    ) -> impl Future<Output = Result<Option<Claims>, BoxError>> + Send + 'static {
        let mut client = self.client.clone();
        let request = self.request(&token);
        let plan_claim = Arc::clone(&self.plan_claim);
        async move {
            std::future::poll_fn(|cx| client.poll_ready(cx))
                .await
                .map_err(Into::into)?;
            let response = client.call(request).await.map_err(Into::into)?;
            check_status(response.status())?;
            let body = Limited::new(response.into_body(), MAX_BODY).collect().await;
            let body = body.map_err(|error| match error.downcast::<LengthLimitError>() {
                Ok(_) => InvalidAnswer::new(format!("more than {MAX_BODY} bytes")).into(),
                Err(error) => error,
            })?;
            Ok(claims(&body.to_bytes(), &plan_claim)?)
        }
    }
}

fn check_status(status: StatusCode) -> Result<(), BoxError> {
    let error = match status {
        StatusCode::OK => return Ok(()),
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => format!(
            "the introspection endpoint answered {status}: expected 200; check the client credentials of this service"
        ),
        _ => format!("the status is {status}: expected 200"),
    };
    // Otherwise the server, or a firewall before it, may answer so for this token alone.
    let is_of_all = status.is_server_error() || [401, 408, 429].contains(&status.as_u16());
    Err(match is_of_all {
        true => error.into(),
        false => InvalidAnswer::new(error).into(),
    })
}

/// Reads an answer (RFC 7662 §2.2).
fn claims(body: &[u8], plan_claim: &str) -> Result<Option<Claims>, InvalidAnswer> {
    // The errors of the parser are not passed on: they can quote the answer, which can contain the
    // token.
    let Ok(Value::Object(answer)) = serde_json::from_slice(body) else {
        return Err(InvalidAnswer::new("the body is not a JSON object"));
    };
    match answer.get("active") {
        Some(Value::Bool(true)) => {}
        Some(Value::Bool(false)) => return Ok(None),
        _ => return Err(InvalidAnswer::new("`active` is not a boolean")),
    }
    let text = |name: &str| match answer.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.as_str())),
        Some(_) => Err(InvalidAnswer::new(format!("`{name}` is not a text"))),
    };
    let mut claims = Claims::new();
    if let Some(subject) = text("sub")? {
        claims = claims.with_subject(subject);
    }
    if let Some(client) = text("client_id")? {
        claims = claims.with_client_id(client);
    }
    if let Some(scope) = text("scope")? {
        claims = claims.with_scope(scope);
    }
    if let Some(plan) = text(plan_claim)? {
        claims = claims.with_plan(plan);
    }
    match answer.get("exp") {
        None | Some(Value::Null) => {}
        Some(Value::Number(seconds)) if seconds.is_i64() || seconds.is_u64() => {
            // Instants before 1970 have passed as well.
            let seconds = seconds.as_u64().unwrap_or(0);
            claims =
                claims.with_expiry(Timestamp::from_nanos(seconds.saturating_mul(1_000_000_000)));
        }
        Some(_) => return Err(InvalidAnswer::new("`exp` is not a whole number of seconds")),
    }
    Ok(Some(claims))
}

impl_debug!(Endpoint<C>, |it| uri = it.uri);
