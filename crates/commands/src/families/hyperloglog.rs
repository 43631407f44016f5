//! HyperLogLog: PFADD, PFCOUNT and PFMERGE. Also PFDEBUG and PFSELFTEST, which the tests of redis-server call.
//!
//! The values are strings, whose content [`strand_keyspace::types::hyperloglog`] defines. For a string that is no
//! HyperLogLog the error is `WRONGTYPE`, and for one with missing registers `INVALIDOBJ`.

use crate::call::{Call, LaneCall};
use crate::errors;
use crate::long::SLICE_ARGUMENTS;
use crate::optimistic::{self, OptimisticWrite};
use crate::parse::{Text, string_of, wrong_type};
use std::convert::Infallible;
use std::sync::atomic::Ordering;
use strand_chain::Blob;
use strand_keyspace::journal::Arg;
use strand_keyspace::types::hyperloglog::{self as hll, Corrupted, Representation};
use strand_keyspace::{Db, Key, KeyEvent, KeyHash, RecordRef, Settings, Str, StrRef};
use strand_wire::reply::Reply;

const NOT_ONE: &str = "WRONGTYPE Key is not a valid HyperLogLog string value.";
const CORRUPTED: &str = "INVALIDOBJ Corrupted HLL object detected";

/// Number of sources that PFMERGE merges between two pauses, at 12 us each.
const SLICE_SOURCES: usize = 4;

/// `PFADD key [element ...]`. Reply: 1 when the estimate may have changed or the key was created, else 0.
pub(crate) fn pfadd(call: &mut Call<'_, '_>) {
    match add(call) {
        Ok(changed) => call.reply.int(changed.into()),
        Err(text) => call.reply.error(text),
    }
}

fn add(call: &mut Call<'_, '_>) -> Result<bool, &'static str> {
    let (key, elements) = (&call.keys[0], call.args.skip(2));
    let sparse_bytes_max = sparse_bytes_max(call.txn.keyspace().settings());
    let mut db = call.txn.db(call.db);
    if let Some(StrRef::Blob { blob, .. }) = value_of(db.get_to_write(key))?
        && hll::form(blob) == Some(Representation::Dense)
    {
        // After many elements, most new elements raise no register. If none does, write nothing. Otherwise change
        // the value in place.
        if !elements.iter().any(|element| hll::raises(blob, element)) {
            return Ok(false);
        }
        let edited = db.edit_str(key, |blob| {
            elements.iter().for_each(|element| hll::add_dense(blob.make_mut(), element));
            Ok::<_, Infallible>(())
        });
        edited.map_err(wrong_type)?;
        return Ok(true);
    }
    let changed = change(&mut db, key, true, |value| {
        let mut changed = value.is_new;
        for element in elements.iter() {
            changed |= hll::add(&mut value.bytes, element, sparse_bytes_max)?;
        }
        if changed {
            hll::invalidate(&mut value.bytes);
        }
        value.is_changed = changed;
        Ok(changed)
    });
    Ok(changed?.unwrap_or(false))
}

/// `PFCOUNT key [key ...]`. Reply: an estimate of the number of different elements that were added to these keys.
/// The estimate for a single key is cached in its value.
pub(crate) fn pfcount(call: &mut Call<'_, '_>) {
    let mut db = call.txn.db(call.db);
    let counted = match call.keys {
        [key] => count_one(&mut db, key),
        keys => {
            let mut registers = hll::registers();
            let merged = keys.iter().try_for_each(|key| merge(&mut db, key, &mut registers).map(|_| ()));
            merged.map(|()| hll::count_of(&registers))
        }
    };
    match counted {
        Ok(count) => call.reply.int(count as i64),
        Err(text) => call.reply.error(text),
    }
}

