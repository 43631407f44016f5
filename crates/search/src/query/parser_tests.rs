//! Tests of the parser: queries with their trees, errors with their offsets, and random input that must not panic.

use super::*;
use proptest::prelude::*;

fn params() -> HashMap<&'static [u8], &'static [u8]> {
    HashMap::from([(&b"w"[..], &b"word"[..]), (b"n", b"7"), (b"bad", b"x y")])
}

/// A tree in short form: `(and a b)`, `(or a b)`, `(not a)`, `(opt a)`, `(in f a)`.
fn show(node: &Node) -> String {
    let list = |name: &str, nodes: &[Node]| {
        format!("({name} {})", nodes.iter().map(show).collect::<Vec<_>>().join(" "))
    };
    let affix = |kind: &AffixKind, text: &str| match kind {
        AffixKind::Prefix => format!("{text}*"),
        AffixKind::Suffix => format!("*{text}"),
        AffixKind::Infix => format!("*{text}*"),
    };
    let limit = |l: &Limit| format!("{}{}", if l.exclusive { "(" } else { "" }, l.value);
    match node {
        Node::All => "*".into(),
        Node::Word(w) => w.clone(),
        Node::Phrase(p) => format!("{p:?}"),
        Node::Affix(kind, text) => affix(kind, text),
        Node::Fuzzy(d, text) => format!("{text}~{d}"),
        Node::And(n) => list("and", n),
        Node::Or(n) => list("or", n),
        Node::Not(n) => format!("(not {})", show(n)),
        Node::Optional(n) => format!("(opt {})", show(n)),
        Node::In(names, n) => {
            format!(
                "(in {} {})",
                names.iter().map(|n| n.name.as_str()).collect::<Vec<_>>().join(","),
                show(n)
            )
        }
        Node::Tag(name, values) => {
            let values = values.iter().map(|v| match v {
                TagValue::Exact(v) => v.clone(),
                TagValue::Affix(kind, v) => affix(kind, v),
            });
            format!("(tag {} {})", name.name, values.collect::<Vec<_>>().join("|"))
        }
        Node::Range(name, min, max) => format!("(range {} {} {})", name.name, limit(min), limit(max)),
    }
}

#[track_caller]
fn check(query: &str, want: &str) {
    match parse(query, &params()) {
        Ok(node) => assert_eq!(show(&node), want, "{query}"),
        Err(e) => panic!("{query}: {e}"),
    }
}

#[test]
fn queries_and_their_trees() {
    check("*", "*");
    check("  hello  ", "hello");
    check("hello world", "(and hello world)");
    check("hello|world", "(or hello world)");
    check("a b | c d", "(or (and a b) (and c d))");
    check("(a|b) c", "(and (or a b) c)");
    check("-a", "(not a)");
    check("invoice -draft", "(and invoice (not draft))");
    check("-a b", "(and (not a) b)");
    check("-(a b)", "(not (and a b))");
    check("a ~b", "(and a (opt b))");
    check("--a", "(not (not a))");
    check("foo-bar", "(and foo (not bar))");
    check("foo.bar, baz!", "(and foo bar baz)");
    check("don't", "(and don t)");
    check("'quoted words' x", "(and \"quoted words\" x)");
    check("\"exact words\"", "\"exact words\"");
    check("\"with \\\" quote\"", "\"with \\\\\\\" quote\"");
    check(r"hello\-world", r"hello\-world");
    check("te* *xt *ex* %fuzy% %%fuzy%%", "(and te* *xt *ex* fuzy~1 fuzy~2)");
    check("@f:a b", "(and (in f a) b)");
    check("@f:(a b)", "(in f (and a b))");
    check("@f|g:a", "(in f,g a)");
    check("@f:-a", "(in f (not a))");
    check("-@f:a", "(not (in f a))");
    check("@f:te*", "(in f te*)");
    check("@f:\"a b\"", "(in f \"a b\")");
    check("@f : a", "(in f a)");
    check(r"@a\-b:x", r"(in a\-b x)");
    check("@t:{a}", "(tag t a)");
    check("@t:{ a b | c* |*d|*e* | f@g.org }", "(tag t a b|c*|*d|*e*|f@g.org)");
    check(r"@t:{a\|b | c\ d\}}", "(tag t a|b|c d})");
    check("@t:{\"x y\"}", "(tag t x y)");
    check("@t:{$w|b}", "(tag t word|b)");
    check("@n:[1 2]", "(range n 1 2)");
    check("@n:[-inf (2.5]", "(range n -inf (2.5)");
    check("@n:[(1e3 +inf]", "(range n (1000 inf)");
    check("@n:[1,2]", "(range n 1 2)");
    check("@n:[$n ($n]", "(range n 7 (7)");
    check("@n:[1 2] | x", "(or (range n 1 2) x)");
    check("$w $n", "(and word 7)");
    check("größe", "größe");
}

#[track_caller]
fn fails(query: &str, want: &str) {
    assert_eq!(parse(query, &params()).map(|n| show(&n)).unwrap_err().to_string(), want, "{query}");
}

