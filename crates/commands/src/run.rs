//! Running commands on a transaction that holds their shards.
//!
//! [`execute`] is the one way to a handler. [`whole`] and [`once`] find the keys and run a command to its end: inside EXEC,
//! in scripts, and for clients that wait. A command that runs alone may be long: the session (`engine`) classifies the command
//! first, and [`crate::long`] has the slow paths.

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
    /// The database that is selected.
    pub db: usize,
    /// How replies are written.
    pub protocol: Protocol,
    /// Most bytes of replies that may be in `out`; what is longer is cut, and the client closed.
    pub reply_bytes_max: usize,
    /// Randomness.
    pub rng: &'a mut fastrand::Rng,
    /// As [`Call::rights`].
    pub rights: Option<&'a dyn KeyRights>,
    /// Whose command it is: the client's id, 0 for none.
    pub client: u64,
}

/// What came of a command.
#[derive(Debug)]
pub struct Ran {
    /// When the reply is an error, its code.
    pub error: Option<Vec<u8>>,
    /// What a blocking command would wait for that has found nothing; its reply says only that.
    pub wait: Option<Wait>,
    /// The reply is cut: it is longer than it may be.
    pub is_over: bool,
}

/// How a command runs whole; `None`: it cannot.
pub fn handler(spec: &CommandSpec) -> Option<fn(&mut Call<'_, '_>)> {
    spec.whole.or(spec.exec.on_keys())
}

/// Runs a handler: the one way in which a command meets data. The shards that it needs are held. `client` is the client's id, 0
/// for none.
#[inline]
pub fn execute<'a>(spec: &CommandSpec, run: fn(&mut Call<'_, '_>), call: &mut Call<'a, '_>, client: u64) {
    // The only branch while nobody listens.
    if !call.txn.listens() {
        return run(call);
    }
    events::begin(spec, call.txn, client);
    run(call);
    end(call.txn, call.db, call.args);
}

/// A command has run: unless it said what its effect is, that is the command as it was sent.
pub(crate) fn end(txn: &mut Txn<'_>, db: usize, args: Args<'_>) {
    txn.end_command(db, || match args.encoded() {
        // One copy in place of a header and a copy for each argument.
        Some(bytes) => Sent::Encoded(args.len(), bytes),
        None => Sent::Args((0..args.len()).map(|at| arg(args, at))),
    });
}

/// A long command, encoded as its own effect before any shard is held: that takes as long as the arguments are.
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
    /// Makes it the effect of what `txn` is about to change.
    pub(crate) fn give(self, call: &LaneCall<'a>, txn: &mut Txn<'_>) {
        match self.0.is_recorded() && !txn.has_effects() {
            true => txn.take_effects_of(self.0),
            // Recording has begun since, or the key had expired.
            false => say_arguments(call, txn),
        }
    }
}

/// The effect is the command as it was sent.
fn say_arguments(call: &LaneCall<'_>, txn: &mut Txn<'_>) {
    let words: Vec<Arg<'_>> = (0..call.args.len()).map(|at| arg(call.args, at)).collect();
    txn.effect(call.db, &words);
}

/// An argument, as a part of an effect.
pub(crate) fn arg(args: Args<'_>, at: usize) -> Arg<'_> {
    args.large(at).map_or(Arg::Bytes(args.at(at)), Arg::Blob)
}

/// True when the command needs more shards than those of the keys that its key specs find: every shard, then.
pub fn needs_all_shards(spec: &CommandSpec) -> bool {
    handler(spec).is_some() && (spec.keys.is_empty() || spec.keys.iter().any(KeySpec::has_hidden_keys))
}

/// Runs a command from its beginning to its end, however long it is; the reply is added to `out`. When the reply is an
/// error, its code.
///
/// # Panics
/// When the command has no [`handler`], or a shard that it needs is not held by `txn`.
pub fn whole(
    spec: &CommandSpec,
    args: Args<'_>,
    txn: &mut Txn<'_>,
    out: &mut Chain,
    context: Context<'_>,
) -> Option<Vec<u8>> {
    once(spec, args, txn, out, context).error
}

/// As [`whole`], for a caller that can wait.
///
/// # Panics
/// As [`whole`].
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

/// As [`once`], for a caller that has the command's [`keys_of`] already.
///
/// # Panics
/// As [`whole`].
pub fn on_keys(
    spec: &CommandSpec,
    args: Args<'_>,
    keys: &[Key<'_>],
    txn: &mut Txn<'_>,
    out: &mut Chain,
    context: Context<'_>,
) -> Ran {
    let run = handler(spec).expect("the command was queued, so that it has a handler");
    let now_ms = txn.now_ms();
    let mut reply = Reply::bounded(out, context.protocol, context.reply_bytes_max);
    let (reply, rng, rights) = (&mut reply, context.rng, context.rights);
    let mut call = Call { args, keys, db: context.db, now_ms, txn, reply, rng, rights, wait: None };
    execute(spec, run, &mut call, context.client);
    let error = call.reply.error_code().map(<[u8]>::to_vec);
    Ran { error, is_over: call.reply.is_over(), wait: call.wait }
}
