//! Exchanges between clients: a message to its subscribers, an element to a client that waits for it.
//!
//! As in [`crate::load::run`], one thread runs all connections in lockstep. Connections are opened once for all rounds
//! of a row, because ten thousand for each round would use up the machine's ports.

use crate::fill::{self, read_lines};
use crate::load::{LoadResult, histogram};
use std::io::{self, Write};
use std::net::TcpStream;
use std::time::Instant;
use strand_testkit::process::Server;
use strand_wire::client::encode_command;

/// Number of clients that wait for an element at the same time.
const WAITERS: usize = 32;
const CHANNEL: &str = "news";
const PAYLOAD: &str = "sixteen bytes ..";
/// Number of lines of the reply to SUBSCRIBE.
const ACKNOWLEDGED_LINES: usize = 6;
/// Number of lines of a published message.
const MESSAGE_LINES: usize = 7;
/// Number of lines of BLPOP's reply.
const POPPED_LINES: usize = 5;
/// Maximum number of bytes of one read.
const BUFFER_BYTES: usize = 64 << 10;

/// Kind of an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExchangeKind {
    /// PUBLISH to this many subscribers, in pipelines of this length. Each subscriber reads all messages.
    Publish(usize, usize),
    /// RPUSH to a list, for which a client waits with BLPOP.
    HandOver,
}

impl ExchangeKind {
    /// Number of receiving connections.
    pub fn connections(self) -> usize {
        match self {
            ExchangeKind::Publish(subscribers, _) => subscribers,
            ExchangeKind::HandOver => WAITERS,
        }
    }
}

/// The connections of a row: one sender, and the receivers of its messages or elements.
pub struct Exchange {
    kind: ExchangeKind,
    sender: TcpStream,
    receivers: Vec<TcpStream>,
    /// The requests that the sender sends in a turn, and the number of lines of their replies.
    sender_batch: (Vec<u8>, usize),
    /// For each receiver: its requests in a turn, and the number of lines that it receives.
    receiver_batches: Vec<(Vec<u8>, usize)>,
    buffer: Vec<u8>,
}

impl Exchange {
    /// Opens the connections, and subscribes the receivers of published messages.
    ///
    /// # Errors
    /// When the server does not accept this many clients.
    pub fn open(server: &Server, kind: ExchangeKind) -> io::Result<Exchange> {
        let (sender, mut buffer, mut out) = (fill::connect(server)?, vec![0; BUFFER_BYTES], Vec::new());
        let receivers = kind.connections();
        server.connect()?.call(&["CONFIG", "SET", "maxclients", &(receivers + 1000).to_string()])?;
        let mut receivers = (0..receivers).map(|_| fill::connect(server)).collect::<io::Result<Vec<_>>>()?;
        let (lines, receiver_batches) = match kind {
            ExchangeKind::Publish(_, pipeline) => {
                let mut subscribe = Vec::new();
                encode_command(&mut subscribe, &["SUBSCRIBE", CHANNEL]);
                for receiver in &mut receivers {
                    receiver.write_all(&subscribe)?;
                    read_lines(receiver, ACKNOWLEDGED_LINES, &mut buffer)?;
                }
                (0..pipeline).for_each(|_| encode_command(&mut out, &["PUBLISH", CHANNEL, PAYLOAD]));
                (pipeline, vec![(Vec::new(), MESSAGE_LINES * pipeline); receivers.len()])
            }
            ExchangeKind::HandOver => {
                let queue = |n: usize| format!("queue:{n}");
                (0..WAITERS).for_each(|n| encode_command(&mut out, &["RPUSH", &queue(n), PAYLOAD]));
                let waits = |n| {
                    let mut wait = Vec::new();
                    encode_command(&mut wait, &["BLPOP", &queue(n), "0"]);
                    (wait, POPPED_LINES)
                };
                (WAITERS, (0..WAITERS).map(waits).collect())
            }
        };
        Ok(Exchange { kind, sender, receivers, sender_batch: (out, lines), receiver_batches, buffer })
    }
    /// Exchanges for `seconds` of wall time.
    ///
    /// # Errors
    /// When the server goes away.
    pub fn run(&mut self, server: &Server, seconds: f64) -> io::Result<LoadResult> {
        let (mut operations, mut round_trips_us) = (0, histogram()?);
        let (cpu, start) = (server.cpu()?, Instant::now());
        while start.elapsed().as_secs_f64() < seconds {
            for (receiver, (requests, _)) in self.receivers.iter_mut().zip(&self.receiver_batches) {
                if !requests.is_empty() {
                    receiver.write_all(requests)?;
                }
            }
            let sent = Instant::now();
            self.sender.write_all(&self.sender_batch.0)?;
            read_lines(&mut self.sender, self.sender_batch.1, &mut self.buffer)?;
            for (receiver, (_, lines)) in self.receivers.iter_mut().zip(&self.receiver_batches) {
                read_lines(receiver, *lines, &mut self.buffer)?;
            }
            round_trips_us.record(sent.elapsed().as_micros() as u64).map_err(io::Error::other)?;
            operations += match self.kind {
                ExchangeKind::Publish(_, pipeline) => pipeline,
                ExchangeKind::HandOver => WAITERS,
            } as u64;
        }
        let (wall, cpu) = (start.elapsed(), server.cpu()? - cpu);
        Ok(LoadResult { operations, wall, cpu, round_trips_us })
    }
}
