//! A picture: panels, one below the other.

use super::{axis::Axis, draw};

/// Panels under a title.
#[derive(Clone, Debug)]
pub(crate) struct Picture {
    pub(super) title: String,
    pub(super) panels: Vec<Panel>,
}

/// Lines over two axes, with a legend of those that have a name.
#[derive(Clone, Debug)]
pub(crate) struct Panel {
    pub(super) title: String,
    pub(super) x: Axis,
    pub(super) y: Axis,
    pub(super) series: Vec<Series>,
    pub(super) height: u32,
}

/// Points of one colour.
#[derive(Clone, Debug)]
pub(crate) struct Series {
    /// Empty if the legend should not contain it.
    pub(super) name: String,
    pub(super) points: Vec<(f64, f64)>,
    pub(super) colour: usize,
    pub(super) line: Line,
}

/// The connection of points.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Line {
    Solid,
    Dashed,
    Dotted,
    /// Each value lasts until the next one.
    Steps,
    Dots,
}

impl Picture {
    pub(crate) fn new(title: &str) -> Self {
        Self {
            title: title.to_owned(),
            panels: Vec::new(),
        }
    }

    pub(crate) fn panel(&mut self, panel: Panel) {
        self.panels.push(panel);
    }

    /// Returns the picture as SVG.
    pub(crate) fn svg(&self) -> Result<String, String> {
        draw::draw(self).map_err(|error| format!("a picture cannot be drawn: {error}"))
    }
}

impl Panel {
    pub(crate) fn new(title: &str, x: Axis, y: Axis) -> Self {
        Self {
            title: title.to_owned(),
            x,
            y,
            series: Vec::new(),
            height: 340,
        }
    }

    /// Sets the height in pixels, with title, legend and axes.
    pub(crate) fn height(mut self, pixels: u32) -> Self {
        self.height = pixels;
        self
    }

    pub(crate) fn series(&mut self, series: Series) {
        self.series.push(series);
    }
}

impl Series {
    /// Returns a series in one of ten colours, which begin anew after the last.
    pub(crate) fn new(name: &str, colour: usize, line: Line, points: Vec<(f64, f64)>) -> Self {
        Self {
            name: name.to_owned(),
            points,
            colour,
            line,
        }
    }
}
