//! Attacks on servers in processes of their own, while honest clients ask.
//!
//! Addresses of 127/8 stand for clients, and those of 127.6/16 for machines of one /64 of IPv6.
#![allow(clippy::disallowed_methods, reason = "attacks take real time")]

mod attacker;
mod honest;
mod server;
mod turns;

use std::{
    env, fs,
    io::{BufRead, BufReader, Write},
    net::{Ipv4Addr, SocketAddr},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::{Mutex, MutexGuard, PoisonError},
    thread::sleep,
    time::{Duration, Instant},
};

use support::servers::{idle_wakeup, wait_until};
use tokio::{
    net::{TcpSocket, TcpStream},
    runtime::Runtime,
};

use self::{
    attacker::{Attacker, RAMP},
    honest::{Honest, Latencies},
    server::{HEAD_WITHIN, IDLE_FOR, PER_CLIENT, Seen, Server},
};

/// File handles of a process that has enough of them.
const MANY_FILES: u64 = 15_000;

/// A time that no answer takes.
const SOON: Duration = Duration::from_secs(20);

/// Attacks need the processors for themselves.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn runtime() -> Runtime {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(2).enable_all().build().unwrap()
}

/// Connects from an address of 127/8.
async fn connect(from: Ipv4Addr, to: SocketAddr) -> std::io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.bind((from, 0).into())?;
    socket.connect(to).await
}

/// Makes the drop of a connection a reset: it leaves nothing in the system then.
fn reset(stream: TcpStream) {
    rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO)).unwrap();
}

