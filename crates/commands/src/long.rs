//! Long calls of estimated commands, on a helper thread: in slices, on a snapshot, or with their shards held ([`SlowPath`]).
//!
//! All of them run the command's one handler; a family writes no second form of it. What a call may hold and for how
//! long is in `ARCHITECTURE.md`.

use crate::call::{Call, KeyRights, LaneCall};
use crate::cost::{Cost, LONG_ELEMENTS, Merge, Slices, SlowPath};
use crate::dispatch;
use crate::errors;
use crate::lookup::lookup;
use crate::run::execute;
use crate::spec::{CommandSpec, Exec};
use smallvec::SmallVec;
use std::sync::atomic::Ordering;
use strand_chain::Chain;
use strand_keyspace::types::string::parse_int;
use strand_keyspace::{Key, KeyHash, Keyspace, Lookups, Txn, Viewed};
use strand_wire::args::{Args, Argv};
use strand_wire::reply::Reply;

/// Arguments in one slice: their shards are held for some 20 us, and one slice is as atomic as a command.
pub const SLICE_ARGUMENTS: usize = 128;
/// A call on one key with so many arguments or fewer holds its shard throughout, announced: some 5 ms, as atomic as in Redis.
pub const HELD_ARGUMENTS: usize = 32 * 1024;
/// So often a call begins anew because its key has gone; then it holds its shard throughout.
const ANEW_MAX: usize = 16;
/// An integer, or an array's header.
const HEADER_BYTES_MAX: usize = 1 + 20 + 2;

/// What an estimated command runs.
type Run = fn(&mut Call<'_, '_>);

/// Runs a long call of `spec`, an estimated command.
///
/// # Panics
/// When it is of another kind.
pub fn run(spec: &'static CommandSpec, call: &mut LaneCall<'_>) {
    let (run, slow) = match spec.exec {
        // Its arguments are many for its user's rights alone.
        Exec::Inline(run) => return whole(spec, run, call),
        Exec::Estimated(run, _, slow) => (run, slow),
        _ => panic!("{} is no command on keys", spec.name),
    };
    match slow {
        SlowPath::Own(own) => own(call),
        // Not for the number of its arguments, then, but for the bytes of its reply.
        SlowPath::View(_) if call.args.len() <= LONG_ELEMENTS => snapshot(spec, run, call),
        SlowPath::View(merge) => on_view(spec, run, merge, call),
        SlowPath::Slices(slices) => in_slices(spec, run, slices, call),
        SlowPath::Snapshot => snapshot(spec, run, call),
        SlowPath::Held => whole(spec, run, call),
        SlowPath::HeldUnless(answered) => {
            if !answered(call) {
                whole(spec, run, call);
            }
        }
    }
}

/// Runs a command's handler all at once, for the command's own long form.
///
/// # Panics
/// When the handler of `name` does not run on keys.
pub(crate) fn whole_of(name: &str, call: &mut LaneCall<'_>) {
    let (spec, run) = row_of(name);
    whole(spec, run, call);
}

/// Runs a command in slices that depend on its arguments, for the command's own long form.
///
/// # Panics
/// When the handler of `name` does not run on keys.
pub(crate) fn sliced(name: &str, slices: Slices, call: &mut LaneCall<'_>) {
    let (spec, run) = row_of(name);
    in_slices(spec, run, slices, call);
}

/// The row of a command on keys, and its handler.
///
/// # Panics
/// When there is none of this name.
pub(crate) fn row_of(name: &str) -> (&'static CommandSpec, Run) {
    let row = lookup(name.as_bytes()).and_then(|spec| Some((spec, spec.exec.on_keys()?)));
    row.expect("the row of a command on keys")
}

/// The keys of a call, hashed.
pub fn keys<'a>(spec: &CommandSpec, args: Args<'a>, keyspace: &Keyspace) -> SmallVec<[Key<'a>; 4]> {
    dispatch::keys_to_lock(spec, args).iter().map(|at| keyspace.key(args.at(*at))).collect()
}

