//! [`encode`]: `cjson.encode`, which writes a Lua value as JSON. [`format_general`] writes numbers as C's `printf` does.

use super::{DEPTH_LIMIT, Settings};
use crate::args::{Args, number_of, type_name};
use crate::state;
use mlua::{Result, Table, Value};
use std::sync::atomic::Ordering::Relaxed;

/// `cjson.encode`: the JSON text of a Lua value.
pub(super) fn encode(args: &Args<'_>, settings: &Settings) -> Result<Value> {
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
            other => return Err(self.serialise_error(type_name(other), "type not supported")),
        }
        Ok(())
    }
    fn serialise_error(&self, kind: &str, why: &str) -> mlua::Error {
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
                0 => return Err(self.serialise_error("number", "must not be NaN or Inf")),
                2 => self.out.extend_from_slice(b"null"),
                _ if number.is_nan() => self.out.extend_from_slice(b"nan"),
                _ => self.out.extend_from_slice(if number < 0.0 { b"-inf" } else { b"inf" }),
            }
            return Ok(());
        }
        let precision = self.settings.precision.load(Relaxed) as usize;
        self.out.extend_from_slice(format_general(number, precision).as_bytes());
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
    /// The length of a table that is an array. `None` for an object, and for an empty table. As in redis-server, a table
    /// with an index of 2^31 or more is an object.
    fn array_len(&self, table: &Table) -> Result<Option<usize>> {
        let (mut max, mut items) = (0i64, 0i64);
        for pair in table.pairs::<Value, Value>() {
            let (key, _) = pair?;
            state::charge(1)?;
            let Some(number) = number_of(&key) else { return Ok(None) };
            if number < 1.0 || number.floor() != number || !number.is_finite() {
                return Ok(None);
            }
            if number > f64::from(i32::MAX) {
                return Ok(None);
            }
            max = max.max(number as i64);
            items += 1;
        }
        let ratio = self.settings.sparse_ratio.load(Relaxed);
        if ratio > 0 && max > items.saturating_mul(ratio) && max > self.settings.sparse_safe.load(Relaxed) {
            if self.settings.sparse_convert.load(Relaxed) == 0 {
                return Err(self.serialise_error("table", "excessively sparse array"));
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
            state::charge(1)?;
            state::check_bytes(self.out.len())?;
            match key {
                Value::String(text) => self.string(&text.as_bytes())?,
                key => {
                    let Some(number) = number_of(&key) else {
                        let why = "table key must be a number or string";
                        return Err(self.serialise_error(type_name(&key), why));
                    };
                    self.out.push(b'"');
                    self.number(number)?;
                    self.out.push(b'"');
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
pub(crate) fn format_general(number: f64, precision: usize) -> String {
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
            assert_eq!(format_general(number, 14), text);
        }
        assert_eq!(format_general(3.3, 17), "3.2999999999999998");
        assert_eq!(format_general(1e20, 17), "1e+20");
    }
}
