//! The same requests to both versions of a program, beside an oracle.
//!
//! tower_governor reads a clock of its own, so time is real. Requests are sent in steps, one and a
//! half periods apart. A step that takes almost half a period makes the round worthless: it begins
//! again with new servers. Periods are of seconds, so that only a very busy machine is too slow. The
//! oracle allows each request the whole of that time, so what it expects does not depend on the
//! machine.

use std::{
    collections::{BTreeMap, HashMap},
    io,
    net::SocketAddr,
    ops::RangeInclusive,
    pin::Pin,
    time::Duration,
};

use http::Method;
use tokio::{net::TcpListener, task::JoinHandle, time::Instant};

use crate::axum::{Answer, Caller, bind};

/// The rounds that may be too slow.
const ROUNDS: usize = 8;

/// A limit as the programs state it.
#[derive(Clone, Copy)]
pub(super) struct Limit {
    pub(super) period: Duration,
    pub(super) burst: u32,
}

impl Limit {
    /// The longest time that a step may take, with its delay.
    fn slack(self) -> Duration {
        self.period * 19 / 40
    }
}

/// A client and its requests.
#[derive(Clone)]
pub(super) struct Visitor {
    /// Its address on the loopback network.
    pub(super) at: [u8; 4],
    pub(super) method: Method,
    pub(super) path: &'static str,
    pub(super) headers: Vec<(&'static str, &'static str)>,
    /// What both versions limit it by.
    pub(super) key: String,
}

impl Visitor {
    /// A client that is limited by its address.
    pub(super) fn at(at: [u8; 4]) -> Self {
        Self {
            at,
            method: Method::GET,
            path: "/",
            headers: Vec::new(),
            key: std::net::Ipv4Addr::from(at).to_string(),
        }
    }

    pub(super) fn limited_by(self, key: &str) -> Self {
        let key = key.to_owned();
        Self { key, ..self }
    }
}

type Serving = Pin<Box<dyn Future<Output = io::Result<()>> + Send>>;
type Serve = Box<dyn FnOnce(TcpListener) -> Serving>;

fn boxed<F: Future<Output = io::Result<()>> + Send + 'static>(
    serve: fn(TcpListener) -> F,
) -> Serve {
    Box::new(move |listener| Box::pin(serve(listener)))
}

/// Both versions of a program, before they run.
pub(super) struct Servers([Serve; 2]);

impl Servers {
    pub(super) fn start<B, A>(before: fn(TcpListener) -> B, after: fn(TcpListener) -> A) -> Self
    where
        B: Future<Output = io::Result<()>> + Send + 'static,
        A: Future<Output = io::Result<()>> + Send + 'static,
    {
        Self([boxed(before), boxed(after)])
    }

    pub(super) async fn run(self) -> Running {
        let [before, after] = self.0;
        Running([spawn(before).await, spawn(after).await])
    }
}

async fn spawn(serve: Serve) -> (SocketAddr, JoinHandle<io::Result<()>>) {
    let (listener, address) = bind().await;
    (address, tokio::spawn(serve(listener)))
}

/// Both versions of a program, until this is dropped.
pub(super) struct Running([(SocketAddr, JoinHandle<io::Result<()>>); 2]);

impl Running {
    pub(super) fn addresses(&self) -> [SocketAddr; 2] {
        [self.0[0].0, self.0[1].0]
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        for (_, server) in &self.0 {
            server.abort();
        }
    }
}

/// The answers of both versions.
pub(super) type Answers = [Answer; 2];

/// A round that says nothing, because the machine was busy.
#[derive(Debug)]
pub(super) struct TooSlow;

/// The oracle's state of a key: its bucket was full at a request of a step, and is full again these
/// many periods after that request.
#[derive(Clone, Copy)]
struct Bucket {
    step: Duration,
    periods: u32,
}

pub(super) struct Round {
    limit: Limit,
    servers: Running,
    callers: HashMap<[u8; 4], [Caller; 2]>,
    began: Instant,
    /// The instant of the current step in the schedule.
    step: Duration,
    buckets: HashMap<String, Bucket>,
    admitted: BTreeMap<String, usize>,
}

/// Plays a script until a round of it is not too slow.
pub(super) async fn compare(
    limit: Limit,
    servers: fn() -> Servers,
    script: impl AsyncFn(&mut Round) -> Result<(), TooSlow>,
) {
    for _ in 0..ROUNDS {
        let mut round = Round {
            limit,
            servers: servers().run().await,
            callers: HashMap::new(),
            began: Instant::now(),
            step: Duration::ZERO,
            buckets: HashMap::new(),
            admitted: BTreeMap::new(),
        };
        if let Ok(()) = script(&mut round).await {
            return;
        }
    }
    panic!("each of {ROUNDS} rounds was too slow: the machine is too busy");
}

