//! Runs commands on a transaction that holds their shards.
//!
//! [`execute`] runs all handlers, except handlers that run on a copy ([`crate::copy_write`]). [`to_end`] also finds the
//! keys and runs a command to its end, in EXEC and in scripts. [`with_keys`] does so for clients that wait. Before
//! any other command, the session (`engine`) decides whether the command is long. [`crate::long`] runs long commands.

use crate::call::{Call, KeyRights, LaneCall};
use crate::dispatch;
use crate::events;
use crate::families::import_version;
use crate::spec::{CommandSpec, KeySpec};
use crate::wait::Wait;
use smallvec::SmallVec;
use strand_chain::Chain;
use strand_keyspace::journal::{Arg, SentArgs};
use strand_keyspace::{Key, Keyspace, Txn};
use strand_wire::args::Args;
use strand_wire::reply::{Protocol, Reply};

/// What a command needs besides the transaction.
pub struct Context<'a> {
    /// The selected database.
    pub db: usize,
    /// The protocol of replies.
    pub protocol: Protocol,
    /// Maximum number of bytes of replies in `out`. A longer reply is cut, and the client is disconnected.
    pub reply_bytes_max: usize,
    /// The source of random numbers.
    pub rng: &'a mut fastrand::Rng,
    /// The user's rights to keys that the key specs do not find: see [`Call::rights`].
    pub rights: Option<&'a dyn KeyRights>,
    /// The client's id; 0 when no client runs the command.
    pub client: u64,
}

/// The outcome of a command.
#[derive(Debug)]
pub struct CommandOutcome {
    /// If the reply is an error: its code.
    pub error: Option<Vec<u8>>,
    /// If a blocking command found nothing: what it would wait for. The reply then says only that nothing was
    /// found.
    pub wait: Option<Wait>,
    /// True when the reply was cut, because it was too long.
    pub is_over: bool,
}

/// The handler that runs the command from beginning to end. `None` when the command has none.
pub fn handler(spec: &CommandSpec) -> Option<fn(&mut Call<'_, '_>)> {
    spec.in_exec.or(spec.exec.on_keys())
}

/// Runs a handler as one command: its changes get the command's event name, and the command's effect is recorded.
/// The shards that the command needs must be locked. `client` is the client's id; 0 when no client runs the
/// command.
#[inline]
pub fn execute<'a>(spec: &CommandSpec, run: fn(&mut Call<'_, '_>), call: &mut Call<'a, '_>, client: u64) {
    // Without a listener and a journal, this branch is the only cost.
    if !call.txn.listens() {
        return run(call);
    }
    events::begin(spec, call.txn, client);
    run(call);
    end(call.txn, call.db, call.args);
}

/// Ends a command. If its handler recorded no effect, the command as the client sent it is the effect.
pub(crate) fn end(txn: &mut Txn<'_>, db: usize, args: Args<'_>) {
    txn.end_command(db, || match args.encoded() {
        // The arguments are encoded already: copy them at once, instead of a header and a copy per argument.
        Some(bytes) => SentArgs::Encoded(args.len(), bytes),
        None => SentArgs::Args((0..args.len()).map(|at| arg(args, at))),
    });
}

/// The effect of a long command, encoded before a shard is locked, because encoding takes as long as copying the
/// arguments.
pub(crate) struct PreparedEffect<'a> {
    encoded: Txn<'a>,
    record: Box<dyn Fn(&mut Txn<'_>) + 'a>,
}

impl<'a> PreparedEffect<'a> {
    /// The effect is the command as the client sent it.
    pub(crate) fn new(call: &LaneCall<'a>) -> PreparedEffect<'a> {
        let (db, args) = (call.db, call.args);
        let is_import = call.spec.is_some_and(|spec| spec.group == "import");
        PreparedEffect::with(call, move |txn| {
            if is_import {
                return import_version::record_words(txn, db, &args.iter().collect::<Vec<_>>());
            }
            let words: Vec<Arg<'_>> = (0..args.len()).map(|at| arg(args, at)).collect();
            txn.effect(db, &words);
        })
    }
    /// The effect is what `record` records. Nothing is encoded if changes are not recorded.
    pub(crate) fn with(call: &LaneCall<'a>, record: impl Fn(&mut Txn<'_>) + 'a) -> PreparedEffect<'a> {
        let mut encoded = call.keyspace.unlocked(call.now_ms);
        call.begin(&mut encoded);
        if encoded.is_recorded() {
            record(&mut encoded);
        }
        PreparedEffect { encoded, record: Box::new(record) }
    }
    /// Makes this the effect of the changes that `txn` is about to make.
    pub(crate) fn record_in(mut self, txn: &mut Txn<'_>) {
        // `record` would list a million arguments for nothing, while the shards are held: 15 to 30 ms.
        if !txn.is_recorded() {
            return;
        }
        match self.encoded.is_recorded() && !txn.has_effects() {
            true => txn.take_effects_of(&mut self.encoded),
            // Recording began after the encoding, or a key of the command had expired, which is an effect already.
            false => (self.record)(txn),
        }
    }
}

impl Drop for PreparedEffect<'_> {
    /// A transaction that is dropped records its effects. An effect that was only prepared has not happened.
    fn drop(&mut self) {
        self.encoded.forget();
    }
}

