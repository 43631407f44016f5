//! [`Query`]: which trigrams a text must have for a pattern to match in it.
//!
//! Read from the pattern's syntax tree, part by part: of each part it is known which strings it is exactly (while those are
//! few), else with which it begins and ends, and what must stand in it. Where two parts meet, the end of one and the
//! beginning of the other give trigrams too. ASCII letters count as small ones, here and in the index, so one index serves
//! both kinds of search. Whatever is found is verified with the pattern itself: a query may be too wide, never too narrow.

use regex_syntax::hir::{Class, Hir, HirKind};
use std::collections::BTreeSet;
use std::fmt;

/// Strings that a part is known by; more are forgotten.
const STRINGS_MAX: usize = 16;
/// Of a beginning or an end, what can become part of a trigram.
const EDGE_BYTES: usize = 2;
/// A repetition is unrolled so often.
const UNROLLED_MAX: u32 = 3;
/// Deeper patterns (the parser's limit is 100 groups, but classes and repetitions nest too) are not looked into.
const DEPTH_MAX: usize = 400;
/// A query with more trigrams is cut short where that is allowed.
const GRAMS_MAX: usize = 4096;

/// Three bytes, the first the most significant.
pub(crate) type Gram = u32;

/// A condition on the trigrams of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Query {
    /// Any text.
    All,
    /// The text has this trigram.
    Gram(Gram),
    /// All of these hold.
    And(Vec<Query>),
    /// One of these holds; of none, no text is found.
    Or(Vec<Query>),
}

impl Query {
    /// The condition under which a pattern can match; `None` when it can match in any text.
    pub(crate) fn of(pattern: &Hir) -> Option<Query> {
        let mut known = of_hir(pattern, 0);
        known.forget_exact();
        (known.query != Query::All && known.query.grams() <= GRAMS_MAX).then_some(known.query)
    }

    fn and(self, other: Query) -> Query {
        match (self, other) {
            (Query::All, q) | (q, Query::All) => q,
            (Query::And(mut a), Query::And(b)) => {
                b.into_iter().for_each(|q| push_new(&mut a, q));
                Query::And(a)
            }
            (Query::And(mut a), q) | (q, Query::And(mut a)) => {
                push_new(&mut a, q);
                Query::And(a)
            }
            (a, b) if a == b => a,
            (a, b) => Query::And(vec![a, b]),
        }
    }

    fn or(self, other: Query) -> Query {
        match (self, other) {
            (Query::All, _) | (_, Query::All) => Query::All,
            (Query::Or(mut a), Query::Or(b)) => {
                b.into_iter().for_each(|q| push_new(&mut a, q));
                Query::Or(a)
            }
            (Query::Or(mut a), q) | (q, Query::Or(mut a)) => {
                push_new(&mut a, q);
                Query::Or(a)
            }
            (a, b) if a == b => a,
            (a, b) => Query::Or(vec![a, b]),
        }
    }

    fn grams(&self) -> usize {
        match self {
            Query::All => 0,
            Query::Gram(_) => 1,
            Query::And(all) | Query::Or(all) => all.iter().map(Query::grams).sum(),
        }
    }
}

fn push_new(all: &mut Vec<Query>, q: Query) {
    if !all.contains(&q) {
        all.push(q);
    }
}

impl fmt::Display for Query {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |f: &mut fmt::Formatter<'_>, all: &[Query], word: &str| {
            f.write_str("(")?;
            for (i, q) in all.iter().enumerate() {
                if i > 0 {
                    f.write_str(word)?;
                }
                write!(f, "{q}")?;
            }
            f.write_str(")")
        };
        match self {
            Query::All => f.write_str("*"),
            Query::Gram(gram) => {
                let bytes = [(gram >> 16) as u8, (gram >> 8) as u8, *gram as u8];
                write!(f, "\"{}\"", bytes.escape_ascii())
            }
            Query::And(all) => list(f, all, " "),
            Query::Or(all) => list(f, all, " | "),
        }
    }
}

/// ASCII letters small.
pub(crate) fn fold(byte: u8) -> u8 {
    byte.to_ascii_lowercase()
}

/// The trigrams of folded bytes.
fn grams(text: &[u8]) -> impl Iterator<Item = Gram> {
    text.windows(3).map(|w| Gram::from(w[0]) << 16 | Gram::from(w[1]) << 8 | Gram::from(w[2]))
}

