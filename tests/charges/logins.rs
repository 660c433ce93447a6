//! "3 failed logins an hour", in both modes.

use std::convert::Infallible;

use futures_util::future::join_all;
use http::{Request, Response, StatusCode};
use support::servers;
use tollgate::{RateLimitLayer, respond::Http};
use tower::{Service, ServiceBuilder, ServiceExt, service_fn};

use super::{
    at_once,
    stores::{self, AnyStore},
};

/// A login that takes its time.
async fn login(request: Request<bool>) -> Result<Response<String>, Infallible> {
    for _ in 0..3 {
        tokio::task::yield_now().await;
    }
    let mut response = Response::new("welcome".to_owned());
    if !*request.body() {
        *response.body_mut() = "wrong password".to_owned();
        *response.status_mut() = StatusCode::UNAUTHORIZED;
    }
    Ok(response)
}

fn is_failure(response: &Response<String>) -> bool {
    response.status() == StatusCode::UNAUTHORIZED
}

/// Sends logins at once, and returns the number of answers with each of the statuses 200, 401
/// and 429.
async fn send<S>(service: &S, logins: &[bool]) -> [usize; 3]
where
    S: Service<Request<bool>, Response = Response<String>, Error = Infallible> + Clone,
{
    let answers = logins
        .iter()
        .map(|&correct| service.clone().oneshot(Request::new(correct)));
    let statuses: Vec<StatusCode> = join_all(answers)
        .await
        .into_iter()
        .map(|answer| answer.unwrap().status())
        .collect();
    [
        StatusCode::OK,
        StatusCode::UNAUTHORIZED,
        StatusCode::TOO_MANY_REQUESTS,
    ]
    .map(|status| statuses.iter().filter(|other| **other == status).count())
}

async fn check_look_then_charge(store: AnyStore) {
    let limit = RateLimitLayer::new(at_once(3)).store(store);
    let service = ServiceBuilder::new()
        .layer(limit.charge_after(is_failure))
        .service(service_fn(login));
    // All pass, although there are more of them than failures are allowed.
    assert_eq!(send(&service, &[true; 10]).await, [10, 0, 0]);
    // An attacker who sends all guesses at once learns of three.
    assert_eq!(send(&service, &[false; 50]).await, [0, 3, 47]);
    assert_eq!(send(&service, &[true, false]).await, [0, 0, 2]);
}

#[tokio::test]
async fn look_then_charge_in_memory() {
    check_look_then_charge(stores::memory()).await;
}

#[tokio::test]
async fn look_then_charge_in_redis() {
    let server = servers::Redis::start();
    check_look_then_charge(stores::redis(&server).await).await;
}

#[tokio::test]
async fn look_then_charge_in_memcached() {
    let server = servers::Memcached::start();
    check_look_then_charge(stores::memcached(&server).await).await;
}

#[tokio::test]
async fn reserve_then_settle() {
    let limit = RateLimitLayer::new(at_once(3)).charge_if(is_failure);
    let service = ServiceBuilder::new()
        .layer(limit)
        .service(service_fn(login));
    // Those in progress count.
    assert_eq!(send(&service, &[true; 10]).await, [3, 0, 7]);
    for _ in 0..10 {
        assert_eq!(send(&service, &[true]).await, [1, 0, 0]);
    }
    assert_eq!(send(&service, &[false; 50]).await, [0, 3, 47]);
    assert_eq!(send(&service, &[true]).await, [0, 0, 1]);
}

#[tokio::test]
async fn a_late_refusal_is_a_whole_refusal() {
    let limit = RateLimitLayer::new(at_once(1)).charge_after(is_failure);
    let service = ServiceBuilder::new()
        .layer(limit)
        .service(service_fn(login));
    let guesses = (0..2).map(|_| service.clone().oneshot(Request::new(false)));
    let mut answers = join_all(guesses).await.into_iter().map(Result::unwrap);
    let (first, second) = (answers.next().unwrap(), answers.next().unwrap());
    assert_eq!(first.headers()["ratelimit"], "\"default\";r=0;t=86400");

    assert_eq!(second.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(second.headers()["retry-after"], "86400");
    assert_eq!(second.headers()["content-type"], "application/problem+json");
    assert!(!second.body().contains("password"), "{}", second.body());
    let outcome = second.extensions().get::<tollgate::Outcome>().unwrap();
    assert!(!outcome.is_admitted());
}

#[tokio::test]
async fn a_late_refusal_over_grpc_has_a_status_of_grpc() {
    let limit = RateLimitLayer::new(at_once(1))
        .respond(Http::empty())
        .charge_after(|_: &Response<String>| true);
    let inner = service_fn(async |_: Request<()>| {
        tokio::task::yield_now().await;
        let mut response = Response::new("answer".to_owned());
        let grpc = http::HeaderValue::from_static("application/grpc+proto");
        response.headers_mut().insert("content-type", grpc);
        Ok::<_, Infallible>(response)
    });
    let service = ServiceBuilder::new().layer(limit).service(inner);
    let calls = (0..2).map(|_| service.clone().oneshot(Request::new(())));
    let answers = join_all(calls).await;
    let refused = answers[1].as_ref().unwrap();
    assert_eq!(refused.status(), StatusCode::OK);
    assert_eq!(refused.headers()["grpc-status"], "8");
    assert_eq!(refused.body(), "");
}
