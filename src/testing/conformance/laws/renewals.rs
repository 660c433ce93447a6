//! Checks of what calls hold under a lease, and of its renewals.

use std::time::Duration;

use super::{
    super::{
        Breach,
        checker::{CheckResult, Checker, Subject},
    },
    Law,
};
use crate::{
    algorithm::{Algorithm, Renewal},
    decision::Charge,
    store::Renewed,
    time::Timestamp,
};

impl<R: Algorithm> Checker<'_, R> {
    pub(crate) async fn renewals(&mut self, rule: &R) -> CheckResult {
        let Some(Renewal { lease, .. }) = rule.renewal() else {
            return Ok(());
        };
        // Nodes renew to whole microseconds.
        let delay = Duration::from_micros(lease.as_micros() as u64 / 4 * 3);
        self.moves(rule, delay).await?;
        self.adds(rule, delay).await?;
        self.reports(rule, delay).await?;
        if !self.suite.leaves_out(Law::Race) {
            self.with_renewals(rule, delay).await?;
        }
        Ok(())
    }

    /// Checks that one of two calls, which is renewed, holds its unit for longer than the other
    /// one, and gives it back once.
    async fn moves(&mut self, rule: &R, delay: Duration) -> CheckResult {
        self.begin(rule);
        let alice = self.subject("alice");
        let renewed = self.held(&alice, rule).await?;
        let other = self.acquire(&alice, rule, 1).await?.charge();
        let end = held_until(rule, other.as_ref().unwrap_or(&renewed));
        let waits = self.can_wait(end.saturating_since(renewed.at));
        if waits {
            let due = renewed.at.saturating_add(delay);
            self.until(&alice, rule, due).await?;
        }
        let renewed = self.renew(&alice, rule, &renewed, delay).await?;
        if waits {
            // The other call is over.
            self.until(&alice, rule, end).await?;
        }
        self.exhaust(&alice, rule).await?;
        self.gives_back(&alice, rule, renewed).await?;
        if waits {
            let now = self.look(&alice, rule).await?.at();
            let all = held_until(rule, &Charge::new(now, 1));
            self.until(&alice, rule, all).await?;
            self.exhaust(&alice, rule).await?;
        }
        Ok(())
    }

    /// Checks the renewal of a charge that lies nowhere, because the answer to its last one was
    /// lost: its units are held once more.
    async fn adds(&mut self, rule: &R, delay: Duration) -> CheckResult {
        self.begin(rule);
        let bob = self.subject("bob");
        let charge = self.held(&bob, rule).await?;
        let delay = delay + Duration::from_micros(charge.at.as_nanos() / 1000);
        let mut nowhere = charge.duplicate();
        nowhere.at = Timestamp::default();
        let renewed = self.renew(&bob, rule, &nowhere, delay).await?;
        self.gives_back(&bob, rule, renewed).await?;
        self.gives_back(&bob, rule, charge).await?;
        self.exhaust(&bob, rule).await.map(drop)
    }

    /// Checks the result of a renewal during a fault: the units lie where it says.
    async fn reports(&mut self, rule: &R, delay: Duration) -> CheckResult {
        let Some(fault) = &self.suite.fault else {
            return Ok(());
        };
        self.begin(rule);
        let carol = self.subject("carol");
        let charge = self.held(&carol, rule).await?;
        let end = held_until(rule, &charge);
        let before = self.look(&carol, rule).await?;
        self.note("the fault begins".to_owned());
        fault(true);
        let renewed = self.try_renew(&carol, rule, &charge, delay).await;
        self.note("the fault ends".to_owned());
        fault(false);
        let renewed = renewed?;
        self.come_back(rule).await?;
        match renewed {
            Renewed::Made => {
                self.renewed(&before, &carol, rule, &charge, delay).await?;
            }
            Renewed::NotMade => {}
            Renewed::Unknown => return Ok(()),
        }
        if self.can_wait(end.saturating_since(charge.at)) {
            self.until(&carol, rule, end).await?;
        }
        self.exhaust(&carol, rule).await.map(drop)
    }

    /// Takes one unit.
    async fn held(&mut self, subject: &Subject, rule: &R) -> Result<Charge, Breach> {
        let charge = self.acquire(subject, rule, 1).await?.charge();
        charge.ok_or_else(|| self.breach("a call holds nothing"))
    }

    async fn gives_back(&mut self, subject: &Subject, rule: &R, charge: Charge) -> CheckResult {
        self.settle_one(subject, rule, charge, 0).await?;
        self.acquire(subject, rule, 1).await.map(drop)
    }
}

/// Returns the instant after which a charge that is not renewed holds nothing.
fn held_until<R: Algorithm>(rule: &R, charge: &Charge) -> Timestamp {
    let mut state = None;
    rule.settle(&mut state, charge, charge.at, charge.cost);
    state.map_or(charge.at, |state| rule.forgettable_at(&state))
}