type Strings = BTreeSet<Vec<u8>>;

/// What is known of a part of a pattern.
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
        if self.exact.as_ref().is_some_and(|s| s.len() > STRINGS_MAX) {
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
            let query = self.query.and(next.query);
            return Known { query, ..Known::exactly(cross(a, b)) };
        }
        // Where they meet, before either is forgotten.
        let begins = match &self.exact {
            Some(exact) if exact.len() * next.begins_now().len() <= STRINGS_MAX * STRINGS_MAX => {
                Some(cross(exact, &next.begins_now()))
            }
            _ => None,
        };
        let ends = match &next.exact {
            Some(exact) if exact.len() * self.ends_now().len() <= STRINGS_MAX * STRINGS_MAX => {
                Some(cross(&self.ends_now(), exact))
            }
            _ => None,
        };
        let middle = cross(&self.ends_now(), &next.begins_now());
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
        let query = self.query.and(next.query).and(one_of(&middle));
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

    fn begins_now(&self) -> Strings {
        self.exact.as_ref().unwrap_or(&self.begins).clone()
    }
    fn ends_now(&self) -> Strings {
        self.exact.as_ref().unwrap_or(&self.ends).clone()
    }
}

fn cross(a: &Strings, b: &Strings) -> Strings {
    a.iter().flat_map(|a| b.iter().map(move |b| [&a[..], b].concat())).collect()
}

/// The text contains one of these strings.
fn one_of(strings: &Strings) -> Query {
    let of_one = |text: &Vec<u8>| grams(text).map(Query::Gram).fold(Query::All, Query::and);
    strings.iter().map(of_one).fold(Query::Or(Vec::new()), |all, q| match all {
        Query::Or(none) if none.is_empty() => q,
        all => all.or(q),
    })
}

fn of_hir(hir: &Hir, depth: usize) -> Known {
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
        HirKind::Capture(capture) => of_hir(&capture.sub, depth + 1),
        HirKind::Concat(parts) => {
            let parts = parts.iter().map(|p| of_hir(p, depth + 1));
            parts.fold(Known::exactly(just(b"")), Known::then)
        }
        HirKind::Alternation(parts) => {
            let mut parts = parts.iter().map(|p| of_hir(p, depth + 1));
            let Some(first) = parts.next() else { return Known::anything(true) };
            parts.fold(first, Known::or)
        }
        HirKind::Repetition(r) => {
            let once = || of_hir(&r.sub, depth + 1);
            if (r.min, r.max) == (0, Some(1)) {
                return once().or(Known::exactly(just(b"")));
            }
            let unrolled = r.min.min(UNROLLED_MAX);
            // Each copy is read anew, and repetitions nest.
            if unrolled > 1 && depth > DEPTH_MAX / 40 {
                return once().then(Known::anything(true));
            }
            let copies = (0..unrolled).map(|_| once());
            let known = copies.fold(Known::exactly(just(b"")), Known::then);
            if r.max == Some(unrolled) {
                return known;
            }
            if r.min == 0 {
                return Known::anything(true);
            }
            // It ends with a copy, too.
            let rest = Known::anything(true);
            let last = once();
            let ends = last.ends_now();
            let mut all = known.then(rest);
            all.ends = ends;
            all.trim();
            all
        }
    }
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
            ("a[bc]d", r#"("abd" | "acd")"#),
            ("(?i)abc", r#""abc""#),
            ("ab?c", "-"),
            ("xab?cy", r#"(("xab" "abc" "bcy") | ("xac" "acy"))"#),
            ("abc.*def", r#"("abc" "def")"#),
            ("ab[0-9]cd", "(\"ab0\" \"b0c\" \"0cd\") | (\"ab1\" \"b1c\" \"1cd\")"),
            ("(abc)+d", r#"("abc" "bcd")"#),
            ("a{3}", r#""aaa""#),
            (r"foo\bbar", r#"("foo" "oob" "oba" "bar")"#),
            ("ab.", "-"),
            ("(?:abc)*", "-"),
            (r"a\xffb", r#""a\xffb""#),
        ] {
            let got = query(pattern);
            assert!(got == want || got.starts_with(&format!("({want}")), "{pattern}: {got}");
        }
    }
}
