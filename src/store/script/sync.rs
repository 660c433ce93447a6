//! Deltas of nodes that decide by themselves.

use std::sync::Arc;

use super::{
    Evaluate, Script,
    answer::{Answer, state_of},
    request::{Call, Request, rule_in_script},
    settlement::Correction,
};
use crate::{
    algorithm::Scripted,
    store::{Delta, Error, Pulled, SyncFuture},
};

impl<E, Rule> Script<E, Rule>
where
    E: Evaluate,
    Rule: Scripted<State: Send + 'static> + Send + Sync + 'static,
{
    /// Adds deltas by one request.
    pub(super) fn send_deltas(&self, deltas: &[Delta<'_, Rule>]) -> SyncFuture<Rule, Error> {
        let (data, queue) = (Arc::clone(&self.data), Arc::clone(&self.queue));
        let correction = |delta| Correction::of_delta(&self.prefix, &self.rules, delta);
        let corrections: Result<Vec<_>, _> = deltas.iter().map(correction).collect();
        let own = |delta: &Delta<'_, Rule>| rule_in_script(delta.rule(), || delta.key().digest());
        let rules: Vec<_> = deltas.iter().map(own).collect();
        Box::pin(async move {
            let corrections = corrections.map_err(Error::unsupported)?;
            if corrections.is_empty() {
                return Ok(Vec::new());
            }
            let Request {
                program,
                keys,
                argument,
                places,
            } = Request::of::<Call<Rule>, Rule>(None, corrections, &mut []);
            let count = keys.len();
            queue.counters.requests.add(1);
            let bytes = data.evaluate(program, keys, argument).await?;
            let answer = Answer::read(program, &bytes, count)?;
            queue.counters.healed.add(answer.healed);
            if let Some(why) = &answer.unwritten {
                return Err(data.unwritten(why));
            }
            let pulled = |(rule, place): (&Rule, usize)| {
                let bytes = answer.states.get(place).and_then(Option::as_deref);
                Pulled {
                    at: answer.now,
                    state: bytes.and_then(|bytes| state_of(rule, bytes)),
                }
            };
            Ok(rules.iter().zip(places).map(pulled).collect())
        })
    }
}
