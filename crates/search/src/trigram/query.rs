//! [`Query`]: the texts, and so the trigrams, that a document must contain for a pattern to match.
//!
//! The planner walks the pattern's syntax tree. For each part it keeps the exact strings that the part matches
//! while they are few. For larger sets it keeps their beginnings, their ends, and a condition on what lies between.
//! Where two parts meet, the ends of one and the beginnings of the next form further texts. ASCII letters count as
//! lower case, here and in the index.
//!
//! The pattern itself verifies each document found: a query may select too much, never too little. The size of what
//! is kept for a part is bounded and each part is read once, so planning time is proportional to the pattern.

use super::grams::{GRAM_BYTES, fold};
use memchr::memmem;
use regex_syntax::hir::{Class, Hir, HirKind, Repetition};
use std::collections::{BTreeSet, HashSet};
use std::fmt;

/// Maximum number of strings that are kept for a part. A larger set is dropped.
const STRINGS_MAX: usize = 16;
/// Maximum length of a string that is kept for a part, in bytes.
const STRING_BYTES_MAX: usize = 64;
/// Maximum number of strings that are formed where two parts meet. A larger set is ignored.
const MEETING_MAX: usize = 64;
/// Maximum number of bytes of the beginning or the end of a part that are kept. A gram that crosses into the next part
/// can have at most this number of bytes of the part.
const EDGE_BYTES: usize = GRAM_BYTES - 1;
/// Maximum number of copies of a repetition that are read.
const UNROLLED_MAX: u32 = 3;
/// Maximum nesting of patterns that are read. The parser allows 100 groups, but classes and repetitions nest too.
const DEPTH_MAX: usize = 400;
/// Maximum number of bytes of a text in a pattern that are required. The bytes after them are not required.
const TEXT_BYTES_MAX: usize = 256;
/// Maximum weight of a query: the bytes of its texts plus one for each list of conditions.
const WEIGHT_MAX: usize = 4096;
/// Maximum number of conditions that must all hold. One part of a pattern may add more.
const CONDITIONS_MAX: usize = 64;
/// A list with more conditions than this is not searched for conditions that imply each other.
const COMPARED_MAX: usize = 32;

/// A condition on a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Query {
    /// Every text satisfies it.
    All,
    /// The text contains these bytes, which are folded and three or more, and so all their trigrams.
    Text(Box<[u8]>),
    /// All conditions in the list must hold.
    And(Vec<Query>),
    /// At least one condition in the list holds. An empty list is satisfied by no text.
    Or(Vec<Query>),
}

impl Query {
    /// The condition that a text must satisfy for the pattern to match; `None` when the pattern requires no
    /// trigram.
    pub(crate) fn of(pattern: &Hir) -> Option<Query> {
        Planner::default().plan(pattern)
    }

    /// The condition that a text contains `text`.
    fn text(text: &[u8]) -> Query {
        match text.len() {
            0..3 => Query::All,
            n => Query::Text(text[..n.min(TEXT_BYTES_MAX)].into()),
        }
    }

    fn and(self, other: Query) -> Query {
        // Add nothing when the limits are reached: the query then stays weaker than it could be.
        if matches!(&self, Query::And(all) if all.len() >= CONDITIONS_MAX) {
            return self;
        }
        if self.weight() + other.weight() > WEIGHT_MAX {
            return self;
        }
        match (self, other) {
            (Query::All, q) | (q, Query::All) => q,
            (Query::And(mut a), Query::And(b)) => {
                b.into_iter().for_each(|q| push_stricter(&mut a, q));
                Query::And(a)
            }
            (Query::And(mut a), q) | (q, Query::And(mut a)) => {
                push_stricter(&mut a, q);
                Query::And(a)
            }
            (a, b) if a.implies(&b) => a,
            (a, b) if b.implies(&a) => b,
            (a, b) => Query::And(vec![a, b]),
        }
    }

