//! [`Set`]: patterns with ids, compiled together and one by one.

use super::*;
use crate::definitions::Words;
use crate::error::{SearchError, lossy};
use crate::regex::{
    CLASSES_WEIGHT_MAX, KEPT_DFA_BYTES_MAX, Machine, Options, Pattern, build_many, parse_within, tiers_within,
};
use regex_automata::PatternID;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// A pattern of a set with many gets a full DFA up to this, in bytes.
const SMALL_DFA_BYTES: usize = 16 << 10;

/// Most that the classes of all patterns of a set may weigh: a second of a helper thread.
const SET_CLASSES_WEIGHT_MAX: u64 = 8 * CLASSES_WEIGHT_MAX;

/// What RX.SET was given.
#[derive(Debug)]
pub(crate) struct Definition<'a> {
    pub(crate) patterns: Vec<(&'a [u8], &'a [u8])>,
    pub(crate) unicode: bool,
    pub(crate) nocase: bool,
    pub(crate) memory_bytes: usize,
    pub(crate) deadline_ms: u64,
}

/// A compiled set.
#[derive(Debug)]
pub(crate) struct Set {
    pub(crate) members: Vec<Member>,
    /// All patterns in one pass, for a set of several that fits.
    together: Option<Machine>,
    /// Every end of every match, for streams: [`Set::together`] or, for a single pattern, made when first needed.
    ends: OnceLock<Option<Machine>>,
    pub(crate) unicode: bool,
    pub(crate) nocase: bool,
    pub(crate) memory_bytes: usize,
    pub(crate) deadline: Duration,
    pub(crate) compile_us: u64,
    /// Bytes of the caches of all threads.
    pub(crate) cache_bytes: AtomicU64,
    /// Bytes of what is compiled.
    compiled_bytes: AtomicU64,
    options: Options,
    /// The RX.SET that made it.
    pub(crate) source: Words,
}

/// A pattern and its id.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) id: Vec<u8>,
    pub(crate) pattern: Pattern,
    /// Its reverse half is among the bytes of the set.
    reverse_is_counted: AtomicBool,
}

impl Member {
    /// Adds the reverse half, once it is compiled, to the bytes of `set`, which has this member.
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
    /// Compiles; `cancelled` is asked between patterns.
    ///
    /// # Errors
    /// Which pattern is wrong and why, or which limit is exceeded.
    pub(crate) fn new(definition: &Definition<'_>, cancelled: &dyn Fn() -> bool) -> Result<Set, SearchError> {
        let (start, n) = (Instant::now(), definition.patterns.len());
        let options = Options {
            unicode: definition.unicode,
            nocase: definition.nocase,
            groups: true,
            dfa_bytes: (KEPT_DFA_BYTES_MAX / n).max(SMALL_DFA_BYTES),
            // A pattern has a cache for each direction.
            tiers: tiers_within(definition.memory_bytes / 2),
        };
        let (mut members, mut hirs, mut bytes) = (Vec::with_capacity(n), Vec::with_capacity(n), 0);
        // A copy of each pattern is held until all are compiled together.
        let mut together_bytes = 0;
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
                together_bytes += pattern.hir_bytes();
                if bytes + together_bytes <= COMPILED_BYTES_MAX {
                    hirs.push(pattern.hir.clone());
                }
            }
            bytes += id.len() + size_of::<Member>();
            members.push(Member { id: id.to_vec(), pattern, reverse_is_counted: AtomicBool::new(false) });
        }
        // What is too big together is searched for one by one.
        let kept = Options { dfa_bytes: KEPT_DFA_BYTES_MAX, ..options };
        let together = (n > 1 && hirs.len() == n).then(|| build_many(&hirs, kept).ok()).flatten();
        bytes += size_of::<Set>() + together.as_ref().map_or(0, Machine::bytes);
        Ok(Set {
            members,
            together,
            ends: OnceLock::new(),
            unicode: definition.unicode,
            nocase: definition.nocase,
            memory_bytes: definition.memory_bytes,
            deadline: Duration::from_millis(definition.deadline_ms),
            compile_us: start.elapsed().as_micros() as u64,
            cache_bytes: AtomicU64::new(0),
            compiled_bytes: AtomicU64::new(bytes as u64),
            options: kept,
            source: Words::new(),
        })
    }
    /// Keeps the command that made it, whose bytes count as its own.
    pub(crate) fn keep_source(&mut self, source: Words) {
        let bytes: usize = source.iter().map(|word| size_of::<Vec<u8>>() + word.len()).sum();
        self.compiled_bytes.fetch_add(bytes as u64, Relaxed);
        self.source = source;
    }

    /// The machine for all patterns in one pass.
    pub(crate) fn together(&self) -> Option<&Machine> {
        self.together.as_ref()
    }

    /// The machine that finds every end of every match; makes it where it is not there yet.
    pub(crate) fn ends(&self) -> Option<&Machine> {
        let make = || {
            let machine = build_many(&[self.members[0].pattern.hir.clone()], self.options).ok()?;
            self.compiled_bytes.fetch_add(machine.bytes() as u64, Relaxed);
            Some(machine)
        };
        match (&self.together, self.members.len()) {
            (Some(together), _) => Some(together),
            (None, 1) => self.ends.get_or_init(make).as_ref(),
            (None, _) => None,
        }
    }

    /// Bytes of what is compiled.
    pub(crate) fn compiled_bytes(&self) -> u64 {
        self.compiled_bytes.load(Relaxed)
    }

    /// The machines that are searched with first.
    pub(crate) fn machines(&self) -> impl Iterator<Item = &Machine> {
        let one_by_one = if self.together.is_some() { &[][..] } else { &self.members[..] };
        self.together.iter().chain(one_by_one.iter().map(|m| &m.pattern.machine))
    }
}

/// Refuses a pattern with more than [`GROUPS_MAX`].
///
/// # Errors
/// That.
pub(super) fn check_groups(pattern: &Pattern) -> Result<(), SearchError> {
    if pattern.machine.nfa.group_info().group_len(PatternID::ZERO) > GROUPS_MAX {
        let text = format!("ERR Too many groups: at most {GROUPS_MAX} are allowed in a pattern");
        return Err(SearchError::Refused(text));
    }
    Ok(())
}

/// Says which pattern of several an error is about.
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
