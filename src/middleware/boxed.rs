//! Limits whose types can be written down.

use std::{fmt, sync::Arc};

use super::{limit::Limit, per_request::ReadRequest};
use crate::{
    charging::{ChargeHandle, Settle},
    decision::Cost,
    key::{Key, MissingKey},
    respond::Exchange,
};

/// A limit of any key, cost, rule for each request, and condition. Made by [`Limit::boxed`].
///
/// `Req` and `Res` are the request and the response of the services that it limits. `Res` need not
/// be named if [both are `http`'s with one type of body](Exchange), as in axum and tonic.
pub type BoxLimit<Req, Rule, Res = <Req as Exchange>::Response> =
    Limit<Rule, BoxBy<Req, Rule>, BoxSettle<Req, Res>>;

/// The parts of a [`BoxLimit`] that read a request.
pub struct BoxBy<Req, Rule>(pub(super) Arc<dyn ReadRequest<Req, Rule> + Send + Sync>);

/// The part of a [`BoxLimit`] that reads a response.
pub struct BoxSettle<Req, Res>(pub(super) Option<Arc<dyn Settle<Req, Res> + Send + Sync>>);

impl<Req, Rule> Clone for BoxBy<Req, Rule> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<Req, Res> Clone for BoxSettle<Req, Res> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<Req, Rule> fmt::Debug for BoxBy<Req, Rule> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BoxBy").finish_non_exhaustive()
    }
}

impl<Req, Res> fmt::Debug for BoxSettle<Req, Res> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BoxSettle").finish_non_exhaustive()
    }
}

impl<Req, Rule> ReadRequest<Req, Rule> for BoxBy<Req, Rule> {
    fn read_at_hand(&self, req: &Req, rule: &mut Option<Rule>) -> Option<(Key, Cost)> {
        self.0.read_at_hand(req, rule)
    }

    fn read(&self, req: &Req, rule: &mut Option<Rule>) -> Result<Option<(Key, Cost)>, MissingKey> {
        self.0.read(req, rule)
    }
}

impl<Req, Res> Settle<Req, Res> for BoxSettle<Req, Res> {
    fn is_charged(&self, res: &Res) -> bool {
        let settle = self.0.as_ref();
        settle.is_none_or(|settle| settle.is_charged(res))
    }

    fn hand_over(&self, req: &mut Req, handle: ChargeHandle) -> Option<ChargeHandle> {
        match &self.0 {
            Some(settle) => settle.hand_over(req, handle),
            None => Some(handle),
        }
    }
}
