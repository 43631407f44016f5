//! Tests of the parsers for client input: XML with its places, and all parsers with random bytes and words.

mod common;

use bytes::Bytes;
use common::{Parts, fuzz_http_parsers, wait};
use proptest::prelude::*;
use strand_http::xml::{ATTRIBUTES_MAX, DEPTH_MAX, NODE_BYTES_MAX, Node, Xml};

/// The nodes of a document in short form, or the position and text of the problem.
fn read(text: &[u8], piece: usize) -> Result<String, String> {
    let mut xml = Xml::new(Parts(text.chunks(piece).map(Bytes::copy_from_slice).collect()));
    let mut out = String::new();
    loop {
        match wait(xml.next()) {
            Ok(Node::Open { name, attributes }) => {
                out += &format!("<{name}");
                attributes.iter().for_each(|(n, v)| out += &format!(" {n}={v}"));
                out += ">";
            }
            Ok(Node::Close(name)) => out += &format!("</{name}>"),
            Ok(Node::Text(text)) => out += &text,
            Ok(Node::End) => return Ok(out),
            Err(problem) => return Err(problem.document()["detail"].as_str().expect("text").into()),
        }
    }
}

#[test]
fn xml_nodes_do_not_depend_on_the_size_of_pieces() {
    let text = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<a x=\"1&lt;2\" y=''><!-- no -->\
        <b/>t&amp;&#65;&#x2713;<![CDATA[<raw>]]>é</a>\n";
    for piece in [1, 2, 3, 7, 1000] {
        let found = read(text.as_bytes(), piece).expect("well formed");
        assert_eq!(found.trim(), "<a x=1<2 y=><b></b>t&A✓<raw>é</a>", "in pieces of {piece}");
    }
}

#[test]
fn xml_errors_have_line_and_column() {
    for (text, place, words) in [
        ("<a>\n  <b>\n</a>", "line 3, column 1", "expected `</b>`"),
        ("<a>\n", "line 2, column 1", "ends inside"),
        ("<a>\n <b", "line 2, column 2", "not closed"),
        ("<a>\n\n&nope;</a>", "line 3, column 1", "&nope;"),
        ("<a>&#0;</a>", "line 1, column 4", "character"),
        ("<!DOCTYPE a [<!ENTITY b \"c\">]>\n<a>&b;</a>", "line 1, column 1", "document type"),
        ("<a>\n<b x='1' x='2'/></a>", "line 2, column 1", ""),
        ("<?xml version='1.0' encoding='latin-1'?><a/>", "line 1, column 1", "UTF-8"),
    ] {
        for piece in [1, 1000] {
            let found = read(text.as_bytes(), piece).expect_err(text);
            assert!(found.starts_with(place) && found.contains(words), "{text:?}: {found}");
        }
    }
    assert!(read(b"<a>\xff\xfe</a>", 3).is_err());
    let deep = "<a>".repeat(DEPTH_MAX + 1);
    assert!(read(deep.as_bytes(), 100).expect_err("deep").contains("deep"));
    let wide: String = (0..=ATTRIBUTES_MAX).map(|i| format!(" a{i}='1'")).collect();
    assert!(read(format!("<a{wide}/>").as_bytes(), 100).expect_err("wide").contains("attributes"));
}

#[test]
fn an_endless_xml_node_is_refused() {
    let parts = (0..NODE_BYTES_MAX / (1 << 20) + 4).map(|_| Bytes::from(vec![b'x'; 1 << 20]));
    let mut xml = Xml::new(Parts([Bytes::from_static(b"<a>")].into_iter().chain(parts).collect()));
    assert!(matches!(wait(xml.next()), Ok(Node::Open { .. })));
    assert_eq!(wait(xml.next()).expect_err("too long").status.as_u16(), 413);
}

/// Words of the parsed languages, so that random input is sometimes valid.
const WORDS: &[&str] = &[
    "<a>",
    "</a>",
    "<a ",
    "x='1'",
    "/>",
    "<b>",
    "</b>",
    "&lt;",
    "&#65;",
    "&nope;",
    "<![CDATA[",
    "]]>",
    "<!--",
    "-->",
    "<!DOCTYPE a>",
    "<?xml version='1.0'?>",
    "text",
    "\n",
    " ",
    "[",
    "]",
    "[[",
    "]]",
    ",",
    "\"a\"",
    "\"",
    "\\",
    "1",
    "{",
    "}",
    ":",
    "null",
    "a=1",
    "&",
    "=",
    "+",
    "%41",
    "%ff",
    "%",
    "\u{e9}",
    "*",
    "W/\"t\"",
    "bytes=",
    "0-3",
    "-",
    "5",
    "Basic ",
    "Bearer ",
    "OnNlc2FtZQ==",
    "*2\r\n",
    "%1\r\n",
    "$3\r\nabc\r\n",
    "$2\r\n\u{e9}\r\n",
    ":7\r\n",
    "+OK\r\n",
    "-ERR no\r\n",
    "_\r\n",
    "#t\r\n",
    ",1.5\r\n",
    ",inf\r\n",
    "(12\r\n",
    "=5\r\ntxt:a\r\n",
    "!2\r\nno\r\n",
    "$-1\r\n",
    "~1\r\n",
    ">0\r\n",
    "*0\r\n",
    "\r\n",
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn random_words_are_parsed_without_a_panic(
        head in any::<[u8; 2]>(),
        len in 0..12u8,
        words in prop::collection::vec(0..WORDS.len(), 0..24),
    ) {
        let mut data = head.to_vec();
        if head[0] % 5 == 3 {
            data.extend([head[1], len]);
        }
        words.iter().for_each(|w| data.extend_from_slice(WORDS[*w].as_bytes()));
        fuzz_http_parsers(&data);
    }

    #[test]
    fn any_bytes_are_parsed_without_a_panic(data in prop::collection::vec(any::<u8>(), 0..200)) {
        fuzz_http_parsers(&data);
    }
}

#[test]
fn the_fuzz_targets_seeds_are_parsed() {
    for (which, text) in [
        (0, "<?xml version='1.0'?><add><doc><field name='id'>1 &amp; <![CDATA[<2>]]></field></doc></add>"),
        (0, "<a>\n<b x='1' x='2'/></a>"),
        (1, "[[\"a\",\"]\"],[\"b\\\"\",{\"x\":[1]}]]"),
        (1, "[\"a\"]\n[\"b\"]"),
        (2, "nocase&limit=7&q=%C3%A9+x&&=&a="),
        (3, "\u{0}\u{9}W/\"a\", \"b\""),
        (3, "\u{2}\u{9}bytes=2-5"),
        (4, "%1\r\n$1\r\na\r\n*2\r\n:1\r\n$2\r\n\u{e9}\r\n"),
        (4, "*1\r\n%1\r\n*1\r\n+x\r\n!3\r\nbad\r\n"),
        (4, "$3\r\n\n\r\n[["),
    ] {
        for piece in [0, 2, 255] {
            fuzz_http_parsers(&[&[which, piece], text.as_bytes()].concat());
        }
    }
}
