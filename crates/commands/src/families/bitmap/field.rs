//! BITFIELD: a string as an array of integers of any width.

use super::{bytes_to, edit, is_within};
use crate::call::Call;
use crate::errors;
use crate::parse::{self, string_of};
use smallvec::SmallVec;
use std::ops::Range;
use strand_keyspace::types::bits::{FieldType, Overflow};
use strand_keyspace::types::string::parse_int;
use strand_wire::args::Args;

const INVALID_TYPE: &str =
    "ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not supported but i64 is.";
const INVALID_OVERFLOW: &str = "ERR Invalid OVERFLOW type specified";
const ONLY_GET: &str = "ERR BITFIELD_RO only supports the GET subcommand";

/// `BITFIELD key [GET type offset | [OVERFLOW WRAP | SAT | FAIL] SET type offset value | INCRBY type offset
/// increment ...]`. Reply: an array with one integer per operation; null for an operation that failed.
pub(crate) fn bitfield(call: &mut Call<'_, '_>) {
    run(call, false);
}

/// `BITFIELD_RO key [GET type offset ...]`
pub(crate) fn bitfield_ro(call: &mut Call<'_, '_>) {
    run(call, true);
}

/// The range of bytes that BITFIELD writes.
pub(crate) fn written_by_bitfield(args: Args<'_>) -> Range<usize> {
    // If the arguments are wrong, the reply is an error, which is cheap. The start of the range does not matter.
    let end = operations(args, None).map_or(0, |operations| written_bytes(&operations));
    end.saturating_sub(1)..end
}

#[derive(Clone, Copy)]
struct Operation {
    kind: FieldType,
    offset: u64,
    action: Action,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Action {
    Get,
    Set(i64, Overflow),
    Add(i64, Overflow),
}

type Operations = SmallVec<[Operation; 4]>;

fn run(call: &mut Call<'_, '_>, read_only: bool) {
    match results(call, read_only) {
        Ok(results) => {
            call.reply.array(results.len());
            for result in results {
                match result {
                    Some(n) => call.reply.int(n),
                    None => call.reply.null(),
                }
            }
        }
        Err(text) => call.reply.error(text),
    }
}

fn results(call: &mut Call<'_, '_>, read_only: bool) -> Result<Vec<Option<i64>>, &'static str> {
    let operations = operations(call.args, Some(call.txn.string_bytes_max()))?;
    let mut db = call.txn.db(call.db);
    let len = written_bytes(&operations);
    if len > 0 && read_only {
        return Err(ONLY_GET);
    }
    if len > 0 {
        let unchanged =
            |bytes: &[u8]| operations.iter().map(|operation| operation.result_if_unchanged(bytes)).collect();
        return edit(&mut db, &call.keys[0], len, unchanged, |bytes| {
            operations.iter().map(|operation| operation.run(bytes)).collect()
        });
    }
    let s = string_of(db.get(&call.keys[0]))?;
    let mut buffer = [0; 20];
    let bytes = s.as_ref().map_or(&b""[..], |s| s.bytes(&mut buffer));
    Ok(operations.iter().map(|operation| Some(operation.kind.get(bytes, operation.offset))).collect())
}

impl Operation {
    /// Runs the operation on `bytes`, which must be long enough. `None` when the number overflows and OVERFLOW is
    /// FAIL.
    fn run(&self, bytes: &mut [u8]) -> Option<i64> {
        let before = self.kind.get(bytes, self.offset);
        let new = self.new_number(before)?;
        if self.action != Action::Get {
            self.kind.put(bytes, self.offset, new);
        }
        Some(if matches!(self.action, Action::Add(..)) { new } else { before })
    }
    /// The result of the operation on `bytes`, as of [`Operation::run`]. `None` when the operation would change a bit.
    fn result_if_unchanged(&self, bytes: &[u8]) -> Option<Option<i64>> {
        let before = self.kind.get(bytes, self.offset);
        match self.new_number(before) {
            Some(new) => (new == before).then_some(Some(before)),
            None => Some(None),
        }
    }
    /// The number that the operation leaves where `before` is. `None` when it overflows and OVERFLOW is FAIL.
    fn new_number(&self, before: i64) -> Option<i64> {
        let (new, overflow) = match self.action {
            Action::Get => return Some(before),
            Action::Set(value, overflow) => (self.kind.set_argument(value), overflow),
            Action::Add(increment, overflow) => (i128::from(before) + i128::from(increment), overflow),
        };
        self.kind.fit(new, overflow)
    }
}

/// The length that the string must have for all writes. 0 when nothing is written.
fn written_bytes(operations: &Operations) -> usize {
    let writes = operations.iter().filter(|operation| operation.action != Action::Get);
    writes.map(|o| bytes_to(o.offset.saturating_add(o.kind.bits() - 1))).max().unwrap_or(0)
}

