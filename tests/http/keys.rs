//! Keys: a client can neither choose its key, nor share another client's by accident. No key
//! appears in a log.

use std::{
    iter,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
};

use http::{HeaderValue, Request, StatusCode};
use proptest::{collection::vec, prelude::*};
use tollgate::key::{
    BearerToken, Extension, Extracted, Forwarded, ForwardedFor, Global, Header, IpNet, Key,
    KeyExtractor, KeyExtractorExt, Method, MissingKey, Path, PeerIp, from_fn,
};

const PROXY: &str = "10.0.0.1";
const XFF: &str = "x-forwarded-for";

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// Returns a request from `peer` with these lines of one header.
fn from(peer: &str, name: &'static str, lines: &[&[u8]]) -> Request<()> {
    let mut request = Request::new(());
    request
        .extensions_mut()
        .insert(SocketAddr::new(ip(peer), 4711));
    for line in lines {
        let value = HeaderValue::from_bytes(line).unwrap();
        request.headers_mut().append(name, value);
    }
    request
}

fn found<Req: ?Sized>(extractor: &impl KeyExtractor<Req>, request: &Req) -> Key {
    match extractor.extract(request).unwrap() {
        Extracted::Key(key) => key,
        Extracted::Exempt => panic!("exempt"),
    }
}

fn missing<Req>(extractor: &impl KeyExtractor<Req>, request: &Req) -> MissingKey {
    extractor.extract(request).unwrap_err()
}

fn peer_key(peer: &str) -> Key {
    found(&PeerIp::new(), &from(peer, XFF, &[]))
}

fn trusting() -> ForwardedFor {
    ForwardedFor::try_trusting(["10.0.0.0/8", "fd00::/8"]).unwrap()
}

/// Returns the key by `X-Forwarded-For` behind the trusted proxy.
fn by_xff(lines: &[&str]) -> Key {
    let lines: Vec<_> = lines.iter().map(|line| line.as_bytes()).collect();
    found(&trusting(), &from(PROXY, XFF, &lines))
}

/// Returns the key by `Forwarded` behind the trusted proxy.
fn by_forwarded(lines: &[&str]) -> Key {
    let lines: Vec<_> = lines.iter().map(|line| line.as_bytes()).collect();
    let clients = Forwarded::try_trusting(["10.0.0.0/8", "fd00::/8"]).unwrap();
    found(&clients, &from(PROXY, "forwarded", &lines))
}

// ---- addresses ----

#[test]
fn a_missing_peer_is_an_error_that_names_the_remedy() {
    let request = Request::new(());
    let errors = [
        missing(&PeerIp::new(), &request),
        missing(&trusting(), &request),
        missing(&ForwardedFor::hops(1), &request),
        missing(&Forwarded::hops(1), &request),
    ];
    for error in errors {
        assert!(error.is_server_fault());
        assert_eq!(error.status(), StatusCode::INTERNAL_SERVER_ERROR);
        let help = error.help().unwrap().expose_to_operator();
        assert!(help.contains("into_make_service_with_connect_info::<SocketAddr>()"));
        assert!(help.contains("`SocketAddr`"));
    }
}

#[test]
fn the_peer_is_found_in_every_supported_extension() {
    let mut request = Request::new(());
    request.extensions_mut().insert(ip("192.0.2.1"));
    assert_eq!(found(&PeerIp::new(), &request), ip("192.0.2.1").into());

    let elsewhere =
        PeerIp::new().peer_from(|extensions| extensions.get::<Ipv4Addr>().copied().map(IpAddr::V4));
    assert_eq!(found(&elsewhere, &request), ip("192.0.2.1").into());
    request.extensions_mut().insert(Ipv4Addr::new(192, 0, 2, 2));
    assert_eq!(found(&elsewhere, &request), ip("192.0.2.2").into());
}

#[cfg(feature = "axum")]
#[test]
fn the_peer_is_found_in_axums_connect_info() {
    use axum::extract::{ConnectInfo, connect_info::MockConnectInfo};
    let mut request = Request::new(());
    let address = |last| SocketAddr::from(([192, 0, 2, last], 1));
    request.extensions_mut().insert(MockConnectInfo(address(1)));
    assert_eq!(found(&PeerIp::new(), &request), ip("192.0.2.1").into());
    request.extensions_mut().insert(ConnectInfo(address(2)));
    assert_eq!(found(&PeerIp::new(), &request), ip("192.0.2.2").into());
}

#[cfg(feature = "tonic")]
#[test]
fn the_peer_is_found_in_tonics_connect_info() {
    let mut request = Request::new(());
    request
        .extensions_mut()
        .insert(tonic::transport::server::TcpConnectInfo {
            local_addr: None,
            remote_addr: Some(SocketAddr::from(([192, 0, 2, 1], 1))),
        });
    assert_eq!(found(&PeerIp::new(), &request), ip("192.0.2.1").into());
}

