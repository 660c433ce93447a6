//! Writes the values of header fields.

use std::cell::Cell;

use bytes::BytesMut;
use http::HeaderValue;

/// The buffer that a value is written into.
pub(super) type Buffer = BytesMut;

/// The room that is allocated at once, for some thirty values.
const ROOM: usize = 1024;
/// The most that the value of one policy usually takes.
const VALUE: usize = 64;

thread_local! {
    /// Values are written one behind the other. Once all of them are dropped, the buffer is
    /// reused from its start, so values take no allocation while responses are sent and dropped.
    static BUFFER: Cell<Buffer> = Cell::new(Buffer::with_capacity(ROOM));
}

/// Returns the header value that `write` writes.
///
/// `None` for bytes that no header can carry, which numbers and names of policies do not have.
#[inline]
pub(super) fn value(write: impl FnOnce(&mut Buffer)) -> Option<HeaderValue> {
    // A thread that is ending has no buffer any more: the value gets one of its own.
    let mut buffer = BUFFER.try_with(Cell::take).unwrap_or_default();
    buffer.reserve(VALUE);
    write(&mut buffer);
    let written = buffer.split().freeze();
    let _ = BUFFER.try_with(|kept| kept.set(buffer));
    HeaderValue::from_maybe_shared(written).ok()
}

/// Returns the header value of a list: what `push` writes of each entry, separated by commas.
pub(super) fn list<T>(entries: &[T], push: impl Fn(&mut Buffer, &T)) -> Option<HeaderValue> {
    value(|buffer| {
        for (index, entry) in entries.iter().enumerate() {
            if index > 0 {
                buffer.extend_from_slice(b", ");
            }
            push(buffer, entry);
        }
    })
}
