//! A clean shutdown gives back what is left.

use std::time::Duration;

use tollgate::{
    Cost, FixedWindow, Policy, Quota, SlidingWindow, TokenBucket,
    algorithm::{Leasable, SlidingLog},
    store::{LeaseConfig, Store, driver::Ask},
    time::ManualClock,
};

use crate::leases::{
    map_store::MapStore,
    shared::{Node, admitted, node},
};

async fn remaining<R>(store: &Node<R>, rule: &R) -> u64
where
    R: Leasable,
{
    let policy = Policy::new("api");
    let ask = Ask::new(&policy, rule, "alice".into(), Cost::ONE);
    let looked = store.look(&[ask]).await.unwrap();
    looked.as_slice()[0].remaining().unwrap()
}

async fn gives_back<R>(rule: R, if_others_leased: bool)
where
    R: Leasable + std::fmt::Display + Send + Sync + 'static,
{
    for others in [0, 1] {
        let (clock, states) = (ManualClock::default(), MapStore::default());
        clock.advance(Duration::from_secs(1_000_000));
        let [a, b] = [(); 2].map(|()| {
            let config = LeaseConfig::new().duration(Duration::from_millis(100));
            node(&states, &clock, config)
        });
        let full = remaining(&a, &rule).await;
        let mut spent = admitted(&a, &rule, 30).await;
        spent += admitted(&b, &rule, others).await;
        let (left, before) = (a.stats().left, remaining(&a, &rule).await);
        assert!(left > 0, "{rule}: {:?}", a.stats());
        assert_eq!(before + left, full - spent, "{rule}");
        assert_eq!(a.release(Duration::from_secs(5)).await, left, "{rule}");
        let is_returned = others == 0 || if_others_leased;
        let expected = before + if is_returned { left } else { 0 };
        assert_eq!(
            remaining(&a, &rule).await,
            expected,
            "{rule}, {others} others"
        );
        let stats = a.stats();
        assert_eq!(
            (stats.returned, stats.left, stats.lost),
            (left, 0, 0),
            "{rule}"
        );
        // At most once, and the store decides from now on.
        assert_eq!(a.release(Duration::from_secs(5)).await, 0, "{rule}");
        assert_eq!(admitted(&a, &rule, 3).await, 3, "{rule}");
        assert_eq!(a.stats().left, 0, "{rule}");
        assert_eq!(remaining(&a, &rule).await, expected - 3, "{rule}");
    }
}

#[tokio::test]
async fn what_is_left_is_given_back() {
    let quota = Quota::per_second(1000);
    gives_back(TokenBucket::new(quota), false).await;
    gives_back(FixedWindow::new(quota), true).await;
    gives_back(SlidingWindow::new(quota), true).await;
    gives_back(SlidingLog::new(quota), true).await;
}
