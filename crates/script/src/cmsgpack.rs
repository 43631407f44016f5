//! `cmsgpack`: lua-cmsgpack 0.4.0, as in redis-server.

use crate::args::{Args, number_of};
use crate::errors::Thrown;
use crate::state;
use mlua::{Lua, MultiValue, Result, Table, Value};

/// Numbers below this limit may be packed as integers.
const TWO_TO_63: f64 = (1u64 << 63) as f64;
/// Tables that are nested deeper than this are packed as nil.
const NESTING_MAX: usize = 16;
/// Values that are nested deeper than this are an error when unpacked, because each level takes memory of the
/// thread's stack.
const UNPACK_NESTING_MAX: usize = 200;

/// Creates the table `cmsgpack`.
pub(crate) fn library(lua: &Lua) -> Result<Table> {
    let library = lua.create_table()?;
    macro_rules! function {
        ($name:literal, $run:expr) => {
            library
                .set($name, lua.create_function(|lua, values: MultiValue| $run(&Args::new(lua, values)))?)?;
        };
    }
    function!("pack", pack);
    function!("unpack", |args: &Args<'_>| unpack(args, 0, 0, false));
    function!("unpack_one", |args: &Args<'_>| {
        let offset = args.int_or(2, 0)?;
        unpack(args, 1, offset, true)
    });
    function!("unpack_limit", |args: &Args<'_>| {
        let (limit, offset) = (args.int(2)?, args.int_or(3, 0)?);
        // As in redis-server, neither a limit nor an offset means that everything is decoded.
        unpack(args, limit, offset, limit != 0 || offset != 0)
    });
    library.set("_NAME", "cmsgpack")?;
    library.set("_VERSION", "lua-cmsgpack 0.4.0")?;
    library.set("_COPYRIGHT", "Copyright (C) 2012, Salvatore Sanfilippo")?;
    library.set("_DESCRIPTION", "MessagePack C implementation for Lua")?;
    Ok(library)
}

fn pack(args: &Args<'_>) -> Result<Value> {
    if args.len() == 0 {
        return Err(args.bad(0, "MessagePack pack needs input."));
    }
    let mut out = Vec::new();
    for n in 1..=args.len() {
        let value = args.get(n).cloned().unwrap_or(Value::Nil);
        put(&mut out, &value, 0)?;
    }
    Ok(Value::String(args.lua.create_string(out)?))
}

fn put(out: &mut Vec<u8>, value: &Value, level: usize) -> Result<()> {
    state::charge(1)?;
    state::check_bytes(out.len())?;
    match value {
        Value::Boolean(yes) => out.push(if *yes { 0xc3 } else { 0xc2 }),
        Value::Integer(number) => put_number(out, *number as f64),
        Value::Number(number) => put_number(out, *number),
        Value::String(text) => {
            let text = &*text.as_bytes();
            state::charge(text.len())?;
            state::check_bytes(out.len() + text.len())?;
            match text.len() {
                n @ 0..32 => out.push(0xa0 | n as u8),
                n @ 32..=0xff => out.extend_from_slice(&[0xd9, n as u8]),
                n => put_len(out, n, 0xda),
            }
            out.extend_from_slice(text);
        }
        Value::Table(_) if level == NESTING_MAX => out.push(0xc0),
        Value::Table(table) => put_table(out, table, level)?,
        _ => out.push(0xc0),
    }
    Ok(())
}

/// Appends a length of 16 bits after `code16`, or of 32 bits after the next code.
fn put_len(out: &mut Vec<u8>, n: usize, code16: u8) {
    if let Ok(n) = u16::try_from(n) {
        out.push(code16);
        out.extend_from_slice(&n.to_be_bytes());
    } else {
        out.push(code16 + 1);
        out.extend_from_slice(&(n as u32).to_be_bytes());
    }
}