#[test]
fn errors_and_their_offsets() {
    fails("", "Syntax error at offset 0 near ");
    fails("hello (draft", "Syntax error at offset 7 near draft");
    fails("hello )", "Syntax error at offset 6 near )");
    fails("(hello", "Syntax error at offset 1 near hello");
    fails("()", "Syntax error at offset 1 near )");
    fails("a |", "Syntax error at offset 2 near |");
    fails("| a", "Syntax error at offset 0 near |");
    fails("a || b", "Syntax error at offset 3 near |");
    fails("-", "Syntax error at offset 0 near -");
    fails("\"open", "Syntax error at offset 0 near \"");
    fails("@", "Syntax error at offset 0 near @");
    fails("@f", "Syntax error at offset 1 near f");
    fails("@f x", "Syntax error at offset 3 near x");
    fails("@f:", "Syntax error at offset 2 near :");
    fails("@t:{a", "Syntax error at offset 4 near a");
    fails("@t:{}", "Syntax error at offset 4 near }");
    fails("@t:{a*b}", "Syntax error at offset 6 near b");
    fails("@n:[1]", "Syntax error at offset 5 near ]");
    fails("@n:[a 2]", "Syntax error at offset 4 near a");
    fails("@n:[1 2", "Syntax error at offset 6 near 2");
    fails("@n:[$bad 2]", "Syntax error at offset 4 near $bad");
    fails("%a", "Syntax error at offset 1 near a");
    fails("a:b", "Syntax error at offset 1 near :");
    fails("x $none", "No such parameter `none`");
    fails("%%%fuzzy%%%", "Fuzzy distance exceeds maximum of 2, at offset 0 of the query");
    fails(
        "a=>{$weight:2}",
        "=> (query attributes, vector search) is not supported, at offset 1 of the query",
    );
    fails(
        "*=>[KNN 2 @v $w]",
        "=> (query attributes, vector search) is not supported, at offset 1 of the query",
    );
}

#[test]
fn a_query_beyond_a_limit_is_an_error() {
    let deep = |n: usize| format!("{}a{}", "(".repeat(n), ")".repeat(n));
    assert!(parse(&deep(QUERY_DEPTH_MAX - 2), &params()).is_ok());
    fails(&deep(100_000 / 4), "Query depth exceeds maximum of 64, at offset 64 of the query");
    fails(&"-".repeat(5000), "Query depth exceeds maximum of 64, at offset 64 of the query");
    let many = "a ".repeat(QUERY_NODES_MAX + 1);
    assert!(
        parse(&many, &params()).unwrap_err().to_string().starts_with("Query terms exceeds maximum of 4096")
    );
    let long = "x".repeat(QUERY_BYTES_MAX + 1);
    assert!(
        parse(&long, &params()).unwrap_err().to_string().starts_with("Query length exceeds maximum of 65536")
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]
    #[test]
    fn never_panics(pieces in prop::collection::vec(prop::sample::select(vec![
        "a", "bc", "é", " ", "(", ")", "|", "-", "~", "*", "@f", ":", "{", "}", "[", "]", "\"", "'", "%", "$w", "$", "\\",
        "=>", "=", ",", "1", "-inf", "(2", "😀", "\u{a0}", "\n", "w\\-x",
    ]), 0..24)) {
        let _ = parse(&pieces.concat(), &params());
    }
    #[test]
    fn never_panics_on_any_text(text in "\\PC{0,40}") {
        let _ = parse(&text, &params());
    }
    #[test]
    fn an_error_points_into_the_query(text in "[a-c@:(){}|\" *-]{0,20}") {
        if let Err(SearchError::Syntax { offset, near }) = parse(&text, &params()) {
            prop_assert!(text[offset..].starts_with(&near), "{text:?} {offset} {near:?}");
        }
    }
}

#[test]
fn parameters_share_the_querys_limits() {
    let text = vec![b'x'; QUERY_BYTES_MAX + 1];
    let with = |query: &str, len: usize| parse(query, &HashMap::from([(&b"p"[..], &text[..len])]));
    let is_over = |parsed, limit| matches!(parsed, Err(SearchError::QueryLimit { max, .. }) if max == limit);
    assert!(with("$p", QUERY_BYTES_MAX).is_ok());
    assert!(is_over(with("$p", QUERY_BYTES_MAX + 1), QUERY_BYTES_MAX));
    assert!(with("$p $p @t:{$p|$p}", QUERY_BYTES_MAX / 4).is_ok());
    assert!(is_over(with("$p $p @t:{$p|$p}", QUERY_BYTES_MAX / 4 + 1), QUERY_BYTES_MAX));
    assert!(with(&"$p ".repeat(QUERY_NODES_MAX), 1).is_ok());
    assert!(is_over(with(&"$p ".repeat(QUERY_NODES_MAX + 1), 1), QUERY_NODES_MAX));
    assert!(is_over(parse(&"\"\"".repeat(QUERY_NODES_MAX + 1), &params()), QUERY_NODES_MAX));
    assert!(is_over(parse(&"* ".repeat(QUERY_NODES_MAX + 1), &params()), QUERY_NODES_MAX));
    let long = |n: usize| format!("%{}%", "x".repeat(n));
    assert!(parse(&long(FUZZY_BYTES_MAX), &params()).is_ok());
    assert!(is_over(parse(&long(FUZZY_BYTES_MAX + 1), &params()), FUZZY_BYTES_MAX));
}
