//! The call that waits: for the store's answer, for its turn, for its delay, or for the inner
//! service.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use pin_project_lite::pin_project;
#[cfg(feature = "tokio")]
pub(super) use tokio::time::Sleep;
use tower_service::Service;

use super::{
    asking::Asking,
    config::{Config, Disposition},
    limits::AskEach,
    settle::{PendingSettlement, SettleLater},
    turn::{Begun, Turn},
};
use crate::{
    decision::Decision,
    key::OperatorHelp,
    permit::Permit,
    respond::{Refusal, Respond},
    store::{Ask, Decisions, NeverFails, OwnedAsks, Store},
    trace::DecisionSpan,
};

/// The help for a delay that nothing can hold.
static NOTHING_CAN_WAIT: OperatorHelp = OperatorHelp::of_static(
    "a rule delayed a request, and nothing could hold it: the request was refused, and its charge refunded; enable tollgate's \
     feature `tokio`, and call the service within a runtime of tokio",
);

/// Without the feature `tokio` nothing can wait.
#[cfg(not(feature = "tokio"))]
pub(super) type Sleep = crate::store::Never<()>;

pin_project! {
    /// A request that waits, with everything it needs to continue.
    ///
    /// Boxed, so that the future of a request that does not wait stays small. Dropped while it is
    /// delayed, it gives its charges back.
    pub(super) struct PendingCall<Svc, Req, L, S, R>
    where
        Svc: Service<Req>,
        L: AskEach<Req>,
        S: Store<L::Rule>,
        R: Respond<Req, Svc::Response, Svc::Error>,
    {
        // `None` once the request has left: to the inner service, or refused.
        call: Option<(Svc, Req)>,
        config: Arc<Config<L, S, R>>,
        asks: OwnedAsks<L::Rule>,
        // Set if the store answered at once.
        at_once: bool,
        // Until the decisions stand, for a call that may wait for its turn.
        turn: Option<Turn>,
        #[pin]
        stage: Stage<S::Answer, R::Annotation>,
    }

    impl<Svc, Req, L, S, R> PinnedDrop for PendingCall<Svc, Req, L, S, R>
    where
        Svc: Service<Req>,
        L: AskEach<Req>,
        S: Store<L::Rule>,
        R: Respond<Req, Svc::Response, Svc::Error>,
    {
        fn drop(this: Pin<&mut Self>) {
            let this = this.project();
            if this.turn.as_ref().is_some_and(Turn::is_waiting) {
                this.config.counts.cancelled.add(1);
            }
            match (this.call, this.stage.project()) {
                (Some(_), StageProj::Delayed { decisions, .. }) => {
                    this.config.counts.cancelled.add(1);
                    let asks = this.asks.to_list();
                    this.config.settle_back(&asks, decisions, true, is_not_held);
                }
                (Some(_), StageProj::Asking { answer, .. }) => {
                    answer.give_back(&this.config.store, this.asks);
                }
                _ => {}
            }
        }
    }
}

