//! A node: produces what it admitted, and reads the totals.

use std::{
    collections::{HashMap, hash_map::Entry},
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use rdkafka::{
    Message,
    consumer::StreamConsumer,
    error::KafkaError,
    producer::{DeliveryFuture, FutureProducer, FutureRecord},
};
use tokio::runtime::Handle;
use tollgate::{
    AnyRule, Decision, Policy, Timestamp,
    algorithm::{Algorithm, FleetRule},
    future::{BoxFuture, SyncFuture},
    key::Key,
    store::{
        Backend, Store, StoreError,
        driver::{Ask, Check, Decisions, Delta, FleetStore, Pulled, Settlement, StateKey},
    },
    time::{Clock, SystemClock},
};

use crate::{
    Settings,
    counters::NodeCounts,
    message::{Change, State, partition_of},
    own_changes::TopicPosition,
    reading::{partitions, read_to_the_end, total},
    view::View,
};

/// A store whose states are the totals that an [`Aggregator`](crate::Aggregator) writes, and what
/// this node has produced since. Made for `.synced(…)`.
///
/// Without it, each call is one message, and its decision is as stale as the totals. A change is
/// pushed when the brokers have acknowledged it; one that was not may have been written.
/// `.synced(…)` pushes it again under the same number.
#[derive(Clone)]
pub struct Kafka {
    inner: Arc<Inner>,
}

struct Inner {
    settings: Settings,
    partitions: i32,
    producer: FutureProducer,
    clock: SystemClock,
    node: u64,
    /// That of `connect`.
    runtime: Handle,
    numbers: Mutex<u64>,
    view: Mutex<View>,
    counts: NodeCounts,
}

/// The key of messages: the policy, the digest of the client's key, and the kind of the state.
fn name(key: &StateKey) -> String {
    format!(
        "{}/{:016x}/{:016x}",
        key.policy().stored_name(),
        key.key().digest(),
        key.kind().as_u64()
    )
}

impl Kafka {
    /// Connects, and reads the totals that are there. A node has another number each time.
    ///
    /// # Errors
    ///
    /// When the brokers do not answer, or the topics have different numbers of partitions.
    pub async fn connect(settings: Settings, node: u64) -> Result<Self, crate::Error> {
        let partitions = partitions(&settings).await?;
        let (mut view, counts) = (View::default(), NodeCounts::default());
        let clock = SystemClock::default();
        let read = read_to_the_end(&settings, 0..partitions, |partition, key, total| {
            let now = clock.now().as_nanos();
            let read = total.map(|total| view.read(partition, key, total, now));
            counts.unreadable.add(u64::from(read.is_err()));
        });
        let consumer = read.await?;
        let inner = Arc::new(Inner {
            producer: settings.producer().create()?,
            settings,
            partitions,
            clock,
            node,
            runtime: Handle::current(),
            numbers: Mutex::new(0),
            view: Mutex::new(view),
            counts,
        });
        tokio::spawn(read_on(Arc::downgrade(&inner), consumer));
        Ok(Self { inner })
    }

    /// Returns how old the totals are, by the clocks of the aggregators and of this node: the age
    /// of those of the oldest partition. All changes that were produced before are in them. `None`
    /// if no aggregator was ever there for some partition.
    ///
    /// Without traffic, it swings between the time of the way and 200 ms more, the time between two
    /// heartbeats of an aggregator.
    pub fn staleness(&self) -> Option<Duration> {
        let ages = self.staleness_by_partition();
        ages.into_iter().reduce(|a, b| Some(a?.max(b?)))?
    }

    /// Returns how old the totals of a key's partition are.
    pub fn staleness_of(&self, key: &StateKey) -> Option<Duration> {
        let partition = partition_of(&name(key), self.inner.partitions);
        self.inner.staleness_of(partition)
    }

    /// Returns how old the totals of each partition are.
    pub fn staleness_by_partition(&self) -> Vec<Option<Duration>> {
        let partitions = 0..self.inner.partitions;
        partitions
            .map(|partition| self.inner.staleness_of(partition))
            .collect()
    }

    /// Returns the changes of this node that are not in the totals yet. Many of a key are added up
    /// to one.
    pub fn unsynced(&self) -> usize {
        self.inner.view().unsynced()
    }

    /// Returns how many changes of this node its own view lacked until they were in the totals,
    /// because too many were on their way.
    pub fn given_up(&self) -> u64 {
        self.inner.counts.given_up.get()
    }

    /// Returns how many totals were older than what this node knew: an aggregator had written them
    /// after it lost their partition. They are left out.
    pub fn outdated(&self) -> u64 {
        self.inner.counts.outdated.get()
    }

    /// Returns how many totals were no totals that this release can read. They are left out.
    pub fn unreadable(&self) -> u64 {
        self.inner.counts.unreadable.get()
    }

    /// Returns how often totals could not be read. The client connects again by itself.
    pub fn failed(&self) -> u64 {
        self.inner.counts.failed.get()
    }

    /// Returns the number of keys with totals.
    pub fn keys(&self) -> usize {
        self.inner.view().keys()
    }
}

impl Inner {
    fn view(&self) -> MutexGuard<'_, View> {
        self.view.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn staleness_of(&self, partition: i32) -> Option<Duration> {
        let as_of = Timestamp::from_nanos(self.view().as_of(partition)?);
        Some(self.clock.now().saturating_since(as_of))
    }

    /// Returns a change that gets its number when it is produced.
    fn change(&self, rule: &AnyRule, at: Timestamp, charged: u64, actual: u64) -> Change {
        Change {
            rule: rule.to_string(),
            node: self.node,
            number: 0,
            at: at.as_nanos(),
            charged,
            actual,
            is_reset: false,
        }
    }

    /// Hands a change to the producer.
    fn send(&self, key: &str, change: &Change) -> Result<DeliveryFuture, StoreError> {
        let message = serde_json::to_vec(change).map_err(StoreError::other)?;
        let record = FutureRecord::<str, [u8]>::to(&self.settings.topic)
            .partition(partition_of(key, self.partitions))
            .key(key)
            .payload(&message);
        let sent = self.producer.send_result(record);
        sent.map_err(|(error, _)| StoreError::unavailable(error))
    }

    /// Hands changes to the producer. The future waits until they are in the topic, and notes them.
    fn produce(
        self: Arc<Self>,
        mut changes: Vec<(String, Change)>,
    ) -> impl Future<Output = Result<(), StoreError>> + Send + 'static {
        let sent: Vec<_> = {
            // Numbers must be in the order of the topic.
            let mut last = self.numbers.lock().unwrap_or_else(PoisonError::into_inner);
            for (_, change) in changes.iter_mut().filter(|(_, change)| change.number == 0) {
                *last += 1;
                change.number = *last;
            }
            changes
                .iter()
                .map(|(key, change)| self.send(key, change))
                .collect()
        };
        async move {
            let mut result = Ok(());
            for ((key, change), sent) in changes.iter().zip(sent) {
                let delivered = match sent {
                    Ok(sent) => sent.await.map_err(|_| KafkaError::Canceled),
                    Err(error) => {
                        result = Err(error);
                        continue;
                    }
                };
                match delivered.and_then(|delivered| delivered.map_err(|(error, _)| error)) {
                    Ok(delivery) => {
                        let position = TopicPosition {
                            partition: delivery.partition,
                            offset: delivery.offset,
                        };
                        let time = (self.clock.now().as_nanos(), self.settings.keep_nanos());
                        let given_up = self.view().note(key, (change, position), time);
                        self.counts.given_up.add(given_up);
                    }
                    Err(error) => result = Err(StoreError::unavailable(error)),
                }
            }
            result
        }
    }
}

