//! The commands with their options and errors.

use super::{Prefix, Rights, World, only, text};
use strand_commands::spec::Access;
use strand_wire::client::Value;

fn library() -> World {
    let w = World::new();
    w.hset(
        "b:1",
        &[("title", "The Art of Running"), ("year", "1999"), ("tags", "sport, Health"), ("author", "Zoe")],
    );
    w.hset(
        "b:2",
        &[("title", "Runners and dogs"), ("year", "2005"), ("tags", "sport,animals"), ("author", "adam")],
    );
    w.hset("b:3", &[("title", "A dog's life"), ("year", "1990"), ("tags", "animals"), ("author", "Bea")]);
    w.hset("b:4", &[("title", "Cooking"), ("tags", "Food")]);
    w.hset("other", &[("title", "running elsewhere")]);
    w.ok(
        "FT.CREATE books ON HASH PREFIX 1 b: SCHEMA title TEXT WEIGHT 2 year NUMERIC SORTABLE tags TAG author AS who \
         TEXT SORTABLE plain TEXT",
    );
    w
}

#[test]
fn searches_by_every_kind_of_field() {
    let w = library();
    assert_eq!(w.found("books", "*"), "b:1 b:2 b:3 b:4");
    assert_eq!(w.found("books", "running"), "b:1");
    assert_eq!(w.found("books", "run"), "b:1");
    assert_eq!(w.found("books", "dog"), "b:2 b:3");
    assert_eq!(w.found("books", "\"dogs\""), "b:2");
    assert_eq!(w.found("books", "dog -runners"), "b:3");
    assert_eq!(w.found("books", "cooking | running"), "b:1 b:4");
    assert_eq!(w.found("books", "@tags:{animals}"), "b:2 b:3");
    assert_eq!(w.found("books", "@tags:{ health | FOOD }"), "b:1 b:4");
    assert_eq!(w.found("books", "@tags:{an*}"), "b:2 b:3");
    assert_eq!(w.found("books", "@year:[1990 (1999]"), "b:3");
    assert_eq!(w.found("books", "@year:[-inf +inf]"), "b:1 b:2 b:3");
    assert_eq!(w.found("books", "@who:zoe"), "b:1");
    assert_eq!(w.found("books", "coo*"), "b:4");
    assert_eq!(w.found("books", "*king"), "b:4");
    assert_eq!(w.found("books", "*ookin*"), "b:4");
    assert_eq!(w.found("books", "c*"), "", "too short to expand");
    assert_eq!(w.found("books", "%coking%"), "b:4");
    assert_eq!(w.found("books", "the"), "", "a stop word alone");
    assert_eq!(w.found("books", "the art"), "b:1");
    assert_eq!(w.found("books", "\"art of running\""), "b:1", "stop words take no position");
    assert_eq!(w.found("books", "~dog cooking"), "b:4");
    assert_eq!(w.found("books", "-dog"), "b:1 b:4");
    assert_eq!(w.found("books", "nosuchword"), "");
}

#[test]
fn unreadable_documents_are_invisible() {
    let mut w = library();
    w.rights = only(Prefix("b:2", Access::READ));
    assert_eq!(w.keys("books *"), (1, vec!["b:2".into()]));
    assert_eq!(w.keys("books dog"), (1, vec!["b:2".into()]));
    assert_eq!(w.keys("books running"), (0, vec![]));
    assert_eq!(w.keys("books * LIMIT 0 0"), (1, vec![]));
    for sort in ["year", "who", "title"] {
        assert_eq!(
            w.keys(&format!("books * SORTBY {sort} DESC LIMIT 0 1")),
            (1, vec!["b:2".into()]),
            "{sort}"
        );
    }
    w.rights = only(Prefix("b:", Access::WRITE));
    assert_eq!(w.keys("books *"), (0, vec![]));
}

#[test]
fn dropping_an_index_deletes_only_documents_that_the_user_may_write() {
    let mut w = library();
    w.rights = only(Prefix("b:2", Access { read: true, write: true }));
    let refusal = "NOPERM User does not have the required permissions to query the index";
    assert_eq!(w.error("FT.DROPINDEX books DD"), refusal);
    w.rights =
        Some(Rights(vec![Prefix("b:2", Access { read: true, write: true }), Prefix("b:", Access::READ)]));
    w.ok("FT.DROPINDEX books DD");
    w.rights = None;
    let mut left = Vec::new();
    w.keyspace.scan(0, 0, 100, w.now_ms, &mut |record| left.push(record.key().to_vec()));
    left.sort();
    assert_eq!(left, [&b"b:1"[..], b"b:3", b"b:4", b"other"]);
}

