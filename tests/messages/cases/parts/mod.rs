//! Parts that the cases share.
#![allow(dead_code)]

use std::{
    future::{Ready, ready},
    time::Duration,
};

use http::{Request, Response};
use tollgate::{Policy, key::Key};
use tollgate::store::{Backend, Store, StoreError};
use tollgate::store::driver::{Ask, Check, Decisions, Increment, Settlement, Totals};
use tower::{Service, service_fn};

/// A store that can fail, and always does.
#[derive(Clone)]
pub struct Fallible;

impl Backend for Fallible {
    type Error = StoreError;
}

impl<Rule> Store<Rule> for Fallible {
    type Answer = Ready<Result<Decisions, StoreError>>;
    type Done = Ready<Result<(), StoreError>>;

    fn acquire(&self, _: &[Ask<'_, Rule>]) -> Check<Self::Answer> {
        Check::Pending(ready(Err(StoreError::timeout())))
    }

    fn look(&self, _: &[Ask<'_, Rule>]) -> Check<Self::Answer> {
        Check::Pending(ready(Err(StoreError::timeout())))
    }

    fn settle(&self, _: Vec<Settlement<'_, Rule>>) -> Check<Self::Done> {
        Check::Pending(ready(Ok(())))
    }

    fn reset(&self, _: &Policy, _: &Key) -> Check<Self::Done> {
        Check::Pending(ready(Ok(())))
    }
}

/// A service that answers any request with the default of its response's body, and never fails.
pub fn service<B, E>() -> impl Service<Request<String>, Response = Response<B>, Error = E> + Clone
where
    B: Default,
{
    service_fn(|_: Request<String>| ready(Ok(Response::new(B::default()))))
}

/// Takes what serves requests, as a server does.
pub fn serve(_: impl Service<Request<String>>) {}

/// A store that can add, and always fails.
pub struct Cache;

impl Increment for Cache {
    async fn add(&self, _: &[u8], _: u64, _: Duration, _: &[Box<[u8]>]) -> Result<Totals, StoreError> {
        Err(StoreError::timeout())
    }

    async fn subtract(&self, _: &[u8], _: u64) -> Result<(), StoreError> {
        Err(StoreError::timeout())
    }

    async fn read(&self, _: &[Box<[u8]>]) -> Result<Vec<u64>, StoreError> {
        Err(StoreError::timeout())
    }

    async fn remove(&self, _: &[Box<[u8]>]) -> Result<(), StoreError> {
        Err(StoreError::timeout())
    }
}
