//! A server, a file that changes, and the signal.

use std::{fs, process::Command, time::Duration};

use axum::body::Body;
use http::StatusCode;
use hyper_util::{client::legacy::Client, rt::TokioExecutor};

use super::*;

/// The file, with rules that refill nothing during the test, whenever it begins.
fn file() -> String {
    let text = include_str!("limits.toml").replace("/1m", "/1000h");
    text.replace("fixed-window 3/1h", "fixed-window 3/1h from=first-call")
}

/// A server that reads a file of the test.
struct Server {
    path: String,
    address: SocketAddr,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

impl Server {
    async fn start() -> Self {
        let name = format!("tollgate-limits-{}.toml", std::process::id());
        let path = env::temp_dir().join(name).to_str().unwrap().to_owned();
        fs::write(&path, file()).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(serve(path.clone(), listener));
        Self { path, address }
    }

    async fn is_admitted(&self, route: &str) -> bool {
        let client = Client::builder(TokioExecutor::new()).build_http::<Body>();
        let uri = format!("http://{}{route}", self.address);
        let response = client.get(uri.parse().unwrap()).await.unwrap();
        assert!([StatusCode::OK, StatusCode::TOO_MANY_REQUESTS].contains(&response.status()));
        response.status() == StatusCode::OK
    }

    /// Returns how many requests are admitted until one is refused, 100 at most.
    async fn admitted(&self, route: &str) -> u64 {
        for admitted in 0..100 {
            if !self.is_admitted(route).await {
                return admitted;
            }
        }
        100
    }

    /// Changes the file, and sends SIGHUP to this process.
    fn change(&self, text: &str) {
        fs::write(&self.path, text).unwrap();
        let kill = format!("kill -s HUP {}", std::process::id());
        assert!(
            Command::new("sh")
                .args(["-c", &kill])
                .status()
                .unwrap()
                .success()
        );
    }
}

// One test: the signal reaches all servers of this process.
#[tokio::test]
async fn rules_change_on_sighup_and_nobody_who_is_exhausted_begins_anew() {
    let server = Server::start().await;
    assert_eq!(server.admitted("/upload").await, 3);
    assert_eq!(server.admitted("/search").await, 10);
    // 13 of `total` are spent: refused requests were charged to neither.

    // A rule that is none, and a file without a rule: nothing is changed.
    let higher = file().replace("fixed-window 3/1h", "fixed-window 7/1h");
    let wrong = higher.replace("token-bucket 10/1000h", "token-bucket 10");
    let missing = higher.replace("search = \"token-bucket 10/1000h\"\n", "");
    for bad in [wrong, missing] {
        assert_ne!(bad, higher);
        server.change(&bad);
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert_eq!(server.admitted("/upload").await, 0);
    }

    // A higher limit of one route admits the difference, and `total` has room for it.
    server.change(&higher);
    let mut admitted = 0;
    for _ in 0..500 {
        admitted += server.admitted("/upload").await;
        if admitted == 4 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(admitted, 4);
    assert_eq!(server.admitted("/upload").await, 0);
}

#[test]
fn a_route_with_an_unknown_rule_is_an_error() {
    let file: File = toml::from_str(&file().replace("\"upload\"]", "\"uploads\"]")).unwrap();
    let error = Limits::new(file).err().unwrap().to_string();
    assert!(error.contains("`uploads`"), "{error}");
}
