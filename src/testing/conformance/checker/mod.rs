//! Calls of a store, compared with the decisions of its rule.

mod ask;
#[expect(clippy::module_inception, reason = "a file is named for what is in it")]
mod checker;
mod count;
mod settle;
mod time;

pub(super) use self::{
    ask::TestAsk,
    checker::{CheckResult, Checker, cost},
    count::{Burst, MAX_CALLS},
    settle::TestSettlement,
};
