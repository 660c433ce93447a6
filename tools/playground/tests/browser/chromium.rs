//! A client of Chromium's DevTools protocol, over pipes.

use std::{
    env, fs,
    io::{BufRead, BufReader, Write},
    path::PathBuf,
    process::{Child, ChildStdin, Command, Stdio},
    sync::{
        atomic::{AtomicU32, Ordering},
        mpsc::{self, Receiver},
    },
    thread,
    time::Duration,
};

use serde_json::{Value, json};

/// How long a busy machine may take for an answer.
const PATIENCE: Duration = Duration::from_secs(60);

/// A browser with one tab. It is stopped when it is dropped.
pub(crate) struct Chromium {
    child: Child,
    input: ChildStdin,
    messages: Receiver<Value>,
    /// The events that came while answers were awaited.
    pub(crate) events: Vec<Value>,
    session: Option<String>,
    last_id: u64,
    profile: PathBuf,
}

impl Chromium {
    pub(crate) fn start() -> Self {
        static STARTED: AtomicU32 = AtomicU32::new(0);
        let program = env::var("CHROMIUM").unwrap_or_else(|_| "chromium".to_owned());
        let version = Command::new(&program).arg("--version").output();
        assert!(
            version.is_ok_and(|output| output.status.success()),
            "no browser `{program}`: expected Debian's Chromium on the PATH; install it by `apt-get install chromium`, \
             or name another program, as in `CHROMIUM=google-chrome`"
        );
        let number = STARTED.fetch_add(1, Ordering::Relaxed);
        let profile = PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
            .join(format!("chromium-{}-{number}", std::process::id()));
        let mut child = Command::new("sh")
            // It reads commands from descriptor 3, and writes answers to 4.
            .args(["-c", r#"exec "$0" "$@" 3<&0 4>&1 </dev/null >/dev/null"#])
            .arg(program)
            .args(["--headless", "--remote-debugging-pipe", "--disable-gpu"])
            // The sandbox needs another user than root, and the page is our own.
            .arg("--no-sandbox")
            .arg(format!("--user-data-dir={}", profile.display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let (sender, messages) = mpsc::channel();
        thread::spawn(move || {
            for message in output.split(0) {
                let message = message.map(|bytes| serde_json::from_slice(&bytes).unwrap());
                if message.is_err() || sender.send(message.unwrap()).is_err() {
                    break;
                }
            }
        });
        let mut chromium = Self {
            input: child.stdin.take().unwrap(),
            child,
            messages,
            events: Vec::new(),
            session: None,
            last_id: 0,
            profile,
        };
        let tab = chromium.call("Target.createTarget", json!({ "url": "about:blank" }));
        let attach = json!({ "targetId": tab["targetId"], "flatten": true });
        let attached = chromium.call("Target.attachToTarget", attach);
        chromium.session = attached["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Runtime", "Log", "Network", "Accessibility"] {
            chromium.call(&format!("{domain}.enable"), json!({}));
        }
        chromium
    }

    /// Sends a command and returns its result.
    pub(crate) fn call(&mut self, method: &str, parameters: Value) -> Value {
        self.last_id += 1;
        let mut command = json!({ "id": self.last_id, "method": method, "params": parameters });
        if let Some(session) = &self.session {
            command["sessionId"] = json!(session);
        }
        write!(self.input, "{command}\0").unwrap();
        loop {
            let message = self.messages.recv_timeout(PATIENCE);
            let mut message = message.unwrap_or_else(|_| panic!("no answer to {method}"));
            if message["id"] == self.last_id {
                assert!(message["error"].is_null(), "{method}: {message}");
                return message["result"].take();
            }
            self.events.push(message);
        }
    }

    /// Returns the value of an expression in the page.
    pub(crate) fn evaluate(&mut self, expression: &str) -> Value {
        let parameters = json!({ "expression": expression, "returnByValue": true });
        let mut result = self.call("Runtime.evaluate", parameters);
        assert!(
            result["exceptionDetails"].is_null(),
            "{expression}: {result}"
        );
        result["result"]["value"].take()
    }

    /// Waits until an expression in the page is true.
    pub(crate) fn wait_for(&mut self, expression: &str) {
        let pause = Duration::from_millis(20);
        for _ in 0..PATIENCE.as_millis() / pause.as_millis() {
            if self.evaluate(expression) == true {
                return;
            }
            thread::sleep(pause);
        }
        panic!("never true: {expression}");
    }

    /// Returns the parameters of the events of this name so far.
    pub(crate) fn events_of(&self, method: &str) -> Vec<&Value> {
        let events = self.events.iter().filter(|event| event["method"] == method);
        events.map(|event| &event["params"]).collect()
    }
}

impl Drop for Chromium {
    fn drop(&mut self) {
        // It also ends by itself when its pipe is closed, if it can.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.profile);
    }
}
