//! Rules of very different periods that charge one key of the store in memory: a debt is kept as
//! long as any rule that charged the key needs it.

use std::{collections::HashMap, time::Duration};

use proptest::prelude::*;
use tollgate::{
    AnyRule, Charge, Cost, Decision, Policy, Timestamp, TokenBucket,
    algorithm::Algorithm,
    store::{
        AtCapacity, Local, LocalBuilder, Store,
        driver::{Ask, Check, Decisions, Settlement},
    },
    time::{Clock, ManualClock},
};

const SECOND: u64 = 1_000_000_000;

/// A store under test; its clock stands at noon of some day.
struct Shop<A: Algorithm> {
    clock: ManualClock,
    store: Local<A, ManualClock>,
    policy: Policy,
}

impl<A: Algorithm> Shop<A> {
    fn new(capacity: usize, at_capacity: AtCapacity) -> Self {
        let clock = ManualClock::new(Timestamp::from_nanos(1_767_268_800 * SECOND));
        let store = LocalBuilder::new()
            .capacity(capacity)
            .at_capacity(at_capacity)
            .clock(clock.clone())
            .build();
        let policy = Policy::default();
        Self {
            clock,
            store,
            policy,
        }
    }

    fn spend(&self, rule: &A, key: u64, cost: u64) -> Decision {
        let cost = Cost::new(cost).unwrap();
        self.store
            .decide(&Ask::new(&self.policy, rule, key.into(), cost))
    }

    fn together(&self, asks: &[(&A, u64, u64)]) -> Decisions {
        let ask = |(rule, key, cost): (_, u64, _)| {
            Ask::new(&self.policy, rule, key.into(), Cost::new(cost).unwrap())
        };
        let asks: Vec<_> = asks.iter().copied().map(ask).collect();
        match self.store.acquire(&asks) {
            Check::Ready(Ok(decisions)) => decisions,
            Check::Pending(_) => unreachable!("memory answers at once"),
        }
    }

    fn settle(&self, rule: &A, key: u64, charge: Charge, actual: u64) {
        let settlement = Settlement::new(&self.policy, rule, key.into(), charge, actual).unwrap();
        let done = self.store.settle(vec![settlement]);
        assert!(matches!(done, Check::Ready(Ok(()))));
    }

    fn advance(&self, seconds: u64) {
        self.clock.advance(Duration::from_secs(seconds));
    }

    /// Keys that come once, and look for places that can be had.
    fn others_come(&self, rule: &A) {
        for key in 1_000..1_100 {
            self.spend(rule, key, 1);
        }
    }

    fn remaining(&self, rule: &A, key: u64) -> u64 {
        let look = self.store.look(&self.policy, rule, &key.into());
        look.remaining().unwrap()
    }
}

/// In the table, and in the map.
fn long_and_short() -> [[AnyRule; 2]; 2] {
    ["token-bucket", "cascade"]
        .map(|name| [100, 5].map(|burst| format!("{name} 1/1s burst={burst}").parse().unwrap()))
}

#[test]
fn a_refund_by_a_shorter_rule_forgets_no_debt_of_a_longer_one() {
    for [long, short] in long_and_short() {
        let shop = Shop::new(1_000, AtCapacity::InheritDebts);
        assert!(shop.spend(&long, 1, 95).is_admitted());
        let charge = shop.spend(&short, 1, 1).take_charge().unwrap();
        shop.settle(&short, 1, charge, 0);
        assert_eq!(shop.remaining(&long, 1), 5);
        shop.others_come(&short);
        assert_eq!(shop.spend(&long, 1, 6).remaining(), Some(5));
    }
}

