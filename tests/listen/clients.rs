//! The limits of all clients and of one, by address.

use std::{net::IpAddr, time::Duration};

use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tollgate::{
    AnyRule, InFlight, LeakyBucket, Limiter, LiveRule, Policy, TokenBucket,
    key::PeerIp,
    listen::{Guarded, GuardedIo},
    prelude::*,
    testing::{Fault, Faulty},
};

use super::script::{Clients, Pipes, next};

type Connection = (GuardedIo<DuplexStream>, std::net::SocketAddr);

/// Returns the connections that are admitted of clients at these addresses, in order.
async fn admitted(guarded: Guarded<Pipes>, clients: &Clients, addresses: &[&str]) -> Vec<String> {
    let mut listener = guarded.build().unwrap();
    let connected: Vec<_> = addresses.iter().map(|at| clients.connect(at)).collect();
    let mut open: Vec<Connection> = Vec::new();
    while let Some(connection) = next(&mut listener).await {
        open.push(connection);
    }
    let stats = listener.connections().stats();
    assert_eq!(
        (stats.accepted, stats.open),
        (open.len() as u64, open.len())
    );
    let refused = stats.refused_at_most + stats.refused_per_client + stats.refused_accept;
    assert_eq!(refused as usize, connected.len() - open.len());
    // Those that were refused are closed, and no other.
    let mut closed = 0;
    for mut client in connected {
        closed += usize::from(client.write_all(b"x").await.is_err());
    }
    assert_eq!(closed as u64, refused);
    let addresses = open.iter().map(|(_, address)| address.ip().to_string());
    addresses.collect()
}

#[tokio::test(start_paused = true)]
async fn at_most_so_many_are_open() {
    let clients = Clients::default();
    let mut listener = clients.listener().at_most(3).build().unwrap();
    let connections = listener.connections().clone();
    let mut open = Vec::new();
    for round in 0..50_u64 {
        let ends: Vec<_> = (0..5).map(|_| clients.connect("192.0.2.1")).collect();
        while let Some((connection, _)) = next(&mut listener).await {
            open.push(connection);
        }
        let stats = connections.stats();
        assert_eq!((open.len(), stats.open), (3, 3));
        // In the first round three are free, then one.
        assert_eq!(stats.accepted, 3 + round);
        assert_eq!(stats.refused_at_most, 2 + 4 * round);
        open.swap_remove((round % 3) as usize);
        drop(ends);
    }
}

#[tokio::test(start_paused = true)]
async fn each_client_has_so_many() {
    let clients = Clients::default();
    let addresses = [
        "192.0.2.1",
        "192.0.2.1",
        "192.0.2.2",
        "192.0.2.1",
        "::ffff:192.0.2.1",
    ];
    let guarded = clients.listener().per_client(2);
    assert_eq!(
        admitted(guarded, &clients, &addresses).await,
        ["192.0.2.1", "192.0.2.1", "192.0.2.2"]
    );
    // A /64 is a client, or what the prefix says.
    let addresses = [
        "2001:db8::1",
        "2001:db8::2",
        "2001:db8:0:1::1",
        "2001:db8:1::1",
    ];
    let guarded = clients.listener().per_client(1);
    assert_eq!(
        admitted(guarded, &clients, &addresses).await,
        ["2001:db8::1", "2001:db8:0:1::1", "2001:db8:1::1"]
    );
    let guarded = clients.listener().per_client(1);
    let guarded = guarded.clients(PeerIp::new().ipv6_prefix(48));
    assert_eq!(
        admitted(guarded, &clients, &addresses).await,
        ["2001:db8::1", "2001:db8:1::1"]
    );
}

/// A connection that is closed makes room for one, also after many others.
#[tokio::test(start_paused = true)]
async fn what_is_closed_makes_room() {
    let clients = Clients::default();
    let guarded = clients.listener().per_client(2);
    let mut listener = guarded.build().unwrap();
    let mut open = Vec::new();
    let mut ends = Vec::new();
    for _ in 0..1000 {
        ends.push(clients.connect("192.0.2.1"));
        if let Some((connection, _)) = next(&mut listener).await {
            open.push(connection);
        } else {
            open.remove(0);
        }
        assert!(open.len() <= 2);
    }
    let stats = listener.connections().stats();
    // Two, then one of two arrivals.
    assert_eq!((stats.accepted, stats.refused_per_client), (501, 499));
}

