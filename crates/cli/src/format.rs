//! Formats replies byte for byte like redis-cli: standard, raw, CSV, JSON.

use std::io::Write;
use strand_wire::client::Value;
use strand_wire::quote::quoted;

/// The format of replies.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum OutputFormat {
    /// For a person at a terminal: types have names, strings are quoted, elements are numbered.
    Standard,
    /// Raw: strings are printed as their bytes.
    Raw,
    /// CSV: values are separated by commas.
    Csv,
    /// JSON. Bytes that are not UTF-8 are passed on unchanged, as in redis-cli.
    Json,
    /// JSON in ASCII: all other bytes are written as `\\xHH`.
    QuotedJson,
}

/// The delimiters that the raw form prints.
#[derive(Clone, Debug)]
pub struct Delimiters {
    /// The bytes that are printed between the parts of one reply.
    pub parts: Vec<u8>,
    /// The bytes that are printed after each reply.
    pub replies: Vec<u8>,
}

/// Appends a whole reply and its end. `verbatim`: the value is a text for people, such as the reply of INFO, and is
/// printed raw.
pub fn reply(out: &mut Vec<u8>, value: &Value, form: OutputFormat, verbatim: bool, delimiters: &Delimiters) {
    if verbatim {
        return raw(out, value, delimiters);
    }
    match form {
        OutputFormat::Standard => standard(out, value, &mut Vec::new()),
        OutputFormat::Raw => {
            raw(out, value, delimiters);
            out.extend_from_slice(&delimiters.replies);
        }
        OutputFormat::Csv => {
            csv(out, value);
            out.push(b'\n');
        }
        OutputFormat::Json | OutputFormat::QuotedJson => {
            json(out, value, form);
            out.push(b'\n');
        }
    }
}

fn write(out: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    out.write_fmt(text).expect("writing to a vector cannot fail");
}

/// The parts of an aggregate, including the keys and values of maps; `None` for any other value.
fn parts(value: &Value) -> Option<Vec<&Value>> {
    match value {
        Value::Array(items) | Value::Set(items) | Value::Push(items) => Some(items.iter().collect()),
        Value::Map(pairs) => Some(pairs.iter().flat_map(|(key, value)| [key, value]).collect()),
        _ => None,
    }
}

fn is_aggregate(value: &Value) -> bool {
    matches!(value, Value::Array(_) | Value::Set(_) | Value::Push(_) | Value::Map(_))
}

/// Appends a value in the standard form. Every line except the first starts with `prefix`.
fn standard(out: &mut Vec<u8>, value: &Value, prefix: &mut Vec<u8>) {
    match value {
        Value::Error(text) => {
            out.extend_from_slice(b"(error) ");
            out.extend_from_slice(text);
        }
        Value::Simple(text) | Value::Verbatim(_, text) | Value::BigNumber(text) => {
            out.extend_from_slice(text)
        }
        Value::Int(n) => write(out, format_args!("(integer) {n}")),
        Value::Double(n) => write(out, format_args!("(double) {n}")),
        Value::DoubleText(text) => {
            out.extend_from_slice(b"(double) ");
            out.extend_from_slice(text);
        }
        Value::Bulk(bytes) => quoted(out, bytes),
        Value::Null | Value::NullBulk | Value::NullArray => out.extend_from_slice(b"(nil)"),
        Value::Bool(yes) => write(out, format_args!("({yes})")),
        Value::Array(_) | Value::Set(_) | Value::Push(_) | Value::Map(_) => {
            return standard_aggregate(out, value, prefix);
        }
    }
    out.push(b'\n');
}

