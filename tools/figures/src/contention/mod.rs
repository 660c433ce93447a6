//! Contention: clients that race to write one row, and back off after each failure.

mod cell;
mod exponent;
mod figure;
mod settings;
mod trial;

pub(crate) use self::figure::ContentionFigure;
pub use self::{
    cell::{Cell, Contention, simulate},
    exponent::Exponent,
    settings::{BackoffKind, Contenders},
    trial::{Trial, trial},
};
