//! The event name of each command's changes, for `notify-keyspace-events`, as in redis-server.
//!
//! Most commands have one event name for all their changes. The tables in this module have these names. If a
//! command has several, its handler sets the name before each change ([`strand_keyspace::Txn::set_event`]). The
//! keyspace itself names the events `del`, `new`, `expired`, `evicted` and `keymiss`.

use crate::spec::{CommandSpec, Flags};
use strand_keyspace::{Class, KeyEvent, Txn};

/// Event names, each with the commands whose changes have this name.
type Names = &'static [(&'static str, &'static [&'static str])];

const STRINGS: Names = &[
    ("append", &["append"]),
    ("incrby", &["decr", "decrby", "incr", "incrby"]),
    ("incrbyfloat", &["incrbyfloat"]),
    ("pfadd", &["pfadd", "pfmerge"]),
    ("set", &["bitop", "getset", "mset", "msetex", "msetnx", "psetex", "set", "setex", "setif", "setnx"]),
    ("setbit", &["bitfield", "setbit"]),
    ("setrange", &["setrange"]),
];
const GENERIC: Names = &[
    ("copy_to", &["copy"]),
    ("del", &["getdel"]),
    ("expire", &["expire", "expireat", "pexpire", "pexpireat"]),
    ("persist", &["persist"]),
    ("restore", &["restore", "restore-asking"]),
];
const HASHES: Names = &[
    ("hdel", &["hdel", "hgetdel"]),
    ("hexpire", &["hexpire", "hexpireat", "hgetex", "hpexpire", "hpexpireat"]),
    ("hincrby", &["hincrby"]),
    ("hincrbyfloat", &["hincrbyfloat"]),
    ("hpersist", &["hpersist"]),
    ("hset", &["hmset", "hreplace", "hset", "hsetex", "hsetnx"]),
];
const LISTS: Names = &[
    ("linsert", &["linsert"]),
    ("lpop", &["lpop"]),
    ("lpush", &["lpush", "lpushx"]),
    ("lrem", &["lrem"]),
    ("lset", &["lset"]),
    ("ltrim", &["ltrim"]),
    ("rpop", &["rpop"]),
    ("rpush", &["rpush", "rpushx"]),
    ("sortstore", &["sort"]),
];
const SETS: Names = &[
    ("sadd", &["sadd"]),
    ("sdiffstore", &["sdiffstore"]),
    ("sinterstore", &["sinterstore"]),
    ("spop", &["spop"]),
    ("srem", &["smove", "srem"]),
    ("sunionstore", &["sunionstore"]),
];
const SORTED_SETS: Names = &[
    ("geosearchstore", &["geosearchstore"]),
    ("georadiusstore", &["georadius", "georadiusbymember"]),
    ("zadd", &["geoadd", "zadd"]),
    ("zdiffstore", &["zdiffstore"]),
    ("zincr", &["zincrby"]),
    ("zinterstore", &["zinterstore"]),
    ("zpopmax", &["zpopmax"]),
    ("zpopmin", &["zpopmin"]),
    ("zrangestore", &["zrangestore"]),
    ("zrem", &["zrem"]),
    ("zremrangebylex", &["zremrangebylex"]),
    ("zremrangebyrank", &["zremrangebyrank"]),
    ("zremrangebyscore", &["zremrangebyscore"]),
    ("zunionstore", &["zunionstore"]),
];
const STREAMS: Names = &[
    ("xadd", &["xadd"]),
    ("xdel", &["xackdel", "xdel", "xdelex"]),
    ("xgroup-create", &["create"]),
    ("xgroup-delconsumer", &["delconsumer"]),
    ("xgroup-destroy", &["destroy"]),
    ("xgroup-setid", &["setid"]),
    ("xsetid", &["xsetid"]),
    ("xtrim", &["xtrim"]),
];

/// Begins the command `spec` of client `by` (0: no client). Call this before the handler runs. If somebody listens,
/// the changes of the command get its event name, and the command as the client sent it is their effect.
/// [`Txn::end_command`] ends the command.
#[inline]
pub fn begin(spec: &CommandSpec, txn: &mut Txn<'_>, by: u64) {
    if txn.listens() {
        txn.begin_command(|| (of(spec), reports_misses(spec)), spec.flags.has(Flags::WRITE), by);
    }
}

