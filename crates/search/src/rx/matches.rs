//! RX.MATCH, RX.FINDALL, RX.CAPTURES, RX.REPLACE: searches a text with a set. Results are gathered before the reply
//! starts, so a search that is too expensive here can still move to another thread.

use super::commands::number;
use super::registry::{Caches, ThreadCaches};
use super::set::Set;
use super::*;
use crate::error::{SearchError, lossy};
use crate::regex::{Counts, Halt, NONE, Progress, SearchBudget};
use crate::service::{Search, check_arity, check_may_use};
use regex_automata::util::interpolate;
use regex_automata::{PatternID, PatternSet};
use std::ops::Range;
use std::sync::Arc;
use strand_commands::call::{LaneCall, RunsOn};

/// Number of bytes of a row of the reply, without the matched text.
const ROW_BYTES: usize = 64;

/// `RX.MATCH name text`. Reply: the ids of the patterns that match anywhere in the text, in the order of the set.
///
/// # Errors
/// When the set does not exist, or the search must stop.
pub(crate) fn matching(search: &Search, call: &mut LaneCall<'_>) -> Result<(), SearchError> {
    let (caches, text) = begin(search, call)?;
    let found = caches.search(&search.regexes, call, text, |set, locked, budget| {
        find_patterns(&caches, set, locked, text, budget)
    })?;
    call.reply.array(found.len());
    found.iter().for_each(|p| call.reply.bulk(&caches.set.members[p.as_usize()].id));
    Ok(())
}

/// `RX.FINDALL name text [LIMIT n] [SPANS]`. Reply: rows `[id, match]`, or with SPANS `[id, start, end]` in bytes.
/// Rows are ordered by pattern, in the order of the set, then from left to right. Matches of one pattern do not
/// overlap.
///
/// # Errors
/// The errors of [`matching`], and an error when there are more than [`MATCHES_MAX`] matches, or more than
/// [`REPLY_BYTES_MAX`](crate::regex::budget::REPLY_BYTES_MAX) bytes of matches.
pub(crate) fn find_all(search: &Search, call: &mut LaneCall<'_>) -> Result<(), SearchError> {
    let (caches, text) = begin(search, call)?;
    let (mut limit, mut spans, mut at) = (None, false, 3);
    while at < call.args.len() {
        if call.args.is(at, "LIMIT") {
            limit = Some(number("LIMIT", call.args.get(at + 1), 1..=MATCHES_MAX as u64)? as usize);
            at += 1;
        } else if call.args.is(at, "SPANS") {
            spans = true;
        } else {
            return Err(unknown(call, at));
        }
        at += 1;
    }
    let mut rows = Vec::new();
    caches.search(&search.regexes, call, text, |set, locked, budget| {
        each_match(&caches, set, locked, text, budget, limit, &mut |_, budget, pattern, span| {
            budget.answer(ROW_BYTES + if spans { 0 } else { span.len() })?;
            rows.push((pattern, span));
            Ok(())
        })
    })?;
    check_count(rows.len(), limit)?;
    call.reply.array(rows.len());
    for (pattern, span) in rows {
        let id = &caches.set.members[pattern].id;
        call.reply.array(if spans { 3 } else { 2 });
        call.reply.bulk(id);
        if spans {
            call.reply.int(span.start as i64);
            call.reply.int(span.end as i64);
        } else {
            call.reply.bulk(&text[span]);
        }
    }
    Ok(())
}

/// `RX.CAPTURES name text [LIMIT n]`. Reply: as for RX.FINDALL, with rows `[id, groups]`. `groups` maps each group
/// that took part in the match, by name or number (0 is the whole match), to the text that the group matched.
///
/// # Errors
/// As [`find_all`].
pub(crate) fn captures(search: &Search, call: &mut LaneCall<'_>) -> Result<(), SearchError> {
    let (caches, text) = begin(search, call)?;
    let limit = parse_limit(call, 3)?;
    let mut rows = Vec::new();
    caches.search(&search.regexes, call, text, |set, locked, budget| {
        each_match(&caches, set, locked, text, budget, limit, &mut |locked, budget, pattern, span| {
            let slots =
                locked.matcher(set, pattern).groups(&set.members[pattern].pattern, text, span, budget)?;
            let groups = slots.chunks_exact(2).filter(|group| group[0] != NONE && group[1] != NONE);
            let bytes: usize = groups.map(|group| ROW_BYTES + group[1] - group[0]).sum();
            budget.answer(size_of_val(&slots[..]) + bytes)?;
            rows.push((pattern, slots));
            Ok(())
        })
    })?;
    check_count(rows.len(), limit)?;
    call.reply.array(rows.len());
    for (pattern, slots) in rows {
        let member = &caches.set.members[pattern];
        let info = member.pattern.machine.nfa.group_info();
        let took_part = |group: usize| slots[2 * group] != NONE && slots[2 * group + 1] != NONE;
        let groups: Vec<usize> = (0..slots.len() / 2).filter(|g| took_part(*g)).collect();
        call.reply.array(2);
        call.reply.bulk(&member.id);
        call.reply.map(groups.len());
        for group in groups {
            match info.to_name(PatternID::ZERO, group) {
                Some(name) => call.reply.bulk(name.as_bytes()),
                None => call.reply.bulk(group.to_string().as_bytes()),
            }
            call.reply.bulk(&text[slots[2 * group]..slots[2 * group + 1]]);
        }
    }
    Ok(())
}

