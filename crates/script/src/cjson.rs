//! `cjson`: lua-cjson 2.1.0, as in redis-server.
//!
//! Left out: `encode_keep_buffer` has no effect, because there is no buffer to keep. As in redis-server, settings
//! hold for all scripts.

use crate::args::{Args, type_name};
use crate::state;
use mlua::{LightUserData, Lua, MultiValue, Result, Table, Value};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::sync::{Arc, LazyLock};

/// Maximum nesting, unless the script sets another maximum.
const DEPTH_MAX: i64 = 1000;
/// Upper limit of the nesting settings, because each level takes memory of the thread's stack.
const DEPTH_LIMIT: i64 = 1000;
/// Maximum number of digits with which a number is encoded.
const PRECISION_MAX: i64 = 14;

/// Settings of `cjson` that a script can change.
struct Settings {
    /// 0: off, 1: on, 2: write `null`.
    encode_invalid_numbers: AtomicI64,
    decode_invalid_numbers: AtomicI64,
    encode_max_depth: AtomicI64,
    decode_max_depth: AtomicI64,
    precision: AtomicI64,
    sparse_convert: AtomicI64,
    sparse_ratio: AtomicI64,
    sparse_safe: AtomicI64,
    keep_buffer: AtomicI64,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            encode_invalid_numbers: 0.into(),
            decode_invalid_numbers: 1.into(),
            encode_max_depth: DEPTH_MAX.into(),
            decode_max_depth: DEPTH_MAX.into(),
            precision: PRECISION_MAX.into(),
            sparse_convert: 0.into(),
            sparse_ratio: 2.into(),
            sparse_safe: 10.into(),
            keep_buffer: 1.into(),
        }
    }
}

/// The settings of the library, which all scripts in all interpreters share.
static SHARED: LazyLock<Arc<Settings>> = LazyLock::new(Arc::default);

/// Creates the table `cjson`.
pub(crate) fn library(lua: &Lua) -> Result<Table> {
    library_with(lua, SHARED.clone())
}

fn library_with(lua: &Lua, settings: Arc<Settings>) -> Result<Table> {
    let library = lua.create_table()?;
    macro_rules! function {
        ($name:literal, $run:expr) => {
            let shared = settings.clone();
            library.set(
                $name,
                lua.create_function(move |lua, values: MultiValue| {
                    let args = Args::new(lua, values);
                    $run(&args, &*shared)
                })?,
            )?;
        };
    }
    function!("encode", encode);
    function!("decode", decode);
    function!("encode_max_depth", |args: &Args<'_>, s: &Settings| whole(
        args,
        &s.encode_max_depth,
        1,
        i64::from(i32::MAX)
    ));
    function!("decode_max_depth", |args: &Args<'_>, s: &Settings| whole(
        args,
        &s.decode_max_depth,
        1,
        i64::from(i32::MAX)
    ));
    function!("encode_number_precision", |args: &Args<'_>, s: &Settings| whole(
        args,
        &s.precision,
        1,
        PRECISION_MAX
    ));
    function!("encode_keep_buffer", |args: &Args<'_>, s: &Settings| choice(args, &s.keep_buffer, false));
    function!("encode_invalid_numbers", |args: &Args<'_>, s: &Settings| choice(
        args,
        &s.encode_invalid_numbers,
        true
    ));
    function!("decode_invalid_numbers", |args: &Args<'_>, s: &Settings| choice(
        args,
        &s.decode_invalid_numbers,
        false
    ));
    function!("encode_sparse_array", sparse_array);
    library.set("new", lua.create_function(|lua, ()| library_with(lua, Arc::default()))?)?;
    library.set("null", null())?;
    library.set("_NAME", "cjson")?;
    library.set("_VERSION", "2.1.0")?;
    Ok(library)
}

fn null() -> Value {
    Value::LightUserData(LightUserData(null_mut()))
}

fn one_argument(args: &Args<'_>) -> Result<()> {
    if args.len() > 1 { Err(args.bad(2, "found too many arguments")) } else { Ok(()) }
}