#[test]
fn ipv6_is_limited_by_64_bits_by_default() {
    assert_eq!(peer_key("2001:db8::1"), peer_key("2001:db8::2:3:4:5"));
    assert_ne!(peer_key("2001:db8:0:1::1"), peer_key("2001:db8:0:2::1"));

    let by = |bits, peer| found(&PeerIp::new().ipv6_prefix(bits), &from(peer, XFF, &[]));
    assert_eq!(by(48, "2001:db8:0:1::1"), by(48, "2001:db8:0:2::1"));
    assert_ne!(by(128, "2001:db8::1"), by(128, "2001:db8::2"));
    assert_ne!(by(1, "2001:db8::1"), by(1, "fe80::1"));
    for bits in [0, 129, 255] {
        assert!(PeerIp::new().try_ipv6_prefix(bits).is_err());
    }
}

/// Masked before unmapping, all of IPv4 shared one key (GHSA-46wh-pxpv-q5gq).
#[test]
fn mapped_and_translated_ipv4_keys_by_the_ipv4_address() {
    assert_eq!(peer_key("::ffff:192.0.2.1"), ip("192.0.2.1").into());
    assert_eq!(peer_key("64:ff9b::192.0.2.1"), ip("192.0.2.1").into());
    assert_ne!(peer_key("::ffff:192.0.2.1"), peer_key("::ffff:192.0.2.2"));
    assert_eq!(by_xff(&["::ffff:192.0.2.1"]), ip("192.0.2.1").into());
    // Outside the /96 it is an ordinary address.
    assert_eq!(peer_key("64:ff9b:0:0:1::1"), ip("64:ff9b::").into());
}

// ---- X-Forwarded-For ----

#[test]
fn the_first_hop_that_is_not_trusted_is_the_client() {
    assert_eq!(by_xff(&["6.6.6.6, 192.0.2.1"]), ip("192.0.2.1").into());
    assert_eq!(
        by_xff(&["6.6.6.6, 192.0.2.1, 10.9.9.9"]),
        ip("192.0.2.1").into()
    );
    assert_eq!(by_xff(&["10.0.0.3, 10.0.0.2"]), ip("10.0.0.3").into());
    assert_eq!(by_xff(&[]), ip(PROXY).into());
}

/// The limitation that the page of `trusting` states: nothing tells such a client from a proxy.
#[test]
fn a_client_in_a_trusted_network_is_taken_for_a_proxy() {
    let request = from(PROXY, "x-forwarded-for", &[b"6.6.6.6, 10.0.0.77"]);
    assert_eq!(found(&trusting(), &request), ip("6.6.6.6").into());
    let client = ip("10.0.0.77").into();
    assert_eq!(found(&ForwardedFor::hops(1), &request), client);
    let proxy = ForwardedFor::try_trusting([PROXY]).unwrap();
    assert_eq!(found(&proxy, &request), client);
}

/// Reading only the first line would find the line that the client sent.
#[test]
fn all_lines_count_in_order() {
    assert_eq!(
        by_xff(&["6.6.6.6", "192.0.2.1", "10.0.0.2"]),
        ip("192.0.2.1").into()
    );
    assert_eq!(
        by_xff(&["6.6.6.6, 10.0.0.3", "10.0.0.2"]),
        ip("6.6.6.6").into()
    );
}

/// Skipping the element would trust the elements to its left.
#[test]
fn an_element_without_an_address_ends_the_walk() {
    for bad in [
        "unknown",
        "_hidden",
        "",
        " ",
        "localhost",
        "1.2.3",
        "1.2.3.4.5",
        "01.2.3.4",
        "1.2.3.4:",
        "[::1",
        "::1]",
        "[1.2.3.4]",
        "[::1]80",
        "1.2.3.4:123456",
        "1.2.3.4:x",
        "fe80::1%eth0",
        "\"1.2.3.4\"",
        "1.2.3.4 5.6.7.8",
        "[]",
        ":",
    ] {
        let line = format!("6.6.6.6, {bad}, 10.0.0.2");
        assert_eq!(by_xff(&[&line]), ip("10.0.0.2").into(), "{bad}");
    }
    let request = from(PROXY, XFF, &[b"6.6.6.6, 7.7.7.7\xff, 10.0.0.2"]);
    assert_eq!(found(&trusting(), &request), ip("10.0.0.2").into());
}

