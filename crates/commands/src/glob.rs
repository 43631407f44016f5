//! Glob patterns exactly as redis-server matches them: KEYS, SCAN MATCH, HSCAN MATCH, CONFIG GET, COMMAND LIST.
//!
//! `*` matches any number of bytes, `?` one byte, `[a-c^]` one byte of a class, `\x` the byte x. Every element
//! except `*` takes exactly one byte. So after a mismatch the matcher only goes back to the last `*`. It needs at
//! most as many steps as the length of the pattern times the length of the text, and does not recurse. The elements
//! after the last `*` are compared only with the end of the text. Corner cases (an empty text, a class without an
//! end, ranges of bytes above 127) are as in redis-server 7.0.

/// Maximum number of groups of `*` in a pattern. A pattern with more matches nothing, as in redis-server, which
/// nests one call per group.
pub const STARS_MAX: usize = 1000;

/// Maximum number of elements that one call of COMMAND LIST or CONFIG GET tries, for all names together: about a
/// millisecond.
pub const NAME_STEPS_MAX: usize = 1 << 18;
const TOO_COMPLEX: &str = "ERR the pattern takes too many steps against all names: use a shorter one";

/// One search for a literal byte covers at most this many bytes. It counts as one element per number of bytes
/// below.
const SEEK_BYTES_MAX: usize = 1 << 20;
const SEEK_BYTES_PER_STEP: usize = 32;

/// True when the whole `text` matches `pattern`. With `nocase`, ASCII letters match in any case.
///
/// An empty text matches only the empty pattern, not even `*`. (KEYS and SCAN treat `*` alone as no pattern.)
pub fn matches(pattern: &[u8], text: &[u8], nocase: bool) -> bool {
    matches_counted(pattern, text, nocase, |_| true).unwrap_or(false)
}

/// Maximum number of steps that matching takes: a fixed number, and a number per byte of the text.
/// The elements after the last `*` are part of the fixed number, because they are compared once.
pub fn effort(pattern: &[u8]) -> (usize, usize) {
    let Some(prefix) = pattern.iter().position(|b| *b == b'*') else { return (pattern.len(), 0) };
    let rest = &pattern[prefix..];
    // An escaped `*` and a `*` in a class do not end a group.
    let longest = match rest.iter().any(|b| b"[\\".contains(b))
        || pattern[..prefix].iter().any(|b| b"[\\".contains(b))
    {
        true => rest.len(),
        false => rest.split(|b| *b == b'*').rev().skip(1).map(<[u8]>::len).max().unwrap_or(0),
    };
    (pattern.len(), longest)
}

/// A pattern with more bytes than this counts as hard without a closer look.
const HARD_PATTERN_BYTES_MIN: usize = 4096;
/// A pattern that may take more steps than this per byte of a text counts as hard.
const HARD_EFFORT: usize = 64;

/// True when matching `pattern` against a long text, or against many texts, may take seconds.
pub fn is_hard(pattern: &[u8]) -> bool {
    pattern.len() > HARD_PATTERN_BYTES_MIN || effort(pattern).1 > HARD_EFFORT
}

/// Where to continue after a mismatch: in the pattern after the last `*`, and in the text one byte further than
/// before.
struct Retry {
    pattern_at: usize,
    text_at: usize,
    /// The byte with which the text must continue, if the pattern has a literal byte after the `*`.
    literal: Option<u8>,
}

impl Retry {
    fn new(pattern: &[u8], pattern_at: usize, text_at: usize, nocase: bool) -> Retry {
        let first = pattern[pattern_at];
        let literal = (!nocase && !b"?[\\".contains(&first)).then_some(first);
        Retry { pattern_at, text_at, literal }
    }
    /// Moves to the next place in the text that may match. Returns false when there is none.
    fn seek(&mut self, text: &[u8]) -> bool {
        if let Some(literal) = self.literal {
            let rest = text.get(self.text_at..).unwrap_or_default();
            let near = &rest[..rest.len().min(SEEK_BYTES_MAX)];
            self.text_at += memchr::memchr(literal, near).unwrap_or(near.len());
        }
        self.text_at < text.len()
    }
}

