//! [`CommandSpec`]: one row of the command table, and [`Exec`]: how the command runs.
//!
//! A row says everything about a command once. Arity follows from its arguments, ACL categories from its flags and group;
//! a row writes only the exceptions. Flags are in [`flags`](Flags), key specs in [`KeySpec`], arguments in [`Arg`].

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
    /// On the worker, at once, with the shards of its keys held: few elements, whatever the arguments and the data.
    Inline(fn(&mut Call<'_, '_>)),
    /// As [`Exec::Inline`] while a call's estimated cost is small; a longer call leaves the worker and takes the slow path.
    Estimated(fn(&mut Call<'_, '_>), Cost, SlowPath),
    /// On a helper thread always, shard by shard; its session waits, no other session does.
    Walk(fn(&mut LaneCall<'_>)),
    /// As [`Exec::Walk`], for what may take seconds: short jobs do not queue behind it.
    Heavy(fn(&mut LaneCall<'_>)),
    /// By the session itself: the command reads or changes the state of the session or of the server. What is to be run is
    /// of a type of the engine's, which alone looks into it.
    Session(&'static (dyn Any + Send + Sync)),
    /// On a helper thread by a service that is not of this crate (search), within a budget of the service's own.
    Service(ServiceRun),
    /// By a service, on the worker while the text in this argument is short and the service finds it easy.
    ServiceOnText(ServiceRun, usize),
    /// Only a container of subcommands; called without one it is an arity error.
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
    /// The handler of a command that runs on the worker with its keys' shards held.
    #[inline]
    pub const fn on_keys(&self) -> Option<fn(&mut Call<'_, '_>)> {
        match *self {
            Exec::Inline(run) | Exec::Estimated(run, ..) => Some(run),
            _ => None,
        }
    }
}

/// One row of the command table. Rows are written with [`CommandSpec::new`] and the methods after it; what follows from
/// the rest of the row (arity, ACL categories) is not written.
#[derive(Clone, Copy, Debug)]
pub struct CommandSpec {
    /// Lower-case name; a subcommand's own word (`setname` in the container `client`).
    pub name: &'static str,
    /// Redis's arity: n exact, -n at least; the name counts (a subcommand's container too). It follows from
    /// [`CommandSpec::args`] where the row does not say otherwise.
    pub arity: i32,
    /// Flags.
    pub flags: Flags,
    /// ACL categories by name, without `@`, where they do not follow from flags and group; else empty.
    acl: &'static [&'static str],
    /// Where its keys are.
    pub keys: &'static [KeySpec],
    /// One sentence of ours.
    pub summary: &'static str,
    /// The version of Redis (or of Strand, for our own) that has it first.
    pub since: &'static str,
    /// Redis's group: string, hash, generic, connection, server, and ours: search, regex, import.
    pub group: &'static str,
    /// As in Redis's documentation: `O(1)`.
    pub complexity: &'static str,
    /// As in Redis's documentation (`doc_flags`): `deprecated`, `syscmd`.
    pub doc_flags: &'static [&'static str],
    /// For a deprecated command: since when, and what to use instead.
    pub deprecated: Option<(&'static str, &'static str)>,
    /// What changed since, as (version, change).
    pub history: &'static [(&'static str, &'static str)],
    /// Redis's command tips.
    pub tips: &'static [&'static str],
    /// The documentation tree of its arguments.
    pub args: &'static [Arg],
    /// Subcommands of a container.
    pub subcommands: &'static [CommandSpec],
    /// How it runs.
    pub exec: Exec,
    /// How a command that walks runs whole, on a transaction that holds all shards (inside EXEC); `None`: not at all.
    pub whole: Option<fn(&mut Call<'_, '_>)>,
}

impl CommandSpec {
    /// A command without arguments, flags and keys. `complexity` as in Redis's documentation: `O(1)`.
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
            whole: None,
        }
    }
    /// A subcommand: as [`CommandSpec::new`], with its container's name in front.
    pub const fn sub(
        name: &'static str,
        group: &'static str,
        since: &'static str,
        complexity: &'static str,
        summary: &'static str,
    ) -> CommandSpec {
        CommandSpec { arity: 2, ..CommandSpec::new(name, group, since, complexity, summary) }
    }
    /// A command that is nothing but its subcommands.
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
    /// With these flags.
    pub const fn flags(self, flags: &[Flags]) -> CommandSpec {
        CommandSpec { flags: Flags::all(flags), ..self }
    }
    /// With keys.
    pub const fn keys(self, keys: &'static [KeySpec]) -> CommandSpec {
        CommandSpec { keys, ..self }
    }
    /// With arguments; the arity follows.
    pub const fn args(self, args: &'static [Arg]) -> CommandSpec {
        CommandSpec { args, arity: arg::arity(args, self.arity), ..self }
    }
    /// With an arity that does not follow from the arguments; after [`CommandSpec::args`].
    pub const fn arity(self, arity: i32) -> CommandSpec {
        CommandSpec { arity, ..self }
    }
    /// With ACL categories that do not follow from flags and group: all of them by name, without `@`.
    pub const fn acl(self, acl: &'static [&'static str]) -> CommandSpec {
        CommandSpec { acl, ..self }
    }
    /// With what changed since the first version, as (version, change).
    pub const fn history(self, history: &'static [(&'static str, &'static str)]) -> CommandSpec {
        CommandSpec { history, ..self }
    }
    /// With Redis's command tips.
    pub const fn tips(self, tips: &'static [&'static str]) -> CommandSpec {
        CommandSpec { tips, ..self }
    }
    /// With Redis's `doc_flags`.
    pub const fn doc_flags(self, doc_flags: &'static [&'static str]) -> CommandSpec {
        CommandSpec { doc_flags, ..self }
    }
    /// Deprecated since this version; use `instead`.
    pub const fn deprecated(self, since: &'static str, instead: &'static str) -> CommandSpec {
        CommandSpec { deprecated: Some((since, instead)), doc_flags: &["deprecated"], ..self }
    }
    /// Subcommands of a command that also runs by itself (COMMAND).
    pub const fn subcommands(self, subcommands: &'static [CommandSpec]) -> CommandSpec {
        CommandSpec { subcommands, ..self }
    }
    /// How it runs.
    pub const fn exec(self, exec: Exec) -> CommandSpec {
        CommandSpec { exec, ..self }
    }
    /// How a command that walks runs whole; see [`CommandSpec::whole`].
    pub const fn whole(self, run: fn(&mut Call<'_, '_>)) -> CommandSpec {
        CommandSpec { whole: Some(run), ..self }
    }
    /// Its ACL categories: by flags and group, or as the row says.
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
