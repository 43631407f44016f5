//! The text index of a dataset. FT.CREATE makes it with the name `<into>`, over the hashes at `<into>:`, if there is no
//! index with this name.

use crate::ImportError;
use crate::connection::Connection;
use strand_wire::client::Value;

/// The schema of the index. A query finds words of text fields without naming the field. TAG and NUMERIC fields are
/// searched by `@field:`. The fields by which users sort are SORTABLE.
const SCHEMA: &[&str] = &[
    "subject",
    "TEXT",
    "WEIGHT",
    "2",
    "SORTABLE", //
    "title",
    "TEXT",
    "WEIGHT",
    "2", //
    "body",
    "TEXT", //
    "from",
    "TEXT",
    "SORTABLE", //
    "to",
    "TEXT", //
    "cc",
    "TEXT", //
    "attachments",
    "TEXT", //
    "name",
    "TEXT",
    "NOSTEM",
    "SORTABLE", //
    "from_address",
    "TAG",
    "SORTABLE", //
    "to_address",
    "TAG", //
    "message_id",
    "TAG", //
    "kind",
    "TAG", //
    "parent",
    "TAG", //
    "flags",
    "TAG", //
    "date",
    "NUMERIC",
    "SORTABLE", //
    "size",
    "NUMERIC",
    "SORTABLE", //
];

/// The part of the server's error that says that it has as many indexes as it may have.
const TOO_MANY: &str = "Too many indexes";

/// What [`ensure`] has found or done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextIndex {
    /// The index was missing. It exists now, unless the run is a dry run.
    Created,
    /// The index existed.
    Existed,
    /// An index with this name existed, over other keys than those of the documents.
    OverOtherKeys,
}

/// Creates the index if it is missing. With `dry_run` nothing is created.
pub fn ensure(connection: &mut Connection, into: &str, dry_run: bool) -> Result<TextIndex, ImportError> {
    let prefix = format!("{into}:");
    let list = match connection.call(&["FT._LIST"])? {
        Value::Array(names) | Value::Set(names) => names,
        other => return Err(crate::versions::unexpected(&other)),
    };
    let exists = list.iter().any(|name| match name {
        Value::Bulk(name) | Value::Simple(name) => name == into.as_bytes(),
        _ => false,
    });
    if exists {
        let is_over = |of: &Vec<u8>| prefix.as_bytes().starts_with(of);
        return Ok(match prefixes(connection, into)? {
            Some(prefixes) if !prefixes.iter().any(is_over) => TextIndex::OverOtherKeys,
            _ => TextIndex::Existed,
        });
    }
    if dry_run {
        return Ok(TextIndex::Created);
    }
    let mut args = vec!["FT.CREATE", into, "ON", "HASH", "PREFIX", "1", &prefix, "SCHEMA"];
    args.extend_from_slice(SCHEMA);
    match connection.call(&args) {
        // Another import has created the index meanwhile.
        Err(ImportError::Refused { text, .. }) if text.contains("already exists") => Ok(TextIndex::Existed),
        Err(ImportError::Refused { command, text }) if text.contains(TOO_MANY) => {
            let text = format!("{text}. Drop one with FT.DROPINDEX, or import without an index: --no-index");
            Err(ImportError::Refused { command, text })
        }
        other => other.map(|_| TextIndex::Created),
    }
}

/// The prefixes of the keys in an index. `None`: the user may not ask.
fn prefixes(connection: &mut Connection, index: &str) -> Result<Option<Vec<Vec<u8>>>, ImportError> {
    let info = match connection.call(&["FT.INFO", index]) {
        Err(ImportError::Refused { .. }) => return Ok(None),
        other => other?,
    };
    let definition = value_of(&info, b"index_definition");
    let Some(Value::Array(prefixes)) = definition.and_then(|definition| value_of(definition, b"prefixes"))
    else {
        return Ok(None);
    };
    let texts = prefixes.iter().filter_map(|prefix| match prefix {
        Value::Bulk(text) | Value::Simple(text) => Some(text.clone()),
        _ => None,
    });
    Ok(Some(texts.collect()))
}

/// The value after the name `name` in an array of names and values.
fn value_of<'v>(pairs: &'v Value, name: &[u8]) -> Option<&'v Value> {
    let Value::Array(pairs) = pairs else { return None };
    let is_name = |value: &Value| matches!(value, Value::Bulk(text) | Value::Simple(text) if text == name);
    pairs.chunks_exact(2).find(|pair| is_name(&pair[0])).map(|pair| &pair[1])
}
