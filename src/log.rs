//! Lines for the operator, at a bounded rate: mistakes of a set-up once each, and failures once a
//! minute.
//!
//! A mistake is logged where its policy is known, once for each policy and text, in lists of 256
//! mistakes and 32 failures. So causes made from requests fill neither memory nor the log.

use std::{
    hash::{BuildHasher, Hash},
    sync::{LazyLock, Mutex},
    time::Duration,
};

use foldhash::fast::RandomState;

use crate::{key::OperatorHelp, locks::lock, policy::Policy, time::Timestamp};

/// Maximum number of mistakes that are remembered: more than a program has, and a bound for
/// messages that contain parts of requests.
const MOST: usize = 256;

/// Hashes of the mistakes that were logged.
#[derive(Default)]
struct Logged {
    seed: RandomState,
    hashes: Vec<u64>,
}

/// The treatment of a mistake.
#[derive(Debug, PartialEq, Eq)]
enum Fate {
    Log,
    /// Log, and announce that it is the last one.
    LogLast,
    Skip,
}

static LOGGED: LazyLock<Mutex<Logged>> = LazyLock::new(Mutex::default);

impl Logged {
    fn record(&mut self, subject: impl Hash, cause: &str) -> Fate {
        let hash = self.seed.hash_one((subject, cause));
        if self.hashes.len() >= MOST || self.hashes.contains(&hash) {
            return Fate::Skip;
        }
        self.hashes.push(hash);
        if self.hashes.len() == MOST {
            Fate::LogLast
        } else {
            Fate::Log
        }
    }
}

/// Logs that a file of limits took the place of another one, and what it changes.
#[cfg(feature = "config")]
pub(crate) fn limits_changed(changes: &dyn std::fmt::Display) {
    tracing::info!("the limits have changed: {changes}");
}

/// Logs that a file of limits has mistakes.
// Not once for each: it is at most one line for each file that somebody gives.
#[cfg(feature = "config")]
#[cold]
pub(crate) fn limits_unchanged(problems: &dyn std::fmt::Display) {
    tracing::error!("the limits stay as they are, because the file has mistakes: {problems}");
}

/// Logs the reason why requests have no key and are answered as the server's fault, once for each
/// policy and cause.
#[cold]
pub(crate) fn missing_key(policy: &Policy, status: u16, help: &OperatorHelp) {
    once(policy.name(), help, |cause| {
        tracing::error!(
            policy = policy.name(),
            status,
            "{cause} (logged once for each policy and cause, counted in `RateLimitLayer::misconfigured`)"
        );
    });
}

/// Logs the reason why requests have no key on a dry run, once for each policy and cause.
#[cold]
pub(crate) fn missing_key_on_dry_run(policy: &Policy, help: &OperatorHelp) {
    // Another subject: the limit may be enforced later.
    once((policy.name(), "dry run"), help, |cause| {
        tracing::warn!(
            policy = policy.name(),
            "{cause} (the limit is on a dry run and refuses nothing; logged once for each policy and cause, counted in \
             `DryRunReport::missing_key`)"
        );
    });
}

/// Logs that requests are refused because nothing can delay them, once for each policy.
#[cold]
pub(crate) fn nothing_can_wait(policy: &Policy, help: &OperatorHelp) {
    once(policy.name(), help, |cause| {
        tracing::error!(
            policy = policy.name(),
            "{cause} (logged once for each policy, counted in `RateLimitLayer::misconfigured`)"
        );
    });
}

/// Logs that a layer decides what a layer outside of it has decided, once for each policy.
#[cold]
pub(crate) fn charged_twice(policy: &Policy) {
    let help = OperatorHelp::of_static(
        "requests are charged twice, or refused because the first charge left too little: a layer outside of this one has the same \
         limit on the same store. Apply the layer once, or give one of the limits another name by `named`. If a handler sends requests \
         of its own with the extensions of the one that it serves, remove the `Outcome` from them",
    );
    once(policy.name(), &help, |cause| {
        tracing::error!(
            policy = policy.name(),
            "{cause} (logged once for each policy, counted in `RateLimitLayer::misconfigured`)"
        );
    });
}

