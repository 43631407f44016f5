//! Tests of the engine stack: it finds what the PikeVM finds, hard texts do not slow down easy ones (counted, not
//! timed), and limits hold.

use super::machine::BuildOptions;
use super::*;
use crate::error::SearchError;
use proptest::prelude::*;
use regex_automata::nfa::thompson::pikevm::PikeVM;
use regex_automata::nfa::thompson::{Compiler, WhichCaptures};
use regex_automata::util::syntax;
use regex_automata::{Input, MatchKind, PatternSet};
use std::cell::Cell;
use std::ops::Range;
use std::time::{Duration, Instant};
use strand_commands::call::RunsOn;

/// Sizes of caches that are filled quickly.
const SMALL: [usize; 2] = [256 << 10, 1 << 20];

/// Patterns whose DFA grows exponentially. For each, the alphabet of texts that are hard for the pattern.
const HARD: [(&str, &[u8]); 3] = [
    ("[ab]*a[ab]{18}c", b"ab"),
    ("(a|b)*a(a|b){20}[cd]", b"ab"),
    ("(?s)(?:a.{5}b|a.{9}b|a.{13}b|b.{15}a|[ab].{19}a)c", b"ab"),
];

fn random(rng: &mut fastrand::Rng, alphabet: &[u8], len: usize) -> Vec<u8> {
    (0..len).map(|_| alphabet[rng.usize(..alphabet.len())]).collect()
}

fn compiled(pattern: &str, nocase: bool, dfa_bytes: usize) -> Pattern {
    let options = PatternOptions { groups: true, dfa_bytes, tiers: &SMALL, ..PatternOptions::once(nocase) };
    Pattern::new(pattern.as_bytes(), options).unwrap()
}

fn end(m: &mut Matcher, pattern: &Pattern, text: &[u8]) -> Option<usize> {
    m.find_end(pattern, text, 0, false, &SearchBudget::whole(&|| false)).expect("not cancelled")
}

fn pike(pattern: &str, nocase: bool) -> PikeVM {
    let config = syntax::Config::new().unicode(false).utf8(false).case_insensitive(nocase);
    let nfa = regex_automata::nfa::thompson::Config::new().utf8(false);
    PikeVM::builder().syntax(config).thompson(nfa).build(pattern).unwrap()
}

fn pike_end(pattern: &str, nocase: bool, text: &[u8]) -> Option<usize> {
    let pike = pike(pattern, nocase);
    pike.find(&mut pike.create_cache(), Input::new(text)).map(|m| m.end())
}

#[test]
fn easy_texts_are_not_slowed_by_hard_texts() {
    for (pattern, alphabet) in HARD {
        let compiled = compiled(pattern, false, DFA_BYTES_MAX);
        let rng = &mut fastrand::Rng::with_seed(42);
        // A text that needs some states of its own.
        let easy = [random(rng, b"xyz ", 16 * 1024), random(rng, alphabet, 64)].concat();
        let mut m = Matcher::default();
        let search = |m: &mut Matcher, text: &[u8]| {
            let worker = SearchBudget::new(RunsOn::Worker, &|| false, None);
            let (before, result) = (m.counts.builds, m.find_end(&compiled, text, 0, false, &worker));
            (m.counts.builds - before, result)
        };
        for _ in 0..3 {
            let _ = search(&mut m, &easy);
        }
        assert_eq!(search(&mut m, &easy), (0, Ok(None)), "{pattern}: warm");
        let (mut gave_up, mut built, mut last) = (0, 0, 0);
        for _ in 0..400 {
            let (builds, result) = search(&mut m, &random(rng, alphabet, 4 * 1024));
            gave_up += u32::from(result.is_err());
            assert!(builds < 900, "{pattern}: a worker built {builds} states");
            (built, last) = (built + builds, builds);
        }
        assert!(gave_up > 390, "{pattern} is not hard on its text: the test tests nothing");
        assert!(last < 30, "{pattern}: it still builds {last} for a text that is hard as those before");
        let before = m.counts;
        for round in 0..20 {
            assert_eq!(search(&mut m, &easy).1, Ok(None), "{pattern}, round {round}");
        }
        assert!(m.counts.builds - before.builds < 300, "{pattern}: {:?}", m.counts);
        assert_eq!(m.counts.give_ups, before.give_ups);
        assert!(m.cache_bytes() < 3 * SMALL[0], "{} bytes", m.cache_bytes());
    }
}

