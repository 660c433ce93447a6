//! Checks of counted nodes.

use std::fmt::Debug;

use super::super::{
    checker::{CheckResult, Checker},
    poll::together,
    report::Breach,
};
use crate::{algorithm::Algorithm, policy::Policy, store::NodeCounts};

/// The nodes that count themselves at once, in periods one after the other.
const NODES: [usize; 6] = [1, 8, 3, 0, 2, 2];
/// The number of the first period.
const FIRST: u64 = 1000;

impl<R: Algorithm + Debug> Checker<'_, R> {
    /// Checks that each node is counted once, in its period and policy. A store that cannot count has nothing to check.
    pub(in super::super) async fn nodes(&mut self) -> CheckResult {
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
                // Those of one period more may count, too.
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
            .with_timeout(&what, together(counting, |_| false))
            .await?;
        let mut all = Vec::with_capacity(nodes);
        for counts in counted.into_iter().flatten() {
            match counts {
                Ok(counts) => all.push(counts),
                Err(error) => return Err(self.breach(format!("{what}, and one fails: {error:?}"))),
            }
        }
        Ok(Some(all))
    }
}
