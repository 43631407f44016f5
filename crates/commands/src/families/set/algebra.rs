//! SINTER, SUNION and SDIFF, their STORE forms, and SINTERCARD.
//!
//! The STORE form of large sets is computed on the lane, from clones, while no shard is locked ([`crate::optimistic`]).
//! (Clones share the parts of large sets.) A worker clones no set: a clone of 2 M members takes 50 to 100 us, because each
//! part is counted.

use super::{send, send_all};
use crate::call::{Call, LaneCall};
use crate::cost::{self, SourceSize};
use crate::errors;
use crate::optimistic::{self, OptimisticWrite, Pauses};
use crate::parse::{self, Text};
use strand_keyspace::{AsValue, Collection, Db, Key, KeyHash, Member, SetValue, Settings, Value, ValueRef};
use strand_wire::args::Args;
use strand_wire::reply::Reply;

const NO_NUMKEYS: &str = "ERR numkeys should be greater than 0";
const TOO_MANY_KEYS: &str = "ERR Number of keys can't be greater than number of args";
const NEGATIVE_LIMIT: &str = "ERR LIMIT can't be negative";

/// `SINTER key [key ...]`. Reply: the members that all sets have.
pub(crate) fn sinter(call: &mut Call<'_, '_>) {
    answer(call, Operation::Inter);
}
/// `SUNION key [key ...]`. Reply: the members that any set has.
pub(crate) fn sunion(call: &mut Call<'_, '_>) {
    answer(call, Operation::Union);
}
/// `SDIFF key [key ...]`. Reply: the members of the first set that no other has.
pub(crate) fn sdiff(call: &mut Call<'_, '_>) {
    answer(call, Operation::Diff);
}
/// `SINTERSTORE destination key [key ...]`. Reply: the number of members stored.
pub(crate) fn sinterstore(call: &mut Call<'_, '_>) {
    store(call, Operation::Inter);
}
/// `SUNIONSTORE destination key [key ...]`
pub(crate) fn sunionstore(call: &mut Call<'_, '_>) {
    store(call, Operation::Union);
}
/// `SDIFFSTORE destination key [key ...]`
pub(crate) fn sdiffstore(call: &mut Call<'_, '_>) {
    store(call, Operation::Diff);
}
/// SINTERSTORE of many members, on the lane.
pub(crate) fn sinterstore_long(call: &mut LaneCall<'_>) {
    store_long(call, Operation::Inter);
}
/// SUNIONSTORE of many members, on the lane.
pub(crate) fn sunionstore_long(call: &mut LaneCall<'_>) {
    store_long(call, Operation::Union);
}
/// SDIFFSTORE of many members, on the lane.
pub(crate) fn sdiffstore_long(call: &mut LaneCall<'_>) {
    store_long(call, Operation::Diff);
}

/// `SINTERCARD numkeys key [key ...] [LIMIT limit]`. Reply: how many members are in all sets, at most `limit`.
pub(crate) fn sintercard(call: &mut Call<'_, '_>) {
    let limit = match limit_of_sintercard(call.args) {
        Ok(limit) => limit,
        Err(text) => return call.reply.error(&text),
    };
    match sources(&mut call.txn.db(call.db), call.keys) {
        Ok(sets) => {
            let mut count = 0;
            let reply = &mut *call.reply;
            intersect(&sets, &mut || reply.pause(), &mut |_| {
                count += 1;
                count != limit
            });
            call.reply.int(count as i64);
        }
        Err(text) => call.reply.error(&text),
    }
}

/// Parses the limit; 0 means none. The number of keys was already parsed, to find the keys.
fn limit_of_sintercard(args: Args<'_>) -> Result<usize, Text> {
    let keys = parse::integer(args.at(1)).ok().filter(|n| *n > 0).ok_or(NO_NUMKEYS)?;
    let mut at = match usize::try_from(keys) {
        Ok(keys) if keys <= args.len() - 2 => 2 + keys,
        _ => return Err(TOO_MANY_KEYS.into()),
    };
    let mut limit = 0;
    while at < args.len() {
        if !args.is(at, "LIMIT") || at + 1 == args.len() {
            return Err(errors::SYNTAX.into());
        }
        let given = parse::integer(args.at(at + 1)).ok().and_then(|n| usize::try_from(n).ok());
        limit = given.ok_or(NEGATIVE_LIMIT)?;
        at += 2;
    }
    Ok(limit)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Operation {
    Inter,
    Union,
    Diff,
}

/// The sets at the keys. `None` for a missing key.
type Sources<'a> = [Option<&'a SetValue>];

