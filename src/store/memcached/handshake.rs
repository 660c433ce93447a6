//! Checks of a new connection: the version of the server, and its settings.

use std::time::Duration;

use super::{
    command::Precondition,
    error::unexpected,
    pipeline::{Pipeline, ServerTime},
    response::Response,
};
use crate::store::Error;

/// The first version with meta commands.
const OLDEST: [u64; 2] = [1, 6];

/// A key that is never stored. Commands for it have no effect, but fail if the server does not know them.
const UNUSED_KEY: &[u8] = b"tollgate:nobody";

/// Checks that the server supports the necessary commands, and reads its time and its largest item.
pub(super) async fn handshake(mut pipeline: Pipeline) -> Result<Pipeline, Error> {
    let version = pipeline.send(|commands| _ = commands.plain("version"));
    match version.await?.first() {
        Some(Response::Version(version)) if is_old(version) => {
            return Err(Error::other(format!(
                "the memcached server has version {version}, which has no meta commands: expected {}.{} or later; update it",
                OLDEST[0], OLDEST[1],
            )));
        }
        Some(Response::Version(_)) => {}
        other => return Err(unexpected(other)),
    }
    let asked_at = pipeline.now();
    let probe = pipeline.send(|commands| {
        commands.get(UNUSED_KEY, true).subtract(UNUSED_KEY, 1);
        commands.delete(UNUSED_KEY, Precondition::Unchanged(1));
        // This write has no effect either, as the key has no value.
        commands.set(
            UNUSED_KEY,
            b"",
            Precondition::Unchanged(1),
            Duration::from_secs(1),
        );
        commands.plain("stats").plain("stats settings");
    });
    let responses = probe.await?;
    for (response, command) in responses.iter().zip(["mg", "ma", "md", "ms"]) {
        if let Response::Error(line) = response {
            return Err(Error::other(format!(
                "the memcached server does not support the necessary form of the command `{command}` (it answers {line:?}): expected \
                 memcached {}.{} or later; update it",
                OLDEST[0], OLDEST[1],
            )));
        }
    }
    if stat(&responses, "cas_enabled") == Some("no") {
        return Err(Error::other(
            "the memcached server has compare-and-swap disabled: expected it to be enabled; \
             start the server without -C",
        ));
    }
    pipeline.set_server_time(ServerTime {
        seconds: number(&responses, "time")?,
        at: asked_at,
    });
    pipeline.max_item_size = number(&responses, "item_size_max")?;
    Ok(pipeline)
}

/// Returns a line of `stats`.
fn stat<'a>(responses: &'a [Response], name: &str) -> Option<&'a str> {
    let mut lines = responses.iter().filter_map(|response| match response {
        Response::Lines(lines) => Some(lines),
        _ => None,
    });
    let (_, value) = lines.find_map(|lines| lines.iter().find(|(is, _)| is == name))?;
    Some(value)
}

/// Returns a number of `stats`.
///
/// # Errors
///
/// When it is not among the responses.
pub(super) fn number(responses: &[Response], name: &str) -> Result<u64, Error> {
    let found = stat(responses, name).and_then(|value| value.parse().ok());
    found.ok_or_else(|| {
        Error::other(format!(
            "the `stats` of the memcached server have no `{name}`: expected a number; update it"
        ))
    })
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
    fn versions_are_compared_by_number() {
        for version in ["1.5.22", "1.4", "0.9", "1", ""] {
            assert!(is_old(version), "{version}");
        }
        for version in ["1.6.0", "1.6", "1.6.18", "1.10.1", "2.0", "1.6.0-beta1"] {
            assert!(!is_old(version), "{version}");
        }
    }
}
