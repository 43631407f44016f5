//! Ports on a ring against ordinary sockets: order, bounds, ends. A kernel without io_uring passes by having none to test.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::task::{Context, Waker};
use std::time::{Duration, Instant};
use strand_chain::Chain;
use strand_ring::{Port, Ready, Ring};

/// Nothing here takes longer.
const WAIT_MS_MAX: u64 = 20_000;

struct Fixture {
    ring: Ring,
    listener: TcpListener,
}

fn fixture() -> Option<Fixture> {
    let ring = Ring::start().ok()?;
    Some(Fixture { ring, listener: TcpListener::bind("127.0.0.1:0").expect("a free port") })
}

impl Fixture {
    fn pair(&self) -> (Port, TcpStream) {
        let peer = TcpStream::connect(self.listener.local_addr().expect("bound")).expect("it listens");
        peer.set_read_timeout(Some(Duration::from_millis(WAIT_MS_MAX))).expect("not zero");
        (self.ring.attach(self.listener.accept().expect("connected").0).expect("a socket"), peer)
    }
    /// Turns the ring until `done` gives something.
    #[track_caller]
    fn until<T>(&self, mut done: impl FnMut() -> Option<T>) -> T {
        let deadline = Instant::now() + Duration::from_millis(WAIT_MS_MAX);
        loop {
            if let Some(value) = done() {
                return value;
            }
            self.ring.turn().expect("the ring works");
            assert!(Instant::now() < deadline, "it does not come");
        }
    }
}

fn poll(port: &mut Port, reading: bool, writing: bool) -> Ready {
    port.poll(&mut Context::from_waker(Waker::noop()), reading, writing)
}

/// Reads once, when there is something; `None` in it is the end.
fn read(port: &mut Port, target: &mut [u8]) -> Option<Option<usize>> {
    if !poll(port, true, false).read {
        return None;
    }
    match port.read(target) {
        Ok((0, _)) => Some(None),
        Ok((n, _)) => Some(Some(n)),
        Err(e) => {
            assert_eq!(e.kind(), ErrorKind::WouldBlock, "{e}");
            None
        }
    }
}

fn pattern(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|i| ((i / 251) ^ i ^ seed) as u8).collect()
}

#[test]
fn bytes_come_in_order_whatever_the_targets() {
    let Some(f) = fixture() else { return };
    const LEN: usize = 8 << 20;
    let (mut port, mut peer) = f.pair();
    let sent = pattern(LEN, 7);
    let copy = sent.clone();
    let writer = std::thread::spawn(move || {
        for chunk in copy.chunks(100_003) {
            peer.write_all(chunk).expect("taken");
        }
        peer.shutdown(Shutdown::Write).expect("connected");
        peer
    });
    let mut got = Vec::new();
    let mut target = vec![0; 128 << 10];
    let ended = loop {
        // Small and large ones in stretches, so that both ways to receive take turns.
        let room = if (got.len() >> 20).is_multiple_of(2) { 64 << 10 } else { 1 + got.len() % 5000 };
        match f.until(|| read(&mut port, &mut target[..room])) {
            Some(n) => got.extend_from_slice(&target[..n]),
            None => break true,
        }
        assert!(got.len() <= LEN);
    };
    assert!(ended && got == sent, "{} of {LEN} bytes, or others", got.len());
    // The end stays the end, and the other direction goes on.
    assert_eq!(read(&mut port, &mut target), Some(None));
    let mut out = Chain::new();
    out.push_slice(b"bye");
    assert_eq!(port.write(&mut out, 100).expect("connected"), 3);
    f.until(|| port.is_sent().then_some(()));
    drop(port);
    f.ring.turn().expect("the ring works");
    let mut rest = Vec::new();
    writer.join().expect("no panic").read_to_end(&mut rest).expect("a clean end");
    assert_eq!(rest, b"bye");
}

#[test]
fn long_output_goes_out_whole_in_bounded_pieces() {
    let Some(f) = fixture() else { return };
    const LEN: usize = 4 << 20;
    let (mut port, mut peer) = f.pair();
    let (sent, mut out) = (pattern(LEN, 3), Chain::new());
    sent.chunks(9_999).for_each(|c| out.push_slice(c));
    let reader = std::thread::spawn(move || {
        let mut got = vec![0; LEN];
        peer.read_exact(&mut got).expect("all of it comes");
        got
    });
    f.until(|| {
        if !out.is_empty() && poll(&mut port, false, true).write {
            assert!(port.write(&mut out, 64 << 10).expect("connected") <= 64 << 10);
            // One at a time: what is taken is not given up before it is sent.
            if !port.is_sent() && !out.is_empty() {
                let busy = port.write(&mut out, 64 << 10).expect_err("a send is under way");
                assert_eq!(busy.kind(), ErrorKind::WouldBlock);
            }
        }
        (out.is_empty() && port.is_sent()).then_some(())
    });
    assert!(reader.join().expect("no panic") == sent, "other bytes");
}

