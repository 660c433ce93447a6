//! Settlements of invalid values.

use std::time::Duration;

use tollgate::{
    Charge,
    key::Key,
    store::{Store, driver::Settlement},
};

use super::{
    RULES, StoredKey, misshapen, policy,
    random::{Random, kinds},
    value::{Form, Value},
};

impl StoredKey {
    /// Settles a charge of this key, and in the same request a charge of a valid key.
    async fn settle(&self, random: &mut Random, context: &str) {
        let at = self.acquire_by(8, context).await.at();
        let mut settlements = Vec::new();
        for key in [7_u64, 8] {
            let ago = Duration::from_micros(random.below(2_000_000));
            let nanos = at.as_nanos().saturating_sub(ago.as_nanos() as u64);
            let at = if random.below(2) == 0 {
                at
            } else {
                tollgate::Timestamp::from_nanos(nanos)
            };
            let charge = Charge::new(at, 1 + random.below(3)).with_class(random.below(4) as u32);
            let charge = match random.below(3) {
                0 => charge,
                1 => charge.with_delay(None),
                _ => charge.with_delay(Some(Duration::from_micros(random.below(9_000_000)))),
            };
            let actual = *[0, 0, 1, 5, 1000, u64::MAX]
                .get(random.below(6) as usize)
                .unwrap();
            let key = Key::from(key);
            settlements.push(Settlement::new(policy(), &self.rule, key, charge, actual).unwrap());
        }
        if let Err(error) = self.store.settle(settlements).await {
            panic!("{}, {context}: {error:?}", self.rule);
        }
    }

    /// A settlement on any value is not an error. It leaves the value unchanged, or a state that
    /// every rule can read.
    async fn settle_odd(&self, bytes: &[u8], random: &mut Random, context: &str) -> bool {
        self.set(bytes);
        self.settle(random, context).await;
        let after = self.bytes_or_none();
        if after.as_deref() == Some(bytes) {
            return false;
        }
        let healed = self.store.stats().healed;
        self.acquire(context).await;
        let context = format!("{context}, settled to {after:?}");
        assert_eq!(
            self.store.stats().healed,
            healed,
            "{}, {context}",
            self.rule
        );
        true
    }
}

#[tokio::test]
async fn a_settlement_on_a_random_value_is_not_an_error() {
    let cases = support::cases(1200);
    for text in RULES {
        let stored = StoredKey::of(text).await;
        let bytes = stored.bytes();
        let state = Value::take(&mut &bytes[..]);
        let (mut random, mut written) = (Random::new(3), 0);
        for (what, value) in misshapen(state.items()) {
            for form in [Form::Short, Form::Wide] {
                let context = format!("{what} in {state:?}");
                let bytes = value.bytes(form);
                written += u64::from(stored.settle_odd(&bytes, &mut random, &context).await);
            }
        }
        let kinds = kinds(text);
        for n in 0..cases {
            let now = stored.acquire_by(8, text).await.at().as_nanos() as i64 / 1000;
            let value = random.value(&kinds, now);
            let context = format!("value {n}: {value:?}");
            let bytes = value.bytes(Form::Short);
            written += u64::from(stored.settle_odd(&bytes, &mut random, &context).await);
        }
        // A warm-up corrects only its last second, and few of these values belong to it.
        let least = u64::from(!stored.goes_by_seconds()) * cases / 15;
        assert!(written >= least, "{text}: {written}");
        assert_eq!(stored.store.stats().unsettled, 0, "{text}");
        stored.server.command(&[&b"DEL"[..], &stored.name[..]]);
    }
}