#[test]
fn a_larger_cache_is_tried_once_and_a_hopeless_pattern_is_remembered() {
    let (pattern, alphabet) = HARD[0];
    let options = PatternOptions { tiers: &SMALL, ..PatternOptions::once(false) };
    let compiled = Pattern::new(pattern.as_bytes(), options).unwrap();
    let rng = &mut fastrand::Rng::with_seed(3);
    let mut m = Matcher::default();
    let mut tiers = Vec::new();
    for _ in 0..6 {
        end(&mut m, &compiled, &random(rng, alphabet, 128 * 1024));
        tiers.push((compiled.machine.tier_bytes(), compiled.machine.is_hopeless()));
    }
    assert_eq!(tiers[0], (SMALL[1], false), "{tiers:?}");
    assert_eq!(tiers[5], (SMALL[0], true), "{tiers:?}");
    for _ in 0..400 {
        end(&mut m, &compiled, &random(rng, alphabet, 8 * 1024));
    }
    assert!(m.cache_bytes() < 3 * SMALL[0], "{} bytes", m.cache_bytes());
    assert!(m.counts.resets > 0, "{:?}", m.counts);
}

#[test]
fn a_cache_grows_for_texts_worth_their_states() {
    // Each text needs states of its own, and passes many bytes with each of these states. Together the texts fill the
    // cache repeatedly.
    let compiled = compiled("(?s)(?:a.{5}b|a.{9}b|a.{13}b|b.{15}a|[ab].{19}a)c", false, DFA_BYTES_MAX);
    let rng = &mut fastrand::Rng::with_seed(5);
    let mut m = Matcher::default();
    let mut sizes = Vec::new();
    for _ in 0..60 {
        let sparse: Vec<u8> = (0..60_000).map(|_| if rng.u8(..40) == 0 { b'b' } else { b'x' }).collect();
        let lane = SearchBudget::new(RunsOn::Worker, &|| false, None);
        let _ = m.find_end(&compiled, &sparse, 0, false, &lane);
        sizes.push(compiled.machine.tier_bytes());
    }
    assert_eq!((sizes[0], sizes[59]), (SMALL[0], SMALL[1]));
    assert!(!compiled.machine.is_hopeless());
}

#[test]
fn a_budget_covers_all_searches_of_a_command() {
    let (pattern, alphabet) = HARD[0];
    let rng = &mut fastrand::Rng::with_seed(8);
    let text = random(rng, alphabet, 1024);
    for runs_on in [RunsOn::Worker, RunsOn::Lane] {
        let budget = SearchBudget::new(runs_on, &|| false, None);
        let (mut done, mut halted, mut builds) = (0, None, 0);
        // Use 1,000 patterns, each with caches of its own.
        for _ in 0..1000 {
            let compiled = compiled(pattern, false, 0);
            let mut m = Matcher::default();
            let result = m.find_end(&compiled, &text, 0, false, &budget);
            builds += m.counts.builds;
            match result {
                Ok(_) => done += 1,
                Err(halt) => {
                    halted = Some(halt);
                    break;
                }
            }
        }
        let elsewhere = if runs_on == RunsOn::Worker { Halt::MoveToLane } else { Halt::MoveToHardLane };
        assert_eq!(halted, Some(elsewhere), "{runs_on:?}");
        assert!(done < 200 && builds < 20_000, "{runs_on:?}: {done} searches, {builds} states");
    }
    let worker = SearchBudget::new(RunsOn::Worker, &|| false, None);
    let literal = compiled("needle[0-9]", false, DFA_BYTES_MAX);
    let (mut m, hay) = (Matcher::default(), vec![b'x'; 400 << 10]);
    let done = (0..1000).take_while(|_| m.find_end(&literal, &hay, 0, true, &worker).is_ok()).count();
    assert!((2..20).contains(&done), "{done} looks for a literal");
    let worker = SearchBudget::new(RunsOn::Worker, &|| false, None);
    assert_eq!(worker.produce(1 << 20), Ok(()));
    assert_eq!(worker.produce(1), Err(Halt::MoveToLane));
    let whole = SearchBudget::whole(&|| false);
    assert_eq!(whole.produce(1 << 30), Ok(()));
    assert_eq!(whole.answer(budget::REPLY_BYTES_MAX + 1), Err(Halt::ReplyTooLarge));
}

