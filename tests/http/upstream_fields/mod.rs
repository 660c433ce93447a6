//! Responses that have rate limit fields already: of any format, in several lines, and of any
//! bytes.

mod many;
mod parts;
mod shapes;
mod strict;

use std::{convert::Infallible, num::NonZeroU64, sync::LazyLock, time::Duration};

use http::{HeaderMap, HeaderName, HeaderValue, Request, Response};
use proptest::prelude::*;
use tollgate::{
    Decision, Outcome, Policy, Quota, Verdict,
    respond::{Grpc, Headers, Http, Respond, UpstreamFields},
    time::{Clock, SystemClock, Timestamp},
};

use self::{
    shapes::shapes,
    strict::{Read, lines, named_limits, read},
};

const FORMATS: [Headers; 5] = [
    Headers::Draft,
    Headers::Draft07,
    Headers::Draft06,
    Headers::Legacy,
    Headers::LegacyDelta,
];
const SETTINGS: [UpstreamFields; 3] = [
    UpstreamFields::Stricter,
    UpstreamFields::Keep,
    UpstreamFields::Replace,
];
const DRAFT06: [&str; 3] = ["ratelimit-limit", "ratelimit-remaining", "ratelimit-reset"];
const LEGACY: [&str; 3] = [
    "x-ratelimit-limit",
    "x-ratelimit-remaining",
    "x-ratelimit-reset",
];
/// The first instant of a reset in Unix seconds, of all that are later than 2001.
const UNIX: u64 = 1_000_000_000;

fn now() -> u64 {
    SystemClock::new().now().as_nanos() / 1_000_000_000
}

/// One instant for all decisions: two that a second's end parts announce different resets.
static DECIDED: LazyLock<Timestamp> = LazyLock::new(|| SystemClock::new().now());

/// Lets a layer annotate a response of an upstream. It has 100 per minute, and so many left.
fn annotated(
    mut headers: HeaderMap,
    format: Headers,
    upstream: UpstreamFields,
    name: &str,
    remaining: u64,
) -> HeaderMap {
    let decision = Decision::new(Verdict::Allow, *DECIDED, 1)
        .with_limit(NonZeroU64::new(100).unwrap(), Quota::per_minute(100))
        .with_remaining(remaining)
        .with_reset_after(Duration::from_secs(30));
    let mut outcome = Outcome::new();
    outcome.push(Policy::new(name), decision);
    let respond = Http::new().headers(format).upstream_fields(upstream);
    let mut response = Response::new(String::new());
    std::mem::swap(response.headers_mut(), &mut headers);
    let mut request = Request::new(());
    let fields = Respond::<_, Response<String>, Infallible>::admit(&respond, &mut request, outcome);
    <Http as Respond<Request<()>, _, Infallible>>::annotate(fields, &mut response);
    response.into_parts().0.headers
}

