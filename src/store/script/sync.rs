//! Deltas of nodes that decide by themselves.

use std::{collections::HashMap, sync::Arc};

use super::{
    Evaluate, Script,
    answer::{Answer, state_of},
    queue::Queue,
    request::{Call, Request, rule_in_script},
    settlement::Correction,
};
use crate::{
    algorithm::{Algorithm, Scripted},
    store::{
        Delta, Error, Pulled, SyncFuture,
        engine::{runtime, runtime_gone},
    },
};

/// The deltas of a group of keys, which one request may be about.
struct Group<Rule> {
    corrections: Vec<Correction>,
    rules: Vec<Rule>,
    /// Where each of them stands among all.
    places: Vec<usize>,
}

impl<E, Rule> Script<E, Rule>
where
    E: Evaluate,
    Rule: Scripted<State: Send + 'static> + Send + Sync + 'static,
{
    /// Adds deltas, by one request for each group of keys.
    pub(super) fn send_deltas(&self, deltas: &[Delta<'_, Rule>]) -> SyncFuture<Rule, Error> {
        let mut groups: HashMap<u32, Group<Rule>> = HashMap::new();
        for (place, delta) in deltas.iter().enumerate() {
            let correction = match Correction::of_delta(&self.prefix, &self.rules, delta) {
                Ok(correction) => correction,
                Err(error) => return Box::pin(async { Err(Error::unsupported(error)) }),
            };
            let group = groups.entry(self.data.group(&correction.key));
            let group = group.or_insert_with(|| Group {
                corrections: Vec::new(),
                rules: Vec::new(),
                places: Vec::new(),
            });
            group.corrections.push(correction);
            let rule = rule_in_script(delta.rule(), || delta.key().digest());
            group.rules.push(rule);
            group.places.push(place);
        }
        let (data, queue) = (Arc::clone(&self.data), Arc::clone(&self.queue));
        let mut all: Vec<Option<Pulled<Rule::State>>> = deltas.iter().map(|_| None).collect();
        Box::pin(async move {
            let mut groups = groups.into_values();
            let here = groups.next();
            // All requests are under way at once.
            let sent: Vec<_> = match groups.len() {
                0 => Vec::new(),
                _ => {
                    let runtime = runtime()?;
                    groups
                        .map(|group| {
                            let (data, queue) = (Arc::clone(&data), Arc::clone(&queue));
                            runtime.spawn(async move { send(&*data, &queue, group).await })
                        })
                        .collect()
                }
            };
            let mut take = |pulled: Vec<(usize, _)>| {
                for (place, pulled) in pulled {
                    all[place] = Some(pulled);
                }
            };
            if let Some(group) = here {
                take(send(&*data, &queue, group).await?);
            }
            for sent in sent {
                take(sent.await.unwrap_or_else(|_| Err(runtime_gone()))?);
            }
            Ok(all.into_iter().flatten().collect())
        })
    }
}

/// The states of the keys of a group, and where they stand among all.
type Placed<Rule> = Vec<(usize, Pulled<<Rule as Algorithm>::State>)>;

/// Adds the deltas of a group by one request.
async fn send<E, Rule>(
    data: &E,
    queue: &Queue<E, Rule>,
    group: Group<Rule>,
) -> Result<Placed<Rule>, Error>
where
    E: Evaluate,
    Rule: Scripted,
{
    let Request {
        program,
        keys,
        argument,
        places,
    } = Request::of::<Call<Rule>, Rule>(None, group.corrections, &mut []);
    let count = keys.len();
    queue.counters.requests.add(1);
    let bytes = data.evaluate(program, keys, argument).await?;
    let answer = Answer::read(program, &bytes, count)?;
    queue.counters.healed.add(answer.healed);
    if let Some(why) = &answer.unwritten {
        return Err(data.unwritten(why));
    }
    let pulled = |(rule, key): (&Rule, usize)| {
        let bytes = answer.states.get(key).and_then(Option::as_deref);
        Pulled {
            at: answer.now,
            state: bytes.and_then(|bytes| state_of(rule, bytes)),
        }
    };
    let states = group.rules.iter().zip(places).map(pulled);
    Ok(group.places.into_iter().zip(states).collect())
}
