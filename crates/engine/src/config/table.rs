//! The options: one row each, with redis-server's name, type, default, and when it may change.

/// How an option's value is written and checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A plain decimal number from `.0` to `.1`.
    Integer(i64, i64),
    /// A number of bytes from `.0` to `.1`; units `k kb m mb g gb` are understood.
    Memory(i64, i64),
    /// `yes` or `no`.
    Bool,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// Any one word.
    Text,
    /// One or more words.
    Words,
    /// `class hard soft seconds`, once or more: client-output-buffer-limit.
    OutputLimits,
    /// Known to clients and benchmarks, and without effect yet: only the default can be given. The text says why.
    Fixed(&'static str),
}

/// When an option may be given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// At any time, by CONFIG SET too.
    Anytime,
    /// In the configuration file and on the command line only.
    Startup,
}

/// One option.
#[derive(Clone, Copy, Debug)]
pub struct OptionSpec {
    /// Its name.
    pub name: &'static str,
    /// Its former name, also understood.
    pub alias: Option<&'static str>,
    /// Its type.
    pub kind: Kind,
    /// Its default, as one would write it.
    pub default: &'static str,
    /// When it may change.
    pub change: Change,
    /// One line of help, with the unit.
    pub help: &'static str,
}

/// Declares the options: an enum of them and the table, in one go.
macro_rules! options {
    ($($id:ident $name:literal $(/ $alias:literal)? , $kind:expr, $default:literal, $change:ident, $help:literal;)*) => {
        /// Every option, as an index into [`OPTIONS`].
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(missing_docs)]
        pub enum Opt { $($id),* }

        /// Every option, in alphabetical order.
        pub static OPTIONS: &[OptionSpec] = &[$(OptionSpec {
            name: $name,
            alias: options!(@alias $($alias)?),
            kind: $kind,
            default: $default,
            change: Change::$change,
            help: $help,
        }),*];

        /// The same, as [`Opt`].
        pub(crate) const ALL: &[Opt] = &[$(Opt::$id),*];
    };
    (@alias) => { None };
    (@alias $alias:literal) => { Some($alias) };
}

const INT: i64 = i32::MAX as i64;
const LONG: i64 = i64::MAX;
const MB: i64 = 1 << 20;

const NO_PERSISTENCE: &str = "data is not written to disk by this version";
const NO_CLUSTER: &str = "there are no replicas and no cluster in this version";
const NO_DAEMON: &str = "running in the background is not supported, use a service manager";

/// Every `maxmemory-policy`, in Redis's order; nothing is evicted while `maxmemory` is 0.
pub(crate) const POLICIES: &[&str] = &[
    "volatile-lru",
    "volatile-lfu",
    "volatile-random",
    "volatile-ttl",
    "allkeys-lru",
    "allkeys-lfu",
    "allkeys-random",
    "noeviction",
];

