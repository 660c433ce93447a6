//! Counts of instants within spans of a given length.

/// Instants in ascending order, and the length of the spans.
pub(crate) struct Spans<'a> {
    instants: &'a [u64],
    length: u64,
}

impl<'a> Spans<'a> {
    /// Considers all spans that are shorter than `length`, so a span of exactly `length` has one of
    /// its ends only.
    pub(crate) fn shorter_than(length: u64, instants: &'a [u64]) -> Self {
        Self { instants, length }
    }

    /// Returns the most instants in any span.
    pub(crate) fn most(&self) -> u64 {
        let at_each = self.instants.iter().map(|end| self.ending_at(*end));
        at_each.max().unwrap_or_default()
    }

    /// Returns the most instants in any span that ends in each of the columns of this width.
    pub(crate) fn ending_in(&self, width: u64, columns: u32) -> Vec<u64> {
        let most_in = |column: u64| {
            let (begin, end) = (column * width, (column + 1) * width);
            // The count only rises at an instant, so the others need not be tried.
            let inside = &self.instants[self.before(begin)..self.before(end)];
            let at_each = inside.iter().map(|end| self.ending_at(*end));
            at_each.fold(self.ending_at(begin), u64::max)
        };
        (0..columns.into()).map(most_in).collect()
    }

    fn ending_at(&self, end: u64) -> u64 {
        let begin = (end + 1).saturating_sub(self.length);
        (self.before(end + 1) - self.before(begin)) as u64
    }

    /// Returns the number of instants before this one.
    fn before(&self, end: u64) -> usize {
        self.instants.partition_point(|instant| *instant < end)
    }
}

#[cfg(test)]
mod tests {
    use super::Spans;

    #[test]
    fn a_span_excludes_one_of_its_ends() {
        let most = |length, instants: &[u64]| Spans::shorter_than(length, instants).most();
        assert_eq!(most(10, &[]), 0);
        assert_eq!(most(10, &[0, 10]), 1);
        assert_eq!(most(10, &[0, 9, 10, 19]), 2);
        assert_eq!(most(1, &[5, 5, 5]), 3);
    }

    #[test]
    fn a_column_has_its_fullest_span() {
        let instants = [0, 0, 0, 12, 25, 26];
        let spans = Spans::shorter_than(10, &instants);
        // In the second column, three are within a span of 0 to 9, which ends before it.
        assert_eq!(spans.ending_in(10, 5), [3, 1, 2, 2, 0]);
        assert_eq!(spans.ending_in(5, 4), [3, 3, 1, 1]);
    }
}
