//! BITOP: strings combined bit by bit into another.
//!
//! On a worker while the strings are short. Long ones are shared, combined in pieces with nothing held, and stored if the
//! sources are still what they were; that costs a comparison of pointers, since whoever writes a shared string copies it.
//! After some tries in vain the shards are held, announced.

use crate::call::{Call, LaneCall};
use crate::errors;
use crate::parse::string_of;
use strand_chain::Blob;
use strand_keyspace::types::bits::Operation;
use strand_keyspace::{Db, Key, KeyHash, Str, StrRef};
use strand_wire::args::Args;

const NOT_OF_ONE: &str = "ERR BITOP NOT must be called with a single source key.";

/// Bytes combined between two pauses: some 50 us.
const PIECE_BYTES: usize = 256 * 1024;
/// Times that a long call begins anew because a source has changed meanwhile.
const TRIES: usize = 4;

/// `BITOP operation destkey key [key ...]`. Reply: the length of what was stored.
pub(crate) fn bitop(call: &mut Call<'_, '_>) {
    let operation = match operation(call.args) {
        Ok(operation) => operation,
        Err(text) => return call.reply.error(&text),
    };
    let mut db = call.txn.db(call.db);
    let stored = sources(&mut db, &call.keys[1..]).and_then(|sources| {
        let combined = combine(operation, &sources, || {})?;
        store(&mut db, &call.keys[0], &combined);
        Ok(combined.len())
    });
    match stored {
        Ok(len) => call.reply.int(len as i64),
        Err(text) => call.reply.error(text),
    }
}

/// The same of long strings.
pub(crate) fn bitop_long(call: &mut LaneCall<'_>) {
    let operation = match operation(call.args) {
        Ok(operation) => operation,
        Err(text) => return call.reply.error(&text),
    };
    match combine_long(operation, call) {
        Ok(len) => call.reply.int(len as i64),
        Err(text) => call.reply.error(text),
    }
}

fn combine_long(operation: Operation, call: &mut LaneCall<'_>) -> Result<usize, &'static str> {
    let keys: Vec<Key<'_>> = call.args.skip(2).iter().map(|key| call.keyspace.key(key)).collect();
    let hashes: Vec<KeyHash> = keys.iter().map(|key| key.hash).collect();
    for _ in 0..TRIES {
        let before = sources(&mut call.lock(&hashes).db(call.db), &keys[1..])?;
        let combined = combine(operation, &before, || call.pause())?;
        let mut txn = call.lock(&hashes);
        let mut db = txn.db(call.db);
        if are_same(&before, &sources(&mut db, &keys[1..])?) {
            store(&mut db, &keys[0], &combined);
            return Ok(combined.len());
        }
    }
    let mut txn = call.hold(&hashes);
    let mut db = txn.db(call.db);
    let combined = combine(operation, &sources(&mut db, &keys[1..])?, || {})?;
    store(&mut db, &keys[0], &combined);
    Ok(combined.len())
}

fn operation(args: Args<'_>) -> Result<Operation, String> {
    let operation = Operation::from_word(args.at(1)).ok_or(errors::SYNTAX)?;
    match operation {
        Operation::Not if args.len() != 4 => Err(NOT_OF_ONE.into()),
        Operation::Diff | Operation::Diff1 | Operation::AndOr if args.len() < 5 => {
            let word = String::from_utf8_lossy(args.at(1)).to_ascii_uppercase();
            Err(format!("ERR BITOP {word} must be called with at least two source keys."))
        }
        operation => Ok(operation),
    }
}

/// The strings at these keys, empty where there is none; long ones are shared.
fn sources(db: &mut Db<'_, '_>, keys: &[Key<'_>]) -> Result<Vec<Str>, &'static str> {
    let string = |key| Ok(string_of(db.get(key))?.map_or_else(|| Str::from_slice(b""), |s| s.to_str()));
    keys.iter().map(string).collect()
}

/// True when none was written since.
fn are_same(before: &[Str], now: &[Str]) -> bool {
    before.iter().zip(now).all(|pair| match pair {
        (Str::Int(a), Str::Int(b)) => a == b,
        (Str::Raw(a) | Str::Edited(a), Str::Raw(b) | Str::Edited(b)) => {
            a.as_ptr() == b.as_ptr() || (a.len().max(b.len()) <= INLINE_MAX && a.as_slice() == b.as_slice())
        }
        _ => false,
    })
}

/// Strings of so many bytes may lie in a table, from where each look at them is a copy.
const INLINE_MAX: usize = 4096;

fn combine(operation: Operation, sources: &[Str], pause: impl Fn()) -> Result<Blob, &'static str> {
    let mut buffers = vec![[0; 20]; sources.len()];
    let views: Vec<&[u8]> = sources.iter().zip(&mut buffers).map(|(s, buffer)| s.bytes(buffer)).collect();
    let len = views.iter().map(|bytes| bytes.len()).max().unwrap_or(0);
    let mut combined = Blob::try_zeroed(len).map_err(|_| errors::OUT_OF_MEMORY)?;
    for (i, piece) in combined.make_mut().chunks_mut(PIECE_BYTES).enumerate() {
        if i > 0 {
            pause();
        }
        operation.combine(&views, i * PIECE_BYTES, piece);
    }
    Ok(combined)
}

fn store(db: &mut Db<'_, '_>, key: &Key<'_>, combined: &Blob) {
    if combined.is_empty() {
        db.delete(key);
    } else {
        db.set_str(key, StrRef::Blob { blob: combined, edited: true }, None);
    }
}

#[cfg(test)]
mod tests {
    use crate::fixture::Fixture;

    #[test]
    fn strings_are_combined() {
        let mut f = Fixture::new();
        for long in [false, true] {
            f.all_long = long;
            f.script(&[
                ("SET a abc EX 100", "+OK|"),
                ("SET b 12", "+OK|"),
                ("BITOP AND d a b", ":3|"),
                ("GET d", "$3|!\"\0|"),
                ("OBJECT ENCODING d", "$3|raw|"),
                ("BITOP or a a b none", ":3|"),
                ("GET a", "$3|qrc|"),
                ("TTL a", ":-1|"),
                ("BITOP XOR d a a", ":3|"),
                ("GET d", "$3|\0\0\0|"),
                ("BITOP NOT d none", ":0|"),
                ("EXISTS d", ":0|"),
                ("BITOP DIFF d a b", ":3|"),
                ("GET d", "$3|@@c|"),
                ("BITOP DIFF1 d b a", ":3|"),
                ("GET d", "$3|@@c|"),
                ("BITOP ANDOR d a b none", ":3|"),
                ("GET d", "$3|12\0|"),
                ("BITOP ONE d a b b", ":3|"),
                ("GET d", "$3|@@c|"),
                ("BITOP NOT d a b", "-ERR BITOP NOT must be called with a single source key.|"),
                ("BITOP diff d a", "-ERR BITOP DIFF must be called with at least two source keys.|"),
                ("BITOP NAND d a b", "-ERR syntax error|"),
            ]);
        }
    }

    #[test]
    fn long_strings_are_combined_in_pieces() {
        let mut f = Fixture::new();
        f.script(&[("SETRANGE a 2999999 x", ":3000000|"), ("SETRANGE b 2000000 yz", ":2000002|")]);
        let pauses = f.pauses.get();
        f.script(&[
            ("BITOP OR d a b a", ":3000000|"),
            ("GETRANGE d 2000000 2000001", "$2|yz|"),
            ("BITCOUNT d", ":14|"),
        ]);
        assert!(f.pauses.get() > pauses + 3_000_000 / super::PIECE_BYTES - 2);
    }
}
