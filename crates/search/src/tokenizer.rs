//! Splits a text into words, lower-cases them, removes stop words and stems them. Used for TEXT fields and for
//! query terms.
//!
//! [`Words`] splits a text. [`TextTokenizer`] adapts it to tantivy, which runs it twice: for a field's exact words,
//! and for their stems in a second field. Prefixes and phrases therefore see exact words only. Separators are
//! RediSearch's (ASCII punctuation except the underscore, and white space) and the typographic separators of
//! Unicode. A backslash before a separator makes it part of the word. A stop word takes no position, as in
//! RediSearch.

use frostem::{Algorithm, Stemmer};
use std::collections::HashSet;
use std::sync::Arc;
use tantivy::tokenizer::{Token, TokenStream, Tokenizer};

/// RediSearch's default stop words.
pub(crate) const STOP_WORDS: [&str; 33] = [
    "a", "is", "the", "an", "and", "are", "as", "at", "be", "but", "by", "for", "if", "in", "into", "it",
    "no", "not", "of", "on", "or", "such", "that", "their", "then", "there", "these", "they", "this", "to",
    "was", "will", "with",
];

/// Longest word that is stemmed, in bytes. A longer word is its own stem, because the stemmer copies the whole word for
/// each letter that it replaces.
const STEMMED_WORD_BYTES_MAX: usize = 256;

/// True for a character that separates words.
pub(crate) fn is_separator(c: char) -> bool {
    match c {
        '_' => false,
        '\0'..='\x7f' => c.is_ascii_punctuation() || c.is_ascii_whitespace() || c.is_ascii_control(),
        // These are no-break space, guillemets, general punctuation and CJK punctuation.
        '\u{a0}' | '\u{ab}' | '\u{bb}' | '\u{2010}'..='\u{2027}' | '\u{2030}'..='\u{205e}' => true,
        '\u{3000}'..='\u{3003}' | '\u{3008}'..='\u{3011}' => true,
        _ => c.is_whitespace(),
    }
}

/// The lower-cased words of a text. Each word is written into the caller's buffer.
pub(crate) struct Words<'t> {
    text: &'t str,
    at: usize,
}

impl<'t> Words<'t> {
    pub(crate) fn new(text: &'t str) -> Words<'t> {
        Words { text, at: 0 }
    }
    /// Writes the next word into `word` and returns its byte range in the text; `None` at the end.
    pub(crate) fn next_into(&mut self, word: &mut String) -> Option<(usize, usize)> {
        word.clear();
        let mut start = None;
        let mut chars = self.text[self.at..].char_indices().peekable();
        while let Some((i, c)) = chars.next() {
            let escaped = c == '\\' && chars.peek().is_some_and(|(_, next)| is_separator(*next));
            if escaped {
                let (_, next) = chars.next().expect("peeked");
                start.get_or_insert(self.at + i);
                word.push(next);
            } else if !is_separator(c) {
                start.get_or_insert(self.at + i);
                push_lower(word, c);
            } else if let Some(from) = start {
                let to = self.at + i;
                self.at = to;
                return Some((from, to));
            }
        }
        self.at = self.text.len();
        start.map(|from| (from, self.text.len()))
    }
}

/// Appends `c` in lower case. The sigma at the end of a Greek word becomes the other one, as in Unicode's case folding:
/// in capitals both are one letter.
pub(crate) fn push_lower(to: &mut String, c: char) {
    match c {
        'ς' => to.push('σ'),
        _ if c.is_ascii() => to.push(c.to_ascii_lowercase()),
        _ => to.extend(c.to_lowercase()),
    }
}

/// The text in lower case, each character by itself. So a part of a text is found in the lower-case text, also where
/// [`str::to_lowercase`] would look at the end of a word.
pub(crate) fn lower(text: &str) -> String {
    let mut lower = String::with_capacity(text.len());
    text.chars().for_each(|c| push_lower(&mut lower, c));
    lower
}

/// Splits a text into words for an index.
#[derive(Clone)]
pub(crate) struct TextTokenizer {
    stop_words: Arc<HashSet<String>>,
    stem: bool,
}

impl TextTokenizer {
    pub(crate) fn new(stop_words: Arc<HashSet<String>>, stem: bool) -> TextTokenizer {
        TextTokenizer { stop_words, stem }
    }
}

impl Tokenizer for TextTokenizer {
    type TokenStream<'a> = TextStream<'a>;
    fn token_stream<'a>(&'a mut self, text: &'a str) -> TextStream<'a> {
        TextStream {
            words: Words::new(text),
            stop_words: &self.stop_words,
            stemmer: self.stem.then(stemmer),
            token: Token::default(),
        }
    }
}

/// The words of one text, in the form that tantivy reads.
pub(crate) struct TextStream<'a> {
    words: Words<'a>,
    stop_words: &'a HashSet<String>,
    stemmer: Option<Stemmer>,
    token: Token,
}

