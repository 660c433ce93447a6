//! Access logs under files of limits: each line is a request to the layer itself, whose answer is
//! the one that was logged.

use std::{
    collections::HashMap,
    convert::Infallible,
    fs,
    io::{self, BufWriter, Write},
    path::Path,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use foldhash::fast::RandomState;
use http::{Request, Response, StatusCode};
use tokio::runtime::Runtime;
use tollgate::{
    AnyRule, Timestamp,
    config::RouteLimits,
    key::{Key, MissingKey},
    observe::{Event, Observer},
    store::{Local, LocalBuilder},
    time::Clock,
};
use tower::{Layer, Service, ServiceExt, util::BoxCloneSyncService};

use crate::{
    Stop,
    access_log::Entry,
    args::FileArgs,
    input::{Input, lines_of},
    numbers::{Grouped, Share},
    report::columns,
    request::{name_of, request_of},
};

/// Replays access logs under one file of limits or two, and writes a report. Returns `true` if
/// every line was well formed.
pub(crate) fn run(args: FileArgs) -> Result<bool, Stop> {
    // Its time passes at once where a rule delays a request.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .map_err(|error| Stop::Because(format!("no runtime: {error}")))?;
    let mut players = vec![Player::new(&args.file)?];
    if let Some(other) = &args.compare {
        players.push(Player::new(other)?);
    }
    let input = Input::of(args.files, true)?;
    let (mut lines, mut malformed, mut refused_alone) = (0, 0, [0; 2]);
    for source in input.sources() {
        let read = lines_of(source?, |line| {
            let entry = Entry::parse(line)?;
            let refused: Vec<_> = players
                .iter_mut()
                .map(|player| player.play(&runtime, &entry))
                .collect();
            if let [one, other] = refused.as_slice() {
                refused_alone[0] += u64::from(*one && !other);
                refused_alone[1] += u64::from(*other && !one);
            }
            Ok(())
        })?;
        lines += read.lines;
        malformed += read.malformed;
    }
    input.finish();
    let mut out = BufWriter::new(io::stdout().lock());
    let report = FilesReport {
        players: &players,
        lines,
        malformed,
        refused_alone,
        top: args.top,
    };
    let written = report.write(&mut out).and_then(|()| out.flush());
    written.map_err(Stop::writing)?;
    Ok(malformed == 0)
}

/// The clock of the log. It does not go back for lines that are out of order.
#[derive(Clone, Default)]
struct LogClock(Arc<AtomicU64>);

impl Clock for LogClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_nanos(self.0.load(Ordering::Relaxed))
    }
}

/// The counts of a limit.
#[derive(Default)]
struct LimitCounts {
    refused: u64,
    would_refuse: u64,
    keys: HashMap<Key, u64, RandomState>,
}

/// The counts of what the layer reports.
#[derive(Clone, Default)]
struct Counts(Arc<Mutex<CountsOfAll>>);

#[derive(Default)]
struct CountsOfAll {
    limits: Vec<(String, LimitCounts)>,
    missing_key: u64,
}

impl Counts {
    fn of<T>(&self, change: impl FnOnce(&mut CountsOfAll) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn limit(&self, event: &Event<'_>, change: impl FnOnce(&mut LimitCounts)) {
        let name = event.policy().name();
        self.of(|counts| {
            let found = counts.limits.iter().position(|(other, _)| other == name);
            let index = found.unwrap_or_else(|| {
                counts
                    .limits
                    .push((name.to_owned(), LimitCounts::default()));
                counts.limits.len() - 1
            });
            change(&mut counts.limits[index].1);
        });
    }
}

impl Observer for Counts {
    fn refused(&self, event: &Event<'_>) {
        self.limit(event, |limit| {
            limit.refused += 1;
            *limit.keys.entry(*event.key()).or_default() += 1;
        });
    }

    fn dry_run(&self, event: &Event<'_>) {
        if !event.decision().is_admitted() {
            self.limit(event, |limit| {
                limit.would_refuse += 1;
                *limit.keys.entry(*event.key()).or_default() += 1;
            });
        }
    }

    fn missing_key(&self, _: &MissingKey) {
        self.of(|counts| counts.missing_key += 1);
    }
}

/// A file of limits, and its counts so far.
struct Player {
    name: String,
    limits: Vec<String>,
    clock: LogClock,
    service: BoxCloneSyncService<Request<()>, Response<String>, Infallible>,
    counts: Counts,
    requests: u64,
    refused: u64,
}

impl Player {
    fn new(path: &Path) -> Result<Self, Stop> {
        let name = path.display().to_string();
        let text = fs::read_to_string(path)
            .map_err(|error| format!("cannot read {name}: {error}; expected a file of limits"))?;
        let (clock, counts) = (LogClock::default(), Counts::default());
        let store: Local<AnyRule, _> = LocalBuilder::new().clock(clock.clone()).build();
        let limits: RouteLimits<(), _, _, String> = RouteLimits::builder()
            .store(store)
            .observe(counts.clone())
            .build(&text)
            .map_err(|problems| {
                let lines = problems.iter().map(|problem| format!("{name}:{problem}"));
                lines.collect::<Vec<_>>().join("\n")
            })?;
        let names = limits.file().limits().map(str::to_owned).collect();
        let inner = tower::service_fn(async |request: Request<()>| {
            let mut response = Response::new(String::new());
            if let Some(status) = request.extensions().get::<StatusCode>() {
                *response.status_mut() = *status;
            }
            Ok::<_, Infallible>(response)
        });
        Ok(Self {
            name,
            limits: names,
            clock,
            service: BoxCloneSyncService::new(limits.layer(inner)),
            counts,
            requests: 0,
            refused: 0,
        })
    }

