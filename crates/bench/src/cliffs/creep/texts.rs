//! The patterns of the creep test, and texts that are easy and hard for them.
//!
//! The DFA of each pattern has more states than any cache holds. A hard text visits many of these states, an easy
//! text visits few. No pattern has a rare literal in every match, because each engine would search for the literal
//! first, and the test would measure only that search.

use fastrand::Rng;

/// A pattern or a set of patterns of the test (P1 to P6), and how its texts are made.
#[derive(Debug)]
pub(super) struct Subject {
    pub(super) name: &'static str,
    pub(super) patterns: Vec<String>,
    /// A text that the patterns match.
    witness: String,
    easy: fn(&mut Rng, usize) -> Vec<u8>,
    hard: fn(&mut Rng, usize) -> Vec<u8>,
}

impl Subject {
    pub(super) fn easy(&self, rng: &mut Rng, bytes: usize) -> Vec<u8> {
        (self.easy)(rng, bytes)
    }
    pub(super) fn hard(&self, rng: &mut Rng, bytes: usize) -> Vec<u8> {
        (self.hard)(rng, bytes)
    }
    /// A hard text with an inserted match. In half of the texts, one byte of this match is missing.
    pub(super) fn with_planted_match(&self, rng: &mut Rng, bytes: usize) -> Vec<u8> {
        let mut witness = self.witness.clone().into_bytes();
        if rng.bool() {
            witness.remove(rng.usize(..witness.len()));
        }
        let (before, after) = ((self.hard)(rng, rng.clone().usize(..bytes)), (self.hard)(rng, bytes / 2));
        [&before[..], b" ", &witness, b" ", &after].concat()
    }
}

/// All subjects, P1 to P6.
pub(super) fn subjects() -> Vec<Subject> {
    let one = |name, pattern: &str, witness: &str, easy, hard| Subject {
        name,
        patterns: vec![pattern.into()],
        witness: witness.into(),
        easy,
        hard,
    };
    let gap = |k: usize| format!("[^\\n]{{0,{k}}}");
    let logs = |i: usize| {
        let (k, rest) = (gap(3 * i), gap(40 - 3 * i));
        format!("(?i)(?:error|fail|warn){k}(?:db|disk|net|node)[0-9]{{1,4}}{rest}timeout[#;]{i}")
    };
    let words = (0..3000).map(dictionary_word).collect::<Vec<_>>().join("|");
    vec![
        one("P1", "(?-u)[ab]*a[ab]{18}c", "abababababababababbc", prose, letters_ab),
        one("P2", "(?-u)(a|b)*a(a|b){20}[cd]", "abababababababababbbbd", prose, letters_ab),
        one(
            "P3",
            "(?-u)[A-Za-z]{4}\\s+[\\s\\S]{0,60}[0-9]{3}[\\s\\S]{0,60}\\s+[A-Za-z]{12}[#;]",
            "abcd 123 abcdefghijkl#",
            unspaced,
            alphanumeric,
        ),
        one("P4", "(?s-u)(?:a.{5}b|a.{9}b|a.{13}b|b.{15}a|[ab].{19}a)c", "axxxxxbc", prose_no_a, letters_ab),
        Subject {
            name: "P5",
            patterns: (1..=12).map(logs).collect(),
            witness: "error db12 timeout#4".into(),
            easy: prose,
            hard: log_words,
        },
        one("P6", &format!("(?i)\\b(?:{words})\\b"), &dictionary_word(17), words_ascii, words_accented),
    ]
}

fn random_bytes(rng: &mut Rng, alphabet: &[u8], bytes: usize) -> Vec<u8> {
    (0..bytes).map(|_| alphabet[rng.usize(..alphabet.len())]).collect()
}
fn letters_ab(rng: &mut Rng, bytes: usize) -> Vec<u8> {
    random_bytes(rng, b"ab", bytes)
}
fn prose(rng: &mut Rng, bytes: usize) -> Vec<u8> {
    random_bytes(rng, b"abcdefghijklmnopqrstuvwxyz   \n", bytes)
}
fn prose_no_a(rng: &mut Rng, bytes: usize) -> Vec<u8> {
    random_bytes(rng, b"bcdefghijklmnopqrstuvwxyz   \n", bytes)
}
fn unspaced(rng: &mut Rng, bytes: usize) -> Vec<u8> {
    random_bytes(rng, b"abcdefghijklmnopqrstuvwxyzABCDEF#;,.0123", bytes)
}
fn alphanumeric(rng: &mut Rng, bytes: usize) -> Vec<u8> {
    random_bytes(rng, b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789    ", bytes)
}

/// A text of at least `bytes` bytes: the words that `next` returns, with spaces between.
fn random_words(rng: &mut Rng, bytes: usize, mut next: impl FnMut(&mut Rng) -> String) -> Vec<u8> {
    let mut text = Vec::with_capacity(bytes + 32);
    while text.len() < bytes {
        text.extend_from_slice(next(rng).as_bytes());
        text.push(b' ');
    }
    text
}

fn log_words(rng: &mut Rng, bytes: usize) -> Vec<u8> {
    const WORDS: [&str; 12] =
        ["error", "fail", "warn", "db1", "disk22", "net333", "node4444", "time", "timeout", "xx", "y", "zzz"];
    random_words(rng, bytes, |rng| WORDS[rng.usize(..WORDS.len())].into())
}

/// Word number `i` of the dictionary of P6. It contains a `q`, which no word of the texts has.
fn dictionary_word(i: usize) -> String {
    let mut rng = Rng::with_seed(i as u64);
    let mut letters = random_bytes(&mut rng, b"abcdefghijklmnoprstuvwxyz", 4 + i % 6);
    letters.insert(2 + i % 3, b'q');
    String::from_utf8(letters).unwrap_or_default()
}

fn text_word(rng: &mut Rng) -> String {
    let len = rng.usize(2..9);
    String::from_utf8(random_bytes(rng, b"abcdefghijklmnoprstuvwxyz", len)).unwrap_or_default()
}
fn words_ascii(rng: &mut Rng, bytes: usize) -> Vec<u8> {
    random_words(rng, bytes, text_word)
}
fn words_accented(rng: &mut Rng, bytes: usize) -> Vec<u8> {
    random_words(rng, bytes, |rng| {
        if rng.usize(..15) == 0 { text_word(rng) + "\u{e9}t\u{e9}" } else { text_word(rng) }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(subject: &Subject) -> regex::bytes::RegexSet {
        let mut builder = regex::bytes::RegexSetBuilder::new(&subject.patterns);
        builder.unicode(false).size_limit(1 << 28).build().expect("they compile")
    }

    #[test]
    fn no_generated_text_matches_unless_a_match_is_inserted() {
        let rng = &mut Rng::with_seed(1);
        for subject in subjects() {
            let set = set(&subject);
            for text in [subject.easy(rng, 4096), subject.hard(rng, 4096)] {
                assert!(text.len() >= 4096 && !set.is_match(&text), "{}", subject.name);
            }
        }
        for subject in subjects() {
            let set = set(&subject);
            let found = (0..100).filter(|_| set.is_match(&subject.with_planted_match(rng, 64))).count();
            assert!((20..100).contains(&found), "{}: {found} of 100 match", subject.name);
        }
        assert!(dictionary_word(17).contains('q') && dictionary_word(17) == dictionary_word(17));
    }
}
