//! Long calls, run on a helper thread. The [`SlowPath`] in the command's row says how a call runs: on a view, on a
//! snapshot, on a copy ([`crate::copy_write`]), or with its shards locked.
//!
//! Each of these ways runs the command's ordinary handler, so a command needs no second handler for long calls.
//! `docs/concurrency.md` says what a call may lock and for how long.

use crate::call::{Call, LaneCall};
use crate::copy_write;
use crate::cost::{Cost, LONG_ELEMENTS, Merge, SlowPath};
use crate::run::{execute, handler, keys_of, needs_all_shards};
use crate::spec::{CommandSpec, Exec, Flags};
use crate::table::DATA;
use smallvec::SmallVec;
use std::sync::atomic::Ordering;
use strand_chain::Chain;
use strand_keyspace::types::string::parse_int;
use strand_keyspace::{Key, KeyHash, Keyspace, Lookups, Txn, Viewed};
use strand_wire::args::{Args, Argv};
use strand_wire::reply::{ErrorText, Reply};

/// Number of arguments per slice: about 20 us of work.
pub const SLICE_ARGUMENTS: usize = 128;
/// Maximum length of an integer reply, and of the header of an array.
const HEADER_BYTES_MAX: usize = 1 + 20 + 2;

/// The handler of a command whose cost is estimated.
pub(crate) type Handler = fn(&mut Call<'_, '_>);

/// Runs a long call of the command `spec`.
///
/// # Panics
/// Panics if the command does not work on keys.
pub fn run(spec: &'static CommandSpec, call: &mut LaneCall<'_>) {
    let (run, slow) = match spec.exec {
        // The command itself is cheap. The call is long because its user's rights must be checked for many
        // arguments.
        Exec::Inline(run) => return run_locked(spec, run, call),
        Exec::Estimated(run, _, slow) => (run, slow),
        _ => panic!("{} is no command on keys", spec.name),
    };
    match slow {
        SlowPath::Own(own) => own(call),
        // The call is long because of the bytes of its reply, not because of the number of its arguments.
        SlowPath::View(_) if call.args.len() <= LONG_ELEMENTS => snapshot(spec, run, call),
        SlowPath::View(merge) => run_on_view(spec, run, merge, call),
        SlowPath::Slices(slices) => copy_write::run_in_slices(spec, run, slices, call),
        SlowPath::CopyWrite => copy_write::run(spec, run, call, None),
        SlowPath::CopyValues => snapshot(spec, run, call),
        SlowPath::Locked => run_locked(spec, run, call),
    }
}

/// Runs a command's handler at once, with its shards locked. For a command whose [`SlowPath::Own`] calls its own
/// handler.
///
/// # Panics
/// Panics if the handler of `name` does not run on keys.
pub(crate) fn run_locked_by_name(name: &str, call: &mut LaneCall<'_>) {
    let (spec, run) = spec_and_handler(name);
    run_locked(spec, run, call);
}

/// The row of a command on keys, and its handler.
///
/// # Panics
/// Panics if no command on keys has this name.
pub(crate) fn spec_and_handler(name: &str) -> (&'static CommandSpec, Handler) {
    let row = DATA.lookup(name.as_bytes()).and_then(|spec| Some((spec, spec.exec.on_keys()?)));
    row.expect("the row of a command on keys")
}

/// Runs the handler with the shards of all keys locked from beginning to end.
pub(crate) fn run_locked(spec: &CommandSpec, run: Handler, call: &mut LaneCall<'_>) {
    let args = call.args;
    let keys = keys_of(spec, args, call.keyspace);
    let hashes: SmallVec<[KeyHash; 4]> = keys.iter().map(|key| key.hash).collect();
    if keys.len() <= SLICE_ARGUMENTS {
        call.keyspace.prefetch(call.db, &keys);
    }
    let mut txn = if keys.is_empty() { call.lock(&hashes) } else { call.hold(&hashes) };
    txn.set_no_touch(call.no_touch);
    let now_ms = txn.now_ms();
    let mut out = Chain::new();
    let mut reply = call.reply.part(&mut out);
    let (db, rng, rights) = (call.db, &mut *call.rng, call.rights);
    let mut one =
        Call { args, keys: &keys, db, now_ms, txn: &mut txn, reply: &mut reply, rng, rights, wait: None };
    execute(spec, run, &mut one, call.client);
    let waits = one.wait.is_some();
    let is_error = one.reply.error_code().is_some();
    let lookups = txn.lookups();
    drop(txn);
    call.waits |= waits;
    send_outcome(call, if is_error { Err(error_text(&out)) } else { Ok(lookups) }, out);
}

