//! One command's arguments: [`Argv`] owns them (reused from command to command), [`Args`] is the view of a handler.
//!
//! Small arguments lie in one buffer, in which the decoder may leave gaps (it copies a whole command at once, headers
//! included); large ones were received straight into blobs of their own. Nothing here knows RESP.

use strand_chain::Blob;

/// Room of the shared buffer that is kept from one command to the next, in bytes. A session holds it while it is idle;
/// [`Argv::release`] gives it up.
const KEPT_BUFFER_BYTES_MAX: usize = 16 * 1024;
/// Entries of the span list that are kept from one command to the next.
const KEPT_SPANS_MAX: usize = 1024;
/// The shared buffer does not grow past this, so that positions in it fit 32 bits; what comes after it goes to blobs.
const BUFFER_BYTES_MAX: usize = u32::MAX as usize >> 1;
/// The length that marks a span as the number of a blob.
const IS_BLOB: u32 = u32::MAX;

/// Where one argument lies: `start..start + len` of the buffer, or blob number `start` when `len` is [`IS_BLOB`].
#[derive(Clone, Copy, Debug)]
struct Span {
    start: u32,
    len: u32,
}

/// A command as received. Small arguments lie in one buffer, large ones in their own blobs.
#[derive(Debug, Default)]
pub struct Argv {
    buffer: Vec<u8>,
    blobs: Vec<Blob>,
    /// Heap of all blobs.
    blob_bytes: usize,
    spans: Vec<Span>,
}

impl Argv {
    /// An empty argv.
    pub fn new() -> Argv {
        Argv::default()
    }
    /// From slices; for tests and for commands made inside the server.
    pub fn from_slices<T: AsRef<[u8]>>(args: &[T]) -> Argv {
        let mut argv = Argv::new();
        args.iter().for_each(|a| argv.push(a.as_ref()));
        argv
    }
    /// Number of arguments, the command's name included.
    #[inline]
    pub fn len(&self) -> usize {
        self.spans.len()
    }
    /// True when it holds no argument.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }
    /// Forgets the arguments and keeps the room (up to a bound) for the next command.
    #[inline]
    pub fn clear(&mut self) {
        self.spans.clear();
        self.buffer.clear();
        if !self.blobs.is_empty()
            || self.buffer.capacity() > KEPT_BUFFER_BYTES_MAX
            || self.spans.capacity() > KEPT_SPANS_MAX
        {
            self.shrink();
        }
    }
    /// Appends an argument by copy.
    #[inline]
    pub fn push(&mut self, bytes: &[u8]) {
        if self.buffer.len() + bytes.len() > BUFFER_BYTES_MAX {
            return self.push_blob(Blob::from(bytes));
        }
        let start = self.buffer.len() as u32;
        self.buffer.extend_from_slice(bytes);
        self.spans.push(Span { start, len: bytes.len() as u32 });
    }
    /// Appends an argument that lies in its own allocation.
    pub fn push_blob(&mut self, blob: Blob) {
        self.spans.push(Span { start: self.blobs.len() as u32, len: IS_BLOB });
        self.blob_bytes += blob.heap_bytes();
        self.blobs.push(blob);
    }
    /// The view that handlers read.
    #[inline]
    pub fn args(&self) -> Args<'_> {
        Args { argv: self, from: 0 }
    }
    /// Forgets the arguments and gives up all room: for a session that goes idle.
    pub fn release(&mut self) {
        *self = Argv::new();
    }
    /// Bytes of heap held. Costs nothing to ask, so that a bound on what one request may hold can be checked whenever
    /// more of it is awaited.
    pub fn heap_bytes(&self) -> usize {
        self.buffer.capacity()
            + self.spans.capacity() * size_of::<Span>()
            + self.blobs.capacity() * size_of::<Blob>()
            + self.blob_bytes
    }
    /// True when the buffer can take `n` bytes more.
    #[inline]
    pub(crate) fn has_room(&self, n: usize) -> bool {
        self.buffer.len() + n <= BUFFER_BYTES_MAX
    }
    /// Bytes in the shared buffer.
    #[inline]
    pub(crate) fn buffer_len(&self) -> usize {
        self.buffer.len()
    }
    /// Appends an argument that lies at `start..start + len` of the shared buffer, whose bytes follow by
    /// [`Argv::append`] before anybody looks.
    #[inline]
    pub(crate) fn push_span(&mut self, start: usize, len: usize) {
        self.spans.push(Span { start: start as u32, len: len as u32 });
    }
    /// Appends bytes to the shared buffer.
    #[inline]
    pub(crate) fn append(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    #[cold]
    fn shrink(&mut self) {
        self.blobs = Vec::new();
        self.blob_bytes = 0;
        if self.buffer.capacity() > KEPT_BUFFER_BYTES_MAX {
            self.buffer = Vec::new();
        }
        if self.spans.capacity() > KEPT_SPANS_MAX {
            self.spans = Vec::new();
        }
    }
}

