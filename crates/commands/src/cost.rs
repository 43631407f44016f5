//! [`Cost`]: what a call costs, estimated before the call runs. [`SlowPath`]: how a call runs on the lane if it
//! costs too much for a worker.
//!
//! The row of a command names both. An estimate is cheap and may be wrong by a small factor, because it only has to
//! tell microseconds from milliseconds.

use crate::call::LaneCall;
use crate::families::{bitmap, sort};
use crate::spec::{CommandSpec, Flags, KeySpec};
use smallvec::SmallVec;
use strand_keyspace::types::string::parse_int;
use strand_keyspace::{Key, StrRef, Txn, ValueRef};
use strand_wire::args::Args;

/// A call with more elements than this is *long*. An element (a key looked up, a field encoded) takes 50 to 200 ns.
/// So a call that stays on a worker takes less than a millisecond.
pub const LONG_ELEMENTS: usize = 4096;
/// A call that copies more bytes than this is long, too. Copying a mebibyte takes about as long as
/// [`LONG_ELEMENTS`] elements.
pub const LONG_BYTES: usize = 1 << 20;
/// A call that writes, with [`Cost::Arguments`] and at most this number of arguments, counts as a call of fixed cost.
pub const QUICK_ARGUMENTS: usize = 16;
/// Number of bytes that are copied in the time of one element.
pub const ELEMENT_BYTES: usize = LONG_BYTES / LONG_ELEMENTS;

