//! The Rust clients: `clients NAME`, with a list of `[url, key]` in JSON as its input. See
//! `clients.py`.
use std::{env, error::Error, io};

use reqwest_middleware::ClientBuilder;
use reqwest_retry::{RetryTransientMiddleware, policies::ExponentialBackoff};
use tokio::task::JoinSet;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let name = env::args()
        .nth(1)
        .ok_or("expected the name of a client: reqwest or reqwest-retry")?;
    let client = ClientBuilder::new(reqwest::Client::new());
    let client = match name.as_str() {
        "reqwest" => client.build(),
        "reqwest-retry" => {
            let policy = ExponentialBackoff::builder().build_with_max_retries(3);
            let retry = RetryTransientMiddleware::new_with_policy(policy);
            client.with(retry).build()
        }
        _ => return Err(format!("no client `{name}`").into()),
    };
    let runs: Vec<(String, String)> = serde_json::from_reader(io::stdin())?;
    let mut tasks = JoinSet::new();
    for (url, key) in runs {
        let client = client.clone();
        tasks.spawn(async move {
            for _ in 0..3 {
                // The proxy sees what it does. An error is none of this program.
                let _ = client.get(&url).header("x-api-key", &key).send().await;
            }
        });
    }
    tasks.join_all().await;
    println!("[]");
    Ok(())
}
