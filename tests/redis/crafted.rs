//! Values that have the form of states but contain invalid numbers, as a bug or another program
//! might leave.

mod random;
mod settle;
mod value;

use tollgate::{
    AnyRule, Cost, Decision,
    key::Key,
    store::{Redis, Store, driver::Ask},
};

use self::value::{
    Form, Value,
    Value::{Float, Int, List, Map, Nil},
    odd_numbers,
};
use super::{
    logs::state_keys,
    only, policy,
    servers::{self, Reply},
};

/// One rule of each kind that restores nothing while a test runs, except warm-ups, which count
/// seconds.
const RULES: [&str; 11] = [
    "token-bucket 5/1d",
    "leaky-bucket 1/1h queue=4",
    "fixed-window 5/365d",
    "sliding-window 5/365d",
    "sliding-window 6/365d slices=5",
    "sliding-log 5/1d",
    "cascade 3/1d > 4/1d",
    "three-color 3/1d peak=5/1d",
    "warm-up 15/1s over=10s",
    "warm-up-spaced 1/1h over=5h",
    "token-bucket 5/1d & sliding-log 6/1d",
];

/// A rule, a client, and the value under its key.
struct StoredKey {
    server: servers::Redis,
    store: Redis<AnyRule>,
    rule: AnyRule,
    name: Vec<u8>,
}

impl StoredKey {
    async fn of(text: &str) -> Self {
        let server = servers::Redis::start();
        let store = Redis::connect(server.url()).await.unwrap();
        let mut stored = Self {
            server,
            store,
            rule: text.parse().unwrap(),
            name: Vec::new(),
        };
        stored.acquire("the first call").await;
        stored.name = state_keys(&stored.server).remove(0);
        stored
    }

    fn set(&self, bytes: &[u8]) {
        self.server.command(&[&b"SET"[..], &self.name[..], bytes]);
    }

    fn bytes(&self) -> Vec<u8> {
        self.bytes_or_none().expect("expected a state, found none")
    }

    fn bytes_or_none(&self) -> Option<Vec<u8>> {
        match self.server.reply(&[&b"GET"[..], &self.name[..]]) {
            Reply::Bytes(bytes) => Some(bytes),
            _ => None,
        }
    }

    async fn acquire(&self, context: &str) -> Decision {
        self.acquire_by(7, context).await
    }

    async fn acquire_by(&self, key: u64, context: &str) -> Decision {
        let ask = Ask::new(policy(), &self.rule, Key::from(key), Cost::ONE);
        self.decided(ask, context).await
    }

    async fn grant(&self, context: &str) -> Decision {
        let ask = Ask::new(policy(), &self.rule, Key::from(7), Cost::ONE);
        self.decided(ask.up_to(u64::MAX), context).await
    }

    async fn decided(&self, ask: Ask<'_, AnyRule>, context: &str) -> Decision {
        match self.store.acquire(&[ask]).await {
            Ok(decisions) => only(decisions),
            Err(error) => panic!("{}, {context}: {error:?}", self.rule),
        }
    }

    /// Makes calls until one is refused. Returns the first decision, the number of admissions, and
    /// the number of states healed meanwhile.
    async fn drain(&self, context: &str) -> (Decision, u64, u64) {
        let healed = self.store.stats().healed;
        let first = self.acquire(context).await;
        let mut admitted = u64::from(first.is_admitted());
        while admitted > 0 && admitted < 100 && self.acquire(context).await.is_admitted() {
            admitted += 1;
        }
        if admitted > 0 {
            self.assert_proper(context);
        }
        (first, admitted, self.store.stats().healed - healed)
    }

    /// Asserts that the value is a state that expires.
    fn assert_proper(&self, context: &str) {
        let bytes = self.bytes();
        let state = Value::take(&mut &bytes[..]);
        assert!(state.items().len() > 1, "{context}: {state:?}");
        let left: i64 = self
            .server
            .command(&[&b"PTTL"[..], &self.name[..]])
            .parse()
            .unwrap();
        assert!(left > 0, "{}, {context}: {left} ms", self.rule);
    }

    /// Returns the first decision for an unknown key, and the number of admissions.
    async fn fresh(&self) -> (Decision, u64) {
        self.server.command(&[&b"DEL"[..], &self.name[..]]);
        let (first, admitted, healed) = self.drain("a fresh key").await;
        assert_eq!(healed, 0);
        assert!((1..100).contains(&admitted), "{admitted}");
        (first, admitted)
    }

    /// Returns `true` if the passing of a second changes decisions.
    fn goes_by_seconds(&self) -> bool {
        matches!(self.rule, AnyRule::WarmUp(_))
    }
}

