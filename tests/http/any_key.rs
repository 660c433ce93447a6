//! Keys as text: their round trip, their mistakes, and the extractors that they stand for.

use std::net::{IpAddr, SocketAddr};

use http::{Request, StatusCode};
use proptest::prelude::*;
use tollgate::key::{
    AnyKey, BearerToken, Cookie, Extracted, Forwarded, ForwardedFor, Global, Header, Host,
    KeyExtractor, KeyExtractorExt, Method, MissingKey, Path, PeerIp,
};

#[track_caller]
fn key(text: &str) -> AnyKey {
    match text.parse() {
        Ok(key) => key,
        Err(error) => panic!("{text}: {error}"),
    }
}

#[test]
fn canonical_texts() {
    for (text, canonical) in [
        ("global", "global"),
        ("  peer-ip ", "peer-ip"),
        ("peer-ip/64", "peer-ip"),
        ("peer-ip/48   ipv4=/24", "peer-ip/48 ipv4=/24"),
        ("peer-ip ipv4=/32", "peer-ip"),
        (
            "forwarded-for  10.1.2.3/8 192.0.2.1/32 2001:db8::1/128",
            "forwarded-for 10.0.0.0/8 192.0.2.1 2001:db8::1",
        ),
        ("forwarded-for hops=02", "forwarded-for hops=2"),
        ("forwarded/56 hops=0", "forwarded/56 hops=0"),
        (
            "forwarded-for header=CF-Connecting-IP ::1",
            "forwarded-for ::1 header=cf-connecting-ip",
        ),
        (
            "forwarded-for ::1 header=x-forwarded-for",
            "forwarded-for ::1",
        ),
        ("header X-Api-Key", "header x-api-key"),
        ("header or or header or", "header or or header or"),
        ("cookie + + cookie a+b", "cookie + + cookie a+b"),
        ("bearer  or\texempt", "bearer or exempt"),
        (
            "host + path + method or peer-ip or shared a",
            "host + path + method or peer-ip or shared a",
        ),
        ("bearer or refuse 401", "bearer or refuse 401"),
        ("bearer or shared or", "bearer or shared or"),
    ] {
        assert_eq!(key(text).to_string(), canonical);
        assert_eq!(key(canonical), key(text));
    }
    assert_eq!(AnyKey::default(), key("global"));
    assert_eq!(format!("{:?}", key("host")), "AnyKey(host)");
    let json = serde_json::to_string(&key("peer-ip/48")).unwrap();
    assert_eq!(json, "\"peer-ip/48\"");
    assert_eq!(
        serde_json::from_str::<AnyKey>(&json).unwrap(),
        key("peer-ip/48")
    );
}

#[test]
fn wrong_texts() {
    let many = vec!["host"; 17].join(" + ");
    // 16 bytes each, and 22 in canonical form.
    let grown = format!("forwarded-for{}", " ::ffff:a00:0/104".repeat(58));
    let long = format!("header {}", "x".repeat(1_100));
    for (text, column, part) in [
        ("", Some(1), "ends too early"),
        ("host +", Some(7), "ends too early"),
        ("host or", Some(8), "ends too early"),
        ("header", Some(1), "as in `header x-api-key`"),
        ("header a:b", Some(8), "name of a header"),
        ("cookie a;b", Some(8), "name of a cookie"),
        ("cookie", Some(1), "as in `cookie session`"),
        ("peer", Some(1), "unknown key `peer`"),
        ("host path", Some(6), "`path` does not belong to a key here"),
        ("host+path", Some(1), "unknown key `host+path`"),
        ("host/48", Some(1), "only behind an address"),
        ("peer-ip/0", Some(1), "expected 1 to 128"),
        ("peer-ip/129", Some(1), "expected 1 to 128"),
        ("peer-ip/", Some(1), "is no prefix"),
        ("peer-ip ipv4=24", Some(9), "as in `ipv4=/24`"),
        ("peer-ip ipv4=/33", Some(9), "expected 1 to 32"),
        ("peer-ip hops=1", Some(9), "is no setting of `peer-ip`"),
        ("peer-ip 10.0.0.0/8", Some(9), "is no setting of `peer-ip`"),
        ("forwarded-for", Some(1), "which proxies to trust"),
        (
            "forwarded-for hops=1 ::1",
            Some(22),
            "which proxies to trust",
        ),
        (
            "forwarded-for hops=1 hops=2",
            Some(22),
            "`hops=` stands twice",
        ),
        (
            "peer-ip ipv4=/24 ipv4=/24",
            Some(18),
            "`ipv4=` stands twice",
        ),
        ("forwarded-for hops=x", Some(15), "as in `hops=1`"),
        ("forwarded-for proxy", Some(15), "is not a network"),
        (
            "forwarded ::1 header=a",
            Some(15),
            "is no setting of `forwarded`",
        ),
        ("10.0.0.0/8", Some(1), "unknown key `10.0.0.0/8`"),
        ("peer-ip/+48", Some(1), "is no prefix"),
        ("peer-ip ipv4=/+24", Some(9), "as in `ipv4=/24`"),
        ("forwarded hops=+1", Some(11), "as in `hops=1`"),
        ("forwarded/0 hops=1", Some(1), "expected 1 to 128"),
        (&grown, None, "1024 at most"),
        (
            "bearer or exempt or host",
            Some(18),
            "behind the end of the key",
        ),
        ("bearer or shared", Some(11), "as in `or shared anonymous`"),
        ("bearer or refuse 200", Some(18), "400 to 599"),
        ("bearer or refuse no", Some(18), "400 to 599"),
        ("exempt", Some(1), "unknown key `exempt`"),
        (&many, Some(111), "16 at most"),
        (&long, None, "1024 at most"),
    ] {
        let error = text.parse::<AnyKey>().expect_err(text);
        assert_eq!(error.column(), column, "{text}: {error}");
        let message = error.to_string();
        assert!(message.contains(part), "{text}: {message}");
        assert!(message.contains("expected"), "{message}");
        assert!(
            message.contains("; ") || message.contains("as in"),
            "{message}"
        );
    }
}

