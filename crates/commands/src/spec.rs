//! [`CommandSpec`]: one row of the command table.

use crate::call::{Call, LaneCall};
use crate::cost::{Cost, Long};

/// How a command runs.
#[derive(Clone, Copy, Debug)]
pub enum Handler {
    /// On the worker, at once, with the shards of its keys held. A long call (see [`Cost`]) runs in its [`Long`] form.
    Data(fn(&mut Call<'_, '_>)),
    /// On a helper thread, shard by shard; its session waits for it, nobody else does.
    Lane(fn(&mut LaneCall<'_>)),
    /// By the session itself (it reads or changes session or server state).
    Session(SessionCommand),
    /// On a helper thread by a service that is not of this crate (search); on the worker while it is short, where its cost
    /// is [`Cost::Text`].
    Service(ServiceCommand),
    /// Only a container of subcommands; called without one it is an arity error.
    Container,
}

/// Commands that the engine's session runs itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum SessionCommand {
    AclCat,
    AclDelUser,
    AclDryRun,
    AclGenPass,
    AclGetUser,
    AclHelp,
    AclList,
    AclLoad,
    AclLog,
    AclSave,
    AclSetUser,
    AclUsers,
    AclWhoAmI,
    Auth,
    ClientGetName,
    ClientHelp,
    ClientId,
    ClientInfo,
    ClientKill,
    ClientList,
    ClientNoEvict,
    ClientNoTouch,
    ClientPause,
    ClientReply,
    ClientSetInfo,
    ClientSetName,
    ClientUnblock,
    ClientUnpause,
    Command,
    CommandCount,
    CommandDocs,
    CommandGetKeys,
    CommandGetKeysAndFlags,
    CommandHelp,
    CommandInfo,
    CommandList,
    ConfigGet,
    ConfigHelp,
    ConfigResetStat,
    ConfigRewrite,
    ConfigSet,
    Debug,
    Echo,
    Hello,
    Info,
    Lolwut,
    MemoryDoctor,
    MemoryMallocStats,
    MemoryPurge,
    MemoryStats,
    Ping,
    Quit,
    Reset,
    Select,
    Shutdown,
    SlowlogGet,
    SlowlogHelp,
    SlowlogLen,
    SlowlogReset,
    Time,
}

/// Commands that a service outside this crate runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum ServiceCommand {
    FtCreate,
    FtDropIndex,
    FtInfo,
    FtList,
    FtSearch,
    RxCaptures,
    RxCheck,
    RxDel,
    RxFindAll,
    RxGrep,
    RxIndexCreate,
    RxIndexDrop,
    RxIndexInfo,
    RxIndexList,
    RxList,
    RxMatch,
    RxReplace,
    RxSet,
    RxStats,
    RxStreamClose,
    RxStreamFeed,
    RxStreamOpen,
}

/// Command flags, by redis-server's names (`COMMAND INFO` shows them).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Flags(pub u32);

#[allow(missing_docs)]
impl Flags {
    pub const NONE: Flags = Flags(0);
    pub const WRITE: Flags = Flags(1);
    pub const READONLY: Flags = Flags(1 << 1);
    pub const DENYOOM: Flags = Flags(1 << 2);
    pub const ADMIN: Flags = Flags(1 << 3);
    pub const PUBSUB: Flags = Flags(1 << 4);
    pub const NOSCRIPT: Flags = Flags(1 << 5);
    pub const BLOCKING: Flags = Flags(1 << 6);
    pub const LOADING: Flags = Flags(1 << 7);
    pub const STALE: Flags = Flags(1 << 8);
    pub const SKIP_MONITOR: Flags = Flags(1 << 9);
    pub const SKIP_SLOWLOG: Flags = Flags(1 << 10);
    pub const ASKING: Flags = Flags(1 << 11);
    pub const FAST: Flags = Flags(1 << 12);
    pub const NO_AUTH: Flags = Flags(1 << 13);
    pub const MAY_REPLICATE: Flags = Flags(1 << 14);
    pub const NO_MANDATORY_KEYS: Flags = Flags(1 << 15);
    pub const PROTECTED: Flags = Flags(1 << 16);
    pub const NO_ASYNC_LOADING: Flags = Flags(1 << 17);
    pub const NO_MULTI: Flags = Flags(1 << 18);
    pub const ALLOW_BUSY: Flags = Flags(1 << 19);
    pub const MOVABLEKEYS: Flags = Flags(1 << 20);

    /// Both sets together.
    pub const fn or(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }
    /// All of `sets` together.
    pub const fn all(sets: &[Flags]) -> Flags {
        let (mut bits, mut i) = (0, 0);
        while i < sets.len() {
            bits |= sets[i].0;
            i += 1;
        }
        Flags(bits)
    }
    /// True when all of `other` is set.
    pub const fn has(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }
}

/// Where a command's keys are, as in `COMMAND INFO`'s key specifications.
#[derive(Clone, Copy, Debug)]
pub struct KeySpec {
    /// A remark on when these keys are keys; mostly empty.
    pub notes: &'static str,
    /// What the command does to those keys (RW, RO, OW, RM and access, update, insert, delete), Redis's flag names.
    pub flags: &'static [&'static str],
    /// The flags have `not_key`: what it finds is no key. Kept apart since every command's dispatch asks.
    pub not_key: bool,
    /// The flags have `incomplete`: the command has keys that no spec can find.
    pub incomplete: bool,
    /// What a user needs to be allowed to do with these keys, by the flags; SET's `variable_flags` are looked at apart.
    pub access: Access,
    /// Where the search begins.
    pub begin: BeginSearch,
    /// Which arguments from there on are keys.
    pub find: FindKeys,
}