/// Reads a setting that is an integer, and sets it if the script gives a value.
fn whole(args: &Args<'_>, setting: &AtomicI64, min: i64, max: i64) -> Result<Value> {
    one_argument(args)?;
    if !args.is_none(1) {
        let number = args.int(1)?;
        if !(min..=max).contains(&number) {
            return Err(args.bad(1, &format!("expected integer between {min} and {max}")));
        }
        setting.store(number, Relaxed);
    }
    Ok(Value::Number(setting.load(Relaxed) as f64))
}

/// Reads a setting that is off, on or `null`, and sets it if the script gives a value.
fn choice(args: &Args<'_>, setting: &AtomicI64, or_null: bool) -> Result<Value> {
    one_argument(args)?;
    set_choice(args, setting, or_null)?;
    Ok(match setting.load(Relaxed) {
        2 => Value::String(args.lua.create_string("null")?),
        on => Value::Boolean(on == 1),
    })
}

fn set_choice(args: &Args<'_>, setting: &AtomicI64, or_null: bool) -> Result<()> {
    let found = match args.get(1) {
        None | Some(Value::Nil) => return Ok(()),
        Some(Value::Boolean(on)) => i64::from(*on),
        Some(_) => match &*args.string(1)?.as_bytes() {
            b"off" => 0,
            b"on" => 1,
            b"null" if or_null => 2,
            other => {
                let text = String::from_utf8_lossy(other);
                return Err(args.bad(1, &format!("invalid option '{text}'")));
            }
        },
    };
    setting.store(found, Relaxed);
    Ok(())
}

fn sparse_array(args: &Args<'_>, s: &Settings) -> Result<(bool, f64, f64)> {
    if args.len() > 3 {
        return Err(args.bad(4, "found too many arguments"));
    }
    set_choice(args, &s.sparse_convert, false)?;
    for (n, setting) in [(2, &s.sparse_ratio), (3, &s.sparse_safe)] {
        if !args.is_none(n) {
            let number = args.int(n)?;
            if !(0..=i64::from(i32::MAX)).contains(&number) {
                return Err(args.bad(n, &format!("expected integer between 0 and {}", i32::MAX)));
            }
            setting.store(number, Relaxed);
        }
    }
    Ok((
        s.sparse_convert.load(Relaxed) == 1,
        s.sparse_ratio.load(Relaxed) as f64,
        s.sparse_safe.load(Relaxed) as f64,
    ))
}

fn encode(args: &Args<'_>, settings: &Settings) -> Result<Value> {
    if args.len() != 1 {
        return Err(args.bad(1, "expected 1 argument"));
    }
    let mut out = Vec::new();
    let value = args.get(1).cloned().unwrap_or(Value::Nil);
    Encoder { args, settings, out: &mut out, depth: 0 }.value(&value)?;
    Ok(Value::String(args.lua.create_string(out)?))
}

struct Encoder<'e, 'l> {
    args: &'e Args<'l>,
    settings: &'e Settings,
    out: &'e mut Vec<u8>,
    depth: i64,
}

