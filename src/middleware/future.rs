//! The future of a limited response.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use pin_project_lite::pin_project;
use smallvec::SmallVec;
use tower_service::Service;

use super::{
    limit::Limits,
    pending::Delayed,
    service::{Config, Disposition},
};
use crate::{
    key::Key,
    outcome::Outcome,
    policy::Policy,
    respond::{Refusal, Respond},
    store::{Ask, Decisions, NeverFails, Settlement, Store},
};

pin_project! {
    /// The future of a [`RateLimit`](crate::RateLimit) service's response.
    ///
    /// A decision from memory has fallen before it exists, and costs it no allocation. While
    /// a store is asked over a network, or a request is delayed, the request lies in a box.
    pub struct ResponseFuture<Svc, Req, L, S, R>
    where
        Svc: Service<Req>,
        L: Limits<Req>,
        S: Store<L::Rule>,
        R: Respond<Req, Svc::Response, Svc::Error>,
    {
        #[pin]
        state: State<Svc, Req, L, S, R>,
    }
}

pin_project! {
    #[project = StateProj]
    enum State<Svc, Req, L, S, R>
    where
        Svc: Service<Req>,
        L: Limits<Req>,
        S: Store<L::Rule>,
        R: Respond<Req, Svc::Response, Svc::Error>,
    {
        Calling { #[pin] future: Svc::Future, mark: Option<R::Mark> },
        Answered { answer: Option<Result<Svc::Response, Svc::Error>> },
        Checking { #[pin] check: S::Answer, parked: Option<Parked<Svc, Req, L, S, R>> },
        Delayed { delayed: Delayed<Svc, Req, L, S, R> },
    }
}

impl<Svc, Req, L, S, R> ResponseFuture<Svc, Req, L, S, R>
where
    Svc: Service<Req>,
    L: Limits<Req>,
    S: Store<L::Rule>,
    R: Respond<Req, Svc::Response, Svc::Error>,
{
    #[inline]
    pub(crate) fn calling(future: Svc::Future, mark: Option<R::Mark>) -> Self {
        Self {
            state: State::Calling { future, mark },
        }
    }

    pub(crate) fn answered(answer: Result<Svc::Response, Svc::Error>) -> Self {
        Self {
            state: State::Answered {
                answer: Some(answer),
            },
        }
    }

    pub(crate) fn checking(check: S::Answer, parked: Parked<Svc, Req, L, S, R>) -> Self {
        Self {
            state: State::Checking {
                check,
                parked: Some(parked),
            },
        }
    }

    pub(crate) fn delayed(delayed: Delayed<Svc, Req, L, S, R>) -> Self {
        Self {
            state: State::Delayed { delayed },
        }
    }
}

impl<Svc, Req, L, S, R> Future for ResponseFuture<Svc, Req, L, S, R>
where
    Svc: Service<Req> + Clone,
    L: Limits<Req, Rule: Clone>,
    S: Store<L::Rule, Error: NeverFails>,
    R: Respond<Req, Svc::Response, Svc::Error>,
{
    type Output = Result<Svc::Response, Svc::Error>;

    /// # Panics
    ///
    /// When polled again after it was ready.
    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            match self.as_mut().project().state.project() {
                StateProj::Calling { future, mark } => {
                    // One variable from end to end: a response is long to move.
                    let mut polled = future.poll(cx);
                    if let Poll::Ready(Ok(response)) = &mut polled
                        && let Some(mark) = mark.take()
                    {
                        R::annotate(mark, response);
                    }
                    return polled;
                }
                StateProj::Answered { answer } => return Poll::Ready(taken(answer)),
                StateProj::Checking { .. } | StateProj::Delayed { .. } => {}
            }
            ready!(self.as_mut().poll_wait(cx));
        }
    }
}

impl<Svc, Req, L, S, R> ResponseFuture<Svc, Req, L, S, R>
where
    Svc: Service<Req> + Clone,
    L: Limits<Req, Rule: Clone>,
    S: Store<L::Rule, Error: NeverFails>,
    R: Respond<Req, Svc::Response, Svc::Error>,
{
    /// Waits for a store or for a turn, and goes on from there.
    #[cold]
    fn poll_wait(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.project().state;
        let next = match state.as_mut().project() {
            StateProj::Checking { check, parked } => {
                let decisions = ready!(check.poll(cx)).unwrap_or_else(NeverFails::never);
                taken(parked).go_on(decisions)
            }
            StateProj::Delayed { delayed } => match ready!(delayed.poll_ready(cx)) {
                Ok((mut service, req, mark)) => Self::calling(service.call(req), mark),
                Err(error) => Self::answered(Err(error)),
            },
            StateProj::Calling { .. } | StateProj::Answered { .. } => return Poll::Ready(()),
        };
        state.set(next.state);
        Poll::Ready(())
    }
}