/// The elements after the last `*` of a pattern.
#[derive(Clone, Copy, Debug)]
struct Tail {
    pattern_at: usize,
    elements: usize,
}

impl Tail {
    /// Reads the tail of `pattern`. `from` is the start of an element after the first `*`.
    fn of(pattern: &[u8], from: usize) -> Tail {
        let (mut at, mut tail) = (from, Tail { pattern_at: from, elements: 0 });
        while let Some(first) = pattern.get(at) {
            if *first == b'*' {
                at += 1;
                tail = Tail { pattern_at: at, elements: 0 };
            } else {
                at += element(&pattern[at..], 0, false).0;
                tail.elements += 1;
            }
        }
        tail
    }
}

/// A set of bytes. Bytes are compared as signed numbers.
#[derive(Clone, Copy, Debug, Default)]
struct Bytes([u64; 4]);

impl Bytes {
    /// Adds the bytes from `low` to `high`, inclusive. Adds nothing if `low` is above `high`.
    fn add(&mut self, low: i8, high: i8) {
        let (low, high) = (low as u8 ^ 0x80, high as u8 ^ 0x80);
        for (word, base) in self.0.iter_mut().zip([0u8, 64, 128, 192]) {
            let (from, to) = (low.max(base), high.min(base + 63));
            if from <= to {
                *word |= (u64::MAX >> (63 - (to - from))) << (from - base);
            }
        }
    }
    fn has(&self, byte: u8) -> bool {
        let at = byte ^ 0x80;
        self.0[usize::from(at >> 6)] >> (at & 63) & 1 == 1
    }
}

/// A class of more than [`SEEK_BYTES_PER_STEP`] bytes. It is read once per pattern, not once per byte of a text.
#[derive(Clone, Debug)]
struct LongClass {
    /// Where the class begins in the pattern.
    at: usize,
    /// Length of the class in the pattern.
    len: usize,
    is_negated: bool,
    /// The escaped members. They keep their case under `nocase`.
    exact: Bytes,
    /// All other members. They are in lower case under `nocase`.
    folded: Bytes,
}

impl LongClass {
    fn read(pattern: &[u8], at: usize, nocase: bool) -> LongClass {
        let (mut exact, mut folded) = (Bytes::default(), Bytes::default());
        let (len, is_negated) = class(&pattern[at..], nocase, |member| match member {
            Member::Exact(byte) => exact.add(byte as i8, byte as i8),
            Member::Range(low, high) => folded.add(low, high),
        });
        LongClass { at, len, is_negated, exact, folded }
    }
    fn fits(&self, byte: u8, nocase: bool) -> bool {
        (self.exact.has(byte) || self.folded.has(fold(byte, nocase))) != self.is_negated
    }
}

/// What is computed once per pattern, before any text is matched.
#[derive(Clone, Debug, Default)]
struct Precomputed {
    /// The long classes, in the order of the pattern.
    long_classes: Vec<LongClass>,
    /// The elements after the last `*`. `None` when there are none, or no `*`.
    tail: Option<Tail>,
}

/// A pattern that is matched against many texts. What does not depend on a text is computed once.
#[derive(Clone, Debug)]
pub struct Pattern<'p> {
    bytes: &'p [u8],
    nocase: bool,
    /// Number of elements except `*`. Each takes one byte, so a text with fewer bytes does not match.
    elements: usize,
    precomputed: Precomputed,
}

