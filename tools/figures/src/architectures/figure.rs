//! The figure `fleet`: fifteen architectures, as nodes and load grow.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use tollgate::AnyRule;

use super::{
    kind::Kind,
    pictures::{self, Shown},
    run::run,
    score::Score,
    settings::FleetSettings,
};
use crate::{
    args,
    figure::{Figure, Products, Progress, Table, in_parallel, parts},
};

/// The parameters of the figure.
#[derive(clap::Args)]
pub(crate) struct FleetFigure {
    /// The limit of each key
    #[arg(long, value_name = "RULE", default_value = "token-bucket 10/s")]
    rule: AnyRule,
    /// Another limit, in `fleet_windows.csv`
    #[arg(long, value_name = "RULE", default_value = "sliding-window 10/s")]
    windows: AnyRule,
    /// The most nodes; the figure has 1, 2, 5, 10, 20, 50, 100, 200 up to this number
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u64).range(1..=1000))]
    nodes: u64,
    /// The nodes of the fleet whose load grows
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=1000))]
    loaded: u64,
    /// The time for which calls come
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = args::time)]
    time: Duration,
    /// The least time of one way
    #[arg(long, value_name = "TIME", default_value = "500us", value_parser = args::time)]
    delay: Duration,
    /// The time that the store works for a request
    #[arg(long, value_name = "TIME", default_value = "40us", value_parser = args::time)]
    service: Duration,
    /// The most units of a key that a node may admit before it has pushed them
    #[arg(long, value_name = "UNITS", default_value_t = 5)]
    max_unsynced: u64,
    /// The time that a node waits for an answer
    #[arg(long, value_name = "TIME", default_value = "50ms", value_parser = args::time)]
    deadline: Duration,
}

/// The most calls of all fleets: some minutes.
const MOST_CALLS: f64 = 20e6;

/// Calls for one node of a fleet that grows with its load, in millionths of the limit of each
/// greedy key.
const LOAD_OF_NODE: u64 = 1_200_000;

const NODES: [u64; 8] = [1, 2, 5, 10, 20, 50, 100, 200];

/// In thousandths of the limit of each greedy key.
const LOADS: [u64; 10] = [
    500, 1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000,
];

impl Figure for FleetFigure {
    fn name(&self) -> &'static str {
        "fleet"
    }

    fn make(&self, seed: u64, progress: &Progress<'_>) -> Result<Products, String> {
        let sweeps = self.sweeps(seed);
        // Before the first one, because they take long.
        let all = || sweeps.iter().flatten();
        all().try_for_each(FleetSettings::check)?;
        let calls: f64 = all().map(FleetSettings::calls).sum();
        if calls > MOST_CALLS {
            return Err(format!(
                "{calls:.0} calls of all fleets: expected at most {MOST_CALLS}; choose less --time or a smaller --rule"
            ));
        }
        let runs: Vec<_> = all()
            .flat_map(|fleet| kinds(fleet).map(move |kind| (kind, fleet)))
            .collect();
        let (whole, done) = (
            runs.iter().map(|(_, fleet)| fleet.load).sum(),
            AtomicU64::new(0),
        );
        let scores = in_parallel(&runs, |(kind, fleet)| {
            let score = run(*kind, fleet)?;
            let done = done.fetch_add(fleet.load, Ordering::Relaxed) + fleet.load;
            progress.step(done, whole);
            Ok(score)
        })?;
        let mut scores = scores.into_iter();
        let scores = sweeps.each_ref().map(|fleets| {
            let runs = fleets.iter().map(|fleet| kinds(fleet).count()).sum();
            scores.by_ref().take(runs).collect::<Vec<_>>()
        });
        let [by_nodes, by_load, windows] = &scores;
        let mut products = Products::default();
        products.table("fleet", &table(&[("nodes", by_nodes), ("load", by_load)]))?;
        products.table("fleet_windows", &table(&[("nodes", windows)]))?;
        let title = format!(
            "Ten architectures for `{}` per key: 1 to {} nodes, each with 1.2 of the limit of 10 greedy keys",
            self.rule, self.nodes
        );
        products.picture(
            "fleet_nodes",
            &pictures::by_nodes(&title, Shown::Others, by_nodes),
        )?;
        let title = format!(
            "Ten architectures for `{}` per key: {} nodes, and the load of 10 greedy keys grows",
            self.rule, self.loaded
        );
        products.picture(
            "fleet_load",
            &pictures::by_load(&title, Shown::Others, by_load),
        )?;
        let title = format!(
            "Background synchronisation for `{}` per key, {} units ahead at most: 1 to {} nodes, each with 1.2 of the limit of 10 greedy keys",
            self.rule, self.max_unsynced, self.nodes
        );
        let picture = pictures::by_nodes(&title, Shown::Synced, by_nodes);
        products.picture("fleet_synced_nodes", &picture)?;
        let title = format!(
            "Background synchronisation for `{}` per key, {} units ahead at most: {} nodes, and the load of 10 greedy keys grows",
            self.rule, self.max_unsynced, self.loaded
        );
        let picture = pictures::by_load(&title, Shown::Synced, by_load);
        products.picture("fleet_synced_load", &picture)?;
        Ok(products)
    }
}

