//! Long writes that a command's ordinary handler does on a copy. The handler changes a copy of the value while no
//! shard is locked, and then the copy replaces the value ([`crate::optimistic`]). So LPOP of a million elements and
//! HSET of a million fields are each one write, and no other client waits for them.

use crate::call::{Call, LaneCall};
use crate::cost::Slices;
use crate::long::{self, Handler, MergedReply};
use crate::optimistic::{OptimisticWrite, PAUSE_WRITES, apply};
use crate::parse::Text;
use crate::run::keys_of;
use crate::spec::CommandSpec;
use smallvec::SmallVec;
use std::cell::RefCell;
use strand_chain::Chain;
use strand_keyspace::journal::Arg;
use strand_keyspace::{Db, Key, KeyEvent, KeyHash, Keyspace, Value};
use strand_wire::args::Args;
use strand_wire::reply::{Protocol, Reply};

/// Maximum number of arguments of a call that runs at once, with its shard locked under an announced long lock:
/// about 5 ms. A call with more arguments runs in slices on a copy.
pub const LOCKED_ARGUMENTS_MAX: usize = 32 * 1024;

/// The event name and the effect of a change, for a command for which they differ from the command's own.
pub(crate) struct ChangeReport<'a> {
    /// The event for listeners. `None`: the command's own event.
    pub(crate) event: Option<KeyEvent>,
    /// The effect of the command on this value. `None`: the command as the client sent it.
    pub(crate) effect: &'a dyn Fn(&Value) -> Option<KeyEffect>,
}

/// An effect on one key. The key is the first argument of the command.
pub(crate) struct KeyEffect {
    /// The name of the command.
    pub(crate) command: &'static [u8],
    /// The arguments after the key.
    pub(crate) arguments: Vec<String>,
}

impl KeyEffect {
    /// Records the effect.
    pub(crate) fn record(&self, db: &mut Db<'_, '_>, key: &[u8]) {
        let mut words = vec![self.command.into(), Arg::Bytes(key)];
        words.extend(self.arguments.iter().map(|word| Arg::Bytes(word.as_bytes())));
        db.effect(&words);
    }
}

/// Runs a command that changes the value at the first of its keys that exists.
pub(crate) fn run(
    spec: &CommandSpec,
    run: Handler,
    call: &mut LaneCall<'_>,
    report: Option<ChangeReport<'_>>,
) {
    change(spec, run, call, report, None);
}

/// Runs a command on one key, slice by slice. The handler of a slice sees the changes of the slices before. Other
/// clients see all changes at once, after the last slice. If a slice fails, there are no changes.
pub(crate) fn run_in_slices(spec: &CommandSpec, run: Handler, slices: Slices, call: &mut LaneCall<'_>) {
    let arguments = call.args.len();
    // If the number of arguments is wrong, the handler just replies with an error.
    let fit = arguments >= slices.head && (arguments - slices.head).is_multiple_of(slices.step);
    match fit && arguments > LOCKED_ARGUMENTS_MAX {
        true => change(spec, run, call, None, Some(slices)),
        false => long::run_locked(spec, run, call),
    }
}

fn change(
    spec: &CommandSpec,
    run: Handler,
    call: &mut LaneCall<'_>,
    report: Option<ChangeReport<'_>>,
    slices: Option<Slices>,
) {
    let keys = keys_of(spec, call.args, call.keyspace);
    let hashes: SmallVec<[KeyHash; 4]> = keys.iter().map(|key| key.hash).collect();
    let mut changing = CopyWrite {
        args: call.args,
        keyspace: call.keyspace,
        keys,
        run,
        report,
        slices,
        protocol: call.reply.protocol(),
        reply_bytes_max: call.reply.room_left(),
        rng: call.rng.fork(),
        now_ms: call.now_ms,
        replaced: RefCell::default(),
    };
    let done = apply(call, &hashes, &mut changing);
    if let Some(replaced) = changing.replaced.take() {
        call.keyspace.dispose(replaced);
    }
    match done {
        Ok(Some(copied)) => call.reply.raw(copied.reply),
        // When no key exists, the handler replies with an error or waits, which is cheap.
        Ok(None) => long::run_locked(spec, run, call),
        Err(text) => call.reply.error(&text),
    }
}

/// A command that runs on a copy.
struct CopyWrite<'a> {
    args: Args<'a>,
    keyspace: &'a Keyspace,
    keys: SmallVec<[Key<'a>; 4]>,
    run: Handler,
    report: Option<ChangeReport<'a>>,
    slices: Option<Slices>,
    protocol: Protocol,
    reply_bytes_max: usize,
    rng: fastrand::Rng,
    now_ms: i64,
    /// The former value at the key. It is freed while no shard is locked.
    replaced: RefCell<Option<Value>>,
}

/// What the handler has done on the copy.
struct CopyResult {
    reply: Chain,
    /// The index of the changed key among the keys, and the key's new value. `None` when nothing changed.
    changed: Option<(usize, Value)>,
    /// The effect, if it is not the command as the client sent it.
    effect: Option<KeyEffect>,
}

