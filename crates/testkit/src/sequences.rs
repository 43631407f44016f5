//! [`Sequences`]: random commands to two servers, and what is said where they differ: the seed, and the shortest sequence that
//! still does.

use crate::compare::Policy;
use crate::differential::{Delivery, Difference, Pair, describe};
use crate::generate::Generator;
use crate::process::Server;
use crate::quoting;
use crate::shrink::{Command, shortest};
use std::io;

/// Runs of a sequence while it is shrunk.
const TRIES_MAX: usize = 2_000;

/// Random commands to two servers.
pub struct Sequences<'a> {
    /// Strand.
    pub ours: &'a Server,
    /// redis-server.
    pub theirs: &'a Server,
    /// 2 or 3.
    pub protocol: u8,
    /// How requests leave the client.
    pub delivery: Delivery,
    /// Both servers are given these before each sequence.
    pub settings: Vec<Command>,
    /// Where the commands come from.
    pub generator: Generator,
    /// What the generator began with, to be told.
    pub seed: u64,
    /// Commands after which all data is compared, and forgotten. A sequence has no more.
    pub commands_max: usize,
    /// Commands that are not sent.
    pub leaves_out: fn(&[Vec<u8>]) -> bool,
}

impl Sequences<'_> {
    /// Sends so many commands; where the servers differ, says how, in a text for people.
    ///
    /// # Errors
    /// That text, or which server went away at which command.
    pub fn run(&mut self, commands: usize) -> Result<(), String> {
        let mut left = commands;
        while left > 0 {
            let wanted = left.min(self.commands_max);
            left -= wanted;
            let mut sequence: Vec<Command> = (0..wanted).map(|_| self.generator.command()).collect();
            sequence.retain(|args| !(self.leaves_out)(args));
            let found = self.differences(&sequence).map_err(|e| format!("seed {}: {e}", self.seed))?;
            if !found.is_empty() {
                return Err(self.report(&sequence, &found));
            }
        }
        Ok(())
    }

    /// The first difference in the replies to a sequence, or those in the data at its end.
    fn differences(&self, sequence: &[Command]) -> io::Result<Vec<Difference>> {
        let mut pair = Pair::open(self.ours, self.theirs, self.protocol, self.delivery)?;
        for args in self.settings.iter().chain(sequence) {
            if let Some(difference) = pair.compare(args, Policy::of(args))? {
                return Ok(vec![difference]);
            }
        }
        pair.compare_data()
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
