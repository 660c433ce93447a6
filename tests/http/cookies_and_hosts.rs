//! Keys that several spellings of a request must share: cookies, hosts, networks.

use std::net::{IpAddr, SocketAddr};

use http::{HeaderValue, Request};
use proptest::{collection::vec, prelude::*, sample::select};
use tollgate::key::{
    Cookie, Extracted, Forwarded, ForwardedFor, Header, Host, IpNet, Key, KeyExtractor,
    KeyExtractorExt, PeerIp,
};

/// Returns a request with these lines of one header.
fn with(uri: &str, name: &'static str, lines: &[impl AsRef<[u8]>]) -> Request<()> {
    let mut request = Request::builder().uri(uri).body(()).unwrap();
    for line in lines {
        let value = HeaderValue::from_bytes(line.as_ref()).unwrap();
        request.headers_mut().append(name, value);
    }
    request
}

fn session(lines: &[&str]) -> Option<Key> {
    cookie("session", lines)
}

fn cookie(name: &str, lines: &[&str]) -> Option<Key> {
    let found = Cookie::new(name).extract(&with("/", "cookie", lines));
    found.ok().map(|found| match found {
        Extracted::Key(key) => key,
        Extracted::Exempt => panic!("exempt"),
    })
}

#[test]
fn a_cookie_is_found_in_any_line_and_in_any_spelling() {
    let key = Some(Key::bytes(b"8f3a"));
    for lines in [
        &["session=8f3a"][..],
        &["lang=en; session=8f3a; theme=dark"],
        // HTTP/2 splits them.
        &["lang=en", "session=8f3a"],
        &["lang=en", "theme=dark;session=8f3a"],
        &["session=\"8f3a\""],
        &[" session = 8f3a "],
        &["session=%38f3%61"],
        &["%73ession=8f3a"],
        &["%73%65ss%69on = %38f3a"],
        &["session=8f3a", "sessio%6E=8f3a"],
        &["session=8f3a; session=8f3a"],
        &["session=8f3a", "session=\"%38f3a\""],
        // Not a pair, and another name.
        &["session; Session=1; xsession=2; %53ession=3; %2573ession=4; session=8f3a"],
    ] {
        assert_eq!(session(lines), key, "{lines:?}");
    }
    for (value, key) in [
        ("a=b==", "a=b=="),
        ("100%", "100%"),
        ("%zz%4", "%zz%4"),
        ("%25", "%"),
        ("\"", "\""),
    ] {
        let line = format!("session={value}");
        assert_eq!(
            session(&[&line]),
            Some(Key::bytes(key.as_bytes())),
            "{value}"
        );
    }
}

#[test]
fn a_cookie_whose_configured_name_has_escapes_is_found_in_any_spelling() {
    for name in ["user%3Aid", "us%65r%3aid"] {
        for line in ["user%3Aid=7", "user:id=7", "%75ser%3aid=%37"] {
            assert_eq!(
                cookie(name, &[line]),
                Some(Key::bytes(b"7")),
                "{name}, {line}"
            );
        }
        for line in ["user%253Aid=7", "user=7", "user:id=7; user%3Aid=8"] {
            assert_eq!(cookie(name, &[line]), None, "{name}, {line}");
        }
    }
    // No escapes.
    for name in ["100%", "a%zz", "%"] {
        let line = format!("{name}=7");
        assert_eq!(cookie(name, &[&line]), Some(Key::bytes(b"7")), "{name}");
    }
}

#[test]
fn a_cookie_that_is_absent_empty_or_ambiguous_is_missing() {
    for lines in [
        &[][..],
        &["lang=en"],
        &["session="],
        &["session=\"\""],
        &["session"],
        &["session=a; session=b"],
        &["session=a", "session=b"],
        &["session=; session=b"],
        &["session=a; session="],
        // Servers that decode names read one, and others the other.
        &["session=a; %73ession=b"],
        &["session=a", "%73ession=b"],
        &["sessio%6e=a; %73ession=b"],
        &["session=a; %73ession="],
        &["%73ession"],
    ] {
        assert_eq!(session(lines), None, "{lines:?}");
    }
    let missing = Cookie::new("session")
        .extract(&Request::new(()))
        .unwrap_err();
    assert_eq!(
        missing.detail(),
        "there must be one cookie `session` with a value"
    );
    assert!(!missing.is_server_fault());
    for name in ["", "a b", "a=b", "a;b", "ä"] {
        let error = Cookie::try_new(name).unwrap_err().to_string();
        assert!(error.contains("expected letters"), "{error}");
    }
}