fn count_one(db: &mut Db<'_, '_>, key: &Key<'_>) -> Result<u64, &'static str> {
    let Some(s) = value_of(db.get(key))? else { return Ok(0) };
    let is_raw = s.encoding() == "raw";
    let (count, computed) = hll::count(s.bytes(&mut [0; 20])).map_err(corrupted)?;
    if computed || !is_raw {
        // Caching the estimate edits the string. So its encoding becomes `raw`, as in redis-server.
        let kept: Result<_, Infallible> = Ok(());
        db.set_event(KeyEvent::CACHED);
        let edited = db.edit_str(key, |blob| {
            hll::cache(blob.make_mut(), count);
            kept
        });
        edited.map_err(wrong_type)?;
    }
    Ok(count)
}

/// `PFMERGE destkey [sourcekey ...]`: adds to the first key what was added to the others. Reply: OK.
pub(crate) fn pfmerge(call: &mut Call<'_, '_>) {
    let sparse_bytes_max = sparse_bytes_max(call.txn.keyspace().settings());
    let mut db = call.txn.db(call.db);
    let mut registers = hll::registers();
    let merged = call.keys.iter().try_fold(false, |dense, key| {
        Ok(merge(&mut db, key, &mut registers)? == Some(Representation::Dense) || dense)
    });
    let stored = merged.and_then(|dense| store(&mut db, &call.keys[0], &registers, dense, sparse_bytes_max));
    match stored {
        Ok(()) => call.reply.ok(),
        Err(text) => call.reply.error(text),
    }
}

/// PFMERGE of many keys, on the lane. The sources are cloned, and merged while no shard is locked.
pub(crate) fn pfmerge_long(call: &mut LaneCall<'_>) {
    let keys: Vec<Key<'_>> = call.args.skip(1).iter().map(|key| call.keyspace.key(key)).collect();
    let hashes: Vec<KeyHash> = keys.iter().map(|key| key.hash).collect();
    let sparse_bytes_max = sparse_bytes_max(call.keyspace.settings());
    match optimistic::apply(call, &hashes, &mut PfmergeWrite { keys, sparse_bytes_max }) {
        Ok(_) => call.reply.ok(),
        Err(text) => call.reply.error(&text),
    }
}

/// A PFMERGE on clones of its values.
struct PfmergeWrite<'a> {
    keys: Vec<Key<'a>>,
    sparse_bytes_max: usize,
}

/// The values at the keys. If a value is wrong: the values before it, and its error.
struct Sources {
    values: Vec<Option<Str>>,
    error: Option<&'static str>,
}

impl OptimisticWrite for PfmergeWrite<'_> {
    type Source = Sources;
    type Outcome = Blob;

    fn prefetch(&self, call: &LaneCall<'_>) {
        for keys in self.keys.chunks(SLICE_ARGUMENTS) {
            call.keyspace.prefetch(call.db, keys);
            call.pause();
        }
    }
    fn read(&self, db: &mut Db<'_, '_>) -> Result<Sources, Text> {
        let mut values = Vec::with_capacity(self.keys.len());
        for key in &self.keys {
            match value_of(db.get(key)) {
                Ok(value) => values.push(value.map(|s| s.to_str())),
                Err(text) => return Ok(Sources { values, error: Some(text) }),
            }
        }
        Ok(Sources { values, error: None })
    }
    fn is_same(&self, before: &Sources, now: &Sources) -> bool {
        let same = |(before, now): (&Option<Str>, &Option<Str>)| match (before, now) {
            (Some(before), Some(now)) => before.is_same(now),
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        };
        before.values.len() == now.values.len() && before.values.iter().zip(&now.values).all(same)
    }
    fn compute(&mut self, sources: &Sources, pause: &dyn Fn()) -> Result<Blob, Text> {
        let (mut registers, mut dense) = (hll::registers(), false);
        for values in sources.values.chunks(SLICE_SOURCES) {
            for value in values.iter().flatten() {
                dense |= merge_value(value.view(), &mut registers)? == Some(Representation::Dense);
            }
            pause();
        }
        if let Some(text) = sources.error {
            return Err(text.into());
        }
        let destination = sources.values[0].as_ref();
        let mut bytes = destination.map_or_else(hll::new, |s| s.view().bytes(&mut [0; 20]).to_vec());
        raise(&mut bytes, &registers, dense, self.sparse_bytes_max).map_err(corrupted)?;
        Ok(Blob::from(bytes))
    }
    fn store(&self, db: &mut Db<'_, '_>, merged: &Blob) {
        db.update_str(&self.keys[0], StrRef::Blob { blob: merged, edited: true });
    }
}

