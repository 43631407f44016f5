//! Converts replies to Lua values and Lua values to replies, as redis-server does.

use crate::state;
use crate::vm::{MemoryLimitLift, hook};
use mlua::{Lua, Result, Table, Value};
use strand_chain::Chain;
use strand_lua::{Answer, Plain, Short};
use strand_wire::reply::{ErrorText, Reply};

/// Maximum nesting of tables that a script may return. redis-server exhausts Lua's stack at about this depth.
const DEPTH_MAX: usize = 100;
/// Numbers of this size or more do not fit a 64-bit integer.
const TWO_TO_63: f64 = (1u64 << 63) as f64;
const TOO_DEEP: &str = "ERR reached lua stack limit";

/// Converts a command's reply that is short and no table. A text goes to `text`. `None`: [`reply_value`] must convert
/// the reply.
#[inline]
pub(crate) fn plain_reply(reply: &Chain, text: &mut Short) -> Option<Answer> {
    let bytes = reply.front();
    if bytes.len() != reply.len() {
        return None;
    }
    let (line, rest) = bytes.split_at_checked(memchr::memchr(b'\r', bytes)?)?;
    let (kind, line) = line.split_first()?;
    let number = || std::str::from_utf8(line).ok().and_then(|n| n.parse::<i64>().ok());
    match kind {
        b'+' => text.set(line).then_some(Answer::Status),
        b':' => Some(Answer::Number(number()? as f64)),
        b'$' => match usize::try_from(number()?) {
            Ok(len) => text.set(rest.get(2..)?.get(..len)?).then_some(Answer::Text),
            Err(_) => Some(Answer::Bool(false)),
        },
        b'*' if number()? < 0 => Some(Answer::Bool(false)),
        b'_' => Some(Answer::Nil),
        b'#' => Some(Answer::Bool(line == b"t")),
        _ => None,
    }
}

/// Converts a command's reply. Returns the value, or the text of the reply's error.
///
/// # Errors
/// When the interpreter has no memory for the value.
pub(crate) fn reply_value(lua: &Lua, reply: &Chain) -> Result<std::result::Result<Value, ErrorText>> {
    state::charge(reply.len())?;
    hook::expect_text(lua, reply.len())?;
    let _unbound = (reply.len() <= state::SMALL_BYTES).then(|| MemoryLimitLift::new(lua));
    let mut slices = reply.slices();
    let (first, second) = (slices.next().unwrap_or_default(), slices.next());
    let whole;
    let bytes = match second {
        None => first,
        Some(second) => {
            whole = [first, second].into_iter().chain(slices).collect::<Vec<_>>().concat();
            &whole
        }
    };
    let mut reader = Reader { lua, bytes, at: 0 };
    match reader.value()? {
        ParsedReply::Error(text) => Ok(Err(text)),
        ParsedReply::Value(value) => Ok(Ok(value)),
    }
}

enum ParsedReply {
    Value(Value),
    Error(Vec<u8>),
}

struct Reader<'r> {
    lua: &'r Lua,
    bytes: &'r [u8],
    at: usize,
}