fn cookies() -> impl Strategy<Value = Vec<(String, String)>> {
    let name = select(vec!["session", "Session", "lang", "s", "user:id", "100%"]);
    let value = "[!#-+\\--:<-\\[\\]-~]{0,6}";
    vec((name.prop_map(str::to_owned), value), 0..5)
}

proptest! {
    /// However a client splits its cookies over lines and escapes them, it has one key: by all
    /// pairs together, read one after the other.
    #[test]
    fn cookies_have_one_key_in_every_spelling(
        cookies in cookies(),
        splits in vec(any::<bool>(), 5),
        escapes in vec(any::<bool>(), 40),
        (own, configured) in select(vec![
            ("session", "session"),
            ("session", "%73essio%6E"),
            ("user:id", "user%3Aid"),
            ("100%", "100%25"),
        ]),
    ) {
        // A value without escapes, so that each spelling decodes to it.
        let cookies: Vec<_> = cookies.into_iter().map(|(name, value)| (name, value.replace('%', ""))).collect();
        let mut escapes = escapes.into_iter().cycle();
        let mut lines = vec![String::new()];
        for ((name, value), split) in cookies.iter().zip(&splits) {
            let mut escaped = |text: &str| text.chars().map(|letter| match escapes.next() {
                Some(true) => format!("%{:02x}", u32::from(letter)),
                _ => letter.to_string(),
            }).collect::<String>();
            let (name, value) = (escaped(name), escaped(value));
            if *split {
                lines.push(String::new());
            } else if let Some(line) = lines.last_mut().filter(|line| !line.is_empty()) {
                line.push_str("; ");
            }
            *lines.last_mut().unwrap() += &format!("{name}={value}");
        }
        let mut values: Vec<_> = cookies.iter().filter(|(name, _)| name == own).map(|(_, value)| value).collect();
        values.sort();
        values.dedup();
        let expected = match values[..] {
            [value] if !value.is_empty() => Some(Key::bytes(value.as_bytes())),
            _ => None,
        };
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        prop_assert_eq!(cookie(configured, &lines), expected, "{:?}", lines);
    }
}

#[test]
fn a_host_is_found_in_the_target_or_the_header_in_one_spelling() {
    for (uri, lines, host) in [
        ("/", &["acme.example"][..], Some("acme.example")),
        ("/", &["ACME.example:8080"], Some("acme.example")),
        ("/", &["acme.example."], Some("acme.example")),
        ("/", &["[2001:DB8::1]:443"], Some("[2001:db8::1]")),
        ("/", &["[2001:db8::1]"], Some("[2001:db8::1]")),
        ("http://Acme.example/x", &[], Some("acme.example")),
        (
            "http://acme.example:80/",
            &["ACME.example"],
            Some("acme.example"),
        ),
        ("/", &[], None),
        ("/", &[""], None),
        ("/", &["."], None),
        ("/", &[":80"], None),
        ("/", &["a.example", "a.example"], None),
        ("/", &["a.example, b.example"], None),
        ("/", &["user@a.example"], None),
        ("/", &["a.example/x"], None),
        ("http://a.example/", &["b.example"], None),
        ("http://a.example/", &[""], None),
        ("http://a.example/", &["a.example", "a.example"], None),
    ] {
        let request = with(uri, "host", lines);
        assert_eq!(Host::of(&request).as_deref(), host, "{uri} {lines:?}");
        let key = Host.extract(&request).ok();
        assert_eq!(
            key,
            host.map(|host| Key::from(host).into()),
            "{uri} {lines:?}"
        );
    }
    let missing = Host.extract(&Request::new(())).unwrap_err();
    assert!(!missing.is_server_fault() && missing.detail().contains("one host"));
}

// ---- addresses ----

fn from(peer: &str, forwarded_for: &str) -> Request<()> {
    let mut request = with("/", "x-forwarded-for", &[forwarded_for]);
    let value = HeaderValue::from_str(&format!("for=\"{forwarded_for}\"")).unwrap();
    request.headers_mut().insert("forwarded", value);
    let peer: IpAddr = peer.parse().unwrap();
    request.extensions_mut().insert(SocketAddr::new(peer, 4711));
    request
}

fn net(text: &str) -> IpNet {
    text.parse().unwrap()
}

