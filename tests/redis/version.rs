//! Servers that are too old are reported at the connection, by what their scripts can do.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    thread,
};

use tollgate::{TokenBucket, key::Key, store::Redis};

use super::{acquire, at_once};

/// Answers like a server of that version: `INFO` with the version, and any other command with `OK`.
fn serve(stream: TcpStream, version: &str) -> std::io::Result<()> {
    let mut answers = stream.try_clone()?;
    let mut commands = BufReader::new(stream).lines();
    while let Some(line) = commands.next().transpose()? {
        let words: usize = line.trim_start_matches('*').parse().unwrap_or(0);
        let mut command = Vec::new();
        for _ in 0..words {
            // The length line, which is not needed for a word without a line break.
            commands.next().transpose()?;
            command.extend(commands.next().transpose()?);
        }
        let info = format!("# Server\r\n{version}\r\nos:Linux\r\n");
        let answer = match command.first().map(String::as_str) {
            Some("INFO") => format!("${}\r\n{info}\r\n", info.len()),
            Some("SCRIPT") => "$1\r\na\r\n".to_owned(),
            // As Redis 3.2 and 4.0 say it.
            Some("EVAL") => "-ERR Error running script (call to f_1): @user_script:1: @user_script: 1: Write commands not allowed \
                             after non deterministic commands. Call redis.replicate_commands() at the start of your script.\r\n"
                .to_owned(),
            _ => "+OK\r\n".to_owned(),
        };
        answers.write_all(answer.as_bytes())?;
    }
    Ok(())
}

/// Returns the URL of such a server.
fn of(version: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let _ = serve(stream, version);
        }
    });
    url
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_too_old_is_an_error() {
    for (version, seen) in [
        ("redis_version:4.0.14", "4.0.14"),
        ("redis_version:3.2", "3.2"),
        ("redis_mode:standalone", "unknown"),
    ] {
        let url = of(version);
        let store = Redis::<TokenBucket>::connect(&url).await;
        let why = store.unwrap_err().to_string();
        for part in [
            seen,
            "not allowed after non deterministic commands",
            "expected Redis 5.0 or later, or a server that can",
            "update it",
        ] {
            assert!(why.contains(part), "{version}: {why}");
        }
        // A store that connects lazily reports it in each call.
        let store: Redis<TokenBucket> = Redis::connect_lazy(url).unwrap();
        for _ in 0..3 {
            let error = acquire(&store, &at_once(5), Key::from(7_u64)).await;
            assert_eq!(error.unwrap_err().to_string(), why);
        }
    }
    for version in [
        "redis_version:5.0.0",
        "redis_version:6.2.14",
        "redis_version:255.255.255",
    ] {
        Redis::<TokenBucket>::connect(of(version)).await.unwrap();
    }
}

/// Passes a connection on to a server, which names another version.
fn disguise(client: TcpStream, server: TcpStream, version: &str) -> std::io::Result<()> {
    let (mut commands, mut to_server) = (client.try_clone()?, server.try_clone()?);
    thread::spawn(move || std::io::copy(&mut commands, &mut to_server));
    let (mut answers, mut to_client) = (server, client);
    let mut buffer = vec![0; 1 << 16];
    loop {
        let read = answers.read(&mut buffer)?;
        if read == 0 {
            return Ok(());
        }
        // Of equal length, so that the length in front of the reply stays right.
        let mut bytes = buffer[..read].to_vec();
        let name = b"redis_version:";
        if let Some(at) = bytes.windows(name.len()).position(|window| window == name) {
            let at = at + name.len();
            let length = bytes[at..]
                .iter()
                .take_while(|byte| !byte.is_ascii_control())
                .count();
            let text = format!("{version:0<length$}");
            bytes[at..at + length].copy_from_slice(&text.as_bytes()[..length]);
        }
        to_client.write_all(&bytes)?;
    }
}

/// Returns the URL of a server that seems to be an old one.
fn disguised(server: &support::servers::Redis) -> String {
    let address = server.url().replace("redis://", "");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let server = TcpStream::connect(&address).unwrap();
            thread::spawn(move || disguise(client, server, "4.0.0"));
        }
    });
    url
}

/// It cannot be tested. Those who are over their limit are refused all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_of_unknown_abilities_that_takes_no_writes_is_used() {
    let server = support::servers::Redis::start();
    let rule = at_once(1);
    let first = Redis::connect(server.url()).await.unwrap();
    assert!(
        acquire(&first, &rule, Key::from(7_u64))
            .await
            .unwrap()
            .is_admitted()
    );
    server.command(&["CONFIG", "SET", "maxmemory", "1"]);
    let store = Redis::connect(disguised(&server)).await.unwrap();
    assert!(
        !acquire(&store, &rule, Key::from(7_u64))
            .await
            .unwrap()
            .is_admitted()
    );
    let error = acquire(&store, &rule, Key::from(8_u64)).await.unwrap_err();
    assert!(error.is_unwritten(), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_names_an_old_version_and_can_do_what_is_needed_is_used() {
    let server = support::servers::Redis::start();
    let url = disguised(&server);
    let stores = [
        Redis::connect(&url).await.unwrap(),
        Redis::connect_lazy(url).unwrap(),
    ];
    let first = acquire(&stores[0], &at_once(1), Key::from(7_u64)).await;
    assert!(first.unwrap().is_admitted());
    let second = acquire(&stores[1], &at_once(1), Key::from(7_u64)).await;
    assert!(!second.unwrap().is_admitted());
    // The probe has written nothing.
    assert_eq!(server.command(&["EXISTS", "tollgate:probe"]).trim(), "0");
}