/// Far more addresses than there is room for keys, one after the other: none is refused for those
/// before it.
#[tokio::test(start_paused = true)]
async fn many_addresses_in_turn_are_no_attack() {
    let clients = Clients::default();
    let guarded = clients.listener().at_most(10).per_client(1);
    let mut listener = guarded.build().unwrap();
    for number in 0..20_000_u32 {
        let address = IpAddr::from(number.to_be_bytes()).to_string();
        let client = clients.connect(&address);
        assert!(next(&mut listener).await.is_some(), "{address}");
        drop(client);
    }
}

#[tokio::test(start_paused = true)]
async fn new_connections_have_a_rate_that_those_beyond_the_cap_do_not_spend() {
    let clients = Clients::default();
    let guarded = clients.listener().accept(TokenBucket::per_hour(2));
    let addresses = ["192.0.2.1", "192.0.2.1", "192.0.2.1", "192.0.2.2"];
    assert_eq!(
        admitted(guarded, &clients, &addresses).await,
        ["192.0.2.1", "192.0.2.1", "192.0.2.2"]
    );

    let guarded = clients
        .listener()
        .per_client(1)
        .accept(TokenBucket::per_hour(2));
    let mut listener = guarded.build().unwrap();
    let mut admitted = 0;
    let mut ends = Vec::new();
    for _ in 0..4 {
        // The second one is beyond the cap.
        ends.extend([(); 2].map(|()| clients.connect("192.0.2.1")));
        let first = next(&mut listener).await;
        assert!(next(&mut listener).await.is_none());
        admitted += usize::from(first.is_some());
    }
    let stats = listener.connections().stats();
    assert_eq!(admitted, 2);
    assert_eq!((stats.refused_per_client, stats.refused_accept), (2, 4));
}

#[tokio::test(start_paused = true)]
async fn balancers_have_no_limits_for_one_client() {
    let clients = Clients::default();
    let guarded = || {
        let guarded = clients
            .listener()
            .per_client(1)
            .accept(TokenBucket::per_hour(1));
        guarded.trusting(["10.0.0.0/8", "2001:db8::/32"])
    };
    let addresses = [
        "10.1.1.1",
        "10.1.1.1",
        "::ffff:10.1.1.1",
        "11.0.0.1",
        "11.0.0.1",
    ];
    assert_eq!(admitted(guarded(), &clients, &addresses).await.len(), 4);
    assert_eq!(
        admitted(guarded().at_most(2), &clients, &addresses)
            .await
            .len(),
        2
    );
}

/// A client that a layer blocked is closed when it connects, and those of a rate that a layer has
/// spent, too.
#[tokio::test(start_paused = true)]
async fn a_limiter_shares_its_budget_and_its_blocks() {
    let clients = Clients::default();
    let store = Local::new().with_blocks();
    let limiter = Limiter::new(Policy::new("api"), TokenBucket::per_hour(2), store);
    let blocked: IpAddr = "192.0.2.1".parse().unwrap();
    let hour = Duration::from_secs(3600);
    assert!(limiter.block(blocked, hour).unwrap().at_once().is_some());
    let spent: IpAddr = "192.0.2.2".parse().unwrap();
    assert!(limiter.check(spent, Cost::ONE).at_once().is_admitted());
    let addresses = ["192.0.2.1", "192.0.2.2", "192.0.2.2", "192.0.2.3"];
    let guarded = clients.listener().accept_by(&limiter);
    assert_eq!(
        admitted(guarded, &clients, &addresses).await,
        ["192.0.2.2", "192.0.2.3"]
    );
    limiter.unblock(blocked).at_once();
    let guarded = clients.listener().accept_by(&limiter);
    assert_eq!(admitted(guarded, &clients, &["192.0.2.1"]).await.len(), 1);
}

