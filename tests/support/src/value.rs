//! The stored values of compare-and-swap stores, read and written according to their documented
//! layout.

/// A state in a value.
#[derive(Clone, Debug, PartialEq)]
pub struct State {
    pub kind: u64,
    /// In nanoseconds.
    pub until: u64,
    pub bytes: Vec<u8>,
}

fn take_number(bytes: &mut &[u8]) -> u64 {
    let (mut number, mut shift) = (0, 0);
    loop {
        let (first, rest) = bytes.split_first().unwrap();
        *bytes = rest;
        number |= u64::from(first & 0x7f) << shift;
        shift += 7;
        if *first < 0x80 {
            return number;
        }
    }
}

fn put_number(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

/// Returns the states in a value.
pub fn states(value: &[u8]) -> Vec<State> {
    let (tag, mut rest) = value.split_first().unwrap();
    assert_eq!(*tag, 0xf1);
    let mut states = Vec::new();
    while !rest.is_empty() {
        let (kind, after) = rest.split_at(8);
        rest = after;
        let until = take_number(&mut rest);
        let length = take_number(&mut rest) as usize;
        let (bytes, after) = rest.split_at(length);
        rest = after;
        states.push(State {
            kind: u64::from_le_bytes(kind.try_into().unwrap()),
            until,
            bytes: bytes.to_vec(),
        });
    }
    states
}

/// Returns the value with these states.
pub fn value_of(states: &[State]) -> Vec<u8> {
    let mut value = vec![0xf1];
    for state in states {
        value.extend(state.kind.to_le_bytes());
        put_number(&mut value, state.until);
        put_number(&mut value, state.bytes.len() as u64);
        value.extend(&state.bytes);
    }
    value
}
