//! Error responses, and other unexpected ones, as errors of the store.

use super::response::Response;
use crate::store::Error;

/// The response to an addition to a value that is not a number.
pub(super) const NOT_A_NUMBER: &str =
    "CLIENT_ERROR cannot increment or decrement non-numeric value";

/// The response to a write whose value is too large; the server reads and discards the value.
pub(super) const TOO_LARGE: &str = "SERVER_ERROR object too large";

/// Returns `true` for the response to a write, or to an addition that creates a counter, without memory; the words differ by
/// command.
pub(super) fn is_out_of_memory(line: &str) -> bool {
    line.starts_with("SERVER_ERROR") && line.to_ascii_lowercase().contains("out of memory")
}

/// Converts an unexpected response.
pub(super) fn unexpected(response: Option<&Response>) -> Error {
    let Some(Response::Error(line)) = response else {
        return Error::other(format!(
            "memcached answered {response:?}: expected a response to the command that was sent; check that memcached \
             1.6 or later listens on that port"
        ));
    };
    let help = if line.starts_with(TOO_LARGE) {
        return Error::unsupported(format!(
            "memcached answered {line:?}: expected a state that fits into an item; start it with a larger -I, or choose a rule with \
             smaller states"
        ));
    } else if is_out_of_memory(line) {
        let text = format!(
            "memcached answered {line:?}: expected room for a state; give it more memory (-m), or let it evict (without -M)"
        );
        // Not even a refusal can be told without the response to a read.
        return match line.contains("get response") {
            true => Error::other(text),
            false => Error::unwritten(text),
        };
    } else if line.starts_with("ERROR Too many open connections") {
        return Error::unavailable(format!(
            "memcached answered {line:?}: expected it to accept one more connection; raise its limit (-c)"
        ));
    } else {
        "; check that memcached 1.6 or later listens on that port"
    };
    Error::other(format!(
        "memcached answered {line:?} where no error was expected{help}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_that_is_too_large_concerns_its_key_alone_and_a_full_server_writes_alone() {
        for (line, is_unsupported, is_unwritten) in [
            ("SERVER_ERROR object too large for cache", true, false),
            ("SERVER_ERROR out of memory storing object", false, true),
            (
                "SERVER_ERROR out of memory writing get response",
                false,
                false,
            ),
            ("ERROR Too many open connections", false, false),
            ("CLIENT_ERROR bad data chunk", false, false),
        ] {
            let error = unexpected(Some(&Response::Error(line.to_owned())));
            assert_eq!(error.is_unsupported(), is_unsupported, "{line}");
            assert_eq!(error.is_unwritten(), is_unwritten, "{line}");
            assert!(error.to_string().contains(line), "{error}");
        }
        assert!(!unexpected(None).is_unsupported());
    }
}
