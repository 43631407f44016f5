//! Writes values, DUMP payloads and files in the format of redis-server 7.0, into a buffer that can be emptied at
//! any time.
//!
//! A [`Writer`] does not know the format of whole values. The caller picks a type from [`crate::value_type`], writes
//! the data that comes before the elements, and then each element:
//!
//! | type | before | each |
//! |---|---|---|
//! | `STRING` | | [`Writer::string`] |
//! | `LIST_QUICKLIST_2` | [`Writer::length`] of nodes | [`Writer::list_node`] or [`Writer::list_element`], by a [`Splitter`] |
//! | `SET`, `HASH`, `ZSET_2` | [`Writer::length`] | strings; a score by [`Writer::score`] |
//! | `SET_INTSET` | | one [`Writer::string`] of [`crate::packed::intset::encode`] |
//! | `HASH_LISTPACK`, `ZSET_LISTPACK` | | one [`Writer::listpack`] |
//! | `HASH_METADATA` | [`Writer::hash_metadata`] | [`Writer::field_with_expiry`] |
//! | `STREAM_2` | [`Writer::length`] of nodes | [`StreamNode`]s, then the state, groups and consumers |
//!
//! Members of type `ZSET_2` are written from the highest score to the lowest, so that redis-server can append when
//! it loads.

mod stream;

pub use stream::StreamNode;

use crate::file::opcode;
use crate::packed::Listpack;
use crate::{Crc64, lzf, primitive as p};

/// Receives the written bytes.
pub type Sink<'p> = dyn FnMut(&[u8]) + 'p;

/// What a file says about a key before the key.
#[derive(Clone, Copy, Debug, Default)]
pub struct KeyHead {
    /// Expiry time of the key, unix milliseconds.
    pub expires_at_ms: Option<i64>,
    /// Seconds since the key's last use.
    pub idle_s: Option<u64>,
    /// How often the key is used, as Redis's logarithmic counter.
    pub freq: Option<u8>,
}

/// Appends to a buffer and computes the checksum of all written bytes.
///
/// A writer with a pause calls it after about every 64 KiB of work, for helper threads with a queue.
pub struct Writer<'p> {
    out: Vec<u8>,
    /// Checksum of the removed bytes and of `out[..summed]`.
    crc: Crc64,
    summed: usize,
    compressor: Option<lzf::Compressor>,
    pause: &'p dyn Fn(),
    sink: Option<&'p mut Sink<'p>>,
    /// Length of `out` at which the next pause is due.
    pause_at: usize,
}

