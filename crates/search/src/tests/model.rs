//! Queries against a brute-force evaluator: random query trees over 30 documents must find exactly the documents that
//! the evaluator finds.

use super::World;
use crate::tokenizer::stem;
use proptest::prelude::*;
use std::sync::OnceLock;

const WORDS: [&str; 10] = ["run", "running", "runner", "dog", "dogs", "blue", "bluish", "red", "cat", "the"];
const TAGS: [&str; 5] = ["new york", "york", "yellow", "rome", "a@b.org"];

#[derive(Debug)]
struct Doc {
    key: String,
    /// The fields `title` (stemmed) and `body` (NOSTEM).
    texts: [Vec<&'static str>; 2],
    tags: Vec<&'static str>,
    number: Option<i64>,
}

fn documents() -> Vec<Doc> {
    let rng = &mut fastrand::Rng::with_seed(11);
    (0..30)
        .map(|i| {
            let mut words =
                |n: usize| (0..rng.usize(0..n)).map(|_| WORDS[rng.usize(..WORDS.len())]).collect::<Vec<_>>();
            let texts = [words(6), words(9)];
            let tags = (0..rng.usize(0..3)).map(|_| TAGS[rng.usize(..TAGS.len())]).collect();
            Doc { key: format!("d:{i:02}"), texts, tags, number: rng.bool().then(|| rng.i64(-5..6)) }
        })
        .collect()
}

/// The world with the documents. Created once, then only read.
fn world() -> &'static (World, Vec<Doc>) {
    static WORLD: OnceLock<(World, Vec<Doc>)> = OnceLock::new();
    WORLD.get_or_init(|| {
        let (world, docs) = (World::new(), documents());
        world.ok("FT.CREATE i PREFIX 1 d: SCHEMA title TEXT WEIGHT 2 body TEXT NOSTEM tags TAG SEPARATOR ; n NUMERIC");
        for (i, d) in docs.iter().enumerate() {
            // Make several segments, with deleted and replaced documents in all of them.
            world.hset(&d.key, &[("title", "running blue dog"), ("tags", "york"), ("n", "1")]);
            world.hset("d:gone", &[("title", "running blue dog"), ("tags", "york"), ("n", "1")]);
            if i % 7 == 0 {
                world.found("i", "dog");
            }
            world.del(&d.key);
            world.del("d:gone");
            let (title, body, tags) = (d.texts[0].join(" "), d.texts[1].join(", "), d.tags.join(";"));
            let number = d.number.map(|n| n.to_string());
            let mut pairs = vec![("title", title.as_str()), ("body", body.as_str()), ("tags", tags.as_str())];
            pairs.extend(number.as_deref().map(|n| ("n", n)));
            world.hset(&d.key, &pairs);
        }
        (world, docs)
    })
}

/// A query, as the model evaluates it.
#[derive(Clone, Debug)]
enum Q {
    All,
    /// A word, and the fields in which it is searched.
    Word(usize, Where),
    Phrase(Vec<usize>, Where),
    Prefix(usize, usize, Where),
    Tags(Vec<usize>),
    TagPrefix(usize, usize),
    /// A range: its bounds, and whether each bound is exclusive.
    Range(i64, bool, i64, bool),
    And(Vec<Q>),
    Or(Vec<Q>),
    Not(Box<Q>),
    Optional(Box<Q>),
}

#[derive(Clone, Copy, Debug)]
enum Where {
    Any,
    Title,
    Body,
    Both,
}

impl Where {
    fn text(self) -> &'static str {
        match self {
            Where::Any => "",
            Where::Title => "@title:",
            Where::Body => "@body:",
            Where::Both => "@title|body:",
        }
    }
    fn has(self, field: usize) -> bool {
        match self {
            Where::Any | Where::Both => true,
            Where::Title => field == 0,
            Where::Body => field == 1,
        }
    }
}

fn prefix(of: &str, len: usize) -> &str {
    &of[..len.clamp(2, of.len())]
}

