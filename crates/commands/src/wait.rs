//! [`Wait`]: what a blocking command waits for when it has found nothing. [`Narrower`]: the call that serves it
//! later.
//!
//! The handler of a blocking command makes one attempt. If the attempt finds nothing, the handler writes the reply
//! that the command has in a transaction, and stores in [`Call::wait`](crate::call::Call) what it would wait for.
//! The caller decides whether the client waits.

use crate::dispatch;
use crate::families::stream;
use crate::long_double::LongDouble;
use crate::parse;
use crate::spec::{BeginSearch, CommandSpec, FindKeys, Flags};
use smallvec::SmallVec;
use std::borrow::Cow;
use strand_keyspace::Wanted;
use strand_wire::args::{Args, Argv};

/// Maximum length of a timeout that is first read as an integer.
const SHORT_DIGITS_MAX: usize = 12;

/// What a call waits for.
#[derive(Debug)]
pub struct Wait {
    /// The timeout in milliseconds. 0 means no timeout.
    pub timeout_ms: u64,
    /// What the call waits for at each key. A key is given by the index of its argument.
    pub wanted: Vec<(usize, Wanted)>,
    /// The arguments with which the call waits, if they differ from its own. In XREAD, the last ID of the stream at
    /// the start of the wait replaces `$`.
    pub argv: Option<Argv>,
    /// True when the keys are in the database's system companion.
    pub of_system: bool,
}

impl Wait {
    /// Waits for `wanted` at `keys` keys, which are the arguments from index `first` on.
    pub(crate) fn at_each(timeout_ms: u64, first: usize, keys: usize, wanted: &Wanted) -> Wait {
        let wanted = (first..first + keys).map(|at| (at, wanted.clone())).collect();
        Wait { timeout_ms, wanted, argv: None, of_system: false }
    }
}

/// True when this call waits if it finds nothing.
pub fn may_wait(spec: &CommandSpec, args: Args<'_>) -> bool {
    spec.flags.has(Flags::BLOCKING) && (spec.group != "stream" || stream::may_wait(args))
}

/// The error when a script calls XREAD or XREADGROUP with the option BLOCK. Other blocking commands do not wait in a
/// script.
pub fn refusal_in_script(spec: &CommandSpec, args: Args<'_>) -> Option<Cow<'static, str>> {
    let is_read = ["xread", "xreadgroup"].contains(&spec.name);
    is_read.then(|| stream::refusal_in_script(args)).flatten()
}

/// Parses a time in seconds, as in BLPOP. Returns milliseconds, rounded up.
///
/// # Errors
/// The error text, if the argument is no such time.
pub(crate) fn seconds(bytes: &[u8]) -> Result<u64, &'static str> {
    // Most timeouts are a few digits. Reading them as a long double takes 560 instructions of 18,000 for BLPOP and
    // its RPUSH.
    if bytes.len() <= SHORT_DIGITS_MAX
        && let Ok(seconds) = parse::integer(bytes)
        && let Ok(seconds) = u64::try_from(seconds)
    {
        return Ok(seconds * 1000);
    }
    let text = "ERR timeout is not a float or out of range";
    let seconds = LongDouble::parse(bytes).ok_or(text)?;
    // A number that fits no integer counts as negative, as in redis-server.
    seconds.thousandfold_ceil().and_then(|ms| u64::try_from(ms).ok()).ok_or("ERR timeout is negative")
}

/// Parses a time in milliseconds, as in BLOCK and WAIT.
///
/// # Errors
/// The error text, if the argument is no such time.
pub fn milliseconds(bytes: &[u8]) -> Result<u64, &'static str> {
    let ms = parse::integer(bytes).map_err(|_| "ERR timeout is not an integer or out of range")?;
    u64::try_from(ms).map_err(|_| "ERR timeout is negative")
}

/// Makes the calls that serve a waiting client at its keys.
#[derive(Debug)]
pub struct Narrower<'a> {
    spec: &'a CommandSpec,
    args: Args<'a>,
    keys: SmallVec<[usize; 4]>,
}

