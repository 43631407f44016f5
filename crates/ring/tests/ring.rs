//! Compares ports on a ring with ordinary sockets: order, limits, ends. On a machine that forbids io_uring there is
//! nothing to test.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::task::{Context, Wake, Waker};
use std::time::{Duration, Instant};
use strand_chain::Chain;
use strand_ring::{Ready, Ring, RingSocket};

/// No test waits longer than this.
const WAIT_MS_MAX: u64 = 20_000;
/// Number of turns after which the ring must have taken all bytes that have arrived.
const TURNS_TO_TAKE_UP: usize = 100;

struct Fixture {
    ring: Ring,
    listener: TcpListener,
}

fn fixture() -> Option<Fixture> {
    let ring = match Ring::start() {
        Err(e) if matches!(e.kind(), ErrorKind::PermissionDenied | ErrorKind::Unsupported) => return None,
        started => started.expect("this machine does not forbid io_uring"),
    };
    Some(Fixture { ring, listener: TcpListener::bind("127.0.0.1:0").expect("a free port") })
}

impl Fixture {
    fn pair(&self) -> (RingSocket, TcpStream) {
        let peer = TcpStream::connect(self.listener.local_addr().expect("bound")).expect("it listens");
        peer.set_read_timeout(Some(Duration::from_millis(WAIT_MS_MAX))).expect("not zero");
        (self.ring.attach(self.listener.accept().expect("connected").0).expect("a socket"), peer)
    }
    /// Turns the ring until `done` returns a value. Returns this value.
    #[track_caller]
    fn until<T>(&self, mut done: impl FnMut() -> Option<T>) -> T {
        let deadline = Instant::now() + Duration::from_millis(WAIT_MS_MAX);
        loop {
            if let Some(value) = done() {
                return value;
            }
            self.ring.turn().expect("the ring works");
            assert!(Instant::now() < deadline, "the event does not arrive");
        }
    }
}

fn poll(port: &mut RingSocket, reading: bool, writing: bool) -> Ready {
    port.poll(&mut Context::from_waker(Waker::noop()), reading, writing)
}

/// Reads once, if the port is ready. An inner `None` means the end of the stream.
fn read(port: &mut RingSocket, target: &mut [u8]) -> Option<Option<usize>> {
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
fn bytes_arrive_in_order_for_targets_of_any_size() {
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
        // Read into small and large targets in turns, so that both ways to receive are used.
        let room = if (got.len() >> 20).is_multiple_of(2) { 64 << 10 } else { 1 + got.len() % 5000 };
        match f.until(|| read(&mut port, &mut target[..room])) {
            Some(n) => got.extend_from_slice(&target[..n]),
            None => break true,
        }
        assert!(got.len() <= LEN);
    };
    assert!(ended && got == sent, "{} of {LEN} bytes, or others", got.len());
    // The end of the stream is permanent, and the other direction still works.
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
            // One send at a time: `write` takes no bytes while a send is in progress.
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
    // All ports receive before any port is read. Each port holds a buffer or two, and there are too few buffers for
    // all ports.
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
    // The sender continues when the port reads again.
    let mut target = vec![0; 10_000];
    let mut got = 0;
    while got < sent {
        let n = f.until(|| read(&mut port, &mut target)).expect("not the end");
        assert!((0..n).all(|i| target[i] == chunk[(got + i) % chunk.len()]), "other bytes");
        got += n;
    }
}

#[test]
fn unread_bytes_of_a_port_are_bounded_and_measured() {
    let Some(f) = fixture() else { return };
    let mut ports: Vec<_> = (0..8)
        .map(|i| {
            let ((mut port, peer), meter) = (f.pair(), Arc::new(AtomicU64::new(1)));
            port.measure(meter.clone());
            assert_eq!(meter.load(Ordering::Relaxed), 0);
            assert!(!poll(&mut port, true, false).read);
            let writer = std::thread::spawn({
                let mut peer = peer.try_clone().expect("a descriptor");
                // The writer is blocked and ends when the port is dropped.
                move || drop(peer.write_all(&pattern(16 << 20, i)))
            });
            (port, peer, meter, writer)
        })
        .collect();
    // All tasks wanted to read, and then did something more urgent first.
    f.until(|| ports.iter_mut().all(|(port, ..)| poll(port, true, false).read).then_some(()));
    let held = |ports: &[(RingSocket, TcpStream, Arc<AtomicU64>, _)]| -> Vec<u64> {
        ports.iter().map(|(_, _, meter, _)| meter.load(Ordering::Relaxed)).collect()
    };
    let (mut before, mut quiet_rounds) = (vec![], 0);
    while quiet_rounds < 100 {
        ports.iter_mut().for_each(|(port, ..)| port.attend(false));
        f.ring.turn().expect("the ring works");
        std::thread::sleep(Duration::from_millis(1));
        let now = held(&ports);
        assert!(now.iter().all(|n| *n > 0 && *n <= f.ring.unread_bytes_max() as u64), "{now:?}");
        quiet_rounds = if now == before { quiet_rounds + 1 } else { 0 };
        before = now;
    }
    // Each socket still delivers all bytes that were sent.
    for (i, (port, _, meter, _)) in ports.iter_mut().enumerate() {
        let (mut got, mut target) = (Vec::new(), vec![0; 9_999]);
        while got.len() < 1 << 20 {
            let n = f.until(|| read(port, &mut target)).expect("not the end");
            got.extend_from_slice(&target[..n]);
        }
        assert!(got == pattern(16 << 20, i)[..got.len()], "other bytes on socket {i}");
        // All bytes that the ports hold now arrived later.
        assert!(meter.load(Ordering::Relaxed) <= f.ring.unread_bytes_max() as u64);
    }
    for (port, peer, _, writer) in ports {
        drop((port, peer));
        // The next turn submits the end of the dropped port.
        f.until(|| writer.is_finished().then_some(()));
    }
}

