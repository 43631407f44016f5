//! [`Set`]: patterns with ids, compiled one by one and, where they fit, together.

use super::*;
use crate::definitions::Words;
use crate::error::{SearchError, lossy};
use crate::regex::{
    CLASSES_WEIGHT_MAX, KEPT_DFA_BYTES_MAX, Machine, Pattern, PatternOptions, build_many, parse_within,
    tiers_within,
};
use regex_automata::PatternID;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Maximum size of the full DFA of one pattern in a set of many, in bytes.
const SMALL_DFA_BYTES: usize = 16 << 10;

/// Maximum weight of the classes of a set: about one second of a helper thread.
const SET_CLASSES_WEIGHT_MAX: u64 = 8 * CLASSES_WEIGHT_MAX;

/// The arguments of RX.SET.
#[derive(Debug)]
pub(crate) struct Definition<'a> {
    pub(crate) patterns: Vec<(&'a [u8], &'a [u8])>,
    pub(crate) unicode: bool,
    pub(crate) nocase: bool,
    pub(crate) memory_bytes: usize,
    pub(crate) deadline_ms: u64,
}

/// A compiled set of patterns.
#[derive(Debug)]
pub(crate) struct Set {
    pub(crate) members: Vec<Member>,
    /// One automaton for all patterns. `None` for a single pattern, and for patterns that are too large together.
    combined: Option<Machine>,
    /// The automaton that reports every end of every match, for streams. For several patterns this is
    /// [`Set::combined`]. For a single pattern the automaton is compiled on first use.
    ends: OnceLock<Option<Machine>>,
    pub(crate) unicode: bool,
    pub(crate) nocase: bool,
    pub(crate) memory_bytes: usize,
    pub(crate) deadline: Duration,
    pub(crate) compile_us: u64,
    /// Number of bytes in the caches of all threads.
    pub(crate) cache_bytes: AtomicU64,
    /// Number of bytes of the compiled automata.
    compiled_bytes: AtomicU64,
    options: PatternOptions,
    /// The RX.SET command that defined the set.
    pub(crate) source: Arc<Words>,
}

/// A pattern of a set, with its id.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) id: Vec<u8>,
    pub(crate) pattern: Pattern,
    /// True when the set's number of bytes includes the pattern's automaton that matches backwards.
    reverse_is_counted: AtomicBool,
}

impl Member {
    /// Adds the automaton that matches backwards, once it is compiled, to the bytes of `set`, which contains this
    /// member.
    pub(crate) fn count_reverse(&self, set: &Set) {
        if !self.reverse_is_counted.load(Relaxed)
            && self.pattern.has_reverse()
            && !self.reverse_is_counted.swap(true, Relaxed)
        {
            set.compiled_bytes.fetch_add(self.pattern.reverse_bytes() as u64, Relaxed);
        }
    }
}

