//! Values in MessagePack, including invalid ones.

use self::Value::{Bool, Float, Int, List, Map, Nil, Text, Unsigned};

/// A value in MessagePack.
#[derive(Clone, Debug)]
pub(super) enum Value {
    Int(i64),
    /// An unsigned 64-bit number that does not fit an `Int`.
    Unsigned(u64),
    Float(f64),
    Text(&'static str),
    Nil,
    Bool(bool),
    List(Vec<Value>),
    Map(Vec<(Value, Value)>),
}

/// Numbers in the shortest form, or in 64 bits as the bucket programs write them.
#[derive(Clone, Copy)]
pub(super) enum Form {
    Short,
    Wide,
}

impl Value {
    fn put(&self, form: Form, bytes: &mut Vec<u8>) {
        match self {
            Int(number) if matches!(form, Form::Wide) => {
                bytes.push(0xd3);
                bytes.extend(number.to_be_bytes());
            }
            Int(number @ 0..=0x7f) => bytes.push(*number as u8),
            Int(number @ -32..=-1) => bytes.push(*number as u8),
            Int(number @ 0..=0xff) => bytes.extend([0xcc, *number as u8]),
            Int(number @ 0..=0xffff) => {
                bytes.push(0xcd);
                bytes.extend((*number as u16).to_be_bytes());
            }
            Int(number @ 0..=0xffff_ffff) => {
                bytes.push(0xce);
                bytes.extend((*number as u32).to_be_bytes());
            }
            Int(number) => {
                bytes.push(if *number < 0 { 0xd3 } else { 0xcf });
                bytes.extend(number.to_be_bytes());
            }
            Unsigned(number) => {
                bytes.push(0xcf);
                bytes.extend(number.to_be_bytes());
            }
            Float(number) => {
                bytes.push(0xcb);
                bytes.extend(number.to_be_bytes());
            }
            Text(text) => {
                bytes.push(0xa0 | text.len() as u8);
                bytes.extend(text.as_bytes());
            }
            Nil => bytes.push(0xc0),
            Bool(value) => bytes.push(0xc2 | u8::from(*value)),
            List(values) => {
                match u8::try_from(values.len()) {
                    Ok(len @ ..16) => bytes.push(0x90 | len),
                    _ => bytes.extend([0xdc, (values.len() >> 8) as u8, values.len() as u8]),
                }
                // The version and the kinds are always short.
                for (n, value) in values.iter().enumerate() {
                    value.put(if n == 0 { Form::Short } else { form }, bytes);
                }
            }
            Map(pairs) => {
                bytes.push(0x80 | pairs.len() as u8);
                for (name, value) in pairs {
                    name.put(form, bytes);
                    value.put(form, bytes);
                }
            }
        }
    }

    pub(super) fn bytes(&self, form: Form) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.put(form, &mut bytes);
        bytes
    }

    /// Decodes the encodings that the programs write: short lists and whole numbers.
    pub(super) fn take(bytes: &mut &[u8]) -> Self {
        let (first, rest) = bytes.split_first().unwrap();
        *bytes = rest;
        let wide = |bytes: &mut &[u8], width: usize| {
            let (number, rest) = bytes.split_at(width);
            *bytes = rest;
            number
                .iter()
                .fold(0, |sum, byte| sum << 8 | i64::from(*byte))
        };
        match *first {
            0x90..=0x9f => List((0..first & 0xf).map(|_| Self::take(bytes)).collect()),
            0..=0x7f => Int((*first).into()),
            0xe0.. => Int((*first as i8).into()),
            0xcc..=0xcf => Int(wide(bytes, 1 << (first - 0xcc))),
            0xd3 => Int(wide(bytes, 8)),
            other => panic!("expected a list or a number, found {other:#x}"),
        }
    }

    pub(super) fn items(&self) -> &[Value] {
        match self {
            List(values) => values,
            other => panic!("expected a list, found {other:?}"),
        }
    }
}

/// Returns values that are not numbers of any state.
pub(super) fn odd_numbers() -> Vec<Value> {
    let mut odd = vec![
        Float(1.5),
        Float(f64::NAN),
        Float(f64::INFINITY),
        Float(f64::NEG_INFINITY),
        Float(1e300),
        Float(-0.5),
        Int(1 << 53),
        Int(1 << 60),
        Int(-1 << 60),
        Int(i64::MIN),
        Int(i64::MAX),
        // As signed numbers these would be small negative ones.
        Unsigned(u64::MAX),
        Unsigned(u64::MAX - 6),
        Unsigned(u64::MAX - (1 << 40)),
        Unsigned(1 << 63),
        Unsigned(u64::MAX - (1 << 53) + 2),
        Text("7"),
        Text("x"),
        Text(""),
        Nil,
        Bool(true),
        Bool(false),
        List(vec![]),
        List(vec![Int(1)]),
    ];
    odd.push(Map(vec![(Int(1), Int(1))]));
    odd
}
