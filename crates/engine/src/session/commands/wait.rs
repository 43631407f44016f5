//! WAIT and WAITAOF: whether a connection's writes have reached replicas and the disk.

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

/// The errors at a replica.
const AOF_NOT_HERE: &str = "ERR WAITAOF cannot be used with replica instances. Please also note that writes to replicas are just local \
                            and are not propagated.";
const NOT_HERE: &str = "ERR WAIT cannot be used with replica instances. Please also note that since Redis 4.0 if a replica is \
                        configured to be writable (which is not the default) writes to replicas are just local and are not propagated.";

impl Session {
    /// `WAIT numreplicas timeout`. Reply: the number of replicas that have all earlier writes. The reply comes when
    /// `numreplicas` have them, or after the timeout.
    pub(super) fn wait(&mut self, args: Args<'_>) -> Outcome {
        let replicas = parse_int(args.at(1)).ok_or(errors::NOT_AN_INTEGER)?;
        let timeout_ms = milliseconds(args.at(2))?;
        self.wait_or_reply(KeylessWait {
            timeout_ms,
            write_reply: |engine, offset, reply| reply.int(engine.replicas_at(offset, false) as i64),
            offset: self.engine.keyspace.journal().tail(),
            until_synced: false,
            replicas: replicas.max(0) as usize,
            in_file: false,
        })
    }
    /// `WAITAOF numlocal numreplicas timeout`. Reply: an array of two numbers. The first is 1 when all earlier writes
    /// are on the disk in the append-only file, else 0. The second is the number of replicas that have them on their
    /// disks.
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
        self.wait_or_reply(KeylessWait {
            timeout_ms,
            write_reply: write_counts,
            offset: self.engine.keyspace.journal().tail(),
            until_synced: local > 0,
            replicas: replicas as usize,
            in_file: true,
        })
    }
    fn wait_or_reply(&mut self, wait: KeylessWait) -> Outcome {
        let engine = self.engine.clone();
        if engine.following.is_on() {
            return Err(if wait.in_file { AOF_NOT_HERE } else { NOT_HERE }.into());
        }
        if !wait.is_over(&engine) {
            return Ok(NextStep::Block(wait));
        }
        wait.write_now(&engine, &mut self.reply());
        DONE
    }
}

/// Writes the reply of WAITAOF.
fn write_counts(engine: &Engine, offset: u64, reply: &mut Reply<'_>) {
    reply.array(2);
    reply.int(i64::from(engine.persist.aof.gates.is_safe(offset)));
    reply.int(engine.replicas_at(offset, true) as i64);
}