/// The event name of a command's changes. [`KeyEvent::NONE`] when its handler sets the names.
#[cold]
fn of(spec: &CommandSpec) -> KeyEvent {
    if !spec.flags.has(Flags::WRITE) {
        return KeyEvent::NONE;
    }
    let (class, names) = match spec.group {
        "generic" if spec.name == "sort" => (Class::List, LISTS),
        "generic" => (Class::Generic, GENERIC),
        "server" if spec.name == "restore-asking" => (Class::Generic, GENERIC),
        "string" if spec.name == "getdel" => (Class::Generic, GENERIC),
        "string" | "bitmap" | "hyperloglog" => (Class::String, STRINGS),
        "hash" => (Class::Hash, HASHES),
        "list" => (Class::List, LISTS),
        "set" => (Class::Set, SETS),
        "sorted-set" | "geo" => (Class::SortedSet, SORTED_SETS),
        "stream" => (Class::Stream, STREAMS),
        _ => return KeyEvent::NONE,
    };
    let found = names.iter().find(|(_, commands)| commands.contains(&spec.name));
    found.map_or(KeyEvent::NONE, |(name, _)| KeyEvent::of(class, name))
}

/// True when this command's look-up of a missing key is an event (`keymiss`). True for commands that only read, except
/// the commands that inspect a key (OBJECT ENCODING, MEMORY USAGE and similar commands).
fn reports_misses(spec: &CommandSpec) -> bool {
    const LOOKS: [&str; 5] = ["encoding", "freq", "idletime", "refcount", "usage"];
    spec.flags.has(Flags::READONLY) && !LOOKS.contains(&spec.name)
}

/// Event names that handlers set.
pub(crate) mod named {
    use strand_keyspace::{Class, KeyEvent};
    pub(crate) const CREATE_CONSUMER: KeyEvent = KeyEvent::of(Class::Stream, "xgroup-createconsumer");
    pub(crate) const HSET: KeyEvent = KeyEvent::of(Class::Hash, "hset");
    pub(crate) const HDEL: KeyEvent = KeyEvent::of(Class::Hash, "hdel");
    pub(crate) const HEXPIRE: KeyEvent = KeyEvent::of(Class::Hash, "hexpire");
    pub(crate) const HPERSIST: KeyEvent = KeyEvent::of(Class::Hash, "hpersist");
    pub(crate) const LPOP: KeyEvent = KeyEvent::of(Class::List, "lpop");
    pub(crate) const LPUSH: KeyEvent = KeyEvent::of(Class::List, "lpush");
    pub(crate) const MOVE_FROM: KeyEvent = KeyEvent::of(Class::Generic, "move_from");
    pub(crate) const MOVE_TO: KeyEvent = KeyEvent::of(Class::Generic, "move_to");
    pub(crate) const RENAME_FROM: KeyEvent = KeyEvent::of(Class::Generic, "rename_from");
    pub(crate) const RENAME_TO: KeyEvent = KeyEvent::of(Class::Generic, "rename_to");
    pub(crate) const RPOP: KeyEvent = KeyEvent::of(Class::List, "rpop");
    pub(crate) const RPUSH: KeyEvent = KeyEvent::of(Class::List, "rpush");
    pub(crate) const SADD: KeyEvent = KeyEvent::of(Class::Set, "sadd");
    pub(crate) const SPOP: KeyEvent = KeyEvent::of(Class::Set, "spop");
    pub(crate) const XTRIM: KeyEvent = KeyEvent::of(Class::Stream, "xtrim");
    pub(crate) const ZINCR: KeyEvent = KeyEvent::of(Class::SortedSet, "zincr");
    pub(crate) const ZPOPMAX: KeyEvent = KeyEvent::of(Class::SortedSet, "zpopmax");
    pub(crate) const ZPOPMIN: KeyEvent = KeyEvent::of(Class::SortedSet, "zpopmin");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::DATA;

    /// Commands that change keys and are in none of the tables: their handlers or the keyspace name each change.
    const ELSEWHERE: [&str; 22] = [
        "blmovem",
        "createconsumer",
        "del",
        "delex",
        "delif",
        "delifeq",
        "getex",
        "import.version",
        "lmove",
        "lmovem",
        "lmpop",
        "move",
        "pfdebug",
        "rename",
        "renamenx",
        "rpoplpush",
        "unlink",
        "xack",
        "xautoclaim",
        "xclaim",
        "xreadgroup",
        "zmpop",
    ];

    #[test]
    fn every_command_that_writes_has_a_name_for_it() {
        let rows = DATA.rows().iter().flat_map(|c| std::iter::once(c).chain(c.subcommands));
        let mut named = 0;
        for spec in rows.filter(|spec| spec.flags.has(Flags::WRITE) && spec.exec.on_keys().is_some()) {
            let is_named = !of(spec).name.is_empty();
            named += usize::from(is_named);
            let is_ours = spec.group == "import" || spec.flags.has(Flags::BLOCKING);
            assert!(is_named || is_ours || ELSEWHERE.contains(&spec.name), "{}", spec.name);
        }
        assert!(named > 60, "{named}");
    }
}
