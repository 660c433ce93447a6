//! A request that is held until its turn.

use std::{
    sync::{Arc, atomic::Ordering},
    task::{Context, Poll, ready},
    time::Duration,
};

use tower_service::Service;

use super::{
    future::{Inside, OwnedAsks, Parked, ResponseFuture},
    limit::Limits,
    service::Config,
};
use crate::{
    decision::Decision,
    respond::{Refusal, Respond},
    store::{Decisions, Store},
};

/// A delayed request. Dropped before its wait is over, it gives back what it was charged.
pub(crate) struct Delayed<Svc, Req, L, S, R>(Box<Waiting<Svc, Req, L, S, R>>)
where
    Svc: Service<Req>,
    L: Limits<Req>,
    S: Store<L::Rule>,
    R: Respond<Req, Svc::Response, Svc::Error>;

struct Waiting<Svc, Req, L, S, R>
where
    Svc: Service<Req>,
    L: Limits<Req>,
    S: Store<L::Rule>,
    R: Respond<Req, Svc::Response, Svc::Error>,
{
    /// `None` once the wait is over.
    sleep: Option<Sleep>,
    /// `None` once the inner service is called.
    call: Option<(Svc, Req, Option<R::Mark>)>,
    config: Arc<Config<L, S, R>>,
    bill: OwnedAsks<L::Rule>,
    decisions: Decisions,
}

impl<Svc, Req, L, S, R> Delayed<Svc, Req, L, S, R>
where
    Svc: Service<Req>,
    L: Limits<Req, Rule: Clone>,
    S: Store<L::Rule>,
    R: Respond<Req, Svc::Response, Svc::Error>,
{
    /// Begins the longest wait of the decisions.
    ///
    /// Where nothing can wait, refuses instead. That is what becomes of a rule made for one request, and of one that does not
    /// say that it may delay: any other was refused when its limit was built.
    pub(crate) fn start(
        parked: Parked<Svc, Req, L, S, R>,
        decisions: Decisions,
    ) -> ResponseFuture<Svc, Req, L, S, R> {
        let Inside {
            service,
            mut req,
            config,
            bill,
        } = parked.open();
        let wait = decisions
            .as_slice()
            .iter()
            .filter_map(Decision::delay)
            .max();
        let Some(sleep) = Sleep::start(wait.unwrap_or_default()) else {
            bill.settle_back(&config.store, &decisions);
            config.counts.misconfigured.fetch_add(1, Ordering::Relaxed);
            #[cfg(feature = "tracing")]
            bill.policies().for_each(crate::log::nothing_can_wait);
            let refused: Decisions = decisions
                .as_slice()
                .iter()
                .map(|decision| decision.without_delay())
                .collect();
            let refusal = Refusal::new(bill.outcome(&refused));
            return ResponseFuture::answered(config.respond.refuse(req, refusal));
        };
        let mark = config.admit(&mut req, || bill.outcome(&decisions));
        let call = Some((service, req, mark));
        ResponseFuture::delayed(Self(Box::new(Waiting {
            sleep: Some(sleep),
            call,
            config,
            bill,
            decisions,
        })))
    }

    /// Waits, and then for the inner service to be ready.
    #[allow(clippy::type_complexity)]
    pub(crate) fn poll_ready(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(Svc, Req, Option<R::Mark>), Svc::Error>> {
        let waiting = &mut *self.0;
        if let Some(sleep) = &mut waiting.sleep {
            ready!(sleep.poll(cx));
            waiting.sleep = None;
        }
        let Some((service, ..)) = &mut waiting.call else {
            panic!("`ResponseFuture` polled after it was ready");
        };
        ready!(service.poll_ready(cx))?;
        match waiting.call.take() {
            Some(call) => Poll::Ready(Ok(call)),
            None => unreachable!("it was there a line ago"),
        }
    }
}

impl<Svc, Req, L, S, R> Drop for Waiting<Svc, Req, L, S, R>
where
    Svc: Service<Req>,
    L: Limits<Req>,
    S: Store<L::Rule>,
    R: Respond<Req, Svc::Response, Svc::Error>,
{
    fn drop(&mut self) {
        if self.call.is_some() {
            self.config.counts.cancelled.fetch_add(1, Ordering::Relaxed);
            self.bill.settle_back(&self.config.store, &self.decisions);
        }
    }
}

#[cfg(feature = "tokio")]
struct Sleep(std::pin::Pin<Box<tokio::time::Sleep>>);

#[cfg(feature = "tokio")]
impl Sleep {
    /// `None` outside of a runtime, where tokio would panic.
    fn start(wait: Duration) -> Option<Self> {
        let _runtime = tokio::runtime::Handle::try_current().ok()?;
        Some(Self(Box::pin(tokio::time::sleep(wait))))
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        std::future::Future::poll(self.0.as_mut(), cx)
    }
}

/// Without a runtime nothing can wait.
#[cfg(not(feature = "tokio"))]
enum Sleep {}

#[cfg(not(feature = "tokio"))]
impl Sleep {
    fn start(_: Duration) -> Option<Self> {
        None
    }

    fn poll(&mut self, _: &mut Context<'_>) -> Poll<()> {
        match *self {}
    }
}
