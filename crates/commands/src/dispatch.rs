//! [`Resolved`]: a row that was found in the table. Also whether a row allows a number of arguments, and where a
//! call's keys are.

use crate::errors;
use crate::spec::{BeginSearch, CommandSpec, Exec, FindKeys, KeySpec};
use smallvec::SmallVec;
use strand_keyspace::types::string::parse_int;
use strand_wire::args::Args;

/// A command found in the table.
#[derive(Clone, Copy)]
pub struct Resolved {
    /// The command's row. For a subcommand, the subcommand's own row.
    pub spec: &'static CommandSpec,
    /// For a subcommand, the row of its container.
    pub container: Option<&'static CommandSpec>,
}

impl Resolved {
    /// The command's name in error texts and in COMMAND INFO: `get`, `client|setname`.
    pub fn full_name(&self) -> String {
        errors::full_name(self.container, self.spec)
    }
    /// True when the row allows this number of arguments, the name included.
    pub fn arity_fits(&self, args: usize) -> bool {
        let (n, arity) = (args as i64, i64::from(self.spec.arity));
        let subcommand_missing = self.container.is_none() && matches!(self.spec.exec, Exec::Container);
        !subcommand_missing && if arity >= 0 { n == arity } else { n >= -arity }
    }
}

/// Finds the row of a subcommand by its name, in any ASCII case.
pub fn subcommand(container: &CommandSpec, word: &[u8]) -> Option<&'static CommandSpec> {
    container.subcommands.iter().find(|c| word.eq_ignore_ascii_case(c.name.as_bytes()))
}

/// Positions of the keys in `args`, in the order of the key specs.
///
/// # Errors
/// Fails if a key spec does not fit the arguments (a number of keys that is too large or no number, a missing keyword),
/// or when a key spec is incomplete.
pub fn key_positions(spec: &CommandSpec, args: Args<'_>) -> Result<SmallVec<[usize; 4]>, InvalidKeys> {
    let mut out = SmallVec::new();
    if let Some(at) = only_key(spec, args) {
        out.push(at);
        return Ok(out);
    }
    for keys in spec.keys {
        spec_positions(keys, args, &mut out)?;
    }
    Ok(out)
}

/// The position of the key, for a command with one key at a fixed position, as most commands have. `None` for
/// others.
#[inline]
pub fn only_key(spec: &CommandSpec, args: Args<'_>) -> Option<usize> {
    if let [only] = spec.keys
        && let (BeginSearch::Index(at), FindKeys::Range { last: 0, .. }) = (only.begin, only.find)
        && !only.is_no_key()
        && !only.is_incomplete()
        && at < args.len()
    {
        return Some(at);
    }
    None
}

/// Positions of the keys that the key specs find. A spec that does not fit the arguments finds none. That is safe:
/// the handler then replies with an error before it accesses a key (a wrong number of keys), or has no key there
/// (PFMERGE with only a destination).
#[inline]
pub fn keys_to_lock(spec: &CommandSpec, args: Args<'_>) -> SmallVec<[usize; 4]> {
    key_positions(spec, args).unwrap_or_else(|InvalidKeys| followable(spec, args))
}
#[cold]
fn followable(spec: &CommandSpec, args: Args<'_>) -> SmallVec<[usize; 4]> {
    spec.keys.iter().flat_map(|keys| followed(keys, args)).collect()
}

/// Positions of the keys that one spec finds. If the spec does not fit the arguments, those found so far.
pub fn followed(spec: &KeySpec, args: Args<'_>) -> SmallVec<[usize; 4]> {
    let mut out = SmallVec::new();
    // An incomplete spec gives an error, but has added the keys that it finds.
    let _ = spec_positions(spec, args, &mut out);
    out
}

/// Positions of the keys in `args` that one spec finds.
///
/// # Errors
/// Like [`key_positions`].
pub fn positions_of(spec: &KeySpec, args: Args<'_>) -> Result<SmallVec<[usize; 4]>, InvalidKeys> {
    let mut out = SmallVec::new();
    spec_positions(spec, args, &mut out)?;
    Ok(out)
}

/// The error when a key spec does not fit the arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidKeys;

