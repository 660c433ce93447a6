//! HAProxy in front of two servers, with the configuration of `examples/haproxy`.

use std::{
    net::SocketAddr,
    path::Path,
    sync::{Arc, PoisonError, RwLock},
};

use axum::{
    Router,
    extract::Request,
    http::HeaderMap,
    routing::{get as on_get, put},
};
use support::servers::{Haproxy, Redis, free_port, wait_until};
use tollgate::{Limiter, Policy, key::Key, prelude::*};

use super::{Answer, SOON, Server, exchange, get};

/// The requests of an address in ten seconds that the balancer lets through.
const MOST: usize = 50;

/// Returns a balancer with two servers behind it.
fn balancer(nodes: [SocketAddr; 2]) -> Haproxy {
    let [left, right] = [free_port(), free_port()];
    peer("left", [left, right], nodes)
}

fn peer(name: &str, [left, right]: [u16; 2], [one, two]: [SocketAddr; 2]) -> Haproxy {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/haproxy/haproxy.cfg");
    let variables = [
        ("PEER", name.to_owned()),
        ("LEFT", format!("127.0.0.1:{left}")),
        ("RIGHT", format!("127.0.0.1:{right}")),
        ("NODE_1", one.to_string()),
        ("NODE_2", two.to_string()),
    ];
    Haproxy::start(&file, &variables)
}

/// The part that answered a request.
#[derive(Clone, Copy, Debug, PartialEq)]
enum By {
    Server,
    /// The limit behind the balancer refused.
    Layer,
    Balancer,
}

fn who(answer: &Answer) -> By {
    match answer.status {
        200 => By::Server,
        429 if answer.body.starts_with("the balancer refuses") => By::Balancer,
        429 => By::Layer,
        other => panic!("{other} {} {}", answer.head, answer.body),
    }
}

/// Sends requests, and returns how many of them each answered.
fn send(to: SocketAddr, count: usize, lines: &str) -> [usize; 3] {
    let answers: Vec<_> = (0..count).map(|_| who(&get(to, "/", lines))).collect();
    [By::Server, By::Layer, By::Balancer].map(|by| answers.iter().filter(|it| **it == by).count())
}

#[test]
fn the_balancer_refuses_floods_and_the_layer_keeps_the_exact_limit() {
    let redis = Redis::start();
    let flags = ["--store", &redis.url(), "--rule", "token-bucket 20/1h"];
    for key in ["forwarded-for 127.0.0.1", "forwarded 127.0.0.1"] {
        redis.command(&["FLUSHALL"]);
        let node = || Server::start(&[&flags[..], &["--key", key]].concat());
        let nodes = [node(), node()];
        let balancer = balancer([nodes[0].address, nodes[1].address]);
        // The start was one request. Both servers share one limit, whichever of them is asked.
        let [passed, by_layer, by_balancer] = send(balancer.address(), 100, "");
        assert_eq!(passed + by_layer, MOST - 1, "{key}");
        assert_eq!([passed, by_balancer], [19, 100 - (MOST - 1)], "{key}");
        // The balancer repeats a text, and has none of the fields of the layer.
        let refused = get(balancer.address(), "/", "");
        assert_eq!(refused.header("retry-after"), Some("20"));
        assert_eq!(refused.header("ratelimit"), None);
    }
}

#[test]
fn nobody_can_forge_an_address() {
    for (key, name) in [
        ("forwarded-for 127.0.0.1", "x-forwarded-for: "),
        ("forwarded 127.0.0.1", "forwarded: for="),
    ] {
        let start = || Server::start(&["--rule", "token-bucket 5/1h", "--key", key]);
        let node = start();
        let balancer = balancer([node.address; 2]);
        let mut passed = 1;
        for host in 0..20 {
            // Each request claims to come from another client.
            let lines = format!("{name}192.0.2.{host}\r\n{name}198.51.100.{host}\r\n");
            passed += send(balancer.address(), 1, &lines)[0];
        }
        assert_eq!(passed, 5, "{key}");
        // A client that reaches a server past the balancer, from another network, cannot forge one,
        // either.
        let key = key.replace("127.0.0.1", "10.0.0.0/8");
        let elsewhere = Server::start(&["--rule", "token-bucket 5/1h", "--key", &key]);
        let lines = |host| format!("{name}192.0.2.{host}\r\n");
        let passed = (0..20).map(|host| send(elsewhere.address, 1, &lines(host))[0]);
        assert_eq!(passed.sum::<usize>(), 5, "{key}");
    }
}

