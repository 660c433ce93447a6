//! Where the values of header fields are put together.

use std::cell::RefCell;

use bytes::BytesMut;
use http::HeaderValue;

/// What a value is written into.
pub(super) type Buffer = BytesMut;

/// How much room is taken at once, for some thirty values.
const ROOM: usize = 1024;
/// What one policy's value hardly ever exceeds.
const VALUE: usize = 64;

thread_local! {
    /// Values lie in it one behind the other, as those of a request do that a server has read. Once
    /// all of them are gone, it is written again from its start, so that values take no
    /// allocation as long as responses are sent.
    static BUFFER: RefCell<Option<Buffer>> = const { RefCell::new(None) };
}

/// The header value that `write` writes.
///
/// `None` for what no header can carry: not for numbers, nor for the names of policies.
#[inline]
pub(super) fn value(write: impl Fn(&mut Buffer)) -> Option<HeaderValue> {
    let write = |buffer: &mut Buffer| {
        // It is empty, unless a write did not come to its end.
        buffer.clear();
        buffer.reserve(VALUE);
        write(buffer);
        buffer.split().freeze()
    };
    let kept = |buffer: &RefCell<Option<Buffer>>| {
        let mut buffer = buffer.try_borrow_mut().ok()?;
        Some(write(
            buffer.get_or_insert_with(|| Buffer::with_capacity(ROOM)),
        ))
    };
    // Without one (never on a living thread), the value has a buffer of its own.
    let written = BUFFER.try_with(kept).ok().flatten();
    let written = written.unwrap_or_else(|| write(&mut Buffer::new()));
    HeaderValue::from_maybe_shared(written).ok()
}

/// The header value of a list: what `push` writes of each entry, with commas between.
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
