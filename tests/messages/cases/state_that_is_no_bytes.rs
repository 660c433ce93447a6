//! A rule whose state has no codec, in a store that keeps bytes.
//~ error[E0277]: the state `u64` cannot be kept as bytes
//~ implement `Codec` for its state

use tollgate::{Charge, Cost, Decision, Timestamp, algorithm::{Algorithm, Step}};
use tollgate::store::StoreError;
use tollgate::store::driver::{CasStore, CompareAndSwap, Loaded, Swap, Swapped};

#[derive(Clone, Debug)]
struct Lifetime;

impl Algorithm for Lifetime {
    type State = u64;

    fn step(&self, _: &mut Option<u64>, _: Timestamp, _: Cost) -> Step {
        unimplemented!()
    }
    fn look(&self, _: Option<&u64>, _: Timestamp) -> Decision {
        unimplemented!()
    }
    fn settle(&self, _: &mut Option<u64>, _: &Charge, _: Timestamp, _: u64) {}
    fn forgettable_at(&self, _: &u64) -> Timestamp {
        Timestamp::MAX
    }
}

struct Nowhere;

impl CompareAndSwap for Nowhere {
    type Version = u64;

    async fn load(&self, _: &[u8]) -> Result<Loaded<u64>, StoreError> {
        Err(StoreError::timeout())
    }
    async fn swap(&self, _: &[u8], _: Swap<'_, u64>) -> Result<Swapped<u64>, StoreError> {
        Err(StoreError::timeout())
    }
}

fn main() {
    let _ = CasStore::<_, Lifetime>::new(Nowhere);
}
