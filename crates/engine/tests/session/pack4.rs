//! Sessions with framed requests and replies.

use crate::fixture::{End, Peer, Server, Stop, bytes, command, text};
use strand_engine::Framing;
use strand_wire::resp::LARGE_BODY_BYTES_MIN;

impl Server {
    fn connect_framed(&mut self) -> Peer {
        self.try_connect_by(Framing::Pack4, true).expect("the server takes it")
    }
}

fn frame(body: &[u8]) -> Vec<u8> {
    [&(body.len() as u32).to_be_bytes()[..], body].concat()
}

/// The replies in `bytes`, which must be whole frames.
#[track_caller]
fn replies(mut bytes: &[u8]) -> Vec<String> {
    let mut out = Vec::new();
    while let Some((length, rest)) = bytes.split_first_chunk::<4>() {
        let (body, rest) = rest.split_at(u32::from_be_bytes(*length) as usize);
        out.push(text(body));
        bytes = rest;
    }
    assert!(bytes.is_empty(), "half a frame: {bytes:?}");
    out
}

/// Sends each body in a frame, in pieces of `piece` bytes. Returns the replies.
#[track_caller]
fn exchange(peer: &mut Peer, server: &Server, bodies: &[&[u8]], piece: usize) -> Vec<String> {
    let sent: Vec<u8> = bodies.iter().flat_map(|b| frame(b)).collect();
    let mut all = Vec::new();
    for piece in sent.chunks(piece) {
        peer.feed(piece, usize::MAX);
        peer.drive(server);
        all.extend(peer.received_bytes());
    }
    replies(&all)
}

#[test]
fn a_pipeline_of_frames_is_answered_by_a_frame_each() {
    let value = "v".repeat(2 * LARGE_BODY_BYTES_MIN);
    let set = command(&format!("SET big {value}"));
    let bodies: &[&[u8]] =
        &[&command("SET k v"), b"GET k", &set, b"STRLEN big\r\n", b"GET nothing", b"MGET k nothing", b"PING"];
    let want = ["+OK|", "$1|v|", "+OK|", ":65536|", "$-1|", "*2|$1|v|$-1|", "+PONG|"];
    for piece in [usize::MAX, 1, 3, 1000] {
        let mut server = Server::new();
        let mut peer = server.connect_framed();
        assert_eq!(exchange(&mut peer, &server, bodies, piece), want, "pieces of {piece}");
        assert_eq!(exchange(&mut peer, &server, &[b"GET big"], piece), [format!("$65536|{value}|")]);
        assert!(!peer.session.in_request());
    }
}

#[test]
fn a_lie_is_answered_and_the_next_frame_is_served() {
    let mut server = Server::new();
    let mut peer = server.connect_framed();
    let lies: &[(&[u8], &str)] = &[
        (b"", "-ERR Protocol error: a frame of 0 bytes|"),
        (b"*1\r\n$4\r\nPI", "-ERR Protocol error: a frame of 10 bytes ends inside its command|"),
        (b"PING\nPING", "-ERR Protocol error: a frame of 9 bytes goes on after its command|"),
        (b"*1\r\n+4\r\n", "-ERR Protocol error: expected '$', got '+'|"),
        (b"*1\r\n$999999999999\r\n", "-ERR Protocol error: invalid bulk length|"),
    ];
    for (body, want) in lies {
        let got = exchange(&mut peer, &server, &[body, b"PING"], usize::MAX);
        assert_eq!(got, [*want, "+PONG|"]);
        assert!(!peer.session.in_request());
    }
    assert_eq!(
        exchange(&mut peer, &server, &[b"GET", b"FOO"], 5)[0],
        "-ERR wrong number of arguments for 'get' command|"
    );
    // An impossible length is an error and closes the connection.
    peer.feed(b"GET / HTTP/1.1\r\n\r\n", usize::MAX);
    assert_eq!(peer.drive(&server), Stop::Ended);
    assert_eq!(peer.ended, Some(End::Close));
    let error = "-ERR Protocol error: a frame of 1195725856 bytes, at most 1073741820 are allowed; does the client send frames?|";
    assert_eq!(replies(&peer.received_bytes()), [error]);
}

#[test]
fn whatever_ends_muffles_or_delays_a_reply_leaves_frames_whole() {
    let mut server = Server::new();
    let mut peer = server.connect_framed();
    let got = exchange(&mut peer, &server, &[b"CLIENT REPLY SKIP", b"PING", b"PING 1"], usize::MAX);
    assert_eq!(got, ["$1|1|"]);
    let got = exchange(&mut peer, &server, &[b"CLIENT REPLY OFF", b"PING", b"CLIENT REPLY ON", b"KEYS *"], 7);
    assert_eq!(got, ["+OK|", "*0|"]);
    assert!(exchange(&mut peer, &server, &[b"HELLO 3"], 1)[0].starts_with("%7|"));
    assert_eq!(
        exchange(&mut peer, &server, &[b"GET k", b"RESET", b"QUIT", b"PING"], 9),
        ["_|", "+RESET|", "+OK|"]
    );
    assert_eq!(peer.ended, Some(End::Close));

    let mut small = Server::with("maxclients 1\nrequirepass secret");
    let mut first = small.connect_framed();
    let refusal = small.try_connect_by(Framing::Pack4, true).err().expect("one is enough");
    assert_eq!(refusal, "\0\0\0$-ERR max number of clients reached|");
    let got = exchange(&mut first, &small, &[b"PING", b"AUTH secret", b"PING"], 2);
    assert_eq!(got, ["-NOAUTH Authentication required.|", "+OK|", "+PONG|"]);
}

