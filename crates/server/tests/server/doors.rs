//! Checks for every door: who is admitted, how others are refused, and that a fault of one peer ends only that
//! peer's connection.

use crate::harness::{Client, REPLY_MS_MAX, Server, comes_true, command};
use crate::http::request;
use crate::pack4::frame;
use crate::tls::{self, Fixture};
use std::io::{Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

/// Every door except the plain one.
const DOORS: [&str; 5] = ["--tls-port", "--pack4-port", "--tls-pack4-port", "--http-port", "--tls-http-port"];

/// An address of this machine that is not loopback. `None` without a network. This sends nothing.
fn other_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("192.0.2.1:9").ok()?;
    let ip = socket.local_addr().ok()?.ip();
    (!ip.is_loopback() && !ip.is_unspecified()).then_some(ip)
}

/// Sends `request` to door `i` of [`DOORS`], over TLS where the door uses it, and closes. Returns the whole
/// answer. `None` when nobody listens there.
fn ask(fixture: &Fixture, i: usize, ip: IpAddr, request: &[u8]) -> Option<String> {
    let address = SocketAddr::new(ip, fixture.doors[i].port());
    TcpStream::connect(address).ok()?;
    let (mut reply, is_http) = (Vec::new(), DOORS[i].contains("http"));
    if DOORS[i].contains("tls") {
        // The certificate of the server is valid for 127.0.0.1.
        let config = fixture.config(&fixture.ca, Some(&fixture.client));
        let mut stream = fixture.connect_as(address, "127.0.0.1".parse().expect("an address"), config);
        let _ = stream.write_all(request);
        if !is_http {
            stream.conn.send_close_notify();
            let _ = stream.flush();
        }
        let _ = stream.read_to_end(&mut reply);
    } else {
        let mut stream = TcpStream::connect(address).ok()?;
        stream.set_read_timeout(Some(Duration::from_millis(REPLY_MS_MAX))).expect("not zero");
        let _ = stream.write_all(request);
        if !is_http {
            let _ = stream.shutdown(Shutdown::Write);
        }
        let _ = stream.read_to_end(&mut reply);
    }
    Some(String::from_utf8_lossy(&reply).into_owned())
}

/// The same request for each of [`DOORS`].
fn questions(authorization: &str) -> [Vec<u8>; 5] {
    let http = request("GET /v1/keys/k", &format!("{authorization}Connection: close\r\n"), b"");
    let login = match authorization.is_empty() {
        true => Vec::new(),
        false => command("AUTH bob pw"),
    };
    let resp = [&login[..], &command("GET k")].concat();
    let framed = match login.is_empty() {
        true => frame(b"GET k"),
        false => [frame(&login), frame(b"GET k")].concat(),
    };
    [resp.clone(), framed.clone(), framed, http.clone(), http]
}

#[test]
fn without_a_password_no_door_serves_remote_clients_in_protected_mode() {
    let Some(ip) = other_address() else { return eprintln!("this machine has no address but loopback") };
    let fixture = tls::start(&DOORS, &["--workers", "1", "--bind", "0.0.0.0"]);
    let mut admin = fixture.server.connect();
    admin.call("SET k v", "+OK\r\n");
    let home = "127.0.0.1".parse().expect("an address");
    let all = |ip| -> Vec<_> {
        questions("").iter().enumerate().map(|(i, question)| ask(&fixture, i, ip, question)).collect()
    };
    let served = |answers: &[Option<String>]| {
        answers
            .iter()
            .all(|a| a.as_ref().is_some_and(|a| a.contains("$1\r\nv\r\n") || a.ends_with("\r\n\r\nv")))
    };
    assert!(served(&all(home)), "{:?}", all(home));
    let answers = all(ip);
    // Before a TLS handshake, the client could not read a reason. HTTP does not even listen on this address.
    assert_eq!((answers[0].as_deref(), answers[2].as_deref()), (Some(""), Some("")));
    assert!(answers[1].as_ref().is_some_and(|a| a.contains("-DENIED Redis is running in protected mode")));
    assert_eq!((&answers[3], &answers[4]), (&None, &None));
    let plain = SocketAddr::new(ip, fixture.server.address.port());
    assert!(Client::connect(plain).line().starts_with("-DENIED Redis is running in protected mode"));
    admin.call("CONFIG SET protected-mode no", "+OK\r\n");
    assert!(served(&all(ip)[..3]));
    // With a password set, clients from elsewhere are accepted and asked for the password.
    admin.call("CONFIG SET protected-mode yes requirepass sesame", "+OK\r\n");
    let answers = all(ip);
    let asks =
        |a: &Option<String>| a.as_ref().is_some_and(|a| a.contains("-NOAUTH Authentication required."));
    assert!(answers[..3].iter().all(asks), "{answers:?}");
    for options in [&["--protected-mode", "no"][..], &["--user", "default", "on", ">sesame", "+@all", "~*"]] {
        let fixture = tls::start(&DOORS, &[&["--bind", "0.0.0.0"], options].concat());
        let answer = ask(&fixture, 3, ip, &questions("")[3]).expect("HTTP listens");
        let status = if options.len() == 2 { "404" } else { "401" };
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{answer}");
    }
}

