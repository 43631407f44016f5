//! Response bodies: bytes that are sent at once, a chain that is sent without copies, or pieces that a future writes
//! while the client reads.

use crate::pipe::Holding;
use bytes::{Buf, Bytes};
use hyper::body::{Body, Frame, SizeHint};
use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::io::IoSlice;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use strand_chain::Chain;

/// Maximum number of bytes of a chain that are sent in one piece.
pub const PIECE_BYTES_MAX: usize = 64 * 1024;
/// Slices of at least this length are shared with the socket's output. Shorter ones are copied.
pub const SHARE_BYTES_MIN: usize = 8 * 1024;

/// A piece of a response body.
pub enum Piece {
    /// A piece from a chain.
    Chain(Chain),
    /// Bytes that are not in a chain.
    Bytes(Bytes),
}

impl Buf for Piece {
    fn remaining(&self) -> usize {
        match self {
            Piece::Chain(chain) => chain.len(),
            Piece::Bytes(bytes) => bytes.len(),
        }
    }
    fn chunk(&self) -> &[u8] {
        match self {
            Piece::Chain(chain) => chain.front(),
            Piece::Bytes(bytes) => bytes,
        }
    }
    fn advance(&mut self, n: usize) {
        match self {
            Piece::Chain(chain) => chain.advance(n),
            Piece::Bytes(bytes) => bytes.advance(n),
        }
    }
    fn chunks_vectored<'a>(&'a self, out: &mut [IoSlice<'a>]) -> usize {
        match self {
            Piece::Chain(chain) => chain.io_slices(out, usize::MAX),
            Piece::Bytes(bytes) => match out.first_mut() {
                Some(first) if !bytes.is_empty() => {
                    *first = IoSlice::new(bytes);
                    1
                }
                _ => 0,
            },
        }
    }
}

/// The error when a response cannot be completed as announced. The connection is cut, so that the client notices.
#[derive(Debug)]
pub struct TruncatedBody;

impl std::fmt::Display for TruncatedBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the response was cut short")
    }
}
impl std::error::Error for TruncatedBody {}

/// The response bytes that a connection buffers before its socket takes them, see [`Outgoing::push`].
#[derive(Clone, Default)]
pub struct Outgoing {
    /// Long slices of response bodies that the HTTP codec has taken but not yet passed to [`Outgoing::push`].
    shared: Rc<RefCell<Chain>>,
    /// Number of bytes that wait for the socket.
    unsent_bytes: Rc<Cell<usize>>,
}

impl Outgoing {
    /// Sets the number of bytes that wait for the socket.
    pub fn set_unsent(&self, bytes: usize) {
        self.unsent_bytes.set(bytes);
    }
    /// Number of bytes that wait for the socket.
    pub fn unsent_bytes(&self) -> usize {
        self.unsent_bytes.get()
    }
    fn announce(&self, piece: &Chain) {
        let mut shared = self.shared.borrow_mut();
        // Bound the bytes kept in `shared`. Slices that `push` does not find there are copied, so nothing is lost.
        if shared.len() > 16 * PIECE_BYTES_MAX {
            shared.clear();
        }
        shared.push_chain(piece.share());
    }
    /// Appends `slices`, which the HTTP codec wants to write, to `output`. A slice that is a body's own memory is
    /// shared, not copied. Such a slice is recognised by its address, which is unique while the body is kept here.
    pub fn push(&self, slices: &[IoSlice<'_>], output: &mut Chain) -> usize {
        let mut shared = self.shared.borrow_mut();
        for slice in slices {
            let front = shared.front();
            let known = !slice.is_empty() && front.as_ptr() == slice.as_ptr() && front.len() >= slice.len();
            if known && slice.len() >= SHARE_BYTES_MIN {
                let part = shared.split_to(slice.len());
                output.push_chain(part);
                continue;
            }
            output.push_slice(slice);
            if known {
                shared.advance(slice.len());
            }
        }
        slices.iter().map(|s| s.len()).sum()
    }
}

/// A response body.
pub enum ResponseBody {
    /// The response has no body.
    Empty,
    /// The whole body, which is sent at once.
    Whole(Bytes),
    /// A chain that is sent in pieces. The bytes that are not sent yet count as the client's memory.
    Chain(Chain, Outgoing, Holding),
    /// A body that a future writes.
    Generated(GeneratedBody),
}

impl ResponseBody {
    /// A body that is complete.
    pub fn whole(bytes: impl Into<Bytes>) -> ResponseBody {
        ResponseBody::Whole(bytes.into())
    }
    /// A body that is a shared chain. `holding` counts the unsent bytes of the chain.
    pub fn chain(chain: Chain, outgoing: Outgoing, mut holding: Holding) -> ResponseBody {
        holding.set(chain.len());
        ResponseBody::Chain(chain, outgoing, holding)
    }
    /// A body that the future of `make` writes while the client reads it.
    pub fn generated<F: Future<Output = Result<(), TruncatedBody>> + 'static>(
        make: impl FnOnce(Writer) -> F,
    ) -> ResponseBody {
        let slot = Rc::new(RefCell::new(None));
        let future = Box::pin(make(Writer { slot: slot.clone() }));
        ResponseBody::Generated(GeneratedBody { slot, future: Some(future), cut: None })
    }
}

/// Where a future writes a body, piece by piece.
pub struct Writer {
    slot: Rc<RefCell<Option<Bytes>>>,
}