fn put_number(out: &mut Vec<u8>, number: f64) {
    // As in C, a number that fits a 64-bit integer exactly is packed as an integer.
    if number.floor() == number && (-TWO_TO_63..TWO_TO_63).contains(&number) {
        return put_int(out, number as i64);
    }
    let single = number as f32;
    if f64::from(single) == number {
        out.push(0xca);
        out.extend_from_slice(&single.to_be_bytes());
    } else {
        out.push(0xcb);
        out.extend_from_slice(&number.to_be_bytes());
    }
}

fn put_int(out: &mut Vec<u8>, n: i64) {
    match n {
        0..=127 => out.push(n as u8),
        128..=0xff => out.extend_from_slice(&[0xcc, n as u8]),
        0x100..=0xffff => {
            out.push(0xcd);
            out.extend_from_slice(&(n as u16).to_be_bytes());
        }
        0x1_0000..=0xffff_ffff => {
            out.push(0xce);
            out.extend_from_slice(&(n as u32).to_be_bytes());
        }
        0x1_0000_0000.. => {
            out.push(0xcf);
            out.extend_from_slice(&n.to_be_bytes());
        }
        -32..=-1 => out.push(n as u8),
        -128..=-33 => out.extend_from_slice(&[0xd0, n as u8]),
        -32768..=-129 => {
            out.push(0xd1);
            out.extend_from_slice(&(n as i16).to_be_bytes());
        }
        -2147483648..=-32769 => {
            out.push(0xd2);
            out.extend_from_slice(&(n as i32).to_be_bytes());
        }
        _ => {
            out.push(0xd3);
            out.extend_from_slice(&n.to_be_bytes());
        }
    }
}

fn put_table(out: &mut Vec<u8>, table: &Table, level: usize) -> Result<()> {
    match array_len(table)? {
        Some(n) => {
            match n {
                0..16 => out.push(0x90 | n as u8),
                n => put_len(out, n, 0xdc),
            }
            for i in 1..=n {
                put(out, &table.raw_get(i)?, level + 1)?;
            }
        }
        None => {
            let n = table.pairs::<Value, Value>().count();
            state::charge(n)?;
            match n {
                0..16 => out.push(0x80 | n as u8),
                n => put_len(out, n, 0xde),
            }
            for pair in table.pairs::<Value, Value>() {
                let (key, value) = pair?;
                put(out, &key, level + 1)?;
                put(out, &value, level + 1)?;
            }
        }
    }
    Ok(())
}

/// The length of a table whose keys are 1 to n. `None` for any other table. An empty table is an array too.
fn array_len(table: &Table) -> Result<Option<usize>> {
    let (mut max, mut n) = (0usize, 0usize);
    for pair in table.pairs::<Value, Value>() {
        let (key, _) = pair?;
        state::charge(1)?;
        let Some(number) = number_of(&key) else { return Ok(None) };
        if !(number > 0.0 && number.floor() == number && number < 1e15) {
            return Ok(None);
        }
        n += 1;
        max = max.max(number as usize);
    }
    Ok((max == n).then_some(max))
}

const TOO_MANY: &str = "too many return values at once; use unpack_one or unpack_limit instead.";

/// Unpacks `limit` values (0: all), starting at `offset`. With `full` the next offset comes first, or -1 at the
/// end.
fn unpack(args: &Args<'_>, limit: i64, offset: i64, full: bool) -> Result<MultiValue> {
    let text = args.string(1)?;
    let text = &*text.as_bytes();
    if offset < 0 || limit < 0 {
        return Err(args.error(format!(
            "Invalid request to unpack with offset of {offset} and limit of {}.",
            text.len()
        )));
    }
    if offset as usize > text.len() {
        return Err(args.error(format!("Start offset {offset} greater than input length {}.", text.len())));
    }
    let limit = if limit == 0 && !full { i64::MAX } else { limit };
    let mut reader = Reader { args, text, at: offset as usize };
    let mut values = Vec::new();
    while reader.at < text.len() && (values.len() as i64) < limit {
        args.check_stack(args.len() + values.len(), TOO_MANY)?;
        values.push(reader.value(0)?);
    }
    let next = if reader.at < text.len() { reader.at as f64 } else { -1.0 };
    Ok(full.then_some(Value::Number(next)).into_iter().chain(values).collect())
}

