//! The meter finds what is over, and nothing else.

use support::Random;

use crate::processes::fleet::meter::{Admission, Loss, Meter, Over, exactly};

const SECOND: u64 = 1_000_000_000;

fn meter(losses: &[Loss]) -> Meter<'_> {
    Meter {
        rate: 10,
        burst: 5,
        offset: 0,
        losses,
    }
}

fn at(instants: impl IntoIterator<Item = u64>) -> Vec<Admission> {
    let admission = |instant| Admission {
        from: instant,
        to: instant,
    };
    instants.into_iter().map(admission).collect()
}

#[test]
fn a_full_bucket_at_once_is_allowed_and_one_more_is_not() {
    let full = at([SECOND; 5]);
    assert_eq!(meter(&[]).worst(&full), None);
    let over = Over {
        from: SECOND,
        to: SECOND,
        admitted: 6,
        allowed: 5,
    };
    assert_eq!(meter(&[]).worst(&at([SECOND; 6])), Some(over));
    // A tenth of a second later there is one more.
    let later = at([SECOND, SECOND, SECOND, SECOND, SECOND, SECOND + SECOND / 10]);
    assert_eq!(meter(&[]).worst(&later), None);
    let early = at([
        SECOND,
        SECOND,
        SECOND,
        SECOND,
        SECOND,
        SECOND + SECOND / 10 - 1,
    ]);
    assert!(meter(&[]).worst(&early).is_some());
}

#[test]
fn what_may_have_happened_elsewhere_is_not_counted() {
    let mut admissions = at([SECOND; 5]);
    admissions.push(Admission {
        from: 0,
        to: 2 * SECOND,
    });
    assert_eq!(meter(&[]).worst(&admissions), None);
    admissions.push(Admission {
        from: SECOND - 1,
        to: SECOND + 1,
    });
    assert!(meter(&[]).worst(&admissions).is_some());
}

#[test]
fn a_loss_allows_one_burst_more_around_it_only() {
    let losses = [Loss {
        from: SECOND,
        to: 2 * SECOND,
    }];
    assert_eq!(meter(&losses).worst(&at([SECOND; 10])), None);
    assert!(meter(&losses).worst(&at([SECOND; 11])).is_some());
    assert!(meter(&losses).worst(&at([SECOND - 1; 6])).is_some());
    assert!(meter(&losses).worst(&at([2 * SECOND + 1; 6])).is_some());
}

/// The admissions of an exact bucket are never over the limit; with one more call at an instant at
/// which it refuses, they are.
#[test]
fn the_meter_agrees_with_an_exact_bucket() {
    let mut random = Random::new(1);
    for _ in 0..300 {
        let (mut now, mut admitted, mut refused) = (SECOND, Vec::new(), 0);
        for _ in 0..30 {
            now += random.below(SECOND / 10);
            let mut all = admitted.clone();
            all.push(now);
            let fits = exactly(10, 5, &all, &[]) == all.len() as u64;
            assert_eq!(
                fits,
                meter(&[]).worst(&at(all.clone())).is_none(),
                "{all:?}"
            );
            if fits {
                admitted = all;
            } else {
                refused += 1;
            }
        }
        assert!(refused > 0);
    }
}
