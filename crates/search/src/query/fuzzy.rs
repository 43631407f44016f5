//! [`Fuzzy`]: the automaton for terms within an edit distance of a word.
//!
//! A state is one row of the edit distance table, limited to the band around the diagonal: at most five numbers. The
//! next row is computed for each character. tantivy instead builds a table of all states, about 30 kB per character
//! of the word. This automaton stores only the word.

use super::FUZZY_DISTANCE_MAX;
use tantivy_fst::Automaton;

/// Number of values in [`State::band`].
const BAND: usize = 2 * FUZZY_DISTANCE_MAX + 1;

/// Accepts terms that become the word by at most `distance` insertions, deletions or substitutions of characters.
#[derive(Clone, Debug)]
pub(crate) struct Fuzzy {
    word: Vec<char>,
    distance: u8,
}

/// The state after some characters of a term.
#[derive(Clone, Copy, Debug)]
pub(crate) struct State {
    /// Number of characters of the term read so far.
    passed: u32,
    /// `band[d]`: the distance between the characters read and the first `passed + d - FUZZY_DISTANCE_MAX` characters
    /// of the word. Any distance above the allowed distance is stored as the allowed distance plus one.
    band: [u8; BAND],
    /// The bytes of the current character, which is incomplete.
    partial: u32,
    /// Number of bytes that the current character still lacks.
    missing: u8,
}

impl Fuzzy {
    pub(super) fn new(word: &str, distance: u8) -> Fuzzy {
        Fuzzy { word: word.chars().collect(), distance: distance.min(FUZZY_DISTANCE_MAX as u8) }
    }
    /// Bytes that the automaton of a word of `word_bytes` holds.
    pub(super) fn bytes(word_bytes: usize) -> usize {
        word_bytes * size_of::<char>() + size_of::<Fuzzy>()
    }
    /// The position in the word for `band[d]`, if it exists.
    fn word_position(&self, passed: u32, d: usize) -> Option<usize> {
        (passed as usize + d).checked_sub(FUZZY_DISTANCE_MAX).filter(|position| *position <= self.word.len())
    }
    /// The state after one more character. `None` stands for invalid UTF-8.
    fn advance(&self, state: &State, c: Option<char>) -> State {
        let too_far = self.distance + 1;
        let mut next =
            State { passed: state.passed.saturating_add(1), band: [too_far; BAND], partial: 0, missing: 0 };
        for d in 0..BAND {
            let Some(position) = self.word_position(next.passed, d) else { continue };
            let substituted = match position.checked_sub(1) {
                Some(before) => state.band[d] + u8::from(c.is_none() || Some(self.word[before]) != c),
                None => too_far,
            };
            let extra_character = state.band.get(d + 1).map_or(too_far, |n| n + 1);
            let missing_character = d.checked_sub(1).map_or(too_far, |d| next.band[d] + 1);
            next.band[d] = substituted.min(extra_character).min(missing_character).min(too_far);
        }
        next
    }
}

impl Automaton for Fuzzy {
    type State = State;
    fn start(&self) -> State {
        let mut band = [self.distance + 1; BAND];
        for (d, n) in band.iter_mut().enumerate() {
            // The cost of deleting the first characters of the word.
            if let Some(position) = self.word_position(0, d) {
                *n = (position as u8).min(self.distance + 1);
            }
        }
        State { passed: 0, band, partial: 0, missing: 0 }
    }
    fn is_match(&self, state: &State) -> bool {
        let end = (self.word.len() + FUZZY_DISTANCE_MAX).checked_sub(state.passed as usize);
        let distance = end.and_then(|d| state.band.get(d));
        state.missing == 0 && distance.is_some_and(|n| *n <= self.distance)
    }
    fn can_match(&self, state: &State) -> bool {
        state.band.iter().any(|n| *n <= self.distance)
    }
    fn accept(&self, state: &State, byte: u8) -> State {
        let (partial, missing) = match (state.missing, byte) {
            (0, 0..=0x7f) => (u32::from(byte), 0),
            (0, 0xc0..=0xdf) => (u32::from(byte & 0x1f), 1),
            (0, 0xe0..=0xef) => (u32::from(byte & 0x0f), 2),
            (0, 0xf0..=0xf7) => (u32::from(byte & 0x07), 3),
            (1.., 0x80..=0xbf) => (state.partial << 6 | u32::from(byte & 0x3f), state.missing - 1),
            _ => return self.advance(state, None),
        };
        match missing {
            0 => self.advance(state, char::from_u32(partial)),
            _ => State { partial, missing, ..*state },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn accepts(word: &str, distance: u8, term: &str) -> bool {
        let fuzzy = Fuzzy::new(word, distance);
        let mut state = fuzzy.start();
        for byte in term.bytes() {
            if !fuzzy.can_match(&state) {
                return false;
            }
            state = fuzzy.accept(&state, byte);
        }
        fuzzy.is_match(&state)
    }

    /// The edit distance of two words, computed with the full table.
    fn distance(a: &str, b: &str) -> usize {
        let b: Vec<char> = b.chars().collect();
        let mut row: Vec<usize> = (0..=b.len()).collect();
        for (i, x) in a.chars().enumerate() {
            let mut before = std::mem::replace(&mut row[0], i + 1);
            for (j, y) in b.iter().enumerate() {
                let substituted = before + usize::from(x != *y);
                before = row[j + 1];
                row[j + 1] = substituted.min(before + 1).min(row[j] + 1);
            }
        }
        row[b.len()]
    }

    #[test]
    fn words_within_a_distance() {
        for (word, within, term, want) in [
            ("dog", 1, "dog", true),
            ("dog", 1, "do", true),
            ("dog", 1, "dogs", true),
            ("dog", 1, "dig", true),
            ("dog", 1, "d", false),
            ("dog", 2, "d", true),
            ("dog", 0, "dog", true),
            ("dog", 0, "dig", false),
            ("größe", 1, "grosse", false),
            ("größe", 2, "grosse", false),
            ("größe", 1, "gröse", true),
            ("日本", 1, "日", true),
            ("", 2, "ab", true),
            ("", 2, "abc", false),
        ] {
            assert_eq!(accepts(word, within, term), want, "{word:?} within {within}: {term:?}");
        }
    }

    proptest! {
        #[test]
        fn agrees_with_the_whole_table(word in "[abäß日😀]{0,8}", term in "[abäß日😀]{0,8}", within in 0u8..=2) {
            let want = distance(&word, &term) <= usize::from(within);
            prop_assert_eq!(accepts(&word, within, &term), want);
        }
    }
}
