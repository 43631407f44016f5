//! Unions, intersections and differences of sorted sets. The result is sent, stored or counted. Plain sets may be
//! sources, too; their members have the score 1.
//!
//! The result of a large STORE is computed on the lane, from clones, while no shard is locked ([`crate::optimistic`]).
//! (Clones share the parts of large sets.) A worker clones no source.

use super::range::{announce, send_member};
use crate::call::{Call, LaneCall};
use crate::cost::part_elements;
use crate::errors;
use crate::optimistic::{self, OptimisticWrite, Pauses};
use crate::parse::{self, Text};
use crate::serial;
use crate::strtod;
use strand_chain::Blob;
use strand_keyspace::journal::Arg;
use strand_keyspace::types::Bytes;
use strand_keyspace::{
    AsValue, Collection, Db, Key, KeyHash, SetValue, Settings, Value, ValueRef, ZSetValue,
};
use strand_wire::args::Args;

const NOT_A_WEIGHT: &str = "ERR weight value is not a float";
const NEGATIVE_LIMIT: &str = "ERR LIMIT can't be negative";

/// The set operation.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Operation {
    Union,
    Inter,
    Diff,
}

/// What happens to the result.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ResultUse {
    Reply,
    Stored,
    Number,
}

/// How the scores of one member in several sources are combined.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Aggregate {
    Sum,
    Min,
    Max,
    /// COUNT: each source that has the member adds its weight, whatever the member's score is there.
    Count,
}

impl Aggregate {
    /// The number that a member's score in one source adds to the combination: the weighted score.
    fn weighted(self, score: f64, weight: f64) -> f64 {
        match self {
            Aggregate::Count => weight,
            Aggregate::Sum | Aggregate::Min | Aggregate::Max => score * weight,
        }
    }
    /// Combines two scores. As in redis-server, infinity plus minus infinity is 0.
    fn of(self, score: f64, other: f64) -> f64 {
        match self {
            Aggregate::Sum | Aggregate::Count => number_or_zero(score + other),
            Aggregate::Min => {
                if other < score {
                    other
                } else {
                    score
                }
            }
            Aggregate::Max => {
                if other > score {
                    other
                } else {
                    score
                }
            }
        }
    }
}

fn number_or_zero(score: f64) -> f64 {
    if score.is_nan() { 0.0 } else { score }
}

