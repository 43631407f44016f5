//! WAIT and WAITAOF: whether a connection's writes have reached replicas and the disk. There are no replicas yet.

use super::{DONE, Outcome, Session};
use crate::Engine;
use crate::persist::AofMode;
use crate::session::blocked::{KeylessWait, NO_AOF};
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
        let write_reply = |_: &Engine, _: u64, reply: &mut Reply<'_>| reply.int(0);
        let wait = KeylessWait { timeout_ms, write_reply, offset: 0, until_synced: false };
        if replicas > 0 {
            return Ok(NextStep::Block(wait));
        }
        let engine = self.engine.clone();
        wait.write_now(&engine, &mut self.reply());
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
        if local > 0 && self.engine.persist.aof.mode() == AofMode::Off {
            return Err(NO_AOF.into());
        }
        let offset = self.engine.keyspace.journal().tail();
        let until_synced = local > 0 && replicas == 0;
        let wait = KeylessWait { timeout_ms, write_reply: write_counts, offset, until_synced };
        if replicas > 0 || (local > 0 && !is_synced(&self.engine, offset)) {
            return Ok(NextStep::Block(wait));
        }
        let engine = self.engine.clone();
        wait.write_now(&engine, &mut self.reply());
        DONE
    }
}

/// True when the append-only file is on the disk up to this journal offset.
fn is_synced(engine: &Engine, offset: u64) -> bool {
    engine.persist.aof.gates.is_safe(offset)
}

/// Writes the reply of WAITAOF.
fn write_counts(engine: &Engine, offset: u64, reply: &mut Reply<'_>) {
    reply.array(2);
    reply.int(i64::from(is_synced(engine, offset)));
    reply.int(0);
}
