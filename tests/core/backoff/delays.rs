//! Single delays: equal for equal seeds, and valid for any attempt and setting.

use std::time::Duration;

use num_bigint::BigUint;
use tollgate::backoff::Backoff;

use super::{KINDS, Setting, nanos};

const MILLI: Duration = Duration::from_millis(1);

fn drawn<const N: usize>(made: Made, base: u64, cap: u64, seed: u64) -> [u64; N] {
    let backoff = made(Duration::from_nanos(base), Duration::from_nanos(cap));
    let delays: Vec<_> = nanos(backoff.seed(seed).delays()).take(N).collect();
    delays.try_into().unwrap()
}

type Made = fn(Duration, Duration) -> Backoff;

/// The numbers come from a short program in another language: Vigna's `splitmix64.c`, two numbers
/// as one fraction of 128 bits, and the article's formulas in unbounded integers.
#[test]
fn the_same_seed_gives_the_same_delays_on_every_machine() {
    let (base, cap) = (100_000_000, 10_000_000_000);
    #[rustfmt::skip]
    assert_eq!(
        drawn(Backoff::full, base, cap, 42),
        [74_156_488, 55_720_226, 15_212_067, 174_724_155, 543_889_662, 655_685_861, 3_285_735_144, 6_651_594_108, 1_035_742_356, 934_276_553]
    );
    #[rustfmt::skip]
    assert_eq!(
        drawn(Backoff::equal, base, cap, 42),
        [87_078_244, 127_860_113, 207_606_033, 487_362_077, 1_071_944_831, 1_927_842_931, 4_842_867_572, 8_325_797_054, 5_517_871_178, 5_467_138_276]
    );
    #[rustfmt::skip]
    assert_eq!(
        drawn(Backoff::decorrelated, base, cap, 42),
        [248_312_976, 279_680_714, 128_105_897, 162_096_460, 231_311_750, 221_698_420, 390_117_712, 811_955_461, 341_935_575, 186_495_951]
    );

    // Odd numbers, whose halves are truncated.
    let odd = [7, 11, 10, 36, 7, 66, 44, 441, 781, 622];
    assert_eq!(drawn(Backoff::full, 7, 1001, 2015), odd);
    let odd = [7, 13, 19, 46, 59, 145, 246, 669, 891, 812];
    assert_eq!(drawn(Backoff::equal, 7, 1001, 2015), odd);
    let odd = [20, 49, 58, 113, 30, 31, 15, 26, 63, 120];
    assert_eq!(drawn(Backoff::decorrelated, 7, 1001, 2015), odd);

    // The widest ranges.
    let (base, cap) = (1 << 62, u64::MAX);
    assert_eq!(
        drawn(Backoff::full, base, cap, 1),
        [
            2_612_804_094_800_205_617,
            8_955_919_645_141_445_296,
            8_195_237_237_126_968_761
        ]
    );
    assert_eq!(
        drawn(Backoff::equal, base, cap, 1),
        [
            3_612_245_056_613_796_760,
            9_089_645_840_998_110_552,
            13_320_990_655_418_260_188
        ]
    );
    assert_eq!(
        drawn(Backoff::decorrelated, base, cap, 1),
        [
            9_837_294_208_027_799_137,
            18_045_565_486_139_555_846,
            10_758_113_946_272_614_475
        ]
    );
}

#[test]
fn without_a_seed_each_client_has_different_delays() {
    let hour = Duration::from_secs(3600);
    for made in [Backoff::full, Backoff::equal, Backoff::decorrelated] {
        let backoff = made(hour, 4 * hour);
        assert!(backoff.delays().take(3).ne(backoff.delays().take(3)));
        // A clone has the delays of its original.
        let delays = backoff.delays();
        assert!(delays.clone().take(3).eq(delays.take(3)));
    }
}