/// Returns states with one invalid number, or of another shape.
fn misshapen(state: &[Value]) -> Vec<(String, Value)> {
    let mut all = Vec::new();
    let parts = || state[1..].to_vec();
    let with = |parts: Vec<Value>| List([vec![Int(1)], parts].concat());
    let last = state.len() - 2;
    let part = state[last + 1].items();
    let instead = |numbers: Vec<Value>| {
        let mut parts = parts();
        parts[last] = List(numbers);
        with(parts)
    };
    for (at, _) in part.iter().enumerate().skip(1) {
        for odd in odd_numbers() {
            let mut numbers = part.to_vec();
            numbers[at] = odd.clone();
            all.push((format!("{odd:?} for number {at}"), instead(numbers)));
        }
    }
    all.push((
        "one number less".into(),
        instead(part[..part.len() - 1].to_vec()),
    ));
    all.push(("the kind alone".into(), instead(part[..1].to_vec())));
    for more in [Int(0), Nil, Float(0.5), List(vec![])] {
        let numbers = [part, std::slice::from_ref(&more)].concat();
        all.push((format!("{more:?} more"), instead(numbers)));
    }
    // Before several rules, and instead of the instant until which one of several states matters.
    for odd in odd_numbers() {
        let head = || List(vec![Int(0), Int(1), odd.clone()]);
        let state = |stop| List(vec![stop, head(), List(part.to_vec())]);
        let heads = [
            List(vec![Int(1), head()]),
            List(vec![Int(1), head(), List(part.to_vec())]),
            List(vec![Int(2), state(Int(1 << 51))]),
            List(vec![Int(2), List(vec![odd.clone(), List(part.to_vec())])]),
            List(vec![Int(2), odd.clone()]),
        ];
        all.extend(heads.map(|value| (format!("{odd:?} at the head"), value)));
    }
    let by_number = |values: &[Value]| {
        let pairs = values.iter().cloned().enumerate();
        Map(pairs.map(|(n, value)| (Int(n as i64 + 1), value)).collect())
    };
    let mut parts = parts();
    parts[last] = by_number(part);
    all.push(("a map for the numbers".into(), with(parts)));
    all.push(("a map for the parts".into(), by_number(state)));
    all
}

#[tokio::test]
async fn values_that_no_rule_writes_are_healed() {
    for text in RULES {
        let stored = StoredKey::of(text).await;
        let fresh = stored.fresh().await;
        stored.server.command(&[&b"DEL"[..], &stored.name[..]]);
        stored.acquire("a state to misshape").await;
        let bytes = stored.bytes();
        let mut rest = &bytes[..];
        let state = Value::take(&mut rest);
        // After a bucket that starts full is the second at which it expires.
        let is_all = rest.is_empty() || matches!(Value::take(&mut rest), Int(_)) && rest.is_empty();
        assert!(is_all, "{state:?} and {rest:?}");
        let cases = misshapen(state.items());
        assert!(cases.len() > 40, "{text}");
        for ((what, value), form) in cases
            .iter()
            .flat_map(|case| [(case, Form::Short), (case, Form::Wide)])
        {
            let context = format!("{text}, {what} in {state:?}");
            stored.set(&value.bytes(form));
            let (first, admitted, healed) = stored.drain(&context).await;
            assert_eq!(healed, 1, "{context}");
            if text.contains('&') {
                // The other rule may have a valid state.
                assert!(
                    admitted >= 1 && admitted <= fresh.1,
                    "{context}: {admitted}"
                );
                continue;
            }
            assert_eq!(first.remaining(), fresh.0.remaining(), "{context}");
            if !stored.goes_by_seconds() {
                assert_eq!(admitted, fresh.1, "{context}");
            }
        }
    }
}

/// Values at fixed widths, with any of their bytes changed.
#[tokio::test]
async fn a_bucket_with_a_changed_byte_admits_no_more_than_a_fresh_one() {
    let stored = StoredKey::of("token-bucket 5/1d").await;
    let (_, fresh) = stored.fresh().await;
    stored.server.command(&[&b"DEL"[..], &stored.name[..]]);
    stored.acquire("a state to change").await;
    let bytes = stored.bytes();
    for at in 0..bytes.len() {
        for odd in [0, 1, 0x7f, 0x80, 0xc0, 0xce, 0xcf, 0xd2, 0xd3, 0xff] {
            let mut changed = bytes.clone();
            changed[at] = odd;
            stored.set(&changed);
            let context = format!("byte {at} is {odd:#x}");
            let mut admitted = 0;
            while admitted <= fresh && stored.acquire(&context).await.is_admitted() {
                admitted += 1;
            }
            assert!(admitted <= fresh, "{context}");
        }
    }
    stored.server.command(&[&b"DEL"[..], &stored.name[..]]);
}

/// Valid numbers are read in any encoding.
#[tokio::test]
async fn valid_states_are_read_in_other_encodings() {
    for text in RULES {
        let stored = StoredKey::of(text).await;
        let bytes = stored.bytes();
        let state = Value::take(&mut &bytes[..]);
        let [version, part] = state.items() else {
            continue;
        };
        let floats = part.items().iter().map(|number| match number {
            Int(number) => Float(*number as f64),
            other => other.clone(),
        });
        let floats = List(vec![version.clone(), List(floats.collect())]);
        let longer = [&bytes[..], &[7]].concat();
        let wide = state.bytes(Form::Wide);
        for value in [floats.bytes(Form::Short), wide, longer] {
            stored.set(&bytes);
            let expected = stored.acquire(text).await.remaining();
            stored.set(&value);
            let healed = stored.store.stats().healed;
            let found = stored.acquire(text).await.remaining();
            if !stored.goes_by_seconds() {
                assert_eq!(found, expected, "{text}: {value:?}");
            }
            assert_eq!(stored.store.stats().healed, healed, "{text}: {value:?}");
            stored.assert_proper(text);
        }
    }
}