/// The figures that a user sees of an index must not depend on documents that the user may not read.
#[test]
fn a_user_with_partial_rights_learns_nothing_about_other_documents() {
    let mut w = library();
    let line = "FT.SEARCH books 'dog|running' WITHSCORES NOCONTENT";
    let whole = w.line(line);
    w.rights = only(Prefix("b:", Access::READ));
    assert_eq!(w.line(line), whole, "who may read all sees BM25");
    assert!(matches!(w.line("FT.INFO books"), Value::Array(_)));
    w.rights = only(Prefix("b:2", Access::READ));
    let before = w.line(line);
    assert_eq!(
        before,
        Value::Array(vec![Value::Int(1), Value::Bulk(b"b:2".to_vec()), Value::Bulk(b"1".to_vec())])
    );
    w.hset("b:9", &[("title", "dog dog dog running"), ("year", "1")]);
    assert_eq!(w.line(line), before);
    let refusal = "NOPERM User does not have the required permissions to query the index";
    assert_eq!(w.error("FT.INFO books"), refusal);
    // An index that the user creates does not reveal these figures either.
    let refusal = "NOPERM this user has no permissions to access one of the keys used as arguments";
    for line in [
        "FT.CREATE mine SCHEMA title TEXT",
        "FT.CREATE mine PREFIX 1 b: SCHEMA title TEXT",
        "FT.CREATE mine PREFIX 2 b:2 b:3 SCHEMA title TEXT",
        "RX.INDEX CREATE b:2 PREFIX b:",
        "RX.INDEX CREATE b:2 PREFIX ''",
    ] {
        assert_eq!(w.error(line), refusal, "{line}");
    }
    w.ok("FT.CREATE mine PREFIX 2 b:2 b:22 SCHEMA title TEXT");
}

/// Key patterns also apply to the names of sets and trigram indexes.
#[test]
fn names_are_checked_against_the_users_patterns() {
    let mut w = World::new();
    w.ok("RX.SET app:s ID p x");
    w.ok("RX.SET other:s ID p x");
    w.ok("RX.INDEX CREATE other:i PREFIX app:");
    let refusal = "NOPERM this user has no permissions to access one of the keys used as arguments";
    w.rights = only(Prefix("app:", Access::READ));
    assert_eq!(w.line("RX.MATCH app:s xx"), Value::Array(vec![Value::Bulk(b"p".to_vec())]));
    assert_eq!(w.line("RX.LIST"), Value::Array(vec![Value::Bulk(b"app:s".to_vec())]));
    assert_eq!(w.line("RX.INDEX LIST"), Value::Array(vec![]));
    for line in [
        "RX.SET app:s ID p y",
        "RX.SET other:s ID p y",
        "RX.SET other:new ID p y",
        "RX.DEL app:s",
        "RX.DEL other:s",
        "RX.MATCH other:s xx",
        "RX.FINDALL other:s xx",
        "RX.CAPTURES other:s xx",
        "RX.REPLACE other:s xx y",
        "RX.STATS other:s",
        "RX.STREAM OPEN other:s",
        "RX.INDEX DROP other:i",
        "RX.INDEX CREATE app:i PREFIX app:",
    ] {
        assert_eq!(w.error(line), refusal, "{line}");
    }
    w.rights = only(Prefix("app:", Access { read: true, write: true }));
    w.ok("RX.SET app:s ID p y");
    w.ok("RX.INDEX CREATE app:i PREFIX app:");
    assert_eq!(w.error("RX.DEL app:s other:s"), refusal);
    assert_eq!(w.line("RX.DEL app:s"), Value::Int(1), "of several none was removed");
    w.ok("RX.INDEX DROP app:i");
    // The user may read the values under its prefix, so also its figures.
    assert!(matches!(w.line("RX.INDEX INFO other:i"), Value::Array(_)));
    w.rights = only(Prefix("app:1", Access::READ));
    let refusal = "NOPERM User does not have the required permissions to query the index";
    assert_eq!(w.error("RX.INDEX INFO other:i"), refusal);
}