/// A borrowed view of a command's arguments; index 0 is the command's name. `Copy`: pass it on freely.
#[derive(Clone, Copy, Debug)]
pub struct Args<'a> {
    argv: &'a Argv,
    from: usize,
}

impl<'a> Args<'a> {
    /// Number of arguments.
    #[inline]
    pub fn len(&self) -> usize {
        self.argv.spans.len() - self.from
    }
    /// True when there is none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Argument `i`.
    ///
    /// # Panics
    /// When `i >= len()`: arity was checked before a handler runs.
    #[inline]
    pub fn at(&self, i: usize) -> &'a [u8] {
        let span = self.argv.spans[self.from + i];
        if span.len == IS_BLOB {
            return &self.argv.blobs[span.start as usize];
        }
        let start = span.start as usize;
        &self.argv.buffer[start..start + span.len as usize]
    }
    /// Argument `i`, or `None` past the end.
    #[inline]
    pub fn get(&self, i: usize) -> Option<&'a [u8]> {
        (i < self.len()).then(|| self.at(i))
    }
    /// Argument `i` as a blob: shared without copying when it arrived large, copied when small.
    ///
    /// # Panics
    /// When `i >= len()`.
    pub fn blob(&self, i: usize) -> Blob {
        let span = self.argv.spans[self.from + i];
        if span.len == IS_BLOB {
            return self.argv.blobs[span.start as usize].clone();
        }
        Blob::from(self.at(i))
    }
    /// Argument `i` where it lies, when it arrived large: to be shared without copying.
    ///
    /// # Panics
    /// When `i >= len()`.
    #[inline]
    pub fn large(&self, i: usize) -> Option<&'a Blob> {
        let span = self.argv.spans[self.from + i];
        (span.len == IS_BLOB).then(|| &self.argv.blobs[span.start as usize])
    }
    /// The arguments from `i` on.
    #[inline]
    pub fn skip(&self, i: usize) -> Args<'a> {
        Args { argv: self.argv, from: (self.from + i).min(self.argv.spans.len()) }
    }
    /// All arguments in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &'a [u8]> + use<'a> {
        let this = *self;
        (0..this.len()).map(move |i| this.at(i))
    }
    /// True when argument `i` equals `word`, ASCII case aside.
    #[inline]
    pub fn is(&self, i: usize, word: &str) -> bool {
        self.get(i).is_some_and(|a| a.eq_ignore_ascii_case(word.as_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn views_and_blobs() {
        let mut argv = Argv::from_slices(&["set", "key"]);
        argv.push_blob(Blob::from(&b"value"[..]));
        let args = argv.args();
        assert_eq!(args.iter().collect::<Vec<_>>(), [&b"set"[..], b"key", b"value"]);
        assert!(args.is(0, "SET") && !args.is(1, "SET") && !args.is(7, "SET"));
        assert_eq!(args.skip(1).at(1), b"value");
        assert_eq!(args.skip(9).len(), 0);
        assert_eq!(&*args.blob(1), b"key");
        assert_eq!(args.blob(2).as_slice().as_ptr(), args.at(2).as_ptr(), "a large argument is shared");
        assert_eq!(args.large(2).map(|b| b.as_slice().as_ptr()), Some(args.at(2).as_ptr()));
        assert!(args.large(1).is_none());
        assert_eq!(args.get(3), None);
    }

    #[test]
    fn clear_keeps_bounded_room() {
        let mut argv = Argv::from_slices(&[vec![b'x'; 1000]]);
        argv.clear();
        assert!(argv.is_empty() && argv.heap_bytes() >= 1000);
        argv.push(&vec![b'x'; KEPT_BUFFER_BYTES_MAX + 1]);
        (0..KEPT_SPANS_MAX + 1).for_each(|_| argv.push(b""));
        argv.push_blob(Blob::from(&b"value"[..]));
        argv.clear();
        assert_eq!(argv.heap_bytes(), 0);
        argv.push(b"x");
        argv.release();
        assert_eq!(argv.heap_bytes(), 0);
    }
}
