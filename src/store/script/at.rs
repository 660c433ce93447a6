//! Decisions at a time that the caller gives, for tests that run two stores on one timeline.

use super::{
    Evaluate, Script,
    answer::Answer,
    replay::decided,
    request::{Call, Request},
    settlement::Correction,
};
use crate::{
    algorithm::Scripted,
    store::{Ask, Decisions, Error, Settlement},
    time::Timestamp,
};

impl<E, Rule> Script<E, Rule>
where
    E: Evaluate,
    Rule: Scripted<State: Send> + Send + 'static,
{
    /// Decides a call in a request of its own, at the time `now`.
    ///
    /// `now` is cut to whole microseconds.
    ///
    /// # Errors
    ///
    /// Fails if a rule does not fit into the program's numbers, or the store fails.
    pub async fn acquire_at(
        &self,
        now: Timestamp,
        asks: &[Ask<'_, Rule>],
    ) -> Result<Decisions, Error> {
        let call = Call::of(&self.prefix, &self.rules, asks).map_err(Error::unsupported)?;
        let decided = self.decide_at(now, Vec::new(), vec![call]).await?;
        let only = decided.into_iter().next();
        only.unwrap_or_else(|| Ok(Decisions::default()))
    }

    /// As [`acquire_at`](Self::acquire_at), each ask a call of its own, all of them in one request.
    ///
    /// # Errors
    ///
    /// As there.
    pub async fn acquire_each_at(
        &self,
        now: Timestamp,
        asks: &[Ask<'_, Rule>],
    ) -> Result<Vec<Decisions>, Error> {
        self.settle_and_acquire_each_at(now, Vec::new(), asks).await
    }

    /// Makes settlements, and then decides as [`acquire_each_at`](Self::acquire_each_at), in one request.
    ///
    /// # Errors
    ///
    /// As there.
    pub async fn settle_and_acquire_each_at(
        &self,
        now: Timestamp,
        settlements: Vec<Settlement<'_, Rule>>,
        asks: &[Ask<'_, Rule>],
    ) -> Result<Vec<Decisions>, Error> {
        let correction = |settlement| Correction::of(&self.prefix, &self.rules, settlement);
        let corrections: Result<_, _> = settlements.iter().map(correction).collect();
        let call = |ask| Call::of(&self.prefix, &self.rules, std::slice::from_ref(ask));
        let calls: Result<_, _> = asks.iter().map(call).collect();
        let corrections = corrections.map_err(Error::unsupported)?;
        let calls = calls.map_err(Error::unsupported)?;
        let decided = self.decide_at(now, corrections, calls).await?;
        decided.into_iter().collect()
    }

    async fn decide_at(
        &self,
        now: Timestamp,
        corrections: Vec<Correction>,
        mut calls: Vec<Call<Rule>>,
    ) -> Result<Vec<Result<Decisions, Error>>, Error> {
        let request = Request::of(Some(now), corrections, &mut calls);
        let bytes = self
            .data
            .evaluate(request.program, request.keys, request.argument)
            .await?;
        let answer = Answer::read(request.program, &bytes, request.states)?;
        let unwritten = |why: &str| self.data.unwritten(why);
        Ok(decided(&answer, calls.iter(), &request.places, unwritten))
    }
}
