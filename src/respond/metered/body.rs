//! A body whose length settles a charge.

use std::{
    borrow::Cow,
    fmt,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Buf;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use crate::charging::Usage;

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
    /// A body that counts what it yields, and settles a charge when it has ended or is dropped.
    ///
    /// [`SettleByBody`](super::SettleByBody) wraps the bodies of all responses. A handler can wrap its own, to feed the count itself:
    ///
    /// ```
    /// use std::convert::Infallible;
    /// use http::{Request, Response};
    /// use http_body_util::{BodyExt, Full};
    /// use tollgate::{ChargeHandle, Cost, Policy, RateLimitLayer, TokenBucket, key::Key, store::Local};
    /// use tollgate::respond::{Http, MeteredBody, MeteredUnit};
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
    /// let service = ServiceBuilder::new().layer(limit).service(service_fn(async |request: Request<()>| {
    ///     let charge = request.extensions().get::<ChargeHandle>().unwrap();
    ///     let usage = charge.usage().unwrap();
    ///     usage.add(3);
    ///     let body = MeteredBody::new(Full::new(&b"three tokens"[..]), usage, MeteredUnit::Counted);
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
        // `None` once it has ended, and if there is nothing to settle.
        usage: Option<Usage>,
        unit: MeteredUnit,
    }
}

impl<B> MeteredBody<B> {
    /// Counts what `body` yields in this unit, until it has ended or is dropped. Then the charge is settled, unless there is another clone of
    /// `usage`.
    pub fn new(body: B, usage: Usage, unit: MeteredUnit) -> Self {
        Self {
            body,
            usage: Some(usage),
            unit,
        }
    }

    /// Returns the body of a request that has no charge to settle.
    pub(super) fn unmetered(body: B) -> Self {
        Self {
            body,
            usage: None,
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
        let this = self.project();
        let frame = ready!(this.body.poll_frame(cx));
        match (&frame, &this.usage) {
            (Some(Ok(frame)), Some(usage)) => {
                if let Some(data) = frame.data_ref() {
                    usage.add(match this.unit {
                        MeteredUnit::Bytes => data.remaining() as u64,
                        MeteredUnit::Frames => 1,
                        MeteredUnit::Counted => 0,
                    });
                }
            }
            // Dropping it settles.
            (None | Some(Err(_)), _) => *this.usage = None,
            (Some(Ok(_)), None) => {}
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

impl<B> fmt::Debug for MeteredBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MeteredBody")
            .field("usage", &self.usage)
            .field("unit", &self.unit)
            .finish_non_exhaustive()
    }
}
