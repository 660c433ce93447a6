//! A rule from configuration.

// Copy from here.
use axum::{Router, routing::get};
use tollgate::prelude::*;

/// `rule` is a text such as `token-bucket 100/1m burst=150`.
fn app(rule: &str) -> Result<Router, tollgate::Error> {
    let rule: AnyRule = rule.parse()?;
    let limit = RateLimitLayer::try_new(rule)?.key(Header::new("x-api-key"));
    Ok(Router::new().route("/", get(async || "hello")).layer(limit))
}
// Copy to here.

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::client;

    #[tokio::test]
    async fn all_texts_of_the_page_are_rules() {
        let page = fs::read_to_string("src/guide/rules.md").unwrap();
        let (table, _) = page.split_once("# Guarantees").unwrap();
        let mut rules = 0;
        // The last column.
        for text in table.lines().filter_map(|line| line.strip_suffix("` |")) {
            let (_, text) = text.rsplit_once(" | `").unwrap();
            let app = app(text).unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!(client::status(&app, client::get("/", "alice")).await, 200);
            rules += 1;
        }
        assert!(rules >= 12, "{rules}");
        assert!(app("token-bucket 100/1").is_err());
    }

    #[tokio::test]
    async fn a_text_is_a_limit() {
        let app = app("sliding-log 3/1m & fixed-window 1000/1h").unwrap();
        let admitted = client::admitted(&app, || client::get("/", "alice")).await;
        assert_eq!(admitted, 3);
    }
}
