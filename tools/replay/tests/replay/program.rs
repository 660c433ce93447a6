//! The program as a child process.

use std::{
    io::{Read, Write},
    path::PathBuf,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

const SOON: Duration = Duration::from_secs(60);

#[expect(clippy::disallowed_methods, reason = "tests wait in real time")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// The output of a program that has ended.
#[derive(Debug)]
pub(crate) struct End {
    pub(crate) code: Option<i32>,
    pub(crate) output: Vec<u8>,
    pub(crate) errors: String,
}

/// Runs the program to its end on an input.
pub(crate) fn replay(args: &[&str], input: impl AsRef<[u8]>) -> End {
    run(Command::new(binary()).args(args), input.as_ref(), SOON)
}

/// Runs the program on CSV under a rule.
pub(crate) fn under(rule: &str, input: impl AsRef<[u8]>) -> End {
    replay(&["--rule", rule], input)
}

pub(crate) fn run(command: &mut Command, input: &[u8], within: Duration) -> End {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut stdin = child.stdin.take().expect("its input is piped");
    let output = all(child.stdout.take().expect("its output is piped"));
    let errors = all(child.stderr.take().expect("its errors are piped"));
    thread::scope(|scope| {
        // A program that ends early closes its input.
        scope.spawn(move || drop(stdin.write_all(input)));
        let code = wait(&mut child, within);
        End {
            code,
            output: output.join().expect("no panic"),
            errors: String::from_utf8(errors.join().expect("no panic")).expect("UTF-8"),
        }
    })
}

/// Waits for the end. Kills a program that does not end in time.
pub(crate) fn wait(child: &mut Child, within: Duration) -> Option<i32> {
    let deadline = now() + within;
    loop {
        if let Some(status) = child.try_wait().expect("it can be waited for") {
            return status.code();
        }
        if now() > deadline {
            let _ = child.kill();
            panic!("still running after {within:?}");
        }
        thread::sleep(Duration::from_millis(1));
    }
}

fn all(mut stream: impl Read + Send + 'static) -> thread::JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        let read = stream.read_to_end(&mut bytes);
        read.expect("a pipe can be read");
        bytes
    })
}

impl End {
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.output).expect("UTF-8")
    }

    /// Returns the lines of an output in CSV, without the header.
    pub(crate) fn lines(&self) -> Vec<&str> {
        let mut lines = self.text().lines();
        assert_eq!(lines.next(), Some(HEADER), "{}", self.errors);
        lines.collect()
    }

    /// Returns the lines of the output, and asserts that there were no errors.
    #[track_caller]
    pub(crate) fn clean(&self) -> Vec<&str> {
        assert_eq!((self.code, &*self.errors), (Some(0), ""), "{}", self.text());
        self.lines()
    }
}

pub(crate) const HEADER: &str =
    "t_ns,key,verdict,class,remaining,retry_after_ns,reset_after_ns,delay_ns";

/// A file in the tests' own folder, removed at the end.
pub(crate) struct TempFile(pub(crate) PathBuf);

impl TempFile {
    pub(crate) fn named(name: &str) -> Self {
        Self(
            PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
                .join(format!("{}-{name}", std::process::id())),
        )
    }

    pub(crate) fn holding(name: &str, content: &str) -> Self {
        let file = Self::named(name);
        std::fs::write(&file.0, content).expect("the folder can be written to");
        file
    }

    pub(crate) fn path(&self) -> &str {
        self.0.to_str().expect("UTF-8")
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Returns the path of the program.
pub(crate) fn binary() -> &'static str {
    env!("CARGO_BIN_EXE_replay")
}