fn sources<'d>(db: &'d mut Db<'_, '_>, keys: &[Key<'_>]) -> Result<Vec<Option<&'d SetValue>>, Text> {
    let check = |value: ValueRef<'_>| SetValue::of(value).map(|_| ()).ok_or(errors::WRONG_TYPE);
    let values = db.get_all(keys, check)?;
    Ok(values.into_iter().map(|value| value.and_then(SetValue::of)).collect())
}

/// The work of SDIFF with sets of these sizes, in elements: see [`subtract`].
pub(crate) fn difference_elements(sources: &[SourceSize]) -> usize {
    let members = || sources.iter().map(|source| source.members);
    match looks_up(members().next().unwrap_or(0), sources.len(), members().sum()) {
        true => cost::of_difference(sources),
        false => sources.iter().map(|source| source.walk).fold(0, usize::saturating_add),
    }
}

/// True when SDIFF looks up each member of the first set in the others. Otherwise it walks over all `sets` sets, which have
/// `walks` members together. redis-server decides alike.
fn looks_up(first: usize, sets: usize, walks: usize) -> bool {
    first.saturating_mul(sets) / 2 <= walks
}

fn answer(call: &mut Call<'_, '_>, operation: Operation) {
    let settings = call.txn.keyspace().settings();
    let mut db = call.txn.db(call.db);
    let sets = match sources(&mut db, call.keys) {
        Ok(sets) => sets,
        Err(text) => return call.reply.error(&text),
    };
    let reply = &mut *call.reply;
    if let [set] = &sets[..] {
        return send_all(reply, *set);
    }
    if operation == Operation::Inter {
        return answer_intersection(&sets, reply);
    }
    if let Some(result) = combine(operation, &sets, settings, &mut || reply.pause()) {
        send_all(reply, Some(&result));
    }
}

/// Replies with the intersection. The members are encoded first, because their number comes before them in the
/// reply.
fn answer_intersection(sets: &Sources<'_>, reply: &mut Reply<'_>) {
    let mut encoded = strand_chain::Chain::new();
    let mut count = 0;
    let protocol = reply.protocol();
    let room = reply.room_left();
    intersect(sets, &mut || reply.pause(), &mut |member| {
        send(&mut Reply::bounded(&mut encoded, protocol, room), member);
        count += 1;
        encoded.len() <= room
    });
    reply.set(count);
    reply.raw(encoded);
}

fn store(call: &mut Call<'_, '_>, operation: Operation) {
    let settings = call.txn.keyspace().settings();
    let storing = StoreWrite { operation, keys: call.keys, settings };
    let mut db = call.txn.db(call.db);
    let combined = sources(&mut db, &call.keys[1..]).map(|sets| storing.combine(&sets, &|| {}));
    answer_stored(call.reply, combined.inspect(|set| storing.store(&mut db, set)));
}

fn store_long(call: &mut LaneCall<'_>, operation: Operation) {
    let keys: Vec<Key<'_>> = call.args.skip(1).iter().map(|key| call.keyspace.key(key)).collect();
    let hashes: Vec<KeyHash> = keys.iter().map(|key| key.hash).collect();
    let settings = call.keyspace.settings();
    let stored = optimistic::apply(call, &hashes, &mut StoreWrite { operation, keys: &keys, settings });
    answer_stored(call.reply, stored);
}

fn answer_stored(reply: &mut Reply<'_>, stored: Result<SetValue, Text>) {
    match stored {
        Ok(set) => reply.int(set.len() as i64),
        Err(text) => reply.error(&text),
    }
}

/// A STORE command, with its destination and its sources.
struct StoreWrite<'a> {
    operation: Operation,
    keys: &'a [Key<'a>],
    settings: &'a Settings,
}