struct Reader<'r, 'l> {
    args: &'r Args<'l>,
    text: &'r [u8],
    at: usize,
}

impl<'r> Reader<'r, '_> {
    fn take(&mut self, n: usize) -> Result<&'r [u8]> {
        let end = self.at.checked_add(n).filter(|end| *end <= self.text.len());
        let Some(end) = end else { return Err(self.args.error("Missing bytes in input.")) };
        let taken = &self.text[self.at..end];
        self.at = end;
        Ok(taken)
    }
    fn unsigned(&mut self, bytes: usize) -> Result<u64> {
        Ok(self.take(bytes)?.iter().fold(0, |all, byte| all << 8 | u64::from(*byte)))
    }
    fn value(&mut self, level: usize) -> Result<Value> {
        state::charge(1)?;
        if level > UNPACK_NESTING_MAX {
            return Err(self.args.error("The input is nested too deep."));
        }
        state::check_level(level)?;
        let code = self.take(1)?[0];
        let number = |n: f64| Ok(Value::Number(n));
        match code {
            0..=0x7f => number(f64::from(code)),
            0xe0..=0xff => number(f64::from(code as i8)),
            0x80..=0x8f => self.map(usize::from(code & 15), level),
            0x90..=0x9f => self.array(usize::from(code & 15), level),
            0xa0..=0xbf => self.string(usize::from(code & 31)),
            0xc0 => Ok(Value::Nil),
            0xc2 | 0xc3 => Ok(Value::Boolean(code == 0xc3)),
            0xca => {
                let bits = self.unsigned(4)? as u32;
                number(f64::from(f32::from_bits(bits)))
            }
            0xcb => {
                let bits = self.unsigned(8)?;
                number(f64::from_bits(bits))
            }
            0xcc..=0xcf => {
                let n = self.unsigned(1 << (code - 0xcc))?;
                // As in redis-server, the largest form is read as a signed number.
                number(n as i64 as f64)
            }
            0xd0 => {
                let n = self.unsigned(1)?;
                number(f64::from(n as u8 as i8))
            }
            0xd1 => {
                let n = self.unsigned(2)?;
                number(f64::from(n as u16 as i16))
            }
            0xd2 => {
                let n = self.unsigned(4)?;
                number(f64::from(n as u32 as i32))
            }
            0xd3 => {
                let n = self.unsigned(8)?;
                number(n as i64 as f64)
            }
            0xd9..=0xdb => {
                let n = self.unsigned(1 << (code - 0xd9))?;
                self.string(n as usize)
            }
            0xdc | 0xdd => {
                let n = self.unsigned(2 << (code - 0xdc))?;
                self.array(n as usize, level)
            }
            0xde | 0xdf => {
                let n = self.unsigned(2 << (code - 0xde))?;
                self.map(n as usize, level)
            }
            _ => Err(self.args.error("Bad data format in input.")),
        }
    }
    fn string(&mut self, n: usize) -> Result<Value> {
        let text = self.take(n)?;
        state::charge(n)?;
        Ok(Value::String(self.args.lua.create_string(text)?))
    }
    fn array(&mut self, n: usize, level: usize) -> Result<Value> {
        let table = self.args.lua.create_table()?;
        for i in 1..=n {
            table.raw_set(i, self.value(level + 1)?)?;
        }
        Ok(Value::Table(table))
    }
    fn map(&mut self, n: usize, level: usize) -> Result<Value> {
        let table = self.args.lua.create_table()?;
        for _ in 0..n {
            let key = self.value(level + 1)?;
            let value = self.value(level + 1)?;
            match key {
                Value::Nil => return Err(Thrown::Text(b"table index is nil".to_vec()).into()),
                Value::Number(number) if number.is_nan() => {
                    return Err(Thrown::Text(b"table index is NaN".to_vec()).into());
                }
                key => table.raw_set(key, value)?,
            }
        }
        Ok(Value::Table(table))
    }
}