    fn or(self, other: Query) -> Query {
        if self.weight() + other.weight() > WEIGHT_MAX {
            return Query::All;
        }
        match (self, other) {
            (Query::All, _) | (_, Query::All) => Query::All,
            (Query::Or(mut a), Query::Or(b)) => {
                b.into_iter().for_each(|q| push_wider(&mut a, q));
                Query::Or(a)
            }
            (Query::Or(mut a), q) | (q, Query::Or(mut a)) => {
                push_wider(&mut a, q);
                Query::Or(a)
            }
            (a, b) if a.implies(&b) => b,
            (a, b) if b.implies(&a) => a,
            (a, b) => Query::Or(vec![a, b]),
        }
    }

    /// True when satisfying this condition certainly satisfies `other`. May miss implications.
    fn implies(&self, other: &Query) -> bool {
        match (self, other) {
            (Query::Text(a), Query::Text(b)) => memmem::find(a, b).is_some(),
            (a, b) => a == b,
        }
    }

    /// Size of the query: the bytes of its texts plus one for each list of conditions.
    pub(crate) fn weight(&self) -> usize {
        match self {
            Query::All => 0,
            Query::Text(text) => text.len(),
            Query::And(all) | Query::Or(all) => 1 + all.iter().map(Query::weight).sum::<usize>(),
        }
    }
}

/// Adds a condition to a list whose conditions must all hold.
fn push_stricter(all: &mut Vec<Query>, q: Query) {
    if all.len() <= COMPARED_MAX {
        if all.iter().any(|own| own.implies(&q)) {
            return;
        }
        all.retain(|own| !q.implies(own));
    }
    all.push(q);
}

/// Adds a condition to a list of which at least one condition must hold.
fn push_wider(all: &mut Vec<Query>, q: Query) {
    if all.len() <= COMPARED_MAX {
        if all.iter().any(|own| q.implies(own)) {
            return;
        }
        all.retain(|own| !own.implies(&q));
    }
    all.push(q);
}

/// Shows the trigrams: `("tic" "ick")` requires both, `("abc" | "bcd")` one of them.
impl fmt::Display for Query {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (parts, word) = match self {
            Query::All => return f.write_str("*"),
            Query::Or(all) => (all.iter().map(Query::to_string).collect(), " | "),
            Query::Text(_) => (conditions(std::slice::from_ref(self)), " "),
            Query::And(all) => (conditions(all), " "),
        };
        match &parts[..] {
            [one] => f.write_str(one),
            parts => write!(f, "({})", parts.join(word)),
        }
    }
}

/// The distinct trigrams of the texts, and the other conditions.
fn conditions(all: &[Query]) -> Vec<String> {
    let (mut out, mut seen) = (Vec::new(), HashSet::new());
    for q in all {
        match q {
            Query::Text(text) => {
                let new = text.windows(3).filter(|w| seen.insert(*w));
                out.extend(new.map(|w| format!("\"{}\"", w.escape_ascii())));
            }
            q => out.push(q.to_string()),
        }
    }
    out
}

type Strings = BTreeSet<Vec<u8>>;

/// What the planner knows about a part of a pattern.
#[derive(Clone, Debug)]
struct Known {
    /// True when the part may match the empty string.
    emptyable: bool,
    /// All strings that the part matches, while they are few.
    exact: Option<Strings>,
    /// When `exact` is `None`: the part starts with one of these strings, and ends with one of `ends`.
    begins: Strings,
    ends: Strings,
    /// Another condition that the text must satisfy.
    query: Query,
}

fn just(text: &[u8]) -> Strings {
    Strings::from([text.to_vec()])
}

