//! Counts of the connections of a listener, and their log.

#[cfg(feature = "tracing")]
use std::sync::Mutex;
use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use crate::stats::stats;
#[cfg(feature = "tracing")]
use crate::{
    locks::lock,
    log::OnceAMinute,
    time::{Clock, SystemClock},
};

stats! {
    /// The counts of the connections of a [`Guarded`](super::Guarded) listener since it was built.
    ///
    /// ```
    /// use tollgate::listen::ConnectionStats;
    ///
    /// /// Returns `true` if clients were turned away.
    /// fn was_full(stats: &ConnectionStats) -> bool {
    ///     stats.refused_at_most + stats.refused_per_client > 0
    /// }
    /// # assert!(!was_full(&ConnectionStats::default()));
    /// ```
    pub struct ConnectionStats {
        counted {
            /// Connections that were handed to the server.
            accepted = "tollgate_connections_accepted_total",
            /// Connections that were closed because as many as allowed were open.
            refused_at_most = "tollgate_connections_refused_total"["reason" = "at_most"],
            /// Connections that were closed because their client had as many as allowed.
            refused_per_client = "tollgate_connections_refused_total"["reason" = "per_client"],
            /// Connections that were closed because a limit of new ones, or a block, refused their
            /// client.
            refused_accept = "tollgate_connections_refused_total"["reason" = "accept"],
            /// Connections of a trusted network that began without a header of the PROXY protocol.
            closed_proxy_header = "tollgate_connections_closed_total"["reason" = "proxy_header"],
            /// Connections whose handshake failed, or whose handshake or limit panicked.
            closed_handshake = "tollgate_connections_closed_total"["reason" = "handshake"],
            /// Connections without a request in time: the handshake, or the first head, was late.
            closed_head_late = "tollgate_connections_closed_total"["reason" = "head_late"],
            /// Connections whose first head was too long.
            closed_head_long = "tollgate_connections_closed_total"["reason" = "head_long"],
            /// Connections on which nothing was sent or received for too long.
            closed_idle = "tollgate_connections_closed_total"["reason" = "idle"],
            /// Connections that ended before a request, without a limit: their clients went away,
            /// or the server closed them.
            ended_early = "tollgate_connections_closed_total"["reason" = "early"],
            /// Attempts to accept a connection that failed.
            accept_errors = "tollgate_accept_errors_total",
        }
        given {
            /// Connections that are open, with those whose handshake goes on.
            open: usize = "tollgate_connections_open",
        }
    }
    struct ConnectionCounters;
}

/// The reason why a connection was closed, or not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    AtMost,
    PerClient,
    Accept,
    ProxyHeader,
    Handshake,
    HeadLate,
    HeadLong,
    Idle,
    /// The system could not accept one.
    System,
}

impl Reason {
    #[cfg(feature = "tracing")]
    const COUNT: usize = Self::System as usize + 1;
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::AtMost => "a connection was closed: as many as `at_most` allows were open",
            Self::PerClient => {
                "a connection was closed: its client had as many as `per_client` allows"
            }
            Self::Accept => "a connection was closed: a limit of new ones, or a block, refused its client",
            Self::ProxyHeader => {
                "a connection was closed: it came from a trusted network, and began without a header of the PROXY protocol"
            }
            Self::Handshake => "a connection was closed: its handshake, or a limit, failed",
            Self::HeadLate => {
                "a connection was closed: its first request was not complete within `head_within`"
            }
            Self::HeadLong => {
                "a connection was closed: the head of its first request was longer than `head_at_most`"
            }
            Self::Idle => {
                "a connection was closed: no byte was sent or received within `idle_for`"
            }
            Self::System => "no connection could be accepted",
        })
    }
}

/// The counts of a listener, for as long as the program needs them. A clone is cheap.
///
/// ```
/// use tollgate::listen::Guarded;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let listener = Guarded::new(tokio::net::TcpListener::bind("127.0.0.1:0").await?).at_most(100);
/// let connections = listener.connections();
/// let listener = listener.build()?;
/// // Later, such as when metrics are scraped:
/// assert_eq!(connections.stats().open, 0);
/// # drop(listener);
/// # Ok(()) }
/// ```
///
/// With the feature `metrics`, it is published by [`Publish`](crate::observe::Publish).
#[derive(Clone, Debug, Default)]
pub struct Connections(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    counters: ConnectionCounters,
    open: AtomicUsize,
    #[cfg(feature = "tracing")]
    log: Mutex<[OnceAMinute; Reason::COUNT]>,
}

impl Connections {
    /// Returns the counts.
    pub fn stats(&self) -> ConnectionStats {
        self.0.counters.read(self.0.open.load(Ordering::Relaxed))
    }

    /// Counts a connection as open, unless `at_most` are.
    pub(super) fn open(&self, at_most: usize) -> Option<Open> {
        // Relaxed: the count orders nothing, and one operation is exact by itself. It is never
        // above the limit, also for those that read it meanwhile.
        let more = |open: usize| (open < at_most).then_some(open + 1);
        let open = &self.0.open;
        open.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more)
            .ok()?;
        Some(Open(self.clone()))
    }

    pub(super) fn ended_early(&self) {
        self.0.counters.ended_early.add(1);
    }

    pub(super) fn accepted(&self) {
        self.0.counters.accepted.add(1);
    }

    /// Counts a connection that was closed, and logs it once a minute for each reason. `cause` is
    /// what the system said, if it did.
    pub(super) fn closed(&self, reason: Reason, cause: Option<&dyn fmt::Display>) {
        let counters = &self.0.counters;
        let counter = match reason {
            Reason::AtMost => &counters.refused_at_most,
            Reason::PerClient => &counters.refused_per_client,
            Reason::Accept => &counters.refused_accept,
            Reason::ProxyHeader => &counters.closed_proxy_header,
            Reason::Handshake => &counters.closed_handshake,
            Reason::HeadLate => &counters.closed_head_late,
            Reason::HeadLong => &counters.closed_head_long,
            Reason::Idle => &counters.closed_idle,
            Reason::System => &counters.accept_errors,
        };
        let count = counter.increment();
        #[cfg(feature = "tracing")]
        self.log(reason, cause, count);
        #[cfg(not(feature = "tracing"))]
        let _ = (count, cause);
    }

    #[cfg(feature = "tracing")]
    fn log(&self, reason: Reason, cause: Option<&dyn fmt::Display>, count: u64) {
        let mut log = lock(&self.0.log);
        let unlogged = log[reason as usize].record(SystemClock::default().now());
        // A subscriber may be slow.
        drop(log);
        if let Some(unlogged) = unlogged {
            let cause = cause.map(tracing::field::display);
            tracing::warn!(
                cause,
                count,
                unlogged,
                "{reason} (logged once a minute for each reason; `count` counts all)"
            );
        }
    }
}

/// A connection that counts as open until this is dropped.
#[derive(Debug)]
pub(super) struct Open(Connections);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}