#[test]
fn a_reply_that_no_frame_can_hold_is_an_error() {
    const MB: usize = 1 << 20;
    let mut server = Server::new();
    let mut peer = server.connect_framed();
    let head = format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n${}\r\n", 64 * MB);
    let set = [head.as_bytes(), &vec![b'v'; 64 * MB], b"\r\n"].concat();
    assert_eq!(exchange(&mut peer, &server, &[&set], 16 * MB), ["+OK|"]);
    // The reply shares the value, so a reply of 4 GB takes no memory.
    let many = format!("MGET{}", " k".repeat(64));
    let got = exchange(&mut peer, &server, &[many.as_bytes(), b"PING"], usize::MAX);
    assert_eq!(got, ["-ERR the reply is longer than a frame can be|", "+PONG|"]);
    peer.hold_output = true;
    peer.feed(&frame(format!("MGET{}", " k".repeat(2)).as_bytes()), usize::MAX);
    peer.drive(&server);
    let mut length = [0; 4];
    assert!(peer.session.output().peek(&mut length));
    assert_eq!(u32::from_be_bytes(length) as usize + 4, peer.session.output().len());
    assert!(bytes(peer.session.output())[4..].starts_with(b"*2\r\n$67108864\r\n"));
}

#[test]
fn a_command_behind_more_empty_ones_than_a_turn_takes_is_found() {
    let mut server = Server::new();
    for empties in [1, 255, 256, 257, 1000] {
        let mut peer = server.connect_framed();
        let body = [&b"*0\r\n".repeat(empties)[..], &command("ECHO last")].concat();
        let sent = [frame(b"PING").repeat(255), frame(&body)].concat();
        peer.feed(&sent, usize::MAX);
        assert_eq!(peer.drive(&server), Stop::Read);
        let got = replies(&peer.received_bytes());
        assert_eq!((got.len(), got[255..].join("")), (256, "$4|last|".to_string()), "{empties}");
    }
}

#[test]
fn dropped_bytes_of_a_refused_frame_do_not_count_for_the_next_frame() {
    const KB: usize = 1 << 10;
    let mut server = Server::with("client-query-buffer-limit 1mb");
    let mut peer = server.connect_framed();
    let refused = [&command("PING")[..], &vec![b'x'; 900 * KB]].concat();
    let echo = |kb: usize| {
        [format!("*2\r\n$4\r\nECHO\r\n${}\r\n", kb * KB).into_bytes(), vec![b'e'; kb * KB]].concat()
    };
    let good = [echo(200), b"\r\n".to_vec()].concat();
    for piece in [KB, 100 * KB] {
        let got = exchange(&mut peer, &server, &[&refused, &good], piece);
        assert_eq!(got.len(), 2, "{:?}", peer.ended);
        assert!(got[0].contains("goes on after its command") && got[1].starts_with("$204800|e"));
    }
    // While half of the refused frame has arrived, the session keeps none of its bytes.
    let sent = frame(&refused);
    for piece in sent[..500 * KB].chunks(10 * KB) {
        peer.feed(piece, usize::MAX);
        peer.drive(&server);
    }
    let mut admin = server.connect();
    let id = peer.session.id();
    assert!(admin.run(&server, &format!("CLIENT LIST ID {id}")).contains(" qbuf=0 "), "it is dropped");
    let line = admin.run(&server, &format!("CLIENT LIST ID {id}"));
    assert!(line.contains(" argv-mem=0 "), "{line}");
}

#[test]
fn a_long_command_s_reply_is_bounded_as_over_resp() {
    let mut server = Server::with("client-output-buffer-limit normal 300kb 0 0");
    for framing in [Framing::Resp, Framing::Pack4] {
        let mut peer = server.try_connect_by(framing, true).expect("the server takes it");
        let wrap = |line: &str| match framing {
            Framing::Resp => command(line),
            Framing::Pack4 => frame(&command(line)),
        };
        for i in 0..10 {
            peer.send(&server, &wrap(&format!("SET {i}{} v", "k".repeat(10_000))));
        }
        (peer.hold_jobs, peer.hold_output) = (true, true);
        let wait = wrap(&format!("ECHO {}", "w".repeat(250_000)));
        peer.feed(&[wait, wrap("KEYS *")].concat(), usize::MAX);
        assert_eq!(peer.drive(&server), Stop::Parked);
        // The client reads while the job runs.
        peer.take_output(usize::MAX);
        let job = peer.job.take().expect("KEYS");
        peer.session.lane_done(job.run(server.now, &|| {}));
        assert_eq!(peer.drive(&server), Stop::Read, "{framing:?}");
        assert_eq!(peer.ended, None);
    }
}