#[test]
fn elements_may_have_ports_and_brackets() {
    for (element, address) in [
        ("1.2.3.4", "1.2.3.4"),
        ("1.2.3.4:5678", "1.2.3.4"),
        ("\t 1.2.3.4 \t", "1.2.3.4"),
        ("2001:db8::1", "2001:db8::"),
        ("[2001:db8::1]", "2001:db8::"),
        ("[2001:db8::1]:443", "2001:db8::"),
        ("::", "::"),
    ] {
        assert_eq!(by_xff(&[element]), ip(address).into(), "{element}");
    }
}

#[test]
fn a_mapped_proxy_is_trusted_as_its_ipv4_address() {
    let request = from("::ffff:10.0.0.1", XFF, &[b"192.0.2.1, ::ffff:10.0.0.2"]);
    assert_eq!(found(&trusting(), &request), ip("192.0.2.1").into());
    let mapped = ForwardedFor::try_trusting(["::ffff:10.0.0.0/104"]).unwrap();
    assert_eq!(found(&mapped, &request), ip("192.0.2.1").into());
    // Anyone can come through a translator.
    let translated = from("64:ff9b::10.0.0.1", XFF, &[b"6.6.6.6"]);
    assert_eq!(found(&trusting(), &translated), ip("10.0.0.1").into());
}

#[test]
fn hops_are_counted_from_the_peer() {
    let request = from(
        "192.0.2.9",
        XFF,
        &[b"6.6.6.6, unknown, 192.0.2.1", b"192.0.2.2"],
    );
    let by = |hops| found(&ForwardedFor::hops(hops), &request);
    assert_eq!(by(0), ip("192.0.2.9").into());
    assert_eq!(by(1), ip("192.0.2.2").into());
    assert_eq!(by(2), ip("192.0.2.1").into());
    assert_eq!(by(3), ip("192.0.2.1").into());
    assert_eq!(by(usize::MAX), ip("192.0.2.1").into());
}

// The documentation of `ForwardedFor::hops` about lists shorter than the hops.
proptest! {
    // The leftmost element, or the peer: as with a number of hops equal to the number of elements.
    #[test]
    fn a_list_shorter_than_its_hops_ends_at_its_leftmost_element(
        addresses in vec(any::<[u8; 4]>(), 0..6),
        more in 1..70_usize,
        far: bool,
    ) {
        let hops = if far { usize::MAX } else { addresses.len() + more };
        let sent: Vec<_> = addresses.iter().map(|address| IpAddr::from(*address).to_string()).collect();
        let leftmost = addresses.first().map_or(ip(PROXY), |address| IpAddr::from(*address));
        let list = sent.join(", ");
        let lines: Vec<&[u8]> = if sent.is_empty() { vec![] } else { vec![list.as_bytes()] };
        prop_assert_eq!(found(&ForwardedFor::hops(hops), &from(PROXY, XFF, &lines)), leftmost.into());

        let list: Vec<_> = sent.iter().map(|address| format!("for={address}")).collect();
        let list = list.join(", ");
        let lines: Vec<&[u8]> = if sent.is_empty() { vec![] } else { vec![list.as_bytes()] };
        prop_assert_eq!(found(&Forwarded::hops(hops), &from(PROXY, "forwarded", &lines)), leftmost.into());
    }

    // The key of a client behind all proxies is the address that the outermost proxy saw, whatever
    // the client sends. So the client cannot shorten the list.
    #[test]
    fn no_client_behind_all_hops_can_shorten_the_list(
        sent in vec(line(), 0..3),
        client in any::<[u8; 4]>(),
        hops in 1..6_usize,
    ) {
        let client = IpAddr::from(client);
        // The proxies append the client's address, and the addresses of all proxies but the last,
        // which is the peer.
        let appended = |parameter: &str| {
            let seen = iter::once(client.to_string()).chain((1..hops).map(|proxy| format!("10.0.0.{proxy}")));
            let mut lines = sent.clone();
            lines.extend(seen.map(|address| format!("{parameter}{address}").into_bytes()));
            lines
        };
        let lines = appended("");
        let lines: Vec<_> = lines.iter().map(Vec::as_slice).collect();
        prop_assert_eq!(found(&ForwardedFor::hops(hops), &from(PROXY, XFF, &lines)), client.into());
        let lines = appended("for=");
        let lines: Vec<_> = lines.iter().map(Vec::as_slice).collect();
        prop_assert_eq!(found(&Forwarded::hops(hops), &from(PROXY, "forwarded", &lines)), client.into());
    }
}

#[test]
fn at_most_64_elements_are_read() {
    let line = format!("6.6.6.6{}", ", 10.0.0.2".repeat(63));
    assert_eq!(by_xff(&[&line]), ip("6.6.6.6").into());
    let line = format!("6.6.6.6{}", ", 10.0.0.2".repeat(64));
    assert_eq!(by_xff(&[&line]), ip("10.0.0.2").into());
}

