//! The replies of COMMAND over the table.

use strand_wire::reply::Reply;

/// The reply of a container's HELP: a heading, the lines given, and the line about HELP itself.
pub fn help(reply: &mut Reply<'_>, container: &str, lines: &[&str]) {
    reply.array(lines.len() + 3);
    reply.simple(&format!("{container} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:"));
    lines.iter().for_each(|line| reply.simple(line));
    reply.simple("HELP");
    reply.simple("    Print this help.");
}
