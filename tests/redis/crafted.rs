//! Values under a key that are lists as the programs write them, but with odd numbers: what a bug or somebody left.

use tollgate::{
    AnyRule, Cost, Decision,
    key::Key,
    store::{Ask, Redis, Store},
};

use super::{
    only, policy,
    servers::{self, Reply},
};

/// One rule of each kind, under which nothing comes back while a test runs; but for warm-ups, which go by seconds.
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

/// A value in MessagePack.
#[derive(Clone, Debug)]
enum Value {
    Int(i64),
    Float(f64),
    Text(&'static str),
    Nil,
    Bool(bool),
    List(Vec<Value>),
    Map(Vec<(Value, Value)>),
}

use Value::{Bool, Float, Int, List, Map, Nil, Text};

/// Numbers as short as they can be, or in 64 bits, as the program for buckets alone writes them.
#[derive(Clone, Copy)]
enum Form {
    Short,
    Wide,
}

impl Value {
    fn put(&self, form: Form, bytes: &mut Vec<u8>) {
        match self {
            Int(number) if matches!(form, Form::Wide) => {
                bytes.push(0xd3);
                bytes.extend(number.to_be_bytes());
            }
            Int(number @ 0..=0x7f) => bytes.push(*number as u8),
            Int(number @ -32..=-1) => bytes.push(*number as u8),
            Int(number @ 0..=0xff) => bytes.extend([0xcc, *number as u8]),
            Int(number @ 0..=0xffff) => {
                bytes.push(0xcd);
                bytes.extend((*number as u16).to_be_bytes());
            }
            Int(number @ 0..=0xffff_ffff) => {
                bytes.push(0xce);
                bytes.extend((*number as u32).to_be_bytes());
            }
            Int(number) => {
                bytes.push(if *number < 0 { 0xd3 } else { 0xcf });
                bytes.extend(number.to_be_bytes());
            }
            Float(number) => {
                bytes.push(0xcb);
                bytes.extend(number.to_be_bytes());
            }
            Text(text) => {
                bytes.push(0xa0 | text.len() as u8);
                bytes.extend(text.as_bytes());
            }
            Nil => bytes.push(0xc0),
            Bool(value) => bytes.push(0xc2 | u8::from(*value)),
            List(values) => {
                match u8::try_from(values.len()) {
                    Ok(len @ ..16) => bytes.push(0x90 | len),
                    _ => bytes.extend([0xdc, (values.len() >> 8) as u8, values.len() as u8]),
                }
                // The version and the kinds are always short.
                for (n, value) in values.iter().enumerate() {
                    value.put(if n == 0 { Form::Short } else { form }, bytes);
                }
            }
            Map(pairs) => {
                bytes.push(0x80 | pairs.len() as u8);
                for (name, value) in pairs {
                    name.put(form, bytes);
                    value.put(form, bytes);
                }
            }
        }
    }

    fn bytes(&self, form: Form) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.put(form, &mut bytes);
        bytes
    }

    /// What the programs write: short lists and whole numbers.
    fn take(bytes: &mut &[u8]) -> Self {
        let (first, rest) = bytes.split_first().unwrap();
        *bytes = rest;
        let wide = |bytes: &mut &[u8], width: usize| {
            let (number, rest) = bytes.split_at(width);
            *bytes = rest;
            number
                .iter()
                .fold(0, |sum, byte| sum << 8 | i64::from(*byte))
        };
        match *first {
            0x90..=0x9f => List((0..first & 0xf).map(|_| Self::take(bytes)).collect()),
            0..=0x7f => Int((*first).into()),
            0xe0.. => Int((*first as i8).into()),
            0xcc..=0xcf => Int(wide(bytes, 1 << (first - 0xcc))),
            0xd3 => Int(wide(bytes, 8)),
            other => panic!("expected a list or a number, found {other:#x}"),
        }
    }

    fn items(&self) -> &[Value] {
        match self {
            List(values) => values,
            other => panic!("expected a list, found {other:?}"),
        }
    }
}

/// A rule, a client, and what lies under its key.
struct Place {
    server: servers::Redis,
    store: Redis<AnyRule>,
    rule: AnyRule,
    name: Vec<u8>,
}