/// Runs the handler on copies of its keys as of one moment.
fn snapshot(spec: &CommandSpec, run: Handler, call: &mut LaneCall<'_>) {
    let mut out = Chain::new();
    let done = run_on_snapshot(spec, run, call.args, call, &mut out);
    send_outcome(call, done, out);
}

fn send_outcome(call: &mut LaneCall<'_>, done: Result<Lookups, ErrorText>, out: Chain) {
    match done {
        Ok(lookups) => {
            call.lookups = lookups;
            call.reply.raw(out);
        }
        Err(text) => call.reply.error_bytes(&text),
    }
}

/// Clones the records at the keys of `args` into a keyspace of their own, and runs the handler there. The shards
/// are locked only while the values are cloned. (Clones share large parts.) The reply is written to `out`.
fn run_on_snapshot(
    spec: &CommandSpec,
    run: Handler,
    args: Args<'_>,
    call: &mut LaneCall<'_>,
    out: &mut Chain,
) -> Result<Lookups, ErrorText> {
    let keys = keys_of(spec, args, call.keyspace);
    let of_system = matches!(spec.cost(), Cost::SystemElements);
    let from = if of_system { call.keyspace.system_db(call.db) } else { call.db };
    let (mut lookups, mut now_ms) = (Lookups::default(), call.now_ms);
    let records = read_records(&keys, call.no_touch, call, |txn, key| {
        let mut db = txn.db(from);
        // A read of the system companion does not count as a use of the key.
        let record = if of_system { db.peek(key) } else { db.get(key) };
        let viewed = record.map(|record| (record.value().to_value(), record.expire_at_ms()));
        (lookups, now_ms) = (txn.lookups(), txn.now_ms());
        viewed
    });
    call.now_ms = now_ms;
    let copies = copies_of(call);
    let to = if of_system { copies.system_db(0) } else { 0 };
    insert_records(&copies, to, &keys, records, call.now_ms);
    run_on_copies(spec, run, args, &copies, call, out)?;
    Ok(lookups)
}

/// Runs the handler on slices of its keys. All slices read copies as of one moment.
fn run_on_view(spec: &CommandSpec, run: Handler, merge: Merge, call: &mut LaneCall<'_>) {
    let (args, keyspace) = (call.args, call.keyspace);
    let all: Vec<Key<'_>> = (1..args.len()).map(|at| keyspace.key(args.at(at))).collect();
    let hashes: Vec<KeyHash> = all.iter().map(|key| key.hash).collect();
    let wanted = keyspace.view_keys(&all);
    let mut txn = call.lock(&hashes);
    let view = txn.view(call.db, wanted);
    call.now_ms = txn.now_ms();
    drop(txn);
    // EXISTS does not mark the keys as used.
    let no_touch = call.no_touch || spec.name == "exists";
    let mut merged = MergedReply::new(merge);
    for (nth, keys) in all.chunks(SLICE_ARGUMENTS).enumerate() {
        if call.cancelled() {
            break;
        }
        let records = read_records(keys, no_touch, call, |txn, key| view.read(txn, key));
        let copies = copies_of(call);
        insert_records(&copies, 0, keys, records, call.now_ms);
        let slice = slice_of(args, 1, 1, 1 + nth * SLICE_ARGUMENTS, SLICE_ARGUMENTS);
        let mut out = Chain::new();
        match run_on_copies(spec, run, slice.args(), &copies, call, &mut out) {
            Ok(lookups) => {
                call.lookups.hits += lookups.hits;
                call.lookups.misses += lookups.misses;
                merged.add(out);
            }
            Err(text) => return call.reply.error_bytes(&text),
        }
        if call.reply.part(&mut merged.encoded).exceeds_limit() {
            break;
        }
    }
    merged.send(call.reply);
}

