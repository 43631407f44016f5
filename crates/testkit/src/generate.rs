//! Generates random commands from the argument trees of the command table, so the table is the fuzzer's vocabulary.

use fastrand::Rng;
use strand_commands::spec::{Arg, CommandSpec};

/// Commands that are never generated, each with the reason.
pub const NOT_GENERATED: &[(&str, &str)] = &[
    ("acl", "changes who may do what; corpus acl.txt and own tests"),
    ("auth", "changes the session; own tests"),
    ("asking", "about a cluster; corpus alone.txt"),
    ("cluster", "as asking"),
    ("failover", "about replicas; corpus alone.txt"),
    ("module", "as failover"),
    ("psync", "the connection becomes a replica's; own tests"),
    ("readonly", "as asking"),
    ("readwrite", "as asking"),
    ("replconf", "as psync; own tests"),
    ("replicaof", "would make the other server a replica; corpus alone.txt"),
    ("role", "as failover"),
    ("slaveof", "as replicaof"),
    ("sync", "as psync; own tests"),
    ("bgrewriteaof", "writes files in its own time; own tests"),
    ("bgsave", "writes files in its own time; own tests"),
    ("client", "the sessions of two servers differ; corpus connection.txt"),
    ("command", "compared as a whole by its own test"),
    ("config", "changes the server; corpus and own tests"),
    ("dbsize", "counts keys that have expired and are not removed yet; corpus, and compared with the data"),
    ("delex", "of redis-server 8.4; own tests"),
    ("delifeq", "of Valkey 9.0; own tests"),
    ("digest", "of redis-server 8.4; own tests"),
    ("msetex", "of redis-server 8.4; own tests"),
    ("delif", "not in redis-server; own tests"),
    ("debug", "a tool for developers; own tests"),
    ("diag", "not in redis-server; own tests"),
    ("dump", "a value has many serializations; own tests exchange them"),
    ("eval", "a script is no word; corpus scripting.txt and own tests"),
    ("eval_ro", "as eval"),
    ("evalsha", "as eval"),
    ("evalsha_ro", "as eval"),
    ("fcall", "as eval"),
    ("fcall_ro", "as eval"),
    ("flushall", "empties the data that makes the others interesting; corpus"),
    ("flushdb", "as flushall"),
    ("ft._list", "not in redis-server; own tests"),
    ("ft.changes", "not in redis-server; own tests"),
    ("ft.create", "not in redis-server; own tests"),
    ("ft.dropindex", "not in redis-server; own tests"),
    ("ft.info", "not in redis-server; own tests"),
    ("ft.search", "not in redis-server; own tests"),
    ("function", "as eval"),
    ("hello", "changes the session; own tests"),
    ("hexpire", "of redis-server 7.4, as all on fields that expire; own tests"),
    ("hexpireat", "as hexpire: own tests"),
    ("hexpiretime", "as hexpire: own tests"),
    ("hgetdel", "as hexpire: own tests"),
    ("hgetex", "as hexpire: own tests"),
    ("hpersist", "as hexpire: own tests"),
    ("hpexpire", "as hexpire: own tests"),
    ("hpexpireat", "as hexpire: own tests"),
    ("hpexpiretime", "as hexpire: own tests"),
    ("hpttl", "as hexpire: own tests"),
    ("hsetex", "as hexpire: own tests"),
    ("httl", "as hexpire: own tests"),
    ("hreplace", "not in redis-server; own tests"),
    ("import.status", "not in redis-server; own tests"),
    ("import.version", "not in redis-server; own tests"),
    ("info", "free text; own tests"),
    ("latency", "times differ; corpus server.txt and own tests"),
    ("lastsave", "a time; own tests"),
    ("blmovem", "of redis-server 8.10; own tests"),
    ("lmovem", "of redis-server 8.10; own tests"),
    ("lolwut", "art; corpus"),
    ("memory", "sees keys that have expired and are not removed yet; corpus"),
    ("migrate", "needs another server; own tests"),
    ("monitor", "the connection hears of every command from then on; own tests"),
    ("multi", "inside EXEC no order of members can be forgiven; corpus and own tests"),
    ("pfselftest", "takes a second; own tests"),
    ("psubscribe", "changes the session; own tests"),
    ("punsubscribe", "has as many replies as subscriptions; own tests"),
    ("quit", "ends the session; own tests"),
    ("reset", "changes the session; own tests"),
    ("rx.captures", "not in redis-server; own tests"),
    ("rx.check", "not in redis-server; own tests"),
    ("rx.del", "not in redis-server; own tests"),
    ("rx.findall", "not in redis-server; own tests"),
    ("rx.grep", "not in redis-server; own tests"),
    ("rx.index", "not in redis-server; own tests"),
    ("rx.list", "not in redis-server; own tests"),
    ("rx.match", "not in redis-server; own tests"),
    ("rx.replace", "not in redis-server; own tests"),
    ("rx.set", "not in redis-server; own tests"),
    ("rx.stats", "not in redis-server; own tests"),
    ("rx.stream", "not in redis-server; own tests"),
    ("save", "writes files; own tests"),
    ("scan", "its cursor is each server's own; compared by full walks in its own test"),
    ("ssubscribe", "changes the session; own tests"),
    ("subscribe", "changes the session; own tests"),
    ("sunsubscribe", "as punsubscribe: own tests"),
    ("script", "as eval"),
    ("spop", "what it takes is random, and missing then; corpus and own tests"),
    ("select", "the runner selects databases itself"),
    ("setif", "not in redis-server; own tests"),
    ("shutdown", "ends the server; own tests"),
    ("slowlog", "what is slow is each server's own; corpus and own tests"),
    ("unsubscribe", "as punsubscribe: own tests"),
    ("waitaof", "of redis-server 7.2; own tests"),
    ("xackdel", "of redis-server 8.2; own tests"),
    ("xdelex", "of redis-server 8.2; own tests"),
    ("zrank", "WITHSCORE is of redis-server 7.2; corpus and own tests"),
    ("zrevrank", "as zrank"),
];

