//! Parses the command line by hand.

use std::{ffi::OsString, fmt::Display, path::PathBuf, str::FromStr};

use tollgate::{AnyRule, key::AnyKey};

use crate::engine::line::rule_of;

pub(crate) const HELP: &str = "\
Shows what a rule would have done to recorded traffic.

Usage: replay --rule RULE [FLAG]... [FILE]... <in >out
       replay --config FILE [FLAG]... [FILE]... <in >out

  --rule RULE      how much is allowed, as in \"token-bucket 10/1m burst=20\"
  --compare RULE   another rule for the same access log; reports where the two differ
  --format FORMAT  what is read                        [csv]
                     csv       lines t_ns,key,cost[,op[,class]]; answers each with a line
                     combined  access logs, Common or Combined Log Format; reports at the end
  --csv            the same as --format csv
  --key KEY        who is limited in an access log     [peer-ip]
                     a key of the library, as far as a log knows it: peer-ip, path, method,
                     \"header user-agent\", \"header referer\", \"header remote-user\" for the
                     user, \"peer-ip + path\", \"header remote-user or peer-ip\"
  --config FILE    instead of --rule and --key: the limits and routes of a file, for access logs;
                   --compare then names another file. Each request ends at once, with its status
  --top N          how many refused keys the report names  [20]
  --keys N         how many keys are remembered at once; without it, all
  --plot FILE      draws requests over time as SVG
  --help           shows this

Without a FILE, or for -, standard input is read.

In CSV, t_ns are nanoseconds since 1970, op is spend (or nothing), look, peek, or refund (of what the key
was charged last), and class the colour that the call was given before: 0 green, 1 yellow, 2 red. A line
`t_ns,,0,rule,RULE` changes the rule from there on. A first line `t_ns,key,cost…` is a header.

Exit status: 0, 1 if a line was malformed or something could not be read or written, 2 for a wrong flag.
";

/// The command to run.
pub(crate) enum Command {
    Help,
    Replay(Box<Args>),
    Files(FileArgs),
}

/// The settings of a replay.
pub(crate) struct Args {
    pub(crate) rule: AnyRule,
    /// The rule to compare with, for access logs.
    pub(crate) compare: Option<AnyRule>,
    pub(crate) format: Format,
    pub(crate) keys: Option<usize>,
    pub(crate) plot: Option<PathBuf>,
    /// Empty for standard input.
    pub(crate) files: Vec<PathBuf>,
}

#[derive(Clone)]
pub(crate) enum Format {
    Csv,
    /// An access log, with the key of the limit and the number of keys to list.
    Combined {
        key: Box<AnyKey>,
        top: usize,
    },
}

/// The settings of a replay under files of limits.
pub(crate) struct FileArgs {
    pub(crate) file: PathBuf,
    pub(crate) compare: Option<PathBuf>,
    /// The number of keys to list.
    pub(crate) top: usize,
    /// Empty for standard input.
    pub(crate) files: Vec<PathBuf>,
}

