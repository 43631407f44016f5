//! The command families: one module of handlers for each group of the table.
//!
//! A handler is three steps: parse typed arguments, call a keyspace operation, write the reply. It sees
//! [`crate::call::Call`] (or [`crate::call::LaneCall`]) and nothing else: no socket, no session, no clock.

pub(crate) mod expiry;
pub(crate) mod generic;
pub(crate) mod hash;
pub(crate) mod import_version;
pub(crate) mod keyspace_wide;
pub(crate) mod memory;
pub(crate) mod string;

use crate::call::Call;

/// The reply of `<container> HELP`: simple strings, `lines` between a first and a last that are the same everywhere.
fn help(call: &mut Call<'_, '_>, container: &str, lines: &[&str]) {
    call.reply.array(lines.len() + 3);
    call.reply.simple(&format!("{container} <subcommand> [<arg> ...]. The subcommands are:"));
    lines.iter().for_each(|line| call.reply.simple(line));
    call.reply.simple("HELP");
    call.reply.simple("    This text.");
}
