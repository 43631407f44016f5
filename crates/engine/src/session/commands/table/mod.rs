//! The rows of the commands that sessions run themselves, each with what it runs
//! ([`super::super::session_command::SessionCommand`]).

mod acl;
mod alone;
mod connection;
mod diag;
mod importing;
mod memory;
mod pubsub;
mod scripting;
mod server;
mod transactions;
mod wait;

use strand_commands::spec::CommandSpec;

/// The groups of these rows. A new group is one line here.
pub(crate) const GROUPS: &[&[CommandSpec]] = &[
    acl::ACL,
    alone::CLUSTER,
    alone::OTHERS,
    connection::CONNECTION,
    diag::DIAG,
    importing::IMPORT,
    memory::MEMORY,
    pubsub::PUBSUB,
    scripting::SCRIPTING,
    server::SERVER,
    transactions::TRANSACTIONS,
    wait::WAIT,
];