impl<'p> Pattern<'p> {
    /// Prepares a pattern.
    pub fn new(bytes: &'p [u8], nocase: bool) -> Pattern<'p> {
        let (mut at, mut elements, mut tail, mut long_classes) = (0, 0, None, Vec::new());
        while let Some(first) = bytes.get(at) {
            if *first == b'*' {
                at += 1;
                tail = Some(at);
                continue;
            }
            let (len, _) = element(&bytes[at..], 0, nocase);
            if *first == b'[' && len > SEEK_BYTES_PER_STEP {
                long_classes.push(LongClass::read(bytes, at, nocase));
            }
            at += len;
            elements += 1;
        }
        let tail = tail.filter(|from| *from < bytes.len()).map(|from| Tail::of(bytes, from));
        Pattern { bytes, nocase, elements, precomputed: Precomputed { long_classes, tail } }
    }
    /// The bytes of the pattern.
    pub fn bytes(&self) -> &'p [u8] {
        self.bytes
    }
    /// Like the function [`matches_counted`].
    pub fn matches_counted(&self, text: &[u8], spend: impl FnMut(usize) -> bool) -> Option<bool> {
        if text.len() < self.elements {
            return Some(false);
        }
        search(self.bytes, text, self.nocase, &self.precomputed, spend)
    }
    /// Matches one name of a table, on the worker. `steps_left` is shared by all patterns and names of a call, and
    /// begins with [`NAME_STEPS_MAX`].
    ///
    /// # Errors
    /// The text of the error reply, when no steps are left.
    pub fn matches_name(&self, name: &str, steps_left: &mut usize) -> Result<bool, &'static str> {
        let spend = |steps| {
            let is_enough = steps <= *steps_left;
            *steps_left = steps_left.saturating_sub(steps);
            is_enough
        };
        self.matches_counted(name.as_bytes(), spend).ok_or(TOO_COMPLEX)
    }
}

/// Like [`matches()`]. Now and then calls `spend` with the number of elements tried since it was last called, and
/// returns `None` if `spend` returns false.
#[inline]
pub fn matches_counted(
    pattern: &[u8],
    text: &[u8],
    nocase: bool,
    spend: impl FnMut(usize) -> bool,
) -> Option<bool> {
    search(pattern, text, nocase, &Precomputed { long_classes: Vec::new(), tail: None }, spend)
}

#[inline]
fn search(
    pattern: &[u8],
    text: &[u8],
    nocase: bool,
    precomputed: &Precomputed,
    mut spend: impl FnMut(usize) -> bool,
) -> Option<bool> {
    let (mut p, mut t) = (0, 0);
    let mut retry: Option<Retry> = None;
    let mut tail = precomputed.tail;
    let mut stars = 0;
    if text.is_empty() {
        return Some(pattern.is_empty());
    }
    loop {
        if !spend(1) {
            return None;
        }
        let fits = match pattern.get(p) {
            None => false,
            Some(b'*') => {
                while pattern.get(p + 1) == Some(&b'*') {
                    p += 1;
                }
                p += 1;
                if p == pattern.len() {
                    return Some(true);
                }
                stars += 1;
                if stars > STARS_MAX {
                    return Some(false);
                }
                if tail.is_none() && !spend((pattern.len() - p) / SEEK_BYTES_PER_STEP) {
                    return None;
                }
                let tail = tail.get_or_insert_with(|| Tail::of(pattern, p));
                if tail.pattern_at == p {
                    // Each element of the tail takes one byte, so the tail can only match at the end of the text.
                    if text.len() - t < tail.elements {
                        return Some(false);
                    }
                    (t, retry) = (text.len() - tail.elements, None);
                    continue;
                }
                let mut r = Retry::new(pattern, p, t, nocase);
                let found = r.seek(text);
                if !spend((r.text_at - t) / SEEK_BYTES_PER_STEP) {
                    return None;
                }
                if !found {
                    return Some(false);
                }
                t = r.text_at;
                retry = Some(r);
                continue;
            }
            Some(_) => {
                let long = precomputed.long_classes.binary_search_by_key(&p, |class| class.at);
                let (len, fits) = match long.map(|i| &precomputed.long_classes[i]) {
                    Ok(class) => (class.len, class.fits(text[t], nocase)),
                    Err(_) => {
                        let (len, fits) = element(&pattern[p..], text[t], nocase);
                        // A class is read as a whole for each byte of the text.
                        if len > SEEK_BYTES_PER_STEP && !spend(len / SEEK_BYTES_PER_STEP) {
                            return None;
                        }
                        (len, fits)
                    }
                };
                p += len;
                fits
            }
        };
        if fits {
            t += 1;
            if t == text.len() {
                // The rest of the pattern needs more bytes than are left. A later start would leave even fewer.
                return Some(pattern[p..].iter().all(|b| *b == b'*'));
            }
        } else {
            let Some(r) = &mut retry else { return Some(false) };
            r.text_at += 1;
            let from = r.text_at;
            let found = r.seek(text);
            if !spend((r.text_at - from) / SEEK_BYTES_PER_STEP) {
                return None;
            }
            if !found {
                return Some(false);
            }
            (p, t) = (r.pattern_at, r.text_at);
        }
    }
}