#[test]
fn the_reverse_machine_is_compiled_off_the_worker_and_only_for_a_match() {
    let compiled = compiled("[a-z]+[0-9]", false, DFA_BYTES_MAX);
    let mut m = Matcher::default();
    let worker = SearchBudget::new(RunsOn::Worker, &|| false, None);
    assert_eq!(m.find(&compiled, b"nothing there", 0, &worker), Ok(None));
    assert!(!compiled.has_reverse());
    assert_eq!(m.find(&compiled, b"ab1", 0, &worker), Err(Halt::MoveToLane));
    assert!(!compiled.has_reverse());
    let lane = SearchBudget::new(RunsOn::Lane, &|| false, None);
    assert_eq!(m.find(&compiled, b"ab1", 0, &lane), Ok(Some(0..3)));
    assert_eq!(m.find(&compiled, b"-ab1", 0, &worker), Ok(Some(1..4)));
    // Only the bytes that the search passed are counted, not the bytes after them.
    let long = "ab1".to_string() + &"-".repeat(100 << 10);
    for _ in 0..1000 {
        assert_eq!(m.find(&compiled, long.as_bytes(), 0, &worker), Ok(Some(0..3)));
    }
}

#[test]
fn expensive_searches_move_and_can_be_cancelled() {
    let (pattern, alphabet) = HARD[1];
    let compiled = compiled(pattern, false, DFA_BYTES_MAX);
    let text = random(&mut fastrand::Rng::with_seed(3), alphabet, 300_000);
    let mut m = Matcher::default();
    let mut find = |budget: &SearchBudget<'_>| m.find_end(&compiled, &text, 0, false, budget);
    assert_eq!(
        find(&SearchBudget::new(RunsOn::Worker, &|| false, None)),
        Err(Halt::MoveToLane),
        "its cache is empty yet"
    );
    for _ in 0..20 {
        let _ = find(&SearchBudget::new(RunsOn::Worker, &|| false, None));
    }
    assert_eq!(find(&SearchBudget::new(RunsOn::Worker, &|| false, None)), Err(Halt::MoveToHardLane));
    assert_eq!(find(&SearchBudget::new(RunsOn::Lane, &|| false, None)), Err(Halt::MoveToHardLane));
    let asked = Cell::new(0);
    let later = || asked.replace(asked.get() + 1) > 5;
    assert_eq!(find(&SearchBudget::new(RunsOn::Hard, &later, None)), Err(Halt::Cancelled));
    let now = std::time::Instant::now();
    assert_eq!(find(&SearchBudget::new(RunsOn::Hard, &|| false, Some(now))), Err(Halt::Deadline));
    let long = vec![b'x'; budget::WORKER_BYTES_MAX + 1];
    let worker = SearchBudget::new(RunsOn::Worker, &|| false, None);
    assert_eq!(m.find_end(&compiled, &long, 0, false, &worker), Err(Halt::MoveToLane));
}

#[test]
fn a_search_for_a_literal_checks_the_deadline() {
    let compiled = compiled("[0-9]+needle", false, DFA_BYTES_MAX);
    let late = || SearchBudget::new(RunsOn::Hard, &|| false, Some(std::time::Instant::now()));
    let find = |len: usize| Matcher::default().find_end(&compiled, &vec![b'x'; len], 0, false, &late());
    assert_eq!(find(64 << 10), Err(Halt::Deadline));
    assert_eq!(find(1000), Ok(None), "a short search is cheaper than the check");
}

#[test]
fn ascii_by_default_and_unicode_on_request() {
    let find = |pattern: &str, nocase: bool, text: &[u8]| {
        let pattern = compiled(pattern, nocase, DFA_BYTES_MAX);
        let mut m = Matcher::default();
        (end(&mut m, &pattern, text), m.counts.quits)
    };
    assert_eq!(find(r"\bcaf", false, "un café".as_bytes()), (Some(6), 0));
    assert_eq!(find(r"f\b", false, "café".as_bytes()), (Some(3), 0));
    assert_eq!(find(r"(?u:f\b)", false, "café xf".as_bytes()), (Some(8), 1));
    assert_eq!(find(r"\w+\xff", false, b"ab\xff"), (Some(3), 0));
    assert_eq!(find("é", false, "café".as_bytes()), (Some(5), 0));
    assert_eq!(find("TICKET-[0-9]{4}", true, b"see ticket-1234!"), (Some(15), 0));
    assert_eq!(find("", false, b""), (Some(0), 0));
    assert_eq!(find("^b", false, b"a\nb"), (None, 0));
    assert_eq!(find("(?m)^b", false, b"a\nb"), (Some(3), 0));
    assert!(compiled(r"(?u:f\b)", false, DFA_BYTES_MAX).machine.is_prone_to_quit());
    let unicode = PatternOptions { unicode: true, ..PatternOptions::once(true) };
    let pattern = Pattern::new(r"\bÉTÉ\b".as_bytes(), unicode).unwrap();
    assert_eq!(end(&mut Matcher::default(), &pattern, "cet été-là".as_bytes()), Some(9));
}