impl<'r> Reader<'r> {
    fn line(&mut self) -> &'r [u8] {
        let rest = &self.bytes[self.at.min(self.bytes.len())..];
        let end = memchr::memchr(b'\r', rest).unwrap_or(rest.len());
        self.at += end + 2;
        &rest[..end]
    }
    fn text(&mut self, len: usize) -> &'r [u8] {
        let from = self.at.min(self.bytes.len());
        let to = from.saturating_add(len).min(self.bytes.len());
        self.at = to + 2;
        &self.bytes[from..to]
    }
    fn field(&self, name: &str, value: Value) -> Result<ParsedReply> {
        let table = self.lua.create_table()?;
        table.raw_set(name, value)?;
        Ok(ParsedReply::Value(Value::Table(table)))
    }
    fn string(&self, text: &[u8]) -> Result<Value> {
        Ok(Value::String(self.lua.create_string(text)?))
    }
    /// Reads a nested value. A nested error becomes a table.
    fn inner(&mut self) -> Result<Value> {
        match self.value()? {
            ParsedReply::Value(value) => Ok(value),
            ParsedReply::Error(text) => Ok(Value::Table(crate::errors::table(self.lua, &text, false)?)),
        }
    }
    fn value(&mut self) -> Result<ParsedReply> {
        let line = self.line();
        let (kind, rest) = line.split_first().unwrap_or((&b'_', &[]));
        let number = || std::str::from_utf8(rest).ok().and_then(|n| n.parse::<i64>().ok()).unwrap_or(0);
        let len = || number().max(0) as usize;
        Ok(ParsedReply::Value(match kind {
            b'+' => return self.field("ok", self.string(rest)?),
            b'-' => return Ok(ParsedReply::Error(rest.to_vec())),
            b':' => Value::Number(number() as f64),
            b'$' | b'*' if number() < 0 => Value::Boolean(false),
            b'$' => {
                let text = self.text(len());
                self.string(text)?
            }
            b'*' | b'>' => {
                let n = len();
                let table = self.lua.create_table_with_capacity(n.min(self.bytes.len() / 4), 0)?;
                for i in 1..=n {
                    table.raw_set(i, self.inner()?)?;
                }
                Value::Table(table)
            }
            b'%' => {
                let table = self.lua.create_table()?;
                for _ in 0..len() {
                    let (key, value) = (self.inner()?, self.inner()?);
                    table.raw_set(key, value)?;
                }
                return self.field("map", Value::Table(table));
            }
            b'~' => {
                let table = self.lua.create_table()?;
                for _ in 0..len() {
                    table.raw_set(self.inner()?, true)?;
                }
                return self.field("set", Value::Table(table));
            }
            b',' => {
                let text = std::str::from_utf8(rest).unwrap_or_default();
                return self.field("double", Value::Number(text.parse().unwrap_or(f64::NAN)));
            }
            b'(' => return self.field("big_number", self.string(rest)?),
            b'#' => Value::Boolean(rest == b"t"),
            b'|' => {
                // As in redis-server, a script does not see the attributes of a reply.
                for _ in 0..len().saturating_mul(2) {
                    self.inner()?;
                }
                return self.value();
            }
            b'=' => {
                let text = self.text(len());
                let (format, text) = (&text[..text.len().min(3)], &text[text.len().min(4)..]);
                let table = self.lua.create_table()?;
                table.raw_set("format", self.string(format)?)?;
                table.raw_set("string", self.string(text)?)?;
                return self.field("verbatim_string", Value::Table(table));
            }
            _ => Value::Nil,
        }))
    }
}

/// Writes what a script returned. `resp3`: the script has called `redis.setresp(3)`.
///
/// # Errors
/// When a table's metamethod raises one, or the run must stop. Nothing is written then.
pub(crate) fn write(reply: &mut Reply<'_>, value: &Value, resp3: bool) -> Result<()> {
    // An error in the middle of a table would leave a part of the reply behind.
    let mut out = Chain::new();
    let mut part = reply.part(&mut out);
    write_at(&mut part, value, resp3, 0)?;
    let code = part.error_code().map(<[u8]>::to_vec);
    reply.raw_reply(out, code.as_deref());
    Ok(())
}

fn write_at(reply: &mut Reply<'_>, value: &Value, resp3: bool, depth: usize) -> Result<()> {
    if !may_write(reply, depth)? {
        return Ok(());
    }
    match value {
        Value::String(text) => reply.bulk(&text.as_bytes()),
        Value::Integer(number) => reply.int(*number),
        Value::Number(number) => reply.int(to_c_integer(*number)),
        Value::Boolean(yes) => write_bool(reply, *yes, resp3),
        Value::Table(_) if depth == DEPTH_MAX => reply.error(TOO_DEEP),
        Value::Table(table) => write_table(reply, table, resp3, depth)?,
        _ => reply.null(),
    }
    Ok(())
}

