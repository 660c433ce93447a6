//! The program's engine on a million lines with ten thousand keys, compared with a program that
//! only reads and writes CSV.
#![allow(
    clippy::float_arithmetic,
    clippy::unwrap_used,
    reason = "a benchmark prints ratios, and stops where something is odd"
)]

use std::{cell::Cell, io::Write};

use replay::engine::{
    Replay,
    answer::Answer,
    rows::{Answers, Watch, replay},
};
use support::{
    Random,
    bench::{Contender, Mode, Race, Reads, StopWatch, Table},
    counting::{Counting, allocations},
};
use tollgate::{AnyRule, Timestamp};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const ROUNDS: usize = 11;

/// Panics at the first malformed line.
struct NoMalformedLines;

impl Watch for NoMalformedLines {
    fn malformed(&mut self, line: u64, problem: &str) {
        panic!("line {line}: {problem}");
    }

    fn answered(&mut self, _: Timestamp, _: &Answer) {}
}

/// Returns lines `t_ns,key,cost`, a tenth of a millisecond apart.
fn input(lines: usize, keys: usize) -> Vec<u8> {
    let mut random = Random::new(7);
    let mut text = b"t_ns,key,cost\n".to_vec();
    let mut at = 1_700_000_000_000_000_000_u64;
    for _ in 0..lines {
        at += random.next_u64() % 200_000;
        let key = random.next_u64() % keys as u64;
        writeln!(text, "{at},client-{key:05},{}", 1 + random.next_u64() % 3).unwrap();
    }
    text
}

fn decide(rule: &AnyRule, input: &[u8], output: &mut Vec<u8>) {
    let mut state = Replay::new(rule.clone(), None);
    let mut answers = Answers::to(output).unwrap();
    replay(input, &mut answers, &mut state, &mut NoMalformedLines).unwrap();
    answers.flush().unwrap();
}

/// Reads each line, and writes it with a constant answer.
fn copy(input: &[u8], output: &mut Vec<u8>) {
    let mut reader = csv::ReaderBuilder::new()
        .has_headers(false)
        .buffer_capacity(1 << 16)
        .from_reader(input);
    let mut writer = csv::WriterBuilder::new()
        .buffer_capacity(1 << 16)
        .from_writer(output);
    let mut record = csv::ByteRecord::new();
    while reader.read_byte_record(&mut record).unwrap() {
        let answer = ["allow", "0", "19", "0", "6000000000", ""];
        let line = [&record[0], &record[1]].into_iter();
        let line = line.chain(answer.iter().map(|field| field.as_bytes()));
        writer.write_record(line).unwrap();
    }
    writer.flush().unwrap();
}

/// Creates a contender that does the same work in each turn, on the same input and into the same
/// buffer.
fn contender<'a>(
    name: &'static str,
    input: &'a [u8],
    lines: usize,
    best: &'a Cell<f64>,
    work: impl Fn(&[u8], &mut Vec<u8>) + 'a,
) -> Contender<'a> {
    let mut output = Vec::with_capacity(120 * (lines + 1));
    let (allocations, ()) = allocations(|| work(input, &mut output));
    let turn = move |_| {
        output.clear();
        let mut watch = StopWatch::default();
        watch.start();
        work(input, &mut output);
        watch.stop();
        let answered = output.iter().filter(|byte| **byte == b'\n').count();
        assert_eq!(answered, lines + 1, "{name}: lines, with the header");
        let cost = watch.per(lines);
        best.set(best.get().min(cost.wall));
        cost
    };
    Contender {
        name,
        allocations: allocations as f64 / lines as f64,
        turn: Box::new(turn),
    }
}

fn main() {
    let mode = Mode::from_args();
    let name = "1 M lines, 10 k keys";
    if !mode.runs(name) {
        return;
    }
    let (lines, keys) = (mode.pick(1_000_000, 2_000), mode.pick(10_000, 100));
    let input = input(lines, keys);
    let rule: AnyRule = "token-bucket 10/1m burst=20".parse().unwrap();
    let [ours, floor] = [const { Cell::new(f64::INFINITY) }; 2];
    let decides = |input: &[u8], output: &mut Vec<u8>| decide(&rule, input, output);
    let contenders = vec![
        contender("replay", &input, lines, &ours, decides),
        contender("CSV alone", &input, lines, &floor, copy),
    ];
    // Only a new key and its entry in the map allocate.
    let most = (4 * keys + 100) as f64 / lines as f64;
    let allocations = contenders[0].allocations;
    assert!(allocations < most, "{allocations} allocations per line");
    let mut table = Table::new(Reads::Rate);
    table.race(
        &mode,
        ROUNDS,
        Race {
            name,
            bare: None,
            contenders,
            targets: &[],
        },
    );
    table.print(&mode, ROUNDS);
    if mode.full {
        let per_second = |cost: &Cell<f64>| 1e3 / cost.get();
        println!("\nMillion lines per second, in the best round:\n");
        println!("| replay | CSV alone |\n|---|---|");
        println!("| {:.2} | {:.2} |", per_second(&ours), per_second(&floor));
    }
}
