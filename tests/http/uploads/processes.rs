//! Clients as they are used, which upload to a server that refuses.

use std::{fs::File, net::SocketAddr, path::Path};

use support::servers::client;
use tokio::process::Command;
use tollgate::respond::{DrainStats, Http};

use super::{app, ended, serve};

const UPLOADS: usize = 40;
/// 20 MB: more than the buffers of a connection hold, and less than the bound.
const SIZE: usize = 20_000_000;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Client {
    HttpModule,
    Urllib,
    Fetch,
    /// Sends `Expect: 100-continue` with large bodies.
    Curl,
    CurlWithoutExpect,
}

impl Client {
    fn program(self) -> &'static str {
        match self {
            Self::HttpModule | Self::Urllib => "python3",
            Self::Fetch => "node",
            Self::Curl | Self::CurlWithoutExpect => "curl",
        }
    }

    /// Sends uploads one after the other. Returns a line for each: the status and the body, or the
    /// error. `None` if the program is missing.
    async fn upload(self, to: SocketAddr, count: usize) -> Option<Vec<String>> {
        let mut command = Command::new(client(self.program())?);
        let is_curl = self.program() == "curl";
        if is_curl {
            let zeros = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("upload-{self:?}"));
            File::create(&zeros).unwrap().set_len(SIZE as u64).unwrap();
            // A line with the body of the answer, and one with its status.
            let line = "\\n%{http_code} uploaded=%{size_upload} %{errormsg}\\n";
            command
                .args(["--silent", "--noproxy", "*", "--max-time", "30"])
                .args(["--write-out", line])
                .arg("--data-binary")
                .arg(format!("@{}", zeros.display()))
                .arg(format!("http://{to}/?[1-{count}]"));
            if self == Self::CurlWithoutExpect {
                command.args(["--header", "Expect:"]);
            }
        } else {
            let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/http/uploads");
            match self {
                Self::Fetch => command.arg(scripts.join("client.mjs")),
                Self::Urllib => command.arg(scripts.join("client.py")).arg("urllib"),
                _ => command.arg(scripts.join("client.py")).arg("http.client"),
            };
            command.args([to.to_string(), count.to_string(), SIZE.to_string()]);
        }
        let output = command.kill_on_drop(true).output().await.unwrap();
        let lines = String::from_utf8(output.stdout).unwrap();
        let lines: Vec<_> = lines.lines().collect();
        let lines: Vec<_> = lines
            .chunks_exact(if is_curl { 2 } else { 1 })
            .map(|lines| lines.iter().rev().copied().collect::<Vec<_>>().join(" "))
            .collect();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(lines.len(), count, "{self:?}: {lines:?} {errors}");
        Some(lines)
    }
}

/// Sends one upload that passes, and 40 that are refused, of which 39 must get their answer.
/// Returns the lines of these, and the counters.
///
/// Without the setter most clients get less: the page of `DrainBodies` has the numbers.
async fn refused(client: Client) -> Option<(Vec<String>, DrainStats)> {
    let respond = Http::new().drain_bodies();
    let address = serve(app(Some(&respond))).await;
    let mut lines = client.upload(address, UPLOADS + 1).await?;
    let admitted = lines.remove(0);
    let is_whole = admitted.ends_with(&format!("{SIZE} bytes"));
    assert!(admitted.starts_with("200 ") && is_whole, "{admitted}");

    // With the problem document as a whole.
    let is_answer = |line: &&String| {
        line.starts_with("429 ") && line.contains("\"status\":429") && line.ends_with('}')
    };
    let answered = lines.iter().filter(is_answer).count();
    let stats = ended(&respond).await;
    eprintln!("{client:?}: {answered} of {UPLOADS} answers, {stats:?}");
    assert!(answered >= UPLOADS - 1, "{client:?}: {lines:?}");
    // None was given up or crowded out.
    assert_eq!(stats.started, stats.finished + stats.failed, "{stats:?}");
    Some((lines, stats))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn python_http_client_gets_the_answer() {
    if let Some((_, stats)) = refused(Client::HttpModule).await {
        // It reads the answer when it has sent all.
        assert_eq!((stats.started, stats.finished), (40, 40));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn python_urllib_gets_the_answer() {
    if let Some((_, stats)) = refused(Client::Urllib).await {
        assert_eq!((stats.started, stats.finished), (40, 40));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_fetch_gets_the_answer() {
    if let Some((_, stats)) = refused(Client::Fetch).await {
        assert_eq!(stats.started, 40);
    }
}

/// Curl waits for the answer to its expectation, and then sends nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn curl_gets_the_answer_and_sends_no_body() {
    if let Some((lines, stats)) = refused(Client::Curl).await {
        for line in lines {
            assert!(line.contains(" uploaded=0 "), "{line}");
        }
        assert_eq!(stats, DrainStats::default());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn curl_without_an_expectation_gets_the_answer() {
    if let Some((_, stats)) = refused(Client::CurlWithoutExpect).await {
        assert_eq!(stats.started, 40);
    }
}
