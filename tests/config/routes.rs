//! Which route a request has: beside axum, beside a slow matcher, and in all variants of a path.

use std::convert::Infallible;

use axum::{Router, body::Body, routing::any};
use http::{Method, Request, Response};
use proptest::prelude::*;
use tollgate::config::RouteLimits;
use tower::{Layer, ServiceExt, service_fn};

/// Returns a file whose route number n has the limit `rN`, and whose default has `none`.
fn file(routes: &[&str]) -> String {
    let mut text = String::from("[limits]\nnone = { rule = \"token-bucket 1000/1s\" }\n");
    for index in 0..routes.len() {
        text += &format!("r{index} = {{ rule = \"token-bucket 1000/1s\" }}\n");
    }
    for (index, route) in routes.iter().enumerate() {
        text += &format!("[[routes]]\nmatch = \"{route}\"\nlimits = [\"r{index}\"]\n");
    }
    text + "[default]\nlimits = [\"none\"]\n"
}

/// Returns the number of the route of a request; `None` for the default.
async fn route_of(limits: &RouteLimits<Body>, method: &str, path: &str) -> Option<usize> {
    let inner =
        service_fn(async |_: Request<Body>| Ok::<_, Infallible>(Response::new(Body::empty())));
    let request = Request::builder()
        .method(method)
        .uri(path)
        .body(Body::empty());
    let response = limits.layer(inner).oneshot(request.unwrap()).await.unwrap();
    let policy = response.headers()["ratelimit-policy"].to_str().unwrap();
    let name = policy.split('"').nth(1).unwrap();
    name.strip_prefix('r').map(|index| index.parse().unwrap())
}

/// Asserts the routes of requests, `None` for the default.
async fn assert_routes(routes: &[&str], requests: &[(&str, &str, Option<&str>)]) {
    let limits = RouteLimits::new(&file(routes)).unwrap();
    for (method, path, expected) in requests {
        let found = route_of(&limits, method, path)
            .await
            .map(|index| routes[index]);
        assert_eq!(found, *expected, "{method} {path}");
    }
}

#[tokio::test]
async fn the_most_specific_route_wins() {
    assert_routes(
        &[
            "/v1/{*rest}",
            "/v1/users/{id}",
            "/v1/users/me",
            "/{page}",
            "/",
        ],
        &[
            ("GET", "/v1/users/me", Some("/v1/users/me")),
            ("GET", "/v1/users/7", Some("/v1/users/{id}")),
            ("GET", "/v1/users/7/orders", Some("/v1/{*rest}")),
            ("GET", "/v1/users", Some("/v1/{*rest}")),
            ("GET", "/v1", Some("/{page}")),
            ("GET", "/", Some("/")),
            ("GET", "/?page=2", Some("/")),
            ("GET", "/a/b", None),
            (
                "GET",
                "http://example.com/v1/users/me?x=1",
                Some("/v1/users/me"),
            ),
            ("GET", "http://example.com", Some("/")),
        ],
    )
    .await;
}

#[tokio::test]
async fn methods_of_one_pattern() {
    assert_routes(
        &[
            "POST /login",
            "/{*rest}",
            "GET /users",
            "HEAD /files",
            "GET /files",
            "/files",
            "PUT /only",
        ],
        &[
            ("POST", "/login", Some("POST /login")),
            ("GET", "/login", Some("/{*rest}")),
            ("GET", "/users", Some("GET /users")),
            ("HEAD", "/users", Some("GET /users")),
            ("PURGE", "/users", Some("/{*rest}")),
            ("HEAD", "/files", Some("HEAD /files")),
            ("GET", "/files", Some("GET /files")),
            ("PURGE", "/files", Some("/files")),
            ("PUT", "/only", Some("PUT /only")),
            ("PATCH", "/only", Some("/{*rest}")),
        ],
    )
    .await;
}

#[tokio::test]
async fn names_of_parts_make_no_difference() {
    assert_routes(
        &[
            "POST /users/{id}",
            "/users/{name}",
            "GET /users/{id}/{*rest}",
        ],
        &[
            ("POST", "/users/7", Some("POST /users/{id}")),
            ("GET", "/users/7", Some("/users/{name}")),
            ("GET", "/users/7/8/9", Some("GET /users/{id}/{*rest}")),
        ],
    )
    .await;
}

/// The table of the module's page, and more.
#[tokio::test]
async fn variants_of_a_path() {
    assert_routes(
        &[
            "/login",
            "/v1/{*rest}",
            "/dir/",
            "/caf%25é",
            "/{{x}}",
            "GET /head",
        ],
        &[
            ("GET", "/login/", Some("/login")),
            ("GET", "//login", Some("/login")),
            ("GET", "/./login", Some("/login")),
            ("GET", "/x/../login", Some("/login")),
            ("GET", "/../../login", Some("/login")),
            ("GET", "/%6Cogin", Some("/login")),
            ("GET", "/%6cogin/?a", Some("/login")),
            ("GET", "/login/.", Some("/login")),
            ("GET", "/dir", Some("/dir/")),
            ("GET", "/dir/..", None),
            ("GET", "/Login", None),
            ("GET", "/v1//users", Some("/v1/{*rest}")),
            ("GET", "//v1/users", Some("/v1/{*rest}")),
            ("GET", "/v1", None),
            ("GET", "/v1/", None),
            ("GET", "/v1%2Fusers", None),
            ("GET", "/caf%25%C3%A9", Some("/caf%25é")),
            ("GET", "/%", None),
            ("GET", "/%7", None),
            ("GET", "/%ff", None),
            ("GET", "/%761/x%ff", Some("/v1/{*rest}")),
            ("GET", "/%761/%C3/%80", Some("/v1/{*rest}")),
            ("GET", "/%C3/../%6Cogin", Some("/login")),
            ("GET", "/%7Bx%7D", Some("/{{x}}")),
            ("GET", "//", None),
            ("HEAD", "/head", Some("GET /head")),
        ],
    )
    .await;
}

