//! [`Pattern`]: a compiled pattern.

use super::classes::weigh;
use super::machine::{BuildOptions, Machine};
use super::*;
use crate::error::SearchError;
use memchr::memmem::Finder;
use regex_automata::MatchKind;
use regex_automata::nfa::thompson::{self, NFA, WhichCaptures};
use regex_automata::util::prefilter::Prefilter;
use regex_syntax::ast::parse::ParserBuilder;
use regex_syntax::hir::translate::TranslatorBuilder;
use regex_syntax::hir::{Class, Hir, HirKind};
use std::sync::OnceLock;

/// Minimum length of a literal that is searched for before the automaton runs.
const LITERAL_BYTES_MIN: usize = 3;

/// Maximum number of bytes of a full DFA that matches backwards, and of the work to build it.
const REVERSE_DFA_BYTES_MAX: usize = 64 << 10;

/// Options of parsing and compiling a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PatternOptions {
    /// True: use Unicode rules, not ASCII rules, for `\w`, `.`, case and so on.
    pub(crate) unicode: bool,
    /// True: ignore the case of letters.
    pub(crate) nocase: bool,
    /// True when the groups of a match are needed.
    pub(crate) groups: bool,
    /// Maximum number of bytes of a full DFA.
    pub(crate) dfa_bytes: usize,
    /// The cache sizes of a lazy DFA.
    pub(crate) tiers: &'static [usize],
}

impl PatternOptions {
    /// The options of a pattern that is compiled for one command.
    pub(crate) fn once(nocase: bool) -> PatternOptions {
        PatternOptions {
            unicode: false,
            nocase,
            groups: false,
            dfa_bytes: DFA_BYTES_MAX,
            tiers: tiers_within(0),
        }
    }
}

/// A compiled pattern, shared by any number of [`Matcher`]s.
#[derive(Debug)]
pub(crate) struct Pattern {
    pub(crate) hir: Hir,
    hir_bytes: usize,
    /// A literal that every match contains.
    pub(crate) literal: Option<Finder<'static>>,
    pub(crate) machine: Machine,
    options: PatternOptions,
    /// The automaton that finds where a match starts. Compiled on first use; `None` when it cannot be compiled.
    reverse: OnceLock<Option<Box<Machine>>>,
}

impl Pattern {
    /// Compiles `pattern`.
    ///
    /// # Errors
    /// The offset and the reason, or the limit that is exceeded.
    pub(crate) fn new(pattern: &[u8], options: PatternOptions) -> Result<Pattern, SearchError> {
        Pattern::from_hir(parse(pattern, options)?, options)
    }

    /// Compiles a pattern that [`parse`] has parsed.
    ///
    /// # Errors
    /// As [`Pattern::new`].
    pub(crate) fn from_hir(hir: Hir, options: PatternOptions) -> Result<Pattern, SearchError> {
        let captures = if options.groups { WhichCaptures::All } else { WhichCaptures::Implicit };
        let nfa = build_nfa(std::slice::from_ref(&hir), false, captures)?;
        let prefilter = Prefilter::from_hir_prefix(MatchKind::LeftmostFirst, &hir);
        let literal = required_literal(&hir);
        let PatternOptions { dfa_bytes, tiers, .. } = options;
        let build = BuildOptions { kind: MatchKind::LeftmostFirst, reverse: false, dfa_bytes, tiers };
        let machine = Machine::new(nfa, prefilter, &build).map_err(|e| does_not_compile(&*e))?;
        let hir_bytes = hir_bytes(&hir);
        Ok(Pattern { hir, hir_bytes, literal, machine, options, reverse: OnceLock::new() })
    }

    /// True when `text` lacks the required literal, so nothing in it can match.
    ///
    /// # Errors
    /// When the search must move to another thread.
    pub(crate) fn lacks_literal(&self, text: &[u8], budget: &SearchBudget<'_>) -> Result<bool, Halt> {
        let Some(literal) = &self.literal else { return Ok(false) };
        let found = literal.find(text);
        budget.spend_literal_search(found.unwrap_or(text.len()))?;
        Ok(found.is_none())
    }

    /// Heap bytes of the compiled pattern.
    pub(crate) fn bytes(&self) -> usize {
        let literal = self.literal.as_ref().map_or(0, |l| l.needle().len());
        self.machine.bytes() + self.hir_bytes + literal + self.reverse_bytes()
    }
    /// Bytes of the parsed pattern, which is kept for later use.
    pub(crate) fn hir_bytes(&self) -> usize {
        self.hir_bytes
    }
    /// Bytes of the automaton compiled by [`Pattern::reverse`].
    pub(crate) fn reverse_bytes(&self) -> usize {
        let reverse = self.reverse.get().and_then(|r| r.as_ref());
        reverse.map_or(0, |r| size_of::<Machine>() + r.bytes())
    }