/// A source: a value that exists.
#[derive(Clone, Copy)]
enum Source<'a> {
    ZSet(&'a ZSetValue),
    /// A plain set, whose members have the score 1.
    Set(&'a SetValue),
}

impl<'a> Source<'a> {
    fn of(value: ValueRef<'a>) -> Result<Source<'a>, &'static str> {
        let set = || SetValue::of(value).map(Source::Set);
        ZSetValue::of(value).map(Source::ZSet).or_else(set).ok_or(errors::WRONG_TYPE)
    }
    fn len(&self) -> usize {
        match self {
            Source::ZSet(zset) => zset.len(),
            Source::Set(set) => set.len(),
        }
    }
    fn score(&self, member: &[u8]) -> Option<f64> {
        match self {
            Source::ZSet(zset) => zset.score(member),
            Source::Set(set) => set.contains(member).then_some(1.0),
        }
    }
    /// Calls `visit` with each member and its score, until `visit` returns false.
    fn visit(&self, visit: &mut dyn FnMut(Bytes<'_>, f64) -> bool) {
        match self {
            Source::ZSet(zset) => {
                zset.iter(0).all(|(member, score)| visit(member, score));
            }
            Source::Set(set) => {
                let mut buffer = Default::default();
                set.iter().all(|member| visit(Bytes::Slice(member.bytes(&mut buffer)), 1.0));
            }
        }
    }
}

/// The options, which follow the keys.
struct Options {
    weights: Vec<f64>,
    aggregate: Aggregate,
    with_scores: bool,
    /// LIMIT; 0 means none.
    limit: usize,
    is_stored: bool,
}

impl Options {
    fn put(&self, result: &mut ZSetValue, member: Bytes<'_>, score: f64, settings: &Settings) {
        match self.is_stored {
            true => result.set(member, score, settings),
            false => result.set_exact(member, score, settings),
        };
    }
}

/// `ZUNION numkeys key [key ...] [WEIGHTS ...] [AGGREGATE SUM|MIN|MAX|COUNT] [WITHSCORES]`. Reply: an array of members.
pub(crate) fn zunion(call: &mut Call<'_, '_>) {
    run(call, Operation::Union, ResultUse::Reply, "zunion");
}
/// `ZINTER numkeys key [key ...] [WEIGHTS ...] [AGGREGATE SUM|MIN|MAX|COUNT] [WITHSCORES]`. Reply: an array of members.
pub(crate) fn zinter(call: &mut Call<'_, '_>) {
    run(call, Operation::Inter, ResultUse::Reply, "zinter");
}
/// `ZDIFF numkeys key [key ...] [WITHSCORES]`: the members that only the first set has. Reply: an array of members.
pub(crate) fn zdiff(call: &mut Call<'_, '_>) {
    run(call, Operation::Diff, ResultUse::Reply, "zdiff");
}
/// `ZINTERCARD numkeys key [key ...] [LIMIT limit]`. Reply: how many members ZINTER would return, at most `limit`.
pub(crate) fn zintercard(call: &mut Call<'_, '_>) {
    run(call, Operation::Inter, ResultUse::Number, "zintercard");
}
/// `ZUNIONSTORE destination numkeys key [key ...] ...`. Reply: how many members were stored.
pub(crate) fn zunionstore(call: &mut Call<'_, '_>) {
    run(call, Operation::Union, ResultUse::Stored, "zunionstore");
}
/// `ZINTERSTORE destination numkeys key [key ...] ...`. Reply: how many members were stored.
pub(crate) fn zinterstore(call: &mut Call<'_, '_>) {
    run(call, Operation::Inter, ResultUse::Stored, "zinterstore");
}
/// `ZDIFFSTORE destination numkeys key [key ...]`. Reply: how many members were stored.
pub(crate) fn zdiffstore(call: &mut Call<'_, '_>) {
    run(call, Operation::Diff, ResultUse::Stored, "zdiffstore");
}

/// The cost of a union on one of its sources, in elements. A large destination counts like a source.
pub(crate) fn source_elements(_: Args<'_>, value: ValueRef<'_>) -> usize {
    part_elements(value.elements(), value)
}

/// ZUNIONSTORE of many members, on the lane.
pub(crate) fn zunionstore_long(call: &mut LaneCall<'_>) {
    store_long(call, Operation::Union, "zunionstore");
}
/// ZINTERSTORE of many members, on the lane.
pub(crate) fn zinterstore_long(call: &mut LaneCall<'_>) {
    store_long(call, Operation::Inter, "zinterstore");
}
/// ZDIFFSTORE of many members, on the lane.
pub(crate) fn zdiffstore_long(call: &mut LaneCall<'_>) {
    store_long(call, Operation::Diff, "zdiffstore");
}

fn run(call: &mut Call<'_, '_>, operation: Operation, wanted: ResultUse, command: &str) {
    if let Err(text) = try_run(call, operation, wanted, command) {
        call.reply.error(&text);
    }
}

fn try_run(
    call: &mut Call<'_, '_>,
    operation: Operation,
    wanted: ResultUse,
    command: &str,
) -> Result<(), Text> {
    let args = call.args;
    let count = number_of_keys(args, wanted, command)?;
    let settings = call.txn.keyspace().settings();
    let mut db = call.txn.db(call.db);
    if wanted == ResultUse::Stored {
        let mut storing = StoreWrite { operation, args, keys: call.keys, count, settings, payload: None };
        let values = values(&mut db, &call.keys[1..=count])?;
        let stored = storing.combine(&values, &|| {})?;
        storing.store(&mut db, &stored);
        call.reply.int(stored.len() as i64);
        return Ok(());
    }
    let values = values(&mut db, &call.keys[..count])?;
    let options = Options::parse(args, 2 + count, count, operation, wanted)?;
    let mut sources = sources(&values, &options)?;
    let reply = &mut *call.reply;
    if wanted == ResultUse::Number {
        let number = intersection(&mut sources, &options, &mut || reply.pause(), &mut |_, _| {});
        reply.int(number as i64);
        return Ok(());
    }
    let result = combine(operation, &mut sources, &options, settings, &mut || reply.pause());
    announce(reply, result.len(), options.with_scores);
    for (member, score) in result.iter(0) {
        if reply.exceeds_limit() {
            break;
        }
        send_member(reply, member, options.with_scores.then_some(score));
    }
    Ok(())
}

fn store_long(call: &mut LaneCall<'_>, operation: Operation, command: &str) {
    let count = match number_of_keys(call.args, ResultUse::Stored, command) {
        Ok(count) => count,
        Err(text) => return call.reply.error(&text),
    };
    let args = call.args;
    let keys: Vec<Key<'_>> =
        std::iter::once(1).chain(3..3 + count).map(|at| call.keyspace.key(args.at(at))).collect();
    let hashes: Vec<KeyHash> = keys.iter().map(|key| key.hash).collect();
    let settings = call.keyspace.settings();
    let mut storing = StoreWrite { operation, args, keys: &keys, count, settings, payload: None };
    match optimistic::apply(call, &hashes, &mut storing) {
        Ok(stored) => call.reply.int(stored.len() as i64),
        Err(text) => call.reply.error(&text),
    }
}

/// Parses the number of sources. There must be at least this many arguments after it.
fn number_of_keys(args: Args<'_>, wanted: ResultUse, command: &str) -> Result<usize, Text> {
    let number_at = if wanted == ResultUse::Stored { 2 } else { 1 };
    let count = parse::integer(args.at(number_at))?;
    if count < 1 {
        return Err(format!("ERR at least 1 input key is needed for '{command}' command").into());
    }
    match usize::try_from(count) {
        Ok(count) if count < args.len() - number_at => Ok(count),
        _ => Err(errors::SYNTAX.into()),
    }
}

/// The values of the sources. `None` for a missing key.
fn values<'d>(db: &'d mut Db<'_, '_>, keys: &[Key<'_>]) -> Result<Vec<Option<ValueRef<'d>>>, Text> {
    Ok(db.get_all(keys, |value| Source::of(value).map(|_| ()))?)
}

fn sources<'a>(
    values: &[Option<ValueRef<'a>>],
    options: &Options,
) -> Result<Vec<(Option<Source<'a>>, f64)>, Text> {
    let weighed = values
        .iter()
        .zip(&options.weights)
        .map(|(value, weight)| Ok((value.map(Source::of).transpose()?, *weight)));
    weighed.collect()
}

/// A STORE command, with its destination and its sources.
struct StoreWrite<'a> {
    operation: Operation,
    args: Args<'a>,
    keys: &'a [Key<'a>],
    /// Number of sources.
    count: usize,
    settings: &'a Settings,
    /// The DUMP payload of the result for AGGREGATE COUNT, which redis-server 7.0 cannot run from an append-only file.
    payload: Option<Blob>,
}

impl StoreWrite<'_> {
    fn combine(&mut self, values: &[Option<ValueRef<'_>>], pause: &dyn Fn()) -> Result<ZSetValue, Text> {
        let options =
            Options::parse(self.args, 3 + self.count, self.count, self.operation, ResultUse::Stored)?;
        let mut sources = sources(values, &options)?;
        let mut pause_in_combine = || {
            pause();
            true
        };
        let result = combine(self.operation, &mut sources, &options, self.settings, &mut pause_in_combine);
        self.payload = (options.aggregate == Aggregate::Count && !result.is_empty())
            .then(|| serial::payload(ValueRef::ZSet(&result), pause).into());
        Ok(result)
    }
}

impl OptimisticWrite for StoreWrite<'_> {
    type Source = Vec<Option<Value>>;
    type Outcome = ZSetValue;

    fn read(&self, db: &mut Db<'_, '_>) -> Result<Vec<Option<Value>>, Text> {
        let values = values(db, &self.keys[1..=self.count])?;
        Ok(values.into_iter().map(|value| value.map(|value| value.to_value())).collect())
    }
    fn is_same(&self, before: &Vec<Option<Value>>, now: &Vec<Option<Value>>) -> bool {
        before.iter().zip(now).all(|pair| match pair {
            (Some(before), Some(now)) => now.is_unchanged(before),
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        })
    }
    fn compute(&mut self, values: &Vec<Option<Value>>, pause: &dyn Fn()) -> Result<ZSetValue, Text> {
        let values: Vec<Option<ValueRef<'_>>> =
            values.iter().map(|value| value.as_ref().map(Value::view)).collect();
        self.combine(&values, pause)
    }
    fn store(&self, db: &mut Db<'_, '_>, result: &ZSetValue) {
        let key = &self.keys[0];
        if result.is_empty() {
            if db.delete(key) {
                db.effect(&[b"DEL".into(), key.bytes.into()]);
            }
            return;
        }
        db.insert(key, Value::ZSet(result.clone()), None);
        if let Some(payload) = &self.payload {
            db.effect(&[
                b"RESTORE".into(),
                key.bytes.into(),
                b"0".into(),
                Arg::Blob(payload),
                b"REPLACE".into(),
            ]);
        }
    }
}

