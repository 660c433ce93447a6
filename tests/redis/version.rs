//! Servers that are too old are reported at the connection.

use std::{
    io::{BufRead, BufReader, Write},
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
        for part in [seen, "expected 5.0 or later", "update it"] {
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
