//! [`Arg`]: one argument of a command, as COMMAND DOCS shows it. A command's arity follows from its arguments.

/// One argument in the documentation tree (`COMMAND DOCS`).
#[derive(Clone, Copy, Debug)]
pub struct Arg {
    /// Name of the argument.
    pub name: &'static str,
    /// Type of the argument, by Redis's names: string, integer, double, key, pattern, unix-time, pure-token, oneof,
    /// block.
    pub kind: &'static str,
    /// The literal word before the argument, if there is one.
    pub token: Option<&'static str>,
    /// True when the argument may be left out.
    pub optional: bool,
    /// True when the argument may be repeated.
    pub multiple: bool,
    /// True when the token is repeated with the argument.
    pub multiple_token: bool,
    /// For a key: the index of its key spec.
    pub key_spec: Option<usize>,
    /// The version that added the argument, if that was later than the command.
    pub since: Option<&'static str>,
    /// The version that deprecated the argument.
    pub deprecated_since: Option<&'static str>,
    /// The parts of a `oneof` or `block`.
    pub args: &'static [Arg],
}

/// The number of words that some arguments take in a command: at least `least`.
#[derive(Clone, Copy)]
struct Words {
    least: i32,
    /// True when more words than `least` are possible.
    open: bool,
}

/// Redis's arity of a command with these arguments: n for exactly n words, -n for at least n. `before` is the number of
/// words before the first argument: 1 for a command's name, 2 for a container and a subcommand.
pub(super) const fn arity(args: &[Arg], before: i32) -> i32 {
    let words = words_of(args);
    let least = before + words.least;
    if words.open { -least } else { least }
}

const fn words_of(args: &[Arg]) -> Words {
    let (mut all, mut i) = (Words { least: 0, open: false }, 0);
    while i < args.len() {
        let one = args[i].words();
        all = Words { least: all.least + one.least, open: all.open || one.open };
        i += 1;
    }
    all
}

impl Arg {
    const fn words(&self) -> Words {
        let inner = match self.kind.as_bytes() {
            b"oneof" => {
                let (mut least, mut open, mut i) = (self.args[0].words().least, false, 0);
                while i < self.args.len() {
                    let one = self.args[i].words();
                    open |= one.open || one.least != least;
                    if one.least < least {
                        least = one.least;
                    }
                    i += 1;
                }
                Words { least, open }
            }
            b"block" => words_of(self.args),
            // A pure token is only its word, which is counted below.
            b"pure-token" => Words { least: 0, open: false },
            _ => Words { least: 1, open: false },
        };
        if self.optional {
            return Words { least: 0, open: true };
        }
        let token = if self.token.is_some() { 1 } else { 0 };
        Words { least: inner.least + token, open: inner.open || self.multiple }
    }
}

/// Constructors, as rows use them: `Arg::key("key", 0)`, `Arg::integer("count").optional().token("COUNT")`.
#[allow(missing_docs)]
impl Arg {
    pub const fn new(name: &'static str, kind: &'static str) -> Arg {
        Arg {
            name,
            kind,
            token: None,
            optional: false,
            multiple: false,
            multiple_token: false,
            key_spec: None,
            since: None,
            deprecated_since: None,
            args: &[],
        }
    }
    pub const fn key(name: &'static str, spec: usize) -> Arg {
        Arg { key_spec: Some(spec), ..Arg::new(name, "key") }
    }
    pub const fn string(name: &'static str) -> Arg {
        Arg::new(name, "string")
    }
    pub const fn integer(name: &'static str) -> Arg {
        Arg::new(name, "integer")
    }
    pub const fn double(name: &'static str) -> Arg {
        Arg::new(name, "double")
    }
    pub const fn pattern(name: &'static str) -> Arg {
        Arg::new(name, "pattern")
    }
    /// A pattern of key names.
    pub const fn key_pattern(name: &'static str, spec: usize) -> Arg {
        Arg { key_spec: Some(spec), ..Arg::pattern(name) }
    }
    pub const fn unix_time(name: &'static str) -> Arg {
        Arg::new(name, "unix-time")
    }
    /// A literal word.
    pub const fn word(name: &'static str, token: &'static str) -> Arg {
        Arg { token: Some(token), ..Arg::new(name, "pure-token") }
    }
    pub const fn oneof(name: &'static str, args: &'static [Arg]) -> Arg {
        Arg { args, ..Arg::new(name, "oneof") }
    }
    pub const fn block(name: &'static str, args: &'static [Arg]) -> Arg {
        Arg { args, ..Arg::new(name, "block") }
    }
    /// The argument with a literal word before it.
    pub const fn token(self, token: &'static str) -> Arg {
        Arg { token: Some(token), ..self }
    }
    pub const fn optional(self) -> Arg {
        Arg { optional: true, ..self }
    }
    pub const fn multiple(self) -> Arg {
        Arg { multiple: true, ..self }
    }
    pub const fn multiple_token(self) -> Arg {
        Arg { multiple_token: true, ..self }
    }
    pub const fn since(self, version: &'static str) -> Arg {
        Arg { since: Some(version), ..self }
    }
    pub const fn deprecated_since(self, version: &'static str) -> Arg {
        Arg { deprecated_since: Some(version), ..self }
    }
}
