//! A server, a file that changes, and the signal.

use std::{fs, process::Command, time::Duration};

use axum::body::Body;
use http::StatusCode;
use hyper_util::{client::legacy::Client, rt::TokioExecutor};

use super::*;

const FILE: &str = include_str!("limits.toml");

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
        fs::write(&path, FILE).unwrap();
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

    // A file that cannot be read changes nothing, nor does one without a rule.
    server.change("[rules]\ntotal = \"token-bucket 20\"");
    server.change(&FILE.replace("search = \"token-bucket 10/1m\"\n", ""));
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(server.admitted("/upload").await, 0);

    // With the same rule again, who is exhausted stays so.
    server.change(FILE);
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(server.admitted("/upload").await, 0);

    // A higher limit of one route: 4 more uploads, of which `total` admits all.
    server.change(&FILE.replace("fixed-window 3/1h", "fixed-window 7/1h"));
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
    let file: File = toml::from_str(&FILE.replace("\"upload\"]", "\"uploads\"]")).unwrap();
    let error = Limits::new(file).err().unwrap().to_string();
    assert!(error.contains("`uploads`"), "{error}");
}
