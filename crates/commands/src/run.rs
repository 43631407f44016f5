//! Runs commands on a transaction that holds their shards.
//!
//! [`execute`] is the only way to a handler. [`whole`] and [`once`] find the keys and run a command to its end: inside
//! EXEC, in scripts, and for clients that waited. A command that runs alone may be long: the session (`engine`) decides
//! that first, and [`crate::long`] runs it.

use crate::call::{Call, KeyRights, LaneCall};
use crate::dispatch;
use crate::events;
use crate::spec::{CommandSpec, KeySpec};
use crate::wait::Wait;
use smallvec::SmallVec;
use strand_chain::Chain;
use strand_keyspace::journal::{Arg, Sent};
use strand_keyspace::{Key, Keyspace, Txn};
use strand_wire::args::Args;
use strand_wire::reply::{Protocol, Reply};

/// What running a command needs besides the transaction.
pub struct Context<'a> {
    /// The selected database.
    pub db: usize,
    /// How replies are written.
    pub protocol: Protocol,
    /// Most bytes of replies that `out` may hold. A longer reply is cut, and the client is closed.
    pub reply_bytes_max: usize,
    /// Randomness.
    pub rng: &'a mut fastrand::Rng,
    /// Like [`Call::rights`].
    pub rights: Option<&'a dyn KeyRights>,
    /// The client's id, 0 for none.
    pub client: u64,
}

/// The outcome of a command.
#[derive(Debug)]
pub struct Ran {
    /// The code of the reply, if the reply is an error.
    pub error: Option<Vec<u8>>,
    /// What a blocking command would wait for, if it found nothing. Its reply then says only that it found nothing.
    pub wait: Option<Wait>,
    /// The reply was cut, because it is longer than it may be.
    pub is_over: bool,
}

/// The handler that runs the command whole. `None` when the command cannot run whole.
pub fn handler(spec: &CommandSpec) -> Option<fn(&mut Call<'_, '_>)> {
    spec.whole.or(spec.exec.on_keys())
}

/// Runs a handler. Commands reach data only through this function. The shards that the command needs must be locked.
/// `client` is the client's id, 0 for none.
#[inline]
pub fn execute<'a>(spec: &CommandSpec, run: fn(&mut Call<'_, '_>), call: &mut Call<'a, '_>, client: u64) {
    // While nobody listens, this branch is the only cost.
    if !call.txn.listens() {
        return run(call);
    }
    events::begin(spec, call.txn, client);
    run(call);
    end(call.txn, call.db, call.args);
}

/// Ends a command. If its handler recorded no effect, the command as it was sent is the effect.
pub(crate) fn end(txn: &mut Txn<'_>, db: usize, args: Args<'_>) {
    txn.end_command(db, || match args.encoded() {
        // One copy instead of a header and a copy for each argument.
        Some(bytes) => Sent::Encoded(args.len(), bytes),
        None => Sent::Args((0..args.len()).map(|at| arg(args, at))),
    });
}

/// A long command, encoded as its own effect before any shard is locked, because encoding takes as long as copying the
/// arguments.
pub(crate) struct Prepared<'a>(Txn<'a>);

