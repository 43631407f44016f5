//! COMMAND and its subcommands: what the table says, by [`strand_commands::introspect`].

use super::{DONE, Outcome, Session};
use crate::stats::PerCommand;
use strand_commands::introspect;
use strand_commands::spec::SessionCommand;
use strand_wire::args::Args;

impl Session {
    pub(super) fn command_family(&mut self, command: SessionCommand, args: Args<'_>) -> Outcome {
        let mut reply = self.reply();
        introspect::command(command, args, &mut reply);
        if let Some(code) = reply.error_code() {
            let code = code.to_vec();
            self.count_error(PerCommand::Failed, &code);
        }
        DONE
    }
}
