//! The HTTP door: keys, commands, authentication, order, memory and the life of a connection.

use crate::harness::{Client, REPLY_MS_MAX, Server, comes_true, command, numbered};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// The header line for a body of commands.
const JSON: &str = "Content-Type: application/json\r\n";

/// A server with HTTP, and its address.
pub struct Site {
    pub server: Server,
    pub address: SocketAddr,
}

/// Starts a server with HTTP. Another program may take the port first, so this tries a few times.
pub fn site(options: &[&str]) -> Site {
    for _ in 0..20 {
        let port = strand_testkit::process::free_port().expect("a free port").to_string();
        let address: SocketAddr = format!("127.0.0.1:{port}").parse().expect("an address");
        match Server::try_start(&[options, &["--http-port", &port]].concat()) {
            Ok(server) => return Site { server, address },
            Err(log) => assert!(log.contains("in use"), "the server did not start: {log}"),
        }
    }
    panic!("no free port");
}

/// A response to a request.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    head: String,
    pub body: Vec<u8>,
}

impl Answer {
    /// The value of a header. Empty when the header is missing.
    pub fn header(&self, name: &str) -> &str {
        let found = self.head.lines().skip(1).filter_map(|l| l.split_once(':'));
        found.into_iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map_or("", |(_, v)| v.trim())
    }
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// One HTTP connection.
pub struct Http {
    pub stream: TcpStream,
    input: Vec<u8>,
}

impl Site {
    pub fn http(&self) -> Http {
        let stream = TcpStream::connect(self.address).expect("HTTP is served");
        stream.set_nodelay(true).expect("a TCP socket");
        stream.set_read_timeout(Some(Duration::from_millis(REPLY_MS_MAX))).expect("not zero");
        stream.set_write_timeout(Some(Duration::from_millis(REPLY_MS_MAX))).expect("not zero");
        Http { stream, input: Vec::new() }
    }
    pub fn resp(&self) -> Client {
        self.server.connect()
    }
}

impl Http {
    pub fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("the server takes them");
    }
    /// Sends a request with these header lines (each with its line end) and this body, and reads the response.
    #[track_caller]
    pub fn ask(&mut self, line: &str, headers: &str, body: &[u8]) -> Answer {
        self.send(&request(line, headers, body));
        self.answer(line.starts_with("HEAD"))
    }
    #[track_caller]
    pub fn get(&mut self, path: &str) -> Answer {
        self.ask(&format!("GET {path}"), "", b"")
    }
    fn more(&mut self) -> usize {
        let mut more = [0; 64 * 1024];
        let n = match self.stream.read(&mut more) {
            Ok(n) => n,
            Err(e) if e.kind() == ErrorKind::ConnectionReset => 0,
            Err(e) => panic!("{e} after {:?}", String::from_utf8_lossy(&self.input)),
        };
        self.input.extend_from_slice(&more[..n]);
        n
    }
    /// Reads the next bytes, and returns them unparsed.
    #[track_caller]
    pub fn raw(&mut self) -> String {
        assert!(self.more() > 0, "the end");
        String::from_utf8_lossy(&std::mem::take(&mut self.input)).into_owned()
    }
    #[track_caller]
    fn line(&mut self) -> String {
        loop {
            if let Some(end) = self.input.windows(2).position(|w| w == b"\r\n") {
                let line = String::from_utf8_lossy(&self.input[..end]).into_owned();
                self.input.drain(..end + 2);
                return line;
            }
            assert!(self.more() > 0, "the end after {:?}", String::from_utf8_lossy(&self.input));
        }
    }
    #[track_caller]
    fn bytes(&mut self, n: usize) -> Vec<u8> {
        while self.input.len() < n {
            assert!(self.more() > 0, "the end after {} of {n} bytes", self.input.len());
        }
        self.input.drain(..n).collect()
    }
    /// Reads one chunk of a body. Empty at the end.
    #[track_caller]
    pub fn chunk(&mut self) -> Vec<u8> {
        let n = usize::from_str_radix(&self.line(), 16).expect("a chunk's length");
        let chunk = self.bytes(n);
        assert_eq!(self.line(), "");
        chunk
    }
    /// Reads the head of a response.
    #[track_caller]
    pub fn head(&mut self) -> Answer {
        let mut head = String::new();
        loop {
            let line = self.line();
            if line.is_empty() {
                break;
            }
            head += &format!("{line}\n");
        }
        let status = head.split(' ').nth(1).and_then(|s| s.parse().ok()).expect("a status line");
        Answer { status, head, body: Vec::new() }
    }
    /// Reads a response. Skips informational responses.
    #[track_caller]
    pub fn answer(&mut self, to_head: bool) -> Answer {
        let mut answer = self.head();
        while answer.status < 200 {
            answer = self.head();
        }
        if to_head || matches!(answer.status, 204 | 304) {
            return answer;
        }
        self.rest_of(&mut answer);
        answer
    }
    /// Reads the body of a response after its head.
    #[track_caller]
    pub fn rest_of(&mut self, answer: &mut Answer) {
        if answer.header("transfer-encoding") != "chunked" {
            let len = answer.header("content-length").parse().expect("a length");
            answer.body = self.bytes(len);
            return;
        }
        loop {
            let chunk = self.chunk();
            if chunk.is_empty() {
                return;
            }
            answer.body.extend(chunk);
        }
    }
    /// Checks that the stream ends here.
    #[track_caller]
    pub fn expect_end(&mut self) {
        assert!(self.input.is_empty() && self.more() == 0, "{}", String::from_utf8_lossy(&self.input));
    }
}

