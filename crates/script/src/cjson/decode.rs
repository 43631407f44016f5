//! [`decode`]: `cjson.decode`, which reads JSON as a Lua value. A [`Decoder`] cuts the text into tokens as lua-cjson
//! does, so that error texts have lua-cjson's names of tokens and its positions. Numbers are read as by C's `strtod`.

use super::{DEPTH_LIMIT, Settings, null};
use crate::args::Args;
use crate::state;
use mlua::{Result, Value};
use std::sync::atomic::Ordering::Relaxed;

/// `cjson.decode`: the Lua value of a JSON text.
pub(super) fn decode(args: &Args<'_>, settings: &Settings) -> Result<Value> {
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
    Invalid(&'static str),
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
            Kind::Invalid(why) => why,
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
    fn enter_level(&mut self) -> Result<()> {
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
        self.enter_level()?;
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
        self.enter_level()?;
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
            if fits { kind } else { Kind::Invalid("invalid token") }
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
            // As in lua-cjson, a zero byte ends the text.
            0 => Kind::End,
            _ => self.number(),
        };
        Ok(Token { kind, at })
    }
    fn string(&mut self) -> Result<Token> {
        let at = self.at;
        let wrong = |why, at| Ok(Token { kind: Kind::Invalid(why), at });
        let mut out = Vec::new();
        let mut i = at + 1;
        loop {
            let Some(&c) = self.text.get(i) else { return wrong("unexpected end of string", i) };
            i += 1;
            match c {
                b'"' => break,
                b'\\' => {
                    let Some(&escape) = self.text.get(i) else { return wrong("invalid escape code", i - 1) };
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
                // As in redis-server, a zero byte ends the text.
                0 => return wrong("unexpected end of string", i - 1),
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
        let is_json = matches!(rest.first(), Some(b'-' | b'0'..=b'9'));
        let why = if is_json { "invalid number" } else { "invalid token" };
        if self.settings.decode_invalid_numbers.load(Relaxed) == 0 && is_invalid_number(rest) {
            return Kind::Invalid(why);
        }
        match leading_number(rest) {
            Some((number, len)) if !rest.starts_with(b".") => {
                self.at += len;
                Kind::Number(number)
            }
            _ => Kind::Invalid(why),
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
        // Without a digit, C reads the zero alone.
        return Some((sign * value, signed + if hex > 0 { 2 + hex } else { 1 }));
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
    fn numbers_are_read_as_far_as_they_go() {
        assert_eq!(leading_number(b"12]"), Some((12.0, 2)));
        assert_eq!(leading_number(b"-1.5e3x"), Some((-1500.0, 6)));
        assert_eq!(leading_number(b"1e+"), Some((1.0, 1)));
        assert_eq!(leading_number(b"0x1F,"), Some((31.0, 4)));
        assert_eq!(leading_number(b"0xZ"), Some((0.0, 1)));
        assert_eq!(leading_number(b"-0x"), Some((0.0, 2)));
        assert_eq!(leading_number(b"-"), None);
        assert_eq!(leading_number(b"."), None);
    }
}