#[test]
fn no_attempt_overflows() {
    let bases = [0, 1, 3, 50_000_000, 1 << 32, 1 << 63, u64::MAX];
    let caps = [0, 1, 1000, 10_000_000_000, u64::MAX - 1, u64::MAX];
    let attempts = (0..200).chain([u32::MAX - 1, u32::MAX]);
    for (base, cap) in bases.iter().flat_map(|base| caps.map(|cap| (*base, cap))) {
        let setting = Setting { base, cap };
        for (index, kind) in KINDS.iter().enumerate() {
            let backoff = setting.backoff(kind);
            let longest = |attempt: u32| {
                // From attempt 64 on, any base but 0 has grown above any cap.
                let attempt = attempt.min(100);
                let growth = match index {
                    3 => BigUint::from(3_u32).pow(attempt + 1),
                    _ => BigUint::from(2_u32).pow(attempt),
                };
                let nanos = (growth * base).min(BigUint::from(cap));
                Duration::from_nanos(u64::try_from(nanos).unwrap())
            };
            for attempt in attempts.clone() {
                assert_eq!(backoff.longest(attempt), longest(attempt), "{backoff:?}");
            }
            for (attempt, delay) in (0..1000).zip(backoff.seed(base ^ cap).delays()) {
                assert!(delay <= longest(attempt), "{backoff:?} after {attempt}");
            }
        }
    }
}

#[test]
fn settings_above_the_range_are_capped() {
    let longest = Duration::from_nanos(u64::MAX);
    for kind in &KINDS {
        let backoff = (kind.made)(Duration::MAX, Duration::MAX);
        assert_eq!(backoff.longest(0), longest);
        assert!(backoff.delays().take(1000).all(|delay| delay <= longest));
    }
    assert_eq!(
        Backoff::exponential(MILLI, Duration::MAX).delays().nth(100),
        Some(longest)
    );
}

#[test]
fn a_cap_below_the_base_is_never_exceeded() {
    let [base, cap] = [1000 * MILLI, 10 * MILLI];
    for (kind, expected) in
        KINDS
            .iter()
            .zip([cap..=cap, Duration::ZERO..=cap, cap / 2..=cap, cap..=cap])
    {
        let delays = (kind.made)(base, cap).delays();
        assert!(delays.take(1000).all(|delay| expected.contains(&delay)));
    }
}

#[test]
fn a_base_of_zero_gives_no_delay() {
    for kind in &KINDS {
        let delays = (kind.made)(Duration::ZERO, MILLI).delays();
        assert!(delays.take(1000).all(|delay| delay.is_zero()));
    }
}

#[test]
fn the_servers_wait_overrides_the_cap_and_is_jittered() {
    let cap = 100 * MILLI;
    let least = Duration::from_secs(30);
    for (index, kind) in KINDS.iter().enumerate() {
        let mut obedient = (kind.made)(MILLI, cap).seed(5).delays();
        let alone = obedient.clone();
        let mut seen = Vec::new();
        for (attempt, delay) in alone.take(1000).enumerate() {
            // Two attempts in three have a lower bound from the server. The others are unaffected.
            let asked = [least, Duration::ZERO, 2 * least][attempt % 3];
            let found = obedient.next_at_least(asked);
            assert_eq!(found, asked + delay);
            assert!(found >= asked && found <= asked + cap);
            seen.push(found);
        }
        seen.sort();
        seen.dedup();
        // The first kind is not random. A third of the last kind's delays is the cap.
        assert_eq!(seen.len() > 600, index > 0, "{} delays", seen.len());
    }
    let mut delays = Backoff::exponential(MILLI, cap).delays();
    assert_eq!(delays.next_at_least(Duration::MAX), Duration::MAX);
}

#[test]
fn delays_never_end() {
    let delays = Backoff::full(MILLI, 2 * MILLI).delays();
    assert_eq!(delays.size_hint(), (usize::MAX, None));
    assert_eq!(delays.take(100_000).count(), 100_000);
}