/// Does what [`write()`] does, for a value that is no table.
///
/// # Errors
/// When the run must stop.
pub(crate) fn write_plain(reply: &mut Reply<'_>, value: Plain<'_>, resp3: bool) -> Result<()> {
    state::charge(1)?;
    match value {
        Plain::Text(text) => reply.bulk(text),
        Plain::Number(number) => reply.int(to_c_integer(number)),
        Plain::Bool(yes) => write_bool(reply, yes, resp3),
        Plain::Nil => reply.null(),
    }
    Ok(())
}

/// Counts a step, because a table that contains itself twice would otherwise be written forever. Returns false when
/// the reply is no longer needed.
fn may_write(reply: &Reply<'_>, depth: usize) -> Result<bool> {
    state::charge(1)?;
    state::check_level(depth)?;
    state::check_bytes(reply.out_len())?;
    Ok(!reply.exceeds_limit())
}

fn write_bool(reply: &mut Reply<'_>, yes: bool, resp3: bool) {
    match yes {
        _ if resp3 => reply.bool(yes),
        true => reply.int(1),
        false => reply.null(),
    }
}

/// Converts a number as C does on x86-64: a number out of range becomes the smallest integer.
pub(crate) fn to_c_integer(number: f64) -> i64 {
    if (-TWO_TO_63..TWO_TO_63).contains(&number) { number as i64 } else { i64::MIN }
}

/// The text before its first zero byte: redis-server sends the texts of errors and states as C strings.
pub(crate) fn until_zero(text: &[u8]) -> &[u8] {
    text.split(|byte| *byte == 0).next().unwrap_or_default()
}

fn write_table(reply: &mut Reply<'_>, table: &Table, resp3: bool, depth: usize) -> Result<()> {
    if let Value::String(text) = table.raw_get("err")? {
        reply.error_bytes(until_zero(&text.as_bytes()));
        return Ok(());
    }
    if let Value::String(text) = table.raw_get("ok")? {
        reply.simple_bytes(until_zero(&text.as_bytes()));
        return Ok(());
    }
    match table.raw_get("double")? {
        Value::Number(number) => {
            reply.double(number);
            return Ok(());
        }
        Value::Integer(number) => {
            reply.double(number as f64);
            return Ok(());
        }
        _ => {}
    }
    // Read values one by one, because an interpreter has room for only a few thousand references from Rust.
    if let Value::Table(map) = table.raw_get("map")? {
        reply.map(count(&map)?);
        for pair in map.pairs::<Value, Value>() {
            let (key, value) = pair?;
            write_at(reply, &key, resp3, depth + 1)?;
            write_at(reply, &value, resp3, depth + 1)?;
        }
        return Ok(());
    }
    if let Value::Table(set) = table.raw_get("set")? {
        reply.set(count(&set)?);
        for pair in set.pairs::<Value, Value>() {
            write_at(reply, &pair?.0, resp3, depth + 1)?;
        }
        return Ok(());
    }
    if let Value::String(digits) = table.raw_get("big_number")? {
        let digits: Vec<u8> =
            digits.as_bytes().iter().map(|c| if matches!(c, b'\r' | b'\n') { b' ' } else { *c }).collect();
        reply.big_number(&digits);
        return Ok(());
    }
    if let Value::Table(verbatim) = table.raw_get("verbatim_string")?
        && let (Value::String(format), Value::String(text)) =
            (verbatim.raw_get("format")?, verbatim.raw_get("string")?)
    {
        // As in redis-server, the format may have any bytes, and spaces fill it up to three.
        let format = [until_zero(&format.as_bytes()), b"   "].concat();
        reply.verbatim(&format[..3], &text.as_bytes());
        return Ok(());
    }
    let mut n = 0;
    while !table.raw_get::<Value>(n + 1)?.is_nil() {
        state::charge(1)?;
        n += 1;
    }
    reply.array(n);
    for i in 1..=n {
        write_at(reply, &table.raw_get(i)?, resp3, depth + 1)?;
    }
    Ok(())
}

fn count(table: &Table) -> Result<usize> {
    let n = table.pairs::<Value, Value>().count();
    state::charge(n)?;
    Ok(n)
}