#[test]
fn each_option_of_ft_search_has_its_effect() {
    let w = library();
    assert_eq!(w.keys("books run VERBATIM"), (0, vec![]));
    assert_eq!(w.keys("books * LIMIT 0 0"), (4, vec![]));
    assert_eq!(w.keys("books * LIMIT 1 2"), (4, vec!["b:2".into(), "b:3".into()]));
    assert_eq!(w.keys("books * LIMIT 9 2"), (4, vec![]));
    assert_eq!(w.keys("books * INKEYS 3 b:1 b:4 nokey"), (2, vec!["b:1".into(), "b:4".into()]));
    assert_eq!(w.keys("books zoe INFIELDS 1 title").0, 0);
    assert_eq!(w.keys("books zoe INFIELDS 2 title who").0, 1);
    assert_eq!(w.keys("books * FILTER year 1999 (2005").1, ["b:1"]);
    assert_eq!(
        w.keys("books '@tags:{$t} $w' PARAMS 4 t animals w dog DIALECT 2 SORTBY year").1,
        ["b:3", "b:2"].map(String::from)
    );
    assert_eq!(w.keys("books * TIMEOUT 10000 LANGUAGE english SCORER BM25 DIALECT 3").0, 4);
    assert_eq!(w.keys("books dog SORTBY year DESC").1, ["b:2", "b:3"]);
    let with = w.line("FT.SEARCH books dog RETURN 3 title who nofield LIMIT 0 1 SORTBY year");
    let want = [("title", "A dog's life"), ("who", "Bea")];
    let Value::Array(all) = with else { panic!() };
    let Value::Array(fields) = &all[2] else { panic!() };
    assert_eq!(
        fields.iter().map(text).collect::<Vec<_>>(),
        want.iter().flat_map(|(f, v)| [*f, *v]).collect::<Vec<_>>()
    );
    let Value::Array(all) = w.line("FT.SEARCH books zoe RETURN 3 who AS writer") else { panic!() };
    assert_eq!(all[2], Value::Array(vec![Value::Bulk(b"writer".to_vec()), Value::Bulk(b"Zoe".to_vec())]));
    assert_eq!(
        w.line("FT.SEARCH books zoe RETURN 0"),
        Value::Array(vec![Value::Int(1), Value::Bulk(b"b:1".to_vec())])
    );
}

#[test]
fn sorts_by_columns_and_by_hashes() {
    let w = library();
    let sorted = |by: &str| w.keys(&format!("books * SORTBY {by}")).1.join(" ");
    assert_eq!(sorted("year"), "b:3 b:1 b:2 b:4", "missing values last");
    assert_eq!(sorted("year ASC"), "b:3 b:1 b:2 b:4");
    assert_eq!(sorted("year DESC"), "b:2 b:1 b:3 b:4", "missing values last");
    assert_eq!(sorted("who"), "b:2 b:3 b:1 b:4", "case does not count");
    assert_eq!(sorted("who DESC"), "b:1 b:3 b:2 b:4");
    assert_eq!(sorted("title"), "b:3 b:4 b:2 b:1", "not SORTABLE: as it stands in the hash");
    assert_eq!(w.keys("books * SORTBY title DESC LIMIT 1 2").1, ["b:2", "b:4"]);
    let Value::Array(all) = w.line("FT.SEARCH books * SORTBY who LIMIT 0 4 NOCONTENT WITHSORTKEYS") else {
        panic!()
    };
    assert_eq!(all[2], Value::Bulk(b"$adam".to_vec()));
    assert_eq!(all[8], Value::Null);
    let Value::Array(all) =
        w.line("FT.SEARCH books * SORTBY year LIMIT 0 1 NOCONTENT WITHSORTKEYS WITHSCORES")
    else {
        panic!()
    };
    assert_eq!(all[3], Value::Bulk(b"#1990".to_vec()));
}

#[test]
fn sortable_values_are_folded_except_with_unf() {
    let w = World::new();
    for (key, v) in [("k:1", "b"), ("k:2", "C"), ("k:3", "a")] {
        w.hset(key, &[("folded", v), ("plain", v)]);
    }
    w.ok("FT.CREATE i SCHEMA folded TAG SORTABLE plain TEXT SORTABLE UNF NOINDEX");
    assert_eq!(w.keys("i * SORTBY folded").1, ["k:3", "k:1", "k:2"]);
    assert_eq!(w.keys("i * SORTBY plain").1, ["k:2", "k:3", "k:1"]);
    assert_eq!(w.found("i", "@folded:{c}"), "k:2");
    assert_eq!(w.found("i", "b"), "", "NOINDEX is not searched");
}