impl StoreWrite<'_> {
    fn combine(&self, sets: &Sources<'_>, pause: &dyn Fn()) -> SetValue {
        let mut pause = || {
            pause();
            true
        };
        let combined = combine(self.operation, sets, self.settings, &mut pause);
        combined.expect("the pause always returns true")
    }
}

impl OptimisticWrite for StoreWrite<'_> {
    type Source = Vec<Option<SetValue>>;
    type Outcome = SetValue;

    fn read(&self, db: &mut Db<'_, '_>) -> Result<Self::Source, Text> {
        Ok(sources(db, &self.keys[1..])?.into_iter().map(Option::<&SetValue>::cloned).collect())
    }
    fn is_same(&self, before: &Self::Source, now: &Self::Source) -> bool {
        before.iter().zip(now).all(|pair| match pair {
            (Some(before), Some(now)) => before.is_same(now),
            (None, None) => true,
            _ => false,
        })
    }
    fn compute(&mut self, sets: &Self::Source, pause: &dyn Fn()) -> Result<SetValue, Text> {
        let sets: Vec<Option<&SetValue>> = sets.iter().map(Option::as_ref).collect();
        Ok(self.combine(&sets, pause))
    }
    fn store(&self, db: &mut Db<'_, '_>, set: &SetValue) {
        if set.is_empty() {
            db.delete(&self.keys[0]);
        } else {
            db.insert(&self.keys[0], Value::Set(set.clone()), None);
        }
    }
}

/// Computes the resulting set. Calls `pause` now and then. Returns `None` when `pause` returns false.
fn combine(
    operation: Operation,
    sets: &Sources<'_>,
    settings: &Settings,
    pause: &mut dyn FnMut() -> bool,
) -> Option<SetValue> {
    let mut result = SetValue::new();
    let whole = match operation {
        Operation::Inter => intersect(sets, pause, &mut |member| {
            result.add(member.bytes(&mut [0; 20]), settings);
            true
        }),
        Operation::Union => {
            let mut pauses = Pauses::new(pause);
            let mut members = sets.iter().flatten().flat_map(|set| set.iter());
            members.all(|member| {
                result.add(member.bytes(&mut [0; 20]), settings);
                pauses.may_continue()
            })
        }
        Operation::Diff => subtract(sets, settings, pause, &mut result),
    };
    whole.then_some(result)
}