/// The number of elements that a call works on. A call with more than [`LONG_ELEMENTS`] leaves the worker and runs as
/// its row's [`SlowPath`] says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(unpredictable_function_pointer_comparisons)] // The server compares only variants without a function.
pub enum Cost {
    /// A few elements, whatever the arguments and the data are.
    Fixed,
    /// One element per argument.
    Arguments,
    /// The elements of the collection at the first key, or its bytes if they take longer. Read while the key's
    /// shard is locked.
    Elements,
    /// The sum, over all keys, of what this function returns for the value at the key. Also one element per
    /// argument. The function runs while the keys' shards are locked, so it must be quick: O(log n), or a look at a few
    /// hundred elements.
    InData(fn(Args<'_>, ValueRef<'_>) -> usize),
    /// Like [`Cost::InData`], for a search that ends at what it finds, or looks at a part that the data decides. The estimate
    /// holds only for the elements that are at the key now. After a write, the search may look at all of them
    /// ([`elements_after_write`]), and the number is the work for each.
    Search(fn(Args<'_>, ValueRef<'_>) -> usize, usize),
    /// A few elements if the first function returns true for the arguments. Otherwise like [`Cost::InData`] with
    /// the second function.
    InDataUnless(fn(Args<'_>) -> bool, fn(Args<'_>, ValueRef<'_>) -> usize),
    /// Like [`Cost::Elements`], for the value at the first key in the database's system companion.
    SystemElements,
    /// The bytes that are copied when argument 2 is appended to the string at the first key. The new bytes always
    /// count. The old bytes count if a reply that was not sent yet shares them, or if the allocation has no room.
    /// Read while the key's shard is locked.
    Append,
    /// Like [`Cost::Append`], for writing argument 3 at the offset in argument 2.
    Overwrite,
    /// Like [`Cost::Append`], for writing the bit at the offset in argument 2.
    SetBit,
    /// Like [`Cost::Append`], for the writes of BITFIELD's operations. Also one element per argument.
    BitField,
    /// The bytes of the string at the first key, for commands that read all of them: DIGEST. Read while the key's shard is
    /// locked.
    StringBytes,
    /// The elements of the collection or the bytes of the string at the first key, because DUMP compresses them
    /// all. Read while the key's shard is locked.
    Serialized,
    /// The elements of the value in the DUMP payload in this argument, or the payload's bytes if the bytes take
    /// longer.
    Payload(usize),
    /// The bytes of all strings and the elements of all collections at the keys. Read while the keys' shards are
    /// locked.
    Sources,
    /// What the function returns for the sources, which are the keys from this index on. Read while the keys' shards are
    /// locked.
    Combination(usize, fn(&[SourceSize]) -> usize),
    /// The elements of the collection that SORT visits, plus the keys that SORT looks up for these elements
    /// (BY, GET). The estimate is made while the key's shard is locked. If SORT looks up few keys, the estimate
    /// locks the shards of these keys too.
    Sort,
    /// The absolute value of the number in this argument.
    CountArgument(usize),
    /// The number after the word COUNT. Options begin at this argument. All except NOVALUES have a value.
    CountOption(usize),
    /// One element per shard.
    Shards,
    /// The bytes of the text in this argument. Only the service that runs the command knows how long a byte takes.
    /// So the service is first called on the worker, and may refuse before it has written anything.
    Text(usize),
    /// All keys of a database. The command always runs on the lane.
    Keyspace,
    /// A search or a script, which has a budget of its own. The command always runs on the lane.
    Budget,
}

/// How a long call of a command on keys runs on the lane.
#[derive(Clone, Copy, Debug)]
pub enum SlowPath {
    /// The arguments are cut into slices. The handler changes a copy of the value at the only key, slice by slice,
    /// and then the copy replaces the value ([`crate::copy_write`]). A call with few arguments runs at once.
    Slices(Slices),
    /// The handler changes a copy of the value at the first key that exists, and then the copy replaces the value.
    /// For commands whose handler depends only on that value, and is cheap when there is none.
    CopyWrite,
    /// The keys are read in slices. All slices read the keys as of one moment. Every argument after the name is a key.
    View(Merge),
    /// The handler runs on copies of the keys as of one moment, while no shard is locked. Only for commands that
    /// read.
    CopyValues,
    /// The handler runs at once, with the shards locked to the end. For commands that must do all or nothing. Sessions
    /// that need one of the shards are parked, and their workers serve other sessions.
    Locked,
    /// The command's own function runs the call.
    Own(fn(&mut LaneCall<'_>)),
}

/// How the arguments of a command are cut into slices.
#[derive(Clone, Copy, Debug)]
pub struct Slices {
    /// Number of arguments with which every slice begins: the name and the key.
    pub head: usize,
    /// Number of arguments that belong together: 1 for fields, 2 for fields with their values.
    pub step: usize,
    /// How the replies of the slices become one reply.
    pub merge: Merge,
    /// True when the value is in the database's system companion.
    pub of_system: bool,
}

/// How the replies of slices become one reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Merge {
    /// The replies are integers, and the merged reply is their sum.
    Sum,
    /// The replies are integers, and the merged reply is the largest of them.
    Max,
    /// The replies are arrays, and the merged reply has the elements of all of them, slice by slice.
    Append,
    /// All slices have the same reply, which is also the merged reply.
    Any,
}

/// Constructors of the forms that rows use often.
impl SlowPath {
    /// A slow path in slices of the fields, members or elements that follow the key.
    pub const fn fields(merge: Merge) -> SlowPath {
        SlowPath::Slices(Slices { head: 2, step: 1, merge, of_system: false })
    }
    /// A slow path in slices of the pairs of field and value that follow the key.
    pub const fn field_pairs(merge: Merge) -> SlowPath {
        SlowPath::Slices(Slices { head: 2, step: 2, merge, of_system: false })
    }
}

impl Cost {
    /// The number of elements of a call, as far as the arguments tell, on a keyspace of `shards` shards. The call
    /// is long if this exceeds [`LONG_ELEMENTS`].
    pub fn elements(self, args: Args<'_>, shards: usize) -> usize {
        match self {
            Cost::Fixed | Cost::Elements | Cost::SystemElements | Cost::Serialized => 0,
            Cost::Append | Cost::Overwrite | Cost::SetBit => 0,
            Cost::Payload(at) => args.get(at).map_or(0, |payload| {
                let weight = strand_rdb::dump::Weight::of(payload);
                weight.elements.max(weight.bytes.div_ceil(ELEMENT_BYTES))
            }),
            Cost::Arguments
            | Cost::StringBytes
            | Cost::Sources
            | Cost::Combination(..)
            | Cost::BitField
            | Cost::InData(_)
            | Cost::Search(..)
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
                    // NOVALUES is the only option without a value.
                    at += if args.is(at, "NOVALUES") { 1 } else { 2 };
                }
                most
            }
            Cost::Shards => shards,
            Cost::Keyspace | Cost::Budget => usize::MAX,
        }
    }
    /// True when the cost is a number of values, whatever their sizes are. A call that only reads is then also long
    /// if it would copy more than [`LONG_BYTES`].
    #[inline]
    pub fn counts_values(self) -> bool {
        matches!(self, Cost::Arguments | Cost::CountArgument(_) | Cost::CountOption(_))
    }
    /// True when the cost depends on the data, so the arguments alone do not tell whether a call is long.
    #[inline]
    pub fn depends_on_data(self) -> bool {
        match self {
            Cost::Elements | Cost::SystemElements | Cost::StringBytes | Cost::Sources | Cost::Serialized => {
                true
            }
            Cost::Append | Cost::Overwrite | Cost::SetBit | Cost::BitField => true,
            Cost::InData(_) | Cost::Search(..) | Cost::InDataUnless(..) => true,
            Cost::Combination(..) | Cost::Sort => true,
            Cost::Fixed | Cost::Arguments | Cost::CountArgument(_) | Cost::CountOption(_) | Cost::Shards => {
                false
            }
            Cost::Text(_) | Cost::Payload(_) | Cost::Keyspace | Cost::Budget => false,
        }
    }
}

/// The length in bytes that a call gives a string at least, if an argument says it: the end of what SETRANGE, SETBIT or
/// BITFIELD write. 0 for other commands. Memory for it is needed, although the arguments are short.
pub fn string_bytes_needed(spec: &CommandSpec, args: Args<'_>) -> usize {
    match spec.cost() {
        Cost::Overwrite => {
            let offset = parse_int(args.at(2)).and_then(|n| usize::try_from(n).ok()).unwrap_or(0);
            offset.saturating_add(args.at(3).len())
        }
        Cost::SetBit => bitmap::written_by_setbit(args).end,
        Cost::BitField => bitmap::written_by_bitfield(args).end,
        _ => 0,
    }
}

/// The number of elements of a call whose cost depends on the values at `keys`. The keys' shards must be locked.
/// Bytes are converted to the number of elements that take equally long.
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
    if let Cost::Combination(first, elements) = cost {
        let mut db = txn.db(db);
        let mut size = |key| db.peek(key).map_or(SourceSize::default(), |r| SourceSize::of(r.value()));
        // A caller may ask about one key only.
        let sources = keys.get(first..).filter(|sources| !sources.is_empty()).unwrap_or(keys);
        let sizes: SmallVec<[SourceSize; 8]> = sources.iter().map(&mut size).collect();
        return elements(&sizes);
    }
    if cost == Cost::Sort {
        return sort::elements(args, txn, db, key);
    }
    if let Cost::InDataUnless(is_quick, _) = cost
        && is_quick(args)
    {
        return 0;
    }
    if let Cost::InData(elements) | Cost::Search(elements, _) | Cost::InDataUnless(_, elements) = cost {
        let mut db = txn.db(db);
        let at = |key| db.peek(key).map_or(0, |record| elements(args, record.value()));
        return keys.iter().map(at).fold(0, usize::saturating_add);
    }
    let db = if cost == Cost::SystemElements { txn.keyspace().system_db(db) } else { db };
    if matches!(cost, Cost::Append | Cost::Overwrite | Cost::SetBit | Cost::BitField) {
        // The estimate must see that a snapshot shares the bytes, because shared bytes are copied.
        txn.db(db).keep_for_snapshot(key);
    }
    let bytes = match (cost, txn.db(db).peek(key).map(|r| r.value())) {
        // Every command with this cost replies to a string with an error, which is cheap.
        (Cost::Elements | Cost::SystemElements, Some(ValueRef::Str(_)) | None) => 0,
        (Cost::Elements | Cost::SystemElements, Some(collection)) => {
            return collection.elements().max(collection.heap_bytes().div_ceil(ELEMENT_BYTES));
        }
        (Cost::Serialized, Some(value)) => {
            /// Number of bytes that are compressed in the time of one element.
            const COMPRESSED_BYTES: usize = 16;
            let bytes = match value {
                ValueRef::Str(s) => s.len(),
                collection => collection.heap_bytes(),
            };
            return value.elements().max(bytes.div_ceil(COMPRESSED_BYTES));
        }
        (Cost::Append, Some(ValueRef::Str(s))) => edited_bytes(s, s.len(), args.at(2).len()),
        (Cost::Overwrite, Some(ValueRef::Str(s))) => {
            // An argument that is no offset gives an error, which is cheap.
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
        (Cost::StringBytes, Some(ValueRef::Str(s))) => s.len(),
        // The zeros before the offset are memory that the kernel has cleared, so they cost nothing.
        (Cost::Overwrite, None) => args.at(3).len(),
        _ => 0,
    };
    bytes.div_ceil(ELEMENT_BYTES)
}

/// Like [`elements_at`], for a call that runs after writes to its keys.
pub fn elements_after_write(
    cost: Cost,
    args: Args<'_>,
    txn: &mut Txn<'_>,
    db: usize,
    keys: &[Key<'_>],
) -> usize {
    let Cost::Search(_, each) = cost else { return elements_at(cost, args, txn, db, keys) };
    let mut db = txn.db(db);
    let all = |value: ValueRef<'_>| match value {
        ValueRef::Str(s) => s.len().div_ceil(ELEMENT_BYTES),
        collection => part_elements(collection.elements(), collection),
    };
    let at = |key| db.peek(key).map_or(0, |record| all(record.value()).saturating_mul(each));
    keys.iter().map(at).fold(0, usize::saturating_add)
}

/// The number of heap bytes of the value at `key` that a call works on. The key's shard must be held. If the cost
/// depends only on the arguments, the result is all heap bytes of the value.
pub fn worked_bytes(cost: Cost, args: Args<'_>, txn: &mut Txn<'_>, db: usize, key: &Key<'_>) -> u64 {
    let heap_bytes = txn.db(db).heap_bytes_at(key) as u64;
    if !cost.depends_on_data() {
        return heap_bytes;
    }
    let elements = txn.db(db).peek(key).map_or(0, |record| record.value().elements()) as u64;
    let whole = elements.max(heap_bytes / ELEMENT_BYTES as u64).max(1);
    let worked = elements_at(cost, args, txn, db, std::slice::from_ref(key)) as u64;
    (u128::from(heap_bytes) * u128::from(worked.min(whole)) / u128::from(whole)) as u64
}

/// Number of bytes that are copied or zeroed when `more` bytes are written at `offset` of a string.
fn edited_bytes(s: StrRef<'_>, offset: usize, more: usize) -> usize {
    let end = offset.saturating_add(more);
    let kept = match s {
        StrRef::Blob { blob, .. } if blob.is_unique() && end <= blob.capacity() => 0,
        moved => moved.len(),
    };
    kept.saturating_add(offset.saturating_sub(s.len())).saturating_add(more)
}

/// The cost in elements of the first `part` elements of a collection: their number, or their share of the
/// collection's bytes if that takes longer.
pub fn part_elements(part: usize, value: ValueRef<'_>) -> usize {
    let all = value.elements().max(1);
    let bytes = (value.heap_bytes() as u128 * part.min(all) as u128 / all as u128) as usize;
    part.min(all).max(bytes.div_ceil(ELEMENT_BYTES))
}

/// The size of a source of a set operation. A missing source has the size 0.
#[derive(Clone, Copy, Debug, Default)]
pub struct SourceSize {
    /// Number of members.
    pub(crate) members: usize,
    /// The work of a walk over all members, in elements.
    pub(crate) walk: usize,
    /// The work of a look-up, in elements.
    look_up: usize,
}

impl SourceSize {
    fn of(value: ValueRef<'_>) -> SourceSize {
        /// Number of members of a packed sorted set that are compared in the time of one element.
        const COMPARED: usize = 64;
        let members = value.elements();
        let look_up = match value {
            ValueRef::ZSet(zset) if zset.is_packed() => 1 + members / COMPARED,
            _ => 1,
        };
        SourceSize { members, walk: part_elements(members, value), look_up }
    }
    /// The work of looking up each member of this source in all `sources`, and of adding the members to a result.
    fn looked_up_in(self, sources: &[SourceSize]) -> usize {
        let look_ups = sources.iter().map(|source| source.look_up).sum::<usize>();
        self.walk.saturating_add(self.members.saturating_mul(look_ups))
    }
}

/// The work of an intersection: each member of the smallest source is looked up in all others.
pub(crate) fn of_intersection(sources: &[SourceSize]) -> usize {
    sources.iter().min_by_key(|source| source.members).map_or(0, |smallest| smallest.looked_up_in(sources))
}

/// The work of a difference: each member of the first source is looked up in all others.
pub(crate) fn of_difference(sources: &[SourceSize]) -> usize {
    sources.first().map_or(0, |first| first.looked_up_in(sources))
}

fn count(text: &[u8]) -> usize {
    // An argument that is no number gives an error, which is cheap.
    parse_int(text).map_or(0, |n| n.unsigned_abs() as usize)
}

/// True when a call with these arguments is as quick as a call of fixed cost, whatever the data is. Such a call
/// needs no estimate, and its time is measured together with that of its neighbours. (Before this rule, LPOP at
/// pipeline 30 spent 9 % of its time on the clock and 6 % on a second look at its list.)
#[inline]
pub fn is_quick(spec: &CommandSpec, args: Args<'_>) -> bool {
    match spec.cost() {
        Cost::Fixed => true,
        Cost::InDataUnless(is_quick, _) => is_quick(args),
        // A call that reads may copy large values, which the number of arguments does not tell.
        Cost::Arguments => args.len() <= QUICK_ARGUMENTS && !spec.flags.has(Flags::READONLY),
        Cost::CountArgument(at) => args.len() <= at && !spec.flags.has(Flags::READONLY),
        _ => false,
    }
}

/// True for a pop without a count: it removes one element.
pub(crate) fn pops_one(args: Args<'_>) -> bool {
    args.len() == 2
}

/// True when a call of the command may lock other shards than those of its keys. Such a call waits until no other
/// call holds a shard.
pub fn locks_all(spec: &CommandSpec) -> bool {
    matches!(spec.cost(), Cost::Shards | Cost::CountOption(_)) && spec.keys.is_empty()
}

/// True when a call of the command may read keys that its arguments do not name, as SORT does with a pattern in BY or
/// GET.
pub fn may_read_other_keys(spec: &CommandSpec, args: Args<'_>) -> bool {
    spec.keys.iter().any(KeySpec::has_hidden_keys) && args.skip(2).iter().any(|word| word.contains(&b'*'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::Fixture;
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

    /// A call on large values that looks at a small part of them stays on the worker.
    #[test]
    fn a_small_part_of_a_large_value_is_not_long() {
        let mut f = Fixture::new();
        let words = |from: usize, to: usize, form: &dyn Fn(usize) -> String| {
            (from..to).map(form).collect::<Vec<_>>().join(" ")
        };
        f.run(&format!("SADD big {}", words(0, 9000, &|i| format!("m{i}"))));
        f.run(&format!("SADD big2 {}", words(5, 9005, &|i| format!("m{i}"))));
        f.run("SADD small m1 m2 m3");
        f.run(&format!("ZADD z {}", words(0, 9000, &|i| format!("{i} m{i}"))));
        f.run("ZADD zsmall 1 m1 2 m2");
        f.run(&format!("RPUSH l {}", words(0, 9000, &|i| format!("e{i}"))));
        let grid = |i: usize| format!("{} {} p{i}", i % 170, i / 170);
        f.run(&format!("GEOADD geo {}", words(0, 9000, &grid)));
        f.run("SETRANGE bits 4000000 x");
        f.run("SETBIT bits 100000 1");
        for line in [
            "SINTER big small",
            "SINTER big nothing big2",
            "SINTERCARD 2 small big",
            "SINTERSTORE big2 big small",
            "SDIFF small big",
            "SDIFF nothing big",
            "SDIFFSTORE big small big",
            "ZINTER 2 z zsmall",
            "ZINTERCARD 2 z nothing",
            "ZDIFF 2 zsmall z",
            "ZINTERSTORE z 2 z zsmall",
            "ZDIFFSTORE z 2 zsmall z",
            "ZLEXCOUNT z - +",
            "ZRANGEBYLEX z - + LIMIT 5 5",
            "ZREVRANGEBYLEX z + - LIMIT 0 1",
            "LREM l 1 e0",
            "LREM l -1 e8999",
            "LINSERT l BEFORE e3 new",
            "LPOS l e100",
            "LPOS l e8999 RANK -1",
            "LPOS l e8999 MAXLEN 100",
            "GEOSEARCH geo FROMLONLAT 15 15 BYRADIUS 1 m",
            "GEOSEARCHSTORE d geo FROMMEMBER p33 BYBOX 1 1 km ASC",
            "GEOSEARCH geo FROMLONLAT 15 15 BYRADIUS 9000 km COUNT 3 ANY",
            "GEORADIUS geo 15 15 1 km",
            "GEORADIUSBYMEMBER_RO geo p5 1 km",
            "BITCOUNT bits 5 10",
            "BITPOS bits 1",
            "BITPOS bits 0",
            "BITPOS bits 1 3000000 3000010",
        ] {
            assert!(!f.is_line_long(line), "{line}");
        }
        for line in [
            "SINTER big big2",
            "SDIFF big small",
            "SDIFF big big2",
            "SUNION small big",
            "ZINTER 2 z big",
            "ZDIFF 2 z zsmall",
            "ZRANGEBYLEX z - + LIMIT 0 5000",
            "ZREMRANGEBYLEX z - +",
            "LREM l 0 e0",
            "LREM l 2 e0",
            "LREM l -1 e0",
            "LINSERT l AFTER nothing x",
            "LPOS l e0 COUNT 0",
            "LPOS l e600",
            "GEOSEARCH geo FROMLONLAT 15 15 BYRADIUS 9000 km",
            "GEOSEARCHSTORE d geo FROMLONLAT 15 15 BYRADIUS 9000 km",
            "BITCOUNT bits",
            "BITPOS bits 1 200000",
        ] {
            assert!(f.is_line_long(line), "{line}");
        }
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
