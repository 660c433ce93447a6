//! Expiry, clocks that step back or differ, and late answers.

use std::time::Duration;

use tollgate::{
    FixedWindow, SlidingWindow,
    algorithm::Counted,
    store::{
        StoreError,
        driver::{CounterStore, CounterStoreBuilder, Increment, Totals},
    },
    time::{Clock, ManualClock},
};

use super::{Node, acquire, cache::Cache, look, node, settle};

const SECOND: Duration = Duration::from_secs(1);
const NANO: Duration = Duration::from_nanos(1);

fn pass(clocks: [&ManualClock; 2], time: Duration) {
    clocks.iter().for_each(|clock| clock.advance(time));
}

/// A counter lives until its slice no longer counts on any host.
#[tokio::test]
async fn counters_expire_when_they_no_longer_count() {
    async fn check<Rule>(rule: Rule)
    where
        Rule: Counted,
    {
        let clock = ManualClock::default();
        clock.advance(Duration::from_millis(34_567));
        let cache = Cache::new(&clock);
        let store = node(&cache, &clock);
        assert!(acquire(&store, &rule, 1).await.unwrap().is_admitted());
        let slicing = rule.slicing().unwrap();
        let over = slicing.over(slicing.slice(clock.now()));
        clock.set(over.saturating_add(SECOND - NANO));
        assert_eq!(cache.only(), 1);
        clock.advance(NANO);
        assert_eq!(cache.counters().len(), 0);
    }
    check(FixedWindow::per_minute(5)).await;
    check(FixedWindow::per_minute(5).offset(SECOND)).await;
    check(SlidingWindow::per_minute(5)).await;
    check(SlidingWindow::per_minute(5).slices(7)).await;
}

/// The process's clock steps back, and the cache's does not.
#[tokio::test]
async fn a_clock_that_steps_back_admits_nothing_extra() {
    let [clock, other] = [(); 2].map(|()| ManualClock::default());
    let cache = Cache::new(&other);
    let (store, rule) = (node(&cache, &clock), FixedWindow::per_minute(5));
    assert!(look(&store, &rule).await.is_ok());
    let back = clock.now().as_nanos() - 3_600_000_000_000;
    clock.set(tollgate::Timestamp::from_nanos(back));
    let charged = acquire(&store, &rule, 5).await.unwrap();
    assert!(charged.is_admitted());
    // Almost an hour later it is still the same minute for this process, and the counter still
    // exists.
    for _ in 0..60 {
        assert!(!acquire(&store, &rule, 1).await.unwrap().is_admitted());
        pass([&clock, &other], Duration::from_secs(60));
    }
    // The process's clock has caught up.
    pass([&clock, &other], Duration::from_secs(60));
    assert!(acquire(&store, &rule, 5).await.unwrap().is_admitted());
}

/// Two hosts, half a second apart at the boundary of two windows. Each window has its limit, also
/// while the late host still uses the old one.
#[tokio::test]
async fn clocks_that_are_apart_share_the_counters_of_each_window() {
    let [early, late] = [(); 2].map(|()| ManualClock::default());
    early.advance(Duration::from_millis(500));
    let cache = Cache::new(&early);
    let [ahead, behind]: [Node<FixedWindow>; 2] = [node(&cache, &early), node(&cache, &late)];
    let rule = FixedWindow::per_minute(10);
    let mut admitted = 0;
    // Back and forth over six windows.
    for n in 0..6 * 60 * 4 {
        let node = if n % 2 == 0 { &ahead } else { &behind };
        admitted += u64::from(acquire(node, &rule, 1).await.unwrap().is_admitted());
        pass([&early, &late], Duration::from_millis(250));
    }
    let windows = 6 + 1;
    assert!((60..=10 * windows).contains(&admitted), "{admitted}");
    // A counter lives until its window is over for both hosts.
    assert!(cache.counters().into_values().all(|total| total <= 10));
}

/// Advances time while an addition is in flight.
struct Late {
    cache: Cache,
    clock: ManualClock,
    by: Duration,
}

impl Increment for Late {
    async fn add(
        &self,
        key: &[u8],
        amount: u64,
        keep: Duration,
        beside: &[Box<[u8]>],
    ) -> Result<Totals, StoreError> {
        let totals = self.cache.add(key, amount, keep, beside).await;
        self.clock.advance(self.by);
        totals
    }

    async fn subtract(&self, key: &[u8], amount: u64) -> Result<(), StoreError> {
        self.cache.subtract(key, amount).await
    }

    async fn read(&self, keys: &[Box<[u8]>]) -> Result<Vec<u64>, StoreError> {
        self.cache.read(keys).await
    }

    async fn remove(&self, keys: &[Box<[u8]>]) -> Result<(), StoreError> {
        self.cache.remove(keys).await
    }
}

fn late<Rule: Counted>(clock: &ManualClock, by: Duration) -> (Cache, CounterStore<Late, Rule>) {
    let cache = Cache::new(clock);
    let increment = Late {
        cache: cache.clone(),
        clock: clock.clone(),
        by,
    };
    let builder = CounterStoreBuilder::new(increment).clocks_apart(Duration::ZERO);
    (cache, builder.clock(clock.clone()).build())
}

