//! Compiler messages for parts that do not fit together.
//!
//! After a message has changed, or with a new compiler, run `TRYBUILD=overwrite cargo test -p messages
//! --all-features` and read the difference.

use std::{collections::BTreeSet, fs, path::Path};

/// The cases, and the words that help the user.
const REMEDIES: [(&str, &str); 27] = [
    (
        "also_of_another_rule",
        "make each of them an `AnyRule`, by `AnyRule::from(rule)`",
    ),
    ("any_rule_on_counters", "`CountedRule::try_from(rule)`"),
    ("borrowed_from_fn", "of borrowed text `Key::from(text)`"),
    (
        "body_without_text",
        "`Http::empty()` and `Grpc` need `B: Default`",
    ),
    (
        "cascade_with_leases",
        "for another rule leave `.leased(…)` out",
    ),
    (
        "charge_after_by_own_responder",
        "take `.charge_if(…)` instead, which charges before the request",
    ),
    ("charge_handles", "implement `tollgate::CarryHandle`"),
    (
        "error_of_another_type",
        "`.respond(AsError)` needs the service's error to be `From<Refused>`",
    ),
    ("fallible_store", "`.fail_open()` admits requests"),
    ("fallible_store_in_axum", "`.fail_open()` admits requests"),
    (
        "help_in_a_body",
        "`OperatorHelp` doesn't implement `std::fmt::Display`",
    ),
    (
        "key_of_another_request",
        "expected closure signature `for<'a> fn(&'a http::Request<Body>)",
    ),
    (
        "key_after_also",
        "set those of the first limit before `.also(…)`",
    ),
    ("key_that_is_borrowed", "of borrowed text `Key::from(text)`"),
    ("key_that_is_none", "returns a `Key`"),
    ("log_with_blocks", "as in `AnyRule::from(rule)`"),
    ("not_a_key", "a key extractor is one of `tollgate::key`"),
    ("not_a_responder", "`Http` (the default) needs"),
    (
        "not_a_rule",
        "`\"token-bucket 100/1m\".parse::<AnyRule>()?`",
    ),
    ("pair_in_redis", "take an `AnyRule` of both"),
    (
        "predicate_of_another_request",
        "a closure `|request: &http::Request<Body>| …`",
    ),
    (
        "queue_with_leases",
        "for another rule leave `.leased(…)` out",
    ),
    (
        "queue_with_synced",
        "for another rule leave `.synced(…)` out",
    ),
    (
        "rule_of_ones_own_in_redis",
        "for a rule of your own take a store that compares and swaps",
    ),
    ("state_that_is_no_bytes", "implement `Codec` for its state"),
    (
        "store_of_another_rule",
        "a layer's rule and its store must name the same rule type",
    ),
    (
        "token_bucket_on_counters",
        "counters run `FixedWindow`, `SlidingWindow`, and `CountedRule`",
    ),
];

#[test]
fn messages_name_the_remedy() {
    crate::compare("cases/*.rs");
}

#[test]
fn remedies_stand_in_the_messages() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("cases");
    let files = fs::read_dir(&folder).expect("the cases are there");
    let cases: BTreeSet<String> = files
        .map(|file| file.expect("a file").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
        .map(|path| {
            path.file_stem()
                .expect("a name")
                .to_string_lossy()
                .into_owned()
        })
        .collect();
    assert_eq!(cases, REMEDIES.map(|(case, _)| case.to_owned()).into());
    let silent: Vec<_> = REMEDIES
        .iter()
        .filter(|(case, remedy)| {
            let message = fs::read_to_string(folder.join(case).with_extension("stderr"));
            !message.expect("the case has a message").contains(remedy)
        })
        .collect();
    assert!(silent.is_empty(), "not said: {silent:#?}");
}

/// A user reads the first line first.
#[test]
fn leases_say_first_that_the_rule_cannot_be_leased() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("cases");
    for (case, rule) in [("cascade", "Cascade"), ("queue", "LeakyBucket")] {
        let file = folder.join(format!("{case}_with_leases.stderr"));
        let message = fs::read_to_string(file).expect("the case has a message");
        let first = message.lines().next().unwrap_or_default();
        let says = first.contains("units of the rule") && first.contains("cannot be leased");
        assert!(says && first.contains(rule), "{first}");
    }
}