impl Options {
    fn parse(
        args: Args<'_>,
        from: usize,
        keys: usize,
        operation: Operation,
        wanted: ResultUse,
    ) -> Result<Options, Text> {
        let mut options = Options {
            weights: vec![1.0; keys],
            aggregate: Aggregate::Sum,
            with_scores: false,
            limit: 0,
            is_stored: wanted == ResultUse::Stored,
        };
        let scored = operation != Operation::Diff && wanted != ResultUse::Number;
        let mut at = from;
        while at < args.len() {
            let left = args.len() - at;
            if scored && left > keys && args.is(at, "WEIGHTS") {
                for (i, weight) in options.weights.iter_mut().enumerate() {
                    *weight = strtod::parse(args.at(at + 1 + i)).ok_or(NOT_A_WEIGHT)?;
                }
                at += 1 + keys;
            } else if scored && left >= 2 && args.is(at, "AGGREGATE") {
                options.aggregate = if args.is(at + 1, "SUM") {
                    Aggregate::Sum
                } else if args.is(at + 1, "MIN") {
                    Aggregate::Min
                } else if args.is(at + 1, "MAX") {
                    Aggregate::Max
                } else if args.is(at + 1, "COUNT") {
                    Aggregate::Count
                } else {
                    return Err(errors::SYNTAX.into());
                };
                at += 2;
            } else if wanted == ResultUse::Reply && args.is(at, "WITHSCORES") {
                options.with_scores = true;
                at += 1;
            } else if wanted == ResultUse::Number && left >= 2 && args.is(at, "LIMIT") {
                options.limit =
                    parse::at_least_zero(args.at(at + 1), NEGATIVE_LIMIT).map_err(|_| NEGATIVE_LIMIT)?;
                at += 2;
            } else {
                return Err(errors::SYNTAX.into());
            }
        }
        Ok(options)
    }
}

