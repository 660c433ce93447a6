//! The answer to several deltas.

use crate::store::{Error, Pulled};

/// Returns an answer to deltas each of which has a result. If the server failed for all that it was sent, that is an error of the whole call.
///
/// # Errors
///
/// With the first failure of the server, if it answered no delta.
pub(in crate::store) fn each_delta<State>(
    each: Vec<Result<Pulled<State>, Error>>,
) -> Result<Vec<Result<Pulled<State>, Error>>, Error> {
    let is_answered = |one: &Result<_, Error>| match one {
        Ok(_) => true,
        Err(error) => error.is_contended(),
    };
    if each.iter().any(is_answered) {
        return Ok(each);
    }
    let failures = each.iter().filter_map(|one| one.as_ref().err());
    match failures.into_iter().find(|error| !error.is_unsupported()) {
        Some(failure) => Err(failure.duplicate()),
        None => Ok(each),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Timestamp;

    #[test]
    fn a_server_that_answers_no_delta_fails_the_call() {
        let at = Timestamp::default();
        let pulled = || {
            Ok(Pulled {
                at,
                state: None::<()>,
            })
        };
        let silent = || Err(Error::timeout());
        let unfit = || Err(Error::unsupported("a rule that does not fit"));
        for (each, fails) in [
            (vec![], false),
            (vec![pulled()], false),
            (vec![silent()], true),
            (vec![unfit()], false),
            (vec![unfit(), silent()], true),
            (vec![silent(), pulled()], false),
            (vec![silent(), Err(Error::contended())], false),
        ] {
            let (case, count) = (format!("{each:?}"), each.len());
            match each_delta(each) {
                Ok(each) => assert!(!fails && each.len() == count, "{case}"),
                Err(error) => assert!(fails && error.is_timeout(), "{case}"),
            }
        }
    }
}
