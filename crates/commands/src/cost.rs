//! What a call costs, estimated before it runs ([`Cost`]), and how it runs when that is too much for a worker ([`SlowPath`]).
//!
//! Both stand in the command's row. The estimate is cheap and may be wrong by a small factor: it only has to tell
//! microseconds from milliseconds.

use crate::call::LaneCall;
use crate::families::{bitmap, sort};
use crate::spec::{CommandSpec, Flags};
use strand_keyspace::types::string::parse_int;
use strand_keyspace::{Key, StrRef, Txn, ValueRef};
use strand_wire::args::Args;

/// A call with more elements than this is long. An element (a key looked up, a field encoded) costs 50 to 200 ns, so
/// whatever stays on a worker is done in less than a millisecond.
pub const LONG_ELEMENTS: usize = 4096;
/// A collection with more bytes than this is long as well: copying them into a reply takes about as long.
pub const LONG_BYTES: usize = 1 << 20;
/// A call with at most this many arguments counts as a call of fixed cost, if its cost is that of its arguments.
pub const QUICK_ARGUMENTS: usize = 16;
/// Bytes that are copied in the time of one element.
pub const ELEMENT_BYTES: usize = LONG_BYTES / LONG_ELEMENTS;

/// How many elements a call works on. Above [`LONG_ELEMENTS`] it leaves the worker and runs in the row's [`SlowPath`] form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(unpredictable_function_pointer_comparisons)] // Only variants without one are compared.
pub enum Cost {
    /// A few elements, for any arguments and any data.
    Fixed,
    /// One for each argument.
    Arguments,
    /// The elements of the collection at its first key. Its bytes count, too. Looked at with the key's shard held.
    Elements,
    /// What this says of each value at its keys, added up: elements of the call on that value. Looked at with the keys'
    /// shards held, so it must be quick: O(log n). One for each argument, too.
    InData(fn(Args<'_>, ValueRef<'_>) -> usize),
    /// A few elements if the first function says so from the arguments alone. Otherwise as [`Cost::InData`] with the second.
    InDataUnless(fn(Args<'_>) -> bool, fn(Args<'_>, ValueRef<'_>) -> usize),
    /// As [`Cost::Elements`] for the value at its first key in the database's system companion.
    SystemElements,
    /// Bytes that are copied or made to put argument 2 at the end of the string at its first key: what is added, and
    /// all, when a reply on its way out shares it or when there is no room behind it. Looked at with the key's shard held.
    Append,
    /// As [`Cost::Append`], to put argument 3 at the offset in argument 2.
    Overwrite,
    /// As [`Cost::Append`], to write the bit at the offset in argument 2.
    SetBit,
    /// As [`Cost::Append`], to write what BITFIELD's operations write. One for each argument, too.
    BitField,
    /// Bytes of the string at its first key, all of which are looked at. Looked at with the key's shard held.
    Digest,
    /// Those of the collection at its first key, or bytes of the string there, all of which are compressed. Looked at with
    /// the key's shard held.
    Serialized,
    /// Those of the value in the DUMP payload in this argument, and its bytes.
    Payload(usize),
    /// Bytes of the strings and elements of the collections at all its keys, all of which are looked at. Looked at with the
    /// keys' shards held.
    Sources,
    /// Elements of the collection at its first key that SORT goes through, and keys that it looks up for them. Looked at with
    /// the key's shard held; where those keys are few, their shards are held from there on, too.
    Sort,
    /// The number in this argument, without its sign.
    CountArgument(usize),
    /// As many as the number behind the word COUNT says; the options begin with this argument, in pairs but for NOVALUES.
    CountOption(usize),
    /// One for each shard.
    Shards,
    /// Bytes of the text in this argument; how much a byte costs only the service knows that runs it. It is called on the
    /// worker and may say, having written nothing, that it is too much there.
    Text(usize),
    /// Every key of a database: the command is on the lane always.
    Keyspace,
    /// What a search or a script may cost is bounded by a budget of its own: the command is on the lane always.
    Budget,
}

/// How a long call of a `Data` command runs on the lane.
#[derive(Clone, Copy, Debug)]
pub enum SlowPath {
    /// Its handler changes a copy of the value at its one key, slice by slice, which then takes the value's place
    /// ([`crate::on_copy`]). With few enough arguments all at once.
    Slices(Slices),
    /// Its handler changes a copy of the first value that there is at its keys, which then takes the value's place. For commands
    /// whose handler depends on nothing but the value, and does nothing costly without one.
    OnCopy,
    /// In slices of its keys, each of which reads the keys as they were at one moment: every argument but the name is a key.
    View(Merge),
    /// On a snapshot of its keys, taken at one moment; nothing is held while it runs. For commands that only read.
    Snapshot,
    /// All at once, with its shards held to the end: what is all or nothing stays so. Sessions that need one of the
    /// shards wait meanwhile; their workers do not.
    Held,
    /// As [`SlowPath::Held`], unless this, which holds nothing for long, finds that there is nothing to do, and answers.
    HeldUnless(fn(&mut LaneCall<'_>) -> bool),
    /// By a handler of its own.
    Own(fn(&mut LaneCall<'_>)),
}

/// How a command is cut into slices.
#[derive(Clone, Copy, Debug)]
pub struct Slices {
    /// Arguments that each slice begins with: the name and the key.
    pub head: usize,
    /// Arguments that belong together: 1 for fields, 2 for fields with values.
    pub step: usize,
    /// What becomes of the slices' replies.
    pub merge: Merge,
    /// The value lies in the database's system companion.
    pub of_system: bool,
}

/// How the replies of slices become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Merge {
    /// Integers: their sum.
    Sum,
    /// Integers: the largest.
    Most,
    /// Arrays: one after the other.
    Append,
    /// The replies are equal: any one of them.
    Any,
}

/// Rows are written with these.
impl SlowPath {
    /// In slices of the fields, members or elements that follow its key.
    pub const fn fields(merge: Merge) -> SlowPath {
        SlowPath::Slices(Slices { head: 2, step: 1, merge, of_system: false })
    }
    /// In slices of the pairs of a field and a value that follow its key.
    pub const fn field_pairs(merge: Merge) -> SlowPath {
        SlowPath::Slices(Slices { head: 2, step: 2, merge, of_system: false })
    }
}

impl Cost {
    /// Elements of a call with these arguments on a keyspace of `shards` shards, as far as can be told without looking at
    /// the data. More than [`LONG_ELEMENTS`]: it is long.
    pub fn elements(self, args: Args<'_>, shards: usize) -> usize {
        match self {
            Cost::Fixed | Cost::Elements | Cost::SystemElements | Cost::Serialized => 0,
            Cost::Append | Cost::Overwrite | Cost::SetBit => 0,
            Cost::Payload(at) => args.get(at).map_or(0, |payload| {
                let weight = strand_rdb::dump::Weight::of(payload);
                weight.elements.max(weight.bytes.div_ceil(ELEMENT_BYTES))
            }),
            Cost::Arguments
            | Cost::Digest
            | Cost::Sources
            | Cost::BitField
            | Cost::InData(_)
            | Cost::InDataUnless(..)
            | Cost::Sort => args.len(),
            Cost::CountArgument(at) => args.get(at).map_or(0, count),
            Cost::Text(at) => args.get(at).map_or(0, |text| text.len().div_ceil(ELEMENT_BYTES)),
            Cost::CountOption(from) => {
                let (mut at, mut most) = (from, 0);
                while at < args.len() {
                    if args.is(at, "COUNT") {
                        most = most.max(args.get(at + 1).map_or(0, count));
                    }
                    // The one option without a value.
                    at += if args.is(at, "NOVALUES") { 1 } else { 2 };
                }
                most
            }
            Cost::Shards => shards,
            Cost::Keyspace | Cost::Budget => usize::MAX,
        }
    }
    /// True when the values in the reply may be many and their bytes are not counted before: a call that only reads is
    /// long, too, when it turns out that more than [`LONG_BYTES`] would be copied.
    #[inline]
    pub fn is_by_number(self) -> bool {
        matches!(self, Cost::Arguments | Cost::CountArgument(_) | Cost::CountOption(_))
    }
    /// True when nothing is known to be long before the collection itself is looked at.
    #[inline]
    pub fn is_in_the_data(self) -> bool {
        match self {
            Cost::Elements | Cost::SystemElements | Cost::Digest | Cost::Sources | Cost::Serialized => true,
            Cost::Append | Cost::Overwrite | Cost::SetBit | Cost::BitField => true,
            Cost::InData(_) | Cost::InDataUnless(..) | Cost::Sort => true,
            Cost::Fixed | Cost::Arguments | Cost::CountArgument(_) | Cost::CountOption(_) | Cost::Shards => {
                false
            }
            Cost::Text(_) | Cost::Payload(_) | Cost::Keyspace | Cost::Budget => false,
        }
    }
}

/// Elements of a call whose cost is in the data, at the values of `keys`, whose shards are held: as [`Cost::elements`], and
/// bytes count as the elements that they take as long as.
pub fn elements_at(cost: Cost, args: Args<'_>, txn: &mut Txn<'_>, db: usize, keys: &[Key<'_>]) -> usize {
    let Some(key) = keys.first() else { return 0 };
    if cost == Cost::Sources {
        let mut db = txn.db(db);
        let mut elements = |key| match db.peek(key).map(|r| r.value()) {
            None => 0,
            Some(ValueRef::Str(s)) => s.len().div_ceil(ELEMENT_BYTES),
            Some(collection) => collection.elements(),
        };
        return keys.iter().fold(0usize, |sum, key| sum.saturating_add(elements(key)));
    }
    if cost == Cost::Sort {
        return sort::elements(args, txn, db, key);
    }
    if let Cost::InDataUnless(is_quick, _) = cost
        && is_quick(args)
    {
        return 0;
    }
    if let Cost::InData(elements) | Cost::InDataUnless(_, elements) = cost {
        let mut db = txn.db(db);
        let at = |key| db.peek(key).map_or(0, |record| elements(args, record.value()));
        return keys.iter().map(at).fold(0, usize::saturating_add);
    }
    let db = if cost == Cost::SystemElements { txn.keyspace().system_db(db) } else { db };
    if matches!(cost, Cost::Append | Cost::Overwrite | Cost::SetBit | Cost::BitField) {
        // What a snapshot shares is copied: it must be seen here.
        txn.db(db).keep_for_snapshot(key);
    }
    let bytes = match (cost, txn.db(db).peek(key).map(|r| r.value())) {
        // A string is the wrong type for every command of this cost.
        (Cost::Elements | Cost::SystemElements, Some(ValueRef::Str(_)) | None) => 0,
        (Cost::Elements | Cost::SystemElements, Some(collection)) => {
            return collection.elements().max(collection.heap_bytes().div_ceil(ELEMENT_BYTES));
        }
        (Cost::Serialized, Some(value)) => {
            /// Bytes that are compressed in the time of one element.
            const COMPRESSED_BYTES: usize = 16;
            let bytes = match value {
                ValueRef::Str(s) => s.len(),
                collection => collection.heap_bytes(),
            };
            return value.elements().max(bytes.div_ceil(COMPRESSED_BYTES));
        }
        (Cost::Append, Some(ValueRef::Str(s))) => edited_bytes(s, s.len(), args.at(2).len()),
        (Cost::Overwrite, Some(ValueRef::Str(s))) => {
            // What is no offset at all is an error, and quickly so.
            let offset = parse_int(args.at(2)).and_then(|n| usize::try_from(n).ok()).unwrap_or(0);
            edited_bytes(s, offset, args.at(3).len())
        }
        (Cost::SetBit, Some(ValueRef::Str(s))) => {
            let range = bitmap::written_by_setbit(args);
            edited_bytes(s, range.start, range.len())
        }
        (Cost::BitField, Some(ValueRef::Str(s))) => {
            let range = bitmap::written_by_bitfield(args);
            edited_bytes(s, range.start, range.len())
        }
        (Cost::Digest, Some(ValueRef::Str(s))) => s.len(),
        // The zeros in front are the allocator's, who has them from the kernel.
        (Cost::Overwrite, None) => args.at(3).len(),
        _ => 0,
    };
    bytes.div_ceil(ELEMENT_BYTES)
}

/// Bytes that are copied or filled with zeros to put `more` bytes at `offset` of a string.
fn edited_bytes(s: StrRef<'_>, offset: usize, more: usize) -> usize {
    let end = offset.saturating_add(more);
    let kept = match s {
        StrRef::Blob { blob, .. } if blob.is_unique() && end <= blob.capacity() => 0,
        moved => moved.len(),
    };
    kept.saturating_add(offset.saturating_sub(s.len())).saturating_add(more)
}

/// Elements of a part of a collection, its bytes counted too: `part` of all its elements.
pub fn part_elements(part: usize, value: ValueRef<'_>) -> usize {
    let all = value.elements().max(1);
    let bytes = (value.heap_bytes() as u128 * part.min(all) as u128 / all as u128) as usize;
    part.min(all).max(bytes.div_ceil(ELEMENT_BYTES))
}

fn count(text: &[u8]) -> usize {
    // What is no number at all is an error, and quickly so.
    parse_int(text).map_or(0, |n| n.unsigned_abs() as usize)
}

/// True when a call with these arguments is as quick as one of fixed cost, whatever the data: it needs no estimate, and is timed
/// together with its neighbours. (LPOP at pipeline 30 spent 9 % of its time on the clock, and 6 % on the second look at its list.)
#[inline]
pub fn is_quick(spec: &CommandSpec, args: Args<'_>) -> bool {
    match spec.cost() {
        Cost::Fixed => true,
        Cost::InDataUnless(is_quick, _) => is_quick(args),
        // What only reads may have more to copy than its number tells.
        Cost::Arguments => args.len() <= QUICK_ARGUMENTS && !spec.flags.has(Flags::READONLY),
        Cost::CountArgument(at) => args.len() <= at && !spec.flags.has(Flags::READONLY),
        _ => false,
    }
}

/// True of a pop without a count: it takes one element.
pub(crate) fn takes_one(args: Args<'_>) -> bool {
    args.len() == 2
}

/// True when some call of the command may lock shards that are not those of its keys: it waits until no other call holds a shard.
pub fn locks_all(spec: &CommandSpec) -> bool {
    matches!(spec.cost(), Cost::Shards | Cost::CountOption(_)) && spec.keys.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;
    use strand_chain::Blob;
    use strand_keyspace::Keyspace;
    use strand_wire::args::Argv;

    fn is_long(cost: Cost, line: &str) -> bool {
        let words: Vec<&str> = line.split(' ').collect();
        cost.elements(Argv::from_slices(&words).args(), 64) > LONG_ELEMENTS
    }

    #[test]
    fn counts_are_found_where_they_are() {
        assert!(!is_long(Cost::CountOption(2), "scan 0"));
        assert!(!is_long(Cost::CountOption(2), "scan 0 COUNT"));
        assert!(!is_long(Cost::CountOption(2), "scan 0 COUNT 4096"));
        assert!(is_long(Cost::CountOption(2), "scan 0 count 4097"));
        assert!(is_long(Cost::CountOption(2), "scan 0 MATCH count COUNT 9223372036854775807"));
        assert!(!is_long(Cost::CountOption(2), "scan 0 MATCH COUNT 5000 x"), "a pattern, and a wrong word");
        assert!(is_long(Cost::CountOption(3), "hscan h 0 NOVALUES COUNT 5000"));
        assert!(is_long(Cost::CountArgument(2), "hrandfield h -9223372036854775808"));
        assert!(!is_long(Cost::CountArgument(2), "hrandfield h 4096"));
        assert!(!is_long(Cost::CountArgument(2), "hrandfield h many"));
        assert!(!is_long(Cost::CountArgument(2), "hrandfield h"));
    }

    #[test]
    fn a_string_is_long_to_edit_when_it_is_copied_or_made_longer() {
        let space = Keyspace::new(1, 1, [1, 2, 3, 4]);
        let key = space.key(b"k");
        let mut txn = space.lock(&[key.hash], 0);
        let long = |txn: &mut Txn<'_>, cost, line: &str| {
            let argv = Argv::from_slices(&line.split(' ').collect::<Vec<_>>());
            elements_at(cost, argv.args(), txn, 0, &[key]) > LONG_ELEMENTS
        };
        let set = |txn: &mut Txn<'_>, blob: &Blob| {
            txn.db(0).set_str(&key, StrRef::Blob { blob, edited: false }, None);
        };
        assert!(!long(&mut txn, Cost::Overwrite, "setrange k 500000000 x"), "new zeros cost nothing");
        set(&mut txn, &Blob::from(&b"short"[..]));
        assert!(long(&mut txn, Cost::Overwrite, "setrange k 500000000 x"));
        assert!(!long(&mut txn, Cost::Overwrite, "setrange k x x"));
        let huge = "x".repeat(LONG_BYTES + 1);
        assert!(long(&mut txn, Cost::Append, &format!("append k {huge}")));
        assert!(long(&mut txn, Cost::Overwrite, &format!("setrange k 0 {huge}")));
        assert!(!long(&mut txn, Cost::Append, "append k x"));
        let mut blob = Blob::with_capacity(2 * LONG_BYTES);
        blob.resize(LONG_BYTES + 1, b'x');
        set(&mut txn, &blob);
        assert!(long(&mut txn, Cost::Append, "append k x"), "shared with this test");
        assert!(long(&mut txn, Cost::Overwrite, "setrange k 0 x"));
        drop(blob);
        assert!(!long(&mut txn, Cost::Append, "append k x"));
        assert!(!long(&mut txn, Cost::Overwrite, "setrange k 0 x"));
        assert!(long(&mut txn, Cost::Overwrite, &format!("setrange k {} x", 2 * LONG_BYTES)), "it must move");
    }

    #[test]
    fn arguments_and_shards_are_counted() {
        let argv = Argv::from_slices(&vec!["k"; LONG_ELEMENTS + 1]);
        assert_eq!(Cost::Arguments.elements(argv.args(), 1), LONG_ELEMENTS + 1);
        assert!([Cost::Fixed, Cost::Elements, Cost::Append].iter().all(|c| c.elements(argv.args(), 1) == 0));
        assert_eq!(Cost::Shards.elements(argv.args(), 64), 64);
        let argv = Argv::from_slices(&["scan", "0", "COUNT", "7", "COUNT", "9"]);
        assert_eq!(Cost::CountOption(2).elements(argv.args(), 1), 9);
    }
}
