//! The text index over a dataset: `FT.CREATE <into>` over the hashes at `<into>:`, when there is none of that name.

use crate::ImportError;
use crate::connection::Connection;
use strand_wire::client::Value;

/// What is indexed of a document. Words of text fields are searched without naming the field; TAG and NUMERIC fields by
/// `@field:`; what a user would sort by is SORTABLE.
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

/// Creates the index unless it is there; says whether it was missing. With `dry_run` nothing is created.
pub fn ensure(connection: &mut Connection, into: &str, dry_run: bool) -> Result<bool, ImportError> {
    let list = match connection.call(&["FT._LIST"])? {
        Value::Array(names) | Value::Set(names) => names,
        other => return Err(crate::versions::unexpected(&other)),
    };
    let there = list.iter().any(|name| match name {
        Value::Bulk(name) | Value::Simple(name) => name == into.as_bytes(),
        _ => false,
    });
    if there || dry_run {
        return Ok(!there);
    }
    let prefix = format!("{into}:");
    let mut args = vec!["FT.CREATE", into, "ON", "HASH", "PREFIX", "1", &prefix, "SCHEMA"];
    args.extend_from_slice(SCHEMA);
    match connection.call(&args) {
        // Another import was faster.
        Err(ImportError::Refused { text, .. }) if text.contains("already exists") => Ok(false),
        other => other.map(|_| true),
    }
}
