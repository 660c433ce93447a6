//! A server whose clock steps back, or a successor whose clock is behind: the stored states have
//! later times.

use std::time::Duration;

use tollgate::{
    AnyRule, Cost, Decision, Timestamp, Verdict,
    key::Key,
    store::{Redis, Store, driver::Ask},
};

use super::{groups::replicated, only, policy, servers};

/// The distance of the server's clock behind the clock that the states were written with.
const BEHIND: Duration = Duration::from_secs(30);
const LIMIT: u64 = 10;

async fn at(store: &Redis<AnyRule>, now: Timestamp, rule: &AnyRule, client: u64) -> Decision {
    let ask = [Ask::new(policy(), rule, Key::from(client), Cost::ONE)];
    only(store.acquire_at(now, &ask).await.unwrap())
}

async fn by_the_server(store: &Redis<AnyRule>, rule: &AnyRule, client: u64) -> Decision {
    let ask = [Ask::new(policy(), rule, Key::from(client), Cost::ONE)];
    only(store.acquire(&ask).await.unwrap())
}

/// No rule refills anything while the test runs.
const RULES: [&str; 9] = [
    "token-bucket 10/10d burst=10",
    "token-bucket 10/10d burst=12 initial=10",
    "fixed-window 10/3650d",
    "fixed-window 10/3650d from=first-call",
    "sliding-window 10/3650d slices=4",
    "sliding-log 10/10d",
    "leaky-bucket 10/10d queue=9",
    "token-bucket 10/10d burst=10 & fixed-window 10/3650d",
    "cascade 10/10d burst=4 > 10/10d burst=6",
];

/// Returns the instant at which a refused call can pass.
fn passes_at(refusal: &Decision) -> Timestamp {
    assert_eq!(refusal.verdict(), Verdict::Refuse);
    refusal.at().saturating_add(refusal.retry_after().unwrap())
}

/// Clients of a rule before the server's clock stepped back, and their expected decisions
/// afterwards.
struct Clients {
    rule: AnyRule,
    ahead: Timestamp,
    /// The instant at which the exhausted client can pass.
    passes_at: Timestamp,
}

impl Clients {
    const USED_UP: u64 = 1;
    const HALF: u64 = 2;
    const NEW: u64 = 3;

    /// Leaves six of ten units to one client, and none to another.
    async fn before(store: &Redis<AnyRule>, rule: AnyRule) -> Self {
        let ahead = by_the_server(store, &rule, 0)
            .await
            .at()
            .saturating_add(BEHIND);
        for (client, calls) in [(Self::USED_UP, LIMIT), (Self::HALF, 4)] {
            for _ in 0..calls {
                assert!(at(store, ahead, &rule, client).await.is_admitted());
            }
        }
        let refusal = at(store, ahead, &rule, Self::USED_UP).await;
        let passes_at = passes_at(&refusal);
        Self {
            rule,
            ahead,
            passes_at,
        }
    }

    async fn afterwards(self, store: &Redis<AnyRule>) {
        let Self {
            rule,
            ahead,
            passes_at: then,
        } = self;
        for (client, left) in [(Self::USED_UP, 0), (Self::HALF, 6), (Self::NEW, LIMIT)] {
            for call in 0..2 * LIMIT {
                let decision = by_the_server(store, &rule, client).await;
                let what = format!("{rule}, client {client}, call {call}: {decision:?}");
                assert!(decision.at() < ahead, "{what}");
                assert_eq!(decision.is_admitted(), call < left, "{what}");
                if client == Self::NEW {
                    continue;
                }
                match decision.verdict() {
                    // Counted from the instant when the clock has caught up.
                    Verdict::Delay(wait) => {
                        assert!(decision.at().saturating_add(wait) >= ahead, "{what}");
                    }
                    Verdict::Refuse => assert_eq!(passes_at(&decision), then, "{what}"),
                    _ => {}
                }
            }
        }
        // Nothing passes until then, and normal decisions follow.
        for client in [Self::USED_UP, Self::HALF] {
            for now in [ahead, before(then)] {
                let early = at(store, now, &rule, client).await;
                assert!(!early.is_admitted(), "{rule}: {early:?}");
            }
        }
        for client in [Self::USED_UP, Self::HALF] {
            let decision = at(store, then, &rule, client).await;
            assert!(decision.is_admitted(), "{rule}: {decision:?}");
        }
    }
}

/// Returns a microsecond earlier, which is the resolution of scripts.
fn before(at: Timestamp) -> Timestamp {
    Timestamp::from_nanos(at.as_nanos() - 1000)
}

async fn store(server: &servers::Redis, prefix: usize) -> Redis<AnyRule> {
    let builder = Redis::<AnyRule>::builder(server.url()).prefix(&prefix.to_string());
    builder.connect().await.unwrap()
}

#[tokio::test]
async fn a_server_whose_clock_steps_back() {
    let server = servers::Redis::start();
    for (number, rule) in RULES.into_iter().enumerate() {
        let store = store(&server, number).await;
        let clients = Clients::before(&store, rule.parse().unwrap()).await;
        clients.afterwards(&store).await;
    }
}

#[tokio::test]
async fn a_successor_whose_clock_is_behind() {
    let master = servers::Redis::start();
    let replica = servers::Redis::options().replica_of(&master).start();
    let mut all = Vec::new();
    for (number, rule) in RULES.into_iter().enumerate() {
        let store = store(&master, number).await;
        all.push(Clients::before(&store, rule.parse().unwrap()).await);
    }
    replicated(&master, "probe");
    master.kill();
    replica.command(&["REPLICAOF", "NO", "ONE"]);
    for (number, clients) in all.into_iter().enumerate() {
        clients.afterwards(&store(&replica, number).await).await;
    }
}