impl Set {
    /// Compiles a set. `cancelled` is checked between patterns.
    ///
    /// # Errors
    /// The wrong pattern and the reason, or the limit that is exceeded.
    pub(crate) fn new(definition: &Definition<'_>, cancelled: &dyn Fn() -> bool) -> Result<Set, SearchError> {
        let (start, n) = (Instant::now(), definition.patterns.len());
        let options = PatternOptions {
            unicode: definition.unicode,
            nocase: definition.nocase,
            groups: true,
            dfa_bytes: (KEPT_DFA_BYTES_MAX / n).max(SMALL_DFA_BYTES),
            // A pattern has one cache for each direction.
            tiers: tiers_within(definition.memory_bytes / 2),
        };
        let (mut members, mut hirs, mut bytes) = (Vec::with_capacity(n), Vec::with_capacity(n), 0);
        // A copy of each parsed pattern is kept until all patterns are compiled together, so count the bytes of these
        // copies.
        let mut combined_bytes = 0;
        let mut weight_left = SET_CLASSES_WEIGHT_MAX;
        for (id, text) in &definition.patterns {
            if cancelled() {
                return Err(SearchError::Cancelled);
            }
            let parsed = parse_within(text, options, &mut weight_left);
            let compiled = parsed.and_then(|hir| Pattern::from_hir(hir, options));
            let pattern = compiled.map_err(|e| of_pattern(e, id, n))?;
            check_groups(&pattern).map_err(|e| of_pattern(e, id, n))?;
            bytes += pattern.bytes();
            if bytes > COMPILED_BYTES_MAX {
                let text = format!(
                    "ERR The set is too big: it exceeds {COMPILED_BYTES_MAX} bytes when it is compiled"
                );
                return Err(SearchError::Refused(text));
            }
            if n > 1 {
                combined_bytes += pattern.hir_bytes();
                if bytes + combined_bytes <= COMPILED_BYTES_MAX {
                    hirs.push(pattern.hir.clone());
                }
            }
            bytes += id.len() + size_of::<Member>();
            members.push(Member { id: id.to_vec(), pattern, reverse_is_counted: AtomicBool::new(false) });
        }
        // A set that is too large for one automaton is searched pattern by pattern.
        let kept = PatternOptions { dfa_bytes: KEPT_DFA_BYTES_MAX, ..options };
        let combined = (n > 1 && hirs.len() == n).then(|| build_many(&hirs, kept).ok()).flatten();
        bytes += size_of::<Set>() + combined.as_ref().map_or(0, Machine::bytes);
        Ok(Set {
            members,
            combined,
            ends: OnceLock::new(),
            unicode: definition.unicode,
            nocase: definition.nocase,
            memory_bytes: definition.memory_bytes,
            deadline: Duration::from_millis(definition.deadline_ms),
            compile_us: start.elapsed().as_micros() as u64,
            cache_bytes: AtomicU64::new(0),
            compiled_bytes: AtomicU64::new(bytes as u64),
            options: kept,
            source: Arc::default(),
        })
    }
    /// Stores the defining command and adds its bytes to the size of the set.
    pub(crate) fn keep_source(&mut self, source: Words) {
        let bytes: usize = source.iter().map(|word| size_of::<Vec<u8>>() + word.len()).sum();
        self.compiled_bytes.fetch_add(bytes as u64, Relaxed);
        self.source = Arc::new(source);
    }

    /// The automaton that searches for all patterns in one pass.
    pub(crate) fn combined(&self) -> Option<&Machine> {
        self.combined.as_ref()
    }

    /// The automaton that reports every end of every match. Compiled on first use.
    pub(crate) fn ends(&self) -> Option<&Machine> {
        let make = || {
            let machine = build_many(&[self.members[0].pattern.hir.clone()], self.options).ok()?;
            self.compiled_bytes.fetch_add(machine.bytes() as u64, Relaxed);
            Some(machine)
        };
        match (&self.combined, self.members.len()) {
            (Some(combined), _) => Some(combined),
            (None, 1) => self.ends.get_or_init(make).as_ref(),
            (None, _) => None,
        }
    }

    /// Number of bytes of the compiled automata.
    pub(crate) fn compiled_bytes(&self) -> u64 {
        self.compiled_bytes.load(Relaxed)
    }

    /// The automata that a search uses first.
    pub(crate) fn machines(&self) -> impl Iterator<Item = &Machine> {
        let one_by_one = if self.combined.is_some() { &[][..] } else { &self.members[..] };
        self.combined.iter().chain(one_by_one.iter().map(|m| &m.pattern.machine))
    }
}

/// Refuses a pattern with more than [`GROUPS_MAX`] groups.
///
/// # Errors
/// When there are more.
pub(super) fn check_groups(pattern: &Pattern) -> Result<(), SearchError> {
    if pattern.machine.nfa.group_info().group_len(PatternID::ZERO) > GROUPS_MAX {
        let text = format!("ERR Too many groups: at most {GROUPS_MAX} are allowed in a pattern");
        return Err(SearchError::Refused(text));
    }
    Ok(())
}

/// Adds the pattern's id to an error about one pattern of several.
fn of_pattern(error: SearchError, id: &[u8], patterns: usize) -> SearchError {
    match error {
        SearchError::Pattern { offset, why } if patterns > 1 => {
            SearchError::Pattern { offset, why: format!("{why}, in `{}`", lossy(id)) }
        }
        SearchError::Refused(text) if patterns > 1 => {
            SearchError::Refused(format!("{text}, in `{}`", lossy(id)))
        }
        other => other,
    }
}
