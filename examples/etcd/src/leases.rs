//! Leases shared by many keys.
//!
//! An etcd key expires with the lease that it was written under. A lease per write would be a
//! second write to the log for each decision, and etcd revokes only a thousand expired leases a
//! second. So a process creates a new lease only once in a while. It never renews or revokes one:
//! the lease expires by itself, together with the keys that were last written under it.

use std::{
    collections::HashMap,
    time::{Duration, SystemTime},
};

use tokio::{sync::Mutex, time::Instant};

/// The maximum number of writes that share a lease. When a lease expires, etcd removes all of its
/// keys at once and serves no requests meanwhile.
const WRITES: u32 = 1000;

/// The longest span in seconds, 136 years. The maximum of etcd is a little more than twice that.
const LONGEST: u64 = 1 << 32;

/// Stands for "no lease": the key does not expire.
const NONE: i64 = 0;

/// The leases that this process currently writes under.
#[derive(Debug, Default)]
pub(crate) struct Leases {
    /// The current lease for each span in seconds; there are 33 spans. The lock is held while a
    /// lease is requested, so that one call requests it and concurrent calls share it.
    current: Mutex<HashMap<u64, Lease>>,
}

#[derive(Debug)]
struct Lease {
    id: i64,
    /// The lease can be attached to keys until either. It expires at least one span later. The
    /// first clock stands still while the machine is suspended, and the second can be set.
    until: (Instant, SystemTime),
    /// The number of writes that may still share the lease.
    writes: u32,
}

impl Leases {
    /// Returns a lease that expires at least `keep` from now, and at most four times `keep` plus
    /// four seconds from now. `grant` requests a lease with the given number of seconds to live,
    /// and returns its id.
    ///
    /// # Errors
    ///
    /// Returns the errors of `grant`.
    pub(crate) async fn outliving<E>(
        &self,
        keep: Duration,
        grant: impl AsyncFnOnce(i64) -> Result<i64, E>,
    ) -> Result<i64, E> {
        // Powers of two, so that rules and keys with different needs share leases.
        let span = match keep.as_secs() {
            LONGEST.. => return Ok(NONE),
            seconds => (seconds + 1).next_power_of_two(),
        };
        let mut current = self.current.lock().await;
        // Read before the request, because etcd starts to count later.
        #[expect(
            clippy::disallowed_methods,
            reason = "etcd counts while this machine sleeps"
        )]
        let now = (Instant::now(), SystemTime::now());
        if let Some(lease) = current.get_mut(&span)
            && now.0 < lease.until.0
            && now.1 < lease.until.1
            && lease.writes > 0
        {
            lease.writes -= 1;
            return Ok(lease.id);
        }
        let id = grant(2 * span as i64).await?;
        let length = Duration::from_secs(span);
        let lease = Lease {
            id,
            until: (now.0 + length, now.1 + length),
            writes: WRITES - 1,
        };
        current.insert(span, lease);
        Ok(id)
    }

    /// Forgets a lease that no longer exists in etcd.
    pub(crate) async fn forget(&self, id: i64) {
        let mut current = self.current.lock().await;
        current.retain(|_, lease| lease.id != id);
    }
}

#[cfg(test)]
mod tests {
    use std::{convert::Infallible, sync::Mutex as Lock, time::Duration};

    use tokio::time::advance;

    use super::{LONGEST, Leases, NONE, WRITES};

    /// The requested leases, in seconds. The `n`-th has the id `n`.
    #[derive(Default)]
    struct Granted(Lock<Vec<i64>>);

    impl Granted {
        async fn grant(&self, seconds: i64) -> Result<i64, Infallible> {
            // Other tasks run in between.
            tokio::task::yield_now().await;
            let mut granted = self.0.lock().unwrap();
            granted.push(seconds);
            Ok(granted.len() as i64)
        }

        async fn lease(&self, leases: &Leases, keep: Duration) -> i64 {
            let lease = leases
                .outliving(keep, async |seconds| self.grant(seconds).await)
                .await;
            lease.unwrap()
        }

