//! The rules that drawn traffic can be decided by.

use tollgate::{AnyRule, algorithm::Algorithm, key::Key};

/// Parses a rule, as it applies to the one client of the picture. Returns the text of the error.
///
/// A rule of calls in flight is an error, because a drawn request has no end. Guessing when it ends
/// would show the guess.
pub(crate) fn parse(text: &str) -> Result<AnyRule, String> {
    let rule: AnyRule = text
        .parse()
        .map_err(|error: tollgate::Error| error.to_string())?;
    // The crate refuses such a rule among several.
    if let AnyRule::InFlight(calls) = &rule {
        return Err(format!(
            "`{calls}` counts calls in flight: expected a rule of a rate, because drawn requests have no end; \
             draw another rule, as in `token-bucket 10/s burst=20`"
        ));
    }
    let digest = || Key::from("playground").digest();
    Ok(rule.for_key(&digest).unwrap_or(rule))
}

/// Returns the rules that are charged together, or the one rule.
pub(crate) fn each(rule: &AnyRule) -> &[AnyRule] {
    match rule {
        AnyRule::All(all) => all.rules(),
        one => std::slice::from_ref(one),
    }
}