/// This program, started again as one of its tests, which answers lines by lines. Killed when
/// dropped.
struct Process {
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Process {
    /// `variable` and its value make that test the process. It may open so many files.
    fn start(test: &str, variable: &str, value: &str, files: u64) -> Self {
        let script = r#"ulimit -n "$1" && shift && exec "$@""#;
        let program = env::current_exe().unwrap();
        let mut child = Command::new("sh")
            .args(["-c", script, "sh", &files.to_string()])
            .arg(program)
            .args([test, "--exact", "--nocapture", "--test-threads=1"])
            .env(variable, value)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        Self {
            orders: child.stdin.take().unwrap(),
            answers: BufReader::new(child.stdout.take().unwrap()),
            child,
        }
    }

    /// Returns what follows the word, in the next line that has it.
    fn answer(&mut self, word: &str) -> String {
        loop {
            let mut line = String::new();
            let bytes = self.answers.read_line(&mut line).unwrap();
            assert_ne!(bytes, 0, "the process ended before its `{word}`");
            if let Some((_, answer)) = line.trim_end().split_once(word) {
                return answer.trim().to_owned();
            }
        }
    }

    fn id(&self) -> String {
        self.child.id().to_string()
    }

    fn ask(&mut self, order: &str, word: &str) -> String {
        writeln!(self.orders, "{order}").unwrap();
        self.answer(word)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// In the process: answers lines until its parent closes the pipe, or is gone.
fn answers(mut answer: impl FnMut(&str) -> String + Send + 'static) {
    std::thread::spawn(move || {
        for order in std::io::stdin().lines() {
            let Ok(order) = order else { break };
            println!("\n{}", answer(&order));
        }
        std::process::exit(0);
    });
}

/// The ticks of all processors, and those in which they did something for a process.
fn all_ticks() -> (u64, u64) {
    let stat = fs::read_to_string("/proc/stat").unwrap();
    let ticks = stat.lines().next().unwrap().split_ascii_whitespace();
    let ticks: Vec<u64> = ticks.skip(1).map(|ticks| ticks.parse().unwrap()).collect();
    // Those of users, nice ones, and the system; of others above this machine.
    let busy = ticks[..3].iter().sum::<u64>() + ticks[7];
    (ticks[..8].iter().sum(), busy)
}

/// The ticks of a process, by its number or `self`.
fn ticks_of(process: &str) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    let (_, fields) = stat.rsplit_once(") ").unwrap();
    let fields: Vec<_> = fields.split(' ').collect();
    fields[11..13]
        .iter()
        .map(|ticks| ticks.parse::<u64>().unwrap())
        .sum()
}

/// Checks what no server may ever exceed.
fn caps_are_exact(seen: &Seen) {
    assert!(seen.most_of_one <= PER_CLIENT, "{seen:?}");
    assert!(seen.most <= seen.at_most, "{seen:?}");
}

/// Attacks a server with 10,000 sockets while honest clients ask it, and another one that is left
/// alone. Returns their latencies, and which part of the processors' time others had, in percent.
fn attack_one_of_two() -> ([Latencies; 2], u64) {
    let mut attacked = Server::start("guarded", MANY_FILES);
    let control = Server::start("guarded", MANY_FILES);
    let runtime = runtime();
    let honest = Honest::connect(&runtime, [attacked.http, control.http]);
    honest.ask_for(&runtime, Duration::from_millis(500));
    let before = attacked.memory();

    let mut attacker = Attacker::start(&attacked, 10_000, 1_000);
    let processes = [
        "self".to_owned(),
        attacked.id(),
        control.id(),
        attacker.id(),
    ];
    let times = || {
        (
            all_ticks(),
            processes.iter().map(|id| ticks_of(id)).sum::<u64>(),
        )
    };
    let ((all, busy), own) = times();
    let asked = honest.ask_beside(&runtime, RAMP + Duration::from_secs(3));
    let (mut open, mut memory) = (0, before);
    while !asked.is_finished() {
        let seen = attacked.seen();
        caps_are_exact(&seen);
        if seen.open > open {
            (open, memory) = (seen.open, attacked.memory());
        }
        sleep(Duration::from_millis(50));
    }
    let latencies = asked.join().unwrap();
    let ((all_then, busy_then), own_then) = times();
    let others = (busy_then - busy).saturating_sub(own_then - own);
    let others = 100 * others / (all_then - all).max(1);

    let seen = attacked.seen();
    assert!(open >= 4_000, "the attack had no weight: {open}, {seen:?}");
    let each = memory.saturating_sub(before) / open;
    eprintln!("{open} open at once, {each} bytes each, {seen:?}");
    assert!(each <= 16 * 1024, "{each} bytes for each of {open}");
    // One address, and one /64, had as many as they could get.
    assert_eq!(seen.most_of_one, PER_CLIENT);
    assert!(seen.refused_per_client > 500, "{seen:?}");

    // The attacker keeps what is open, and opens no more.
    let served = attacker.rest();
    assert_eq!(served, 0, "requests of strangers with headers of balancers");
    let limit = HEAD_WITHIN + IDLE_FOR + SOON;
    wait_until("the attacker's connections are closed", limit, || {
        let seen = attacked.seen();
        caps_are_exact(&seen);
        let left = seen.open <= honest::CLIENTS;
        left.then_some(()).ok_or_else(|| format!("{seen:?}"))
    });
    honest.all_are_answered(&runtime, attacked.http);
    let seen = attacked.seen();
    assert!(seen.closed_head_late > 500, "{seen:?}");
    assert!(seen.closed_head_long > 100, "{seen:?}");
    assert!(seen.closed_idle > 100, "{seen:?}");
    (latencies, others)
}

#[test]
fn ten_thousand_sockets_stop_nobody() {
    let _turn = turn();
    let slack = 10 * idle_wakeup();
    let mut seen = Vec::new();
    // What else the machine does may make a round slow.
    for _ in 0..3 {
        let ([attacked, control], others) = attack_one_of_two();
        let pairs = [(attacked.kept, control.kept), (attacked.new, control.new)];
        let bound = Duration::from_millis(5) + slack;
        let text = format!("kept and new connections, attacked and not: {pairs:?}, {bound:?}");
        eprintln!("{text}; others had {others} % of the processors");
        let within = |(attacked, control): (Duration, Duration)| attacked <= bound.max(3 * control);
        if pairs.into_iter().all(within) {
            return;
        }
        seen.push((others, text));
    }
    // Beside a compiler, the server cannot accept as fast as the attacker connects.
    let is_busy = seen.iter().all(|(others, _)| *others >= 25);
    assert!(is_busy, "p99 of honest clients: {seen:?}");
    eprintln!("the machine was too busy to measure");
}

#[test]
fn the_limit_of_all_is_exact_and_free_again_at_once() {
    let _turn = turn();
    let mut server = Server::start("small", MANY_FILES);
    let runtime = runtime();
    for _ in 0..2 {
        let attacker = Attacker::start(&server, 2_000, 400);
        let start = Instant::now();
        while start.elapsed() < RAMP + Duration::from_secs(1) {
            caps_are_exact(&server.seen());
            sleep(Duration::from_millis(20));
        }
        let seen = server.seen();
        assert_eq!(seen.most, seen.at_most, "{seen:?}");
        assert!(seen.refused_at_most > 100, "{seen:?}");
        drop(attacker);
        wait_until("the attacker's connections are closed", SOON, || {
            let seen = server.seen();
            let none = seen.open == 0;
            none.then_some(()).ok_or_else(|| format!("{seen:?}"))
        });
        let honest = Honest::connect(&runtime, [server.http; 2]);
        honest.all_are_answered(&runtime, server.http);
    }
}

#[test]
fn handles_of_files_run_out_in_a_plain_server_alone() {
    const FILES: u64 = 1024;
    let _turn = turn();
    let runtime = runtime();
    let plain = Server::start("plain", FILES);
    let mut guarded = Server::start("guarded", FILES);
    let attackers = [&plain, &guarded].map(|server| Attacker::start(server, 2_000, 40));
    let is_stopped = wait_until("honest clients of the plain server wait", SOON, || {
        let answered = honest::answered_within(&runtime, plain.http, Duration::from_secs(2));
        let text = format!("{answered} are answered, {} files are open", plain.files());
        (answered == 0 && plain.files() >= FILES)
            .then_some(text.clone())
            .ok_or(text)
    });
    eprintln!("plain: {is_stopped}; guarded: {} files", guarded.files());
    // The same attack goes on.
    let honest = Honest::connect(&runtime, [guarded.http; 2]);
    for _ in 0..8 {
        honest.all_are_answered(&runtime, guarded.http);
    }
    let seen = guarded.seen();
    caps_are_exact(&seen);
    assert_eq!(seen.accept_errors, 0, "{seen:?}");
    drop(attackers);
}
