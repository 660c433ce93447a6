//! Settles charges, and gives back what a call holds, when the body of a response has ended.

use std::{
    borrow::Cow,
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Buf;
use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use tower_layer::Layer;
use tower_service::Service;

use crate::{
    charging::{ChargeHandle, Usage},
    permit::Permit,
};

/// Settles the charge of each request to the length of its response's body, once the body has ended
/// and the request is dropped.
///
/// Put it *below* a limit with [`charge_handle`](crate::Limit::charge_handle), which reserves the
/// cost: the body settles it to the bytes or frames that were sent. A body that is dropped in the
/// middle settles what was sent; a request without a response stays charged. Requests without a
/// handle pass unchanged. A handler that settles by itself is left alone, and so is a response that
/// does not fulfil the condition of the limit.
///
/// A layer between the limit and this one may send clones of a request, to try it again: then the
/// charge is settled to the sum of all their bodies, once these and the clones are dropped. Of
/// several such layers for one charge, the outermost settles it.
///
/// If several limits hand over their charges, [`of`](Self::of) selects one. Without it all of them
/// keep the reserved cost, which is logged once (feature `tracing`).
///
/// It also keeps what a call in flight [holds](Permit) until the body has ended or is dropped, for
/// bodies of other types than those of axum and tonic, which need no layer for that;
/// [`permits`](Self::permits) does nothing else.
///
/// The bytes are those that the layer sees: put it above a layer that compresses to count what is
/// sent, and below one to count what the handler wrote.
///
/// ```
/// use std::convert::Infallible;
/// use http::{Request, Response};
/// use http_body_util::{BodyExt, Full};
/// use tollgate::{
///     Cost, Policy, RateLimitLayer, TokenBucket,
///     key::Key,
///     respond::{Http, SettleByBody},
///     store::Local,
/// };
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
    unit: MeteredUnit,
    policy: Option<String>,
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

    /// Settles nothing, and only keeps permits until the body has ended.
    pub fn permits() -> Self {
        Self::by(MeteredUnit::Counted)
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
        let settings = self.clone();
        SettleByBodyService { inner, settings }
    }
}

/// Meters the bodies of an inner service's responses. Made by [`SettleByBody`].
#[derive(Clone, Debug)]
#[must_use = "services do nothing unless called"]
pub struct SettleByBodyService<S> {
    inner: S,
    settings: SettleByBody,
}

impl<S, BIn, BOut> Service<Request<BIn>> for SettleByBodyService<S>
where
    S: Service<Request<BIn>, Response = Response<BOut>>,
{
    type Response = Response<MeteredBody<BOut>>;
    type Error = S::Error;
    type Future = SettleByBodyFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut req: Request<BIn>) -> Self::Future {
        let settles = self.settings.unit != MeteredUnit::Counted;
        let handle = req.extensions().get::<ChargeHandle>();
        let handle = handle
            .filter(|_| settles)
            .and_then(|handle| match &self.settings.policy {
                Some(policy) => {
                    let found = handle.of(policy).ok();
                    #[cfg(feature = "tracing")]
                    if found.is_none() {
                        crate::log::no_handle_of(policy, &handle.names());
                    }
                    found
                }
                None if handle.is_one() => Some(handle.clone()),
                None => {
                    #[cfg(feature = "tracing")]
                    crate::log::several_handles(&handle.names());
                    None
                }
            });
        let handle = handle.filter(|clone| {
            let own = req.extensions_mut().get_mut::<ChargeHandle>();
            own.is_some_and(|own| own.begin_count(clone))
        });
        let permit = Permit::of(req.extensions());
        SettleByBodyFuture {
            future: self.inner.call(req),
            permit,
            handle,
            unit: self.settings.unit,
        }
    }
}

pin_project! {
    /// The future of a response behind [`SettleByBody`](crate::respond::SettleByBody).
    #[must_use = "futures do nothing unless polled"]
    pub struct SettleByBodyFuture<F> {
        #[pin]
        future: F,
        permit: Option<Permit>,
        handle: Option<ChargeHandle>,
        unit: MeteredUnit,
    }
}

impl<F, B, E> Future for SettleByBodyFuture<F>
where
    F: Future<Output = Result<Response<B>, E>>,
{
    type Output = Result<Response<MeteredBody<B>>, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let result = ready!(this.future.poll(cx));
        // Of an error, too: the finished future may be kept.
        let (handle, permit) = (this.handle.take(), this.permit.take());
        let unit = *this.unit;
        Poll::Ready(result.map(|response| {
            // Takes no charge, so that the condition of the limit may give it back first.
            let usage = handle.map(|handle| handle.usage_of_bodies());
            response.map(|body| MeteredBody {
                body,
                usage,
                permit,
                unit,
            })
        }))
    }
}

impl_debug!(SettleByBodyFuture<F>);

