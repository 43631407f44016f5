//! Malicious HTTP: conflicting lengths, endless heads, bodies that are too long.

use crate::harness::comes_true;
use crate::http::{Site, request, site};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

/// The whole answer until the server closes. The client closes its sending side first.
fn whole_answer(site: &Site, bytes: &[u8]) -> String {
    answer_to(site, bytes, true)
}

/// The whole answer until the server closes. `ends`: the client closes its sending side first.
fn answer_to(site: &Site, bytes: &[u8], ends: bool) -> String {
    let mut stream = TcpStream::connect(site.address).expect("it listens");
    stream.set_read_timeout(Some(Duration::from_secs(10))).expect("not zero");
    let _ = stream.write_all(bytes);
    if ends {
        let _ = stream.shutdown(Shutdown::Write);
    }
    let mut reply = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        match stream.read(&mut buffer) {
            Ok(n @ 1..) => reply.extend_from_slice(&buffer[..n]),
            Ok(_) => break,
            Err(e) if e.kind() == ErrorKind::ConnectionReset => break,
            Err(e) => panic!("the connection stays open ({e}) after {}", String::from_utf8_lossy(&reply)),
        }
    }
    String::from_utf8_lossy(&reply).into_owned()
}

#[test]
fn requests_with_ambiguous_lengths_are_refused() {
    let site = site(&["--workers", "1"]);
    let mut other = site.http();
    let smuggled = "PUT /v1/keys/smuggled HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\r\nx";
    for (name, head, body) in [
        ("two lengths", "Content-Length: 3\r\nContent-Length: 4\r\n", "abc"),
        ("two lengths in one line", "Content-Length: 3, 4\r\n", "abc"),
        ("a negative length", "Content-Length: -3\r\n", ""),
        ("a length with a sign", "Content-Length: +3\r\n", "abc"),
        ("a length that is none", "Content-Length: 3x\r\n", "abc"),
        ("a length beyond numbers", "Content-Length: 99999999999999999999999\r\n", "abc"),
        ("an unknown coding", "Transfer-Encoding: gzip\r\n", "abc"),
        ("two codings", "Transfer-Encoding: chunked\r\nTransfer-Encoding: gzip\r\n", "0\r\n\r\n"),
        ("chunked is not last", "Transfer-Encoding: chunked, gzip\r\n", "0\r\n\r\n"),
        ("a coding with a strange space", "Transfer-Encoding\u{b}: chunked\r\n", "0\r\n\r\n"),
        ("a space before the colon", "Content-Length : 3\r\n", "abc"),
        ("a folded line", "X: y\r\n Content-Length: 3\r\n", "abc"),
        ("a bare carriage return", "X: y\rContent-Length: 3\r\n", "abc"),
        ("a zero byte", "X: y\0z\r\n", ""),
        ("a chunk's length is none", "Transfer-Encoding: chunked\r\n", "zz\r\nabc\r\n0\r\n\r\n"),
        ("a chunk's length is signed", "Transfer-Encoding: chunked\r\n", "-3\r\nabc\r\n0\r\n\r\n"),
        (
            "a chunk's length is beyond numbers",
            "Transfer-Encoding: chunked\r\n",
            "fffffffffffffffff\r\nabc\r\n0\r\n\r\n",
        ),
        ("a chunk is longer than it says", "Transfer-Encoding: chunked\r\n", "2\r\nabc\r\n0\r\n\r\n"),
    ] {
        let answer = whole_answer(
            &site,
            format!("PUT /v1/keys/k HTTP/1.1\r\nHost: localhost\r\n{head}\r\n{body}{smuggled}").as_bytes(),
        );
        assert!(answer.starts_with("HTTP/1.1 400 ") && answer.contains("\"status\":400"), "{name}: {answer}");
        assert!(!answer.contains(" 201 ") && !answer.contains(" 204 "), "{name}: {answer}");
        site.resp().call("EXISTS smuggled k", ":0\r\n");
    }
    for codings in ["chunked", "gzip, chunked"] {
        let head = format!("Transfer-Encoding: chunked\r\nTransfer-Encoding: {codings}\r\n");
        let request =
            format!("PUT /v1/keys/k HTTP/1.1\r\nHost: localhost\r\n{head}\r\n1\r\nx\r\n0\r\n\r\n{smuggled}");
        let answer = whole_answer(&site, request.as_bytes());
        assert!(answer.starts_with("HTTP/1.1 501 ") && !answer.contains(" 201 "), "{codings}: {answer}");
        site.resp().call("EXISTS smuggled k", ":0\r\n");
    }
    // If a request has both a length and chunks, the chunks count and the connection closes (RFC 9112, 6.1), so that
    // nothing can hide after the body.
    for lengths in
        ["Content-Length: 5\r\nTransfer-Encoding: chunked", "Transfer-Encoding: chunked\r\nContent-Length: 5"]
    {
        let both =
            format!("PUT /v1/keys/k HTTP/1.1\r\nHost: localhost\r\n{lengths}\r\n\r\n3\r\nabc\r\n0\r\n\r\n");
        let answer = whole_answer(&site, format!("{both}{smuggled}").as_bytes());
        assert!(answer.contains("connection: close") && answer.matches("HTTP/1.1 ").count() == 1, "{answer}");
        site.resp().call("MGET k smuggled", "*2\r\n$3\r\nabc\r\n$-1\r\n");
    }
    for (name, text) in [
        ("no version", "GET /healthz\r\n\r\n"),
        ("another version", "GET /healthz HTTP/3.7\r\n\r\n"),
        ("a space in the path", "GET /v1/keys/a b HTTP/1.1\r\nHost: localhost\r\n\r\n"),
        ("RESP", "*1\r\n$4\r\nPING\r\n"),
        ("TLS", "\u{16}\u{3}\u{1}\u{2}\0\u{1}\0\r\n\r\n"),
        ("HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
    ] {
        let answer = whole_answer(&site, text.as_bytes());
        assert!(
            answer.starts_with("HTTP/1.1 400 ") || answer.starts_with("HTTP/1.1 505 ") || answer.is_empty(),
            "{name}: {answer}"
        );
    }
    assert_eq!(other.get("/healthz").status, 200, "others do not notice");
}

#[test]
fn invalid_requests_get_problem_documents() {
    let site = site(&["--workers", "1"]);
    let mut other = site.http();
    let json = "Host: localhost\r\nContent-Type: application/json\r\n";
    for (line, headers, body, status, words) in [
        ("GET /healthz HTTP/1.1", "", "", 400, "one Host"),
        ("GET /healthz HTTP/1.1", "Host: localhost\r\nHost: localhost\r\n", "", 400, "one Host"),
        ("GET /v1/keys/100% HTTP/1.1", "Host: localhost\r\n", "", 400, "the path"),
        ("GET /v1/keys/%zz HTTP/1.1", "Host: localhost\r\n", "", 400, "the path"),
        ("GET /v1/grep?pattern=%4 HTTP/1.1", "Host: localhost\r\n", "", 400, "the query"),
        ("GET /v1/nothing HTTP/1.1", "Host: localhost\r\n", "", 404, "Not Found"),
        ("PATCH /v1/keys/k HTTP/1.1", "Host: localhost\r\n", "", 405, "PUT"),
        ("POST /v1/commands HTTP/1.1", json, "[[\"GET\",", 400, "ends inside"),
        ("POST /v1/commands HTTP/1.1", json, "[{\"GET\":1}]", 400, "an argument has"),
        ("POST /v1/commands HTTP/1.1", json, "[[nope]]", 400, "command 1"),
        ("POST /v1/commands HTTP/1.1", json, "[[[\"GET\"]]]", 400, "command 1"),
        ("GET /v1/keys/v HTTP/1.1", "Host: localhost\r\nRange: bytes=9-\r\n", "", 416, "1 bytes"),
        ("GET /v1/keys/v HTTP/1.1", "Host: localhost\r\nIf-Match: x\r\n", "", 400, "if-match"),
        ("GET /v1/keys/v HTTP/1.1", "Host: localhost\r\nAuthorization: Digest x\r\n", "", 401, "Basic"),
        ("GET /v1/keys/v?db=x HTTP/1.1", "Host: localhost\r\n", "", 400, "`db`"),
    ] {
        site.resp().call("SET v 1", "+OK\r\n");
        let answer = answer_to(
            &site,
            format!("{line}\r\n{headers}Content-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len())
                .as_bytes(),
            false,
        );
        let (head, document) = answer.split_once("\r\n\r\n").expect("a head");
        assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{line}: {answer}");
        assert!(head.contains("content-type: application/problem+json"), "{line}: {answer}");
        for word in ["\"type\":", "\"title\":", &format!("\"status\":{status}"), "\"detail\":", words] {
            assert!(document.contains(word), "{line}: no {word} in {answer}");
        }
        assert_eq!(status == 405, head.contains("\r\nallow: "), "{line}: {answer}");
    }
    for (headers, status, words) in [
        ("Strand-TTL-Ms: 5\r\nStrand-TTL-Ms: keep\r\n", 400, "at most one Strand-TTL-Ms"),
        ("Strand-Type: string\r\nStrand-Type: string\r\n", 400, "at most one Strand-Type"),
        ("Content-Encoding: gzip\r\n", 415, "Content-Encoding is not supported"),
        ("Content-Encoding: identity, gzip\r\n", 415, "Content-Encoding is not supported"),
        ("Content-Encoding: identity\r\nContent-Encoding: br\r\n", 415, "Content-Encoding is not supported"),
        ("Content-Encoding: Identity\r\n", 204, ""),
    ] {
        let answer = other.ask("PUT /v1/keys/v", headers, b"1");
        assert_eq!(answer.status, status, "{headers}: {}", answer.text());
        assert!(answer.text().contains(words), "{headers}: {}", answer.text());
    }
    assert!(answer_to(&site, b"GET /healthz HTTP/1.0\r\n\r\n", false).starts_with("HTTP/1.0 200 "));
    assert_eq!(other.get("/healthz").status, 200, "others do not notice");
}

#[test]
fn heads_are_bounded() {
    let site = site(&["--workers", "1"]);
    let before = site.server.memory("VmRSS");
    let long = format!("GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: {}\r\n\r\n", "x".repeat(200_000));
    assert!(whole_answer(&site, long.as_bytes()).starts_with("HTTP/1.1 431 "));
    // The parser has one response for large heads and for lengths near 2^64.
    for (length, status) in [(u64::MAX, 431), (u64::MAX - 1, 431), (u64::MAX - 2, 413)] {
        let head = format!("PUT /v1/keys/k HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n");
        let answer = whole_answer(&site, head.as_bytes());
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{length}: {answer}");
        assert_eq!(status == 431, answer.contains("Content-Length is at most"), "{length}: {answer}");
    }
    let many: String = (0..200).map(|i| format!("X{i}: y\r\n")).collect();
    let many = format!("GET /healthz HTTP/1.1\r\nHost: localhost\r\n{many}\r\n");
    assert!(whole_answer(&site, many.as_bytes()).starts_with("HTTP/1.1 431 "));
    let path = format!("GET /v1/keys/{} HTTP/1.1\r\nHost: localhost\r\n\r\n", "x".repeat(200_000));
    let answer = whole_answer(&site, path.as_bytes());
    assert!(answer.starts_with("HTTP/1.1 414 ") || answer.starts_with("HTTP/1.1 431 "), "{answer}");
    // A head of 60 KB is within the limit.
    let key = "k".repeat(60_000);
    assert_eq!(site.http().get(&format!("/v1/keys/{key}")).status, 404);
    // Endless heads use no more memory than the limit.
    let mut held: Vec<TcpStream> =
        (0..50).map(|_| TcpStream::connect(site.address).expect("it listens")).collect();
    for stream in &mut held {
        stream.set_write_timeout(Some(Duration::from_secs(10))).expect("not zero");
        stream.write_all(format!("GET / HTTP/1.1\r\nX: {}", "x".repeat(50_000)).as_bytes()).expect("taken");
    }
    assert_eq!(site.http().get("/healthz").status, 200);
    let grown = site.server.memory("VmRSS").saturating_sub(before);
    assert!(grown < 50 * 4 * 64 * 1024 + (8 << 20), "{grown} bytes for 50 heads");
}

#[test]
fn a_body_over_the_limit_is_refused_before_it_is_read() {
    let site = site(&["--workers", "1", "--http-max-body", "1mb", "--proto-max-bulk-len", "1mb"]);
    for path in ["/v1/keys/k", "/v1/commands", "/v1/update"] {
        let method = if path.contains("keys") { "PUT" } else { "POST" };
        let mut http = site.http();
        http.send(
            format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1048577\r\n\r\n")
                .as_bytes(),
        );
        let answer = http.answer(false);
        assert_eq!((answer.status, answer.header("connection")), (413, "close"), "{path}");
        assert!(answer.text().contains("1048576"), "{}", answer.text());
        http.expect_end();
        // A client with Expect is refused before it sends the body.
        let mut polite = site.http();
        polite.send(
            format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 99999999999\r\n\r\n")
                .as_bytes(),
        );
        assert_eq!(polite.head().status, 413);
    }
    // A chunked body is read up to the limit.
    let mut http = site.http();
    http.send(b"PUT /v1/keys/k HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n");
    let mut writer = http.stream.try_clone().expect("a socket");
    let sender = std::thread::spawn(move || {
        let chunk = [b"10000\r\n".as_slice(), &[b'x'; 0x10000], b"\r\n"].concat();
        (0..40).try_for_each(|_| writer.write_all(&chunk))
    });
    assert_eq!(http.answer(false).status, 413);
    drop(http);
    let _ = sender.join().expect("no panic");
    site.resp().call("DBSIZE", ":0\r\n");
    assert_eq!(site.http().ask("PUT /v1/keys/k", "", &vec![b'x'; 1 << 20]).status, 201);
}

#[test]
fn a_client_that_leaves_or_does_not_read_costs_little() {
    let site = site(&["--workers", "1"]);
    let mut http = site.http();
    assert_eq!(http.ask("PUT /v1/keys/v", "", &vec![b'v'; 100_000]).status, 201);
    let before = site.server.memory("VmRSS");
    let gets = request("GET /v1/keys/v", "", b"").repeat(2000);
    let mut idle = TcpStream::connect(site.address).expect("it listens");
    idle.set_write_timeout(Some(Duration::from_secs(2))).expect("not zero");
    // Send requests for 200 MB of responses, and never read the responses.
    let _ = idle.write_all(&gets);
    for _ in 0..200 {
        assert_eq!(http.get("/v1/keys/none").status, 404);
    }
    let grown = site.server.memory("VmRSS").saturating_sub(before);
    assert!(grown < 32 << 20, "{grown} bytes");
    // Connections that end in the middle of a request are removed.
    for text in [
        &b"GET /v1/ke"[..],
        b"PUT /v1/keys/v HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\nabc",
        b"POST /v1/commands HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n[[\"PI",
        b"POST /v1/update HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/xml\r\nContent-Length: 99\r\n\r\n<add><doc>",
    ] {
        let mut stream = TcpStream::connect(site.address).expect("it listens");
        stream.write_all(text).expect("taken");
    }
    drop(idle);
    drop(http);
    comes_true(|| site.resp().bulk("INFO clients").contains("connected_clients:1\r\n"));
    site.resp().call("STRLEN v", ":100000\r\n");
}
