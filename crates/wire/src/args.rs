//! One command's arguments. [`Argv`] owns them and is reused for every command of a session. [`Args`] is the view
//! for handlers.
//!
//! Small arguments lie in one buffer. The buffer may have gaps, because the decoder copies a whole command at once,
//! headers included. Large arguments were received directly into blobs. A command with very many arguments
//! continues in further blocks, so received bytes never move. (For MSET with 100,000 keys, doubling one buffer to
//! 16 MB stopped its worker for 3.7 ms, mostly in page faults.) Only [`Args::encoded`] knows RESP here.

use smallvec::SmallVec;
use strand_chain::Blob;

/// Maximum capacity of the shared buffer that is kept between commands, in bytes. An idle session keeps the buffer
/// until [`Argv::release`].
const KEPT_BUFFER_BYTES_MAX: usize = 16 * 1024;
/// Maximum capacity of the span list that is kept between commands.
const KEPT_SPANS_MAX: usize = 1024;
/// Size of a block of small arguments. A command with more bytes continues in a new block. An argument lies in one
/// block. An inline request also fits into one block. Its words are found one by one.
const BLOCK_BYTES: usize = 1 << BLOCK_BITS;
const BLOCK_BITS: u32 = 17;
/// Maximum number of blocks, so that a position fits into 32 bits. Further arguments become blobs.
const BLOCKS_MAX: usize = 1 << (31 - BLOCK_BITS);
/// Maximum number of spans in one block of the span list.
const SPANS_MAX: usize = 16 * 1024;
/// The value of a span's length that marks the span as the number of a blob.
const BLOB_MARK: u32 = u32::MAX;

/// The place of an argument: bytes `start..start + len` of the blocks, each [`BLOCK_BYTES`] long. When `len` is
/// [`BLOB_MARK`], the argument is blob number `start`.
#[derive(Clone, Copy, Debug)]
struct Span {
    start: u32,
    len: u32,
}

/// A command as received. Small arguments lie in one buffer, large ones in their own blobs.
#[derive(Debug, Default)]
pub struct Argv {
    /// The first block of small arguments.
    buffer: Vec<u8>,
    /// The spans of the first arguments, up to [`SPANS_MAX`].
    spans: Vec<Span>,
    /// In a box, because every session command takes the argv out of its session and puts it back: a move of 56
    /// bytes instead of 136.
    overflow: Option<Box<Overflow>>,
}

/// The arguments that do not fit into the first block or the first list of spans. Few commands have any.
#[derive(Debug, Default)]
struct Overflow {
    /// Room for one, so that a command with one large argument needs one allocation besides the argument.
    blobs: SmallVec<[Blob; 1]>,
    /// Number of heap bytes of all blobs.
    blob_bytes: usize,
    /// The blocks of small arguments after the first block.
    blocks: Vec<Vec<u8>>,
    /// The spans after the first [`SPANS_MAX`], in lists of [`SPANS_MAX`].
    spans: Vec<Vec<Span>>,
    /// Number of the spans after the first [`SPANS_MAX`].
    spans_len: usize,
}

impl Overflow {
    fn heap_bytes(&self) -> usize {
        size_of::<Overflow>()
            + if self.blobs.spilled() { self.blobs.capacity() * size_of::<Blob>() } else { 0 }
            + self.blob_bytes
            + self.blocks.len() * BLOCK_BYTES
            + self.spans.len() * SPANS_MAX * size_of::<Span>()
    }
}