#[test]
fn a_port_can_limit_how_far_it_receives_ahead() {
    let Some(f) = fixture() else { return };
    let (mut port, peer) = f.pair();
    port.receive_ahead(Some(4096));
    assert!(!poll(&mut port, true, false).read);
    let writer = std::thread::spawn({
        let mut peer = peer.try_clone().expect("a descriptor");
        move || drop(peer.write_all(&pattern(16 << 20, 0)))
    });
    f.until(|| poll(&mut port, true, false).read.then_some(()));
    for _ in 0..100 {
        port.attend(false);
        f.ring.turn().expect("the ring works");
        std::thread::sleep(Duration::from_millis(1));
        // On a kernel without limits, only the usual limit of unread bytes applies.
        let bytes_max =
            f.ring.unread_bytes_max().min(if f.ring.knows_limits() { 32 * 1024 } else { usize::MAX });
        assert!((1..=bytes_max).contains(&port.unread_bytes()), "{}", port.unread_bytes());
    }
    port.receive_ahead(None);
    let (mut got, mut target) = (Vec::new(), vec![0; 9_999]);
    while got.len() < 1 << 20 {
        let n = f.until(|| read(&mut port, &mut target)).expect("not the end");
        got.extend_from_slice(&target[..n]);
    }
    assert!(got == pattern(16 << 20, 0)[..got.len()]);
    drop((port, peer));
    f.until(|| writer.is_finished().then_some(()));
}

#[test]
fn ports_that_do_not_read_leave_the_buffers_to_others() {
    let Some(f) = fixture() else { return };
    let mut lazy: Vec<_> = (0..200).map(|_| f.pair()).collect();
    for (port, peer) in &mut lazy {
        assert!(!poll(port, true, false).read);
        peer.write_all(&pattern(20_000, 1)).expect("taken");
    }
    for _ in 0..20 {
        f.ring.turn().expect("the ring works");
    }
    let (mut port, mut peer) = f.pair();
    peer.write_all(b"urgent").expect("taken");
    let mut target = [0; 100];
    assert_eq!(f.until(|| read(&mut port, &mut target)), Some(6));
}

/// Remembers that it was woken. With it, a task that polls only after a wake-up finds missing wake-ups.
#[derive(Default)]
struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Fixture {
    /// Waits like a task that neither reads nor writes.
    fn until_gone(&self, port: &mut RingSocket) {
        let flag = Arc::new(Flag::default());
        let waker = Waker::from(flag.clone());
        let mut cx = Context::from_waker(&waker);
        if port.poll(&mut cx, false, false).gone {
            return;
        }
        self.until(|| {
            let woken = flag.0.swap(false, Ordering::Relaxed);
            (woken && port.poll(&mut cx, false, false).gone).then_some(())
        });
    }
}

#[test]
fn a_port_that_waits_for_nothing_learns_of_a_reset() {
    let Some(f) = fixture() else { return };
    // Each case decides whether the port has received before, how many bytes are unread, and whether the peer has
    // ended its side.
    for case in 0..12 {
        let (receiving, unread, half) = (case % 2 == 0, [0, 100, 1 << 20][case / 2 % 3], case >= 6);
        let (mut port, mut peer) = f.pair();
        let deadline = Instant::now() + Duration::from_millis(WAIT_MS_MAX);
        if receiving {
            poll(&mut port, true, false);
            f.ring.turn().expect("the ring works");
        }
        let (sent, has_sent) = channel();
        let (go, may_go) = channel::<()>();
        let peer = std::thread::spawn(move || {
            // The writer stops in the middle of a long text.
            peer.set_write_timeout(Some(Duration::from_millis(100))).expect("not zero");
            let _ = peer.write_all(&pattern(unread, 0));
            if half {
                peer.shutdown(Shutdown::Write).expect("connected");
            }
            sent.send(()).expect("it is waited for");
            // Both a message and an error mean that the test no longer waits.
            let _ = may_go.recv_timeout(Duration::from_millis(WAIT_MS_MAX));
            socket2::SockRef::from(&peer).set_linger(Some(Duration::ZERO)).expect("a TCP socket");
        });
        if case % 4 < 2 {
            // The ring takes the bytes before the reset arrives.
            f.until(|| has_sent.try_recv().ok());
            for _ in 0..TURNS_TO_TAKE_UP {
                f.ring.turn().expect("the ring works");
            }
        }
        drop(go);
        f.until_gone(&mut port);
        peer.join().expect("no panic");
        assert!(Instant::now() < deadline, "case {case}");
    }
}