/// With the shards of all its keys held from the beginning to the end.
fn whole(spec: &CommandSpec, run: Run, call: &mut LaneCall<'_>) {
    let mut out = Chain::new();
    let done = at_once(spec, run, call.args, On::Held, call, &mut out);
    answer(call, done, out);
}

/// On a snapshot of its keys.
fn snapshot(spec: &CommandSpec, run: Run, call: &mut LaneCall<'_>) {
    let mut out = Chain::new();
    let done = on_snapshot(spec, run, call.args, call, &mut out);
    answer(call, done, out);
}

fn answer(call: &mut LaneCall<'_>, done: Result<Lookups, Stop>, out: Chain) {
    match done {
        Ok(lookups) => {
            call.lookups = lookups;
            call.reply.raw(out);
        }
        Err(stop) => call.reply.error_bytes(&stop.text()),
    }
}

/// A keyspace of the records at the keys of `args` alone is made; their shards are held for as long as it takes to clone
/// the values (which share what they are made of). The handler reads that; the reply goes to `out`.
fn on_snapshot(
    spec: &CommandSpec,
    run: Run,
    args: Args<'_>,
    call: &mut LaneCall<'_>,
    out: &mut Chain,
) -> Result<Lookups, Stop> {
    let keys = keys(spec, args, call.keyspace);
    let of_system = matches!(spec.cost(), Cost::SystemElements);
    let from = if of_system { call.keyspace.system_db(call.db) } else { call.db };
    let mut lookups = Lookups::default();
    let records = records_at(&keys, call.no_touch, call, |txn, key| {
        let mut db = txn.db(from);
        // What is read of the system is no use of a key.
        let record = if of_system { db.peek(key) } else { db.get(key) };
        let viewed = record.map(|record| (record.value().to_value(), record.expire_at_ms()));
        lookups = txn.lookups();
        viewed
    });
    let copies = copies_of(call);
    let to = if of_system { copies.system_db(0) } else { 0 };
    fill(&copies, to, &keys, records, call.now_ms);
    at_once(spec, run, args, On::Copies(&copies), call, out)?;
    Ok(lookups)
}

/// In slices of its keys, each on copies of what was there at one moment.
fn on_view(spec: &CommandSpec, run: Run, merge: Merge, call: &mut LaneCall<'_>) {
    let (args, keyspace) = (call.args, call.keyspace);
    let all: Vec<Key<'_>> = (1..args.len()).map(|at| keyspace.key(args.at(at))).collect();
    let hashes: Vec<KeyHash> = all.iter().map(|key| key.hash).collect();
    let wanted = keyspace.view_keys(&all);
    let view = call.lock(&hashes).view(call.db, wanted);
    // To ask whether a key is there is no use of the key.
    let no_touch = call.no_touch || spec.name == "exists";
    let mut merged = Merged::new(merge);
    for (nth, keys) in all.chunks(SLICE_ARGUMENTS).enumerate() {
        if call.cancelled() {
            break;
        }
        let records = records_at(keys, no_touch, call, |txn, key| view.read(txn, key));
        let copies = copies_of(call);
        fill(&copies, 0, keys, records, call.now_ms);
        let slice = slice_of(args, 1, 1 + nth * SLICE_ARGUMENTS);
        let mut out = Chain::new();
        match at_once(spec, run, slice.args(), On::Copies(&copies), call, &mut out) {
            Ok(lookups) => {
                call.lookups.hits += lookups.hits;
                call.lookups.misses += lookups.misses;
                merged.add(out);
            }
            Err(stop) => return call.reply.error_bytes(&stop.text()),
        }
        if call.reply.part(&mut merged.encoded).is_over() {
            break;
        }
    }
    merged.send(call.reply);
}

/// What `read` finds at the keys, whose shards are held for that.
fn records_at<'k>(
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

/// A keyspace that nobody else knows.
fn copies_of(call: &mut LaneCall<'_>) -> Keyspace {
    Keyspace::new(1, 1, std::array::from_fn(|_| call.rng.u64(..)))
}