/// Rows are written with these.
impl KeySpec {
    /// The key at argument `at`.
    pub const fn one(at: usize, flags: &'static [&'static str]) -> KeySpec {
        KeySpec::range(at, 0, 1, flags)
    }
    /// Keys from argument `at` to `last` (relative to `at`; negative from the end), each `step`.
    pub const fn range(at: usize, last: i32, step: usize, flags: &'static [&'static str]) -> KeySpec {
        KeySpec::new(flags, BeginSearch::Index(at), FindKeys::Range { last, step, limit: 0 })
    }
    /// Any spec.
    pub const fn new(flags: &'static [&'static str], begin: BeginSearch, find: FindKeys) -> KeySpec {
        let (mut not_key, mut incomplete, mut i) = (false, false, 0);
        let mut access = Access { read: false, write: false };
        while i < flags.len() {
            not_key |= same(flags[i], "not_key");
            incomplete |= same(flags[i], "incomplete");
            access.read |= same(flags[i], "access");
            access.write |= same(flags[i], "update") || same(flags[i], "insert") || same(flags[i], "delete");
            i += 1;
        }
        KeySpec { notes: "", flags, not_key, incomplete, access, begin, find }
    }
    /// True when `flag` is one of its flags.
    pub fn has(&self, flag: &str) -> bool {
        self.flags.contains(&flag)
    }
}

/// What is done to a key, as ACL rules tell it apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// Its value is read, or told from (`access`).
    pub read: bool,
    /// Its value is changed, made or removed (`update`, `insert`, `delete`).
    pub write: bool,
}

impl Access {
    /// Reading alone.
    pub const READ: Access = Access { read: true, write: false };
    /// Writing alone.
    pub const WRITE: Access = Access { read: false, write: true };
}

const fn same(a: &str, b: &str) -> bool {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let mut i = 0;
    while i < a.len() && i < b.len() && a[i] == b[i] {
        i += 1;
    }
    i == a.len() && i == b.len()
}

/// Where the search for keys begins.
#[derive(Clone, Copy, Debug)]
pub enum BeginSearch {
    /// At this argument.
    Index(usize),
    /// After this keyword, searched from argument `start_from` on (negative: from the end backwards).
    Keyword(&'static str, i32),
}

/// Which arguments are keys.
#[derive(Clone, Copy, Debug)]
pub enum FindKeys {
    /// From the beginning to `last` (relative; negative counts from the end of the arguments, -1 is the last), each
    /// `step` arguments; `limit` 2 halves the range, as in Redis.
    Range {
        /// Relative to the beginning; negative: from the end.
        last: i32,
        /// Distance from key to key.
        step: usize,
        /// 0 and 1: no limit; n: only the first 1/n of the rest.
        limit: usize,
    },
    /// A count at `number` (relative), the keys from `first` (relative), each `step`.
    KeyNumber {
        /// Where the count is.
        number: usize,
        /// Where the first key is.
        first: usize,
        /// Distance from key to key.
        step: usize,
    },
}

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

/// One row of the command table.
#[derive(Clone, Copy, Debug)]
pub struct CommandSpec {
    /// Lower-case name; a subcommand's own word (`setname` in the container `client`).
    pub name: &'static str,
    /// Redis's arity: n exact, -n at least; the name counts (a subcommand's container too).
    pub arity: i32,
    /// Flags.
    pub flags: Flags,
    /// ACL categories by name, without `@` (`read`, `fast`, `string` ...).
    pub acl: &'static [&'static str],
    /// Where its keys are.
    pub keys: &'static [KeySpec],
    /// One sentence of ours.
    pub summary: &'static str,
    /// The version of Redis (or of Strand, for our own) that has it first.
    pub since: &'static str,
    /// Redis's group: string, hash, generic, connection, server, and ours: search, regex, import.
    pub group: &'static str,
    /// As in Redis's documentation: `O(1)`.
    pub complexity: &'static str,
    /// As in Redis's documentation (`doc_flags`): `deprecated`, `syscmd`.
    pub doc_flags: &'static [&'static str],
    /// For a deprecated command: since when, and what to use instead.
    pub deprecated: Option<(&'static str, &'static str)>,
    /// What changed since, as (version, change).
    pub history: &'static [(&'static str, &'static str)],
    /// Redis's command tips.
    pub tips: &'static [&'static str],
    /// The documentation tree of its arguments.
    pub args: &'static [Arg],
    /// Subcommands of a container.
    pub subcommands: &'static [CommandSpec],
    /// How it runs.
    pub handler: Handler,
    /// How the cost of a call is estimated before it runs.
    pub cost: Cost,
    /// How a long call of a `Data` command runs.
    pub long: Long,
}

impl CommandSpec {
    /// A row with nothing in it: rows name only what they have and take the rest from here.
    pub const EMPTY: CommandSpec = CommandSpec {
        name: "",
        arity: 0,
        flags: Flags::NONE,
        acl: &[],
        keys: &[],
        summary: "",
        since: "",
        group: "",
        complexity: "",
        doc_flags: &[],
        deprecated: None,
        history: &[],
        tips: &[],
        args: &[],
        subcommands: &[],
        handler: Handler::Container,
        cost: Cost::Fixed,
        long: Long::Never,
    };
}