#[test]
fn rights_are_equal_at_every_door() {
    let fixture = tls::start(&DOORS, &["--workers", "1"]);
    let mut admin = fixture.server.connect();
    admin.call("SET k v", "+OK\r\n");
    admin.call("ACL SETUSER bob on >pw", "+OK\r\n");
    let home = "127.0.0.1".parse().expect("an address");
    for authorization in ["Authorization: Basic Ym9iOnB3\r\n", "Authorization: Bearer bob:pw\r\n"] {
        for (rule, refusal, status) in [
            ("+ping", "NOPERM this user has no permissions to run the 'get' command", "403"),
            ("+get", "NOPERM this user has no permissions to access one of the keys", "403"),
            ("%W~k", "NOPERM this user has no permissions to access one of the keys", "403"),
        ] {
            admin.call(&format!("ACL SETUSER bob {rule}"), "+OK\r\n");
            // Allow the commands that HTTP calls besides the command for the value.
            admin.call("ACL SETUSER bob +pttl +type +strlen +getrange +exists +select", "+OK\r\n");
            for (i, question) in questions(authorization).iter().enumerate() {
                let answer = ask(&fixture, i, home, question).expect("it listens");
                let is_http = DOORS[i].contains("http");
                assert!(answer.contains(refusal), "{} {rule}: {answer}", DOORS[i]);
                assert!(!is_http || answer.starts_with(&format!("HTTP/1.1 {status}")), "{answer}");
            }
        }
        admin.call("ACL SETUSER bob -@all resetkeys", "+OK\r\n");
    }
    // Log in with a wrong password, with a removed password, and as a disabled user.
    for rule in ["<pw", "off >pw"] {
        admin.call(&format!("ACL SETUSER bob +get ~k {rule}"), "+OK\r\n");
        for (i, question) in questions("Authorization: Bearer bob:pw\r\n").iter().enumerate() {
            let answer = ask(&fixture, i, home, question).expect("it listens");
            let is_refused =
                answer.contains("WRONGPASS") && (!DOORS[i].contains("http") || answer.contains(" 401 "));
            assert!(is_refused, "{}: {answer}", DOORS[i]);
        }
    }
}

#[test]
fn failed_logins_are_logged_without_passwords() {
    let options = ["--workers", "1", "--slowlog-log-slower-than", "0", "--loglevel", "debug"];
    let fixture = tls::start(&DOORS, &options);
    let mut admin = fixture.server.connect();
    admin.call("ACL SETUSER bob on >pw-of-bob", "+OK\r\n");
    admin.call("CONFIG SET requirepass pw-of-all", "+OK\r\n");
    let mut plain = fixture.server.connect();
    let wrong = "-WRONGPASS invalid username-password pair or user is disabled.\r\n";
    plain.call("AUTH bob pw-guessed", wrong);
    plain.call("AUTH pw-in-the-wrong-place pw-guessed", wrong);
    plain.call("HELLO 3 AUTH bob pw-guessed", wrong);
    let mut framed = Client::connect(fixture.doors[1]);
    framed.send(&frame(b"AUTH bob pw-guessed"));
    framed.expect(&frame(wrong.as_bytes()));
    let home = "127.0.0.1".parse().expect("an address");
    let question =
        request("GET /v1/keys/k", "Authorization: Bearer bob:pw-guessed\r\nConnection: close\r\n", b"");
    assert!(ask(&fixture, 3, home, &question).is_some_and(|a| a.starts_with("HTTP/1.1 401")));
    plain.call("AUTH bob pw-of-bob", "+OK\r\n");
    plain.call("AUTH pw-of-all", "+OK\r\n");
    let log = || fixture.server.folder.log_text();
    for (door, user) in [
        (fixture.server.address, "user 'bob'"),
        (fixture.server.address, "unknown user"),
        (fixture.doors[1], "user 'bob'"),
        (fixture.doors[3], "user 'bob'"),
    ] {
        fixture.logs(&format!("login failed: {user} at {door} "));
    }
    admin.send(&command("ACL LOG"));
    assert_eq!(admin.line(), "*3", "alike ones count together");
    let mut seen = admin_texts(&fixture.server);
    seen.push(log());
    for text in seen {
        // A name that a client has given may be shown as a name, to administrators only. redis-server does this, too.
        assert!(!text.replace("pw-in-the-wrong-place", "").contains("pw-"), "{text}");
    }
    assert!(!log().contains("pw-"), "{}", log());
}

