//! Error texts, byte for byte those of redis-server: clients match on them. STARTING VERSION.

use crate::dispatch::Resolved;
use strand_wire::args::Args;

/// A value of another type.
pub const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";
/// Arguments that do not parse.
pub const SYNTAX: &str = "ERR syntax error";
/// Not an i64.
pub const NOT_AN_INTEGER: &str = "ERR value is not an integer or out of range";
/// Not a float.
pub const NOT_A_FLOAT: &str = "ERR value is not a valid float";
/// No such key.
pub const NO_SUCH_KEY: &str = "ERR no such key";

/// `ERR unknown command 'x', with args beginning with: 'a' 'b' `
pub fn unknown_command(args: Args<'_>) -> Vec<u8> {
    [b"ERR unknown command '", args.at(0), b"'"].concat()
}
/// `ERR unknown subcommand 'x'. Try CLIENT HELP.`
pub fn unknown_subcommand(args: Args<'_>) -> Vec<u8> {
    [b"ERR unknown subcommand '", args.at(1), b"'."].concat()
}
/// `ERR wrong number of arguments for 'get' command`
pub fn wrong_arity(found: &Resolved) -> Vec<u8> {
    format!("ERR wrong number of arguments for '{}' command", found.spec.name).into_bytes()
}
