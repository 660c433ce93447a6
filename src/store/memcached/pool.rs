//! Some connections to one server, each made anew after it has failed.

use std::{
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{net::TcpStream, runtime::Handle, time::timeout};

use super::{
    answer::Answer,
    command::Commands,
    driver,
    greeting::greet,
    link::{Answers, Failure, Link},
};
use crate::store::Error;

/// What an item takes besides its value, in bytes, at most: its head, its name, and what its chunks have.
const BESIDE: u64 = 512;
/// The least that a server can be told to take (`-I`).
const SMALLEST: u64 = 1024;

/// Where the server is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) host: String,
    pub(super) port: u16,
}

pub(super) struct Pool {
    pub(super) address: Address,
    pub(super) response_timeout: Duration,
    slots: Vec<Slot>,
    next: AtomicUsize,
    /// Values that were no numbers, and were removed.
    pub(super) healed: AtomicU64,
}

/// The place of one connection.
#[derive(Default)]
struct Slot {
    current: Mutex<Option<Arc<Link>>>,
    /// Held by whoever connects; why the last attempt failed.
    connecting: tokio::sync::Mutex<Option<Error>>,
    /// How many attempts have failed.
    failures: AtomicU64,
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("address", &self.address)
            .field("connections", &self.slots.len())
            .finish_non_exhaustive()
    }
}

impl Pool {
    pub(super) fn new(address: Address, response_timeout: Duration, connections: usize) -> Self {
        Self {
            address,
            response_timeout,
            slots: (0..connections.max(1)).map(|_| Slot::default()).collect(),
            next: AtomicUsize::new(0),
            healed: AtomicU64::new(0),
        }
    }

    /// The next connection in turn; made if there is none.
    pub(super) async fn link(&self) -> Result<(usize, Arc<Link>), Error> {
        let number = self.next.fetch_add(1, Ordering::Relaxed) % self.slots.len();
        let slot = &self.slots[number];
        let link = match slot.open() {
            Some(link) => link,
            // Boxed, as it is rare and large: every call would carry it otherwise.
            None => Box::pin(slot.connect(self)).await?,
        };
        Ok((number, link))
    }

    /// The connection of a slot if it is still the one of that number.
    pub(super) fn same(&self, slot: usize, number: u64) -> Option<Arc<Link>> {
        let link = self.slots.get(slot)?.open();
        link.filter(|link| link.number == number)
    }

    /// Sends commands over any connection. One that the server had closed while nobody used it is no failure.
    pub(super) async fn ask(
        &self,
        write: impl Fn(&mut Commands<'_>),
    ) -> Result<(usize, Arc<Link>, Answers), Error> {
        let mut is_first = true;
        loop {
            let (slot, link) = self.link().await?;
            match link.ask(&write).await {
                Ok(answers) => return Ok((slot, link, answers)),
                Err(Failure::NotSent) if is_first => is_first = false,
                Err(failure) => return Err(failure.into()),
            }
        }
    }

    /// # Errors
    ///
    /// When a value is larger than an item may be. The server would not only refuse it, but remove what is there, even
    /// where the swap is lost.
    pub(super) async fn fits(&self, value: &[u8]) -> Result<(), Error> {
        let needed = value.len() as u64 + BESIDE;
        if needed <= self.link().await?.1.largest {
            return Ok(());
        }
        Err(Error::other(format!(
            "the state of this key takes {needed} bytes, more than an item of the memcached server may have: start it with a \
             larger -I, or take a rule whose states are small"
        )))
    }

    async fn connect(&self) -> Result<Link, Error> {
        static NUMBERS: AtomicU64 = AtomicU64::new(0);
        Handle::try_current().map_err(Error::other)?;
        let Address { host, port } = &self.address;
        let connecting = async {
            let stream = TcpStream::connect((host.as_str(), *port)).await;
            let stream = stream.map_err(Error::unavailable)?;
            // What goes out together is put together here.
            stream.set_nodelay(true).map_err(Error::unavailable)?;
            let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
            greet(Link::new(stream, number, self.response_timeout)).await
        };
        let connected = timeout(self.response_timeout, connecting).await;
        connected.unwrap_or_else(|_| Err(Error::timeout()))
    }
}

impl Slot {
    fn open(&self) -> Option<Arc<Link>> {
        let current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        current.clone().filter(|link| !link.is_closed())
    }

    /// Connects; made by whoever finds no connection. Who waited while somebody else's attempt failed has tried as well:
    /// a thousand callers do not wait for a thousand attempts in a row.
    async fn connect(&self, pool: &Pool) -> Result<Arc<Link>, Error> {
        let failures = self.failures.load(Ordering::Acquire);
        let mut last = self.connecting.lock().await;
        if let Some(link) = self.open() {
            return Ok(link);
        }
        if let Some(failure) = &*last {
            if self.failures.load(Ordering::Acquire) != failures {
                return Err(failure.again());
            }
        }
        match pool.connect().await {
            Ok(link) => {
                let link = Arc::new(link);
                let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
                *current = Some(Arc::clone(&link));
                Ok(link)
            }
            Err(error) => {
                *last = Some(error.again());
                self.failures.fetch_add(1, Ordering::Release);
                Err(error)
            }
        }
    }
}

/// Whether there are servers that do not take a value of that size.
pub(super) fn is_large(value: &[u8]) -> bool {
    value.len() as u64 + BESIDE > SMALLEST
}

/// The error that an unexpected answer is.
pub(super) fn unexpected(answer: Option<&Answer>) -> Error {
    let Some(Answer::Error(line)) = answer else {
        return Error::other(format!("memcached answered what was not asked: {answer:?}"));
    };
    let help = if line.starts_with(driver::TOO_LARGE) {
        "; start it with a larger -I, or take a rule whose states are small"
    } else if driver::is_no_memory(line) {
        "; give it more memory (-m), or let it evict (without -M)"
    } else if line.starts_with("ERROR Too many open connections") {
        return Error::unavailable(format!(
            "memcached answered {line:?}; let it take more (-c)"
        ));
    } else {
        ""
    };
    Error::other(format!("memcached answered {line:?}{help}"))
}
