//! Hostile variants of every command: long, many, repeated and nested arguments, from the argument trees of the
//! command table.
//!
//! [`shapes`] returns the [`Shape`]s of one command, and [`some_shapes`] makes only a part of them. A test sends
//! them to a server that holds the [`KEYS`] and measures the cost of each. Attacks with several requests or with HTTP
//! bodies have their own tests.

use strand_commands::spec::{Arg, CommandSpec};

/// A key with a large value for each group of commands. `generic` commands get a string.
pub const KEYS: &[(&str, &str)] = &[
    ("string", "big:string"),
    ("bitmap", "big:string"),
    ("generic", "big:string"),
    ("hash", "big:hash"),
    ("list", "big:list"),
    ("set", "big:set"),
    ("sorted-set", "big:zset"),
    ("geo", "big:geo"),
    ("stream", "big:stream"),
    ("hyperloglog", "big:hll"),
];
/// The name of the index for `FT.SEARCH` and of the set for `RX.MATCH`.
pub const INDEX: &str = "big:index";

/// Lengths of a long argument: the first exceeds every limit, the last is below some limits.
const BYTES: [usize; 3] = [64 << 10, 8 << 10, 1 << 10];
/// Values of a query's parameter: a text, and how often it is repeated.
const PARAMETERS: [(&str, usize); 2] = [("b ", 4 << 10), ("a", 64 << 10)];
/// Number of elements in a variant with many elements.
const MANY: usize = 4 << 10;
/// Number of keys in a variant with many keys. It is smaller, because each key has a large reply.
const MANY_KEYS: usize = 1 << 4;
/// Maximum nesting of optional arguments in the table.
const DEPTH_MAX: usize = 8;

/// Texts that a hostile pattern, query or expression repeats. [`NUMBER`] is replaced by the number of the
/// repetition.
const REPEATED: &[&str] = &[
    "a",
    "a*",
    "*a",
    "?",
    "(",
    "[",
    "[^",
    "[a-z]",
    "\\",
    "a|",
    "{",
    "{1,1000}",
    "(a",
    "(a*)*",
    "$a ",
    "-",
    "%%%word%%% ",
    "word* ",
    "\"a ",
    "@body:",
    "\\pL",
    "é",
    "\u{0}",
    "{\"a\":",
    "1",
    ",",
    "|",
    "a b ",
    "b ",
    "common b ",
    "word#|",
    "%%wordwordwordwordwordwordwordwordwordwordwordwordwordword#%%|",
];
/// The character in [`REPEATED`] that makes the repetitions differ.
const NUMBER: char = '#';
/// Texts that are put before and after some of the repeated texts.
const AROUND: &[(&str, &str)] = &[
    ("", ""),
    ("(?iu)", ""),
    ("(?i)", ""),
    ("\"", ""),
    ("\"", "\""),
    ("@body:(", ")"),
    ("*", "b*"),
    ("(", ")"),
];
/// Integers at limits. None of them makes a string longer than a megabyte.
const INTEGERS: &[&str] =
    &["0", "1", "-1", "100000", "4294967296", "9223372036854775807", "-9223372036854775808"];

/// One hostile request.
#[derive(Clone, Debug)]
pub struct Shape {
    /// Name of the command and of the variant, for failure messages.
    pub name: String,
    /// The words of the request.
    pub words: Vec<Vec<u8>>,
}

/// Which optional arguments a variant has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Options {
    None,
    All,
    /// Only the optional argument with this number, with everything optional inside it.
    Only(usize),
}

/// Which leaf of an argument tree a variant makes hostile, and how. A leaf is an argument that contains no other
/// arguments.
#[derive(Clone, Copy, Debug)]
enum Mutation<'t> {
    /// No leaf is hostile: every argument is as a user writes it.
    None,
    /// The leaf with this number gets this text.
    Text(usize, &'t [u8]),
    /// The argument with this number is repeated as often as allowed. True: the values differ.
    Many(usize, bool),
}

/// The hostile variants of a command, each once. `container` is the container of a subcommand.
pub fn shapes(spec: &CommandSpec, container: Option<&CommandSpec>) -> Vec<Shape> {
    some_shapes(spec, container, &mut || true)
}

