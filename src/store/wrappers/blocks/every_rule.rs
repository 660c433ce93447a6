//! Keys of each rule in the registry can be blocked, and the states of the rule are as ever.

use std::time::Duration;

#[cfg(feature = "redis")]
use crate::algorithm::Scripted;
use crate::{
    algorithm::{self, Algorithm, AnyRule, Blockable, Codec},
    decision::Cost,
    policy::Policy,
    store::{Ask, Check, LocalBuilder, Store, StoreExt},
    time::{Clock, ManualClock},
};

fn is_admitted<Rule, S: Store<Rule>>(store: &S, rule: &Rule) -> bool {
    let policy = Policy::new("api");
    match store.acquire(&[Ask::new(&policy, rule, "mallory".into(), Cost::ONE)]) {
        Check::Ready(Ok(decisions)) => decisions.is_admitted(),
        _ => panic!("`Local` answers at once"),
    }
}

fn can_be_blocked<Rule: Algorithm<State: Codec>>(rule: Rule) {
    let clock = ManualClock::default();
    let store = LocalBuilder::new().clock(clock.clone()).build();
    let store = store.with_blocks();
    assert!(is_admitted(&store, &rule));
    let (policy, minute) = (Policy::new("api"), Duration::from_secs(60));
    let blocked = store.block::<Rule>(&policy, "mallory", minute).unwrap();
    assert!(matches!(blocked, Check::Ready(Ok(Some(left))) if left == minute));
    clock.advance(minute - Duration::from_nanos(1));
    assert!(!is_admitted(&store, &rule));
    clock.advance(Duration::from_nanos(1));
    assert!(is_admitted(&store, &rule));
}

/// Makes a call by the rule alone and by the blockable one, and expects equal decisions and bytes.
fn has_equal_states<Rule: Algorithm<State: Codec>>(rule: &Rule) {
    let (now, blockable) = (ManualClock::default().now(), Blockable::from(rule.clone()));
    let (mut own, mut state) = (None, None);
    let expected = rule.step(&mut own, now, Cost::ONE);
    assert_eq!(blockable.step(&mut state, now, Cost::ONE), expected);
    assert_eq!(blockable.state_kind(), rule.state_kind());
    let bytes = own.as_ref().map(Codec::to_bytes);
    assert_eq!(state.as_ref().map(Codec::to_bytes), bytes);
    type State<Rule> = <Blockable<Rule> as Algorithm>::State;
    let read = State::<Rule>::from_bytes(&bytes.unwrap()).unwrap();
    assert_eq!(
        blockable.look(Some(&read), now),
        rule.look(own.as_ref(), now)
    );
}

#[cfg(feature = "redis")]
fn has_equal_parts<Rule: Scripted>(rule: &Rule) {
    let (now, blockable) = (ManualClock::default().now(), Blockable::from(rule.clone()));
    let (mut own, mut state) = (None, None);
    rule.step(&mut own, now, Cost::ONE);
    blockable.step(&mut state, now, Cost::ONE);
    let (mut expected, mut parts) = (Vec::new(), Vec::new());
    rule.rule_parts(&mut expected).unwrap();
    blockable.rule_parts(&mut parts).unwrap();
    assert_eq!(parts, expected);
    let (mut expected, mut parts) = (Vec::new(), Vec::new());
    rule.state_parts(&own.unwrap(), &mut expected);
    blockable.state_parts(&state.unwrap(), &mut parts);
    assert_eq!(parts, expected);
    assert!(blockable.state_of_parts(&parts).is_some());
}

macro_rules! each_rule {
    ($($folder:ident { $Rule:ident, $State:ident } name $name:literal, tag $tag:literal, kind $kind:literal, lua $lua:tt, text $text:literal;)+) => {$({
        let example = $text.split('`').nth(1).unwrap();
        let rule: algorithm::$Rule = example.parse().unwrap();
        let any: AnyRule = example.parse().unwrap();
        has_equal_states(&rule);
        has_equal_states(&any);
        has_equal_states(&(rule.clone(), any.clone()));
        #[cfg(feature = "redis")]
        {
            has_equal_parts(&rule);
            has_equal_parts(&any);
        }
        can_be_blocked((rule.clone(), any.clone()));
        can_be_blocked(rule);
        can_be_blocked(any);
    })+};
}

#[test]
fn every_rule_can_be_blocked() {
    algorithm::algorithms!(each_rule);
    let all: AnyRule = "token-bucket 9/1s & sliding-log 9/1m".parse().unwrap();
    has_equal_states(&all);
    can_be_blocked(all);
}
