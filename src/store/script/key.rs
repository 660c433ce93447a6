//! Requests about a single key: reading and forgetting it.

use super::{
    Evaluate, Program,
    answer::{Answer, state_of, states},
    request::{Call, Log, Request},
};
use crate::{
    algorithm::{ScriptTuple, Scripted},
    decision::Decision,
    store::Error,
};

/// Returns the decision on a call of one ask, which is not charged.
pub(super) async fn look<E: Evaluate, Rule: Scripted>(
    data: &E,
    mut call: Call<Rule>,
) -> Result<Option<Decision>, Error> {
    let request = Request::to_look(&mut call);
    let bytes = data
        .evaluate(request.program, request.keys, request.argument)
        .await?;
    let answer = Answer::read(request.program, &bytes, 1)?;
    let found = answer.states.first().and_then(Option::as_deref);
    Ok(call.0.first().map(|question| {
        let state = found.and_then(|bytes| state_of(&question.rule, bytes));
        let look = question.rule.look(state.as_ref(), answer.now);
        look.in_micros()
    }))
}

/// Forgets a key, and the logs beside its states.
///
/// A log that another call makes meanwhile stays until it expires, but without its state it counts no more.
pub(super) async fn reset<E: Evaluate>(
    data: &E,
    prefix: &str,
    key: Box<[u8]>,
) -> Result<(), Error> {
    let see = Request::of::<Call<()>, ()>(None, Vec::new(), &mut []);
    let found = data
        .evaluate(see.program, vec![key.clone()], see.argument)
        .await?;
    let answer = Answer::read(see.program, &found, 1)?;
    let states = answer
        .states
        .first()
        .and_then(|found| states(found.as_deref()?));
    let logs = states.iter().flatten().flat_map(|state| {
        let parts: Vec<ScriptTuple> = state
            .iter()
            .map(|part| part.clone().unwrap_or_default())
            .collect();
        Log::all(prefix, &parts)
    });
    let logs: Vec<_> = logs.map(|log| log.key(&key)).collect();
    let keys = [key].into_iter().chain(logs).collect();
    match &data.evaluate(Program::RESET, keys, Vec::new()).await?[..] {
        b"1" => Ok(()),
        why => Err(data.unwritten(&String::from_utf8_lossy(why))),
    }
}
