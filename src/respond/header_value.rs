//! Writes the values of header fields.

use std::cell::Cell;

use bytes::BytesMut;
use http::HeaderValue;

/// The buffer that a value is written into.
pub(super) type ValueBuffer = BytesMut;

/// The capacity that is allocated at once, for some thirty values.
const CAPACITY: usize = 1024;
/// The length that the value of one policy rarely exceeds.
const USUAL_LENGTH: usize = 64;

thread_local! {
    /// Values are written one after the other. Once all of them are dropped, the buffer is
    /// reused from its start, so values take no allocation while responses are sent and dropped.
    static BUFFER: Cell<ValueBuffer> = Cell::new(ValueBuffer::with_capacity(CAPACITY));
}

/// Returns the header value that `write` writes.
///
/// Returns `None` for bytes that no header can carry, which numbers and names of policies do not contain.
#[inline]
pub(super) fn written(write: impl FnOnce(&mut ValueBuffer)) -> Option<HeaderValue> {
    // While a thread ends, its buffer may be gone: the value then gets one of its own.
    let mut buffer = BUFFER.try_with(Cell::take).unwrap_or_default();
    buffer.reserve(USUAL_LENGTH);
    write(&mut buffer);
    let written = buffer.split().freeze();
    let _ = BUFFER.try_with(|kept| kept.set(buffer));
    HeaderValue::from_maybe_shared(written).ok()
}

/// Returns the header value of a list: each entry as `push` writes it, separated by commas.
pub(super) fn list<T>(entries: &[T], push: impl Fn(&mut ValueBuffer, &T)) -> Option<HeaderValue> {
    written(|buffer| {
        for (index, entry) in entries.iter().enumerate() {
            if index > 0 {
                buffer.extend_from_slice(b", ");
            }
            push(buffer, entry);
        }
    })
}

/// Returns the header value of a number.
pub(super) fn number(number: u64) -> Option<HeaderValue> {
    written(|buffer| push_number(buffer, number))
}

/// Appends a number in decimal.
pub(super) fn push_number(buffer: &mut ValueBuffer, number: u64) {
    buffer.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_in_full() {
        for n in (0..200).chain([999, 1000, 1_234_567, u64::MAX]) {
            let written = number(n).unwrap();
            assert_eq!(written.to_str().unwrap(), n.to_string());
        }
    }
}
