//! Every error says what was wrong, what was expected, and what to do. A chain of causes repeats
//! nothing.

use std::{error::Error as _, fmt, fs, path::Path, time::Duration};

use tollgate::{
    AnyRule, FixedWindow, LeakyBucket, Limit, Policy, Quota, RateLimitLayer, TokenBucket, WarmUp,
    WarmUpSpaced,
    algorithm::{Counted, Slicing},
    key::{AnyKey, ForwardedFor, Header, PeerIp},
    pace::RoundRobin,
    respond::Headers,
    store::{CircuitBreakerConfig, StoreError},
};

/// Each error says what was wrong, what was expected, and what to do.
type Parts = [&'static str; 3];

/// The errors of settings and of texts.
fn settings() -> Vec<(tollgate::Error, Parts)> {
    let rule = |text: &str| text.parse::<AnyRule>().unwrap_err();
    let key = |text: &str| text.parse::<AnyKey>().unwrap_err();
    let secs = Duration::from_secs;
    let minute = || FixedWindow::per_minute(1);
    let limit = || Limit::new(TokenBucket::per_second(1)).named("api");
    let layer = RateLimitLayer::new(TokenBucket::per_second(1)).also(limit());
    vec![
        (
            rule(""),
            ["no rule", "expected an algorithm", "`token-bucket 100/1m`"],
        ),
        (
            rule("bucket 1/s"),
            [
                "unknown algorithm `bucket`",
                "expected `token-bucket`",
                "as in",
            ],
        ),
        (
            rule("token-bucket"),
            ["ends too early", "expected a quota", "as in `100/1m`"],
        ),
        (
            rule("token-bucket 100"),
            [
                "no `/` in the quota `100`",
                "expected an amount per period",
                "as in `100/1m`",
            ],
        ),
        (
            rule("token-bucket 1/1x"),
            ["unknown unit `x`", "expected ns, us", "as in `100/1m`"],
        ),
        (
            rule("in-flight 8 lease=99ms"),
            [
                "a lease of 99ms",
                "expected 100 ms to a day",
                "choose how long",
            ],
        ),
        (
            rule("token-bucket 0/s"),
            ["is 0", "expected at least 1", "take the route away"],
        ),
        (
            rule("token-bucket 1/s brust=2"),
            [
                "unknown setting `brust`",
                "expected one of `burst=…`",
                "correct it",
            ],
        ),
        (
            rule("token-bucket 5/1s keep-free=5"),
            [
                "5 tokens kept free of a burst of 5",
                "expected less than the burst",
                "keep fewer free",
            ],
        ),
        (
            rule("token-bucket 104857600/s"),
            [
                "above 30000000 units a second",
                "expected less",
                "count in larger units",
            ],
        ),
        (
            rule("token-bucket 1/8761d"),
            [
                "takes more than 24 years",
                "expected less",
                "choose a smaller amount",
            ],
        ),
        (
            rule("leaky-bucket 1/365d queue=24"),
            [
                "a queue of 24 at 1/365d takes more than 24 years",
                "expected less",
                "choose a smaller one",
            ],
        ),
        (
            rule("token-bucket 1/s burst=x"),
            [
                "`x` is no value for `burst`",
                "expected a whole number",
                "as in `burst=150`",
            ],
        ),
        (
            rule("token-bucket 1/s burst=2 burst=2"),
            ["set twice", "expected it once", "take one out"],
        ),
        (
            rule("sliding-log 1/s x"),
            ["`x` after the end", "expected nothing more", "take it out"],
        ),
        (
            rule("three-color 1/s peak=1/s aware given=blue"),
            [
                "`blue` is no value",
                "expected `green`",
                "as in `given=red`",
            ],
        ),
        (
            rule("leaky-bucket 1/s max-wait=0s"),
            ["max-wait of 0", "expected a positive wait", "set `queue=0`"],
        ),
        (
            rule("warm-up 1/s"),
            [
                "never warms",
                "expected at least 3 a second",
                "choose a lower cold factor",
            ],
        ),
        (
            rule("warm-up 4294967297/s"),
            [
                "cannot be counted",
                "expected a reduced amount",
                "choose a rounder amount",
            ],
        ),
        (
            rule("fixed-window 1/1m offset=90s"),
            [
                "an offset of 90s for windows of 1m",
                "expected less",
                "take whole windows off",
            ],
        ),
        (
            "x".parse::<Quota>().unwrap_err(),
            [
                "no `/` in the quota `x`",
                "expected an amount per period",
                "as in `100/1m`",
            ],
        ),
        (
            AnyRule::from(TokenBucket::per_second(1))
                .slicing()
                .unwrap_err(),
            [
                "counters cannot run",
                "expected `fixed-window`",
                "take a store that",
            ],
        ),
        (
            "x-rate".parse::<Headers>().unwrap_err(),
            [
                "unknown format of headers `x-rate`",
                "expected draft",
                "write `draft`",
            ],
        ),
        (
            Quota::try_new(1, Duration::ZERO).unwrap_err(),
            [
                "the period of the quota is 0",
                "expected at least 1 ns",
                "take the limit away",
            ],
        ),
        (
            minute().try_offset(secs(90)).unwrap_err(),
            [
                "an offset of 90s for windows of 1m",
                "expected less",
                "take whole windows off",
            ],
        ),
        (
            TokenBucket::per_second(1).try_burst(0).unwrap_err(),
            [
                "a burst of 0",
                "expected at least 1",
                "nothing could ever pass",
            ],
        ),
        (
            TokenBucket::per_second(1).try_scaled(1, 0).unwrap_err(),
            ["a share of 1/0", "expected both", "as in 1/3"],
        ),
        (
            LeakyBucket::per_second(1).try_queue(u64::MAX).unwrap_err(),
            [
                "a queue of",
                "expected at most 2^40",
                "count in larger units",
            ],
        ),
        (
            WarmUp::per_second(9).try_over(secs(1 << 40)).unwrap_err(),
            ["a warm-up over", "expected less", "choose a shorter time"],
        ),
        (
            WarmUp::per_second(9).try_over(Duration::MAX).unwrap_err(),
            ["a warm-up over", "expected less", "choose a shorter time"],
        ),
        (
            WarmUpSpaced::per_second(1)
                .try_max_wait(Duration::MAX)
                .unwrap_err(),
            [
                "a max-wait of",
                "expected at most 73 years",
                "choose a shorter one",
            ],
        ),
        (
            Slicing::windows(Duration::ZERO, Duration::ZERO).unwrap_err(),
            ["windows of 0s", "expected 1 ns to", "choose another length"],
        ),
        (
            RoundRobin::try_new(secs(1), 0).unwrap_err(),
            [
                "0 senders in a period of 1s",
                "expected at least 1",
                "wait for a sender",
            ],
        ),
        (
            CircuitBreakerConfig::new()
                .try_open_for(secs(2), secs(1))
                .unwrap_err(),
            [
                "open for 2s first and for 1s",
                "expected a time above zero",
                "are the defaults",
            ],
        ),
        (
            Policy::try_new("").unwrap_err(),
            [
                "a policy name of 0 bytes",
                "expected 1 to 128",
                "choose a short word",
            ],
        ),
        (
            Policy::try_new("é").unwrap_err(),
            [
                "cannot be written in a header",
                "expected printable ASCII",
                "spell it without",
            ],
        ),
        (
            layer.try_also(limit()).unwrap_err(),
            [
                "two limits of one layer are named `api`",
                "expected different names",
                "name one of them",
            ],
        ),
        (
            Header::try_new("a b").unwrap_err(),
            [
                "cannot be the name of a header",
                "expected letters",
                "as in `x-api-key`",
            ],
        ),
        (
            PeerIp::new().try_ipv6_prefix(0).unwrap_err(),
            ["an IPv6 prefix of 0 bits", "expected 1 to 128", "64 suits"],
        ),
        (
            key("user"),
            ["unknown key `user`", "expected `peer-ip`", "as in"],
        ),
        (
            key("forwarded-for"),
            [
                "`forwarded-for` does not say which proxies to trust",
                "expected their networks",
                "as in `forwarded-for 10.0.0.0/8`",
            ],
        ),
        (
            key("bearer peer-ip"),
            ["`peer-ip` does not belong", "expected `+`", "as in"],
        ),
        (
            ForwardedFor::try_trusting(["localhost"]).unwrap_err(),
            [
                "`localhost` is not a network",
                "expected an address",
                "as in",
            ],
        ),
    ]
}

fn assert_says(text: &str, parts: Parts) {
    for part in parts {
        assert!(text.contains(part), "`{part}` is not in: {text}");
    }
    assert!(!text.contains("  ") && !text.contains('\n'), "{text}");
}

#[test]
fn errors_of_settings_say_what_was_wrong_what_was_expected_and_what_to_do() {
    for (error, parts) in settings() {
        assert_says(&error.to_string(), parts);
        assert!(error.source().is_none(), "{error}");
    }
}

/// Returns an error and its causes, as an error report prints them.
fn chain(error: &dyn std::error::Error) -> Vec<String> {
    std::iter::successors(Some(error), |&error| error.source())
        .map(ToString::to_string)
        .collect()
}

/// An error of a store's client, with its cause.
#[derive(Debug)]
struct Caused(&'static str, Option<Box<Caused>>);

impl fmt::Display for Caused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for Caused {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.1.as_deref().map(|cause| cause as _)
    }
}

#[test]
fn an_error_of_a_store_contains_each_cause_once() {
    let caused = |texts: [&'static str; 3]| {
        let [first, second, third] = texts;
        let third = Caused(third, None);
        Caused(first, Some(Box::new(Caused(second, Some(Box::new(third))))))
    };
    for (texts, expected) in [
        (
            ["no answer", "broken pipe", "os error 32"],
            "no answer: broken pipe: os error 32",
        ),
        // Many errors already contain the text of their cause.
        (
            ["no answer: broken pipe", "broken pipe", "os error 32"],
            "no answer: broken pipe: os error 32",
        ),
        (["no answer: x: y", "x: y", "y"], "no answer: x: y"),
    ] {
        for (error, kind) in [
            (StoreError::unavailable(caused(texts)), "cannot be reached"),
            (StoreError::other(caused(texts)), "could not decide"),
            (
                StoreError::unsupported(caused(texts)),
                "does not support this call",
            ),
        ] {
            assert_eq!(
                chain(&error),
                [format!("the rate limit store {kind}: {expected}")]
            );
            let cause = error
                .get_ref()
                .and_then(|cause| cause.downcast_ref::<Caused>());
            assert_eq!(cause.map(|cause| cause.0), Some(texts[0]));
        }
    }
}

#[test]
fn errors_of_stores_without_a_cause_say_what_to_do_too() {
    assert_says(
        &StoreError::timeout().to_string(),
        [
            "did not answer",
            "expected an answer in time",
            "set a longer deadline",
        ],
    );
    assert_says(
        &StoreError::contended().to_string(),
        [
            "too contended",
            "expected one attempt to win",
            "allow more attempts",
        ],
    );
}

#[cfg(feature = "redis")]
#[tokio::test]
async fn errors_of_redis_say_what_was_wrong_what_was_expected_and_what_to_do() {
    use tollgate::store::Redis;
    let form = "expected one like `redis://host:6379`";
    let all = "`Redis::builder` lists all";
    for (url, parts) in [
        (
            "127.0.0.1:6379",
            ["`127.0.0.1:6379` has no scheme", form, all],
        ),
        ("", ["`` has no scheme", form, all]),
        (
            "http://127.0.0.1",
            ["`http://127.0.0.1` cannot be read", form, all],
        ),
        ("redis://", ["`redis://` cannot be read", form, all]),
        (
            "redis://:s3cret@host:port",
            ["`redis://…@host:port` cannot be read", form, all],
        ),
        ("me:s3cret@host", ["`…@host` has no scheme", form, all]),
        (
            "redis-cluster://",
            ["`redis-cluster://` cannot be read", form, all],
        ),
        (
            "redis-cluster://me:s3cret@",
            ["`redis-cluster://…@` cannot be read", form, all],
        ),
        (
            "redis-sentinel://host",
            [
                "names no master",
                "expected `redis-sentinel://",
                "put the name",
            ],
        ),
        (
            "redis-sentinel://me:s3cret@host:x/name",
            ["cannot be read", form, all],
        ),
        // No server listens on this port.
        (
            "redis://127.0.0.1:1",
            [
                "cannot be reached",
                "expected Redis at 127.0.0.1:1",
                "check that it runs there",
            ],
        ),
        (
            "redis-sentinel://127.0.0.1:1/shop",
            [
                "cannot be reached",
                "expected the master `shop` through a sentinel at 127.0.0.1:1",
                "check that it runs there",
            ],
        ),
        (
            "redis-cluster://127.0.0.1:1",
            [
                "cannot be reached",
                "expected a cluster",
                "check that it runs there",
            ],
        ),
    ] {
        let error = Redis::<TokenBucket>::connect(url).await.unwrap_err();
        assert_says(&error.to_string(), parts);
        assert_eq!(chain(&error).len(), 1, "{error}");
        let debug = format!("{error:?}");
        assert!(
            !error.to_string().contains("s3cret") && !debug.contains("s3cret"),
            "{debug}"
        );
    }
}

#[cfg(feature = "memcached")]
#[tokio::test]
async fn errors_of_memcached_say_what_was_wrong_what_was_expected_and_what_to_do() {
    use tollgate::store::Memcached;
    let form = "expected `memcached://host:port`";
    let example = "as in `memcached://127.0.0.1:11211`";
    for (url, parts) in [
        (
            "127.0.0.1:11211",
            ["`127.0.0.1:11211` is not one of memcached", form, example],
        ),
        (
            "memcached://me:s3cret@host",
            ["authentication is not supported", form, example],
        ),
        (
            "memcached://127.0.0.1:1",
            [
                "cannot be reached",
                "expected memcached at 127.0.0.1:1",
                "check that it runs there",
            ],
        ),
    ] {
        let error = Memcached::<TokenBucket>::connect(url).await.unwrap_err();
        assert_says(&error.to_string(), parts);
        assert_eq!(chain(&error).len(), 1, "{error}");
        assert!(
            !format!("{error} {error:?}").contains("s3cret"),
            "{error:?}"
        );
    }
}

/// Returns the arguments of each call in a source file that makes an error, without comments and
/// tests.
fn errors_in(source: &str) -> Vec<String> {
    let source = source.split("\nmod tests {").next().unwrap_or_default();
    let code: Vec<_> = source
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"))
        .collect();
    let code = code.join("\n");
    let mut errors = Vec::new();
    for call in [
        "Error::new(",
        "Error::other(",
        "Error::unsupported(",
        "Error::unavailable(",
        "Self::unavailable(",
        "ended(",
    ] {
        for (at, _) in code.match_indices(call) {
            let (mut depth, mut is_text, mut is_escaped) = (1, false, false);
            let rest = &code[at + call.len()..];
            let end = rest.find(|character| {
                match character {
                    _ if is_escaped => {}
                    '"' => is_text = !is_text,
                    '(' if !is_text => depth += 1,
                    ')' if !is_text => depth -= 1,
                    _ => {}
                }
                is_escaped = !is_escaped && character == '\\';
                depth == 0
            });
            errors.push(rest[..end.expect("an end of the call")].to_owned());
        }
    }
    errors
}

/// Returns the words of an error in its own text, or nothing if the text is composed elsewhere.
fn words(arguments: &str) -> String {
    let texts = arguments.split('"').skip(1).step_by(2);
    let mut words = String::new();
    let mut depth = 0;
    for character in texts.flat_map(str::chars) {
        match character {
            '{' => depth += 1,
            '}' => depth -= 1,
            other if depth == 0 => words.push(other),
            _ => {}
        }
    }
    words
}

fn sources(folder: &Path, all: &mut Vec<std::path::PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, all);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            all.push(path);
        }
    }
}

/// Checks each message in the source, including those that no test causes.
#[test]
fn every_message_says_what_was_expected_and_what_to_do() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    sources(&root, &mut files);
    let (mut messages, mut silent) = (0, Vec::new());
    for file in files
        .iter()
        .filter(|file| !file.starts_with(root.join("testing")))
    {
        for arguments in errors_in(&fs::read_to_string(file).unwrap()) {
            let words = words(&arguments);
            if words
                .chars()
                .filter(|character| character.is_alphabetic())
                .count()
                < 3
            {
                continue;
            }
            messages += 1;
            // Their text is in the caller. `tests/core/algorithms/text.rs` checks errors in texts.
            let is_checked_elsewhere =
                arguments.contains("{expected}") || arguments.contains("{help}");
            let does = is_checked_elsewhere || words.contains(';') || words.contains("as in");
            if !words.contains("expected") || !does {
                silent.push(format!("{}: {arguments}", file.display()));
            }
        }
    }
    assert!(messages > 50, "{messages}");
    assert!(silent.is_empty(), "{silent:#?}");
}