#[test]
fn another_header_replaces_the_default_header() {
    let clients = trusting().in_header("CF-Connecting-IP");
    let mut request = from(PROXY, "cf-connecting-ip", &[b"192.0.2.1"]);
    request
        .headers_mut()
        .insert(XFF, HeaderValue::from_static("6.6.6.6"));
    assert_eq!(found(&clients, &request), ip("192.0.2.1").into());
    assert_eq!(found(&trusting(), &request), ip("6.6.6.6").into());
    assert!(trusting().try_in_header("no spaces").is_err());
}

#[test]
fn invalid_networks_are_errors_of_the_constructor() {
    let error = ForwardedFor::try_trusting(["10.0.0.0/8", "loadbalancer"]).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("`loadbalancer` is not a network")
    );
    for bad in ["10.0.0.0/33", "10.0.0/8", "", "::/129", "10.0.0.0/8 "] {
        assert!(Forwarded::try_trusting([bad]).is_err(), "{bad}");
    }
    let one = ForwardedFor::try_trusting([PROXY]).unwrap();
    let net: IpNet = "10.0.0.1/32".parse().unwrap();
    let request = from(PROXY, XFF, &[b"192.0.2.1"]);
    assert_eq!(
        found(&one, &request),
        found(&ForwardedFor::trusting([net]), &request)
    );
    assert_eq!(
        found(&ForwardedFor::trusting([] as [IpNet; 0]), &request),
        ip(PROXY).into()
    );
    // Bits after the prefix are ignored.
    let loose = ForwardedFor::try_trusting(["10.1.2.3/8"]).unwrap();
    assert_eq!(found(&loose, &request), ip("192.0.2.1").into());
}

// ---- Forwarded ----

#[test]
fn forwarded_is_parsed_according_to_rfc_7239() {
    for (line, address) in [
        ("for=192.0.2.43", "192.0.2.43"),
        ("For=\"192.0.2.43:80\"", "192.0.2.43"),
        ("for=\"[2001:db8:cafe::17]:4711\"", "2001:db8:cafe::"),
        ("for=192.0.2.60;proto=http;by=203.0.113.43", "192.0.2.60"),
        (
            "proto=http; by=\"a;b,c=\\\"\" ; for=192.0.2.60",
            "192.0.2.60",
        ),
        ("for=\"1\\92.0.2.\\6\"", "192.0.2.6"),
        ("for=\"192.0.2.1:_port\"", "192.0.2.1"),
        ("for=2001:db8::1", "2001:db8::"),
        (
            "for=6.6.6.6, for=192.0.2.1;by=\"x,for=7.7.7.7\", for=10.0.0.2;;",
            "192.0.2.1",
        ),
        ("for=192.0.2.1;x=\"\\\\\", for=10.0.0.2", "192.0.2.1"),
    ] {
        assert_eq!(by_forwarded(&[line]), ip(address).into(), "{line}");
    }
    assert_eq!(
        by_forwarded(&["for=6.6.6.6", "for=192.0.2.1", "for=10.0.0.2"]),
        ip("192.0.2.1").into(),
    );
}

#[test]
fn a_bad_element_of_forwarded_ends_the_walk() {
    for bad in [
        "for=unknown",
        "for=_hidden",
        "for=",
        "for",
        "",
        "proto=http",
        "for=1.2.3.4;for=1.2.3.4",
        "for =1.2.3.4",
        "for=1.2.3.4;x",
        "for=1.2.3.4;=x",
        "for=1.2.3.4;x=",
        "for=\"1.2.3.4",
        "for=1.2.3.4\"",
        "for=\"1.2.3.4\\\"",
        "for=\"1.2.3.4\"x",
        "for=1.2.3.4;x=\"a\"b\"",
        "for=\"1.2.3.4, 1.2.3.4\"",
        "for=1.2.3.4 5",
    ] {
        let line = format!("for=6.6.6.6, {bad}, for=10.0.0.2");
        assert_eq!(by_forwarded(&[&line]), ip("10.0.0.2").into(), "{bad}");
    }
    let request = from(PROXY, "forwarded", &[b"for=6.6.6.6;by=\"\xff\""]);
    assert_eq!(found(&Forwarded::hops(1), &request), ip(PROXY).into());
}

// ---- invariants of the walk ----

fn line() -> impl Strategy<Value = Vec<u8>> {
    // Bytes that a header can contain, with more quotes, commas and escapes than by chance.
    let byte = prop_oneof![
        any::<u8>(),
        prop::sample::select(&b"\"\\,;= for=1.2.3.4:[]_"[..]),
    ];
    vec(byte, 0..80).prop_map(|mut line| {
        line.retain(|byte| HeaderValue::from_bytes(&[*byte]).is_ok());
        line
    })
}