impl Argv {
    /// An empty argv.
    pub fn new() -> Argv {
        Argv::default()
    }
    /// An argv from slices, for tests and for commands made inside the server.
    pub fn from_slices<T: AsRef<[u8]>>(args: &[T]) -> Argv {
        let mut argv = Argv::new();
        args.iter().for_each(|a| argv.push(a.as_ref()));
        argv
    }
    /// Takes the arguments. The empty argv that is left has room for as many small arguments, so that a command as
    /// large as this one does not grow its buffers step by step.
    pub fn take(&mut self) -> Argv {
        let like = Argv {
            buffer: Vec::with_capacity(self.buffer.len()),
            spans: Vec::with_capacity(self.spans.len()),
            overflow: None,
        };
        std::mem::replace(self, like)
    }
    /// Number of arguments, the command's name included.
    #[inline]
    pub fn len(&self) -> usize {
        self.spans.len() + self.overflow.as_ref().map_or(0, |overflow| overflow.spans_len)
    }
    /// True when there are no arguments.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }
    /// Removes the arguments. Keeps the capacity (up to a limit) for the next command.
    #[inline]
    pub fn clear(&mut self) {
        self.spans.clear();
        self.buffer.clear();
        if self.overflow.is_some()
            || self.buffer.capacity() > KEPT_BUFFER_BYTES_MAX
            || self.spans.capacity() > KEPT_SPANS_MAX
        {
            self.shrink();
        }
    }
    /// Appends a copy of an argument.
    #[inline]
    pub fn push(&mut self, bytes: &[u8]) {
        if !self.reserve(bytes.len()) {
            return self.push_blob(Blob::from(bytes));
        }
        self.push_span(self.position(), bytes.len());
        self.append(bytes);
    }
    /// Appends an argument that has its own allocation.
    pub fn push_blob(&mut self, blob: Blob) {
        let overflow = self.overflow.get_or_insert_default();
        let at = overflow.blobs.len() as u32;
        overflow.blob_bytes += blob.heap_bytes();
        overflow.blobs.push(blob);
        self.add(Span { start: at, len: BLOB_MARK });
    }
    /// The view that handlers read.
    #[inline]
    pub fn args(&self) -> Args<'_> {
        Args { argv: self, from: 0 }
    }
    /// Removes the arguments and frees all memory. Called when a session becomes idle.
    pub fn release(&mut self) {
        *self = Argv::new();
    }
    /// Heap bytes that the argv holds. The call is cheap, so that the limit of a request can be checked each time
    /// before the session waits for more input.
    pub fn heap_bytes(&self) -> usize {
        let small = self.buffer.capacity() + self.spans.capacity() * size_of::<Span>();
        small + self.overflow.as_ref().map_or(0, |overflow| overflow.heap_bytes())
    }
    /// Makes room so that the next `n` bytes are contiguous. Returns false when there is no room.
    #[inline]
    pub(crate) fn reserve(&mut self, n: usize) -> bool {
        (self.overflow.is_none() && self.buffer.len() + n <= BLOCK_BYTES) || self.reserve_overflow(n)
    }
    /// The position of the next appended byte.
    #[inline]
    pub(crate) fn position(&self) -> usize {
        let blocks = self.overflow.as_ref().map_or(&[][..], |overflow| &overflow.blocks);
        match blocks.last() {
            None => self.buffer.len(),
            Some(last) => blocks.len() * BLOCK_BYTES + last.len(),
        }
    }
    /// Appends an argument at `start..start + len`. The caller must append its bytes with [`Argv::append`], after
    /// one [`Argv::reserve`], before the argument is read.
    #[inline]
    pub(crate) fn push_span(&mut self, start: usize, len: usize) {
        self.add(Span { start: start as u32, len: len as u32 });
    }
    /// Appends bytes for which room was reserved.
    #[inline]
    pub(crate) fn append(&mut self, bytes: &[u8]) {
        match self.overflow.as_mut().and_then(|overflow| overflow.blocks.last_mut()) {
            Some(block) => block.extend_from_slice(bytes),
            None => {
                if self.buffer.capacity() - self.buffer.len() < bytes.len() {
                    self.grow(bytes.len());
                }
                self.buffer.extend_from_slice(bytes);
            }
        }
    }
    /// Doubles the first block, up to [`BLOCK_BYTES`]. A vector alone would grow to nearly twice as much.
    #[cold]
    fn grow(&mut self, n: usize) {
        let len = self.buffer.len();
        let capacity = (2 * self.buffer.capacity()).min(BLOCK_BYTES).max(len + n);
        self.buffer.reserve_exact(capacity - len);
    }

    #[inline]
    fn add(&mut self, span: Span) {
        if self.spans.len() < SPANS_MAX {
            self.spans.push(span);
        } else {
            self.add_overflow(span);
        }
    }
    #[cold]
    fn add_overflow(&mut self, span: Span) {
        let Overflow { spans, spans_len, .. } = &mut **self.overflow.get_or_insert_default();
        if spans_len.is_multiple_of(SPANS_MAX) {
            spans.push(Vec::with_capacity(SPANS_MAX));
        }
        spans[*spans_len / SPANS_MAX].push(span);
        *spans_len += 1;
    }
    #[cold]
    fn reserve_overflow(&mut self, n: usize) -> bool {
        let blocks = self.overflow.as_ref().map_or(&[][..], |overflow| &overflow.blocks);
        if blocks.last().unwrap_or(&self.buffer).len() + n <= BLOCK_BYTES {
            return true;
        }
        if n > BLOCK_BYTES || blocks.len() + 1 == BLOCKS_MAX {
            return false;
        }
        self.overflow.get_or_insert_default().blocks.push(Vec::with_capacity(BLOCK_BYTES));
        true
    }
    #[inline]
    fn span(&self, i: usize) -> Span {
        self.spans.get(i).copied().unwrap_or_else(|| self.span_overflow(i))
    }
    #[cold]
    fn span_overflow(&self, i: usize) -> Span {
        let overflow = i - self.spans.len();
        self.overflow().spans[overflow / SPANS_MAX][overflow % SPANS_MAX]
    }
    /// The overflow, for a span that says that there is one.
    fn overflow(&self) -> &Overflow {
        self.overflow.as_ref().expect("the span lies in the overflow")
    }
    #[inline]
    fn bytes(&self, span: Span) -> &[u8] {
        let start = span.start as usize;
        match self.buffer.get(start..start.wrapping_add(span.len as usize)) {
            Some(bytes) => bytes,
            None => self.bytes_overflow(span),
        }
    }
    #[cold]
    fn bytes_overflow(&self, span: Span) -> &[u8] {
        let (start, len) = (span.start as usize, span.len as usize);
        if span.len == BLOB_MARK {
            return &self.overflow().blobs[start];
        }
        // An empty argument may lie at the start of a block that does not exist.
        if len == 0 {
            return &[];
        }
        let at = start % BLOCK_BYTES;
        match start / BLOCK_BYTES {
            0 => &self.buffer[at..at + len],
            block => &self.overflow().blocks[block - 1][at..at + len],
        }
    }
    #[cold]
    fn shrink(&mut self) {
        self.overflow = None;
        if self.buffer.capacity() > KEPT_BUFFER_BYTES_MAX {
            self.buffer = Vec::new();
        }
        if self.spans.capacity() > KEPT_SPANS_MAX {
            self.spans = Vec::new();
        }
    }
}

