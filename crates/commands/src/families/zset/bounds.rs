//! The bounds of a range of a sorted set, which are ranks, scores or members, and the ranks between them.
//!
//! A range of members is meant for a sorted set whose members have one score. If the scores differ, the members are not
//! in order, and Redis calls the result unspecified. A listpack of redis-server compares member after member, so its
//! result is well defined, and is also the result here. A skip list of redis-server begins at a random level, so the
//! result of one command differs from server to server. The effects of a command on different scores name ranks instead
//! ([`Bounds::rank_words`]), so a replica removes the members that Strand has removed.

use crate::families::list::range as between;
use crate::parse::{self, Text};
use crate::strtod::Number;
use std::ops::Range;
use strand_keyspace::types::Bytes;
use strand_keyspace::{Collection, ZSetValue};

const NOT_A_SCORE: &str = "ERR min or max is not a float";
const NOT_A_STRING: &str = "ERR min or max not valid string range item";

/// An end of a range of scores.
#[derive(Clone, Copy, Debug)]
pub(super) struct Score {
    value: f64,
    excluded: bool,
}

impl Score {
    fn parse(text: &[u8]) -> Result<Score, &'static str> {
        let (excluded, number) = match text {
            [b'(', rest @ ..] => (true, rest),
            all => (false, all),
        };
        let found = Number::read(number);
        // A zero byte ends the text, as in C. An empty text is 0.
        let ends = number.get(found.used).is_none_or(|byte| *byte == 0);
        if ends && !found.value.is_nan() {
            Ok(Score { value: found.value, excluded })
        } else {
            Err(NOT_A_SCORE)
        }
    }
}

/// An end of a range of members.
#[derive(Clone, Copy, Debug)]
pub(super) enum Lex<'a> {
    First,
    Last,
    At { member: &'a [u8], excluded: bool },
}

impl<'a> Lex<'a> {
    fn parse(text: &'a [u8]) -> Result<Lex<'a>, &'static str> {
        match text {
            [b'-'] | [b'-', 0, ..] => Ok(Lex::First),
            [b'+'] | [b'+', 0, ..] => Ok(Lex::Last),
            [b'(', member @ ..] => Ok(Lex::At { member, excluded: true }),
            [b'[', member @ ..] => Ok(Lex::At { member, excluded: false }),
            _ => Err(NOT_A_STRING),
        }
    }
    /// As the start of a range: true when `member` is before the range.
    fn is_above(&self, member: &[u8]) -> bool {
        match self {
            Lex::First => false,
            Lex::Last => true,
            Lex::At { member: at, excluded } => member < *at || (*excluded && member == *at),
        }
    }
    /// As the end of a range: true when `member` is not after the range.
    fn is_not_below(&self, member: &[u8]) -> bool {
        match self {
            Lex::First => false,
            Lex::Last => true,
            Lex::At { member: at, excluded } => member < *at || (!*excluded && member == *at),
        }
    }
    /// True when no member can lie between `self`, the start of a range, and `end`.
    fn is_after(&self, end: Lex<'_>) -> bool {
        match (self, end) {
            (Lex::Last, Lex::Last) | (Lex::First, Lex::First) => false,
            (Lex::Last, _) | (_, Lex::First) => true,
            (Lex::First, _) | (_, Lex::Last) => false,
            (Lex::At { member, excluded }, Lex::At { member: end, excluded: end_excluded }) => {
                *member > end || (*member == end && (*excluded || end_excluded))
            }
        }
    }
}

/// The start and the end of a range.
#[derive(Clone, Copy, Debug)]
pub(super) enum Bounds<'a> {
    Ranks(i64, i64),
    Scores(Score, Score),
    Members(Lex<'a>, Lex<'a>),
}

/// Whether the bounds of a range are ranks, scores or members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RangeBy {
    Rank,
    Score,
    Lex,
}

