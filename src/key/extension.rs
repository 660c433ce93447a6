//! Keys from the extensions of a request.

use std::{any::type_name, fmt, marker::PhantomData};

use http::Request;

use super::{Extracted, IntoKey, KeyExtractor, MissingKey, OperatorHelp};

/// Limits by a value in the request's extensions, which an outer layer inserts.
///
/// Extractors are synchronous. A look-up (of a session, a tenant or a plan) belongs in an outer
/// layer, which can also reject the request.
///
/// A missing value is the server's fault, answered with 500, because the layer that inserts it may
/// have been forgotten.
///
/// Requests without a value, such as those of users who are not logged in, are valid in one of two
/// ways:
///
/// - [`or`](super::KeyExtractorExt::or), [`or_shared`](super::KeyExtractorExt::or_shared),
///   [`or_exempt`](super::KeyExtractorExt::or_exempt) or
///   [`or_refuse`](super::KeyExtractorExt::or_refuse) says that the value may be absent. Then it is
///   never the server's fault, and a layer that was forgotten goes unnoticed.
/// - The outer layer inserts an `Option`. Its `None` is an ordinary missing key. A layer that was
///   forgotten is noticed, unless one of these methods is used as well.
///
/// # Examples
///
/// ```
/// use axum::{
///     Router,
///     extract::Request,
///     middleware::{Next, from_fn},
///     response::Response,
///     routing::get,
/// };
/// use http::StatusCode;
/// use tollgate::{RateLimitLayer, TokenBucket, key::{Extension, Key}};
///
/// #[derive(Clone)]
/// struct User { id: u64 }
///
/// async fn find_user(token: &str) -> Option<User> { // asks a database
///     (token == "s3cret").then_some(User { id: 7 })
/// }
///
/// async fn authenticate(mut request: Request, next: Next) -> Result<Response, StatusCode> {
///     let token = request.headers().get("x-api-key").and_then(|value| value.to_str().ok());
///     let user = find_user(token.unwrap_or_default()).await;
///     request.extensions_mut().insert(user.ok_or(StatusCode::UNAUTHORIZED)?);
///     Ok(next.run(request).await)
/// }
///
/// let by_user = Extension::new(|user: &User| Key::from(user.id));
/// let app: Router = Router::new()
///     .route("/", get(|| async { "hello" }))
///     .layer(RateLimitLayer::new(TokenBucket::per_hour(1)).key(by_user))
///     .layer(from_fn(authenticate)); // added last: the outermost
/// # use tower::ServiceExt;
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// # for (token, status) in [("s3cret", 200), ("s3cret", 429), ("guess", 401)] {
/// #     let request = Request::builder().header("x-api-key", token);
/// #     let request = request.body(axum::body::Body::empty()).unwrap();
/// #     assert_eq!(app.clone().oneshot(request).await.unwrap().status(), status);
/// # }
/// # });
/// ```
#[doc(alias("user", "tenant", "session"))]
pub struct Extension<T, F> {
    read: F,
    help: OperatorHelp,
    value: PhantomData<fn(&T)>,
}

impl<T, F> Extension<T, F> {
    /// Creates an extractor of the key that `read` returns for the extension of type `T`.
    pub fn new<K>(read: F) -> Self
    where
        F: Fn(&T) -> K,
        K: IntoKey,
    {
        let help = format!(
            "no `{}` in the request's extensions: the layer that inserts it must be outside of the \
             limit (in axum: added after it)",
            type_name::<T>()
        );
        Self {
            read,
            help: OperatorHelp::new(help),
            value: PhantomData,
        }
    }
}

impl<B, T, F, K> KeyExtractor<Request<B>> for Extension<T, F>
where
    T: Send + Sync + 'static,
    F: Fn(&T) -> K,
    K: IntoKey,
{
    fn extract(&self, req: &Request<B>) -> Result<Extracted, MissingKey> {
        match req.extensions().get() {
            Some(value) => (self.read)(value).into_key(),
            None => Err(MissingKey::absent(self.help.clone())),
        }
    }
}

impl<T, F: Clone> Clone for Extension<T, F> {
    fn clone(&self) -> Self {
        Self {
            read: self.read.clone(),
            help: self.help.clone(),
            value: PhantomData,
        }
    }
}

impl<T, F> fmt::Debug for Extension<T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Extension({})", type_name::<T>())
    }
}