    /// Decides a line. Returns `true` if it is refused.
    fn play(&mut self, runtime: &Runtime, entry: &Entry<'_>) -> bool {
        self.clock
            .0
            .fetch_max(entry.at.as_nanos(), Ordering::Relaxed);
        let before = self.refusals();
        let response = runtime.block_on(async {
            let service = self.service.ready().await?;
            service.call(request_of(entry)).await
        });
        // It cannot fail.
        drop(response);
        let is_refused = self.refusals() > before;
        self.requests += 1;
        self.refused += u64::from(is_refused);
        is_refused
    }

    fn refusals(&self) -> u64 {
        self.counts.of(|counts| {
            let refused = counts.limits.iter().map(|(_, limit)| limit.refused);
            refused.sum()
        })
    }
}

/// The data of a report.
struct FilesReport<'a> {
    players: &'a [Player],
    lines: u64,
    malformed: u64,
    /// Requests that one file refuses and the other does not.
    refused_alone: [u64; 2],
    /// The number of keys to list.
    top: usize,
}

impl FilesReport<'_> {
    fn write(&self, out: &mut impl Write) -> io::Result<()> {
        for (index, player) in self.players.iter().enumerate() {
            if index > 0 {
                writeln!(out)?;
            }
            writeln!(out, "{}\n", player.name)?;
            columns(out, "<>><", &self.totals(player, index))?;
            player.write_limits(out)?;
            player.write_keys(out, self.top)?;
        }
        Ok(())
    }

    fn totals(&self, player: &Player, index: usize) -> Vec<Vec<String>> {
        let row = |name: &str, count: u64, share: &str, note: &str| {
            let count = Grouped(count.into()).to_string();
            [name, &count, share, note].map(str::to_owned).to_vec()
        };
        let missing = player.counts.of(|counts| counts.missing_key);
        let admitted = player.requests - player.refused - missing;
        let share = |part| Share(part, player.requests).to_string();
        let mut rows = vec![
            row("lines", self.lines, "", ""),
            row("admitted", admitted, &share(admitted), ""),
            row("refused", player.refused, &share(player.refused), ""),
        ];
        if self.players.len() > 1 {
            let alone = self.refused_alone[index];
            rows.push(row("… not by the other", alone, &share(alone), ""));
        }
        if missing > 0 {
            rows.push(row(
                "without a key",
                missing,
                &share(missing),
                "refused, as on the server",
            ));
        }
        if self.malformed > 0 {
            rows.push(row("malformed", self.malformed, "", "skipped"));
        }
        rows
    }
}

impl Player {
    fn write_limits(&self, out: &mut impl Write) -> io::Result<()> {
        let head = ["limit", "refused", "on its dry run", "keys"].map(str::to_owned);
        let mut rows = vec![head.to_vec()];
        self.counts.of(|counts| {
            for name in &self.limits {
                let found = counts.limits.iter().find(|(other, _)| other == name);
                let counts = found.map_or([0; 3], |(_, limit)| {
                    [limit.refused, limit.would_refuse, limit.keys.len() as u64]
                });
                let cells = counts.map(|count| Grouped(count.into()).to_string());
                rows.push([name.clone()].into_iter().chain(cells).collect());
            }
        });
        writeln!(out)?;
        columns(out, "<>>>", &rows)
    }

    fn write_keys(&self, out: &mut impl Write, top: usize) -> io::Result<()> {
        let mut refused = self.counts.of(|counts| {
            let keys = counts.limits.iter().flat_map(|(name, limit)| {
                let keys = limit.keys.iter();
                keys.map(|(key, count)| (*count, name.clone(), name_of(*key)))
            });
            keys.collect::<Vec<_>>()
        });
        if refused.is_empty() {
            return Ok(());
        }
        refused.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| (&a.1, &a.2).cmp(&(&b.1, &b.2))));
        let all = refused.len();
        refused.truncate(top);
        let count = match refused.len() == all {
            true => Grouped(all as u128).to_string(),
            false => format!("{} of {}", refused.len(), Grouped(all as u128)),
        };
        writeln!(out, "\nWho would have been refused: {count}\n")?;
        let mut rows = vec![["refused", "limit", "key"].map(str::to_owned).to_vec()];
        for (count, limit, key) in refused {
            // A log contains what clients sent, so control characters are escaped.
            rows.push(vec![
                Grouped(count.into()).to_string(),
                limit,
                key.escape_debug().to_string(),
            ]);
        }
        columns(out, "><<", &rows)
    }
}
