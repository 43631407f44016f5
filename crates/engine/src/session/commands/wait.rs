//! WAIT and WAITAOF: how far a connection's writes have come elsewhere. There are no replicas and no append-only file yet.

use super::{DONE, Outcome, Session};
use crate::session::blocked::{Nothing, Pointless};
use crate::session::run::Next;
use strand_commands::errors;
use strand_commands::wait::milliseconds;
use strand_keyspace::types::string::parse_int;
use strand_wire::args::Args;

impl Session {
    /// `WAIT numreplicas timeout`. Reply: the number of replicas, which is 0; with more asked for when the time is over.
    pub(super) fn wait(&mut self, args: Args<'_>) -> Outcome {
        let replicas = parse_int(args.at(1)).ok_or(errors::NOT_AN_INTEGER)?;
        let timeout_ms = milliseconds(args.at(2))?;
        let nothing: Nothing = |reply| reply.int(0);
        if replicas > 0 {
            return Ok(Next::Block(Pointless { timeout_ms, nothing }));
        }
        nothing(&mut self.reply());
        DONE
    }
    /// `WAITAOF numlocal numreplicas timeout`. Reply: an array of two zeros: there is no append-only file; with replicas asked
    /// for when the time is over.
    pub(super) fn wait_aof(&mut self, args: Args<'_>) -> Outcome {
        let local = parse_int(args.at(1)).ok_or(errors::NOT_AN_INTEGER)?;
        if !(0..=1).contains(&local) {
            return Err("ERR value is out of range, value must between 0 and 1".into());
        }
        let replicas = parse_int(args.at(2)).ok_or(errors::NOT_AN_INTEGER)?;
        if replicas < 0 {
            return Err("ERR value is out of range, must be positive".into());
        }
        let timeout_ms = milliseconds(args.at(3))?;
        if local > 0 {
            let text = "ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled.";
            return Err(text.into());
        }
        let nothing: Nothing = |reply| {
            reply.array(2);
            reply.int(0);
            reply.int(0);
        };
        if replicas > 0 {
            return Ok(Next::Block(Pointless { timeout_ms, nothing }));
        }
        nothing(&mut self.reply());
        DONE
    }
}
