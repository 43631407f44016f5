//! Error texts. Each is equal to redis-server 7.0's, byte for byte, because clients compare them.
//!
//! A fixed text is a constant. A text that quotes the command is made by a function. A text is the whole error
//! reply, except the `-` at its start and the end of the line.

use crate::dispatch::Resolved;
use crate::spec::CommandSpec;
use strand_wire::args::Args;

/// The value at the key has another type than the command expects.
pub const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";
/// The arguments do not have the command's syntax.
pub const SYNTAX: &str = "ERR syntax error";
/// An argument is not an `i64`.
pub const NOT_AN_INTEGER: &str = "ERR value is not an integer or out of range";
/// An argument is not a float.
pub const NOT_A_FLOAT: &str = "ERR value is not a valid float";
/// The sum of two floats is infinite or not a number.
pub const NAN_OR_INFINITY: &str = "ERR increment would produce NaN or Infinity";
/// The sum of two integers does not fit into an `i64`.
pub const OVERFLOW: &str = "ERR increment or decrement would overflow";
/// DECRBY of the smallest i64.
pub const DECREMENT_OVERFLOW: &str = "ERR decrement would overflow";
/// The key does not exist.
pub const NO_SUCH_KEY: &str = "ERR no such key";
/// RESTORE without REPLACE to a key that exists.
pub const BUSY_KEY: &str = "BUSYKEY Target key name already exists.";
/// RESTORE: the payload is damaged, is of a newer version, or is none at all.
pub const WRONG_PAYLOAD: &str = "ERR DUMP payload version or checksum are wrong";
/// RESTORE: the checksum is right, but the payload has no valid value.
pub const BAD_DATA_FORMAT: &str = "ERR Bad data format";
/// An index is past the end (LSET, `OBJECT`, databases).
pub const INDEX_OUT_OF_RANGE: &str = "ERR index out of range";
/// SELECT, COPY, MOVE or SWAPDB names a database that does not exist.
pub const DB_INDEX_OUT_OF_RANGE: &str = "ERR DB index is out of range";
/// An offset is below 0.
pub const OFFSET_OUT_OF_RANGE: &str = "ERR offset is out of range";
/// A string would become longer than `proto-max-bulk-len`.
pub const STRING_TOO_LONG: &str = "ERR string exceeds maximum allowed size (proto-max-bulk-len)";
/// The allocator has no memory for a value. redis-server has no such error: its process ends.
pub const OUT_OF_MEMORY: &str = "ERR not enough memory for the value";
/// SCAN, HSCAN, SSCAN or ZSCAN: the cursor is no number.
pub const INVALID_CURSOR: &str = "ERR invalid cursor";
/// RENAME, COPY or MOVE: the source and the destination are the same key.
pub const SAME_OBJECT: &str = "ERR source and destination objects are the same";
/// A count is below 0.
pub const NOT_POSITIVE: &str = "ERR value is out of range, must be positive";
/// An integer is outside the bounds that the command sets.
pub const OUT_OF_RANGE: &str = "ERR value is out of range";
/// The value of a hash's field is not an integer.
pub const HASH_NOT_AN_INTEGER: &str = "ERR hash value is not an integer";
/// The value of a hash's field is not a float.
pub const HASH_NOT_A_FLOAT: &str = "ERR hash value is not a float";
/// COMMAND GETKEYS: there is no such command.
pub const INVALID_COMMAND: &str = "ERR Invalid command specified";
/// COMMAND GETKEYS: the given command has a wrong number of arguments.
pub const INVALID_COMMAND_ARITY: &str = "ERR Invalid number of arguments specified for command";
/// COMMAND GETKEYS: the key specs do not fit the arguments.
pub const INVALID_COMMAND_ARGUMENTS: &str = "ERR Invalid arguments specified for command";
/// The user's rights do not allow this access to the key.
pub const NO_KEY_PERMISSION: &str =
    "NOPERM this user has no permissions to access one of the keys used as arguments";
/// COMMAND GETKEYS: the command has no keys.
pub const NO_KEY_ARGUMENTS: &str = "ERR The command has no key arguments";

/// Maximum number of bytes of an unknown command's name that are quoted. Also the maximum for all its arguments
/// together.
const QUOTED_BYTES_MAX: usize = 128;

/// `ERR unknown command 'x', with args beginning with: 'a' 'b' `
///
/// The name is cut to 128 bytes, and the arguments together are cut to 128 bytes. Each also ends at its first zero
/// byte, as in redis-server, which uses C strings.
#[cold]
pub fn unknown_command(args: Args<'_>) -> Vec<u8> {
    let mut out = b"ERR unknown command '".to_vec();
    out.extend_from_slice(quoted(args.at(0), QUOTED_BYTES_MAX));
    out.extend_from_slice(b"', with args beginning with: ");
    let start = out.len();
    for arg in args.skip(1).iter() {
        let used = out.len() - start;
        if used >= QUOTED_BYTES_MAX {
            break;
        }
        out.push(b'\'');
        out.extend_from_slice(quoted(arg, QUOTED_BYTES_MAX - used));
        out.extend_from_slice(b"' ");
    }
    out
}

/// `ERR unknown subcommand 'x'. Try CLIENT HELP.`
#[cold]
pub fn unknown_subcommand(args: Args<'_>) -> Vec<u8> {
    let mut out = b"ERR unknown subcommand '".to_vec();
    out.extend_from_slice(quoted(args.at(1), QUOTED_BYTES_MAX));
    out.extend_from_slice(b"'. Try ");
    out.extend_from_slice(&quoted(args.at(0), usize::MAX).to_ascii_uppercase());
    out.extend_from_slice(b" HELP.");
    out
}

/// `ERR wrong number of arguments for 'get' command`; a subcommand is named `client|setname`.
#[cold]
pub fn wrong_arity(found: &Resolved) -> Vec<u8> {
    format!("ERR wrong number of arguments for '{}' command", found.full_name()).into_bytes()
}

/// `ERR invalid expire time in 'setex' command`
pub fn invalid_expire_time(command: &str) -> String {
    format!("ERR invalid expire time in '{command}' command")
}

/// The command's name in error texts: `get`, `client|setname`.
pub(crate) fn full_name(container: Option<&CommandSpec>, spec: &CommandSpec) -> String {
    match container {
        Some(c) => format!("{}|{}", c.name, spec.name),
        None => spec.name.into(),
    }
}

/// The part of `bytes` that C's `%s` prints: up to the first zero byte.
pub(crate) fn c_text(bytes: &[u8]) -> &[u8] {
    &bytes[..memchr::memchr(0, bytes).unwrap_or(bytes.len())]
}

/// The part of `bytes` that C's `%.*s` prints: at most `max` bytes, and up to the first zero byte.
fn quoted(bytes: &[u8], max: usize) -> &[u8] {
    c_text(&bytes[..bytes.len().min(max)])
}
