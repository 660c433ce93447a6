//! A bucket and rules that keep some of its tokens free, taking turns on keys of all shards of a
//! cluster, beside an oracle.

use std::time::Duration;

use futures_util::future::join_all;
use support::Random;
use tollgate::{Decision, TokenBucket, key::Key};

use super::{acquire_many, callers::url_of, look, servers, store};

/// Nanoseconds per token.
const INTERVAL: u64 = 100_000_000;
const BURST: u64 = 12;
/// The tokens that each rule of the bucket keeps free.
const KEPT: [u64; 3] = [0, 5, BURST - 1];
const KEYS: usize = 48;
const ROUNDS: usize = 48;

/// The textbook bucket of one key: its filling in nanoseconds of refill, and the instant of its
/// last write.
#[derive(Clone, Copy)]
struct Oracle {
    filling: u64,
    written_at: u64,
}

impl Oracle {
    const FULL: u64 = BURST * INTERVAL;

    /// Checks the answer to a call, or to a look, which costs nothing.
    fn decides(&mut self, kept: u64, cost: u64, answer: &Decision) {
        let at = answer.at().as_nanos().max(self.written_at);
        let filling = (self.filling + (at - self.written_at)).min(Self::FULL);
        let passes = filling >= (cost.max(1) + kept) * INTERVAL;
        let filling = match passes {
            true => filling - cost * INTERVAL,
            false => filling,
        };
        let left = (filling / INTERVAL).saturating_sub(kept);
        let context = format!("{cost} beside {kept}, at {filling}: {answer:?}");
        assert_eq!(answer.is_admitted(), passes, "{context}");
        assert_eq!(answer.limit(), Some(BURST - kept), "{context}");
        assert_eq!(answer.remaining(), Some(left), "{context}");
        let lacking = ((cost + kept) * INTERVAL).saturating_sub(filling);
        let due = answer.retry_after().map(|wait| wait.as_nanos() as u64);
        match (passes, cost) {
            (true, _) => {
                *self = Self {
                    filling,
                    written_at: at,
                }
            }
            (false, 0) => {}
            (false, _) if cost + kept > BURST => assert_eq!(due, None, "{context}"),
            // The server counts microseconds.
            (false, _) => assert_eq!(due, Some(lacking.next_multiple_of(1000)), "{context}"),
        }
    }
}

/// The rule of the next call of a key: in turn, in groups of five, or at random.
fn turn(key: usize, round: usize, random: &mut Random) -> usize {
    match key % 3 {
        0 => round % KEPT.len(),
        1 => round / 5 % KEPT.len(),
        _ => random.below(KEPT.len() as u64) as usize,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rules_that_keep_tokens_free_in_a_cluster() {
    let cluster = servers::Cluster::start();
    let store = store(url_of(&cluster)).await;
    let rules = KEPT.map(|kept| {
        let text = format!("token-bucket 10/1s burst={BURST} keep-free={kept}");
        text.parse::<TokenBucket>().unwrap()
    });
    let mut random = Random::new(7);
    let new = Oracle {
        filling: Oracle::FULL,
        written_at: 0,
    };
    let mut oracles = [new; KEYS];
    let mut refused = [0; KEPT.len()];
    for round in 0..ROUNDS {
        let calls = (0..KEYS).map(|key| {
            let rule = turn(key, round, &mut random);
            // Mostly one, at times all, and sometimes more than the rule ever lets pass.
            let cost = match random.below(6) {
                0 => 1 + random.below(BURST),
                1 => 2,
                _ => 1,
            };
            (key, rule, cost, random.once_in(4))
        });
        let calls: Vec<_> = calls.collect();
        let answers = join_all(calls.iter().map(async |&(key, rule, cost, looks)| {
            let (rule, key) = (&rules[rule], Key::from(key as u64));
            match looks {
                true => look(&store, rule, key).await,
                false => acquire_many(&store, rule, key, cost).await,
            }
        }));
        for (&(key, rule, cost, looks), answer) in calls.iter().zip(answers.await) {
            let answer = answer.unwrap();
            let cost = if looks { 0 } else { cost };
            oracles[key].decides(KEPT[rule], cost, &answer);
            refused[rule] += u32::from(!answer.is_admitted());
        }
        tokio::time::sleep(Duration::from_millis(random.below(60))).await;
    }
    assert!(refused.iter().all(|refused| *refused > 20), "{refused:?}");
    let shards = &cluster.nodes()[..3];
    assert!(shards.iter().all(|node| node.keys().len() > KEYS / 8));
}