/// Adds the positions that one spec finds to `out`. Adds none if the spec finds something that is not a key.
fn spec_positions(spec: &KeySpec, args: Args<'_>, out: &mut SmallVec<[usize; 4]>) -> Result<(), InvalidKeys> {
    if spec.is_no_key() {
        return Ok(());
    }
    let n = args.len();
    let mut first = match spec.begin {
        BeginSearch::Index(at) => at,
        BeginSearch::Keyword(word, from) => after_keyword(args, word, from).ok_or(InvalidKeys)?,
        BeginSearch::Unknown => 0,
    };
    // The position of the last key, as an `i64`, because clients choose the counts and may overflow a smaller
    // integer.
    let (last, step) = match spec.find {
        FindKeys::Range { last, step, .. } if last >= 0 => (first as i64 + i64::from(last), step),
        FindKeys::Range { last, step, limit: 0 } => (n as i64 + i64::from(last), step),
        FindKeys::Range { last, step, limit } => {
            let rest = n.saturating_sub(first) / limit;
            (first as i64 + rest as i64 + i64::from(last), step)
        }
        FindKeys::KeyNumber { number, first: offset, step } => {
            let count = args.get(first + number).and_then(parse_int).ok_or(InvalidKeys)?;
            first += offset;
            let last = count.checked_sub(1).and_then(|c| c.checked_mul(step as i64)).ok_or(InvalidKeys)?;
            if count < 0 {
                return Err(InvalidKeys);
            }
            (last.saturating_add(first as i64), step)
        }
        FindKeys::Unknown(find) => {
            out.extend(find.and_then(|find| find(args)));
            return Ok(());
        }
    };
    if last >= n as i64 || last < first as i64 || first >= n {
        return Err(InvalidKeys);
    }
    let last = last as usize;
    out.reserve((last - first) / step + 1);
    (first..=last).step_by(step).for_each(|at| out.push(at));
    if spec.is_incomplete() { Err(InvalidKeys) } else { Ok(()) }
}

