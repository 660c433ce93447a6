//! An observer that writes down every event.

use std::{
    mem,
    sync::{Arc, Mutex},
    time::Duration,
};

use tollgate::{
    Policy, Verdict,
    key::{Key, MissingKey},
    observe::{Event, Observer},
};

/// Writes each event as a line: its name, the policy, the key, and its numbers.
#[derive(Clone, Default)]
pub(crate) struct Seen(Arc<Mutex<Vec<String>>>);

impl Seen {
    pub(crate) fn take(&self) -> Vec<String> {
        mem::take(&mut self.0.lock().unwrap())
    }

    fn write(&self, line: String) {
        self.0.lock().unwrap().push(line);
    }

    fn write_event(&self, name: &str, event: &Event<'_>, more: &str) {
        let (policy, key) = (event.policy(), key(event.key()));
        self.write(format!("{name} {policy} {key}{more}"));
    }
}

/// The tests' keys are one of these.
fn key(key: &Key) -> &'static str {
    let of = |text: &&str| Key::from(*text) == *key;
    ["alice", "bob"].into_iter().find(of).unwrap()
}

impl Observer for Seen {
    fn admitted(&self, event: &Event<'_>) {
        assert_eq!(event.decision().verdict(), Verdict::Allow);
        self.write_event("admitted", event, "");
    }

    fn delayed(&self, event: &Event<'_>, wait: Duration) {
        assert_eq!(event.decision().verdict(), Verdict::Delay(wait));
        self.write_event("delayed", event, &format!(" {wait:?}"));
    }

    fn refused(&self, event: &Event<'_>) {
        assert_eq!(event.decision().verdict(), Verdict::Refuse);
        self.write_event("refused", event, "");
    }

    fn undecided(&self, event: &Event<'_>) {
        assert!(event.decision().is_undecided());
        let proceeds = if event.decision().is_admitted() {
            " proceeds"
        } else {
            " refused"
        };
        self.write_event("undecided", event, proceeds);
    }

    fn exempt(&self) {
        self.write("exempt".to_owned());
    }

    fn missing_key(&self, missing: &MissingKey) {
        let fault = if missing.is_server_fault() {
            "server"
        } else {
            "client"
        };
        self.write(format!("missing {fault}"));
    }

    fn settled(&self, policy: &Policy, of: &Key, charged: u64, actual: u64) {
        self.write(format!("settled {policy} {} {charged} {actual}", key(of)));
    }

    fn dry_run(&self, event: &Event<'_>) {
        self.write_event("dry run", event, "");
    }
}