/// A rule that changes may not become one that delays while a listener uses it.
#[tokio::test(start_paused = true)]
async fn no_rule_of_a_listener_becomes_one_that_delays() {
    let rule = |text: &str| text.parse::<AnyRule>().unwrap();
    let live = LiveRule::new(rule("token-bucket 1/1h"));
    let limiter = Limiter::live(Policy::new("accept"), &live, Local::new());
    let listener = Clients::default().listener().accept_by(&limiter).build();
    let error = live.set(rule("leaky-bucket 1/1s queue=9")).unwrap_err();
    assert!(error.to_string().contains("`accept` delays"), "{error}");
    live.set(rule("token-bucket 2/1h")).unwrap();
    drop(listener);
    live.set(rule("leaky-bucket 1/1s queue=9")).unwrap();
}

/// What a connection holds of a limiter in flight is given back when it is closed.
#[tokio::test(start_paused = true)]
async fn a_limiter_of_calls_in_flight_holds_for_the_connection() {
    let clients = Clients::default();
    let limiter = Limiter::new(Policy::new("open"), InFlight::at_most(1), Local::new());
    let mut listener = clients.listener().accept_by(&limiter).build().unwrap();
    for _ in 0..3 {
        let _ends = [(); 2].map(|()| clients.connect("192.0.2.1"));
        let first = next(&mut listener).await;
        assert!(first.is_some() && next(&mut listener).await.is_none());
    }
}

/// A store that is asked over a network holds up nobody else; one that does not answer in time
/// closes the connection.
#[tokio::test(start_paused = true)]
async fn a_slow_store_holds_up_nobody() {
    let clients = Clients::default();
    let store = Faulty::new(Local::<AnyRule>::new());
    let faults = store.faults();
    let store = store.fail_closed();
    let rule: AnyRule = "token-bucket 100/1h".parse().unwrap();
    let limiter = Limiter::new(Policy::new("accept"), rule, store);
    let guarded = clients
        .listener()
        .accept_by(&limiter)
        .trusting(["10.0.0.0/8"]);
    let mut listener = guarded.head_within(Duration::from_secs(1)).build().unwrap();
    faults.always(Fault::Held);
    let _slow = clients.connect("192.0.2.1");
    let _fast = clients.connect("10.0.0.1");
    let (_open, address) = next(&mut listener).await.unwrap();
    assert_eq!(address.ip().to_string(), "10.0.0.1");
    assert!(next(&mut listener).await.is_none());
    faults.release();
    let (_slow_server, address) = next(&mut listener).await.unwrap();
    assert_eq!(address.ip().to_string(), "192.0.2.1");
    faults.always(Fault::Silent);
    let mut late = clients.connect("192.0.2.1");
    assert!(next(&mut listener).await.is_none());
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(next(&mut listener).await.is_none());
    assert_eq!(listener.connections().stats().closed_head_late, 1);
    assert_eq!(late.read(&mut [0]).await.unwrap(), 0);
}