/// Parses all operations. Refuses offsets beyond a string of `bytes_max` bytes, if this limit is given.
fn operations(args: Args<'_>, bytes_max: Option<u64>) -> Result<Operations, &'static str> {
    let (mut operations, mut overflow, mut at) = (Operations::new(), Overflow::Wrap, 2);
    while at < args.len() {
        let more = args.len() - at - 1;
        let (word, values) = if args.is(at, "GET") && more >= 2 {
            ("GET", 2)
        } else if args.is(at, "SET") && more >= 3 {
            ("SET", 3)
        } else if args.is(at, "INCRBY") && more >= 3 {
            ("INCRBY", 3)
        } else if args.is(at, "OVERFLOW") && more >= 1 {
            overflow = overflow_of(args, at + 1)?;
            at += 2;
            continue;
        } else {
            return Err(errors::SYNTAX);
        };
        let kind = field_type(args.at(at + 1)).ok_or(INVALID_TYPE)?;
        let offset = field_offset(args.at(at + 2), kind.bits());
        let offset = offset.filter(|offset| bytes_max.is_none_or(|max| is_within(*offset, max)));
        let offset = offset.ok_or(super::BIT_OFFSET)?;
        let action = match word {
            "GET" => Action::Get,
            "SET" => Action::Set(parse::integer(args.at(at + 3))?, overflow),
            _ => Action::Add(parse::integer(args.at(at + 3))?, overflow),
        };
        operations.push(Operation { kind, offset, action });
        at += 1 + values;
    }
    Ok(operations)
}

fn overflow_of(args: Args<'_>, at: usize) -> Result<Overflow, &'static str> {
    if args.is(at, "WRAP") {
        Ok(Overflow::Wrap)
    } else if args.is(at, "SAT") {
        Ok(Overflow::Saturate)
    } else if args.is(at, "FAIL") {
        Ok(Overflow::Fail)
    } else {
        Err(INVALID_OVERFLOW)
    }
}

/// Parses a type such as `i8` or `u63`.
fn field_type(text: &[u8]) -> Option<FieldType> {
    let (sign, bits) = text.split_first()?;
    let signed = match sign {
        b'i' => true,
        b'u' => false,
        _ => return None,
    };
    FieldType::new(signed, u64::try_from(parse_int(bits)?).ok()?)
}

/// Parses an offset in bits. An offset after `#` is in units of `bits` bits.
fn field_offset(text: &[u8], bits: u64) -> Option<u64> {
    let (number, unit) = match text {
        [b'#', rest @ ..] => (rest, bits),
        _ => (text, 1),
    };
    u64::try_from(parse_int(number)?).ok()?.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use crate::fixture::Fixture;

    #[test]
    fn integers_of_any_width() {
        let mut f = Fixture::new();
        f.script(&[
            ("BITFIELD a", "*0|"),
            ("EXISTS a", ":0|"),
            ("BITFIELD a SET i5 100 1 GET u4 0", "*2|:0|:0|"),
            ("STRLEN a", ":14|"),
            ("BITFIELD a INCRBY i5 100 1 GET i5 100", "*2|:2|:2|"),
            ("BITFIELD b SET u8 #1 300 GET u8 8 GET i8 #1 GET u16 0", "*4|:0|:44|:44|:44|"),
            ("BITFIELD b OVERFLOW SAT SET u8 0 300 INCRBY u8 0 1", "*2|:0|:255|"),
            ("BITFIELD b OVERFLOW FAIL INCRBY u8 0 1 overflow wrap INCRBY u8 0 2 GET u8 0", "*3|$-1|:1|:1|"),
            ("BITFIELD b SET u8 0 -1", "*1|:1|"),
            ("BITFIELD_RO b GET u8 0 GET u63 1 GET i64 900", "*3|:255|:9163699341792116736|:0|"),
            ("BITFIELD c OVERFLOW FAIL SET i2 8 5", "*1|$-1|"),
            ("STRLEN c", ":2|"),
        ]);
    }

    #[test]
    fn errors_and_their_order() {
        const TYPE: &str = "-ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not supported but i64 is.|";
        const OFFSET: &str = "-ERR bit offset is not an integer or out of range|";
        const SYNTAX: &str = "-ERR syntax error|";
        let mut f = Fixture::new();
        f.script(&[
            ("BITFIELD a GET u64 0", TYPE),
            ("BITFIELD a GET i65 0", TYPE),
            ("BITFIELD a GET x8 0", TYPE),
            ("BITFIELD a GET i 0", TYPE),
            ("BITFIELD a GET u8", SYNTAX),
            ("BITFIELD a SET u8 0", SYNTAX),
            ("BITFIELD a SET u8 0 1 FOO", SYNTAX),
            ("BITFIELD a GET u8 -1", OFFSET),
            ("BITFIELD a GET u8 #", OFFSET),
            ("BITFIELD a GET u8 #9223372036854775807", OFFSET),
            ("BITFIELD a SET u8 4294967296 1", OFFSET),
            ("BITFIELD a SET u8 0 x", "-ERR value is not an integer or out of range|"),
            ("BITFIELD a OVERFLOW MAYBE", "-ERR Invalid OVERFLOW type specified|"),
            ("BITFIELD_RO a SET u8 0 1", "-ERR BITFIELD_RO only supports the GET subcommand|"),
            ("EXISTS a", ":0|"),
        ]);
    }
}