#[test]
fn a_charge_by_a_shorter_rule_forgets_no_debt_of_a_longer_one() {
    for [long, short] in long_and_short() {
        for listed in [false, true] {
            let shop = Shop::new(12, AtCapacity::RefuseNewcomers);
            assert!(shop.spend(&long, 1, 95).is_admitted());
            if listed {
                assert!(
                    shop.together(&[(&short, 2, 1), (&short, 1, 1)])
                        .is_admitted()
                );
            } else {
                assert!(shop.spend(&short, 1, 1).is_admitted());
            }
            shop.advance(20);
            shop.others_come(&short);
            let left = shop.remaining(&long, 1);
            assert!((23..=24).contains(&left), "{left}");
        }
    }
}

/// The longer rule is charged in the same request as the shorter one, which writes last.
#[test]
fn of_several_rules_in_one_request_the_longest_is_remembered() {
    for [long, short] in long_and_short() {
        let shop = Shop::new(12, AtCapacity::RefuseNewcomers);
        let both = shop.together(&[(&long, 1, 95), (&short, 1, 1)]);
        assert!(both.is_admitted());
        shop.advance(20);
        shop.others_come(&short);
        assert!(shop.remaining(&long, 1) <= 24);
    }
}

/// A key that goes over from the table to the map, by a rule that has no marks.
#[test]
fn a_rule_without_marks_forgets_no_debt_of_a_rule_with_marks() {
    let long = TokenBucket::per_second(1).burst(100);
    let short = long.burst(5).initial(4).keep(Duration::ZERO);
    let shop = Shop::new(12, AtCapacity::RefuseNewcomers);
    assert!(shop.spend(&long, 1, 95).is_admitted());
    assert!(shop.spend(&short, 1, 1).is_admitted());
    shop.advance(20);
    shop.others_come(&short);
    assert!(shop.remaining(&long, 1) <= 24);
}

/// A client that has its choice of endpoints: the longer rule once, then the shorter one, and a
/// pause for as long as that remembers.
#[test]
fn nobody_gains_by_choosing_the_rule() {
    for [long, short] in long_and_short() {
        let shop = Shop::new(12, AtCapacity::RefuseNewcomers);
        let mut admitted = 0;
        for second in 0..400_u64 {
            let (round, rules) = (second % 106, [&long, &short]);
            let rule = rules[usize::from(round > 0)];
            while round < 100 && shop.spend(rule, 1, 1).is_admitted() {
                admitted += 1;
            }
            shop.others_come(&short);
            assert!(admitted <= 100 + second, "{admitted} after {second} s");
            shop.advance(1);
        }
        assert!(admitted > 360, "{admitted}");
    }
}

/// A call under the shorter rule keeps only what that rule counts, but both have one budget.
#[test]
fn windows_of_different_lengths_share_one_budget() {
    for name in ["fixed-window", "sliding-window", "sliding-log"] {
        let rule = |quota| format!("{name} {quota}").parse::<AnyRule>().unwrap();
        let rules = ["100/1m", "1000/1h"].map(rule);
        let shop = Shop::new(1_000, AtCapacity::InheritDebts);
        for minute in 0..70 {
            let mut admitted = 0;
            for rule in &rules {
                while shop.spend(rule, 1, 1).is_admitted() {
                    admitted += 1;
                }
            }
            assert!(admitted <= 1000, "{name}: {admitted} in minute {minute}");
            shop.advance(60);
        }
    }
}

/// The verdict of one rule's exact meter on all that the key was charged for since that rule
/// charged it first, by this and all shorter rules. (A longer one may spend what this one's bucket
/// has no room for.)
///
/// Credit carries over as time, so a charge takes the time of the rule that made it. Counted in
/// sevenths of a nanosecond, in which all intervals here are whole.
#[derive(Clone, Copy)]
struct Exact {
    interval: u64,
    burst: u64,
    /// When it is full again.
    full_at: u64,
}

impl Exact {
    fn holds(&self, now: u64, cost: u64) -> bool {
        self.full_at.max(now) + cost * self.interval <= now + self.burst * self.interval
    }

