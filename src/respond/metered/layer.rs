//! The layer: it meters the bodies of responses.

use tower_layer::Layer;

use super::{MeteredUnit, SettleByBodyService};

/// Settles the charge of each request to the length of its response's body, once the body has ended.
///
/// Put it *below* a limit with [`charge_handle`](crate::Limit::charge_handle), which reserves the cost: the body settles it to the bytes or
/// frames that were sent. A body that is dropped in the middle settles what was sent; a request without a response stays charged. Requests
/// without a handle pass unchanged, and a handler that settles by itself is left alone.
///
/// If several limits hand over their charges, [`of`](Self::of) selects one. Without it all of them keep the reserved cost, which is logged once
/// (feature `tracing`).
///
/// The bytes are those that the layer sees: put it above a layer that compresses to count what is sent, and below one to count what the handler wrote.
///
/// ```
/// use std::convert::Infallible;
/// use http::{Request, Response};
/// use http_body_util::{BodyExt, Full};
/// use tollgate::{Cost, Policy, RateLimitLayer, TokenBucket, key::Key, respond::{Http, SettleByBody}, store::Local};
/// use tower::{ServiceBuilder, ServiceExt, service_fn};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Infallible> {
/// // A kilobyte a second. A response reserves 100 bytes.
/// let (rule, store) = (TokenBucket::per_second(1_024), Local::new());
/// let limit = RateLimitLayer::new(rule.clone())
///     .store(store.clone())
///     .respond(Http::empty())
///     .cost(Cost::new(100).unwrap())
///     .charge_handle();
/// let service = ServiceBuilder::new()
///     .layer(limit)
///     .layer(SettleByBody::bytes())
///     .service(service_fn(async |_: Request<()>| {
///         Ok::<_, Infallible>(Response::new(Full::new(&b"twelve bytes"[..])))
///     }));
///
/// let body = service.oneshot(Request::new(())).await?.into_body();
/// assert_eq!(body.collect().await?.to_bytes().len(), 12);
/// let left = store.look(&Policy::default(), &rule, &Key::GLOBAL).remaining();
/// assert!(left >= Some(1_012));
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
#[must_use = "a layer does nothing until it is added to a service"]
pub struct SettleByBody {
    pub(super) unit: MeteredUnit,
    pub(super) policy: Option<String>,
}

impl SettleByBody {
    /// Counts the bytes of the body's data, without trailers.
    pub fn bytes() -> Self {
        Self::by(MeteredUnit::Bytes)
    }

    /// Counts the frames of the body's data.
    pub fn frames() -> Self {
        Self::by(MeteredUnit::Frames)
    }

    fn by(unit: MeteredUnit) -> Self {
        Self { unit, policy: None }
    }

    /// Settles the charge of the limit of this name, for requests with several handles.
    pub fn of(self, policy: &str) -> Self {
        Self {
            policy: Some(policy.to_owned()),
            ..self
        }
    }

    /// Returns the unit.
    pub fn unit(&self) -> MeteredUnit {
        self.unit
    }
}

impl<S> Layer<S> for SettleByBody {
    type Service = SettleByBodyService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        SettleByBodyService::new(inner, self.clone())
    }
}