fn standard_aggregate(out: &mut Vec<u8>, value: &Value, prefix: &mut Vec<u8>) {
    let parts = parts(value).unwrap_or_default();
    let (separator, is_map, empty) = match value {
        Value::Map(_) => ('#', true, "(empty hash)\n"),
        Value::Set(_) => ('~', false, "(empty set)\n"),
        Value::Push(_) => (')', false, "(empty push)\n"),
        _ => (')', false, "(empty array)\n"),
    };
    if parts.is_empty() {
        return out.extend_from_slice(empty.as_bytes());
    }
    let entries = if is_map { parts.len() / 2 } else { parts.len() };
    let digits = entries.to_string().len();
    let outer_len = prefix.len();
    let mut rest = parts.into_iter();
    for number in 1..=entries {
        if number > 1 {
            out.extend_from_slice(&prefix[..outer_len]);
        }
        write(out, format_args!("{number:digits$}{separator} "));
        prefix.resize(outer_len + digits + 2, b' ');
        if let Some(part) = rest.next() {
            standard(out, part, prefix);
        }
        if is_map && let Some(part) = rest.next() {
            out.pop();
            out.extend_from_slice(b" => ");
            let mut inner = Vec::new();
            standard(&mut inner, part, prefix);
            // An aggregate whose text has several lines starts on a new line.
            if is_aggregate(part) && inner.iter().filter(|b| **b == b'\n').count() > 1 {
                out.push(b'\n');
                out.extend_from_slice(prefix);
            }
            out.extend_from_slice(&inner);
        }
        prefix.truncate(outer_len);
    }
}

fn raw(out: &mut Vec<u8>, value: &Value, delimiters: &Delimiters) {
    match value {
        Value::Null | Value::NullBulk | Value::NullArray => {}
        Value::Error(text) => {
            out.extend_from_slice(text);
            out.push(b'\n');
        }
        Value::Simple(text)
        | Value::Bulk(text)
        | Value::Verbatim(_, text)
        | Value::BigNumber(text)
        | Value::DoubleText(text) => out.extend_from_slice(text),
        Value::Bool(yes) => write(out, format_args!("({yes})")),
        Value::Int(n) => write(out, format_args!("{n}")),
        Value::Double(n) => write(out, format_args!("{n}")),
        Value::Array(items) | Value::Set(items) | Value::Push(items) => {
            for (i, item) in items.iter().enumerate() {
                if i > 0 {
                    out.extend_from_slice(&delimiters.parts);
                }
                raw(out, item, delimiters);
            }
        }
        Value::Map(pairs) => {
            for (i, (key, value)) in pairs.iter().enumerate() {
                if i > 0 {
                    out.extend_from_slice(&delimiters.parts);
                }
                raw(out, key, delimiters);
                out.push(b' ');
                raw(out, value, delimiters);
            }
        }
    }
}

fn csv(out: &mut Vec<u8>, value: &Value) {
    match value {
        Value::Error(text) => {
            out.extend_from_slice(b"ERROR,");
            quoted(out, text);
        }
        Value::Simple(text) | Value::Bulk(text) | Value::Verbatim(_, text) => quoted(out, text),
        Value::BigNumber(text) | Value::DoubleText(text) => out.extend_from_slice(text),
        Value::Int(n) => write(out, format_args!("{n}")),
        Value::Double(n) => write(out, format_args!("{n}")),
        Value::Null | Value::NullBulk | Value::NullArray => out.extend_from_slice(b"NULL"),
        Value::Bool(yes) => write(out, format_args!("{yes}")),
        Value::Array(_) | Value::Set(_) | Value::Push(_) | Value::Map(_) => {
            for (i, part) in parts(value).unwrap_or_default().into_iter().enumerate() {
                if i > 0 {
                    out.push(b',');
                }
                csv(out, part);
            }
        }
    }
}

