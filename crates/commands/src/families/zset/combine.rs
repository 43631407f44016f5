//! Unions, intersections and differences of sorted sets (and sets, whose members count with score 1): replied, stored,
//! counted.

use super::range::{announce, send_member};
use crate::call::Call;
use crate::cost::part_elements;
use crate::errors;
use crate::parse::{self, Text};
use crate::strtod;
use strand_keyspace::types::Bytes;
use strand_keyspace::{Collection, SetValue, Settings, Value, ValueRef, ZSetValue};
use strand_wire::args::Args;

const NOT_A_WEIGHT: &str = "ERR weight value is not a float";
const NEGATIVE_LIMIT: &str = "ERR LIMIT can't be negative";

/// What is made of the sources.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Operation {
    Union,
    Inter,
    Diff,
}

/// What becomes of the result.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wanted {
    Reply,
    Stored,
    Number,
}

/// How scores of one member become one.
#[derive(Clone, Copy)]
enum Aggregate {
    Sum,
    Min,
    Max,
}

impl Aggregate {
    /// Of an infinity and its opposite the sum is 0, as in redis-server.
    fn of(self, score: f64, other: f64) -> f64 {
        match self {
            Aggregate::Sum => number_or_zero(score + other),
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

/// A source that is there.
#[derive(Clone, Copy)]
enum Source<'a> {
    ZSet(&'a ZSetValue),
    /// Its members have the score 1.
    Set(&'a SetValue),
}

impl<'a> Source<'a> {
    fn of(value: ValueRef<'a>) -> Result<Source<'a>, &'static str> {
        match value {
            ValueRef::ZSet(zset) => Ok(Source::ZSet(zset)),
            ValueRef::Set(set) => Ok(Source::Set(set)),
            ValueRef::Str(_) | ValueRef::Hash(_) | ValueRef::List(_) | ValueRef::Stream(_) => {
                Err(errors::WRONG_TYPE)
            }
        }
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
    /// Visits members and scores until `visit` returns false.
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

/// The arguments behind the keys.
struct Options {
    weights: Vec<f64>,
    aggregate: Aggregate,
    with_scores: bool,
    /// 0: none.
    limit: usize,
}

/// `ZUNION numkeys key [key ...] [WEIGHTS ...] [AGGREGATE SUM|MIN|MAX] [WITHSCORES]`. Reply: an array of members.
pub(crate) fn zunion(call: &mut Call<'_, '_>) {
    run(call, Operation::Union, Wanted::Reply, "zunion");
}
/// `ZINTER numkeys key [key ...] [WEIGHTS ...] [AGGREGATE SUM|MIN|MAX] [WITHSCORES]`. Reply: an array of members.
pub(crate) fn zinter(call: &mut Call<'_, '_>) {
    run(call, Operation::Inter, Wanted::Reply, "zinter");
}
/// `ZDIFF numkeys key [key ...] [WITHSCORES]`: the members of the first that no other one has. Reply: an array of members.
pub(crate) fn zdiff(call: &mut Call<'_, '_>) {
    run(call, Operation::Diff, Wanted::Reply, "zdiff");
}
/// `ZINTERCARD numkeys key [key ...] [LIMIT limit]`. Reply: how many members ZINTER would return, `limit` at most.
pub(crate) fn zintercard(call: &mut Call<'_, '_>) {
    run(call, Operation::Inter, Wanted::Number, "zintercard");
}
/// `ZUNIONSTORE destination numkeys key [key ...] ...`. Reply: how many members it stored.
pub(crate) fn zunionstore(call: &mut Call<'_, '_>) {
    run(call, Operation::Union, Wanted::Stored, "zunionstore");
}
/// `ZINTERSTORE destination numkeys key [key ...] ...`. Reply: how many members it stored.
pub(crate) fn zinterstore(call: &mut Call<'_, '_>) {
    run(call, Operation::Inter, Wanted::Stored, "zinterstore");
}
/// `ZDIFFSTORE destination numkeys key [key ...]`. Reply: how many members it stored.
pub(crate) fn zdiffstore(call: &mut Call<'_, '_>) {
    run(call, Operation::Diff, Wanted::Stored, "zdiffstore");
}

/// What such a command costs on one of its sources; a destination that is large counts too.
pub(crate) fn source_elements(_: Args<'_>, value: ValueRef<'_>) -> usize {
    part_elements(value.elements(), value)
}

fn run(call: &mut Call<'_, '_>, operation: Operation, wanted: Wanted, command: &str) {
    if let Err(text) = try_run(call, operation, wanted, command) {
        call.reply.error(&text);
    }
}

fn try_run(call: &mut Call<'_, '_>, operation: Operation, wanted: Wanted, command: &str) -> Result<(), Text> {
    let args = call.args;
    let number_at = if wanted == Wanted::Stored { 2 } else { 1 };
    let count = parse::integer(args.at(number_at))?;
    if count < 1 {
        return Err(format!("ERR at least 1 input key is needed for '{command}' command").into());
    }
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    if count > args.len() - number_at - 1 {
        return Err(errors::SYNTAX.into());
    }
    let keys = &call.keys[number_at - 1..];
    let settings = call.txn.keyspace().settings();
    let mut values = Vec::with_capacity(count);
    for key in &keys[..count] {
        let value = call
            .txn
            .db(call.db)
            .get(key)
            .map(|record| Source::of(record.value()).map(|_| record.value().to_value()));
        values.push(value.transpose()?);
    }
    let options = Options::parse(args, number_at + 1 + count, count, operation, wanted)?;
    let mut sources = Vec::with_capacity(count);
    for (value, weight) in values.iter().zip(&options.weights) {
        let source = value.as_ref().map(|value| Source::of(value.view())).transpose()?;
        sources.push((source, *weight));
    }
    if wanted == Wanted::Number {
        call.reply.int(intersection(&mut sources, &options, &mut |_, _| {}) as i64);
        return Ok(());
    }
    let result = combine(operation, &mut sources, &options, settings);
    if wanted == Wanted::Reply {
        announce(call.reply, result.len(), options.with_scores);
        for (member, score) in result.iter(0) {
            if call.reply.is_over() {
                break;
            }
            send_member(call.reply, member, options.with_scores.then_some(score));
        }
        return Ok(());
    }
    let stored = result.len();
    let mut db = call.txn.db(call.db);
    let _ = match stored {
        0 => db.delete(&call.keys[0]),
        _ => db.insert(&call.keys[0], Value::ZSet(result), None),
    };
    call.reply.int(stored as i64);
    Ok(())
}

impl Options {
    fn parse(
        args: Args<'_>,
        from: usize,
        keys: usize,
        operation: Operation,
        wanted: Wanted,
    ) -> Result<Options, Text> {
        let mut options =
            Options { weights: vec![1.0; keys], aggregate: Aggregate::Sum, with_scores: false, limit: 0 };
        let scored = operation != Operation::Diff && wanted != Wanted::Number;
        let mut at = from;
        while at < args.len() {
            let left = args.len() - at;
            if scored && left > keys && args.is(at, "WEIGHTS") {
                for (i, weight) in options.weights.iter_mut().enumerate() {
                    *weight = strtod::parse(args.at(at + 1 + i)).ok_or(NOT_A_WEIGHT)?;
                }
                at += 1 + keys;
            } else if scored && left >= 2 && args.is(at, "AGGREGATE") {
                options.aggregate = match () {
                    () if args.is(at + 1, "SUM") => Aggregate::Sum,
                    () if args.is(at + 1, "MIN") => Aggregate::Min,
                    () if args.is(at + 1, "MAX") => Aggregate::Max,
                    () => return Err(errors::SYNTAX.into()),
                };
                at += 2;
            } else if wanted == Wanted::Reply && args.is(at, "WITHSCORES") {
                options.with_scores = true;
                at += 1;
            } else if wanted == Wanted::Number && left >= 2 && args.is(at, "LIMIT") {
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

/// Sources in the order of the keys, each with its weight; `None` where there is no key.
type Sources<'a> = [(Option<Source<'a>>, f64)];

fn combine(
    operation: Operation,
    sources: &mut Sources<'_>,
    options: &Options,
    settings: &Settings,
) -> ZSetValue {
    let mut result = ZSetValue::new();
    match operation {
        Operation::Union => {
            sort(sources);
            for (source, weight) in sources.iter() {
                let Some(source) = source else { continue };
                source.visit(&mut |member, score| {
                    let score = number_or_zero(score * weight);
                    let score = match result.score(&member) {
                        Some(so_far) => options.aggregate.of(so_far, score),
                        None => score,
                    };
                    result.set(member, score, settings);
                    true
                });
            }
        }
        Operation::Inter => {
            intersection(sources, options, &mut |member, score| {
                result.set(member, score, settings);
            });
        }
        Operation::Diff => {
            let Some(((Some(first), _), others)) = sources.split_first() else { return result };
            first.visit(&mut |member, score| {
                let mut others = others.iter().filter_map(|(source, _)| source.as_ref());
                if !others.any(|other| other.score(&member).is_some()) {
                    result.set(member, score, settings);
                }
                true
            });
        }
    }
    result
}

/// Visits the members that all sources have; how many there are, the limit at most.
fn intersection(
    sources: &mut Sources<'_>,
    options: &Options,
    visit: &mut dyn FnMut(Bytes<'_>, f64),
) -> usize {
    sort(sources);
    let Some(((Some(smallest), weight), others)) = sources.split_first() else { return 0 };
    let mut found = 0;
    smallest.visit(&mut |member, score| {
        let mut score = number_or_zero(score * weight);
        for (source, weight) in others {
            let Some(other) = source.as_ref().and_then(|source| source.score(&member)) else {
                return true;
            };
            score = options.aggregate.of(score, other * weight);
        }
        visit(member, score);
        found += 1;
        found != options.limit
    });
    found
}

/// The smallest first: the order in which scores are added up is redis-server's.
fn sort(sources: &mut Sources<'_>) {
    sources.sort_by_key(|(source, _)| source.as_ref().map_or(0, Source::len));
}
