//! Settings that are meant for literals panic at the line of the program.

use std::{
    cell::Cell,
    panic::{UnwindSafe, catch_unwind, set_hook, take_hook},
    time::Duration,
};

#[cfg(feature = "tokio")]
use tollgate::store::{LeaseConfig, SyncConfig};
use tollgate::{
    InFlight, LeakyBucket, Limit, Policy, Quota, RateLimitLayer, TokenBucket, WarmUp,
    key::PeerIp,
    store::{Local, StoreExt},
};

thread_local! {
    /// Whether a panic of this thread is expected, and the file in which it was.
    static FILE: Cell<(bool, Option<String>)> = const { Cell::new((false, None)) };
}

const HOUR: Duration = Duration::from_secs(3600);

#[track_caller]
fn file_of_panic<T>(call: impl FnOnce() -> T + UnwindSafe) -> Option<String> {
    FILE.set((true, None));
    let is_over = catch_unwind(call).is_err();
    let (_, file) = FILE.take();
    assert!(is_over, "no panic");
    file
}

#[test]
fn what_is_meant_for_literals_panics_at_the_users_line() {
    let former = take_hook();
    set_hook(Box::new(move |info| match FILE.take() {
        (true, _) => FILE.set((true, info.location().map(|at| at.file().into()))),
        (false, _) => former(info),
    }));
    let bucket = || TokenBucket::per_second(1);
    let files = vec![
        file_of_panic(|| Quota::new(1, Duration::ZERO)),
        file_of_panic(|| WarmUp::per_minute(0)),
        file_of_panic(|| TokenBucket::one_every(Duration::ZERO)),
        file_of_panic(|| bucket().burst(0)),
        file_of_panic(|| LeakyBucket::per_second(1).max_wait(Duration::ZERO)),
        file_of_panic(|| InFlight::at_most(0)),
        file_of_panic(|| Policy::new("")),
        file_of_panic(|| PeerIp::new().ipv6_prefix(0)),
        file_of_panic(|| Limit::new(bucket()).named("")),
        file_of_panic(|| RateLimitLayer::new(bucket()).enforce_for(101)),
        file_of_panic(|| {
            Local::<TokenBucket>::new()
                .with_blocks()
                .block_after(0, HOUR, HOUR)
        }),
        file_of_panic(|| RateLimitLayer::new(bucket()).also(Limit::new(bucket()))),
    ];
    #[cfg(feature = "tokio")]
    let files = [
        files,
        vec![
            file_of_panic(|| LeaseConfig::new().duration(Duration::MAX)),
            file_of_panic(|| SyncConfig::new().overshoot_percent(101)),
            file_of_panic(|| SyncConfig::new().period(Duration::ZERO)),
        ],
    ]
    .concat();
    for file in files {
        assert_eq!(file.as_deref(), Some(file!()));
    }
}
