//! Sets of bits in a row: the [`Flags`] of a command, the [`KeyFlags`] of its keys, and its [`Categories`] for ACL
//! rules.
//!
//! The names and their order are those of redis-server, as in the reply of COMMAND INFO.

/// A command's flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Flags(pub u32);

/// Makes the constants of [`Flags`] and the table of their names.
macro_rules! flags {
    ($($constant:ident = $name:literal,)*) => {
        #[allow(missing_docs)]
        impl Flags {
            $(pub const $constant: Flags = Flags(1 << Bit::$constant as u32);)*
        }
        #[allow(non_camel_case_types, clippy::upper_case_acronyms)]
        enum Bit { $($constant,)* }
        /// Each flag with its name.
        const FLAG_NAMES: &[(Flags, &str)] = &[$((Flags::$constant, $name),)*];
    };
}

flags! {
    WRITE = "write",
    READONLY = "readonly",
    DENYOOM = "denyoom",
    ADMIN = "admin",
    PUBSUB = "pubsub",
    NOSCRIPT = "noscript",
    BLOCKING = "blocking",
    LOADING = "loading",
    STALE = "stale",
    SKIP_MONITOR = "skip_monitor",
    SKIP_SLOWLOG = "skip_slowlog",
    ASKING = "asking",
    FAST = "fast",
    NO_AUTH = "no_auth",
    // redis-server does not show this flag to clients: CLIENT PAUSE WRITE stops the command, although it is no write.
    MAY_REPLICATE = "",
    NO_MANDATORY_KEYS = "no_mandatory_keys",
    // redis-server does not show this flag to clients.
    PROTECTED = "",
    NO_ASYNC_LOADING = "no_async_loading",
    NO_MULTI = "no_multi",
    MOVABLEKEYS = "movablekeys",
    ALLOW_BUSY = "allow_busy",
    // Only in Strand: the command makes or removes something outside the keyspace that snapshots and append-only files
    // must include.
    DEFINES = "",
    // Only in Strand: the command makes something that grows with the data, like an index.
    INDEXES = "",
}

impl Flags {
    /// The set without any flag.
    pub const NONE: Flags = Flags(0);

    /// The union of `sets`.
    pub const fn all(sets: &[Flags]) -> Flags {
        let (mut bits, mut i) = (0, 0);
        while i < sets.len() {
            bits |= sets[i].0;
            i += 1;
        }
        Flags(bits)
    }
    /// True when all of `other` is set.
    #[inline]
    pub const fn has(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }
    /// The names of the set flags that redis-server shows.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        let shown = FLAG_NAMES.iter().filter(move |(flag, name)| self.has(*flag) && !name.is_empty());
        shown.map(|(_, name)| *name)
    }
}

/// What a command does to the keys that a key spec finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct KeyFlags(pub u16);

/// Redis's names of [`KeyFlags`], by bit.
const KEY_FLAG_NAMES: [&str; 11] = [
    "RO",
    "RW",
    "OW",
    "RM",
    "access",
    "update",
    "insert",
    "delete",
    "not_key",
    "incomplete",
    "variable_flags",
];

#[allow(missing_docs)]
impl KeyFlags {
    pub const RO: KeyFlags = KeyFlags(1);
    pub const RW: KeyFlags = KeyFlags(1 << 1);
    pub const OW: KeyFlags = KeyFlags(1 << 2);
    pub const RM: KeyFlags = KeyFlags(1 << 3);
    pub const ACCESS: KeyFlags = KeyFlags(1 << 4);
    pub const UPDATE: KeyFlags = KeyFlags(1 << 5);
    pub const INSERT: KeyFlags = KeyFlags(1 << 6);
    pub const DELETE: KeyFlags = KeyFlags(1 << 7);
    pub const NOT_KEY: KeyFlags = KeyFlags(1 << 8);
    pub const INCOMPLETE: KeyFlags = KeyFlags(1 << 9);
    pub const VARIABLE: KeyFlags = KeyFlags(1 << 10);

    /// The union of `sets`.
    pub const fn all(sets: &[KeyFlags]) -> KeyFlags {
        let (mut bits, mut i) = (0, 0);
        while i < sets.len() {
            bits |= sets[i].0;
            i += 1;
        }
        KeyFlags(bits)
    }
    /// True when all of `other` is set.
    #[inline]
    pub const fn has(self, other: KeyFlags) -> bool {
        self.0 & other.0 == other.0
    }
    /// The names of the flags that are set.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        (0..).zip(KEY_FLAG_NAMES).filter(move |(bit, _)| self.0 & (1 << bit) != 0).map(|(_, name)| name)
    }
}

/// The ACL categories of a command: one bit per name in [`Categories::NAMES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Categories(pub u32);

impl Categories {
    /// The categories of redis-server in its order, followed by the categories that only Strand has.
    pub const NAMES: [&str; 23] = [
        "keyspace",
        "read",
        "write",
        "set",
        "sortedset",
        "list",
        "hash",
        "string",
        "bitmap",
        "hyperloglog",
        "geo",
        "stream",
        "pubsub",
        "admin",
        "fast",
        "slow",
        "blocking",
        "dangerous",
        "connection",
        "transaction",
        "scripting",
        "import",
        "search",
    ];
    /// Number of the categories that redis-server has, too.
    pub const REDIS: usize = 21;

    /// The categories that follow from a command's flags and group, as in redis-server: `read` and `write`, `fast` or
    /// `slow`, `admin` (always with `dangerous`), `pubsub`, `blocking`, and the category of the group.
    pub fn of(flags: Flags, group: &str) -> Categories {
        let own = match group {
            "generic" => "keyspace",
            "sorted-set" => "sortedset",
            "transactions" => "transaction",
            other => other,
        };
        let by_flags = [
            (Flags::WRITE, "write"),
            (Flags::READONLY, "read"),
            (Flags::ADMIN, "admin"),
            (Flags::ADMIN, "dangerous"),
            (Flags::PUBSUB, "pubsub"),
            (Flags::FAST, "fast"),
            (Flags::BLOCKING, "blocking"),
        ];
        let mut found = Categories::named(&[own]);
        for (flag, name) in by_flags {
            if flags.has(flag) {
                found = found.or(Categories::named(&[name]));
            }
        }
        if flags.has(Flags::FAST) { found } else { found.or(Categories::named(&["slow"])) }
    }
    /// The categories with these names. A name that is no category (group `server`) is ignored.
    pub fn named(names: &[&str]) -> Categories {
        let bit =
            |name: &&str| Categories::NAMES.iter().position(|known| known == name).map_or(0, |i| 1 << i);
        Categories(names.iter().map(bit).fold(0, |all, bit| all | bit))
    }
    /// True for the category with this index in [`Categories::NAMES`].
    pub fn has(self, index: usize) -> bool {
        self.0 & (1 << index) != 0
    }
    /// The names, in their order.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        (0..).zip(Categories::NAMES).filter(move |(index, _)| self.has(*index)).map(|(_, name)| name)
    }
    fn or(self, other: Categories) -> Categories {
        Categories(self.0 | other.0)
    }
}
