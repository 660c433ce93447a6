//! The units that one node holds of a key.
//!
//! A call pays with the grant that it asked for. Units of an older grant may have ended while the
//! store was asked. They stay, for later calls.
//!
//! A refund of a bucket's charge comes back to the node, as if the store had granted the units and
//! a lease had paid at once: the charge says where they lie on the time axis, and until when.
//! Returned to the store, half of all refunds of a busy key would be lost, because somebody has
//! always leased since. So a refund begins a lease if there is none, and needs no answer of the
//! store. Refunds that are too many to be kept separate join the neighbour by which they end least
//! sooner.
//!
//! An operator's grant says so (`Settlement::is_grant`), so it is not compared with what was leased
//! behind it: an operator gives units above the limit, and the meters of the proof allow for that
//! many, and no more.

use std::time::Duration;

use smallvec::SmallVec;

use crate::{
    algorithm::Validity,
    decision::{Charge, Position},
    quota::Quota,
    time::Timestamp,
};

/// The most grants and refunds of a key that are held apart, so that a call has no more work than
/// that.
const MAX_SLICES: usize = 8;

/// The units that one node holds of a key.
///
/// Most keys hold one grant, and most calls find all of its units valid. Three words are enough for
/// those.
#[derive(Debug)]
pub(super) struct Grants {
    /// The units of the slice that ends first. The list has its other numbers.
    units: u64,
    end: Timestamp,
    /// Until then there is one slice at most, and all of its units are valid.
    plain_until: Timestamp,
    /// The one that ends first is the first. Nothing before the first grant, so that a key without
    /// leases takes no memory for them.
    list: Option<Box<SmallVec<[GrantSlice; 1]>>>,
}

impl Default for Grants {
    fn default() -> Self {
        Self {
            units: 0,
            end: Timestamp::default(),
            // Without a grant there is nothing to look for.
            plain_until: Timestamp::MAX,
            list: None,
        }
    }
}

impl Grants {
    /// Drops units that are not valid any more, and adds them to the expired ones. Returns the
    /// number of the others.
    #[inline]
    pub(super) fn expire(&mut self, now: Timestamp, expired: &mut u64) -> u64 {
        if now < self.plain_until {
            return self.units;
        }
        self.change(|slices| {
            let mut left = 0;
            for slice in slices {
                *expired += slice.expire(now);
                left += slice.units;
            }
            left
        })
        .unwrap_or(0)
    }

    /// Spends units, which are there, from what ends first. Returns the position of the first of
    /// them.
    #[inline]
    pub(super) fn take(&mut self, units: u64) -> Option<Position> {
        if let Some(left) = self.units.checked_sub(units)
            && left > 0
        {
            self.units = left;
            return Some(Position::of_lease(self.end, left));
        }
        self.change(|slices| {
            let (mut rest, mut position) = (units, None);
            for slice in slices {
                let part = rest.min(slice.units);
                let taken = slice.take(part);
                // Units of several grants are refunded as if they ended with the first of them.
                position = position.or(Some(taken));
                rest -= part;
                if rest == 0 {
                    break;
                }
            }
            position
        })
        .flatten()
    }

    /// Keeps units. Of too many slices, the two become one that lose the least time by it.
    pub(super) fn insert(&mut self, slice: GrantSlice) {
        if slice.units == 0 {
            return;
        }
        self.list.get_or_insert_default();
        self.change(|slices| {
            let ends_before = |other: &GrantSlice| other.ends_at() <= slice.ends_at();
            let at = slices.partition_point(ends_before);
            slices.insert(at, slice);
            if slices.len() <= MAX_SLICES {
                return;
            }
            let lost = |n: &usize| slices[n - 1].lost_by_joining(&slices[*n]);
            if let Some(n) = (1..slices.len()).min_by_key(lost) {
                let later = slices.remove(n);
                slices[n - 1].join(&later);
            }
        });
    }

    /// Takes out the charges of all slices, and what is left of each, the last one first.
    pub(super) fn take_out(&mut self) -> Vec<(Charge, u64)> {
        let charged = |slice: GrantSlice| Some((slice.charge?.if_last(), slice.units));
        self.change(|slices| slices.drain(..).rev().filter_map(charged).collect())
            .unwrap_or_default()
    }

    /// Returns `true` once there were units.
    pub(super) fn have_begun(&self) -> bool {
        self.list.is_some()
    }

    /// Returns the number of units, with those that have expired unnoticed.
    #[inline]
    pub(super) fn left(&self) -> u64 {
        let others = self.list.as_ref().filter(|list| list.len() > 1);
        let others = others.map_or(0, |list| list.iter().skip(1).map(|slice| slice.units).sum());
        self.units + others
    }

    /// Returns the units that may still be spent.
    #[cfg(test)]
    pub(super) fn left_at(&self, now: Timestamp) -> u64 {
        let Some(list) = &self.list else {
            return 0;
        };
        let mut valid = list.iter().map(|slice| slice.valid_at(now));
        let first = valid.next().unwrap_or(0).min(self.units);
        first + valid.sum::<u64>()
    }

    /// Returns `true` if no unit is valid any more.
    pub(super) fn have_ended(&self, now: Timestamp) -> bool {
        let Some(list) = &self.list else {
            return true;
        };
        list.iter().all(|slice| slice.ends_at() <= now)
    }

    /// Changes the list, if there is one. The first slice has its units there meanwhile. Empty
    /// slices are dropped afterwards.
    fn change<T>(&mut self, work: impl FnOnce(&mut SmallVec<[GrantSlice; 1]>) -> T) -> Option<T> {
        let slices = self.list.as_deref_mut()?;
        if let Some(first) = slices.first_mut() {
            first.units = self.units;
        }
        let result = work(slices);
        slices.retain(|slice| slice.units > 0);
        (self.units, self.end) = slices
            .first()
            .map_or_else(Default::default, |first| (first.units, first.ends_at()));
        self.plain_until = match slices.as_slice() {
            [] => Timestamp::MAX,
            [only] => only.all_until,
            _ => Timestamp::default(),
        };
        Some(result)
    }
}

/// The last units of a grant, as far as they were not spent.
#[derive(Debug)]
pub(super) struct GrantSlice {
    units: u64,
    /// When the request was sent. The store granted the units later, so they are valid for longer
    /// than this side counts.
    sent_at: Timestamp,
    validity: Validity,
    /// Until then all units are valid. So most calls need no division.
    all_until: Timestamp,
    /// The charge of the whole grant in the store; `None` for units that a call refunded.
    charge: Option<Charge>,
}

impl GrantSlice {
    pub(super) fn new(
        units: u64,
        sent_at: Timestamp,
        validity: Validity,
        charge: Option<Charge>,
    ) -> Self {
        Self {
            units,
            sent_at,
            validity,
            all_until: sent_at,
            charge,
        }
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
        Self::new(units, now, validity, None)
    }

    /// Takes in a slice that ends later. Each unit ends as before, or sooner: the later ones as
    /// if they came right behind these.
    pub(super) fn join(&mut self, later: &Self) {
        let left = Duration::from_nanos(self.joined_end(later).nanos_since(self.sent_at));
        let validity = match self.slower_rate(later) {
            Some(rate) => Validity::one_by_one(left, rate),
            None => Validity::together(left),
        };
        *self = Self::new(self.units + later.units, self.sent_at, validity, None);
    }

    /// Returns by how many nanoseconds sooner units of a later slice end if it is joined to this
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
