//! Calls about several keys.

use std::sync::Arc;

use super::{
    CompareAndSwap,
    worker::{Asks, SwapQueue, Work, receive},
};
use crate::{
    algorithm::{Algorithm, Codec},
    decision::Decision,
    store::{
        Ask, Decisions, StoreError,
        ask::{ResolvedAsk, key_name},
        engine::Answers,
    },
    time::Clock,
};

/// Asks of a call about one key.
pub(super) struct KeyGroup<Rule> {
    pub(super) key: Box<[u8]>,
    pub(super) asks: Asks<Rule>,
    /// Their indices in the call.
    indices: Vec<usize>,
}

impl<Rule: Algorithm> KeyGroup<Rule> {
    /// Groups the asks of a call by key.
    pub(super) fn of(prefix: &str, asks: &[Ask<'_, Rule>]) -> Vec<Self> {
        let mut groups: Vec<Self> = Vec::with_capacity(asks.len());
        for (index, ask) in asks.iter().enumerate() {
            let key = key_name(prefix, ask.policy(), ask.key());
            let ask = ResolvedAsk::new(ask, ());
            let known = groups.iter_mut().find(|group| group.key == key);
            match known {
                Some(group) => {
                    group.asks.push(ask);
                    group.indices.push(index);
                }
                None => groups.push(Self {
                    key,
                    asks: Asks::from_iter([ask]),
                    indices: vec![index],
                }),
            }
        }
        groups
    }
}

/// Spends all asks or none.
///
/// First all keys are probed, so that nothing is spent if one refuses. Then all are charged. If one
/// refuses now, because another call has spent in between, the others are settled back.
pub(super) async fn all_or_none<C, Rule, K>(
    queue: Arc<SwapQueue<C, Rule, K>>,
    groups: Vec<KeyGroup<Rule>>,
) -> Result<Decisions, StoreError>
where
    C: CompareAndSwap,
    Rule: Algorithm<State: Codec>,
    K: Clock + Send + Sync + 'static,
{
    let tried = at_once(&queue, &groups, Work::Probe).await;
    let tried = tried.into_iter().collect::<Result<Vec<_>, _>>()?;
    if !tried.iter().all(|answers| answers.decisions.is_admitted()) {
        return Ok(in_order(&groups, &tried, &tried));
    }
    let spent = at_once(&queue, &groups, Work::Spend).await;
    let is_admitted = |answers: &Result<Answers, StoreError>| {
        let answers = answers.as_ref();
        answers.is_ok_and(|answers| answers.decisions.is_admitted())
    };
    if !spent.iter().all(is_admitted) {
        settle_back(&queue, &groups, &spent).await;
    }
    let spent = spent.into_iter().collect::<Result<Vec<_>, _>>()?;
    Ok(in_order(&groups, &spent, &tried))
}

/// Does work on each group, all in flight at once.
async fn at_once<C, Rule, K>(
    queue: &Arc<SwapQueue<C, Rule, K>>,
    groups: &[KeyGroup<Rule>],
    work: impl Fn(Asks<Rule>) -> Work<Rule>,
) -> Vec<Result<Answers, StoreError>>
where
    C: CompareAndSwap,
    Rule: Algorithm<State: Codec>,
    K: Clock + Send + Sync + 'static,
{
    let ask = |group: &KeyGroup<Rule>| queue.ask(group.key.clone(), work(group.asks.clone()));
    let answers: Vec<_> = groups.iter().map(ask).collect();
    let mut results = Vec::with_capacity(answers.len());
    for answer in answers {
        results.push(match answer {
            Ok(answer) => receive(answer).await,
            Err(error) => Err(error),
        });
    }
    results
}

/// Refunds what was spent. If the store fails meanwhile, the charge stays.
async fn settle_back<C, Rule, K>(
    queue: &Arc<SwapQueue<C, Rule, K>>,
    groups: &[KeyGroup<Rule>],
    spent: &[Result<Answers, StoreError>],
) where
    C: CompareAndSwap,
    Rule: Algorithm<State: Codec>,
    K: Clock + Send + Sync + 'static,
{
    let mut answers = Vec::new();
    for (group, spent) in groups.iter().zip(spent) {
        let Some(spent) = spent
            .as_ref()
            .ok()
            .filter(|answers| answers.decisions.is_admitted())
        else {
            continue;
        };
        for (ask, decision) in group.asks.iter().zip(spent.decisions.as_slice()) {
            let Some(charge) = decision.charge() else {
                continue;
            };
            let rule = ask.rule.clone();
            let actual = 0;
            answers.extend(queue.ask(
                group.key.clone(),
                Work::Settle {
                    rule,
                    charge,
                    actual,
                },
            ));
        }
    }
    for answer in answers {
        let _ = receive(answer).await;
    }
}

/// Returns the decisions in the order of the asks. If one refuses, those of the others are looks.
fn in_order<Rule>(groups: &[KeyGroup<Rule>], answers: &[Answers], tried: &[Answers]) -> Decisions {
    let all = answers
        .iter()
        .all(|answers| answers.decisions.is_admitted());
    let mut placed: Vec<(usize, Decision)> = Vec::with_capacity(groups.len());
    for ((group, answers), tried) in groups.iter().zip(answers).zip(tried) {
        let both = answers
            .decisions
            .as_slice()
            .iter()
            .zip(tried.looks.as_slice());
        let decisions = both.map(|(decision, look)| match decision {
            passes if passes.is_admitted() && !all => *look,
            _ => *decision,
        });
        placed.extend(group.indices.iter().copied().zip(decisions));
    }
    placed.sort_unstable_by_key(|(index, _)| *index);
    placed.into_iter().map(|(_, decision)| decision).collect()
}