impl Place {
    async fn of(text: &str) -> Self {
        let server = servers::Redis::start();
        let store = Redis::connect(server.url()).await.unwrap();
        let mut place = Self {
            server,
            store,
            rule: text.parse().unwrap(),
            name: Vec::new(),
        };
        place.acquire("the first call").await;
        place.name = place.server.keys().remove(0);
        place
    }

    fn set(&self, bytes: &[u8]) {
        self.server.command(&[b"SET", &self.name[..], bytes]);
    }

    fn bytes(&self) -> Vec<u8> {
        match self.server.reply(&[b"GET", &self.name[..]]) {
            Reply::Bytes(bytes) => bytes,
            other => panic!("expected a state, found {other:?}"),
        }
    }

    async fn acquire(&self, context: &str) -> Decision {
        let ask = Ask::new(policy(), &self.rule, Key::from(7_u64), Cost::ONE);
        match self.store.acquire(&[ask]).await {
            Ok(decisions) => only(decisions),
            Err(error) => panic!("{}, {context}: {error:?}", self.rule),
        }
    }

    /// The first decision, how many calls in a row are admitted, and how many states were healed meanwhile.
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

    /// What lies there is a state that expires.
    fn assert_proper(&self, context: &str) {
        let bytes = self.bytes();
        let state = Value::take(&mut &bytes[..]);
        assert!(state.items().len() > 1, "{context}: {state:?}");
        let left: i64 = self
            .server
            .command(&[b"PTTL", &self.name[..]])
            .parse()
            .unwrap();
        assert!(left > 0, "{}, {context}: {left} ms", self.rule);
    }

    /// What is told of a key of which nothing is known, and how often that is admitted.
    async fn fresh(&self) -> (Decision, u64) {
        self.server.command(&[b"DEL", &self.name[..]]);
        let (first, admitted, healed) = self.drain("a fresh key").await;
        assert_eq!(healed, 0);
        assert!((1..100).contains(&admitted), "{admitted}");
        (first, admitted)
    }

    /// Whether time changes what passes.
    fn goes_by_seconds(&self) -> bool {
        matches!(self.rule, AnyRule::WarmUp(_))
    }
}

/// Values that are no numbers of any state.
fn odd_numbers() -> Vec<Value> {
    let mut odd = vec![
        Float(1.5),
        Float(f64::NAN),
        Float(f64::INFINITY),
        Float(f64::NEG_INFINITY),
        Float(1e300),
        Float(-0.5),
        Int(1 << 53),
        Int(1 << 60),
        Int(-1 << 60),
        Int(i64::MIN),
        Int(i64::MAX),
        Text("7"),
        Text("x"),
        Text(""),
        Nil,
        Bool(true),
        Bool(false),
        List(vec![]),
        List(vec![Int(1)]),
    ];
    odd.push(Map(vec![(Int(1), Int(1))]));
    odd
}

/// States with one odd number, or of another shape.
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
async fn what_no_rule_writes_is_healed() {
    for text in RULES {
        let place = Place::of(text).await;
        let fresh = place.fresh().await;
        place.server.command(&[b"DEL", &place.name[..]]);
        place.acquire("a state to misshape").await;
        let bytes = place.bytes();
        let state = Value::take(&mut &bytes[..]);
        assert!(
            [Form::Short, Form::Wide]
                .iter()
                .any(|form| state.bytes(*form) == bytes),
            "{state:?}"
        );
        let cases = misshapen(state.items());
        assert!(cases.len() > 40, "{text}");
        for ((what, value), form) in cases
            .iter()
            .flat_map(|case| [(case, Form::Short), (case, Form::Wide)])
        {
            let context = format!("{text}, {what} in {state:?}");
            place.set(&value.bytes(form));
            let (first, admitted, healed) = place.drain(&context).await;
            assert_eq!(healed, 1, "{context}");
            if text.contains('&') {
                // The other rule may know the key.
                assert!(
                    admitted >= 1 && admitted <= fresh.1,
                    "{context}: {admitted}"
                );
                continue;
            }
            assert_eq!(first.remaining(), fresh.0.remaining(), "{context}");
            if !place.goes_by_seconds() {
                assert_eq!(admitted, fresh.1, "{context}");
            }
        }
    }
}