/// Generates elements as a proxy may write them, and invalid pieces.
fn element() -> impl Strategy<Value = String> {
    let address = || {
        prop_oneof![
            (0..4_u8).prop_map(|last| IpAddr::from([10, 0, 0, last])),
            any::<[u8; 4]>().prop_map(IpAddr::from),
            any::<u128>().prop_map(|bits| Ipv6Addr::from(bits).into()),
            any::<u64>().prop_map(|bits| Ipv6Addr::from((0xfd << 120) | u128::from(bits)).into()),
            (0..4_u8).prop_map(|last| Ipv4Addr::new(10, 0, 0, last).to_ipv6_mapped().into()),
        ]
    };
    prop_oneof![
        6 => address().prop_map(|address| address.to_string()),
        2 => (address(), any::<u16>()).prop_map(|(address, port)| SocketAddr::new(address, port).to_string()),
        1 => address().prop_map(|address| format!("[{address}]")),
        1 => prop::sample::select(vec!["unknown", "_x", "", "1.2.3", "::1::", "10.0.0.1:"])
            .prop_map(str::to_owned),
    ]
}

/// The walk as documented, in the slow obvious way: everything is parsed, then walked.
fn oracle(peer: IpAddr, lines: &[String], trusted: impl Fn(usize, IpAddr) -> bool) -> IpAddr {
    let parse = |element: &str| -> Option<IpAddr> {
        let element = element.trim_matches([' ', '\t']);
        let bare = element
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'));
        let bare = bare
            .and_then(|bare| bare.parse::<Ipv6Addr>().ok())
            .map(IpAddr::from);
        let with_port = element
            .parse::<SocketAddr>()
            .ok()
            .map(|address| address.ip());
        element
            .parse()
            .ok()
            .or(bare)
            .or(with_port)
            .map(|ip: IpAddr| ip.to_canonical())
    };
    let all = lines.join(",");
    let mut path = vec![Some(peer.to_canonical())];
    if !lines.is_empty() {
        path.extend(all.split(',').rev().map(parse));
    }
    let mut client = peer.to_canonical();
    for (walked, hop) in path.into_iter().enumerate() {
        let Some(hop) = hop else { break };
        client = hop;
        if !trusted(walked, hop) {
            break;
        }
    }
    client
}

proptest! {
    // Any bytes: no panic, and one of the possible keys.
    #[test]
    fn no_bytes_cause_a_panic(lines in vec(line(), 0..4), hops in 0..80_usize) {
        let lines: Vec<_> = lines.iter().map(Vec::as_slice).collect();
        let request = from(PROXY, XFF, &lines);
        prop_assert!(trusting().extract(&request).is_ok());
        prop_assert!(ForwardedFor::hops(hops).extract(&request).is_ok());
        let request = from(PROXY, "forwarded", &lines);
        prop_assert!(Forwarded::hops(hops).extract(&request).is_ok());
        let _ = BearerToken.extract(&from(PROXY, "authorization", &lines));
    }

    // An untrusted peer has the same key, whatever it sends.
    #[test]
    fn an_untrusted_peer_cannot_influence_its_key(lines in vec(line(), 0..4), sent in element()) {
        let sent = format!("for=\"{sent}\"");
        let mut lines: Vec<_> = lines.iter().map(Vec::as_slice).collect();
        lines.push(sent.as_bytes());
        let clients = Forwarded::try_trusting(["10.0.0.0/8"]).unwrap();
        let request = from("192.0.2.1", "forwarded", &lines);
        prop_assert_eq!(found(&clients, &request), peer_key("192.0.2.1"));
        lines.push(&sent.as_bytes()[5..sent.len() - 1]);
        let request = from("192.0.2.1", XFF, &lines);
        prop_assert_eq!(found(&trusting(), &request), peer_key("192.0.2.1"));
    }

    // The elements that a client sends through an appending proxy change nothing, on the same line
    // or another.
    #[test]
    fn elements_left_of_the_client_are_ignored(sent in line(), more in line(), same_line: bool, quoted: bool) {
        let append = |appended: &str| {
            let mut lines = vec![sent.clone(), more.clone()];
            if same_line {
                lines[1].extend_from_slice(format!(", {appended}").as_bytes());
            } else {
                lines.push(appended.as_bytes().to_vec());
            }
            lines
        };
        let lines = append("192.0.2.1");
        let lines: Vec<_> = lines.iter().map(Vec::as_slice).collect();
        prop_assert_eq!(found(&trusting(), &from(PROXY, XFF, &lines)), peer_key("192.0.2.1"));

        let lines = append(if quoted { "for=\"192.0.2.1\";by=\"a,\\\"b\"" } else { "for=192.0.2.1" });
        let lines: Vec<_> = lines.iter().map(Vec::as_slice).collect();
        let clients = Forwarded::try_trusting(["10.0.0.0/8"]).unwrap();
        prop_assert_eq!(found(&clients, &from(PROXY, "forwarded", &lines)), peer_key("192.0.2.1"));
    }

    // For both headers, by networks and by hops, the walk equals the slow walk.
    #[test]
    fn the_walk_agrees_with_the_slow_one(
        lines in vec(vec(element(), 1..5), 0..4),
        blank in prop::sample::select(vec!["", " ", "\t  "]),
        hops in 0..8_usize,
    ) {
        let networks: Vec<IpNet> = ["10.0.0.0/8", "fd00::/8"].map(|net| net.parse().unwrap()).into();
        let xff: Vec<_> = lines.iter().map(|line| line.join(&format!("{blank},{blank}"))).collect();
        let by_net = oracle(ip(PROXY), &xff, |_, hop| networks.iter().any(|net| net.contains(&hop)));
        let by_hops = oracle(ip(PROXY), &xff, |walked, _| walked < hops);
        let key = |address: IpAddr| peer_key(&address.to_string());

        let bytes: Vec<_> = xff.iter().map(|line| line.as_bytes()).collect();
        let request = from(PROXY, XFF, &bytes);
        prop_assert_eq!(found(&ForwardedFor::trusting(networks.clone()), &request), key(by_net));
        prop_assert_eq!(found(&ForwardedFor::hops(hops), &request), key(by_hops));

        let quote = |element: &String| format!("by=\"a, \\\" b\";for=\"{element}\"{blank};proto=http");
        let forwarded: Vec<_> = lines
            .iter()
            .map(|line| line.iter().map(quote).collect::<Vec<_>>().join(","))
            .collect();
        let bytes: Vec<_> = forwarded.iter().map(|line| line.as_bytes()).collect();
        let request = from(PROXY, "forwarded", &bytes);
        prop_assert_eq!(found(&Forwarded::trusting(networks), &request), key(by_net));
        prop_assert_eq!(found(&Forwarded::hops(hops), &request), key(by_hops));
    }
}

