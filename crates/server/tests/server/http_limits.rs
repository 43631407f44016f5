//! The memory limits of one HTTP request, and of one unauthenticated client.

use crate::harness::comes_true;
use crate::http::{Http, Site, request, site};
use crate::http_writes::memory_of;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

const XML: &str = "Content-Type: text/xml\r\n";
/// Maximum wait of a test.
const WITHIN: Duration = Duration::from_secs(20);

/// Sends an update with a document that repeats one empty field `repeats` times.
fn repeated(http: &mut Http, query: &str, repeats: usize) -> (u16, String) {
    let fields = "<field name=\"a\"/>".repeat(repeats);
    let xml = format!("<add><doc><field name=\"id\">1</field>{fields}</doc></add>");
    // Like curl, send the body when the server asks for it.
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
    // 14,000 repeats of 60 KB would be 840 MB, from a body of 240 KB. The server does not even ask for the body.
    let long = format!("?separator={}", "s".repeat(60_000));
    let (status, text, grown) = peak(&|http| repeated(http, &long, 14_000));
    assert_eq!(status, 400, "{text}");
    assert!(text.contains("separator") && text.contains("256"), "{text}");
    assert!(grown < 16 << 20, "{grown} bytes");
    // The document has more fields than a document may have, with any number of names.
    let longest = format!("?separator={}", "s".repeat(256));
    let (status, text, grown) = peak(&|http| repeated(http, &longest, 66_000));
    assert_eq!(status, 413, "{text}");
    assert!(grown < 64 << 20, "{grown} bytes");
    // Fields within the limits are joined.
    let (status, text, _) = peak(&|http| repeated(http, &longest, 60_000));
    assert_eq!(status, 200, "{text}");
    site.resp().call("HSTRLEN doc:1 a", &format!(":{}\r\n", 59_999 * 256));
    // The limit also holds for the prefix of an id.
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
    // Many texts separated by comments belong to one field.
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
    // The memory may have the node's text and its copies, but not 8 bytes per line.
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
fn a_user_without_write_rights_is_refused_before_the_body() {
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
    // A user with some of the rights is refused only the changes that are not allowed.
    let bob = format!("{XML}Authorization: Bearer bob:pw\r\n");
    let set = b"<add><doc><field name=\"id\">1</field><field name=\"t\" update=\"set\">x</field></doc></add>";
    assert_eq!(site.http().ask("POST /v1/update", &bob, set).status, 200);
    let put = site.http().ask("PUT /v1/keys/k", "Authorization: Bearer bob:pw\r\n", b"v");
    assert_eq!(put.status, 201);
}

/// Sends until the socket takes nothing for two seconds. Returns the number of bytes it took.
fn flood(stream: &mut TcpStream, bytes: &[u8], times: usize) -> usize {
    stream.set_write_timeout(Some(Duration::from_secs(2))).expect("not zero");
    (0..times).take_while(|_| stream.write_all(bytes).is_ok()).count() * bytes.len()
}

#[test]
fn unread_replies_stop_the_reading_of_requests() {
    let site = site(&["--workers", "1"]);
    assert_eq!(site.http().get("/healthz").status, 200);
    for line in ["HEAD /healthz", "DELETE /v1/keys/none"] {
        let before = site.server.memory("VmRSS");
        let mut deaf = TcpStream::connect(site.address).expect("it listens");
        let requests = request(line, "", b"").repeat(1000);
        let sent = flood(&mut deaf, &requests, 1000);
        assert!(sent < requests.len() * 1000, "{line}: {sent} bytes were read");
        assert_eq!(site.http().get("/healthz").status, 200);
        let grown = site.server.memory("VmRSS").saturating_sub(before);
        assert!(grown < 4 << 20, "{line}: {grown} bytes");
        // A client that begins to read after all gets one answer for each request that was accepted.
        deaf.set_nonblocking(false).expect("a socket");
        deaf.set_read_timeout(Some(Duration::from_millis(1))).expect("not zero");
        let (mut buffer, mut read, began) = (vec![0; 1 << 20], 0, Instant::now());
        while read < 1 << 20 && began.elapsed() < WITHIN {
            match deaf.read(&mut buffer) {
                Ok(n) => read += n,
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                Err(e) => panic!("{line}: {e}"),
            }
        }
        assert!(read >= 1 << 20, "{line}: the answers go on ({read} bytes)");
    }
}

#[test]
fn unauthenticated_clients_get_little_memory() {
    const CLIENTS: usize = 128;
    let site = site(&["--workers", "1", "--requirepass", "sesame"]);
    assert_eq!(site.http().get("/healthz").status, 200);
    let before = site.server.memory("VmRSS");
    for line in ["GET /v1/openapi.json", "GET /v1/keys/k"] {
        let requests = request(line, "", b"").repeat(2000);
        let held: Vec<TcpStream> = (0..CLIENTS)
            .map(|_| {
                let mut deaf = TcpStream::connect(site.address).expect("it listens");
                // Send as much as the socket takes at once.
                deaf.set_nonblocking(true).expect("a socket");
                for _ in 0..100 {
                    let _ = deaf.write(&requests);
                }
                deaf
            })
            .collect();
        assert_eq!(site.http().get("/healthz").status, 200);
        let grown = site.server.memory("VmRSS").saturating_sub(before);
        // Meanwhile the history of figures also grows, by 8 MB at most.
        assert!(
            grown < CLIENTS as u64 * 120 * 1024 + (8 << 20),
            "{line}: {grown} bytes for {CLIENTS} clients"
        );
        drop(held);
    }
}

/// Repeats `send` until the server closes the connection. Returns the answers.
fn until_the_end(site: &Site, mut send: impl FnMut(&mut TcpStream) -> std::io::Result<()>) -> String {
    let mut stream = TcpStream::connect(site.address).expect("it listens");
    stream.set_read_timeout(Some(Duration::from_millis(100))).expect("not zero");
    let (mut answers, mut buffer, began) = (Vec::new(), [0; 4096], Instant::now());
    while began.elapsed() < WITHIN {
        // The time that a read waits sets the pace of sending.
        match stream.read(&mut buffer) {
            Ok(n @ 1..) => answers.extend_from_slice(&buffer[..n]),
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            _ => return String::from_utf8_lossy(&answers).into_owned(),
        }
        let _ = send(&mut stream);
    }
    panic!("the connection stays open after {}", String::from_utf8_lossy(&answers));
}

#[test]
fn a_head_and_a_login_have_a_deadline() {
    let site = site(&["--workers", "1", "--requirepass", "sesame", "--login-timeout", "1"]);
    let known = "Authorization: Bearer sesame\r\n";
    let mut entered = site.http();
    assert_eq!(entered.ask("GET /v1/keys/none", known, b"").status, 404);
    // The head arrives byte by byte.
    let mut head = b"GET /healthz HTTP/1.1\r\nX: ".iter().chain(std::iter::repeat(&b'x'));
    let trickled = until_the_end(&site, |stream| stream.write_all(&[*head.next().expect("endless")]));
    assert_eq!(trickled, "");
    // The client sends nothing at all.
    assert_eq!(until_the_end(&site, |_| Ok(())), "");
    // Requests that need no authentication are answered, but do not keep a connection open forever.
    let answers = until_the_end(&site, |stream| stream.write_all(&request("GET /healthz", "", b"")));
    assert!(
        answers.starts_with("HTTP/1.1 200 ") && answers.matches("HTTP/1.1 200 ").count() > 1,
        "{answers}"
    );
    // A body that arrives byte by byte does not keep a connection open either, if its request needs no
    // authentication.
    let mut first = true;
    let answers = until_the_end(&site, |stream| match std::mem::take(&mut first) {
        true => {
            stream.write_all(b"POST /v1/update HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9999\r\n\r\n")
        }
        false => stream.write_all(b"x"),
    });
    assert!(answers.starts_with("HTTP/1.1 401 "), "{answers}");
    // An authenticated client may be idle, but its next head has a time limit, too.
    assert_eq!(entered.ask("GET /v1/keys/none", known, b"").status, 404);
    entered.send(b"GET /v1/keys/none HTTP/1.1\r\nHost: localhost\r\nX: ");
    entered.stream.set_read_timeout(Some(Duration::from_millis(100))).expect("not zero");
    let ended = (0..200).any(|_| {
        let _ = entered.stream.write_all(b"x");
        match entered.stream.read(&mut [0]) {
            Err(e) => !matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
            Ok(n) => n == 0,
        }
    });
    assert!(ended, "the next head has a deadline too");
    // The body of an authenticated client has no time limit while bytes arrive.
    let mut slow = site.http();
    slow.send(
        format!("PUT /v1/keys/slow HTTP/1.1\r\nHost: localhost\r\n{known}Content-Length: 12\r\n\r\n")
            .as_bytes(),
    );
    for _ in 0..12 {
        std::thread::sleep(Duration::from_millis(200));
        slow.send(b"x");
    }
    assert_eq!(slow.answer(false).status, 201);
    // A long response has no time limit while the client reads, although the client has sent its next request.
    const LONG_BYTES: usize = 24 << 20;
    let mut reader = site.http();
    assert_eq!(reader.ask("PUT /v1/keys/long", known, &vec![b'x'; LONG_BYTES]).status, 201);
    reader.send(&request("GET /v1/keys/long", known, b""));
    let mut part = vec![0; 1 << 20];
    for step in 0..LONG_BYTES / part.len() {
        reader.stream.read_exact(&mut part).expect("the response goes on");
        if step == 0 {
            reader.send(&request("GET /v1/keys/slow", known, b""));
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    // The head of the first response, and the second response.
    let mut rest = Vec::new();
    while !rest.ends_with(b"xxxxxxxxxxxx") || !rest.windows(13).any(|window| window == b"HTTP/1.1 200 ") {
        let read = reader.stream.read(&mut part).expect("the response goes on");
        assert!(read > 0, "the connection ended after {} bytes more", rest.len());
        rest.extend_from_slice(&part[..read]);
    }
}

#[test]
fn a_value_over_the_query_limit_is_refused_before_the_body_is_read() {
    let site = site(&["--workers", "1", "--client-query-buffer-limit", "1mb"]);
    let mut http = site.http();
    http.send(b"PUT /v1/keys/k HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3000000\r\n\r\n");
    let answer = http.answer(false);
    assert_eq!((answer.status, answer.header("connection")), (413, "close"), "{}", answer.text());
    assert!(answer.text().contains("client-query-buffer-limit"), "{}", answer.text());
    http.expect_end();
    // The value that the response names is accepted, and one byte more is not.
    let text = answer.text();
    let limit = text.split("\"limit\":").nth(1).and_then(|rest| rest.split([',', '}']).next());
    let limit: usize = limit.and_then(|number| number.parse().ok()).expect("a limit");
    assert_eq!(site.http().ask("PUT /v1/keys/k", "", &vec![b'x'; limit]).status, 201);
    let mut http = site.http();
    http.send(
        format!("PUT /v1/keys/k HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n", limit + 1)
            .as_bytes(),
    );
    assert_eq!(http.answer(false).status, 413);
    site.resp().call("STRLEN k", &format!(":{limit}\r\n"));
}

#[test]
fn health_is_told_when_the_clients_are_at_their_limit() {
    let site = site(&["--workers", "1", "--maxclients", "1"]);
    let mut resp = site.resp();
    resp.call("PING", "+PONG\r\n");
    for (path, status) in [("/healthz", 200), ("/livez", 200), ("/readyz", 200), ("/v1/keys/k", 503)] {
        let mut http = site.http();
        let answer = http.get(path);
        assert_eq!((answer.status, answer.header("connection")), (status, "close"), "{path}");
        assert_eq!(status == 503, answer.text().contains("max number of clients"), "{}", answer.text());
        http.expect_end();
    }
    // The places are few. Clients that send nothing keep them for a short time only.
    let mut idle: Vec<Http> = (0..16).map(|_| site.http()).collect();
    let mut refused = 0;
    for http in &mut idle {
        let mut rest = Vec::new();
        http.stream.read_to_end(&mut rest).expect("the end of the stream");
        refused += usize::from(rest.starts_with(b"HTTP/1.1 503 "));
    }
    assert!((1..idle.len()).contains(&refused), "{refused}");
    comes_true(|| {
        let mut http = site.http();
        let _ = http.stream.write_all(&request("GET /healthz", "", b""));
        let mut start = [0; 12];
        http.stream.read_exact(&mut start).is_ok() && start == *b"HTTP/1.1 200"
    });
    assert!(resp.bulk("INFO clients").contains("connected_clients:1\r\n"));
}