/// Numbers that lie within what is written are read, however they are.
#[tokio::test]
async fn what_a_rule_writes_is_read_in_other_forms() {
    for text in RULES {
        let place = Place::of(text).await;
        let bytes = place.bytes();
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
            place.set(&bytes);
            let expected = place.acquire(text).await.remaining();
            place.set(&value);
            let healed = place.store.stats().healed;
            let found = place.acquire(text).await.remaining();
            if !place.goes_by_seconds() {
                assert_eq!(found, expected, "{text}: {value:?}");
            }
            assert_eq!(place.store.stats().healed, healed, "{text}: {value:?}");
            place.assert_proper(text);
        }
    }
}

/// As splitmix64.
struct Random(u64);

impl Random {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ z >> 31) % most
    }

    /// A number, mostly as it could stand in a state at `now`, in microseconds.
    fn number(&mut self, now: i64) -> Value {
        let near = self.below(2_000_000) as i64 - 1_000_000;
        match self.below(16) {
            0 => Int(now + near),
            1 => Int(now / 1_000_000 + near / 1_000_000),
            2 => Int((1 << 53) - 1 - self.below(3) as i64),
            3 => Int(self.below(1 << 53) as i64),
            4 => Int(-(self.below(1 << 53) as i64)),
            5 => Int((1 << self.below(62)) - 1),
            6 => odd_numbers().swap_remove(self.below(20) as usize),
            7 => Float(self.below(100) as f64),
            8 => Int(now - self.below(1 << 45) as i64),
            _ => Int(self.below(8) as i64),
        }
    }

    fn state(&mut self, kinds: &[i64], now: i64) -> Value {
        let mut parts = vec![Int(1)];
        for kind in kinds {
            let mut numbers = vec![Int(*kind)];
            if *kind != 0 {
                for n in 0..3 + self.below(5) {
                    // Most kinds begin with an instant.
                    let number = if n == 0 && self.below(2) == 0 {
                        Int(now - self.below(10_000_000) as i64)
                    } else {
                        self.number(now)
                    };
                    numbers.push(number);
                }
            }
            parts.push(List(numbers));
        }
        match self.below(30) {
            0 => {
                let at = self.below(parts.len() as u64) as usize;
                parts[at] = self.number(now);
            }
            1 => parts.push(List(vec![self.number(now), self.number(now)])),
            2 => drop(parts.pop()),
            _ => {}
        }
        List(parts)
    }
}

/// Whatever lies there: no error, no more than a key can ever get at once, and a state afterwards.
#[tokio::test]
async fn whatever_lies_there_opens_no_gate() {
    let kinds = |text: &str| -> Vec<i64> {
        let names = [
            "token",
            "fixed",
            "sliding-window",
            "sliding-log",
            "leaky",
            "cascade",
            "three",
            "warm-up ",
            "warm-up-spaced",
        ];
        let own = text.split(" & ").map(|rule| {
            let place = names.iter().rposition(|name| rule.starts_with(name));
            place.unwrap() as i64 + 1
        });
        if text.contains('&') {
            [0].into_iter().chain(own).collect()
        } else {
            own.collect()
        }
    };
    for text in RULES {
        let place = Place::of(text).await;
        let kinds = kinds(text);
        let (fresh, _) = place.fresh().await;
        let most = if text.starts_with("warm-up") {
            fresh.limit().unwrap()
        } else {
            fresh.remaining().unwrap() + 1
        };
        let mut random = Random(kinds[0] as u64);
        let (mut admitted, mut healed) = (0, 0);
        for n in 0..400 {
            let now = fresh.at().as_nanos() as i64 / 1000;
            let value = random.state(&kinds, now);
            let form = *[Form::Short, Form::Short, Form::Wide]
                .get(random.below(3) as usize)
                .unwrap();
            let context = format!("value {n}: {value:?}");
            place.set(&value.bytes(form));
            let before = place.store.stats().healed;
            let first = place.acquire(&context).await;
            healed += place.store.stats().healed - before;
            if !first.is_admitted() {
                continue;
            }
            admitted += 1;
            assert!(
                first.remaining() < Some(most) || text.contains("spaced"),
                "{context}: {first:?}"
            );
            place.assert_proper(&context);
            let before = place.store.stats().healed;
            place.acquire(&context).await;
            assert_eq!(place.store.stats().healed, before, "{text}, {context}");
        }
        assert!(
            admitted > 100 && healed > 100,
            "{text}: {admitted}, {healed}"
        );
    }
}
