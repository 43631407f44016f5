//! Tests of the engine stack: it finds what the PikeVM finds, hard texts leave no trace on easy ones (counted, not
//! timed), limits hold.

use super::*;
use crate::error::SearchError;
use proptest::prelude::*;
use regex_automata::Input;
use regex_automata::nfa::thompson::pikevm::PikeVM;
use regex_automata::util::syntax;

/// Patterns whose DFA blows up, and the alphabet of the texts they are hard on.
const HARD: [(&str, &[u8]); 3] = [
    ("[ab]*a[ab]{18}c", b"ab"),
    ("(a|b)*a(a|b){20}[cd]", b"ab"),
    ("(?s)(?:a.{5}b|a.{9}b|a.{13}b|b.{15}a|[ab].{19}a)c", b"ab"),
];

fn random(rng: &mut fastrand::Rng, alphabet: &[u8], len: usize) -> Vec<u8> {
    (0..len).map(|_| alphabet[rng.usize(..alphabet.len())]).collect()
}

fn end(m: &mut Matcher<'_>, text: &[u8]) -> Option<usize> {
    m.find_end(text, false, &|| false).expect("not cancelled")
}

fn pike_end(pattern: &str, nocase: bool, text: &[u8]) -> Option<usize> {
    let config = syntax::Config::new().unicode(false).utf8(false).case_insensitive(nocase);
    let nfa = regex_automata::nfa::thompson::Config::new().utf8(false);
    let pike = PikeVM::builder().syntax(config).thompson(nfa).build(pattern).unwrap();
    pike.find(&mut pike.create_cache(), Input::new(text)).map(|m| m.end())
}

#[test]
fn easy_texts_do_not_pay_for_hard_ones() {
    for (pattern, alphabet) in HARD {
        let compiled = Pattern::new(pattern.as_bytes(), false).unwrap();
        let rng = &mut fastrand::Rng::with_seed(42);
        let hard: Vec<Vec<u8>> = (0..3).map(|_| random(rng, alphabet, 64 * 1024)).collect();
        let easy = random(rng, b"xyz ", 64 * 1024);
        let cost_after = |resets: bool| {
            let mut m = Matcher::new(&compiled);
            m.resets = resets;
            end(&mut m, &easy);
            assert_eq!(m.counts.give_ups, 0, "{pattern}: the easy text alone is easy");
            hard.iter().for_each(|h| assert_eq!(end(&mut m, h), None));
            assert!(
                m.counts.clears + m.counts.give_ups > 0,
                "{pattern} is not hard on its text: the test tests nothing"
            );
            // A text that needs states the full cache does not have: easy on its own, hard for a cache left bad.
            let before = m.counts;
            let mixed: Vec<u8> =
                [&easy[..], &random(&mut fastrand::Rng::with_seed(7), alphabet, 64)].concat();
            (0..20).for_each(|_| assert_eq!(end(&mut m, &mixed), None));
            (m.counts.give_ups - before.give_ups, m.counts.clears - before.clears, m.counts.resets)
        };
        let (give_ups, clears, resets) = cost_after(true);
        assert_eq!((give_ups, clears), (0, 0), "{pattern}");
        assert!(resets > 0, "{pattern}");
        // The control: without the resets the same texts find the cache as the hard ones left it.
        let (give_ups, clears, _) = cost_after(false);
        println!("{pattern}: without resets {give_ups} give-ups and {clears} clears in 20 easy texts");
    }
}

#[test]
fn a_cache_left_bad_would_give_up_on_easy_texts() {
    // Shows that the test above can fail: the same work without resets.
    let (pattern, alphabet) = HARD[0];
    let compiled = Pattern::new(pattern.as_bytes(), false).unwrap();
    let mut m = Matcher::new(&compiled);
    m.resets = false;
    let rng = &mut fastrand::Rng::with_seed(42);
    for _ in 0..4 {
        end(&mut m, &random(rng, alphabet, 64 * 1024));
    }
    let before = m.counts.give_ups;
    for _ in 0..20 {
        let text = [random(rng, b"xyz ", 1024), random(rng, alphabet, 4096)].concat();
        end(&mut m, &text);
    }
    assert!(m.counts.give_ups > before, "{:?}", m.counts);
}

