//! An axis: its label, its range and its scale.

/// The label contains the unit.
#[derive(Clone, Debug)]
pub(crate) struct Axis {
    pub(super) label: String,
    from: f64,
    to: f64,
    is_log: bool,
}

impl Axis {
    /// Returns an axis with a linear scale.
    pub(crate) fn linear(label: &str, from: f64, to: f64) -> Self {
        Self {
            label: label.to_owned(),
            from,
            to,
            is_log: false,
        }
    }

    /// Returns an axis with a logarithmic scale and ticks at powers of ten, from and to numbers
    /// above 0.
    pub(crate) fn log(label: &str, from: f64, to: f64) -> Self {
        Self {
            is_log: true,
            ..Self::linear(label, from, to)
        }
    }

    /// Returns the range of positions.
    pub(super) fn range(&self) -> std::ops::Range<f64> {
        self.position(self.from)..self.position(self.to)
    }

    /// Returns the position of a number; the end of the axis for a number beyond it.
    pub(super) fn position(&self, number: f64) -> f64 {
        let number = number.clamp(self.from, self.to);
        if self.is_log {
            libm::log10(number)
        } else {
            number
        }
    }

    /// Returns about how many ticks the axis has.
    pub(super) fn ticks(&self, most: usize) -> usize {
        if self.is_log {
            let range = self.range();
            (range.end - range.start) as usize + 1
        } else {
            most
        }
    }

    /// Returns the label of a position.
    pub(super) fn text(&self, position: f64) -> String {
        let number = if self.is_log {
            libm::exp10(position)
        } else {
            position
        };
        let text = format!("{number:.3}");
        let text = text.trim_end_matches('0').trim_end_matches('.');
        let (whole, part) = text.split_once('.').unwrap_or((text, ""));
        let (sign, digits) = match whole.strip_prefix('-') {
            Some(digits) => ("−", digits),
            None => ("", whole),
        };
        let groups: Vec<_> = digits.as_bytes().rchunks(3).rev().collect();
        let groups: Vec<_> = groups
            .into_iter()
            .map(|group| String::from_utf8_lossy(group).into_owned())
            .collect();
        let whole = groups.join(",");
        match part {
            "" => format!("{sign}{whole}"),
            part => format!("{sign}{whole}.{part}"),
        }
    }
}
