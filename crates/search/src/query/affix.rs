//! [`Affix`]: the automaton for terms that begin with, end with or contain a text.

use super::AffixKind;
use tantivy_fst::Automaton;

/// A Knuth-Morris-Pratt automaton. A state is the number of text bytes matched so far.
#[derive(Clone, Debug)]
pub(crate) struct Affix {
    kind: AffixKind,
    text: Vec<u8>,
    /// `fallback[n]`: the longest proper prefix of the text that is a suffix of its first `n` bytes.
    fallback: Vec<u32>,
}

/// The state from which no match is possible.
const DEAD: u32 = u32::MAX;

impl Affix {
    pub(super) fn new(kind: AffixKind, text: &[u8]) -> Affix {
        let mut fallback = vec![0u32; text.len() + 1];
        let mut k = 0;
        for n in 1..text.len() {
            while k > 0 && text[n] != text[k] {
                k = fallback[k] as usize;
            }
            k += usize::from(text[n] == text[k]);
            fallback[n + 1] = k as u32;
        }
        Affix { kind, text: text.to_vec(), fallback }
    }
    /// Bytes that the automaton of a text of `text_bytes` holds.
    pub(super) fn bytes(text_bytes: usize) -> usize {
        text_bytes * (1 + size_of::<u32>()) + size_of::<Affix>()
    }
    fn is_full(&self, state: u32) -> bool {
        state as usize == self.text.len()
    }
}

impl Automaton for Affix {
    type State = u32;
    fn start(&self) -> u32 {
        0
    }
    fn is_match(&self, state: &u32) -> bool {
        self.is_full(*state)
    }
    fn can_match(&self, state: &u32) -> bool {
        *state != DEAD
    }
    fn will_always_match(&self, state: &u32) -> bool {
        self.kind != AffixKind::Suffix && self.is_full(*state)
    }
    fn accept(&self, state: &u32, byte: u8) -> u32 {
        if *state == DEAD {
            return DEAD;
        }
        if self.is_full(*state) && self.kind != AffixKind::Suffix {
            return *state;
        }
        let mut at = *state as usize;
        loop {
            if at < self.text.len() && self.text[at] == byte {
                return at as u32 + 1;
            }
            if self.kind == AffixKind::Prefix {
                return DEAD;
            }
            if at == 0 {
                return 0;
            }
            at = self.fallback[at] as usize;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn accepts(kind: AffixKind, text: &str, word: &str) -> bool {
        let affix = Affix::new(kind, text.as_bytes());
        let end = word.bytes().fold(affix.start(), |s, b| affix.accept(&s, b));
        affix.is_match(&end)
    }

    proptest! {
        #[test]
        fn agrees_with_the_standard_library(text in "[ab]{1,5}", word in "[ab]{0,12}") {
            prop_assert_eq!(accepts(AffixKind::Prefix, &text, &word), word.starts_with(&text));
            prop_assert_eq!(accepts(AffixKind::Suffix, &text, &word), word.ends_with(&text));
            prop_assert_eq!(accepts(AffixKind::Infix, &text, &word), word.contains(&text));
        }
    }
}
