//! The server: three routes behind one limit.

use std::{collections::HashMap, time::Duration};

use axum::{
    Json, Router,
    extract::{Query, rejection::QueryRejection},
    http::StatusCode,
    routing::get,
};
use serde_json::{Value, json};
use tollgate::{Decision, Outcome, Policy, RateLimitLayer, Verdict, respond::Http};

use crate::{flags::Args, store::AnyStore};

/// The longest sleep of `/slow`, in milliseconds.
const SLOWEST: u64 = 10_000;

/// Puts the routes behind the limit.
///
/// # Errors
///
/// Returns an error if the store cannot run the rule.
pub(crate) fn app(args: &Args, store: AnyStore) -> Result<Router, tollgate::Error> {
    let limit = RateLimitLayer::try_new(args.rule.clone())?
        .key(args.key.clone())
        .try_store(store)?
        .respond(Http::new().headers(args.headers));
    Ok(all().layer(limit))
}

/// Returns the routes, without a limit.
pub(crate) fn all() -> Router {
    Router::new()
        .route("/", get(hello))
        .route("/slow", get(slow))
        .route("/decision", get(decision))
}

async fn hello(outcome: Outcome) -> String {
    let Some((_, decision)) = outcome.nearest() else {
        return "hello\n".to_owned();
    };
    match (decision.remaining(), decision.limit()) {
        (Some(remaining), Some(limit)) => format!("hello, {remaining} of {limit} left\n"),
        _ => "hello\n".to_owned(),
    }
}

/// A slow handler.
async fn slow(
    query: Result<Query<HashMap<String, String>>, QueryRejection>,
) -> Result<String, (StatusCode, String)> {
    let query = query.map(|Query(query)| query).unwrap_or_default();
    let ms = query.get("ms").map_or("1000", String::as_str);
    match ms.parse() {
        Ok(ms @ 0..=SLOWEST) => {
            tokio::time::sleep(Duration::from_millis(ms)).await;
            Ok(format!("slept {ms} ms\n"))
        }
        _ => Err((
            StatusCode::BAD_REQUEST,
            format!(
                "`ms` must be a whole number of milliseconds from 0 to {SLOWEST}, as in /slow?ms=500\n"
            ),
        )),
    }
}

/// Shows the decision about this request.
async fn decision(outcome: Outcome) -> Json<Value> {
    let limits: Vec<_> = outcome.iter().map(limit_as_json).collect();
    Json(json!({ "admitted": outcome.is_admitted(), "limits": limits }))
}

fn limit_as_json((policy, decision): (&Policy, &Decision)) -> Value {
    let verdict = match decision.verdict() {
        Verdict::Allow => "allow".to_owned(),
        Verdict::Delay(wait) => format!("delay by {wait:?}"),
        Verdict::Refuse => "refuse".to_owned(),
        other => format!("{other:?}"),
    };
    json!({
        "policy": policy.name(),
        "verdict": verdict,
        "limit": decision.limit(),
        "quota": decision.quota().map(|quota| quota.to_string()),
        "remaining": decision.remaining(),
        "retry_after_seconds": decision.retry_after().map(|wait| wait.as_secs_f64()),
        "reset_after_seconds": decision.reset_after().as_secs_f64(),
        "more_after_seconds": decision.more_after().as_secs_f64(),
        "class": decision.class(),
        "at_unix_nanos": decision.at().as_nanos(),
    })
}
