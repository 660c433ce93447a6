//! A queue's state as bytes.

use super::{
    LeakyBucket, LeakyBucketState,
    settle::{Freed, Place},
};
use crate::{
    algorithm::{
        codec::{Codec, damaged, put_instant, put_number, take_instant, take_number, take_tag},
        credit::Credit,
    },
    error::Error,
};

impl Codec for LeakyBucketState {
    fn encode(&self, bytes: &mut Vec<u8>) {
        bytes.push(LeakyBucket::TAG);
        put_instant(bytes, self.written_at);
        self.backlog.encode(bytes);
        let freed = self.freed.as_ref().map(|freed| &freed.0);
        let count = freed.map_or(0, |freed| freed.len() as u64);
        put_number(bytes, count << 1 | u64::from(self.sole));
        for place in freed.into_iter().flatten() {
            put_instant(bytes, place.departs);
            place.span.encode(bytes);
        }
    }

    fn decode(bytes: &mut &[u8]) -> Result<Self, Error> {
        take_tag(bytes, LeakyBucket::TAG)?;
        let written_at = take_instant(bytes)?;
        let backlog = Credit::decode(bytes)?;
        let number = take_number(bytes)?;
        let (count, sole) = (number >> 1, number & 1 == 1);
        if backlog.units(1) < 0 {
            return Err(damaged());
        }
        let mut freed = Freed::default();
        // As many as are told, or an error where the bytes end.
        for _ in 0..count {
            let place = Place {
                departs: take_instant(bytes)?,
                span: Credit::decode(bytes)?,
            };
            let is_next = |last: &Place| last.departs < place.departs;
            if !freed.0.back().is_none_or(is_next) || place.span.units(1) < 1 {
                return Err(damaged());
            }
            freed.0.push_back(place);
        }
        Ok(Self {
            written_at,
            freed: (count > 0).then(|| Box::new(freed)),
            backlog,
            sole,
        })
    }
}