#[test]
fn a_text_too_long_for_the_pikevm_is_stepped_through() {
    let (pattern, alphabet) = HARD[1];
    let compiled = Pattern::new(pattern.as_bytes(), false).unwrap();
    let rng = &mut fastrand::Rng::with_seed(3);
    let mut text = random(rng, alphabet, PIKE_BYTES_MAX + 1000);
    let mut m = Matcher::new(&compiled);
    assert_eq!(end(&mut m, &text), None);
    assert_eq!(m.counts.give_ups, 1, "{:?}", m.counts);
    text.push(b'c');
    let want = pike_end(pattern, false, &text);
    assert_eq!(end(&mut m, &text), want);
    assert!(matches!(m.find_end(&text, false, &|| true), Err(SearchError::Cancelled)));
}

#[test]
fn ascii_by_default_and_unicode_on_request() {
    let find = |pattern: &str, nocase: bool, text: &[u8]| {
        let compiled = Pattern::new(pattern.as_bytes(), nocase).unwrap();
        let mut m = Matcher::new(&compiled);
        (end(&mut m, text), m.counts.quits)
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
}

#[test]
fn bad_patterns_say_where_and_why() {
    let fail = |pattern: &[u8]| Pattern::new(pattern, false).unwrap_err().to_string();
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
        "ERR The pattern is too long: 16385 bytes, at most 16384 are allowed"
    );
    assert_eq!(
        fail(b"((a{100}){100}){100}"),
        "ERR The pattern is too big: its automaton exceeds 4194304 bytes"
    );
    assert!(fail("(".repeat(200).as_bytes()).starts_with("ERR Bad pattern at offset "));
}

fn pattern() -> impl Strategy<Value = String> {
    let leaf = prop::sample::select(vec![
        "a", "b", "c", ".", "[ab]", "[^a]", r"\b", r"\w", r"\n", "^", "$", "(?m:^)", "abc",
    ]);
    leaf.prop_map(String::from).prop_recursive(4, 24, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 1..4).prop_map(|v| v.concat()),
            prop::collection::vec(inner.clone(), 1..4).prop_map(|v| format!("(?:{})", v.join("|"))),
            (inner, prop::sample::select(vec!["*", "+", "?", "{2}", "{1,3}", "*?"]))
                .prop_map(|(p, q)| format!("(?:{p}){q}")),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]
    #[test]
    fn finds_what_the_pikevm_finds(p in pattern(), texts in prop::collection::vec("[abc\n é]{0,40}", 1..6), nocase: bool) {
        let full = Pattern::new(p.as_bytes(), nocase).unwrap();
        let lazy = Pattern::with_dfa_limit(p.as_bytes(), nocase, 0).unwrap();
        let (mut full, mut lazy) = (Matcher::new(&full), Matcher::new(&lazy));
        for text in &texts {
            let want = pike_end(&p, nocase, text.as_bytes());
            prop_assert_eq!(end(&mut full, text.as_bytes()), want, "{} on {:?}", p, text);
            prop_assert_eq!(end(&mut lazy, text.as_bytes()), want, "{} on {:?}", p, text);
            prop_assert_eq!(lazy.step(&Input::new(text.as_bytes()), &|| false).unwrap(), want, "{} stepped on {:?}", p, text);
            let some = full.find_end(text.as_bytes(), true, &|| false).unwrap();
            prop_assert_eq!(some.is_some(), want.is_some());
            let some = lazy.find_end(text.as_bytes(), true, &|| false).unwrap();
            prop_assert_eq!(some.is_some(), want.is_some());
        }
    }
}