type Extractor = Box<dyn KeyExtractor<Request<()>>>;

/// Each text, and the extractor that the builder makes.
fn pairs() -> Vec<(&'static str, Extractor)> {
    let trusted = || ForwardedFor::try_trusting(["10.0.0.0/8"]).unwrap();
    let session = || Cookie::new("session");
    let api = || Header::new("x-api-key");
    let pair = |text, extractor| (text, extractor);
    vec![
        pair("global", Box::new(Global) as Extractor),
        pair("peer-ip", Box::new(PeerIp::new())),
        pair(
            "peer-ip/48 ipv4=/24",
            Box::new(PeerIp::new().ipv6_prefix(48).ipv4_prefix(24)),
        ),
        pair("forwarded-for 10.0.0.0/8", Box::new(trusted())),
        pair(
            "forwarded-for/56 10.0.0.0/8 ipv4=/16",
            Box::new(trusted().ipv6_prefix(56).ipv4_prefix(16)),
        ),
        pair("forwarded-for hops=2", Box::new(ForwardedFor::hops(2))),
        pair(
            "forwarded-for hops=1 header=x-api-key",
            Box::new(ForwardedFor::hops(1).in_header("x-api-key")),
        ),
        pair("forwarded hops=1", Box::new(Forwarded::hops(1))),
        pair(
            "forwarded 10.0.0.0/8",
            Box::new(Forwarded::try_trusting(["10.0.0.0/8"]).unwrap()),
        ),
        pair("header x-api-key", Box::new(api())),
        pair("bearer", Box::new(BearerToken)),
        pair("host", Box::new(Host)),
        pair("cookie session", Box::new(session())),
        pair("path", Box::new(Path)),
        pair("method", Box::new(Method)),
        #[cfg(feature = "axum")]
        pair("route", Box::new(tollgate::key::MatchedPath)),
        pair("header x-api-key + method", Box::new((api(), Method))),
        pair(
            "peer-ip + host + path",
            Box::new((PeerIp::new(), Host, Path)),
        ),
        pair(
            "header x-api-key + peer-ip",
            Box::new((api(), PeerIp::new())),
        ),
        pair(
            "header x-api-key or peer-ip",
            Box::new(api().or(PeerIp::new())),
        ),
        pair(
            "header x-api-key or cookie session",
            Box::new(api().or(session())),
        ),
        pair(
            "peer-ip or header x-api-key",
            Box::new(PeerIp::new().or(api())),
        ),
        pair(
            "header x-api-key + method or bearer + path or cookie session",
            Box::new((api(), Method).or((BearerToken, Path)).or(session())),
        ),
        pair("bearer or exempt", Box::new(BearerToken.or_exempt())),
        pair("peer-ip or exempt", Box::new(PeerIp::new().or_exempt())),
        pair(
            "bearer + peer-ip or exempt",
            Box::new((BearerToken, PeerIp::new()).or_exempt()),
        ),
        pair(
            "bearer or shared none",
            Box::new(BearerToken.or_shared("none")),
        ),
        pair(
            "bearer or host or shared none",
            Box::new(BearerToken.or(Host).or_shared("none")),
        ),
        pair(
            "bearer or refuse 403",
            Box::new(BearerToken.or_refuse(StatusCode::FORBIDDEN)),
        ),
        pair(
            "bearer or forwarded-for 10.0.0.0/8 or refuse 403",
            Box::new(BearerToken.or(trusted()).or_refuse(StatusCode::FORBIDDEN)),
        ),
    ]
}

