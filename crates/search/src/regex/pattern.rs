//! [`Pattern`]: a compiled pattern.

use super::*;
use crate::error::SearchError;
use memchr::memmem::Finder;
use regex_automata::dfa::dense;
use regex_automata::hybrid::dfa as lazy;
use regex_automata::nfa::thompson::pikevm::PikeVM;
use regex_automata::nfa::thompson::{self, NFA, WhichCaptures};
use regex_automata::util::prefilter::Prefilter;
use regex_automata::util::syntax;
use regex_automata::{MatchKind, dfa::StartKind};
use regex_syntax::hir::{Hir, HirKind};

/// Shortest literal that is worth looking for before the automaton runs.
const LITERAL_BYTES_MIN: usize = 3;

/// A compiled pattern: immutable, shared by any number of [`Matcher`]s.
#[derive(Debug)]
pub(crate) struct Pattern {
    /// Every match contains this.
    pub(super) literal: Option<Finder<'static>>,
    pub(super) engine: Engine,
    pub(super) pike: PikeVM,
}

/// What searches first.
#[derive(Debug)]
pub(super) enum Engine {
    /// Every state is built: constant cost for ever.
    Full(dense::DFA<Vec<u32>>),
    /// States are built as they are met: one that may give up, one (made when first needed) that never does.
    Lazy(lazy::DFA, Box<lazy::DFA>),
}

impl Pattern {
    /// Compiles `pattern`; `nocase` folds ASCII case.
    ///
    /// # Errors
    /// Where the pattern is wrong and why, or which limit it exceeds.
    pub(crate) fn new(pattern: &[u8], nocase: bool) -> Result<Pattern, SearchError> {
        Pattern::with_dfa_limit(pattern, nocase, DFA_BYTES_MAX)
    }

    pub(super) fn with_dfa_limit(
        pattern: &[u8],
        nocase: bool,
        dfa_bytes: usize,
    ) -> Result<Pattern, SearchError> {
        if pattern.len() > PATTERN_BYTES_MAX {
            let text = format!(
                "ERR The pattern is too long: {} bytes, at most {PATTERN_BYTES_MAX} are allowed",
                pattern.len()
            );
            return Err(SearchError::Refused(text));
        }
        let text = std::str::from_utf8(pattern).map_err(|e| SearchError::Pattern {
            offset: e.valid_up_to(),
            why: r"not UTF-8 (write other bytes as \xNN)".into(),
        })?;
        let config = syntax::Config::new()
            .unicode(false)
            .utf8(false)
            .case_insensitive(nocase)
            .nest_limit(PATTERN_DEPTH_MAX);
        let hir = syntax::parse_with(text, &config).map_err(|e| syntax_error(&e))?;
        let nfa = build_nfa(&hir)?;
        let prefilter = Prefilter::from_hir_prefix(MatchKind::LeftmostFirst, &hir);
        let literal = (!nocase).then(|| required_literal(&hir)).flatten();
        let pike = PikeVM::builder()
            .configure(PikeVM::config().prefilter(prefilter.clone()))
            .build_from_nfa(nfa.clone())
            .map_err(|e| build_error(&e))?;
        let full = dense::Builder::new()
            .configure(
                dense::Config::new()
                    .start_kind(StartKind::Unanchored)
                    .prefilter(prefilter.clone())
                    .specialize_start_states(prefilter.is_some())
                    .dfa_size_limit(Some(dfa_bytes))
                    .determinize_size_limit(Some(dfa_bytes)),
            )
            .build_from_nfa(&nfa);
        let engine = match full {
            Ok(dfa) => Engine::Full(dfa),
            Err(_) => {
                let config = lazy::Config::new()
                    .prefilter(prefilter.clone())
                    .specialize_start_states(prefilter.is_some())
                    .unicode_word_boundary(true)
                    .cache_capacity(LAZY_BYTES_MAX)
                    .skip_cache_capacity_check(true);
                let build = |c: lazy::Config| {
                    let built = lazy::Builder::new().configure(c).build_from_nfa(nfa.clone());
                    built.map_err(|e| SearchError::Refused(format!("ERR The pattern does not compile: {e}")))
                };
                let impatient = config
                    .clone()
                    .minimum_cache_clear_count(Some(LAZY_CLEARS_MIN))
                    .minimum_bytes_per_state(Some(LAZY_BYTES_PER_STATE_MIN));
                Engine::Lazy(build(impatient)?, Box::new(build(config)?))
            }
        };
        Ok(Pattern { literal, engine, pike })
    }
}

fn build_nfa(hir: &Hir) -> Result<NFA, SearchError> {
    let config = thompson::Config::new()
        .utf8(false)
        .shrink(false)
        .nfa_size_limit(Some(NFA_BYTES_MAX))
        .which_captures(WhichCaptures::Implicit);
    thompson::Compiler::new().configure(config).build_from_hir(hir).map_err(|e| build_error(&e))
}

fn build_error(e: &thompson::BuildError) -> SearchError {
    if e.size_limit().is_some() {
        return SearchError::Refused(format!(
            "ERR The pattern is too big: its automaton exceeds {NFA_BYTES_MAX} bytes"
        ));
    }
    SearchError::Refused(format!("ERR The pattern does not compile: {e}"))
}

fn syntax_error(e: &regex_syntax::Error) -> SearchError {
    let (offset, why) = match e {
        regex_syntax::Error::Parse(e) => (e.span().start.offset, e.kind().to_string()),
        regex_syntax::Error::Translate(e) => (e.span().start.offset, e.kind().to_string()),
        e => (0, e.to_string()),
    };
    SearchError::Pattern { offset, why }
}

/// The longest literal that stands in every match.
fn required_literal(hir: &Hir) -> Option<Finder<'static>> {
    fn longest<'h>(hir: &'h Hir, best: &mut &'h [u8]) {
        match hir.kind() {
            HirKind::Literal(l) if l.0.len() > best.len() => *best = &l.0,
            HirKind::Concat(parts) => parts.iter().for_each(|p| longest(p, best)),
            HirKind::Capture(c) => longest(&c.sub, best),
            HirKind::Repetition(r) if r.min > 0 => longest(&r.sub, best),
            _ => {}
        }
    }
    let mut best: &[u8] = b"";
    longest(hir, &mut best);
    (best.len() >= LITERAL_BYTES_MIN).then(|| Finder::new(best).into_owned())
}