impl<'a> Prepared<'a> {
    /// Encodes the command, if changes are recorded.
    pub(crate) fn new(call: &LaneCall<'a>) -> Prepared<'a> {
        let mut encoded = call.keyspace.unlocked(call.now_ms);
        call.begin(&mut encoded);
        if encoded.is_recorded() {
            say_arguments(call, &mut encoded);
        }
        Prepared(encoded)
    }
    /// Makes the encoded command the effect of the changes that `txn` is about to make.
    pub(crate) fn give(mut self, call: &LaneCall<'a>, txn: &mut Txn<'_>) {
        match self.0.is_recorded() && txn.is_recorded() && !txn.has_effects() {
            true => txn.take_effects_of(&mut self.0),
            // Recording has begun since the encoding, or the key had expired.
            false => say_arguments(call, txn),
        }
    }
}

/// Makes the command as it was sent the effect.
fn say_arguments(call: &LaneCall<'_>, txn: &mut Txn<'_>) {
    let words: Vec<Arg<'_>> = (0..call.args.len()).map(|at| arg(call.args, at)).collect();
    txn.effect(call.db, &words);
}

/// An argument, as a part of an effect.
pub(crate) fn arg(args: Args<'_>, at: usize) -> Arg<'_> {
    args.large(at).map_or(Arg::Bytes(args.at(at)), Arg::Blob)
}

/// True when the command needs every shard, not only those of the keys that its key specs find.
pub fn needs_all_shards(spec: &CommandSpec) -> bool {
    handler(spec).is_some() && (spec.keys.is_empty() || spec.keys.iter().any(KeySpec::has_hidden_keys))
}

/// Runs a command from beginning to end, however long it takes. Adds the reply to `out`. Returns the error code when
/// the reply is an error.
///
/// # Panics
/// When the command has no [`handler`], or `txn` does not hold a shard that the command needs.
pub fn whole(
    spec: &CommandSpec,
    args: Args<'_>,
    txn: &mut Txn<'_>,
    out: &mut Chain,
    context: Context<'_>,
) -> Option<Vec<u8>> {
    once(spec, args, txn, out, context).error
}

/// Like [`whole`], for a caller that can wait.
///
/// # Panics
/// Like [`whole`].
pub fn once(
    spec: &CommandSpec,
    args: Args<'_>,
    txn: &mut Txn<'_>,
    out: &mut Chain,
    context: Context<'_>,
) -> Ran {
    let keys = keys_of(spec, args, txn.keyspace());
    on_keys(spec, args, &keys, txn, out, context)
}

/// The keys that the key specs of a command find, hashed.
pub fn keys_of<'a>(spec: &CommandSpec, args: Args<'a>, keyspace: &Keyspace) -> SmallVec<[Key<'a>; 4]> {
    dispatch::keys_to_lock(spec, args).iter().map(|at| keyspace.key(args.at(*at))).collect()
}

/// Like [`once`], for a caller that already has the command's [`keys_of`].
///
/// # Panics
/// Like [`whole`].
pub fn on_keys(
    spec: &CommandSpec,
    args: Args<'_>,
    keys: &[Key<'_>],
    txn: &mut Txn<'_>,
    out: &mut Chain,
    context: Context<'_>,
) -> Ran {
    let mut reply = Reply::bounded(out, context.protocol, context.reply_bytes_max);
    into_reply(spec, args, keys, txn, &mut reply, context)
}

/// As [`whole`], for a caller that holds nothing that others wait for: a handler that may take long calls `pause` now
/// and then, and ends early when a command that only reads is told false.
///
/// # Panics
/// As [`whole`].
pub fn pausing(
    spec: &CommandSpec,
    args: Args<'_>,
    txn: &mut Txn<'_>,
    out: &mut Chain,
    pause: &dyn Fn() -> bool,
    context: Context<'_>,
) -> Ran {
    let keys = keys_of(spec, args, txn.keyspace());
    let mut reply = Reply::bounded(out, context.protocol, context.reply_bytes_max).pausing(pause);
    into_reply(spec, args, &keys, txn, &mut reply, context)
}

fn into_reply<'a>(
    spec: &CommandSpec,
    args: Args<'a>,
    keys: &'a [Key<'a>],
    txn: &'a mut Txn<'_>,
    reply: &'a mut Reply<'a>,
    context: Context<'a>,
) -> Ran {
    let run = handler(spec).expect("the command was queued, so that it has a handler");
    let now_ms = txn.now_ms();
    let (rng, rights) = (context.rng, context.rights);
    let mut call = Call { args, keys, db: context.db, now_ms, txn, reply, rng, rights, wait: None };
    execute(spec, run, &mut call, context.client);
    let error = call.reply.error_code().map(<[u8]>::to_vec);
    Ran { error, is_over: call.reply.is_over(), wait: call.wait }
}