const KEYS: &[&str] = &["a", "b", "c", "d", "key:1", "key:2", "{tag}x", "\u{e9}", "", "k with space"];
/// Timeouts of blocking commands.
const SECONDS: &[&str] = &["0.001", "0.001", "1e-3", "0.0021", "-1", "x", "nan"];
const MILLISECONDS: &[&str] = &["1", "1", "2", "-1", "x"];
const FIELDS: &[&str] = &["f1", "f2", "f3", "n", "x", "", "long-field-name-that-is-not-so-short"];
const INTEGERS: &[&str] = &[
    "0",
    "1",
    "-1",
    "2",
    "3",
    "10",
    "100",
    "-5",
    "9223372036854775807",
    "-9223372036854775808",
    "9223372036854775808",
    "01",
    "+1",
    "abc",
    "",
    "1.5",
    " 1",
    "4294967296",
];
const DOUBLES: &[&str] = &[
    "0",
    "1.5",
    "-2.25",
    "3e2",
    "0.1",
    "1e400",
    "nan",
    "inf",
    "-inf",
    "abc",
    "",
    "1.",
    ".5",
    "0x10",
    "17179869184.000001",
];
const MEMBERS: &[&str] = &[
    "1",
    "2",
    "3",
    "4",
    "5",
    "-7",
    "100000",
    "9223372036854775807",
    "01",
    "a",
    "b",
    "c",
    "",
    "m m",
    "\u{e9}",
];
/// Placeholder for the number of keys until the keys are chosen.
const NUMKEYS: &[u8] = b"\0numkeys";
const ENCODINGS: &[&str] = &["u8", "i8", "u1", "i5", "u31", "i64", "u63", "u64", "x", "i16"];
const SCORES: &[&str] = &["0", "1", "2", "3", "-1", "1.5", "10"];
const ENDS: &[&str] = &[
    "0", "1", "-1", "2", "5", "-3", "(1", "(3", "-inf", "+inf", "-", "+", "[a", "(a", "[c", "(d", "[", "10",
];
const PATTERNS: &[&str] = &["*", "k*", "key:?", "[a-c]", "[^a]", "a\\*", "*:*", "f[12]", "", "[", "h*llo"];
/// For SORT: patterns of keys. SORT replaces `*` by an element.
const KEY_PATTERNS: &[&str] =
    &["nosort", "*", "key:*", "w_*", "*->f1", "*->n", "key:*->", "#", "", "a*->f1->n", "**"];