/// `RX.REPLACE name text replacement [LIMIT n]`. Reply: the text with every match replaced (with LIMIT, the first `n`
/// matches of each pattern). `$1` and `${name}` stand for groups, `$$` for a dollar. Of several patterns, each works
/// on the result of the pattern before.
///
/// # Errors
/// As [`find_all`]. Also when the result exceeds [`REPLACED_BYTES_MAX`].
pub(crate) fn replace(search: &Search, call: &mut LaneCall<'_>) -> Result<(), SearchError> {
    check_arity(call, 4)?;
    let (caches, text) = begin(search, call)?;
    let mut work = Replacing {
        replacement: call.args.at(3),
        limit: parse_limit(call, 4)?,
        replaced: 0,
        is_too_long: false,
    };
    let mut changed = None;
    caches.search(&search.regexes, call, text, |set, locked, budget| {
        for i in 0..set.members.len() {
            let now: &[u8] = changed.as_deref().unwrap_or(text);
            if let Some(next) = work.replace_pattern(set, locked, i, now, budget)? {
                changed = Some(next);
            }
            if work.is_too_long || work.replaced > MATCHES_MAX {
                break;
            }
        }
        Ok(())
    })?;
    check_count(work.replaced, None)?;
    if work.is_too_long {
        let text = format!("ERR The text would have more than {REPLACED_BYTES_MAX} bytes");
        return Err(SearchError::Refused(text));
    }
    call.reply.bulk(changed.as_deref().unwrap_or(text));
    Ok(())
}

/// What RX.REPLACE needs for each pattern.
struct Replacing<'a> {
    replacement: &'a [u8],
    limit: Option<usize>,
    replaced: usize,
    is_too_long: bool,
}

impl Replacing<'_> {
    /// Replaces the matches of pattern number `i`; `None` when the pattern does not match.
    fn replace_pattern(
        &mut self,
        set: &Set,
        locked: &mut Caches,
        i: usize,
        text: &[u8],
        budget: &SearchBudget<'_>,
    ) -> Result<Option<Vec<u8>>, Halt> {
        let pattern = &set.members[i].pattern;
        let replacement = self.replacement;
        let dollars = replacement.iter().filter(|b| **b == b'$').count();
        let (mut out, mut copied, mut n) = (None::<Vec<u8>>, 0, 0);
        let mut progress = Progress::new(set.unicode);
        while self.limit.is_none_or(|limit| n < limit) {
            let matcher = locked.matcher(set, i);
            let Some(span) = progress.next(text, |at| matcher.find(pattern, text, at, budget))? else {
                break;
            };
            let out = out.get_or_insert_default();
            let grows = span.start - copied + replacement.len();
            budget.produce(grows + dollars.saturating_mul(span.len()))?;
            self.is_too_long = out.len() + grows > REPLACED_BYTES_MAX;
            if self.is_too_long {
                return Ok(None);
            }
            out.extend_from_slice(&text[copied..span.start]);
            copied = span.end;
            if dollars > 0 {
                let slots = matcher.groups(pattern, text, span, budget)?;
                let group = |g: usize, out: &mut Vec<u8>| {
                    if let Some([start, end]) = slots.get(2 * g..2 * g + 2)
                        && *start != NONE
                        && *end != NONE
                    {
                        // Append nothing more to a result that is over the limit, because the replacement may contain
                        // `$0` any number of times.
                        if out.len() <= REPLACED_BYTES_MAX {
                            out.extend_from_slice(&text[*start..*end]);
                        }
                    }
                };
                let info = pattern.machine.nfa.group_info();
                interpolate::bytes(replacement, group, |name| info.to_index(PatternID::ZERO, name), out);
            } else {
                out.extend_from_slice(replacement);
            }
            (n, self.replaced) = (n + 1, self.replaced + 1);
            check_thread(self.replaced, budget)?;
            self.is_too_long = out.len() > REPLACED_BYTES_MAX;
            if self.is_too_long || self.replaced > MATCHES_MAX {
                return Ok(None);
            }
        }
        let Some(mut out) = out else { return Ok(None) };
        budget.produce(text.len() - copied)?;
        out.extend_from_slice(&text[copied..]);
        self.is_too_long = out.len() > REPLACED_BYTES_MAX;
        Ok(Some(out))
    }
}

