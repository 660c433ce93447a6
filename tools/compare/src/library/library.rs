use std::{net::IpAddr, time::Duration};

use crate::{answer::Answer, service::Service};

/// So many units in so long, and no larger burst.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    pub units: u32,
    pub period: Duration,
}

impl Rule {
    /// A rule that refills nothing while a probe runs.
    pub const fn per_hour(units: u32) -> Self {
        Self {
            units,
            period: Duration::from_secs(3600),
        }
    }
}

/// Decides at once about so many units of a client.
pub type Budget = Box<dyn FnMut(IpAddr, u32) -> Answer>;

/// A limit beside another one, for the same request.
pub struct Both {
    /// Asks both limits.
    pub both: Budget,
    /// Asks the first limit alone, which is the one that `both` asks.
    pub first: Budget,
}

/// A limit whose rule changes while it is in use.
pub struct Live {
    pub budget: Budget,
    pub change: Box<dyn FnMut(Rule)>,
}

/// A limit whose time is that of a test.
pub struct Mocked {
    pub budget: Budget,
    pub advance: Box<dyn FnMut(Duration)>,
}

/// One limit for several processes.
pub enum Shared {
    /// The library's interface has no such thing.
    No,
    /// The library says so, and it was not run here.
    NotRun,
    /// The limit, made twice as two processes would make it.
    Run([Budget; 2]),
}

/// One of the libraries that are compared. A probe returns `None` if the library's interface has no
/// such thing.
pub trait Library: Sync {
    /// The name in the registry.
    fn package(&self) -> &'static str;

    /// The keys of the dependency beside its version, in TOML: as little as a limit needs in front
    /// of axum or, for a library without a layer, in a program.
    fn minimal(&self) -> &'static str;

    /// Makes a limit. It holds at most `keys` clients if the library can be told so.
    fn budget(&self, rule: Rule, keys: Option<usize>) -> Budget;

    /// Makes a limit as a program without a runtime would.
    fn without_runtime(&self, rule: Rule) -> Budget {
        self.budget(rule, None)
    }

    /// Makes a layer. Each call returns a limit by another service of that layer.
    fn layer(&self, _rule: Rule) -> Option<Box<dyn Fn() -> Budget>> {
        None
    }

    /// Makes a service that limits peer addresses and tells clients what is left.
    fn http(&self, _rule: Rule) -> Option<Service> {
        None
    }

    /// Makes a service behind a trusted proxy at 10.0.0.1 that appends to `X-Forwarded-For`.
    fn behind_proxy(&self, _rule: Rule) -> Option<Service> {
        None
    }

    /// Makes a limit that charges the cost of each call.
    fn weighted(&self, _rule: Rule) -> Option<Budget> {
        None
    }

    fn both(&self, _first: Rule, _second: Rule) -> Option<Both> {
        None
    }

    /// Makes a limit, charges `estimated` units to a client, and corrects them to `actual`.
    fn corrected(
        &self,
        _rule: Rule,
        _client: IpAddr,
        _estimated: u32,
        _actual: u32,
    ) -> Option<Budget> {
        None
    }

    fn live(&self, _rule: Rule) -> Option<Live> {
        None
    }

    /// Makes a limit, each call of which returns when it is admitted.
    fn waiting(&self, _rule: Rule) -> Option<Box<dyn FnMut()>> {
        None
    }

    fn shared(&self, _redis: &str, _rule: Rule) -> Shared {
        Shared::No
    }

    fn mocked(&self, _rule: Rule) -> Option<Mocked> {
        None
    }

    /// Makes a limit of each of its algorithms, with the algorithm's name.
    fn algorithms(&self, rule: Rule) -> Vec<(&'static str, Budget)>;
}