/// Keys for most stream commands: few, so that the commands affect each other.
const STREAM_KEYS: &[&str] = &["stream", "{stream}2"];
/// IDs, and bounds of ranges of IDs.
const IDS: &[&str] = &[
    "0",
    "0-0",
    "0-1",
    "1-1",
    "1-2",
    "2",
    "2-0",
    "3-1",
    "5-0",
    "7-3",
    "10",
    "15-0",
    "20-1",
    "30",
    "40-0",
    "80-0",
    "-",
    "+",
    "$",
    ">",
    "(1-1",
    "(5",
    "3-*",
    "x",
    "1-",
    "18446744073709551615-18446744073709551615",
    "+5- 6",
];
const THRESHOLDS: &[&str] = &["0", "1", "2", "3", "5", "8", "20", "100", "10-0", "-1", "x"];

/// A source of random commands.
#[derive(Debug)]
pub struct Generator {
    rng: Rng,
    specs: Vec<(&'static CommandSpec, Option<&'static CommandSpec>)>,
    now_s: i64,
    /// The keys from which the current command takes most arguments.
    keys: &'static [&'static str],
    /// The milliseconds of the ID that XADD uses next.
    next_ms: u64,
}

impl Generator {
    /// A generator of commands in these rows that is deterministic for a `seed`. Absolute expiry times are around
    /// `now_s`, a unix time.
    pub fn new(rows: &'static [CommandSpec], seed: u64, now_s: i64) -> Generator {
        // SORT is left out, because redis-server's SORT changes the encoding of sorted sets, and another test covers
        // SORT.
        Generator::of(rows, seed, now_s, |spec| usize::from(!matches!(spec.name, "sort" | "sort_ro")))
    }
    /// Creates a generator as [`Generator::new`] does, in which `weight` gives the relative frequency of each command.
    pub fn of(
        rows: &'static [CommandSpec],
        seed: u64,
        now_s: i64,
        weight: impl Fn(&CommandSpec) -> usize,
    ) -> Generator {
        let mut specs = Vec::new();
        for c in rows.iter().filter(|c| NOT_GENERATED.iter().all(|(n, _)| *n != c.name)) {
            if c.subcommands.is_empty() {
                specs.extend(std::iter::repeat_n((c, None), weight(c)));
            }
            let subs = c.subcommands.iter();
            specs.extend(subs.flat_map(|s| std::iter::repeat_n((s, Some(c)), weight(s))));
        }
        Generator { rng: Rng::with_seed(seed), specs, now_s, keys: KEYS, next_ms: 1 }
    }

    /// Generates the next command.
    pub fn command(&mut self) -> Vec<Vec<u8>> {
        let (spec, container) = self.specs[self.rng.usize(0..self.specs.len())];
        let mut out: Vec<Vec<u8>> = Vec::new();
        self.keys = if spec.group == "stream" { STREAM_KEYS } else { KEYS };
        out.extend(container.map(|c| self.case(c.name)));
        let name = self.case(spec.name);
        out.push(name);
        spec.args.iter().for_each(|a| self.arg(a, &mut out, 0));
        match self.rng.u8(0..40) {
            0 => {
                out.pop();
            }
            1 => out.push(self.value()),
            2 if out.len() > 2 => {
                let (i, v) = (self.rng.usize(1..out.len()), self.value());
                out[i] = v;
            }
            _ => {}
        }
        avoid_near_expiries(&mut out);
        avoid_unspecified_order(&mut out);
        shorten_timeouts(&mut out);
        if out.is_empty() { vec![b"PING".to_vec()] } else { out }
    }

    fn case(&mut self, name: &str) -> Vec<u8> {
        if self.rng.u8(0..8) == 0 { name.to_ascii_uppercase().into() } else { name.into() }
    }