options! {
    AclPubsubDefault "acl-pubsub-default", Kind::Choice(&["allchannels", "resetchannels"]), "resetchannels", Anytime,
        "Whether new users may use all channels or none";
    AclFile "aclfile", Kind::Text, "", Startup, "File that users are read from and ACL SAVE writes to; empty is none";
    AclLogMaxLen "acllog-max-len", Kind::Integer(0, LONG), "128", Anytime, "Entries that ACL LOG keeps";
    ActiveExpireEffort "active-expire-effort", Kind::Integer(1, 10), "1", Anytime,
        "Effort of removing expired keys that nobody asks for";
    AppendOnly "appendonly", Kind::Fixed(NO_PERSISTENCE), "no", Startup, "Append-only file";
    Bind "bind", Kind::Words, "127.0.0.1 -::1", Startup,
        "Addresses to listen on; with a leading - one that is not there is no error";
    ClientOutputBufferLimit "client-output-buffer-limit", Kind::OutputLimits,
        "normal 0 0 0 slave 268435456 67108864 60 pubsub 33554432 8388608 60", Anytime,
        "Unread replies a client may have: class, bytes (hard), bytes (soft), seconds over soft; 0 is no limit";
    ClientQueryBufferLimit "client-query-buffer-limit", Kind::Memory(MB, LONG), "1gb", Anytime,
        "Bytes of requests the server holds for one client";
    Daemonize "daemonize", Kind::Fixed(NO_DAEMON), "no", Startup, "Run in the background";
    Databases "databases", Kind::Integer(1, INT), "16", Startup, "Number of databases";
    EnableDebugCommand "enable-debug-command", Kind::Choice(&["no", "yes", "local"]), "no", Startup,
        "Who may call DEBUG";
    HashMaxListpackEntries "hash-max-listpack-entries" / "hash-max-ziplist-entries", Kind::Integer(0, LONG), "512",
        Anytime, "Fields up to which a hash is stored packed";
    HashMaxListpackValue "hash-max-listpack-value" / "hash-max-ziplist-value", Kind::Memory(0, LONG), "64", Anytime,
        "Bytes of a field or value up to which a hash is stored packed";
    HttpEtagMax "http-etag-max", Kind::Memory(0, LONG), "64mb", Anytime,
        "Bytes of a value up to which HTTP gives it an entity tag, which costs a pass over the value";
    HttpKeepAlive "http-keepalive", Kind::Integer(0, INT), "75", Anytime,
        "Seconds after which an HTTP connection is closed on which no request comes, or nothing moves; 0 is never";
    HttpMaxBody "http-max-body", Kind::Memory(0, LONG), "512mb", Anytime, "Bytes of the body of an HTTP request";
    HttpPort "http-port", Kind::Integer(0, 65535), "8379", Startup,
        "TCP port of HTTP, beyond loopback only with a password or protected-mode no; 0 is none";
    HttpUpdatePrefix "http-update-prefix", Kind::Text, "doc:", Anytime,
        "What stands before the id of a document that comes by POST /v1/update in its key";
    Hz "hz", Kind::Integer(0, INT), "10", Anytime, "Rounds of background work a second (1 to 500)";
    IoDriver "io-driver", Kind::Choice(&["epoll", "io_uring"]), "io_uring", Startup,
        "How sockets are read and written; epoll is used too where the kernel does not allow io_uring";
    LfuDecayTime "lfu-decay-time", Kind::Integer(0, INT), "1", Anytime,
        "Minutes after which the access counter of a key falls by one; 0 is never";
    LfuLogFactor "lfu-log-factor", Kind::Integer(0, INT), "10", Anytime,
        "How much slower a key's access counter rises the higher it is";
    LogFile "logfile", Kind::Text, "", Startup, "File to log to; empty is the standard error";
    LoginFailuresMax "login-failures-max", Kind::Integer(0, INT), "20", Anytime,
        "Failed logins of an address after which its further ones wait (up to 5 seconds; one is forgotten each second); 0: never";
    LogLevel "loglevel", Kind::Choice(&["debug", "verbose", "notice", "warning"]), "notice", Anytime,
        "Least level that is logged";
    MaxClients "maxclients", Kind::Integer(1, u32::MAX as i64), "10000", Anytime, "Connections at the same time";
    MaxMemory "maxmemory", Kind::Memory(0, LONG), "0", Anytime,
        "Memory limit: what the allocator has given out may be this much; 0 is none";
    MaxMemoryEvictionTenacity "maxmemory-eviction-tenacity", Kind::Integer(0, 100), "10", Anytime,
        "How many keys one command may evict at the memory limit before others do (10: 16 keys)";
    MaxMemoryPolicy "maxmemory-policy", Kind::Choice(POLICIES), "noeviction", Anytime,
        "What to evict at the memory limit; an lfu policy makes OBJECT FREQ answer in place of OBJECT IDLETIME";
    MaxMemorySamples "maxmemory-samples", Kind::Integer(1, INT), "5", Anytime,
        "Keys looked at for each key evicted";
    Pack4Port "pack4-port", Kind::Integer(0, 65535), "0", Startup,
        "TCP port on which RESP is spoken in frames of four bytes of length; 0 is none";
    Port "port", Kind::Integer(0, 65535), "6379", Startup,
        "TCP port to listen on; 0 picks a free one and says which, or is none where another port is given";
    ProtectedMode "protected-mode", Kind::Bool, "yes", Anytime,
        "Without a password, serve clients of this machine only";
    ProtoMaxBulkLen "proto-max-bulk-len", Kind::Memory(MB, LONG), "512mb", Anytime, "Longest string in bytes";
    RequirePass "requirepass", Kind::Text, "", Anytime, "Password of the default user; empty is none";
    Save "save", Kind::Fixed(NO_PERSISTENCE), "", Startup, "When to write a snapshot";
    Shards "shards", Kind::Integer(0, 65536), "0", Startup,
        "Independently locked parts of the data; 0 is 64 for each worker";
    SlowlogLogSlowerThan "slowlog-log-slower-than", Kind::Integer(-1, LONG), "10000", Anytime,
        "Microseconds from which a command is in SLOWLOG; below 1000 every command is timed; -1 is never";
    SlowlogMaxLen "slowlog-max-len", Kind::Integer(0, LONG), "128", Anytime, "Slow commands that are kept";
    TcpBacklog "tcp-backlog", Kind::Integer(0, INT), "511", Startup, "Connections waiting to be accepted";
    TcpKeepAlive "tcp-keepalive", Kind::Integer(0, INT), "300", Anytime,
        "Seconds after which a silent peer is probed; 0 is never";
    Timeout "timeout", Kind::Integer(0, INT), "0", Anytime, "Seconds after which an idle client is closed; 0 is never";
    TlsAuthClients "tls-auth-clients", Kind::Choice(&["no", "yes", "optional"]), "yes", Anytime,
        "Whether TLS clients must show a certificate";
    TlsCaCertDir "tls-ca-cert-dir", Kind::Text, "", Anytime, "Folder of PEM files whose certificates may sign clients'";
    TlsCaCertFile "tls-ca-cert-file", Kind::Text, "", Anytime, "PEM file of certificates that may sign clients'";
    TlsCertFile "tls-cert-file", Kind::Text, "", Anytime,
        "PEM file of the server's certificate and those between it and a root";
    TlsCiphers "tls-ciphers", Kind::Text, "", Anytime, "Suites of TLS 1.2 by OpenSSL's names, with colons; empty is all";
    TlsCiphersuites "tls-ciphersuites", Kind::Text, "", Anytime, "Suites of TLS 1.3, with colons; empty is all";
    TlsCluster "tls-cluster", Kind::Fixed(NO_CLUSTER), "no", Startup, "TLS between nodes";
    TlsHttpPort "tls-http-port", Kind::Integer(0, 65535), "0", Startup,
        "TCP port of HTTP over TLS, beyond loopback as http-port; 0 is none";
    TlsKeyFile "tls-key-file", Kind::Text, "", Anytime, "PEM file of the certificate's private key";
    TlsKeyFilePass "tls-key-file-pass", Kind::Text, "", Anytime, "Password of an encrypted tls-key-file";
    TlsPack4Port "tls-pack4-port", Kind::Integer(0, 65535), "0", Startup,
        "TCP port for RESP in frames over TLS; 0 is none";
    TlsPort "tls-port", Kind::Integer(0, 65535), "0", Startup, "TCP port for RESP over TLS; 0 is none";
    TlsPreferServerCiphers "tls-prefer-server-ciphers", Kind::Bool, "no", Anytime,
        "Choose suites in the server's order and not in the client's";
    TlsProtocols "tls-protocols", Kind::Text, "", Anytime, "TLSv1.2, TLSv1.3 or both, with a space; empty is both";
    TlsReplication "tls-replication", Kind::Fixed(NO_CLUSTER), "no", Startup, "TLS to replicas";
    TlsSessionCacheSize "tls-session-cache-size", Kind::Integer(1, INT), "20480", Anytime,
        "TLS sessions that are kept for resumption";
    TlsSessionCacheTimeout "tls-session-cache-timeout", Kind::Integer(0, INT), "300", Anytime,
        "Seconds for which a TLS session is kept";
    TlsSessionCaching "tls-session-caching", Kind::Bool, "yes", Anytime, "Keep TLS sessions for resumption";
    Workers "workers", Kind::Integer(0, 1024), "0", Startup, "Threads that serve connections; 0 is one for each core";
}

/// Finds an option by name or former name, ASCII case aside.
pub fn find(name: &[u8]) -> Option<Opt> {
    ALL.iter().copied().find(|o| {
        let spec = o.spec();
        let is = |n: &str| name.eq_ignore_ascii_case(n.as_bytes());
        is(spec.name) || spec.alias.is_some_and(is)
    })
}

impl Opt {
    /// Its row.
    pub fn spec(self) -> &'static OptionSpec {
        &OPTIONS[self as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted_and_documented() {
        assert!(OPTIONS.windows(2).all(|w| w[0].name < w[1].name));
        for o in OPTIONS {
            assert!(!o.help.is_empty() && !o.help.ends_with('.'), "{}", o.name);
        }
    }

    #[test]
    fn names_and_former_names_are_found_whatever_their_case() {
        assert_eq!(find(b"PORT"), Some(Opt::Port));
        assert_eq!(find(b"hash-max-ziplist-value"), Some(Opt::HashMaxListpackValue));
        assert_eq!(find(b"foo"), None);
    }
}
