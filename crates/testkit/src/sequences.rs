//! [`Sequences`]: sends random commands to two servers. For a difference it reports the seed and the shortest
//! sequence that still shows it.

use crate::differential::{Delivery, Difference, Pair, describe};
use crate::generate::Generator;
use crate::process::Server;
use crate::quoting;
use crate::shrink::{Command, shortest};
use std::io;

/// Maximum number of times that a sequence is run while it is shortened.
const TRIES_MAX: usize = 2_000;

/// Random commands for two servers.
pub struct Sequences<'a> {
    /// Strand, one of the two servers.
    pub ours: &'a Server,
    /// redis-server, the other server.
    pub theirs: &'a Server,
    /// The protocol that both connections use: 2 or 3.
    pub protocol: u8,
    /// How requests are written to the socket.
    pub delivery: Delivery,
    /// Commands sent to both servers before each sequence.
    pub settings: Vec<Command>,
    /// The generator of the commands.
    pub generator: Generator,
    /// The generator's seed, for the report.
    pub seed: u64,
    /// Maximum number of commands in a sequence. After each sequence all data is compared and deleted.
    pub commands_max: usize,
    /// Returns true for commands that must not be sent.
    pub leaves_out: fn(&[Vec<u8>]) -> bool,
}

/// Why a run of sequences stopped.
#[derive(Debug, thiserror::Error)]
pub enum SequenceError {
    /// The servers differ. The text is for people: the sequence, shortened, and the differences.
    #[error("{0}")]
    Different(String),
    /// A server closed the connection.
    #[error("seed {seed}: {why}")]
    Closed {
        /// The generator's seed.
        seed: u64,
        /// The error, which says which server closed the connection at which command.
        why: io::Error,
    },
}

impl Sequences<'_> {
    /// Sends `commands` commands.
    ///
    /// # Errors
    /// The first difference between the servers, or the end of a connection.
    pub fn run(&mut self, commands: usize) -> Result<(), SequenceError> {
        let mut left = commands;
        while left > 0 {
            let wanted = left.min(self.commands_max);
            left -= wanted;
            let mut sequence: Vec<Command> = (0..wanted).map(|_| self.generator.command()).collect();
            sequence.retain(|args| !(self.leaves_out)(args));
            let found =
                self.differences(&sequence).map_err(|why| SequenceError::Closed { seed: self.seed, why })?;
            if !found.is_empty() {
                return Err(SequenceError::Different(self.report(&sequence, &found)));
            }
        }
        Ok(())
    }

    /// The first difference in the replies to a sequence, or the differences in the data at its end.
    fn differences(&self, sequence: &[Command]) -> io::Result<Vec<Difference>> {
        let mut pair = Pair::open(self.ours, self.theirs, self.protocol, self.delivery)?;
        let commands: Vec<&[Vec<u8>]> = self.settings.iter().chain(sequence).map(Vec::as_slice).collect();
        match pair.first_difference(&commands)? {
            Some(difference) => Ok(vec![difference]),
            None => pair.compare_data(),
        }
    }

    fn report(&self, sequence: &[Command], found: &[Difference]) -> String {
        let mut differs =
            |candidate: &[Command]| self.differences(candidate).is_ok_and(|found| !found.is_empty());
        let again = if differs(sequence) { "" } else { ", but not when it is sent again" };
        let short = shortest(sequence, TRIES_MAX, &mut differs);
        let lines: Vec<String> = short.iter().map(|args| format!("  {}", quoting::join(args))).collect();
        let last = self.differences(&short).unwrap_or_default();
        format!(
            "seed {}, RESP{} {:?}: a sequence of {} commands differs{again}; {} are left of it:\n{}\n{}\nat first: {}",
            self.seed,
            self.protocol,
            self.delivery,
            sequence.len(),
            short.len(),
            lines.join("\n"),
            describe(&last),
            describe(found)
        )
    }
}