    fn charge(&mut self, now: u64, by: &(u64, u64), units: u64) {
        let (interval, burst) = by;
        if interval * burst <= self.interval * self.burst {
            self.full_at = self.full_at.max(now) + interval * units;
        }
    }
}

/// A rule of one kind: those of another kind begin a key afresh.
#[derive(Clone, Debug)]
struct Rule {
    rule: AnyRule,
    kind: &'static str,
    /// Interval and burst of the buckets that it consists of.
    buckets: Vec<(u64, u64)>,
}

fn rules() -> Vec<Rule> {
    let second = 7 * SECOND;
    // Interval and name of a rate.
    let rates = [
        (second, "1/1s"),
        // Rounded down to a third of a nanosecond, which is a whole nanosecond.
        (7 * 1_000_142_857, "7/7001ms"),
        (second / 4, "4/1s"),
        (second * 60, "1/1m"),
        (second / 50, "50/1s"),
    ];
    let mut rules = Vec::new();
    for (interval, rate) in rates {
        for burst in [1, 2, 5, 30, 100, 1_000] {
            rules.push(Rule {
                rule: format!("token-bucket {rate} burst={burst}")
                    .parse()
                    .unwrap(),
                kind: "bucket",
                buckets: vec![(interval, burst)],
            });
        }
        // In the map.
        for burst in [2, 20, 200] {
            rules.push(Rule {
                rule: format!("cascade {rate} burst={burst}").parse().unwrap(),
                kind: "cascade",
                buckets: vec![(interval, burst)],
            });
        }
        for queue in [1, 9, 99] {
            rules.push(Rule {
                rule: format!("leaky-bucket {rate} queue={queue}")
                    .parse()
                    .unwrap(),
                kind: "queue",
                buckets: vec![(interval, queue + 1)],
            });
        }
    }
    for burst in [2, 20, 200] {
        let text = format!("token-bucket 1/1s burst={burst} & token-bucket 7/7001ms burst={burst}");
        rules.push(Rule {
            rule: text.parse().unwrap(),
            kind: "pair",
            buckets: vec![(second, burst), (7 * 1_000_142_857, burst)],
        });
    }
    // Windows of one length, and logs of one: what a shorter one has dropped is counted by no
    // longer one.
    for (kind, text) in [
        ("window", "fixed-window 9/1m"),
        ("window", "fixed-window 3/1m"),
        ("log", "sliding-log 9/1m"),
        ("log", "sliding-log 3/1m"),
    ] {
        rules.push(Rule {
            rule: text.parse().unwrap(),
            kind,
            buckets: Vec::new(),
        });
    }
    rules
}

/// A charge of a key.
#[derive(Default)]
struct Account {
    kind: &'static str,
    /// By rule, those of its buckets.
    meters: HashMap<usize, Vec<Exact>>,
    /// Instants and units, of windows and logs.
    passed: Vec<(u64, u64)>,
    charge: Option<(usize, Charge)>,
}

struct Run {
    shop: Shop<AnyRule>,
    rules: Vec<Rule>,
    accounts: HashMap<u64, Account>,
}

#[derive(Clone, Debug)]
enum Op {
    Spend(Call),
    /// Spends all that there is.
    Drain(Call),
    Together(Vec<Call>),
    Settle {
        key: u64,
        actual: u64,
    },
    /// Others come, who look for places that can be had.
    Others(Call),
    /// So many thousandths of what a rule's bucket takes to fill pass.
    Advance(Call, u64),
}

#[derive(Clone, Copy, Debug)]
struct Call {
    /// Of the few rules of a run.
    rule: usize,
    key: u64,
    cost: u64,
}

impl Run {
    fn now(&self) -> u64 {
        7 * (self.shop.clock.now().as_nanos() - 1_767_268_800 * SECOND)
    }