#[test]
fn more_sockets_than_buffers_are_all_read() {
    let Some(f) = fixture() else { return };
    let mut pairs: Vec<_> = (0..400).map(|_| f.pair()).collect();
    for (i, (_, peer)) in pairs.iter_mut().enumerate() {
        peer.write_all(&pattern(20_000, i)).expect("taken");
    }
    // All receive before anybody reads: each holds a buffer or two, and there are not enough.
    for _ in 0..10 {
        pairs.iter_mut().for_each(|(port, _)| assert!(!poll(port, true, false).gone));
        f.ring.turn().expect("the ring works");
    }
    for (i, (port, _)) in pairs.iter_mut().enumerate() {
        let (mut got, mut target) = (Vec::new(), [0; 4096]);
        while got.len() < 20_000 {
            let n = f.until(|| read(port, &mut target)).expect("not the end");
            got.extend_from_slice(&target[..n]);
        }
        assert!(got == pattern(20_000, i), "other bytes on socket {i}");
    }
}

#[test]
fn a_port_that_does_not_read_stops_its_peer() {
    let Some(f) = fixture() else { return };
    let (mut port, mut peer) = f.pair();
    poll(&mut port, true, false);
    peer.set_nonblocking(true).expect("a TCP socket");
    let (mut sent, mut moved) = (0usize, Instant::now());
    let chunk = pattern(251 * 256, 0);
    while moved.elapsed() < Duration::from_millis(200) {
        if let Ok(n) = peer.write(&chunk[sent % chunk.len()..]) {
            (sent, moved) = (sent + n, Instant::now());
            assert!(sent < 64 << 20, "{sent} bytes are taken and nobody reads them");
        }
        assert!(!poll(&mut port, false, false).gone);
        f.ring.turn().expect("the ring works");
    }
    // And goes on when it reads again.
    let mut target = vec![0; 10_000];
    let mut got = 0;
    while got < sent {
        let n = f.until(|| read(&mut port, &mut target)).expect("not the end");
        assert!((0..n).all(|i| target[i] == chunk[(got + i) % chunk.len()]), "other bytes");
        got += n;
    }
    // It stops again, and the peer resets: who waits for nothing learns it.
    peer.set_nonblocking(false).expect("a TCP socket");
    poll(&mut port, false, false);
    drop(f.ring.turn());
    peer.write_all(b"unread").expect("taken");
    poll(&mut port, true, false);
    let mut out = Chain::new();
    out.push_slice(b"never read by the peer, so that its close is a reset");
    port.write(&mut out, 1000).expect("connected");
    f.until(|| port.is_sent().then_some(()));
    drop(peer);
    f.until(|| poll(&mut port, false, false).gone.then_some(()));
}

#[test]
fn a_port_that_is_dropped_closes_its_socket_whatever_is_under_way() {
    let Some(f) = fixture() else { return };
    for receiving in [false, true] {
        let (mut port, mut peer) = f.pair();
        if receiving {
            poll(&mut port, true, false);
        }
        // More than the kernel's buffers take: the send is under way for good.
        let mut out = Chain::new();
        out.push_slice(&pattern(64 << 20, 1));
        assert_eq!(port.write(&mut out, usize::MAX).expect("connected"), 64 << 20);
        for _ in 0..5 {
            f.ring.turn().expect("the ring works");
        }
        assert!(!port.is_sent());
        drop(port);
        for _ in 0..5 {
            f.ring.turn().expect("the ring works");
        }
        let mut rest = Vec::new();
        match peer.read_to_end(&mut rest) {
            Ok(_) => assert!(rest.len() < 64 << 20),
            Err(e) => assert_eq!(e.kind(), ErrorKind::ConnectionReset),
        }
    }
}

#[test]
fn a_ring_ends_with_everything_under_way() {
    let Some(f) = fixture() else { return };
    let (mut port, mut peer) = f.pair();
    poll(&mut port, true, false);
    let mut out = Chain::new();
    out.push_slice(&pattern(64 << 20, 1));
    port.write(&mut out, usize::MAX).expect("connected");
    f.ring.turn().expect("the ring works");
    // As at a worker's end: nobody turns it any more.
    drop((port, f));
    let mut rest = Vec::new();
    let _ = peer.read_to_end(&mut rest);
    assert!(rest.len() < 64 << 20);
}