impl Q {
    fn text(&self) -> String {
        match self {
            Q::All => "*".into(),
            Q::Word(w, at) => format!("{}{}", at.text(), WORDS[*w]),
            Q::Phrase(ws, at) => {
                format!("{}\"{}\"", at.text(), ws.iter().map(|w| WORDS[*w]).collect::<Vec<_>>().join(" "))
            }
            Q::Prefix(w, n, at) => format!("{}{}*", at.text(), prefix(WORDS[*w], *n)),
            Q::Tags(ts) => {
                format!("@tags:{{{}}}", ts.iter().map(|t| TAGS[*t]).collect::<Vec<_>>().join(" | "))
            }
            Q::TagPrefix(t, n) => format!("@tags:{{{}*}}", prefix(TAGS[*t], *n).trim_end()),
            Q::Range(min, x, max, y) => {
                let open = |e: &bool| if *e { "(" } else { "" };
                format!("@n:[{}{min} {}{max}]", open(x), open(y))
            }
            Q::And(qs) => format!("({})", qs.iter().map(Q::text).collect::<Vec<_>>().join(" ")),
            Q::Or(qs) => format!("({})", qs.iter().map(Q::text).collect::<Vec<_>>().join(" | ")),
            Q::Not(q) => format!("-{}", q.text()),
            Q::Optional(q) => format!("~{}", q.text()),
        }
    }

    /// `None` when the query consists only of stop words, so that it is dropped.
    fn matches(&self, d: &Doc) -> Option<bool> {
        let any_text = |at: Where, test: &dyn Fn(usize, &[&str]) -> bool| {
            d.texts.iter().enumerate().any(|(f, words)| {
                let words: Vec<&str> = words.iter().copied().filter(|w| *w != "the").collect();
                at.has(f) && test(f, &words)
            })
        };
        Some(match self {
            Q::All => true,
            Q::Word(w, _) if WORDS[*w] == "the" => return None,
            Q::Word(w, at) => any_text(*at, &|f, words| match f {
                0 => words.iter().any(|x| stem(x) == stem(WORDS[*w])),
                _ => words.contains(&WORDS[*w]),
            }),
            Q::Phrase(ws, at) => {
                let want: Vec<&str> = ws.iter().map(|w| WORDS[*w]).filter(|w| *w != "the").collect();
                if want.is_empty() {
                    return None;
                }
                any_text(*at, &|_, words| words.windows(want.len()).any(|w| w == want))
            }
            Q::Prefix(w, n, at) => {
                any_text(*at, &|_, words| words.iter().any(|x| x.starts_with(prefix(WORDS[*w], *n))))
            }
            Q::Tags(ts) => ts.iter().any(|t| d.tags.contains(&TAGS[*t])),
            Q::TagPrefix(t, n) => d.tags.iter().any(|x| x.starts_with(prefix(TAGS[*t], *n).trim_end())),
            Q::Range(min, x, max, y) => d.number.is_some_and(|n| {
                (if *x { n > *min } else { n >= *min }) && (if *y { n < *max } else { n <= *max })
            }),
            Q::And(qs) => {
                let all: Vec<bool> = qs.iter().filter_map(|q| q.matches(d)).collect();
                if all.is_empty() {
                    return None;
                }
                all.iter().all(|m| *m)
            }
            Q::Or(qs) => {
                let any: Vec<bool> = qs.iter().filter_map(|q| q.matches(d)).collect();
                if any.is_empty() {
                    return None;
                }
                any.iter().any(|m| *m)
            }
            Q::Not(q) => !q.matches(d)?,
            Q::Optional(q) => {
                q.matches(d)?;
                true
            }
        })
    }
}

