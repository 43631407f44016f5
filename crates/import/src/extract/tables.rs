//! JSON values and tables.
//!
//! Each scalar of a JSON value becomes a field, up to [`JSON_FIELDS_MAX`] fields. The field's name is `json.` and the
//! scalar's path (`json.author.name`). A list of scalars becomes one field, with one line for each scalar. A table has
//! the fields `columns` (the names of its columns) and `rows` (the number of its rows). The text has all scalars or
//! cells.

use super::{ExtractError, Text};
use crate::fields::Fields;
use serde_json::Value;

/// Maximum number of fields of one JSON value. Further scalars are only in the text.
pub(super) const JSON_FIELDS_MAX: usize = 256;
/// Maximum number of bytes of a scalar's path. A scalar with a longer path is only in the text.
const NAME_BYTES_MAX: usize = 256;
/// Maximum number of bytes of a scalar. A longer scalar is only in the text.
const VALUE_BYTES_MAX: usize = 64 * 1024;
/// Maximum number of columns of a table whose names are kept.
const COLUMNS_MAX: usize = 1024;
/// Number of rows between two checks of the time.
const ROWS_PER_TIME_CHECK: u64 = 1024;

/// Adds a JSON value's scalars to `fields` and to the text.
pub(super) fn json(bytes: &[u8], text: &mut Text, fields: &mut Fields) -> Result<(), ExtractError> {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    // An empty file is a document without text, as in the other formats.
    if bytes.trim_ascii().is_empty() {
        return Ok(());
    }
    // The library bounds the depth of nesting.
    let value: Value = match serde_json::from_slice(bytes) {
        Ok(value) => value,
        Err(error) => {
            text.push(&super::charset::decode(bytes));
            return Err(ExtractError::Json(error));
        }
    };
    walk("", &value, text, fields);
    text.check_time()
}

fn walk(path: &str, value: &Value, text: &mut Text, fields: &mut Fields) {
    if text.is_full() {
        return;
    }
    match value {
        Value::Object(members) => {
            for (name, value) in members {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                walk(&path, value, text, fields);
            }
        }
        Value::Array(items) if items.iter().all(|item| !item.is_object() && !item.is_array()) => {
            let items: Vec<String> = items.iter().filter_map(scalar).collect();
            put(path, &items.join("\n"), text, fields);
        }
        // All objects in a list have the same path, so their scalars are only in the text.
        Value::Array(items) => {
            let mut dropped = Fields::default();
            items.iter().for_each(|item| walk(path, item, text, &mut dropped));
        }
        value => {
            if let Some(value) = scalar(value) {
                put(path, &value, text, fields);
            }
        }
    }
}

fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(yes) => Some(yes.to_string()),
        _ => None,
    }
}

fn put(path: &str, value: &str, text: &mut Text, fields: &mut Fields) {
    if value.is_empty() {
        return;
    }
    if !path.is_empty() {
        text.push(path);
        text.push(": ");
    }
    text.push(value);
    text.push("\n");
    let fits = !path.is_empty() && path.len() <= NAME_BYTES_MAX && value.len() <= VALUE_BYTES_MAX;
    if fits && fields.extra_len() < JSON_FIELDS_MAX {
        fields.set_extra(&format!("json.{path}"), value.as_bytes().to_vec());
    }
}

/// Adds a table's cells to the text, and the fields `columns` and `rows`.
pub(super) fn table(
    table: &str,
    delimiter: u8,
    text: &mut Text,
    fields: &mut Fields,
) -> Result<(), ExtractError> {
    let mut builder = csv::ReaderBuilder::new();
    let first = table.lines().next().unwrap_or_default();
    // In languages with a decimal comma, spreadsheets write semicolons between the cells of a CSV file.
    let count = |c: char| first.matches(c).count();
    let delimiter = if delimiter == b',' && count(';') > count(',') { b';' } else { delimiter };
    let mut reader =
        builder.has_headers(false).flexible(true).delimiter(delimiter).from_reader(table.as_bytes());
    let (mut record, mut rows) = (csv::StringRecord::new(), 0u64);
    while reader.read_record(&mut record).map_err(ExtractError::Table)? {
        if rows == 0 {
            let names: Vec<&str> = record.iter().take(COLUMNS_MAX).map(str::trim).collect();
            fields.set_text("columns", &names.join("\n"));
        }
        rows += 1;
        if rows.is_multiple_of(ROWS_PER_TIME_CHECK) {
            text.check_time()?;
        }
        for (i, cell) in record.iter().enumerate() {
            if i > 0 {
                text.push("\t");
            }
            text.push(cell);
        }
        text.push("\n");
    }
    // The first row names the columns.
    fields.set_text("rows", &rows.saturating_sub(1).to_string());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(run: impl FnOnce(&mut Text, &mut Fields) -> Result<(), ExtractError>) -> (String, Fields) {
        let (mut text, mut fields) = (Text::new(), Fields::default());
        run(&mut text, &mut fields).unwrap();
        (text.finish().to_owned(), fields)
    }

    fn field(fields: &Fields, name: &str) -> Option<String> {
        let found = fields.present().find(|(n, _)| *n == name);
        found.map(|(_, value)| String::from_utf8(value.to_vec()).unwrap())
    }

    #[test]
    fn scalars_of_json_are_fields() {
        let bytes =
            br#"{"a":"x","b":{"c":1.50,"d":null,"e":true},"f":["p","q",2],"g":[{"h":"deep"}],"":"nameless"}"#;
        let (text, fields) = read(|text, fields| json(bytes, text, fields));
        for (name, value) in
            [("json.a", "x"), ("json.b.c", "1.50"), ("json.b.e", "true"), ("json.f", "p\nq\n2")]
        {
            assert_eq!(field(&fields, name).as_deref(), Some(value), "{name}");
        }
        assert_eq!(fields.extra_len(), 4);
        assert!(text.contains("g.h: deep") && text.contains("nameless"), "{text}");
        let many: Vec<String> = (0..1000).map(|i| format!("\"k{i}\":{i}")).collect();
        let (text, fields) =
            read(|text, fields| json(format!("{{{}}}", many.join(",")).as_bytes(), text, fields));
        assert!(fields.extra_len() == JSON_FIELDS_MAX && text.contains("k999: 999"));
    }

    #[test]
    fn invalid_json_is_text_with_a_reported_problem() {
        for bad in ["{\"a\": 1, }", "hello", &"[".repeat(100_000)] {
            let (mut text, mut fields) = (Text::new(), Fields::default());
            assert!(json(bad.as_bytes(), &mut text, &mut fields).is_err());
            assert_eq!(text.finish(), bad);
        }
    }

    #[test]
    fn tables_have_columns_and_rows() {
        for (csv, delimiter) in
            [("name,\"long name\"\na,\"b, c\"\n\nd,e\n", b','), ("name\tlong name\na\tb, c\nd\te", b'\t')]
        {
            let (text, fields) = read(|text, fields| table(csv, delimiter, text, fields));
            assert_eq!(text, "name\tlong name\na\tb, c\nd\te");
            assert_eq!(field(&fields, "columns").as_deref(), Some("name\nlong name"));
            assert_eq!(field(&fields, "rows").as_deref(), Some("2"));
        }
        let (text, _) = read(|text, fields| table("a;b\n1,5;2", b',', text, fields));
        assert_eq!(text, "a\tb\n1,5\t2");
        let (text, _) = read(|text, fields| table("a,\"never closed\nx,y\n", b',', text, fields));
        assert!(text.contains("x,y"), "{text}");
    }
}