impl Encoder<'_, '_> {
    fn value(&mut self, value: &Value) -> Result<()> {
        match value {
            Value::Nil => self.out.extend_from_slice(b"null"),
            Value::LightUserData(data) if data.0.is_null() => self.out.extend_from_slice(b"null"),
            Value::Boolean(yes) => self.out.extend_from_slice(if *yes { b"true" } else { b"false" }),
            Value::Integer(number) => self.number(*number as f64)?,
            Value::Number(number) => self.number(*number)?,
            Value::String(text) => self.string(&text.as_bytes())?,
            Value::Table(table) => self.table(table)?,
            other => return Err(self.cannot(type_name(other), "type not supported")),
        }
        Ok(())
    }
    fn cannot(&self, kind: &str, why: &str) -> mlua::Error {
        self.args.error(format!("Cannot serialise {kind}: {why}"))
    }
    fn string(&mut self, text: &[u8]) -> Result<()> {
        state::charge(text.len())?;
        state::check_bytes(self.out.len() + text.len())?;
        self.out.push(b'"');
        for &c in text {
            match c {
                b'"' => self.out.extend_from_slice(b"\\\""),
                b'\\' => self.out.extend_from_slice(b"\\\\"),
                b'/' => self.out.extend_from_slice(b"\\/"),
                0x08 => self.out.extend_from_slice(b"\\b"),
                0x0c => self.out.extend_from_slice(b"\\f"),
                b'\n' => self.out.extend_from_slice(b"\\n"),
                b'\r' => self.out.extend_from_slice(b"\\r"),
                b'\t' => self.out.extend_from_slice(b"\\t"),
                0..0x20 | 0x7f => self.out.extend_from_slice(format!("\\u{c:04x}").as_bytes()),
                c => self.out.push(c),
            }
        }
        self.out.push(b'"');
        Ok(())
    }
    fn number(&mut self, number: f64) -> Result<()> {
        if !number.is_finite() {
            match self.settings.encode_invalid_numbers.load(Relaxed) {
                0 => return Err(self.cannot("number", "must not be NaN or Inf")),
                2 => self.out.extend_from_slice(b"null"),
                _ if number.is_nan() => self.out.extend_from_slice(b"nan"),
                _ => self.out.extend_from_slice(if number < 0.0 { b"-inf" } else { b"inf" }),
            }
            return Ok(());
        }
        let precision = self.settings.precision.load(Relaxed) as usize;
        self.out.extend_from_slice(general(number, precision).as_bytes());
        Ok(())
    }
    fn table(&mut self, table: &Table) -> Result<()> {
        self.depth += 1;
        if self.depth > self.settings.encode_max_depth.load(Relaxed).min(DEPTH_LIMIT) {
            return Err(self.args.error(format!("Cannot serialise, excessive nesting ({})", self.depth)));
        }
        state::charge(1)?;
        state::check_level(self.depth as usize)?;
        match self.array_len(table)? {
            Some(len) => self.array(table, len)?,
            None => self.object(table)?,
        }
        self.depth -= 1;
        Ok(())
    }
    /// The length of a table that is an array. `None` for an object, and for an empty table.
    fn array_len(&self, table: &Table) -> Result<Option<usize>> {
        let (mut max, mut items) = (0i64, 0i64);
        for pair in table.pairs::<Value, Value>() {
            let (key, _) = pair?;
            state::charge(1)?;
            let number = match key {
                Value::Integer(number) => number as f64,
                Value::Number(number) => number,
                _ => return Ok(None),
            };
            if number < 1.0 || number.floor() != number || !number.is_finite() {
                return Ok(None);
            }
            max = max.max(number as i64);
            items += 1;
        }
        let ratio = self.settings.sparse_ratio.load(Relaxed);
        if ratio > 0 && max > items.saturating_mul(ratio) && max > self.settings.sparse_safe.load(Relaxed) {
            if self.settings.sparse_convert.load(Relaxed) == 0 {
                return Err(self.cannot("table", "excessively sparse array"));
            }
            return Ok(None);
        }
        Ok((max > 0).then_some(max as usize))
    }
    fn array(&mut self, table: &Table, len: usize) -> Result<()> {
        self.out.push(b'[');
        for i in 1..=len {
            if i > 1 {
                self.out.push(b',');
            }
            state::charge(1)?;
            state::check_bytes(self.out.len())?;
            self.value(&table.raw_get(i)?)?;
        }
        self.out.push(b']');
        Ok(())
    }
    fn object(&mut self, table: &Table) -> Result<()> {
        self.out.push(b'{');
        let mut first = true;
        for pair in table.pairs::<Value, Value>() {
            let (key, value) = pair?;
            if !std::mem::take(&mut first) {
                self.out.push(b',');
            }
            match key {
                Value::String(text) => self.string(&text.as_bytes())?,
                Value::Integer(number) => {
                    self.out.push(b'"');
                    self.number(number as f64)?;
                    self.out.push(b'"');
                }
                Value::Number(number) => {
                    self.out.push(b'"');
                    self.number(number)?;
                    self.out.push(b'"');
                }
                other => {
                    return Err(self.cannot(type_name(&other), "table key must be a number or string"));
                }
            }
            self.out.push(b':');
            self.value(&value)?;
        }
        self.out.push(b'}');
        Ok(())
    }
}

