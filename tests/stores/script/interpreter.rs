//! Lua 5.1 with the libraries of Redis, over a map: counts the instructions of the scripts, and the
//! bytes that they move.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use mlua::{
    Error as LuaError, Function, HookTriggers, Lua, LuaString as Text, MultiValue,
    Result as LuaResult, Table, Value, VmState,
};
use tollgate::store::{
    StoreError,
    driver::{Evaluate, Program},
};

/// The work of scripts.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Work {
    pub(super) instructions: u64,
    /// Of requests and answers, and of the values that were read and written.
    pub(super) bytes: u64,
}

#[derive(Default)]
struct Data {
    values: HashMap<Vec<u8>, Vec<u8>>,
    /// In microseconds.
    now: u64,
    bytes: u64,
}

/// Runs programs as Redis does. Nothing expires. Clones share all.
#[derive(Clone)]
pub(super) struct Interpreter {
    lua: Lua,
    data: Arc<Mutex<Data>>,
    instructions: Arc<AtomicU64>,
    /// Compiled once, as Redis does.
    compiled: Arc<Mutex<HashMap<Program, Function>>>,
}

impl Interpreter {
    pub(super) fn new() -> Self {
        let (lua, data) = (Lua::new(), Arc::new(Mutex::new(Data::default())));
        let set = |name: &str, table: Table| lua.globals().set(name, table).unwrap();
        set("redis", redis(&lua, &data).unwrap());
        set("cmsgpack", cmsgpack(&lua).unwrap());
        set("struct", structs(&lua).unwrap());
        Self {
            lua,
            data,
            instructions: Arc::default(),
            compiled: Arc::default(),
        }
    }

    fn data(&self) -> MutexGuard<'_, Data> {
        self.data.lock().unwrap()
    }

    pub(super) fn set_time(&self, micros: u64) {
        self.data().now = micros;
    }

    pub(super) fn work(&self) -> Work {
        Work {
            instructions: self.instructions.load(Relaxed),
            bytes: self.data().bytes,
        }
    }

    /// Counts instructions from here on, or no more, which is faster.
    pub(super) fn count(&self, counts: bool) {
        if !counts {
            return self.lua.remove_hook();
        }
        let instructions = Arc::clone(&self.instructions);
        let each = HookTriggers::new().every_nth_instruction(1);
        let count = move |_: &Lua, _: &mlua::debug::Debug<'_>| {
            instructions.fetch_add(1, Relaxed);
            Ok(VmState::Continue)
        };
        self.lua.set_hook(each, count).unwrap();
    }

    fn compiled(&self, program: Program) -> LuaResult<Function> {
        let mut compiled = self.compiled.lock().unwrap();
        if let Some(function) = compiled.get(&program) {
            return Ok(function.clone());
        }
        let function = self.lua.load(program.source()).into_function()?;
        compiled.insert(program, function.clone());
        Ok(function)
    }

    fn run(&self, program: Program, keys: &[Box<[u8]>], argument: &[u8]) -> LuaResult<Vec<u8>> {
        let lua = &self.lua;
        let texts = |texts: &[&[u8]]| -> LuaResult<Table> {
            let texts = texts.iter().map(|text| lua.create_string(text));
            lua.create_sequence_from(texts.collect::<LuaResult<Vec<_>>>()?)
        };
        let keys: Vec<&[u8]> = keys.iter().map(|key| &**key).collect();
        lua.globals().set("KEYS", texts(&keys)?)?;
        lua.globals().set("ARGV", texts(&[argument])?)?;
        let answer: Text = self.compiled(program)?.call(())?;
        let answer = answer.as_bytes().to_vec();
        self.data().bytes += (argument.len() + answer.len()) as u64;
        Ok(answer)
    }
}

impl Evaluate for Interpreter {
    async fn evaluate(
        &self,
        program: Program,
        keys: Vec<Box<[u8]>>,
        argument: Vec<u8>,
    ) -> Result<Vec<u8>, StoreError> {
        let answer = self.run(program, &keys, &argument);
        answer.map_err(|error| StoreError::other(error.to_string()))
    }
}

fn bytes(value: &Value) -> Vec<u8> {
    match value {
        Value::String(text) => text.as_bytes().to_vec(),
        Value::Integer(number) => number.to_string().into_bytes(),
        Value::Number(number) => format!("{number:.0}").into_bytes(),
        other => panic!("expected a text or a number, found {other:?}"),
    }
}