        fn all(&self) -> Vec<i64> {
            self.0.lock().unwrap().clone()
        }
    }

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn no_lease_expires_before_its_keys() {
        let (leases, granted) = (Leases::default(), Granted::default());
        let mut expiries = Vec::new();
        let start = tokio::time::Instant::now();
        for step in 0..20_000_u64 {
            // `keep` grows from a nanosecond to 20 minutes.
            let keep = Duration::from_nanos(1 + step * step * 3000);
            let id = granted.lease(&leases, keep).await as usize;
            let now = start.elapsed();
            for &seconds in &granted.all()[expiries.len()..] {
                expiries.push(now + Duration::from_secs(seconds as u64));
            }
            let left = expiries[id - 1] - now;
            assert!(left >= keep, "{keep:?}, {left:?}");
            assert!(left <= 4 * (keep + SECOND), "{keep:?}, {left:?}");
            advance(Duration::from_millis(37)).await;
        }
        // Twelve minutes with leases of up to 1024 s and eleven spans need far fewer leases than
        // writes.
        let all = granted.all().len();
        assert!(all < 2000, "{all}");
    }

    #[tokio::test(start_paused = true)]
    async fn writes_share_a_lease_for_its_span_up_to_a_maximum_number() {
        let (leases, granted) = (Leases::default(), Granted::default());
        for _ in 0..WRITES {
            assert_eq!(granted.lease(&leases, 3 * SECOND).await, 1);
        }
        assert_eq!(granted.lease(&leases, 3 * SECOND).await, 2);
        advance(4 * SECOND - Duration::from_nanos(1)).await;
        assert_eq!(granted.lease(&leases, SECOND * 5 / 2).await, 2);
        advance(Duration::from_nanos(1)).await;
        assert_eq!(granted.lease(&leases, 3 * SECOND).await, 3);
        // Each span has leases of its own.
        assert_eq!(granted.lease(&leases, 4 * SECOND).await, 4);
        assert_eq!(granted.all(), [8, 8, 8, 16]);
        leases.forget(3).await;
        assert_eq!(granted.lease(&leases, 3 * SECOND).await, 5);
        assert_eq!(granted.lease(&leases, 4 * SECOND).await, 4);
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_that_aged_while_the_machine_was_suspended_is_not_shared() {
        let (leases, granted) = (Leases::default(), Granted::default());
        assert_eq!(granted.lease(&leases, 99 * SECOND).await, 1);
        assert_eq!(granted.lease(&leases, 99 * SECOND).await, 1);
        // As if the system's clock had gone on for the 128 s of the lease, and the other one not.
        for lease in leases.current.lock().await.values_mut() {
            lease.until.1 -= 128 * SECOND;
        }
        assert_eq!(granted.lease(&leases, 99 * SECOND).await, 2);
    }

    #[tokio::test(start_paused = true)]
    async fn concurrent_calls_request_one_lease() {
        let (leases, granted) = (Leases::default(), Granted::default());
        let lease = || granted.lease(&leases, SECOND);
        let ids = tokio::join!(lease(), lease(), lease());
        assert_eq!((ids, granted.all()), ((1, 1, 1), vec![4]));
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_that_was_not_granted_is_requested_again() {
        let (leases, granted) = (Leases::default(), Granted::default());
        let failed = leases.outliving(SECOND, async |_| Err("no")).await;
        assert_eq!(failed, Err("no"));
        assert_eq!(granted.lease(&leases, SECOND).await, 1);
        // The longest span, and a longer `keep`.
        let longest = Duration::from_secs(LONGEST) - Duration::from_nanos(1);
        assert_eq!(granted.lease(&leases, longest).await, 2);
        assert_eq!(granted.all()[1] as u64, 2 * LONGEST);
        for keep in [Duration::from_secs(LONGEST), Duration::MAX] {
            assert_eq!(granted.lease(&leases, keep).await, NONE);
        }
    }
}
