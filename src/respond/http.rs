//! The responder for HTTP, and for gRPC on the same port.

use std::time::Duration;

use http::{
    HeaderValue, Method, Request, Response, StatusCode,
    header::{RETRY_AFTER, WWW_AUTHENTICATE},
    response::Parts,
};
use http_body::Body;

use super::{
    RefuseLate, Respond,
    body::{BodyFn, BodyForm, EmptyBody, MakeBody, ProblemBody},
    grpc::{self, ContentType},
    headers::{Fields, Headers, UpstreamFields, value},
    refusal::{Cause, Refusal},
    settings::{self, OversizedCode, SharedSettings, admissions, setters},
};
use crate::{
    charging::{CarryHandle, ChargeHandle},
    outcome::Outcome,
    permit::Permit,
};

/// Answers `http` requests. This is the default responder.
///
/// | | status |
/// |---|---|
/// | a limit was reached | 429 (RFC 6585 §4) |
/// | the request [can never pass](Refusal::is_oversized) | [413](Self::oversized_status) (RFC 9110 §15.5.14) |
/// | the store could not decide | 503 |
/// | the store [does not support](crate::store::StoreError::unsupported) the call | 500 |
/// | no key | [that of the `MissingKey`](crate::key::MissingKey::status), 400 by default |
///
/// A refusal carries `Retry-After` in whole seconds (RFC 9110 §10.2.3), rounded up, if [its
/// wait](Refusal::retry_after) is known. It is not if the request can never pass or has no key, nor
/// under `fail_closed` if the store could not decide. A refusal also carries
/// `Cache-Control: no-store`. HEAD gets the same fields without the body.
///
/// POST requests with a content type of gRPC or gRPC-Web are answered as [`Grpc`](super::Grpc)
/// does, so one layer serves both on one port. gRPC uses no other method, so all others are
/// answered over HTTP.
///
/// # Examples
///
/// ```
/// use http::Response;
/// use tollgate::respond::{Headers, Http};
///
/// // Bodies that are `From<Cow<'static, str>>`: axum's, `String`, and `Full<Bytes>`.
/// let problems = Http::new().headers(Headers::Legacy);
/// // Bodies that are `Default`.
/// let nothing = Http::empty();
/// // Those of a closure.
/// let words = Http::body(|refusal, parts| {
///     parts.headers.insert("content-type", http::HeaderValue::from_static("text/plain"));
///     refusal.to_string()
/// });
/// # let _ = (problems, nothing, words, Response::new(()));
/// ```
#[doc(alias("429", "too many requests"))]
#[derive(Clone, Default)]
pub struct Http<B = ProblemBody> {
    settings: SharedSettings,
    body: B,
}

impl Http {
    /// Answers with a problem document (RFC 9457). Needs a response body that is
    /// `From<Cow<'static, str>>`, as axum's, `String` and http-body-util's `Full<Bytes>` are.
    pub fn new() -> Self {
        Self::default()
    }

    /// Answers without a body. Needs a response body that is `Default`.
    pub fn empty() -> Http<EmptyBody> {
        Http {
            settings: SharedSettings::default(),
            body: EmptyBody,
        }
    }

    /// Answers with the body that `make` returns.
    ///
    /// The parts hold the status and all fields except those that describe the body; `make` may add
    /// to them and change them. `Cache-Control: no-store` and the outcome in the extensions are set
    /// after it returns. `Display` and `Debug` of the refusal are fit for clients; help for the
    /// operator is [separate](Refusal::help).
    ///
    /// HEAD gets all fields, with the length of the body if that is known, but not the body. Over
    /// gRPC `make` is not called. A body of your own that is not `Default` needs a
    /// [`Respond`](super::Respond) of your own.
    pub fn body<F, B>(make: F) -> Http<BodyFn<F>>
    where
        F: Fn(&Refusal, &mut Parts) -> B,
        B: Body + Default,
    {
        Http {
            settings: SharedSettings::default(),
            body: BodyFn(make),
        }
    }
}

impl<B> Http<B> {
    setters!();

