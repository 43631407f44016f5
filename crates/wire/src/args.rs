//! One command's arguments: [`Argv`] owns them (reused from command to command), [`Args`] is the view of a handler.

use strand_chain::Blob;

/// Where one argument lies.
#[derive(Clone, Copy, Debug)]
enum Span {
    /// `start..start + len` of the shared buffer.
    Small { start: u32, len: u32 },
    /// Index into the blobs: the value was received straight into its own allocation.
    Large(u32),
}

/// A command as received. Small arguments lie side by side in one buffer, large ones in their own blobs.
#[derive(Debug, Default)]
pub struct Argv {
    buffer: Vec<u8>,
    blobs: Vec<Blob>,
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
    pub fn len(&self) -> usize {
        self.spans.len()
    }
    /// True when it holds no argument.
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }
    /// Forgets the arguments and keeps the room (up to a bound) for the next command.
    pub fn clear(&mut self) {
        self.spans.clear();
        self.blobs.clear();
        self.buffer.clear();
        if self.buffer.capacity() > 64 * 1024 {
            self.buffer = Vec::new();
        }
        if self.spans.capacity() > 4096 {
            self.spans = Vec::new();
        }
    }
    /// Appends a small argument by copy.
    pub fn push(&mut self, bytes: &[u8]) {
        let start = self.buffer.len() as u32;
        self.buffer.extend_from_slice(bytes);
        self.spans.push(Span::Small { start, len: bytes.len() as u32 });
    }
    /// Appends an argument that lies in its own allocation.
    pub fn push_blob(&mut self, blob: Blob) {
        self.spans.push(Span::Large(self.blobs.len() as u32));
        self.blobs.push(blob);
    }
    /// The view that handlers read.
    pub fn args(&self) -> Args<'_> {
        Args { argv: self, from: 0 }
    }
    /// Bytes of heap held.
    pub fn heap_bytes(&self) -> usize {
        self.buffer.capacity() + self.spans.capacity() * 8 + self.blobs.iter().map(|b| b.heap_bytes()).sum::<usize>()
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
    pub fn len(&self) -> usize {
        self.argv.spans.len() - self.from
    }
    /// True when there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Argument `i`.
    ///
    /// # Panics
    /// When `i >= len()`: arity was checked before a handler runs.
    pub fn at(&self, i: usize) -> &'a [u8] {
        match self.argv.spans[self.from + i] {
            Span::Small { start, len } => &self.argv.buffer[start as usize..(start + len) as usize],
            Span::Large(b) => &self.argv.blobs[b as usize],
        }
    }
    /// Argument `i`, or `None` past the end.
    pub fn get(&self, i: usize) -> Option<&'a [u8]> {
        (i < self.len()).then(|| self.at(i))
    }
    /// Argument `i` as a blob: shared without copying when it arrived large, copied when small.
    pub fn blob(&self, i: usize) -> Blob {
        match self.argv.spans[self.from + i] {
            Span::Small { .. } => Blob::from(self.at(i)),
            Span::Large(b) => self.argv.blobs[b as usize].clone(),
        }
    }
    /// The arguments from `i` on.
    pub fn skip(&self, i: usize) -> Args<'a> {
        Args { argv: self.argv, from: (self.from + i).min(self.argv.spans.len()) }
    }
    /// All arguments in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &'a [u8]> + use<'a> {
        let this = *self;
        (0..this.len()).map(move |i| this.at(i))
    }
    /// True when argument `i` equals `word`, ASCII case aside.
    pub fn is(&self, i: usize, word: &str) -> bool {
        self.get(i).is_some_and(|a| a.eq_ignore_ascii_case(word.as_bytes()))
    }
}
