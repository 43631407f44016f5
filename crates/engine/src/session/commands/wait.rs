//! WAIT and WAITAOF: whether a connection's writes have reached replicas and the disk. There are no replicas yet.

use super::{DONE, Outcome, Session};
use crate::persist::AofMode;
use crate::session::blocked::{KeylessWait, WriteEmptyReply};
use crate::session::run::NextStep;
use strand_commands::errors;
use strand_commands::wait::milliseconds;
use strand_keyspace::types::string::parse_int;
use strand_wire::args::Args;
use strand_wire::reply::Reply;

impl Session {
    /// `WAIT numreplicas timeout`. Reply: the number of replicas, which is 0. With `numreplicas` above 0 the reply
    /// comes after the timeout.
    pub(super) fn wait(&mut self, args: Args<'_>) -> Outcome {
        let replicas = parse_int(args.at(1)).ok_or(errors::NOT_AN_INTEGER)?;
        let timeout_ms = milliseconds(args.at(2))?;
        let write_empty: WriteEmptyReply = |reply| reply.int(0);
        if replicas > 0 {
            return Ok(NextStep::Block(KeylessWait { timeout_ms, write_empty, synced: None }));
        }
        write_empty(&mut self.reply());
        DONE
    }
    /// `WAITAOF numlocal numreplicas timeout`. Reply: an array of two numbers. The first is 1 when all earlier writes
    /// are on the disk in the append-only file, else 0. The second is 0, the number of replicas.
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
        let aof = &self.engine.persist.aof;
        let offset = self.engine.keyspace.journal().tail();
        let is_synced = aof.mode() == AofMode::On && aof.gates.synced() >= offset;
        if local > 0 && aof.mode() == AofMode::Off {
            let text = "ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled.";
            return Err(text.into());
        }
        let write_empty: WriteEmptyReply =
            if is_synced { |reply| counts(1, reply) } else { |reply| counts(0, reply) };
        if replicas > 0 {
            return Ok(NextStep::Block(KeylessWait { timeout_ms, write_empty, synced: None }));
        }
        if local > 0 && !is_synced {
            let synced: WriteEmptyReply = |reply| counts(1, reply);
            return Ok(NextStep::Block(KeylessWait {
                timeout_ms,
                write_empty,
                synced: Some((offset, synced)),
            }));
        }
        write_empty(&mut self.reply());
        DONE
    }
}

/// Writes the reply of WAITAOF.
fn counts(local: i64, reply: &mut Reply<'_>) {
    reply.array(2);
    reply.int(local);
    reply.int(0);
}