// ---- headers, targets, extensions ----

#[test]
fn a_header_key_is_one_nonempty_line_of_any_bytes() {
    let by = Header::new("X-Api-Key");
    let key = |lines: &[&[u8]]| by.extract(&from(PROXY, "x-api-key", lines));
    assert_eq!(key(&[b"\xff\xfe"]), Ok(Key::bytes(b"\xff\xfe").into()));
    assert_eq!(key(&[b" a "]), Ok(Key::bytes(b"a").into()));
    for lines in [
        vec![],
        vec![""],
        vec!["  "],
        vec!["a", "b"],
        vec!["a", "a"],
        vec!["", "a"],
    ] {
        let lines: Vec<_> = lines.iter().map(|line| line.as_bytes()).collect();
        let error = key(&lines).unwrap_err();
        assert_eq!(error.status(), StatusCode::BAD_REQUEST);
        assert!(error.detail().contains("`x-api-key`") && !error.is_server_fault());
    }
    assert!(
        Header::try_new("")
            .unwrap_err()
            .to_string()
            .contains("as in `x-api-key`")
    );
}

#[test]
fn a_bearer_token_needs_its_scheme() {
    let token = |line: &[u8]| BearerToken.extract(&from(PROXY, "authorization", &[line]));
    for line in [&b"Bearer a.b"[..], b"bEARER a.b", b"Bearer   a.b "] {
        assert_eq!(token(line), Ok(Key::bytes(b"a.b").into()));
    }
    for line in [
        &b"Bearer"[..],
        b"Bearer ",
        b"Bearera.b",
        b"Basic a.b",
        b"Bearer a b",
        b"",
    ] {
        let error = token(line).unwrap_err();
        assert_eq!(
            (error.status().as_u16(), error.challenge()),
            (401, Some("Bearer"))
        );
    }
    let two = from(PROXY, "authorization", &[b"Bearer a", b"Bearer b"]);
    assert!(BearerToken.extract(&two).is_err());
}

#[test]
fn method_and_path_are_as_sent() {
    let request = Request::put("http://example.com/a%20b/?q=1")
        .body(())
        .unwrap();
    assert_eq!(found(&Method, &request), Key::from("PUT"));
    assert_eq!(found(&Path, &request), Key::from("/a%20b/"));
    assert_eq!(
        found(&(Method, Path), &request),
        Key::join(["PUT", "/a%20b/"])
    );
}

