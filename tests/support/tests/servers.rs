//! The handles of servers that other tests use: servers start, answer, fall silent, restart, fail
//! over, and leave nothing behind.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test that fails panics")]
#![allow(clippy::disallowed_methods, reason = "servers live in real time")]

use std::{
    env,
    io::{self, BufRead, BufReader},
    net::{SocketAddr, TcpStream},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use support::servers::{
    Cluster, Etcd, Flow, Memcached, Proxy, Redis, Reply, Resp, Sentinel, idle_wakeup, wait_until,
};

const LIMIT: Duration = Duration::from_secs(20);
/// The time without an answer that counts as silence.
const SILENCE: Duration = Duration::from_millis(300);

fn is_silence<T: std::fmt::Debug>(answer: io::Result<T>) -> bool {
    let error = answer.expect_err("expected no answer");
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
    )
}

/// Returns `true` if a command is not answered. A later answer arrives as the next one.
fn gets_no_answer(connection: &mut Resp, command: &[&str]) -> bool {
    connection.set_limit(SILENCE).unwrap();
    let answer = connection.call(command);
    connection.set_limit(LIMIT).unwrap();
    is_silence(answer)
}

fn is_refused(address: SocketAddr) -> bool {
    let error = TcpStream::connect(address).expect_err("expected nobody to listen");
    error.kind() == io::ErrorKind::ConnectionRefused
}

fn process_exists(id: u32) -> bool {
    Path::new("/proc").join(id.to_string()).exists()
}

fn folder_of(process: u32) -> PathBuf {
    let folder = Path::new("/proc").join(process.to_string()).join("cwd");
    folder.read_link().unwrap()
}

fn check_server(redis: &Redis) {
    assert_eq!(redis.command(&["SET", "greeting", "hello"]), "OK");
    assert_eq!(redis.command(&["GET", "greeting"]), "hello");
    assert_eq!(
        redis.command(&["EVAL", "return {1, 'a', false}", "0"]),
        "1\na\n(nil)"
    );
    assert_eq!(redis.keys(), [b"greeting"]);
    assert_eq!(redis.reply(&["PTTL", "greeting"]), Reply::Number(-1));
    assert!(matches!(
        redis.ask(&["NO", "SUCH"]).unwrap(),
        Reply::Error(_)
    ));

    let mut before = redis.connect().unwrap();
    redis.pause();
    assert!(gets_no_answer(&mut before, &["PING"]));
    let mut during = redis.connect().unwrap();
    assert!(gets_no_answer(&mut during, &["PING"]));
    redis.resume();
    // The unanswered command is answered late.
    assert_eq!(before.receive().unwrap(), Reply::Status("PONG".to_owned()));
    assert_eq!(redis.command(&["PING"]), "PONG");

    let id = redis.process_id();
    redis.kill();
    assert!(!redis.is_running() && !process_exists(id));
    assert!(is_refused(redis.address()));
    assert!(before.call(&["PING"]).is_err());
    redis.restart();
    assert!(redis.is_running() && redis.process_id() != id);
    assert_eq!(redis.command(&["DBSIZE"]), "0");
}

#[test]
fn redis_starts_pauses_and_restarts() {
    let redis = Redis::start();
    assert_eq!(redis.url(), format!("redis://127.0.0.1:{}", redis.port()));
    check_server(&redis);
}

#[test]
fn valkey_starts_pauses_and_restarts() {
    let Some(valkey) = Redis::start_valkey() else {
        return;
    };
    assert_eq!(valkey.info("server", "server_name"), "valkey");
    check_server(&valkey);
}

#[test]
fn redis_has_options() {
    let durable = Redis::options().durable().start();
    durable.command(&["SET", "kept", "1"]);
    durable.restart();
    assert_eq!(durable.command(&["GET", "kept"]), "1");
    durable.restart_empty();
    assert_eq!(durable.command(&["GET", "kept"]), "(nil)");

    let small = Redis::options().maxmemory("3mb").start();
    let value = "x".repeat(100_000);
    let full = (0..100).find_map(|key| match small.ask(&["SET", &key.to_string(), &value]) {
        Ok(Reply::Error(error)) => Some(error),
        _ => None,
    });
    assert!(full.unwrap().starts_with("OOM"));

    let master = Redis::options().password("secret").start();
    assert!(master.url().contains(":secret@"));
    let mut stranger = Resp::connect(master.address(), LIMIT).unwrap();
    assert!(matches!(stranger.call(&["PING"]).unwrap(), Reply::Error(_)));
    let replica = Redis::options().replica_of(&master).start();
    master.command(&["SET", "copied", "1"]);
    wait_until("the replica has the key", LIMIT, || {
        match replica.command(&["GET", "copied"]) {
            value if value == "1" => Ok(()),
            value => Err(value),
        }
    });
    let refused = replica.ask(&["SET", "copied", "2"]).unwrap();
    assert!(refused.to_string().starts_with("READONLY"));
}