impl OptimisticWrite for CopyWrite<'_> {
    /// The value at the first key that exists, and the index of that key among the keys. `None` when no key exists.
    type Source = Option<(usize, Value)>;
    /// `None`: no key exists, so the handler did not run on a copy.
    type Outcome = Option<CopyResult>;

    fn database(&self, keyspace: &Keyspace, selected: usize) -> usize {
        match self.slices {
            Some(Slices { of_system: true, .. }) => keyspace.system_db(selected),
            Some(_) | None => selected,
        }
    }
    fn read(&self, db: &mut Db<'_, '_>) -> Result<Option<(usize, Value)>, Text> {
        let found = |(at, key)| db.peek(key).map(|record| (at, record.value().to_value()));
        Ok(self.keys.iter().enumerate().find_map(found))
    }
    fn is_same(&self, before: &Option<(usize, Value)>, now: &Option<(usize, Value)>) -> bool {
        match (before, now) {
            (Some((at, before)), Some((now_at, now))) => at == now_at && now.is_unchanged(before),
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        }
    }
    fn compute(
        &mut self,
        source: &Option<(usize, Value)>,
        pause: &dyn Fn(),
    ) -> Result<Option<CopyResult>, Text> {
        if source.is_none() && self.slices.is_none() {
            return Ok(None);
        }
        let copies = self.keyspace.scratch(std::array::from_fn(|_| self.rng.u64(..)));
        let db = self.database(&copies, 0);
        let keys: SmallVec<[Key<'_>; 4]> = self.keys.iter().map(|key| copies.key(key.bytes)).collect();
        let at = source.as_ref().map_or(0, |(at, _)| *at);
        if let Some((_, value)) = source {
            copies.lock_shard(0, self.now_ms).db(db).insert(&keys[at], value.clone(), None);
        }
        let before = copies.changes();
        let reply = match self.slices {
            None => self.run_on(&copies, &keys, self.args, pause)?,
            Some(Slices { head, step, merge, .. }) => {
                let mut merged = MergedReply::new(merge);
                for from in (head..self.args.len()).step_by(PAUSE_WRITES / step * step) {
                    let slice = long::slice_of(self.args, head, step, from, PAUSE_WRITES);
                    merged.add(self.run_on(&copies, &keys, slice.args(), pause)?);
                    pause();
                }
                let mut out = Chain::new();
                merged.send(&mut Reply::bounded(&mut out, self.protocol, self.reply_bytes_max));
                out
            }
        };
        if copies.changes() == before {
            return Ok(Some(CopyResult { reply, changed: None, effect: None }));
        }
        let after =
            copies.lock_shard(0, self.now_ms).db(db).peek(&keys[at]).map(|record| record.value().to_value());
        let after = after.or_else(|| source.as_ref().map(|(_, value)| value.emptied()));
        let effect = match (&self.report, source) {
            (Some(report), Some((_, before))) => (report.effect)(before),
            (Some(_), None) | (None, _) => None,
        };
        Ok(Some(CopyResult { reply, changed: after.map(|after| (at, after)), effect }))
    }
    fn is_verbatim(&self, copied: &Option<CopyResult>) -> bool {
        self.slices.is_some() && copied.as_ref().is_some_and(|copied| copied.changed.is_some())
    }
    fn store(&self, db: &mut Db<'_, '_>, copied: &Option<CopyResult>) {
        let Some(CopyResult { changed: Some((at, changed)), effect, .. }) = copied else { return };
        if let Some(event) = self.report.as_ref().and_then(|report| report.event) {
            db.set_event(event);
        }
        let key = &self.keys[*at];
        *self.replaced.borrow_mut() = db.replace(key, changed.clone()).ok().flatten();
        if let (Some(effect), true) = (effect, db.is_recorded()) {
            effect.record(db, key.bytes);
        }
    }
}

impl CopyWrite<'_> {
    /// Runs the handler on the keyspace of copies. Returns its reply.
    fn run_on(
        &mut self,
        copies: &Keyspace,
        keys: &[Key<'_>],
        args: Args<'_>,
        pause: &dyn Fn(),
    ) -> Result<Chain, Text> {
        let mut out = Chain::new();
        let go_on = || {
            pause();
            true
        };
        let mut reply = Reply::bounded(&mut out, self.protocol, self.reply_bytes_max).pausing(&go_on);
        let mut call = Call {
            args,
            keys,
            db: 0,
            now_ms: self.now_ms,
            txn: &mut copies.lock_shard(0, self.now_ms),
            reply: &mut reply,
            rng: &mut self.rng,
            rights: None,
            wait: None,
        };
        // The keyspace of copies has no listener. `store` reports the event and records the effect.
        (self.run)(&mut call);
        match call.reply.error_code() {
            Some(_) => Err(String::from_utf8_lossy(&long::error_text(&out)).into_owned().into()),
            None => Ok(out),
        }
    }
}
