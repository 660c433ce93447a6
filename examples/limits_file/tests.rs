//! A server, and a file that changes.

use std::time::Duration;

use axum::body::Body;
use http::{Request, StatusCode};
use hyper_util::{client::legacy::Client, rt::TokioExecutor};

use super::*;

/// The file, with rules that refill nothing during the test, whenever it begins.
fn file() -> String {
    let text = include_str!("limits.toml").replace("/1m", "/1000h");
    text.replace("fixed-window 3/1h", "fixed-window 3/1h from=first-call")
}

/// A server that follows a file of the test.
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

    async fn is_admitted(&self, method: &str, path: &str) -> bool {
        let client = Client::builder(TokioExecutor::new()).build_http::<Body>();
        let uri = format!("http://{}{path}", self.address);
        let request = Request::builder().method(method).uri(uri);
        let response = client.request(request.body(Body::empty()).unwrap());
        let status = response.await.unwrap().status();
        assert!([StatusCode::OK, StatusCode::TOO_MANY_REQUESTS].contains(&status));
        status == StatusCode::OK
    }

    /// Returns how many requests are admitted until one is refused, 100 at most.
    async fn admitted(&self, method: &str, path: &str) -> u64 {
        for admitted in 0..100 {
            if !self.is_admitted(method, path).await {
                return admitted;
            }
        }
        100
    }

    fn change(&self, text: &str) {
        let new = format!("{}.new", self.path);
        fs::write(&new, text).unwrap();
        fs::rename(new, &self.path).unwrap();
    }
}

#[tokio::test]
async fn nobody_who_is_exhausted_begins_anew() {
    let server = Server::start().await;
    assert_eq!(server.admitted("POST", "/upload").await, 3);
    assert_eq!(server.admitted("GET", "/search").await, 10);
    // 13 of `total` are spent: refused requests were charged to neither.

    // A file with a mistake changes nothing.
    let higher = file().replace("fixed-window 3/1h", "fixed-window 7/1h");
    server.change(&higher.replace("token-bucket 10/1000h", "token-bucket 10"));
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(server.admitted("POST", "/upload").await, 0);

    // A higher limit of one route admits the difference, and `total` has room for it.
    server.change(&higher);
    let mut admitted = 0;
    for _ in 0..500 {
        admitted += server.admitted("POST", "/upload").await;
        if admitted == 4 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(admitted, 4);
    assert_eq!(server.admitted("POST", "/upload").await, 0);
}