#[test]
fn better_matches_come_first_and_ties_go_by_key() {
    let w = World::new();
    w.hset("x:3", &[("t", "dog cat bird fish")]);
    w.hset("x:2", &[("t", "dog dog dog")]);
    w.hset("x:4", &[("t", "dog cat bird fish")]);
    w.hset("x:1", &[("t", "dog cat bird fish")]);
    w.ok("FT.CREATE i PREFIX 1 x: SCORE 0.5 SCHEMA t TEXT");
    assert_eq!(w.keys("i dog").1, ["x:2", "x:1", "x:3", "x:4"]);
    let Value::Array(all) = w.line("FT.SEARCH i dog NOCONTENT WITHSCORES") else { panic!() };
    let scores: Vec<f64> = [2, 4, 6].iter().map(|i| text(&all[*i]).parse().unwrap()).collect();
    assert!(scores[0] > scores[1] && scores[1] == scores[2] && scores[2] > 0.0, "{scores:?}");
}

#[test]
fn create_info_list_drop() {
    let w = library();
    assert_eq!(w.error("FT.CREATE books SCHEMA t TEXT"), "Index already exists");
    w.ok("FT.CREATE second PREFIX 1 s: STOPWORDS 1 foo SCHEMA t TAG CASESENSITIVE SEPARATOR ; SORTABLE n NUMERIC NOINDEX");
    assert_eq!(
        w.line("FT._LIST"),
        Value::Array(vec![Value::Bulk(b"books".to_vec()), Value::Bulk(b"second".to_vec())])
    );
    w.found("books", "*");
    let info = |index: &str| {
        let Value::Array(all) = w.line(&format!("FT.INFO {index}")) else { panic!() };
        assert!(all.len().is_multiple_of(2));
        all.chunks(2).map(|p| (text(&p[0]), p[1].clone())).collect::<std::collections::HashMap<_, _>>()
    };
    let books = info("books");
    assert_eq!(text(&books["index_name"]), "books");
    assert_eq!(text(&books["num_docs"]), "4");
    assert_eq!(text(&books["percent_indexed"]), "1");
    assert_eq!(text(&books["indexing"]), "0");
    let second = info("second");
    assert_eq!(second["stopwords_list"], Value::Array(vec![Value::Bulk(b"foo".to_vec())]));
    let Value::Array(attributes) = &second["attributes"] else { panic!() };
    let Value::Array(tag) = &attributes[0] else { panic!() };
    let tag: Vec<String> = tag.iter().map(text).collect();
    assert_eq!(tag.join(" "), "identifier t attribute t type TAG SEPARATOR ; CASESENSITIVE SORTABLE");
    w.ok("FT.DROPINDEX second");
    assert_eq!(w.error("FT.DROPINDEX second"), "Unknown index name");
    assert_eq!(w.error("FT.INFO second"), "Unknown index name");
    assert_eq!(w.error("FT.SEARCH second *"), "second: no such index");
    assert_eq!(w.error("FT.DROPINDEX books XX"), "Unknown argument `XX`");
    assert_eq!(w.keyspace.len(0), 5);
    w.ok("FT.DROPINDEX books DD");
    assert_eq!(w.keyspace.len(0), 1, "only the key outside the index is left");
}

#[test]
fn pages_of_equal_scores_are_cut_from_one_order() {
    let w = library();
    w.ok("FT.CREATE zero PREFIX 1 z: SCORE 0 SCHEMA a TEXT");
    for i in 0..6 {
        w.hset(&format!("z:{i}"), &[("a", &format!("dog {}", "word ".repeat(i)))]);
    }
    let all: Vec<String> = (0..6).map(|i| format!("z:{i}")).collect();
    assert_eq!(w.keys("zero dog").1, all);
    let pages: Vec<String> = (0..6).flat_map(|i| w.keys(&format!("zero dog LIMIT {i} 1")).1).collect();
    assert_eq!(pages, all);
}