#[cfg(feature = "axum")]
#[tokio::test]
async fn requests_without_a_route_share_a_key() {
    use axum::{Router, extract, routing::get};
    use tollgate::key::MatchedPath;
    use tower::ServiceExt;

    let tell = |request: extract::Request| async move {
        format!("{:?}", found(&MatchedPath.labelled(), &request))
    };
    let app: Router = Router::new().route("/users/{id}", get(tell)).fallback(tell);
    for (path, key) in [
        ("/users/7", "Key(text /users/{id})"),
        ("/made-up", "Key(shared unmatched)"),
        ("/unmatched", "Key(shared unmatched)"),
    ] {
        let request = Request::get(path).body(axum::body::Body::empty()).unwrap();
        let answer = app.clone().oneshot(request).await.unwrap();
        let body = axum::body::to_bytes(answer.into_body(), 1000)
            .await
            .unwrap();
        assert_eq!(body, key);
    }
}

#[test]
fn a_missing_extension_is_the_servers_fault_and_a_missing_value_the_clients() {
    #[derive(Clone)]
    struct User(u64);
    let by = Extension::new(|user: &Option<User>| user.as_ref().map(|user| Key::from(user.0)));
    let mut request = Request::new(());
    let forgotten = missing(&by, &request);
    assert!(forgotten.is_server_fault());
    let help = forgotten.help().unwrap().expose_to_operator();
    assert!(help.contains("User"), "{help}");
    request.extensions_mut().insert(None::<User>);
    assert!(!missing(&by, &request).is_server_fault());
    request.extensions_mut().insert(Some(User(7)));
    assert_eq!(found(&by, &request), Key::from(7));
}

// ---- combinations ----

#[test]
fn or_falls_through_on_a_missing_key_only() {
    let request = from("192.0.2.1", "x-api-key", &[]);
    let with_key = from("192.0.2.1", "x-api-key", &[b"a"]);
    let by = Header::new("x-api-key").or(PeerIp::new());
    assert_eq!(found(&by, &request), ip("192.0.2.1").into());
    assert_eq!(found(&by, &with_key), Key::bytes(b"a"));

    let exempt = Global.exempt_if(|_: &Request<()>| true).or(PeerIp::new());
    assert_eq!(exempt.extract(&request), Ok(Extracted::Exempt));
    assert_eq!(
        Header::new("x").or_exempt().extract(&request),
        Ok(Extracted::Exempt)
    );
    assert_eq!(
        found(&Header::new("x").or_shared("anonymous"), &request),
        Key::shared("anonymous")
    );
    let refused = Header::new("x").or_refuse(StatusCode::FORBIDDEN);
    assert_eq!(missing(&refused, &request).status(), StatusCode::FORBIDDEN);
    assert_eq!(
        missing(&BearerToken.or_refuse(StatusCode::FORBIDDEN), &request).challenge(),
        None
    );

    // The server's fault is reported to the operator, whichever side it is on.
    let bare = Request::new(());
    assert!(missing(&PeerIp::new().or(Header::new("x")), &bare).is_server_fault());
    assert!(missing(&Header::new("x").or(PeerIp::new()), &bare).is_server_fault());
}

#[test]
fn exemptions_precede_the_key_and_are_exact() {
    let by = Header::new("x")
        .exempt_cors_preflight()
        .exempt_paths(["/health", "/ready"]);
    let exempt = |request: http::request::Builder| by.extract(&request.body(()).unwrap()).is_ok();
    let preflight = || Request::options("/").header("origin", "https://a.example");
    assert!(exempt(
        preflight().header("access-control-request-method", "PUT")
    ));
    assert!(!exempt(preflight()));
    assert!(!exempt(
        Request::options("/").header("access-control-request-method", "PUT")
    ));
    assert!(!exempt(
        preflight()
            .header("access-control-request-method", "PUT")
            .method("POST")
    ));
    assert!(exempt(Request::get("/health?x=1")));
    assert!(exempt(Request::get("/ready")));
    for path in [
        "/health/",
        "/health/x",
        "/Health",
        "/healthy",
        "/%68ealth",
        "/?/health",
    ] {
        assert!(!exempt(Request::get(path)), "{path}");
    }
}

#[test]
fn closures_and_other_request_types_are_extractors() {
    let by_length = |words: &str| u64::try_from(words.len()).ok();
    assert_eq!(found(&by_length, "four"), Key::from(4));
    let combined = from_fn(|job: &(u64, bool)| job.1.then_some(job.0)).or_shared("rest");
    assert_eq!(found(&combined, &(7, true)), Key::from(7));
    assert_eq!(found(&combined, &(7, false)), Key::shared("rest"));
    assert_eq!(
        found(&(combined, Global), &(7, true)),
        Key::join([Key::from(7), Key::GLOBAL])
    );
    // The error of a function that returns only `None`.
    let none = missing(&|_: &u8| None::<Key>, &1);
    assert_eq!(none.detail(), "there must be a key in the request");
    let part_exempt = (Global, Global.exempt_if(|_: &u8| true));
    assert_eq!(part_exempt.extract(&1_u8), Ok(Extracted::Exempt));
}