fn redis(lua: &Lua, data: &Arc<Mutex<Data>>) -> LuaResult<Table> {
    let table = lua.create_table()?;
    for name in ["call", "pcall"] {
        let data = Arc::clone(data);
        let call = lua.create_function(move |lua, arguments: MultiValue| {
            let arguments: Vec<Vec<u8>> = arguments.iter().map(bytes).collect();
            let words: Vec<&[u8]> = arguments.iter().map(Vec::as_slice).collect();
            data.lock().unwrap().command(lua, &words)
        })?;
        table.set(name, call)?;
    }
    Ok(table)
}

impl Data {
    fn command(&mut self, lua: &Lua, words: &[&[u8]]) -> LuaResult<Value> {
        let number = |bytes: &[u8]| -> i64 { std::str::from_utf8(bytes).unwrap().parse().unwrap() };
        let text = |bytes: &[u8]| lua.create_string(bytes).map(Value::String);
        let status = || LuaResult::Ok(Value::Table(lua.create_table_from([("ok", "OK")])?));
        Ok(match words {
            [b"TIME"] => {
                let [second, micros] = [self.now / 1_000_000, self.now % 1_000_000];
                let both = [second, micros].map(|part| part.to_string());
                Value::Table(lua.create_sequence_from(both)?)
            }
            [b"GET", key] => self.get(lua, key)?,
            [b"MGET", keys @ ..] => {
                let values = keys.iter().map(|key| self.get(lua, key));
                Value::Table(lua.create_sequence_from(values.collect::<LuaResult<Vec<_>>>()?)?)
            }
            [b"GETRANGE", key, first, last] => {
                let value = self.values.get(*key).map(Vec::as_slice).unwrap_or_default();
                let end = match number(last) {
                    -1 => value.len(),
                    last => value.len().min(last as usize + 1),
                };
                let part = value.get(number(first) as usize..end).unwrap_or_default();
                self.bytes += part.len() as u64;
                text(part)?
            }
            [b"SET", key, value, options @ ..] => {
                if options.contains(&&b"NX"[..]) && self.values.contains_key(*key) {
                    return Ok(Value::Boolean(false));
                }
                self.bytes += value.len() as u64;
                self.values.insert(key.to_vec(), value.to_vec());
                status()?
            }
            [b"SETRANGE", key, first, part] => {
                let value = self.values.entry(key.to_vec()).or_default();
                let (first, end) = (number(first) as usize, number(first) as usize + part.len());
                value.resize(value.len().max(end), 0);
                value[first..end].copy_from_slice(part);
                self.bytes += part.len() as u64;
                Value::Integer(value.len() as _)
            }
            [b"DEL", keys @ ..] => {
                let there = keys
                    .iter()
                    .filter(|key| self.values.remove(**key).is_some());
                Value::Integer(there.count() as _)
            }
            [b"PTTL", _] => Value::Integer(60_000),
            [b"PEXPIRE" | b"PEXPIREAT", _, _] => Value::Integer(1),
            other => panic!("no command {other:?}"),
        })
    }

    fn get(&mut self, lua: &Lua, key: &[u8]) -> LuaResult<Value> {
        let Some(value) = self.values.get(key) else {
            return Ok(Value::Boolean(false));
        };
        self.bytes += value.len() as u64;
        lua.create_string(value).map(Value::String)
    }
}

fn cmsgpack(lua: &Lua) -> LuaResult<Table> {
    let table = lua.create_table()?;
    let pack = lua.create_function(|lua, value: Value| {
        let mut bytes = Vec::new();
        put(&value, &mut bytes)?;
        lua.create_string(bytes)
    })?;
    let unpack = lua.create_function(|lua, text: Text| {
        let (text, mut values) = (text.as_bytes().to_vec(), MultiValue::new());
        let mut rest = &text[..];
        while !rest.is_empty() {
            values.push_back(take(lua, &mut rest)?);
        }
        Ok(values)
    })?;
    table.set("pack", pack)?;
    table.set("unpack", unpack)?;
    Ok(table)
}

