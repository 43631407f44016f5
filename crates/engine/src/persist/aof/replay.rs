//! The commands of a file, run one after the other on the data that nobody else sees yet: [`strand_commands::replay`] runs those
//! on keys, this module the others.

use crate::session::{replay_script, replay_scripting, runs_script};
use crate::{Engine, Now};
use strand_chain::Chain;
use strand_commands::replay::shown;
use strand_commands::spec::{CommandSpec, Exec, SessionCommand};
use strand_wire::args::Args;
use strand_wire::reply::{Protocol, Reply};

/// So much of a script's reply is looked at, if that is an error.
const SHOWN_REPLY_BYTES_MAX: usize = 256;

/// Runs a command that is not about keys, or a script. `Ok(Some(text))`: its reply was this error.
///
/// # Errors
/// Why it is none that may stand in a file.
pub(super) fn run_other(
    engine: &Engine,
    spec: &CommandSpec,
    args: Args<'_>,
    db: usize,
    now: Now,
) -> Result<Option<String>, String> {
    let refused = || Err(format!("{} cannot be run from a file", spec.name));
    match spec.exec {
        Exec::Session(command) => {
            let mut out = Chain::new();
            let mut reply = Reply::new(&mut out, Protocol::Resp2);
            // redis-server before 5 wrote scripts as they were called.
            if runs_script(spec) {
                replay_script(engine, command, args, db, now, &mut reply);
                return Ok(reply.error_code().is_some().then(|| first_line(&out)));
            }
            match replay_scripting(engine, command, args, &mut reply) {
                Some(Ok(())) => Ok(None),
                Some(Err(text)) => Ok(Some(shown(&text))),
                None if changes_nothing(command) => Ok(None),
                None => refused(),
            }
        }
        // Indexes and sets of patterns: what cannot be made again is logged.
        Exec::Service(_) => {
            let words: Vec<&[u8]> = args.iter().collect();
            engine.define(&words, now);
            Ok(None)
        }
        _ => refused(),
    }
}

/// Commands about a connection, or about nothing that stays.
fn changes_nothing(command: SessionCommand) -> bool {
    use SessionCommand as S;
    matches!(command, S::Ping | S::Echo | S::Publish | S::SPublish | S::Unwatch | S::Watch | S::LastSave)
}

/// The beginning of a reply, as text.
fn first_line(out: &Chain) -> String {
    let mut line = vec![0; out.len().min(SHOWN_REPLY_BYTES_MAX)];
    out.peek(&mut line);
    shown(line.trim_ascii())
}
