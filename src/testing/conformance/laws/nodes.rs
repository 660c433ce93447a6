//! Checks of what nodes share: their number, and the deltas of those that admit by themselves.

use std::time::Duration;

use super::super::{
    Breach,
    checker::{CheckResult, Checker, Subject},
    store::concurrently,
};
use crate::{
    algorithm::Algorithm,
    policy::Policy,
    store::{Batch, Delta, NodeCounts, Pulled},
    time::Timestamp,
};

/// The nodes that count themselves at once, in periods one after the other.
const NODES: [usize; 6] = [1, 8, 3, 0, 2, 2];
/// The number of the first period.
const FIRST: u64 = 1000;

/// Checks of counted nodes.
impl<R: Algorithm> Checker<'_, R> {
    /// Checks that each node is counted once, in its period and policy. A store that cannot count
    /// has nothing to check.
    pub(crate) async fn nodes(&mut self) -> CheckResult {
        let Some(rule) = self.suite.rules.first() else {
            return Ok(());
        };
        self.begin(rule);
        let policies = ["a", "b"].map(|policy| {
            let subject = self.subject(policy);
            self.named(policy, policy, subject.key).policy
        });
        for policy in &policies {
            let (mut before, mut earlier) = (0, 0);
            for (period, nodes) in (FIRST..).zip(NODES) {
                let Some(mut found) = self.count(policy, period, nodes).await? else {
                    return Ok(());
                };
                found.sort_unstable_by_key(|counts| counts.current);
                let current = found.iter().map(|counts| counts.current);
                // `previous` may include the nodes of one more period.
                let is_before =
                    |counts: &NodeCounts| (before..=before.max(earlier)).contains(&counts.previous);
                if !current.eq(1..=nodes as u64) || !found.iter().all(is_before) {
                    return Err(self.breach(format!(
                        "{nodes} nodes count themselves in a period after one of {before}, and read {found:?}"
                    )));
                }
                earlier = before;
                before = nodes as u64;
            }
        }
        Ok(())
    }

    /// Returns the counts that several nodes read; `None` if the store cannot count.
    async fn count(
        &mut self,
        policy: &Policy,
        period: u64,
        nodes: usize,
    ) -> Result<Option<Vec<NodeCounts>>, Breach> {
        let counting = (0..nodes).map(|_| self.store.count_node(policy, period));
        let Some(counting) = counting.collect::<Option<Vec<_>>>() else {
            return Ok(None);
        };
        let what = format!("{nodes} nodes count themselves");
        let counted = self
            .with_timeout(&what, concurrently(counting, |_| false))
            .await?;
        let mut all = Vec::with_capacity(nodes);
        for counts in counted.into_iter().flatten() {
            match counts {
                Ok(counts) => all.push(counts),
                Err(error) => return Err(self.breach(format!("{what}, and one fails: {error}"))),
            }
        }
        Ok(Some(all))
    }
}

/// Nodes that send the same delta at once.
const AT_ONCE: usize = 8;

