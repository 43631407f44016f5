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

/// Creates the index if it is missing. Returns whether it was missing. With `dry_run` nothing is created.
pub fn ensure(connection: &mut Connection, into: &str, dry_run: bool) -> Result<bool, ImportError> {
    let list = match connection.call(&["FT._LIST"])? {
        Value::Array(names) | Value::Set(names) => names,
        other => return Err(crate::versions::unexpected(&other)),
    };
    let exists = list.iter().any(|name| match name {
        Value::Bulk(name) | Value::Simple(name) => name == into.as_bytes(),
        _ => false,
    });
    if exists || dry_run {
        return Ok(!exists);
    }
    let prefix = format!("{into}:");
    let mut args = vec!["FT.CREATE", into, "ON", "HASH", "PREFIX", "1", &prefix, "SCHEMA"];
    args.extend_from_slice(SCHEMA);
    match connection.call(&args) {
        // Another import has created the index meanwhile.
        Err(ImportError::Refused { text, .. }) if text.contains("already exists") => Ok(false),
        other => other.map(|_| true),
    }
}
