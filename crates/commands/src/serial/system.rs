//! What only Strand stores in an RDB file: auxiliary fields, which redis-server and other readers skip.
//!
//! A record of a system database (the importer's versions): the field is named [`NAME`]. Its value has two decimal
//! numbers, each with a space after it (the database, the length of the key in bytes), then the key, then the value as
//! a DUMP payload, which has its own version and checksum.
//!
//! A command that makes an index or a set of patterns: the field is named [`COMMAND`]. Its value has each word of the
//! command, after its length in bytes and a space.
//! behind its number of bytes and a space.

use super::{of_payload, payload};
use strand_keyspace::{Settings, Value, ValueRef};

/// The field's name.
pub const NAME: &[u8] = b"strand-system";
/// The name of the field of a command.
pub const COMMAND: &[u8] = b"strand-command";
/// Digits of a number.
const DIGITS_MAX: usize = 20;

/// Encodes a record as the value of a field.
pub fn encode(db: usize, key: &[u8], value: ValueRef<'_>, pause: &dyn Fn()) -> Vec<u8> {
    let head = format!("{db} {} ", key.len());
    [head.as_bytes(), key, &payload(value, pause)].concat()
}

/// The database, key and value of the record in a field. `None` when the field has no record, or one in a form of a
/// newer version.
/// version writes.
pub fn decode<'f>(
    field: &'f [u8],
    settings: &Settings,
    pause: &dyn Fn(),
) -> Option<(usize, &'f [u8], Value)> {
    let (db, rest) = number(field)?;
    let (key_bytes, rest) = number(rest)?;
    let (key, payload) = rest.split_at_checked(key_bytes)?;
    Some((db, key, of_payload(payload, settings, pause).ok()?))
}

/// Encodes a command as the value of a field.
pub fn encode_command(words: &[Vec<u8>]) -> Vec<u8> {
    let word = |word: &Vec<u8>| [format!("{} ", word.len()).as_bytes(), word].concat();
    words.iter().flat_map(word).collect()
}

/// The words of the command in a field. `None` when the field has no command.
pub fn decode_command(mut field: &[u8]) -> Option<Vec<&[u8]>> {
    let mut words = Vec::new();
    while !field.is_empty() {
        let (bytes, rest) = number(field)?;
        let (word, rest) = rest.split_at_checked(bytes)?;
        words.push(word);
        field = rest;
    }
    Some(words)
}

/// The number at the beginning, and the bytes after the space.
fn number(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let space = bytes.iter().take(DIGITS_MAX + 1).position(|b| *b == b' ')?;
    let number = std::str::from_utf8(&bytes[..space]).ok()?.parse().ok()?;
    Some((number, &bytes[space + 1..]))
}