impl Known {
    fn exactly(strings: Strings) -> Known {
        let emptyable = strings.contains(&b""[..]);
        let known = Known {
            emptyable,
            exact: Some(strings),
            begins: Strings::new(),
            ends: Strings::new(),
            query: Query::All,
        };
        known.bounded()
    }
    /// The knowledge about a part of which only `emptyable` is known.
    fn anything(emptyable: bool) -> Known {
        Known { emptyable, exact: None, begins: just(b""), ends: just(b""), query: Query::All }
    }
    fn bounded(mut self) -> Known {
        let is_bounded =
            |s: &Strings| s.len() <= STRINGS_MAX && s.iter().all(|s| s.len() <= STRING_BYTES_MAX);
        if !self.exact.as_ref().is_none_or(is_bounded) {
            self.forget_exact();
        }
        self
    }
    /// Replaces the exact strings by their common text, their beginnings and their ends.
    fn forget_exact(&mut self) {
        let Some(exact) = self.exact.take() else { return };
        let query = std::mem::replace(&mut self.query, Query::All);
        self.query = query.and(one_of(&exact));
        self.begins = exact;
        self.ends = self.begins.clone();
        self.trim();
    }
    /// Shortens the beginnings and ends and limits their number. What they lose is first added to the query.
    fn trim(&mut self) {
        for (edge, at_end) in [(&mut self.begins, false), (&mut self.ends, true)] {
            let query = std::mem::replace(&mut self.query, Query::All);
            self.query = query.and(one_of(edge));
            if edge.contains(&b""[..]) {
                // An empty edge matches everywhere, so the other edges add nothing.
                *edge = just(b"");
            }
            for keep in (0..=EDGE_BYTES).rev() {
                let cut = |s: &Vec<u8>| {
                    let keep = keep.min(s.len());
                    if at_end { s[s.len() - keep..].to_vec() } else { s[..keep].to_vec() }
                };
                *edge = edge.iter().map(cut).collect();
                if edge.len() <= STRINGS_MAX {
                    break;
                }
            }
        }
    }

    fn then(mut self, mut next: Known) -> Known {
        if let (Some(a), Some(b)) = (&self.exact, &next.exact)
            && a.len() * b.len() <= STRINGS_MAX
        {
            let mut both = Known::exactly(cross(a, b));
            both.query = self.query.and(next.query).and(both.query);
            return both;
        }
        // Compute these strings, formed where the two parts meet, before either part loses its exact strings.
        let (own_ends, next_begins) = (self.ends_now(), next.begins_now());
        let begins = self.exact.as_ref().and_then(|exact| few_cross(exact, next_begins));
        let ends = next.exact.as_ref().and_then(|exact| few_cross(own_ends, exact));
        let middle = few_cross(own_ends, next_begins).map_or(Query::All, |strings| one_of(&strings));
        self.forget_exact();
        next.forget_exact();
        let begins = begins.unwrap_or_else(|| match self.emptyable {
            true => self.begins.union(&next.begins).cloned().collect(),
            false => self.begins.clone(),
        });
        let ends = ends.unwrap_or_else(|| match next.emptyable {
            true => next.ends.union(&self.ends).cloned().collect(),
            false => next.ends.clone(),
        });
        let query = self.query.and(next.query).and(middle);
        let mut both =
            Known { emptyable: self.emptyable && next.emptyable, exact: None, begins, ends, query };
        both.trim();
        both
    }

    fn or(mut self, mut other: Known) -> Known {
        if let (Some(a), Some(b)) = (&self.exact, &other.exact)
            && a.len() + b.len() <= STRINGS_MAX
            && self.query == Query::All
            && other.query == Query::All
        {
            return Known::exactly(a.union(b).cloned().collect());
        }
        self.forget_exact();
        other.forget_exact();
        let mut both = Known {
            emptyable: self.emptyable || other.emptyable,
            exact: None,
            begins: self.begins.union(&other.begins).cloned().collect(),
            ends: self.ends.union(&other.ends).cloned().collect(),
            query: self.query.or(other.query),
        };
        both.trim();
        both
    }

    fn begins_now(&self) -> &Strings {
        self.exact.as_ref().unwrap_or(&self.begins)
    }
    fn ends_now(&self) -> &Strings {
        self.exact.as_ref().unwrap_or(&self.ends)
    }
    /// Number of bytes of all strings kept for the part.
    fn bytes(&self) -> usize {
        let all = self.exact.iter().chain([&self.begins, &self.ends]).flatten();
        all.map(Vec::len).sum()
    }
}

fn cross(a: &Strings, b: &Strings) -> Strings {
    a.iter().flat_map(|a| b.iter().map(move |b| [&a[..], b].concat())).collect()
}

fn few_cross(a: &Strings, b: &Strings) -> Option<Strings> {
    (a.len() * b.len() <= MEETING_MAX).then(|| cross(a, b))
}

