//! Limits written the slow obvious way, with grants.

/// A limit of one key.
pub(crate) trait Oracle {
    /// Lets time pass, in nanoseconds.
    fn pass(&mut self, nanos: u64);
    fn remaining(&self) -> u64;
    fn spend(&mut self, units: u64);
    /// Gives units back, at most up to the capacity.
    fn grant(&mut self, units: u64);
}

/// A bucket, by its level times the period.
pub(crate) struct Bucket {
    amount: u128,
    period: u128,
    burst: u128,
    level: u128,
}

impl Bucket {
    pub(crate) fn new(amount: u64, period: u64, burst: u64) -> Self {
        let [amount, period, burst] = [amount, period, burst].map(u128::from);
        Self {
            amount,
            period,
            burst,
            level: burst * period,
        }
    }
}

impl Oracle for Bucket {
    fn pass(&mut self, nanos: u64) {
        let more = u128::from(nanos) * self.amount;
        self.level = (self.level + more).min(self.burst * self.period);
    }

    fn remaining(&self) -> u64 {
        (self.level / self.period) as u64
    }

    fn spend(&mut self, units: u64) {
        self.level -= u128::from(units) * self.period;
    }

    fn grant(&mut self, units: u64) {
        let more = u128::from(units) * self.period;
        self.level = (self.level + more).min(self.burst * self.period);
    }
}

/// Two buckets in order, the first of which gets the grants.
pub(crate) struct Cascade(pub(crate) [Bucket; 2]);

impl Oracle for Cascade {
    fn pass(&mut self, nanos: u64) {
        self.0.iter_mut().for_each(|bucket| bucket.pass(nanos));
    }

    fn remaining(&self) -> u64 {
        self.0.iter().map(Bucket::remaining).max().unwrap()
    }

    fn spend(&mut self, units: u64) {
        let mut buckets = self.0.iter_mut();
        let pays = buckets.find(|bucket| bucket.remaining() >= units);
        pays.unwrap().spend(units);
    }

    fn grant(&mut self, units: u64) {
        self.0[0].grant(units);
    }
}

/// A peak bucket, and a committed one that pays if it can.
pub(crate) struct ThreeColor {
    pub(crate) committed: Bucket,
    pub(crate) peak: Bucket,
}

impl Oracle for ThreeColor {
    fn pass(&mut self, nanos: u64) {
        self.committed.pass(nanos);
        self.peak.pass(nanos);
    }

    fn remaining(&self) -> u64 {
        self.peak.remaining()
    }

    fn spend(&mut self, units: u64) {
        self.peak.spend(units);
        if self.committed.remaining() >= units {
            self.committed.spend(units);
        }
    }

    fn grant(&mut self, units: u64) {
        self.peak.grant(units);
        self.committed.grant(units);
    }
}

/// The count of the current window of the calendar.
pub(crate) struct Window {
    pub(crate) limit: u64,
    pub(crate) period: u64,
    pub(crate) now: u64,
    pub(crate) count: u64,
}

impl Oracle for Window {
    fn pass(&mut self, nanos: u64) {
        let before = self.now / self.period;
        self.now += nanos;
        if self.now / self.period > before {
            self.count = 0;
        }
    }

    fn remaining(&self) -> u64 {
        self.limit - self.count
    }

    fn spend(&mut self, units: u64) {
        self.count += units;
    }

    fn grant(&mut self, units: u64) {
        self.count = self.count.saturating_sub(units);
    }
}

/// The units of each call, with its instant, oldest first.
pub(crate) struct Log {
    pub(crate) limit: u64,
    pub(crate) period: u64,
    pub(crate) now: u64,
    pub(crate) calls: Vec<(u64, u64)>,
}

impl Oracle for Log {
    fn pass(&mut self, nanos: u64) {
        self.now += nanos;
        let (now, period) = (self.now, self.period);
        self.calls.retain(|(at, _)| at + period > now);
    }

    fn remaining(&self) -> u64 {
        self.limit - self.calls.iter().map(|(_, units)| units).sum::<u64>()
    }

    fn spend(&mut self, units: u64) {
        self.calls.push((self.now, units));
    }

    fn grant(&mut self, units: u64) {
        let mut rest = units;
        while let Some((_, last)) = self.calls.last_mut() {
            let taken = rest.min(*last);
            *last -= taken;
            rest -= taken;
            if *last > 0 {
                return;
            }
            self.calls.pop();
        }
    }
}

/// Two limits, both of which are charged.
pub(crate) struct Both<A, B>(pub(crate) A, pub(crate) B);

impl<A: Oracle, B: Oracle> Oracle for Both<A, B> {
    fn pass(&mut self, nanos: u64) {
        self.0.pass(nanos);
        self.1.pass(nanos);
    }

    fn remaining(&self) -> u64 {
        self.0.remaining().min(self.1.remaining())
    }

    fn spend(&mut self, units: u64) {
        self.0.spend(units);
        self.1.spend(units);
    }

    fn grant(&mut self, units: u64) {
        self.0.grant(units);
        self.1.grant(units);
    }
}
