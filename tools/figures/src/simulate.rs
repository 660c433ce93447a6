//! The command `simulate`.

use std::time::Duration;

use tollgate::AnyRule;

use crate::{
    args,
    balancer::Balancing,
    clients::Arrivals,
    csv,
    faults::Span,
    fleet,
    keys::KeyChoice,
    random::Millionths,
    scenario::Scenario,
    standard::{NAMES, scenario},
    text,
};

/// The flags of the command.
#[derive(clap::Args)]
pub(crate) struct Simulate {
    /// The scenario from which the settings below begin
    #[arg(long, value_name = "NAME", default_value = "hot-8", value_parser = scenario)]
    scenario: Scenario,
    /// All scenarios with names, one after the other
    #[arg(long, conflicts_with = "scenario")]
    all: bool,
    /// The names of the scenarios
    #[arg(long)]
    list: bool,
    /// A line for each scenario
    #[arg(long, conflicts_with = "csv_nodes")]
    csv: bool,
    /// A line for each node
    #[arg(long)]
    csv_nodes: bool,
    #[command(flatten)]
    settings: Settings,
}

/// The flags that change a scenario.
#[derive(clap::Args)]
struct Settings {
    /// Determines each random number
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Nodes of the fleet
    #[arg(long, value_name = "N")]
    nodes: Option<usize>,
    /// The limit of a key, as in "token-bucket 1000/s burst=500"
    #[arg(long, value_name = "RULE")]
    rule: Option<AnyRule>,
    /// The time for which units are held; 0s for no leases; without it, the default of the rule
    #[arg(long, value_name = "TIME", value_parser = args::time)]
    hold: Option<Duration>,
    /// All calls together, as a multiple of the rate of the rule
    #[arg(long, value_name = "X", value_parser = args::millionths)]
    demand: Option<u64>,
    /// one, uniform:N, hot:N:PART or zipf:N:EXPONENT
    #[arg(long, value_name = "KEYS", value_parser = args::keys)]
    keys: Option<KeyChoice>,
    /// poisson, or on-off:TIME:TIME, the mean times of being on and off
    #[arg(long, value_name = "HOW", value_parser = args::arrivals)]
    arrivals: Option<Arrivals>,
    /// The number of clients that share the demand
    #[arg(long, value_name = "N")]
    clients: Option<usize>,
    /// round-robin, random, by-key, or hot:PART, the part of node 0
    #[arg(long, value_name = "HOW", value_parser = args::balancing)]
    balance: Option<Balancing>,
    /// Least time of one way to the store
    #[arg(long, value_name = "TIME", value_parser = args::time)]
    delay: Option<Duration>,
    /// Most that is added to it
    #[arg(long, value_name = "TIME", value_parser = args::time)]
    jitter: Option<Duration>,
    /// Requests that are lost, and answers that are lost
    #[arg(long, value_name = "PART", value_parser = args::part)]
    loss: Option<Millionths>,
    /// Requests that arrive twice
    #[arg(long, value_name = "PART", value_parser = args::part)]
    duplicate: Option<Millionths>,
    /// The time that a node waits for the store
    #[arg(long, value_name = "TIME", value_parser = args::time)]
    deadline: Option<Duration>,
    /// The store is out
    #[arg(long, value_name = "SPAN", value_parser = args::span)]
    outage: Vec<Span>,
    /// The store forgets all states at the end of each outage
    #[arg(long)]
    lose_data: bool,
    /// Node N, from 0 on, cannot reach the store
    #[arg(long, value_name = "N@SPAN", value_parser = args::node_span)]
    partition: Vec<(usize, Span)>,
    /// Node N does nothing
    #[arg(long, value_name = "N@SPAN", value_parser = args::node_span)]
    freeze: Vec<(usize, Span)>,
    /// Node N dies
    #[arg(long, value_name = "N@TIME", value_parser = args::node_time)]
    kill: Vec<(usize, Duration)>,
    /// Most that the clocks of the nodes differ from the store's
    #[arg(long, value_name = "TIME", value_parser = args::time)]
    offset: Option<Duration>,
    /// The rates of the clocks of the nodes, in turns
    #[arg(long, value_name = "PART", value_parser = args::part)]
    drift: Option<Millionths>,
    /// The time for which calls come
    #[arg(long, value_name = "TIME", value_parser = args::time)]
    time: Option<Duration>,
    /// Calls before are not measured
    #[arg(long, value_name = "TIME", value_parser = args::time)]
    warm_up: Option<Duration>,
}

impl Simulate {
    /// Returns what the command prints.
    pub(crate) fn output(self) -> Result<String, String> {
        if self.list {
            let line = |(name, meaning): (&str, &str)| format!("{name:<14}{meaning}\n");
            return Ok(NAMES.into_iter().map(line).collect());
        }
        let scenarios = if self.all {
            let named = NAMES.iter().map(|(name, _)| scenario(name));
            named.collect::<Result<_, _>>()?
        } else {
            vec![self.scenario]
        };
        let mut output = match (self.csv, self.csv_nodes) {
            (true, _) => csv::HEADER.to_owned(),
            (_, true) => csv::NODES_HEADER.to_owned(),
            _ => String::new(),
        };
        for (number, mut scenario) in scenarios.into_iter().enumerate() {
            self.settings.change(&mut scenario);
            let report = fleet::run(&scenario)?;
            output += &match (self.csv, self.csv_nodes) {
                (true, _) => csv::line(&report),
                (_, true) => csv::nodes(&report),
                _ if number > 0 => format!("\n{}", text::text(&report)),
                _ => text::text(&report),
            };
        }
        Ok(output)
    }
}

impl Settings {
    fn change(&self, scenario: &mut Scenario) {
        set(&mut scenario.seed, self.seed);
        set(&mut scenario.nodes, self.nodes);
        set(&mut scenario.rule, self.rule.clone());
        scenario.hold = self.hold.or(scenario.hold);
        set(&mut scenario.demand, self.demand);
        set(&mut scenario.keys, self.keys.clone());
        set(&mut scenario.arrivals, self.arrivals);
        set(&mut scenario.clients, self.clients);
        set(&mut scenario.balancing, self.balance);
        set(&mut scenario.offset, self.offset);
        set(&mut scenario.drift, self.drift);
        set(&mut scenario.time, self.time);
        set(&mut scenario.warm_up, self.warm_up);
        let link = &mut scenario.link;
        set(&mut link.delay, self.delay);
        set(&mut link.jitter, self.jitter);
        set(&mut link.lost_requests, self.loss);
        set(&mut link.lost_answers, self.loss);
        set(&mut link.duplicated, self.duplicate);
        set(&mut link.deadline, self.deadline);
        let faults = &mut scenario.faults;
        faults.outages.extend(&self.outage);
        faults.loses_data |= self.lose_data;
        faults.partitions.extend(&self.partition);
        faults.freezes.extend(&self.freeze);
        faults.deaths.extend(&self.kill);
    }
}

fn set<T>(setting: &mut T, flag: Option<T>) {
    if let Some(value) = flag {
        *setting = value;
    }
}
