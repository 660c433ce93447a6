//! Exact meters of the rules that fleets play.

use std::time::Duration;

use tokio::time::Instant;

/// The limit of a rule during a test.
#[derive(Clone, Copy, Debug)]
pub(super) enum Meter {
    /// So many units, because nothing is refilled.
    Total(u64),
    /// A bucket of so many units, and the time in which one is refilled.
    Bucket(u64, Duration),
    /// So many units in any span that is shorter than this.
    Log(u64, Duration),
}

impl Meter {
    pub(super) fn limit(self) -> u64 {
        match self {
            Self::Total(limit) | Self::Bucket(limit, _) | Self::Log(limit, _) => limit,
        }
    }

    /// Returns the least number of units by which the limit would have to be greater. The instants
    /// are sorted, and a unit was admitted at each.
    pub(super) fn excess(self, admitted: &[Instant]) -> u64 {
        let limit = self.limit();
        let above = |first: usize| {
            // In the span that begins with this unit.
            let rest = &admitted[first..];
            match self {
                Self::Total(_) => (rest.len() as u64).saturating_sub(limit),
                Self::Bucket(_, each) => {
                    let above = |(n, at): (usize, &Instant)| {
                        let refilled = (*at - rest[0]).as_nanos() / each.as_nanos();
                        (n as u64 + 1).saturating_sub(limit + refilled as u64)
                    };
                    rest.iter().enumerate().map(above).max().unwrap_or(0)
                }
                Self::Log(_, window) => {
                    let within = rest.partition_point(|at| *at < rest[0] + window);
                    (within as u64).saturating_sub(limit)
                }
            }
        };
        (0..admitted.len()).map(above).max().unwrap_or(0)
    }
}

#[test]
fn meters_count_each_unit() {
    let second = Duration::from_secs(1);
    let start = Instant::now();
    let at = |tenths: &[u32]| -> Vec<_> {
        let at = |tenth| start + second * tenth / 10;
        tenths.iter().copied().map(at).collect()
    };
    assert_eq!(Meter::Total(3).excess(&at(&[0, 1, 900])), 0);
    assert_eq!(Meter::Total(3).excess(&at(&[0, 1, 900, 901])), 1);
    let bucket = Meter::Bucket(2, second);
    assert_eq!(bucket.excess(&at(&[0, 0, 10, 20])), 0);
    assert_eq!(bucket.excess(&at(&[0, 0, 10, 19])), 1);
    assert_eq!(bucket.excess(&at(&[0, 30, 30, 30, 30])), 2);
    let log = Meter::Log(2, second);
    assert_eq!(log.excess(&at(&[0, 9, 10, 19])), 0);
    assert_eq!(log.excess(&at(&[0, 9, 9, 18, 18])), 2);
}