/// One argument, in the form that effects consist of.
pub(crate) fn arg(args: Args<'_>, at: usize) -> Arg<'_> {
    args.large(at).map_or(Arg::Bytes(args.at(at)), Arg::Blob)
}

/// True when the command needs all shards, because its key specs do not find all its keys.
pub fn needs_all_shards(spec: &CommandSpec) -> bool {
    handler(spec).is_some() && (spec.keys.is_empty() || spec.keys.iter().any(KeySpec::has_hidden_keys))
}

/// True when the command depends on which keys a database has: KEYS, SCAN, DBSIZE and similar commands. In a transaction it
/// must see what was promised ([`Txn::carry_out_all_promises`]), as look-ups of keys do.
pub fn reads_all_keys(spec: &CommandSpec) -> bool {
    handler(spec).is_some() && spec.keys.is_empty()
}

/// Runs a command from beginning to end, however long it takes. Adds the reply to `out`. If the reply is an error,
/// returns its code.
///
/// # Panics
/// Panics if the command has no [`handler`], or when `txn` does not hold a shard that the command needs.
pub fn to_end(
    spec: &CommandSpec,
    args: Args<'_>,
    txn: &mut Txn<'_>,
    out: &mut Chain,
    context: Context<'_>,
) -> Option<Vec<u8>> {
    let keys = keys_of(spec, args, txn.keyspace());
    with_keys(spec, args, &keys, txn, out, context).error
}

/// The keys that the key specs of a command find, with their hashes.
pub fn keys_of<'a>(spec: &CommandSpec, args: Args<'a>, keyspace: &Keyspace) -> SmallVec<[Key<'a>; 4]> {
    dispatch::keys_to_lock(spec, args).iter().map(|at| keyspace.key(args.at(*at))).collect()
}

/// Like [`to_end`], for a caller that has the command's [`keys_of`] already. The outcome also says what a blocking command
/// would wait for.
///
/// # Panics
/// Like [`to_end`].
pub fn with_keys(
    spec: &CommandSpec,
    args: Args<'_>,
    keys: &[Key<'_>],
    txn: &mut Txn<'_>,
    out: &mut Chain,
    context: Context<'_>,
) -> CommandOutcome {
    let mut reply = Reply::bounded(out, context.protocol, context.reply_bytes_max);
    into_reply(spec, args, keys, txn, &mut reply, context)
}

/// Like [`with_keys`], for a caller that holds nothing for which others wait. A handler that may take long calls
/// `pause` now and then. If `pause` returns false, a command that only reads ends early.
///
/// # Panics
/// Like [`to_end`].
pub fn with_pauses(
    spec: &CommandSpec,
    args: Args<'_>,
    txn: &mut Txn<'_>,
    out: &mut Chain,
    pause: &dyn Fn() -> bool,
    context: Context<'_>,
) -> CommandOutcome {
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
) -> CommandOutcome {
    let run = handler(spec).expect("the command was queued, so that it has a handler");
    if reads_all_keys(spec) {
        txn.carry_out_all_promises();
    }
    let now_ms = txn.now_ms();
    let (rng, rights) = (context.rng, context.rights);
    let mut call = Call { args, keys, db: context.db, now_ms, txn, reply, rng, rights, wait: None };
    execute(spec, run, &mut call, context.client);
    let error = call.reply.error_code().map(<[u8]>::to_vec);
    CommandOutcome { error, is_over: call.reply.exceeds_limit(), wait: call.wait }
}
