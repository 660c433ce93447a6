//! Requests over time, counted in buckets that grow with the span.

use std::collections::BTreeMap;

use tollgate::Timestamp;

use crate::engine::answer::Verdict;

/// The numbers of admitted, delayed, and refused requests.
pub(crate) type Counts = [u64; 3];

pub(crate) const SECOND: u64 = 1_000_000_000;
pub(crate) const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;
pub(crate) const DAY: u64 = 24 * HOUR;

/// The possible widths of a bucket while counting, in nanoseconds. Each is a multiple of the
/// previous one.
const WIDTHS: [u64; 17] = [
    1,
    10,
    100,
    1_000,
    10_000,
    100_000,
    1_000_000,
    10_000_000,
    100_000_000,
    SECOND,
    10 * SECOND,
    MINUTE,
    10 * MINUTE,
    HOUR,
    DAY,
    10 * DAY,
    100 * DAY,
];

/// The maximum number of buckets. With the widest ones, 1,068 reach the last instant.
const MOST: usize = 10_000;

/// Counts requests in any order, in bounded memory.
#[derive(Default)]
pub(crate) struct Timeline {
    /// The index of the width of the buckets.
    width: usize,
    buckets: BTreeMap<u64, Counts>,
}

/// Counts in adjacent bars of one width.
pub(crate) struct Bars {
    /// The start of the first bar, in nanoseconds.
    pub(crate) begin: u64,
    /// In nanoseconds.
    pub(crate) width: u64,
    pub(crate) counts: Vec<Counts>,
}

impl Timeline {
    pub(crate) fn add(&mut self, at: Timestamp, verdict: Verdict) {
        let bucket = at.as_nanos() / WIDTHS[self.width];
        self.buckets.entry(bucket).or_default()[verdict as usize] += 1;
        while self.buckets.len() > MOST {
            let factor = WIDTHS[self.width + 1] / WIDTHS[self.width];
            self.width += 1;
            for (bucket, counts) in std::mem::take(&mut self.buckets) {
                add(self.buckets.entry(bucket / factor).or_default(), &counts);
            }
        }
    }

    /// Returns at most `most` bars, of a round width. `None` if there were no requests.
    pub(crate) fn bars(&self, most: u64) -> Option<Bars> {
        let width = WIDTHS[self.width];
        let (first, last) = (
            *self.buckets.keys().next()?,
            *self.buckets.keys().next_back()?,
        );
        let (first, last) = (first * width, last * width);
        // A single instant is drawn as a second.
        let least = if first == last { SECOND } else { width };
        let wide = nice_widths()
            .filter(|nice| *nice >= least && nice % width == 0)
            .find(|nice| last / nice - first / nice < most)?;
        let mut counts = vec![Counts::default(); (last / wide - first / wide + 1) as usize];
        for (bucket, bucket_counts) in &self.buckets {
            let bar = bucket * width / wide - first / wide;
            add(&mut counts[bar as usize], bucket_counts);
        }
        Some(Bars {
            begin: first / wide * wide,
            width: wide,
            counts,
        })
    }
}

fn add(sums: &mut Counts, counts: &Counts) {
    for (sum, count) in sums.iter_mut().zip(counts) {
        *sum += count;
    }
}

/// Returns round spans of time, each longer than the previous one.
pub(crate) fn nice_widths() -> impl Iterator<Item = u64> {
    let parts = (0..9).flat_map(|power| [1, 2, 5].map(|nice| nice * 10_u64.pow(power)));
    let seconds = [1, 2, 5, 10, 15, 30].map(|nice| nice * SECOND);
    let minutes = [1, 2, 5, 10, 15, 30].map(|nice| nice * MINUTE);
    let hours = [1, 2, 3, 6, 12].map(|nice| nice * HOUR);
    let days = [
        1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 50_000,
    ];
    parts
        .chain(seconds)
        .chain(minutes)
        .chain(hours)
        .chain(days.map(|nice| nice * DAY))
}