/// Records the value as it is now as the effect.
fn value_is_effect(db: &mut Db<'_, '_>, key: &Key<'_>) -> Result<(), &'static str> {
    if db.is_recorded()
        && let Some(value) = value_of(db.peek(key))?.map(|s| s.to_blob())
    {
        db.effect(&[b"SET".into(), key.bytes.into(), Arg::Blob(&value), b"KEEPTTL".into()]);
    }
    Ok(())
}

/// Raises each of `registers` to that of the value at `key`. Returns the representation of the value, if there is a
/// value.
fn merge(
    db: &mut Db<'_, '_>,
    key: &Key<'_>,
    registers: &mut hll::Registers,
) -> Result<Option<Representation>, &'static str> {
    value_of(db.get(key))?.map_or(Ok(None), |s| merge_value(s, registers))
}

fn merge_value(
    s: StrRef<'_>,
    registers: &mut hll::Registers,
) -> Result<Option<Representation>, &'static str> {
    let mut buffer = [0; 20];
    let bytes = s.bytes(&mut buffer);
    hll::merge_into(registers, bytes).map_err(corrupted)?;
    Ok(hll::form(bytes))
}

/// Raises each register of a value to that of `registers`.
fn raise(
    bytes: &mut Vec<u8>,
    registers: &hll::Registers,
    dense: bool,
    sparse_bytes_max: usize,
) -> Result<(), Corrupted> {
    if dense {
        hll::make_dense(bytes)?;
    }
    hll::raise_to(bytes, registers, sparse_bytes_max)?;
    Ok(())
}

fn store(
    db: &mut Db<'_, '_>,
    key: &Key<'_>,
    registers: &hll::Registers,
    dense: bool,
    sparse_bytes_max: usize,
) -> Result<(), &'static str> {
    let stored = change(db, key, true, |value| {
        raise(&mut value.bytes, registers, dense, sparse_bytes_max)?;
        value.is_changed = true;
        Ok(())
    });
    stored.map(|_| ())
}

/// `PFDEBUG GETREG | DECODE | ENCODING | TODENSE key`
pub(crate) fn pfdebug(call: &mut Call<'_, '_>) {
    if let Err(text) = debug(call) {
        call.reply.error(&text);
    }
}

fn debug(call: &mut Call<'_, '_>) -> Result<(), String> {
    let (args, key) = (call.args, &call.keys[0]);
    let mut db = call.txn.db(call.db);
    if db.get(key).is_none() {
        return Err("ERR The specified key does not exist".into());
    }
    let makes_dense = args.is(1, "GETREG") || args.is(1, "TODENSE");
    let looked_at = change(&mut db, key, false, |value| {
        value.is_changed = makes_dense && hll::make_dense(&mut value.bytes)?;
        Ok((value.is_changed, value.bytes.clone()))
    });
    let (converted, bytes) = looked_at?.ok_or(errors::NO_SUCH_KEY)?;
    if converted {
        value_is_effect(&mut db, key)?;
    }
    // Every subcommand makes the encoding `raw`.
    db.make_raw(key);
    let form = hll::form(&bytes);
    if args.is(1, "GETREG") {
        call.reply.array(hll::REGISTERS);
        hll::dense(&bytes).for_each(|register| call.reply.int(register.into()));
    } else if args.is(1, "DECODE") && form == Some(Representation::Sparse) {
        decode(&bytes, call.reply)
    } else if args.is(1, "DECODE") {
        return Err("ERR HLL encoding is not sparse".into());
    } else if args.is(1, "ENCODING") {
        call.reply.simple(if form == Some(Representation::Dense) { "dense" } else { "sparse" });
    } else if args.is(1, "TODENSE") {
        call.reply.int(converted.into())
    } else {
        let word = String::from_utf8_lossy(errors::c_text(args.at(1))).into_owned();
        return Err(format!("ERR Unknown PFDEBUG subcommand '{word}'"));
    }
    Ok(())
}