/// What is there to be taken once.
fn taken<T>(once: &mut Option<T>) -> T {
    match once.take() {
        Some(value) => value,
        None => panic!("`ResponseFuture` polled after it was ready"),
    }
}

impl<Svc, Req, L, S, R> fmt::Debug for ResponseFuture<Svc, Req, L, S, R>
where
    Svc: Service<Req>,
    L: Limits<Req>,
    S: Store<L::Rule>,
    R: Respond<Req, Svc::Response, Svc::Error>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}

/// A request that waits, with all that it needs to go on. Boxed, so that the future of a request
/// that does not wait stays small.
pub(crate) struct Parked<Svc, Req, L: Limits<Req>, S, R>(Box<Inside<Svc, Req, L, S, R>>);

pub(crate) struct Inside<Svc, Req, L: Limits<Req>, S, R> {
    pub(crate) service: Svc,
    pub(crate) req: Req,
    pub(crate) config: Arc<Config<L, S, R>>,
    pub(crate) bill: OwnedAsks<L::Rule>,
}

impl<Svc, Req, L, S, R> Parked<Svc, Req, L, S, R>
where
    L: Limits<Req, Rule: Clone>,
{
    pub(crate) fn new(
        service: Svc,
        req: Req,
        config: &Arc<Config<L, S, R>>,
        asks: &[Ask<'_, L::Rule>],
    ) -> Self {
        let bill = OwnedAsks::of(asks);
        Self(Box::new(Inside {
            service,
            req,
            config: Arc::clone(config),
            bill,
        }))
    }

    pub(crate) fn open(self) -> Inside<Svc, Req, L, S, R> {
        *self.0
    }

    /// Goes on with the answer of a store that was asked over a network.
    fn go_on(self, decisions: Decisions) -> ResponseFuture<Svc, Req, L, S, R>
    where
        Svc: Service<Req> + Clone,
        S: Store<L::Rule, Error: NeverFails>,
        R: Respond<Req, Svc::Response, Svc::Error>,
    {
        match Disposition::of(&decisions) {
            Disposition::Pass => {
                let Inside {
                    mut service,
                    mut req,
                    config,
                    bill,
                } = self.open();
                let mark = config.admit(&mut req, || bill.outcome(&decisions));
                ResponseFuture::calling(service.call(req), mark)
            }
            Disposition::Refuse => {
                let Inside {
                    req, config, bill, ..
                } = self.open();
                let refusal = Refusal::new(bill.outcome(&decisions));
                ResponseFuture::answered(config.refuse(req, refusal))
            }
            Disposition::Wait => {
                let mut parked = self;
                // The instance that was ready must not be held through the wait.
                parked.0.service = parked.0.service.clone();
                Delayed::start(parked, decisions)
            }
        }
    }
}

/// Who was asked for what, outliving the call.
pub(crate) struct OwnedAsks<Rule>(SmallVec<[(Policy, Rule, Key); 1]>);

impl<Rule: Clone> OwnedAsks<Rule> {
    fn of(asks: &[Ask<'_, Rule>]) -> Self {
        let item = |ask: &Ask<'_, Rule>| (ask.policy().clone(), ask.rule().clone(), *ask.key());
        Self(asks.iter().map(item).collect())
    }
}

impl<Rule> OwnedAsks<Rule> {
    #[cfg(feature = "tracing")]
    pub(crate) fn policies(&self) -> impl Iterator<Item = &Policy> {
        self.0.iter().map(|(policy, ..)| policy)
    }

    pub(crate) fn outcome(&self, decisions: &Decisions) -> Outcome {
        Outcome::of(
            self.0.iter().map(|(policy, _, key)| (policy, key)),
            decisions,
        )
    }

    /// Gives back what the decisions took.
    pub(crate) fn settle_back<S: Store<Rule>>(&self, store: &S, decisions: &Decisions) {
        let settlements: Vec<Settlement<'_, Rule>> = self
            .0
            .iter()
            .zip(decisions.as_slice())
            .filter_map(|((policy, rule, key), decision)| {
                let charge = decision.charge()?;
                Some(Settlement {
                    policy,
                    rule,
                    key: *key,
                    charge,
                    actual: 0,
                })
            })
            .collect();
        // A drop cannot await: what a remote store does not do at once, it does in its own time.
        drop(store.settle(settlements));
    }
}
