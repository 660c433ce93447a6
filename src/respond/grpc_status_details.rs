//! The value of `grpc-status-details-bin`: a `google.rpc.Status` in protobuf, in Base64.
//!
//! Written by hand: four small messages (googleapis `google/rpc/status.proto` and
//! `error_details.proto`) are no reason for a code generator in every user's build.

use std::time::Duration;

use http::HeaderValue;

use super::headers::value;
use crate::outcome::Outcome;

/// The longest `google.protobuf.Duration`: 10,000 years. A longer wait is omitted, because a shorter one would be wrong.
const LONGEST: Duration = Duration::from_secs(315_576_000_000);

/// Returns the status with its details; `None` if there are no details.
///
/// `RetryInfo` contains the wait in nanoseconds, unless it is too long. `QuotaFailure` contains the names and quotas of the
/// policies that refuse, and nothing about the client.
pub(super) fn header_value(
    code: u32,
    message: &str,
    wait: Option<Duration>,
    outcome: &Outcome,
) -> Option<HeaderValue> {
    let mut details = Vec::new();
    if let Some(wait) = wait.filter(|wait| *wait <= LONGEST) {
        push_any(
            &mut details,
            "type.googleapis.com/google.rpc.RetryInfo",
            &retry_info(wait),
        );
    }
    let failure = quota_failure(outcome);
    if !failure.is_empty() {
        push_any(
            &mut details,
            "type.googleapis.com/google.rpc.QuotaFailure",
            &failure,
        );
    }
    if details.is_empty() {
        return None;
    }
    let mut status = Vec::with_capacity(message.len() + details.len() + 8);
    push_number(&mut status, 1, code.into());
    push_bytes(&mut status, 2, message.as_bytes());
    status.extend_from_slice(&details);
    HeaderValue::try_from(value::base64(&status)).ok()
}

/// Returns `RetryInfo { retry_delay = 1 }`.
fn retry_info(wait: Duration) -> Vec<u8> {
    let mut duration = Vec::new();
    push_number(&mut duration, 1, wait.as_secs());
    push_number(&mut duration, 2, wait.subsec_nanos().into());
    let mut info = Vec::new();
    push_bytes(&mut info, 1, &duration);
    info
}

/// Returns `QuotaFailure { violations = 1: [Violation { subject = 1, description = 2 }] }`.
fn quota_failure(outcome: &Outcome) -> Vec<u8> {
    let mut failure = Vec::new();
    for (policy, decision) in outcome.refusals() {
        let description = match (decision.quota(), decision.retry_after()) {
            (Some(quota), Some(_)) => format!("the quota of {quota} is exhausted"),
            (Some(_), None) => "the request costs more than could ever pass".to_owned(),
            (None, _) => "the quota is exhausted".to_owned(),
        };
        let mut violation = Vec::new();
        push_bytes(&mut violation, 1, policy.name().as_bytes());
        push_bytes(&mut violation, 2, description.as_bytes());
        push_bytes(&mut failure, 1, &violation);
    }
    failure
}

/// Appends an element of `Status.details`: `Any { type_url = 1, value = 2 }`.
fn push_any(status: &mut Vec<u8>, type_url: &str, value: &[u8]) {
    let mut any = Vec::with_capacity(type_url.len() + value.len() + 8);
    push_bytes(&mut any, 1, type_url.as_bytes());
    push_bytes(&mut any, 2, value);
    push_bytes(status, 3, &any);
}

/// Appends a length-delimited field.
fn push_bytes(message: &mut Vec<u8>, field: u8, bytes: &[u8]) {
    message.push(field << 3 | 2);
    push_varint(message, bytes.len() as u64);
    message.extend_from_slice(bytes);
}

/// Appends a field that is a number. 0 is the default and is omitted.
fn push_number(message: &mut Vec<u8>, field: u8, number: u64) {
    if number > 0 {
        message.push(field << 3);
        push_varint(message, number);
    }
}

fn push_varint(message: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        message.push(number as u8 | 0x80);
        number >>= 7;
    }
    message.push(number as u8);
}