/// A number in the form of C's `%.{precision}g`.
pub(crate) fn general(number: f64, precision: usize) -> String {
    if number == 0.0 {
        return if number.is_sign_negative() { "-0".into() } else { "0".into() };
    }
    if !number.is_finite() {
        return if number.is_nan() {
            // On x86-64, zero divided by zero is printed as `-nan`.
            if number.is_sign_negative() { "-nan" } else { "nan" }.into()
        } else if number < 0.0 {
            "-inf".into()
        } else {
            "inf".into()
        };
    }
    let scientific = format!("{number:.*e}", precision - 1);
    let (digits, exponent) = scientific.split_once('e').expect("it has an exponent");
    let exponent: i32 = exponent.parse().expect("a number");
    let trim = |text: &str| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text.to_owned(),
    };
    if exponent < -4 || exponent >= precision as i32 {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{}e{sign}{:02}", trim(digits), exponent.abs());
    }
    trim(&format!("{number:.*}", (precision as i32 - 1 - exponent).max(0) as usize))
}

fn decode(args: &Args<'_>, settings: &Settings) -> Result<Value> {
    if args.len() != 1 {
        return Err(args.bad(1, "expected 1 argument"));
    }
    let text = args.string(1)?;
    let text = &*text.as_bytes();
    if text.len() >= 2 && (text[0] == 0 || text[1] == 0) {
        return Err(args.error("JSON parser does not support UTF-16 or UTF-32"));
    }
    state::charge(text.len())?;
    let mut decoder = Decoder { args, settings, text, at: 0, depth: 0 };
    let token = decoder.token()?;
    let value = decoder.value(token)?;
    let end = decoder.token()?;
    if !matches!(end.kind, Kind::End) {
        return Err(decoder.unexpected("the end", &end));
    }
    Ok(value)
}

