//! Runtimes, clones, clocks, changes, processes.

use std::{
    panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook},
    time::Duration,
};

use super::{NO, NO_LAYER, Surroundings, admitted, yes_no};
use crate::{
    clients::client,
    library::{Library, Rule, Shared},
};

pub fn without_runtime(library: &dyn Library, _: &Surroundings) -> String {
    // A panic is the answer of a library that needs one.
    let hook = take_hook();
    set_hook(Box::new(|_| ()));
    let answer = catch_unwind(AssertUnwindSafe(|| {
        library.without_runtime(Rule::per_hour(1))(client(0), 1)
    }));
    set_hook(hook);
    yes_no(answer.is_ok_and(|answer| answer.is_admitted()))
}

pub fn shares(library: &dyn Library, _: &Surroundings) -> String {
    let Some(layer) = library.layer(Rule::per_hour(2)) else {
        return NO_LAYER.to_owned();
    };
    let (mut one, mut other) = (layer(), layer());
    assert_eq!(admitted(&mut one, client(0), 3), 2, "{}", library.package());
    yes_no(!other(client(0), 1).is_admitted())
}

/// Raises a limit that a client has used up.
pub fn live(library: &dyn Library, _: &Surroundings) -> String {
    let Some(mut live) = library.live(Rule::per_hour(2)) else {
        return NO.to_owned();
    };
    assert_eq!(
        admitted(&mut live.budget, client(0), 3),
        2,
        "{}",
        library.package()
    );
    (live.change)(Rule::per_hour(4));
    let (old, new) = (
        admitted(&mut live.budget, client(0), 5),
        admitted(&mut live.budget, client(1), 5),
    );
    assert_eq!(
        new,
        4,
        "{}: a new client has the new limit",
        library.package()
    );
    match old {
        0..=2 => "yes".to_owned(),
        _ => "yes, and refills".to_owned(),
    }
}

pub fn mocked(library: &dyn Library, _: &Surroundings) -> String {
    let Some(mut mocked) = library.mocked(Rule::per_hour(2)) else {
        return NO.to_owned();
    };
    assert_eq!(
        admitted(&mut mocked.budget, client(0), 3),
        2,
        "{}",
        library.package()
    );
    (mocked.advance)(Duration::from_secs(3600));
    let count = admitted(&mut mocked.budget, client(0), 3);
    assert_eq!(count, 2, "{}: after an hour", library.package());
    yes_no(true)
}

pub fn shared(library: &dyn Library, surroundings: &Surroundings) -> String {
    let [mut one, mut other] = match library.shared(&surroundings.redis, Rule::per_hour(3)) {
        Shared::Run(budgets) => budgets,
        Shared::No => return NO.to_owned(),
        Shared::NotRun => return "yes; not run".to_owned(),
    };
    // Another address for each library: they share the server.
    let number = library
        .package()
        .bytes()
        .fold(0, |sum, byte| sum * 7 % 9_973 + u32::from(byte));
    let counts = (
        admitted(&mut one, client(number), 2),
        admitted(&mut other, client(number), 2),
        admitted(&mut one, client(number), 1),
    );
    assert_eq!(counts, (2, 1, 0), "{}", library.package());
    "Redis".to_owned()
}
