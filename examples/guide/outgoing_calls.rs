//! Stay within the limits of others.
//!
//! The policy is one for each error: with `BoxError` alone, a client that is not boxed could not be
//! used in a task.

// Copy from here.
use std::time::Duration;

use http::{Request, Response};
use tokio::time::Sleep;
use tollgate::backoff::{Backoff, Sleeps};
use tollgate::{LeakyBucket, key::Host, prelude::*, time::TokioClock};
use tower::{BoxError, ServiceBuilder, retry::Policy, util::BoxCloneSyncService};

type Call = Request<http_body_util::Full<bytes::Bytes>>;
type Client<B> = BoxCloneSyncService<Call, Response<B>, BoxError>;

#[derive(Clone)]
struct ObeyRetryAfter {
    retries: u32,
    sleeps: Sleeps,
}

impl<B, E> Policy<Call, Response<B>, E> for ObeyRetryAfter {
    type Future = Sleep;

    fn retry(&mut self, _: &mut Call, result: &mut Result<Response<B>, E>) -> Option<Sleep> {
        let response = result.as_ref().ok()?;
        let refused = [429, 503].contains(&response.status().as_u16());
        self.retries = self.retries.checked_sub(1).filter(|_| refused)?;
        let wait = response.headers().get("retry-after");
        // A date is not read: the call is not repeated.
        let seconds = wait.map_or(Some(0), |wait| wait.to_str().ok()?.parse().ok())?;
        Some(self.sleeps.next_at_least(Duration::from_secs(seconds)))
    }

    fn clone_request(&mut self, call: &Call) -> Option<Call> {
        Some(call.clone())
    }
}

fn paced<B: Send + 'static>(client: Client<B>) -> Client<B> {
    let longest = Duration::from_secs(5);
    let rule = LeakyBucket::per_second(10).queue(50).max_wait(longest);
    let pace = RateLimitLayer::new(rule)
        .key(Host)
        .store(LocalBuilder::new().clock(TokioClock::new()).build())
        .respond(AsError);
    let sleeps = Backoff::full(Duration::from_millis(100), Duration::from_secs(10)).sleeps();
    let retry = ObeyRetryAfter { retries: 3, sleeps };
    let stack = ServiceBuilder::new().retry(retry).layer(pace);
    BoxCloneSyncService::new(stack.service(client))
}
// Copy to here.

#[cfg(test)]
mod tests {
    use std::{
        io,
        sync::{
            Arc,
            atomic::{AtomicU32, Ordering},
        },
    };

    use axum::{Router, routing::get};
    use futures_util::future::join_all;
    use tokio::time::Instant;
    use tollgate::respond::Refused;
    use tower::{Service, ServiceExt, service_fn};

    use super::*;

    fn call(url: &str) -> Call {
        Request::get(url).body(Default::default()).unwrap()
    }

    /// A server that counts its calls, and refuses the first.
    fn server(
        calls: &Arc<AtomicU32>,
        retry_after: &'static str,
    ) -> impl Service<Call, Response = Response<()>, Error = io::Error, Future: Send>
    + Clone
    + Send
    + Sync
    + 'static {
        let calls = calls.clone();
        service_fn(move |_: Call| {
            let mut response = Response::builder();
            if calls.fetch_add(1, Ordering::Relaxed) == 0 {
                response = response.status(429).header("retry-after", retry_after);
            }
            async move { Ok(response.body(()).unwrap()) }
        })
    }

    #[tokio::test(start_paused = true)]
    async fn calls_wait_for_their_turn_and_retry_by_retry_after() {
        let calls = Arc::new(AtomicU32::new(0));
        let server = server(&calls, "30").map_err(BoxError::from);
        let client = paced(BoxCloneSyncService::new(server));
        let send = |url: &str| client.clone().oneshot(call(url));

        let start = Instant::now();
        assert_eq!(send("http://api.example/").await.unwrap().status(), 200);
        let elapsed = start.elapsed().as_millis();
        assert!((30_000..30_500).contains(&elapsed), "{elapsed}");
        assert_eq!(calls.load(Ordering::Relaxed), 2);

        // Eleven calls at once to one host take a second, and one to another host no time.
        let start = Instant::now();
        let spellings = ["busy.example", "BUSY.example:80", "user@busy.example."];
        let urls: Vec<_> = spellings
            .iter()
            .map(|host| format!("http://{host}/"))
            .collect();
        join_all((0..11).map(|n| send(&urls[n % 3]))).await;
        let elapsed = start.elapsed().as_millis();
        assert!((1000..1010).contains(&elapsed), "{elapsed}");
        let start = Instant::now();
        send("http://idle.example/").await.unwrap();
        assert!(start.elapsed() < Duration::from_millis(10));

        // One leaves at once, and fifty wait.
        let all = join_all((0..60).map(|_| send("http://full.example/"))).await;
        let errors = all.iter().filter_map(|result| result.as_ref().err());
        let refused = errors.filter(|error| error.is::<Refused>());
        assert_eq!(refused.count(), 9);
    }

    #[tokio::test(start_paused = true)]
    async fn a_date_is_not_taken_for_no_wait() {
        let calls = Arc::new(AtomicU32::new(0));
        let server = server(&calls, "Wed, 21 Oct 2065 07:28:00 GMT").map_err(BoxError::from);
        let client = paced(BoxCloneSyncService::new(server));
        let answer = client.oneshot(call("http://api.example/")).await.unwrap();
        assert_eq!(
            (answer.status().as_u16(), calls.load(Ordering::Relaxed)),
            (429, 1)
        );
    }

    /// Also if it is not boxed: in a function, in a handler, in a task.
    #[tokio::test(start_paused = true)]
    async fn a_client_works_where_futures_must_be_send() {
        fn boxed(
            client: impl Service<Call, Response = Response<()>, Error = BoxError, Future: Send>
            + Clone
            + Send
            + Sync
            + 'static,
        ) -> Client<()> {
            BoxCloneSyncService::new(client)
        }

        let sleeps = Backoff::full(Duration::from_millis(100), Duration::from_secs(10)).sleeps();
        let pace = RateLimitLayer::new(LeakyBucket::per_second(10))
            .key(Host)
            .store(LocalBuilder::new().clock(TokioClock::new()).build())
            .respond(AsError);
        let client = ServiceBuilder::new()
            .retry(ObeyRetryAfter { retries: 3, sleeps })
            .layer(pace)
            .map_err(BoxError::from)
            .service(server(&Arc::default(), "30"));
        let in_a_struct = boxed(client.clone());
        let handler = async move || {
            let response = in_a_struct.clone().oneshot(call("http://api.example/"));
            response.await.is_ok().to_string()
        };
        let _: Router = Router::new().route("/", get(handler));
        let in_a_task = client.clone();
        let task =
            tokio::spawn(async move { in_a_task.oneshot(call("http://api.example/")).await });
        assert_eq!(task.await.unwrap().unwrap().status(), 200);
        assert!(client.oneshot(call("http://api.example/")).await.is_ok());
    }
}
