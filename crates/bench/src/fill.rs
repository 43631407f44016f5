//! Creates data for measurements, in long pipelines: keys with values, counters, hashes of five fields, one huge
//! hash.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;
use strand_testkit::process::Server;

/// Length of a key: four letters and twelve digits.
pub const KEY_BYTES: usize = 16;
/// Maximum wait for bytes, in seconds.
pub const READ_S_MAX: u64 = 60;
/// Number of commands in one write.
const BATCH: u64 = 1000;

/// What the keys hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// A string of this many bytes.
    Bytes(usize),
    /// A string of this many bytes that expires in the distant future.
    ExpiringBytes(usize),
    /// An integer of seven digits.
    Integer,
    /// A hash of `field:0` to `field:4` with ten bytes each.
    Hash5,
    /// A collection of this many elements, each of ten bytes.
    Few(Collection, usize),
    /// A single collection in place of the keys: its number of elements, of 16 bytes each, is the number of keys.
    One(Collection),
}

/// A collection type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Collection {
    Hash,
    List,
    Set,
    Stream,
    ZSet,
}

/// Elements in one command that fills a large collection.
const ELEMENTS_PER_COMMAND: u64 = 100;

impl Collection {
    /// Appends the command that adds the elements `range` to the collection `name`. A stream gets one command
    /// per element.
    fn add(
        self,
        out: &mut Vec<u8>,
        name: &[u8],
        range: std::ops::Range<u64>,
        element: &dyn Fn(u64) -> String,
    ) {
        let mut words = |words: &[&[u8]]| strand_wire::client::encode_command(out, words);
        if self == Collection::Stream {
            for i in range {
                let id = format!("{}-1", i + 1);
                words(&[b"XADD", name, id.as_bytes(), b"field", element(i).as_bytes()]);
            }
            return;
        }
        let (command, before): (&[u8], bool) = match self {
            Collection::Hash => (b"HSET", true),
            Collection::List => (b"RPUSH", false),
            Collection::Set | Collection::Stream => (b"SADD", false),
            Collection::ZSet => (b"ZADD", true),
        };
        let mut arguments: Vec<Vec<u8>> = vec![command.to_vec(), name.to_vec()];
        for i in range {
            // A sorted set needs a score before the element, and a hash a field.
            arguments.extend(before.then(|| i.to_string().into_bytes()));
            arguments.push(element(i).into_bytes());
        }
        let arguments: Vec<&[u8]> = arguments.iter().map(Vec::as_slice).collect();
        words(&arguments);
    }
    /// Number of reply lines for the commands that [`Collection::add`] writes for this many elements.
    fn replies(self, elements: usize) -> usize {
        if self == Collection::Stream { 2 * elements } else { 1 }
    }
}

/// Creates the collection `name` of `elements` elements of 16 bytes.
///
/// # Errors
/// When the server goes away or returns an error.
pub fn collection(server: &Server, name: &str, kind: Collection, elements: u64) -> io::Result<()> {
    let element = |i: u64| format!("element:{i:08}");
    let lines = kind.replies(ELEMENTS_PER_COMMAND as usize);
    let whole = elements / ELEMENTS_PER_COMMAND;
    send_commands(server, whole, lines, |out, group| {
        let from = group * ELEMENTS_PER_COMMAND;
        kind.add(out, name.as_bytes(), from..from + ELEMENTS_PER_COMMAND, &element);
    })?;
    let rest = elements % ELEMENTS_PER_COMMAND;
    let groups = u64::from(rest > 0);
    send_commands(server, groups, kind.replies(rest as usize), |out, _| {
        kind.add(out, name.as_bytes(), elements - rest..elements, &element);
    })
}

/// Sets the keys `key:0` to `key:N` once, so that a GET finds its key.
///
/// # Errors
/// When the server goes away or returns an error.
pub fn keys(server: &Server, keys: u64, content: Content) -> io::Result<()> {
    let value = value(match content {
        Content::Bytes(n) | Content::ExpiringBytes(n) => n,
        Content::Integer | Content::Hash5 | Content::Few(..) | Content::One(_) => 10,
    });
    let lines = match content {
        Content::One(kind) => return collection(server, "one", kind, keys),
        Content::Few(kind, elements) => kind.replies(elements),
        _ => 1,
    };
    send_commands(server, keys, lines, |out, k| match content {
        Content::Bytes(_) => set(out, k, &value),
        Content::ExpiringBytes(_) => {
            out.extend_from_slice(b"*5\r\n$3\r\nSET\r\n$16\r\n");
            push_key(out, b"key:", k);
            bulk(out, &value);
            out.extend_from_slice(b"$2\r\nEX\r\n$6\r\n864000\r\n");
        }
        Content::Few(kind, elements) => {
            let mut key = Vec::with_capacity(KEY_BYTES);
            push_key(&mut key, b"key:", k);
            kind.add(out, &key, 0..elements as u64, &|i| format!("value:{:04}", (i * 7 + k) % 10_000));
        }
        Content::One(_) => {}
        Content::Integer => set(out, k, format!("{}", 1_000_000 + k % 9_000_000).as_bytes()),
        Content::Hash5 => {
            out.extend_from_slice(b"*12\r\n$4\r\nHSET\r\n$16\r\n");
            push_key(out, b"key:", k);
            out.extend_from_slice(b"\r\n");
            for field in b'0'..b'5' {
                out.extend_from_slice(b"$7\r\nfield:");
                out.push(field);
                bulk(out, &value);
            }
        }
    })
}

