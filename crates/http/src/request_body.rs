//! [`RequestBody`]: the body of a request. The handler reads the body; the connection reads what the handler has left.
//!
//! A handler may answer before it has read the body, for instance with an error. The next request begins behind the
//! body. So the connection reads a short rest, and closes behind a long one ([`RequestBody::read_rest`]).

use crate::exchange::Context;
use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use hyper::header::{EXPECT, HeaderMap};
use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{self, Poll};

/// Maximum number of bytes of a body that are read and dropped behind a response.
pub const REST_BYTES_MAX: u64 = 64 * 1024;
/// Maximum time in milliseconds for which a response waits for the rest of the body.
pub const REST_MS_MAX: u64 = 1_000;

/// The body of a request, without the part that was read.
#[derive(Clone)]
pub struct RequestBody {
    incoming: Rc<RefCell<Incoming>>,
    /// True when a reader has come to the end. hyper does not tell this of a body in chunks.
    is_read: Rc<Cell<bool>>,
    /// True when the client sends the body only after the interim response 100, so perhaps not at all.
    expects_interim: bool,
}

impl RequestBody {
    /// The body of the request with these headers.
    pub(crate) fn new(incoming: Incoming, headers: &HeaderMap) -> RequestBody {
        RequestBody {
            is_read: Rc::new(Cell::new(incoming.is_end_stream())),
            incoming: Rc::new(RefCell::new(incoming)),
            expects_interim: headers.contains_key(EXPECT),
        }
    }
    /// The number of bytes that are not read yet, as far as it is known.
    pub fn size_hint(&self) -> SizeHint {
        self.incoming.borrow().size_hint()
    }
    /// The next frame of the body; `None` at the end.
    pub(crate) fn poll_frame(
        &self,
        cx: &mut task::Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let mut incoming = self.incoming.borrow_mut();
        let frame = Pin::new(&mut *incoming).poll_frame(cx);
        self.is_read.set(matches!(frame, Poll::Ready(None)) || incoming.is_end_stream());
        frame
    }
    /// Reads and drops the rest of the body, if the rest is known to have at most [`REST_BYTES_MAX`] bytes and arrives within
    /// [`REST_MS_MAX`]. Returns false when the rest was not read: the connection must then end with this response, and say
    /// so. A body in chunks is left to hyper, which goes on if the whole body has arrived, because its client may need the
    /// response now.
    pub(crate) async fn read_rest(self, context: &Context) -> bool {
        // A response that is generated while the body is read holds the body, too.
        let is_in_use = Rc::strong_count(&self.incoming) > 1;
        let Some(bytes) = self.size_hint().exact() else { return true };
        if is_in_use || self.is_read.get() {
            return true;
        }
        if self.expects_interim || bytes > REST_BYTES_MAX {
            return false;
        }
        let mut end_of_wait = pin!((context.settings.sleep.0)(REST_MS_MAX));
        poll_fn(|cx| {
            if context.is_ending() || end_of_wait.as_mut().poll(cx).is_ready() {
                return Poll::Ready(false);
            }
            loop {
                match self.poll_frame(cx) {
                    Poll::Ready(Some(Ok(_))) => {}
                    Poll::Ready(end) => return Poll::Ready(end.is_none()),
                    Poll::Pending if context.is_stalled() => return Poll::Ready(false),
                    Poll::Pending => return Poll::Pending,
                }
            }
        })
        .await
    }
}
