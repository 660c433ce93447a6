//! The state of a request that is kept until its response, to settle its charges.

use std::{
    any::Any,
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use smallvec::SmallVec;

use super::{
    config::Config,
    limits::{Limits, Sealed, SettleByResponse},
};
use crate::{
    algorithm::Algorithm,
    charging::{ChargeHandle, ChargedLimit, KeepCharges, KeepNothing, SettleCharges},
    decision::{Charge, Decision},
    dry_run::DryRun,
    respond::Respond,
    store::{Ask, Check, Decisions, NeverFails, OwnedAsks, Store},
};

/// Settles the charges of a request with its response.
///
/// Implemented by the types of [`Keeps`](crate::charging::Keeps). That of most layers does nothing.
#[doc(hidden)]
pub trait Keep<Req, Res, Err, L, S, R, O>
where
    L: Limits<Req>,
    S: Store<L::Rule>,
    R: Respond<Req, Res, Err>,
{
    /// The state from the call of the inner service to its response.
    type Kept;

    /// Hands charges over to the handler of an admitted request, and keeps those that its response
    /// may correct.
    ///
    /// `at_once` is set if the store answered at once.
    fn keep<'a>(
        config: &Arc<Config<L, S, R, O>>,
        req: &mut Req,
        asks: impl Iterator<Item = Ask<'a, L::Rule>>,
        decisions: &Decisions,
        at_once: bool,
    ) -> Self::Kept
    where
        L::Rule: 'a;

    /// Waits for the response, settles, and annotates it.
    fn poll<F>(
        kept: Pin<&mut Self::Kept>,
        future: Pin<&mut F>,
        annotation: &mut Option<R::Annotation>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Res, Err>>
    where
        F: Future<Output = Result<Res, Err>>;
}

/// The state that a request keeps under limits `L`.
pub(super) type Kept<Req, Res, Err, L, S, R, O> =
    <<L as Sealed>::Keeps as Keep<Req, Res, Err, L, S, R, O>>::Kept;

impl<Req, Res, Err, L, S, R, O> Keep<Req, Res, Err, L, S, R, O> for KeepNothing
where
    L: Limits<Req>,
    S: Store<L::Rule>,
    R: Respond<Req, Res, Err>,
{
    type Kept = ();

    #[inline(always)]
    fn keep<'a>(
        _: &Arc<Config<L, S, R, O>>,
        _: &mut Req,
        _: impl Iterator<Item = Ask<'a, L::Rule>>,
        _: &Decisions,
        _: bool,
    ) where
        L::Rule: 'a,
    {
    }

    #[inline(always)]
    fn poll<F>(
        _: Pin<&mut ()>,
        future: Pin<&mut F>,
        annotation: &mut Option<R::Annotation>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Res, Err>>
    where
        F: Future<Output = Result<Res, Err>>,
    {
        // A response is long to move: without an annotation it goes straight to the caller.
        if annotation.is_none() {
            return future.poll(cx);
        }
        let mut polled = future.poll(cx);
        if let Poll::Ready(Ok(response)) = &mut polled
            && let Some(annotation) = annotation.take()
        {
            R::annotate(annotation, response);
        }
        polled
    }
}

/// The charges of a request that its handler or its response may correct.
pub struct KeptCharges<L, S, R, O, Rule> {
    pub(super) config: Arc<Config<L, S, R, O>>,
    asks: OwnedAsks<Rule>,
    by_response: SmallVec<[ChargeHandle; 1]>,
    /// Set if the handler may settle a charge.
    has_handle: bool,
    /// Set if the store answers at once, so that the response can have the numbers after the
    /// settlement.
    at_once: bool,
}

impl<L, S, R, O, Rule> fmt::Debug for KeptCharges<L, S, R, O, Rule> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeptCharges").finish_non_exhaustive()
    }
}