#[test]
fn all_redis_keys_are_listed() {
    let redis = Redis::start();
    let mut connection = redis.connect().unwrap();
    let mut keys: Vec<_> = (0..3000_u16)
        .map(|key| [b"\xff\r\n", &key.to_le_bytes()[..]].concat())
        .collect();
    for key in &keys {
        connection.call(&[b"SET".as_slice(), key, b"1"]).unwrap();
    }
    keys.sort();
    assert_eq!(redis.keys(), keys);
}

#[test]
fn cpu_time_is_that_of_the_server() {
    let redis = Redis::start();
    let before = redis.cpu_time();
    // The server computes while this process waits.
    let loops = "local sum = 0 for i = 1, 30000000 do sum = sum + i end return 'done'";
    assert_eq!(redis.command(&["EVAL", loops, "0"]), "done");
    let busy = redis.cpu_time();
    assert!(
        busy >= before + Duration::from_millis(20),
        "{before:?}, {busy:?}"
    );
    redis.pause();
    let paused = redis.cpu_time();
    thread::sleep(SILENCE);
    assert_eq!(redis.cpu_time(), paused);
}

#[test]
fn a_server_that_does_not_start_is_an_error_with_its_output() {
    let failure = thread::spawn(|| Redis::options().set("no-such-setting", "1").start());
    let failure = failure.join().expect_err("expected a panic");
    let text = failure.downcast_ref::<String>().unwrap();
    assert!(text.contains("the process ended"), "{text}");
    assert!(text.contains("'no-such-setting"), "{text}");
}

#[test]
fn servers_are_gone_after_their_test_and_not_before() {
    let redis = Redis::start();
    let id = redis.process_id();
    let folder = folder_of(id);
    redis.pause();
    assert!(folder.join("log").exists());
    drop(redis);
    assert!(!process_exists(id) && !folder.exists());

    // A handle may outlive the thread that created it.
    let redis = thread::spawn(Redis::start).join().unwrap();
    assert_eq!(redis.command(&["PING"]), "PONG");

    let (sender, ids) = std::sync::mpsc::channel();
    let test = thread::spawn(move || {
        let redis = Redis::start();
        sender.send(redis.process_id()).unwrap();
        panic!("a failing test");
    });
    assert!(test.join().is_err());
    assert!(!process_exists(ids.recv().unwrap()));
}

/// The process that the next test kills.
#[test]
#[ignore = "a part of servers_die_with_a_killed_process"]
fn a_process_with_a_server() {
    let redis = Redis::start();
    println!("\nserver {}", redis.process_id());
    thread::sleep(LIMIT);
}

#[test]
fn servers_die_with_a_killed_process() {
    let mut other = Command::new(env::current_exe().unwrap())
        .args([
            "--exact",
            "a_process_with_a_server",
            "--ignored",
            "--nocapture",
        ])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(other.stdout.take().unwrap()).lines();
    let server: u32 = lines
        .find_map(|line| line.unwrap().strip_prefix("server ")?.parse().ok())
        .unwrap();
    assert!(process_exists(server));
    other.kill().unwrap();
    other.wait().unwrap();
    wait_until(
        "the server is gone (by setpriv of util-linux)",
        LIMIT,
        || {
            // The process may be a zombie.
            let state = std::fs::read_to_string(format!("/proc/{server}/stat")).unwrap_or_default();
            let is_gone = state.is_empty() || state.contains(") Z ");
            if is_gone { Ok(()) } else { Err(state) }
        },
    );
}

#[test]
fn a_cluster_starts_and_fails_over() {
    let cluster = Cluster::start();
    check_cluster(&cluster);
}

#[test]
fn a_cluster_of_valkey_starts_and_fails_over() {
    if let Some(cluster) = Cluster::start_valkey() {
        check_cluster(&cluster);
    }
}