/// Reads totals until the node is gone.
async fn read_on(inner: Weak<Inner>, consumer: StreamConsumer) {
    /// Looks this often if the node is still there.
    const LOOK_EVERY: Duration = Duration::from_millis(200);
    /// After a failure. Messages of the client about one come in numbers.
    const PAUSE: Duration = Duration::from_millis(10);
    loop {
        let read = tokio::time::timeout(LOOK_EVERY, consumer.recv()).await;
        let Some(inner) = inner.upgrade() else {
            return;
        };
        match read {
            Ok(Ok(message)) => {
                let key = message.key().and_then(|key| std::str::from_utf8(key).ok());
                let Some(key) = key else {
                    continue;
                };
                let now = inner.clock.now().as_nanos();
                let read = total(message.payload());
                match read.map(|total| inner.view().read(message.partition(), key, total, now)) {
                    Ok(true) => {}
                    Ok(false) => inner.counts.outdated.add(1),
                    Err(_) => inner.counts.unreadable.add(1),
                }
            }
            Ok(Err(KafkaError::PartitionEOF(_))) | Err(_) => {}
            Ok(Err(_)) => {
                inner.counts.failed.add(1);
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

impl fmt::Debug for Kafka {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kafka")
            .field("settings", &self.inner.settings)
            .finish_non_exhaustive()
    }
}

impl Backend for Kafka {
    type Error = StoreError;

    fn address(&self) -> Option<&str> {
        Some(&self.inner.settings.brokers)
    }

    fn unsettled(&self) -> Option<u64> {
        Some(self.inner.counts.unsettled.get())
    }
}

/// Fails for rules whose units an aggregator cannot add to a key without a state.
fn adds_up(rule: &AnyRule) -> Result<(), StoreError> {
    rule.check_sync().map_err(StoreError::unsupported)
}

impl Store<AnyRule> for Kafka {
    type Answer = BoxFuture<Result<Decisions, StoreError>>;
    type Done = BoxFuture<Result<(), StoreError>>;

    fn acquire(&self, asks: &[Ask<'_, AnyRule>]) -> Check<Self::Answer> {
        let (inner, now) = (Arc::clone(&self.inner), self.inner.clock.now());
        let mut states: HashMap<String, Option<State>> = HashMap::new();
        let mut changes = Vec::new();
        let decide = |ask: &Ask<'_, AnyRule>| -> Result<Decision, StoreError> {
            let own = ask.rule_for_key();
            let (rule, key) = (own.as_ref().unwrap_or(ask.rule()), name(&ask.state_key()));
            adds_up(rule)?;
            let state = match states.entry(key.clone()) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(new) => new.insert(inner.view().state(&key)?),
            };
            let decision = rule.step(state, now, ask.cost()).decision();
            changes.push((key, inner.change(rule, now, 0, ask.cost().get())));
            Ok(ask.charged(decision))
        };
        let decisions: Vec<Decision> = match asks.iter().map(decide).collect() {
            Ok(decisions) => decisions,
            Err(error) => return Check::Ready(Err(error)),
        };
        if !decisions.iter().all(Decision::is_admitted) {
            let looks = self.looks(asks, now);
            let replaced = |looks: Vec<Decision>| {
                let decided = decisions.into_iter().zip(looks);
                let decided = decided.map(|(decision, look)| match decision.is_admitted() {
                    true => look,
                    false => decision,
                });
                decided.collect()
            };
            return Check::Ready(looks.map(replaced));
        }
        Check::Pending(Box::pin(async move {
            inner.produce(changes).await?;
            Ok(decisions.into_iter().collect())
        }))
    }

    fn look(&self, asks: &[Ask<'_, AnyRule>]) -> Check<Self::Answer> {
        let looks = self.looks(asks, self.inner.clock.now());
        Check::Ready(looks.map(|looks| looks.into_iter().collect()))
    }

    fn settle(&self, settlements: Vec<Settlement<'_, AnyRule>>) -> Check<Self::Done> {
        let inner = Arc::clone(&self.inner);
        let change = |settlement: &Settlement<'_, AnyRule>| {
            let (charge, actual) = (settlement.charge(), settlement.actual());
            let own = settlement.rule_for_key();
            let rule = own.as_ref().unwrap_or(settlement.rule());
            let change = inner.change(rule, charge.at, charge.cost, actual);
            (name(&settlement.state_key()), change)
        };
        let changes: Vec<_> = settlements.iter().map(change).collect();
        let settlements = changes.len() as u64;
        self.produce_in_background(changes, settlements)
    }

    fn reset(&self, policy: &Policy, key: &Key) -> Check<Self::Done> {
        let inner = Arc::clone(&self.inner);
        let prefix = format!("{}/{:016x}/", policy.stored_name(), key.digest());
        let names = inner.view().keys_of(&prefix);
        let change = |name| {
            let change = Change {
                rule: String::new(),
                node: inner.node,
                number: 0,
                at: inner.clock.now().as_nanos(),
                charged: 0,
                actual: 0,
                is_reset: true,
            };
            (name, change)
        };
        let changes = names.into_iter().map(change).collect();
        self.produce_in_background(changes, 0)
    }

    fn fits(&self, rule: &AnyRule) -> Result<(), tollgate::Error> {
        rule.check_sync()
    }

    fn fleet(&self) -> Option<&dyn FleetStore<AnyRule, Error = Self::Error>> {
        Some(self)
    }
}

impl FleetStore<AnyRule> for Kafka {
    /// Produces the deltas, and returns the last totals with what this node has pushed since.
    fn sync(&self, deltas: &[Delta<'_, AnyRule>]) -> Option<SyncFuture<AnyRule, StoreError>> {
        let (inner, now) = (Arc::clone(&self.inner), self.inner.clock.now());
        let named = deltas.iter().map(|delta| name(&delta.state_key()));
        let names: Vec<_> = named.collect();
        let pushed = deltas
            .iter()
            .zip(&names)
            .filter(|(delta, _)| delta.units() > 0);
        let changes: Vec<_> = pushed
            .map(|(delta, name)| {
                let own = delta.rule_for_key();
                let rule = own.as_ref().unwrap_or(delta.rule());
                let change = Change {
                    node: delta.batch().node,
                    number: delta.batch().number,
                    ..inner.change(rule, delta.at(now), 0, delta.units())
                };
                (name.clone(), change)
            })
            .collect();
        Some(Box::pin(async move {
            Arc::clone(&inner).produce(changes).await?;
            let (view, at) = (inner.view(), inner.clock.now());
            let pulled = names.iter().map(|name| {
                let state = view.state(name)?;
                Ok(Pulled { at, state })
            });
            Ok(pulled.collect())
        }))
    }
}

impl Kafka {
    /// Hands changes to the producer now, so that they are made even if the future is dropped. If
    /// one of them fails, the settlements among them count as unsettled.
    fn produce_in_background(
        &self,
        changes: Vec<(String, Change)>,
        settlements: u64,
    ) -> Check<BoxFuture<Result<(), StoreError>>> {
        let inner = Arc::clone(&self.inner);
        let producing = Arc::clone(&inner).produce(changes);
        let produced = self.inner.runtime.spawn(async move {
            let result = producing.await;
            if result.is_err() {
                inner.counts.unsettled.add(settlements);
            }
            result
        });
        Check::Pending(Box::pin(async move {
            produced
                .await
                .unwrap_or_else(|error| Err(StoreError::unavailable(error)))
        }))
    }

    fn looks(
        &self,
        asks: &[Ask<'_, AnyRule>],
        now: Timestamp,
    ) -> Result<Vec<Decision>, StoreError> {
        let view = self.inner.view();
        let look = |ask: &Ask<'_, AnyRule>| {
            let own = ask.rule_for_key();
            let rule = own.as_ref().unwrap_or(ask.rule());
            adds_up(rule)?;
            let state = view.state(&name(&ask.state_key()))?;
            Ok(rule.look(state.as_ref(), now))
        };
        asks.iter().map(look).collect()
    }
}
