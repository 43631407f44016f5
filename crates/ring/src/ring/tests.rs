//! Failures that only a test inside the crate can cause.

use super::*;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::task::Wake;
use strand_chain::Chain;

/// A ring with one port, and the port's peer. `None` on a kernel without io_uring, where there is nothing to test.
fn pair() -> Option<(Ring, RingSocket, TcpStream)> {
    let ring = Ring::start().ok()?;
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let peer = TcpStream::connect(listener.local_addr().expect("bound")).expect("it listens");
    let port = ring.attach(listener.accept().expect("connected").0).expect("a socket");
    Some((ring, port, peer))
}
fn poll(port: &mut RingSocket, reading: bool, writing: bool) -> crate::Ready {
    port.poll(&mut Context::from_waker(Waker::noop()), reading, writing)
}
fn expect_end(mut peer: TcpStream) {
    assert!(io::Read::read_to_end(&mut peer, &mut Vec::new()).is_ok(), "it was shut down");
}

#[test]
fn probe_releases_all_resources() {
    let descriptors = || std::fs::read_dir("/proc/self/fd").expect("Linux").count();
    let before = descriptors();
    let refused: Vec<io::Error> = (0..100).filter_map(|_| Ring::probe().err()).collect();
    assert!(refused.is_empty() || refused.len() == 100, "{}: {:?}", refused.len(), refused.first());
    // Allow for descriptors of other tests of this process.
    assert!(descriptors() < before + 100);
}

#[test]
fn a_failed_ring_closes_its_connections_and_reports_the_error() {
    let Some((ring, mut port, peer)) = pair() else { return };
    assert!(!poll(&mut port, true, false).read);
    // Send more bytes than the kernel takes, so that the send never ends.
    let mut out = Chain::new();
    out.push_slice(&vec![0; 64 << 20]);
    port.write(&mut out, usize::MAX).expect("connected");
    ring.turn().expect("the kernel takes a receive and a send");
    assert!(!port.is_sent() && !poll(&mut port, false, true).write);
    ring.fail(&io::Error::other("for the test"));
    assert!(ring.has_failed() && ring.turn().is_err());
    assert!(poll(&mut port, false, false).gone);
    assert!(port.is_sent() && poll(&mut port, false, true).write);
    let code = Some(Errno::IO.raw_os_error());
    assert_eq!(port.read(&mut [0]).unwrap_err().raw_os_error(), code);
    out.push_slice(b"x");
    assert_eq!(port.write(&mut out, 1).unwrap_err().raw_os_error(), code);
    expect_end(peer);
    // The kernel keeps its requests forever, but the descriptor must be closed.
    drop(port);
    let inner = ring.inner.borrow();
    let slot = inner.slots[0].as_ref().expect("requests are out");
    assert!(slot.requests > 0 && slot.socket.is_none());
}

#[test]
fn a_kernel_without_limits_gets_receives_without_limits() {
    let Some((ring, mut port, mut peer)) = pair() else { return };
    assert!(!poll(&mut port, true, false).read);
    let mut inner = ring.inner.borrow_mut();
    inner.queue.clear();
    inner.complete(0, RequestKind::Receive, -Errno::INVAL.raw_os_error(), 0);
    assert!(!inner.limits);
    drop(inner);
    io::Write::write_all(&mut peer, &[7; 200_000]).expect("taken");
    let (mut got, mut target) = (0, [0; 5000]);
    for _ in 0..1_000_000 {
        if poll(&mut port, true, false).read {
            got += port.read(&mut target).expect("bytes").0;
        }
        if got == 200_000 {
            break;
        }
        ring.turn().expect("the ring works");
    }
    assert_eq!(got, 200_000);
}

#[test]
fn a_panic_fails_the_ring() {
    let Some((ring, mut port, peer)) = pair() else { return };
    assert!(!poll(&mut port, true, false).read);
    // Queue a request that belongs to no port.
    ring.inner.borrow_mut().queue.push_back(opcode::Nop::new().build().user_data(u64::MAX));
    assert!(ring.turn().is_err());
    assert!(ring.has_failed() && poll(&mut port, false, false).gone);
    expect_end(peer);
}

#[test]
fn a_cancel_that_fails_is_tried_again_or_ends_the_connection() {
    let Some((ring, mut port, peer)) = pair() else { return };
    assert!(!poll(&mut port, true, false).read);
    ring.turn().expect("the kernel takes a receive");
    let failed = |stopping: bool, closed: bool| {
        let mut inner = ring.inner.borrow_mut();
        let slot = inner.slot(0);
        slot.requests += 1;
        (slot.stopping, slot.closed) = (stopping, closed);
        inner.complete(0, RequestKind::Cancel, -Errno::ALREADY.raw_os_error(), 0);
        inner.slot(0).stopping
    };
    assert!(!failed(true, false), "it is not being cancelled");
    failed(true, true);
    expect_end(peer);
    drop(port);
    for _ in 0..1000 {
        ring.turn().expect("the ring works");
    }
    assert!(ring.inner.borrow().slots[0].is_none(), "all requests have ended");
}

/// Each new port lets the task of one more ended port be woken, so that ports do not come faster than they go.
#[test]
fn new_ports_wake_the_tasks_of_ended_ones() {
    #[derive(Default)]
    struct Count(AtomicUsize);
    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let Some((ring, first, _peer)) = pair() else { return };
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let mut peers = Vec::new();
    let mut attach = || {
        peers.push(TcpStream::connect(listener.local_addr().expect("bound")).expect("it listens"));
        ring.attach(listener.accept().expect("connected").0).expect("a socket")
    };
    let mut ports = vec![first];
    ports.extend((1..10).map(|_| attach()));
    let count = Arc::new(Count::default());
    let waker = count.clone().into();
    for port in &mut ports {
        assert!(!port.poll(&mut Context::from_waker(&waker), true, false).read);
    }
    let mut inner = ring.inner.borrow_mut();
    inner.queue.clear();
    (0..ports.len()).for_each(|index| inner.complete(index, RequestKind::Receive, 0, 0));
    drop(inner);
    let woken = || count.0.load(Ordering::Relaxed);
    assert_eq!(woken(), 0);
    let _new: Vec<_> = (0..5).map(|_| attach()).collect();
    assert_eq!(woken(), 5);
    ring.turn().expect("the ring works");
    assert_eq!(woken(), ports.len());
}
