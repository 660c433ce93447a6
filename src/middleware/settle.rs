//! Settlements by a response: of charges that the handler or the response may correct, and of
//! charges that are made after the response.
//!
//! A request without a response is charged, also under look-then-charge: its client may have hung
//! up on purpose. The charge is an ordinary one at the instant at which the request ends. A
//! correction of a charge of 0 units would not do, because it does not reach out of the window of
//! that charge.
//!
//! A late charge is refused like any other; then the response is replaced. What the other limits
//! charged before the request stays: a client would repeat a guess for free. The alternative was to
//! let concurrent requests wait for each other's responses: exact in the number of requests
//! handled, too, but only in one process.

use std::{
    any::Any,
    future::{self, Future},
    marker::PhantomData,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use smallvec::SmallVec;

use super::{
    boxed::BoxSettle,
    config::{Config, LimitSettings, Role},
    limits::{AskEach, Limits, SettleEach},
    pending::taken,
};
use crate::{
    algorithm::Algorithm,
    charging::{ChargeHandle, ChargedLimit, HandOver, LookFirst, Reserve, SettleCharges},
    decision::{Charge, Decision},
    permit::{Permit, Release},
    respond::{Refusal, RefuseLate, Respond},
    store::{Ask, BoxFuture, Check, Decisions, NeverFails, OwnedAsks, Store},
    time::Timestamp,
};

/// The charges that a response settles, from the call of the inner service on.
///
/// Boxed, so that the future of a layer that settles nothing stays small, and has no more types
/// than others have.
pub(super) type PendingSettlement<Res, Err, Annotation> =
    Option<Box<dyn SettleByResponse<Res, Err, Annotation> + Send>>;

/// Settles the charges of a request with its response.
#[doc(hidden)]
pub trait SettleByResponse<Res, Err, Annotation> {
    /// Waits for the response, settles, and annotates it.
    fn poll(
        &mut self,
        future: Pin<&mut dyn Future<Output = Result<Res, Err>>>,
        annotation: &mut Option<Annotation>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Res, Err>>;
}

/// Selects by types what a layer settles later: implemented by what the limits of a layer settle,
/// each with the bounds that it needs.
#[doc(hidden)]
pub trait SettleLater<Req, Res, Err, L, S, R>
where
    L: Limits,
    R: Respond<Req, Res, Err>,
{
    /// Each settles for all limits of the layer. So of a pair one is asked: that of the higher
    /// rank, which settles what the other one needs, too.
    const RANK: u8;

    /// Hands charges over to the handler of an admitted request, and returns those that its
    /// response may correct.
    ///
    /// `at_once` is set if the store answered at once.
    fn pending(
        config: &Arc<Config<L, S, R>>,
        req: &mut Req,
        asks: &[Ask<'_, L::Rule>],
        decisions: &Decisions,
        at_once: bool,
    ) -> PendingSettlement<Res, Err, R::Annotation>;

    /// Returns what a request holds.
    fn hold(
        config: &Arc<Config<L, S, R>>,
        asks: &[Ask<'_, L::Rule>],
        decisions: &Decisions,
    ) -> Option<Permit>;
}

/// The second method of [`SettleLater`], which is the same for all.
macro_rules! hold {
    ($L:ident, $S:ident, $R:ident) => {
        #[inline(always)]
        fn hold(
            config: &Arc<Config<$L, $S, $R>>,
            asks: &[Ask<'_, $L::Rule>],
            decisions: &Decisions,
        ) -> Option<Permit> {
            config.hold(asks, decisions)
        }
    };
}

impl<Req, Res, Err, L, S, R> SettleLater<Req, Res, Err, L, S, R> for ()
where
    L: Limits<Rule: Algorithm>,
    R: Respond<Req, Res, Err>,
    Config<L, S, R>: Release + 'static,
{
    const RANK: u8 = 0;

    #[inline(always)]
    fn pending(
        _: &Arc<Config<L, S, R>>,
        _: &mut Req,
        _: &[Ask<'_, L::Rule>],
        _: &Decisions,
        _: bool,
    ) -> PendingSettlement<Res, Err, R::Annotation> {
        None
    }

    hold!(L, S, R);
}

/// Implements it for charges, and by the further bounds for looks.
macro_rules! later {
    ([$($parameter:ident),*] $Settle:ty, $rank:literal, $Pending:ident
        $(, $bounded:ty: $bound:path)*) => {
        impl<$($parameter,)* Req, Res, Err, L, S, R> SettleLater<Req, Res, Err, L, S, R> for $Settle
        where
            Req: 'static,
            L: AskEach<Req, Rule: Algorithm> + SettleEach<Req, Res>,
            S: Store<L::Rule, Error: NeverFails>,
            R: Respond<Req, Res, Err>,
            Config<L, S, R>: SettleCharges + Release + 'static,
            $($bounded: $bound + 'static,)*
        {
            const RANK: u8 = $rank;

            fn pending(
                config: &Arc<Config<L, S, R>>,
                req: &mut Req,
                asks: &[Ask<'_, L::Rule>],
                decisions: &Decisions,
                at_once: bool,
            ) -> PendingSettlement<Res, Err, R::Annotation> {
                // A list of boxed limits knows only by value if one of them settles.
                if !config.settles {
                    return None;
                }
                let pending = $Pending::new(config, req, asks, decisions, at_once);
                Some(Box::new(pending))
            }

            hold!(L, S, R);
        }
    };
}

later!([F] Reserve<F>, 1, PendingCharges);
later!([F] HandOver<F>, 1, PendingCharges);
later!([F] LookFirst<F>, 2, PendingLooks, Res: Send, S::Answer: Send, R: RefuseLate<Res, Err>);
later!([] BoxSettle<Req, Res>, 2, PendingLooks,
    Res: Send, S::Answer: Send, R: RefuseLate<Res, Err>);

impl<A, B, Req, Res, Err, L, S, R> SettleLater<Req, Res, Err, L, S, R> for (A, B)
where
    A: SettleLater<Req, Res, Err, L, S, R>,
    B: SettleLater<Req, Res, Err, L, S, R>,
    L: Limits,
    R: Respond<Req, Res, Err>,
{
    const RANK: u8 = if A::RANK > B::RANK { A::RANK } else { B::RANK };

    #[inline(always)]
    fn pending(
        config: &Arc<Config<L, S, R>>,
        req: &mut Req,
        asks: &[Ask<'_, L::Rule>],
        decisions: &Decisions,
        at_once: bool,
    ) -> PendingSettlement<Res, Err, R::Annotation> {
        if A::RANK > B::RANK {
            A::pending(config, req, asks, decisions, at_once)
        } else {
            B::pending(config, req, asks, decisions, at_once)
        }
    }

    #[inline(always)]
    fn hold(
        config: &Arc<Config<L, S, R>>,
        asks: &[Ask<'_, L::Rule>],
        decisions: &Decisions,
    ) -> Option<Permit> {
        A::hold(config, asks, decisions)
    }
}

/// The charges of a request that its handler or its response may correct.
struct PendingCharges<Req, L: Limits, S, R> {
    config: Arc<Config<L, S, R>>,
    asks: OwnedAsks<L::Rule>,
    by_response: SmallVec<[ChargeHandle; 1]>,
    /// Set if the handler may settle a charge.
    has_handle: bool,
    /// Set if the store answers at once, so that the response can have the numbers after the
    /// settlement.
    at_once: bool,
    request: PhantomData<fn(Req)>,
}

impl<Req, L: Limits, S, R> PendingCharges<Req, L, S, R> {
    fn new<Res>(
        config: &Arc<Config<L, S, R>>,
        req: &mut Req,
        asks: &[Ask<'_, L::Rule>],
        decisions: &Decisions,
        at_once: bool,
    ) -> Self
    where
        L: SettleEach<Req, Res, Rule: Algorithm>,
        Config<L, S, R>: SettleCharges + 'static,
    {
        let mut by_response = SmallVec::new();
        let mut has_handle = false;
        for handle in config.handles(asks, decisions) {
            match config.limits.hand_over(req, handle) {
                Some(handle) => {
                    has_handle |= handle.is_shared();
                    by_response.push(handle);
                }
                None => has_handle = true,
            }
        }
        Self {
            config: Arc::clone(config),
            asks: OwnedAsks::new(asks),
            by_response,
            has_handle,
            at_once,
            request: PhantomData,
        }
    }

    /// Gives back the charges that the response does not fulfil the condition of. Returns `true` if
    /// a charge may have changed since its decision.
    fn settle<Res>(&self, response: &Res) -> bool
    where
        L: SettleEach<Req, Res>,
    {
        let mut changed = self.has_handle;
        for handle in &self.by_response {
            let charged = self.config.limits.is_charged(handle.policy(), response);
            if charged == Some(false) {
                // An error if the handler has settled it.
                changed |= handle.refund().is_ok();
            }
        }
        changed
    }

    /// Adds the rate limit fields to a response; those of now, if charges have changed.
    fn annotate<Res, Err>(
        &self,
        changed: bool,
        annotation: &mut Option<R::Annotation>,
        response: &mut Res,
    ) where
        L: Limits<Rule: Algorithm>,
        S: Store<L::Rule, Error: NeverFails>,
        R: Respond<Req, Res, Err>,
    {
        let Some(mut annotation) = annotation.take() else {
            return;
        };
        if changed
            && self.at_once
            && let Check::Ready(Ok(looks)) = self.config.store.look(&self.asks.to_list())
        {
            let outcome = self.config.outcome_of_looks(&self.asks.to_list(), &looks);
            annotation = self.config.respond.revise(annotation, &outcome);
        }
        R::annotate(annotation, response);
    }
}

impl<L: Limits<Rule: Algorithm>, S, R> Config<L, S, R> {
    /// Returns the limit of an ask that was charged, for as long as its charge may be corrected.
    #[inline]
    pub(super) fn charged_limit(&self, ask: &Ask<'_, L::Rule>) -> ChargedLimit {
        let own = self.limits.find(ask.policy());
        let own = own.and_then(|own| own.rule.fixed());
        let is_own = own.is_some_and(|own| std::ptr::eq(own, ask.rule()));
        ChargedLimit {
            policy: ask.policy().clone(),
            key: *ask.key(),
            selected: (!is_own).then(|| Arc::new(ask.rule().clone()) as Arc<dyn Any + Send + Sync>),
        }
    }

    /// Returns the handles of the charges that the layer settles. Those of limits know those of
    /// their candidates.
    fn handles(
        self: &Arc<Self>,
        asks: &[Ask<'_, L::Rule>],
        decisions: &Decisions,
    ) -> SmallVec<[ChargeHandle; 1]>
    where
        Self: SettleCharges + 'static,
    {
        let handle = |(ask, decision): (&Ask<'_, _>, &Decision)| {
            let limit = self.limits.find(ask.policy());
            // What a call in flight holds is given back by its permit alone.
            limit.filter(|limit| limit.settles() && !decision.is_in_flight())?;
            let (charge, limit) = (decision.charge()?, self.charged_limit(ask));
            Some(ChargeHandle::new(self.clone(), limit, charge))
        };
        let decided = asks.iter().zip(decisions.as_slice());
        let mut handles: SmallVec<[ChargeHandle; 1]> = decided.filter_map(handle).collect();
        if !self.is_separate {
            return handles;
        }
        for index in 0..handles.len() {
            let handle = &handles[index];
            // One that is enforced for this key is a charge like any other.
            let limit = self.limits.find(handle.policy());
            let limit = limit.filter(|limit| limit.role(handle.key()) == Role::DryRun);
            let Some(live) = limit.and_then(LimitSettings::compared) else {
                continue;
            };
            let is_live =
                |handle: &ChargeHandle| handle.policy().name_digest() == live.name_digest();
            if let Some(live) = handles.iter().position(is_live) {
                let candidate = handles[index].clone();
                handles[live].add_candidate(candidate);
            }
        }
        handles
    }
}

impl<Req, Res, Err, L, S, R> SettleByResponse<Res, Err, R::Annotation>
    for PendingCharges<Req, L, S, R>
where
    L: AskEach<Req> + SettleEach<Req, Res>,
    S: Store<L::Rule, Error: NeverFails>,
    R: Respond<Req, Res, Err>,
{
    fn poll(
        &mut self,
        future: Pin<&mut dyn Future<Output = Result<Res, Err>>>,
        annotation: &mut Option<R::Annotation>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Res, Err>> {
        let mut polled = future.poll(cx);
        if let Poll::Ready(Ok(response)) = &mut polled {
            let changed = self.settle(response);
            self.annotate(changed, annotation, response);
        }
        polled
    }
}

/// Charges that are made after the response, beside those that it may correct.
///
/// Dropped before the response, it makes them all; dropped while a store makes them, it lets the
/// store finish.
struct PendingLooks<Req, Res, L, S, R>
where
    L: Limits<Rule: Algorithm>,
    S: Store<L::Rule, Answer: Send + 'static, Error: NeverFails>,
    Config<L, S, R>: SettleCharges + 'static,
{
    charges: PendingCharges<Req, L, S, R>,
    /// `None` once the response is there.
    unanswered: Option<OwnedAsks<L::Rule>>,
    looked_at: Timestamp,
    /// `None` until the response is there, and if its charge is made. Returns the refusal of it.
    charging: Option<BoxFuture<Option<Refusal>>>,
    response: Option<Res>,
}

impl<Req, Res, L, S, R> Drop for PendingLooks<Req, Res, L, S, R>
where
    L: Limits<Rule: Algorithm>,
    S: Store<L::Rule, Answer: Send + 'static, Error: NeverFails>,
    Config<L, S, R>: SettleCharges + 'static,
{
    fn drop(&mut self) {
        if let Some(asks) = self.unanswered.take() {
            let config = &self.charges.config;
            config.charge_without_response(&asks, self.looked_at);
        }
        if let Some(charging) = self.charging.take() {
            // Without a runtime it is dropped: the store makes it once at most.
            drop(finish_in_background(charging));
        }
    }
}

impl<Req, Res, L, S, R> PendingLooks<Req, Res, L, S, R>
where
    L: SettleEach<Req, Res, Rule: Algorithm>,
    S: Store<L::Rule, Answer: Send + 'static, Error: NeverFails>,
    Config<L, S, R>: SettleCharges + 'static,
{
    fn new(
        config: &Arc<Config<L, S, R>>,
        req: &mut Req,
        asks: &[Ask<'_, L::Rule>],
        decisions: &Decisions,
        at_once: bool,
    ) -> Self {
        let looks = asks.iter().filter(|ask| config.role(ask) == Role::Look);
        let looks: SmallVec<[_; 2]> = looks.copied().collect();
        let looked_at = decisions.as_slice().iter().map(Decision::at).max();
        Self {
            charges: PendingCharges::new::<Res>(config, req, asks, decisions, at_once),
            unanswered: (!looks.is_empty()).then(|| OwnedAsks::new(&looks)),
            looked_at: looked_at.unwrap_or_default(),
            charging: None,
            response: None,
        }
    }
}

impl<Req, Res, Err, L, S, R> SettleByResponse<Res, Err, R::Annotation>
    for PendingLooks<Req, Res, L, S, R>
where
    L: AskEach<Req, Rule: Algorithm> + SettleEach<Req, Res>,
    S: Store<L::Rule, Answer: Send + 'static, Error: NeverFails>,
    R: Respond<Req, Res, Err> + RefuseLate<Res, Err>,
    Config<L, S, R>: SettleCharges + 'static,
{
    fn poll(
        &mut self,
        future: Pin<&mut dyn Future<Output = Result<Res, Err>>>,
        annotation: &mut Option<R::Annotation>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Res, Err>> {
        let config = &self.charges.config;
        if self.response.is_none() {
            // An error, and a panic, leave the charges to be made without a response.
            let response = match ready!(future.poll(cx)) {
                Ok(response) => response,
                Err(error) => return Poll::Ready(Err(error)),
            };
            self.charges.settle(&response);
            let asks = self.unanswered.as_ref().map(|asks| {
                let asks = asks.to_list();
                let charged = |ask: &&Ask<'_, L::Rule>| {
                    config.limits.is_charged(ask.policy(), &response) == Some(true)
                };
                let charged: SmallVec<[_; 2]> = asks.iter().filter(charged).copied().collect();
                OwnedAsks::new(&charged)
            });
            self.unanswered = None;
            self.response = Some(response);
            if let Some(asks) = asks.filter(|asks| asks.iter().len() > 0) {
                let charging: Option<BoxFuture<_>> = match config.charge(asks) {
                    Late::Decided((_, decisions)) if decisions.is_admitted() => None,
                    Late::Decided(charged) => Some(Box::pin(future::ready(charged))),
                    Late::Pending(charging) => Some(charging),
                };
                self.charging = charging.map(|charging| {
                    let all = self.charges.asks.clone();
                    Box::pin(Arc::clone(config).late_refusal(all, charging)) as _
                });
            }
        }
        let mut refused = None;
        if let Some(charging) = &mut self.charging {
            refused = ready!(charging.as_mut().poll(cx));
            self.charging = None;
        }
        let mut response = taken(&mut self.response);
        if let Some(refusal) = refused {
            return Poll::Ready(config.respond.refuse_late(response, refusal));
        }
        self.charges.annotate(true, annotation, &mut response);
        Poll::Ready(Ok(response))
    }
}

/// The answer of a store to a charge after the response.
#[expect(clippy::large_enum_variant, reason = "it is read at once")]
enum Late<Rule> {
    Decided(Charged<Rule>),
    Pending(BoxFuture<Charged<Rule>>),
}

/// The asks of a charge, and their decisions.
type Charged<Rule> = (OwnedAsks<Rule>, Decisions);

#[expect(private_bounds, reason = "the methods are private, too")]
impl<L, S, R> Config<L, S, R>
where
    L: Limits<Rule: Algorithm>,
    S: Store<L::Rule, Answer: Send + 'static, Error: NeverFails>,
    Self: SettleCharges + 'static,
{
    /// Charges keys now, if the limits admit it, and reports it.
    fn charge(self: &Arc<Self>, asks: OwnedAsks<L::Rule>) -> Late<L::Rule> {
        let check = self.store.acquire(&asks.to_list());
        match check {
            Check::Ready(Ok(decisions)) => Late::Decided(self.charged(asks, decisions)),
            Check::Ready(Err(error)) => error.never(),
            Check::Pending(answer) => {
                let config = Arc::clone(self);
                Late::Pending(Box::pin(async move {
                    let decisions = answer.await.unwrap_or_else(NeverFails::never);
                    config.charged(asks, decisions)
                }))
            }
        }
    }

    /// Completes the decisions of late charges, and reports those that were made.
    fn charged(&self, asks: OwnedAsks<L::Rule>, mut decisions: Decisions) -> Charged<L::Rule> {
        decisions.complete(asks.iter().len());
        let is_admitted = decisions.is_admitted();
        for (ask, decision) in asks.iter().zip(decisions.as_slice()) {
            let Some(charge) = decision.charge().filter(|_| is_admitted) else {
                continue;
            };
            self.observe_settled(ask.policy(), ask.key(), 0, charge.cost);
            if decision.is_held() {
                // The call has ended.
                drop(self.settle(&self.charged_limit(&ask), charge, 0));
            }
        }
        (asks, decisions)
    }

    /// Waits for a charge after the response, and returns its refusal; `None` if it was made.
    ///
    /// The request has been charged by other limits, which then decide about its repetition, too.
    async fn late_refusal(
        self: Arc<Self>,
        all: OwnedAsks<L::Rule>,
        charging: BoxFuture<Charged<L::Rule>>,
    ) -> Option<Refusal> {
        let (asks, charged) = charging.await;
        if charged.is_admitted() {
            return None;
        }
        self.observe(&asks.to_list(), &charged);
        let mut looks = charged.clone();
        if all.iter().len() > asks.iter().len() {
            let check = self.store.look(&all.to_list());
            looks = match check {
                Check::Ready(Ok(looks)) => looks,
                Check::Ready(Err(error)) => error.never(),
                Check::Pending(answer) => answer.await.unwrap_or_else(NeverFails::never),
            };
        }
        looks.complete(all.iter().len());
        for (ask, look) in all.iter().zip(looks.as_mut_slice()) {
            let mut late = asks.iter().zip(charged.as_slice());
            let late = late.find(|(late, _)| late.policy().digest() == ask.policy().digest());
            *look = match (late, self.role(&ask)) {
                (Some((_, decision)), _) => *decision,
                (None, Role::DryRun) => look.as_dry_run(),
                (None, Role::Acquire) if look.is_in_flight() => {
                    // What the request itself holds is free again with its answer.
                    let free = look.remaining().unwrap_or(0);
                    let free = free.saturating_add(ask.cost().get());
                    let free = free.min(look.limit().unwrap_or(free));
                    look.with_remaining(free).for_cost(ask.cost())
                }
                (None, _) if look.is_in_flight() => *look,
                (None, _) => ask.not_charged_by(look),
            };
        }
        let outcome = self.outcome(&all.to_list(), &looks);
        Some(Refusal::decided(outcome, &charged))
    }

    /// Charges keys whose request ended without a response, each by itself: an exhausted one must
    /// not spare the others.
    ///
    /// `looked_at` is the instant of the looks.
    fn charge_without_response(self: &Arc<Self>, asks: &OwnedAsks<L::Rule>, looked_at: Timestamp) {
        for ask in asks.iter() {
            if let Late::Pending(work) = self.charge(OwnedAsks::new(&[ask]))
                && finish_in_background(work).is_err()
            {
                self.charge_by_force(&ask, looked_at);
            }
        }
    }

    /// Charges a key at the instant of its look, even into debt: a settlement needs no runtime.
    fn charge_by_force(&self, ask: &Ask<'_, L::Rule>, looked_at: Timestamp) {
        // The call has ended, so it holds nothing.
        if ask.rule().look(None, looked_at).is_in_flight() {
            return;
        }
        let units = ask.cost().get();
        self.observe_settled(ask.policy(), ask.key(), 0, units);
        // Nobody is left to await it: remote stores make settlements in the background.
        let settlement = ask.settlement(Charge::new(looked_at, 0), units);
        drop(self.store.settle_one(settlement));
    }
}

/// Makes a charge in the background.
///
/// # Errors
///
/// The charge, where no runtime of tokio can make it.
#[cfg(feature = "tokio")]
fn finish_in_background<T: Send + 'static>(work: BoxFuture<T>) -> Result<(), BoxFuture<T>> {
    match tokio::runtime::Handle::try_current() {
        Ok(runtime) => {
            drop(runtime.spawn(work));
            Ok(())
        }
        Err(_) => Err(work),
    }
}

#[cfg(not(feature = "tokio"))]
fn finish_in_background<T>(work: BoxFuture<T>) -> Result<(), BoxFuture<T>> {
    Err(work)
}