    /// A call has passed: so it must by the exact meters.
    fn passed(&mut self, call: Call, charge: Option<Charge>) -> Result<(), TestCaseError> {
        let now = self.now();
        let Rule { kind, buckets, .. } = &self.rules[call.rule];
        let account = self.accounts.entry(call.key).or_default();
        if account.kind != *kind {
            *account = Account::default();
            account.kind = kind;
        }
        let begin = || {
            let exact = |&(interval, burst)| Exact {
                interval,
                burst,
                full_at: now,
            };
            buckets.iter().map(exact).collect()
        };
        let own = account.meters.entry(call.rule).or_insert_with(begin);
        for meter in own {
            prop_assert!(meter.holds(now, call.cost), "above its limit: {:?}", call);
        }
        account.charge(buckets, now, call.cost);
        account.passed.push((now, call.cost));
        let (minute, since) = (7 * 60 * SECOND, |at| now - at);
        let counts = |at: u64| match *kind {
            // Noon began one.
            "window" => at / minute == now / minute,
            "log" => since(at) < minute,
            _ => false,
        };
        let passed = account.passed.iter().filter(|(at, _)| counts(*at));
        let passed: u64 = passed.map(|(_, cost)| cost).sum();
        let look = self.rules[call.rule].rule.look(None, Timestamp::default());
        prop_assert!(Some(passed) <= look.remaining(), "{} of {:?}", passed, call);
        account.charge = charge.map(|charge| (call.rule, charge));
        Ok(())
    }

    fn run(mut self, ops: Vec<Op>) -> Result<(), TestCaseError> {
        for op in ops {
            match op.clone() {
                Op::Spend(mut call) | Op::Drain(mut call) => {
                    let rule = self.rules[call.rule].rule.clone();
                    if let Op::Drain(_) = op {
                        call.cost = self.shop.remaining(&rule, call.key).max(1);
                    }
                    let decision = self.shop.spend(&rule, call.key, call.cost);
                    if decision.is_admitted() && !decision.is_undecided() {
                        self.passed(call, { decision }.take_charge())?;
                    }
                }
                Op::Together(calls) => {
                    let rules = calls.iter().map(|call| self.rules[call.rule].rule.clone());
                    let rules: Vec<_> = rules.collect();
                    let asks = calls.iter().zip(&rules);
                    let asks: Vec<_> = asks
                        .map(|(call, rule)| (rule, call.key, call.cost))
                        .collect();
                    let decisions = self.shop.together(&asks);
                    if decisions.is_admitted() {
                        for (call, decision) in calls.iter().zip(decisions.as_slice()) {
                            if !decision.is_undecided() {
                                self.passed(*call, { *decision }.take_charge())?;
                            }
                        }
                    }
                }
                Op::Settle { key, actual } => self.settle(key, actual),
                Op::Others(call) => self.shop.others_come(&self.rules[call.rule].rule),
                Op::Advance(call, share) => {
                    let buckets = self.rules[call.rule].buckets.iter();
                    let fill = buckets.map(|(interval, burst)| interval * burst / 7).max();
                    let nanos = fill.unwrap_or(60 * SECOND) / 1_000 * share;
                    self.shop.clock.advance(Duration::from_nanos(nanos));
                }
            }
            let stats = self.shop.store.stats();
            let gone = stats.forgotten + stats.evicted;
            prop_assert_eq!(stats.inserted, stats.keys as u64 + gone, "{:?}", stats);
            prop_assert!(stats.keys <= stats.capacity);
        }
        Ok(())
    }

    fn settle(&mut self, key: u64, actual: u64) {
        let now = self.now();
        let account = self.accounts.entry(key).or_default();
        let Some((by, charge)) = account.charge.take() else {
            return;
        };
        let Rule { rule, buckets, .. } = &self.rules[by];
        let cost = charge.cost;
        self.shop.settle(rule, key, charge, actual);
        if let Some(more) = actual.checked_sub(cost) {
            // Without room for it, it is lost.
            if self.shop.store.stats().turned_away == 0 {
                account.charge(buckets, now, more);
            }
            return;
        }
        let less = cost - actual;
        if let Some(last) = account.passed.last_mut() {
            last.1 -= less;
        }
        for meters in account.meters.values_mut() {
            for (meter, (interval, _)) in meters.iter_mut().zip(buckets) {
                meter.full_at = meter.full_at.saturating_sub(interval * less);
            }
        }
    }
}