/// All texts in which an administrator can see the actions of others.
fn admin_texts(server: &Server) -> Vec<String> {
    ["SLOWLOG GET 100", "CLIENT LIST", "ACL LOG", "ACL LIST", "INFO everything"]
        .map(|words| {
            let mut client = server.connect();
            client.send(&command("AUTH pw-of-all"));
            client.expect(b"+OK\r\n");
            client.send(&command(words));
            client.send(&command("ECHO the-end"));
            let mut text = String::new();
            while !text.ends_with("the-end\n") {
                text += &client.line();
                text.push('\n');
            }
            text
        })
        .into()
}

#[test]
fn malformed_input_ends_only_its_own_connection() {
    let fixture = tls::start(&DOORS, &["--workers", "1"]);
    let mut friend = Client::connect(fixture.doors[1]);
    let before = fixture.server.memory("VmRSS");
    // Each case: bytes sent to the door for frames, the answer, and whether the connection stays open after it.
    let cases: &[(&[u8], &str, bool)] = &[
        (
            &[0xff, 0xff, 0xff, 0xff],
            "a frame of 4294967295 bytes, at most 1073741820 are allowed; does the client send frames?",
            false,
        ),
        (
            &[0x40, 0, 0, 0],
            "a frame of 1073741824 bytes, at most 1073741820 are allowed; does the client send frames?",
            false,
        ),
        (&[0, 0, 0, 0], "a frame of 0 bytes", true),
        (&[0, 0, 0, 2, b'\r', b'\n'], "no command in a frame of 2 bytes", true),
        (b"\0\0\0\x0a*1\r\n$9\r\nPI", "a frame of 10 bytes ends inside its command", true),
        (b"\0\0\0\x10*1\r\n$4\r\nPING\r\n\r\n", "a frame of 16 bytes goes on after its command", true),
        (b"\0\0\0\x0b*1\r\n$-4\r\nPI", "invalid bulk length", true),
        (b"\0\0\0\x0c*1\r\n:4\r\nPING", "expected '$', got ':'", true),
        (b"\0\0\0\x0b*99999999\r\n", "invalid multibulk length", true),
        (b"\0\0\0\x07GET 'ab", "unbalanced quotes in request", true),
    ];
    for (sent, said, goes_on) in cases {
        let mut client = Client::connect(fixture.doors[1]);
        client.send(sent);
        let text = format!("-ERR Protocol error: {said}\r\n");
        client.expect(&frame(text.as_bytes()));
        if *goes_on {
            client.send(&frame(b"PING"));
            client.expect(&frame(b"+PONG\r\n"));
        } else {
            client.expect_end();
        }
        friend.send(&frame(b"PING"));
        friend.expect(&frame(b"+PONG\r\n"));
    }
    // Send a frame that is never completed. A client that closes in the middle gets no answer, and a client that
    // waits costs nothing.
    let lengths: [&[u8]; 4] =
        [&[0], &[0, 0, 0], &[0, 0, 0, 100], b"\x20\0\0\0*2\r\n$4\r\nECHO\r\n$536870000\r\nx"];
    let mut halves = Vec::new();
    for half in lengths {
        for _ in 0..8 {
            let mut client = Client::connect(fixture.doors[1]);
            client.send(half);
            halves.push(client);
        }
        let mut client = Client::connect(fixture.doors[1]);
        client.send(half);
        client.stream.shutdown(Shutdown::Write).expect("it is connected");
        client.expect_end();
    }
    friend.send(&frame(b"PING"));
    friend.expect(&frame(b"+PONG\r\n"));
    let grown = fixture.server.memory("VmRSS").saturating_sub(before);
    assert!(grown < 64 << 20, "{grown} bytes for promises");
    fixture.server.costs_nothing();
    drop(halves);
    comes_true(|| fixture.server.connect().bulk("INFO clients").contains("connected_clients:2\r\n"));
    // Send noise from a fixed seed to every door.
    let mut rng = fastrand::Rng::with_seed(11);
    for address in fixture.doors.iter().chain([&fixture.server.address]) {
        for _ in 0..20 {
            let noise: Vec<u8> = (0..rng.usize(1..2000)).map(|_| rng.u8(..)).collect();
            let mut stream = TcpStream::connect(address).expect("it listens");
            let _ = stream.write_all(&noise);
        }
        friend.send(&frame(b"PING"));
        friend.expect(&frame(b"+PONG\r\n"));
    }
    fixture.server.connect().call("PING", "+PONG\r\n");
}
