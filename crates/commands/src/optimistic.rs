//! [`apply`]: a long write whose result is computed with nothing held.
//!
//! What the result depends on is cloned (large values share their parts, so that costs little), the result is computed, and
//! it is stored if nothing of that was written meanwhile: the command is as atomic as in redis-server, and nobody waits for
//! the computing. Where something was written all begins anew; after some tries the shards are held, announced.
//! [`on_copy`] does that with the ordinary handler of a command that changes one collection.

use crate::call::{Call, LaneCall};
use crate::long;
use crate::parse::{Text, wrong_type};
use crate::run::end;
use smallvec::SmallVec;
use std::cell::RefCell;
use strand_chain::Chain;
use strand_keyspace::{Changed, Collection, Db, Key, KeyEvent, KeyHash, Keyspace};
use strand_wire::args::Args;
use strand_wire::reply::{Protocol, Reply};

/// Times that a long call begins anew because what it depends on has changed meanwhile.
const TRIES: usize = 4;

/// A long write in three steps.
pub(crate) trait Write {
    /// What the result depends on.
    type Source;
    /// What is to be stored.
    type Outcome;

    /// Clones what the result depends on.
    ///
    /// # Errors
    /// Those of the command.
    fn read(&self, db: &mut Db<'_, '_>) -> Result<Self::Source, Text>;
    /// True when nothing was written between two reads.
    fn is_same(&self, before: &Self::Source, now: &Self::Source) -> bool;
    /// Computes the result. Calls `pause` between pieces of work of some 50 us.
    ///
    /// # Errors
    /// Those of the command.
    fn compute(&mut self, source: &Self::Source, pause: &dyn Fn()) -> Result<Self::Outcome, Text>;
    /// Stores the result. Unless it says what its effect is, that is the command as it was sent.
    fn store(&self, db: &mut Db<'_, '_>, outcome: &Self::Outcome);
}

/// Runs `write` on the keys with these hashes; what it stored.
///
/// # Errors
/// Those of the command.
pub(crate) fn apply<W: Write>(
    call: &mut LaneCall<'_>,
    hashes: &[KeyHash],
    write: &mut W,
) -> Result<W::Outcome, Text> {
    for _ in 0..TRIES {
        let before = write.read(&mut call.lock(hashes).db(call.db))?;
        let outcome = write.compute(&before, &|| call.pause())?;
        let mut txn = call.lock(hashes);
        let mut db = txn.db(call.db);
        let now = write.read(&mut db)?;
        if write.is_same(&before, &now) {
            // What is shared would be copied by the writing.
            drop((before, now));
            write.store(&mut db, &outcome);
            end(&mut txn, call.db, call.args);
            return Ok(outcome);
        }
    }
    let mut txn = call.hold(hashes);
    let mut db = txn.db(call.db);
    let source = write.read(&mut db)?;
    let outcome = write.compute(&source, &|| {})?;
    drop(source);
    write.store(&mut db, &outcome);
    end(&mut txn, call.db, call.args);
    Ok(outcome)
}

/// Runs `write` at once, with its shards held.
///
/// # Errors
/// Those of the command.
pub(crate) fn apply_at_once<W: Write>(db: &mut Db<'_, '_>, write: &mut W) -> Result<W::Outcome, Text> {
    let source = write.read(db)?;
    let outcome = write.compute(&source, &|| {})?;
    drop(source);
    write.store(db, &outcome);
    Ok(outcome)
}

/// Runs a long call of a command that changes the collection at its first and only key: its handler changes a copy, which then
/// takes the value's place. For commands whose handler depends on nothing but the value.
///
/// # Panics
/// When the handler of the command does not run on keys.
pub(crate) fn on_copy<T: Collection>(call: &mut LaneCall<'_>) {
    change_copy::<T>(call, None);
}

/// As [`on_copy`], for a command that changes the first collection that there is at its keys, and calls that something else.
///
/// # Panics
/// As [`on_copy`].
pub(crate) fn on_copy_of_first<T: Collection>(call: &mut LaneCall<'_>, told: Told) {
    change_copy::<T>(call, Some(told));
}

/// What a change is called.
pub(crate) struct Told {
    /// For who listens.
    pub(crate) event: KeyEvent,
    /// The effect: this command, the key, this count.
    pub(crate) command: &'static [u8],
    pub(crate) count: usize,
}

fn change_copy<T: Collection>(call: &mut LaneCall<'_>, told: Option<Told>) {
    let name = String::from_utf8_lossy(call.args.at(0));
    let (spec, run) = long::row_of(&name);
    let keys = long::keys(spec, call.args, call.keyspace);
    let hashes: SmallVec<[KeyHash; 4]> = keys.iter().map(|key| key.hash).collect();
    let mut changing = OnCopy::<T> {
        args: call.args,
        keys,
        run,
        told,
        protocol: call.reply.protocol(),
        reply_bytes_max: call.reply.room_left(),
        rng: call.rng.fork(),
        now_ms: call.now_ms,
        replaced: RefCell::default(),
    };
    let first = changing.read(&mut call.lock(&hashes).db(call.db));
    if !matches!(first, Ok(Some(_))) {
        // The handler says what is wrong or missing, or waits for it, and that costs nothing.
        return long::whole_of(&name, call);
    }
    drop(first);
    let done = apply(call, &hashes, &mut changing);
    if let Some(replaced) = changing.replaced.take() {
        call.keyspace.dispose(replaced.into_value());
    }
    match done {
        Ok(Some(copied)) => call.reply.raw(copied.reply),
        Ok(None) => long::whole_of(&name, call),
        Err(text) => call.reply.error(&text),
    }
}

