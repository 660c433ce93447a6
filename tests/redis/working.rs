//! A server that works and says no: behind everything that the operators' page recommends, it goes
//! on refusing clients that are over their limit, however many writes of others fail.

use std::{convert::Infallible, time::Duration};

use futures_util::future::join_all;
use tollgate::{
    AnyRule, Cost, Policy, Verdict,
    key::Key,
    store::{CircuitBreakerConfig, Local, Redis, Store, StoreExt, driver::Ask},
};

use super::{cannot_save, policy, servers};

/// One rule of each kind of program.
const RULES: [&str; 2] = ["token-bucket 1/1d burst=5", "sliding-log 5/1d"];
const USED_UP: u64 = 1_000_000;
/// Long, because the deadline is not what is tested.
const DEADLINE: Duration = Duration::from_secs(10);
const CALLS: u64 = 60;

/// Why a server takes no writes.
#[derive(Clone, Copy, Debug)]
enum Answer {
    Full,
    MissesReplicas,
    CannotSave,
    IsReplica,
    MayNotWrite,
}

impl Answer {
    const ALL: [Self; 5] = [
        Self::Full,
        Self::MissesReplicas,
        Self::CannotSave,
        Self::IsReplica,
        Self::MayNotWrite,
    ];

    fn code(self) -> &'static str {
        match self {
            Self::Full => "OOM",
            Self::MissesReplicas => "NOREPLICAS",
            Self::CannotSave => "MISCONF",
            Self::IsReplica => "READONLY",
            Self::MayNotWrite => "The user executing",
        }
    }
}

/// A server and the master that it may become a replica of.
struct Servers {
    server: servers::Redis,
    master: servers::Redis,
}

impl Servers {
    fn start() -> Self {
        let (server, master) = (servers::Redis::start(), servers::Redis::start());
        let user = ["ACL", "SETUSER", "limiter", "on", ">p4ss", "~*", "+@all"];
        server.command(&user);
        Self { server, master }
    }

    fn url(&self) -> String {
        format!("redis://limiter:p4ss@{}", self.server.address())
    }

    /// Uses up the limit of a client, here and on the master.
    async fn use_up(&self, rule: &AnyRule) {
        for url in [self.url(), self.master.url()] {
            let store: Redis<AnyRule> = Redis::connect(url).await.unwrap();
            for _ in 0..5 {
                let ask = Ask::new(policy(), rule, Key::from(USED_UP), Cost::ONE);
                assert!(store.acquire(&[ask]).await.unwrap().is_admitted());
            }
        }
    }

    /// Makes the server answer writes so, from now on.
    fn begin(&self, answer: Answer) {
        let config = |name: &str, value: &str| self.server.command(&["CONFIG", "SET", name, value]);
        match answer {
            Answer::Full => drop(config("maxmemory", "1")),
            Answer::MissesReplicas => drop(config("min-replicas-to-write", "1")),
            Answer::CannotSave => drop(cannot_save(&self.server)),
            Answer::IsReplica => {
                let port = self.master.port().to_string();
                self.server.command(&["REPLICAOF", "127.0.0.1", &port]);
                let limit = Duration::from_secs(20);
                self.server
                    .wait_for_info("replication", "master_link_status", "up", limit);
            }
            Answer::MayNotWrite => {
                let user = ["ACL", "SETUSER", "limiter", "-set", "-setrange"];
                self.server.command(&user);
            }
        }
    }
}

/// Calls of whom `percent` are the used-up client's, at the same time in tens. Returns how many
/// writes must have failed.
async fn assert_the_used_up_client_is_refused<S>(
    store: &S,
    rule: &AnyRule,
    percent: u64,
    others: impl Fn(Verdict) -> bool,
    what: &str,
) -> u64
where
    S: Store<AnyRule, Error = Infallible>,
{
    let is_used_up = |call: u64| call % 10 < percent / 10;
    let mut writes = 0;
    for tens in 0..CALLS / 10 {
        let calls = (tens * 10..(tens + 1) * 10).map(async |call| {
            // Everybody else is new.
            let client = if is_used_up(call) { USED_UP } else { call };
            let ask = Ask::new(policy(), rule, Key::from(client), Cost::ONE);
            let decisions = store.acquire(&[ask]).await.unwrap();
            (client, decisions.as_slice()[0].verdict())
        });
        for (client, verdict) in join_all(calls).await {
            if client == USED_UP {
                assert_eq!(verdict, Verdict::Refuse, "{what}");
            } else {
                assert!(others(verdict), "{what}: {verdict:?}");
                writes += 1;
            }
        }
    }
    writes
}