/// The unit in which a [`MeteredBody`] counts.
///
/// ```
/// use tollgate::respond::{MeteredUnit, SettleByBody};
///
/// assert_eq!(SettleByBody::bytes().unit(), MeteredUnit::Bytes);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MeteredUnit {
    /// The bytes of the data, without trailers.
    Bytes,
    /// The frames of data, such as the events or messages of a stream that writes one at a time.
    Frames,
    /// Nothing: the owners of clones of the [`Usage`] add to it.
    Counted,
}

pin_project! {
    /// A body that counts what it yields, and settles a charge and gives back a [`Permit`] when it
    /// has ended or is dropped.
    ///
    /// [`SettleByBody`] wraps the bodies of all responses. A handler can wrap its own, to feed the
    /// count itself:
    ///
    /// ```
    /// use std::convert::Infallible;
    /// use http::{Request, Response};
    /// use http_body_util::{BodyExt, Full};
    /// use tollgate::{
    ///     ChargeHandle, Cost, Policy, RateLimitLayer, TokenBucket,
    ///     key::Key,
    ///     respond::{Http, MeteredBody, MeteredUnit},
    ///     store::Local,
    /// };
    /// use tower::{ServiceBuilder, ServiceExt, service_fn};
    ///
    /// type Body = MeteredBody<Full<&'static [u8]>>;
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Infallible> {
    /// let (rule, store) = (TokenBucket::per_minute(1_000), Local::new());
    /// let limit = RateLimitLayer::new(rule.clone())
    ///     .store(store.clone())
    ///     .respond(Http::empty())
    ///     .cost(Cost::new(100).unwrap())
    ///     .charge_handle();
    /// let stack = ServiceBuilder::new().layer(limit);
    /// let service = stack.service(service_fn(async |request: Request<()>| {
    ///     let charge = request.extensions().get::<ChargeHandle>().unwrap();
    ///     let usage = charge.usage().unwrap();
    ///     usage.add(3);
    ///     let body = Full::new(&b"three tokens"[..]);
    ///     let body = MeteredBody::new(body, usage, MeteredUnit::Counted);
    ///     Ok::<Response<Body>, Infallible>(Response::new(body))
    /// }));
    ///
    /// let remaining = || store.look(&Policy::default(), &rule, &Key::GLOBAL).remaining();
    /// let response = service.oneshot(Request::new(())).await?;
    /// assert_eq!(remaining(), Some(900));
    /// response.into_body().collect().await?;
    /// assert_eq!(remaining(), Some(997));
    /// # Ok(()) }
    /// ```
    pub struct MeteredBody<B> {
        #[pin]
        body: B,
        // `None` once the body has ended, and if there is nothing to settle.
        usage: Option<Usage>,
        // `None` then, too.
        permit: Option<Permit>,
        unit: MeteredUnit,
    }
}

impl<B> MeteredBody<B> {
    /// Counts what `body` yields in this unit, until it has ended or is dropped. Then the charge is
    /// settled, unless there is another clone of `usage`.
    pub fn new(body: B, usage: Usage, unit: MeteredUnit) -> Self {
        Self {
            body,
            usage: Some(usage),
            permit: None,
            unit,
        }
    }

    /// Keeps a permit until `body` has ended or is dropped.
    pub fn held(body: B, permit: Permit) -> Self {
        Self {
            permit: Some(permit),
            ..Self::unmetered(body)
        }
    }

    /// Returns the body of a request that has no charge to settle.
    fn unmetered(body: B) -> Self {
        Self {
            body,
            usage: None,
            permit: None,
            unit: MeteredUnit::Counted,
        }
    }
}

impl<B: Default> Default for MeteredBody<B> {
    /// Returns an empty body that settles nothing.
    fn default() -> Self {
        Self::unmetered(B::default())
    }
}

impl<B: From<Cow<'static, str>>> From<Cow<'static, str>> for MeteredBody<B> {
    /// Returns a body that settles nothing.
    fn from(text: Cow<'static, str>) -> Self {
        Self::unmetered(B::from(text))
    }
}

impl<B: Body> Body for MeteredBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let mut this = self.project();
        let frame = ready!(this.body.as_mut().poll_frame(cx));
        if let (Some(Ok(frame)), Some(usage)) = (&frame, &this.usage)
            && let Some(data) = frame.data_ref()
        {
            usage.add(match this.unit {
                MeteredUnit::Bytes => data.remaining() as u64,
                MeteredUnit::Frames => 1,
                MeteredUnit::Counted => 0,
            });
        }
        if !matches!(frame, Some(Ok(_))) || this.body.is_end_stream() {
            // Dropping them settles, and gives back.
            *this.usage = None;
            *this.permit = None;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl_debug!(MeteredBody<B>, |it| usage = it.usage, unit = it.unit);
