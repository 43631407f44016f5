//! [`Query`]: which texts a document must have in it for a pattern to match, and so which trigrams.
//!
//! Read from the pattern's syntax tree, part by part: of each part it is known which strings it is exactly (while those are
//! few), else with which it begins and ends, and what must stand in it. Where two parts meet, the end of one and the
//! beginning of the other give texts too. ASCII letters count as small ones, here and in the index. Whatever is found is
//! verified with the pattern itself: a query may be too wide, never too narrow. What is known of a part is bounded, and
//! each part is read once, so that planning takes time in proportion to the pattern.

use super::grams::{GRAM_BYTES, fold};
use memchr::memmem;
use regex_syntax::hir::{Class, Hir, HirKind, Repetition};
use std::collections::{BTreeSet, HashSet};
use std::fmt;

/// Strings that a part is known by; more are forgotten.
const STRINGS_MAX: usize = 16;
/// Longest of these, in bytes.
const STRING_BYTES_MAX: usize = 64;
/// Strings where two parts meet; more say nothing.
const MEETING_MAX: usize = 64;
/// Of a beginning or an end, what can become part of a gram.
const EDGE_BYTES: usize = GRAM_BYTES - 1;
/// A repetition is unrolled so often.
const UNROLLED_MAX: u32 = 3;
/// Deeper patterns (the parser's limit is 100 groups, but classes and repetitions nest too) are not looked into.
const DEPTH_MAX: usize = 400;
/// Of a longer text in a pattern only the beginning is demanded, in bytes.
const TEXT_BYTES_MAX: usize = 256;
/// A query does not grow beyond this, in bytes of its texts and one for each choice.
const WEIGHT_MAX: usize = 4096;
/// Most conditions that must all hold, but for what one part adds.
const CONDITIONS_MAX: usize = 64;
/// A list of so many conditions is not searched any more for what one more of them adds.
const COMPARED_MAX: usize = 32;

/// A condition on a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Query {
    /// Any text.
    All,
    /// It has this in it, so all its trigrams: three bytes or more, folded.
    Text(Box<[u8]>),
    /// All of these hold.
    And(Vec<Query>),
    /// One of these holds; of none, no text is found.
    Or(Vec<Query>),
}

impl Query {
    /// The condition under which a pattern can match; `None` when no trigram is needed.
    pub(crate) fn of(pattern: &Hir) -> Option<Query> {
        Planner::default().plan(pattern)
    }

    /// That a text has `text` in it.
    fn text(text: &[u8]) -> Query {
        match text.len() {
            0..3 => Query::All,
            n => Query::Text(text[..n.min(TEXT_BYTES_MAX)].into()),
        }
    }

    fn and(self, other: Query) -> Query {
        // Past these bounds less is demanded than could be.
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

    /// True when it is plain that whatever fulfils this fulfils the other.
    fn implies(&self, other: &Query) -> bool {
        match (self, other) {
            (Query::Text(a), Query::Text(b)) => memmem::find(a, b).is_some(),
            (a, b) => a == b,
        }
    }

    /// How large it is: the bytes of its texts and one for each choice.
    pub(crate) fn weight(&self) -> usize {
        match self {
            Query::All => 0,
            Query::Text(text) => text.len(),
            Query::And(all) | Query::Or(all) => 1 + all.iter().map(Query::weight).sum::<usize>(),
        }
    }
}

/// Adds to conditions that must all hold.
fn push_stricter(all: &mut Vec<Query>, q: Query) {
    if all.len() <= COMPARED_MAX {
        if all.iter().any(|own| own.implies(&q)) {
            return;
        }
        all.retain(|own| !q.implies(own));
    }
    all.push(q);
}

/// Adds to conditions of which one must hold.
fn push_wider(all: &mut Vec<Query>, q: Query) {
    if all.len() <= COMPARED_MAX {
        if all.iter().any(|own| q.implies(own)) {
            return;
        }
        all.retain(|own| !own.implies(&q));
    }
    all.push(q);
}

/// As trigrams: `("tic" "ick")` is both, `("abc" | "bcd")` one of them.
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

/// Each trigram of the texts once, and the other conditions.
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

/// What is known of a part of a pattern.
#[derive(Clone, Debug)]
struct Known {
    /// It may match the empty string.
    emptyable: bool,
    /// All strings that it matches.
    exact: Option<Strings>,
    /// What it begins with, and ends with, when it is not known exactly: one of these.
    begins: Strings,
    ends: Strings,
    /// What else must hold.
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
    /// Anything, of some length.
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
    /// Keeps of the exact strings what they must contain, begin and end with.
    fn forget_exact(&mut self) {
        let Some(exact) = self.exact.take() else { return };
        let query = std::mem::replace(&mut self.query, Query::All);
        self.query = query.and(one_of(&exact));
        self.begins = exact;
        self.ends = self.begins.clone();
        self.trim();
    }
    /// Keeps the edges short and few; what they say beyond that goes into the query.
    fn trim(&mut self) {
        for (edge, at_end) in [(&mut self.begins, false), (&mut self.ends, true)] {
            let query = std::mem::replace(&mut self.query, Query::All);
            self.query = query.and(one_of(edge));
            if edge.contains(&b""[..]) {
                // Anything: the others say no more.
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
        // Where they meet, before either is forgotten.
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
    /// Bytes of the strings it is known by.
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

/// The text contains one of these strings.
fn one_of(strings: &Strings) -> Query {
    let (Some(first), Some(last)) = (strings.first(), strings.last()) else { return Query::Or(Vec::new()) };
    if strings.len() == 1 || strings.iter().any(|s| s.len() < 3) {
        return if strings.len() == 1 { Query::text(first) } else { Query::All };
    }
    // What all begin and end with is demanded once; they are sorted, so the outermost differ first.
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

/// How many are the same.
fn common<'b>(a: impl Iterator<Item = &'b u8>, b: impl Iterator<Item = &'b u8>) -> usize {
    a.zip(b).take_while(|(a, b)| a == b).count()
}

/// Reads a pattern.
#[derive(Default)]
struct Planner {
    /// Parts read.
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

/// A part `once`, as often as it is repeated.
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
    // It ends with a copy, too.
    let mut all = known.then(Known::anything(true));
    all.ends = once.ends_now().clone();
    all.trim();
    all
}

/// The strings of a small class.
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

    /// Parts of a syntax tree.
    fn parts(hir: &Hir) -> usize {
        1 + match hir.kind() {
            HirKind::Repetition(r) => parts(&r.sub),
            HirKind::Capture(c) => parts(&c.sub),
            HirKind::Concat(all) | HirKind::Alternation(all) => all.iter().map(parts).sum(),
            _ => 0,
        }
    }

    #[test]
    fn planning_reads_each_part_once_and_keeps_what_it_knows_bounded() {
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
            // Reading a part asserts that what is known of it is bounded; so the time is in proportion to the parts.
            let mut planner = Planner::default();
            let query = planner.plan(&hir);
            assert_eq!(planner.parts, parts(&hir), "{}", &pattern[..20]);
            assert!(query.is_none_or(|q| q.weight() <= WEIGHT_MAX + 1));
        }
    }
}
