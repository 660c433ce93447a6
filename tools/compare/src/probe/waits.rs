//! Real time.

#![allow(
    clippy::disallowed_methods,
    reason = "libraries without a clock of tests are timed"
)]

use std::{
    thread::sleep,
    time::{Duration, Instant},
};

use super::{NO, Surroundings, admitted, yes_no};
use crate::{
    answer::Answer,
    clients::client,
    library::{Library, Rule},
};

/// How much later than it should a probe may do something. Beyond, it begins again.
const SLACK: Duration = Duration::from_millis(100);

/// How often a probe begins again.
const ATTEMPTS: usize = 20;

/// Runs a probe until no pause was longer than it should be.
fn on_time<T>(mut probe: impl FnMut() -> Option<T>) -> T {
    (0..ATTEMPTS)
        .find_map(|_| probe())
        .expect("a machine that is less busy: the probe was late each time")
}

/// Spends both units of a rule of two in 3.6 s, and waits for as long as the refusal says. A unit
/// of a bucket comes after 1.8 s and a window ends after 3.6 s, so whole seconds must be rounded up.
pub fn honest(library: &dyn Library, _: &Surroundings) -> String {
    let rule = Rule {
        units: 2,
        period: Duration::from_millis(3600),
    };
    on_time(|| {
        let mut budget = library.budget(rule, None);
        let begun = Instant::now();
        assert_eq!(
            admitted(&mut budget, client(0), 2),
            2,
            "{}",
            library.package()
        );
        let Answer::Refused(wait) = budget(client(0), 1) else {
            panic!("{}: expected a refusal", library.package());
        };
        if begun.elapsed() > SLACK {
            return None;
        }
        let Some(wait) = wait else {
            return Some("none".to_owned());
        };
        let named = if wait.subsec_nanos() == 0 {
            format!("{} s", wait.as_secs())
        } else {
            "exact".to_owned()
        };
        sleep(wait);
        let answer = budget(client(0), 1);
        if begun.elapsed() > wait + SLACK {
            return None;
        }
        Some(match answer.is_admitted() {
            true => format!("{named}; admitted"),
            false => format!("{named}; refused"),
        })
    })
}

/// Begins a window with one call, and sends bursts shortly before and after its end. A bucket of
/// ten admits ten, and two or three more that are refilled in between. A window admits nine of
/// the first burst, and all ten of the second.
pub fn boundary(library: &dyn Library, _: &Surroundings) -> String {
    let rule = Rule {
        units: 10,
        period: Duration::from_secs(1),
    };
    let bursts = on_time(|| {
        let mut budget = library.budget(rule, None);
        let begun = Instant::now();
        let until = |at: u64| sleep(Duration::from_millis(at).saturating_sub(begun.elapsed()));
        assert!(budget(client(0), 1).is_admitted(), "{}", library.package());
        until(850);
        let before = admitted(&mut budget, client(0), 10);
        let is_late = begun.elapsed() > Duration::from_millis(850) + SLACK;
        until(1100);
        let after = admitted(&mut budget, client(0), 10);
        let is_late = is_late || begun.elapsed() > Duration::from_millis(1100) + SLACK;
        (!is_late).then_some(before + after)
    });
    match bursts {
        9..=15 => "the limit".to_owned(),
        18..=20 => "twice the limit".to_owned(),
        other => panic!("{}: {other} of two bursts of ten", library.package()),
    }
}

/// Calls a limit of two a second three times.
pub fn waiting(library: &dyn Library, _: &Surroundings) -> String {
    let rule = Rule {
        units: 2,
        period: Duration::from_secs(1),
    };
    let Some(mut call) = library.waiting(rule) else {
        return NO.to_owned();
    };
    let begun = Instant::now();
    (0..3).for_each(|_| call());
    let waited = begun.elapsed();
    assert!(
        waited >= Duration::from_millis(300),
        "{}: {waited:?}",
        library.package()
    );
    yes_no(true)
}