/// The bytes of a request.
pub fn request(line: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let length = match body.is_empty() && !line.starts_with('P') {
        true => String::new(),
        false => format!("Content-Length: {}\r\n", body.len()),
    };
    [format!("{line} HTTP/1.1\r\nHost: localhost\r\n{length}{headers}\r\n").as_bytes(), body].concat()
}

#[test]
fn a_value_is_written_read_described_and_removed() {
    let site = site(&["--workers", "1"]);
    let mut http = site.http();
    let value: Vec<u8> = (0..=255u8).cycle().take(5000).collect();
    let put = http.ask("PUT /v1/keys/a%20%2Fb%00%ff", "", &value);
    assert_eq!((put.status, put.header("content-length")), (201, "0"));
    let got = http.get("/v1/keys/a%20/b%00%FF");
    assert_eq!((got.status, got.header("strand-type"), got.header("strand-ttl-ms")), (200, "string", ""));
    assert_eq!((got.header("etag"), got.body == value), (put.header("etag"), true));
    let head = http.ask("HEAD /v1/keys/a%20/b%00%ff", "Range: bytes=10-19\r\n", b"");
    assert_eq!(
        (head.status, head.header("content-length"), head.header("etag")),
        (200, "5000", got.header("etag"))
    );
    let tag = format!("If-None-Match: \"x\", {}\r\n", got.header("etag"));
    assert_eq!(http.ask("GET /v1/keys/a%20/b%00%ff", &tag, b"").status, 304);
    assert_eq!(http.ask("GET /v1/keys/a%20/b%00%ff", "If-Match: \"x\"\r\n", b"").status, 412);
    let part = http.ask("GET /v1/keys/a%20/b%00%ff", "Range: bytes=10-19\r\n", b"");
    assert_eq!((part.status, part.header("content-range")), (206, "bytes 10-19/5000"));
    assert_eq!(part.body, &value[10..20]);
    let beyond = http.ask("GET /v1/keys/a%20/b%00%ff", "Range: bytes=5000-\r\n", b"");
    assert_eq!((beyond.status, beyond.header("content-range")), (416, "bytes */5000"));
    assert_eq!(beyond.header("content-type"), "application/problem+json");
    assert_eq!(http.ask("DELETE /v1/keys/a%20/b%00%ff", "", b"").status, 204);
    assert_eq!(http.ask("DELETE /v1/keys/a%20/b%00%ff", "", b"").status, 404);
    assert_eq!(http.get("/v1/keys/a%20/b%00%ff").status, 404);
    assert_eq!(http.ask("GET /v1/keys/x", "If-Match: *\r\n", b"").status, 412);
}