#[test]
fn weights_and_separators_that_have_no_meaning_are_refused() {
    let w = library();
    for weight in ["-1", "inf", "1e39"] {
        let error = w.error(&format!("FT.CREATE i SCHEMA a TEXT WEIGHT {weight}"));
        assert_eq!(error, "Bad arguments for weight: Value is outside acceptable bounds", "{weight}");
    }
    for separator in [&b"\xe9"[..], "\u{e9}".as_bytes()] {
        let words: [&[u8]; 7] = [b"FT.CREATE", b"i", b"SCHEMA", b"a", b"TAG", b"SEPARATOR", separator];
        let Value::Error(text) = w.run(&words) else { panic!("{separator:?} is taken") };
        assert!(text.starts_with(b"Tag separator must be a single character. Got `"), "{separator:?}");
    }
}

#[test]
fn wrong_queries_and_options_are_named_in_errors() {
    let mut w = library();
    for (line, want) in [
        ("FT.SEARCH books '(dog'", "Syntax error at offset 1 near dog"),
        ("FT.SEARCH books ''", "Syntax error at offset 0 near "),
        ("FT.SEARCH books @nofield:x", "Unknown field at offset 1 near nofield"),
        ("FT.SEARCH books @year:x", "Expected a TEXT field at offset 1 near year"),
        ("FT.SEARCH books @title:{x}", "Expected a TAG field at offset 1 near title"),
        ("FT.SEARCH books '@tags:[1 2]'", "Expected a NUMERIC field at offset 1 near tags"),
        ("FT.SEARCH books $x", "No such parameter `x`"),
        ("FT.SEARCH books * BOGUS", "Unknown argument `BOGUS` at position 1 for <main>"),
        ("FT.SEARCH books * NOCONTENT BOGUS", "Unknown argument `BOGUS` at position 2 for <main>"),
        ("FT.SEARCH books * HIGHLIGHT", "`HIGHLIGHT` is not supported"),
        ("FT.SEARCH books * summarize", "`SUMMARIZE` is not supported"),
        ("FT.SEARCH books * LANGUAGE german", "`LANGUAGE german` is not supported"),
        ("FT.SEARCH books * SCORER DOCSCORE", "`SCORER DOCSCORE` is not supported"),
        ("FT.SEARCH books * DIALECT 1", "`DIALECT 1` is not supported"),
        ("FT.SEARCH books * DIALECT 9", "DIALECT requires a non negative integer >=1 and <= 4"),
        ("FT.SEARCH books * LIMIT 1", "LIMIT requires two arguments"),
        ("FT.SEARCH books * LIMIT a b", "LIMIT needs two numeric arguments"),
        ("FT.SEARCH books * LIMIT 1 0", "The `offset` of the LIMIT must be 0 when `num` is 0"),
        ("FT.SEARCH books * LIMIT 0 1000001", "LIMIT exceeds maximum of 1000000"),
        ("FT.SEARCH books * LIMIT 1000001 1", "OFFSET exceeds maximum of 1000000"),
        ("FT.SEARCH books * SORTBY nofield", "Property `nofield` not loaded nor in schema"),
        ("FT.SEARCH books * SORTBY", "Bad SORTBY arguments"),
        ("FT.SEARCH books * PARAMS 1 a", "Parameters must be specified in PARAM VALUE pairs"),
        ("FT.SEARCH books * RETURN 5 a", "Bad arguments for RETURN: Expected an argument, but none provided"),
        ("FT.SEARCH books * TIMEOUT x", "TIMEOUT requires a non negative integer"),
        ("FT.SEARCH books * FILTER nofield 1 2", "Unknown Field 'nofield'"),
        ("FT.SEARCH books * FILTER year a 2", "Bad lower range: a"),
    ] {
        assert_eq!(w.error(line), want, "{line}");
    }
    w.db = 3;
    assert_eq!(w.error("FT.CREATE elsewhere SCHEMA t TEXT"), "Cannot create index on db != 0");
}

#[test]
fn the_number_of_indexes_is_limited() {
    let w = World::new();
    for i in 0..crate::INDEXES_MAX {
        w.ok(&format!("FT.CREATE i{i} PREFIX 1 none: SCHEMA t TEXT"));
    }
    assert_eq!(w.error("FT.CREATE more SCHEMA t TEXT"), "Too many indexes: at most 64 are allowed");
}