#[test]
fn bytes_before_a_reset_are_read_before_the_error() {
    let Some(f) = fixture() else { return };
    let (mut port, mut peer) = f.pair();
    let mut target = vec![0; 64 << 10];
    // From some point on, a large value is read directly from the socket.
    let writer = std::thread::spawn(move || {
        peer.write_all(&pattern(4 << 20, 5)).expect("taken");
        peer
    });
    let mut got = 0;
    while got < 4 << 20 {
        got += f.until(|| read(&mut port, &mut target)).expect("not the end");
    }
    // A port that reads from the socket is ready until it has found the socket empty.
    if poll(&mut port, true, false).read {
        let error = port.read(&mut target).expect_err("all bytes are read");
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
    }
    assert!(!poll(&mut port, true, false).read);
    f.ring.turn().expect("the ring works");
    let mut peer = writer.join().expect("no panic");
    peer.write_all(b"last words").expect("taken");
    socket2::SockRef::from(&peer).set_linger(Some(Duration::ZERO)).expect("a TCP socket");
    drop(peer);
    assert_eq!(f.until(|| read(&mut port, &mut target)), Some(10));
    assert_eq!(&target[..10], b"last words");
    let error = f.until(|| match poll(&mut port, true, false).read {
        true => port.read(&mut target).err().filter(|e| e.kind() != ErrorKind::WouldBlock),
        false => None,
    });
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}

#[test]
fn a_dropped_port_closes_its_socket_with_requests_in_progress() {
    let Some(f) = fixture() else { return };
    for receiving in [false, true] {
        let (mut port, mut peer) = f.pair();
        if receiving {
            poll(&mut port, true, false);
        }
        // Send more bytes than the kernel's buffers take, so that the send never ends.
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
fn a_ring_can_end_with_requests_in_progress() {
    let Some(f) = fixture() else { return };
    let (mut port, mut peer) = f.pair();
    poll(&mut port, true, false);
    let mut out = Chain::new();
    out.push_slice(&pattern(64 << 20, 1));
    port.write(&mut out, usize::MAX).expect("connected");
    f.ring.turn().expect("the ring works");
    // Drop the port and the ring, as at the end of a worker: nothing turns the ring any more.
    drop((port, f));
    let mut rest = Vec::new();
    let _ = peer.read_to_end(&mut rest);
    assert!(rest.len() < 64 << 20);
}

/// While a crowd of peers ends, a turn wakes few of their tasks, and every task of a port with bytes.
#[test]
fn a_crowd_that_ends_does_not_delay_the_others() {
    const CROWD: usize = 150;
    let Some(f) = fixture() else { return };
    let watch = |port: &mut RingSocket| {
        let flag = Arc::new(Flag::default());
        let waker = Waker::from(flag.clone());
        assert!(!port.poll(&mut Context::from_waker(&waker), true, false).read);
        flag
    };
    let (mut ports, peers): (Vec<_>, Vec<_>) = (0..CROWD).map(|_| f.pair()).unzip();
    let ended: Vec<_> = ports.iter_mut().map(watch).collect();
    let (mut port, mut peer) = f.pair();
    let arrived = watch(&mut port);
    // The kernel takes all receives, and completes those of the crowd in one turn.
    while f.ring.turn().expect("the ring works") {}
    drop(peers);
    peer.write_all(b"urgent").expect("taken");
    let woken = || ended.iter().filter(|flag| flag.0.load(Ordering::Relaxed)).count();
    let (mut before, mut turns, mut woken_at_arrival) = (0, 0, None);
    f.until(|| {
        let now = woken();
        assert!(now - before <= 64, "{} tasks in one turn", now - before);
        turns += usize::from(now > before);
        before = now;
        if woken_at_arrival.is_none() && arrived.0.load(Ordering::Relaxed) {
            woken_at_arrival = Some(now);
        }
        (now == CROWD).then_some(())
    });
    assert!(turns >= CROWD / 64, "{turns}");
    assert!(woken_at_arrival.is_some_and(|ends| ends <= 64), "{woken_at_arrival:?}");
    assert!(ports.iter_mut().all(|port| read(port, &mut [0; 10]) == Some(None)));
}