    fn arg(&mut self, arg: &Arg, out: &mut Vec<Vec<u8>>, depth: usize) {
        if arg.optional && self.rng.u8(0..10) < 6 || arg.since.is_some_and(is_newer) {
            return;
        }
        let times = if arg.multiple { self.rng.usize(1..4) } else { 1 };
        if arg.kind == "key"
            && let Some(at) = out.iter().rposition(|arg| arg == NUMKEYS)
        {
            out[at] = self.number_of_keys(times);
        }
        for i in 0..times {
            if let Some(token) = arg.token
                && arg.kind != "pure-token"
                && (i == 0 || arg.multiple_token)
            {
                let token = self.case(token);
                out.push(token);
            }
            match arg.kind {
                // Choose an ID, because an ID from the servers' clocks would differ.
                "pure-token" if arg.token == Some("*") => {
                    self.next_ms += self.rng.u64(0..3);
                    let seq = if self.rng.bool() { "*" } else { "7" };
                    out.push(format!("{}-{seq}", self.next_ms).into());
                }
                "pure-token" => {
                    let token = self.case(arg.token.unwrap_or(arg.name));
                    out.push(token);
                }
                "oneof" if depth < 8 => {
                    let pick = self.rng.usize(0..arg.args.len().max(1));
                    if let Some(a) = arg.args.get(pick) {
                        self.arg(a, out, depth + 1);
                    }
                }
                "block" if depth < 8 => arg.args.iter().for_each(|a| self.arg(a, out, depth + 1)),
                _ => {
                    let leaf = self.leaf(arg);
                    out.push(leaf);
                }
            }
        }
    }

    /// The number of keys that follow in the command; sometimes a wrong number.
    fn number_of_keys(&mut self, keys: usize) -> Vec<u8> {
        if self.rng.u8(0..12) == 0 { self.pick(INTEGERS) } else { keys.to_string().into() }
    }

    fn leaf(&mut self, arg: &Arg) -> Vec<u8> {
        let in_stream = self.keys == STREAM_KEYS;
        match (arg.kind, arg.name) {
            ("key", _) if self.rng.u8(0..8) > 0 => self.pick(self.keys),
            ("key", _) => self.pick(KEYS),
            _ if arg.token == Some("BLOCK") => self.pick(MILLISECONDS),
            ("double", "timeout") => self.pick(SECONDS),
            ("integer", "timeout") => self.pick(MILLISECONDS),
            ("integer", "count") if in_stream => {
                self.pick(&["0", "1", "2", "3", "7", "10", "100", "-1", "x", "01"])
            }
            (_, "min-idle-time") => self.pick(&["0", "0", "0", "0", "1000000000", "-1", "x"]),
            (_, "threshold") if in_stream => self.pick(THRESHOLDS),
            ("string", "id" | "start" | "end" | "last-id" | "max_deleted_entry_id") if in_stream => {
                self.pick(IDS)
            }
            ("string", name) if name.contains("consumer") => self.pick(&["c1", "c2", "c3", ""]),
            ("string", name) if name.contains("group") => self.pick(&["g1", "g1", "g2", ""]),
            (_, "min" | "max" | "start" | "stop") if self.rng.u8(0..4) > 0 => self.pick(ENDS),
            ("double", _) if self.rng.u8(0..3) > 0 => self.pick(SCORES),
            ("pattern", _) if matches!(arg.token, Some("BY" | "GET")) => self.pick(KEY_PATTERNS),
            ("pattern", _) => self.pick(PATTERNS),
            ("double", "longitude") if self.rng.u8(0..12) > 0 => {
                (self.rng.f64() * 360.0 - 180.0).to_string().into()
            }
            ("double", "latitude") if self.rng.u8(0..12) > 0 => {
                (self.rng.f64() * 170.0 - 85.0).to_string().into()
            }
            ("double", "radius" | "width" | "height") if self.rng.u8(0..12) > 0 => {
                self.pick(&["0", "1000", "500000", "3000", "20000", "7000000", "1e7", "12345.678"])
            }
            ("double", _) => self.pick(DOUBLES),
            ("unix-time", name) => {
                let away =
                    if self.rng.bool() { self.rng.i64(1_000..100_000) } else { self.rng.i64(-1_000..-10) };
                time(name, self.now_s + away)
            }
            ("integer", name) if name.contains("db") => self.pick(&["0", "1", "2", "15", "16", "-1", "x"]),
            // Choose a time so late that both servers keep the key until the end of the run.
            ("integer", name) if name.contains("second") && self.rng.u8(0..5) > 0 => {
                let seconds = self.rng.i64(1_000..100_000);
                time(name, seconds)
            }
            ("integer", "offset") => {
                self.pick(&["0", "1", "5", "100", "-1", "#2", "4294967296", "9223372036854775807", "x"])
            }
            ("integer", "numkeys") => NUMKEYS.to_vec(),
            ("integer", "bit") => self.pick(&["0", "1", "2"]),
            (_, "encoding") => self.pick(ENCODINGS),
            (_, "subcommand") => self.pick(&["GETREG", "decode", "ENCODING", "todense", "FOO"]),
            (_, "operation") => self.pick(&["AND", "or", "Xor", "NOT", "NAND"]),
            ("integer", "cursor") => b"0".to_vec(),
            ("integer", _) => self.pick(INTEGERS),
            (_, "member" | "member1" | "member2") => self.pick(MEMBERS),
            (_, name) if name.contains("field") => self.pick(FIELDS),
            (_, "element" | "pivot") if self.rng.u8(0..4) > 0 => self.pick(MEMBERS),
            _ => self.value(),
        }
    }