/// The position after `word`. The search begins at argument `from` or, if `from` is negative, at that distance from
/// the end, and goes backwards.
fn after_keyword(args: Args<'_>, word: &str, from: i32) -> Option<usize> {
    let n = args.len();
    let at = if from >= 0 {
        (from as usize..n).find(|i| args.is(*i, word))
    } else {
        let start = n.checked_sub(from.unsigned_abs() as usize)?;
        (1..=start).rev().find(|i| args.is(*i, word))
    };
    at.map(|i| i + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::KeyFlags as K;
    use crate::table::DATA;
    use strand_wire::args::Argv;

    fn error(args: &[&str]) -> String {
        let argv = Argv::from_slices(args);
        match DATA.resolve(argv.args()) {
            Ok(found) => panic!("{} was found", found.full_name()),
            Err(text) => String::from_utf8(text).expect("text"),
        }
    }
    fn positions(spec: &CommandSpec, line: &str) -> Option<Vec<usize>> {
        let words: Vec<&str> = line.split(' ').collect();
        let argv = Argv::from_slices(&words);
        key_positions(spec, argv.args()).ok().map(|p| p.to_vec())
    }
    fn row(name: &str) -> &'static CommandSpec {
        DATA.lookup_full_name(name.as_bytes()).expect("a row").spec
    }
    fn with(keys: &'static [KeySpec]) -> CommandSpec {
        CommandSpec::new("x", "generic", "1.0.0", "O(1)", "A row.").keys(keys)
    }

    #[test]
    fn unknown_commands_are_quoted_in_bounds() {
        assert_eq!(error(&["foo"]), "ERR unknown command 'foo', with args beginning with: ");
        assert_eq!(
            error(&["foo", "a", "", "c"]),
            "ERR unknown command 'foo', with args beginning with: 'a' '' 'c' "
        );
        let (f, a) = ("f".repeat(140), "a".repeat(129));
        let want = format!("ERR unknown command '{}', with args beginning with: '{}' ", &f[..128], &a[..128]);
        assert_eq!(error(&[&f, &a, "b"]), want);
        let want = format!("ERR unknown command 'foo', with args beginning with: '{}' ", &a[..125]);
        assert_eq!(error(&["foo", &a[..125], "b"]), want);
        let want = format!("ERR unknown command 'foo', with args beginning with: '{}' 'bbbb' ", &a[..121]);
        assert_eq!(error(&["foo", &a[..121], "bbbb", "c"]), want);
        assert_eq!(error(&["a\0b", "c\0d"]), "ERR unknown command 'a', with args beginning with: 'c' ");
    }

    #[test]
    fn unknown_subcommands_and_wrong_arity_have_redis_servers_texts() {
        assert_eq!(error(&["oBject", "foo"]), "ERR unknown subcommand 'foo'. Try OBJECT HELP.");
        let b = "b".repeat(140);
        assert_eq!(
            error(&["object", &b]),
            format!("ERR unknown subcommand '{}'. Try OBJECT HELP.", &b[..128])
        );
        assert_eq!(error(&["OBJECT"]), "ERR wrong number of arguments for 'object' command");
        assert_eq!(
            error(&["OBJECT", "encoding"]),
            "ERR wrong number of arguments for 'object|encoding' command"
        );
        assert_eq!(error(&["Get"]), "ERR wrong number of arguments for 'get' command");
        assert_eq!(error(&["get", "a", "b"]), "ERR wrong number of arguments for 'get' command");
        assert_eq!(error(&["mget"]), "ERR wrong number of arguments for 'mget' command");
        assert_eq!(error(&["object|help"]), "ERR unknown command 'object|help', with args beginning with: ");
        let argv = Argv::from_slices(&["Object", "Encoding", "x"]);
        assert_eq!(DATA.resolve(argv.args()).expect("found").full_name(), "object|encoding");
    }

    #[test]
    fn a_full_name_finds_a_command_or_a_subcommand() {
        assert!(DATA.lookup_full_name(b"GET").is_some());
        assert!(DATA.lookup_full_name(b"object|FREQ").is_some());
        assert!(DATA.lookup_full_name(b"object|nope").is_none());
        assert!(DATA.lookup_full_name(b"get|x").is_none());
        assert!(DATA.lookup_full_name(b"|").is_none());
    }

    #[test]
    fn key_specs_give_the_positions_of_the_keys() {
        assert_eq!(positions(row("get"), "get a"), Some(vec![1]));
        assert_eq!(positions(row("mset"), "mset a 1 b 2"), Some(vec![1, 3]));
        assert_eq!(positions(row("mget"), "mget a b c d e f"), Some(vec![1, 2, 3, 4, 5, 6]));
        assert_eq!(positions(row("copy"), "copy a b"), Some(vec![1, 2]));
        assert_eq!(positions(row("object|encoding"), "object encoding a"), Some(vec![2]));
        assert_eq!(positions(row("dbsize"), "dbsize"), Some(vec![]));
    }

    #[test]
    fn keys_of_specs_that_can_be_followed_are_locked() {
        let locked = |line: &str| {
            let argv = Argv::from_slices(&line.split(' ').collect::<Vec<_>>());
            keys_to_lock(row(line.split(' ').next().expect("a word")), argv.args()).to_vec()
        };
        assert_eq!(positions(row("pfmerge"), "pfmerge a"), None);
        assert_eq!(locked("pfmerge a"), [1]);
        assert_eq!(locked("pfmerge a b c"), [1, 2, 3]);
        assert_eq!(locked("mset a 1"), [1]);
    }

    #[test]
    fn keys_by_number_keyword_and_share() {
        const BY_NUMBER: &[KeySpec] =
            &[KeySpec::new(&[], BeginSearch::Index(2), FindKeys::KeyNumber { number: 0, first: 1, step: 1 })];
        let eval = with(BY_NUMBER);
        assert_eq!(positions(&eval, "eval x 2 a b c"), Some(vec![3, 4]));
        for bad in [
            "eval x",
            "eval x y a",
            "eval x 0",
            "eval x -1 a",
            "eval x 3 a b",
            "eval x 9223372036854775807 a",
            "eval x -9223372036854775808 a",
        ] {
            assert_eq!(positions(&eval, bad), None, "{bad}");
        }
        const BY_KEYWORD: &[KeySpec] = &[KeySpec::new(
            &[],
            BeginSearch::Keyword("STREAMS", 1),
            FindKeys::Range { last: -1, step: 1, limit: 2 },
        )];
        let xread = with(BY_KEYWORD);
        assert_eq!(positions(&xread, "xread count 1 streams a b 0 0"), Some(vec![4, 5]));
        assert_eq!(positions(&xread, "xread count 1"), None);
        assert_eq!(positions(&xread, "xread streams"), None);
        const FROM_THE_END: &[KeySpec] = &[KeySpec::new(
            &[K::RW, K::INCOMPLETE],
            BeginSearch::Keyword("KEYS", -2),
            FindKeys::Range { last: -1, step: 1, limit: 0 },
        )];
        assert_eq!(
            after_keyword(Argv::from_slices(&["m", "KEYS", "a", "keys", "b"]).args(), "KEYS", -2),
            Some(4)
        );
        assert_eq!(positions(&with(FROM_THE_END), "m x keys a"), None, "an incomplete spec");
    }
}
