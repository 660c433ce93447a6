//! A subscriber that writes down events and spans.

use std::{
    collections::BTreeMap,
    fmt, mem,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use tracing::{
    Event, Level, Metadata, Subscriber,
    field::{Field, Visit},
    span,
    subscriber::DefaultGuard,
};

/// One event or span, by the names of its fields; its level is `level`.
pub(crate) type Fields = BTreeMap<String, String>;

/// Records what the crate does up to a level.
#[derive(Clone)]
pub(crate) struct Trace {
    level: Level,
    records: Arc<Mutex<Records>>,
    spans: Arc<AtomicU64>,
}

#[derive(Default)]
pub(crate) struct Records {
    /// Events.
    pub(crate) events: Vec<Fields>,
    /// New spans.
    pub(crate) spans: Vec<Fields>,
    /// `new`, `enter`, `exit` and `close` of spans, with the number of the span from 1 on, and
    /// messages of events of the test.
    pub(crate) steps: Vec<String>,
}

struct Reader(Fields);

impl Visit for Reader {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name().to_owned(), value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.insert(field.name().to_owned(), format!("{value:?}"));
    }
}

impl Trace {
    /// Records what this thread does until the guard is dropped.
    pub(crate) fn start(level: Level) -> (Self, DefaultGuard) {
        let trace = Self {
            level,
            records: Arc::default(),
            spans: Arc::default(),
        };
        let guard = tracing::subscriber::set_default(trace.clone());
        (trace, guard)
    }

    pub(crate) fn take(&self) -> Records {
        mem::take(&mut self.records.lock().unwrap())
    }

    fn step(&self, step: &str, span: u64) {
        let step = format!("{step} {span}");
        self.records.lock().unwrap().steps.push(step);
    }
}

impl Subscriber for Trace {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        let target = metadata.target();
        let known = target.starts_with("tollgate") || target.starts_with("observe");
        known && *metadata.level() <= self.level
    }

    fn new_span(&self, attributes: &span::Attributes<'_>) -> span::Id {
        let number = self.spans.fetch_add(1, Ordering::Relaxed) + 1;
        let mut reader = Reader(Fields::new());
        attributes.record(&mut reader);
        let metadata = attributes.metadata();
        reader
            .0
            .insert("name".to_owned(), metadata.name().to_owned());
        reader
            .0
            .insert("level".to_owned(), metadata.level().to_string());
        self.records.lock().unwrap().spans.push(reader.0);
        self.step("new", number);
        span::Id::from_u64(number)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut reader = Reader(Fields::new());
        event.record(&mut reader);
        let metadata = event.metadata();
        let mut records = self.records.lock().unwrap();
        if metadata.target().starts_with("observe") {
            records.steps.push(reader.0["message"].clone());
            return;
        }
        reader
            .0
            .insert("level".to_owned(), metadata.level().to_string());
        records.events.push(reader.0);
    }

    fn enter(&self, span: &span::Id) {
        self.step("enter", span.into_u64());
    }

    fn exit(&self, span: &span::Id) {
        self.step("exit", span.into_u64());
    }

    fn try_close(&self, span: span::Id) -> bool {
        self.step("close", span.into_u64());
        true
    }
}