impl FleetFigure {
    /// Returns the fleets by nodes, by load, and by nodes under the other limit.
    fn sweeps(&self, seed: u64) -> [Vec<FleetSettings>; 3] {
        let fleet = |rule: &AnyRule, nodes: u64, load| FleetSettings {
            seed,
            time: self.time,
            delay: self.delay,
            service: self.service,
            deadline: self.deadline,
            max_unsynced: self.max_unsynced,
            ..FleetSettings::new(rule.clone(), nodes as usize, load)
        };
        let by_nodes = |rule| {
            let nodes = NODES.iter().filter(|nodes| **nodes <= self.nodes);
            nodes
                .map(|nodes| fleet(rule, *nodes, LOAD_OF_NODE * nodes))
                .collect()
        };
        let by_load = LOADS
            .iter()
            .map(|load| fleet(&self.rule, self.loaded, 1000 * load));
        [
            by_nodes(&self.rule),
            by_load.collect(),
            by_nodes(&self.windows),
        ]
    }
}

/// Returns the architectures that can keep the limit of a fleet.
fn kinds(fleet: &FleetSettings) -> impl Iterator<Item = Kind> {
    let can_keep = |kind: &Kind| kind.check(&fleet.rule).is_ok();
    Kind::ALL.into_iter().filter(can_keep)
}

fn table(sweeps: &[(&str, &Vec<Score>)]) -> Table {
    let mut table = Table::new([
        "sweep",
        "architecture",
        "nodes",
        "load",
        "offered",
        "admitted",
        "exact",
        "over_admitted",
        "over_admission",
        "overshoot",
        "overshoot_bound",
        "wrongly_refused",
        "wrong_refusals",
        "withheld",
        "under_admission",
        "failed",
        "greedy_times_the_limit",
        "store_calls_per_decision",
        "messages_per_decision",
        "p50_us",
        "p99_us",
    ]);
    for (sweep, scores) in sweeps {
        for score in *scores {
            let (greedy, of_greedy) = score.of_greedy;
            table.row([
                (*sweep).to_owned(),
                score.kind.name().to_owned(),
                score.nodes.to_string(),
                parts(score.load, 1_000_000),
                score.offered.to_string(),
                score.admitted.to_string(),
                score.exact.to_string(),
                score.over_admitted.to_string(),
                parts(score.over_admitted, score.exact),
                score.overshoot.to_string(),
                score
                    .overshoot_bound
                    .map_or_else(String::new, |bound| bound.to_string()),
                score.wrongly_refused.to_string(),
                parts(score.wrongly_refused, score.exact),
                score.withheld.to_string(),
                parts(score.withheld, score.exact),
                score.failed.to_string(),
                parts(greedy, of_greedy),
                parts(score.store_calls, score.offered),
                parts(score.messages, score.offered),
                (score.p50 / 1000).to_string(),
                (score.p99 / 1000).to_string(),
            ]);
        }
    }
    table
}