/// Puts records at their keys.
fn fill(copies: &Keyspace, db: usize, keys: &[Key<'_>], records: Vec<Option<Viewed>>, now_ms: i64) {
    let mut txn = copies.lock_shard(0, now_ms);
    for (key, record) in keys.iter().zip(records) {
        if let Some((value, expire_at_ms)) = record {
            txn.db(db).insert(&copies.key(key.bytes), value, expire_at_ms);
        }
    }
}

/// As several commands on one key, one after the other. What was done stays done when a later slice fails, and all is done
/// although nobody waits for the reply, as it would have been without slices.
fn in_slices(spec: &CommandSpec, run: Run, slices: Slices, call: &mut LaneCall<'_>) {
    let Slices { head, step, merge, anew } = slices;
    let args = call.args;
    // With arguments that do not fit the handler says what is wrong, and does nothing else.
    let fit = args.len() >= head && (args.len() - head).is_multiple_of(step);
    if !fit || args.len() <= HELD_ARGUMENTS {
        return whole(spec, run, call);
    }
    let mut merged = Merged::new(merge);
    let (mut from, mut begun) = (head, 0);
    while from < args.len() {
        let slice = slice_of(args, head, from);
        let mut out = Chain::new();
        let on = if anew && from > head { On::Further } else { On::Slice };
        match at_once(spec, run, slice.args(), on, call, &mut out) {
            Ok(lookups) => {
                call.lookups.hits += lookups.hits;
                call.lookups.misses += lookups.misses;
                merged.add(out);
            }
            Err(Stop::Gone) if begun == ANEW_MAX => return whole(spec, run, call),
            Err(Stop::Gone) => {
                (merged, from, begun) = (Merged::new(merge), head, begun + 1);
                continue;
            }
            Err(stop) => return call.reply.error_bytes(&stop.text()),
        }
        if call.reply.part(&mut merged.encoded).is_over() {
            break;
        }
        from += SLICE_ARGUMENTS / step * step;
        call.pause();
    }
    merged.send(call.reply);
}

/// The arguments of one slice: the head, and those from `from` on.
fn slice_of(args: Args<'_>, head: usize, from: usize) -> Argv {
    let mut slice = Argv::new();
    let to = (from + SLICE_ARGUMENTS).min(args.len());
    for at in (0..head).chain(from..to) {
        match args.large(at) {
            Some(blob) => slice.push_blob(blob.clone()),
            None => slice.push(args.at(at)),
        }
    }
    slice
}

/// Replies of slices, put together.
struct Merged {
    merge: Merge,
    sum: i64,
    elements: usize,
    /// Without the arrays' headers.
    encoded: Chain,
}

impl Merged {
    fn new(merge: Merge) -> Merged {
        Merged { merge, sum: 0, elements: 0, encoded: Chain::new() }
    }
    fn add(&mut self, mut reply: Chain) {
        match self.merge {
            Merge::Sum => self.sum += header(&mut reply),
            Merge::Most => self.sum = self.sum.max(header(&mut reply)),
            Merge::Append => {
                self.elements += header(&mut reply) as usize;
                self.encoded.push_chain(reply);
            }
            Merge::Any => self.encoded = reply,
        }
    }
    fn send(self, reply: &mut Reply<'_>) {
        match self.merge {
            Merge::Sum | Merge::Most => return reply.int(self.sum),
            Merge::Append => reply.array(self.elements),
            Merge::Any => {}
        }
        reply.raw(self.encoded);
    }
}

/// Takes the first line off a reply: the number in it.
fn header(reply: &mut Chain) -> i64 {
    let end = reply.find(b'\n', HEADER_BYTES_MAX).expect("a handler's reply begins with a line");
    let mut line = [0; HEADER_BYTES_MAX];
    reply.peek(&mut line[..=end]);
    reply.advance(end + 1);
    parse_int(&line[1..end - 1]).expect("a handler of this kind answers with a number or an array")
}

/// What a handler runs on.
#[derive(Clone, Copy)]
enum On<'k> {
    /// The data, for a short time.
    Slice,
    /// The same, if there is something at the key.
    Further,
    /// The data, for long.
    Held,
    /// Database 0 of a keyspace that nobody else knows: it may pause with its shards held.
    Copies(&'k Keyspace),
}

/// Why a handler is done before its time.
enum Stop {
    /// The text of its error reply.
    Error(Vec<u8>),
    /// There is nothing at the key ([`On::Further`]).
    Gone,
}

impl Stop {
    fn text(self) -> Vec<u8> {
        match self {
            Stop::Error(text) => text,
            Stop::Gone => errors::NO_SUCH_KEY.into(),
        }
    }
}

/// Runs the handler on `args` at once, with the shards of its keys held; the reply goes to `out`.
fn at_once(
    spec: &CommandSpec,
    run: Run,
    args: Args<'_>,
    on: On<'_>,
    call: &mut LaneCall<'_>,
    out: &mut Chain,
) -> Result<Lookups, Stop> {
    let (keyspace, db) = match on {
        On::Copies(copies) => (copies, 0),
        On::Slice | On::Further | On::Held => (call.keyspace, call.db),
    };
    let keys = keys(spec, args, keyspace);
    let hashes: SmallVec<[KeyHash; 4]> = keys.iter().map(|k| k.hash).collect();
    let (yield_now, cancel) = (call.yield_now, call.cancel);
    let pause = || {
        yield_now();
        !cancel.load(Ordering::Relaxed)
    };
    let mut reply = call.reply.part(out);
    if let On::Copies(_) = on {
        reply = reply.pausing(&pause);
    }
    if keys.len() <= SLICE_ARGUMENTS {
        keyspace.prefetch(db, &keys);
    }
    let (now_ms, no_touch, client, rights) = (call.now_ms, call.no_touch, call.client, call.rights);
    let held = || match matches!(on, On::Held) && !keys.is_empty() {
        true => call.hold(&hashes),
        false => call.lock(&hashes),
    };
    let held = if matches!(on, On::Copies(_)) { None } else { Some(held()) };
    let (rng, reply) = (&mut *call.rng, &mut reply);
    let ready = Ready { args, keys: &keys, db, now_ms, reply, rng, rights };
    let (done, waits) = match (on, held) {
        (On::Copies(copies), _) => once(spec, run, ready.on(&mut copies.lock(&hashes, now_ms)), client),
        (_, Some(mut txn)) => {
            txn.set_no_touch(no_touch);
            if matches!(on, On::Further) && txn.db(db).peek(&keys[0]).is_none() {
                return Err(Stop::Gone);
            }
            once(spec, run, ready.on(&mut txn), client)
        }
        (On::Slice | On::Further | On::Held, None) => unreachable!("its shards were locked"),
    };
    call.waits |= waits;
    if let Some(done) = done {
        return done;
    }
    Err(Stop::Error(error_text(out)))
}

/// The text of an error reply, which is the whole of `out`: `-text\r\n`.
pub(crate) fn error_text(out: &Chain) -> Vec<u8> {
    let line: Vec<u8> = out.slices().flatten().copied().collect();
    line[1..].trim_ascii_end().to_vec()
}

/// A call that lacks its transaction.
struct Ready<'a> {
    args: Args<'a>,
    keys: &'a [Key<'a>],
    db: usize,
    now_ms: i64,
    reply: &'a mut Reply<'a>,
    rng: &'a mut fastrand::Rng,
    rights: Option<&'a dyn KeyRights>,
}

impl<'a> Ready<'a> {
    fn on<'k>(self, txn: &'a mut Txn<'k>) -> Call<'a, 'k> {
        let Ready { args, keys, db, now_ms, reply, rng, rights } = self;
        Call { args, keys, db, now_ms, txn, reply, rng, rights, wait: None }
    }
}

/// Runs the handler; `None` when it answered with an error. Then whether it found nothing and would wait.
fn once(
    spec: &CommandSpec,
    run: Run,
    mut call: Call<'_, '_>,
    client: u64,
) -> (Option<Result<Lookups, Stop>>, bool) {
    execute(spec, run, &mut call, client);
    let waits = call.wait.is_some();
    (call.reply.error_code().is_none().then(|| Ok(call.txn.lookups())), waits)
}

#[cfg(test)]
mod tests;
