//! A summary of the parts of the traffic that come to this node.

/// The least, the mean and the greatest of shares in thousandths.
#[derive(Debug, Default)]
pub(super) struct Shares {
    range: Option<(u64, u64)>,
    sum: u64,
    count: u64,
}

impl Shares {
    pub(super) fn add(&mut self, share: u64) {
        let (least, most) = self.range.unwrap_or((share, share));
        self.range = Some((least.min(share), most.max(share)));
        self.sum += share;
        self.count += 1;
    }

    /// Returns the least, the mean and the greatest; 0 if there are none.
    pub(super) fn summary(&self) -> (u64, u64, u64) {
        let (least, most) = self.range.unwrap_or_default();
        (least, self.sum.checked_div(self.count).unwrap_or(0), most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_summed_up() {
        let mut shares = Shares::default();
        assert_eq!(shares.summary(), (0, 0, 0));
        for share in [250, 1000, 100] {
            shares.add(share);
        }
        assert_eq!(shares.summary(), (100, 450, 1000));
    }
}
