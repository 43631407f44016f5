//! Solr's XML updates over HTTP.

use crate::http::{Answer, Http, site};

fn update(http: &mut Http, query: &str, xml: &str) -> Answer {
    http.ask(&format!("POST /v1/update{query}"), "Content-Type: text/xml; charset=utf-8\r\n", xml.as_bytes())
}

#[test]
fn documents_become_hashes_and_are_deleted() {
    let site = site(&["--workers", "1"]);
    let (mut http, mut resp) = (site.http(), site.resp());
    let added = update(
        &mut http,
        "",
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<add commitWithin=\"1000\">\n\
         <doc><field name=\"id\">1</field><field name=\"t\">a &amp; b</field>\
         <field name=\"cat\">x</field><field name=\"cat\">y</field></doc>\n\
         <doc boost=\"2\"><field name=\"id\">2</field><field name=\"t\"><![CDATA[<raw>]]></field><field name=\"empty\"/></doc>\n</add>",
    );
    assert!(added.text().starts_with(r#"{"responseHeader":{"status":0,"QTime":"#), "{}", added.text());
    assert!(added.text().ends_with(r#""added":2,"deleted":0}"#), "{}", added.text());
    resp.call("HMGET doc:1 id t cat", "*3\r\n$1\r\n1\r\n$5\r\na & b\r\n$3\r\nx,y\r\n");
    resp.call("HMGET doc:2 t empty", "*2\r\n$5\r\n<raw>\r\n$0\r\n\r\n");
    // A document replaces the document with its id. Modifiers change it.
    update(&mut http, "", "<add><doc><field name=\"id\">1</field><field name=\"n\">5</field></doc></add>");
    resp.call("HKEYS doc:1", "*2\r\n$2\r\nid\r\n$1\r\nn\r\n");
    let changed = update(
        &mut http,
        "",
        "<add><doc><field name=\"id\">1</field><field name=\"n\" update=\"inc\">2</field><field name=\"m\" update=\"set\">new</field></doc>\
         <doc><field name=\"id\">2</field><field name=\"t\" update=\"set\" null=\"true\"/></doc></add>",
    );
    assert!(changed.text().contains("\"added\":2"), "{}", changed.text());
    resp.call("HMGET doc:1 id n m", "*3\r\n$1\r\n1\r\n$1\r\n7\r\n$3\r\nnew\r\n");
    resp.call("HEXISTS doc:2 t", ":0\r\n");
    // The request sets the prefix and the separator.
    update(
        &mut http,
        "?prefix=p*:&separator=%7C&commit",
        "<add><doc><field name=\"id\">9</field><field name=\"c\">x</field><field name=\"c\">y</field></doc></add>",
    );
    resp.call("HGET p*:9 c", "$3\r\nx|y\r\n");
    let deleted = update(
        &mut http,
        "?wt=xml",
        "<update><delete><id>1</id><id>nope</id><query>id:2</query></delete><commit/></update>",
    );
    assert!(
        deleted.text().contains("<int name=\"status\">0</int>")
            && deleted.text().contains("<long name=\"deleted\">2</long>")
    );
    resp.call("EXISTS doc:1 doc:2", ":0\r\n");
    let docs: String = (0..3000).map(|i| format!("<doc><field name=\"id\">{i}</field></doc>")).collect();
    assert!(update(&mut http, "", &format!("<add>{docs}</add>")).text().contains("\"added\":3000"));
    resp.call("SET doc:string kept", "+OK\r\n");
    assert!(update(&mut http, "", "<delete><query>*:*</query></delete>").text().contains("\"deleted\":3000"));
    resp.call("DBSIZE", ":2\r\n");
}

#[test]
fn documents_are_deleted_by_the_value_of_a_field() {
    let site = site(&["--workers", "1"]);
    let (mut http, mut resp) = (site.http(), site.resp());
    resp.call("FT.CREATE other ON HASH PREFIX 1 x: SCHEMA cat TAG", "+OK\r\n");
    resp.call("FT.CREATE docs ON HASH PREFIX 1 d SCHEMA cat TAG price AS cost NUMERIC title TEXT dark TAG NOINDEX SORTABLE", "+OK\r\n");
    let docs: String = (0..2500)
        .map(|i| {
            let cat = ["red", "Red", "a-b c", "x</field><field name=\"cat\">y"][i % 4];
            format!(
                "<doc><field name=\"id\">{i}</field><field name=\"cat\">{cat}</field>\
                 <field name=\"price\">{}.0</field><field name=\"title\">t</field></doc>",
                i % 5
            )
        })
        .collect();
    assert!(update(&mut http, "", &format!("<add>{docs}</add>")).text().contains("\"added\":2500"));
    resp.call("HSET d:outside cat red price 1", ":2\r\n");
    let mut delete = |query: &str| update(&mut http, "", &format!("<delete><query>{query}</query></delete>"));
    for (query, deleted) in [
        ("cat:red", 625),
        ("cat:RED", 0),
        ("cat:\"a-b c\"", 625),
        ("cat:none", 0),
        ("price:1", 250),
        ("cat:y", 500),
        ("cat:\"x,y\"", 0),
    ] {
        let answer = delete(query);
        assert!(answer.text().contains(&format!("\"deleted\":{deleted}}}")), "{query}: {}", answer.text());
    }
    for (query, words) in [
        ("title:t", "has the field"),
        ("dark:t", "has the field"),
        ("nope:t", "has the field"),
        ("price:cheap", "a number"),
        ("price:[1 TO 2]", "field:value"),
        ("cat:r*", "field:value"),
        ("cat:red AND price:1", "field:value"),
    ] {
        let answer = delete(query);
        assert_eq!(answer.status, 422, "{query}");
        assert!(
            answer.text().contains(words) && answer.text().contains("\"line\":1"),
            "{query}: {}",
            answer.text()
        );
    }
    resp.call("EXISTS d:outside", ":1\r\n");
    resp.call("ACL SETUSER ann on >pw ~doc:* +ft._list +ft.info +ft.search +hget", "+OK\r\n");
    let refused = http.ask(
        "POST /v1/update",
        "Content-Type: text/xml\r\nAuthorization: Bearer ann:pw\r\n",
        b"<delete><query>cat:Red</query></delete>",
    );
    assert!(refused.status == 403 && refused.text().contains(", del\""), "{}", refused.text());
    assert!(
        update(&mut http, "", "<delete><query>cat:Red</query></delete>").text().contains("\"deleted\":500")
    );
    resp.call("DBSIZE", ":1\r\n");
}

#[test]
fn update_errors_have_line_and_column() {
    let site = site(&["--workers", "1"]);
    let (mut http, mut resp) = (site.http(), site.resp());
    resp.call("SET doc:taken string", "+OK\r\n");
    for (xml, status, words) in [
        ("", 400, "no element"),
        ("<add>\n<doc>\n</add>", 400, "line 3, column 1"),
        ("<add><doc><field name=\"t\">x</field></doc></add>", 400, "uniqueKey field: id"),
        (
            "<add><doc><field name=\"id\">1</field><field name=\"id\">2</field></doc></add>",
            400,
            "multiple values for uniqueKey field: id=[1, 2]",
        ),
        ("<add>\n  <doc><field>x</field></doc></add>", 400, "line 2, column 8: a <field> without a name"),
        ("<add>text</add>", 400, "unexpected text"),
        ("<nope/>", 400, "<nope>"),
        ("<add/><add/>", 400, "second root"),
        ("<rollback/>", 422, "rollback"),
        ("<add overwrite=\"false\"/>", 422, "overwrite"),
        (
            "<add><doc><field name=\"id\">1</field><field name=\"x\" update=\"add\">1</field></doc></add>",
            422,
            "update=\"add\"",
        ),
        ("<add><doc><field name=\"id\">1</field><doc/></doc></add>", 422, "child documents"),
        ("<delete><query>title:foo bar</query></delete>", 422, "this query is not supported"),
        (
            "<!DOCTYPE add [<!ENTITY a SYSTEM \"file:///etc/passwd\">]><add><doc><field name=\"id\">&a;</field></doc></add>",
            400,
            "document type",
        ),
        ("<!DOCTYPE a [<!ENTITY a \"aaaa\"><!ENTITY b \"&a;&a;\">]><add>&b;</add>", 400, "document type"),
        ("<add><doc><field name=\"id\">&bomb;</field></doc></add>", 400, "&bomb;"),
        ("<add><doc><field name=\"id\" name=\"id\">1</field></doc></add>", 400, "line 1, column 11"),
        (
            "<add><doc><field name=\"id\">1</field><field name=\"n\" update=\"inc\">x</field></doc></add>",
            400,
            "not a valid float",
        ),
    ] {
        let answer = update(&mut http, "", xml);
        assert_eq!(
            (answer.status, answer.header("content-type")),
            (status, "application/problem+json"),
            "{xml}"
        );
        let text = answer.text();
        let detail = text.replace("\\\"", "\"");
        assert!(detail.contains(words) && (xml.is_empty() || text.contains("\"line\":")), "{xml}: {text}");
    }
    // What comes before the error is done and reported.
    let answer = update(
        &mut http,
        "",
        "<add><doc><field name=\"id\">1</field></doc>\n<doc><field name=\"id\">2</field></doc>\n<oops/></add>",
    );
    assert!(
        answer.text().contains("\"added\":2") && answer.text().contains("\"line\":3"),
        "{}",
        answer.text()
    );
    resp.call("EXISTS doc:1 doc:2", ":2\r\n");
    resp.call("GET doc:taken", "$6\r\nstring\r\n");
    let other = http.ask("POST /v1/update", "Content-Type: application/json\r\n", b"[]");
    assert_eq!(other.status, 415);
    assert_eq!(http.get("/v1/keys/doc:taken").status, 200, "the connection goes on");
}

#[test]
fn an_update_is_processed_while_it_arrives() {
    let site = site(&["--workers", "1"]);
    let (mut http, mut resp) = (site.http(), site.resp());
    http.send(b"POST /v1/update HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/xml\r\nTransfer-Encoding: chunked\r\n\r\n");
    let part = |text: &str| format!("{:x}\r\n{text}\r\n", text.len()).into_bytes();
    http.send(&part("<add><doc><field name=\"id\">first</field></doc><doc><field na"));
    // The first document is stored before the second document has arrived.
    crate::harness::comes_true(|| {
        resp.send(&crate::harness::command("EXISTS doc:first"));
        resp.line() == ":1"
    });
    for byte in "me=\"id\">second</field></doc></add>".bytes() {
        http.send(&part(std::str::from_utf8(&[byte]).expect("ASCII")));
    }
    http.send(b"0\r\n\r\n");
    assert!(http.answer(false).text().contains("\"added\":2"));
    // 20 MB pass through the server in little memory.
    let before = site.server.memory("VmRSS");
    let text = "x".repeat(1000);
    let docs: String = (0..20_000)
        .map(|i| format!("<doc><field name=\"id\">{}</field><field name=\"t\">{text}</field></doc>", i % 10))
        .collect();
    assert!(update(&mut http, "", &format!("<add>{docs}</add>")).text().contains("\"added\":20000"));
    let grown = site.server.memory("VmHWM").saturating_sub(before);
    assert!(grown < 12 << 20, "{grown} bytes");
}

/// `as` is the name of a field here, and no word of RETURN.
#[test]
fn a_search_returns_a_field_with_the_name_as() {
    let site = site(&[]);
    let (mut http, mut resp) = (site.http(), site.resp());
    resp.call("FT.CREATE books ON HASH PREFIX 1 book: SCHEMA title TEXT", "+OK\r\n");
    resp.call("HSET book:1 title one as an-alias year 3000", ":3\r\n");
    let found = http.get("/v1/search/books?q=one&fields=title,as,year").text();
    let fields = r#"{"title":"one","as":"an-alias","year":"3000"}"#;
    assert!(found.contains(fields), "{found}");
}
