//! One server process: started, watched, signalled, and killed with its handle.

mod spawn;

use std::{
    fmt,
    fs::{self, File},
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use super::{
    place::{self, Folder},
    wait::wait_until,
};

const STARTS: Duration = Duration::from_secs(20);
const ATTEMPTS: usize = 3;

/// A program that `test.sh` provides, and its package.
#[derive(Clone, Copy, Debug)]
pub(super) struct Program {
    pub(super) name: &'static str,
    pub(super) package: &'static str,
}

impl Program {
    fn path(self) -> PathBuf {
        let Self { name, package } = self;
        place::may_start(name);
        place::program(name).unwrap_or_else(|| {
            panic!("no {name} found: run ./test.sh once, or install Debian's {package}")
        })
    }
}

/// Checks that the process with this id, and no other one, serves this address. Otherwise returns a
/// description of the current state.
type Answers = dyn Fn(SocketAddr, u32) -> Result<(), String> + Send + Sync;

/// A process that serves a port of the loopback. When dropped, it is killed and its files are
/// removed.
pub struct Server {
    program: Program,
    arguments: Vec<String>,
    port: u16,
    answers: Arc<Answers>,
    child: Mutex<Option<Child>>,
    folder: Folder,
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at port {}", self.program.name, self.port)
    }
}

impl Server {
    /// Starts `program` with the arguments for a port and a folder, and waits until it `answers`.
    /// If another process has taken the port, another one is tried.
    ///
    /// # Panics
    ///
    /// With the server's log, if the server does not start.
    pub(super) fn start(
        program: Program,
        arguments: impl Fn(u16, &Path) -> Vec<String>,
        answers: impl Fn(SocketAddr, u32) -> Result<(), String> + Send + Sync + 'static,
    ) -> Self {
        let answers: Arc<Answers> = Arc::new(answers);
        within_attempts(|| {
            let (port, folder) = (place::free_port(), Folder::new());
            let server = Self {
                program,
                arguments: arguments(port, folder.path()),
                port,
                answers: Arc::clone(&answers),
                child: Mutex::new(None),
                folder,
            };
            server.launch().map(|()| server)
        })
    }

    fn launch(&self) -> Result<(), String> {
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.log_file());
        let log = log.unwrap();
        let mut command = spawn::bound_to_us(&self.program.path());
        command
            .args(&self.arguments)
            .current_dir(self.folder.path())
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log);
        let child = spawn::spawn(command).unwrap();
        let id = child.id();
        *self.child() = Some(child);

        let start = Instant::now();
        let why = loop {
            match (self.answers)(self.address(), id) {
                Ok(()) => return Ok(()),
                Err(_) if !self.is_running() => break "the process ended".to_owned(),
                Err(seen) if start.elapsed() > STARTS => {
                    break format!("no answer within {STARTS:?}; seen last: {seen}");
                }
                Err(_) => thread::sleep(Duration::from_millis(5)),
            }
        };
        self.kill();
        let (arguments, log) = (&self.arguments, self.log());
        Err(format!(
            "{self:?} does not start: {why}\narguments: {arguments:?}\nlog:\n{log}"
        ))
    }

    fn child(&self) -> MutexGuard<'_, Option<Child>> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// Returns `true` from the start until the process ends or is killed, also while it is paused.
    pub fn is_running(&self) -> bool {
        let mut child = self.child();
        child
            .as_mut()
            .is_some_and(|child| matches!(child.try_wait(), Ok(None)))
    }

    /// Returns the id of the process.
    ///
    /// # Panics
    ///
    /// If the process was killed.
    pub fn process_id(&self) -> u32 {
        let id = self.child().as_ref().map(Child::id);
        id.unwrap_or_else(|| panic!("{self:?} was killed: restart it first"))
    }

    /// Returns the standard output and error since the first start.
    pub fn log(&self) -> String {
        let log = fs::read(self.log_file()).unwrap_or_default();
        String::from_utf8_lossy(&log).into_owned()
    }

    fn log_file(&self) -> PathBuf {
        self.folder.path().join("log")
    }

    /// Suspends the process (`SIGSTOP`): connections stay open, new ones are accepted, and nothing
    /// is answered.
    pub fn pause(&self) {
        self.signal("STOP");
        self.wait_for_state("a stopped process", |state| state == "T");
    }

    /// Resumes a paused process (`SIGCONT`).
    pub fn resume(&self) {
        self.signal("CONT");
        self.wait_for_state("a process that goes on", |state| state != "T");
    }

    /// Kills the process (`SIGKILL`), even if it is paused. Connections are closed, and new ones
    /// refused. Does nothing if the process is not running.
    pub fn kill(&self) {
        if let Some(mut child) = self.child().take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Kills the process if it runs, and starts it on the same port with the same files.
    pub fn restart(&self) {
        self.kill();
        within_attempts(|| self.launch());
    }

    /// Restarts the process without its files.
    pub fn restart_empty(&self) {
        self.kill();
        self.folder.empty_but_for(&self.log_file());
        self.restart();
    }

    /// Returns the user and kernel processor time of the process since its start, in steps of 10
    /// ms.
    pub fn cpu_time(&self) -> Duration {
        // proc(5): fields 14 and 15 are in ticks, of which Linux has a hundred a second.
        let statistics = self.statistics();
        let ticks = |field: usize| statistics[field - 3].parse::<u64>().unwrap();
        Duration::from_millis(10 * (ticks(14) + ticks(15)))
    }

    /// Returns the fields of `/proc/<id>/stat` from the third one on, which is the state.
    fn statistics(&self) -> Vec<String> {
        let text = fs::read_to_string(format!("/proc/{}/stat", self.process_id())).unwrap();
        // The second field is the program's name in parentheses, which may contain any character.
        let (_, fields) = text.rsplit_once(") ").unwrap();
        fields.split(' ').map(str::to_owned).collect()
    }

    fn wait_for_state(&self, what: &str, is_it: impl Fn(&str) -> bool) {
        wait_until(what, Duration::from_secs(5), || {
            let state = self.statistics().swap_remove(0);
            if is_it(&state) { Ok(()) } else { Err(state) }
        });
    }

    /// Uses the `kill` of a shell, because the standard library sends only `SIGKILL`.
    pub(super) fn signal(&self, name: &str) {
        let script = r#"kill -s "$1" "$2""#;
        let id = self.process_id().to_string();
        let status = Command::new("sh")
            .args(["-c", script, "sh", name, &id])
            .status()
            .unwrap();
        assert!(status.success(), "SIG{name} to {self:?}: {status}");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

fn within_attempts<T>(mut attempt: impl FnMut() -> Result<T, String>) -> T {
    let mut failure = String::new();
    for _ in 0..ATTEMPTS {
        match attempt() {
            Ok(value) => return value,
            Err(why) => failure = why,
        }
    }
    panic!("{failure}")
}
