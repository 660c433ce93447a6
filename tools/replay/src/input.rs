//! The inputs, the progress bar, and the messages about malformed lines.

use std::{
    fs::{self, File},
    io::{self, BufRead, BufReader, IsTerminal, Read, Write},
    path::{Path, PathBuf},
};

use indicatif::{ProgressBar, ProgressStyle};

/// Files one after the other, or standard input.
pub(crate) struct Input {
    files: Vec<PathBuf>,
    bar: ProgressBar,
}

/// One of the files, or standard input.
pub(crate) struct Source {
    pub(crate) reader: Box<dyn Read>,
    pub(crate) complaints: Complaints,
}

/// Reports the skipped lines of a source, and counts them.
pub(crate) struct Complaints {
    pub(crate) name: String,
    pub(crate) count: u64,
    bar: ProgressBar,
}

impl Input {
    /// Opens nothing yet, and returns an error if a file is missing.
    pub(crate) fn of(mut files: Vec<PathBuf>, with_bar: bool) -> Result<Self, String> {
        if files.is_empty() {
            files.push("-".into());
        }
        let mut bytes = Some(0);
        for file in files.iter() {
            let length = if is_standard_input(file) {
                None
            } else {
                let about = fs::metadata(file)
                    .map_err(|error| cannot_read(&file.display().to_string(), &error))?;
                about.is_file().then_some(about.len())
            };
            bytes = bytes.zip(length).map(|(bytes, length)| bytes + length);
        }
        let bar = if with_bar && io::stderr().is_terminal() {
            progress(bytes)
        } else {
            ProgressBar::hidden()
        };
        Ok(Self { files, bar })
    }

    /// Opens the sources, each after the previous one has been read.
    pub(crate) fn sources(&self) -> impl Iterator<Item = Result<Source, String>> {
        self.files.iter().map(|file| {
            let mut name = file.display().to_string();
            let reader: Box<dyn Read> = if is_standard_input(file) {
                name = "standard input".to_owned();
                Box::new(io::stdin().lock())
            } else {
                Box::new(File::open(file).map_err(|error| cannot_read(&name, &error))?)
            };
            Ok(Source {
                reader: Box::new(self.bar.wrap_read(reader)),
                complaints: Complaints {
                    name,
                    count: 0,
                    bar: self.bar.clone(),
                },
            })
        })
    }

    /// Removes the progress bar.
    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

impl Complaints {
    pub(crate) fn malformed(&mut self, line: u64, problem: &str) {
        self.count += 1;
        // The message may quote input. It must stay on one line.
        let problem = problem.replace(['\n', '\r'], " ");
        let text = format!("replay: {}, line {line}: {problem}\n", self.name);
        self.bar.suspend(|| complain(&text));
    }
}

/// Writes to standard error. Ignores errors, because there is no other place to report them.
pub(crate) fn complain(text: &str) {
    let _ = io::stderr().write_all(text.as_bytes());
}

pub(crate) fn cannot_read(name: &str, error: &io::Error) -> String {
    format!("cannot read {name}: {error}")
}

fn is_standard_input(file: &Path) -> bool {
    file.as_os_str() == "-"
}

fn progress(bytes: Option<u64>) -> ProgressBar {
    let (bar, template) = match bytes {
        Some(bytes) => (
            ProgressBar::new(bytes),
            "{wide_bar} {percent:>3} % of {total_bytes}, {eta} to go",
        ),
        None => (ProgressBar::new_spinner(), "{spinner} {bytes} read"),
    };
    match ProgressStyle::with_template(template) {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

/// The numbers of lines of a source.
pub(crate) struct Lines {
    pub(crate) lines: u64,
    pub(crate) malformed: u64,
}

/// Gives each line that is not empty to `take`, and reports those that it finds malformed.
pub(crate) fn lines_of(
    source: Source,
    mut take: impl FnMut(&[u8]) -> Result<(), &'static str>,
) -> Result<Lines, String> {
    const BUFFER: usize = 1 << 16;
    let mut complaints = source.complaints;
    let mut reader = BufReader::with_capacity(BUFFER, source.reader);
    let (mut line, mut lines) = (Vec::new(), 0);
    for number in 1.. {
        line.clear();
        let read = reader.read_until(b'\n', &mut line);
        if read.map_err(|error| cannot_read(&complaints.name, &error))? == 0 {
            break;
        }
        let line = line.strip_suffix(b"\n").unwrap_or(&line);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        // A byte order mark, as some editors write it, is not part of the first host.
        let mark = "\u{feff}".as_bytes();
        let line = line
            .strip_prefix(mark)
            .filter(|_| number == 1)
            .unwrap_or(line);
        if line.is_empty() {
            continue;
        }
        lines += 1;
        if let Err(problem) = take(line) {
            complaints.malformed(number, problem);
        }
    }
    Ok(Lines {
        lines,
        malformed: complaints.count,
    })
}
