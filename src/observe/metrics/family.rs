//! One name, and all time series of it.

use metrics::{Counter, Gauge, Histogram, Key, Label, Level, Metadata, Unit, with_recorder};

static METADATA: Metadata<'static> = Metadata::new("tollgate", Level::INFO, Some(module_path!()));

/// A name, with what [`describe`](Self::describe) tells a recorder about it.
#[derive(Debug)]
pub(in crate::observe) struct Family {
    pub(super) name: &'static str,
    pub(super) form: Form,
    pub(super) unit: Unit,
    pub(super) help: &'static str,
}

/// The kinds of metrics.
#[derive(Clone, Copy, Debug)]
pub(super) enum Form {
    Counter,
    Gauge,
    Histogram,
}

impl Family {
    /// Registers the unit and the description.
    pub(super) fn describe(&self) {
        let (name, unit, help) = (self.name.into(), Some(self.unit), self.help.into());
        with_recorder(|recorder| match self.form {
            Form::Counter => recorder.describe_counter(name, unit, help),
            Form::Gauge => recorder.describe_gauge(name, unit, help),
            Form::Histogram => recorder.describe_histogram(name, unit, help),
        });
    }

    /// Returns the counter with these labels.
    pub(in crate::observe) fn counter(&self, labels: Vec<Label>) -> Counter {
        let key = Key::from_parts(self.name, labels);
        with_recorder(|recorder| recorder.register_counter(&key, &METADATA))
    }

    /// Returns the gauge with these labels.
    pub(in crate::observe) fn gauge(&self, labels: Vec<Label>) -> Gauge {
        let key = Key::from_parts(self.name, labels);
        with_recorder(|recorder| recorder.register_gauge(&key, &METADATA))
    }

    /// Returns the histogram with these labels.
    pub(in crate::observe) fn histogram(&self, labels: Vec<Label>) -> Histogram {
        let key = Key::from_parts(self.name, labels);
        with_recorder(|recorder| recorder.register_histogram(&key, &METADATA))
    }

    /// Sets a counter or a gauge to a value that is counted elsewhere. A counter never falls.
    pub(in crate::observe) fn set(&self, labels: Vec<Label>, value: u64) {
        match self.form {
            Form::Counter => self.counter(labels).absolute(value),
            Form::Gauge => self.gauge(labels).set(value as f64),
            // Its values cannot be set.
            Form::Histogram => {}
        }
    }
}