impl Account {
    /// The rules that have charged the key so far see what is charged.
    fn charge(&mut self, buckets: &[(u64, u64)], now: u64, units: u64) {
        for meters in self.meters.values_mut() {
            for (meter, by) in meters.iter_mut().zip(buckets) {
                meter.charge(now, by, units);
            }
        }
    }
}

fn call() -> impl Strategy<Value = Call> {
    let call = |(rule, key, cost)| Call { rule, key, cost };
    (
        0..RULES,
        0..2_u64,
        prop_oneof![2 => Just(1), 1 => 1..90_u64],
    )
        .prop_map(call)
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        4 => call().prop_map(Op::Spend),
        4 => call().prop_map(Op::Drain),
        3 => prop::collection::vec(call(), 1..4).prop_map(Op::Together),
        2 => (0..2_u64, prop_oneof![2 => Just(0), 1 => 0..20_u64])
            .prop_map(|(key, actual)| Op::Settle { key, actual }),
        3 => call().prop_map(Op::Others),
        4 => (call(), 0..1_500_u64).prop_map(|(call, share)| Op::Advance(call, share)),
    ];
    prop::collection::vec(op, 1..60)
}

/// Rules in a run: their lengths lie far apart, mostly.
const RULES: usize = 3;

/// A few rules of some kinds.
fn few(kinds: &'static [&'static str]) -> impl Strategy<Value = Vec<Rule>> {
    let mut rules = rules();
    rules.retain(|rule| kinds.contains(&rule.kind));
    prop::collection::vec(prop::sample::select(rules), RULES)
}

/// Nobody is pushed out: only then is a debt known for as long as the longest rule sees it.
fn nobody_is_admitted_above_a_limit(
    rules: Vec<Rule>,
    ops: Vec<Op>,
    capacity: usize,
    choice: AtCapacity,
) -> Result<(), TestCaseError> {
    let run = Run {
        shop: Shop::new(capacity, choice),
        rules,
        accounts: HashMap::new(),
    };
    run.run(ops)
}

/// All keys find room, or those that do not are turned away or let through.
fn room() -> impl Strategy<Value = (usize, AtCapacity)> {
    prop_oneof![
        Just((200, AtCapacity::InheritDebts)),
        (1..40_usize).prop_map(|capacity| (capacity, AtCapacity::RefuseNewcomers)),
        (1..40_usize).prop_map(|capacity| (capacity, AtCapacity::AdmitNewcomers)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: support::cases(1_000) as u32, ..ProptestConfig::default() })]

    #[test]
    fn a_debt_is_remembered_for_the_longest_rule_that_charged_it(
        rules in few(&["bucket"]), ops in ops(), (capacity, choice) in room(),
    ) {
        nobody_is_admitted_above_a_limit(rules, ops, capacity, choice)?;
    }

    #[test]
    fn a_debt_of_any_kind_is_remembered_for_the_longest_rule_that_charged_it(
        rules in few(&["bucket", "queue", "pair", "window", "log"]), ops in ops(), (capacity, choice) in room(),
    ) {
        nobody_is_admitted_above_a_limit(rules, ops, capacity, choice)?;
    }

    #[test]
    fn queues_pairs_windows_and_logs_are_remembered_for_the_longest_rule_that_charged_them(
        rules in prop_oneof![few(&["queue"]), few(&["pair"]), few(&["window"]), few(&["log"])],
        ops in ops(),
        (capacity, choice) in room(),
    ) {
        nobody_is_admitted_above_a_limit(rules, ops, capacity, choice)?;
    }
}