fn request() -> impl Strategy<Value = Request<()>> {
    let header = |name: &'static str, values: Vec<&'static str>| {
        prop::collection::vec(prop::sample::select(values), 0..3)
            .prop_map(move |values| (name, values))
    };
    let headers = (
        header("x-api-key", vec!["a", "b", "192.0.2.9", ""]),
        header("authorization", vec!["Bearer t", "Basic x", "bearer u"]),
        header(
            "cookie",
            vec!["session=s", "session=s; session=t", "other=1"],
        ),
        header("host", vec!["a.example", "B.example:80", ""]),
        header(
            "x-forwarded-for",
            vec![
                "192.0.2.1",
                "192.0.2.1, 10.0.0.9",
                "2001:db8:1:2:3::1",
                "unknown",
            ],
        ),
        header(
            "forwarded",
            vec!["for=192.0.2.1", "for=192.0.2.1, for=10.0.0.9", "for=_x"],
        ),
    );
    let peer = prop::option::of(prop::sample::select(vec![
        "10.0.0.1",
        "192.0.2.7",
        "2001:db8::7",
        "::ffff:10.0.0.1",
    ]));
    let target = prop::sample::select(vec!["/", "/a?b", "http://a.example/b"]);
    (headers, peer, target).prop_map(|((a, b, c, d, e, f), peer, target)| {
        let mut request = Request::builder().uri(target);
        for (name, values) in [a, b, c, d, e, f] {
            for value in values {
                request = request.header(name, value);
            }
        }
        let mut request = request.body(()).unwrap();
        if let Some(peer) = peer {
            let peer: IpAddr = peer.parse().unwrap();
            request
                .extensions_mut()
                .insert(SocketAddr::from((peer, 4711)));
        }
        request
    })
}

/// Everything that a caller sees of an answer.
fn seen(answer: Result<Extracted, MissingKey>) -> Result<Extracted, String> {
    answer.map_err(|missing| {
        let help = missing
            .help()
            .map(|help| help.expose_to_operator().to_owned());
        format!("{missing:?} {:?} {help:?}", missing.challenge())
    })
}

/// A text of a few parts that are right or not.
fn text() -> impl Strategy<Value = String> {
    let word = prop::sample::select(vec![
        "peer-ip",
        "peer-ip/48",
        "ipv4=/24",
        "forwarded-for",
        "forwarded",
        "hops=1",
        "10.0.0.0/8",
        "header",
        "x-api-key",
        "cookie",
        "bearer",
        "host",
        "path",
        "method",
        "route",
        "global",
        "+",
        "+",
        "or",
        "or",
        "exempt",
        "shared",
        "refuse",
        "401",
        "é",
    ]);
    prop::collection::vec(word, 0..9).prop_map(|words| words.join(" "))
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_text_extracts_what_the_builder_does(request in request()) {
        for (text, built) in pairs() {
            let key = key(text);
            prop_assert_eq!(seen(key.extract(&request)), seen(built.extract(&request)), "{}", text);
            let at_hand = key.key_at_hand(&request);
            if let Some(at_hand) = at_hand {
                prop_assert_eq!(key.extract(&request), Ok(Extracted::Key(at_hand)));
            }
        }
    }

    #[test]
    fn texts_that_are_right_are_read_back(text in text(), noise in "\\PC{0,40}") {
        let _ = noise.parse::<AnyKey>();
        if let Ok(key) = text.parse::<AnyKey>() {
            let canonical = key.to_string();
            let again = canonical.parse::<AnyKey>();
            prop_assert_eq!(again.as_ref(), Ok(&key), "{}", canonical);
            prop_assert_eq!(again.unwrap().to_string(), canonical);
        }
    }
}