#[test]
fn bad_patterns_say_where_and_why() {
    let fail = |pattern: &[u8]| Pattern::new(pattern, PatternOptions::once(false)).unwrap_err().to_string();
    assert_eq!(fail(b"ab(c"), "ERR Bad pattern at offset 2: unclosed group");
    assert_eq!(
        fail(b"a{2,1}"),
        "ERR Bad pattern at offset 1: invalid repetition count range, the start must be <= the end"
    );
    assert_eq!(fail(b"a\xff"), r"ERR Bad pattern at offset 1: not UTF-8 (write other bytes as \xNN)");
    assert!(fail(b"*").starts_with("ERR Bad pattern at offset 0: "), "{}", fail(b"*"));
    assert!(fail(br"a\p{Nope}").starts_with("ERR Bad pattern at offset 1: "), "{}", fail(br"a\p{Nope}"));
    assert_eq!(
        fail(&vec![b'a'; PATTERN_BYTES_MAX + 1]),
        "ERR The pattern is too long: 65537 bytes, at most 65536 are allowed"
    );
    assert_eq!(
        fail(b"((a{100}){100}){100}"),
        "ERR The pattern is too big: its automaton exceeds 4194304 bytes"
    );
    assert!(fail("(".repeat(200).as_bytes()).starts_with("ERR Bad pattern at offset "));
    assert!(matches!(
        Pattern::new(b"(", PatternOptions::once(false)),
        Err(SearchError::Pattern { offset: 0, .. })
    ));
}

fn pattern() -> impl Strategy<Value = String> {
    let leaf = prop::sample::select(vec![
        "a",
        "b",
        "c",
        ".",
        "[ab]",
        "[^a]",
        r"\b",
        r"\B",
        r"\w",
        r"\n",
        "^",
        "$",
        "(?m:^)",
        "(?mR:$)",
        "abc",
        "(?u:[é-ö])",
    ]);
    leaf.prop_map(String::from).prop_recursive(4, 24, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 1..4).prop_map(|v| v.concat()),
            prop::collection::vec(inner.clone(), 1..4).prop_map(|v| format!("({})", v.join("|"))),
            (inner, prop::sample::select(vec!["*", "+", "?", "{2}", "{1,3}", "*?"]))
                .prop_map(|(p, q)| format!("(?:{p}){q}")),
        ]
    })
}

/// All matches that the engines find.
fn all(m: &mut Matcher, pattern: &Pattern, text: &[u8]) -> Vec<Range<usize>> {
    let budget = SearchBudget::whole(&|| false);
    let (mut progress, mut found) = (Progress::new(false), Vec::new());
    while let Some(span) = progress.next(text, |at| m.find(pattern, text, at, &budget)).unwrap() {
        found.push(span);
    }
    found
}

#[test]
fn with_unicode_rules_no_empty_match_is_inside_a_character() {
    let options = PatternOptions { unicode: true, ..PatternOptions::once(false) };
    let budget = SearchBudget::whole(&|| false);
    for pattern in ["x*", r"\w*", "b|", "", r"\b|x*", "\u{e9}?", "(?m)^|$"] {
        let compiled = Pattern::new(pattern.as_bytes(), options).expect("a pattern");
        let expected = PikeVM::new(pattern).expect("a pattern");
        for text in ["", "\u{e9}", "x\u{65e5}\u{672c}x", "a\u{301}\n\u{1f600}b", "\u{e9}\u{e9}"] {
            let (mut m, mut progress, mut found) = (Matcher::default(), Progress::new(true), Vec::new());
            while let Some(span) =
                progress.next(text.as_bytes(), |at| m.find(&compiled, text.as_bytes(), at, &budget)).unwrap()
            {
                found.push(span);
            }
            let expected: Vec<_> =
                expected.find_iter(&mut expected.create_cache(), text).map(|found| found.range()).collect();
            assert_eq!(found, expected, "{pattern} in {text:?}");
        }
    }
}

