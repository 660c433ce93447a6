//! Different limits for different customers.

// Copy from here.
use axum::{Router, extract::Request, routing::get};
use tollgate::{
    key::{Extension, Extracted, Key},
    prelude::*,
};

/// Inserted into the request's extensions by the layer that authenticates it.
#[derive(Clone)]
struct Customer {
    id: u64,
    plan: Plan,
}

#[derive(Clone)]
enum Plan {
    Free,
    Paid(TokenBucket),
    Unlimited,
}

fn app() -> Router {
    let by_customer = Extension::new(|customer: &Customer| match customer.plan {
        Plan::Unlimited => Extracted::Exempt,
        Plan::Free | Plan::Paid(_) => Extracted::Key(Key::from(customer.id)),
    });
    // The layer's own rule is that of the free plan.
    let limit = RateLimitLayer::new(TokenBucket::per_hour(2))
        .key(by_customer)
        .rule(
            |request: &Request| match request.extensions().get::<Customer>()?.plan {
                Plan::Paid(rule) => Some(rule),
                Plan::Free | Plan::Unlimited => None,
            },
        );
    Router::new().route("/", get(async || "hello")).layer(limit)
}
// Copy to here.

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client;

    #[tokio::test]
    async fn each_plan_has_its_limit() {
        let app = app();
        let admitted = async |id, plan: Plan| {
            let request = || {
                let mut request = client::get("/", "");
                let plan = plan.clone();
                request.extensions_mut().insert(Customer { id, plan });
                request
            };
            client::admitted(&app, request).await
        };
        assert_eq!(admitted(1, Plan::Free).await, 2);
        let paid = Plan::Paid("token-bucket 5/1h".parse().unwrap());
        assert_eq!(admitted(2, paid).await, 5);
        assert_eq!(admitted(3, Plan::Unlimited).await, 10);
    }
}
