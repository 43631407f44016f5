//! What only Strand stores in an RDB file. It uses auxiliary fields, which redis-server and other readers skip.
//!
//! A record of a system companion (the importer's versions) is a field with the name [`NAME`]. The field's value
//! has two decimal numbers, each followed by a space: the database, and the length of the key in bytes. Then follow
//! the key, and the value as a DUMP payload, which has its own version and checksum.
//!
//! A command that makes an index or a set of patterns is a field with the name [`COMMAND`]. The field's value has
//! the words of the command. Before each word stand its length in bytes and a space.
//!
//! In an append-only file such a command is an ECHO, which redis-server runs without any effect. The message is
//! [`COMMAND`], a space, and the field's value ([`echo`]). A command that changes a companion is an ECHO, too, with
//! [`IMPORT`] in place of [`COMMAND`] ([`import_echo`]). It applies to the selected database.

use super::{of_payload, payload};
use strand_keyspace::{Settings, Value, ValueRef};

/// The name of a field that has a record.
pub const NAME: &[u8] = b"strand-system";
/// The name of a field that has a command.
pub const COMMAND: &[u8] = b"strand-command";
/// The first word of an ECHO that has a command about imported datasets.
pub const IMPORT: &[u8] = b"strand-import";
/// Maximum number of digits of a number in a field.
const DIGITS_MAX: usize = 20;

/// Encodes a record as the value of a field named [`NAME`].
pub fn encode(db: usize, key: &[u8], value: ValueRef<'_>, pause: &dyn Fn()) -> Vec<u8> {
    let head = format!("{db} {} ", key.len());
    [head.as_bytes(), key, &payload(value, pause)].concat()
}

/// The database, the key and the value of the record in a field. `None` when the field has no record, or has a form
/// that this version does not know.
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

/// Encodes a command as the value of a field named [`COMMAND`].
pub fn encode_command(words: &[impl AsRef<[u8]>]) -> Vec<u8> {
    let mut field = Vec::new();
    for word in words.iter().map(AsRef::as_ref) {
        field.extend_from_slice(format!("{} ", word.len()).as_bytes());
        field.extend_from_slice(word);
    }
    field
}

/// The words of the command in a field, at least one. `None` when the field has no command.
pub fn decode_command(mut field: &[u8]) -> Option<Vec<&[u8]>> {
    let mut words = Vec::new();
    while !field.is_empty() {
        let (bytes, rest) = number(field)?;
        let (word, rest) = rest.split_at_checked(bytes)?;
        words.push(word);
        field = rest;
    }
    (!words.is_empty()).then_some(words)
}

/// The command of an append-only file that stands for the command with these words.
pub fn echo(words: &[Vec<u8>]) -> [Vec<u8>; 2] {
    [b"ECHO".to_vec(), [COMMAND, b" ", &encode_command(words)].concat()]
}

/// The ECHO that stands for a command about imported datasets, in an append-only file.
pub fn import_echo(words: &[impl AsRef<[u8]>]) -> [Vec<u8>; 2] {
    [b"ECHO".to_vec(), [IMPORT, b" ", &encode_command(words)].concat()]
}

/// The words of the command about imported datasets for which an ECHO stands. `None` for any other ECHO.
pub fn decode_import_echo(message: &[u8]) -> Option<Vec<&[u8]>> {
    decode_command(message.strip_prefix(IMPORT)?.strip_prefix(b" ")?)
}

/// The words of the command for which an ECHO with this message stands. `None` for any other ECHO.
pub fn decode_echo(message: &[u8]) -> Option<Vec<&[u8]>> {
    decode_command(message.strip_prefix(COMMAND)?.strip_prefix(b" ")?)
}

/// The number at the start of `bytes`, and the bytes after the space that follows the number.
fn number(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let space = bytes.iter().take(DIGITS_MAX + 1).position(|b| *b == b' ')?;
    let number = std::str::from_utf8(&bytes[..space]).ok()?.parse().ok()?;
    Some((number, &bytes[space + 1..]))
}