/// A command at work on a copy.
struct OnCopy<'a, T> {
    args: Args<'a>,
    keys: SmallVec<[Key<'a>; 4]>,
    run: fn(&mut Call<'_, '_>),
    told: Option<Told>,
    protocol: Protocol,
    reply_bytes_max: usize,
    rng: fastrand::Rng,
    now_ms: i64,
    /// What was at the key: freed when no shard is held.
    replaced: RefCell<Option<T>>,
}

/// What the handler has done.
struct Copied<T> {
    reply: Chain,
    /// Which of the keys has changed, and what is to be there; `None` where nothing has changed.
    changed: Option<(usize, T)>,
}

impl<T: Collection> Write for OnCopy<'_, T> {
    /// The first value that there is, and at which of the keys.
    type Source = Option<(usize, T)>;
    /// `None` when there was no value: nothing was done.
    type Outcome = Option<Copied<T>>;

    fn read(&self, db: &mut Db<'_, '_>) -> Result<Option<(usize, T)>, Text> {
        for (at, key) in self.keys.iter().enumerate() {
            if let Some(value) = db.read::<T>(key).map_err(wrong_type)? {
                return Ok(Some((at, value.clone())));
            }
        }
        Ok(None)
    }
    fn is_same(&self, before: &Option<(usize, T)>, now: &Option<(usize, T)>) -> bool {
        match (before, now) {
            (Some((at, before)), Some((now_at, now))) => at == now_at && now.is_unchanged(before),
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        }
    }
    fn compute(&mut self, source: &Option<(usize, T)>, pause: &dyn Fn()) -> Result<Option<Copied<T>>, Text> {
        let Some((at, source)) = source else { return Ok(None) };
        let seed = std::array::from_fn(|_| self.rng.u64(..));
        let copies = Keyspace::new(1, 1, seed);
        let keys: SmallVec<[Key<'_>; 4]> = self.keys.iter().map(|key| copies.key(key.bytes)).collect();
        let mut txn = copies.lock_shard(0, self.now_ms);
        txn.db(0).insert(&keys[*at], source.clone().into_value(), None);
        let mut out = Chain::new();
        let go_on = || {
            pause();
            true
        };
        let mut reply = Reply::bounded(&mut out, self.protocol, self.reply_bytes_max).pausing(&go_on);
        let mut call = Call {
            args: self.args,
            keys: &keys,
            db: 0,
            now_ms: self.now_ms,
            txn: &mut txn,
            reply: &mut reply,
            rng: &mut self.rng,
            rights: None,
            wait: None,
        };
        (self.run)(&mut call);
        if call.reply.error_code().is_some() {
            return Err(String::from_utf8_lossy(&long::error_text(&out)).into_owned().into());
        }
        let after = txn.db(0).read::<T>(&keys[*at]).map_err(wrong_type)?.cloned().unwrap_or_default();
        let changed = (!after.is_unchanged(source)).then_some((*at, after));
        Ok(Some(Copied { reply: out, changed }))
    }
    fn store(&self, db: &mut Db<'_, '_>, copied: &Option<Copied<T>>) {
        let Some(Copied { changed: Some((at, changed)), .. }) = copied else { return };
        if let Some(told) = &self.told {
            db.txn_call_next(told.event);
        }
        let key = &self.keys[*at];
        let replaced =
            db.change(key, |value: &mut T| (std::mem::replace(value, changed.clone()), Changed::Yes));
        *self.replaced.borrow_mut() = replaced.ok().flatten();
        if let (Some(told), true) = (&self.told, db.is_recorded()) {
            let count = told.count.to_string();
            db.effect(&[told.command.into(), key.bytes.into(), count.as_bytes().into()]);
        }
    }
}

/// Members looked at between two pauses: some 50 us.
const PAUSE_MEMBERS: usize = 256;

/// Calls `rest` each [`PAUSE_MEMBERS`] members.
pub(crate) struct Pauses<'a> {
    rest: &'a mut dyn FnMut() -> bool,
    left: usize,
}

impl<'a> Pauses<'a> {
    /// With nothing visited yet.
    pub(crate) fn new(rest: &'a mut dyn FnMut() -> bool) -> Pauses<'a> {
        Pauses { rest, left: PAUSE_MEMBERS }
    }
    /// After each member: false when nobody wants the rest.
    pub(crate) fn goes_on(&mut self) -> bool {
        self.left -= 1;
        if self.left > 0 {
            return true;
        }
        self.left = PAUSE_MEMBERS;
        (self.rest)()
    }
}
