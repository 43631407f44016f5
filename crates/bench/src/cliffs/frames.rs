//! Frames (pack4) from four kinds of client. redis-server has no frames, so its column is a plain server of this
//! module. It sends frames like most hand-written servers: with Nagle's algorithm and two writes, one for the length
//! and one for the body. The kernel delays its acknowledgements. Row 2 of the cliffs (docs/benchmarks.md) has the
//! cost of a client with two writes.

use super::{Lab, Result};
use crate::fill;
use crate::load::pin_to;
use crate::report::grouped;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Instant;
use strand_testkit::process::{Program, Server, free_port};

const MERGED: &str = "2 pack4 in one write, us p50 / p99 (beside a plain server)";
const NAIVE: &str = "2 pack4 write-write-read with Nagle on, us p50 / p99 (beside a plain server)";
const BYTEWISE: &str = "2 pack4 byte by byte with Nagle on, us p50 / p99 (beside a plain server)";
const PIPELINED: &str = "2 pack4 100 requests a write, us a request p50 / p99 (beside a plain server)";

pub(super) const ROWS: &[&str] = &[MERGED, NAIVE, BYTEWISE, PIPELINED];

/// Number of exchanges that a row measures.
const ROUNDS: usize = 100;
/// Number of requests in a pipeline.
const PIPELINE: usize = 100;
/// Maximum length of a frame in these rows.
const FRAME_BYTES_MAX: usize = 1 << 20;

const REQUEST: &[u8] = b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$5\r\nhello\r\n";
const REPLY: &[u8] = b"\x00\x00\x00\x05+OK\r\n";

/// How a client sends a frame.
#[derive(Clone, Copy)]
enum Client {
    Merged,
    Naive,
    Bytewise,
    Pipelined,
}

pub(super) fn run(lab: &mut Lab<'_>) -> Result<()> {
    let port = free_port()?;
    let (_server, address) = match lab.server.kind {
        Program::Strand => {
            let options = ["--workers", "1", "--pack4-port", &port.to_string()];
            let server = Server::measured(Program::Strand, &lab.options.strand, &options, "0", &[])?;
            (Some(server), SocketAddr::from(([127, 0, 0, 1], port)))
        }
        Program::Redis => (None, plain_server()?),
    };
    let rows = [
        (MERGED, Client::Merged),
        (NAIVE, Client::Naive),
        (BYTEWISE, Client::Bytewise),
        (PIPELINED, Client::Pipelined),
    ];
    for (name, client) in rows {
        lab.cost(name, |_| exchange(address, client));
    }
    Ok(())
}

fn exchange(address: SocketAddr, client: Client) -> Result<(String, Vec<(&'static str, f64)>)> {
    let mut stream = fill::connect_to(address)?;
    stream.set_nodelay(matches!(client, Client::Merged | Client::Pipelined))?;
    let length = (REQUEST.len() as u32).to_be_bytes();
    let frame = [&length, REQUEST].concat();
    let requests = if matches!(client, Client::Pipelined) { PIPELINE } else { 1 };
    let (pipeline, mut replies) = (frame.repeat(requests), vec![0; REPLY.len() * requests]);
    let mut micros = Vec::new();
    for _ in 0..ROUNDS {
        let start = Instant::now();
        match client {
            Client::Merged | Client::Pipelined => stream.write_all(&pipeline)?,
            Client::Naive => {
                stream.write_all(&length)?;
                stream.write_all(REQUEST)?;
            }
            Client::Bytewise => frame.iter().try_for_each(|b| stream.write_all(&[*b]))?,
        }
        stream.read_exact(&mut replies)?;
        micros.push(start.elapsed().as_micros() as f64 / requests as f64);
        if replies.chunks(REPLY.len()).any(|reply| reply != REPLY) {
            return Err(format!("a reply is {:?}", String::from_utf8_lossy(&replies)).into());
        }
    }
    micros.sort_by(f64::total_cmp);
    let (p50, p99) = (micros[ROUNDS / 2], micros[ROUNDS - 2]);
    let shown = |us: f64| if us < 10.0 { format!("{us:.1}") } else { grouped(us) };
    Ok((format!("{} / {}", shown(p50), shown(p99)), vec![("p50_us", p50), ("p99_us", p99)]))
}

/// Starts the plain server on core 0. It serves one connection after another until the process ends, and answers every
/// request with OK.
fn plain_server() -> io::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    thread::spawn(move || {
        // A server that cannot be pinned to core 0 still serves.
        let _ = pin_to(0);
        for stream in listener.incoming().flatten() {
            // An error means that the client has disconnected.
            let _ = serve_plainly(stream);
        }
    });
    Ok(address)
}

fn serve_plainly(mut stream: TcpStream) -> io::Result<()> {
    let (mut length, mut body) = ([0; 4], Vec::new());
    loop {
        stream.read_exact(&mut length)?;
        let bytes = u32::from_be_bytes(length) as usize;
        if bytes > FRAME_BYTES_MAX {
            return Err(io::ErrorKind::InvalidData.into());
        }
        body.resize(bytes, 0);
        stream.read_exact(&mut body)?;
        let (length, reply) = REPLY.split_at(4);
        stream.write_all(length)?;
        stream.write_all(reply)?;
    }
}
