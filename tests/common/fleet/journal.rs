//! The journal of a node: it writes a line for each call, and the test reads them.

use std::{
    fs::{self, File},
    io::Write,
    path::Path,
};

/// The end of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Admitted,
    Refused,
    /// The store did not answer.
    Failed,
}

/// A call. The times are those of the machine's clock with suspension, in nanoseconds, which all
/// processes share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The index of the limit.
    pub limit: usize,
    pub key: u64,
    pub fate: Fate,
    /// Before the call.
    pub from: u64,
    /// After its answer. The decision was made in between.
    pub to: u64,
}

/// The counters of a node's leases under one limit.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sums {
    pub asked: u64,
    pub admitted: u64,
    pub refused: u64,
    pub granted: u64,
    pub expired: u64,
}

/// The file of a node. Each line is one write, so what was written before a kill is there.
pub struct Journal(File);

impl Journal {
    pub fn append_to(path: &Path) -> Self {
        let file = File::options().create(true).append(true).open(path);
        Self(file.expect("a file"))
    }

    pub fn write(&mut self, entry: &Entry) {
        let Entry {
            limit,
            key,
            fate,
            from,
            to,
        } = *entry;
        let fate = match fate {
            Fate::Admitted => 'a',
            Fate::Refused => 'r',
            Fate::Failed => 'f',
        };
        self.line(&format!("{fate} {limit} {key} {from} {to}"));
    }

    /// Ends the journal of a node that was not killed.
    pub fn end(&mut self, limit: usize, sums: &Sums) {
        let Sums {
            asked,
            admitted,
            refused,
            granted,
            expired,
        } = sums;
        self.line(&format!(
            "s {limit} {asked} {admitted} {refused} {granted} {expired}"
        ));
    }

    fn line(&mut self, line: &str) {
        let line = format!("{line}\n");
        self.0.write_all(line.as_bytes()).expect("room on the disk");
    }
}

/// All that nodes wrote down.
#[derive(Debug, Default)]
pub struct Journals {
    pub entries: Vec<Entry>,
    /// By limit, of the nodes that were not killed.
    pub sums: [Sums; 2],
}

impl Journals {
    pub fn read(&mut self, path: &Path) {
        let text = fs::read_to_string(path).unwrap_or_default();
        // A killed node may leave a part of a line.
        for line in text.split_inclusive('\n') {
            if let Some(line) = line.strip_suffix('\n') {
                self.line(line);
            }
        }
    }

    fn line(&mut self, line: &str) {
        let (kind, numbers) = line.split_once(' ').unwrap();
        let numbers = numbers.split(' ').map(|number| number.parse().unwrap());
        let numbers: Vec<u64> = numbers.collect();
        let limit = numbers[0] as usize;
        let fate = match kind {
            "a" => Fate::Admitted,
            "r" => Fate::Refused,
            "f" => Fate::Failed,
            _ => {
                let sums = &mut self.sums[limit];
                sums.asked += numbers[1];
                sums.admitted += numbers[2];
                sums.refused += numbers[3];
                sums.granted += numbers[4];
                sums.expired += numbers[5];
                return;
            }
        };
        self.entries.push(Entry {
            limit,
            key: numbers[1],
            fate,
            from: numbers[2],
            to: numbers[3],
        });
    }
}
