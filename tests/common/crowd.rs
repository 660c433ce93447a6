//! Concurrent callers during a fault of a store's server: one caller at several paces, four,
//! and 64. Each has a deadline below the response timeout, with and without a circuit breaker.
//!
//! A dead connection must be closed for any number and pace of callers, so each group has a store
//! of its own.
#![allow(unreachable_pub, reason = "items of a test module")]

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

use support::servers::wait_until;
use tokio::task::JoinHandle;
use tollgate::{
    Cost, Policy,
    key::Key,
    store::{CircuitBreakerConfig, Store, StoreError, StoreExt, driver::Ask},
};

/// The deadline of each call. The response timeout of the stores is four times as long.
pub const DEADLINE: Duration = Duration::from_millis(150);
pub const RESPONSE: Duration = Duration::from_millis(600);
/// The time in which calls must succeed again, or a fault must be detected.
const SOON: Duration = Duration::from_secs(30);

/// The number of callers, and the pause of each after a call.
#[derive(Clone, Copy, Debug)]
struct Callers {
    count: u64,
    pause: Duration,
}

impl Callers {
    /// Only the last group pauses for longer than the response timeout.
    const ALL: [Self; 5] = [
        Self::of(64, 100),
        Self::of(4, 5),
        Self::of(1, 1),
        Self::of(1, 150),
        Self::of(1, 700),
    ];

    const fn of(count: u64, pause: u64) -> Self {
        let pause = Duration::from_millis(pause);
        Self { count, pause }
    }
}

/// Callers of one store.
struct Member {
    callers: Callers,
    has_breaker: bool,
    answered: Arc<AtomicU64>,
    failed: Arc<AtomicU64>,
    /// The number of failures when all members were last answered.
    known: AtomicU64,
}

/// All callers, until [`end`](Self::end).
pub struct Crowd {
    members: Vec<Member>,
    stop: Arc<AtomicBool>,
    tasks: Vec<JoinHandle<()>>,
}

impl Crowd {
    /// Starts the callers. They use these clients in turn, under one policy, on stores with a
    /// response timeout of [`RESPONSE`].
    pub async fn start<S, Rule>(clients: &[Key], rule: Rule, connect: impl AsyncFn() -> S) -> Self
    where
        S: Store<Rule, Error = StoreError, Answer: Send> + Clone + Send + Sync + 'static,
        Rule: Clone + Send + Sync + 'static,
    {
        let mut crowd = Self {
            members: Vec::new(),
            stop: Arc::default(),
            tasks: Vec::new(),
        };
        let pauses = [100, 500].map(Duration::from_millis);
        for callers in Callers::ALL {
            let client = |crowd: &Self| clients[crowd.members.len() % clients.len()];
            let plain = connect().await.timeout(DEADLINE);
            crowd.join(callers, client(&crowd), &rule, false, plain);
            let breaker = CircuitBreakerConfig::new().open_for(pauses[0], pauses[1]);
            let guarded = connect().await.timeout(DEADLINE).circuit_breaker(breaker);
            crowd.join(callers, client(&crowd), &rule, true, guarded);
        }
        crowd.is_answered();
        crowd
    }

    fn join<S, Rule>(
        &mut self,
        callers: Callers,
        client: Key,
        rule: &Rule,
        has_breaker: bool,
        store: S,
    ) where
        S: Store<Rule, Error = StoreError, Answer: Send> + Clone + Send + Sync + 'static,
        Rule: Clone + Send + Sync + 'static,
    {
        let member = Member {
            callers,
            has_breaker,
            answered: Arc::default(),
            failed: Arc::default(),
            known: AtomicU64::default(),
        };
        for _ in 0..callers.count {
            let (store, rule) = (store.clone(), rule.clone());
            let stop = Arc::clone(&self.stop);
            let answered = Arc::clone(&member.answered);
            let failed = Arc::clone(&member.failed);
            self.tasks.push(tokio::spawn(async move {
                let policy = Policy::new("crowd");
                while !stop.load(SeqCst) {
                    let ask = Ask::new(&policy, &rule, client, Cost::ONE);
                    let counter = match store.acquire(&[ask]).await {
                        Ok(_) => &answered,
                        Err(_) => &failed,
                    };
                    counter.fetch_add(1, SeqCst);
                    tokio::time::sleep(callers.pause).await;
                }
            }));
        }
        self.members.push(member);
    }

    /// Waits until each member has made `more` calls of a kind, in addition to those `before`.
    fn wait(&self, what: &str, more: u64, before: &[u64], count: impl Fn(&Member) -> u64) {
        wait_until(what, SOON, || {
            let mut waiting = Vec::new();
            for (member, before) in self.members.iter().zip(before) {
                let (count, callers) = (count(member) - before, member.callers);
                if count < more * callers.count {
                    waiting.push((callers, member.has_breaker, count));
                }
            }
            let are_waiting = || format!("callers, with a breaker, so many: {waiting:?}");
            waiting.is_empty().then_some(()).ok_or_else(are_waiting)
        });
    }

    /// Waits until all members are answered from now on.
    pub fn is_answered(&self) {
        let answered = |member: &Member| member.answered.load(SeqCst);
        let before: Vec<_> = self.members.iter().map(answered).collect();
        self.wait("answers to callers of every kind", 2, &before, answered);
        for member in &self.members {
            member.known.store(member.failed.load(SeqCst), SeqCst);
        }
    }

    /// Waits until calls of all members have failed since they were [answered](Self::is_answered).
    pub fn has_failed(&self) {
        let known = |member: &Member| member.known.load(SeqCst);
        let before: Vec<_> = self.members.iter().map(known).collect();
        let failed = |member: &Member| member.failed.load(SeqCst);
        self.wait("failures for callers of every kind", 1, &before, failed);
    }

    pub async fn end(self) {
        self.stop.store(true, SeqCst);
        for task in self.tasks {
            task.await.unwrap();
        }
    }
}