impl Round {
    /// Waits for the next step.
    pub(super) async fn next_step(&mut self) -> Result<(), TooSlow> {
        self.step += self.limit.period * 3 / 2;
        tokio::time::sleep_until(self.began + self.step).await;
        self.in_time()
    }

    fn in_time(&self) -> Result<(), TooSlow> {
        match self.began.elapsed() <= self.step + self.limit.slack() {
            true => Ok(()),
            false => Err(TooSlow),
        }
    }

    /// Sends requests one after the other, each to both versions, which admit those that the oracle
    /// admits.
    pub(super) async fn send(
        &mut self,
        visitor: &Visitor,
        count: usize,
    ) -> Result<Vec<Answers>, TooSlow> {
        let mut all = Vec::new();
        for number in 0..count {
            let answers = self.ask(visitor).await?;
            let expected = self.decide(&visitor.key);
            for (answer, version) in answers.iter().zip(["before", "after"]) {
                let what = format!(
                    "{version}: request {number} of {} at {:?}",
                    visitor.key, self.step
                );
                match &expected {
                    Ok(()) => assert_eq!(answer.status, 200, "{what}"),
                    Err(wait) => {
                        assert_eq!(answer.status, 429, "{what}");
                        assert_retry_after(answer, version, wait);
                    }
                }
            }
            all.push(answers);
        }
        Ok(all)
    }

    /// Sends requests that no limit applies to.
    pub(super) async fn send_free(
        &mut self,
        visitor: &Visitor,
        count: usize,
    ) -> Result<Vec<Answers>, TooSlow> {
        let mut all = Vec::new();
        for _ in 0..count {
            let answers = self.ask(visitor).await?;
            assert_eq!(answers.each_ref().map(|answer| answer.status), [200, 200]);
            all.push(answers);
        }
        Ok(all)
    }

    async fn ask(&mut self, visitor: &Visitor) -> Result<Answers, TooSlow> {
        let addresses = self.servers.addresses();
        let callers = self.callers.entry(visitor.at);
        let callers =
            callers.or_insert_with(|| addresses.map(|server| Caller::at(visitor.at, server)));
        let mut answers = Vec::new();
        for caller in callers {
            let answer = caller.call(visitor.method.clone(), visitor.path, &visitor.headers);
            answers.push(answer.await);
        }
        self.in_time()?;
        Ok(answers.try_into().expect("two versions"))
    }

    /// Returns the oracle's decision on a request of this step, or the bounds of its wait.
    ///
    /// A bucket lacks one request for each period until it is full. A request passes if the bucket
    /// lacks less than the burst.
    fn decide(&mut self, key: &str) -> Result<(), RangeInclusive<Duration>> {
        let Limit { period, burst } = self.limit;
        let step = self.step;
        // The clocks of both versions run apart by much less.
        let slack = self.limit.slack() + Duration::from_millis(5);
        let bucket = self.buckets.entry(key.to_owned());
        let bucket = bucket.or_insert(Bucket { step, periods: 0 });
        // The time since the request that found the bucket full. Those of one step are in order.
        let since = step - bucket.step;
        let since = match since.is_zero() {
            true => Duration::ZERO..=slack,
            false => since - slack..=since + slack,
        };
        let too_close = format!("the script asks for {key} at {step:?}, too close to a change");
        if period * bucket.periods <= *since.start() {
            *bucket = Bucket { step, periods: 0 };
        } else {
            assert!(period * bucket.periods > *since.end(), "{too_close}");
        }
        let passes_after = period * (bucket.periods + 1).saturating_sub(burst);
        if passes_after > *since.end() {
            return Err(passes_after - *since.end()..=passes_after - *since.start());
        }
        assert!(passes_after <= *since.start(), "{too_close}");
        bucket.periods += 1;
        *self.admitted.entry(key.to_owned()).or_default() += 1;
        Ok(())
    }

    /// Returns how many requests of each key were admitted, by both versions.
    pub(super) fn admitted(&self) -> Vec<(&str, usize)> {
        let admitted = self.admitted.iter();
        admitted.map(|(key, count)| (&**key, *count)).collect()
    }
}

/// `Retry-After` was rounded down, so that a client that obeys it may be refused again. Now it is
/// rounded up.
fn assert_retry_after(answer: &Answer, version: &str, wait: &RangeInclusive<Duration>) {
    let down = wait.start().as_secs()..=wait.end().as_secs();
    let up = |wait: &Duration| wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
    let up = up(wait.start()).max(1)..=up(wait.end()).max(1);
    let expected = if version == "before" { down } else { up };
    let seconds = answer.header("retry-after").expect("a wait");
    let seconds: u64 = seconds.parse().expect("whole seconds");
    assert!(
        expected.contains(&seconds),
        "{version}: {seconds} s of {wait:?}"
    );
}