async fn under_every_policy(url: String, rule: &AnyRule, answer: Answer) {
    let redis: Redis<AnyRule> = Redis::connect(url).await.unwrap();
    let newcomer = Ask::new(policy(), rule, Key::from(u64::MAX), Cost::ONE);
    let error = redis.acquire(&[newcomer]).await.unwrap_err();
    assert!(error.is_unwritten(), "{error:?}");
    assert!(error.to_string().contains(answer.code()), "{error}");
    for percent in [10, 50, 90] {
        let what = format!("{answer:?}, {rule}, {percent} %");
        let breaker = || {
            let redis = redis.clone().timeout(DEADLINE);
            redis.circuit_breaker(CircuitBreakerConfig::new())
        };
        let (open, closed) = (breaker().fail_open(), breaker().fail_closed());
        let local = breaker().fall_back_to(Local::new());
        let local = local.rule(|rule: &AnyRule| Some(rule.clone()));
        let failed_open = |verdict| verdict == Verdict::Undecided { admitted: true };
        let writes =
            assert_the_used_up_client_is_refused(&open, rule, percent, failed_open, &what).await;
        assert_eq!(
            (open.failures(), open.unwritten()),
            (writes, writes),
            "{what}"
        );
        let failed_closed = |verdict| verdict == Verdict::Undecided { admitted: false };
        let writes =
            assert_the_used_up_client_is_refused(&closed, rule, percent, failed_closed, &what)
                .await;
        assert_eq!(closed.unwritten(), writes, "{what}");
        // Each node decides by itself.
        let alone = |verdict| verdict == Verdict::Allow;
        let writes =
            assert_the_used_up_client_is_refused(&local, rule, percent, alone, &what).await;
        assert_eq!(
            (local.unwritten(), local.decided()),
            (writes, writes),
            "{what}"
        );
        let opened = [
            open.get_ref().opened(),
            closed.get_ref().opened(),
            local.remote().opened(),
        ];
        assert_eq!(opened, [0, 0, 0], "{what}");
        // Remembered refusals are refusals too.
        let remembering = breaker().remember_refusals().fail_open();
        assert_the_used_up_client_is_refused(&remembering, rule, percent, failed_open, &what).await;
        assert_eq!(remembering.get_ref().get_ref().opened(), 0, "{what}");
    }
}

#[tokio::test]
async fn a_server_that_takes_no_writes_refuses_used_up_clients_behind_a_breaker() {
    for rule in RULES {
        let rule: AnyRule = rule.parse().unwrap();
        for answer in Answer::ALL {
            let servers = Servers::start();
            servers.use_up(&rule).await;
            servers.begin(answer);
            under_every_policy(servers.url(), &rule, answer).await;
        }
    }
}

/// Any client can have writes fail on purpose: by calls under invented keys.
#[tokio::test]
async fn nobody_opens_the_breaker_by_invented_keys() {
    let servers = Servers::start();
    let rule: AnyRule = RULES[0].parse().unwrap();
    servers.use_up(&rule).await;
    servers.begin(Answer::Full);
    let redis: Redis<AnyRule> = Redis::connect(servers.url()).await.unwrap();
    let store = redis.timeout(DEADLINE);
    let store = store
        .circuit_breaker(CircuitBreakerConfig::new())
        .fail_open();
    let policy = Policy::new("api");
    let call = async |client: u64| {
        let ask = Ask::new(&policy, &rule, Key::from(client), Cost::ONE);
        store.acquire(&[ask]).await.unwrap().is_admitted()
    };
    for invented in 0..5 {
        assert!(call(invented).await);
    }
    for _ in 0..20 {
        assert!(!call(USED_UP).await);
    }
}
