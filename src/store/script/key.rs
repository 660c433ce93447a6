//! Requests about a single key: reading and forgetting it.

use std::borrow::Cow;

use super::{Evaluate, Program, answer::Answer, request::Request};
use crate::{store::Error, time::Timestamp};

/// Returns the server's time and the state under a key.
pub(super) async fn found<E: Evaluate>(
    data: &E,
    key: Box<[u8]>,
) -> Result<(Timestamp, Option<Vec<u8>>), Error> {
    let request = Request::to_see(None, vec![key]);
    let bytes = data
        .evaluate(request.program, request.keys, request.argument)
        .await?;
    let answer = Answer::read(request.program, &bytes, 1)?;
    let state = answer.states.into_iter().next().flatten();
    Ok((answer.now, state.map(Cow::into_owned)))
}

/// Forgets a key.
pub(super) async fn reset<E: Evaluate>(data: &E, key: Box<[u8]>) -> Result<(), Error> {
    let reset = data.evaluate(Program::RESET, vec![key], Vec::new());
    match &reset.await?[..] {
        b"1" => Ok(()),
        why => Err(data.unwritten(&String::from_utf8_lossy(why))),
    }
}
