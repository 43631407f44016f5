//! The published versions of a dataset: numbers, names, and the tokens for which clients wait.
//!
//! An importer publishes a version when all documents of that version are stored. The list of versions is one field
//! of the dataset's hash in the system companion ([`crate::families::import_version`]). So it is saved, loaded and
//! flushed together with the dataset. A token is `dataset@number`. Users know a token as *version name*, and the name that
//! the importer gives as *version id*.

use strand_keyspace::{Bytes, HashValue, Keyspace, PUBLISHED_FIELD};

/// Maximum number of versions in the list of a dataset. A new version replaces the oldest one.
pub const VERSIONS_LISTED_MAX: usize = 64;
/// Maximum length of a version id, in bytes.
pub const VERSION_BYTES_MAX: usize = 128;

/// A published version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublishedVersion {
    /// The number of the version. The first version of a dataset has number 1.
    pub number: u64,
    /// The version id: the digest that the importer reports.
    pub name: Vec<u8>,
}

impl PublishedVersion {
    /// The token of this version of `dataset`.
    pub fn token(&self, dataset: &[u8]) -> Vec<u8> {
        token(dataset, self.number)
    }
}

/// The token of version `number` of `dataset`.
pub fn token(dataset: &[u8], number: u64) -> Vec<u8> {
    [dataset, b"@", number.to_string().as_bytes()].concat()
}

/// Splits a token into the dataset and the number. `None` when it is no token.
pub fn parse_token(token: &[u8]) -> Option<(&[u8], u64)> {
    let at = token.iter().rposition(|byte| *byte == b'@')?;
    let number = parse_number(&token[at + 1..])?;
    Some((&token[..at], number))
}

/// True when `name` may be the name of a version: it has only letters and digits.
pub(crate) fn is_name(name: &[u8]) -> bool {
    (1..=VERSION_BYTES_MAX).contains(&name.len()) && name.iter().all(u8::is_ascii_alphanumeric)
}

/// The published versions in a dataset's hash, the newest first.
pub(crate) fn list(hash: Option<&HashValue>) -> Vec<PublishedVersion> {
    let field = hash.and_then(|hash| hash.get(PUBLISHED_FIELD));
    let text: &[u8] = match &field {
        None => b"",
        Some(Bytes::Slice(slice)) => slice,
        Some(Bytes::Shared(blob)) => blob,
    };
    let parse = |line: &[u8]| {
        let at = line.iter().position(|byte| *byte == b' ')?;
        let name = &line[at + 1..];
        is_name(name).then_some(PublishedVersion { number: parse_number(&line[..at])?, name: name.to_vec() })
    };
    text.split(|byte| *byte == b'\n').filter_map(parse).take(VERSIONS_LISTED_MAX).collect()
}

/// Encodes a list of versions for the dataset's hash.
pub(crate) fn encode(versions: &[PublishedVersion]) -> Vec<u8> {
    let lines = versions.iter().take(VERSIONS_LISTED_MAX);
    lines.flat_map(|v| [v.number.to_string().as_bytes(), b" ", &v.name, b"\n"].concat()).collect()
}

/// The published versions of a dataset of database `db`, the newest first.
pub fn read(keyspace: &Keyspace, db: usize, dataset: &[u8], now_ms: i64) -> Vec<PublishedVersion> {
    let key = keyspace.key(dataset);
    let mut txn = keyspace.lock(&[key.hash], now_ms);
    let mut db = txn.db(keyspace.system_db(db));
    list(db.peek_at(&key).ok().flatten())
}

/// The number of a hold (IMPORT.VERSION HOLD) that begins now in database `db`: from 1 on, and higher after each flush
/// and swap of the database. PUBLISH takes the number, so no version is published whose first documents were flushed.
pub fn hold_number(keyspace: &Keyspace, db: usize) -> i64 {
    i64::try_from(keyspace.flushes(db)).map_or(i64::MAX, |flushes| flushes.saturating_add(1))
}

fn parse_number(digits: &[u8]) -> Option<u64> {
    let is_plain = digits.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(digits).ok().filter(|_| is_plain)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_the_dataset_and_a_number() {
        assert_eq!(token(b"mail", 41), b"mail@41");
        assert_eq!(parse_token(b"mail@41"), Some((&b"mail"[..], 41)));
        assert_eq!(parse_token(b"a@b@2"), Some((&b"a@b"[..], 2)));
        for wrong in [&b"mail"[..], b"mail@", b"mail@x", b"mail@-1", b"mail@+1", b"mail@99999999999999999999"]
        {
            assert_eq!(parse_token(wrong), None, "{wrong:?}");
        }
    }
}