/// Checks of deltas.
impl<R: Algorithm> Checker<'_, R> {
    /// Checks that each delta is added once. A store that takes none has nothing to check.
    pub(crate) async fn syncs(&mut self, rule: &R) -> CheckResult {
        if self.store.sync(&[]).is_none() {
            return Ok(());
        }
        let alice = self.subject("alice");
        let new = self.look(&alice, rule).await?;
        let limit = new.remaining().unwrap_or(2);
        // Each is (node, number, units). No units; one unit, and the same delta again.
        let before = [(1, 10, 0), (1, 10, 1), (1, 10, 1)];
        let after = [
            (2, 5, limit / 4),
            (1, 9, 1),
            (1, 12, limit / 4),
            (2, 5, limit / 4),
            (2, 6, limit),
            (1, 12, limit / 4),
            (3, 1, 1),
        ];
        let mut last = [0; 4];
        let mut ats = vec![((1, 10), new.at()), ((2, 5), new.at()), ((1, 9), new.at())];
        for (n, (node, number, units)) in before.into_iter().chain(after).enumerate() {
            let stands = self.look(&alice, rule).await?;
            if n == before.len() {
                // Until the bucket is full again: units that were spent before are refilled with
                // it.
                let wait = stands.reset_after().saturating_mul(2);
                if self.can_wait(wait) {
                    self.pass(wait).await;
                }
            }
            // A repeated delta has the instant of the first one.
            let known = ats.iter().find(|(name, _)| *name == (node, number));
            let at = known.map_or(stands.at(), |(_, at)| *at);
            ats.push(((node, number), at));
            let known = &mut last[node as usize];
            let is_new = units > 0 && (number > *known || self.suite.repeats_deltas);
            if is_new {
                *known = number;
            }
            let sent = (Batch { node, number }, at, units);
            self.sync(&alice, rule, sent, is_new, 1).await?;
        }
        self.acquire(&alice, rule, 1).await?;
        self.sync_several(rule, limit.div_ceil(2)).await?;
        if self.suite.repeats_deltas {
            return Ok(());
        }
        let bob = self.subject("bob");
        let at = self.look(&bob, rule).await?.at();
        let sent = (Batch { node: 1, number: 1 }, at, limit.div_ceil(2));
        self.sync(&bob, rule, sent, true, AT_ONCE).await?;
        self.acquire(&bob, rule, 1).await.map(drop)
    }

    /// Sends deltas of two keys by one call, and compares the states, which come back in their
    /// order.
    async fn sync_several(&mut self, rule: &R, units: u64) -> CheckResult {
        let (carol, dave) = (&self.subject("carol"), &self.subject("dave"));
        let mut at = Timestamp::default();
        for subject in [carol, dave] {
            at = self.look(subject, rule).await?.at();
        }
        let line = format!("{units} units to {carol} and none to {dave}");
        let deltas = [(carol, units), (dave, 0)].map(|(subject, units)| {
            let (batch, pushed) = (Batch { node: 1, number: 1 }, (Duration::ZERO, units));
            Delta::new(&subject.policy, rule, subject.key, batch, pushed)
        });
        let [of_carol, of_dave] = match self.push(line, &deltas, 1).await?.pop() {
            Some(states) => states,
            None => return Err(self.breach("deltas of two keys are not taken")),
        };
        self.model.add_units(carol, rule, [at, of_carol.at], units);
        self.pulled(carol, rule, &of_carol, at)?;
        self.pulled(dave, rule, &of_dave, at)?;
        self.look(carol, rule).await.map(drop)
    }

    /// Sends a delta, several times at once, and compares the state that comes back.
    async fn sync(
        &mut self,
        subject: &Subject,
        rule: &R,
        (batch, at, units): (Batch, Timestamp, u64),
        is_new: bool,
        times: usize,
    ) -> CheckResult {
        let line = format!("{times} times {units} units, {batch:?}, to {subject} as of {at:?}");
        let age = self.model.newest().saturating_since(at);
        let delta = Delta::new(&subject.policy, rule, subject.key, batch, (age, units));
        let all = self.push(line, &[delta], times).await?;
        if is_new {
            // It counts as of its age before the arrival.
            let arrivals = all.iter().map(|[pulled]| pulled.at);
            let on_its_way = arrivals
                .max()
                .map_or(at, |arrived| arrived.saturating_sub(age));
            self.model.add_units(subject, rule, [at, on_its_way], units);
        }
        for [pulled] in &all {
            self.pulled(subject, rule, pulled, at)?;
        }
        self.look(subject, rule).await.map(drop)
    }

    /// Sends deltas by one call, several times at once, and returns the states of each answer.
    async fn push<const COUNT: usize>(
        &mut self,
        line: String,
        deltas: &[Delta<'_, R>; COUNT],
        times: usize,
    ) -> Result<Vec<[Pulled<R::State>; COUNT]>, Breach> {
        let syncing: Vec<_> = (0..times).filter_map(|_| self.store.sync(deltas)).collect();
        let synced = self
            .with_timeout(&line, concurrently(syncing, |_| false))
            .await?;
        self.note(line.clone());
        let failed = |what: String| self.breach(format!("{line}: {what}"));
        let states = |synced: Result<Vec<_>, String>| {
            let pulled = synced.map_err(|error| failed(format!("it failed: {error}")))?;
            let pulled: Result<Vec<_>, String> = pulled.into_iter().collect();
            let pulled = pulled.map_err(|error| failed(format!("a delta failed: {error}")))?;
            <[_; COUNT]>::try_from(pulled).map_err(|pulled| {
                let found = pulled.len();
                failed(format!("{COUNT} deltas are answered by {found} results"))
            })
        };
        synced.into_iter().flatten().map(states).collect()
    }

    /// Compares the state that a store returned.
    fn pulled(
        &mut self,
        subject: &Subject,
        rule: &R,
        Pulled { at, state }: &Pulled<R::State>,
        since: Timestamp,
    ) -> Result<(), Breach> {
        if *at < since {
            return Err(self.breach(format!("the clock went back from {since:?} to {at:?}")));
        }
        let found = subject.own(rule).look(state.as_ref(), *at);
        let compared = self.model.look(subject, rule, &found);
        self.compared(compared, &found)
    }
}
