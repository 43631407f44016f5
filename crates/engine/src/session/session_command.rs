//! [`SessionCommand`]: the value in the row of a session command. It says how the command runs, and how a transaction,
//! a script and a file treat it. The gates and EXEC read this value, and never the command's name.

use super::Session;
use super::commands::Outcome;
use super::run::NextStep;
use super::script::ScriptCommand;
use crate::pubsub::Topic;
use crate::scripts::run::ScriptRun;
use crate::{Engine, Now};
use std::any::Any;
use strand_commands::spec::{CommandSpec, Exec, Flags};
use strand_script::CallOutcome;
use strand_wire::args::{Args, Argv};
use strand_wire::reply::{ErrorText, Reply};

/// A function that runs the command on the session.
type RunOnSession = fn(&mut Session, Args<'_>, Now) -> Outcome;
/// A function that runs the command without the session: on a helper thread, or after EXEC has unlocked its shards. The
/// function uses shared state only. An error is the whole text of the reply.
type RunDetached = fn(&Engine, Args<'_>, DetachedContext, &mut Reply<'_>) -> Result<(), ErrorText>;
/// A function that runs the command in a script.
type RunInScript = fn(&mut ScriptRun<'_, '_>, &Argv, &mut Reply<'_>) -> CallOutcome;
/// A function that runs the command from an append-only file, on data that no client sees yet.
type RunFromFile = fn(&Engine, Args<'_>, &mut Reply<'_>) -> Result<(), ErrorText>;

/// True when a call with these arguments locks shards that are not those of its keys.
type LocksShards = fn(Args<'_>) -> bool;

/// What a command that runs without its session knows of the session.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DetachedContext {
    pub(crate) db: usize,
    pub(crate) now: Now,
    /// True when the client is on this machine.
    pub(crate) is_local: bool,
    /// True when the command is a part of EXEC.
    pub(crate) in_exec: bool,
}

/// A command that sessions run themselves.
#[derive(Debug)]
pub(crate) struct SessionCommand {
    run: RunOnSession,
    detached: Option<RunDetached>,
    pub(crate) kind: CommandKind,
    pub(super) in_multi: InMulti,
    /// True when the command always runs without the session.
    pub(super) is_always_detached: bool,
    /// True when RESP2's subscriber mode allows the command.
    pub(super) allowed_to_subscribers: bool,
    pub(crate) in_scripts: InScripts,
    pub(crate) in_files: InFiles,
    /// The channels among the command's arguments.
    pub(crate) channels: Option<Channels>,
    pub(super) locks_shards: LocksShards,
}

/// The commands that the session treats specially.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CommandKind {
    /// The session treats the command like any other.
    Other,
    Debug,
    Exec,
    Multi,
    Ping,
    /// A command of replicas.
    Replication,
    Reset,
    Select,
    Script(ScriptCommand),
    Watch,
}

/// The treatment of a command between MULTI and EXEC.
#[derive(Clone, Copy, Debug)]
pub(crate) enum InMulti {
    /// The command is queued. On a worker it runs in its turn. If a helper thread runs the transaction, the command runs
    /// on the session, after the shards are unlocked.
    Queued,
    /// The command is queued and runs in its turn. On a helper thread it runs as [`SessionCommand::or_detached`] says,
    /// runs its script, or changes the transaction's database.
    QueuedForAnyThread,
    /// The command is queued and runs in its turn on the session, because the commands after it depend on it. Its
    /// transaction runs on the worker.
    QueuedForSession,
    /// As [`InMulti::QueuedForSession`], if the command's arguments pass this check. Otherwise the command is refused.
    QueuedIf(fn(Args<'_>) -> bool),
    /// The command is queued. It reads the data of all shards or takes long, so it runs after the shards are
    /// unlocked.
    AfterUnlock,
    /// The command runs at once in MULTI, without being queued.
    Immediate,
    /// The command would end or block the session, so it is refused.
    Refused,
}

/// The treatment of a command in a script.
#[derive(Clone, Copy, Debug)]
pub(crate) enum InScripts {
    Refused,
    /// The command runs as [`SessionCommand::or_detached`] says.
    Detached,
    Runs(RunInScript),
}

/// The treatment of a command in an append-only file.
#[derive(Clone, Copy, Debug)]
pub(crate) enum InFiles {
    Refused,
    /// The command is about a connection, or has no lasting effect.
    ChangesNothing,
    Runs(RunFromFile),
}

/// The channels among the arguments, from the first argument on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Channels {
    pub(crate) topic: Topic,
    /// True: all arguments are channels. False: only the first.
    pub(crate) all: bool,
}

/// Constructors for rows.
impl SessionCommand {
    /// The command runs on the session at once. If `run` returns [`NextStep::Detach`], the command runs as
    /// [`SessionCommand::or_detached`] says.
    pub(super) const fn at_once(run: RunOnSession) -> SessionCommand {
        SessionCommand {
            run,
            detached: None,
            kind: CommandKind::Other,
            in_multi: InMulti::Queued,
            is_always_detached: false,
            allowed_to_subscribers: false,
            in_scripts: InScripts::Refused,
            in_files: InFiles::Refused,
            channels: None,
            locks_shards: |_| false,
        }
    }
    /// The command always runs without the session.
    pub(super) const fn detached(detached: RunDetached) -> SessionCommand {
        let command = SessionCommand::at_once(|_, _, _| Ok(NextStep::Detach)).or_detached(detached);
        SessionCommand { is_always_detached: true, in_multi: InMulti::QueuedForAnyThread, ..command }
    }
    pub(super) const fn or_detached(self, detached: RunDetached) -> SessionCommand {
        SessionCommand { detached: Some(detached), ..self }
    }
    pub(super) const fn kind(self, kind: CommandKind) -> SessionCommand {
        SessionCommand { kind, ..self }
    }
    pub(super) const fn in_multi(self, in_multi: InMulti) -> SessionCommand {
        SessionCommand { in_multi, ..self }
    }
    pub(super) const fn allow_subscribers(self) -> SessionCommand {
        SessionCommand { allowed_to_subscribers: true, ..self }
    }
    pub(super) const fn in_scripts(self, in_scripts: InScripts) -> SessionCommand {
        SessionCommand { in_scripts, ..self }
    }
    pub(super) const fn in_files(self, in_files: InFiles) -> SessionCommand {
        SessionCommand { in_files, ..self }
    }
    pub(super) const fn locks_shards(self, locks_shards: LocksShards) -> SessionCommand {
        SessionCommand { locks_shards, ..self }
    }
    pub(super) const fn channel(self, topic: Topic) -> SessionCommand {
        SessionCommand { channels: Some(Channels { topic, all: false }), ..self }
    }
    pub(super) const fn channels(self, topic: Topic) -> SessionCommand {
        SessionCommand { channels: Some(Channels { topic, all: true }), ..self }
    }
}

impl SessionCommand {
    /// The value in the row of a session command.
    ///
    /// # Panics
    /// When the row holds another type. A test of the table shows that no row does.
    #[inline]
    pub(crate) fn of(held: &'static (dyn Any + Send + Sync)) -> &'static SessionCommand {
        held.downcast_ref().expect("the row of a session's command holds a SessionCommand")
    }
    /// The value for the command in this row. `None` when it is not a session command.
    #[inline]
    pub(crate) fn of_row(spec: &CommandSpec) -> Option<&'static SessionCommand> {
        match spec.exec {
            Exec::Session(held) => Some(SessionCommand::of(held)),
            _ => None,
        }
    }
    /// Runs the command on the session.
    pub(super) fn run(&self, session: &mut Session, args: Args<'_>, now: Now) -> Outcome {
        (self.run)(session, args, now)
    }
    /// Runs the command without the session. An error becomes the reply.
    ///
    /// # Panics
    /// When the command never runs without its session.
    pub(crate) fn run_detached(
        &self,
        engine: &Engine,
        args: Args<'_>,
        context: DetachedContext,
        reply: &mut Reply<'_>,
    ) {
        let detached = self.detached.expect("a command that leaves its session has a detached function");
        if let Err(text) = detached(engine, args, context, reply) {
            reply.error_bytes(&text);
        }
    }
}

/// How EXEC treats the command in this row. `None`: the command is about data.
#[inline]
pub(super) fn in_multi_of(spec: &CommandSpec) -> Option<InMulti> {
    SessionCommand::of_row(spec).map(|own| own.in_multi)
}

/// True for PUBLISH and SPUBLISH.
#[inline]
pub(super) fn is_publish(spec: &CommandSpec) -> bool {
    spec.flags.has(Flags::all(&[Flags::PUBSUB, Flags::MAY_REPLICATE]))
}

/// How the session treats the command in this row.
#[inline]
pub(crate) fn kind_of(spec: &CommandSpec) -> CommandKind {
    SessionCommand::of_row(spec).map_or(CommandKind::Other, |own| own.kind)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TABLE;

    #[test]
    fn no_command_locks_shards_inside_exec() {
        let mut checked = 0;
        for command in TABLE.rows() {
            let subcommands = command.subcommands.iter().map(|sub| (sub, vec![command.name, sub.name]));
            for (spec, words) in std::iter::once((command, vec![command.name])).chain(subcommands) {
                let Some(own) = SessionCommand::of_row(spec) else { continue };
                if spec.flags.has(strand_commands::spec::Flags::NO_MULTI) {
                    continue;
                }
                let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
                // EXEC holds the shards while a queued command runs in its place.
                let runs_in_turn =
                    matches!(own.in_multi, InMulti::QueuedForAnyThread | InMulti::QueuedForSession);
                if runs_in_turn || matches!(own.in_multi, InMulti::Queued) {
                    let argv = Argv::from_slices(&words);
                    assert!(!(own.locks_shards)(argv.args()), "{words:?}");
                    checked += 1;
                }
                let runs_anywhere = own.detached.is_some()
                    || matches!(own.kind, CommandKind::Script(_) | CommandKind::Select);
                let is_for_any_thread =
                    matches!(own.in_multi, InMulti::QueuedForAnyThread | InMulti::AfterUnlock);
                assert!(runs_anywhere || !is_for_any_thread, "{words:?} has no detached function");
            }
        }
        assert!(checked > 50, "{checked}");
    }
}