/// Shows the runs of a sparse value: `z:5` and `Z:500` are runs of registers with 0, `v:3,2` is a run of two
/// registers with 3.
fn decode(bytes: &[u8], reply: &mut Reply<'_>) {
    let text = |run: hll::RegisterRun| match (run.register, run.bytes) {
        (0, 1) => format!("z:{}", run.len),
        (0, _) => format!("Z:{}", run.len),
        (register, _) => format!("v:{register},{}", run.len),
    };
    let text: Vec<String> = hll::runs(bytes).map(text).collect();
    reply.bulk(text.join(" ").as_bytes());
}

/// `PFSELFTEST`: compares the estimator with a count of the elements. Reply: OK.
pub(crate) fn pfselftest(call: &mut LaneCall<'_>) {
    match self_test(call) {
        Ok(()) => call.reply.ok(),
        Err(text) => call.reply.error(&text),
    }
}

/// Checks the estimate at each of these numbers of elements. It must be within four standard errors (1.04 divided
/// by the square root of the number of registers), and both representations must have equal registers.
fn self_test(call: &mut LaneCall<'_>) -> Result<(), String> {
    const CHECKED_AT: [u64; 4] = [1_000, 10_000, 50_000, 200_000];
    const PAUSE_ELEMENTS: u64 = 1_000;
    let sparse_bytes_max = sparse_bytes_max(call.keyspace.settings());
    let seed = call.rng.u64(..);
    let (mut sparse, mut dense) = (hll::new(), hll::new());
    let error = |_| CORRUPTED.to_owned();
    hll::make_dense(&mut dense).map_err(error)?;
    let tolerance = 4.0 * 1.04 / (hll::REGISTERS as f64).sqrt();
    for n in 1..=CHECKED_AT[CHECKED_AT.len() - 1] {
        let element = (seed ^ n).to_le_bytes();
        let raised = [
            hll::add(&mut sparse, &element, sparse_bytes_max).map_err(error)?,
            hll::add(&mut dense, &element, sparse_bytes_max).map_err(error)?,
        ];
        if raised[0] != raised[1] {
            return Err(format!("TESTFAILED sparse and dense disagree after {n} elements"));
        }
        if CHECKED_AT.contains(&n) {
            let (count, _) = hll::count(&dense).map_err(error)?;
            let (of_sparse, _) = hll::count(&sparse).map_err(error)?;
            if of_sparse != count || (count as f64 - n as f64).abs() > n as f64 * tolerance {
                return Err(format!("TESTFAILED the estimate of {n} elements is {count}, or {of_sparse}"));
            }
        }
        if n % PAUSE_ELEMENTS == 0 {
            call.pause();
            if call.cancelled() {
                break;
            }
        }
    }
    Ok(())
}

/// A HyperLogLog that is being changed.
struct Value {
    bytes: Vec<u8>,
    is_new: bool,
    /// True when the value must be stored.
    is_changed: bool,
}

/// Calls `change` with the value at `key`. With `create`, a missing value is created first. `None` when there is no
/// value.
fn change<R>(
    db: &mut Db<'_, '_>,
    key: &Key<'_>,
    create: bool,
    change: impl FnOnce(&mut Value) -> Result<R, Corrupted>,
) -> Result<Option<R>, &'static str> {
    let mut value = match value_of(db.peek(key))? {
        Some(s) => Value { bytes: s.bytes(&mut [0; 20]).to_vec(), is_new: false, is_changed: false },
        None if create => Value { bytes: hll::new(), is_new: true, is_changed: false },
        None => return Ok(None),
    };
    let result = change(&mut value).map_err(corrupted)?;
    if value.is_changed {
        let blob = Blob::from(value.bytes);
        db.update_str(key, StrRef::Blob { blob: &blob, edited: true });
    }
    Ok(Some(result))
}

/// The HyperLogLog in a record. `None` when there is no record.
///
/// # Errors
/// Fails if the value is no HyperLogLog.
fn value_of(record: Option<RecordRef<'_>>) -> Result<Option<StrRef<'_>>, &'static str> {
    let Some(s) = string_of(record)? else { return Ok(None) };
    match hll::form(s.bytes(&mut [0; 20])) {
        Some(_) => Ok(Some(s)),
        None => Err(NOT_ONE),
    }
}

