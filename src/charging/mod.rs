//! Charges that are corrected after the request was admitted: by its handler, its response, or the
//! end of its body.

mod carry_handle;
#[expect(clippy::module_inception, reason = "a file is named for what is in it")]
mod charging;
mod handle;
mod keeps;
mod settle_charges;
mod settling;
mod usage;

// Public because bounds of the layer name them, but without a public path.
pub use self::{
    carry_handle::CarryHandle,
    charging::{Always, ChargeAtOnce, ChargeIf, Hidden, LookFirst, Reserve, Visible},
    handle::ChargeHandle,
    settling::Settling,
    usage::Usage,
};
pub(crate) use self::{
    charging::{AddCondition, ByResponse, Charging, ForCandidate, HandOver},
    keeps::{ChargeLater, KeepCharges, KeepNothing, Keeps},
    settle_charges::{ChargedLimit, SettleCharges},
};