/// Waits until a balancer refuses. It may have been told of the flood by another one.
fn after_a_flood(balancer: &Haproxy) {
    wait_until("a refusal by the balancer", SOON, || {
        match send(balancer.address(), 1, "") {
            [_, _, 1] => Ok(()),
            answers => Err(format!("{answers:?}")),
        }
    });
}

#[test]
fn counts_survive_a_reload_and_reach_the_other_balancer() {
    let key = "forwarded-for 127.0.0.1";
    let node = Server::start(&["--rule", "token-bucket 10/1h", "--key", key]);
    let ports = [free_port(), free_port()];
    let [left, right] = ["left", "right"].map(|name| peer(name, ports, [node.address; 2]));
    left.wait_for_peers();
    let [passed, by_layer, by_balancer] = send(left.address(), 100, "");
    // Each start was one request, of which the other balancer may have heard.
    assert_eq!(passed, 8);
    assert!(
        (MOST - 2..=MOST).contains(&(passed + by_layer)),
        "{by_layer}"
    );
    assert!(by_balancer > 0);
    // The other one learns it soon, and refuses without having seen the flood.
    after_a_flood(&right);
    right.kill();
    // The old process tells the new one.
    left.reload();
    assert_eq!(send(left.address(), 10, ""), [0, 0, 10]);
}

#[test]
fn a_balancer_without_servers_says_so() {
    let gone = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let balancer = balancer([gone; 2]);
    assert_eq!(get(balancer.address(), "/", "").status, 503);
    let flood: Vec<_> = (0..2 * MOST)
        .map(|_| get(balancer.address(), "/", "").status)
        .collect();
    assert!(
        flood.iter().all(|status| matches!(status, 503 | 429)),
        "{flood:?}"
    );
    assert_eq!(flood.last(), Some(&429), "it counts all the same");
}

/// A server with plans that change at run time, and a page that shows a client's level.
async fn with_plans() -> SocketAddr {
    let free: TokenBucket = "token-bucket 3/1h".parse().unwrap();
    let paid = Arc::new(RwLock::new(
        "token-bucket 6/1h".parse::<TokenBucket>().unwrap(),
    ));
    let store = Arc::new(Local::new());
    let usage = Limiter::new(Policy::new("default"), free, Arc::clone(&store));
    let current = Arc::clone(&paid);
    let limit = RateLimitLayer::new(free)
        .key(Header::new("x-api-key"))
        .rule(move |request: &Request| {
            let is_paid = request.headers().get("x-plan")? == "paid";
            is_paid.then(|| *current.read().unwrap_or_else(PoisonError::into_inner))
        })
        .store(store);
    let look = async move |headers: HeaderMap| {
        let client = Key::bytes(headers["x-api-key"].as_bytes());
        let level = usage.look(client).await;
        level.remaining().unwrap().to_string()
    };
    let change = async move |rule: String| {
        *paid.write().unwrap_or_else(PoisonError::into_inner) = rule.parse().unwrap();
    };
    let app = Router::new()
        .route("/", on_get(async || "hello"))
        .layer(limit)
        .route("/usage", on_get(look))
        .route("/paid", put(change));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await });
    address
}

/// The balancer has one limit for all in its configuration.
#[test]
fn the_layer_knows_plans_levels_and_new_limits() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let node = runtime.block_on(with_plans());
    let balancer = balancer([node; 2]);
    let to = balancer.address();
    let passed = |lines: &str| send(to, 8, lines)[0];
    let usage = || get(to, "/usage", "x-api-key: ann\r\n").body;
    assert_eq!([usage(), usage()], ["3", "3"]);
    assert_eq!(passed("x-api-key: ann\r\n"), 3);
    assert_eq!(usage(), "0");
    assert_eq!(passed("x-api-key: bob\r\nx-plan: paid\r\n"), 6);
    assert_eq!(
        exchange(to, "PUT /paid", "", "token-bucket 8/1h").status,
        200
    );
    assert_eq!(passed("x-api-key: eve\r\nx-plan: paid\r\n"), 8);
}
