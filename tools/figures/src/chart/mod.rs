//! Draws lines over axes, as SVG.

mod axis;
mod draw;
mod picture;

pub(crate) use self::{
    axis::Axis,
    picture::{Line, Panel, Picture, Series},
};