#[tokio::test]
async fn an_answer_that_is_a_window_late_is_taken_back() {
    let clock = ManualClock::default();
    let rule = SlidingWindow::per_minute(5).slices(3);
    // From the start of a slice until it no longer counts.
    let (cache, store) = late(&clock, Duration::from_secs(80));
    assert!(acquire(&store, &rule, 2).await.unwrap_err().is_timeout());
    assert_eq!((cache.ops().adds, cache.ops().subtracts), (1, 1));
    // One nanosecond before that, three slices have begun without a count.
    clock.set(ManualClock::default().now());
    let (cache, store) = late(&clock, Duration::from_secs(80) - NANO);
    let decision = acquire(&store, &rule, 2).await.unwrap();
    assert_eq!(
        (decision.is_admitted(), decision.remaining()),
        (true, Some(3))
    );
    assert_eq!((cache.ops().reads, cache.ops().subtracts), (1, 0));
    // A fixed window is charged, however late the answer.
    let (cache, store) = late(&clock, Duration::from_secs(80));
    let decision = acquire(&store, &FixedWindow::per_minute(5), 2)
        .await
        .unwrap();
    assert!(decision.is_admitted());
    assert_eq!(cache.ops().all(), 1);
}

/// Counts in a slice that has not begun on the late host are seen. Time is clamped to the start of
/// that slice.
#[tokio::test]
async fn a_host_that_is_late_sees_what_is_counted_ahead() {
    let [early, late] = [(); 2].map(|()| ManualClock::default());
    let cache = Cache::new(&early);
    let [ahead, behind]: [Node<SlidingWindow>; 2] = [node(&cache, &early), node(&cache, &late)];
    let rule = SlidingWindow::per_minute(10);
    early.advance(Duration::from_millis(60_400));
    late.advance(Duration::from_millis(59_900));
    assert!(acquire(&ahead, &rule, 7).await.unwrap().is_admitted());
    let decision = acquire(&behind, &rule, 2).await.unwrap();
    assert_eq!(
        (decision.is_admitted(), decision.remaining()),
        (true, Some(1))
    );
    let refused = acquire(&behind, &rule, 2).await.unwrap();
    assert_eq!(
        (refused.is_admitted(), refused.remaining()),
        (false, Some(1))
    );
    // Both hosts see the same counters.
    assert_eq!(look(&ahead, &rule).await.unwrap().remaining(), Some(1));
    // The late host, too, settles a charge of the slice ahead where it was made.
    settle(&behind, &rule, &decision, 0).await.unwrap();
    assert_eq!(look(&ahead, &rule).await.unwrap().remaining(), Some(3));
}

/// A reset also clears counts of another host in a window that has not begun here, or is over here.
#[tokio::test]
async fn a_reset_reaches_hosts_that_are_early_or_late() {
    let [early, late] = [(); 2].map(|()| ManualClock::default());
    let cache = Cache::new(&early);
    let [ahead, behind]: [Node<FixedWindow>; 2] = [node(&cache, &early), node(&cache, &late)];
    let rule = FixedWindow::per_minute(10);
    early.advance(Duration::from_millis(60_400));
    late.advance(Duration::from_millis(59_900));
    for (asking, resetting) in [(&ahead, &behind), (&behind, &ahead)] {
        assert!(acquire(asking, &rule, 10).await.unwrap().is_admitted());
        resetting.learn(&rule).unwrap();
        let key = tollgate::key::Key::GLOBAL;
        let reset = tollgate::store::Store::reset(resetting, super::policy(), &key);
        reset.await.unwrap();
        assert_eq!(look(asking, &rule).await.unwrap().remaining(), Some(10));
    }
}

/// A settlement changes only the window that was charged.
#[tokio::test]
async fn settlements_change_only_their_window() {
    let clock = ManualClock::default();
    let cache = Cache::new(&clock);
    let (store, rule) = (node(&cache, &clock), FixedWindow::per_minute(10));
    let charged = acquire(&store, &rule, 4).await.unwrap();
    settle(&store, &rule, &charged, 6).await.unwrap();
    settle(&store, &rule, &charged, 4).await.unwrap();
    assert_eq!(cache.only(), 6);
    clock.advance(Duration::from_secs(60));
    acquire(&store, &rule, 3).await.unwrap();
    let before = cache.ops();
    for actual in [0, 9] {
        settle(&store, &rule, &charged, actual).await.unwrap();
    }
    assert_eq!(cache.ops(), before);
    // A charge with a time in the future is not settled.
    let mut charge = { charged }.take_charge().unwrap();
    charge.at = clock.now().saturating_add(Duration::from_secs(61));
    let settlement = tollgate::store::driver::Settlement::new(
        super::policy(),
        &rule,
        tollgate::key::Key::GLOBAL,
        charge,
        9,
    )
    .unwrap();
    tollgate::store::Store::settle(&store, vec![settlement])
        .await
        .unwrap();
    assert_eq!(cache.ops(), before);
}
