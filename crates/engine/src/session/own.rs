//! [`Own`]: what the row of a session's own command names: how it runs, and what becomes of it in a transaction, in a script and
//! in a file. The gates and EXEC ask this, and never which command it is.

use super::Session;
use super::commands::Outcome;
use super::run::Next;
use super::script::ScriptCommand;
use crate::pubsub::Topic;
use crate::scripts::run::Run;
use crate::{Engine, Now};
use std::any::Any;
use strand_commands::spec::{CommandSpec, Exec};
use strand_script::Called;
use strand_wire::args::{Args, Argv};
use strand_wire::reply::Reply;

/// On the session.
type OnSession = fn(&mut Session, Args<'_>, Now) -> Outcome;
/// Without the session: on a helper thread, or when EXEC has let its shards go. It touches shared state only. An error is the
/// whole text of the reply.
type Apart = fn(&Engine, Args<'_>, At, &mut Reply<'_>) -> Result<(), Vec<u8>>;
/// In a script.
type OfScript = fn(&mut Run<'_, '_>, &Argv, &mut Reply<'_>) -> Called;
/// From an append-only file, on data that nobody else sees yet.
type OfFile = fn(&Engine, Args<'_>, &mut Reply<'_>) -> Result<(), Vec<u8>>;

/// The database and the time of a command that runs apart.
#[derive(Clone, Copy, Debug)]
pub(crate) struct At {
    pub(crate) db: usize,
    pub(crate) now: Now,
}

/// A command that sessions run themselves.
#[derive(Debug)]
pub(crate) struct Own {
    run: OnSession,
    apart: Option<Apart>,
    pub(crate) kind: Kind,
    pub(super) in_multi: InMulti,
    /// A client in RESP2's subscriber mode may call it.
    pub(super) is_for_listeners: bool,
    pub(crate) in_scripts: InScripts,
    pub(crate) in_files: InFiles,
    /// The channels among its arguments.
    pub(crate) channels: Option<Channels>,
}

/// The commands that the session has to know, because it treats them as no other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Usual,
    Debug,
    Exec,
    Multi,
    Ping,
    Select,
    Script(ScriptCommand),
}

/// What becomes of a command between MULTI and EXEC.
#[derive(Clone, Copy, Debug)]
pub(crate) enum InMulti {
    /// It is queued, and runs when its turn comes.
    Queued,
    /// As before, for these arguments; others are refused.
    QueuedIf(fn(Args<'_>) -> bool),
    /// It is queued. It looks at the data of all shards or takes long, so it runs when no shard is held any more.
    After,
    /// It runs at once.
    Runs,
    /// It ends or stops the session, and is refused.
    Refused,
}

/// What becomes of a command that a script calls.
#[derive(Clone, Copy, Debug)]
pub(crate) enum InScripts {
    Refused,
    /// It runs as it does apart from its session.
    Apart,
    Runs(OfScript),
}

/// What becomes of a command that stands in an append-only file.
#[derive(Clone, Copy, Debug)]
pub(crate) enum InFiles {
    Refused,
    /// It is about a connection, or about nothing that stays.
    ChangesNothing,
    Runs(OfFile),
}

/// Channels among arguments: those from the first on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Channels {
    pub(crate) topic: Topic,
    /// All arguments are channels, or else the first alone.
    pub(crate) all: bool,
}

/// Rows are written with these.
impl Own {
    /// On the session, at once; or apart, when it asks for [`Next::Detach`] and [`Own::or_apart`] says how.
    pub(super) const fn at_once(run: OnSession) -> Own {
        Own {
            run,
            apart: None,
            kind: Kind::Usual,
            in_multi: InMulti::Queued,
            is_for_listeners: false,
            in_scripts: InScripts::Refused,
            in_files: InFiles::Refused,
            channels: None,
        }
    }
    /// Apart from the session, always.
    pub(super) const fn apart(apart: Apart) -> Own {
        Own::at_once(|_, _, _| Ok(Next::Detach)).or_apart(apart)
    }
    pub(super) const fn or_apart(self, apart: Apart) -> Own {
        Own { apart: Some(apart), ..self }
    }
    pub(super) const fn kind(self, kind: Kind) -> Own {
        Own { kind, ..self }
    }
    pub(super) const fn in_multi(self, in_multi: InMulti) -> Own {
        Own { in_multi, ..self }
    }
    pub(super) const fn for_listeners(self) -> Own {
        Own { is_for_listeners: true, ..self }
    }
    pub(super) const fn in_scripts(self, in_scripts: InScripts) -> Own {
        Own { in_scripts, ..self }
    }
    pub(super) const fn in_files(self, in_files: InFiles) -> Own {
        Own { in_files, ..self }
    }
    pub(super) const fn channel(self, topic: Topic) -> Own {
        Own { channels: Some(Channels { topic, all: false }), ..self }
    }
    pub(super) const fn channels(self, topic: Topic) -> Own {
        Own { channels: Some(Channels { topic, all: true }), ..self }
    }
}

impl Own {
    /// What the row of a session's command holds.
    ///
    /// # Panics
    /// When it holds something else: a test of the table says that no row does.
    #[inline]
    pub(crate) fn of(held: &'static (dyn Any + Send + Sync)) -> &'static Own {
        held.downcast_ref().expect("the row of a session's command holds an Own")
    }
    /// Of the command in this row; `None` when it is no command of a session.
    #[inline]
    pub(crate) fn of_row(spec: &CommandSpec) -> Option<&'static Own> {
        match spec.exec {
            Exec::Session(held) => Some(Own::of(held)),
            _ => None,
        }
    }
    /// Runs it on the session.
    pub(super) fn run(&self, session: &mut Session, args: Args<'_>, now: Now) -> Outcome {
        (self.run)(session, args, now)
    }
    /// Runs it apart from the session; an error is its reply.
    ///
    /// # Panics
    /// When it never runs apart.
    pub(crate) fn run_apart(&self, engine: &Engine, args: Args<'_>, at: At, reply: &mut Reply<'_>) {
        let apart = self.apart.expect("a command that asks to run apart says how");
        if let Err(text) = apart(engine, args, at, reply) {
            reply.error_bytes(&text);
        }
    }
}

/// What the command in this row is to the session.
#[inline]
pub(crate) fn kind_of(spec: &CommandSpec) -> Kind {
    Own::of_row(spec).map_or(Kind::Usual, |own| own.kind)
}