#[test]
fn the_number_and_length_of_prefixes_is_limited() {
    let w = World::new();
    let create = |name: &str, prefixes: &[String]| {
        let mut words =
            vec!["FT.CREATE".to_string(), name.into(), "PREFIX".into(), prefixes.len().to_string()];
        words.extend_from_slice(prefixes);
        words.extend(["SCHEMA", "t", "TEXT"].map(String::from));
        w.run(&words)
    };
    let prefixes = |index: usize| (0..1024).map(|i| format!("{index}:{i}:")).collect::<Vec<_>>();
    let all = crate::service::PREFIXES_IN_ALL_MAX;
    for index in 0..all / 1024 {
        assert_eq!(create(&format!("i{index}"), &prefixes(index)), Value::Simple(b"OK".to_vec()));
    }
    let refused = format!("Too many prefixes: at most {all} are allowed in all indexes");
    assert_eq!(create("more", &prefixes(99)), Value::Error(refused.into_bytes()));
    let rest = all % 1024;
    assert_eq!(create("rest", &prefixes(99)[..rest]), Value::Simple(b"OK".to_vec()));
    let long = "Bad arguments for PREFIX: Value is outside acceptable bounds";
    assert_eq!(create("long", &["x".repeat(4097)]), Value::Error(long.into()));
    // The prefixes within the limit still find their keys.
    w.hset("2:1023:k", &[("t", "dog")]);
    w.hset("2:1024:k", &[("t", "dog")]);
    assert_eq!(w.keys("i2 dog").1, ["2:1023:k"]);
}

#[test]
fn parameters_are_also_prefixes_suffixes_and_fuzzy_terms() {
    let w = World::new();
    w.ok("FT.CREATE i SCHEMA t TEXT g TAG");
    w.hset("k", &[("t", "hello"), ("g", "animals")]);
    for (query, value) in [
        ("$v*", "hel"),
        ("*$v", "llo"),
        ("*$v*", "ell"),
        ("@t:$v*", "hel"),
        ("%$v%", "hallo"),
        ("@g:{$v*}", "anim"),
        ("@g:{*$v}", "mals"),
        ("@g:{ *$v* }", "nima"),
        ("$v", "hello"),
    ] {
        let found =
            |value: &str| w.run(&["FT.SEARCH", "i", query, "PARAMS", "2", "v", value, "LIMIT", "0", "0"]);
        assert_eq!(found(value), Value::Array(vec![Value::Int(1)]), "{query}");
        assert_eq!(found("zzzz"), Value::Array(vec![Value::Int(0)]), "{query}");
    }
    let empty = w.run(&["FT.SEARCH", "i", "$v*", "PARAMS", "2", "v", ""]);
    assert_eq!(empty, Value::Error(b"Syntax error at offset 0 near $v*".to_vec()));
    for query in ["w'hel?o'", "@g:{w'a*s'}"] {
        let Value::Error(text) = w.run(&["FT.SEARCH", "i", query]) else { panic!("{query}") };
        assert!(String::from_utf8_lossy(&text).contains("wildcard"), "{query}");
    }
}

#[test]
fn a_sigma_at_the_end_of_a_tag_is_any_sigma() {
    let w = World::new();
    w.ok("FT.CREATE i SCHEMA g TAG");
    w.hset("1", &[("g", "ΟΔΟΣΑ")]);
    w.hset("2", &[("g", "ΟΔΟΣ")]);
    assert_eq!(w.found("i", "@g:{ΟΔΟΣ*}"), "1 2");
    assert_eq!(w.found("i", "@g:{οδοσ}"), "2");
}

#[test]
fn a_sigma_at_the_end_of_a_word_is_any_sigma() {
    let w = World::new();
    w.ok("FT.CREATE i SCHEMA t TEXT");
    w.hset("1", &[("t", "ΟΔΟΣ")]);
    w.hset("2", &[("t", "οδος")]);
    for query in ["οδος", "ΟΔΟΣ", "οδοσ", "οδο*", "*δος", "%οδοσ%"] {
        assert_eq!(w.found("i", query), "1 2", "{query}");
    }
}

#[test]
fn a_cancelled_search_stops() {
    let w = World::new();
    (0..2000).for_each(|i| w.hset(&format!("k:{i}"), &[("t", "dog")]));
    w.ok("FT.CREATE i SCHEMA t TEXT");
    assert_eq!(w.keys("i dog LIMIT 0 0").0, 2000);
    w.cancel.store(true, std::sync::atomic::Ordering::Relaxed);
    assert_eq!(w.error("FT.SEARCH i dog"), "Cancelled");
}