/// The sources, in the order of the keys, each with its weight. `None`: the key is missing.
type Sources<'a> = [(Option<Source<'a>>, f64)];

/// Computes the resulting sorted set. Calls `pause` now and then. If `pause` returns false, nobody waits for the
/// result any more, and the result is incomplete.
fn combine(
    operation: Operation,
    sources: &mut Sources<'_>,
    options: &Options,
    settings: &Settings,
    pause: &mut dyn FnMut() -> bool,
) -> ZSetValue {
    let mut result = ZSetValue::new();
    match operation {
        Operation::Union => {
            sort(sources);
            let mut pauses = Pauses::new(pause);
            for (source, weight) in sources.iter() {
                let Some(source) = source else { continue };
                source.visit(&mut |member, score| {
                    let score = number_or_zero(options.aggregate.weighted(score, *weight));
                    let score = match result.score(&member) {
                        Some(so_far) => options.aggregate.of(so_far, score),
                        None => score,
                    };
                    options.put(&mut result, member, score, settings);
                    pauses.may_continue()
                });
            }
        }
        Operation::Inter => {
            intersection(sources, options, pause, &mut |member, score| {
                options.put(&mut result, member, score, settings);
            });
        }
        Operation::Diff => {
            let Some(((Some(first), _), others)) = sources.split_first() else { return result };
            let mut pauses = Pauses::new(pause);
            first.visit(&mut |member, score| {
                let mut others = others.iter().filter_map(|(source, _)| source.as_ref());
                if !others.any(|other| other.score(&member).is_some()) {
                    options.put(&mut result, member, score, settings);
                }
                pauses.may_continue()
            });
        }
    }
    result
}

/// Visits the members that all sources have. Returns their number, but at most the limit. Stops when `pause` returns
/// false.
fn intersection(
    sources: &mut Sources<'_>,
    options: &Options,
    pause: &mut dyn FnMut() -> bool,
    visit: &mut dyn FnMut(Bytes<'_>, f64),
) -> usize {
    sort(sources);
    let Some(((Some(smallest), weight), others)) = sources.split_first() else { return 0 };
    let (mut found, mut pauses) = (0, Pauses::new(pause));
    smallest.visit(&mut |member, score| {
        let mut score = number_or_zero(options.aggregate.weighted(score, *weight));
        for (source, weight) in others {
            let Some(other) = source.as_ref().and_then(|source| source.score(&member)) else {
                return pauses.may_continue();
            };
            score = options.aggregate.of(score, options.aggregate.weighted(other, *weight));
        }
        visit(member, score);
        found += 1;
        found != options.limit && pauses.may_continue()
    });
    found
}

/// Sorts the sources by size, the smallest first, so that scores are added in the same order as in redis-server.
fn sort(sources: &mut Sources<'_>) {
    sources.sort_by_key(|(source, _)| source.as_ref().map_or(0, Source::len));
}
