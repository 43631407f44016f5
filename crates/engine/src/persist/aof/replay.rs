//! Runs the commands of a file, or of a primary's stream, one after the other. [`strand_commands::replay`] runs commands
//! on keys, this module runs the others.

use crate::session::{CommandKind, InFiles, SessionCommand, replay_script};
use crate::{Engine, Now};
use strand_chain::Chain;
use strand_commands::replay::{ReplayError, shown};
use strand_commands::spec::{CommandSpec, Exec};
use strand_wire::args::Args;
use strand_wire::reply::{Protocol, Reply};

/// Bytes of a script's error reply that are shown.
const SHOWN_REPLY_BYTES_MAX: usize = 256;

/// Runs a script, or a command that is not about keys. `Ok(Some(text))`: the reply was this error.
///
/// # Errors
/// Why the command may not be in a file.
pub(crate) fn run_other(
    engine: &Engine,
    spec: &'static CommandSpec,
    args: Args<'_>,
    db: usize,
    now: Now,
) -> Result<Option<String>, ReplayError> {
    let refused = || Err(ReplayError::refused(spec, args));
    match spec.exec {
        Exec::Session(held) => {
            let own = SessionCommand::of(held);
            let mut out = Chain::new();
            let mut reply = Reply::new(&mut out, Protocol::Resp2);
            // Run a script's call, because redis-server before version 5 recorded calls of scripts.
            if let CommandKind::Script(command) = own.kind {
                replay_script(engine, command, args, db, now, &mut reply);
                return Ok(reply.error_code().is_some().then(|| first_line(&out)));
            }
            match own.in_files {
                InFiles::Runs(run) => Ok(run(engine, args, &mut reply).err().map(|text| shown(&text))),
                InFiles::ChangesNothing => Ok(None),
                InFiles::Refused => refused(),
            }
        }
        // A command of a service recreates an index or a pattern set. A failure is logged.
        Exec::Service(_) => {
            let words: Vec<&[u8]> = args.iter().collect();
            engine.define(&words, now);
            Ok(None)
        }
        _ => refused(),
    }
}

/// The first line of a reply, as text.
fn first_line(out: &Chain) -> String {
    let mut line = vec![0; out.len().min(SHOWN_REPLY_BYTES_MAX)];
    out.peek(&mut line);
    shown(line.trim_ascii())
}
