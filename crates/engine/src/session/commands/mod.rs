//! The commands that sessions run themselves. They read or change the session, the clients or the server, not the
//! data.
//!
//! Each is a method of [`Session`] or a function beside it. It writes its reply or returns the text of an error. The
//! rows in `table` name these functions. A new command needs a row and a function.

mod acl;
mod alone;
mod client;
mod client_kill;
mod client_tracking;
mod config;
mod connection;
mod debug;
mod debug_data;
mod diag;
mod diag_commands;
mod importing;
mod info;
mod info_keysizes;
mod info_sections;
mod introspection;
mod latency;
mod memory;
mod monitor;
mod pubsub;
mod replicas;
mod scripting;
mod server;
mod slowlog;
mod table;
mod wait;

pub(crate) use connection::{REDIS_VERSION, database_to_select};
pub(in crate::session) use replicas::ReplicaSession;
pub(crate) use scripting::load_library;
pub(crate) use table::GROUPS;

use super::run::NextStep;
use super::{Session, State, Turn};
use strand_wire::reply::ErrorText;

/// The outcome of a command: how to continue, or the whole text of an error reply (without the `-`).
pub(in crate::session) type Outcome = Result<NextStep, ErrorText>;

/// The usual outcome: the command is done.
const DONE: Outcome = Ok(NextStep::Continue);

/// ACL, CONFIG and other commands of this module that have more arguments than this run on a helper thread, because
/// each argument may cost a microsecond or more.
const ARGS_AT_ONCE_MAX: usize = 64;

const SYNTAX: &str = strand_commands::errors::SYNTAX;

impl Session {
    fn sleep(&mut self, until_us: u64) -> Outcome {
        self.state = State::Sleeping { until_us };
        Ok(NextStep::Stop(Turn::Sleep { until_mono_us: until_us }))
    }
    fn ok(&mut self) -> Outcome {
        self.reply().ok();
        DONE
    }
}