#[test]
fn tags_separate_equal_keys_of_different_sources() {
    let by = Header::new("x-api-key")
        .tagged("key")
        .or(Header::new("x-user").tagged("user"));
    let key = found(&by, &from(PROXY, "x-api-key", &[b"7"]));
    let user = found(&by, &from(PROXY, "x-user", &[b"7"]));
    assert_ne!(key, user);
    assert_ne!(key, Key::join([Key::from("key"), Key::bytes(b"7")]));
}

// ---- the key itself ----

#[test]
fn a_key_is_small_and_long_inputs_stay_distinct() {
    assert!(size_of::<Key>() <= 48);
    let mut long = vec![b'a'; 10_000];
    let first = found(&Header::new("x"), &from(PROXY, "x", &[&long]));
    long[9_999] = b'b';
    assert_ne!(first, found(&Header::new("x"), &from(PROXY, "x", &[&long])));
    // A client that sends a digest does not get the key that was digested.
    let long = "a".repeat(41);
    let digest = &blake3_of(&long)[..16];
    assert_ne!(Key::bytes(long.as_bytes()), Key::bytes(digest));
    assert_ne!(Key::bytes(b"a"), Key::bytes(b"a\0"));
}

/// Returns the bytes of a labelled digest.
fn blake3_of(text: &str) -> Vec<u8> {
    let shown = format!("{:?}", Key::bytes(text.as_bytes()).labelled());
    let hex = shown.trim_start_matches("Key(bytes ").trim_end_matches(')');
    (0..hex.len() / 2)
        .map(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).unwrap())
        .collect()
}

#[test]
fn keys_of_different_kinds_are_never_equal() {
    let keys = [
        Key::GLOBAL,
        Key::from(""),
        Key::bytes(b""),
        Key::shared(""),
        Key::join([] as [Key; 0]),
        Key::from("7"),
        Key::bytes(b"7"),
        Key::shared("7"),
        Key::from(7),
        Key::from("\0\0\0\0\0\0\0\x07"),
        Key::from(Ipv4Addr::from(*b"abcd")),
        Key::from("abcd"),
        Key::from(Ipv6Addr::from(*b"abcdabcdabcdabcd")),
        Key::bytes(b"abcdabcdabcdabcd"),
        Key::join(["7"]),
        Key::join([Key::from(7)]),
    ];
    for (at, key) in keys.iter().enumerate() {
        assert_eq!(
            keys.iter().position(|other| other == key),
            Some(at),
            "{key:?}"
        );
    }
}

proptest! {
    // Joined keys are equal exactly if their parts are, short or long, nested or not.
    #[test]
    fn joined_parts_are_unambiguous(a in vec("[a:]{0,30}", 0..6), b in vec("[a:]{0,30}", 0..6)) {
        prop_assert_eq!(Key::join(&a) == Key::join(&b), a == b);
        let nested = |parts: &[String]| Key::join([Key::join(parts), Key::GLOBAL]);
        prop_assert_eq!(nested(&a) == nested(&b), a == b);
    }
}

#[test]
fn debug_never_shows_a_key_unless_it_is_labelled() {
    let request = from(PROXY, "x", &[b"secret"]);
    let long = "secret".repeat(100);
    let part = Key::join([Key::from("secret").labelled(), Key::from(7)]);
    for key in [
        found(&Header::new("x"), &request),
        Key::from("secret"),
        Key::from(long.as_str()),
        Key::shared("secret"),
        part,
    ] {
        let shown = format!("{key:?} {:?}", Extracted::Key(key));
        assert!(
            !shown.contains("secret") && !shown.contains("\\"),
            "{shown}"
        );
    }
    assert_eq!(format!("{:?}", Key::from(ip("192.0.2.1"))), "Key(ip)");

    let both = (Header::new("x"), PeerIp::new()).labelled();
    let key = found(&both, &request);
    assert_eq!(format!("{key:?}"), "Key(joined bytes secret, ip 10.0.0.1)");
    assert_eq!(key, found(&(Header::new("x"), PeerIp::new()), &request));
    assert!(key.is_labelled() && !found(&Header::new("x"), &request).is_labelled());
    assert_eq!(
        format!("{:?}", Key::from(ip("::1")).labelled()),
        "Key(ip ::1)"
    );
    assert_eq!(format!("{:?}", Key::from(7).labelled()), "Key(number 7)");
}
