//! COMMAND and its subcommands: what the table says, by [`strand_commands::introspect`].

use super::{ARGS_AT_ONCE_MAX, DONE, Outcome, Session};
use crate::session::run::Next;
use crate::stats::PerCommand;
use strand_commands::introspect;
use strand_commands::spec::SessionCommand;
use strand_wire::args::Args;

/// Most names that one COMMAND DOCS or COMMAND INFO takes: several times as many as there are, and a name costs its
/// sender a few bytes but its description kilobytes.
const NAMES_MAX: usize = 1024;

/// True when the whole table is wanted: hundreds of kilobytes, which a helper thread writes.
fn describes_all(command: SessionCommand, args: Args<'_>) -> bool {
    match command {
        SessionCommand::Command => true,
        SessionCommand::CommandDocs | SessionCommand::CommandInfo => args.len() == 2,
        _ => false,
    }
}

impl Session {
    pub(super) fn command_family(&mut self, command: SessionCommand, args: Args<'_>) -> Outcome {
        let by_name = matches!(command, SessionCommand::CommandDocs | SessionCommand::CommandInfo);
        if by_name && args.len() - 2 > NAMES_MAX {
            return Err("ERR too many command names".into());
        }
        if describes_all(command, args) || args.len() > ARGS_AT_ONCE_MAX {
            return Ok(Next::Detach);
        }
        let mut reply = self.reply();
        introspect::command(command, args, &mut reply);
        if let Some(code) = reply.error_code() {
            let code = code.to_vec();
            self.count_error(PerCommand::Failed, &code);
        }
        DONE
    }
}
