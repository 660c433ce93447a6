//! Change a limit without a restart.

// Copy from here.
use axum::{Router, routing::get};
use tollgate::{Limit, LiveRule, prelude::*};

fn app(rule: &LiveRule<TokenBucket>) -> Router {
    let limit = Limit::live(rule).key(Header::new("x-api-key"));
    let layer = RateLimitLayer::from(limit);
    Router::new().route("/", get(async || "hello")).layer(layer)
}

/// Changes nothing if the text is no rule, or the store of the layer cannot run it.
fn change(rule: &LiveRule<TokenBucket>, text: &str) -> Result<(), tollgate::Error> {
    rule.set(text.parse()?)
}
// Copy to here.

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client;

    #[tokio::test]
    async fn a_new_rule_counts_what_was_spent_under_the_old_one() {
        let rule = LiveRule::new("token-bucket 2/1h".parse().unwrap());
        let app = app(&rule);
        let admitted = async |key| client::admitted(&app, || client::get("/", key)).await;
        assert_eq!(admitted("alice").await, 2);
        assert!(change(&rule, "token-bucket 5/1").is_err());
        change(&rule, "token-bucket 5/1h").unwrap();
        assert_eq!(admitted("bob").await, 5);
        assert_eq!(admitted("alice").await, 0);
        change(&rule, "token-bucket 1/1h").unwrap();
        assert_eq!(admitted("carol").await, 1);
    }
}
