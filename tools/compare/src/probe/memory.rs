//! A flood of new clients.

use std::{
    collections::HashMap,
    env,
    process::Command,
    sync::{LazyLock, Mutex},
};

use super::{FloodReport, NO_LAYER, Surroundings, arithmetic};
use crate::library::Library;

/// Bytes for each client below which a limit does not grow with them.
const BOUNDED: u64 = 20;

static REPORTS: LazyLock<Mutex<HashMap<&'static str, FloodReport>>> = LazyLock::new(Mutex::default);

/// Floods a limit in a process of its own, once for all rows. `None` if the library has one budget
/// for all clients.
fn report(library: &dyn Library, surroundings: &Surroundings) -> Option<FloodReport> {
    if arithmetic::keys(library, surroundings) != "yes" {
        return None;
    }
    let mut reports = REPORTS.lock().expect("no panic");
    let report = reports.entry(library.package()).or_insert_with(|| {
        let program = env::current_exe().expect("the path of this program");
        let child = Command::new(program)
            .args(["--flood", library.package()])
            .output();
        let output = child.expect("this program");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: {errors}", library.package());
        let report = String::from_utf8_lossy(&output.stdout).parse();
        report.unwrap_or_else(|error| panic!("{}: {error}", library.package()))
    });
    Some(*report)
}

pub fn memory(library: &dyn Library, surroundings: &Surroundings) -> String {
    match report(library, surroundings) {
        None => NO_LAYER,
        Some(report) if report.bytes_per_client < BOUNDED => "bounded",
        Some(_) => "grows",
    }
    .to_owned()
}

pub fn exhausted(library: &dyn Library, surroundings: &Surroundings) -> String {
    match report(library, surroundings) {
        None => NO_LAYER,
        Some(report) if report.is_refilled => "admitted",
        Some(_) => "refused",
    }
    .to_owned()
}

pub fn newcomers(library: &dyn Library, surroundings: &Surroundings) -> String {
    match report(library, surroundings) {
        None => NO_LAYER,
        Some(report) if report.admitted == 100.0 => "all",
        Some(report) if report.admitted > 30.0 => "some",
        Some(_) => "few",
    }
    .to_owned()
}
