//! RX.CHECK: predicts the cost of a pattern before it is used.

use super::set::check_groups;
use crate::error::{SearchError, lossy};
use crate::regex::budget::simulation_ns;
use crate::regex::{KEPT_DFA_BYTES_MAX, Pattern, PatternOptions};
use crate::service::check_arity;
use crate::trigram::Query;
use regex_syntax::hir::literal::Extractor;
use strand_commands::call::LaneCall;

/// Worst-case time of a full DFA per byte, in nanoseconds.
const FULL_NS: f64 = 3.0;

/// `RX.CHECK pattern [UNICODE] [NOCASE]`. Reply: a map of the pattern's engine, its sizes, the literals that it
/// starts with or must contain, its worst time for 1,000 bytes, and whether its lazy DFA can quit.
///
/// # Errors
/// The error in the pattern.
pub(crate) fn check(call: &mut LaneCall<'_>) -> Result<(), SearchError> {
    check_arity(call, 2)?;
    let mut options =
        PatternOptions { groups: true, dfa_bytes: KEPT_DFA_BYTES_MAX, ..PatternOptions::once(false) };
    for at in 2..call.args.len() {
        if call.args.is(at, "UNICODE") {
            options.unicode = true;
        } else if call.args.is(at, "NOCASE") {
            options.nocase = true;
        } else {
            return Err(SearchError::Refused(format!("ERR Unknown argument `{}`", lossy(call.args.at(at)))));
        }
    }
    let pattern = Pattern::new(call.args.at(1), options)?;
    check_groups(&pattern)?;
    let machine = &pattern.machine;
    let groups = machine.nfa.group_info().all_group_len();
    let worst_us = match machine.is_full() {
        true => FULL_NS,
        false => (simulation_ns(machine.states(), 1000) as f64 / 1000.0).round(),
    };
    let prefixes = Extractor::new().extract(&pattern.hir);
    let prefix = prefixes.longest_common_prefix().filter(|p| !p.is_empty());
    let trigrams = Query::of(&pattern.hir);
    let reply = &mut *call.reply;
    reply.map(13);
    let mut text = |name: &str, value: Option<&[u8]>| {
        reply.bulk(name.as_bytes());
        match value {
            Some(value) => reply.bulk(value),
            None => reply.null(),
        }
    };
    text("engine", Some(if machine.is_full() { b"full-dfa" } else { b"lazy-dfa" }));
    text("literal_prefix", prefix);
    text("literal", pattern.literal.as_ref().map(|l| l.needle()));
    text("trigrams", trigrams.as_ref().map(|q| q.to_string()).as_deref().map(str::as_bytes));
    reply.bulk(b"worst_us_per_kb");
    reply.double(worst_us);
    for (name, n) in [
        ("nfa_states", machine.states()),
        ("nfa_bytes", machine.nfa.memory_usage()),
        ("dfa_bytes", machine.full_bytes()),
        ("compiled_bytes", pattern.bytes()),
        ("groups", groups.saturating_sub(1)),
        ("unicode_word_boundary", usize::from(machine.nfa.look_set_any().contains_word_unicode())),
        ("prone_to_quit", usize::from(machine.is_prone_to_quit())),
        ("indexable", usize::from(trigrams.is_some())),
    ] {
        reply.bulk(name.as_bytes());
        reply.int(n as i64);
    }
    Ok(())
}