/// Logs that two limits without names share their states, once for their rules.
#[cold]
pub(crate) fn unnamed_limits(policy: &Policy, first: &str, second: &str) {
    let help = OperatorHelp::new(format!(
        "two limits without names share their states, as both are on one store: `{first}` and `{second}`; each is charged for the requests of \
         the other. Give each a name by `named`"
    ));
    once(policy.name(), &help, |cause| {
        tracing::warn!(
            policy = policy.name(),
            "{cause} (logged once for these rules, counted in `RateLimitLayer::collisions`)"
        );
    });
}

/// Logs that bodies settle no charge because their requests have several handles, once for their
/// names.
#[cold]
pub(crate) fn several_handles(names: &str) {
    let help = OperatorHelp::new(
        "`SettleByBody` settled no charge, because several limits handed over theirs: all of them keep the reserved cost; select one by \
         `SettleByBody::of`",
    );
    once(names, &help, |cause| {
        tracing::error!(policy = names, "{cause} (logged once for these policies)");
    });
}

/// Logs that a body settles no charge because no limit of this name handed one over, once for the
/// name.
#[cold]
pub(crate) fn no_handle_of(policy: &str, names: &str) {
    let help = OperatorHelp::new(
        "`SettleByBody::of` settled no charge, because the limit of this name handed over none: correct the name, unless the limit exempts \
         such requests",
    );
    once(policy, &help, |cause| {
        tracing::warn!(
            policy,
            handles = names,
            "{cause} (logged once for this policy)"
        );
    });
}

/// Logs that requests are refused as the server's fault because a store does not support them, once
/// for each policy and cause.
#[cold]
pub(crate) fn unsupported(policies: &str, cause: String, address: Option<&str>) {
    once(policies, &OperatorHelp::new(cause), |cause| {
        tracing::error!(
            policy = policies,
            cause,
            address,
            "the rate limit store does not support these requests; they are refused with 500, even under `fail_open` \
             (logged once for each policy and cause, counted in `RateLimitLayer::misconfigured`)"
        );
    });
}

/// Logs a mistake of the program once for each `subject`, a policy or a route. `log` writes the
/// line.
pub(crate) fn once(subject: impl Hash, help: &OperatorHelp, log: impl FnOnce(&str)) {
    let cause = help.expose_to_operator();
    let mut logged = lock(&LOGGED);
    let fate = logged.record(subject, cause);
    // A subscriber may be slow.
    drop(logged);
    if fate == Fate::Skip {
        return;
    }
    log(cause);
    if fate == Fate::LogLast {
        tracing::error!(
            "{MOST} different mistakes were logged; further ones are not, only counted"
        );
    }
}

/// A line that is logged at most once a minute. The events between are counted.
#[derive(Debug, Default)]
pub(crate) struct OnceAMinute {
    /// The earliest time of the next line.
    due: Timestamp,
    /// Number of events since the last line.
    unlogged: u64,
}

impl OnceAMinute {
    pub(crate) const INTERVAL: Duration = Duration::from_secs(60);

    /// Returns the number of events since the last line, if this one is logged; otherwise counts
    /// it.
    pub(crate) fn record(&mut self, now: Timestamp) -> Option<u64> {
        if !self.is_due(now) {
            self.unlogged += 1;
            return None;
        }
        self.due = now.saturating_add(Self::INTERVAL);
        Some(std::mem::take(&mut self.unlogged))
    }

    /// Returns `true` if an event at `now` is logged: none was within the last minute.
    pub(crate) fn is_due(&self, now: Timestamp) -> bool {
        self.due <= now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endless_causes_fill_neither_memory_nor_the_log() {
        let mut logged = Logged::default();
        let mut fates = (0..10_000).map(|number| logged.record("api", &number.to_string()));
        assert!(fates.by_ref().take(MOST - 1).all(|fate| fate == Fate::Log));
        assert_eq!(fates.next(), Some(Fate::LogLast));
        assert!(fates.all(|fate| fate == Fate::Skip));
        assert_eq!(logged.hashes.len(), MOST);
    }
}