/// The condition that the text contains one of these strings.
fn one_of(strings: &Strings) -> Query {
    let (Some(first), Some(last)) = (strings.first(), strings.last()) else { return Query::Or(Vec::new()) };
    if strings.len() == 1 || strings.iter().any(|s| s.len() < 3) {
        return if strings.len() == 1 { Query::text(first) } else { Query::All };
    }
    // Require the common beginning and the common end once. The strings are sorted, so the first and the last have
    // the shortest common beginning.
    let begin = common(first.iter(), last.iter());
    let ends = strings.iter().map(|s| common(first.iter().rev(), s.iter().rev()));
    let end = ends.min().unwrap_or(0);
    let rests = strings.iter().map(|s| {
        let rest = s.get(begin.saturating_sub(EDGE_BYTES)..s.len() - end.saturating_sub(EDGE_BYTES));
        rest.map_or(Query::All, Query::text)
    });
    let rests = rests.reduce(Query::or).unwrap_or(Query::All);
    Query::text(&first[..begin]).and(Query::text(&first[first.len() - end..])).and(rests)
}

/// Length of the common start of two sequences.
fn common<'b>(a: impl Iterator<Item = &'b u8>, b: impl Iterator<Item = &'b u8>) -> usize {
    a.zip(b).take_while(|(a, b)| a == b).count()
}

/// Reads a pattern's syntax tree.
#[derive(Default)]
struct Planner {
    /// Number of parts that were read so far.
    parts: usize,
}

impl Planner {
    fn plan(&mut self, pattern: &Hir) -> Option<Query> {
        let mut known = self.read(pattern, 0);
        known.forget_exact();
        (known.query != Query::All).then_some(known.query)
    }

    fn read(&mut self, hir: &Hir, depth: usize) -> Known {
        self.parts += 1;
        let known = self.read_kind(hir, depth);
        debug_assert!(
            known.bytes() <= STRINGS_MAX * STRING_BYTES_MAX && known.query.weight() <= WEIGHT_MAX + 1,
            "what is known is bounded"
        );
        known
    }

    fn read_kind(&mut self, hir: &Hir, depth: usize) -> Known {
        if depth > DEPTH_MAX {
            return Known::anything(true);
        }
        match hir.kind() {
            HirKind::Empty | HirKind::Look(_) => Known::exactly(just(b"")),
            HirKind::Literal(l) => Known::exactly(just(&l.0.iter().map(|b| fold(*b)).collect::<Vec<u8>>())),
            HirKind::Class(class) => match strings_of(class) {
                Some(strings) => Known::exactly(strings),
                None => Known::anything(false),
            },
            HirKind::Capture(capture) => self.read(&capture.sub, depth + 1),
            HirKind::Concat(parts) => {
                let parts = parts.iter().map(|p| self.read(p, depth + 1));
                parts.fold(Known::exactly(just(b"")), Known::then)
            }
            HirKind::Alternation(parts) => {
                let parts = parts.iter().map(|p| self.read(p, depth + 1));
                parts.reduce(Known::or).unwrap_or_else(|| Known::anything(true))
            }
            HirKind::Repetition(r) => repeated(self.read(&r.sub, depth + 1), r),
        }
    }
}

/// The knowledge about a repetition of the part `once`.
fn repeated(once: Known, r: &Repetition) -> Known {
    if (r.min, r.max) == (0, Some(1)) {
        return once.or(Known::exactly(just(b"")));
    }
    let unrolled = r.min.min(UNROLLED_MAX);
    let copies = (0..unrolled).map(|_| once.clone());
    let known = copies.fold(Known::exactly(just(b"")), Known::then);
    if r.max == Some(unrolled) {
        return known;
    }
    if r.min == 0 {
        return Known::anything(true);
    }
    // A repetition begins with a copy of the part, and ends with a copy, too.
    let mut all = known.then(Known::anything(true));
    all.ends = once.ends_now().clone();
    all.trim();
    all
}

