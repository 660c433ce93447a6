//! The units of one grant.

use std::time::Duration;

use crate::{
    algorithm::Validity,
    decision::{Charge, Position},
    quota::Quota,
    time::Timestamp,
};

/// The last units of a grant, as far as they were not spent.
#[derive(Debug)]
pub(super) struct Portion {
    units: u64,
    /// When the request was sent. The store granted the units later, so they are valid for longer
    /// than this side counts.
    sent_at: Timestamp,
    validity: Validity,
    /// Until then all units are valid. So most calls need no division.
    all_until: Timestamp,
    /// The charge of the whole grant in the store; `None` for units that a call gave back.
    charge: Option<Charge>,
}

impl Portion {
    pub(super) fn new(units: u64, sent_at: Timestamp, validity: Validity) -> Self {
        Self {
            units,
            sent_at,
            validity,
            all_until: sent_at,
            charge: None,
        }
    }

    pub(super) fn charged(self, charge: Option<Charge>) -> Self {
        Self { charge, ..self }
    }

    pub(super) fn into_charge(self) -> Option<Charge> {
        self.charge
    }

    /// Returns the last `units` of a charge, which are refunded at `now`; none if the charge is
    /// not of a lease.
    pub(super) fn refunded(
        units: u64,
        now: Timestamp,
        charge: Option<Position>,
        rate: Option<Quota>,
    ) -> Self {
        let (end, behind) = charge.and_then(Position::of_grant).unwrap_or_default();
        let left = |behind| Duration::from_nanos(end.nanos_since(now).saturating_sub(behind));
        let validity = match rate {
            Some(rate) => Validity::one_by_one(left(time_of(rate, behind)), rate),
            None => Validity::together(left(0)),
        };
        Self::new(units, now, validity)
    }

    /// Takes in a portion that ends later. Each unit ends as before, or sooner: the later ones as
    /// if they came right behind these.
    pub(super) fn join(&mut self, later: &Self) {
        let left = Duration::from_nanos(self.joined_end(later).nanos_since(self.sent_at));
        let validity = match self.slower_rate(later) {
            Some(rate) => Validity::one_by_one(left, rate),
            None => Validity::together(left),
        };
        *self = Self::new(self.units + later.units, self.sent_at, validity);
    }

    /// Returns by how many nanoseconds sooner units of a later portion end if it is joined to this
    /// one.
    pub(super) fn lost_by_joining(&self, later: &Self) -> u64 {
        later.ends_at().nanos_since(self.joined_end(later))
    }

    fn joined_end(&self, later: &Self) -> Timestamp {
        let rate = self.slower_rate(later);
        let behind = rate.map_or(0, |rate| rate.time_of(later.units));
        let behind = u64::try_from(behind).unwrap_or(u64::MAX);
        let end = self.ends_at().as_nanos().saturating_add(behind);
        Timestamp::from_nanos(end).min(later.ends_at())
    }

    fn slower_rate(&self, later: &Self) -> Option<Quota> {
        let (rate, other) = (self.validity.rate()?, later.validity.rate()?);
        Some(rate.slower(other))
    }

    #[inline]
    pub(super) fn units(&self) -> u64 {
        self.units
    }

    pub(super) fn set_units(&mut self, units: u64) {
        self.units = units;
    }

    /// Returns an instant until which all units are valid.
    #[inline]
    pub(super) fn all_until(&self) -> Timestamp {
        self.all_until
    }

    /// Returns the end of the last unit.
    #[inline]
    pub(super) fn ends_at(&self) -> Timestamp {
        self.validity.ends_at(self.sent_at)
    }

    /// Returns the units that are valid.
    pub(super) fn valid_at(&self, now: Timestamp) -> u64 {
        let age = now.saturating_since(self.sent_at);
        self.validity.units_at(age).min(self.units)
    }

    /// Drops the units that are not valid any more. Returns how many these were.
    #[inline]
    pub(super) fn expire(&mut self, now: Timestamp) -> u64 {
        if now < self.all_until {
            return 0;
        }
        let valid = self.valid_at(now);
        let expired = self.units - valid;
        self.units = valid;
        let behind_first = match self.validity.rate() {
            Some(rate) => time_of(rate, valid),
            None => 0,
        };
        let end = self.validity.without_last(behind_first);
        self.all_until = end.ends_at(self.sent_at);
        expired
    }

    /// Spends units, which are there. Returns their position in the grant.
    #[inline]
    pub(super) fn take(&mut self, units: u64) -> Position {
        self.units -= units;
        Position::of_lease(self.ends_at(), self.units)
    }
}

/// Returns the nanoseconds in which units end, rounded up.
fn time_of(rate: Quota, units: u64) -> u64 {
    let nanos = rate.time_of(units).saturating_add(1);
    u64::try_from(nanos).unwrap_or(u64::MAX)
}
