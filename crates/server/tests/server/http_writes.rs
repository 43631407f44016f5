//! Conditional writes over HTTP: by the present value, by the user's rights, by the client's progress.

use crate::harness::{Client, comes_true};
use crate::http::{Site, request, site};
use std::io::Read;
use std::time::Duration;

const HASH: &str = "Strand-Type: hash\r\n";
const AS_ANN: &str = "Authorization: Bearer ann:pw\r\n";

/// A value of each type that is a JSON array: as it is sent, and as the server shows it.
const COLLECTIONS: &[(&str, &str, &str)] = &[
    ("list", r#"["a","b",3,"base64:/w==","a"]"#, r#"["a","b","3","base64:/w==","a"]"#),
    ("set", r#"["one","one"]"#, r#"["one"]"#),
    ("zset", r#"[["b","inf"],["a",-1.5],["c",2]]"#, r#"[["a",-1.5],["c",2.0],["b","inf"]]"#),
    (
        "stream",
        r#"[["1-0",["f","v","g","w"]],["2-7",["f",1]]]"#,
        r#"[["1-0",["f","v","g","w"]],["2-7",["f","1"]]]"#,
    ),
];

#[test]
fn every_type_can_be_read_and_written() {
    let site = site(&["--workers", "2"]);
    let (mut http, mut resp) = (site.http(), site.resp());
    for (kind, sent, shown) in COLLECTIONS {
        let (typed, path) = (format!("Strand-Type: {kind}\r\n"), format!("/v1/keys/a-{kind}"));
        let put = |http: &mut crate::http::Http, headers: &str, body: &str| {
            http.ask(&format!("PUT {path}"), &format!("{typed}{headers}"), body.as_bytes()).status
        };
        assert_eq!(put(&mut http, "If-Match: *\r\n", sent), 412, "{kind}");
        assert_eq!(put(&mut http, "If-None-Match: *\r\n", sent), 201, "{kind}");
        assert_eq!(put(&mut http, "If-None-Match: *\r\n", sent), 412, "{kind}");
        assert_eq!(put(&mut http, "If-Match: \"tag\"\r\n", sent), 422, "{kind}");
        assert_eq!(put(&mut http, "Strand-TTL-Ms: 900000\r\n", sent), 204, "{kind}");
        assert_eq!(put(&mut http, "If-Match: *\r\nStrand-TTL-Ms: keep\r\n", sent), 204, "{kind}");
        let answer = http.get(&path);
        assert_eq!((answer.status, answer.text().as_str()), (200, *shown), "{kind}");
        assert_eq!(answer.header("strand-type"), *kind);
        assert!(answer.header("strand-ttl-ms").parse::<u64>().is_ok_and(|ms| ms > 800_000), "{kind}");
        resp.call(&format!("TYPE a-{kind}"), &format!("+{kind}\r\n"));
        // A PUT of the shown value restores the key, without its expiry.
        assert_eq!(put(&mut http, "", &answer.text()), 204, "{kind}");
        assert_eq!((http.get(&path).text().as_str(), http.get(&path).header("strand-ttl-ms")), (*shown, ""));
        for bad in ["[]", "{}", "7", "[[[]]]", "[", ""] {
            assert_eq!(put(&mut http, "", bad), 400, "{kind} {bad}");
        }
        assert_eq!(http.get(&path).text(), *shown, "{kind}: what is refused changes nothing");
        // Replace a value of another type.
        resp.call(&format!("SET a-{kind} text"), "+OK\r\n");
        assert_eq!(put(&mut http, "", sent), 204, "{kind}");
        assert_eq!(http.get(&path).text(), *shown, "{kind}");
    }
    assert_eq!(http.ask("PUT /v1/keys/x", "Strand-Type: json\r\n", b"[]").status, 400);
    // RX.GREP finds the content of the value, for each type.
    let found = http.get("/v1/grep?pattern=%5E(one%7Cv%7Cb%7Cc)%24&prefix=a-");
    for (kind, ..) in COLLECTIONS {
        assert!(found.text().contains(&format!("\"a-{kind}\"")), "{}", found.text());
    }
    let many: Vec<String> = (0..50_000).map(|n| format!("\"element {n}\"")).collect();
    let many = format!("[{}]", many.join(","));
    let status = http.ask("PUT /v1/keys/long", "Strand-Type: list\r\n", many.as_bytes()).status;
    assert_eq!((status, http.get("/v1/keys/long").text()), (201, many));
}

/// An error may come before the body is read. The next request begins behind the body, or the response says that the
/// connection ends.
#[test]
fn an_error_before_the_body_keeps_the_connection_or_says_that_it_ends() {
    let site = site(&["--workers", "1"]);
    let mut http = site.http();
    let errors = [
        ("/v1/keys/k", "Strand-Type: none\r\n", 400),
        ("/v1/keys/k", "Strand-TTL-Ms: x\r\n", 400),
        ("/v1/keys/k", "Strand-Type: list\r\nIf-Match: \"x\"\r\n", 422),
        ("/v1/keys/k", "Authorization: Bearer no:no\r\n", 401),
        ("/v2", "", 404),
    ];
    for (path, headers, status) in errors {
        let head = |framing: &str| {
            format!("PUT {path} HTTP/1.1\r\nHost: localhost\r\n{headers}{framing}\r\n\r\n").into_bytes()
        };
        http.send(&head("Content-Length: 40000"));
        // The server has the head, and not yet the body: it answers another connection behind it.
        assert_eq!(site.http().get("/v1/keys/none").status, 404);
        http.send(&[b'x'; 40_000]);
        let answer = http.answer(false);
        assert_eq!((answer.status, answer.header("connection")), (status, ""), "{path} {headers}");
        let mut other = site.http();
        other.send(&head("Content-Length: 400000"));
        let answer = other.answer(false);
        assert_eq!((answer.status, answer.header("connection")), (status, "close"), "{path} {headers}");
        other.expect_end();
        // The whole body in chunks has arrived.
        let mut chunked = site.http();
        chunked.send(&[&head("Transfer-Encoding: chunked")[..], b"0\r\n\r\n"].concat());
        let answer = chunked.answer(false);
        assert_eq!((answer.status, answer.header("connection")), (status, ""), "{path} {headers}");
        assert_eq!(chunked.get("/v1/keys/none").status, 404);
    }
    assert_eq!(
        http.ask("PUT /v1/keys/k", "", b"x").status,
        201,
        "the connection of the short bodies goes on"
    );
}

#[test]
fn writing_a_collection_needs_the_right_to_its_commands() {
    let site = site(&["--workers", "1"]);
    let (mut http, mut resp) = (site.http(), site.resp());
    resp.call("ACL SETUSER ann on >pw ~a* +@read +rpush +multi +exec +del", "+OK\r\n");
    let put = |http: &mut crate::http::Http, path: &str, headers: &str| {
        let headers = format!("{AS_ANN}{headers}");
        http.ask(&format!("PUT /v1/keys/{path}"), &headers, br#"["x"]"#).status
    };
    assert_eq!(put(&mut http, "a", "Strand-Type: list\r\n"), 201);
    assert_eq!(put(&mut http, "b", "Strand-Type: list\r\n"), 403);
    assert_eq!(put(&mut http, "a", "Strand-Type: set\r\n"), 403);
    assert_eq!(put(&mut http, "a", "Strand-Type: list\r\nStrand-TTL-Ms: 5000\r\n"), 403);
    assert_eq!(put(&mut http, "a", "Strand-Type: list\r\nIf-Match: *\r\n"), 403);
    assert_eq!(http.ask("GET /v1/keys/a", AS_ANN, b"").text(), r#"["x"]"#);
    assert_eq!(put(&mut http, "a", "Strand-Type: list\r\n"), 204);
    // Without a transaction nothing is written.
    resp.call("RPUSH a precious", ":2\r\n");
    for (without, headers) in
        [("multi", ""), ("exec", ""), ("multi", "If-Match: *\r\n"), ("multi", "Strand-TTL-Ms: keep\r\n")]
    {
        resp.call(&format!("ACL SETUSER ann +pexpireat +watch -{without}"), "+OK\r\n");
        assert_eq!(
            put(&mut http, "a", &format!("Strand-Type: list\r\n{headers}")),
            403,
            "{without} {headers}"
        );
        resp.call(&format!("ACL SETUSER ann +{without}"), "+OK\r\n");
        assert_eq!(http.get("/v1/keys/a").text(), r#"["x","precious"]"#, "{without} {headers}");
    }
    assert_eq!(put(&mut http, "a", "Strand-Type: list\r\nIf-Match: *\r\nStrand-TTL-Ms: keep\r\n"), 204);
}

#[test]
fn a_value_that_is_refused_leaves_the_old_one() {
    let site = site(&["--workers", "1"]);
    let (mut http, mut resp) = (site.http(), site.resp());
    resp.call("ZADD z 1 precious", ":1\r\n");
    let many: Vec<String> = (0..3000).map(|n| format!("[\"m{n}\",1]")).collect();
    for score in ["1e400", "-1e309", "1e-999", "\"nan\"", "null"] {
        let body = format!("[{},[\"bad\",{score}]]", many.join(","));
        assert_eq!(
            http.ask("PUT /v1/keys/z", "Strand-Type: zset\r\n", body.as_bytes()).status,
            400,
            "{score}"
        );
        resp.call("ZRANGE z 0 -1", "*1\r\n$8\r\nprecious\r\n");
    }
    resp.call("SET s whole", "+OK\r\n");
    assert_eq!(http.ask("PUT /v1/keys/s", "Content-Range: bytes 3-4/5\r\n", b"le").status, 400);
    resp.call("GET s", "$5\r\nwhole\r\n");
    for coding in ["gzip, chunked", "chunked, chunked"] {
        let head =
            format!("PUT /v1/keys/s HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: {coding}\r\n\r\n");
        let mut http = site.http();
        http.send(format!("{head}1\r\nx\r\n0\r\n\r\n").as_bytes());
        assert_eq!(http.answer(false).status, 501, "{coding}");
        http.expect_end();
    }
    resp.call("GET s", "$5\r\nwhole\r\n");
}

/// As in redis-server, a client that hangs up stops waiting. Bytes behind the request do not hide its end.
#[test]
fn a_client_that_is_gone_takes_no_element() {
    let site = site(&["--workers", "1"]);
    let mut resp = site.resp();
    let body = br#"[["BLPOP","q","0"]]"#;
    let json = "Content-Type: application/json\r\n";
    let behind = request("GET /v1/keys/q", "", b"");
    for tail in [&b""[..], b"\r\n", &behind] {
        let mut http = site.http();
        http.send(&[&request("POST /v1/commands", json, body), tail].concat());
        comes_true(|| resp.bulk("INFO clients").contains("blocked_clients:1\r\n"));
        drop(http);
        comes_true(|| resp.bulk("INFO clients").contains("blocked_clients:0\r\n"));
        resp.call("RPUSH q job", ":1\r\n");
        resp.call("LLEN q", ":1\r\n");
        resp.call("DEL q", ":1\r\n");
        // A client that stays gets its element, and the reply to what it sent behind the request.
        let mut http = site.http();
        http.send(&[&request("POST /v1/commands", json, body), tail].concat());
        comes_true(|| resp.bulk("INFO clients").contains("blocked_clients:1\r\n"));
        resp.call("RPUSH q job", ":1\r\n");
        assert_eq!(http.answer(false).text(), r#"[{"result":["q","job"]}]"#);
        if tail.len() > 2 {
            assert_eq!(http.answer(false).status, 404);
        }
    }
}

#[test]
fn a_conditional_write_depends_on_the_current_tag() {
    let site = site(&["--workers", "1", "--http-etag-max", "2mb"]);
    let (mut http, mut resp) = (site.http(), site.resp());
    for value in [&b"one"[..], b"12345", &vec![b'x'; 100_000], &vec![b'y'; (1 << 20) + 1]] {
        let tag = http.ask("PUT /v1/keys/k", "", value).header("etag").to_string();
        let put = |http: &mut crate::http::Http, headers: &str| http.ask("PUT /v1/keys/k", headers, b"new");
        for stale in [
            "If-Match: \"x\"\r\n",
            "If-Match: \"*\"\r\n",
            &format!("If-Match: W/{tag}\r\n"),
            &format!("If-None-Match: \"x\", W/{tag}\r\n"),
            &format!("If-Match: *\r\nIf-None-Match: {tag}\r\n"),
        ] {
            let answer = put(&mut http, stale);
            assert_eq!(
                (answer.status, answer.header("content-type")),
                (412, "application/problem+json"),
                "{stale}"
            );
        }
        assert_eq!(http.ask("DELETE /v1/keys/k", "If-Match: \"x\"\r\n", b"").status, 412);
        assert_eq!(http.get("/v1/keys/k").body, value);
        let fresh = put(
            &mut http,
            &format!("If-Match: \"x\", {tag}\r\nIf-None-Match: \"y\"\r\nStrand-TTL-Ms: 900000\r\n"),
        );
        assert_eq!((fresh.status, http.get("/v1/keys/k").header("etag")), (204, fresh.header("etag")));
        assert_ne!(http.get("/v1/keys/k").header("strand-ttl-ms"), "");
        let kept = format!("If-Match: {}\r\nStrand-TTL-Ms: keep\r\n", fresh.header("etag"));
        assert_eq!(put(&mut http, &kept).status, 204);
        assert_ne!(http.get("/v1/keys/k").header("strand-ttl-ms"), "");
        let gone = http.ask("DELETE /v1/keys/k", &format!("If-Match: {}\r\n", fresh.header("etag")), b"");
        assert_eq!(gone.status, 204);
        assert_eq!(http.ask("DELETE /v1/keys/k", "If-None-Match: \"x\"\r\n", b"").status, 404);
        assert_eq!(http.ask("PUT /v1/keys/k", "If-None-Match: \"x\"\r\n", b"v").status, 201);
    }
    // A value that is too long for an entity tag has no tag at any door.
    http.ask("PUT /v1/keys/long", "", &vec![b'z'; 3 << 20]);
    assert_eq!(http.get("/v1/keys/long").header("etag"), "");
    assert_eq!(http.ask("DELETE /v1/keys/long", "If-Match: \"x\"\r\n", b"").status, 412);
    // Hashes have no entity tags either, but a condition can require that they exist or not.
    assert_eq!(http.ask("PUT /v1/keys/h", &format!("{HASH}If-Match: *\r\n"), br#"{"a":"1"}"#).status, 412);
    assert_eq!(
        http.ask("PUT /v1/keys/h", &format!("{HASH}If-None-Match: *\r\n"), br#"{"a":"1"}"#).status,
        201
    );
    assert_eq!(
        http.ask("PUT /v1/keys/h", &format!("{HASH}If-None-Match: *\r\n"), br#"{"b":"1"}"#).status,
        412
    );
    assert_eq!(http.ask("PUT /v1/keys/h", &format!("{HASH}If-Match: *\r\n"), br#"{"c":"1"}"#).status, 204);
    assert_eq!(
        http.ask("PUT /v1/keys/h", &format!("{HASH}If-Match: \"x\"\r\n"), br#"{"d":"1"}"#).status,
        422
    );
    assert_eq!(http.ask("PUT /v1/keys/h", "If-Match: \"x\"\r\n", b"v").status, 412);
    resp.call("HGETALL h", "*2\r\n$1\r\nc\r\n$1\r\n1\r\n");
}

#[test]
fn only_one_of_several_writers_with_equal_tags_succeeds() {
    const WRITERS: u64 = 4;
    const EACH: u64 = 50;
    let site = site(&["--workers", "2"]);
    site.http().ask("PUT /v1/keys/n", "", b"0");
    std::thread::scope(|scope| {
        for _ in 0..WRITERS {
            scope.spawn(|| {
                let mut http = site.http();
                let mut done = 0;
                for _ in 0..100_000 {
                    let seen = http.get("/v1/keys/n");
                    let next = (seen.text().parse::<u64>().expect("a number") + 1).to_string();
                    let rule = format!("If-Match: {}\r\n", seen.header("etag"));
                    match http.ask("PUT /v1/keys/n", &rule, next.as_bytes()).status {
                        204 => done += 1,
                        status => assert_eq!(status, 412),
                    }
                    if done == EACH {
                        return;
                    }
                }
                panic!("{done} of {EACH} writes");
            });
        }
    });
    site.resp().call("GET n", &format!("$3\r\n{}\r\n", WRITERS * EACH));
}

#[test]
fn a_refused_write_changes_nothing() {
    let site = site(&["--workers", "1"]);
    let (mut http, mut resp) = (site.http(), site.resp());
    resp.call("HSET doc:1 old 1", ":1\r\n");
    resp.call("ACL SETUSER ann on >pw ~doc:* +hset +del +hdel", "+OK\r\n");
    let new = br#"{"new":"2"}"#;
    let xml = b"<add><doc><field name=\"id\">1</field><field name=\"new\">2</field></doc></add>";
    let solr = format!("{AS_ANN}Content-Type: text/xml\r\n");
    let untouched = |resp: &mut Client| resp.call("HGETALL doc:1", "*2\r\n$3\r\nold\r\n$1\r\n1\r\n");
    assert_eq!(http.ask("PUT /v1/keys/doc:1", &format!("{AS_ANN}{HASH}"), new).status, 403);
    let refused = http.ask("POST /v1/update", &solr, xml);
    assert_eq!((refused.status, refused.header("content-type")), (403, "application/problem+json"));
    assert!(
        refused.text().contains("hreplace") && refused.text().contains("\"added\":0"),
        "{}",
        refused.text()
    );
    untouched(&mut resp);
    // A refused command ends the changes of a document that the request makes.
    resp.call("ACL SETUSER ann -hdel", "+OK\r\n");
    let change = b"<add><doc><field name=\"id\">1</field><field name=\"old\" null=\"true\"/>\
                   <field name=\"more\" update=\"set\">x</field></doc></add>";
    assert_eq!(http.ask("POST /v1/update", &solr, change).status, 403);
    untouched(&mut resp);
    resp.call("ACL SETUSER ann -@all +hreplace", "+OK\r\n");
    assert_eq!(http.ask("PUT /v1/keys/other", &format!("{AS_ANN}{HASH}"), new).status, 403);
    assert_eq!(http.ask("PUT /v1/keys/doc:1", &format!("{AS_ANN}{HASH}"), new).status, 204);
    resp.call("HGETALL doc:1", "*2\r\n$3\r\nnew\r\n$1\r\n2\r\n");
    assert!(http.ask("POST /v1/update", &solr, xml).text().contains("\"added\":1"));
    // A user who may not check whether a key exists may still PUT, and the reply does not say whether the key was
    // new.
    resp.call("ACL SETUSER ann -@all +set", "+OK\r\n");
    for _ in 0..2 {
        assert_eq!(http.ask("PUT /v1/keys/doc:s", AS_ANN, b"v").status, 204);
    }
    resp.call("GET doc:s", "$1\r\nv\r\n");
    // Conditions of `*` need only SET. Conditions with tags need SETIF.
    assert_eq!(http.ask("PUT /v1/keys/doc:t", &format!("{AS_ANN}If-None-Match: *\r\n"), b"v").status, 201);
    assert_eq!(http.ask("PUT /v1/keys/doc:t", &format!("{AS_ANN}If-Match: \"x\"\r\n"), b"w").status, 403);
    assert_eq!(http.ask("DELETE /v1/keys/doc:t", AS_ANN, b"").status, 403);
    resp.call("GET doc:t", "$1\r\nv\r\n");
    assert_eq!(http.ask("GET /v1/keys/doc:t", "Authorization: Bearer ann:wrong\r\n", b"").status, 401);
}

/// The memory that the server counts for the client at the other end of `http`.
pub fn memory_of(site: &Site, http: &crate::http::Http) -> usize {
    let address = format!("addr={} ", http.stream.local_addr().expect("a socket"));
    let list = site.resp().bulk("CLIENT LIST");
    let line =
        list.lines().find(|l| l.contains(&address)).unwrap_or_else(|| panic!("no {address} in {list}"));
    let words = line.split(' ').find_map(|w| w.strip_prefix("tot-mem="));
    words.and_then(|n| n.parse().ok()).expect("a number")
}

#[test]
fn held_body_bytes_count_as_the_clients_memory() {
    const BYTES: usize = 4 << 20;
    let site = site(&["--workers", "1"]);
    let chunk = |bytes: &[u8]| [format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat();
    let half = vec![b'x'; BYTES];
    for (line, media, before, after, status) in [
        ("PUT /v1/keys/k", "", "", "", 201),
        (
            "POST /v1/update",
            "Content-Type: text/xml\r\n",
            "<add><doc><field name=\"id\">",
            "</field></doc></add>",
            200,
        ),
        (
            "POST /v1/update",
            "Content-Type: text/xml\r\n",
            "<add><doc><field name=\"id\">1</field><field name=\"t\">",
            "</field></doc></add>",
            200,
        ),
    ] {
        let mut http = site.http();
        assert_eq!(http.get("/healthz").status, 200);
        let idle = memory_of(&site, &http);
        http.send(
            format!("{line} HTTP/1.1\r\nHost: localhost\r\n{media}Transfer-Encoding: chunked\r\n\r\n")
                .as_bytes(),
        );
        http.send(&chunk(&[before.as_bytes(), &half].concat()));
        comes_true(|| memory_of(&site, &http) >= BYTES);
        if !after.is_empty() {
            http.send(&chunk(after.as_bytes()));
        }
        http.send(b"0\r\n\r\n");
        assert_eq!(http.answer(false).status, status, "{line}");
        // The connection stays open, and holds no more memory.
        comes_true(|| memory_of(&site, &http) < idle + 100_000);
    }
}

#[test]
fn a_request_that_stalls_is_answered_and_ended() {
    let site = site(&["--workers", "1", "--http-keepalive", "1", "--enable-debug-command", "local"]);
    let stalled = |line: &str, headers: &str, body: &str| {
        let mut http = site.http();
        http.send(format!("{line} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n{body}").as_bytes());
        http
    };
    let mut held = [
        stalled("PUT /v1/keys/k", "Content-Length: 10\r\n", "abc"),
        stalled("PUT /v1/keys/k", "Transfer-Encoding: chunked\r\n", "3\r\nabc\r\n"),
        stalled("PUT /v1/keys/k", "Strand-Type: hash\r\nContent-Length: 10\r\n", "{"),
        stalled("POST /v1/commands", "Content-Type: application/json\r\nContent-Length: 99\r\n", ""),
        stalled("POST /v1/update", "Content-Type: text/xml\r\nContent-Length: 99\r\n", "<add><doc>"),
    ];
    let mut begun = stalled(
        "POST /v1/commands",
        "Content-Type: application/x-ndjson\r\nContent-Length: 99\r\n",
        "[\"PING\"]\n",
    );
    let mut slow = site.http();
    slow.send(&request(
        "POST /v1/commands",
        "Content-Type: application/json\r\n",
        b"[[\"DEBUG\",\"SLEEP\",3.5]]",
    ));
    // The server waits for a body that continues slowly.
    let mut trickle = stalled("PUT /v1/keys/slow", "Content-Length: 8\r\n", "");
    for _ in 0..8 {
        std::thread::sleep(Duration::from_millis(400));
        trickle.send(b"x");
    }
    assert_eq!(trickle.answer(false).status, 201);
    for http in &mut held {
        let answer = http.answer(false);
        assert_eq!((answer.status, answer.header("connection")), (408, "close"), "{}", answer.text());
        assert_eq!(answer.header("content-type"), "application/problem+json");
        http.expect_end();
    }
    let answer = begun.answer(false);
    assert!(answer.text().starts_with("{\"result\":\"PONG\"}\n{\"problem\":{"), "{}", answer.text());
    assert!(answer.text().contains("\"status\":408"), "{}", answer.text());
    begun.expect_end();
    assert_eq!(slow.answer(false).text(), "[{\"result\":\"OK\"}]", "who waits for the server is not idle");
    site.resp().call("EXISTS k", ":0\r\n");
    // The server does not wait for a client that does not read its response.
    site.http().ask("PUT /v1/keys/large", "", &vec![b'x'; 32 << 20]);
    let mut deaf = site.http();
    deaf.send(&request("GET /v1/keys/large", "", b""));
    comes_true(|| site.resp().bulk("INFO clients").contains("connected_clients:1\r\n"));
    let mut rest = Vec::new();
    let _ = deaf.stream.read_to_end(&mut rest);
    assert!(rest.len() < 32 << 20);
}

#[test]
fn timeouts_client_list_and_slow_log_include_http() {
    let site = site(&["--workers", "1", "--slowlog-log-slower-than", "0"]);
    let (mut http, mut resp) = (site.http(), site.resp());
    let named = br#"[["CLIENT","SETNAME","web"],["KEYS","none"]]"#;
    assert_eq!(http.ask("POST /v1/commands", "Content-Type: application/json\r\n", named).status, 200);
    let address = http.stream.local_addr().expect("a socket").to_string();
    resp.send(b"SLOWLOG GET\r\n");
    let entries: Vec<String> = (0..20).map(|_| resp.line()).collect();
    let at = entries.iter().position(|l| l == "KEYS").expect("it is in the log");
    assert_eq!([&entries[at + 4], &entries[at + 6]], [&address, "web"], "{entries:?}");
    let mut resp = site.resp();
    let list = resp.bulk("CLIENT LIST");
    let line = list.lines().find(|l| l.contains(&format!("addr={address} "))).expect("it is in the list");
    assert!(line.contains("name=web") && line.contains("cmd=keys"), "{line}");
    let id = line.split(' ').next().and_then(|w| w.strip_prefix("id=")).expect("an id");
    resp.call(&format!("CLIENT KILL ID {id}"), ":1\r\n");
    http.expect_end();
    // The idle timeout of all doors applies to HTTP, too.
    let mut idle = site.http();
    assert_eq!(idle.get("/v1/keys/none").status, 404);
    resp.call("CONFIG SET timeout 1", "+OK\r\n");
    idle.expect_end();
}

#[test]
fn no_message_of_one_request_answers_another() {
    let site = site(&["--enable-debug-command", "yes"]);
    site.resp().call("SET k value", "+OK\r\n");
    let mut http = site.http();
    let json = "Content-Type: application/json\r\n";
    for name in ["UNSUBSCRIBE", "PUNSUBSCRIBE", "sunsubscribe"] {
        let body = format!(r#"[["{name}","x","x","x"],["PING"]]"#);
        let text = http.ask("POST /v1/commands", json, body.as_bytes()).text();
        assert!(text.contains("cannot be used over HTTP") && text.contains("PONG"), "{text}");
        assert_eq!(http.get("/v1/keys/k").text(), "value", "after {name}");
    }
    // A command without a reply would hold up the results behind the command.
    let text = http.ask("POST /v1/commands", json, br#"[["REPLCONF","ACK","5"],["ECHO","b"]]"#).text();
    assert!(
        text.contains("REPLCONF cannot be used over HTTP") && text.contains(r#"{"result":"b"}"#),
        "{text}"
    );
    // A message that is no reply ends the connection.
    http.send(&request("POST /v1/commands", json, br#"[["DEBUG","PROTOCOL","PUSH"],["GET","k"]]"#));
    let mut rest = Vec::new();
    http.stream.read_to_end(&mut rest).expect("the end of the stream");
    assert!(!rest.windows(5).any(|window| window == b"value"));
}