/// Sends `count` PINGs.
///
/// # Errors
/// When the server goes away or returns an error.
pub fn pings(server: &Server, count: u64) -> io::Result<()> {
    send_one_line_commands(server, count, |out, _| out.extend_from_slice(b"*1\r\n$4\r\nPING\r\n"))
}

/// Sets `count` keys `exp:...` that all expire at `at_ms` (Unix time).
///
/// # Errors
/// When the server goes away or returns an error.
pub fn expiring_at(server: &Server, count: u64, at_ms: u64) -> io::Result<()> {
    let option = format!("$4\r\nPXAT\r\n${}\r\n{at_ms}\r\n", at_ms.to_string().len());
    send_one_line_commands(server, count, |out, k| {
        out.extend_from_slice(b"*5\r\n$3\r\nSET\r\n$16\r\n");
        push_key(out, b"exp:", k);
        bulk(out, b"12345678");
        out.extend_from_slice(option.as_bytes());
    })
}

/// Sets the keys `prb:0` to `prb:N` for the probe of `make cliffs`.
///
/// # Errors
/// When the server goes away or returns an error.
pub fn probe_keys(server: &Server, keys: u64, value: &[u8]) -> io::Result<()> {
    send_one_line_commands(server, keys, |out, k| {
        out.extend_from_slice(b"*3\r\n$3\r\nSET\r\n$16\r\n");
        push_key(out, b"prb:", k);
        bulk(out, value);
    })
}

/// Creates the hash `name` of `fields` fields of 14 bytes with values of 8 bytes.
///
/// # Errors
/// When the server goes away or returns an error.
pub fn hash(server: &Server, name: &str, fields: u64) -> io::Result<()> {
    send_one_line_commands(server, fields.div_ceil(100), |out, group| {
        let wanted = group * 100..fields.min(group * 100 + 100);
        let count = 2 + 2 * (wanted.end - wanted.start);
        out.extend_from_slice(format!("*{count}\r\n$4\r\nHSET\r\n${}\r\n{name}\r\n", name.len()).as_bytes());
        wanted.for_each(|f| {
            let _ = write!(out, "$14\r\nfield:{f:08}\r\n$8\r\n{f:08}\r\n");
        });
    })
}

/// Sends `count` commands, each with a reply of one line.
fn send_one_line_commands(
    server: &Server,
    count: u64,
    command: impl FnMut(&mut Vec<u8>, u64),
) -> io::Result<()> {
    send_commands(server, count, 1, command)
}

/// Sends `count` commands, each with a reply of `lines` lines.
fn send_commands(
    server: &Server,
    count: u64,
    lines: usize,
    mut command: impl FnMut(&mut Vec<u8>, u64),
) -> io::Result<()> {
    let (mut stream, mut buffer, mut out) = (connect(server)?, vec![0; 64 << 10], Vec::new());
    for first in (0..count).step_by(BATCH as usize) {
        out.clear();
        let last = (first + BATCH).min(count);
        (first..last).for_each(|k| command(&mut out, k));
        stream.write_all(&out)?;
        read_lines(&mut stream, (last - first) as usize * lines, &mut buffer)?;
    }
    Ok(())
}

/// A connection without Nagle's algorithm, with a timeout.
///
/// # Errors
/// When the server does not accept it.
pub fn connect(server: &Server) -> io::Result<TcpStream> {
    connect_to(server.address)
}

/// Connects to `address`, without Nagle's algorithm and with a timeout.
///
/// # Errors
/// When the address does not accept it.
pub fn connect_to(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(Duration::from_secs(READ_S_MAX)))?;
    stream.set_write_timeout(Some(Duration::from_secs(READ_S_MAX)))?;
    Ok(stream)
}

/// A value of `bytes` bytes: letters without line ends.
pub fn value(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|i| b'a' + (i % 26) as u8).collect()
}

/// Appends `SET key:K value`.
pub fn set(out: &mut Vec<u8>, key: u64, value: &[u8]) {
    out.extend_from_slice(b"*3\r\n$3\r\nSET\r\n$16\r\n");
    push_key(out, b"key:", key);
    bulk(out, value);
}

/// Appends CR LF, which ends the previous line, and a bulk string.
pub fn bulk(out: &mut Vec<u8>, value: &[u8]) {
    out.extend_from_slice(b"\r\n$");
    out.extend_from_slice(value.len().to_string().as_bytes());
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

/// Appends a key of [`KEY_BYTES`] bytes: `prefix` and the number `n`.
pub fn push_key(out: &mut Vec<u8>, prefix: &[u8; 4], mut n: u64) {
    let mut key = [b'0'; KEY_BYTES];
    key[..4].copy_from_slice(prefix);
    for digit in key[4..].iter_mut().rev() {
        *digit = b'0' + (n % 10) as u8;
        n /= 10;
    }
    out.extend_from_slice(&key);
}

/// Reads replies until `lines` newlines have arrived. No value may contain a newline.
///
/// # Errors
/// When the server goes away, when the first reply is an error, or when more lines arrive.
pub fn read_lines(stream: &mut TcpStream, mut lines: usize, buffer: &mut [u8]) -> io::Result<()> {
    let mut first = true;
    while lines > 0 {
        let n = stream.read(buffer)?;
        if n == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if first && buffer[0] == b'-' {
            return Err(io::Error::other(String::from_utf8_lossy(&buffer[..n.min(200)]).into_owned()));
        }
        first = false;
        let seen = buffer[..n].iter().map(|b| usize::from(*b == b'\n')).sum::<usize>();
        lines = lines.checked_sub(seen).ok_or_else(|| io::Error::other("more replies than requests"))?;
    }
    Ok(())
}
