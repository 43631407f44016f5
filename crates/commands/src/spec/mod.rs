//! [`CommandSpec`]: one row of the command table, and [`Exec`]: how the command runs.
//!
//! A row says everything about one command. The arity follows from the arguments, and the ACL categories follow
//! from the flags and the group; a row states only exceptions. The parts of a row are [`flags`](Flags), key specs
//! ([`KeySpec`]) and arguments ([`Arg`]).

mod arg;
mod flags;
mod keys;
mod syntax;

pub use arg::Arg;
pub use flags::{Categories, Flags, KeyFlags};
pub use keys::{Access, BeginSearch, FindKeys, KeySpec};

use crate::call::{Call, LaneCall, ServiceRun};
use crate::cost::{Cost, SlowPath};
use std::any::Any;

/// How a command runs.
#[derive(Clone, Copy, Debug)]
pub enum Exec {
    /// The command runs at once on the worker, with the shards of its keys locked. For commands that cost a few
    /// elements with any arguments and any data.
    Inline(fn(&mut Call<'_, '_>)),
    /// Like [`Exec::Inline`] while the estimated cost of the call is small. A longer call leaves the worker and runs as
    /// the [`SlowPath`] says.
    Estimated(fn(&mut Call<'_, '_>), Cost, SlowPath),
    /// The command always runs on a helper thread. It locks one shard at a time (KEYS), or announces a long lock and locks
    /// all shards (FLUSHALL). Its session waits, and other sessions continue.
    Walk(fn(&mut LaneCall<'_>)),
    /// Like [`Exec::Walk`], for commands that may take seconds. Short jobs do not queue behind such commands.
    Heavy(fn(&mut LaneCall<'_>)),
    /// The session runs the command, which reads or changes the state of the session or of the server. The value has
    /// a type of the engine, and only the engine uses it.
    Session(&'static (dyn Any + Send + Sync)),
    /// A service outside this crate (search) runs the command on a helper thread, within its own budget.
    Service(ServiceRun),
    /// A service runs the command: on the worker if the text in this argument is short and the service finds that
    /// the call is cheap, otherwise on the lane.
    ServiceOnText(ServiceRun, usize),
    /// The command is a container of subcommands. A call without a subcommand gets an arity error.
    Container,
}

impl Exec {
    /// How the cost of a call is estimated.
    #[inline]
    pub const fn cost(&self) -> Cost {
        match *self {
            Exec::Inline(_) | Exec::Session(_) | Exec::Container => Cost::Fixed,
            Exec::Estimated(_, cost, _) => cost,
            Exec::Walk(_) => Cost::Keyspace,
            Exec::Heavy(_) | Exec::Service(_) => Cost::Budget,
            Exec::ServiceOnText(_, at) => Cost::Text(at),
        }
    }
    /// The handler of a command that runs on the worker with the shards of its keys locked.
    #[inline]
    pub const fn on_keys(&self) -> Option<fn(&mut Call<'_, '_>)> {
        match *self {
            Exec::Inline(run) | Exec::Estimated(run, ..) => Some(run),
            _ => None,
        }
    }
}

/// One row of the command table. It is written with [`CommandSpec::new`] and the methods after it. A row does not
/// state what follows from its other parts (arity, ACL categories).
#[derive(Clone, Copy, Debug)]
pub struct CommandSpec {
    /// The name, in lower case. For a subcommand only its own word: `setname` in the container `client`.
    pub name: &'static str,
    /// Redis's arity: n for exactly n words, -n for at least n words. The name counts as a word, and so does the
    /// container of a subcommand. The arity follows from [`CommandSpec::args`] unless the row states it.
    pub arity: i32,
    /// The flags of the command, as in COMMAND INFO.
    pub flags: Flags,
    /// The names of all ACL categories, without `@`. Empty when they follow from the flags and the group.
    acl: &'static [&'static str],
    /// Where the command's keys are among its arguments.
    pub keys: &'static [KeySpec],
    /// What the command does, in one sentence of our own.
    pub summary: &'static str,
    /// The first version with this command: of Redis, or of Strand for our own commands.
    pub since: &'static str,
    /// Redis's group (string, hash, generic, connection, server) or one of ours (search, regex, import).
    pub group: &'static str,
    /// The complexity, as in Redis's documentation: `O(1)`.
    pub complexity: &'static str,
    /// Redis's `doc_flags`: `deprecated`, `syscmd`.
    pub doc_flags: &'static [&'static str],
    /// For a deprecated command: since which version, and what to use instead.
    pub deprecated: Option<(&'static str, &'static str)>,
    /// Later changes of the command, each with its version.
    pub history: &'static [(&'static str, &'static str)],
    /// Redis's command tips.
    pub tips: &'static [&'static str],
    /// The arguments, as COMMAND DOCS shows them.
    pub args: &'static [Arg],
    /// The subcommands of a container.
    pub subcommands: &'static [CommandSpec],
    /// How the command runs.
    pub exec: Exec,
    /// For an [`Exec::Walk`] command: the handler that runs it inside EXEC and scripts, while the transaction holds
    /// all shards. `None`: the command cannot run inside EXEC and scripts.
    pub in_exec: Option<fn(&mut Call<'_, '_>)>,
}

impl CommandSpec {
    /// A command without arguments, flags and keys. `complexity` is as in Redis's documentation: `O(1)`.
    pub const fn new(
        name: &'static str,
        group: &'static str,
        since: &'static str,
        complexity: &'static str,
        summary: &'static str,
    ) -> CommandSpec {
        CommandSpec {
            name,
            arity: 1,
            flags: Flags::NONE,
            acl: &[],
            keys: &[],
            summary,
            since,
            group,
            complexity,
            doc_flags: &[],
            deprecated: None,
            history: &[],
            tips: &[],
            args: &[],
            subcommands: &[],
            exec: Exec::Container,
            in_exec: None,
        }
    }
    /// A subcommand: like [`CommandSpec::new`], but the container's name counts in the arity.
    pub const fn sub(
        name: &'static str,
        group: &'static str,
        since: &'static str,
        complexity: &'static str,
        summary: &'static str,
    ) -> CommandSpec {
        CommandSpec { arity: 2, ..CommandSpec::new(name, group, since, complexity, summary) }
    }
    /// A command that only consists of its subcommands.
    pub const fn container(
        name: &'static str,
        group: &'static str,
        since: &'static str,
        summary: &'static str,
        subcommands: &'static [CommandSpec],
    ) -> CommandSpec {
        CommandSpec {
            arity: -2,
            subcommands,
            ..CommandSpec::new(name, group, since, "By subcommand", summary)
        }
    }
    /// Sets the flags.
    pub const fn flags(self, flags: &[Flags]) -> CommandSpec {
        CommandSpec { flags: Flags::all(flags), ..self }
    }
    /// Sets the key specs.
    pub const fn keys(self, keys: &'static [KeySpec]) -> CommandSpec {
        CommandSpec { keys, ..self }
    }
    /// Sets the arguments. The arity follows from them.
    pub const fn args(self, args: &'static [Arg]) -> CommandSpec {
        CommandSpec { args, arity: arg::arity(args, self.arity), ..self }
    }
    /// Sets an arity that does not follow from the arguments. Call it after [`CommandSpec::args`].
    pub const fn arity(self, arity: i32) -> CommandSpec {
        CommandSpec { arity, ..self }
    }
    /// Sets the names of all ACL categories, without `@`, for a command whose categories do not follow from its
    /// flags and group.
    pub const fn acl(self, acl: &'static [&'static str]) -> CommandSpec {
        CommandSpec { acl, ..self }
    }
    /// Sets the later changes of the command, each with its version.
    pub const fn history(self, history: &'static [(&'static str, &'static str)]) -> CommandSpec {
        CommandSpec { history, ..self }
    }
    /// Sets Redis's command tips.
    pub const fn tips(self, tips: &'static [&'static str]) -> CommandSpec {
        CommandSpec { tips, ..self }
    }
    /// Sets Redis's `doc_flags`.
    pub const fn doc_flags(self, doc_flags: &'static [&'static str]) -> CommandSpec {
        CommandSpec { doc_flags, ..self }
    }
    /// Marks the command as deprecated since this version. Users should use `instead`.
    pub const fn deprecated(self, since: &'static str, instead: &'static str) -> CommandSpec {
        CommandSpec { deprecated: Some((since, instead)), doc_flags: &["deprecated"], ..self }
    }
    /// Sets the subcommands of a command that can also run without one (COMMAND).
    pub const fn subcommands(self, subcommands: &'static [CommandSpec]) -> CommandSpec {
        CommandSpec { subcommands, ..self }
    }
    /// Sets how the command runs.
    pub const fn exec(self, exec: Exec) -> CommandSpec {
        CommandSpec { exec, ..self }
    }
    /// Sets how an [`Exec::Walk`] command runs in one piece: see [`CommandSpec::in_exec`].
    pub const fn in_exec(self, run: fn(&mut Call<'_, '_>)) -> CommandSpec {
        CommandSpec { in_exec: Some(run), ..self }
    }
    /// The ACL categories: those that the row states, or else those that follow from the flags and the group.
    pub fn categories(&self) -> Categories {
        match self.acl {
            [] => Categories::of(self.flags, self.group),
            written => Categories::named(written),
        }
    }
    /// How the cost of a call is estimated.
    #[inline]
    pub const fn cost(&self) -> Cost {
        self.exec.cost()
    }
}
