//! The service, which looks tokens up before it calls the inner service.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use http::{HeaderMap, Request, header::AUTHORIZATION};
use pin_project_lite::pin_project;
use tower_service::Service;

use super::{
    Introspected,
    cache::{TokenAnswer, TokenCache, TokenCheck},
};
use crate::{
    decision::Decision,
    key::{MissingKey, bearer_token, has_bearer_scheme, only_value},
    outcome::Outcome,
    policy::Policy,
    respond::{Refusal, Respond},
};

/// The maximum length of a token, in bytes.
const MAX_TOKEN: usize = 8192;

/// A service that looks tokens up before it calls an inner service: made by
/// [`Introspect`](super::Introspect).
#[derive(Clone)]
#[must_use = "services do nothing unless called"]
pub struct IntrospectService<S, R = crate::respond::Http> {
    inner: S,
    shared: Arc<TokenCache>,
    respond: R,
}

impl<S, R> IntrospectService<S, R> {
    pub(super) fn new(inner: S, shared: Arc<TokenCache>, respond: R) -> Self {
        Self {
            inner,
            shared,
            respond,
        }
    }
}

impl_debug!([S: std::fmt::Debug, R] IntrospectService<S, R>, |it|
    inner = it.inner, stats = it.shared
);

impl<S, B, R> Service<Request<B>> for IntrospectService<S, R>
where
    S: Service<Request<B>> + Clone,
    R: Respond<Request<B>, S::Response, S::Error> + Clone,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = IntrospectFuture<S, B, R>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut req: Request<B>) -> Self::Future {
        let verdict = match credentials(req.headers()) {
            Credentials::Token(token) => match self.shared.find(token) {
                TokenCheck::Ready(found) => verdict(&self.shared, Some(found)),
                TokenCheck::Pending(answer) => {
                    // The look-up must not hold capacity of the ready instance.
                    self.inner = self.inner.clone();
                    return IntrospectFuture {
                        state: IntrospectState::LookingUp {
                            found: Box::pin(answer.wait()),
                            call: Some((req, self.inner.clone())),
                            shared: Arc::clone(&self.shared),
                            respond: self.respond.clone(),
                        },
                    };
                }
            },
            Credentials::None => verdict(&self.shared, None),
            Credentials::Malformed => {
                self.shared.counters.malformed.add(1);
                Err(Reason::InvalidToken)
            }
        };
        let state = match verdict {
            Ok(introspected) => {
                req.extensions_mut().insert(introspected);
                IntrospectState::Calling {
                    future: self.inner.call(req),
                }
            }
            Err(reason) => {
                // Releases what the ready instance has reserved.
                self.inner = self.inner.clone();
                IntrospectState::Refused {
                    answer: Some(self.respond.refuse(req, reason.refusal(&self.shared))),
                }
            }
        };
        IntrospectFuture { state }
    }
}

/// The bearer token of a request.
enum Credentials<'a> {
    /// No `Authorization`, or another scheme.
    None,
    Token(&'a str),
    /// Several lines, or a token that is empty, too long, or not of visible ASCII characters.
    Malformed,
}

fn credentials(headers: &HeaderMap) -> Credentials<'_> {
    if !headers.contains_key(AUTHORIZATION) {
        return Credentials::None;
    }
    let Some(value) = only_value(headers, &AUTHORIZATION) else {
        return Credentials::Malformed;
    };
    let visible =
        |token: &&[u8]| token.len() <= MAX_TOKEN && token.iter().all(u8::is_ascii_graphic);
    match bearer_token(value).filter(visible).map(str::from_utf8) {
        Some(Ok(token)) => Credentials::Token(token),
        _ if has_bearer_scheme(value) => Credentials::Malformed,
        _ => Credentials::None,
    }
}

/// The reason of a refusal.
enum Reason {
    NoToken,
    InvalidToken,
    Unavailable,
}