pin_project! {
    #[project = StageProj]
    enum Stage<Answer, Annotation> {
        /// The store has decided, and no delay has begun.
        Decided,
        /// The store has been asked.
        Asking { #[pin] answer: Asking<Answer>, span: DecisionSpan },
        /// Other calls are to end first.
        Waiting,
        /// The request is charged. `sleep` is `None` once the delay is over; then the inner service
        /// must become ready.
        Delayed {
            #[pin]
            sleep: Option<Sleep>,
            decisions: Decisions,
            annotation: Option<Annotation>,
            permit: Option<Permit>,
        },
    }
}

/// A waiting call in its box.
pub(super) type BoxedCall<Svc, Req, L, S, R> = Pin<Box<PendingCall<Svc, Req, L, S, R>>>;

/// The end of the wait.
pub(super) enum Resumed<Svc, Req, R>
where
    Svc: Service<Req>,
    R: Respond<Req, Svc::Response, Svc::Error>,
{
    Called {
        future: Svc::Future,
        annotation: Option<R::Annotation>,
        pending: PendingSettlement<Svc::Response, Svc::Error, R::Annotation>,
        permit: Option<Permit>,
    },
    Answered(Answer<Svc, Req>),
}

/// The answer to a request that the inner service did not get.
type Answer<Svc, Req> = Result<<Svc as Service<Req>>::Response, <Svc as Service<Req>>::Error>;

impl<Svc, Req, L, S, R> PendingCall<Svc, Req, L, S, R>
where
    Svc: Service<Req> + Clone,
    L: AskEach<Req, Rule: Clone>,
    S: Store<L::Rule, Error: NeverFails>,
    R: Respond<Req, Svc::Response, Svc::Error>,
    L::Settle: SettleLater<Req, Svc::Response, Svc::Error, L, S, R>,
{
    /// Returns a call that waits for the store's answer. `call` holds the instance that is ready.
    pub(super) fn asking(
        call: (Svc, Req),
        config: &Arc<Config<L, S, R>>,
        asks: &[Ask<'_, L::Rule>],
        answer: Asking<S::Answer>,
        turn: Option<Turn>,
    ) -> Pin<Box<Self>> {
        let span = DecisionSpan::new(asks, &config.store);
        let stage = Stage::Asking { answer, span };
        Self::new(call, config, asks, false, turn, stage)
    }

    /// Returns a call that waits until others have ended. `call` holds a fresh clone of the inner
    /// service.
    pub(super) fn waiting(
        call: (Svc, Req),
        config: &Arc<Config<L, S, R>>,
        asks: &[Ask<'_, L::Rule>],
        turn: Turn,
    ) -> Pin<Box<Self>> {
        Self::new(call, config, asks, true, Some(turn), Stage::Waiting)
    }

    /// Returns a call that is delayed. `call` holds a fresh clone of the inner service.
    ///
    /// # Errors
    ///
    /// The answer to a request that nothing can delay.
    pub(super) fn delayed(
        call: (Svc, Req),
        config: &Arc<Config<L, S, R>>,
        asks: &[Ask<'_, L::Rule>],
        decisions: Decisions,
        permit: Option<Permit>,
    ) -> Result<Pin<Box<Self>>, Answer<Svc, Req>> {
        let mut pending = Self::new(call, config, asks, true, None, Stage::Decided);
        pending.as_mut().delay(decisions, permit)?;
        Ok(pending)
    }

    fn new(
        call: (Svc, Req),
        config: &Arc<Config<L, S, R>>,
        asks: &[Ask<'_, L::Rule>],
        at_once: bool,
        turn: Option<Turn>,
        stage: Stage<S::Answer, R::Annotation>,
    ) -> Pin<Box<Self>> {
        Box::pin(Self {
            call: Some(call),
            config: Arc::clone(config),
            asks: OwnedAsks::new(asks),
            at_once,
            turn,
            stage,
        })
    }

    /// Waits until the inner service was called, or the request is answered without it.
    ///
    /// # Panics
    ///
    /// When polled again after it was ready.
    pub(super) fn poll(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Resumed<Svc, Req, R>> {
        while let Some(begun) = ready!(self.as_mut().poll_decisions(cx)) {
            let mut this = self.as_mut().project();
            let has_waited = this.turn.as_ref().is_some_and(Turn::is_waiting);
            let stage = match begun {
                Begun::Decided(decisions) => {
                    // Closes the span.
                    this.stage.set(Stage::Decided);
                    if let Some(resumed) = self.as_mut().decided(decisions, has_waited) {
                        return Poll::Ready(resumed);
                    }
                    break;
                }
                Begun::Asking(answer) => {
                    *this.at_once = false;
                    let span = DecisionSpan::new(&this.asks.to_list(), &this.config.store);
                    Stage::Asking { answer, span }
                }
                Begun::Waiting => {
                    if let Some((service, _)) = this.call {
                        // The wait must not hold capacity of the instance that is ready.
                        *service = service.clone();
                    }
                    Stage::Waiting
                }
            };
            this.stage.set(stage);
        }
        self.poll_turn(cx)
    }

    /// Waits for the next decisions; returns `None` if there are none to come.
    fn poll_decisions(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Begun<S::Answer>>> {
        let mut this = self.project();
        let begun = match (this.stage.as_mut().project(), this.turn) {
            (StageProj::Asking { answer, span }, turn) => {
                let (config, asks) = (this.config, this.asks);
                let decisions = ready!(span.in_scope(|| config.poll_asking(answer, cx, asks)));
                match turn {
                    Some(turn) => config.continue_turn(turn, &asks.to_list(), decisions),
                    None => Begun::Decided(decisions),
                }
            }
            (StageProj::Waiting, Some(turn)) => ready!(this.config.poll_turn(turn, cx, this.asks)),
            _ => return Poll::Ready(None),
        };
        Poll::Ready(Some(begun))
    }

    /// Continues with decisions that stand; returns `None` if the request goes on waiting.
    fn decided(
        mut self: Pin<&mut Self>,
        decisions: Decisions,
        has_waited: bool,
    ) -> Option<Resumed<Svc, Req, R>> {
        let this = self.as_mut().project();
        let (config, asks) = (this.config, this.asks.to_list());
        // First of all, so that it is given back whatever happens.
        let permit = L::Settle::hold(config, &asks, &decisions);
        // Lets the next call have its turn.
        *this.turn = None;
        config.observe(&asks, &decisions);
        config.same_state.register(&config.limits, &asks);
        drop(asks);
        self.decide(decisions, permit, has_waited)
    }

    /// Continues with the store's decisions; returns `None` if they delay the request, or the inner
    /// service must become ready again after a wait.
    fn decide(
        mut self: Pin<&mut Self>,
        decisions: Decisions,
        permit: Option<Permit>,
        has_waited: bool,
    ) -> Option<Resumed<Svc, Req, R>> {
        let this = self.as_mut().project();
        match Disposition::of(&decisions) {
            Disposition::Pass if has_waited => {
                self.delay(decisions, permit).err().map(Resumed::Answered)
            }
            Disposition::Pass => {
                let (mut service, mut req) = taken(this.call);
                let (config, asks) = (this.config, this.asks.to_list());
                let annotation = config.admit(&mut req, &asks, &decisions);
                let pending =
                    L::Settle::pending(config, &mut req, &asks, &decisions, *this.at_once);
                if let Some(permit) = &permit {
                    config.respond.carry_permit(&mut req, permit);
                }
                let future = service.call(req);
                Some(Resumed::Called {
                    future,
                    annotation,
                    pending,
                    permit,
                })
            }
            Disposition::Refuse => {
                let (service, req) = taken(this.call);
                drop(service);
                let asks = this.asks.to_list();
                let answer = this.config.refuse_decided(req, &asks, &decisions);
                Some(Resumed::Answered(answer))
            }
            Disposition::Delay => {
                if let Some((service, _)) = this.call {
                    // The delay must not hold capacity of the instance that is ready.
                    *service = service.clone();
                }
                self.delay(decisions, permit).err().map(Resumed::Answered)
            }
        }
    }

    /// Begins the longest delay of the decisions.
    ///
    /// # Errors
    ///
    /// The answer to a request that nothing can delay: without the feature `tokio`, and outside of
    /// a runtime of tokio. Without the feature only rules get here that were selected for the
    /// request, or do not report that they may delay. Any other is refused when its limit is built.
    fn delay(
        self: Pin<&mut Self>,
        decisions: Decisions,
        permit: Option<Permit>,
    ) -> Result<(), Answer<Svc, Req>> {
        let mut this = self.project();
        let (config, asks) = (this.config, this.asks.to_list());
        let delays = decisions.as_slice().iter().filter_map(Decision::delay);
        // None after a wait without a delay.
        let sleep = match delays.max() {
            Some(delay) => sleep(delay).map(Some),
            None => Some(None),
        };
        let Some(sleep) = sleep else {
            let (service, req) = taken(this.call);
            drop(service);
            config.settle_back(&asks, &decisions, true, is_not_held);
            config.counts.misconfigured.add(1);
            for ask in &asks {
                #[cfg(feature = "tracing")]
                crate::log::nothing_can_wait(ask.policy(), &NOTHING_CAN_WAIT);
                NOTHING_CAN_WAIT.write_if_unheard(ask.policy());
            }
            let decisions = decisions.as_slice().iter();
            let refused = decisions.map(|decision| decision.without_delay()).collect();
            let refusal = Refusal::decided(config.outcome(&asks, &refused), &refused);
            return Err(config.respond.refuse(req, refusal));
        };
        let call = this.call.as_mut();
        let annotation = call.and_then(|(_, req)| config.admit(req, &asks, &decisions));
        this.stage.set(Stage::Delayed {
            sleep,
            decisions,
            annotation,
            permit,
        });
        Ok(())
    }

    /// Waits for the end of the delay, and then for the inner service to be ready.
    fn poll_turn(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Resumed<Svc, Req, R>> {
        let mut this = self.project();
        let StageProj::Delayed {
            mut sleep,
            annotation,
            decisions,
            permit,
        } = this.stage.as_mut().project()
        else {
            polled_again();
        };
        if let Some(delay) = sleep.as_mut().as_pin_mut() {
            ready!(delay.poll(cx));
            sleep.set(None);
        }
        let Some((service, _)) = this.call else {
            polled_again();
        };
        if let Err(error) = ready!(service.poll_ready(cx)) {
            return Poll::Ready(Resumed::Answered(Err(error)));
        }
        let annotation = annotation.take();
        let (mut service, mut req) = taken(this.call);
        let (config, asks) = (this.config, this.asks.to_list());
        let pending = L::Settle::pending(config, &mut req, &asks, decisions, *this.at_once);
        let permit = permit.take();
        if let Some(permit) = &permit {
            config.respond.carry_permit(&mut req, permit);
        }
        let future = service.call(req);
        Poll::Ready(Resumed::Called {
            future,
            annotation,
            pending,
            permit,
        })
    }
}

/// Starts a delay or a wait; returns `None` if nothing can wait.
#[cfg(feature = "tokio")]
pub(super) fn sleep(delay: Duration) -> Option<Sleep> {
    // Outside of a runtime, tokio would panic.
    let _runtime = tokio::runtime::Handle::try_current().ok()?;
    Some(tokio::time::sleep(delay))
}

#[cfg(not(feature = "tokio"))]
pub(super) fn sleep(_: Duration) -> Option<Sleep> {
    None
}

/// Selects what no permit gives back.
fn is_not_held<Rule>(_: &Ask<'_, Rule>, decision: &Decision) -> bool {
    !decision.is_held()
}

/// Takes a value that is there once.
///
/// # Panics
///
/// When it was taken before.
pub(super) fn taken<T>(once: &mut Option<T>) -> T {
    once.take().unwrap_or_else(|| polled_again())
}

fn polled_again() -> ! {
    panic!("`ResponseFuture` polled after it was ready")
}