impl<'p> Writer<'p> {
    /// An empty writer. With `compress`, strings of more than 20 bytes are written as LZF if that is smaller.
    pub fn new(compress: bool) -> Writer<'p> {
        Writer::pausing(compress, &|| {})
    }
    /// An empty writer, as [`Writer::new`] makes it, with a pause.
    pub fn pausing(compress: bool, pause: &'p dyn Fn()) -> Writer<'p> {
        Writer {
            out: Vec::new(),
            crc: Crc64::new(),
            summed: 0,
            compressor: compress.then(lzf::Compressor::new),
            pause,
            sink: None,
            pause_at: lzf::PAUSE_BYTES,
        }
    }
    /// A writer as [`Writer::pausing`] makes it, with a sink. After about every 64 KiB `sink` receives the written
    /// bytes, and the writer drops them. The caller takes the rest at the end.
    pub fn into_sink(compress: bool, pause: &'p dyn Fn(), sink: &'p mut Sink<'p>) -> Writer<'p> {
        Writer { sink: Some(sink), ..Writer::pausing(compress, pause) }
    }

    /// The bytes that were written and not removed yet.
    pub fn pending(&self) -> &[u8] {
        &self.out
    }
    /// Removes and returns the bytes written so far. Writing and the checksum continue after them.
    pub fn take(&mut self) -> Vec<u8> {
        self.sum();
        (self.summed, self.pause_at) = (0, lzf::PAUSE_BYTES);
        std::mem::take(&mut self.out)
    }
    /// Removes the bytes written so far, which the caller has copied from [`Writer::pending`]. Keeps the memory.
    pub fn clear(&mut self) {
        self.sum();
        (self.summed, self.pause_at) = (0, lzf::PAUSE_BYTES);
        self.out.clear();
    }

    /// Writes a value's type, at the start of a payload.
    pub fn value_type(&mut self, value_type: u8) {
        self.out.push(value_type);
    }
    /// Writes the encoding of a length or a count.
    pub fn length(&mut self, n: u64) {
        p::put_length(n, &mut self.out);
    }
    /// Writes a string: as an integer if it spells an integer, or compressed if that is smaller.
    pub fn string(&mut self, bytes: &[u8]) {
        p::put_string(bytes, self.compressor.as_mut(), self.pause, &mut self.out);
        if self.out.len() >= self.pause_at {
            self.pause_at = self.out.len() + lzf::PAUSE_BYTES;
            (self.pause)();
            if let Some(sink) = self.sink.take() {
                sink(&self.out);
                self.clear();
                self.sink = Some(sink);
            }
        }
    }
    /// Writes a score as a binary double.
    pub fn score(&mut self, score: f64) {
        self.out.extend_from_slice(&score.to_le_bytes());
    }
    /// Writes a whole packed collection.
    pub fn listpack(&mut self, listpack: &mut Listpack) {
        self.string(&listpack.finish());
    }
    /// Writes a list's node with several elements.
    pub fn list_node(&mut self, listpack: &mut Listpack) {
        self.length(2);
        self.listpack(listpack);
    }
    /// Writes a list's node that is one large element.
    pub fn list_element(&mut self, element: &[u8]) {
        self.length(1);
        self.string(element);
    }

    /// Writes the data before `n` fields of type `HASH_METADATA`: their smallest expiry. Returns the argument for
    /// [`Writer::field_with_expiry`].
    pub fn hash_metadata(&mut self, smallest_ms: i64, n: u64) -> FieldBase {
        self.i64_le(smallest_ms);
        self.length(n);
        FieldBase { smallest_ms }
    }
    /// Writes a field of type `HASH_METADATA`. An expiry before the smallest is written as the smallest.
    pub fn field_with_expiry(
        &mut self,
        base: FieldBase,
        field: &[u8],
        value: &[u8],
        expires_at_ms: Option<i64>,
    ) {
        self.length(expires_at_ms.map_or(0, |at| at.saturating_sub(base.smallest_ms).max(0) as u64 + 1));
        self.string(field);
        self.string(value);
    }

    /// Writes the first bytes of a file.
    pub fn header(&mut self, version: u16) {
        self.out.extend_from_slice(format!("REDIS{version:04}").as_bytes());
    }
    /// Writes a name and a value that describe the file.
    pub fn aux(&mut self, name: &[u8], value: &[u8]) {
        self.out.push(opcode::AUX);
        self.string(name);
        self.string(value);
    }
    /// Writes a library of functions.
    pub fn function(&mut self, code: &[u8]) {
        self.out.push(opcode::FUNCTION);
        self.string(code);
    }
    /// Starts database `number` with `keys` keys, of which `expiring` expire. The keys follow.
    pub fn select_db(&mut self, number: u64, keys: u64, expiring: u64) {
        self.out.push(opcode::SELECT_DB);
        self.length(number);
        self.out.push(opcode::RESIZE_DB);
        self.length(keys);
        self.length(expiring);
    }
    /// Continues database `number`, which [`Writer::select_db`] has started. Keys follow.
    pub fn back_to_db(&mut self, number: u64) {
        self.out.push(opcode::SELECT_DB);
        self.length(number);
    }
    /// Writes a key. Its value follows.
    pub fn key(&mut self, key: &[u8], head: KeyHead, value_type: u8) {
        if let Some(at) = head.expires_at_ms {
            self.out.push(opcode::EXPIRE_TIME_MS);
            self.i64_le(at);
        }
        if let Some(idle_s) = head.idle_s {
            self.out.push(opcode::IDLE);
            self.length(idle_s);
        }
        if let Some(freq) = head.freq {
            self.out.extend_from_slice(&[opcode::FREQ, freq]);
        }
        self.value_type(value_type);
        self.string(key);
    }
    /// Writes the end of a file with its checksum. Without `checksum` it writes zero, which means that the file has
    /// no checksum.
    pub fn eof(&mut self, checksum: bool) {
        self.out.push(opcode::EOF);
        if checksum {
            self.checksum();
        } else {
            self.i64_le(0);
        }
    }

    /// Writes the version of a payload.
    pub(crate) fn version(&mut self, version: u16) {
        self.out.extend_from_slice(&version.to_le_bytes());
    }
    /// Writes the checksum of all bytes so far.
    pub(crate) fn checksum(&mut self) {
        self.sum();
        let crc = self.crc.value();
        self.out.extend_from_slice(&crc.to_le_bytes());
    }

    fn i64_le(&mut self, n: i64) {
        self.out.extend_from_slice(&n.to_le_bytes());
    }
    fn sum(&mut self) {
        /// The number of bytes summed between two pauses. The checksum is ten times as fast as the compression.
        const STEP_BYTES: usize = 8 * lzf::PAUSE_BYTES;
        for (i, step) in self.out[self.summed..].chunks(STEP_BYTES).enumerate() {
            if i > 0 {
                (self.pause)();
            }
            self.crc.update(step);
        }
        self.summed = self.out.len();
    }
}

/// The time to which the fields' expiry times are relative.
#[derive(Clone, Copy, Debug)]
pub struct FieldBase {
    smallest_ms: i64,
}

/// Decides where the nodes of a list or stream start. The number of nodes precedes them, so a caller walks the
/// elements twice, each time with a new splitter: first to count, then to write.
#[derive(Clone, Debug)]
pub struct Splitter {
    bytes_max: usize,
    count_max: usize,
    bytes: usize,
    count: usize,
}

impl Splitter {
    /// A splitter for lists: 8 KiB per node, redis-server's default.
    pub fn list() -> Splitter {
        Splitter { bytes_max: 8 << 10, count_max: usize::MAX, bytes: 0, count: 0 }
    }
    /// A splitter for streams: 4 KiB and 100 entries per node, redis-server's default.
    pub fn stream() -> Splitter {
        Splitter { bytes_max: 4 << 10, count_max: 100, bytes: 0, count: 0 }
    }
    /// True when the next element, of `bytes` bytes, starts a node. The first element always starts a node.
    pub fn begins_node(&mut self, bytes: usize) -> bool {
        let begins = self.count == 0
            || self.count >= self.count_max
            || self.bytes.saturating_add(bytes) > self.bytes_max;
        if begins {
            (self.bytes, self.count) = (0, 0);
        }
        self.bytes = self.bytes.saturating_add(bytes);
        self.count += 1;
        begins
    }
}

/// A list element of at least this size is a node of its own: redis-server's `packed_threshold`.
pub const LIST_ELEMENT_BYTES_MIN: usize = 1 << 30;