/// The header of a balancer names the client, whose limits apply; strangers name nobody.
#[tokio::test(start_paused = true)]
async fn balancers_name_clients_by_the_proxy_protocol() {
    let v1: &[u8] = b"PROXY TCP4 192.0.2.7 198.51.100.1 4711 80\r\n";
    let v1_v6: &[u8] = b"PROXY TCP6 2001:db8::7 2001:db8::1 4711 80\r\n";
    let mut v2 = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c".to_vec();
    v2.extend([192, 0, 2, 7, 198, 51, 100, 1, 0x12, 0x67, 0, 80]);
    // With an extension of three bytes.
    let mut extended = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x12".to_vec();
    extended.extend([
        192, 0, 2, 7, 198, 51, 100, 1, 0x12, 0x67, 0, 80, 4, 0, 3, 1, 2, 3,
    ]);
    let own: &[u8] = b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0";
    let unknown: &[u8] = b"PROXY UNKNOWN\r\n";
    // The protocol says of these that the rest is to be ignored, the family included.
    let own_v4: &[u8] = b"\r\n\r\n\0\r\nQUIT\n\x20\x11\0\0";
    let own_unix: &[u8] = b"\r\n\r\n\0\r\nQUIT\n\x20\x31\0\x02ab";
    let cases: [(&[u8], &str); 8] = [
        (v1, "192.0.2.7:4711"),
        (v1_v6, "[2001:db8::7]:4711"),
        (&v2, "192.0.2.7:4711"),
        (&extended, "192.0.2.7:4711"),
        (own, "10.0.0.1:4711"),
        (unknown, "10.0.0.1:4711"),
        (own_v4, "10.0.0.1:4711"),
        (own_unix, "10.0.0.1:4711"),
    ];
    for (header, expected) in cases {
        for pieces in [1, header.len()] {
            let clients = Clients::default();
            let guarded = clients.listener().trusting(["10.0.0.0/8"]).proxy_protocol();
            let mut listener = guarded.per_client(1).build().unwrap();
            // The client's limit holds, and those of the balancer's own connections do not.
            let mut balancer = [(); 2].map(|()| clients.connect("10.0.0.1"));
            let mut open = Vec::new();
            for balancer in &mut balancer {
                for piece in header.chunks(header.len().div_ceil(pieces)) {
                    balancer.write_all(piece).await.unwrap();
                    open.extend(next(&mut listener).await);
                }
                // Not a byte of the request is lost.
                let _ = balancer.write_all(b"GET / HTTP/1.1\r\n\r\n").await;
            }
            let is_own = expected.starts_with("10.");
            assert_eq!(open.len(), if is_own { 2 } else { 1 }, "{expected}");
            let (mut connection, address) = open.remove(0);
            assert_eq!(address.to_string(), expected);
            let proxied = connection.proxied().map(|address| address.to_string());
            assert_eq!(proxied.is_none(), is_own);
            let mut request = [0; 18];
            connection.read_exact(&mut request).await.unwrap();
            assert_eq!(&request, b"GET / HTTP/1.1\r\n\r\n");
        }
    }
}

