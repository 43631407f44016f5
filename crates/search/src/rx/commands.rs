//! RX.SET, RX.DEL, RX.LIST: the commands that define sets.

use super::set::{Definition, Set};
use super::*;
use crate::definitions::words;
use crate::error::{SearchError, lossy};
use crate::service::{Search, check_arity, check_may_change};
use std::collections::HashSet;
use strand_commands::call::LaneCall;
use strand_wire::args::Args;

/// `RX.SET name ID id pattern [ID id pattern ...] [UNICODE] [NOCASE] [MEMORY bytes] [DEADLINE ms]`. Searches that
/// are running finish with the old set.
///
/// # Errors
/// The error in the arguments or in a pattern.
pub(crate) fn set(search: &Search, call: &mut LaneCall<'_>) -> Result<(), SearchError> {
    check_arity(call, 3)?;
    check_may_change(call, call.args.at(1))?;
    let definition = parse(call.args)?;
    // The command completes although its client has disconnected, like every command that changes data. Its cost is
    // bounded.
    let cancelled = || {
        call.pause();
        false
    };
    let mut set = Set::new(&definition, &cancelled)?;
    set.keep_source(words(call.args));
    search.regexes.put(call.args.at(1), set, || search.record(&words(call.args)))?;
    call.reply.ok();
    Ok(())
}

/// `RX.DEL name [name ...]`. Reply: the number of these sets that existed.
///
/// # Errors
/// None of its own.
pub(crate) fn delete(search: &Search, call: &mut LaneCall<'_>) -> Result<(), SearchError> {
    check_arity(call, 2)?;
    call.args.iter().skip(1).try_for_each(|name| check_may_change(call, name))?;
    let remove = |name: &&[u8]| {
        let recorded = || search.record(&[b"RX.DEL".to_vec(), name.to_vec()]);
        search.regexes.remove(name, recorded)
    };
    let removed = call.args.iter().skip(1).filter(remove).count();
    call.reply.int(removed as i64);
    Ok(())
}

/// `RX.LIST`. Reply: the names of the sets that the user may use, sorted.
///
/// # Errors
/// None of its own.
pub(crate) fn list(search: &Search, call: &mut LaneCall<'_>) -> Result<(), SearchError> {
    let mut names = search.regexes.names();
    names.retain(|name| call.may_read(name));
    call.reply.array(names.len());
    names.iter().for_each(|name| call.reply.bulk(name));
    Ok(())
}

fn parse(args: Args<'_>) -> Result<Definition<'_>, SearchError> {
    check_name("name", args.at(1))?;
    let mut d = Definition {
        patterns: Vec::new(),
        unicode: false,
        nocase: false,
        memory_bytes: MEMORY_BYTES_DEFAULT,
        deadline_ms: DEADLINE_MS_DEFAULT,
    };
    let mut ids = HashSet::new();
    let mut at = 2;
    while at < args.len() {
        if args.is(at, "ID") {
            let (Some(id), Some(pattern)) = (args.get(at + 1), args.get(at + 2)) else {
                return Err(SearchError::refused("ERR ID needs an id and a pattern"));
            };
            check_name("id", id)?;
            if !ids.insert(id) {
                return Err(SearchError::refused(format!("ERR Duplicate id `{}`", lossy(id))));
            }
            d.patterns.push((id, pattern));
            if d.patterns.len() > PATTERNS_MAX {
                let text = format!("ERR Too many patterns: at most {PATTERNS_MAX} are allowed in a set");
                return Err(SearchError::Refused(text));
            }
            at += 2;
        } else if args.is(at, "UNICODE") {
            d.unicode = true;
        } else if args.is(at, "NOCASE") {
            d.nocase = true;
        } else if args.is(at, "MEMORY") {
            let range = MEMORY_BYTES_MIN as u64..=MEMORY_BYTES_MAX as u64;
            d.memory_bytes = number("MEMORY", args.get(at + 1), range)? as usize;
            at += 1;
        } else if args.is(at, "DEADLINE") {
            d.deadline_ms = number("DEADLINE", args.get(at + 1), 1..=DEADLINE_MS_MAX)?;
            at += 1;
        } else {
            return Err(SearchError::Refused(format!("ERR Unknown argument `{}`", lossy(args.at(at)))));
        }
        at += 1;
    }
    if d.patterns.is_empty() {
        return Err(SearchError::refused("ERR A set needs at least one pattern: ID id pattern"));
    }
    Ok(d)
}

fn check_name(what: &str, name: &[u8]) -> Result<(), SearchError> {
    if name.is_empty() || name.len() > NAME_BYTES_MAX {
        return Err(SearchError::Refused(format!("ERR The {what} must have 1 to {NAME_BYTES_MAX} bytes")));
    }
    Ok(())
}

/// The number after an option.
///
/// # Errors
/// When it is missing or not in `range`.
pub(super) fn number(
    name: &str,
    text: Option<&[u8]>,
    range: std::ops::RangeInclusive<u64>,
) -> Result<u64, SearchError> {
    let text = text.ok_or_else(|| SearchError::Refused(format!("ERR {name} needs an argument")))?;
    let n = std::str::from_utf8(text).ok().and_then(|n| n.parse::<u64>().ok());
    n.filter(|n| range.contains(n)).ok_or_else(|| {
        let (min, max) = (range.start(), range.end());
        SearchError::Refused(format!("ERR {name} is not an integer from {min} to {max}"))
    })
}
