//! A file of a thousand routes that is reloaded without a pause, while requests are decided.
//!
//! The latencies of requests are compared with those of the same run without reloads, in turns. A
//! reload is made as a whole beside the requests, and swapped in by one pointer.
#![allow(
    clippy::disallowed_methods,
    clippy::float_arithmetic,
    clippy::unwrap_used,
    reason = "a benchmark reads clocks, prints ratios, and stops where something is odd"
)]

use std::{
    convert::Infallible,
    future::ready,
    hint::black_box,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use axum::{body::Body, extract::ConnectInfo};
use futures_util::FutureExt;
use http::{Request, Response};
use support::bench::Mode;
use tollgate::config::RouteLimits;
use tower::{Layer, Service, service_fn};

const ROUTES: usize = 1_000;

fn file(limit: u64) -> String {
    let mut text = format!(
        "[limits]\none = {{ rule = \"token-bucket {limit}/1s\", key = \"peer-ip\" }}\ntwo = {{ rule = \"token-bucket {limit}/1s\", \
         key = \"peer-ip\" }}\n"
    );
    for route in 0..ROUTES {
        text += &format!(
            "[[routes]]\nmatch = \"/v1/resource{route}/{{id}}\"\nlimits = [\"one\", \"two\"]\n"
        );
    }
    text + "[default]\nlimits = [\"one\"]\n"
}

/// Returns the latencies of requests that are made for some time, sorted.
fn latencies(limits: &RouteLimits<Body>, within: Duration) -> Vec<u64> {
    let inner =
        service_fn(|_: Request<Body>| ready(Ok::<_, Infallible>(Response::new(Body::empty()))));
    let mut service = limits.layer(inner);
    let mut latencies = Vec::with_capacity(4_000_000);
    let begun = Instant::now();
    for n in 0_u32.. {
        let uri = format!("/v1/resource{}/7", n as usize % ROUTES);
        let mut request = Request::get(uri).body(Body::empty()).unwrap();
        let peer = std::net::SocketAddr::from(((0x0a00_0000 + n % 1_000).to_be_bytes(), 4711));
        request.extensions_mut().insert(ConnectInfo(peer));
        let at = Instant::now();
        let response = service.call(request).now_or_never().unwrap().unwrap();
        let took = at.elapsed();
        assert_eq!(black_box(response).status(), 200);
        latencies.push(took.as_nanos() as u64);
        if begun.elapsed() > within {
            break;
        }
    }
    latencies.sort_unstable();
    latencies
}

fn quantile(sorted: &[u64], per_mille: usize) -> u64 {
    sorted[(sorted.len() - 1) * per_mille / 1_000]
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    let mode = &Mode::from_args();
    let (rounds, within) = (mode.pick(15, 1), Duration::from_millis(mode.pick(600, 20)));
    let files = [file(1_000_000), file(2_000_000)];
    let limits: RouteLimits<Body> = RouteLimits::new(&files[0]).unwrap();
    latencies(&limits, within);
    let (mut ratios, mut whole, mut reloads) = ([vec![], vec![], vec![]], vec![], 0);
    for _ in 0..rounds {
        let without = latencies(&limits, within);
        let is_over = AtomicBool::new(false);
        let (with, took) = thread::scope(|scope| {
            let reloader = scope.spawn(|| {
                let mut took = Vec::new();
                for file in files.iter().rev().cycle() {
                    if is_over.load(Ordering::Relaxed) {
                        break;
                    }
                    let at = Instant::now();
                    assert!(!limits.reload(file).unwrap().is_empty());
                    took.push(at.elapsed().as_secs_f64() * 1_000.0);
                }
                took
            });
            let with = latencies(&limits, within);
            is_over.store(true, Ordering::Relaxed);
            (with, reloader.join().unwrap())
        });
        reloads += took.len();
        whole.extend(took);
        for (ratios, per_mille) in ratios.iter_mut().zip([500, 990, 999]) {
            ratios.push(quantile(&with, per_mille) as f64 / quantile(&without, per_mille) as f64);
        }
        // Both begin with the same file.
        limits.reload(&files[0]).unwrap();
    }
    println!(
        "{ROUTES} routes, {reloads} reloads without a pause; a reload takes {:.1} ms as a whole",
        median(whole)
    );
    let [half, p99, p999] = ratios.map(median);
    println!(
        "latency of a request, with reloads over without: median {half:.2}, p99 {p99:.2}, p99.9 {p999:.2} (aim: p99.9 ≤ 1.2)"
    );
}