/// Clients that a balancer names have limits, unless they are balancers themselves.
#[tokio::test(start_paused = true)]
async fn a_balancer_behind_a_balancer_has_no_limits() {
    let clients = Clients::default();
    let guarded = clients.listener().trusting(["10.0.0.0/8"]).proxy_protocol();
    let mut listener = guarded.per_client(1).build().unwrap();
    for (source, expected) in [("10.9.9.9", 2), ("192.0.2.7", 1)] {
        let mut open = Vec::new();
        let mut ends = Vec::new();
        for _ in 0..2 {
            let mut balancer = clients.connect("10.0.0.1");
            let header = format!("PROXY TCP4 {source} 198.51.100.1 4711 80\r\n");
            balancer.write_all(header.as_bytes()).await.unwrap();
            ends.push(balancer);
            open.extend(next(&mut listener).await);
        }
        assert_eq!(open.len(), expected, "{source}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_balancer_without_a_header_is_closed_and_a_stranger_with_one_is_itself() {
    let clients = Clients::default();
    let guarded = clients.listener().trusting(["10.0.0.0/8"]).proxy_protocol();
    let mut listener = guarded.build().unwrap();
    let long = [b"PROXY TCP4 ".as_slice(), &[b'1'; 200]].concat();
    let mut too_long = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\xff\xff".to_vec();
    too_long.resize(5000, 0);
    let wrong: [&[u8]; 7] = [
        b"GET / HTTP/1.1\r\nhost: a\r\n\r\n",
        b"PROXY TCP4 192.0.2.700 198.51.100.1 4711 80\r\n",
        b"PROXY TCP5 192.0.2.7 198.51.100.1 4711 80\r\n",
        b"\r\n\r\n\0\r\nQUIT\n\x31\x11\0\x0c............",
        b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\0",
        &long,
        &too_long,
    ];
    for (count, bytes) in wrong.iter().enumerate() {
        let mut balancer = clients.connect("10.0.0.1");
        balancer.write_all(bytes).await.unwrap();
        assert!(next(&mut listener).await.is_none(), "{count}");
        let stats = listener.connections().stats();
        assert_eq!(
            (stats.closed_proxy_header, stats.open),
            (count as u64 + 1, 0)
        );
    }
    // Hangs up in the middle.
    let mut balancer = clients.connect("10.0.0.1");
    balancer.write_all(b"PROXY TCP4 ").await.unwrap();
    drop(balancer);
    assert!(next(&mut listener).await.is_none());
    // As a health check does that only connects.
    drop(clients.connect("10.0.0.1"));
    assert!(next(&mut listener).await.is_none());
    let stats = listener.connections().stats();
    assert_eq!((stats.closed_proxy_header, stats.ended_early), (7, 2));

    // The second one has no address.
    for stranger in ["192.0.2.1", "0.0.0.0"] {
        let mut client = clients.connect(stranger);
        let header = b"PROXY TCP4 192.0.2.7 198.51.100.1 4711 80\r\n";
        client.write_all(header).await.unwrap();
        let (connection, address) = next(&mut listener).await.unwrap();
        assert_eq!(address.ip().to_string(), stranger);
        assert_eq!(connection.proxied(), None);
    }
}

/// Random bytes in place of a header close the connection, and do nothing else.
#[tokio::test(start_paused = true)]
async fn headers_of_random_bytes_never_panic() {
    let mut random = support::Random::new(7);
    let clients = Clients::default();
    let guarded = clients.listener().trusting(["10.0.0.0/8"]).proxy_protocol();
    let mut listener = guarded.build().unwrap();
    let begins: [&[u8]; 3] = [b"", b"PROXY TCP", b"\r\n\r\n\0\r\nQUIT\n"];
    for round in 0..3000 {
        let mut bytes = begins[round % 3].to_vec();
        for _ in 0..random.below(60) {
            bytes.push(random.below(256) as u8);
        }
        let mut balancer = clients.connect("10.0.0.1");
        balancer.write_all(&bytes).await.unwrap();
        drop(balancer);
        drop(next(&mut listener).await);
    }
    let stats = listener.connections().stats();
    // What was accepted ended before a request, too.
    assert_eq!(stats.closed_proxy_header + stats.ended_early, 3000);
    assert_eq!((stats.open, stats.closed_handshake), (0, 0));
}

#[tokio::test]
async fn wrong_settings_say_what_is_wrong() {
    let clients = Clients::default();
    let error = |guarded: Guarded<Pipes>| guarded.build().err().unwrap().to_string();
    let new = || clients.listener();
    let files = open_files();
    let most = usize::try_from(files).unwrap() - 15;
    let text = error(new().at_most(most));
    assert!(
        text.contains(&format!("at_most({most})")) && text.contains(&format!("may open {files}:")),
        "{text}"
    );
    assert!(new().at_most(most - 1).build().is_ok());
    assert!(error(new().at_most(usize::MAX)).contains("`at_most(18446744073709551615)`"));
    for (guarded, expected) in [
        (new().at_most(0), "`at_most` is zero"),
        (new().per_client(0), "`per_client(0)`: expected 1 to"),
        (new().head_within(Duration::ZERO), "`head_within` is zero"),
        (new().head_at_most(0), "`head_at_most` is zero"),
        (new().idle_for(Duration::ZERO), "`idle_for` is zero"),
        (
            new().trusting(["10.0.0.0/40"]),
            "`10.0.0.0/40` is not a network",
        ),
        (
            new().proxy_protocol(),
            "`proxy_protocol` without trusted networks",
        ),
        (
            new().accept(LeakyBucket::per_second(1)),
            "nothing delays a connection",
        ),
    ] {
        let text = error(guarded);
        assert!(
            text.contains(expected) && text.contains("expected"),
            "{text}"
        );
    }
}

/// Returns the number of file handles that this process may open.
fn open_files() -> u64 {
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap();
    let line = limits
        .lines()
        .find(|line| line.starts_with("Max open files"));
    let words: Vec<_> = line.unwrap().split_whitespace().collect();
    words[3].parse().unwrap()
}
