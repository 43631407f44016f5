//! What one request over HTTP, or one client that nobody knows yet, makes the server hold: no more than its limits say.

use crate::harness::comes_true;
use crate::http::{Http, site};
use crate::http_writes::memory_of;

const XML: &str = "Content-Type: text/xml\r\n";

/// Sends an update whose document repeats one field of no text `repeats` times.
fn repeated(http: &mut Http, query: &str, repeats: usize) -> (u16, String) {
    let fields = "<field name=\"a\"/>".repeat(repeats);
    let xml = format!("<add><doc><field name=\"id\">1</field>{fields}</doc></add>");
    // As curl does: the body is sent when the server asks for it.
    let expects = format!("Content-Length: {}\r\nExpect: 100-continue\r\n{XML}", xml.len());
    http.send(format!("POST /v1/update{query} HTTP/1.1\r\nHost: localhost\r\n{expects}\r\n").as_bytes());
    let mut answer = http.head();
    if answer.status == 100 {
        http.send(xml.as_bytes());
        answer = http.head();
    }
    http.rest_of(&mut answer);
    (answer.status, answer.text())
}

#[test]
fn the_separators_of_an_update_are_in_its_budget() {
    let site = site(&["--workers", "1"]);
    let peak = |what: &dyn Fn(&mut Http) -> (u16, String)| {
        let before = site.server.memory("VmHWM");
        let (status, text) = what(&mut site.http());
        (status, text, site.server.memory("VmHWM").saturating_sub(before))
    };
    // 14,000 repeats of 60 KB would be 840 MB, out of 240 KB of body: the server does not even ask for it.
    let long = format!("?separator={}", "s".repeat(60_000));
    let (status, text, grown) = peak(&|http| repeated(http, &long, 14_000));
    assert_eq!(status, 400, "{text}");
    assert!(text.contains("separator") && text.contains("256"), "{text}");
    assert!(grown < 16 << 20, "{grown} bytes");
    // More fields than a document has, however few names they have.
    let longest = format!("?separator={}", "s".repeat(256));
    let (status, text, grown) = peak(&|http| repeated(http, &longest, 66_000));
    assert_eq!(status, 413, "{text}");
    assert!(grown < 64 << 20, "{grown} bytes");
    // What is within the limits is joined as before.
    let (status, text, _) = peak(&|http| repeated(http, &longest, 60_000));
    assert_eq!(status, 200, "{text}");
    site.resp().call("HSTRLEN doc:1 a", &format!(":{}\r\n", 59_999 * 256));
    // The same of what stands before an id.
    let (status, text, _) = peak(&|http| repeated(http, &format!("?prefix={}", "p".repeat(2000)), 1));
    assert_eq!(status, 400, "{text}");
    assert!(text.contains("prefix"), "{text}");
}

#[test]
fn a_field_counts_while_it_grows() {
    const BYTES: usize = 6 << 20;
    let site = site(&["--workers", "1"]);
    let mut http = site.http();
    http.send(b"POST /v1/update HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/xml\r\nContent-Length: 99999999\r\n\r\n");
    http.send(b"<add><doc><field name=\"id\">1</field><field name=\"t\">");
    // Many texts with comments between are one field's.
    let node = format!("{}<!-- -->", "x".repeat(60_000));
    http.send(node.repeat(BYTES / node.len() + 1).as_bytes());
    comes_true(|| memory_of(&site, &http) >= BYTES);
    drop(http);
    comes_true(|| site.resp().bulk("INFO clients").contains("connected_clients:1\r\n"));
}

#[test]
fn line_ends_take_no_more_memory_than_other_text() {
    let site = site(&["--workers", "1"]);
    let before = site.server.memory("VmHWM");
    // The node's text and its copies, and not 8 bytes a line.
    let xml = format!("<add><doc><field name=\"id\">1</field>{}</doc>\n<oops/></add>", "\n".repeat(7 << 20));
    let answer = site.http().ask("POST /v1/update", XML, xml.as_bytes());
    assert_eq!(answer.status, 400);
    let text = answer.text();
    let line = format!("\"line\":{}", (7 << 20) + 2);
    assert!(text.contains(&line) && text.contains("\"column\":1") && text.contains("<oops>"), "{text}");
    let grown = site.server.memory("VmHWM").saturating_sub(before);
    assert!(grown < 64 << 20, "{grown} bytes");
}

#[test]
fn who_may_not_write_is_refused_before_the_body() {
    let site = site(&["--workers", "1"]);
    let mut resp = site.resp();
    resp.call("ACL SETUSER ann on >pw ~* +@read", "+OK\r\n");
    resp.call("ACL SETUSER bob on >pw ~* +@read +hset +set", "+OK\r\n");
    let head = |user: &str, line: &str, media: &str| {
        let mut http = site.http();
        let head = format!(
            "{line} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {user}:pw\r\n{media}Content-Length: 60000000\r\n\r\n"
        );
        http.send(head.as_bytes());
        http
    };
    for (line, media, command) in [
        ("POST /v1/update", XML, "any of hreplace, hset, hdel, hincrbyfloat, del"),
        ("PUT /v1/keys/k", "", "the 'set' command"),
        ("PUT /v1/keys/k", "If-Match: \"x\"\r\n", "the 'setif' command"),
        ("PUT /v1/keys/k", "Strand-Type: hash\r\n", "the 'hreplace' command"),
    ] {
        let mut http = head("ann", line, media);
        let answer = http.answer(false);
        assert_eq!(answer.status, 403, "{line}: {}", answer.text());
        assert!(answer.text().contains(command), "{line}: {}", answer.text());
        assert!(answer.text().contains("\"code\":\"NOPERM\""), "{line}: {}", answer.text());
        http.expect_end();
    }
    // Who may do some of it is refused what is not allowed, and no more.
    let bob = format!("{XML}Authorization: Bearer bob:pw\r\n");
    let set = b"<add><doc><field name=\"id\">1</field><field name=\"t\" update=\"set\">x</field></doc></add>";
    assert_eq!(site.http().ask("POST /v1/update", &bob, set).status, 200);
    let put = site.http().ask("PUT /v1/keys/k", "Authorization: Bearer bob:pw\r\n", b"v");
    assert_eq!(put.status, 201);
}