fn corrupted(_: Corrupted) -> &'static str {
    CORRUPTED
}

fn sparse_bytes_max(settings: &Settings) -> usize {
    usize::try_from(settings.hll_sparse_max_bytes.load(Ordering::Relaxed)).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use crate::fixture::Fixture;

    const NOT_ONE: &str = "-WRONGTYPE Key is not a valid HyperLogLog string value.|";
    const CORRUPTED: &str = "-INVALIDOBJ Corrupted HLL object detected|";

    #[test]
    fn elements_are_counted() {
        let mut f = Fixture::new();
        f.script(&[
            ("PFADD h", ":1|"),
            ("PFADD h", ":0|"),
            ("PFCOUNT h", ":0|"),
            ("PFADD h a b c d", ":1|"),
            ("PFADD h a b", ":0|"),
            ("PFCOUNT h", ":4|"),
            ("PFCOUNT h", ":4|"),
            ("PFADD i c d e", ":1|"),
            ("PFCOUNT h i none", ":5|"),
            ("PFMERGE h i", "+OK|"),
            ("PFCOUNT h", ":5|"),
            ("PFMERGE new", "+OK|"),
            ("PFCOUNT new none", ":0|"),
        ]);
        let effects = f.effects().len();
        f.script(&[("PFDEBUG ENCODING h", "+sparse|"), ("OBJECT ENCODING h", "$3|raw|")]);
        assert_eq!(f.effects().len(), effects, "PFDEBUG only looks at the value");
        f.script(&[
            ("PFDEBUG TODENSE h", ":1|"),
            ("PFDEBUG TODENSE h", ":0|"),
            ("PFDEBUG encoding h", "+dense|"),
            ("PFADD h a b", ":0|"),
            ("PFADD h f g", ":1|"),
            ("PFCOUNT h", ":7|"),
            ("PFMERGE new h", "+OK|"),
            ("PFDEBUG ENCODING new", "+dense|"),
            ("OBJECT ENCODING h", "$3|raw|"),
            ("PFSELFTEST", "+OK|"),
        ]);
        assert!(f.run("PFDEBUG GETREG i").starts_with("*16384|:0|"));
    }

    #[test]
    fn many_are_merged_in_slices() {
        let mut f = Fixture::new();
        let mut merge = String::from("PFMERGE all");
        for i in 0..100 {
            f.run(&format!("PFADD h{i} {i} {}", i + 1));
            merge += &format!(" h{i}");
        }
        f.all_long = true;
        assert_eq!(f.run(&merge), "+OK|");
        f.all_long = false;
        f.script(&[("PFCOUNT all", ":101|"), ("PFDEBUG ENCODING all", "+sparse|")]);
        assert_eq!(f.run(&merge.replace("PFMERGE all", "PFCOUNT")), ":101|");
    }

    #[test]
    fn other_strings_and_types_are_refused() {
        let mut f = Fixture::new();
        f.run("SET s text");
        f.run("HSET h f v");
        f.run_args(&[&b"SET"[..], b"c", b"HYLL\x01\0\0\0\0\0\0\0\0\0\0\x80"]);
        for line in
            ["PFADD # x", "PFCOUNT #", "PFCOUNT none #", "PFMERGE d #", "PFMERGE # d", "PFDEBUG ENCODING #"]
        {
            assert_eq!(f.run(&line.replace('#', "s")), NOT_ONE, "{line}");
            assert_eq!(f.run(&line.replace('#', "h")), format!("-{}|", crate::errors::WRONG_TYPE), "{line}");
        }
        for line in ["PFADD c x", "PFCOUNT c", "PFCOUNT none c", "PFMERGE d c", "PFDEBUG GETREG c"] {
            assert_eq!(f.run(line), CORRUPTED, "{line}");
        }
        f.script(&[
            ("EXISTS d", ":0|"),
            ("PFDEBUG FOO c", "-ERR Unknown PFDEBUG subcommand 'FOO'|"),
            ("PFDEBUG ENCODING none", "-ERR The specified key does not exist|"),
        ]);
    }
}