impl Writer {
    /// True when [`Writer::send`] would not wait.
    pub fn is_ready_for_piece(&self) -> bool {
        self.slot.borrow().is_none()
    }
    /// Waits until the previous piece has been taken, then passes on `piece`.
    pub async fn send(&self, piece: Vec<u8>) {
        if piece.is_empty() {
            return;
        }
        poll_fn(|_| if self.slot.borrow().is_none() { Poll::Ready(()) } else { Poll::Pending }).await;
        self.put(piece);
    }
    /// Passes on `piece`. The previous piece must have been taken ([`Writer::is_ready_for_piece`]).
    pub fn put(&self, piece: Vec<u8>) {
        if !piece.is_empty() {
            *self.slot.borrow_mut() = Some(Bytes::from(piece));
        }
    }
}

/// A future that writes a body.
type BodyFuture = dyn Future<Output = Result<(), TruncatedBody>>;

/// A body that a future writes: see [`ResponseBody::generated`].
pub struct GeneratedBody {
    slot: Rc<RefCell<Option<Bytes>>>,
    future: Option<Pin<Box<BodyFuture>>>,
    /// The error to report after the written pieces, if `future` failed.
    cut: Option<TruncatedBody>,
}

impl GeneratedBody {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, TruncatedBody>>> {
        loop {
            if let Some(piece) = self.slot.borrow_mut().take() {
                return Poll::Ready(Some(Ok(piece)));
            }
            let Some(future) = &mut self.future else { return Poll::Ready(self.cut.take().map(Err)) };
            match future.as_mut().poll(cx) {
                Poll::Ready(end) => {
                    self.future = None;
                    self.cut = end.err();
                }
                Poll::Pending if self.slot.borrow().is_none() => return Poll::Pending,
                Poll::Pending => {}
            }
        }
    }
}

impl Body for ResponseBody {
    type Data = Piece;
    type Error = TruncatedBody;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Piece>, TruncatedBody>>> {
        let this = self.get_mut();
        let piece = match this {
            ResponseBody::Empty => None,
            ResponseBody::Whole(bytes) => Some(Piece::Bytes(std::mem::take(bytes))),
            ResponseBody::Chain(chain, outgoing, holding) => {
                let piece = chain.split_to(chain.len().min(PIECE_BYTES_MAX));
                holding.set(chain.len());
                if piece.front().len() >= SHARE_BYTES_MIN {
                    outgoing.announce(&piece);
                }
                Some(Piece::Chain(piece))
            }
            ResponseBody::Generated(made) => match made.poll(cx) {
                Poll::Ready(Some(Ok(bytes))) => Some(Piece::Bytes(bytes)),
                Poll::Ready(Some(Err(cut))) => return Poll::Ready(Some(Err(cut))),
                Poll::Ready(None) => None,
                Poll::Pending => return Poll::Pending,
            },
        };
        Poll::Ready(piece.filter(|p| p.has_remaining()).map(|p| Ok(Frame::data(p))))
    }
    fn is_end_stream(&self) -> bool {
        match self {
            ResponseBody::Empty => true,
            ResponseBody::Whole(bytes) => bytes.is_empty(),
            ResponseBody::Chain(chain, ..) => chain.is_empty(),
            ResponseBody::Generated(made) => {
                made.future.is_none() && made.cut.is_none() && made.slot.borrow().is_none()
            }
        }
    }
    fn size_hint(&self) -> SizeHint {
        match self {
            ResponseBody::Empty => SizeHint::with_exact(0),
            ResponseBody::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            ResponseBody::Chain(chain, ..) => SizeHint::with_exact(chain.len() as u64),
            ResponseBody::Generated(_) => SizeHint::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use strand_chain::Blob;

    #[test]
    fn long_slices_of_a_body_are_shared_with_the_output() {
        let blob = Blob::from(vec![b'v'; 200_000]);
        let mut chain = Chain::new();
        chain.push_blob(blob.clone());
        let outgoing = Outgoing::default();
        let (http_end, _session_end) = crate::pipe::pipe();
        let mut body = ResponseBody::chain(chain, outgoing.clone(), http_end.holding());
        let mut cx = Context::from_waker(std::task::Waker::noop());
        let mut output = Chain::new();
        while let Poll::Ready(Some(Ok(frame))) = Pin::new(&mut body).poll_frame(&mut cx) {
            let mut piece = frame.into_data().ok().expect("data");
            while piece.has_remaining() {
                let mut slices = [IoSlice::new(b"head"), IoSlice::new(&[])];
                let n = piece.chunks_vectored(&mut slices[1..]);
                let len = outgoing.push(&slices[..=n], &mut output);
                piece.advance(len - 4);
            }
        }
        assert_eq!(output.len(), 200_000 + 4 * 4);
        let inside = blob.as_slice().as_ptr_range();
        let shared: usize = output.slices().filter(|s| inside.contains(&s.as_ptr())).map(<[u8]>::len).sum();
        assert_eq!(shared, 3 * PIECE_BYTES_MAX, "all but the short last piece");
        assert!(outgoing.shared.borrow().is_empty());
    }

    #[test]
    fn a_generated_body_is_sent_in_pieces_and_can_be_truncated() {
        let mut body = ResponseBody::generated(|out| async move {
            out.send(b"one".to_vec()).await;
            out.send(Vec::new()).await;
            out.send(b"two".to_vec()).await;
            Err(TruncatedBody)
        });
        let mut cx = Context::from_waker(std::task::Waker::noop());
        let mut next = || match Pin::new(&mut body).poll_frame(&mut cx) {
            Poll::Ready(Some(Ok(frame))) => frame.into_data().ok().map(|p| p.chunk().to_vec()),
            Poll::Ready(Some(Err(TruncatedBody))) => Some(b"cut".to_vec()),
            _ => None,
        };
        assert_eq!(
            [next(), next(), next(), next()],
            [Some(b"one".to_vec()), Some(b"two".to_vec()), Some(b"cut".to_vec()), None]
        );
    }
}
