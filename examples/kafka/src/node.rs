//! A node: produces what it admitted, and reads the totals.

use std::{
    collections::HashMap,
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use rdkafka::{
    Message, Offset, TopicPartitionList,
    consumer::{Consumer, StreamConsumer},
    error::KafkaError,
    producer::{FutureProducer, FutureRecord},
};
use tollgate::{
    AnyRule, Decision, Policy, Timestamp,
    algorithm::Algorithm,
    key::Key,
    store::{
        Ask, Backend, BoxFuture, Check, Decisions, Delta, Error, Pulled, Settlement, StateKey,
        Store, SyncFuture,
    },
    time::{Clock, SystemClock},
};

use crate::{
    Settings,
    message::{Change, HEARTBEAT, State, Total},
};

/// A store whose states are the totals that an [`Aggregator`](crate::Aggregator) writes, and what this node has produced since. Made for `.synced(…)`.
///
/// Without it, each call is one message, and its decision is as stale as the totals. A change is told when the brokers have acknowledged it; one that was not may have been
/// written. `.synced(…)` tells it again under the same number.
#[derive(Clone)]
pub struct Kafka {
    inner: Arc<Inner>,
}

struct Inner {
    settings: Settings,
    producer: FutureProducer,
    clock: SystemClock,
    node: u64,
    numbers: AtomicU64,
    totals: Mutex<Totals>,
}

/// What a node has read, and produced.
#[derive(Debug, Default)]
pub struct Totals {
    of_keys: HashMap<String, Total>,
    /// Changes that are not in the totals yet.
    own: HashMap<String, Vec<Change>>,
    /// When the aggregator wrote last.
    written_at: Option<u64>,
}

impl Totals {
    fn read(&mut self, key: &str, total: Option<Total>) {
        if key == HEARTBEAT {
            self.written_at = total.map(|total| total.at);
            return;
        }
        let Some(total) = total else {
            self.of_keys.remove(key);
            return;
        };
        self.written_at = self.written_at.max(Some(total.at));
        if let Some(own) = self.own.get_mut(key) {
            own.retain(|change| {
                total
                    .last
                    .get(&change.node)
                    .is_none_or(|last| change.number > *last)
            });
            if own.is_empty() {
                self.own.remove(key);
            }
        }
        self.of_keys.insert(key.to_owned(), total);
    }

    /// Notes changes of this node, each once.
    fn note(&mut self, key: &str, change: &Change) {
        let total = self.of_keys.get(key);
        let last = total.and_then(|total| total.last.get(&change.node));
        let own = self.own.entry(key.to_owned()).or_default();
        let is_known = |own: &Change| own.node == change.node && own.number == change.number;
        if last.is_none_or(|last| change.number > *last) && !own.iter().any(is_known) {
            own.push(change.clone());
        }
    }

    fn state(&self, key: &str) -> Option<State> {
        let mut state = self.of_keys.get(key).and_then(Total::state);
        for change in self.own.get(key).into_iter().flatten() {
            change.apply(&mut state);
        }
        state
    }
}

/// The key of messages: the policy, the digest of the client's key, and the kind of the state.
fn name(key: &StateKey) -> String {
    format!(
        "{}/{:016x}/{:016x}",
        key.policy().name(),
        key.key().digest(),
        key.kind().as_u64()
    )
}

/// Reads the topic of totals from its beginning to what is its end now.
pub(crate) async fn read_to_the_end(
    settings: &Settings,
    mut read: impl FnMut(&str, Option<Total>),
) -> Result<StreamConsumer, KafkaError> {
    let (topic, timeout) = (settings.totals(), settings.timeout * 5);
    // A group of its own, which commits nothing: every node reads all.
    let consumer: StreamConsumer = settings.consumer(&topic).create()?;
    let (metadata, consumer) = tokio::task::spawn_blocking({
        let topic = topic.clone();
        move || (consumer.fetch_metadata(Some(&topic), timeout), consumer)
    })
    .await
    .map_err(|_| KafkaError::Canceled)?;
    let metadata = metadata?;
    let mut list = TopicPartitionList::new();
    let mut left = 0;
    for topic in metadata.topics() {
        for partition in topic.partitions() {
            list.add_partition_offset(topic.name(), partition.id(), Offset::Beginning)?;
            left += 1;
        }
    }
    consumer.assign(&list)?;
    while left > 0 {
        match consumer.recv().await {
            Ok(message) => {
                let key = message.key().and_then(|key| std::str::from_utf8(key).ok());
                if let Some(key) = key {
                    read(key, total(message.payload()));
                }
            }
            Err(KafkaError::PartitionEOF(_)) => left -= 1,
            Err(error) => return Err(error),
        }
    }
    Ok(consumer)
}

fn total(payload: Option<&[u8]>) -> Option<Total> {
    payload.and_then(|payload| serde_json::from_slice(payload).ok())
}

impl Kafka {
    /// Connects, and reads the totals that are there. A node has another number each time.
    ///
    /// # Errors
    ///
    /// When the brokers do not answer.
    pub async fn connect(settings: Settings, node: u64) -> Result<Self, KafkaError> {
        let mut totals = Totals::default();
        let consumer = read_to_the_end(&settings, |key, total| totals.read(key, total)).await?;
        let inner = Arc::new(Inner {
            producer: settings.producer().create()?,
            settings,
            clock: SystemClock::default(),
            node,
            numbers: AtomicU64::new(1),
            totals: Mutex::new(totals),
        });
        tokio::spawn(read_on(Arc::downgrade(&inner), consumer));
        Ok(Self { inner })
    }

    /// Returns how old the totals are: the time since the aggregator wrote last, by the clocks of both. `None` if it never did.
    pub fn staleness(&self) -> Option<Duration> {
        let written_at = Timestamp::from_nanos(self.inner.totals().written_at?);
        Some(self.inner.clock.now().saturating_since(written_at))
    }

    /// Returns the changes of this node that are not in the totals yet.
    pub fn untold(&self) -> usize {
        self.inner.totals().own.values().map(Vec::len).sum()
    }
}

impl Inner {
    fn totals(&self) -> MutexGuard<'_, Totals> {
        self.totals.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    fn change(&self, rule: &AnyRule, at: Timestamp, charged: u64, actual: u64) -> Change {
        Change {
            rule: rule.to_string(),
            node: self.node,
            number: self.number(),
            at: at.as_nanos(),
            charged,
            actual,
            is_reset: false,
        }
    }

    /// Writes changes to the topic, and notes them.
    async fn produce(&self, changes: &[(String, Change)]) -> Result<(), Error> {
        let messages = changes.iter().map(|(_, change)| serde_json::to_vec(change));
        let messages: Vec<_> = messages.collect::<Result<_, _>>().map_err(Error::other)?;
        let sent = changes.iter().zip(&messages).map(|((key, _), message)| {
            let record = FutureRecord::<str, [u8]>::to(&self.settings.topic);
            let record = record.key(key).payload(message);
            self.producer.send(record, self.settings.timeout)
        });
        for sent in sent.collect::<Vec<_>>() {
            sent.await.map_err(|(error, _)| Error::unavailable(error))?;
        }
        let mut totals = self.totals();
        for (key, change) in changes {
            totals.note(key, change);
        }
        Ok(())
    }
}

/// Reads totals until the node is gone.
async fn read_on(inner: Weak<Inner>, consumer: StreamConsumer) {
    /// Looks this often if the node is still there.
    const LOOK_EVERY: Duration = Duration::from_millis(200);
    while let Some(inner) = inner.upgrade() {
        let message = tokio::time::timeout(LOOK_EVERY, consumer.recv()).await;
        if let Ok(Ok(message)) = message
            && let Some(key) = message.key().and_then(|key| std::str::from_utf8(key).ok())
        {
            inner.totals().read(key, total(message.payload()));
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
    type Error = Error;

    fn address(&self) -> Option<&str> {
        Some(&self.inner.settings.brokers)
    }
}

impl Store<AnyRule> for Kafka {
    type Answer = BoxFuture<Result<Decisions, Error>>;
    type Done = BoxFuture<Result<(), Error>>;

    fn acquire(&self, asks: &[Ask<'_, AnyRule>]) -> Check<Self::Answer> {
        let (inner, now) = (Arc::clone(&self.inner), self.inner.clock.now());
        let mut states: HashMap<String, Option<State>> = HashMap::new();
        let mut changes = Vec::new();
        let decide = |ask: &Ask<'_, AnyRule>| -> Decision {
            let own = ask.rule_for_key();
            let (rule, key) = (own.as_ref().unwrap_or(ask.rule()), name(&ask.state_key()));
            let known = states.entry(key.clone());
            let state = known.or_insert_with(|| inner.totals().state(&key));
            let decision = rule.step(state, now, ask.cost()).decision();
            changes.push((key, inner.change(rule, now, 0, ask.cost().get())));
            ask.charged(decision)
        };
        let decisions: Vec<Decision> = asks.iter().map(decide).collect();
        if !decisions.iter().all(Decision::is_admitted) {
            let looks = self.looks(asks, now);
            let decided = decisions.into_iter().zip(looks);
            let decided = decided.map(|(decision, look)| match decision.is_admitted() {
                true => look,
                false => decision,
            });
            return Check::Ready(Ok(decided.collect()));
        }
        Check::Pending(Box::pin(async move {
            inner.produce(&changes).await?;
            Ok(decisions.into_iter().collect())
        }))
    }

    fn look(&self, asks: &[Ask<'_, AnyRule>]) -> Check<Self::Answer> {
        let looks = self.looks(asks, self.inner.clock.now());
        Check::Ready(Ok(looks.into_iter().collect()))
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
        Check::Pending(Box::pin(async move { inner.produce(&changes).await }))
    }

    fn reset(&self, policy: &Policy, key: &Key) -> Check<Self::Done> {
        let inner = Arc::clone(&self.inner);
        let prefix = format!("{}/{:016x}/", policy.name(), key.digest());
        let changes: Vec<_> = {
            let totals = inner.totals();
            let known = totals.of_keys.keys().chain(totals.own.keys());
            let named = known.filter(|name| name.starts_with(&prefix));
            let names: std::collections::BTreeSet<_> = named.cloned().collect();
            names
                .into_iter()
                .map(|name| {
                    let change = Change {
                        rule: String::new(),
                        node: inner.node,
                        number: inner.number(),
                        at: inner.clock.now().as_nanos(),
                        charged: 0,
                        actual: 0,
                        is_reset: true,
                    };
                    (name, change)
                })
                .collect()
        };
        Check::Pending(Box::pin(async move { inner.produce(&changes).await }))
    }

    /// Produces the deltas, and returns the last totals with what this node has told since.
    fn sync(&self, deltas: &[Delta<'_, AnyRule>]) -> Option<SyncFuture<AnyRule, Error>> {
        let (inner, now) = (Arc::clone(&self.inner), self.inner.clock.now());
        let named = deltas.iter().map(|delta| name(&delta.state_key()));
        let names: Vec<_> = named.collect();
        let told = deltas
            .iter()
            .zip(&names)
            .filter(|(delta, _)| delta.units() > 0);
        let changes: Vec<_> = told
            .map(|(delta, name)| {
                let own = delta.rule_for_key();
                let change = Change {
                    rule: own.as_ref().unwrap_or(delta.rule()).to_string(),
                    node: delta.batch().node,
                    number: delta.batch().number,
                    at: delta.at(now).as_nanos(),
                    charged: 0,
                    actual: delta.units(),
                    is_reset: false,
                };
                (name.clone(), change)
            })
            .collect();
        Some(Box::pin(async move {
            inner.produce(&changes).await?;
            let (totals, at) = (inner.totals(), inner.clock.now());
            let pulled = names.iter().map(|name| {
                Ok(Pulled {
                    at,
                    state: totals.state(name),
                })
            });
            Ok(pulled.collect())
        }))
    }
}

impl Kafka {
    fn looks(&self, asks: &[Ask<'_, AnyRule>], now: Timestamp) -> Vec<Decision> {
        let totals = self.inner.totals();
        let look = |ask: &Ask<'_, AnyRule>| {
            let own = ask.rule_for_key();
            let rule = own.as_ref().unwrap_or(ask.rule());
            rule.look(totals.state(&name(&ask.state_key())).as_ref(), now)
        };
        asks.iter().map(look).collect()
    }
}
