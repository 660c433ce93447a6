//! Runs a fleet.

use std::{sync::Arc, time::Duration};

use super::{
    architecture::Architecture, kind::Kind, score::Score, settings::FleetSettings, world::World,
};
use crate::{faults::nanos, node::Arrival, random::Random, timeline::Instant};

/// The time between two looks whether all answers have come, and the number of looks at most.
const LOOK: Duration = Duration::from_millis(100);
const LOOKS: usize = 100_000;

/// Runs a fleet of an architecture, and compares it with one exact limiter.
///
/// # Errors
///
/// When a setting is out of its range, or the architecture cannot keep a limit of this rule.
pub fn run(kind: Kind, settings: &FleetSettings) -> Result<Score, String> {
    settings.check()?;
    kind.check(&settings.rule)?;
    let world = Arc::new(World::new(settings));
    let architecture = kind.build(&world);
    let served = serve(Arc::clone(&world), Arc::clone(&architecture));
    let offered = match architecture.needs_timers() {
        true => world.time.run_with_timers(served),
        false => world.time.run(served),
    };
    architecture.finish();
    let bound = architecture.overshoot_bound();
    Score::new(kind, &world, (offered, bound))
}

/// Serves all calls. Returns how many came in the measured time.
async fn serve(world: Arc<World>, architecture: Arc<dyn Architecture>) -> u64 {
    Arc::clone(&architecture).start();
    let settings = &world.settings;
    let mut balancer = Random::new(settings.seed, "balancer");
    let (mut offered, mut all) = (0, 0);
    for arrival in Arrivals::new(settings) {
        world.time.until(arrival.came).await;
        let node = balancer.below(settings.nodes as u64) as usize;
        let node = architecture.route(arrival).unwrap_or(node);
        all += 1;
        offered += u64::from(world.is_measured(arrival.came));
        Arc::clone(&architecture).call(node, arrival);
    }
    // A store that was asked too much answers much later.
    for _ in 0..LOOKS {
        if world.record.len() == all {
            break;
        }
        world.time.sleep(nanos(LOOK)).await;
    }
    offered
}

/// The calls of all clients, at random. Greedy keys come first.
struct Arrivals {
    random: Random,
    mean_gap: f64,
    greedy: u64,
    polite: u64,
    greedy_part: f64,
    end: Instant,
    next: Arrival,
}

impl Arrivals {
    fn new(settings: &FleetSettings) -> Self {
        Self {
            random: Random::new(settings.seed, "calls"),
            mean_gap: 1e9 / settings.calls_per_second(),
            greedy: settings.greedy,
            polite: settings.polite,
            greedy_part: settings.greedy_part(),
            end: nanos(settings.time),
            next: Arrival {
                number: 0,
                key: 0,
                came: 0,
            },
        }
    }
}

impl Iterator for Arrivals {
    type Item = Arrival;

    fn next(&mut self) -> Option<Arrival> {
        let random = &mut self.random;
        self.next.number += 1;
        self.next.came = self
            .next
            .came
            .saturating_add(random.exponential(self.mean_gap));
        let is_greedy = self.polite == 0 || random.fraction() <= self.greedy_part;
        self.next.key = match is_greedy && self.greedy > 0 {
            true => random.below(self.greedy),
            false => self.greedy + random.below(self.polite),
        };
        (self.next.came < self.end).then_some(self.next)
    }
}