/// Those variants for which `is_wanted` returns true. It is called once for each variant, duplicates included. All
/// variants of all commands have gigabytes of words, so a variant is made only when it is wanted.
pub fn some_shapes(
    spec: &CommandSpec,
    container: Option<&CommandSpec>,
    is_wanted: &mut dyn FnMut() -> bool,
) -> Vec<Shape> {
    let name = |options: Options, what: &str| match container {
        Some(container) => format!("{} {}, options {options:?}: {what}", container.name, spec.name),
        None => format!("{}, options {options:?}: {what}", spec.name),
    };
    let mut out = Vec::new();
    let (plain, _) = RequestWriter::new(spec, container, Options::None, Mutation::None).write_all(spec);
    // Append words that no argument tree names.
    for repeated in ["x", "7", spec.args.last().and_then(|arg| arg.token).unwrap_or("COUNT")] {
        if is_wanted() {
            let more = (0..MANY).map(|_| repeated.as_bytes().to_vec());
            out.push(Shape {
                name: name(Options::None, &format!("{repeated} repeated after it")),
                words: plain.iter().cloned().chain(more).collect(),
            });
        }
    }
    let optional =
        spec.args.iter().enumerate().filter(|(_, arg)| arg.optional).map(|(i, _)| Options::Only(i));
    for options in [Options::None, Options::All].into_iter().chain(optional) {
        let (words, leaves) = RequestWriter::new(spec, container, options, Mutation::None).write_all(spec);
        if is_wanted() {
            out.push(Shape { name: name(options, "nothing hostile"), words });
        }
        let has_parameter = |arg: &&Arg| spec.group == "search" && arg.name == "value";
        let parameters = if leaves.iter().any(has_parameter) { &PARAMETERS[..] } else { &PARAMETERS[..1] };
        for (at, arg) in leaves.into_iter().enumerate() {
            for text in texts(arg) {
                // Also let the parameter of a query be a long text, which the query can use many times.
                let is_query = arg.name == "query";
                for parameter in if is_query { parameters } else { &PARAMETERS[..1] } {
                    if !is_wanted() {
                        continue;
                    }
                    let bytes = text.bytes();
                    let words = RequestWriter {
                        parameter,
                        ..RequestWriter::new(spec, container, options, Mutation::Text(at, &bytes))
                    };
                    let with = if is_query { format!(", parameter {parameter:?}") } else { String::new() };
                    let name = name(options, &format!("argument {at} {}{with}", text.name()));
                    out.push(Shape { name, words: words.write_all(spec).0 });
                }
            }
            for distinct in [false, true] {
                if is_wanted() {
                    let mutation = Mutation::Many(at, distinct);
                    let (words, _) = RequestWriter::new(spec, container, options, mutation).write_all(spec);
                    let name = name(options, &format!("argument {at} many, distinct: {distinct}"));
                    out.push(Shape { name, words });
                }
            }
        }
    }
    // Remove duplicates: a variant whose leaf cannot be changed equals the plain command.
    out.sort_by(|a, b| a.words.cmp(&b.words));
    out.dedup_by(|a, b| a.words == b.words);
    out
}

/// A hostile text for a leaf.
#[derive(Clone, Copy, Debug)]
enum HostileText {
    Integer(&'static str),
    /// A text that is repeated until it has the given number of bytes, and the texts before and after it.
    Repeated(&'static str, usize, (&'static str, &'static str)),
}

impl HostileText {
    fn bytes(self) -> Vec<u8> {
        match self {
            HostileText::Integer(integer) => integer.as_bytes().to_vec(),
            HostileText::Repeated(part, bytes, (before, after)) => {
                let repeated = match part.split_once(NUMBER) {
                    Some((left, right)) => {
                        (0..bytes / part.len()).map(|n| format!("{left}{n}{right}")).collect()
                    }
                    None => part.repeat(bytes / part.len()),
                };
                [before, repeated.as_str(), after].concat().into_bytes()
            }
        }
    }
    fn name(self) -> String {
        match self {
            HostileText::Integer(integer) => integer.to_string(),
            HostileText::Repeated(part, bytes, (before, after)) => {
                format!("{before:?}, {part:?} for {bytes} bytes, {after:?}")
            }
        }
    }
}

/// Hostile texts for a leaf. Only patterns, queries and searched texts get all texts.
fn texts(arg: &Arg) -> Vec<HostileText> {
    let is_read = arg.kind == "pattern" || matches!(arg.name, "query" | "text" | "value" | "replacement");
    let (repeated, around, bytes) =
        if is_read { (REPEATED, AROUND, &BYTES[..]) } else { (&REPEATED[..1], &AROUND[..1], &BYTES[..1]) };
    let mut out: Vec<HostileText> = INTEGERS.iter().map(|n| HostileText::Integer(n)).collect();
    for part in repeated {
        for around in around {
            out.extend(bytes.iter().map(|bytes| HostileText::Repeated(part, *bytes, *around)));
        }
    }
    out
}

fn has_key(arg: &Arg) -> bool {
    arg.kind == "key" || arg.args.iter().any(has_key)
}

/// The words of a request under construction.
struct RequestWriter<'t> {
    out: Vec<Vec<u8>>,
    group: &'static str,
    options: Options,
    mutation: Mutation<'t>,
    /// The leaves written so far, in order.
    leaves: Vec<&'static Arg>,
    /// Position of a word that counts the words that follow it.
    count_at: Option<usize>,
    /// The value that a query's parameter gets.
    parameter: &'static (&'static str, usize),
}