/// A borrowed view of a command's arguments. Index 0 is the command's name.
#[derive(Clone, Copy, Debug)]
pub struct Args<'a> {
    argv: &'a Argv,
    from: usize,
}

impl<'a> Args<'a> {
    /// Number of arguments.
    #[inline]
    pub fn len(&self) -> usize {
        self.argv.len() - self.from
    }
    /// True when there are no arguments.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Argument `i`.
    ///
    /// # Panics
    /// Panics if `i >= len()`: arity was checked before a handler runs.
    #[inline]
    pub fn at(&self, i: usize) -> &'a [u8] {
        self.argv.bytes(self.argv.span(self.from + i))
    }
    /// Argument `i`, or `None` past the end.
    #[inline]
    pub fn get(&self, i: usize) -> Option<&'a [u8]> {
        (i < self.len()).then(|| self.at(i))
    }
    /// Argument `i` as a blob: shared when it arrived as a large body, copied when it is small.
    ///
    /// # Panics
    /// Panics if `i >= len()`.
    pub fn blob(&self, i: usize) -> Blob {
        self.large(i).cloned().unwrap_or_else(|| Blob::from(self.at(i)))
    }
    /// The blob of argument `i`, if it arrived as a large body. Can be shared without a copy.
    ///
    /// # Panics
    /// Panics if `i >= len()`.
    #[inline]
    pub fn large(&self, i: usize) -> Option<&'a Blob> {
        let span = self.argv.span(self.from + i);
        (span.len == BLOB_MARK).then(|| &self.argv.overflow().blobs[span.start as usize])
    }
    /// The received RESP bytes of all arguments: each argument with its header, without the header of the command.
    /// `None` when one buffer does not hold all these bytes.
    ///
    /// The decoder has checked the header of each argument. It has not checked the line ends after bodies and the
    /// `\n` of a header, which a client may have replaced by other bytes.
    #[inline]
    pub fn encoded(&self) -> Option<&'a [u8]> {
        /// Minimum length of an argument's header: `$`, a digit and a line end.
        const HEADER_BYTES_MIN: usize = 4;
        let Argv { buffer, spans, overflow } = self.argv;
        if self.from > 0 || overflow.is_some() {
            return None;
        }
        let mut next = 0;
        for span in spans {
            let start = span.start as usize;
            let end = start.checked_add(span.len as usize)?;
            let has_header =
                start.checked_sub(next)? >= HEADER_BYTES_MIN && buffer.get(start - 1) == Some(&b'\n');
            if !has_header || buffer.get(end..end + 2) != Some(b"\r\n") {
                return None;
            }
            next = end + 2;
        }
        (next == buffer.len()).then_some(buffer)
    }
    /// The arguments from index `i` on.
    #[inline]
    pub fn skip(&self, i: usize) -> Args<'a> {
        Args { argv: self.argv, from: (self.from + i).min(self.argv.len()) }
    }
    /// All arguments in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &'a [u8]> + use<'a> {
        let this = *self;
        (0..this.len()).map(move |i| this.at(i))
    }
    /// True when argument `i` equals `word`, ignoring ASCII case.
    #[inline]
    pub fn is(&self, i: usize, word: &str) -> bool {
        self.get(i).is_some_and(|a| a.eq_ignore_ascii_case(word.as_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resp::{Decoder, RequestLimits};
    use strand_chain::Chain;

    #[test]
    fn arguments_are_read_as_views_and_as_blobs() {
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
    fn a_cleared_argv_keeps_no_block() {
        let mut argv = Argv::new();
        // The second argument fits into a block of its own only, while the first block stays small.
        for _ in 0..3 {
            argv.push(b"SET");
            argv.push(&[b'x'; BLOCK_BYTES]);
            assert_eq!(argv.args().at(1).len(), BLOCK_BYTES);
            assert!(argv.heap_bytes() < 2 * BLOCK_BYTES);
            argv.clear();
            assert!(argv.heap_bytes() <= KEPT_BUFFER_BYTES_MAX, "{}", argv.heap_bytes());
        }
    }

    #[test]
    fn the_first_block_grows_to_its_size_and_no_further() {
        let mut argv = Argv::new();
        (0..250).for_each(|_| argv.push(&[b'x'; 1000]));
        assert_eq!(argv.args().at(249), [b'x'; 1000]);
        let heap_bytes = argv.heap_bytes();
        assert!((2 * BLOCK_BYTES..2 * BLOCK_BYTES + 8192).contains(&heap_bytes), "{heap_bytes}");
    }

    /// Decodes these pieces, and returns what [`Args::encoded`] returns. A result must be the arguments in RESP.
    fn encoded(pieces: &[&[u8]]) -> Option<Vec<u8>> {
        let (mut decoder, mut input, mut argv) =
            (Decoder::new(RequestLimits::FULL), Chain::new(), Argv::new());
        for piece in pieces {
            input.push_slice(piece);
            decoder.decode(&mut input, &mut argv).expect("a good request");
        }
        assert_eq!(argv.args().iter().collect::<Vec<_>>(), [&b"SET"[..], b"", b"xy"]);
        assert_eq!(argv.args().skip(1).encoded(), None);
        let encoded = argv.args().encoded().map(<[u8]>::to_vec);
        assert!(encoded.as_ref().is_none_or(|bytes| bytes == b"$3\r\nSET\r\n$0\r\n\r\n$2\r\nxy\r\n"));
        encoded
    }

    #[test]
    fn arguments_that_arrived_in_one_piece_stay_encoded() {
        let whole = b"*3\r\n$3\r\nSET\r\n$0\r\n\r\n$2\r\nxy\r\n";
        assert!(encoded(&[whole]).is_some());
        for cut in 0..whole.len() {
            // A piece may also end between two arguments.
            let is_between = [0, 13, 19].contains(&cut);
            assert!(!is_between || encoded(&[&whole[..cut], &whole[cut..]]).is_some(), "{cut}");
            encoded(&[&whole[..cut], &whole[cut..]]);
        }
        assert_eq!(encoded(&[&whole[..24], &whole[24..]]), None, "an argument in two pieces");
        // Neither redis-server nor the decoder checks these bytes. A file must not contain them.
        for crooked in [
            &b"*3\r\n$3\r\nSETxx$0\r\n\r\n$2\r\nxy\r\n"[..],
            b"*3\r\n$3\rxSET\r\n$0\r\n\r\n$2\r\nxy\r\n",
            b"*3\r\n$3\r\nSET\r\n$0\r\n\r\n$2\r\nxy\rx",
            b"SET '' xy\r\n",
        ] {
            assert_eq!(encoded(&[crooked]), None, "{}", crooked.escape_ascii());
        }
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

    #[test]
    fn many_arguments_lie_in_blocks_that_never_move() {
        let mut argv = Argv::new();
        let text = |i: usize| vec![i as u8; i % 700];
        let mut first = None;
        for i in 0..3 * SPANS_MAX {
            argv.push(&text(i));
            if i == SPANS_MAX {
                first = Some(argv.args().at(SPANS_MAX - 1).as_ptr());
            }
        }
        argv.push_blob(Blob::from(&b"value"[..]));
        argv.push(&[1; BLOCK_BYTES]);
        argv.push(&[2; BLOCK_BYTES + 1]);
        let args = argv.args();
        assert_eq!((args.len(), Some(args.at(SPANS_MAX - 1).as_ptr())), (3 * SPANS_MAX + 3, first));
        (0..3 * SPANS_MAX).for_each(|i| assert_eq!(args.at(i), text(i)));
        let end = args.skip(3 * SPANS_MAX);
        assert_eq!(
            (end.at(0), end.at(1), end.at(2)),
            (&b"value"[..], &[1; BLOCK_BYTES][..], &[2; BLOCK_BYTES + 1][..])
        );
        assert!(end.large(1).is_none() && end.large(2).is_some() && end.get(3).is_none());
        let bytes: usize = args.iter().map(<[u8]>::len).sum();
        assert!((bytes..bytes + bytes / 4).contains(&argv.heap_bytes()), "{} for {bytes}", argv.heap_bytes());
        argv.clear();
        assert!(argv.is_empty() && argv.heap_bytes() == 0);
    }
}