impl<L, S, R, O, Rule> KeptCharges<L, S, R, O, Rule> {
    pub(super) fn new<'a, Req, Res>(
        config: &Arc<Config<L, S, R, O>>,
        req: &mut Req,
        asks: impl Iterator<Item = Ask<'a, Rule>>,
        decisions: &Decisions,
        at_once: bool,
    ) -> Self
    where
        Rule: Clone + Send + Sync + 'static,
        L: Limits<Req, Rule = Rule> + SettleByResponse<Req, Res>,
        Config<L, S, R, O>: SettleCharges + 'static,
    {
        let asks: SmallVec<[_; 2]> = asks.collect();
        let mut by_response = SmallVec::new();
        let mut has_handle = false;
        for handle in handles(config, &asks, decisions) {
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
            asks: OwnedAsks::new(&asks),
            by_response,
            has_handle,
            at_once,
        }
    }

    /// Gives back the charges that the response does not fulfil the condition of. Returns `true` if
    /// a charge may have changed since its decision.
    pub(super) fn settle<Req, Res>(&self, response: &Res) -> bool
    where
        L: SettleByResponse<Req, Res>,
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
    pub(super) fn annotate<Req, Res, Err>(
        &self,
        changed: bool,
        annotation: &mut Option<R::Annotation>,
        response: &mut Res,
    ) where
        Rule: Algorithm,
        L: Limits<Req, Rule = Rule>,
        S: Store<Rule, Error: NeverFails>,
        R: Respond<Req, Res, Err>,
    {
        let Some(mut annotation) = annotation.take() else {
            return;
        };
        if changed
            && self.at_once
            && let Check::Ready(Ok(looks)) = self.config.store.look(&self.asks.to_list())
        {
            let outcome = self.config.outcome_of_looks(&self.asks, &looks);
            annotation = self.config.respond.revise(annotation, &outcome);
        }
        R::annotate(annotation, response);
    }
}

/// Returns the handles of the charges that the layer settles. Those of limits know those of their
/// candidates.
fn handles<L, S, R, O, Rule>(
    config: &Arc<Config<L, S, R, O>>,
    asks: &[Ask<'_, Rule>],
    decisions: &Decisions,
) -> SmallVec<[ChargeHandle; 1]>
where
    Rule: Clone + Send + Sync + 'static,
    L: Sealed<AnyRule = Rule>,
    Config<L, S, R, O>: SettleCharges + 'static,
{
    let settled = asks.iter().zip(decisions.as_slice());
    let settled = settled.filter(|(ask, _)| config.limits.settles(ask.policy()) == Some(true));
    let handle = |(ask, decision): (&_, &Decision)| Some(handle(config, ask, decision.charge()?));
    let mut handles: SmallVec<[ChargeHandle; 1]> = settled.filter_map(handle).collect();
    if !L::APART {
        return handles;
    }
    for index in 0..handles.len() {
        let dry_run = config.limits.dry_run(handles[index].policy());
        let Some(live) = dry_run.and_then(DryRun::live) else {
            continue;
        };
        let is_live = |handle: &ChargeHandle| handle.policy().digest() == live.digest();
        if let Some(live) = handles.iter().position(is_live) {
            let candidate = handles[index].clone();
            handles[live].add_candidate(candidate);
        }
    }
    handles
}

/// Returns the handle of a charge.
fn handle<L, S, R, O, Rule>(
    config: &Arc<Config<L, S, R, O>>,
    ask: &Ask<'_, Rule>,
    charge: Charge,
) -> ChargeHandle
where
    Rule: Clone + Send + Sync + 'static,
    L: Sealed<AnyRule = Rule>,
    Config<L, S, R, O>: SettleCharges + 'static,
{
    let own = config.limits.own_rule(ask.policy());
    let is_own = own.is_some_and(|own| std::ptr::eq(own, ask.rule()));
    let limit = ChargedLimit {
        policy: ask.policy().clone(),
        key: *ask.key(),
        selected: (!is_own).then(|| Arc::new(ask.rule().clone()) as Arc<dyn Any + Send + Sync>),
    };
    let config: Arc<Config<L, S, R, O>> = Arc::clone(config);
    ChargeHandle::new(config, limit, charge)
}

impl<Req, Res, Err, L, S, R, O> Keep<Req, Res, Err, L, S, R, O> for KeepCharges
where
    L: Limits<Req, Rule: Clone + Send + Sync + 'static> + SettleByResponse<Req, Res>,
    S: Store<L::Rule, Error: NeverFails>,
    R: Respond<Req, Res, Err>,
    Config<L, S, R, O>: SettleCharges + 'static,
{
    type Kept = KeptCharges<L, S, R, O, L::Rule>;

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
        KeptCharges::new::<Req, Res>(config, req, asks, decisions, at_once)
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
        let mut polled = future.poll(cx);
        if let Poll::Ready(Ok(response)) = &mut polled {
            let changed = kept.settle::<Req, Res>(response);
            kept.annotate::<Req, Res, Err>(changed, annotation, response);
        }
        polled
    }
}