/// For a command whose arguments start with a set's name and a text: this thread's caches of the set, and the text.
fn begin<'a>(search: &Search, call: &LaneCall<'a>) -> Result<(Arc<ThreadCaches>, &'a [u8]), SearchError> {
    check_arity(call, 3)?;
    check_may_use(call, call.args.at(1))?;
    let text = call.args.at(2);
    if text.len() > TEXT_BYTES_MAX {
        let text = format!("ERR The text is too long: at most {TEXT_BYTES_MAX} bytes are allowed");
        return Err(SearchError::Refused(text));
    }
    Ok((search.regexes.caches(call.args.at(1))?, text))
}

/// Finds the patterns that match anywhere in the text.
fn find_patterns(
    caches: &ThreadCaches,
    set: &Set,
    locked: &mut Caches,
    text: &[u8],
    budget: &SearchBudget<'_>,
) -> Result<Vec<PatternID>, Halt> {
    if let Some(combined) = set.combined() {
        let (mut found, mut counts) = (PatternSet::new(set.members.len()), Counts::default());
        let result = combined.find_patterns(&mut locked.combined, text, &mut found, &mut counts, budget);
        caches.stats.add(&counts);
        result?;
        return Ok(found.iter().collect());
    }
    let mut found = Vec::new();
    for (i, member) in set.members.iter().enumerate() {
        if locked.matcher(set, i).is_match(&member.pattern, text, budget)? {
            found.push(PatternID::must(i));
        }
    }
    Ok(found)
}

/// The function that [`each_match`] calls for each match, with the caches, the budget, the pattern's number and the
/// match.
type OnMatch<'f> = &'f mut dyn FnMut(&mut Caches, &SearchBudget<'_>, usize, Range<usize>) -> Result<(), Halt>;

/// Calls `each` for every match, up to `limit` or [`MATCHES_MAX`] + 1.
fn each_match(
    caches: &ThreadCaches,
    set: &Set,
    locked: &mut Caches,
    text: &[u8],
    budget: &SearchBudget<'_>,
    limit: Option<usize>,
    each: OnMatch<'_>,
) -> Result<(), Halt> {
    let matching = match set.members.len() {
        1 => vec![PatternID::ZERO],
        _ => find_patterns(caches, set, locked, text, budget)?,
    };
    let mut n = 0;
    for i in matching.into_iter().map(|p| p.as_usize()) {
        let pattern = &set.members[i].pattern;
        let mut progress = Progress::new(set.unicode);
        loop {
            let matcher = locked.matcher(set, i);
            let Some(span) = progress.next(text, |at| matcher.find(pattern, text, at, budget))? else {
                break;
            };
            n += 1;
            check_thread(n, budget)?;
            each(locked, budget, i, span)?;
            if limit.is_some_and(|limit| n == limit) || n > MATCHES_MAX {
                return Ok(());
            }
        }
    }
    Ok(())
}

/// Moves a search with many matches off a worker. Elsewhere checks between matches whether the search must stop.
fn check_thread(matches: usize, budget: &SearchBudget<'_>) -> Result<(), Halt> {
    match budget.runs_on() {
        RunsOn::Worker if matches > WORKER_MATCHES_MAX => Err(Halt::MoveToLane),
        _ if matches.is_multiple_of(256) => budget.check(),
        _ => Ok(()),
    }
}

fn check_count(matches: usize, limit: Option<usize>) -> Result<(), SearchError> {
    if limit.is_none() && matches > MATCHES_MAX {
        return Err(SearchError::Refused(format!("ERR More than {MATCHES_MAX} matches: use LIMIT")));
    }
    Ok(())
}

fn parse_limit(call: &LaneCall<'_>, at: usize) -> Result<Option<usize>, SearchError> {
    match call.args.len() - at {
        0 => Ok(None),
        n if n <= 2 && call.args.is(at, "LIMIT") => {
            number("LIMIT", call.args.get(at + 1), 1..=MATCHES_MAX as u64).map(|n| Some(n as usize))
        }
        n => Err(unknown(call, if n > 2 && call.args.is(at, "LIMIT") { at + 2 } else { at })),
    }
}

fn unknown(call: &LaneCall<'_>, at: usize) -> SearchError {
    SearchError::Refused(format!("ERR Unknown argument `{}`", lossy(call.args.at(at))))
}