impl Reason {
    fn refusal(self, shared: &TokenCache) -> Refusal {
        match self {
            Self::NoToken => Refusal::missing(
                MissingKey::new("there must be one header `authorization: Bearer` with a token")
                    .with_challenge("Bearer"),
            ),
            // RFC 6750 §3.1. Without the cause, which would reveal something about the token.
            Self::InvalidToken => Refusal::missing(
                MissingKey::new("the token in `authorization` is not valid")
                    .with_challenge(r#"Bearer error="invalid_token""#),
            ),
            Self::Unavailable => {
                let wait = Some(shared.settings.retry_after);
                let decision = Decision::undecided(false, shared.now(), wait);
                let mut outcome = Outcome::new();
                outcome.push(Policy::new("introspection"), decision);
                Refusal::new(outcome)
            }
        }
    }
}

/// Returns the extension of a request that is passed on, or the reason of its refusal. Counts all
/// but active tokens.
fn verdict(shared: &TokenCache, found: Option<TokenAnswer>) -> Result<Introspected, Reason> {
    let counters = &shared.counters;
    let passes = |checked, is_unchecked, is_stale| {
        Ok(Introspected {
            checked,
            is_unchecked,
            is_stale,
        })
    };
    match found {
        Some(TokenAnswer::Active { checked, is_stale }) => passes(Some(checked), false, is_stale),
        Some(TokenAnswer::Inactive) => {
            counters.inactive.add(1);
            Err(Reason::InvalidToken)
        }
        Some(TokenAnswer::Unavailable) if shared.settings.fails_open => {
            counters.unchecked.add(1);
            passes(None, true, false)
        }
        // `fail_open` does not apply to what anybody can cause: too many look-ups, and a token with
        // which a look-up fails.
        Some(TokenAnswer::Unavailable | TokenAnswer::Unanswered) => {
            counters.unavailable.add(1);
            Err(Reason::Unavailable)
        }
        None => {
            counters.anonymous.add(1);
            match shared.settings.allows_anonymous {
                true => passes(None, false, false),
                false => Err(Reason::NoToken),
            }
        }
    }
}

pin_project! {
    /// The future of a response behind [`Introspect`](crate::key::introspect::Introspect).
    #[must_use = "futures do nothing unless polled"]
    pub struct IntrospectFuture<S: Service<Request<B>>, B, R> {
        #[pin]
        state: IntrospectState<S, B, R>,
    }
}

pin_project! {
    #[project = IntrospectStateProj]
    enum IntrospectState<S: Service<Request<B>>, B, R> {
        LookingUp {
            found: Pin<Box<dyn Future<Output = TokenAnswer> + Send>>,
            call: Option<(Request<B>, S)>,
            shared: Arc<TokenCache>,
            respond: R,
        },
        /// Waits for the inner service to be ready.
        Checked {
            call: Option<(Request<B>, S)>,
        },
        Calling {
            #[pin]
            future: S::Future,
        },
        Refused {
            answer: Option<Result<S::Response, S::Error>>,
        },
    }
}

impl<S, B, R> Future for IntrospectFuture<S, B, R>
where
    S: Service<Request<B>>,
    R: Respond<Request<B>, S::Response, S::Error>,
{
    type Output = Result<S::Response, S::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.project().state;
        loop {
            let next = match state.as_mut().project() {
                IntrospectStateProj::Calling { future } => return future.poll(cx),
                IntrospectStateProj::Refused { answer } => {
                    return answer.take().map_or(Poll::Pending, Poll::Ready);
                }
                IntrospectStateProj::LookingUp {
                    found,
                    call,
                    shared,
                    respond,
                } => {
                    let found = ready!(found.as_mut().poll(cx));
                    let Some((mut req, inner)) = call.take() else {
                        return Poll::Pending;
                    };
                    match verdict(shared, Some(found)) {
                        Ok(introspected) => {
                            req.extensions_mut().insert(introspected);
                            IntrospectState::Checked {
                                call: Some((req, inner)),
                            }
                        }
                        Err(reason) => IntrospectState::Refused {
                            answer: Some(respond.refuse(req, reason.refusal(shared))),
                        },
                    }
                }
                IntrospectStateProj::Checked { call } => {
                    let Some((_, inner)) = call else {
                        return Poll::Pending;
                    };
                    ready!(inner.poll_ready(cx))?;
                    let Some((req, mut inner)) = call.take() else {
                        return Poll::Pending;
                    };
                    IntrospectState::Calling {
                        future: inner.call(req),
                    }
                }
            };
            state.set(next);
        }
    }
}

impl_debug!([S: Service<Request<B>>, B, R] IntrospectFuture<S, B, R>);
