//! Changes of a file: what clients have spent stays spent, whatever changes around it.

use std::{
    collections::HashMap,
    convert::Infallible,
    fs,
    net::SocketAddr,
    path::PathBuf,
    process::Stdio,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use axum::{Router, body::Body, routing::get};
use http::{Request, Response, StatusCode};
use metrics_exporter_prometheus::PrometheusBuilder;
use metrics_util::MetricKindMask;
use tollgate::{
    AnyRule, Policy,
    config::RouteLimits,
    key::{Extension, Key},
    observe::{Event, Metrics, Observer},
    prelude::*,
    store::driver::Transactional,
    time::ManualClock,
};
use tower::{Layer, ServiceExt, service_fn};

use crate::common::map_store::MapStore;

type Limits = RouteLimits<Body, Local<AnyRule, ManualClock>>;

/// Limits in memory, and the clock, which stands still.
fn limits(text: &str) -> (Limits, ManualClock) {
    let clock = ManualClock::default();
    let store = LocalBuilder::new().clock(clock.clone()).build();
    (
        RouteLimits::builder().store(store).build(text).unwrap(),
        clock,
    )
}

/// Answers with the status in the header `status`.
async fn answer(request: Request<Body>) -> Result<Response<Body>, Infallible> {
    let status = request.headers().get("status");
    let status = status.map_or("200", |status| status.to_str().unwrap());
    let response = Response::builder().status(status).body(Body::empty());
    Ok(response.unwrap())
}

async fn status_of(limits: &Limits, path: &str, headers: &[(&str, &str)]) -> StatusCode {
    let mut request = Request::builder().uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let mut request = request.body(Body::empty()).unwrap();
    let peer = SocketAddr::from(([192, 0, 2, 7], 4711));
    request.extensions_mut().insert(peer);
    let service = limits.layer(service_fn(answer));
    service.oneshot(request).await.unwrap().status()
}

/// Returns how many requests are admitted until one is refused, 1,000 at most.
async fn admitted(limits: &Limits, path: &str) -> u64 {
    for admitted in 0..1_000 {
        if status_of(limits, path, &[]).await == StatusCode::TOO_MANY_REQUESTS {
            return admitted;
        }
    }
    1_000
}

/// A file with one limit for all requests.
fn one(name: &str, settings: &str) -> String {
    format!("[limits]\n{name} = {{ {settings} }}\n[default]\nlimits = [\"{name}\"]\n")
}

#[tokio::test]
async fn rules_are_raised_and_lowered_and_mint_nothing() {
    // A bucket has the tokens that it had; the others count what was spent.
    for (low, high, more) in [
        ("token-bucket 5/1h", "token-bucket 5/1h burst=8", 0),
        ("fixed-window 5/1h", "fixed-window 8/1h", 3),
        ("sliding-window 5/1h", "sliding-window 8/1h", 3),
        ("sliding-log 5/1h", "sliding-log 8/1h", 3),
        ("leaky-bucket 5/1h queue=0", "leaky-bucket 1/1h queue=0", 0),
    ] {
        let file = |rule: &str| one("api", &format!("rule = \"{rule}\", key = \"peer-ip\""));
        let (limits, _) = limits(&file(low));
        let first = admitted(&limits, "/").await;
        assert!([1, 5].contains(&first), "{low}: {first}");
        assert_eq!(limits.reload(&file(high)).unwrap().iter().len(), 1);
        assert_eq!(admitted(&limits, "/").await, more, "{high}");
        limits.reload(&file(low)).unwrap();
        assert_eq!(admitted(&limits, "/").await, 0, "{low}");
        limits.reload(&file(high)).unwrap();
        assert_eq!(admitted(&limits, "/").await, 0, "{high}");
        assert_eq!(limits.reloads().taken, 3);
    }
}

#[tokio::test]
async fn a_limit_with_another_name_has_the_states_of_the_old_one() {
    let rule = "rule = \"fixed-window 5/1h\", key = \"peer-ip\"";
    let (limits, _) = limits(&one("api", rule));
    assert_eq!(admitted(&limits, "/").await, 5);
    let renamed = one("public", &format!("{rule}, was = \"api\""));
    let changes = limits.reload(&renamed).unwrap().to_string();
    assert_eq!(
        changes,
        "limit `public` was `api`: it has the states of its old name, so what its clients have spent stays spent"
    );
    assert_eq!(admitted(&limits, "/").await, 0);
    // Without `was`, it begins anew, and the changes say so.
    let changes = limits.diff(&one("public", rule)).unwrap().to_string();
    assert_eq!(
        changes,
        "limit `public` keeps its states under `public`, no longer under `api`: its clients begin anew"
    );
    limits.reload(&one("public", rule)).unwrap();
    assert_eq!(admitted(&limits, "/").await, 5);
}

#[tokio::test]
async fn headers_have_the_new_name() {
    let rule = "rule = \"fixed-window 5/1h\"";
    let (limits, _) = limits(&one("api", rule));
    let policy = async || {
        let service = limits.layer(service_fn(answer));
        let response = service.oneshot(Request::new(Body::empty())).await.unwrap();
        response.headers()["ratelimit-policy"]
            .to_str()
            .unwrap()
            .to_owned()
    };
    assert!(policy().await.starts_with("\"api\""));
    limits
        .reload(&one("public", &format!("{rule}, was = \"api\"")))
        .unwrap();
    assert!(policy().await.starts_with("\"public\""));
    limits.reload(&one("api", rule)).unwrap();
    assert!(policy().await.starts_with("\"api\""));
}

#[tokio::test]
async fn a_rule_of_another_algorithm_and_another_key_begin_anew() {
    let (limits, _) = limits(&one(
        "api",
        "rule = \"fixed-window 5/1h\", key = \"peer-ip\"",
    ));
    assert_eq!(admitted(&limits, "/").await, 5);
    let other = one("api", "rule = \"sliding-log 5/1h\", key = \"peer-ip\"");
    let changes = limits.reload(&other).unwrap().to_string();
    assert!(
        changes.ends_with("so all its clients begin anew"),
        "{changes}"
    );
    assert_eq!(admitted(&limits, "/").await, 5);
    let other = one("api", "rule = \"sliding-log 5/1h\", key = \"global\"");
    let changes = limits.reload(&other).unwrap().to_string();
    assert!(changes.contains("begin anew"), "{changes}");
    assert_eq!(admitted(&limits, "/").await, 5);
}

/// Rules of one algorithm read the states in their places.
#[tokio::test]
async fn rules_of_one_algorithm_that_change_places() {
    let file = |rule: &str| one("api", &format!("rule = \"{rule}\", key = \"peer-ip\""));
    let (limits, _) = limits(&file("fixed-window 5/1m & fixed-window 9/1h"));
    for (rule, effect) in [
        ("fixed-window 9/1h & fixed-window 5/1m", "change places"),
        ("fixed-window 9/1h & fixed-window 6/1m", "stays spent"),
        ("fixed-window 6/1m & sliding-log 9/1h", "begin anew"),
        ("sliding-log 9/1h & fixed-window 6/1m", "begin anew"),
    ] {
        let changes = limits.reload(&file(rule)).unwrap().to_string();
        assert!(changes.contains(effect), "{rule}: {changes}");
    }
}

#[tokio::test]
async fn a_file_with_a_mistake_changes_nothing() {
    let text = one("api", "rule = \"fixed-window 5/1h\", key = \"peer-ip\"");
    let (limits, _) = limits(&text);
    assert_eq!(admitted(&limits, "/").await, 5);
    for wrong in [
        "",
        "limits = ",
        &text.replace("5/1h", "9/1h").replace("default", "defaults"),
    ] {
        limits.diff(wrong).unwrap_err();
        limits.reload(wrong).unwrap_err();
    }
    assert_eq!(admitted(&limits, "/").await, 0);
    assert_eq!((limits.reloads().taken, limits.reloads().failed), (0, 3));
    // The same again is no change.
    assert!(
        limits
            .reload(&format!("# again\n{text}"))
            .unwrap()
            .is_empty()
    );
    assert_eq!(limits.reloads().taken, 0);
    assert_eq!(*limits.file(), text.parse().unwrap());
}

#[tokio::test]
async fn limits_of_one_route_are_charged_together_or_not_at_all() {
    let text = r#"
[limits]
tight = { rule = "fixed-window 2/1h", key = "peer-ip" }
wide  = { rule = "fixed-window 9/1h", key = "peer-ip" }
[[routes]]
match = "/both"
limits = ["wide", "tight"]
[[routes]]
match = "/wide"
limits = ["wide"]
[[routes]]
match = "/free"
limits = []
[default]
limits = ["tight"]
"#;
    let (limits, _) = limits(text);
    assert_eq!(admitted(&limits, "/both").await, 2);
    assert_eq!(admitted(&limits, "/other").await, 0);
    assert_eq!(admitted(&limits, "/wide").await, 7);
    assert_eq!(admitted(&limits, "/free").await, 1_000);
}

#[tokio::test]
async fn all_settings_of_a_limit() {
    let text = r#"
[limits]
login  = { rule = "fixed-window 2/1h", key = "peer-ip", charge = "status 401" }
cached = { rule = "fixed-window 2/1h", key = "peer-ip", charge-if = "not status 304" }
dear   = { rule = "fixed-window 6/1h", key = "peer-ip", cost = 3 }
open   = { rule = "fixed-window 1/1h", key = "peer-ip", exempt = ["/open/health", "192.0.2.0/24"] }
health = { rule = "fixed-window 1/1h", key = "peer-ip", exempt = ["/health/x"] }
dry    = { rule = "fixed-window 1/1h", key = "peer-ip", dry-run = true, compared-with = "dear" }
routes = { rule = "fixed-window 9/1h", key = "header a + method or shared none" }

[[routes]]
match = "/login"
limits = ["login"]
[[routes]]
match = "/cached"
limits = ["cached"]
[[routes]]
match = "/dear"
limits = ["dear", "dry"]
[[routes]]
match = "/open/{*rest}"
limits = ["open"]
[[routes]]
match = "/health/{*rest}"
limits = ["health"]
[default]
limits = ["routes"]
"#;
    let (limits, _) = limits(text);
    let status = async |path: &str, status: &str| {
        status_of(&limits, path, &[("status", status)])
            .await
            .as_u16()
    };
    for _ in 0..5 {
        assert_eq!(status("/login", "200").await, 200);
    }
    assert_eq!(
        [status("/login", "401").await, status("/login", "401").await],
        [401, 401]
    );
    assert_eq!(status("/login", "200").await, 429);

    for _ in 0..5 {
        assert_eq!(status("/cached", "304").await, 304);
    }
    assert_eq!(admitted(&limits, "/cached").await, 2);
    assert_eq!(admitted(&limits, "/dear").await, 2);
    let report = limits.dry_run_report("dry").unwrap();
    assert_eq!(
        (report.admitted, report.refused, report.both_refused),
        (1, 2, 1)
    );
    assert_eq!(limits.dry_run_report("dear"), None);
    assert_eq!(admitted(&limits, "/open/a").await, 1_000);
    assert_eq!(admitted(&limits, "/health/a").await, 1);
    assert_eq!(admitted(&limits, "/health/x").await, 1_000);
    assert_eq!(admitted(&limits, "/").await, 9);
    assert_eq!(status_of(&limits, "/", &[("a", "1")]).await, 200);
    // The dry run goes on counting, and ends with its limit.
    limits
        .reload(&text.replace(
            "fixed-window 1/1h\", key = \"peer-ip\", dry",
            "fixed-window 2/1h\", key = \"peer-ip\", dry",
        ))
        .unwrap();
    assert_eq!(limits.dry_run_report("dry").unwrap().refused, 2);
    limits.reload("default.limits = []").unwrap();
    assert_eq!(limits.dry_run_report("dry"), None);
}

/// Without the peer's address nobody is exempt, and the server is at fault.
#[tokio::test]
async fn networks_without_a_peer() {
    let text = one(
        "api",
        "rule = \"fixed-window 5/1h\", exempt = [\"10.0.0.0/8\"]",
    );
    let (limits, _) = limits(&text);
    let service = limits.layer(service_fn(answer));
    let response = service.oneshot(Request::new(Body::empty())).await.unwrap();
    assert_eq!(response.status(), 500);
    assert_eq!(limits.misconfigured(), 1);
}

/// Requests in progress end by the file that admitted them.
#[tokio::test]
async fn charges_are_settled_after_a_reload() {
    let held = "rule = \"in-flight 2\", key = \"peer-ip\"";
    let (limits, _) = limits(&one("api", held));
    let (open, gate) = tokio::sync::watch::channel(false);
    let slow = service_fn(move |_: Request<Body>| {
        let mut gate = gate.clone();
        async move {
            gate.wait_for(|open| *open).await.unwrap();
            Ok::<_, Infallible>(Response::new(Body::empty()))
        }
    });
    let request = || {
        let mut request = Request::new(Body::empty());
        request
            .extensions_mut()
            .insert(SocketAddr::from(([192, 0, 2, 7], 1)));
        request
    };
    let calls: Vec<_> = (0..2)
        .map(|_| tokio::spawn(limits.layer(slow.clone()).oneshot(request())))
        .collect();
    tokio::task::yield_now().await;
    assert_eq!(admitted(&limits, "/").await, 0);
    limits
        .reload(&one("api", &held.replace("in-flight 2", "in-flight 3")))
        .unwrap();
    // One of three places is free.
    assert_eq!(status_of(&limits, "/", &[]).await, 200);
    let third = tokio::spawn(limits.layer(slow.clone()).oneshot(request()));
    tokio::task::yield_now().await;
    assert_eq!(status_of(&limits, "/", &[]).await, 429);
    limits
        .reload(&one("api", &held.replace("in-flight 2", "in-flight 1")))
        .unwrap();
    open.send(true).unwrap();
    for call in calls.into_iter().chain([third]) {
        drop(call.await.unwrap().unwrap());
    }
    assert_eq!(status_of(&limits, "/", &[]).await, 200);
}

/// The event that a limit is gone is the last one of its policy.
#[tokio::test]
async fn a_limit_is_gone_with_its_last_request() {
    #[derive(Clone, Default)]
    struct Ended(Arc<Mutex<Vec<String>>>);

    impl Observer for Ended {
        fn released(&self, policy: &Policy, _: &Key, units: u64) {
            let event = format!("{units} released by {}", policy.name());
            self.0.lock().unwrap().push(event);
        }

        fn gone(&self, policy: &Policy) {
            self.0
                .lock()
                .unwrap()
                .push(format!("{} gone", policy.name()));
        }
    }

    let ended = Ended::default();
    let events = || std::mem::take(&mut *ended.0.lock().unwrap());
    let held = "rule = \"in-flight 2\"";
    let limits: RouteLimits<Body> = RouteLimits::builder()
        .observe(ended.clone())
        .build(&one("api", held))
        .unwrap();
    let in_progress = async || {
        let unread = async |_| Ok::<_, Infallible>(Response::new(Body::from("not read yet")));
        let service = limits.layer(service_fn(unread));
        service.oneshot(Request::new(Body::empty())).await.unwrap()
    };

    // The same limit with other settings is not gone, nor is one that a bad file lacks.
    limits.reload(&one("api", &held.replace('2', "3"))).unwrap();
    limits.reload("limits = ").unwrap_err();
    // Nor is one that never was: of a file that is only compared.
    limits.diff(&one("other", held)).unwrap();
    assert_eq!(events(), [""; 0]);
    // A limit without requests is gone at once.
    limits.reload(&one("other", held)).unwrap();
    assert_eq!(events(), ["api gone"]);
    // The body of the response holds the call, and so the limit.
    let response = in_progress().await;
    limits.reload("default.limits = []").unwrap();
    assert_eq!(events(), [""; 0]);
    drop(response);
    assert_eq!(events(), ["1 released by other", "other gone"]);
    // One that came back before its request has ended is not gone.
    limits.reload(&one("other", held)).unwrap();
    let response = in_progress().await;
    limits.reload("default.limits = []").unwrap();
    limits.reload(&one("other", held)).unwrap();
    drop(response);
    assert_eq!(events(), ["1 released by other"]);
    drop(limits);
    assert_eq!(events(), ["other gone"]);
}

/// Each file has another limit. The exporter of Prometheus ends with those of the last one.
#[tokio::test]
async fn metrics_of_limits_that_are_gone_end() {
    const FILES: usize = 200;
    let idle = Duration::from_millis(1);
    let exporter = PrometheusBuilder::new()
        .idle_timeout(MetricKindMask::ALL, Some(idle))
        .build_recorder();
    let _guard = metrics::set_default_local_recorder(&exporter);
    let metrics = Metrics::with_capacity(4);
    let rule = "rule = \"in-flight 9\"";
    let limits: RouteLimits<Body> = RouteLimits::builder()
        .observe(metrics.clone())
        .build(&one("first", rule))
        .unwrap();
    let scrape = || {
        metrics.refresh();
        exporter.handle().render()
    };
    for n in 0..FILES {
        limits.reload(&one(&format!("limit{n}"), rule)).unwrap();
        let service = limits.layer(service_fn(answer));
        drop(service.oneshot(Request::new(Body::empty())).await.unwrap());
        // Each has a label of its own, though there are four.
        let admitted =
            format!("tollgate_requests_total{{policy=\"limit{n}\",outcome=\"admitted\"}} 1\n");
        assert!(scrape().contains(&admitted), "{}", scrape());
    }
    let mut before = scrape();
    for _ in 0..3 {
        // The timeout is a lower bound, so a slow machine changes nothing.
        std::thread::sleep(idle * 5);
        let now = scrape();
        assert!(now.contains("limit199"), "{now}");
        before = now;
    }
    let mut lines = before.lines().filter(|line| !line.starts_with('#'));
    assert!(
        lines.all(|line| line.is_empty() || line.contains("policy=\"limit199\"")),
        "{before}"
    );
    assert!(before.contains("tollgate_most_held_units{policy=\"limit199\"} 1\n"));
    // The series of the limit in use was never dropped: it goes on.
    let service = limits.layer(service_fn(answer));
    drop(service.oneshot(Request::new(Body::empty())).await.unwrap());
    assert!(scrape().contains("policy=\"limit199\",outcome=\"admitted\"} 2\n"));
}

/// Limits of the program stand beside those of the file, and stay when it changes.
#[tokio::test]
async fn limits_of_the_program() {
    #[derive(Clone)]
    struct User(u64);

    let by_user = Limit::new("fixed-window 2/1h".parse::<AnyRule>().unwrap())
        .named("user")
        .key(Extension::new(|user: &User| Key::from(user.0)))
        .boxed();
    let file = |rule: &str| {
        format!(
            "[limits]\nall = {{ rule = \"{rule}\" }}\n[[routes]]\nmatch = \"/a\"\nlimits = [\"user\", \"all\"]\n[default]\nlimits = []"
        )
    };
    let limits: RouteLimits<Body> = RouteLimits::builder()
        .limit(by_user.clone())
        .build(&file("fixed-window 5/1h"))
        .unwrap();
    let twice = RouteLimits::<Body>::builder()
        .limit(by_user.clone())
        .limit(by_user.clone());
    let error = twice.build("default.limits = [\"user\"]").unwrap_err();
    assert!(
        error
            .to_string()
            .contains("the limit `user` of the program"),
        "{error}"
    );
    let was = one("api", "rule = \"fixed-window 5/1h\", was = \"users\"");
    let of_users = Limit::new("fixed-window 2/1h".parse::<AnyRule>().unwrap()).policy(
        Policy::try_new("user")
            .unwrap()
            .with_states_of(&Policy::try_new("users").unwrap()),
    );
    let error = RouteLimits::<Body>::builder()
        .limit(of_users.boxed())
        .build(&was)
        .unwrap_err();
    assert!(
        error.to_string().contains("the states of the limit `api`"),
        "{error}"
    );
    let status = async |user: u64| {
        let mut request = Request::get("/a").body(Body::empty()).unwrap();
        request.extensions_mut().insert(User(user));
        let service = limits.layer(service_fn(answer));
        service.oneshot(request).await.unwrap().status().as_u16()
    };
    assert_eq!(
        [status(1).await, status(1).await, status(1).await],
        [200, 200, 429]
    );
    assert_eq!(
        [status(2).await, status(2).await, status(3).await],
        [200, 200, 200]
    );
    assert_eq!(status(4).await, 429);
    limits.reload(&file("fixed-window 6/1h")).unwrap();
    assert_eq!(
        [status(1).await, status(4).await, status(5).await],
        [429, 200, 429]
    );
    // A limit of the file must not have its name.
    let error = limits
        .reload(&file("fixed-window 6/1h").replace("all = ", "user = "))
        .unwrap_err();
    assert!(
        error
            .to_string()
            .contains("the program has a limit `user`, too"),
        "{error}"
    );
    // Nor its states.
    let text = file("fixed-window 6/1h").replace("rule = ", "was = \"user\", rule = ");
    let error = limits.reload(&text).unwrap_err().to_string();
    assert!(
        error.contains("the program has a limit `user`, too"),
        "{error}"
    );
}

/// A layer that is applied twice would charge each request twice; it is noticed, and counted.
#[tokio::test]
async fn the_same_layer_twice() {
    let (limits, _) = limits(&one(
        "api",
        "rule = \"fixed-window 5/1h\", key = \"peer-ip\"",
    ));
    let service = limits.layer(limits.layer(service_fn(answer)));
    let mut request = Request::new(Body::empty());
    request
        .extensions_mut()
        .insert(SocketAddr::from(([192, 0, 2, 7], 1)));
    drop(service.oneshot(request).await.unwrap());
    assert_eq!(limits.misconfigured(), 1);
}

/// A rule that the store cannot run is a mistake of the file, with its place.
#[tokio::test]
async fn a_rule_that_the_store_cannot_run() {
    let right = one("api", "rule = \"token-bucket 5/1m\"");
    let wrong = one("api", "rule = \"in-flight 5\"");
    let map = Transactional::new(MapStore::<AnyRule>::default()).fail_open();
    let limits: RouteLimits<Body, _> = RouteLimits::builder().store(map).build(&right).unwrap();
    let error = limits.reload(&wrong).unwrap_err();
    let problem = error.iter().next().unwrap();
    assert_eq!(
        (problem.line(), problem.path()),
        (Some(2), "limits.api.rule")
    );
    assert!(
        problem
            .to_string()
            .contains("the store cannot run the rule"),
        "{problem}"
    );
    limits.diff(&wrong).unwrap_err();
}

/// A file of its own, which is removed at the end.
struct WatchedFile(PathBuf);

impl WatchedFile {
    fn new(name: &str, text: &str) -> Self {
        let name = format!("tollgate-{}-{name}.toml", std::process::id());
        let file = Self(std::env::temp_dir().join(name));
        file.replace(text);
        file
    }

    /// Replaces it by renaming.
    fn replace(&self, text: &str) {
        let new = self.0.with_extension("new");
        fs::write(&new, text).unwrap();
        fs::rename(new, &self.0).unwrap();
    }
}

impl Drop for WatchedFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Waits until a condition holds, for ten seconds at most.
async fn until(what: &str, condition: impl Fn() -> bool) {
    for _ in 0..1_000 {
        if condition() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("never: {what}");
}

#[tokio::test]
async fn a_watched_file() {
    let text = |limit: u64| {
        one(
            "api",
            &format!("rule = \"fixed-window {limit}/1h\", key = \"peer-ip\""),
        )
    };
    let file = WatchedFile::new("watched", &text(5));
    let (limits, _) = limits(&text(1));
    limits.watch(&file.0).unwrap();
    until("the file is taken", || limits.reloads().taken == 1).await;
    assert_eq!(admitted(&limits, "/").await, 5);

    file.replace(&text(7));
    until("the new file is taken", || limits.reloads().taken == 2).await;
    assert_eq!(admitted(&limits, "/").await, 2);

    file.replace("limits = ");
    until("the mistake is noted", || limits.reloads().failed == 1).await;
    fs::remove_file(&file.0).unwrap();
    until("the loss is noted", || limits.reloads().failed == 2).await;
    // Each once.
    tokio::time::sleep(Duration::from_millis(700)).await;
    assert_eq!((limits.reloads().taken, limits.reloads().failed), (2, 2));
    file.replace(&text(8));
    until("the file is back", || limits.reloads().taken == 3).await;
    assert_eq!(admitted(&limits, "/").await, 1);
}

/// A mounted configuration volume: the file is a link into a folder behind a link, which is
/// replaced.
#[cfg(unix)]
#[tokio::test]
async fn a_mounted_volume() {
    use std::os::unix::fs::symlink;

    let text = |limit: u64| {
        one(
            "api",
            &format!("rule = \"fixed-window {limit}/1h\", key = \"peer-ip\""),
        )
    };
    let root = std::env::temp_dir().join(format!("tollgate-{}-volume", std::process::id()));
    let _ = fs::remove_dir_all(&root);
    for (folder, limit) in [("first", 2), ("second", 3)] {
        fs::create_dir_all(root.join(folder)).unwrap();
        fs::write(root.join(folder).join("limits.toml"), text(limit)).unwrap();
    }
    symlink("first", root.join("data")).unwrap();
    symlink("data/limits.toml", root.join("limits.toml")).unwrap();
    let (limits, _) = limits(&text(1));
    limits.watch(root.join("limits.toml")).unwrap();
    until("the first file is taken", || limits.reloads().taken == 1).await;
    symlink("second", root.join("data.new")).unwrap();
    fs::rename(root.join("data.new"), root.join("data")).unwrap();
    until("the second file is taken", || limits.reloads().taken == 2).await;
    assert_eq!(admitted(&limits, "/").await, 3);
    fs::remove_dir_all(&root).unwrap();
}

#[test]
fn a_watch_needs_a_runtime() {
    let limits: RouteLimits<Body> = RouteLimits::new("default.limits = []").unwrap();
    let error = limits.watch("limits.toml").unwrap_err();
    assert!(
        error.to_string().contains("expected a call inside of one"),
        "{error}"
    );
}

/// Counts of the clients of a limit.
#[derive(Clone, Default)]
struct Meter(Arc<Mutex<HashMap<Key, ClientMeter>>>);

#[derive(Clone, Copy, Default)]
struct ClientMeter {
    admitted: u64,
    /// The least number of admitted requests at a refusal.
    refused_from: Option<u64>,
}

impl Observer for Meter {
    fn admitted(&self, event: &Event<'_>) {
        self.0
            .lock()
            .unwrap()
            .entry(*event.key())
            .or_default()
            .admitted += 1;
    }

    fn refused(&self, event: &Event<'_>) {
        let mut meters = self.0.lock().unwrap();
        let meter = meters.entry(*event.key()).or_default();
        let before = meter.refused_from.unwrap_or(u64::MAX);
        meter.refused_from = Some(before.min(meter.admitted));
    }
}

/// A real server, whose file changes a hundred times under wrk: each refusal is right for one of
/// both files, and nobody is admitted above the greater one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_changes_under_load() {
    const CLIENTS: u64 = 8;
    const CONNECTIONS: u64 = 16;
    const LESSER: u64 = 100;
    const GREATER: u64 = 300;
    // No unit comes back during the test. The lists of limits change, too.
    let file = |limit: u64| {
        let beside = if limit == LESSER { "" } else { ", \"beside\"" };
        format!(
            "[limits]\napi = {{ rule = \"fixed-window {limit}/1d from=first-call\", key = \"header x-client\" }}\n\
             beside = {{ rule = \"token-bucket 1000000/1s\" }}\n\
             [[routes]]\nmatch = \"/v1/{{*rest}}\"\nlimits = [\"api\"{beside}]\n[default]\nlimits = []\n"
        )
    };
    let meter = Meter::default();
    let limits: RouteLimits<Body> = RouteLimits::builder()
        .observe(meter.clone())
        .build(&file(LESSER))
        .unwrap();
    let app: Router = Router::new()
        .route("/v1/hello", get(async || "hello"))
        .layer(limits.clone());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });

    // On disk, as an operator changes it; the program takes it as at a signal.
    let on_disk = WatchedFile::new("hundred", &file(LESSER));
    let change = |limit| {
        on_disk.replace(&file(limit));
        limits
            .reload(&fs::read_to_string(&on_disk.0).unwrap())
            .unwrap();
    };
    let script = WatchedFile::new(
        "wrk",
        &format!(
            "local n = 0\nrequest = function()\n  n = n + 1\n  wrk.headers['x-client'] = tostring(n % {CLIENTS})\n  \
             return wrk.format('GET', '/v1/hello')\nend\n"
        ),
    );
    let mut wrk = tokio::process::Command::new("wrk")
        .args(["-t1", &format!("-c{CONNECTIONS}"), "-d8s", "-s"])
        .arg(&script.0)
        .arg(format!("http://{address}"))
        .stdout(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .expect("wrk, which ./test.sh installs");
    let done = AtomicBool::new(false);
    tokio::join!(
        async {
            wrk.wait().await.unwrap();
            done.store(true, Ordering::Relaxed);
        },
        async {
            for n in 1..=100 {
                tokio::time::sleep(Duration::from_millis(40)).await;
                let limit = if n % 2 == 0 { LESSER } else { GREATER };
                change(limit);
                assert!(
                    !done.load(Ordering::Relaxed),
                    "wrk ended before the last change"
                );
            }
            change(GREATER);
        }
    );
    assert_eq!((limits.reloads().taken, limits.reloads().failed), (101, 0));
    let before = meter.0.lock().unwrap().clone();
    // What is left of the greater limit.
    for client in 0..CLIENTS {
        for _ in 0..=GREATER {
            let request = Request::get("/v1/hello").header("x-client", client.to_string());
            let service = limits.layer(service_fn(answer));
            drop(service.oneshot(request.body(Body::empty()).unwrap()).await);
        }
    }
    let meters = meter.0.lock().unwrap();
    for client in 0..CLIENTS {
        let key = Key::bytes(client.to_string().as_bytes());
        assert_eq!(meters[&key].admitted, GREATER);
        assert!(before[&key].admitted > LESSER, "wrk saw no greater limit");
        // A decision of another thread may be counted later than that of a refusal.
        let refused_from = before[&key].refused_from.expect("a refusal under wrk");
        assert!(refused_from + CONNECTIONS >= LESSER, "{refused_from}");
    }
}