    fn pick(&mut self, from: &[&str]) -> Vec<u8> {
        from[self.rng.usize(0..from.len())].as_bytes().to_vec()
    }

    fn value(&mut self) -> Vec<u8> {
        match self.rng.u8(0..10) {
            0 | 1 => INTEGERS[self.rng.usize(0..INTEGERS.len())].into(),
            2 => DOUBLES[self.rng.usize(0..DOUBLES.len())].into(),
            3 => (0..self.rng.usize(0..20)).map(|_| self.rng.u8(..)).collect(),
            4 => vec![b'x'; self.rng.usize(40..70)],
            5 => b"hello world".to_vec(),
            6 => KEYS[self.rng.usize(0..KEYS.len())].into(),
            _ => (0..self.rng.usize(0..12)).map(|_| self.rng.alphanumeric() as u8).collect(),
        }
    }
}

/// True for commands and arguments that redis-server 7.0 lacks.
fn is_newer(since: &str) -> bool {
    !since.starts_with(|c: char| ('1'..='6').contains(&c)) && !since.starts_with("7.0.")
}

/// Moves near expiry times to the far future, because two servers would reach a near time at different commands of
/// the run.
fn avoid_near_expiries(args: &mut [Vec<u8>]) {
    const WORDS: [&[u8]; 9] =
        [b"ex", b"px", b"expire", b"pexpire", b"setex", b"psetex", b"getex", b"exat", b"pxat"];
    if !args.iter().any(|a| WORDS.iter().any(|w| a.eq_ignore_ascii_case(w))) {
        return;
    }
    for arg in args.iter_mut().skip(2) {
        let small = std::str::from_utf8(arg)
            .ok()
            .and_then(|a| a.parse::<i64>().ok())
            .filter(|n| (1..1_000_000).contains(n));
        if let Some(n) = small {
            *arg = (n + 1_000_000_000).to_string().into();
        }
    }
}

/// Removes ALPHA from a SORT by texts at other keys, because the order of equal texts is unspecified.
fn avoid_unspecified_order(args: &mut Vec<Vec<u8>>) {
    let is = |arg: &Vec<u8>, word: &[u8]| arg.eq_ignore_ascii_case(word);
    if args.first().is_some_and(|name| is(name, b"sort") || is(name, b"sort_ro"))
        && args.iter().any(|arg| is(arg, b"by"))
    {
        args.retain(|arg| !is(arg, b"alpha"));
    }
}

/// Shortens the timeouts of blocking commands.
fn shorten_timeouts(args: &mut [Vec<u8>]) {
    let Some(name) = args.first().map(|name| name.to_ascii_lowercase()) else { return };
    let last = args.len() - 1;
    let (at, times) = match &name[..] {
        b"blpop" | b"brpop" | b"bzpopmin" | b"bzpopmax" | b"blmove" | b"brpoplpush" => (last, SECONDS),
        b"blmpop" | b"bzmpop" => (1, SECONDS),
        b"wait" => (2, MILLISECONDS),
        b"xread" | b"xreadgroup" => {
            let block = args.iter().position(|arg| arg.eq_ignore_ascii_case(b"block"));
            (block.map_or(args.len(), |block| block + 1), MILLISECONDS)
        }
        _ => return,
    };
    if let Some(time) = args.get_mut(at).filter(|_| at > 0)
        && !times.iter().any(|known| known.as_bytes() == &time[..])
    {
        *time = times[0].into();
    }
}

/// Converts `seconds` to the unit that the argument's name says.
fn time(name: &str, seconds: i64) -> Vec<u8> {
    let value = if name.contains("milli") { seconds * 1000 } else { seconds };
    value.to_string().into()
}