#[test]
fn a_put_sets_the_ttl_and_a_condition() {
    let site = site(&["--workers", "1"]);
    let (mut http, mut resp) = (site.http(), site.resp());
    assert_eq!(http.ask("PUT /v1/keys/k", "Strand-TTL-Ms: 500000\r\n", b"v").status, 201);
    let left: u64 = http.get("/v1/keys/k").header("strand-ttl-ms").parse().expect("a number");
    assert!((400_000..=500_000).contains(&left));
    assert_eq!(http.ask("PUT /v1/keys/k", "Strand-TTL-Ms: keep\r\n", b"w").status, 204);
    assert_ne!(http.get("/v1/keys/k").header("strand-ttl-ms"), "");
    assert_eq!(http.ask("PUT /v1/keys/k", "", b"w").status, 204);
    resp.call("PTTL k", ":-1\r\n");
    assert_eq!(http.ask("PUT /v1/keys/k", "If-None-Match: *\r\n", b"x").status, 412);
    assert_eq!(http.ask("PUT /v1/keys/new", "If-Match: *\r\n", b"x").status, 412);
    assert_eq!(http.ask("PUT /v1/keys/k", "If-Match: *\r\n", b"x").status, 204);
    assert_eq!(http.ask("PUT /v1/keys/new", "If-None-Match: *\r\n", b"x").status, 201);
    assert_eq!(http.ask("PUT /v1/keys/k", "If-Match: \"tag\"\r\n", b"y").status, 412);
    assert_eq!(http.ask("DELETE /v1/keys/none", "If-Match: *\r\n", b"").status, 412);
    resp.call("MGET k new", "*2\r\n$1\r\nx\r\n$1\r\nx\r\n");
    for bad in ["0", "-1", "1.5", "soon", ""] {
        assert_eq!(
            http.ask("PUT /v1/keys/k", &format!("Strand-TTL-Ms: {bad}\r\n"), b"").status,
            400,
            "{bad}"
        );
    }
    // An empty value is a value, and a body of unknown length is accepted, too.
    assert_eq!(http.ask("PUT /v1/keys/empty", "", b"").status, 201);
    resp.call("STRLEN empty", ":0\r\n");
    http.send(
        b"PUT /v1/keys/parts HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
    );
    http.send(b"2;x=y\r\nde\r\n0\r\nTrailer: t\r\n\r\n");
    assert_eq!(http.answer(false).status, 201);
    resp.call("GET parts", "$5\r\nabcde\r\n");
    assert_eq!(http.ask("PUT /v1/keys/k?db=3", "", b"three").status, 201);
    assert_eq!(http.get("/v1/keys/k?db=3").text(), "three");
    assert_eq!(http.get("/v1/keys/k").text(), "x");
    assert_eq!(http.get("/v1/keys/k?db=99").status, 400);
}