    /// The automaton that finds where a match starts.
    pub(crate) fn reverse(&self) -> Option<&Machine> {
        let build = || {
            let nfa = build_nfa(std::slice::from_ref(&self.hir), true, WhichCaptures::None).ok()?;
            let dfa_bytes = self.options.dfa_bytes.min(REVERSE_DFA_BYTES_MAX);
            let tiers = self.options.tiers;
            let build = BuildOptions { kind: MatchKind::All, reverse: true, dfa_bytes, tiers };
            Machine::new(nfa, None, &build).ok().map(Box::new)
        };
        self.reverse.get_or_init(build).as_deref()
    }

    /// True when [`Pattern::reverse`] need not compile anything.
    pub(crate) fn has_reverse(&self) -> bool {
        self.reverse.get().is_some()
    }
}

/// Parses a pattern.
///
/// # Errors
/// The offset and the reason.
pub(crate) fn parse(pattern: &[u8], options: PatternOptions) -> Result<Hir, SearchError> {
    parse_within(pattern, options, &mut CLASSES_WEIGHT_MAX.clone())
}

/// Parses a pattern as [`parse`] does. Before the pattern's classes are built, their weight is subtracted from
/// `weight_left`.
///
/// # Errors
/// As [`parse`]. Also when no weight is left.
pub(crate) fn parse_within(
    pattern: &[u8],
    options: PatternOptions,
    weight_left: &mut u64,
) -> Result<Hir, SearchError> {
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
    let PatternOptions { unicode, nocase, .. } = options;
    let parsed = ParserBuilder::new().nest_limit(PATTERN_DEPTH_MAX).build().parse(text);
    let ast = parsed.map_err(|e| syntax_error(&e.into()))?;
    let weight = weigh(text, &ast, unicode, nocase);
    *weight_left =
        weight_left.checked_sub(weight).filter(|_| weight <= CLASSES_WEIGHT_MAX).ok_or_else(|| {
            SearchError::Refused("ERR The pattern is too big: its classes have too many characters".into())
        })?;
    let mut translator =
        TranslatorBuilder::new().unicode(unicode).utf8(false).case_insensitive(nocase).build();
    translator.translate(text, &ast).map_err(|e| syntax_error(&e.into()))
}

/// Builds one machine for all `patterns` that reports every pattern that matches.
///
/// # Errors
/// The limit that is exceeded.
pub(crate) fn build_many(patterns: &[Hir], options: PatternOptions) -> Result<Machine, SearchError> {
    let nfa = build_nfa(patterns, false, WhichCaptures::None)?;
    let prefilter = Prefilter::from_hirs_prefix(MatchKind::All, patterns);
    let PatternOptions { dfa_bytes, tiers, .. } = options;
    let build = BuildOptions { kind: MatchKind::All, reverse: false, dfa_bytes, tiers };
    Machine::new(nfa, prefilter, &build).map_err(|e| does_not_compile(&*e))
}

fn build_nfa(patterns: &[Hir], reverse: bool, captures: WhichCaptures) -> Result<NFA, SearchError> {
    let config = thompson::Config::new()
        .utf8(false)
        .shrink(false)
        .reverse(reverse)
        .nfa_size_limit(Some(NFA_BYTES_MAX))
        .which_captures(captures);
    thompson::Compiler::new().configure(config).build_many_from_hir(patterns).map_err(|e| {
        match e.size_limit() {
            Some(_) => SearchError::Refused(format!(
                "ERR The pattern is too big: its automaton exceeds {NFA_BYTES_MAX} bytes"
            )),
            None => does_not_compile(&e),
        }
    })
}

fn does_not_compile(why: &dyn std::error::Error) -> SearchError {
    SearchError::Refused(format!("ERR The pattern does not compile: {why}"))
}

fn syntax_error(e: &regex_syntax::Error) -> SearchError {
    let (offset, why) = match e {
        regex_syntax::Error::Parse(e) => (e.span().start.offset, e.kind().to_string()),
        regex_syntax::Error::Translate(e) => (e.span().start.offset, e.kind().to_string()),
        e => (0, e.to_string()),
    };
    SearchError::Pattern { offset, why }
}

/// Approximate heap bytes of `hir`. The library does not report them.
fn hir_bytes(hir: &Hir) -> usize {
    // Each node keeps its properties in a box.
    const PROPERTIES_BYTES: usize = 96;
    let parts = |parts: &[Hir]| size_of_val(parts) + parts.iter().map(hir_bytes).sum::<usize>();
    PROPERTIES_BYTES
        + match hir.kind() {
            HirKind::Empty | HirKind::Look(_) => 0,
            HirKind::Literal(literal) => literal.0.len(),
            HirKind::Class(Class::Unicode(class)) => size_of_val(class.ranges()),
            HirKind::Class(Class::Bytes(class)) => size_of_val(class.ranges()),
            HirKind::Repetition(repetition) => parts(std::slice::from_ref(&repetition.sub)),
            HirKind::Capture(capture) => parts(std::slice::from_ref(&capture.sub)),
            HirKind::Concat(all) | HirKind::Alternation(all) => parts(all),
        }
}

/// The longest literal that every match contains.
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
