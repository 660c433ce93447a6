//! The command line of the programs.

use std::{env, error::Error, process::ExitCode, str::FromStr};

/// The values of flags.
pub(crate) struct Flags(Vec<(&'static str, String)>);

impl Flags {
    /// Reads the arguments over defaults. `None` if the help was asked for.
    fn read(defaults: &[(&'static str, &str)]) -> Result<Option<Self>, String> {
        let values = defaults
            .iter()
            .map(|(flag, value)| (*flag, (*value).to_owned()));
        let mut flags = Self(values.collect());
        let mut args = env::args().skip(1);
        while let Some(flag) = args.next() {
            if flag == "--help" {
                return Ok(None);
            }
            let known = flags.0.iter_mut().find(|(known, _)| *known == flag);
            let (_, value) = known.ok_or_else(|| format!("unknown flag {flag}; see --help"))?;
            *value = args
                .next()
                .ok_or_else(|| format!("{flag}: expected a value; see --help"))?;
        }
        Ok(Some(flags))
    }

    pub(crate) fn text(&self, flag: &str) -> &str {
        let value = self.0.iter().find(|(known, _)| *known == flag);
        value.map_or("", |(_, value)| value)
    }

    /// Returns a value, or an error with its flag.
    pub(crate) fn get<T: FromStr<Err: std::fmt::Display>>(&self, flag: &str) -> Result<T, String> {
        let text = self.text(flag);
        text.parse()
            .map_err(|error| format!("{flag} {text}: {error}; see --help"))
    }
}

/// Reads the arguments, runs, and prints an error as one sentence.
pub(crate) async fn run<F>(
    help: &str,
    defaults: &[(&'static str, &str)],
    program: impl FnOnce(Flags) -> F,
) -> ExitCode
where
    F: Future<Output = Result<(), Box<dyn Error>>>,
{
    let flags = match Flags::read(defaults) {
        Ok(Some(flags)) => flags,
        Ok(None) => {
            print!("{help}");
            return ExitCode::SUCCESS;
        }
        Err(sentence) => {
            eprintln!("{sentence}");
            return ExitCode::from(2);
        }
    };
    match program(flags).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
