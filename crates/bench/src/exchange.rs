//! Exchanges between clients: a message to its subscribers, an element to a client that waits for it.
//!
//! As in [`crate::load`], one thread runs all connections in lockstep. Connections are opened once for all rounds
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
pub enum Kind {
    /// PUBLISH to this many subscribers, in pipelines of this length. Each subscriber reads all messages.
    Publish(usize, usize),
    /// RPUSH to a list, for which a client waits with BLPOP.
    HandOver,
}

impl Kind {
    /// Number of receiving connections.
    pub fn connections(self) -> usize {
        match self {
            Kind::Publish(subscribers, _) => subscribers,
            Kind::HandOver => WAITERS,
        }
    }
}

/// The connections of a row: one giver, and takers that receive what it sends.
pub struct Exchange {
    kind: Kind,
    giver: TcpStream,
    takers: Vec<TcpStream>,
    /// The giver's requests in a turn, and the number of lines of their replies.
    gives: (Vec<u8>, usize),
    /// For each taker: its requests in a turn, and the number of lines that it receives.
    takes: Vec<(Vec<u8>, usize)>,
    buffer: Vec<u8>,
}

impl Exchange {
    /// # Errors
    /// When the server does not accept this many clients.
    pub fn open(server: &Server, kind: Kind) -> io::Result<Exchange> {
        let (giver, mut buffer, mut out) = (fill::connect(server)?, vec![0; BUFFER_BYTES], Vec::new());
        let takers = kind.connections();
        server.connect()?.call(&["CONFIG", "SET", "maxclients", &(takers + 1000).to_string()])?;
        let mut takers = (0..takers).map(|_| fill::connect(server)).collect::<io::Result<Vec<_>>>()?;
        let (lines, takes) = match kind {
            Kind::Publish(_, pipeline) => {
                let mut subscribe = Vec::new();
                encode_command(&mut subscribe, &["SUBSCRIBE", CHANNEL]);
                for taker in &mut takers {
                    taker.write_all(&subscribe)?;
                    read_lines(taker, ACKNOWLEDGED_LINES, &mut buffer)?;
                }
                (0..pipeline).for_each(|_| encode_command(&mut out, &["PUBLISH", CHANNEL, PAYLOAD]));
                (pipeline, vec![(Vec::new(), MESSAGE_LINES * pipeline); takers.len()])
            }
            Kind::HandOver => {
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
        Ok(Exchange { kind, giver, takers, gives: (out, lines), takes, buffer })
    }
    /// Exchanges for `seconds` of wall time.
    ///
    /// # Errors
    /// When the server goes away.
    pub fn run(&mut self, server: &Server, seconds: f64) -> io::Result<LoadResult> {
        let (mut operations, mut round_trips_us) = (0, histogram()?);
        let (cpu, start) = (server.cpu()?, Instant::now());
        while start.elapsed().as_secs_f64() < seconds {
            for (taker, (asks, _)) in self.takers.iter_mut().zip(&self.takes) {
                if !asks.is_empty() {
                    taker.write_all(asks)?;
                }
            }
            let sent = Instant::now();
            self.giver.write_all(&self.gives.0)?;
            read_lines(&mut self.giver, self.gives.1, &mut self.buffer)?;
            for (taker, (_, lines)) in self.takers.iter_mut().zip(&self.takes) {
                read_lines(taker, *lines, &mut self.buffer)?;
            }
            round_trips_us.record(sent.elapsed().as_micros() as u64).map_err(io::Error::other)?;
            operations += match self.kind {
                Kind::Publish(_, pipeline) => pipeline,
                Kind::HandOver => WAITERS,
            } as u64;
        }
        let (wall, cpu) = (start.elapsed(), server.cpu()? - cpu);
        Ok(LoadResult { operations, wall, cpu, round_trips_us })
    }
}
