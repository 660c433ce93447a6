//! What a server is asked first: whether it can do what is needed.

use std::time::Duration;

use super::{answer::Answer, command::Expected, link::Link, pool::unexpected};
use crate::store::Error;

/// The first version with meta commands.
const OLDEST: [u64; 2] = [1, 6];

/// A key that nobody ever stores: commands about it change nothing, and tell that they are known.
const NOBODY: &[u8] = b"tollgate:nobody";

/// Sees that the server can do what is asked of it, and learns its time and its limits.
pub(super) async fn greet(mut link: Link) -> Result<Link, Error> {
    let answers = link.ask(|commands| _ = commands.plain("version")).await?;
    match answers.first() {
        Some(Answer::Version(version)) if is_old(version) => {
            return Err(Error::other(format!(
                "the memcached server is of version {version}, which has no meta commands: expected {}.{} or later; update it",
                OLDEST[0], OLDEST[1],
            )));
        }
        Some(Answer::Version(_)) => {}
        other => return Err(unexpected(other)),
    }
    let asked_at = link.now();
    let probe = link.ask(|commands| {
        commands.get(NOBODY, true).subtract(NOBODY, 1);
        commands.delete(NOBODY, Expected::Write(1));
        // What is expected is not there.
        commands.set(NOBODY, b"", Expected::Write(1), Duration::from_secs(1));
        commands.plain("stats").plain("stats settings");
    });
    let answers = probe.await?;
    let (lines, known): (Vec<_>, Vec<_>) = answers
        .iter()
        .partition(|answer| matches!(answer, Answer::Lines(_)));
    for (answer, command) in known.iter().zip(["mg", "ma", "md", "ms"]) {
        if let Answer::Error(line) = answer {
            return Err(Error::other(format!(
                "the memcached server does not know the command `{command}` as it is needed (it answers {line:?}): expected \
                 memcached {}.{} or later; update it",
                OLDEST[0], OLDEST[1],
            )));
        }
    }
    let stat = |name: &str| {
        let mut lines = lines.iter().filter_map(|answer| match answer {
            Answer::Lines(lines) => Some(lines),
            _ => None,
        });
        lines.find_map(|lines| lines.iter().find(|(is, _)| is == name))
    };
    let number = |name: &str| -> Result<u64, Error> {
        let found = stat(name).and_then(|(_, value)| value.parse().ok());
        found.ok_or_else(|| {
            Error::other(format!(
                "the memcached server's `stats` tell no `{name}`: expected a number; update it"
            ))
        })
    };
    if stat("cas_enabled").is_some_and(|(_, value)| value == "no") {
        return Err(Error::other(
            "the memcached server counts no writes, so that nothing can be compared and swapped: expected numbered writes; \
             start it without -C",
        ));
    }
    link.dated = (number("time")?, asked_at);
    link.largest = number("item_size_max")?;
    Ok(link)
}

fn is_old(version: &str) -> bool {
    let parts: Vec<u64> = version
        .split('.')
        .map_while(|part| part.parse().ok())
        .collect();
    parts[..] < OLDEST[..]
}

#[cfg(test)]
mod tests {
    use super::is_old;

    #[test]
    fn versions_are_numbers() {
        for version in ["1.5.22", "1.4", "0.9", "1", ""] {
            assert!(is_old(version), "{version}");
        }
        for version in ["1.6.0", "1.6", "1.6.18", "1.10.1", "2.0", "1.6.0-beta1"] {
            assert!(!is_old(version), "{version}");
        }
    }
}