impl TokenStream for TextStream<'_> {
    fn advance(&mut self) -> bool {
        while let Some((from, to)) = self.words.next_into(&mut self.token.text) {
            if self.stop_words.contains(&self.token.text) {
                continue;
            }
            if let Some(stemmer) = &self.stemmer {
                stem_with(stemmer, &mut self.token.text);
            }
            self.token.position = self.token.position.wrapping_add(1);
            self.token.offset_from = from;
            self.token.offset_to = to;
            return true;
        }
        false
    }
    fn token(&self) -> &Token {
        &self.token
    }
    fn token_mut(&mut self) -> &mut Token {
        &mut self.token
    }
}

/// The stem of a lower-case word.
pub(crate) fn stem(word: &str) -> String {
    let mut word = word.to_string();
    stem_with(&stemmer(), &mut word);
    word
}

/// Replaces a lower-case word by its stem.
fn stem_with(stemmer: &Stemmer, word: &mut String) {
    if word.len() <= STEMMED_WORD_BYTES_MAX {
        *word = stemmer.stem(word).into_owned();
    }
}

fn stemmer() -> Stemmer {
    Stemmer::new(Algorithm::English)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        let (mut w, mut word, mut out) = (Words::new(text), String::new(), Vec::new());
        while w.next_into(&mut word).is_some() {
            out.push(word.clone());
        }
        out
    }

    fn tokens(text: &str, stem: bool) -> Vec<(usize, String)> {
        let stop = Arc::new(STOP_WORDS.iter().map(|w| w.to_string()).collect());
        let mut t = TextTokenizer::new(stop, stem);
        let (mut stream, mut out) = (t.token_stream(text), Vec::new());
        while stream.advance() {
            out.push((stream.token().position, stream.token().text.clone()));
        }
        out
    }

    #[test]
    fn splits_at_punctuation_and_white_space() {
        assert_eq!(words("Hello, World!"), ["hello", "world"]);
        assert_eq!(
            words("a.b/c(d)e{f}g[h]i:j;k~l!m@n#o$p%q^r&s*t-u=v+w|x'y`z\"0<1>2?3"),
            words("a b c d e f g h i j k l m n o p q r s t u v w x y z 0 1 2 3")
        );
        assert_eq!(words("snake_case stays"), ["snake_case", "stays"]);
        assert_eq!(words("line\r\nline\tx\0y"), ["line", "line", "x", "y"]);
        assert_eq!(words("“quoted” – text…more\u{a0}here"), ["quoted", "text", "more", "here"]);
        assert_eq!(words(""), Vec::<String>::new());
        assert_eq!(words(" ,. "), Vec::<String>::new());
    }

    #[test]
    fn a_backslash_keeps_a_separator_in_the_word() {
        assert_eq!(words(r"hello\-world foo\.bar"), ["hello-world", "foo.bar"]);
        assert_eq!(words(r"\@at"), ["@at"]);
        assert_eq!(words(r"a\b"), ["a", "b"]);
        assert_eq!(words(r"end\"), ["end"]);
    }

    #[test]
    fn lower_cases_beyond_ascii() {
        assert_eq!(words("ÄRGER Straße ΣΊΣΥΦΟΣ İ"), ["ärger", "straße", "σίσυφοσ", "i̇"]);
    }

    #[test]
    fn stop_words_take_no_position() {
        assert_eq!(tokens("The king of Spain", false), [(0, "king".into()), (1, "spain".into())]);
        assert_eq!(tokens("running runs", true), [(0, "run".into()), (1, "run".into())]);
    }

    #[test]
    fn a_long_word_is_its_own_stem() {
        let longest = format!("{}running", "x".repeat(STEMMED_WORD_BYTES_MAX - 7));
        assert_eq!(stem(&longest), longest[..STEMMED_WORD_BYTES_MAX - 4], "the ending and the doubled n go");
        let longer = format!("x{longest}");
        assert_eq!(stem(&longer), longer);
        assert_eq!(tokens(&longer, true), [(0, longer)]);
        // Stemming this word would take hours.
        let word = "y".repeat(8 << 20);
        assert_eq!(tokens(&word, true), [(0, word)]);
    }
}
