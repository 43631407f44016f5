//! [`Arg`]: one argument of a command, as COMMAND DOCS shows it; and the arity that follows from a row's arguments.

/// One argument in the documentation tree (`COMMAND DOCS`).
#[derive(Clone, Copy, Debug)]
pub struct Arg {
    /// Its name.
    pub name: &'static str,
    /// Its type, by Redis's names: string, integer, double, key, pattern, unix-time, pure-token, oneof, block.
    pub kind: &'static str,
    /// The literal word in front of it, if any.
    pub token: Option<&'static str>,
    /// It may be left out.
    pub optional: bool,
    /// It may be repeated.
    pub multiple: bool,
    /// When repeated, so is its token.
    pub multiple_token: bool,
    /// Index of the key spec when it is a key.
    pub key_spec: Option<usize>,
    /// Since which version, when later than the command itself.
    pub since: Option<&'static str>,
    /// Since which version it should not be used any more.
    pub deprecated_since: Option<&'static str>,
    /// Parts of a oneof or block.
    pub args: &'static [Arg],
}

/// How many words arguments take.
#[derive(Clone, Copy)]
struct Words {
    least: i32,
    /// There may be more.
    open: bool,
}

/// Redis's arity of a command with these arguments: n exact, -n at least. `before`: words in front of the first argument
/// (1 for a command's name, 2 for a container and a subcommand).
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
            // The token is the whole of it, and is counted below.
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

/// Rows are written with these: `Arg::key("key", 0)`, `Arg::integer("count").optional().token("COUNT")`.
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
    /// A pattern that makes keys.
    pub const fn key_pattern(name: &'static str, spec: usize) -> Arg {
        Arg { key_spec: Some(spec), ..Arg::pattern(name) }
    }
    pub const fn unix_time(name: &'static str) -> Arg {
        Arg::new(name, "unix-time")
    }
    /// A literal word by itself.
    pub const fn word(name: &'static str, token: &'static str) -> Arg {
        Arg { token: Some(token), ..Arg::new(name, "pure-token") }
    }
    pub const fn oneof(name: &'static str, args: &'static [Arg]) -> Arg {
        Arg { args, ..Arg::new(name, "oneof") }
    }
    pub const fn block(name: &'static str, args: &'static [Arg]) -> Arg {
        Arg { args, ..Arg::new(name, "block") }
    }
    /// With a literal word in front.
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