fn query() -> impl Strategy<Value = Q> {
    let at = || prop::sample::select(vec![Where::Any, Where::Any, Where::Title, Where::Body, Where::Both]);
    let leaf = prop_oneof![
        1 => Just(Q::All),
        8 => (0..WORDS.len(), at()).prop_map(|(w, at)| Q::Word(w, at)),
        3 => (prop::collection::vec(0..WORDS.len(), 1..4), at()).prop_map(|(w, at)| Q::Phrase(w, at)),
        3 => (0..WORDS.len(), 2..8usize, at()).prop_map(|(w, n, at)| Q::Prefix(w, n, at)),
        3 => prop::collection::vec(0..TAGS.len(), 1..3).prop_map(Q::Tags),
        2 => (0..TAGS.len(), 2..8usize).prop_map(|(t, n)| Q::TagPrefix(t, n)),
        3 => (-6..6i64, any::<bool>(), -6..6i64, any::<bool>()).prop_map(|(a, x, b, y)| Q::Range(a, x, b, y)),
    ];
    leaf.prop_recursive(4, 20, 3, |inner| {
        prop_oneof![
            3 => prop::collection::vec(inner.clone(), 1..4).prop_map(Q::And),
            3 => prop::collection::vec(inner.clone(), 1..4).prop_map(Q::Or),
            2 => inner.clone().prop_map(|q| Q::Not(Box::new(q))),
            1 => inner.prop_map(|q| Q::Optional(Box::new(q))),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]
    #[test]
    fn finds_what_brute_force_finds(q in query()) {
        let (world, docs) = world();
        let want: Vec<&str> = docs.iter().filter(|d| q.matches(d) == Some(true)).map(|d| d.key.as_str()).collect();
        prop_assert_eq!(world.found("i", &q.text()), want.join(" "), "{}", q.text());
    }
}

#[test]
fn the_model_itself_discriminates() {
    let (world, docs) = world();
    assert!(docs.iter().any(|d| d.texts[0].contains(&"running")) && docs.iter().any(|d| d.number.is_some()));
    let some = world.found("i", "@title:running");
    assert!(!some.is_empty() && some != world.found("i", "*"));
    assert_ne!(some, world.found("i", "@title:\"running\""), "stems find more than quotes do");
}

#[test]
fn an_excluded_phrase_that_matches_nothing() {
    let (world, _) = world();
    assert_eq!(world.found("i", "-@title:\"run run\" -\"cat cat cat\""), world.found("i", "*"));
    assert_eq!(
        world.found("i", "-(blue red cat dog runner)"),
        world.found("i", "-(dog runner red blue cat)")
    );
}

/// Pages of any size concatenate to the whole order, over several segments, with ties and missing values.
#[test]
fn pages_concatenate_to_the_whole_order() {
    let (world, docs) = world();
    for (by, descending) in [("n", false), ("n", true), ("title", false), ("title", true)] {
        let mut want: Vec<&Doc> = docs.iter().collect();
        let value = |d: &Doc| match by {
            "n" => d.number.map(|n| (n, String::new())),
            _ => Some((0, d.texts[0].join(" "))),
        };
        want.sort_by(|a, b| {
            let (x, y) = (value(a), value(b));
            let by_value = if descending && x.is_some() && y.is_some() { y.cmp(&x) } else { x.cmp(&y) };
            // `None` sorts first; results without the field come last.
            x.is_none().cmp(&y.is_none()).then(by_value).then(a.key.cmp(&b.key))
        });
        let want: Vec<&str> = want.iter().map(|d| d.key.as_str()).collect();
        let order = if descending { "DESC" } else { "ASC" };
        for size in [1, 7, 29, 100] {
            let mut got = Vec::new();
            for from in (0..docs.len()).step_by(size) {
                let (total, keys) = world.keys(&format!("i * SORTBY {by} {order} LIMIT {from} {size}"));
                assert_eq!(total as usize, docs.len());
                got.extend(keys);
            }
            assert_eq!(got, want, "SORTBY {by} {order}, pages of {size}");
        }
    }
    let all = world.keys("i 'dog | run' LIMIT 0 100").1;
    let pages: Vec<String> =
        (0..all.len()).flat_map(|i| world.keys(&format!("i 'dog | run' LIMIT {i} 1")).1).collect();
    assert_eq!(pages, all, "by score");
}
