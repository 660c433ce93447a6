//! Change a limit without a restart.

// Copy from here.
use std::sync::{Arc, PoisonError, RwLock};

use axum::{Router, extract::Request, routing::get};
use tollgate::prelude::*;

fn app(start: TokenBucket, current: Arc<RwLock<TokenBucket>>) -> Router {
    let rule = move || *current.read().unwrap_or_else(PoisonError::into_inner);
    let limit = RateLimitLayer::new(start)
        .key(Header::new("x-api-key"))
        .rule(move |_: &Request| Some(rule()));
    Router::new().route("/", get(async || "hello")).layer(limit)
}

/// Changes nothing if the text is no rule.
fn change(current: &RwLock<TokenBucket>, text: &str) -> Result<(), tollgate::Error> {
    let rule = text.parse()?;
    *current.write().unwrap_or_else(PoisonError::into_inner) = rule;
    Ok(())
}
// Copy to here.

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client;

    #[tokio::test]
    async fn a_new_rule_counts_what_was_spent_under_the_old_one() {
        let start = "token-bucket 2/1h".parse().unwrap();
        let current = Arc::new(RwLock::new(start));
        let app = app(start, current.clone());
        let admitted = async |key| client::admitted(&app, || client::get("/", key)).await;
        assert_eq!(admitted("alice").await, 2);
        assert!(change(&current, "token-bucket 5/1").is_err());
        change(&current, "token-bucket 5/1h").unwrap();
        assert_eq!(admitted("bob").await, 5);
        assert_eq!(admitted("alice").await, 0);
        change(&current, "token-bucket 1/1h").unwrap();
        assert_eq!(admitted("carol").await, 1);
    }
}