/// The strings of a small character class; `None` for a large one.
fn strings_of(class: &Class) -> Option<Strings> {
    let mut strings = Strings::new();
    match class {
        Class::Bytes(class) => {
            for range in class.ranges() {
                for byte in range.start()..=range.end() {
                    strings.insert(vec![fold(byte)]);
                    if strings.len() > STRINGS_MAX {
                        return None;
                    }
                }
            }
        }
        Class::Unicode(class) => {
            for range in class.ranges() {
                for c in range.start()..=range.end() {
                    let mut bytes = [0; 4];
                    let encoded = c.encode_utf8(&mut bytes).as_bytes();
                    strings.insert(encoded.iter().map(|b| fold(*b)).collect());
                    if strings.len() > STRINGS_MAX {
                        return None;
                    }
                }
            }
        }
    }
    Some(strings)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(pattern: &str) -> String {
        let hir =
            regex_syntax::ParserBuilder::new().utf8(false).unicode(false).build().parse(pattern).unwrap();
        Query::of(&hir).map_or("-".into(), |q| q.to_string())
    }

    #[test]
    fn patterns_become_queries() {
        for (pattern, want) in [
            ("Ticket", r#"("tic" "ick" "cke" "ket")"#),
            ("abc", r#""abc""#),
            ("ab", "-"),
            (".*", "-"),
            ("[0-9]+", "-"),
            ("abc|bcd", r#"("abc" | "bcd")"#),
            ("abc|x", "-"),
            ("abc|xabcd", r#""abc""#),
            ("a[bc]d", r#"("abd" | "acd")"#),
            ("(?i)abc", r#""abc""#),
            ("ab?c", "-"),
            ("xab?cy", r#"(("xab" "abc" "bcy") | ("xac" "acy"))"#),
            ("abc.*def", r#"("abc" "def")"#),
            ("ab[01]cd", r#"(("ab0" "b0c" "0cd") | ("ab1" "b1c" "1cd"))"#),
            (
                "xyzab[01]cd",
                r#"("xyz" "yza" "zab" (("yza" "zab" "ab0" "b0c" "0cd") | ("yza" "zab" "ab1" "b1c" "1cd")))"#,
            ),
            ("[01]end", r#"("end" (("0en" "end") | ("1en" "end")))"#),
            ("(abc)+d", r#"("abc" "bcd")"#),
            ("a{3}", r#""aaa""#),
            ("(ab){2,}c", r#"("aba" "bab" "abc")"#),
            (r"foo\bbar", r#"("foo" "oob" "oba" "bar")"#),
            ("ab.", "-"),
            ("(?:abc)*", "-"),
            (r"a\xffb", r#""a\xffb""#),
            (r"abc[^\x00-\xff]", "()"),
        ] {
            assert_eq!(query(pattern), want, "{pattern}");
        }
    }

    /// Number of nodes in a pattern's syntax tree.
    fn parts(hir: &Hir) -> usize {
        1 + match hir.kind() {
            HirKind::Repetition(r) => parts(&r.sub),
            HirKind::Capture(c) => parts(&c.sub),
            HirKind::Concat(all) | HirKind::Alternation(all) => all.iter().map(parts).sum(),
            _ => 0,
        }
    }

    #[test]
    fn planning_reads_each_part_once_in_bounded_memory() {
        const BYTES: usize = 64 << 10;
        let filled = |part: &str| part.repeat(BYTES / part.len());
        let nested = |n: usize, times: &str| {
            let (open, close) = ("(?:".repeat(n), format!("){times}").repeat(n));
            format!("{open}abc[01]{close}")
        };
        let words: Vec<String> = (0..6000).map(|i| format!("w{i:x}ord")).collect();
        for pattern in [
            filled("a"),
            filled("(a)(b)"),
            filled("(?:ab|cd)"),
            filled("[ab]c"),
            filled("abc.*"),
            filled("(?:a|bcde|f[gh]i)+.?"),
            words.join("|"),
            words.join(".*"),
            format!("(?:{}){{2,3}}", words.join("|")),
            nested(40, "{2,3}"),
            nested(40, "{3}"),
            nested(40, "+"),
            nested(20, "{2,}?"),
            format!("(?:{}){{3,}}", filled("[0-9a-f]")),
        ] {
            let config =
                regex_syntax::ParserBuilder::new().utf8(false).unicode(false).build().parse(&pattern);
            let hir = config.expect("parses");
            // The planner asserts for each part that its knowledge is bounded, so the time is proportional to the
            // number of parts.
            let mut planner = Planner::default();
            let query = planner.plan(&hir);
            assert_eq!(planner.parts, parts(&hir), "{}", &pattern[..20]);
            assert!(query.is_none_or(|q| q.weight() <= WEIGHT_MAX + 1));
        }
    }
}
