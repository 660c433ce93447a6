//! Parts that the programs share.

mod flags;
mod signals;

pub(crate) use self::{
    flags::{Flags, run},
    signals::interrupted,
};
