//! Corrections of earlier charges: this side settles, and swaps what is still as it was.

use std::{borrow::Cow, iter, time::Duration};

use tokio::time::sleep;

use super::{
    Evaluate, Program,
    answer::{Answer, state_of},
    request::{Expected, Request, state_bytes, swap},
};
use crate::{
    algorithm::Scripted, backoff::Backoff, clock::Timestamp, decision::Charge, store::Error,
};

/// How often a settlement is tried that loses its races against other writers.
const TRIES: usize = 16;

/// Those who lost at one instant would meet again at the next.
fn backoff() -> Backoff {
    Backoff::full(Duration::from_millis(1), Duration::from_millis(64))
}

/// What is remembered of a key, and when it was.
pub(super) async fn found<E: Evaluate>(
    data: &E,
    key: Box<[u8]>,
) -> Result<(Timestamp, Option<Vec<u8>>), Error> {
    let request = Request::to_see(None, vec![key]);
    let bytes = data
        .evaluate(request.program, request.keys, request.argument)
        .await?;
    let answer = Answer::read(request.program, &bytes, 1)?;
    let state = answer.states.into_iter().next().flatten();
    Ok((answer.now, state.map(Cow::into_owned)))
}

/// Corrects a charge: reads, settles, and replaces what is still as it was.
pub(super) async fn settle<E: Evaluate, Rule: Scripted>(
    data: &E,
    key: Box<[u8]>,
    rule: &Rule,
    charge: &Charge,
    actual: u64,
) -> Result<(), Error> {
    let delays = backoff().delays().map(Some);
    for delay in iter::once(None).chain(delays).take(TRIES) {
        if let Some(delay) = delay {
            sleep(delay).await;
        }
        let (now, bytes) = found(data, key.clone()).await?;
        let mut state = bytes.as_deref().and_then(|bytes| state_of(rule, bytes));
        let before = state.as_ref().map(|state| state_bytes(rule, state));
        rule.settle(&mut state, charge, now, actual);
        let after = state.as_ref().map(|state| state_bytes(rule, state));
        // Also where this rule would have forgotten it: another one may still count on it.
        if before == after {
            return Ok(());
        }
        let keep = state.as_ref().map_or(Duration::ZERO, |state| {
            let until = rule.forgettable_at(state);
            Duration::from_nanos(until.as_nanos().saturating_sub(now.as_nanos()))
        });
        let after = after.filter(|_| !keep.is_zero());
        let argument = swap(Expected::This(bytes.as_deref()), after.as_deref(), keep);
        if is_done(data, key.clone(), argument).await? {
            return Ok(());
        }
    }
    Err(Error::contended())
}

/// Whether a swap took place.
pub(super) async fn is_done<E: Evaluate>(
    data: &E,
    key: Box<[u8]>,
    argument: Vec<u8>,
) -> Result<bool, Error> {
    let answer = data.evaluate(Program::SWAP, vec![key], argument).await?;
    Ok(answer == b"1")
}