fn check_cluster(cluster: &Cluster) {
    assert_eq!(cluster.nodes().len(), 6);
    let slots = [0, 8000, 16_383];
    let ports = slots.map(|slot| cluster.master_of(slot).port());
    assert!(ports[0] != ports[1] && ports[1] != ports[2] && ports[0] != ports[2]);

    // CRC-16/XMODEM of these digits, from the specification of the cluster.
    assert_eq!(cluster.slot_of("123456789"), 0x31c3);
    let slot = cluster.slot_of("{user}1");
    assert_eq!(slot, cluster.slot_of("user"));
    let (from, to) = (
        cluster.master_of(slot),
        slots
            .map(|slot| cluster.master_of(slot))
            .into_iter()
            .find(|node| node.port() != cluster.master_of(slot).port())
            .unwrap(),
    );
    from.command(&["SET", "{user}1", "here"]);
    let moved = to.ask(&["GET", "{user}1"]).unwrap();
    assert_eq!(
        moved,
        Reply::Error(format!("MOVED {slot} 127.0.0.1:{}", from.port()))
    );

    let migration = cluster.begin_migration(slot, to);
    assert_eq!(from.command(&["GET", "{user}1"]), "here");
    let asked = from.ask(&["GET", "{user}2"]).unwrap();
    assert_eq!(
        asked,
        Reply::Error(format!("ASK {slot} 127.0.0.1:{}", to.port()))
    );
    migration.finish();
    assert_eq!(cluster.master_of(slot).port(), to.port());
    assert_eq!(to.command(&["GET", "{user}1"]), "here");
    cluster.migrate_slot(slot, from);
    assert_eq!(from.command(&["GET", "{user}1"]), "here");

    let mut connection = from.connect().unwrap();
    connection.call(&["SET", "{user}1", "there"]).unwrap();
    assert_eq!(
        connection.call(&["WAIT", "1", "5000"]).unwrap(),
        Reply::Number(1)
    );
    let successor = cluster.failover(from);
    assert_ne!(successor.port(), from.port());
    assert_eq!(cluster.master_of(slot).port(), successor.port());
    assert_eq!(successor.command(&["GET", "{user}1"]), "there");

    from.restart();
    cluster.settle();
    assert_eq!(cluster.master_of(slot).port(), successor.port());
    wait_until(
        "a killed master comes back as a replica",
        LIMIT,
        || match from.info("replication", "role") {
            role if role == "slave" => Ok(()),
            role => Err(role),
        },
    );
}

#[test]
fn sentinels_fail_over() {
    let group = Sentinel::start();
    let old = group.master();
    assert_eq!(old.port(), group.nodes()[0].port());
    assert!(group.url("redis-sentinel://").ends_with("/mymaster"));
    let mut connection = old.connect().unwrap();
    connection.call(&["SET", "kept", "1"]).unwrap();
    assert_eq!(
        connection.call(&["WAIT", "1", "5000"]).unwrap(),
        Reply::Number(1)
    );

    let new = group.failover();
    assert_ne!(new.port(), old.port());
    assert_eq!(new.command(&["GET", "kept"]), "1");
    let named = ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", Sentinel::MASTER];
    for sentinel in group.sentinels() {
        assert_eq!(
            sentinel.command(&named),
            format!("127.0.0.1\n{}", new.port())
        );
    }
    old.restart();
    wait_until(
        "a killed master comes back as a replica",
        LIMIT,
        // A server that becomes a replica closes its connections.
        || match old.ask(&["ROLE"]).map(|role| role.to_string()) {
            Ok(role) if role.starts_with("slave\n") => Ok(()),
            other => Err(format!("{other:?}")),
        },
    );
}

#[test]
fn memcached_starts_pauses_and_restarts() {
    let memcached = Memcached::options().megabytes(16).no_eviction().start();
    assert_eq!(memcached.command("set k 0 0 7\r\na\r\nb\r\nc"), "STORED");
    assert_eq!(
        memcached.command("get k"),
        "VALUE k 0 7\r\na\r\nb\r\nc\r\nEND"
    );
    assert_eq!(memcached.command("mg k v"), "VA 7\r\na\r\nb\r\nc");
    assert_eq!(memcached.command("incr none 1"), "NOT_FOUND");
    let settings = memcached.command("stats settings");
    assert!(
        settings.contains("STAT maxbytes 16777216\r\n"),
        "{settings}"
    );
    assert!(settings.contains("STAT evictions off\r\n"), "{settings}");

    memcached.pause();
    assert!(is_silence(memcached.ask("version", SILENCE)));
    memcached.resume();
    assert!(memcached.command("version").starts_with("VERSION "));
    let id = memcached.process_id();
    memcached.kill();
    assert!(is_refused(memcached.address()) && !process_exists(id));
    memcached.restart();
    assert_eq!(memcached.command("get k"), "END");
}