/// Matches the element at the start of `pattern` (which is no `*`) against one byte. Returns the length of the
/// element, and whether it matches.
#[inline]
fn element(pattern: &[u8], byte: u8, nocase: bool) -> (usize, bool) {
    let same = |a: u8| a == byte || (nocase && a.eq_ignore_ascii_case(&byte));
    match pattern[0] {
        b'?' => (1, true),
        b'[' => {
            let (mut found, folded) = (false, fold(byte, nocase));
            let (len, is_negated) = class(pattern, nocase, |member| match member {
                Member::Exact(exact) => found |= exact == byte,
                Member::Range(low, high) => found |= (low..=high).contains(&(folded as i8)),
            });
            (len, found != is_negated)
        }
        b'\\' if pattern.len() > 1 => (2, same(pattern[1])),
        literal => (1, same(literal)),
    }
}

fn fold(byte: u8, nocase: bool) -> u8 {
    if nocase { byte.to_ascii_lowercase() } else { byte }
}

/// A member of a class: a byte or a range.
enum Member {
    /// A single byte.
    Exact(u8),
    /// The bytes from the first to the second, compared as signed numbers. Under `nocase`, a byte is converted to
    /// lower case before it is compared.
    Range(i8, i8),
}

/// Reads the class at the start of `pattern`. Returns its length, and whether it is negated. A class without an end
/// extends to the end of the pattern. As in redis-server, escaped members keep their case even under `nocase`, and
/// a range compares bytes as signed numbers.
#[inline]
fn class(pattern: &[u8], nocase: bool, mut member: impl FnMut(Member)) -> (usize, bool) {
    let is_negated = pattern.get(1) == Some(&b'^');
    let mut at = if is_negated { 2 } else { 1 };
    loop {
        match pattern.get(at..).unwrap_or_default() {
            [] => return (pattern.len(), is_negated),
            [b'\\', escaped, ..] => {
                member(Member::Exact(*escaped));
                at += 2;
            }
            [b']', ..] => return (at + 1, is_negated),
            [first, b'-', last, ..] => {
                let (a, b) = (fold(*first, nocase) as i8, fold(*last, nocase) as i8);
                // The two ends are put in order before they are converted to lower case.
                let (low, high) = if (*first as i8) > (*last as i8) { (b, a) } else { (a, b) };
                member(Member::Range(low, high));
                at += 3;
            }
            [one, ..] => {
                let one = fold(*one, nocase) as i8;
                member(Member::Range(one, one));
                at += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The slow and obvious matcher: tries every way to divide the text among the `*`s.
    fn oracle(pattern: &[u8], text: &[u8], nocase: bool) -> bool {
        match (pattern.first(), text.first()) {
            (None, _) => text.is_empty(),
            (Some(b'*'), _) => (0..=text.len()).any(|n| oracle(&pattern[1..], &text[n..], nocase)),
            (Some(_), None) => false,
            (Some(_), Some(b)) => {
                let (n, fits) = element(pattern, *b, nocase);
                fits && oracle(&pattern[n..], &text[1..], nocase)
            }
        }
    }

    #[track_caller]
    fn check(pattern: &str, text: &str, want: bool) {
        assert_eq!(matches(pattern.as_bytes(), text.as_bytes(), false), want, "{pattern:?} against {text:?}");
    }

    #[test]
    fn each_element_matches_as_redis_documents_it() {
        check("h?llo", "hello", true);
        check("h?llo", "hllo", false);
        check("h*llo", "hllo", true);
        check("h[ae]llo", "hallo", true);
        check("h[^e]llo", "hello", false);
        check("h[a-b]llo", "hbllo", true);
        check("h[b-a]llo", "hallo", true);
        check("\\*", "*", true);
        check("\\*", "a", false);
        check("a\\", "a\\", true);
        check("[\\]]", "]", true);
        check("[a-]", "^", true);
        check("", "", true);
        check("*", "a", true);
        check("a**b**", "a-b", true);
        check("*a*", "bab", true);
        check("*ab", "aab", true);
        check("*ab", "abc", false);
    }

    #[test]
    fn corner_cases_match_as_in_redis_server() {
        check("*", "", false);
        check("[", "a", false);
        check("[^", "a", true);
        check("[ab", "b", true);
        check("[^ab", "b", false);
        check("[]a]", "a", false);
        assert!(matches(b"[a-\xff]", b"\x10", false), "signed: from -1 to 97");
        assert!(!matches(b"[a-\xff]", b"z", false));
        assert!(matches(b"ABC", b"abc", true));
        assert!(matches(b"[A-C]", b"b", true));
    }

    #[test]
    fn more_stars_than_redis_allows_match_nothing() {
        let text = vec![b'a'; STARS_MAX + 1];
        assert!(matches(&b"*a".repeat(STARS_MAX), &text, false));
        assert!(!matches(&b"*a".repeat(STARS_MAX + 1), &text, false));
        let trailing = [b"*a".repeat(STARS_MAX), b"*".to_vec()].concat();
        assert!(matches(&trailing, &text, false));
    }

    #[test]
    fn steps_of_a_hard_pattern_are_bounded_by_pattern_times_text() {
        let text = vec![b'a'; 2000];
        for pattern in [b"a*".repeat(200), b"*a?".repeat(200), b"*[^b]".repeat(150)] {
            let pattern = [pattern, b"b".to_vec()].concat();
            let (matched, steps) = counted(&pattern, &text);
            assert!(!matched && steps <= pattern.len() * text.len(), "{steps}");
        }
    }

    #[test]
    fn suffix_of_the_pattern_is_compared_with_the_end_of_the_text() {
        let text = [vec![b'a'; 1 << 20], b"]*b".to_vec()].concat();
        for (pattern, want) in [
            (&b"*b"[..], true),
            (b"a*[]x", false),
            (b"a*[a-z^]", true),
            (b"*a*\\*b", true),
            (b"*[*][b", true),
            (b"*a\\", false),
        ] {
            let (matched, steps) = counted(pattern, &text);
            assert!(matched == want && steps < 10, "{}: {matched} {steps}", pattern.escape_ascii());
        }
    }

    /// Whether the text matches, and the number of elements tried.
    fn counted(pattern: &[u8], text: &[u8]) -> (bool, usize) {
        let mut steps = 0;
        let matched = matches_counted(pattern, text, false, |n| {
            steps += n;
            true
        });
        (matched.expect("it is let go on"), steps)
    }

    #[test]
    fn the_effort_is_known_before() {
        for (pattern, want) in [
            ("", (0, 0)),
            ("user:?", (6, 0)),
            ("user:*", (6, 0)),
            ("user:***", (8, 0)),
            ("*:cart", (6, 0)),
            ("*:cart:*", (8, 6)),
            ("a*bc*d", (6, 2)),
            ("a*[*]", (5, 4)),
            ("\\**x", (4, 3)),
        ] {
            assert_eq!(effort(pattern.as_bytes()), want, "{pattern}");
        }
        for (pattern, want) in [("user:*", false), ("*:cart:*:items", false), ("u*s*e*r", false)] {
            assert_eq!(is_hard(pattern.as_bytes()), want, "{pattern}");
        }
        let (piece, long) =
            ([b"*".to_vec(), vec![b'a'; HARD_EFFORT], b"b*".to_vec()].concat(), vec![b'a'; 5000]);
        assert!(is_hard(&piece) && is_hard(&long) && !is_hard(&piece[1..]));
        // Where the literal byte is far away, the search for it counts as work.
        let far = [vec![b'b'; 3 * SEEK_BYTES_MAX], b"a".to_vec()].concat();
        let (matched, steps) = counted(b"*a*", &far);
        assert!(matched && (1..far.len()).contains(&(steps - far.len() / SEEK_BYTES_PER_STEP)), "{steps}");
    }

    #[test]
    fn a_long_class_counts_for_its_length() {
        let class = [b"*[".to_vec(), vec![b'x'; 32_000], b"]b*".to_vec()].concat();
        let (matched, steps) = counted(&class, &[b'a'; 100]);
        assert!(!matched && (100 * 1000..100 * 1020).contains(&steps), "{steps}");
    }

    #[test]
    fn a_text_with_fewer_bytes_than_elements_is_not_looked_at() {
        let long = b"*a".repeat(30_000);
        assert_eq!(Pattern::new(&long, false).matches_counted(&vec![b'a'; 29_999], |_| false), Some(false));
    }

    #[test]
    fn a_long_class_is_read_once() {
        let members = b"x-z\\A-\xff\x80\x90-a".repeat(1000);
        for (open, close) in [(&b"["[..], &b"]*"[..]), (b"[^", b"]"), (b"[", b"")] {
            let class = [open, &members[..], close].concat();
            for nocase in [false, true] {
                let (pattern, mut steps) = (Pattern::new(&class, nocase), 0);
                for byte in 0..=255 {
                    let fits = pattern.matches_counted(&[byte], |n| (steps += n, true).1);
                    assert_eq!(fits, Some(matches(&class, &[byte], nocase)), "{byte} {nocase} {open:?}");
                }
                assert!(steps <= 2 * 256, "{steps}");
            }
        }
    }

    #[test]
    fn steps_for_matching_names_are_bounded_in_total() {
        let (pattern, mut left) = (Pattern::new(b"*a?*aa*aaaa*b", true), NAME_STEPS_MAX);
        let name = "a".repeat(100);
        let answered = (0..100_000).take_while(|_| pattern.matches_name(&name, &mut left).is_ok()).count();
        assert!((1..100_000).contains(&answered), "{answered}");
        assert_eq!(pattern.matches_name(&name, &mut left), Err(TOO_COMPLEX));
    }

    #[test]
    fn match_can_be_cancelled() {
        let (text, mut left) = (vec![b'a'; 1 << 16], 1000);
        let mut spend = |n: usize| {
            left -= n as i64;
            left >= 0
        };
        assert_eq!(matches_counted(b"*ab*", &text, false, &mut spend), None);
        assert_eq!(matches_counted(b"a*", &text, false, |_| true), Some(true));
        assert!(left > -100);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]
        #[test]
        fn agrees_with_the_oracle(
            pattern in proptest::collection::vec(proptest::sample::select(&b"*?[]^-\\abcB\xff\x80"[..]), 0..9),
            text in proptest::collection::vec(proptest::sample::select(&b"abcB-]\\\xff\x80"[..]), 1..9),
            nocase: bool,
        ) {
            prop_assert_eq!(matches(&pattern, &text, nocase), oracle(&pattern, &text, nocase));
            let read = Pattern::new(&pattern, nocase);
            prop_assert_eq!(read.matches_counted(&text, |_| true), Some(oracle(&pattern, &text, nocase)));
            prop_assert_eq!(read.matches_counted(b"", |_| true), Some(pattern.is_empty()));
            let ((once, each), (_, steps)) = (effort(&pattern), counted(&pattern, &text));
            prop_assert!(steps <= once + 1 + (text.len() + 1) * (each + 1), "{steps}");
        }
    }
}
