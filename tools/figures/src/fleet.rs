//! Runs a scenario.

use std::{sync::Arc, time::Duration};

use tollgate::{algorithm::FleetRule, store::LeaseConfig};

use crate::{
    balancer::Balancer,
    clients::Client,
    faults::nanos,
    keys::Keys,
    meter,
    network::Network,
    node::{Arrival, Node},
    node_clock::NodeClock,
    random::Random,
    record::Record,
    remote_store::RemoteStore,
    report::Report,
    scenario::Scenario,
    server::Server,
    timeline::Timeline,
};

/// The time that answers are waited for after the last call.
const AFTER: Duration = Duration::from_secs(5);

/// Runs a scenario to its end.
///
/// # Errors
///
/// When the rule cannot be leased, or has no meter.
pub fn run(scenario: &Scenario) -> Result<Report, String> {
    meter::of(&scenario.rule)?;
    if scenario.nodes == 0 {
        return Err("a fleet of 0 nodes: expected at least 1".to_owned());
    }
    let hold = scenario
        .hold
        .unwrap_or(scenario.rule.default_lease_duration());
    let held = scenario.rule.tightened(hold, 1);
    held.map_err(|error| error.to_string())?;
    let time = Timeline::default();
    let server = Arc::new(Server::new(&time));
    let network = Arc::new(Network::new(
        &time,
        &scenario.link,
        &scenario.faults,
        scenario.nodes,
        scenario.seed,
    ));
    let record = Arc::new(Record::default());
    let nodes = nodes(scenario, &time, &server, &network, &record);
    let fleet = Fleet {
        time: time.clone(),
        scenario: scenario.clone(),
        server,
        nodes: nodes.clone(),
    };
    let offered = time.run_with_timers(fleet.serve());
    let stats = nodes.iter().map(|node| node.stats()).collect();
    Report::new(scenario, record.take(), offered, &network.calls(), stats)
}

fn nodes(
    scenario: &Scenario,
    time: &Timeline,
    server: &Arc<Server>,
    network: &Arc<Network>,
    record: &Arc<Record>,
) -> Vec<Arc<Node>> {
    let mut random = Random::new(scenario.seed, "nodes");
    let most = i64::try_from(nanos(scenario.offset)).unwrap_or(i64::MAX / 4);
    let node = |number: usize| {
        let offset = random.below(2 * most as u64 + 1) as i64 - most;
        let drift = i64::from(scenario.drift);
        let clock = NodeClock {
            time: time.clone(),
            offset,
            drift: if number.is_multiple_of(2) {
                -drift
            } else {
                drift
            },
        };
        let config = LeaseConfig::new().clock(clock).seed(random.next());
        let config = match scenario.hold {
            Some(hold) => config.duration(hold),
            None => config,
        };
        let store = RemoteStore {
            node: number,
            server: Arc::clone(server),
            network: Arc::clone(network),
        };
        Arc::new(Node::new(&scenario.rule, config, store, record))
    };
    (0..scenario.nodes).map(node).collect()
}

struct Fleet {
    time: Timeline,
    scenario: Scenario,
    server: Arc<Server>,
    nodes: Vec<Arc<Node>>,
}

impl Fleet {
    /// Serves all calls, and waits for their answers. Returns how many calls came to each node in
    /// the measured time.
    async fn serve(self) -> Vec<u64> {
        let scenario = &self.scenario;
        self.lose_data();
        let rate = scenario.calls_per_second() / scenario.clients.max(1) as f64;
        let client = |number| Client::new(scenario.arrivals, rate, scenario.seed, number);
        let mut clients: Vec<_> = (0..scenario.clients.max(1)).map(client).collect();
        let mut next: Vec<_> = clients.iter_mut().map(Client::next).collect();
        let (keys, mut random) = (
            Keys::new(&scenario.keys),
            Random::new(scenario.seed, "keys"),
        );
        let mut balancer = Balancer::new(scenario.balancing, scenario.seed);
        let mut offered = vec![0; scenario.nodes];
        let (begin, end) = (nanos(scenario.warm_up), nanos(scenario.time));
        for number in 0.. {
            let first = (0..next.len()).min_by_key(|client| next[*client]);
            let Some(client) = first.filter(|client| next[*client] < end) else {
                break;
            };
            let came = next[client];
            next[client] = clients[client].next();
            self.time.until(came).await;
            let living = self.living();
            if living.is_empty() {
                break;
            }
            let key = keys.choose(&mut random);
            let node = balancer.choose(&living, key);
            if came >= begin {
                offered[node] += 1;
            }
            self.nodes[node].serve(Arrival { number, key, came });
        }
        self.time.until(end + nanos(AFTER)).await;
        offered
    }

    fn living(&self) -> Vec<usize> {
        let (faults, now) = (&self.scenario.faults, self.time.now());
        let is_alive = |node: &usize| !faults.is_dead(*node, now);
        (0..self.nodes.len()).filter(is_alive).collect()
    }

    /// Lets the store forget all states at the ends of outages.
    fn lose_data(&self) {
        if !self.scenario.faults.loses_data {
            return;
        }
        for outage in &self.scenario.faults.outages {
            let (server, time, at) = (Arc::clone(&self.server), self.time.clone(), outage.to);
            tokio::spawn(async move {
                time.until(nanos(at)).await;
                server.lose();
            });
        }
    }
}