/// Calls `read` for each key, with the keys' shards locked, and returns the results.
fn read_records<'k>(
    keys: &[Key<'_>],
    no_touch: bool,
    call: &LaneCall<'k>,
    mut read: impl FnMut(&mut Txn<'k>, &Key<'_>) -> Option<Viewed>,
) -> Vec<Option<Viewed>> {
    let hashes: SmallVec<[KeyHash; 4]> = keys.iter().map(|key| key.hash).collect();
    call.keyspace.prefetch(call.db, &keys[..keys.len().min(SLICE_ARGUMENTS)]);
    let mut txn = call.lock(&hashes);
    txn.set_no_touch(no_touch);
    let found = keys.iter().map(|key| read(&mut txn, key)).collect();
    drop(txn);
    call.pause();
    found
}

/// An empty keyspace that only this call can access.
fn copies_of(call: &mut LaneCall<'_>) -> Keyspace {
    call.keyspace.scratch(std::array::from_fn(|_| call.rng.u64(..)))
}

/// Stores each record at its key.
fn insert_records(copies: &Keyspace, db: usize, keys: &[Key<'_>], records: Vec<Option<Viewed>>, now_ms: i64) {
    let mut txn = copies.lock_shard(0, now_ms);
    for (key, record) in keys.iter().zip(records) {
        if let Some((value, expire_at_ms)) = record {
            txn.db(db).insert(&copies.key(key.bytes), value, expire_at_ms);
        }
    }
}

/// The arguments of one slice: the first `head` arguments, then at most `max` arguments starting at `from`. Groups
/// of `step` arguments stay together.
pub(crate) fn slice_of(args: Args<'_>, head: usize, step: usize, from: usize, max: usize) -> Argv {
    let mut slice = Argv::new();
    let to = (from + max / step * step).min(args.len());
    for at in (0..head).chain(from..to) {
        match args.large(at) {
            Some(blob) => slice.push_blob(blob.clone()),
            None => slice.push(args.at(at)),
        }
    }
    slice
}

/// The replies of all slices, merged to one.
pub(crate) struct MergedReply {
    merge: Merge,
    sum: i64,
    elements: usize,
    /// The elements of the replies, without the headers of their arrays.
    encoded: Chain,
}

impl MergedReply {
    pub(crate) fn new(merge: Merge) -> MergedReply {
        MergedReply { merge, sum: 0, elements: 0, encoded: Chain::new() }
    }
    pub(crate) fn add(&mut self, mut reply: Chain) {
        match self.merge {
            Merge::Sum => self.sum += header(&mut reply),
            Merge::Max => self.sum = self.sum.max(header(&mut reply)),
            Merge::Append => {
                self.elements += header(&mut reply) as usize;
                self.encoded.push_chain(reply);
            }
            Merge::Any => self.encoded = reply,
        }
    }
    pub(crate) fn send(self, reply: &mut Reply<'_>) {
        match self.merge {
            Merge::Sum | Merge::Max => return reply.int(self.sum),
            Merge::Append => reply.array(self.elements),
            Merge::Any => {}
        }
        reply.raw(self.encoded);
    }
}

/// Removes the first line of a reply, and returns the number in it.
fn header(reply: &mut Chain) -> i64 {
    let end = reply.find(b'\n', HEADER_BYTES_MAX).expect("a handler's reply begins with a line");
    let mut line = [0; HEADER_BYTES_MAX];
    reply.peek(&mut line[..=end]);
    reply.advance(end + 1);
    parse_int(&line[1..end - 1]).expect("a handler of this kind answers with a number or an array")
}

/// The commands of the group `generic` that only read the records at their keys.
const READ_RECORDS: [&str; 6] = ["exists", "expiretime", "pexpiretime", "pttl", "ttl", "type"];

/// True when the command only reads the records at its keys, so that it replies the same when it reads copies. False
/// for commands that read a key's usage (OBJECT, MEMORY) or other keys. Also false for the group `import`, because its
/// data is in the system companion, which is not copied.
pub fn reads_copies(spec: &CommandSpec) -> bool {
    let reads_values = spec.flags.has(Flags::READONLY)
        && (!matches!(spec.group, "generic" | "server" | "import") || READ_RECORDS.contains(&spec.name));
    let is_whole = matches!(
        spec.exec,
        Exec::Inline(_) | Exec::Estimated(_, _, SlowPath::View(_) | SlowPath::CopyValues)
    );
    reads_values && is_whole && !spec.keys.is_empty() && !needs_all_shards(spec)
}

/// The other commands of the group `generic` that only read and write the records at their keys.
const USE_RECORDS: [&str; 13] = [
    "copy",
    "del",
    "delif",
    "dump",
    "expire",
    "expireat",
    "persist",
    "pexpire",
    "pexpireat",
    "rename",
    "renamenx",
    "touch",
    "unlink",
];

/// True when the call only reads and writes the records at its keys. Then the call may run on copies, and the copies
/// replace the records afterwards. False for commands that read a key's usage (OBJECT, MEMORY), set a key's usage
/// (RESTORE), or use another database.
pub fn changes_copies(spec: &CommandSpec, args: Args<'_>) -> bool {
    let is_of_records = match spec.group {
        "generic" => READ_RECORDS.contains(&spec.name) || USE_RECORDS.contains(&spec.name),
        group => !matches!(group, "server" | "import"),
    };
    let stays = spec.name != "copy" || !args.skip(3).iter().any(|word| word.eq_ignore_ascii_case(b"DB"));
    is_of_records && stays && handler(spec).is_some() && !spec.keys.is_empty() && !needs_all_shards(spec)
}

/// Runs the handler on database 0 of a keyspace that only this call can access, so the handler may pause. Writes
/// the reply to `out`.
///
/// # Errors
/// The text of the error, if the reply is an error.
fn run_on_copies(
    spec: &CommandSpec,
    run: Handler,
    args: Args<'_>,
    copies: &Keyspace,
    call: &mut LaneCall<'_>,
    out: &mut Chain,
) -> Result<Lookups, ErrorText> {
    let (yield_now, cancel, now_ms) = (call.yield_now, call.cancel, call.now_ms);
    let pause = || {
        yield_now();
        !cancel.load(Ordering::Relaxed)
    };
    let keys = keys_of(spec, args, copies);
    let hashes: SmallVec<[KeyHash; 4]> = keys.iter().map(|key| key.hash).collect();
    let mut txn = copies.lock(&hashes, now_ms);
    let mut reply = call.reply.part(out).pausing(&pause);
    let (rng, rights) = (&mut *call.rng, call.rights);
    let mut one =
        Call { args, keys: &keys, db: 0, now_ms, txn: &mut txn, reply: &mut reply, rng, rights, wait: None };
    execute(spec, run, &mut one, call.client);
    let (is_error, waits) = (one.reply.error_code().is_some(), one.wait.is_some());
    let found = txn.lookups();
    if !is_error {
        call.waits |= waits;
        return Ok(found);
    }
    // A read of a value of the wrong type counts as a hit.
    call.lookups.hits += found.hits;
    call.lookups.misses += found.misses;
    Err(error_text(out))
}

/// The text of the error reply `-text\r\n` in `out`. `out` must have nothing else.
pub(crate) fn error_text(out: &Chain) -> Vec<u8> {
    let line: Vec<u8> = out.slices().flatten().copied().collect();
    line[1..].strip_suffix(b"\r\n").unwrap_or(&line[1..]).to_vec()
}

#[cfg(test)]
mod tests;
