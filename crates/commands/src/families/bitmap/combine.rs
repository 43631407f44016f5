//! BITOP: combines strings bit by bit, and stores the result.
//!
//! Short strings are combined on the worker, and long ones on the lane while no shard is locked
//! ([`crate::optimistic`]). Whether a string was written meanwhile is seen from its pointer, because a write to a
//! shared string copies the string.

use crate::call::{Call, LaneCall};
use crate::errors;
use crate::optimistic::{self, OptimisticWrite};
use crate::parse::{Text, string_of};
use strand_chain::Blob;
use strand_keyspace::journal::Arg;
use strand_keyspace::types::bits::BitOperation;
use strand_keyspace::{Db, Key, KeyHash, Str, StrRef};
use strand_wire::args::Args;
use strand_wire::reply::Reply;

const NOT_OF_ONE: &str = "ERR BITOP NOT must be called with a single source key.";

/// Number of bytes combined between two pauses: about 50 us.
const PIECE_BYTES: usize = 256 * 1024;

/// `BITOP operation destkey key [key ...]`. Reply: the length of the stored string.
pub(crate) fn bitop(call: &mut Call<'_, '_>) {
    let stored = operation(call.args).and_then(|operation| {
        let mut combining = BitopWrite { operation, keys: call.keys };
        optimistic::apply_at_once(&mut call.txn.db(call.db), &mut combining)
    });
    answer(call.reply, stored);
}

/// BITOP of long strings, on the lane.
pub(crate) fn bitop_long(call: &mut LaneCall<'_>) {
    let keys: Vec<Key<'_>> = call.args.skip(2).iter().map(|key| call.keyspace.key(key)).collect();
    let hashes: Vec<KeyHash> = keys.iter().map(|key| key.hash).collect();
    let stored = operation(call.args)
        .and_then(|operation| optimistic::apply(call, &hashes, &mut BitopWrite { operation, keys: &keys }));
    answer(call.reply, stored);
}

fn answer(reply: &mut Reply<'_>, stored: Result<Blob, Text>) {
    match stored {
        Ok(combined) => reply.int(combined.len() as i64),
        Err(text) => reply.error(&text),
    }
}

/// The operation, the destination and the sources of a BITOP.
struct BitopWrite<'a> {
    operation: BitOperation,
    keys: &'a [Key<'a>],
}

impl OptimisticWrite for BitopWrite<'_> {
    type Source = Vec<Str>;
    type Outcome = Blob;

    /// Clones the strings. A missing key counts as an empty string. Clones share long strings.
    fn read(&self, db: &mut Db<'_, '_>) -> Result<Vec<Str>, Text> {
        let string = |key| {
            let found = string_of(db.get(key))?;
            Ok(found.map_or_else(|| Str::from_slice(b""), |s| s.to_str()))
        };
        self.keys[1..].iter().map(string).collect()
    }
    fn is_same(&self, before: &Vec<Str>, now: &Vec<Str>) -> bool {
        before.iter().zip(now).all(|(before, now)| before.is_same(now))
    }
    fn compute(&mut self, sources: &Vec<Str>, pause: &dyn Fn()) -> Result<Blob, Text> {
        let mut buffers = vec![[0; 20]; sources.len()];
        let views: Vec<&[u8]> = sources.iter().zip(&mut buffers).map(|(s, buffer)| s.bytes(buffer)).collect();
        let len = views.iter().map(|bytes| bytes.len()).max().unwrap_or(0);
        let mut combined = Blob::try_zeroed(len).map_err(|_| errors::OUT_OF_MEMORY)?;
        for (i, piece) in combined.make_mut().chunks_mut(PIECE_BYTES).enumerate() {
            if i > 0 {
                pause();
            }
            self.operation.combine(&views, i * PIECE_BYTES, piece);
        }
        Ok(combined)
    }
    fn store(&self, db: &mut Db<'_, '_>, combined: &Blob) {
        let key = &self.keys[0];
        if combined.is_empty() {
            if db.delete(key) {
                db.effect(&[b"DEL".into(), key.bytes.into()]);
            }
            return;
        }
        db.set_str(key, StrRef::Blob { blob: combined, edited: true }, None);
        // redis-server 7.0 does not know the other operations.
        if !matches!(
            self.operation,
            BitOperation::And | BitOperation::Or | BitOperation::Xor | BitOperation::Not
        ) {
            db.effect(&[b"SET".into(), key.bytes.into(), Arg::Blob(combined)]);
        }
    }
}

fn operation(args: Args<'_>) -> Result<BitOperation, Text> {
    let operation = BitOperation::from_word(args.at(1)).ok_or(errors::SYNTAX)?;
    match operation {
        BitOperation::Not if args.len() != 4 => Err(NOT_OF_ONE.into()),
        BitOperation::Diff | BitOperation::Diff1 | BitOperation::AndOr if args.len() < 5 => {
            let word = String::from_utf8_lossy(args.at(1)).to_ascii_uppercase();
            Err(format!("ERR BITOP {word} must be called with at least two source keys.").into())
        }
        operation => Ok(operation),
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
