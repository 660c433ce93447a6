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

use smallvec::SmallVec;

use super::portion::Portion;
use crate::{
    decision::{Charge, Position},
    time::Timestamp,
};

/// The most grants and refunds of a key that are held apart, so that a call has no more work than
/// that.
const MOST_PORTIONS: usize = 8;

/// The units that one node holds of a key.
///
/// Most keys hold one grant, and most calls find all of its units valid. Three words are enough for
/// those.
#[derive(Debug)]
pub(super) struct Grants {
    /// The units of the portion that ends first. The list has its other numbers.
    units: u64,
    end: Timestamp,
    /// Until then there is one portion at most, and all of its units are valid.
    plain_until: Timestamp,
    /// The one that ends first is the first. Nothing before the first grant, so that a key without
    /// leases takes no memory for them.
    list: Option<Box<SmallVec<[Portion; 1]>>>,
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
        self.change(|portions| {
            let mut left = 0;
            for portion in portions {
                *expired += portion.expire(now);
                left += portion.units();
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
        self.change(|portions| {
            let (mut rest, mut position) = (units, None);
            for portion in portions {
                let part = rest.min(portion.units());
                let taken = portion.take(part);
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

    /// Keeps units. Of too many portions, the two become one that lose the least time by it.
    pub(super) fn insert(&mut self, portion: Portion) {
        if portion.units() == 0 {
            return;
        }
        self.list.get_or_insert_default();
        self.change(|portions| {
            let ends_before = |other: &Portion| other.ends_at() <= portion.ends_at();
            let at = portions.partition_point(ends_before);
            portions.insert(at, portion);
            if portions.len() <= MOST_PORTIONS {
                return;
            }
            let lost = |n: &usize| portions[n - 1].lost_by_joining(&portions[*n]);
            if let Some(n) = (1..portions.len()).min_by_key(lost) {
                let later = portions.remove(n);
                portions[n - 1].join(&later);
            }
        });
    }

    /// Takes all portions out.
    pub(super) fn take_out(&mut self) -> Vec<Portion> {
        self.change(|portions| portions.drain(..).collect())
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
        let others = others.map_or(0, |list| list.iter().skip(1).map(Portion::units).sum());
        self.units + others
    }

    /// Returns the units that may still be spent.
    #[cfg(test)]
    pub(super) fn left_at(&self, now: Timestamp) -> u64 {
        let Some(list) = &self.list else {
            return 0;
        };
        let mut valid = list.iter().map(|portion| portion.valid_at(now));
        let first = valid.next().unwrap_or(0).min(self.units);
        first + valid.sum::<u64>()
    }

    /// Returns `true` if no unit is valid any more.
    pub(super) fn have_ended(&self, now: Timestamp) -> bool {
        let Some(list) = &self.list else {
            return true;
        };
        list.iter().all(|portion| portion.ends_at() <= now)
    }

    /// Changes the list, if there is one. The first portion has its units there meanwhile. Empty
    /// portions are dropped afterwards.
    fn change<T>(&mut self, work: impl FnOnce(&mut SmallVec<[Portion; 1]>) -> T) -> Option<T> {
        let portions = self.list.as_deref_mut()?;
        if let Some(first) = portions.first_mut() {
            first.set_units(self.units);
        }
        let result = work(portions);
        portions.retain(|portion| portion.units() > 0);
        (self.units, self.end) = portions
            .first()
            .map_or_else(Default::default, |first| (first.units(), first.ends_at()));
        self.plain_until = match portions.as_slice() {
            [] => Timestamp::MAX,
            [only] => only.all_until(),
            _ => Timestamp::default(),
        };
        Some(result)
    }
}

/// Charges of portions, and the units of each that are left.
pub(super) fn charges(portions: Vec<Portion>) -> Vec<(Charge, u64)> {
    let charged = |portion: Portion| {
        let units = portion.units();
        Some((portion.into_charge()?.if_last(), units))
    };
    portions.into_iter().rev().filter_map(charged).collect()
}