    /// Sets the status of requests that [can never pass](Refusal::is_oversized).
    ///
    /// Default: 413, because clients retry a 429. Choose a status that they do not retry.
    ///
    /// ```
    /// use http::StatusCode;
    /// use tollgate::respond::Http;
    ///
    /// let respond = Http::new().oversized_status(StatusCode::UNPROCESSABLE_ENTITY);
    /// # let _ = respond;
    /// ```
    #[must_use]
    pub fn oversized_status(mut self, status: StatusCode) -> Self {
        self.settings.oversized_status = Some(status);
        self
    }
}

impl_debug!(Http<B>, |it| settings = it.settings);

#[diagnostic::do_not_recommend]
impl<BIn, BOut, E, M> Respond<Request<BIn>, Response<BOut>, E> for Http<M>
where
    BOut: 'static,
    M: MakeBody<BOut>,
{
    admissions!(BIn, BOut);

    fn refuse(&self, mut req: Request<BIn>, mut refusal: Refusal) -> Result<Response<BOut>, E> {
        let is_head = req.method() == Method::HEAD;
        let grpc_content_type = grpc::content_type(&req);
        let (mut parts, outer) = settings::empty_parts(&mut req);
        let body = self.answer(&mut parts, grpc_content_type, is_head, &refusal);
        settings::finish(&mut parts, outer, &mut refusal);
        Ok(Response::from_parts(parts, body))
    }
}

#[diagnostic::do_not_recommend]
impl<B, E, M: MakeBody<B>> RefuseLate<Response<B>, E> for Http<M> {
    /// Answers as [`Respond::refuse`] does, over gRPC if the response is gRPC. Nothing of the
    /// response remains.
    fn refuse_late(&self, res: Response<B>, mut refusal: Refusal) -> Result<Response<B>, E> {
        let grpc_content_type = grpc::type_of_response(&res);
        let (mut parts, ()) = Response::new(()).into_parts();
        // The server drops the body of a response to HEAD.
        let body = self.answer(&mut parts, grpc_content_type, false, &refusal);
        settings::finish(&mut parts, None, &mut refusal);
        Ok(Response::from_parts(parts, body))
    }
}

impl<M> Http<M> {
    /// Writes the status and fields of a refusal, and returns its body.
    // By reference, because parts and refusals are long to move.
    #[inline]
    fn answer<B>(
        &self,
        parts: &mut Parts,
        grpc_content_type: Option<ContentType>,
        is_head: bool,
        refusal: &Refusal,
    ) -> B
    where
        M: MakeBody<B>,
    {
        let form = match grpc_content_type {
            Some(content_type) => {
                grpc::write(&self.settings, refusal, content_type, parts);
                BodyForm::Grpc
            }
            None => {
                write(&self.settings, refusal, parts);
                if is_head {
                    BodyForm::Head
                } else {
                    BodyForm::Full
                }
            }
        };
        self.body.make(form, refusal, parts)
    }
}

/// Writes the status and the fields of a refusal, without those of the body.
fn write(settings: &SharedSettings, refusal: &Refusal, parts: &mut Parts) {
    let headers = &mut parts.headers;
    parts.status = match refusal.cause() {
        Cause::Limit => {
            settings.fields(refusal.outcome()).write(headers);
            let oversized = settings.oversized_status;
            match refusal.is_oversized() {
                true => oversized.unwrap_or(StatusCode::PAYLOAD_TOO_LARGE),
                false => StatusCode::TOO_MANY_REQUESTS,
            }
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
    // Rounded as the `t` of the policies that refuse is, so never earlier than it.
    let seconds = settings
        .retry_after(refusal)
        .map(|wait| value::seconds(wait).max(1));
    if let Some(value) = seconds.and_then(value::number) {
        headers.insert(RETRY_AFTER, value);
    }
}

/// Carries charge handles in the extensions of the request.
impl<B> CarryHandle for Request<B> {
    fn carry(&mut self, handle: ChargeHandle) {
        let extensions = self.extensions_mut();
        let handle = match extensions.remove::<ChargeHandle>() {
            None => handle,
            Some(outer) => outer.beside(handle),
        };
        extensions.insert(handle);
    }
}