impl Command {
    /// Parses the arguments after the program's name, or returns a sentence that says what is wrong
    /// with them.
    pub(crate) fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Self, String> {
        let (mut rule, mut format, mut key, mut top) = (None, None, None, None);
        let (mut compare, mut keys, mut plot, mut files) = (None, None, None, Vec::new());
        let mut config = None;
        let mut args = args.into_iter();
        while let Some(arg) = args.next() {
            if arg == "-" || !arg.as_encoded_bytes().starts_with(b"-") {
                files.push(PathBuf::from(arg));
                continue;
            }
            let arg = text(arg)?;
            let (flag, value) = match arg.split_once('=') {
                Some((flag, value)) if flag.starts_with("--") => (flag, Some(value.to_owned())),
                _ => (arg.as_str(), None),
            };
            match (flag, &value) {
                ("--help" | "-h", None) => return Ok(Self::Help),
                ("--csv", None) => set(&mut format, "--format", "csv".to_owned())?,
                ("--csv" | "--help", Some(_)) => return Err(format!("{flag} takes no value")),
                (
                    "--rule" | "--compare" | "--format" | "--key" | "--top" | "--keys" | "--plot"
                    | "--config",
                    _,
                ) => {
                    let value = match value {
                        Some(value) => value,
                        None => text(args.next().ok_or_else(|| {
                            format!("{flag} needs a value after it; --help shows examples")
                        })?)?,
                    };
                    match flag {
                        "--rule" => set(&mut rule, flag, parsed_rule(flag, &value)?)?,
                        "--compare" => set(&mut compare, flag, value)?,
                        "--config" => set(&mut config, flag, value)?,
                        "--format" => set(&mut format, flag, value)?,
                        "--key" => set(&mut key, flag, parsed(flag, &value)?)?,
                        "--top" => set(&mut top, flag, number(flag, &value)?)?,
                        "--keys" => set(&mut keys, flag, number(flag, &value)?)?,
                        _ => set(&mut plot, flag, value)?,
                    }
                }
                _ => {
                    return Err(format!(
                        "unknown flag `{arg}`: expected --rule, --compare, --format, --csv, --key, --top, \
                         --keys, --plot, --config or --help"
                    ));
                }
            }
        }
        if keys == Some(0) {
            return Err(
                "--keys 0: expected at least 1; without --keys all are remembered".to_owned(),
            );
        }
        if let Some(config) = config {
            let excluded = [
                ("--rule", rule.is_some()),
                ("--key", key.is_some()),
                ("--keys", keys.is_some()),
                ("--plot", plot.is_some()),
                ("--format csv", format.as_deref() == Some("csv")),
            ];
            if let Some((flag, _)) = excluded.iter().find(|(_, is_given)| *is_given) {
                return Err(format!(
                    "--config does not go with {flag}: expected one of them; take one out"
                ));
            }
            return Ok(Self::Files(FileArgs {
                file: config.into(),
                compare: compare.map(PathBuf::from),
                top: top.unwrap_or(20),
                files,
            }));
        }
        let compare = compare
            .map(|rule| parsed_rule("--compare", &rule))
            .transpose()?;
        let format = match format.as_deref() {
            None | Some("csv") => match (key, top, &compare) {
                (None, None, None) => Format::Csv,
                (Some(_), _, _) => return Err(only_for_logs("--key")),
                (None, Some(_), _) => return Err(only_for_logs("--top")),
                (None, None, Some(_)) => return Err(only_for_logs("--compare")),
            },
            Some("combined") => Format::Combined {
                key: Box::new(key.map_or_else(|| parsed("--key", "peer-ip"), Ok)?),
                top: top.unwrap_or(20),
            },
            Some(other) => {
                return Err(format!("--format \"{other}\": expected csv or combined"));
            }
        };
        let rule = rule.ok_or(
            "no --rule: expected one, as in --rule \"token-bucket 10/1m burst=20\"; --help shows more",
        )?;
        Ok(Self::Replay(Box::new(Args {
            rule,
            compare,
            format,
            keys,
            plot: plot.map(PathBuf::from),
            files,
        })))
    }
}

fn only_for_logs(flag: &str) -> String {
    format!(
        "{flag} is for access logs: expected --format combined with it; take {flag} out for CSV"
    )
}

fn text(arg: OsString) -> Result<String, String> {
    arg.into_string()
        .map_err(|arg| format!("the argument {arg:?} is not UTF-8: expected plain text"))
}

fn set<T>(slot: &mut Option<T>, flag: &str, value: T) -> Result<(), String> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(format!(
            "{flag} is given twice: expected it once; take one out"
        )),
    }
}

fn parsed<T: FromStr<Err: Display>>(flag: &str, value: &str) -> Result<T, String> {
    value
        .parse()
        .map_err(|error| format!("{flag} \"{value}\": {error}"))
}

fn parsed_rule(flag: &str, value: &str) -> Result<AnyRule, String> {
    rule_of(value).map_err(|error| format!("{flag} \"{value}\": {error}"))
}

fn number(flag: &str, value: &str) -> Result<usize, String> {
    value
        .parse()
        .map_err(|_| format!("{flag} \"{value}\": expected a whole number, as in {flag} 20"))
}