#[test]
fn etcd_starts_pauses_and_restarts() {
    let etcd = Etcd::start();
    // `foo` is `Zm9v` in base64, `bar` is `YmFy`.
    let put = etcd.command("/v3/kv/put", r#"{"key": "Zm9v", "value": "YmFy"}"#);
    assert!(put.contains("revision"), "{put}");
    let get = || etcd.command("/v3/kv/range", r#"{"key": "Zm9v"}"#);
    assert!(get().contains("YmFy"));

    etcd.pause();
    assert!(is_silence(etcd.ask("/v3/kv/range", "{}", SILENCE)));
    etcd.resume();
    assert!(get().contains("YmFy"));
    let id = etcd.process_id();
    etcd.kill();
    assert!(is_refused(etcd.address()) && !process_exists(id));
    etcd.restart();
    assert!(get().contains("YmFy"));
}

#[test]
fn a_proxy_is_slow_silent_and_cut() {
    let redis = Redis::start();
    let proxy = Proxy::start(redis.address());
    let pong = Reply::Status("PONG".to_owned());
    let number = |answer: io::Result<Reply>| match answer.unwrap() {
        Reply::Number(number) => number,
        other => panic!("expected a number, found {other:?}"),
    };
    let mut through = Resp::connect(proxy.address(), LIMIT).unwrap();
    assert_eq!(through.call(&["PING"]).unwrap(), pong);

    let delay = Duration::from_millis(50);
    proxy.delay(delay);
    let start = Instant::now();
    assert_eq!(through.call(&["PING"]).unwrap(), pong);
    assert!(start.elapsed() >= 2 * delay);
    proxy.delay(Duration::ZERO);

    // Both answers are late, and none is lost.
    proxy.set_flow(Flow::Hold);
    assert!(gets_no_answer(&mut through, &["INCR", "held"]));
    assert_eq!(redis.command(&["GET", "held"]), "(nil)");
    proxy.set_flow(Flow::Forward);
    assert_eq!(number(through.receive()), 1);

    // The request arrives. Its answer does not, not even later.
    proxy.set_answers(Flow::Swallow);
    assert!(gets_no_answer(&mut through, &["INCR", "deaf"]));
    assert_eq!(redis.command(&["GET", "deaf"]), "1");
    proxy.set_flow(Flow::Forward);
    assert_eq!(number(through.call(&["INCR", "other"])), 1);

    // A new connection is accepted, and nothing more.
    proxy.set_flow(Flow::Swallow);
    let mut in_vain = Resp::connect(proxy.address(), LIMIT).unwrap();
    assert!(gets_no_answer(&mut in_vain, &["INCR", "lost"]));
    assert_eq!(redis.command(&["EXISTS", "lost"]), "0");
    proxy.set_flow(Flow::Forward);

    assert_eq!((proxy.accepted(), proxy.open()), (2, 2));
    proxy.cut();
    assert_eq!((proxy.accepted(), proxy.open()), (2, 0));
    for cut in [&mut through, &mut in_vain] {
        let end = cut
            .call(&["PING"])
            .expect_err("expected a closed connection");
        assert!(!is_silence::<()>(Err(end)));
    }
    let mut again = Resp::connect(proxy.address(), LIMIT).unwrap();
    assert_eq!(again.call(&["PING"]).unwrap(), pong);

    // A connection closed by the server is closed for the client, too.
    redis.kill();
    assert!(!is_silence(again.call(&["PING"])));
    let address = proxy.address();
    drop(proxy);
    assert!(is_refused(address));
}

/// Works also in paused time, and inside a running runtime.
#[tokio::test(start_paused = true)]
async fn wakeups_are_measured_in_real_time() {
    let start = Instant::now();
    let late = idle_wakeup();
    assert!(late > Duration::ZERO && late < start.elapsed(), "{late:?}");
    println!("the latest of forty wake-ups is {late:?} late");
}
