//! Refusals that are remembered, beside those of the store in memory.

use std::{hint::black_box, time::Instant};

use tollgate::{
    Cost, Policy, TokenBucket,
    key::Key,
    store::{
        Local, Redis, Store, StoreExt,
        driver::{Ask, Check},
    },
};

use crate::turn::{Cost as Spent, client_time};

/// Clients who are refused for an hour.
const CLIENTS: u64 = 1000;

/// Decides about clients in turn, all of whom are refused at once.
fn refusals<S: Store<TokenBucket>>(
    store: &S,
    policy: &Policy,
    rule: &TokenBucket,
    count: usize,
) -> Spent {
    let keys: Vec<Key> = (0..CLIENTS).map(Key::from).collect();
    let (begin, client) = (Instant::now(), client_time());
    for key in keys.iter().cycle().take(count) {
        match store.acquire(&[Ask::new(policy, rule, *key, Cost::ONE)]) {
            Check::Ready(Ok(decisions)) => assert!(!black_box(decisions).is_admitted()),
            _ => panic!("expected a refusal at once"),
        }
    }
    let per = |nanos: u128| nanos as f64 / count as f64;
    Spent {
        wall: per(begin.elapsed().as_nanos()),
        client: per((client_time() - client).as_nanos()),
        ..Spent::default()
    }
}

/// A store in Redis that remembers who is refused, and one in memory that refuses the same.
pub struct Refusals<R> {
    remote: R,
    local: Local<TokenBucket>,
    policy: Policy,
    rule: TokenBucket,
}

/// Spends what all clients have, and lets the store in Redis refuse each of them once.
pub async fn remembered(url: &str) -> Refusals<impl Store<TokenBucket> + use<>> {
    let rule = TokenBucket::per_hour(1);
    let policy = Policy::new("refused");
    let remote = Redis::connect(url)
        .await
        .expect("a server")
        .remember_refusals();
    let local = Local::new();
    for client in 0..CLIENTS {
        let ask = [Ask::new(&policy, &rule, Key::from(client), Cost::ONE)];
        for passes in [true, false] {
            let Ok(decisions) = remote.acquire(&ask).await else {
                panic!("expected a decision");
            };
            assert_eq!(decisions.is_admitted(), passes);
            let Ok(decisions) = local.acquire(&ask).await;
            assert_eq!(decisions.is_admitted(), passes);
        }
    }
    Refusals {
        remote,
        local,
        policy,
        rule,
    }
}

impl<R: Store<TokenBucket>> Refusals<R> {
    pub fn remote(&self, count: usize) -> Spent {
        refusals(&self.remote, &self.policy, &self.rule, count)
    }

    pub fn local(&self, count: usize) -> Spent {
        refusals(&self.local, &self.policy, &self.rule, count)
    }
}
