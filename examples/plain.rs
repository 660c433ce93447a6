//! A tower service without HTTP: a queue worker with a limit per sender.
//!
//! `cargo run --example plain`

use tollgate::{prelude::*, respond::Refused};
use tower::{BoxError, Service, ServiceBuilder, ServiceExt, service_fn};

/// The request type of the service.
struct Job {
    sender: &'static str,
    pages: u64,
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    // 10 pages at once for each sender, then one every 6 seconds.
    let limit = RateLimitLayer::new(TokenBucket::per_minute(10))
        .named("pages")
        .key(|job: &Job| Key::from(job.sender))
        .cost(|job: &Job| Cost::new(job.pages).unwrap_or(Cost::ONE))
        // There is no response that can carry a refusal, so a refusal becomes the service's error.
        .respond(AsError);
    let mut printer = ServiceBuilder::new()
        .layer(limit)
        .service(service_fn(async |job: Job| {
            Ok::<_, BoxError>(format!("printed {} pages for {}", job.pages, job.sender))
        }));

    for (sender, pages) in [("ann", 6), ("ann", 6), ("bob", 6), ("ann", 4), ("bob", 11)] {
        match printer.ready().await?.call(Job { sender, pages }).await {
            Ok(done) => println!("{done}"),
            Err(error) => match error.downcast_ref::<Refused>() {
                Some(refused) => println!("{sender}'s {pages} pages were not printed: {refused}"),
                None => return Err(error),
            },
        }
    }
    Ok(())
}
