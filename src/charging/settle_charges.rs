//! A layer as its charge handles see it.

use std::{any::Any, sync::Arc};

use super::Settling;
use crate::{decision::Charge, key::Key, policy::Policy};

/// Settles the charges of a layer, whatever its types are.
pub(crate) trait SettleCharges: Send + Sync {
    /// Corrects a charge to `actual` units. The charge is one of this layer.
    fn settle(&self, limit: &ChargedLimit, charge: Charge, actual: u64) -> Settling;
}

/// The limit and the key of a charge.
#[derive(Clone)]
pub(crate) struct ChargedLimit {
    pub(crate) policy: Policy,
    pub(crate) key: Key,
    /// The rule that was selected for the request; `None` for the limit's own.
    pub(crate) selected: Option<Arc<dyn Any + Send + Sync>>,
}