fn put(value: &Value, bytes: &mut Vec<u8>) -> LuaResult<()> {
    use rmp::encode;
    let whole = |number: i64, bytes: &mut Vec<u8>| encode::write_sint(bytes, number).map(drop);
    match value {
        Value::Nil => encode::write_nil(bytes).map_err(LuaError::external)?,
        Value::Boolean(value) => encode::write_bool(bytes, *value).map_err(LuaError::external)?,
        Value::Integer(number) => whole(*number, bytes).map_err(LuaError::external)?,
        Value::Number(number) if *number as i64 as f64 == *number => {
            whole(*number as i64, bytes).map_err(LuaError::external)?;
        }
        Value::Number(number) => encode::write_f64(bytes, *number).map_err(LuaError::external)?,
        Value::String(text) => {
            let text = text.as_bytes();
            encode::write_str_len(bytes, text.len() as u32).map_err(LuaError::external)?;
            bytes.extend_from_slice(&text);
        }
        Value::Table(list) => {
            let len = list.raw_len();
            encode::write_array_len(bytes, len as u32).map_err(LuaError::external)?;
            for n in 1..=len {
                put(&list.raw_get(n)?, bytes)?;
            }
        }
        other => panic!("cannot pack {other:?}"),
    }
    Ok(())
}

fn take(lua: &Lua, bytes: &mut &[u8]) -> LuaResult<Value> {
    use rmp::{Marker, decode};
    let marker = Marker::from_u8(bytes[0]);
    Ok(match marker {
        Marker::Null | Marker::True | Marker::False => {
            *bytes = &bytes[1..];
            match marker {
                Marker::Null => Value::Nil,
                marker => Value::Boolean(marker == Marker::True),
            }
        }
        Marker::FixStr(_) | Marker::Str8 | Marker::Str16 | Marker::Str32 => {
            let len = decode::read_str_len(bytes).map_err(LuaError::external)? as usize;
            let (text, rest) = bytes.split_at(len);
            *bytes = rest;
            Value::String(lua.create_string(text)?)
        }
        Marker::FixArray(_) | Marker::Array16 | Marker::Array32 => {
            let len = decode::read_array_len(bytes).map_err(LuaError::external)?;
            let list = lua.create_table_with_capacity(len as usize, 0)?;
            for n in 1..=len {
                list.raw_set(n, take(lua, bytes)?)?;
            }
            Value::Table(list)
        }
        _ => {
            let number: i64 = decode::read_int(bytes).map_err(LuaError::external)?;
            Value::Number(number as f64)
        }
    })
}

/// The widths of the numbers of a format such as `>I5Bi8`, and whether they can be below zero.
fn widths(format: &str) -> Vec<(usize, bool)> {
    let numbers = format.strip_prefix('>').expect("the highest byte first");
    let mut widths = Vec::new();
    for letter in numbers.chars() {
        match letter {
            'B' => widths.push((1, false)),
            'I' | 'i' => widths.push((0, letter == 'i')),
            digit => widths.last_mut().unwrap().0 = digit.to_digit(10).unwrap() as usize,
        }
    }
    widths
}

fn structs(lua: &Lua) -> LuaResult<Table> {
    let table = lua.create_table()?;
    let pack = lua.create_function(|lua, (format, numbers): (String, MultiValue)| {
        let mut bytes = Vec::new();
        for ((width, _), number) in widths(&format).into_iter().zip(&numbers) {
            let number = match number {
                Value::Integer(number) => *number,
                Value::Number(number) => *number as i64,
                Value::String(text) => text.to_str()?.parse().unwrap(),
                other => panic!("cannot pack {other:?}"),
            };
            bytes.extend_from_slice(&number.to_be_bytes()[8 - width..]);
        }
        lua.create_string(bytes)
    })?;
    let unpack =
        lua.create_function(|_, (format, text, place): (String, Text, Option<usize>)| {
            let (text, mut place) = (text.as_bytes().to_vec(), place.unwrap_or(1) - 1);
            let mut numbers = MultiValue::new();
            for (width, is_signed) in widths(&format) {
                let own = &text[place..place + width];
                let mut wide = [if is_signed && own[0] > 127 { 255 } else { 0 }; 8];
                wide[8 - width..].copy_from_slice(own);
                numbers.push_back(Value::Number(i64::from_be_bytes(wide) as f64));
                place += width;
            }
            Ok(numbers)
        })?;
    table.set("pack", pack)?;
    table.set("unpack", unpack)?;
    Ok(table)
}