impl<'t> RequestWriter<'t> {
    /// Starts a request with the command's name, for the given variant.
    fn new(
        spec: &CommandSpec,
        container: Option<&CommandSpec>,
        options: Options,
        mutation: Mutation<'t>,
    ) -> RequestWriter<'t> {
        let names = container.map(|c| c.name).into_iter().chain([spec.name]);
        let out = names.map(|name| name.as_bytes().to_vec()).collect();
        let (leaves, count_at, parameter) = (Vec::new(), None, &PARAMETERS[0]);
        RequestWriter { out, group: spec.group, options, mutation, leaves, count_at, parameter }
    }

    /// Writes all arguments of the command. Returns the words and the leaves.
    fn write_all(mut self, spec: &CommandSpec) -> (Vec<Vec<u8>>, Vec<&'static Arg>) {
        for (i, arg) in spec.args.iter().enumerate() {
            if !arg.optional || self.options == Options::All || self.options == Options::Only(i) {
                self.arg(arg, 0);
            }
        }
        (self.out, self.leaves)
    }

    fn arg(&mut self, arg: &'static Arg, depth: usize) {
        let is_left_out = depth > 0 && arg.optional && self.options == Options::None;
        if is_left_out || depth > DEPTH_MAX {
            return;
        }
        let leaf = self.leaves.len();
        let mutated = matches!(self.mutation, Mutation::Many(at, _) if at == leaf && arg.multiple);
        let times = match mutated {
            true if has_key(arg) => MANY_KEYS,
            true => MANY,
            false => 1,
        };
        let first = self.out.len();
        for i in 0..times {
            self.leaves.truncate(leaf);
            if let Some(token) = arg.token
                && (i == 0 || arg.multiple_token || arg.kind == "pure-token")
            {
                self.out.push(token.as_bytes().to_vec());
            }
            match arg.kind {
                "pure-token" if arg.token.is_none() => self.out.push(arg.name.as_bytes().to_vec()),
                "pure-token" => {}
                "oneof" => arg.args.iter().take(1).for_each(|arg| self.arg(arg, depth + 1)),
                "block" => arg.args.iter().for_each(|arg| self.arg(arg, depth + 1)),
                _ => self.leaf(arg, i),
            }
        }
        if arg.multiple
            && let Some(at) = self.count_at.take()
        {
            self.out[at] = (self.out.len() - first).to_string().into_bytes();
        }
    }

    fn leaf(&mut self, arg: &'static Arg, nth: usize) {
        let at = self.leaves.len();
        self.leaves.push(arg);
        let is_count = matches!(arg.name, "numkeys" | "count" | "nargs" | "numfields" | "numids")
            && arg.kind == "integer";
        let value = match self.mutation {
            Mutation::Text(mutated, text) if mutated == at => text.to_vec(),
            Mutation::Many(mutated, true) if mutated == at && arg.kind != "key" => {
                nth.to_string().into_bytes()
            }
            _ if is_count => {
                // Set the count later, when the number of repeated arguments is known.
                self.count_at = Some(self.out.len());
                b"1000".to_vec()
            }
            _ => self.plain_text(arg),
        };
        self.out.push(value);
    }

    /// The text that a user would usually write for the argument.
    fn plain_text(&self, arg: &Arg) -> Vec<u8> {
        let key = KEYS.iter().find(|(group, _)| *group == self.group).map_or("big:string", |(_, key)| key);
        let text = match (arg.kind, arg.name) {
            ("key", "destination" | "newkey" | "destkey") => "made:here",
            ("key", _) => key,
            ("pattern", _) => "*",
            (_, "index") => INDEX,
            (_, "query") => "common",
            (_, "value") if self.group == "search" && !matches!(self.mutation, Mutation::Many(..)) => {
                return self.parameter.0.repeat(self.parameter.1).into_bytes();
            }
            (_, "name") if self.group == "search" => "a",
            (_, "field") if self.group == "search" => "body",
            ("integer", _) => "1",
            ("double", _) => "1.5",
            ("unix-time", _) => "9999999999",
            (_, "id" | "start" | "last-id") if self.group == "stream" => "0",
            (_, "end") if self.group == "stream" => "+",
            (_, "min") => "-inf",
            (_, "max") => "+inf",
            _ if matches!(self.group, "regex") => INDEX,
            _ => "member",
        };
        text.as_bytes().to_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use strand_commands::table::Table;

    static TABLE: Table = strand_commands::table!(&[
        strand_commands::rows!(strand_commands::table::GROUPS),
        strand_commands::rows!(strand_search::GROUPS),
    ]);

    fn of(name: &str) -> Vec<Shape> {
        shapes(TABLE.lookup(name.as_bytes()).expect("a command"), None)
    }

    #[test]
    fn every_argument_has_a_hostile_variant() {
        let names = ["mget", "hmget", "scan", "ft.search"];
        let shapes: Vec<_> = names.iter().map(|name| (*name, of(name))).collect();
        let has = |name: &str, what: &dyn Fn(&Shape) -> bool| {
            let found = shapes.iter().find(|(of, _)| *of == name).expect("one of the names");
            assert!(found.1.iter().any(what), "{name}");
        };
        let is = |shape: &Shape, at: usize, text: &str| {
            shape.words.get(at).is_some_and(|word| word == text.as_bytes())
        };
        has("mget", &|shape| shape.words.len() == MANY_KEYS + 1 && is(shape, 1, "big:string"));
        has("hmget", &|shape| shape.words.len() == MANY + 2 && is(shape, 2, "0") && is(shape, 3, "1"));
        has("scan", &|shape| is(shape, 2, "MATCH") && shape.words[3].starts_with(b"*a*a*a"));
        has("ft.search", &|shape| {
            shape.words[2].starts_with(b"%%%word%%% %%%word") && shape.words.len() == 3
        });
        has("ft.search", &|shape| {
            let end = "word0%%|%%wordwordwordwordwordwordwordwordwordwordwordwordwordword1%%|";
            shape.words[2].windows(end.len()).any(|part| part == end.as_bytes())
        });
        has("ft.search", &|shape| {
            let is_long = |word: &Vec<u8>| word.len() == 64 << 10 && word.iter().all(|byte| *byte == b'a');
            shape.words[2].starts_with(b"$a $a $a") && shape.words.iter().any(is_long)
        });
        has("ft.search", &|shape| {
            shape.words[2].starts_with(b"\"b b b") && shape.words[2].len() > 60_000 && is(shape, 3, "TIMEOUT")
        });
        let returned = |shape: &Shape| {
            let at = shape.words.iter().position(|word| word == b"RETURN");
            at.is_some_and(|at| {
                is(shape, at + 1, &MANY.to_string())
                    && is(shape, at + 2, "body")
                    && shape.words.len() == at + 2 + MANY
            })
        };
        has("ft.search", &returned);
    }

    #[test]
    fn a_part_of_the_shapes_equals_the_shapes_of_all() {
        let spec = TABLE.lookup(b"lrange").expect("a command");
        let all: Vec<_> = of("lrange").into_iter().map(|shape| shape.words).collect();
        let mut asked = 0;
        let some = some_shapes(spec, None, &mut || {
            asked += 1;
            asked % 3 == 0
        });
        assert!(asked >= all.len() && (2..=asked / 3).contains(&some.len()), "{asked} {}", some.len());
        assert!(some.iter().all(|shape| all.contains(&shape.words)));
    }

    /// Makes every 16th shape: all have gigabytes of words.
    #[test]
    fn shapes_are_unique_and_bounded() {
        let mut asked = 0;
        for spec in TABLE.rows() {
            let shapes = some_shapes(spec, None, &mut || {
                asked += 1;
                asked % 16 == 0
            });
            assert!(shapes.windows(2).all(|two| two[0].words != two[1].words), "{}", spec.name);
            let bytes = |shape: &Shape| shape.words.iter().map(Vec::len).sum::<usize>();
            assert!(shapes.iter().all(|shape| bytes(shape) <= 1 << 20), "{}", spec.name);
        }
        assert!(asked > 10_000, "{asked}");
    }
}
