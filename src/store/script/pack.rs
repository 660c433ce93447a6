//! MessagePack, as much of it as requests and answers need.

use rmp::{
    Marker,
    decode::{read_array_len, read_int, read_marker},
    encode::{ByteBuf, write_array_len, write_sint},
};

/// Writing to memory cannot fail.
macro_rules! put {
    ($bytes:ident, $write:ident, $value:expr) => {{
        let mut buffer = ByteBuf::from_vec(std::mem::take($bytes));
        let Ok(_) = $write(&mut buffer, $value);
        *$bytes = buffer.into_vec();
    }};
}

pub(super) fn put_array(bytes: &mut Vec<u8>, len: usize) {
    put!(bytes, write_array_len, len as u32);
}

pub(super) fn put_number(bytes: &mut Vec<u8>, number: i64) {
    put!(bytes, write_sint, number);
}

pub(super) fn take_array(bytes: &mut &[u8]) -> Option<usize> {
    let len = read_array_len(bytes).ok()? as usize;
    // Each element takes a byte or more.
    (len <= bytes.len()).then_some(len)
}

/// A whole number; as in Lua also one that is written as a fraction.
pub(super) fn take_number(bytes: &mut &[u8]) -> Option<i64> {
    let before = *bytes;
    if let Ok(number) = read_int(bytes) {
        return Some(number);
    }
    *bytes = before;
    let fraction = match read_marker(bytes).ok()? {
        Marker::F32 => {
            let (number, rest) = bytes.split_first_chunk()?;
            *bytes = rest;
            f64::from(f32::from_be_bytes(*number))
        }
        Marker::F64 => {
            let (number, rest) = bytes.split_first_chunk()?;
            *bytes = rest;
            f64::from_be_bytes(*number)
        }
        _ => return None,
    };
    // A number outside of those of a script is cut by the cast, and then differs.
    let number = fraction as i64;
    (number as f64 == fraction).then_some(number)
}

/// A string of bytes; `None` where `false` stands for none.
pub(super) fn take_bytes_or_false<'a>(bytes: &mut &'a [u8]) -> Option<Option<&'a [u8]>> {
    let before = *bytes;
    let len = match read_marker(bytes).ok()? {
        Marker::False => return Some(None),
        Marker::FixStr(len) => usize::from(len),
        Marker::Str8 | Marker::Bin8 => take_length(bytes, 1)?,
        Marker::Str16 | Marker::Bin16 => take_length(bytes, 2)?,
        Marker::Str32 | Marker::Bin32 => take_length(bytes, 4)?,
        _ => {
            *bytes = before;
            return None;
        }
    };
    let (value, rest) = bytes.split_at_checked(len)?;
    *bytes = rest;
    Some(Some(value))
}

fn take_length(bytes: &mut &[u8], width: usize) -> Option<usize> {
    let (length, rest) = bytes.split_at_checked(width)?;
    *bytes = rest;
    Some(
        length
            .iter()
            .fold(0, |length, byte| length << 8 | usize::from(*byte)),
    )
}

/// Takes `false`, if it comes next.
pub(super) fn take_false(bytes: &mut &[u8]) -> bool {
    const FALSE: u8 = 0xc2;
    match bytes.split_first() {
        Some((&FALSE, rest)) => {
            *bytes = rest;
            true
        }
        _ => false,
    }
}