enum Kind {
    Open(u8),
    Close(u8),
    Comma,
    Colon,
    Text(Vec<u8>),
    Number(f64),
    Bool(bool),
    Null,
    End,
    Wrong(&'static str),
}

struct Token {
    kind: Kind,
    /// Index of the token's first byte, counted from 0.
    at: usize,
}

struct Decoder<'d, 'l> {
    args: &'d Args<'l>,
    settings: &'d Settings,
    text: &'d [u8],
    at: usize,
    depth: i64,
}

impl Decoder<'_, '_> {
    fn value(&mut self, token: Token) -> Result<Value> {
        let lua = self.args.lua;
        Ok(match token.kind {
            Kind::Text(text) => Value::String(lua.create_string(text)?),
            Kind::Number(number) => Value::Number(number),
            Kind::Bool(yes) => Value::Boolean(yes),
            Kind::Null => null(),
            Kind::Open(b'{') => self.object()?,
            Kind::Open(_) => self.array()?,
            _ => return Err(self.unexpected("value", &token)),
        })
    }
    fn unexpected(&self, expected: &str, token: &Token) -> mlua::Error {
        let found = match token.kind {
            Kind::Wrong(why) => why,
            Kind::Open(b'{') => "T_OBJ_BEGIN",
            Kind::Open(_) => "T_ARR_BEGIN",
            Kind::Close(b'}') => "T_OBJ_END",
            Kind::Close(_) => "T_ARR_END",
            Kind::Comma => "T_COMMA",
            Kind::Colon => "T_COLON",
            Kind::Text(_) => "T_STRING",
            Kind::Number(_) => "T_NUMBER",
            Kind::Bool(_) => "T_BOOLEAN",
            Kind::Null => "T_NULL",
            Kind::End => "T_END",
        };
        let at = token.at + 1;
        self.args.error(format!("Expected {expected} but found {found} at character {at}"))
    }
    fn deeper(&mut self) -> Result<()> {
        self.depth += 1;
        if self.depth > self.settings.decode_max_depth.load(Relaxed).min(DEPTH_LIMIT) {
            let (depth, at) = (self.depth, self.at);
            return Err(self
                .args
                .error(format!("Found too many nested data structures ({depth}) at character {at}")));
        }
        state::check_level(self.depth as usize)?;
        Ok(())
    }
    fn object(&mut self) -> Result<Value> {
        self.deeper()?;
        let table = self.args.lua.create_table()?;
        let mut token = self.token()?;
        if matches!(token.kind, Kind::Close(b'}')) {
            self.depth -= 1;
            return Ok(Value::Table(table));
        }
        loop {
            let Kind::Text(key) = token.kind else {
                return Err(self.unexpected("object key string", &token));
            };
            let colon = self.token()?;
            if !matches!(colon.kind, Kind::Colon) {
                return Err(self.unexpected("colon", &colon));
            }
            token = self.token()?;
            let value = self.value(token)?;
            table.raw_set(self.args.lua.create_string(key)?, value)?;
            token = self.token()?;
            match token.kind {
                Kind::Close(b'}') => {
                    self.depth -= 1;
                    return Ok(Value::Table(table));
                }
                Kind::Comma => token = self.token()?,
                _ => return Err(self.unexpected("comma or object end", &token)),
            }
        }
    }
    fn array(&mut self) -> Result<Value> {
        self.deeper()?;
        let table = self.args.lua.create_table()?;
        let mut token = self.token()?;
        if matches!(token.kind, Kind::Close(b']')) {
            self.depth -= 1;
            return Ok(Value::Table(table));
        }
        for i in 1.. {
            let value = self.value(token)?;
            table.raw_set(i, value)?;
            token = self.token()?;
            match token.kind {
                Kind::Close(b']') => break,
                Kind::Comma => token = self.token()?,
                _ => return Err(self.unexpected("comma or array end", &token)),
            }
        }
        self.depth -= 1;
        Ok(Value::Table(table))
    }
    fn token(&mut self) -> Result<Token> {
        while self.text.get(self.at).is_some_and(|c| matches!(c, b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
        let at = self.at;
        let Some(&c) = self.text.get(at) else { return Ok(Token { kind: Kind::End, at }) };
        let rest = &self.text[at..];
        let mut word = |word: &[u8], kind| {
            let fits = rest.starts_with(word);
            if fits {
                self.at += word.len();
            }
            if fits { kind } else { Kind::Wrong("invalid token") }
        };
        let kind = match c {
            b'{' | b'[' => word(&[c], Kind::Open(c)),
            b'}' | b']' => word(&[c], Kind::Close(c)),
            b',' => word(b",", Kind::Comma),
            b':' => word(b":", Kind::Colon),
            b't' => word(b"true", Kind::Bool(true)),
            b'f' => word(b"false", Kind::Bool(false)),
            b'n' if rest.starts_with(b"null") => word(b"null", Kind::Null),
            b'"' => return self.string(),
            _ => self.number(),
        };
        Ok(Token { kind, at })
    }
    fn string(&mut self) -> Result<Token> {
        let at = self.at;
        let wrong = |why, at| Ok(Token { kind: Kind::Wrong(why), at });
        let mut out = Vec::new();
        let mut i = at + 1;
        loop {
            let Some(&c) = self.text.get(i) else { return wrong("unexpected end of string", i) };
            i += 1;
            match c {
                b'"' => break,
                b'\\' => {
                    let Some(&escape) = self.text.get(i) else { return wrong("unexpected end of string", i) };
                    i += 1;
                    match escape {
                        b'"' | b'\\' | b'/' => out.push(escape),
                        b'b' => out.push(0x08),
                        b'f' => out.push(0x0c),
                        b'n' => out.push(b'\n'),
                        b'r' => out.push(b'\r'),
                        b't' => out.push(b'\t'),
                        b'u' => {
                            let escape_at = i - 2;
                            let Some(point) = self.code_point(&mut i) else {
                                return wrong("invalid unicode escape code", escape_at);
                            };
                            let mut bytes = [0; 4];
                            out.extend_from_slice(point.encode_utf8(&mut bytes).as_bytes());
                        }
                        _ => return wrong("invalid escape code", i - 2),
                    }
                }
                c => out.push(c),
            }
        }
        self.at = i;
        Ok(Token { kind: Kind::Text(out), at })
    }
    /// Decodes the digits after `\u`: one code unit, or both code units of a surrogate pair.
    fn code_point(&self, i: &mut usize) -> Option<char> {
        let unit = |at: usize| {
            let hex = self.text.get(at..at + 4).filter(|h| h.iter().all(u8::is_ascii_hexdigit))?;
            u32::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok()
        };
        let first = unit(*i)?;
        *i += 4;
        if first & 0xF800 != 0xD800 {
            return char::from_u32(first);
        }
        if first & 0x400 != 0 || self.text.get(*i..*i + 2) != Some(b"\\u") {
            return None;
        }
        let second = unit(*i + 2)?;
        if second & 0xFC00 != 0xDC00 {
            return None;
        }
        *i += 6;
        char::from_u32(0x10000 + ((first & 0x3FF) << 10) + (second & 0x3FF))
    }
    fn number(&mut self) -> Kind {
        let rest = &self.text[self.at..];
        if self.settings.decode_invalid_numbers.load(Relaxed) == 0 && is_invalid_number(rest) {
            return Kind::Wrong("invalid number");
        }
        match leading_number(rest) {
            Some((number, len)) => {
                self.at += len;
                Kind::Number(number)
            }
            None => Kind::Wrong("invalid token"),
        }
    }
}

/// True for numbers that JSON does not have: hexadecimal, infinity, not a number, a leading zero or plus.
fn is_invalid_number(text: &[u8]) -> bool {
    let digits = match text.first() {
        Some(b'+') => return true,
        Some(b'-') => &text[1..],
        _ => text,
    };
    match digits {
        [b'0', next, ..] => matches!(next, b'x' | b'X' | b'0'..=b'9'),
        [b'0'..=b'9', ..] => false,
        _ => {
            let lower = digits.get(..3).map(<[u8]>::to_ascii_lowercase);
            lower.is_some_and(|word| word == b"inf" || word == b"nan")
        }
    }
}

/// The number at the start of `text` as `strtod` reads it, and the length of its text.
fn leading_number(text: &[u8]) -> Option<(f64, usize)> {
    let signed = usize::from(matches!(text.first(), Some(b'-' | b'+')));
    let sign = if text.first() == Some(&b'-') { -1.0 } else { 1.0 };
    let digits = &text[signed..];
    let starts = |word: &[u8]| digits.len() >= word.len() && digits[..word.len()].eq_ignore_ascii_case(word);
    if starts(b"infinity") {
        return Some((sign * f64::INFINITY, signed + 8));
    }
    if starts(b"inf") {
        return Some((sign * f64::INFINITY, signed + 3));
    }
    if starts(b"nan") {
        return Some((f64::NAN, signed + 3));
    }
    if starts(b"0x") {
        let hex: usize = digits[2..].iter().take_while(|c| c.is_ascii_hexdigit()).count();
        let value = digits[2..2 + hex]
            .iter()
            .fold(0.0, |all, c| all * 16.0 + f64::from((*c as char).to_digit(16).unwrap_or(0)));
        return (hex > 0).then_some((sign * value, signed + 2 + hex));
    }
    let count = |from: usize| digits[from..].iter().take_while(|c| c.is_ascii_digit()).count();
    let mut len = count(0);
    let mut any = len;
    if digits.get(len) == Some(&b'.') {
        let fraction = count(len + 1);
        any += fraction;
        if any > 0 {
            len += 1 + fraction;
        }
    }
    if any == 0 {
        return None;
    }
    if matches!(digits.get(len), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(digits.get(len + 1), Some(b'-' | b'+')));
        let exponent = count((len + 1 + sign).min(digits.len()));
        if exponent > 0 {
            len += 1 + sign + exponent;
        }
    }
    let text = std::str::from_utf8(&digits[..len]).ok()?;
    Some((sign * text.parse::<f64>().ok()?, signed + len))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_as_c_prints_them() {
        for (number, text) in [
            (1.0, "1"),
            (0.1, "0.1"),
            (1e15, "1e+15"),
            (123456789012345.0, "1.2345678901234e+14"),
            (1e-5, "1e-05"),
            (-2.5, "-2.5"),
            (3.3, "3.3"),
            (100000.0, "100000"),
        ] {
            assert_eq!(general(number, 14), text);
        }
        assert_eq!(general(3.3, 17), "3.2999999999999998");
        assert_eq!(general(1e20, 17), "1e+20");
    }

    #[test]
    fn numbers_are_read_as_far_as_they_go() {
        assert_eq!(leading_number(b"12]"), Some((12.0, 2)));
        assert_eq!(leading_number(b"-1.5e3x"), Some((-1500.0, 6)));
        assert_eq!(leading_number(b"1e+"), Some((1.0, 1)));
        assert_eq!(leading_number(b"0x1F,"), Some((31.0, 4)));
        assert_eq!(leading_number(b"-"), None);
        assert_eq!(leading_number(b"."), None);
    }
}