#[test]
fn hashes_are_json_and_bytes_survive() {
    let site = site(&["--workers", "1"]);
    let (mut http, mut resp) = (site.http(), site.resp());
    let json = r#"{"a":"1","base64:/wA=":"base64:YmFzZTY0Og==","n":2.5}"#;
    assert_eq!(
        http.ask("PUT /v1/keys/h", "Strand-Type: hash\r\nStrand-TTL-Ms: 90000\r\n", json.as_bytes()).status,
        201
    );
    resp.send(b"*3\r\n$4\r\nHGET\r\n$1\r\nh\r\n$2\r\n\xff\x00\r\n");
    resp.expect(b"$7\r\nbase64:\r\n");
    let got = http.get("/v1/keys/h");
    assert_eq!((got.header("strand-type"), got.header("content-type")), ("hash", "application/json"));
    assert_ne!(got.header("strand-ttl-ms"), "");
    assert_eq!(got.text(), r#"{"a":"1","base64:/wA=":"base64:YmFzZTY0Og==","n":"2.5"}"#);
    assert_eq!(http.ask("PUT /v1/keys/h", "Strand-Type: hash\r\n", br#"{"only":"this"}"#).status, 204);
    assert_eq!(http.get("/v1/keys/h").text(), r#"{"only":"this"}"#);
    for bad in ["{}", "[]", "{\"a\":null}", "{\"a\"", "{\"base64:!\":\"x\"}"] {
        let answer = http.ask("PUT /v1/keys/h", "Strand-Type: hash\r\n", bad.as_bytes());
        assert_eq!(answer.status, 400, "{bad}");
    }
    assert_eq!(http.ask("HEAD /v1/keys/h", "", b"").status, 200);
    // Many fields are sent while they are read, and a large value arrives completely.
    for i in 0..2000 {
        resp.send(&command(&format!("HSET many field:{i} value:{i}")));
    }
    resp.expect(&b":1\r\n".repeat(2000));
    let long = "\u{e9}\"".repeat(100_000);
    assert_eq!(http.ask("PUT /v1/keys/v", "", long.as_bytes()).status, 201);
    resp.send(
        format!("*4\r\n$4\r\nHSET\r\n$4\r\nmany\r\n$4\r\nlong\r\n${}\r\n{long}\r\n", long.len()).as_bytes(),
    );
    resp.expect(b":1\r\n");
    let text = http.get("/v1/keys/many").text();
    assert!(text.ends_with('}') && text.contains(r#""field:1999":"value:1999""#));
    assert!(text.contains(&"\u{e9}\\\"".repeat(100_000)));
}

#[test]
fn pipelined_requests_are_answered_in_order_however_they_come() {
    let site = site(&["--workers", "1"]);
    let mut all = Vec::new();
    for i in 0..100 {
        all.extend(request(&format!("PUT /v1/keys/p{i}"), "", format!("value {i}").as_bytes()));
        all.extend(request(&format!("GET /v1/keys/p{i}"), "", b""));
        all.extend(request("GET /healthz", "", b""));
        all.extend(request(&format!("HEAD /v1/keys/p{i}"), "", b""));
        all.extend(request(&format!("DELETE /v1/keys/p{i}"), "", b""));
    }
    for piece in [all.len(), 1000, 7] {
        let mut http = site.http();
        let mut writer = http.stream.try_clone().expect("a socket");
        let bytes = all.clone();
        let sender =
            std::thread::spawn(move || bytes.chunks(piece).for_each(|p| writer.write_all(p).expect("taken")));
        for i in 0..100 {
            assert_eq!(http.answer(false).status, 201);
            assert_eq!(http.answer(false).text(), format!("value {i}"));
            assert_eq!(http.answer(false).text(), "ok\n");
            assert_eq!(http.answer(true).status, 200);
            assert_eq!(http.answer(false).status, 204);
        }
        sender.join().expect("all was sent");
    }
    // A connection of HTTP/1.0 closes, unless the client asks that it stays open.
    let mut http = site.http();
    http.send(b"GET /healthz HTTP/1.0\r\n\r\n");
    assert_eq!(http.answer(false).text(), "ok\n");
    http.expect_end();
}

#[test]
fn commands_and_their_results_are_streamed() {
    let site = site(&["--workers", "1"]);
    let mut http = site.http();
    let array = r#"[["SET","k","v"],["GET","k"],["INCR","k"],["PING",7],["GET","base64:/w=="]]"#;
    let answer = http.ask("POST /v1/commands", JSON, array.as_bytes());
    let error = "ERR value is not an integer or out of range";
    assert_eq!(
        answer.text(),
        format!(
            r#"[{{"result":"OK"}},{{"result":"v"}},{{"error":"{error}"}},{{"result":"7"}},{{"result":null}}]"#
        )
    );
    assert_eq!(http.ask("POST /v1/commands", JSON, b"[]").text(), "[]");
    // Send many commands: more than may be in progress at once, with more results than a socket buffers.
    let n = 20_000;
    let lines: String = (0..n).map(|i| format!("[\"ECHO\",\"{i:0>100}\"]\n")).collect();
    let mut writer = http.stream.try_clone().expect("a socket");
    let bytes = request("POST /v1/commands", "Content-Type: application/x-ndjson\r\n", lines.as_bytes());
    let sender = std::thread::spawn(move || writer.write_all(&bytes).expect("taken"));
    let answer = http.answer(false);
    sender.join().expect("all was sent");
    assert_eq!(answer.header("content-type"), "application/x-ndjson");
    let expected: String = (0..n).map(|i| format!("{{\"result\":\"{i:0>100}\"}}\n")).collect();
    assert!(answer.text() == expected);
    // A client that waits for a result before it continues gets the result.
    http.send(b"POST /v1/commands HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n");
    for i in 0..3 {
        let line = format!("[\"ECHO\",{i}]");
        http.send(format!("{:x}\r\n{line}\r\n", line.len()).as_bytes());
        if i == 0 {
            assert_eq!(http.head().status, 200);
        }
        assert_eq!(http.chunk(), format!("{{\"result\":\"{i}\"}}\n").as_bytes());
    }
    // A broken body gets an error, after the results of the commands before it.
    http.send(b"3\r\n{}x\r\n0\r\n\r\n");
    let end = String::from_utf8(http.chunk()).expect("text");
    assert!(end.starts_with("{\"problem\":{") && end.contains("\"status\":400"), "{end}");
    assert!(http.chunk().is_empty());
    for (bad, status) in [("", 400), ("{}", 400), ("[[1,", 200), ("[[]]", 400), ("[[\"RESET\"]]", 200)] {
        let answer = http.ask("POST /v1/commands", JSON, bad.as_bytes());
        assert!(answer.status == status || (status == 200 && answer.status == 400), "{bad}: {answer:?}");
        assert!(answer.status == 400 || answer.text().contains("\"error\""), "{bad}: {}", answer.text());
    }
    assert_eq!(http.get("/v1/keys/k").text(), "v", "the connection goes on");
}

#[test]
fn credentials_are_checked_at_each_request() {
    let site = site(&["--workers", "1", "--requirepass", "sesame"]);
    let mut http = site.http();
    assert_eq!(http.get("/healthz").status, 200);
    let refused = http.get("/v1/keys/k");
    assert_eq!((refused.status, refused.header("content-type")), (401, "application/problem+json"));
    assert!(refused.header("www-authenticate").contains("Basic"), "{refused:?}");
    // Log in as default:sesame, then without the name of the user.
    for good in ["Basic ZGVmYXVsdDpzZXNhbWU=", "Basic OnNlc2FtZQ==", "Bearer sesame", "bearer default:sesame"]
    {
        let header = format!("Authorization: {good}\r\n");
        assert_eq!(http.ask("GET /v1/keys/k", &header, b"").status, 404, "{good}");
        assert_eq!(http.get("/v1/keys/k").status, 401, "the next one has nothing of it");
    }
    for bad in ["Bearer wrong", "Basic ZGVmYXVsdDp3cm9uZw==", "Bearer nobody:sesame", "Digest x", "Basic !"] {
        let header = format!("Authorization: {bad}\r\n");
        assert_eq!(http.ask("PUT /v1/keys/k", &header, b"v").status, 401, "{bad}");
        assert_eq!(http.get("/metrics").status, 401);
    }
    let header = "Authorization: Bearer sesame\r\n";
    assert_eq!(http.ask("PUT /v1/keys/k", header, b"v").status, 201);
    assert_eq!(http.ask("GET /v1/keys/k", header, b"").text(), "v");
    let hello = http.ask(
        "POST /v1/commands",
        &format!("{JSON}{header}"),
        br#"[["AUTH","x"],["CLIENT","REPLY","OFF"],["GET","k"]]"#,
    );
    assert!(hello.text().ends_with("{\"result\":\"v\"}]"), "{}", hello.text());
    // A password that is no longer valid does not help on an open connection.
    let mut resp = site.resp();
    resp.call("AUTH sesame", "+OK\r\n");
    resp.call("CONFIG SET requirepass other", "+OK\r\n");
    assert_eq!(http.ask("GET /v1/keys/k", header, b"").status, 401);
}

#[test]
fn large_values_are_not_copied() {
    const BYTES: usize = 64 << 20;
    let site = site(&["--workers", "1"]);
    let mut http = site.http();
    assert_eq!(http.ask("PUT /v1/keys/warm", "", &vec![1; 1 << 20]).status, 201);
    let value = numbered(BYTES);
    let before = site.server.memory("VmRSS");
    let put = http.ask("PUT /v1/keys/large", "", &value);
    assert_eq!(put.status, 201);
    let grown = site.server.memory("VmHWM") - before;
    assert!(grown < BYTES as u64 * 12 / 10, "{grown} bytes for a value of {BYTES}");
    assert!(http.get("/v1/keys/large").body == value);
    // Four clients that do not read their responses share the value, which is not copied for them.
    let mut idle: Vec<Http> = (0..4).map(|_| site.http()).collect();
    idle.iter_mut().for_each(|h| h.send(&request("GET /v1/keys/large", "", b"")));
    // When a head arrives, the server has run this client's GET, which therefore came before the PUT below.
    let mut heads: Vec<Answer> = idle.iter_mut().map(Http::head).collect();
    assert_eq!(http.ask("GET /v1/keys/large", "Range: bytes=-5\r\n", b"").body, value[BYTES - 5..]);
    let grown = site.server.memory("VmHWM") - before;
    assert!(grown < BYTES as u64 * 13 / 10, "{grown} bytes for a value of {BYTES} and its readers");
    // A client that reads on gets the whole value, even after the value was overwritten.
    assert_eq!(http.ask("PUT /v1/keys/large", "", b"other").status, 204);
    idle.remove(0).rest_of(&mut heads[0]);
    assert!(heads[0].body == value, "{} bytes", heads[0].body.len());
    // An incomplete body writes nothing.
    let mut half = site.http();
    half.send(b"PUT /v1/keys/large HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\nabc");
    drop(half);
    comes_true(|| site.resp().bulk("INFO clients").contains("connected_clients:5\r\n"));
    assert_eq!(http.get("/v1/keys/large").text(), "other");
}

#[test]
fn a_connection_is_a_client_like_any_other() {
    let mut site = site(&["--workers", "1", "--maxclients", "3"]);
    let (mut http, mut resp) = (site.http(), site.resp());
    assert_eq!(http.ask("PUT /v1/keys/k", "", b"v").status, 201);
    let port = site.address.port();
    let list = resp.bulk("CLIENT LIST");
    let row =
        list.lines().find(|l| l.contains(&format!("laddr=127.0.0.1:{port} "))).expect("it is in the list");
    assert!(row.contains("cmd=set ") && row.contains("resp=3"), "{row}");
    let mut third = site.http();
    assert_eq!(third.get("/healthz").status, 200);
    let mut fourth = site.http();
    let refused = fourth.get("/v1/keys/k");
    assert_eq!((refused.status, refused.header("connection")), (503, "close"));
    assert!(refused.text().contains("max number of clients"), "{}", refused.text());
    drop(third);
    let address = http.stream.local_addr().expect("a socket");
    resp.call(&format!("CLIENT KILL {address}"), "+OK\r\n");
    http.expect_end();
    comes_true(|| {
        // A connection may be refused before it sends a request, because the place of the other is not free yet.
        let mut again = site.http();
        let _ = again.stream.write_all(&request("GET /v1/keys/k", "", b""));
        let mut start = [0; 15];
        again.stream.read_exact(&mut start).is_ok() && start == *b"HTTP/1.1 200 OK"
    });
    comes_true(|| resp.bulk("INFO clients").contains("connected_clients:1\r\n"));
    // A stopping server answers requests in progress and closes idle connections.
    let (mut idle, mut busy) = (site.http(), site.http());
    assert_eq!(idle.get("/healthz").status, 200);
    busy.send(
        b"POST /v1/commands HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
          Content-Length: 40\r\n\r\n[[\"DEBUG\",\"SLEEP\",0.3],",
    );
    let mut last = busy.head();
    drop(resp);
    site.server.signal(rustix::process::Signal::TERM);
    idle.expect_end();
    busy.send(b"[\"GET\",\"k\"]]     ");
    busy.rest_of(&mut last);
    assert!(last.status == 200 && last.text().ends_with("{\"result\":\"v\"}]"), "{}", last.text());
    busy.expect_end();
    assert!(site.server.end().success());
}

#[test]
fn an_idle_connection_is_closed_and_costs_nothing() {
    let site = site(&["--workers", "1", "--http-keepalive", "1"]);
    let mut idle = site.http();
    assert_eq!(idle.get("/healthz").status, 200);
    let mut half = site.http();
    half.send(b"GET /healthz HTTP/1.1\r\nHo");
    idle.expect_end();
    half.expect_end();
    drop(site);
    let site = self::site(&["--workers", "1"]);
    let mut held: Vec<Http> = (0..50).map(|_| site.http()).collect();
    for http in &mut held {
        assert_eq!(http.get("/v1/keys/none").status, 404);
        http.send(b"PUT /v1/keys/k HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\nabc");
    }
    site.server.costs_nothing();
}

#[test]
fn a_slow_command_holds_up_its_own_connection_only() {
    let site = site(&["--workers", "1", "--enable-debug-command", "local"]);
    let (mut slow, mut quick) = (site.http(), site.http());
    slow.send(&request("POST /v1/commands", JSON, br#"[["DEBUG","SLEEP",0.4],["ECHO","late"]]"#));
    slow.send(&request("GET /healthz", "", b""));
    for _ in 0..100 {
        assert_eq!(quick.get("/v1/keys/none").status, 404);
    }
    assert_eq!(slow.answer(false).text(), r#"[{"result":"OK"},{"result":"late"}]"#);
    assert_eq!(slow.answer(false).text(), "ok\n");
}

#[test]
fn search_grep_import_and_metrics() {
    let site = site(&["--workers", "1"]);
    let (mut http, mut resp) = (site.http(), site.resp());
    resp.call("FT.CREATE books ON HASH PREFIX 1 book: SCHEMA title TEXT year NUMERIC SORTABLE", "+OK\r\n");
    for i in 0..30 {
        resp.call(&format!("HSET book:{i:02} title number-{i} year {}", 1990 + i), ":2\r\n");
    }
    let page = http.get("/v1/search/books?q=number&limit=2&fields=title&sortby=year&desc&x").text();
    assert_eq!(
        page,
        concat!(
            r#"{"total":30,"documents":[{"id":"book:29","fields":{"title":"number-29"}},"#,
            r#"{"id":"book:28","fields":{"title":"number-28"}}],"#,
            r#""next":"/v1/search/books?q=number&limit=2&fields=title&sortby=year&desc&x&offset=2"}"#
        )
    );
    let next = http.get("/v1/search/books?q=number&limit=2&fields=title&sortby=year&desc&x&offset=28").text();
    assert!(next.contains("book:01") && next.contains("book:00") && !next.contains("next"), "{next}");
    assert_eq!(http.get("/v1/search/none?q=x").status, 404);
    for bad in ["", "?q=x&limit=-1", "?q=x&limit=x", "?q=x&desc=maybe&sortby=year", "?q=%ff", "?q=((("] {
        assert_eq!(http.get(&format!("/v1/search/books{bad}")).status, 400, "{bad}");
    }
    let keys = http.get("/v1/grep?pattern=%5Ebook:0%5B0-1%5D&in=keys").text();
    assert!(
        keys.contains(r#"{"key":"book:00"}"#) && keys.contains("book:01") && !keys.contains("book:02"),
        "{keys}"
    );
    let lines = http.get("/v1/grep?pattern=NUMBER-7&nocase&lines&prefix=book:").text();
    assert_eq!(lines, r#"{"matches":[{"key":"book:07","field":"title","line":"number-7"}]}"#);
    assert_eq!(http.get("/v1/grep?pattern=(").status, 400);
    assert_eq!(http.get("/v1/grep").status, 400);
    resp.call("IMPORT.VERSION SET mail . c", "+OK\r\n");
    resp.call("IMPORT.VERSION SET mail a/b c", "+OK\r\n");
    resp.call("IMPORT.VERSION SET mail a/b/ c", "+OK\r\n");
    assert_eq!(
        http.get("/v1/import").text(),
        r#"{"datasets":[{"name":"mail","containers":2,"interrupted":1}]}"#
    );
    // The status of an import lasts as long as its connection.
    resp.call("IMPORT.VERSION REPORT mail done 5", ":0\r\n");
    resp.call("IMPORT.STATUS mail", "*0\r\n");
    resp.call("IMPORT.VERSION HOLD mail", ":1\r\n");
    resp.call("IMPORT.VERSION REPORT mail done 5 path 7", ":1\r\n");
    resp.call("IMPORT.VERSION REPORT mail done 5 path", "-ERR syntax error\r\n");
    let text = http.get("/v1/import").text();
    let told = text.split_once(r#""interrupted":1,"running":{"client":"#).expect(&text).1;
    assert!(told.ends_with(r#","done":5,"path":"7"}}]}"#), "{text}");
    let metrics = http.get("/metrics");
    assert_eq!(metrics.header("content-type"), "text/plain; version=0.0.4; charset=utf-8");
    for line in [
        "strand_db_keys{db=\"0\"} 30\n",
        "strand_commands_total{command=\"hset\"} 30\n",
        "strand_used_memory ",
    ] {
        assert!(metrics.text().contains(line), "{line} in {}", metrics.text());
    }
    let description = http.get("/v1/openapi.json");
    assert!(description.status == 200 && description.text().contains("\"/v1/keys/{key}\""));
    for (line, status) in
        [("GET /v1", 404), ("GET /v1/key/x", 404), ("POST /v1/keys/x", 405), ("PATCH /metrics", 405)]
    {
        let answer = http.ask(line, "", b"");
        assert_eq!((answer.status, answer.header("allow").is_empty()), (status, status == 404), "{line}");
    }
}

#[test]
fn requests_of_pages_of_other_sites_are_refused() {
    let site = site(&["--workers", "1"]);
    let mut http = site.http();
    let flush = br#"[["SET","k","v"]]"#;
    for headers in ["", "Content-Type: text/plain\r\n", "Content-Type: application/x-www-form-urlencoded\r\n"]
    {
        assert_eq!(http.ask("POST /v1/commands", headers, flush).status, 415, "{headers}");
        assert_eq!(http.ask("POST /v1/update", headers, b"<commit/>").status, 415, "{headers}");
    }
    let foreign = format!("{JSON}Origin: http://evil.example\r\n");
    assert_eq!(http.ask("POST /v1/commands", &foreign, flush).status, 403);
    assert_eq!(http.ask("OPTIONS /v1/commands", "Origin: http://evil.example\r\n", b"").status, 403);
    http.send(b"GET /v1/keys/k HTTP/1.1\r\nHost: evil.example\r\n\r\n");
    assert_eq!(http.answer(false).status, 421);
    site.resp().call("DBSIZE", ":0\r\n");
    // A page of another site that loads a resource (a script, an image) sends no Origin. The browser tells how the
    // page is related to the server.
    site.resp().call("SET k 1", "+OK\r\n");
    for (from, status) in
        [("cross-site", 403), ("same-site", 403), ("same-origin", 200), ("none", 200), ("", 200)]
    {
        let line = if from.is_empty() { String::new() } else { format!("Sec-Fetch-Site: {from}\r\n") };
        for path in ["/v1/keys/k", "/healthz", "/v1/openapi.json"] {
            let answer = http.ask(&format!("GET {path}"), &line, b"");
            assert_eq!(answer.status, status, "{from} {path}");
            assert_eq!(status == 403, answer.text().contains("another site"), "{from} {path}");
        }
    }
    assert_eq!(
        http.ask("GET /v1/keys/k", "Sec-Fetch-Site: none\r\nSec-Fetch-Site: cross-site\r\n", b"").status,
        403
    );
}

#[test]
fn every_response_forbids_use_by_other_sites() {
    let site = site(&["--workers", "1"]);
    let mut http = site.http();
    site.resp().call("SET k 1", "+OK\r\n");
    let mut answers = vec![
        http.get("/v1/keys/k"),
        http.get("/v1/keys/none"),
        http.get("/healthz"),
        http.get("/metrics"),
        http.get("/nowhere"),
        http.ask("HEAD /v1/keys/k", "", b""),
        http.ask("DELETE /v1/keys/k", "", b""),
        http.ask("POST /v1/commands", JSON, b"[[\"PING\"]]"),
    ];
    // The headers are also on responses to requests that the parser refuses.
    http.send(b"GET / HTTP/9.9\r\n\r\n");
    answers.push(http.answer(false));
    for answer in &answers {
        assert_eq!(answer.header("x-content-type-options"), "nosniff", "{answer:?}");
        assert_eq!(answer.header("cross-origin-resource-policy"), "same-origin", "{answer:?}");
    }
}

#[test]
fn a_busy_http_port_is_an_error_unless_it_is_the_default() {
    let first = site(&["--workers", "1"]);
    let port = first.address.port().to_string();
    let again =
        crate::harness::strand(&["serve", "--port", "0", "--bind", "127.0.0.1", "--http-port", &port]);
    let said = String::from_utf8_lossy(&again.stderr).into_owned();
    assert!(!again.status.success() && said.contains("--http-port") && said.contains(&port), "{said}");
}
