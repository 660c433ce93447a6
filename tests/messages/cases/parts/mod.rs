//! Parts that the cases share.
#![allow(dead_code)]

use std::{
    future::{Ready, ready},
    time::Duration,
};

use http::{Request, Response};
use tollgate::{
    Policy,
    key::Key,
    store::{Ask, Backend, Check, Decisions, Error, Increment, Settlement, Store, Totals},
};
use tower::{Service, service_fn};

/// A store that can fail, and always does.
#[derive(Clone)]
pub struct Fallible;

impl Backend for Fallible {
    type Error = Error;
}

impl<Rule> Store<Rule> for Fallible {
    type Answer = Ready<Result<Decisions, Error>>;
    type Done = Ready<Result<(), Error>>;

    fn acquire(&self, _: &[Ask<'_, Rule>]) -> Check<Self::Answer> {
        Check::Pending(ready(Err(Error::timeout())))
    }

    fn look(&self, _: &[Ask<'_, Rule>]) -> Check<Self::Answer> {
        Check::Pending(ready(Err(Error::timeout())))
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
    async fn add(&self, _: &[u8], _: u64, _: Duration, _: &[Box<[u8]>]) -> Result<Totals, Error> {
        Err(Error::timeout())
    }

    async fn subtract(&self, _: &[u8], _: u64) -> Result<(), Error> {
        Err(Error::timeout())
    }

    async fn read(&self, _: &[Box<[u8]>]) -> Result<Vec<u64>, Error> {
        Err(Error::timeout())
    }

    async fn remove(&self, _: &[Box<[u8]>]) -> Result<(), Error> {
        Err(Error::timeout())
    }
}
