//! Answers over HTTP, and over gRPC where the request speaks it.

use std::{fmt, time::Duration};

use http::{
    HeaderValue, Method, Request, Response, StatusCode,
    header::{RETRY_AFTER, WWW_AUTHENTICATE},
    response::Parts,
};

use super::{
    Respond,
    body::{BodyFn, EmptyBody, MakeBody},
    grpc,
    headers::{Fields, Headers},
    number,
    problem::ProblemBody,
    refusal::{Cause, Form, Refusal},
    reuse,
    settings::{Settings, setters},
};
use crate::outcome::Outcome;

/// Answers `http` requests: the default.
///
/// A refusal is 429 (RFC 6585 §4) with, unless it is for ever,
/// `Retry-After` in whole seconds (RFC 9110 §10.2.3), rounded up. A store that could not tell is 503, a call that it
/// [does not support](crate::store::Error::unsupported) 500, a missing key what [it says](crate::key::MissingKey::status). HEAD gets the same fields without the body. Every refusal carries
/// `Cache-Control: no-store`.
///
/// POST requests whose content type is gRPC or gRPC-Web are answered as [`Grpc`](super::Grpc) answers them, so that one
/// layer serves both on one port. gRPC uses no other method, so all others are answered over HTTP.
///
/// ```
/// use http::Response;
/// use tollgate::respond::{Headers, Http};
///
/// // Bodies that are `From<String>`: axum's, `String`, http-body-util's `Full<Bytes>`.
/// let problems = Http::new().headers(Headers::Legacy);
/// // Bodies that are `Default`.
/// let nothing = Http::empty();
/// // Anything.
/// let words = Http::body(|refusal, parts| {
///     if refusal.is_bodiless() {
///         return Vec::new();
///     }
///     parts.headers.insert("content-type", http::HeaderValue::from_static("text/plain"));
///     refusal.to_string().into_bytes()
/// });
/// # let _ = (problems, nothing, words, Response::new(()));
/// ```
#[derive(Clone, Default)]
pub struct Http<B = ProblemBody> {
    settings: Settings,
    body: B,
}

impl Http {
    /// Answers with a problem document (RFC 9457). Needs a response body that is `From<String>`.
    pub fn new() -> Self {
        Self::default()
    }

    /// Answers without a body. Needs a response body that is `Default`.
    pub fn empty() -> Http<EmptyBody> {
        Http {
            settings: Settings::default(),
            body: EmptyBody,
        }
    }

    /// Answers with the body that `make` returns.
    ///
    /// The parts hold the status and all fields but those that describe the body; `make` may add
    /// to them and change them. It is called for HEAD requests and over gRPC too, and must return an empty body
    /// where [`Refusal::is_bodiless`] says so. Whatever can be printed of the refusal is fit for clients; help for the
    /// operator is [apart](Refusal::help). `Cache-Control: no-store` and the outcome in the extensions are set
    /// afterwards, whatever `make` does.
    pub fn body<F, B>(make: F) -> Http<BodyFn<F>>
    where
        F: Fn(&Refusal, &mut Parts) -> B,
    {
        Http {
            settings: Settings::default(),
            body: BodyFn(make),
        }
    }
}

impl<B> Http<B> {
    setters!();
}

impl<B> fmt::Debug for Http<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Http")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

#[diagnostic::do_not_recommend]
impl<BIn, BOut, E, M> Respond<Request<BIn>, Response<BOut>, E> for Http<M>
where
    M: MakeBody<BOut>,
{
    type Mark = Fields;

    #[inline]
    fn wants_outcome(&self) -> bool {
        self.settings.wants_outcome()
    }

    fn admit(&self, req: &mut Request<BIn>, outcome: Outcome) -> Fields {
        self.settings.admit(req.extensions_mut(), outcome)
    }

    fn annotate(mark: Fields, res: &mut Response<BOut>) {
        mark.write(res.headers_mut());
    }

    fn refuse(&self, mut req: Request<BIn>, mut refusal: Refusal) -> Result<Response<BOut>, E> {
        let is_head = req.method() == Method::HEAD;
        let spoken = grpc::spoken_by(&req);
        let (mut answer, outer) = reuse::empty_answer(&mut req);
        refusal.set_form(match spoken {
            Some(content_type) => {
                grpc::write(&self.settings, &refusal, content_type, &mut answer);
                Form::Grpc
            }
            None => {
                write(&self.settings, &refusal, &mut answer);
                if is_head { Form::Head } else { Form::Full }
            }
        });
        let (mut parts, ()) = answer.into_parts();
        let body = self.body.make(&refusal, &mut parts);
        reuse::finish(&mut parts, outer, refusal);
        Ok(Response::from_parts(parts, body))
    }
}

/// Writes all of a refusal but its body.
fn write(settings: &Settings, refusal: &Refusal, answer: &mut Response<()>) {
    let headers = answer.headers_mut();
    let status = match refusal.cause() {
        Cause::Limit => {
            settings.write_fields(refusal.outcome(), headers);
            StatusCode::TOO_MANY_REQUESTS
        }
        Cause::Undecided => StatusCode::SERVICE_UNAVAILABLE,
        Cause::Unsupported => StatusCode::INTERNAL_SERVER_ERROR,
        Cause::MissingKey(missing) => {
            let challenge = missing.challenge().map(HeaderValue::from_str);
            if let Some(Ok(challenge)) = challenge {
                headers.insert(WWW_AUTHENTICATE, challenge);
            }
            missing.status()
        }
    };
    // Rounded as the `t` of the policies that refuse, so never earlier.
    let seconds = settings
        .retry_after(refusal)
        .map(|wait| number::seconds(wait).max(1));
    if let Some(value) = seconds.and_then(number::value) {
        headers.insert(RETRY_AFTER, value);
    }
    *answer.status_mut() = status;
}