#[test]
fn the_client_is_public_as_it_was_resolved() {
    let client = |text: &str| Some(text.parse::<IpAddr>().unwrap());
    let (by_list, by_element) = (
        ForwardedFor::trusting([net("10.0.0.0/8")]).ipv4_prefix(8),
        Forwarded::trusting([net("10.0.0.0/8")]).ipv4_prefix(8),
    );
    for (peer, forwarded, expected) in [
        ("10.0.0.1", "192.0.2.7", "192.0.2.7"),
        ("203.0.113.9", "192.0.2.7", "203.0.113.9"),
        ("10.0.0.1", "unix:", "10.0.0.1"),
        ("::ffff:10.0.0.1", "::ffff:192.0.2.7", "192.0.2.7"),
        ("10.0.0.1", "64:ff9b::c000:207", "64:ff9b::c000:207"),
    ] {
        let request = from(peer, forwarded);
        assert_eq!(
            by_list.client(&request),
            client(expected),
            "{peer} {forwarded}"
        );
        assert_eq!(
            by_element.client(&request),
            client(expected),
            "{peer} {forwarded}"
        );
    }
    let request = from("::ffff:10.0.0.1", "192.0.2.7");
    assert_eq!(PeerIp::new().client(&request), client("10.0.0.1"));
    let bare = Request::new(());
    assert_eq!(by_list.client(&bare), None);
    assert_eq!(by_element.client(&bare), None);
    assert_eq!(PeerIp::new().client(&bare), None);
}

#[test]
fn an_ipv4_prefix_limits_a_network_as_one_client() {
    let key = |bits: u8, peer: &str| {
        PeerIp::new()
            .ipv4_prefix(bits)
            .extract(&from(peer, ""))
            .unwrap()
    };
    let network = |text: &str| Extracted::Key(Key::from(text.parse::<IpAddr>().unwrap()));
    assert_eq!(key(24, "192.0.2.7"), network("192.0.2.0"));
    assert_eq!(key(24, "::ffff:192.0.2.7"), network("192.0.2.0"));
    assert_eq!(key(24, "64:ff9b::c000:207"), network("192.0.2.0"));
    assert_eq!(key(24, "2001:db8::7"), network("2001:db8::"));
    assert_eq!(key(1, "192.0.2.7"), network("128.0.0.0"));
    assert_eq!(key(32, "192.0.2.7"), network("192.0.2.7"));
    for bits in [0, 33, 255] {
        let error = PeerIp::new().try_ipv4_prefix(bits).unwrap_err().to_string();
        assert!(
            error.contains(&format!("{bits} bits: expected 1 to 32")),
            "{error}"
        );
    }
}

#[test]
fn networks_are_exempt_by_the_client_that_was_resolved() {
    let office = ["192.0.2.0/24", "2001:db8::/32"];
    let by_proxy = ForwardedFor::trusting([net("10.0.0.0/8")]);
    let by_address = by_proxy.clone().try_exempt_networks(office).unwrap();
    let by_header =
        Header::new("x-forwarded-for").exempt_if(by_proxy.clone().in_networks(office.map(net)));
    let by_element = Forwarded::trusting([net("10.0.0.0/8")]).exempt_networks(office.map(net));
    for (peer, forwarded, is_exempt) in [
        ("10.0.0.1", "192.0.2.7", true),
        ("10.0.0.1", "2001:db8::7", true),
        ("10.0.0.1", "::ffff:192.0.2.7", true),
        ("10.0.0.1", "203.0.113.9", false),
        // Forged by a client that connects directly, and translated by whoever runs a translator.
        ("203.0.113.9", "192.0.2.7", false),
        ("10.0.0.1", "64:ff9b::c000:207", false),
    ] {
        let request = from(peer, forwarded);
        let exempt = |found: Result<Extracted, _>| found == Ok(Extracted::Exempt);
        assert_eq!(
            exempt(by_address.extract(&request)),
            is_exempt,
            "{peer} {forwarded}"
        );
        assert_eq!(
            exempt(by_header.extract(&request)),
            is_exempt,
            "{peer} {forwarded}"
        );
        assert_eq!(
            exempt(by_element.extract(&request)),
            is_exempt,
            "{peer} {forwarded}"
        );
    }
    // Without a peer, nobody is exempt.
    assert!(
        by_address
            .extract(&Request::new(()))
            .unwrap_err()
            .is_server_fault()
    );
    let error = by_proxy
        .try_exempt_networks(["office.example"])
        .unwrap_err();
    assert!(error.to_string().contains("is not a network"), "{error}");
}