#[tokio::test]
async fn grpc_methods() {
    assert_routes(
        &["POST /shop.Orders/Create", "/shop.Orders/{method}"],
        &[
            (
                "POST",
                "/shop.Orders/Create",
                Some("POST /shop.Orders/Create"),
            ),
            ("POST", "/shop.Orders/List", Some("/shop.Orders/{method}")),
            ("POST", "/shop.Users/List", None),
        ],
    )
    .await;
}

const PATTERNS: &[&str] = &[
    "/",
    "/a",
    "/b",
    "/{x}",
    "/a/",
    "/a/b",
    "/a/{x}",
    "/{x}/b",
    "/{x}/{y}",
    "/a/{*rest}",
    "/{x}/b/{*rest}",
    "/{*rest}",
    "/a/b/c",
    "/a/{x}/c",
    "/ab",
    "/a/b/",
];

/// Patterns that the matcher can tell apart.
const SIDE_BY_SIDE: &[&str] = &[
    "/",
    "/a",
    "/b",
    "/a/",
    "/a/b",
    "/a/b/c",
    "/a/{*rest}",
    "/{*rest}",
    "/ab/{x}",
    "/ab/{x}/c",
    "/ab/b",
    "/a/b/",
];

/// A path of a few segments, some of them unusual.
fn path() -> impl Strategy<Value = String> {
    let segment = prop::sample::select(vec!["a", "b", "c", "ab", "", "%61", ".", "..", "x%2Fy"]);
    prop::collection::vec(segment, 0..5).prop_map(|segments| format!("/{}", segments.join("/")))
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever axum matches, the file matches by the same pattern.
    #[test]
    fn axum_agrees(
        patterns in prop::sample::subsequence(PATTERNS.to_vec(), 1..10),
        paths in prop::collection::vec(path(), 20),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let app = std::panic::catch_unwind(|| {
                let mut app = Router::<()>::new();
                for (index, pattern) in patterns.iter().enumerate() {
                    app = app.route(pattern, any(async move || index.to_string()));
                }
                app
            });
            let limits = RouteLimits::new(&file(&patterns));
            assert_eq!(limits.is_ok(), app.is_ok(), "{patterns:?}");
            let (Ok(limits), Ok(app)) = (limits, app) else {
                return;
            };
            for path in &paths {
                let request = Request::get(path).body(Body::empty()).unwrap();
                let response = app.clone().oneshot(request).await.unwrap();
                if response.status() != 200 {
                    continue;
                }
                let body = axum::body::to_bytes(response.into_body(), 100).await.unwrap();
                let of_axum: usize = std::str::from_utf8(&body).unwrap().parse().unwrap();
                let found = route_of(&limits, "GET", path).await;
                assert_eq!(found, Some(of_axum), "{path} of {patterns:?}");
            }
        });
    }

    /// The route of each method is that of a table which has only the routes that count for it.
    #[test]
    fn methods_are_tables_of_their_own(
        routes in prop::collection::vec((0..4usize, prop::sample::select(SIDE_BY_SIDE.to_vec())), 1..10),
        paths in prop::collection::vec(path(), 10),
    ) {
        const METHODS: [Option<&str>; 4] = [None, Some("GET"), Some("HEAD"), Some("POST")];
        let mut routes: Vec<_> = routes.into_iter().map(|(method, pattern)| (METHODS[method], pattern)).collect();
        routes.sort_unstable();
        routes.dedup();
        let texts: Vec<_> = routes
            .iter()
            .map(|(method, pattern)| match method {
                Some(method) => format!("{method} {pattern}"),
                None => (*pattern).to_owned(),
            })
            .collect();
        let all = RouteLimits::new(&file(&texts.iter().map(String::as_str).collect::<Vec<_>>())).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        for method in [Method::GET, Method::HEAD, Method::POST, Method::PUT] {
            // The best route of each pattern.
            let rank = |own: Option<&str>| match own {
                Some(own) if own == method.as_str() => 0,
                Some("GET") if method == Method::HEAD => 1,
                None => 2,
                Some(_) => 3,
            };
            let mut kept: Vec<&str> = routes
                .iter()
                .filter(|(own, _)| rank(*own) < 3)
                .map(|(_, pattern)| *pattern)
                .collect();
            kept.sort_unstable();
            kept.dedup();
            let alone = RouteLimits::new(&file(&kept)).unwrap();
            for path in &paths {
                let (found, expected) = runtime.block_on(async {
                    (
                        route_of(&all, method.as_str(), path).await,
                        route_of(&alone, method.as_str(), path).await,
                    )
                });
                let expected = expected.map(|index| {
                    let of_pattern = routes.iter().enumerate().filter(|(_, route)| route.1 == kept[index]);
                    of_pattern.min_by_key(|(_, (own, _))| rank(*own)).unwrap().0
                });
                prop_assert_eq!(found, expected, "{} {} of {:?}", method, path, texts);
            }
        }
    }
}
