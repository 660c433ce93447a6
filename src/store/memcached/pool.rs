//! Some connections to one server, each made anew after it has failed.

use std::{
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{net::TcpStream, time::timeout};

use super::{
    answer::Answer,
    command::Commands,
    driver,
    greeting::greet,
    link::{Answers, Failure, Link},
};
use crate::store::{Error, attempts::Attempts};

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

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port } = self;
        if host.contains(':') {
            write!(f, "[{host}]:{port}")
        } else {
            write!(f, "{host}:{port}")
        }
    }
}

/// The server, and how long it may take.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) address: Address,
    pub(super) response_timeout: Duration,
}

pub(super) struct Pool {
    server: Arc<Server>,
    /// Where it is, in words.
    pub(super) address: Box<str>,
    slots: Vec<Arc<Slot>>,
    next: AtomicUsize,
    /// Values that were no numbers, and were removed.
    pub(super) healed: AtomicU64,
}

/// The place of one connection.
struct Slot {
    server: Arc<Server>,
    current: Mutex<Option<Arc<Link>>>,
    attempts: Attempts,
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("address", &self.server.address)
            .field("connections", &self.slots.len())
            .finish_non_exhaustive()
    }
}

impl Pool {
    /// Whose connections are made with the first calls.
    pub(super) fn new(server: Server, connections: usize) -> Self {
        let server = Arc::new(server);
        let slot = || Slot {
            server: Arc::clone(&server),
            current: Mutex::default(),
            attempts: Attempts::default(),
        };
        let slots = (0..connections.max(1)).map(|_| Arc::new(slot())).collect();
        Self {
            address: server.address.to_string().into(),
            server,
            slots,
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
            None => Box::pin(slot.connect()).await?,
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
        let largest = self.link().await?.1.largest;
        if needed <= largest {
            return Ok(());
        }
        // Without the number of bytes: the same text for all keys, which is logged once.
        Err(Error::unsupported(format!(
            "the state of this key does not fit into an item of the memcached server: expected at most its `item_size_max` of \
             {largest} bytes, of which {BESIDE} are kept free; start it with a larger -I, or take a rule whose states are small"
        )))
    }
}

impl Server {
    async fn connect(&self) -> Result<Link, Error> {
        static NUMBERS: AtomicU64 = AtomicU64::new(0);
        let Address { host, port } = &self.address;
        let connecting = async {
            let stream = TcpStream::connect((host.as_str(), *port)).await;
            let stream = stream.map_err(|error| {
                Error::unavailable(format!(
                    "{error}: expected memcached at {host}:{port}; see that it runs there, and can be reached from here"
                ))
            })?;
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
    fn current(&self) -> MutexGuard<'_, Option<Arc<Link>>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open(&self) -> Option<Arc<Link>> {
        self.current().clone().filter(|link| !link.is_closed())
    }

    /// Connects; made by whoever finds no connection.
    async fn connect(self: &Arc<Self>) -> Result<Arc<Link>, Error> {
        let slot = Arc::clone(self);
        let made = async move {
            let link = Arc::new(slot.server.connect().await?);
            *slot.current() = Some(Arc::clone(&link));
            Ok(link)
        };
        self.attempts.get_or_init(|| self.open(), made).await
    }
}

/// Whether there are servers that do not take a value of that size.
pub(super) fn is_large(value: &[u8]) -> bool {
    value.len() as u64 + BESIDE > SMALLEST
}

/// The error that an unexpected answer is.
pub(super) fn unexpected(answer: Option<&Answer>) -> Error {
    let Some(Answer::Error(line)) = answer else {
        return Error::other(format!(
            "memcached answered {answer:?}: expected an answer to the command that was sent; see that a memcached of \
             version 1.6 or later listens at that port"
        ));
    };
    let help = if line.starts_with(driver::TOO_LARGE) {
        return Error::unsupported(format!(
            "memcached answered {line:?}: expected a state that fits into an item; start it with a larger -I, or take a rule whose \
             states are small"
        ));
    } else if driver::is_no_memory(line) {
        "; give it more memory (-m), or let it evict (without -M)"
    } else if line.starts_with("ERROR Too many open connections") {
        return Error::unavailable(format!(
            "memcached answered {line:?}: expected room for one more connection; let it take more (-c)"
        ));
    } else {
        "; see that a memcached of version 1.6 or later listens at that port"
    };
    Error::other(format!(
        "memcached answered {line:?} where no error was expected{help}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the server says of one value does not concern the others.
    #[test]
    fn only_a_value_that_is_too_large_concerns_its_key_alone() {
        for (line, is_unsupported) in [
            ("SERVER_ERROR object too large for cache", true),
            ("SERVER_ERROR out of memory storing object", false),
            ("ERROR Too many open connections", false),
            ("CLIENT_ERROR bad data chunk", false),
        ] {
            let error = unexpected(Some(&Answer::Error(line.to_owned())));
            assert_eq!(error.is_unsupported(), is_unsupported, "{line}");
            assert!(error.to_string().contains(line), "{error}");
        }
        assert!(!unexpected(None).is_unsupported());
    }
}