impl<'a> Bounds<'a> {
    pub(super) fn parse(by: RangeBy, low: &'a [u8], high: &'a [u8]) -> Result<Bounds<'a>, Text> {
        Ok(match by {
            RangeBy::Rank => Bounds::Ranks(parse::integer(low)?, parse::integer(high)?),
            RangeBy::Score => Bounds::Scores(Score::parse(low)?, Score::parse(high)?),
            RangeBy::Lex => Bounds::Members(Lex::parse(low)?, Lex::parse(high)?),
        })
    }
    /// The ranks in the range. With `reverse`, bounds that are ranks count from the end, and members are compared from
    /// the last one.
    pub(super) fn ranks(&self, zset: &ZSetValue, reverse: bool) -> Range<usize> {
        self.first_ranks(zset, reverse, usize::MAX)
    }
    /// [`Bounds::ranks`], for a caller that needs only the first `most` members, with `reverse` the last. May return more.
    pub(super) fn first_ranks(&self, zset: &ZSetValue, reverse: bool, most: usize) -> Range<usize> {
        let len = zset.len();
        let (start, end) = match *self {
            Bounds::Ranks(low, high) => {
                let range = between(low, high, len);
                if reverse { (len - range.end, len - range.start) } else { (range.start, range.end) }
            }
            Bounds::Scores(low, high) => {
                let below = |s: f64| s < low.value || (low.excluded && s == low.value);
                let inside = |s: f64| s < high.value || (!high.excluded && s == high.value);
                (
                    zset.partition_point(|_, score| below(score)),
                    zset.partition_point(|_, score| inside(score)),
                )
            }
            Bounds::Members(low, high) => return members_between(zset, low, high, reverse, most),
        };
        start..end.max(start)
    }
    /// The number of members in the range. If the members are not in order, both ends are looked for by bisection, as in a
    /// skip list of redis-server.
    pub(super) fn count(&self, zset: &ZSetValue) -> usize {
        match *self {
            Bounds::Members(low, high) if !zset.is_packed() => {
                if low.is_after(high) {
                    0
                } else {
                    bisected(zset, low, high).len()
                }
            }
            Bounds::Members(..) | Bounds::Ranks(..) | Bounds::Scores(..) => self.ranks(zset, false).len(),
        }
    }
    /// The number of members that a command on the first `most` members of the range visits, about. At most the number of
    /// members in the set.
    pub(super) fn cost(&self, zset: &ZSetValue, most: usize, count: impl FnOnce() -> usize) -> usize {
        match self {
            Bounds::Members(..) if !has_one_score(zset) => zset.len().min(most),
            Bounds::Members(..) | Bounds::Ranks(..) | Bounds::Scores(..) => count(),
        }
    }
    /// The range as the start and the stop of a range of ranks, when the bounds are members that are not in order.
    /// Then effects must name ranks: see the module's documentation.
    pub(super) fn rank_words(&self, zset: &ZSetValue, ranks: &Range<usize>) -> Option<[String; 2]> {
        match self {
            Bounds::Members(..) if !has_one_score(zset) => match ranks.is_empty() {
                true => Some(["1".to_owned(), "0".to_owned()]),
                false => Some([ranks.start.to_string(), (ranks.end - 1).to_string()]),
            },
            Bounds::Members(..) | Bounds::Ranks(..) | Bounds::Scores(..) => None,
        }
    }
}

/// True when the members of `zset` have one score, so that they are in order.
fn has_one_score(zset: &ZSetValue) -> bool {
    let score = |rank: Option<usize>| rank.and_then(|rank| zset.get(rank)).map(|(_, score)| score);
    score(Some(0)) == score(zset.len().checked_sub(1))
}

/// The ranks of the members in the range from `low` to `high`. With `reverse`, they are looked for from the last member.
///
/// If the members are not in order, the result is what redis-server finds in a listpack: the members from the first one
/// that is not before `low` up to, but not including, the next one that is after `high`. This walks up to `most` members,
/// so [`Bounds::cost`] counts these then.
fn members_between(
    zset: &ZSetValue,
    low: Lex<'_>,
    high: Lex<'_>,
    reverse: bool,
    most: usize,
) -> Range<usize> {
    if has_one_score(zset) {
        return bisected(zset, low, high);
    }
    let is_after_low = |(member, _): &(Bytes<'_>, f64)| !low.is_above(member);
    let is_before_high = |(member, _): &(Bytes<'_>, f64)| high.is_not_below(member);
    // redis-server looks at the first and the last member before it looks for the range.
    let is_missed = |rank: usize, misses: &dyn Fn(&[u8]) -> bool| {
        zset.get(rank).is_none_or(|(member, _)| misses(&member))
    };
    if low.is_after(high)
        || is_missed(zset.len() - 1, &|last| low.is_above(last))
        || is_missed(0, &|first| !high.is_not_below(first))
    {
        return 0..0;
    }
    match reverse {
        false => {
            let start = zset.partition_point(|member, _| low.is_above(member));
            start..start + zset.iter(start).take(most).take_while(is_before_high).count()
        }
        true => {
            let end = match zset.is_packed() {
                true => {
                    zset.len() - zset.iter_back(zset.len()).take_while(|entry| !is_before_high(entry)).count()
                }
                false => zset.partition_point(|member, _| high.is_not_below(member)),
            };
            end - zset.iter_back(end).take(most).take_while(is_after_low).count()..end
        }
    }
}

/// The ranks between the two ends, if the members are in order.
fn bisected(zset: &ZSetValue, low: Lex<'_>, high: Lex<'_>) -> Range<usize> {
    let start = zset.partition_point(|member, _| low.is_above(member));
    let end = zset.partition_point(|member, _| high.is_not_below(member));
    start..end.max(start)
}
