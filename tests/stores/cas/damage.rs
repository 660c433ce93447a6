//! Values that are not states of this program.

use support::value::{State, states, value_of};
use tollgate::{
    AnyRule, Cost, Decision, Policy, TokenBucket,
    algorithm::{Algorithm, Codec},
    store::{
        CasStats, Store, StoreError,
        driver::{Ask, CasStore, Settlement},
    },
    time::ManualClock,
};

use crate::cas::memory::{Memory, Ways, driver};

type Driver<R> = CasStore<Memory, R>;

fn a_store<R: Algorithm<State: Codec>>() -> Driver<R> {
    driver(Memory::new(ManualClock::default(), Ways::default()))
}

async fn acquire<R>(store: &Driver<R>, rule: &R) -> Result<Decision, StoreError>
where
    R: Algorithm<State: Codec>,
{
    let policy = Policy::new("api");
    let ask = Ask::new(&policy, rule, "alice".into(), Cost::ONE);
    let answer = store.acquire(&[ask]).await?;
    Ok(answer.as_slice()[0])
}

/// Returns the key and the value after one call, and its decision.
async fn written<R>(store: &Driver<R>, rule: &R) -> (Vec<u8>, Vec<u8>, Decision)
where
    R: Algorithm<State: Codec>,
{
    let first = acquire(store, rule).await.unwrap();
    assert!(first.is_admitted());
    let key = store.data().keys().remove(0);
    let (_, value, _) = store.data().get(&key).unwrap();
    (key, value, first)
}

const RULES: [&str; 10] = [
    "token-bucket 5/1h",
    "leaky-bucket 6/1h queue=5",
    "fixed-window 4/1d",
    "sliding-window 6/1h slices=4",
    "sliding-log 4/1h",
    "warm-up 6/s over=2s",
    "warm-up-spaced 20/s over=4s max-wait=1s",
    "cascade 4/1h > 3/1d",
    "three-color 4/1h burst=4 peak=6/1h peak-burst=6 aware",
    "token-bucket 6/1h & fixed-window 4/1d",
];

/// Asserts that the next admission replaces the damaged value, and decides as for a fresh key.
async fn is_healed<R>(rule: &R, damage: impl Fn(Vec<u8>) -> Vec<Vec<u8>>)
where
    R: Algorithm<State: Codec>,
{
    let store = a_store();
    let (key, value, first) = written(&store, rule).await;
    let damaged = damage(value.clone());
    assert!(!damaged.is_empty());
    for bytes in damaged {
        let healed = store.stats().healed;
        store.data().put(&key, &bytes);
        let answer = acquire(&store, rule).await.unwrap();
        assert_eq!(answer, first, "{rule:?} finds {bytes:?}");
        assert_eq!(store.data().get(&key).unwrap().1, value);
        assert_eq!(store.stats().healed, healed + 1, "{rule:?} finds {bytes:?}");
    }
}

#[tokio::test]
async fn foreign_and_truncated_values_count_as_no_state_and_are_replaced() {
    for text in RULES {
        let rule: AnyRule = text.parse().unwrap();
        is_healed(&rule, |value| {
            let truncated = (0..value.len()).map(|end| value[..end].to_vec());
            let longer = [&value[..], &[0]].concat();
            let foreign = [b"hello".to_vec(), vec![0xff; 40], b"{}".to_vec(), longer];
            truncated.chain(foreign).collect()
        })
        .await;
    }
}

/// A valid value around invalid state bytes does not make them a state.
#[tokio::test]
async fn a_damaged_state_in_a_value_counts_as_none_and_is_replaced() {
    for text in RULES {
        let rule: AnyRule = text.parse().unwrap();
        is_healed(&rule, |value| {
            let [state] = &states(&value)[..] else {
                panic!("expected one state in {value:?}")
            };
            let with = |bytes: &[u8]| {
                value_of(&[State {
                    bytes: bytes.to_vec(),
                    ..state.clone()
                }])
            };
            let truncated = (0..state.bytes.len()).map(|end| with(&state.bytes[..end]));
            let longer = with(&[&state.bytes[..], &[0]].concat());
            truncated.chain([longer, with(b"hello")]).collect()
        })
        .await;
    }
}

/// Too many states, two of one kind, or none.
#[tokio::test]
async fn an_invalid_value_counts_as_no_state() {
    is_healed(&TokenBucket::per_hour(5), |value| {
        let [state] = &states(&value)[..] else {
            panic!("expected one state in {value:?}")
        };
        let others = (0..16).map(|kind| State {
            kind,
            ..state.clone()
        });
        let many: Vec<_> = others.chain([state.clone()]).collect();
        let twice = [state.clone(), state.clone()];
        let none = value[..1].to_vec();
        // The form from before there were several kinds.
        let alone = state.bytes.clone();
        vec![value_of(&many), value_of(&twice), none, alone]
    })
    .await;
}

/// The old release fails with a clear message until the key is reset or expires. The newer value is
/// unchanged.
#[tokio::test]
async fn a_newer_version_is_reported_and_not_replaced() {
    for (text, is_value) in RULES.iter().flat_map(|text| [(text, true), (text, false)]) {
        let rule: AnyRule = text.parse().unwrap();
        let store = a_store();
        let (key, mut value, first) = written(&store, &rule).await;
        if is_value {
            value[0] += 1;
        } else {
            let mut states = states(&value);
            // A token bucket has two versions.
            states[0].bytes[0] += 2;
            value = value_of(&states);
        }
        store.data().put(&key, &value);
        let (policy, charge) = (Policy::new("api"), { first }.take_charge().unwrap());
        let settlement = Settlement::new(&policy, &rule, "alice".into(), charge, 0).unwrap();
        let look = [Ask::new(&policy, &rule, "alice".into(), Cost::ONE)];
        for error in [
            acquire(&store, &rule).await.unwrap_err(),
            store.look(&look).await.unwrap_err(),
            store.settle(vec![settlement]).await.unwrap_err(),
        ] {
            let message = error.to_string();
            assert!(message.contains("newer version"), "{message}");
            assert!(!error.is_timeout() && !error.is_contended() && !error.is_unavailable());
        }
        assert_eq!(store.data().get(&key).unwrap().1, value, "{text}");
        let CasStats { newer, healed, .. } = store.stats();
        assert_eq!((newer, healed), (3, 0));
        store.reset(&policy, &"alice".into()).await.unwrap();
        assert_eq!(acquire(&store, &rule).await.unwrap(), first);
    }
}

/// Holds also inside a pair, or among several rules.
#[tokio::test]
async fn a_newer_version_inside_is_reported() {
    let store = a_store();
    let rule = (TokenBucket::per_hour(5), TokenBucket::per_hour(6));
    let (key, value, _) = written(&store, &rule).await;
    let mut states = states(&value);
    states[0].bytes[1] += 2;
    store.data().put(&key, &value_of(&states));
    acquire(&store, &rule).await.unwrap_err();
    assert_eq!(store.stats().newer, 1);
}