/// Visits the members that all sets have, until `visit` or `pause` returns false. Returns false if it was `pause`.
fn intersect(
    sets: &Sources<'_>,
    pause: &mut dyn FnMut() -> bool,
    visit: &mut dyn FnMut(Member<'_>) -> bool,
) -> bool {
    let Some(mut sets) = sets.iter().copied().collect::<Option<Vec<&SetValue>>>() else { return true };
    sets.sort_by_key(|set| set.len());
    let Some((smallest, others)) = sets.split_first() else { return true };
    let mut pauses = Pauses::new(pause);
    for member in smallest.iter() {
        let mut buffer = [0; 20];
        let bytes = member.bytes(&mut buffer);
        if others.iter().all(|other| other.contains(bytes)) && !visit(member) {
            return true;
        }
        if !pauses.may_continue() {
            return false;
        }
    }
    true
}

/// Adds the members that only the first set has to `result`. Like redis-server, uses one of two algorithms,
/// the faster one in this case. After the second one, the result may have the encoding `hashtable` even if
/// only integers are left, as in redis-server.
fn subtract(
    sets: &Sources<'_>,
    settings: &Settings,
    pause: &mut dyn FnMut() -> bool,
    result: &mut SetValue,
) -> bool {
    let Some((Some(first), others)) = sets.split_first() else { return true };
    let others: Vec<&SetValue> = others.iter().flatten().copied().collect();
    if others.iter().any(|other| first.is_same(other)) {
        return true;
    }
    let mut pauses = Pauses::new(pause);
    let walks = others.iter().map(|set| set.len()).sum::<usize>().saturating_add(first.len());
    if looks_up(first.len(), others.len() + 1, walks) {
        return first.iter().all(|member| {
            let mut buffer = [0; 20];
            let bytes = member.bytes(&mut buffer);
            if !others.iter().any(|other| other.contains(bytes)) {
                result.add(bytes, settings);
            }
            pauses.may_continue()
        });
    }
    let added = first.iter().all(|member| {
        result.add(member.bytes(&mut [0; 20]), settings);
        pauses.may_continue()
    });
    added
        && others.iter().flat_map(|set| set.iter()).all(|member| {
            result.remove(member.bytes(&mut [0; 20]));
            pauses.may_continue()
        })
}

#[cfg(test)]
mod tests {
    use crate::fixture::Fixture;

    #[test]
    fn sets_are_combined() {
        let mut f = Fixture::new();
        f.script(&[("SADD a 1 2 3 4", ":4|"), ("SADD b 3 4 5", ":3|"), ("SADD c 4 x", ":2|")]);
        for long in [false, true] {
            f.all_long = long;
            f.script(&[
                ("SINTER a b", "*2|$1|3|$1|4|"),
                ("SINTER a b none", "*0|"),
                ("SINTER c", "*2|$1|4|$1|x|"),
                ("SUNION a b none", "*5|$1|1|$1|2|$1|3|$1|4|$1|5|"),
                ("SDIFF a b none", "*2|$1|1|$1|2|"),
                ("SDIFF none a", "*0|"),
                ("SDIFF a a", "*0|"),
                ("SINTERCARD 2 a b", ":2|"),
                ("SINTERCARD 2 a b LIMIT 1", ":1|"),
                ("SINTERCARD 2 a b LIMIT 0", ":2|"),
                ("SINTERCARD 1 none", ":0|"),
                ("SUNIONSTORE d a b", ":5|"),
                ("OBJECT ENCODING d", "$6|intset|"),
                ("SINTERSTORE d d a c", ":1|"),
                ("SMEMBERS d", "*1|$1|4|"),
                ("OBJECT ENCODING d", "$6|intset|"),
                ("PEXPIRE d 100", ":1|"),
                ("SDIFFSTORE d c a", ":1|"),
                ("PTTL d", ":-1|"),
                ("SMEMBERS d", "*1|$1|x|"),
                ("SDIFFSTORE d a a", ":0|"),
                ("EXISTS d", ":0|"),
                ("SINTERCARD 0 a", "-ERR numkeys should be greater than 0|"),
                ("SINTERCARD x a", "-ERR numkeys should be greater than 0|"),
                ("SINTERCARD 2 a", "-ERR Number of keys can't be greater than number of args|"),
                ("SINTERCARD 1 a LIMIT", "-ERR syntax error|"),
                ("SINTERCARD 1 a LIMIT -1", "-ERR LIMIT can't be negative|"),
                ("SINTERCARD 1 a LIMIT x", "-ERR LIMIT can't be negative|"),
                ("SINTERCARD 1 a FOO 1", "-ERR syntax error|"),
            ]);
        }
    }

    #[test]
    fn many_members_are_combined_in_pieces() {
        let mut f = Fixture::new();
        for (key, step) in [("a", 1), ("b", 2), ("c", 3)] {
            let members: Vec<String> = (0..6000).step_by(step).map(|n| format!("member:{n}")).collect();
            assert_eq!(f.run(&format!("SADD {key} {}", members.join(" "))), format!(":{}|", members.len()));
        }
        f.pauses.take();
        f.script(&[
            ("SINTERCARD 3 a b c", ":1000|"),
            ("SINTERSTORE d a b", ":3000|"),
            ("SUNIONSTORE e b c", ":4000|"),
            ("SDIFFSTORE f a b c", ":2000|"),
            ("SDIFFSTORE g a b c d e", ":2000|"),
            ("SINTERCARD 2 f g", ":2000|"),
        ]);
        assert!(f.pauses.get() > 60, "{}", f.pauses.get());
        assert!(f.run("SINTER a b c").starts_with("*1000|"));
        assert!(f.run("SUNION a b").starts_with("*6000|"));
        assert!(f.run("SDIFF a e").starts_with("*2000|"));
    }
}