fn json(out: &mut Vec<u8>, value: &Value, form: OutputFormat) {
    match value {
        Value::Error(text) => {
            out.extend_from_slice(b"error:");
            json_string(out, text, form);
        }
        Value::Simple(text) | Value::Bulk(text) | Value::Verbatim(_, text) => json_string(out, text, form),
        Value::BigNumber(text) | Value::DoubleText(text) => out.extend_from_slice(text),
        Value::Int(n) => write(out, format_args!("{n}")),
        Value::Double(n) => write(out, format_args!("{n}")),
        Value::Null | Value::NullBulk | Value::NullArray => out.extend_from_slice(b"null"),
        Value::Bool(yes) => write(out, format_args!("{yes}")),
        Value::Array(items) | Value::Set(items) | Value::Push(items) => {
            out.push(b'[');
            for (i, item) in items.iter().enumerate() {
                if i > 0 {
                    out.push(b',');
                }
                json(out, item, form);
            }
            out.push(b']');
        }
        Value::Map(pairs) => {
            out.push(b'{');
            for (i, (key, value)) in pairs.iter().enumerate() {
                if i > 0 {
                    out.push(b',');
                }
                json_name(out, key, form);
                out.push(b':');
                json(out, value, form);
            }
            out.push(b'}');
        }
    }
}

/// Appends the name of a JSON member. A key that is not a string is converted to a string.
fn json_name(out: &mut Vec<u8>, key: &Value, form: OutputFormat) {
    match key {
        Value::Error(_) | Value::Simple(_) | Value::Bulk(_) | Value::Verbatim(..) => json(out, key, form),
        other => {
            let mut text = Vec::new();
            json(&mut text, other, form);
            escaped(out, &text);
        }
    }
}

fn json_string(out: &mut Vec<u8>, bytes: &[u8], form: OutputFormat) {
    if form == OutputFormat::Json {
        return escaped(out, bytes);
    }
    let mut text = Vec::new();
    quoted(&mut text, bytes);
    for byte in text {
        if byte == b'\\' {
            out.push(b'\\');
        }
        out.push(byte);
    }
}

fn escaped(out: &mut Vec<u8>, bytes: &[u8]) {
    out.push(b'"');
    for byte in bytes {
        match byte {
            b'\\' | b'"' => out.extend_from_slice(&[b'\\', *byte]),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\x0c' => out.extend_from_slice(b"\\f"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            0x08 => out.extend_from_slice(b"\\b"),
            0..=0x1f => write(out, format_args!("\\u{byte:04x}")),
            other => out.push(*other),
        }
    }
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(value: &Value, form: OutputFormat) -> String {
        let delimiters = Delimiters { parts: b"\n".to_vec(), replies: b"\n".to_vec() };
        let mut out = Vec::new();
        reply(&mut out, value, form, false, &delimiters);
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn nested_aggregates_are_indented_by_their_numbers() {
        let bulk = |b: &[u8]| Value::Bulk(b.to_vec());
        let ten = Value::Array((0..10).map(Value::Int).collect());
        let value = Value::Array(vec![
            Value::Map(vec![(bulk(b"k\n"), Value::Array(vec![Value::Int(1), Value::Null]))]),
            Value::Set(vec![Value::Bool(true), Value::Array(vec![])]),
        ]);
        assert_eq!(
            shown(&value, OutputFormat::Standard),
            "1) 1# \"k\\n\" => \n      1) (integer) 1\n      2) (nil)\n2) 1~ (true)\n   2~ (empty array)\n"
        );
        assert!(shown(&ten, OutputFormat::Standard).starts_with(" 1) (integer) 0\n 2) "));
        assert_eq!(shown(&value, OutputFormat::Raw), "k\n 1\n\n(true)\n\n");
        assert_eq!(shown(&value, OutputFormat::Csv), "\"k\\n\",1,NULL,true,\n");
        assert_eq!(shown(&value, OutputFormat::Json), "[{\"k\\n\":[1,null]},[true,[]]]\n");
    }

    #[test]
    fn strings_of_json_are_escaped() {
        let value = Value::Bulk("é\"\\\u{1}".into());
        assert_eq!(shown(&value, OutputFormat::Json), "\"é\\\"\\\\\\u0001\"\n");
        assert_eq!(shown(&value, OutputFormat::QuotedJson), "\"\\\\xc3\\\\xa9\\\\\"\\\\\\\\\\\\x01\"\n");
        let map = Value::Map(vec![(Value::Int(1), Value::Bool(false))]);
        assert_eq!(shown(&map, OutputFormat::Json), "{\"1\":false}\n");
    }
}
