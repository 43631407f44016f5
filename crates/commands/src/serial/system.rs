//! What only Strand knows in an RDB file: auxiliary fields, which redis-server and every other reader passes.
//!
//! A record of a system database (the importer's versions): the field's name is [`NAME`], its value is two decimal numbers,
//! each followed by a space (the database, the bytes of the key), the key, and the value as a DUMP payload, which has a
//! version and a checksum of its own.
//!
//! A command that makes an index or a set of patterns again: the name is [`COMMAND`], the value each word of the command
//! behind its number of bytes and a space.

use super::{of_payload, payload};
use strand_keyspace::{Settings, Value, ValueRef};

/// The field's name.
pub const NAME: &[u8] = b"strand-system";
/// The name of a command's field.
pub const COMMAND: &[u8] = b"strand-command";
/// Digits of a number.
const DIGITS_MAX: usize = 20;

/// A record as a field's value.
pub fn encode(db: usize, key: &[u8], value: ValueRef<'_>, pause: &dyn Fn()) -> Vec<u8> {
    let head = format!("{db} {} ", key.len());
    [head.as_bytes(), key, &payload(value, pause)].concat()
}

/// The record in a field's value: its database, its key, its value; `None` when there is none, or one in a form that a newer
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

/// A command as a field's value.
pub fn encode_command(words: &[Vec<u8>]) -> Vec<u8> {
    let word = |word: &Vec<u8>| [format!("{} ", word.len()).as_bytes(), word].concat();
    words.iter().flat_map(word).collect()
}

/// The words in a field's value; `None` when they are none.
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

/// The number at the beginning, and what follows the space behind it.
fn number(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let space = bytes.iter().take(DIGITS_MAX + 1).position(|b| *b == b' ')?;
    let number = std::str::from_utf8(&bytes[..space]).ok()?.parse().ok()?;
    Some((number, &bytes[space + 1..]))
}