fn headers_of(lines: &[(&'static str, &str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in lines {
        let value = HeaderValue::from_bytes(value.as_bytes()).unwrap();
        headers.append(HeaderName::from_static(name), value);
    }
    headers
}

/// Checks the fields after a layer of this format and setting; returns what a client reads in them.
fn checked(headers: &HeaderMap, format: Headers, setting: UpstreamFields) -> Read {
    let is_stricter = setting == UpstreamFields::Stricter;
    let is_draft = matches!(format, Headers::Draft | Headers::Draft07);
    let is_draft06 = format == Headers::Draft06;
    // Fields of other formats stay as they are, and may be invalid.
    let read = read(
        headers,
        !is_stricter || is_draft,
        [
            !is_stricter || is_draft06,
            !is_stricter || !is_draft && !is_draft06,
        ],
    );
    let formats = read.formats();
    if setting != UpstreamFields::Keep {
        assert!(read.least(format).is_some(), "{headers:?}");
        assert_eq!(
            formats.iter().filter(|is_there| **is_there).count(),
            1,
            "{headers:?}"
        );
        match format {
            Headers::Legacy => assert!(read.legacy.unwrap()[2].is_none_or(|reset| reset >= UNIX)),
            Headers::Draft06 => assert!(read.draft06.unwrap()[2].is_none_or(|reset| reset < UNIX)),
            Headers::Draft => drop(named_limits(headers)),
            _ => {}
        }
    }
    assert!(formats.contains(&true), "{headers:?}");
    read
}

#[test]
fn there_is_one_valid_set_of_fields_and_the_setting_says_whose() {
    for shape in shapes() {
        for format in FORMATS {
            for setting in SETTINGS {
                let theirs: Vec<_> = shape
                    .lines
                    .iter()
                    .map(|(name, value)| (*name, value.as_str()))
                    .collect();
                let before = headers_of(&theirs);
                let after = annotated(before.clone(), format, setting, "api", 50);
                let what = format!("{theirs:?}, {format}, {setting:?}: {after:?}");
                let read = checked(&after, format, setting);
                let is_readable = shape.least.iter().any(Option::is_some);
                match setting {
                    UpstreamFields::Keep if is_readable => {
                        let formats = [Headers::Draft, Headers::Draft06, Headers::Legacy];
                        let mut least = formats.map(|format| read.least(format));
                        least[0] = least[0].or(read.least(Headers::Draft07));
                        assert_eq!(least, shape.least, "{what}");
                    }
                    UpstreamFields::Keep | UpstreamFields::Replace => {
                        assert_eq!(read.least(format), Some(50), "{what}");
                        assert_eq!(
                            after,
                            annotated(HeaderMap::new(), format, setting, "api", 50)
                        );
                    }
                    _ => {
                        let index = match format {
                            Headers::Draft | Headers::Draft07 => 0,
                            Headers::Draft06 => 1,
                            _ => 2,
                        };
                        let least = shape.least[index].map_or(50, |theirs| theirs.min(50));
                        assert_eq!(read.least(format), Some(least), "{what}");
                        let own = annotated(HeaderMap::new(), format, setting, "api", 50);
                        // Fields of other formats are not touched.
                        let is_draft06 = format == Headers::Draft06;
                        let is_own = |name: &HeaderName| {
                            own.contains_key(name)
                                || is_draft06
                                    && name == "ratelimit-policy"
                                    && !before.contains_key("ratelimit")
                        };
                        for name in before.keys().filter(|name| !is_own(name)) {
                            let lines = |headers: &HeaderMap| {
                                headers.get_all(name).iter().cloned().collect::<Vec<_>>()
                            };
                            assert_eq!(lines(&after), lines(&before), "{what}");
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn fields_are_written_in_the_format_of_the_layer() {
    let after = |format, theirs: &[(&'static str, &str)]| {
        let headers = headers_of(theirs);
        let after = annotated(headers, format, UpstreamFields::Stricter, "api", 50);
        let mut all = Vec::new();
        for (name, value) in &after {
            all.push(format!("{name}: {}", value.to_str().unwrap()));
        }
        all.sort();
        all
    };
    let draft07 = [
        ("ratelimit", "limit=100, remaining=50, reset=5"),
        ("ratelimit-policy", "100;w=60"),
    ];
    assert_eq!(
        after(Headers::Draft, &draft07),
        [
            r#"ratelimit-policy: "api";q=100;w=60"#,
            r#"ratelimit-policy: "upstream";q=100;w=60"#,
            r#"ratelimit: "api";r=50;t=30"#,
            r#"ratelimit: "upstream";r=50;t=5"#,
        ]
    );
    let draft = [
        ("ratelimit", r#""far";r=9;t=1, "near";r=3;t=9, "odd";r=1"#),
        ("ratelimit-policy", r#""near";q=20;w=10, "far";q=30"#),
    ];
    assert_eq!(
        after(Headers::Draft07, &draft),
        [
            "ratelimit-policy: 100;w=60",
            "ratelimit-policy: 20;w=10, 30",
            // Without its policy and its window, so both are ours.
            "ratelimit: limit=100, remaining=1, reset=30",
        ]
    );
    // As many remain: the later reset is the stricter one.
    for (reset, expected) in [("29", "30"), ("31", "31")] {
        let theirs = [
            ("ratelimit-limit", "9"),
            ("ratelimit-remaining", "50"),
            ("ratelimit-reset", reset),
        ];
        let limit = if expected == "30" { "100" } else { "9" };
        let expected = [
            format!("ratelimit-limit: {limit}"),
            "ratelimit-remaining: 50".to_owned(),
            format!("ratelimit-reset: {expected}"),
        ];
        assert_eq!(after(Headers::Draft06, &theirs), expected);
    }
}

/// A client that takes a delta for a Unix time retries at once, and one that takes a Unix time for
/// a delta never.
#[test]
fn a_reset_is_converted_to_the_form_of_the_layer() {
    for (sent, format, expected) in [
        (600, Headers::Legacy, now() + 600),
        (600, Headers::LegacyDelta, 600),
        (now() + 600, Headers::Legacy, now() + 600),
        (now() + 600, Headers::LegacyDelta, 600),
        (UNIX, Headers::LegacyDelta, 0),
    ] {
        let [limit, remaining, reset] = LEGACY;
        let sent = sent.to_string();
        let theirs = headers_of(&[(limit, "7"), (remaining, "3"), (reset, &sent)]);
        let after = annotated(theirs, format, UpstreamFields::Stricter, "api", 50);
        let [limit, remaining, reset] = checked(&after, format, UpstreamFields::Stricter)
            .legacy
            .unwrap();
        assert_eq!((limit, remaining), (Some(7), Some(3)));
        // The clock goes on while the test runs.
        let reset = reset.unwrap();
        assert!(
            reset.abs_diff(expected) <= 60,
            "{sent}, {format}: {reset}, {expected}"
        );
    }
}

#[test]
fn the_responder_for_grpc_has_the_setting_too() {
    let annotated = |respond: Grpc| {
        let mut outcome = Outcome::new();
        let decision = Decision::new(Verdict::Allow, SystemClock::new().now(), 1)
            .with_limit(NonZeroU64::MIN, Quota::per_minute(1));
        outcome.push(Policy::new("api"), decision);
        let mut response = Response::new(String::new());
        *response.headers_mut() = headers_of(&[("ratelimit", "\"theirs\";r=3")]);
        let fields = Respond::<_, Response<String>, Infallible>::admit(
            &respond,
            &mut Request::new(()),
            outcome,
        );
        <Grpc as Respond<Request<()>, _, Infallible>>::annotate(fields, &mut response);
        lines(response.headers(), "ratelimit").join(" | ")
    };
    let with = |setting| annotated(Grpc::new().upstream_fields(setting));
    assert_eq!(annotated(Grpc::new()), r#""theirs";r=3 | "api";r=0;t=1"#);
    assert_eq!(with(UpstreamFields::Keep), r#""theirs";r=3"#);
    assert_eq!(with(UpstreamFields::Replace), r#""api";r=0;t=1"#);
}

/// Values of any bytes, and of pieces that are likely to be valid.
fn value() -> impl Strategy<Value = Vec<u8>> {
    let pieces = [
        "\"a\"",
        "\"api\"",
        "\"upstream\"",
        ";r=3",
        ";r=70",
        ";t=5",
        ";q=100",
        ";w=60",
        ";pk=:AA==:",
        ", ",
        ",",
        "limit=100",
        "remaining=3",
        "reset=5",
        "100",
        "5",
        "\"",
        "\\",
        ";",
        "=",
        " ",
        "é",
        "1800000000",
        ".5",
        "-",
        "(",
        ")",
        "?1",
        "@3",
        "tok",
    ];
    let pieces = prop::collection::vec(prop::sample::select(pieces.to_vec()), 0..8);
    prop_oneof![
        prop::collection::vec(any::<u8>(), 0..20),
        pieces.prop_map(|pieces| pieces.concat().into_bytes()),
        Just(b"limit=100, remaining=3, reset=5".to_vec()),
        Just(b"\"a\";r=3;t=5".to_vec()),
        Just(b"3".to_vec()),
    ]
}

fn theirs() -> impl Strategy<Value = HeaderMap> {
    let name = prop::sample::select(vec!["ratelimit", "ratelimit-policy"]);
    let other = prop::sample::select([DRAFT06, LEGACY].concat());
    let line = (prop_oneof![name, other], value());
    prop::collection::vec(line, 0..8).prop_map(|lines| {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            if let Ok(value) = HeaderValue::from_bytes(&value) {
                headers.append(HeaderName::from_static(name), value);
            }
        }
        headers
    })
}

proptest! {
    /// Whatever an upstream sends, and whatever layers are around it.
    #[test]
    fn any_bytes_of_an_upstream_leave_one_valid_set(
        theirs in theirs(),
        format in prop::sample::select(FORMATS.to_vec()),
        setting in prop::sample::select(SETTINGS.to_vec()),
        remaining in 0..100_u64,
        outer in prop::sample::select(FORMATS.to_vec()),
    ) {
        let after = annotated(theirs, format, setting, "api", remaining);
        let read = checked(&after, format, setting);
        if setting != UpstreamFields::Keep {
            prop_assert!(read.least(format).unwrap() <= remaining, "{:?}", after);
        }
        let twice = annotated(after.clone(), outer, UpstreamFields::Stricter, "outer", remaining);
        checked(&twice, outer, UpstreamFields::Stricter);
        let same = annotated(after, format, UpstreamFields::Stricter, "outer", remaining);
        let read = checked(&same, format, UpstreamFields::Stricter);
        prop_assert!(read.least(format).unwrap() <= remaining, "{:?}", same);
        if let (Headers::Draft, Some(members)) = (format, read.draft) {
            let limits = named_limits(&same);
            prop_assert!(limits["outer"][1].is_some(), "{:?}", same);
            let is_ours = |name: &str| members.iter().any(|(member, _)| member == name);
            prop_assert!(is_ours("outer") && (setting == UpstreamFields::Keep || is_ours("api")), "{:?}", same);
        }
    }
}
