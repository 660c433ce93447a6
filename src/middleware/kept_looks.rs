//! The state of a request that looked first: it is charged after its response.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use pin_project_lite::pin_project;
use smallvec::SmallVec;

use super::{
    asks,
    config::Config,
    kept::{Keep, KeptCharges},
    late::{self, Charged, Late},
    limits::{Limits, Sealed, SettleByResponse},
    role::Role,
};
use crate::{
    charging::{ChargeLater, SettleCharges},
    decision::Decision,
    observe::Observer,
    respond::{Refusal, RefuseLate, Respond},
    store::{Ask, BoxFuture, Decisions, NeverFails, OwnedAsks, Store},
    time::Timestamp,
};

pin_project! {
    /// Charges that are made after the response, beside those that it may correct.
    ///
    /// Dropped before the response, it makes them all; dropped while a store makes them, it lets
    /// the store finish.
    pub struct KeptLooks<L, S, R, O, Rule, Res> {
        charges: KeptCharges<L, S, R, O, Rule>,
        // `None` once the response is there.
        unanswered: Option<OwnedAsks<Rule>>,
        looked_at: Timestamp,
        // As pointers, because `drop` does not have their bounds.
        charge_without_response: ChargeWithoutResponse<L, S, R, O, Rule>,
        finish_in_background: fn(BoxFuture<Charged<Rule>>),
        // `None` until the response is there, and if its charge is made.
        charging: Option<BoxFuture<Charged<Rule>>>,
        response: Option<Res>,
    }

    impl<L, S, R, O, Rule, Res> PinnedDrop for KeptLooks<L, S, R, O, Rule, Res> {
        fn drop(this: Pin<&mut Self>) {
            let this = this.project();
            if let Some(asks) = this.unanswered.take() {
                (this.charge_without_response)(&this.charges.config, &asks, *this.looked_at);
            }
            if let Some(charging) = this.charging.take() {
                (this.finish_in_background)(charging);
            }
        }
    }
}

type ChargeWithoutResponse<L, S, R, O, Rule> =
    fn(&Arc<Config<L, S, R, O>>, &OwnedAsks<Rule>, Timestamp);

impl<Req, Res, Err, L, S, R, O> Keep<Req, Res, Err, L, S, R, O> for ChargeLater
where
    L: Limits<Req, Rule: Clone + Send + Sync + 'static> + SettleByResponse<Req, Res>,
    S: Store<L::Rule, Answer: Send + 'static, Error: NeverFails>,
    R: Respond<Req, Res, Err> + RefuseLate<Res, Err>,
    O: Observer,
    Config<L, S, R, O>: SettleCharges + 'static,
{
    type Kept = KeptLooks<L, S, R, O, L::Rule, Res>;

    fn keep<'a>(
        config: &Arc<Config<L, S, R, O>>,
        req: &mut Req,
        asks: impl Iterator<Item = Ask<'a, L::Rule>>,
        decisions: &Decisions,
        at_once: bool,
    ) -> Self::Kept
    where
        L::Rule: 'a,
    {
        let asks: SmallVec<[_; 2]> = asks.collect();
        let role = |ask: &Ask<'_, L::Rule>| config.limits.role(ask.policy(), ask.key());
        let looks = asks.iter().filter(|ask| role(ask) == Some(Role::Look));
        let looks: SmallVec<[_; 2]> = looks.copied().collect();
        let looked_at = decisions.as_slice().iter().map(Decision::at).max();
        let asks = asks.iter().copied();
        KeptLooks {
            charges: KeptCharges::new::<Req, Res>(config, req, asks, decisions, at_once),
            unanswered: (!looks.is_empty()).then(|| OwnedAsks::new(&looks)),
            looked_at: looked_at.unwrap_or_default(),
            charge_without_response: late::charge_without_response,
            // Without a runtime it is dropped: the store makes it once at most.
            finish_in_background: |charging| drop(late::finish_in_background(charging)),
            charging: None,
            response: None,
        }
    }

    fn poll<F>(
        kept: Pin<&mut Self::Kept>,
        future: Pin<&mut F>,
        annotation: &mut Option<R::Annotation>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Res, Err>>
    where
        F: Future<Output = Result<Res, Err>>,
    {
        let this = kept.project();
        let config = &this.charges.config;
        let mut refused = None;
        if this.response.is_none() {
            // An error, and a panic, leave the charges to be made without a response.
            let response = match ready!(future.poll(cx)) {
                Ok(response) => response,
                Err(error) => return Poll::Ready(Err(error)),
            };
            this.charges.settle::<Req, Res>(&response);
            let asks = this.unanswered.as_ref().map(|asks| {
                let asks = asks.to_list();
                let charged = |ask: &&Ask<'_, L::Rule>| {
                    config.limits.is_charged(ask.policy(), &response) == Some(true)
                };
                let charged: SmallVec<[_; 2]> = asks.iter().filter(charged).copied().collect();
                OwnedAsks::new(&charged)
            });
            *this.unanswered = None;
            *this.response = Some(response);
            if let Some(asks) = asks.filter(|asks| asks.iter().len() > 0) {
                match late::charge(config, asks) {
                    Late::Decided(charged) => refused = refusal(config, &charged),
                    Late::Pending(charging) => *this.charging = Some(charging),
                }
            }
        }
        if let Some(charging) = this.charging {
            let charged = ready!(charging.as_mut().poll(cx));
            *this.charging = None;
            refused = refusal(config, &charged);
        }
        answer(this.charges, this.response, refused, annotation)
    }
}

/// Returns the refusal of a charge after the response; `None` if it was made.
fn refusal<L, S, R, O, Rule>(
    config: &Config<L, S, R, O>,
    (asks, decisions): &Charged<Rule>,
) -> Option<Refusal>
where
    L: Sealed,
    O: Observer,
{
    if decisions.is_admitted() {
        return None;
    }
    config.observe(asks.parts(), decisions);
    Some(Refusal::new(asks::outcome(asks, decisions)))
}

/// Returns the response, or the refusal in its place.
fn answer<Req, Res, Err, L, S, R, O>(
    charges: &KeptCharges<L, S, R, O, L::Rule>,
    response: &mut Option<Res>,
    refusal: Option<Refusal>,
    annotation: &mut Option<R::Annotation>,
) -> Poll<Result<Res, Err>>
where
    L: Limits<Req>,
    S: Store<L::Rule, Error: NeverFails>,
    R: Respond<Req, Res, Err> + RefuseLate<Res, Err>,
{
    let Some(mut response) = response.take() else {
        panic!("`ResponseFuture` polled after it was ready");
    };
    if let Some(refusal) = refusal {
        return Poll::Ready(charges.config.respond.refuse_late(response, refusal));
    }
    charges.annotate::<Req, Res, Err>(true, annotation, &mut response);
    Poll::Ready(Ok(response))
}