/// The automaton that matches backwards is compiled at the first match. A short DEADLINE is for the search.
#[test]
fn compiling_the_reverse_machine_does_not_count_against_the_deadline() {
    let options =
        PatternOptions { unicode: true, dfa_bytes: KEPT_DFA_BYTES_MAX, ..PatternOptions::once(false) };
    for pattern in [r"\w+\w{1,30}", r"[\w\pL]+.[\w]{1,50}"] {
        let compiled = Pattern::new(pattern.as_bytes(), options).expect("a pattern");
        let deadline = Instant::now() + Duration::from_secs(60);
        let left = |budget: &SearchBudget<'_>| budget.deadline().expect("there is one") - deadline;
        let budget = SearchBudget::new(RunsOn::Hard, &|| false, Some(deadline));
        assert!(left(&budget).is_zero());
        let _ = Matcher::default().find(&compiled, b"hello", 0, &budget);
        assert!(compiled.has_reverse() && left(&budget) > Duration::ZERO, "{pattern}");
        assert!(compiled.reverse_bytes() < 2 << 20, "{pattern}: {}", compiled.reverse_bytes());
    }
}

#[test]
fn a_state_with_many_patterns_costs_what_a_state_with_few_costs() {
    let options = PatternOptions::once(false);
    // Every second byte leads to one of two states with 500 patterns each. One pattern never matches.
    let patterns = (0..1000).map(|i| if i % 2 == 0 { "a[ab]" } else { "b[ab]" }).chain(["never"]);
    let hirs: Vec<_> = patterns.map(|p| parse(p.as_bytes(), options).unwrap()).collect();
    let text = b"abaabb".repeat(40_000);
    for dfa_bytes in [DFA_BYTES_MAX, 0] {
        let machine = build_many(&hirs, PatternOptions { dfa_bytes, ..options }).unwrap();
        let run = |text: &[u8], runs_on| {
            let (mut found, mut cache) = (PatternSet::new(hirs.len()), MachineCache::default());
            let budget = SearchBudget::new(runs_on, &|| false, None);
            machine
                .find_patterns(&mut cache, text, &mut found, &mut Counts::default(), &budget)
                .map(|()| found.len())
        };
        assert_eq!(run(&text[..6_000], RunsOn::Worker), Ok(1000), "each state adds its patterns once");
        assert_eq!(run(&text, RunsOn::Worker), Err(Halt::MoveToLane));
        assert_eq!(run(&text, RunsOn::Lane), Ok(1000));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]
    #[test]
    fn finds_what_the_pikevm_finds(p in pattern(), texts in prop::collection::vec("[abc\n\r é]{0,40}", 1..6), nocase: bool) {
        let (full, lazy) = (compiled(&p, nocase, DFA_BYTES_MAX), compiled(&p, nocase, 0));
        let (mut f, mut l, mut s) = (Matcher::default(), Matcher::default(), Simulation::default());
        let pike = pike(&p, nocase);
        let mut cache = pike.create_cache();
        let whole = SearchBudget::whole(&|| false);
        for text in &texts {
            let text = text.as_bytes();
            let want: Vec<Range<usize>> = pike.find_iter(&mut cache, text).map(|m| m.range()).collect();
            prop_assert_eq!(&all(&mut f, &full, text), &want, "{} on {:?}", p, text);
            prop_assert_eq!(&all(&mut l, &lazy, text), &want, "{} lazily on {:?}", p, text);
            for (m, pattern) in [(&mut f, &full), (&mut l, &lazy)] {
                let some = m.find_end(pattern, text, 0, true, &whole).unwrap();
                prop_assert_eq!(some.is_some(), !want.is_empty());
            }
            let mut slots = [NONE; 2];
            let found = s.leftmost(&full.machine.nfa, None, &Input::new(text), &mut slots, &whole).unwrap();
            prop_assert_eq!(found.then(|| slots[0]..slots[1]), want.first().cloned(), "{} simulated on {:?}", p, text);
            if let Some(first) = want.first() {
                let mut captures = pike.create_captures();
                pike.captures(&mut cache, text, &mut captures);
                let got = f.groups(&full, text, first.clone(), &whole).unwrap();
                let want: Vec<Option<usize>> = captures.slots().iter().map(|s| s.map(|s| s.get())).collect();
                let got: Vec<Option<usize>> = got.iter().map(|s| (*s != NONE).then_some(*s)).collect();
                prop_assert_eq!(got, want, "groups of {} in {:?}", p, text);
            }
        }
    }

    #[test]
    fn sets_and_streams_find_what_each_pattern_finds(
        patterns in prop::collection::vec(pattern(), 1..12), text in "[abc\n\r]{0,30}", cuts in prop::collection::vec(0usize..30, 0..4)
    ) {
        let text = text.as_bytes();
        let options = PatternOptions::once(false);
        let hirs: Vec<_> = patterns.iter().map(|p| parse(p.as_bytes(), options).unwrap()).collect();
        let want: Vec<bool> = patterns.iter().map(|p| pike_end(p, false, text).is_some()).collect();
        for dfa_bytes in [DFA_BYTES_MAX, 0] {
            let machine = build_many(&hirs, PatternOptions { dfa_bytes, ..options }).unwrap();
            let mut found = PatternSet::new(hirs.len());
            let (mut cache, mut counts) = (MachineCache::default(), Counts::default());
            machine.find_patterns(&mut cache, text, &mut found, &mut counts, &SearchBudget::whole(&|| false)).unwrap();
            let got: Vec<bool> = (0..hirs.len()).map(|i| found.contains(regex_automata::PatternID::must(i))).collect();
            prop_assert_eq!(&got, &want, "{:?} in {:?}", patterns, text);
            found.clear();
            cache.simulation().find_patterns(&machine.nfa, None, text, &mut found, &SearchBudget::whole(&|| false)).unwrap();
            let got: Vec<bool> = (0..hirs.len()).map(|i| found.contains(regex_automata::PatternID::must(i))).collect();
            prop_assert_eq!(&got, &want, "{:?} simulated in {:?}", patterns, text);
        }
        // Find every end of every pattern, with the text whole and in pieces.
        let machine = build_many(&hirs, PatternOptions { dfa_bytes: 0, ..options }).unwrap();
        let feed = |pieces: &[&[u8]]| {
            let (mut s, mut state, mut ends, mut before) = (Simulation::default(), StreamState::default(), Vec::new(), 0);
            for (i, piece) in pieces.iter().enumerate() {
                let is_last = i + 1 == pieces.len();
                let mut each = |p: regex_automata::PatternID, at: usize| ends.push((before + at, p.as_usize()));
                s.feed(&machine.nfa, &mut state, piece, is_last, &mut each, &SearchBudget::whole(&|| false)).unwrap();
                before += piece.len();
            }
            ends.sort_unstable();
            ends.dedup();
            ends
        };
        let whole = feed(&[text, b""]);
        let mut cuts: Vec<usize> = cuts.into_iter().map(|c| c.min(text.len())).collect();
        cuts.extend([0, text.len()]);
        cuts.sort_unstable();
        let mut pieces: Vec<&[u8]> = cuts.windows(2).map(|w| &text[w[0]..w[1]]).collect();
        pieces.push(b"");
        prop_assert_eq!(&feed(&pieces), &whole, "{:?} in {:?}", patterns, pieces);
        for (i, hir) in hirs.iter().enumerate() {
            // Compute with the library: the offsets at which an anchored search of the reversed pattern finds a
            // match.
            let config = regex_automata::nfa::thompson::Config::new().utf8(false).reverse(true).which_captures(WhichCaptures::None);
            let nfa = Compiler::new().configure(config).build_from_hir(hir).unwrap();
            let how = BuildOptions { kind: MatchKind::All, reverse: true, dfa_bytes: 0, tiers: &SMALL };
            let reverse = Machine::new(nfa, None, &how).unwrap();
            let ends: Vec<usize> = (0..=text.len()).filter(|end| {
                let (mut cache, mut counts) = (MachineCache::default(), Counts::default());
                reverse.match_start(&mut cache, (text, 0..*end), &mut counts, &SearchBudget::whole(&|| false)).unwrap().is_some()
            }).collect();
            let got: Vec<usize> = whole.iter().filter(|e| e.1 == i).map(|e| e.0).collect();
            prop_assert_eq!(got, ends, "{} of {:?} in {:?}", i, patterns, text);
        }
    }
}
