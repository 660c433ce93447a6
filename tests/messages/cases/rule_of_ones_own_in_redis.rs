//! A rule of a user's own in a store that runs a script.
//~ error[E0277]: the rule `Lifetime` cannot be run by a script
//~ for a rule of your own take a store that compares and swaps

use tollgate::{
    Charge, Cost, Decision, Timestamp,
    algorithm::{Algorithm, Step},
    store::Redis,
};

#[derive(Clone, Debug, PartialEq)]
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

fn main() {
    let _ = Redis::<Lifetime>::connect("redis://localhost");
}