impl<'a> Narrower<'a> {
    /// For the command `args`. The duration grows with the number of keys.
    pub fn new(spec: &'a CommandSpec, args: Args<'a>) -> Narrower<'a> {
        Narrower { spec, args, keys: dispatch::keys_to_lock(spec, args) }
    }
    /// The positions of the keys among the arguments.
    pub fn keys(&self) -> &[usize] {
        &self.keys
    }
    /// The command with only the key that is its argument `at`. `None`: the command has only one key, so the call is the
    /// command itself.
    pub fn call(&self, at: usize) -> Option<Argv> {
        let Narrower { spec, args, keys } = self;
        if keys.len() <= 1 {
            return None;
        }
        let mut argv = Argv::new();
        let mut add = |i: usize| match args.large(i) {
            Some(blob) => argv.push_blob(blob.clone()),
            None => argv.push(args.at(i)),
        };
        let key_spec = spec.keys.first()?;
        match (key_spec.begin, key_spec.find) {
            // XREAD has one ID per key, after all keys.
            (BeginSearch::Keyword(..), FindKeys::Range { limit: 2, .. }) => {
                let first = keys.first().copied().unwrap_or(at);
                (0..first).for_each(&mut add);
                add(at);
                add(at + (args.len() - first) / 2);
            }
            (BeginSearch::Index(number), FindKeys::KeyNumber { .. }) => {
                (0..number).for_each(&mut add);
                argv.push(b"1");
                let mut add = |i: usize| argv.push(args.at(i));
                add(at);
                (number + 1 + keys.len()..args.len()).for_each(add);
            }
            // The last argument is the timeout.
            (BeginSearch::Index(1), FindKeys::Range { last: -2, .. }) => {
                [0, at, args.len() - 1].into_iter().for_each(&mut add);
            }
            // BLMOVE needs both its keys.
            _ => return None,
        }
        Some(argv)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::DATA;

    #[test]
    fn a_narrowed_call_has_one_key() {
        for (line, at, want) in [
            ("BLPOP a b c 0", 2, "BLPOP b 0"),
            ("BZPOPMAX a 7", 1, "BZPOPMAX a 7"),
            ("BLMPOP 0 3 a b c LEFT COUNT 2", 5, "BLMPOP 0 1 c LEFT COUNT 2"),
            ("BZMPOP 0 1 a MIN", 3, "BZMPOP 0 1 a MIN"),
            ("BLMOVE a b LEFT RIGHT 0", 1, "BLMOVE a b LEFT RIGHT 0"),
            ("BRPOPLPUSH a b 0", 1, "BRPOPLPUSH a b 0"),
            ("XREAD COUNT 2 BLOCK 0 STREAMS a b 1-1 2-2", 7, "XREAD COUNT 2 BLOCK 0 STREAMS b 2-2"),
            ("XREADGROUP GROUP g c BLOCK 0 STREAMS a b > >", 7, "XREADGROUP GROUP g c BLOCK 0 STREAMS a >"),
        ] {
            let argv = Argv::from_slices(&line.split(' ').collect::<Vec<_>>());
            let spec = DATA.lookup(argv.args().at(0)).expect("a row");
            let narrow = Narrower::new(spec, argv.args()).call(at);
            assert_eq!(narrow.is_none(), line == want, "{line}");
            let narrow = narrow.unwrap_or(argv);
            let words: Vec<_> = narrow.args().iter().map(String::from_utf8_lossy).collect();
            assert_eq!(words.join(" "), want);
        }
    }

    #[test]
    fn timeouts_are_parsed_as_by_redis_server() {
        let negative = Err("ERR timeout is negative");
        for (text, want) in [
            ("0", Ok(0)),
            ("1", Ok(1000)),
            ("86400", Ok(86_400_000)),
            ("999999999999", Ok(999_999_999_999_000)),
            ("01", Ok(1000)),
            ("+1", Ok(1000)),
            ("-0", Ok(0)),
            (" 1", Err("ERR timeout is not a float or out of range")),
            ("0.1", Ok(100)),
            ("0.001", Ok(1)),
            ("0.0001", Ok(1)),
            ("1.0001", Ok(1001)),
            ("0x10", Ok(16_000)),
            ("-0.0", Ok(0)),
            ("-0.0001", Ok(0)),
            ("9223372036854775", Ok(9_223_372_036_854_775_000)),
            ("-1", negative),
            ("-0.001", Ok(0)),
            ("-0.002", negative),
            ("inf", negative),
            ("1e400", negative),
            ("9223372036854776", negative),
            ("nan", Err("ERR timeout is not a float or out of range")),
            ("", Err("ERR timeout is not a float or out of range")),
        ] {
            assert_eq!(seconds(text.as_bytes()), want, "{text}");
        }
        assert_eq!(milliseconds(b"50"), Ok(50));
        assert_eq!(milliseconds(b"-1"), negative);
        assert_eq!(milliseconds(b"0.5"), Err("ERR timeout is not an integer or out of range"));
    }
}
