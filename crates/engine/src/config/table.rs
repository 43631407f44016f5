//! The options: one row each with redis-server's name, type and default, and when the option may change.
//!
//! Every option of redis-server 7.0 has a row. The row of an option without effect in this version ends with `no
//! effect: WHY`. Remove that part when the option gets its effect.

use super::spec::ValueType::*;
pub use super::spec::{Change, OptionSpec, ValueType};

/// Declares the options: the enum and the table.
macro_rules! options {
    ($($id:ident $name:literal $(/ $alias:literal)? , $kind:expr, $default:literal, $change:ident, $help:literal
        $(, no effect: $why:expr)?;)*) => {
        /// Every option, as an index into [`OPTIONS`].
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(missing_docs)]
        pub enum Opt { $($id),* }

        /// Every option, in alphabetical order.
        pub static OPTIONS: &[OptionSpec] = &[$(OptionSpec {
            name: $name,
            alias: options!(@some $($alias)?),
            kind: $kind,
            default: $default,
            change: Change::$change,
            help: $help,
            no_effect: options!(@some $($why)?),
        }),*];

        /// Every option as [`Opt`].
        pub(crate) const ALL: &[Opt] = &[$(Opt::$id),*];
    };
    (@some) => { None };
    (@some $value:expr) => { Some($value) };
}

const INT: i64 = i32::MAX as i64;
const LONG: i64 = i64::MAX;
const MB: i64 = 1 << 20;

// The reasons why an option has no effect. Each text follows "has no effect:".
const SYNC_BY_FILE: &str = "a snapshot for replicas always goes through a file without a name, so writes never wait for a slow replica";
const NO_CLUSTER: &str = "there is no cluster in this version";
const LISTS_BY_BYTES: &str =
    "a list is packed up to 4 KiB, whatever its elements are, and is never compressed";
const ALWAYS_CHECKED: &str = "every payload of RESTORE is checked completely";
const NO_DEFRAG: &str = "values are not moved; freed memory goes back to the system in small pieces";
const NO_SYSLOG: &str = "the log goes to `logfile` or the standard error";
const NO_TITLE: &str = "the title of the process stays its command line";
const NO_CRASH_LOG: &str =
    "a panic is always logged with its place in the source, and nothing else is logged";
const NO_REHASHING: &str = "tables grow by one small segment at a time, so there is nothing to rehash";
const ALWAYS_LAZY: &str = "large values are always freed by a helper thread";
const IN_FOREGROUND: &str = "the server stays in the foreground; let a service manager run it";
const OWN_THREADS: &str = "threads are set with \"workers\" (default: one for each core)";
const OWN_PURGING: &str = "freed memory is always given back by a thread of its own";
const OF_THE_SYSTEM: &str = "Strand leaves this to the system; a service manager can set it";
const FOR_TESTS: &str = "only redis-server's own tests use this option";

/// All values of `maxmemory-policy`, in Redis's order. Nothing is evicted while `maxmemory` is 0.
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

/// The names of the facilities of the system log.
const FACILITIES: &[&str] =
    &["user", "local0", "local1", "local2", "local3", "local4", "local5", "local6", "local7"];
/// SHUTDOWN's options with their names in `shutdown-on-sigint`.
const SHUTDOWN: &[&str] = &["default", "save", "nosave", "now", "force"];

options! {
    AclPubsubDefault "acl-pubsub-default", Choice(&["allchannels", "resetchannels"]), "resetchannels", Anytime,
        "Whether new users may use all channels or none";
    AclFile "aclfile", Text, "", Startup, "File that users are read from and ACL SAVE writes to; empty is none";
    AclLogMaxLen "acllog-max-len", Integer(0, LONG), "128", Anytime, "Entries that ACL LOG keeps";
    ActiveDefragCycleMax "active-defrag-cycle-max", Integer(1, 99), "25", Anytime,
        "Most processor time for defragmentation, in percent of a core", no effect: NO_DEFRAG;
    ActiveDefragCycleMin "active-defrag-cycle-min", Integer(1, 99), "1", Anytime,
        "Least processor time for defragmentation, in percent of a core", no effect: NO_DEFRAG;
    ActiveDefragIgnoreBytes "active-defrag-ignore-bytes", Memory(1, LONG), "100mb", Anytime,
        "Bytes lost to fragmentation below which values are not moved", no effect: NO_DEFRAG;
    ActiveDefragMaxScanFields "active-defrag-max-scan-fields", Integer(1, LONG), "1000", Anytime,
        "Elements from which a collection is moved in parts", no effect: NO_DEFRAG;
    ActiveDefragThresholdLower "active-defrag-threshold-lower", Integer(0, 1000), "10", Anytime,
        "Percent of fragmentation from which values are moved", no effect: NO_DEFRAG;
    ActiveDefragThresholdUpper "active-defrag-threshold-upper", Integer(0, 1000), "100", Anytime,
        "Percent of fragmentation from which the most processor time is used", no effect: NO_DEFRAG;
    ActiveExpireEffort "active-expire-effort", Integer(1, 10), "1", Anytime,
        "Effort to find and remove expired keys that no command uses";
    ActiveDefrag "activedefrag", Bool, "no", Anytime, "Move values to fill gaps in memory", no effect: NO_DEFRAG;
    ActiveRehashing "activerehashing", Bool, "yes", Anytime,
        "Rehash tables in the background", no effect: NO_REHASHING;
    AlwaysShowLogo "always-show-logo", Bool, "no", Startup,
        "Show a logo at the start", no effect: "there is no logo";
    AofDisableAutoGc "aof-disable-auto-gc", Bool, "no", Anytime,
        "Keep old append-only files";
    AofLoadTruncated "aof-load-truncated", Bool, "yes", Anytime,
        "Load an append-only file that is cut off at its end";
    AofRewriteIncrementalFsync "aof-rewrite-incremental-fsync", Bool, "yes", Anytime,
        "Sync an append-only file in parts while it is rewritten";
    AofTimestampEnabled "aof-timestamp-enabled", Bool, "no", Anytime,
        "Write times into the append-only file";
    AofUseRdbPreamble "aof-use-rdb-preamble", Bool, "yes", Anytime,
        "Begin a rewritten append-only file with a snapshot";
    AofRewriteCpulist "aof_rewrite_cpulist", Text, "", Startup,
        "Cores for the rewriting of the append-only file", no effect: OF_THE_SYSTEM;
    AppendDirName "appenddirname", FileName, "appendonlydir", Startup,
        "Folder of append-only files";
    AppendFileName "appendfilename", FileName, "appendonly.aof", Startup,
        "Name of the append-only file";
    AppendFsync "appendfsync", Choice(&["everysec", "always", "no"]), "everysec", Anytime,
        "When the append-only file is synced to the disk";
    AppendOnly "appendonly", Bool, "no", Anytime,
        "Write every change to an append-only file";
    AutoAofRewriteMinSize "auto-aof-rewrite-min-size", Memory(0, LONG), "64mb", Anytime,
        "Bytes below which the append-only file is not rewritten by itself";
    AutoAofRewritePercentage "auto-aof-rewrite-percentage", Integer(0, INT), "100", Anytime,
        "Percent of growth since the last rewrite after which the append-only file is rewritten; 0 is never";
    BgsaveCpulist "bgsave_cpulist", Text, "", Startup,
        "Cores for the process that saves", no effect: OF_THE_SYSTEM;
    Bind "bind", Words, "127.0.0.1 -::1", Anytime,
        "Addresses to listen on; an address with a leading - is skipped if the machine does not have it";
    BindSourceAddr "bind-source-addr", Text, "", Anytime,
        "Address that a connection to a primary comes from; empty leaves the choice to the system";
    BioCpulist "bio_cpulist", Text, "", Startup, "Cores for background threads", no effect: OF_THE_SYSTEM;
    BusyReplyThreshold "busy-reply-threshold" / "lua-time-limit", Integer(0, LONG), "5000", Anytime,
        "Milliseconds after which a script that holds its keys counts as busy: commands that need these keys get BUSY";
    ClientOutputBufferLimit "client-output-buffer-limit", OutputLimits,
        "normal 0 0 0 slave 268435456 67108864 60 pubsub 33554432 8388608 60", Anytime,
        "Waiting replies of a client, by class: hard limit in bytes, soft limit in bytes, seconds over the soft limit; 0 is no limit";
    ClientQueryBufferLimit "client-query-buffer-limit", Memory(MB, LONG), "1gb", Anytime,
        "Most bytes of requests that the server holds for one client";
    ClusterAllowPubsubshardWhenDown "cluster-allow-pubsubshard-when-down", Bool, "yes", Anytime,
        "Serve shard channels while the cluster is down", no effect: NO_CLUSTER;
    ClusterAllowReadsWhenDown "cluster-allow-reads-when-down", Bool, "no", Anytime,
        "Serve reads while the cluster is down", no effect: NO_CLUSTER;
    ClusterAllowReplicaMigration "cluster-allow-replica-migration", Bool, "yes", Anytime,
        "Let replicas move to primaries that have no replica", no effect: NO_CLUSTER;
    ClusterAnnounceBusPort "cluster-announce-bus-port", Integer(0, 65535), "0", Anytime,
        "Port of the bus that is announced to other nodes", no effect: NO_CLUSTER;
    ClusterAnnounceHostname "cluster-announce-hostname", Text, "", Anytime,
        "Host name that is announced to other nodes", no effect: NO_CLUSTER;
    ClusterAnnounceIp "cluster-announce-ip", Text, "", Anytime,
        "Address that is announced to other nodes", no effect: NO_CLUSTER;
    ClusterAnnouncePort "cluster-announce-port", Integer(0, 65535), "0", Anytime,
        "Port that is announced to other nodes", no effect: NO_CLUSTER;
    ClusterAnnounceTlsPort "cluster-announce-tls-port", Integer(0, 65535), "0", Anytime,
        "TLS port that is announced to other nodes", no effect: NO_CLUSTER;
    ClusterConfigFile "cluster-config-file", Text, "nodes.conf", Startup,
        "File of the cluster's state", no effect: NO_CLUSTER;
    ClusterEnabled "cluster-enabled", Bool, "no", Startup, "Be a node of a cluster", no effect: NO_CLUSTER;
    ClusterLinkSendbufLimit "cluster-link-sendbuf-limit", Memory(0, LONG), "0", Anytime,
        "Bytes that may wait for another node; 0 is no limit", no effect: NO_CLUSTER;
    ClusterMigrationBarrier "cluster-migration-barrier", Integer(0, INT), "1", Anytime,
        "Replicas that a primary keeps when others move", no effect: NO_CLUSTER;
    ClusterNodeTimeout "cluster-node-timeout", Integer(0, LONG), "15000", Anytime,
        "Milliseconds after which a silent node counts as failing", no effect: NO_CLUSTER;
    ClusterPort "cluster-port", Integer(0, 65535), "0", Startup,
        "TCP port of the bus between nodes", no effect: NO_CLUSTER;
    ClusterPreferredEndpointType "cluster-preferred-endpoint-type", Choice(&["ip", "hostname", "unknown-endpoint"]), "ip", Anytime,
        "How clients are told where a node is",
        no effect: NO_CLUSTER;
    ClusterReplicaNoFailover "cluster-replica-no-failover" / "cluster-slave-no-failover", Bool, "no", Anytime,
        "Never take the place of a primary", no effect: NO_CLUSTER;
    ClusterReplicaValidityFactor "cluster-replica-validity-factor" / "cluster-slave-validity-factor", Integer(0, INT), "10", Anytime,
        "Node timeouts after which a replica is too old",
        no effect: NO_CLUSTER;
    ClusterRequireFullCoverage "cluster-require-full-coverage", Bool, "yes", Anytime,
        "Serve nothing while a slot has no node", no effect: NO_CLUSTER;
    CrashLogEnabled "crash-log-enabled", Bool, "yes", Anytime,
        "Log the state of a server that crashes", no effect: NO_CRASH_LOG;
    CrashMemcheckEnabled "crash-memcheck-enabled", Bool, "yes", Anytime,
        "Test the memory of a server that crashes", no effect: NO_CRASH_LOG;
    Daemonize "daemonize", Bool, "no", Startup, "Run in the background", no effect: IN_FOREGROUND;
    Databases "databases", Integer(1, INT), "16", Startup, "Number of databases";
    DbFileName "dbfilename", FileName, "dump.rdb", Protected, "Name of the snapshot";
    Dir "dir", Text, "", Protected,
        "Working folder: other relative paths begin there; empty is the folder in which the server was started";
    DisableThp "disable-thp", Bool, "yes", Startup,
        "Switch off huge pages for this process", no effect: OF_THE_SYSTEM;
    DynamicHz "dynamic-hz", Bool, "yes", Anytime,
        "More rounds of background work with more clients", no effect: "hz does not depend on the number of clients";
    EnableDebugCommand "enable-debug-command", Choice(&["no", "yes", "local"]), "no", Startup,
        "Who may call DEBUG";
    EnableModuleCommand "enable-module-command", Choice(&["no", "yes", "local"]), "no", Startup,
        "Who may call MODULE LOAD and UNLOAD, which fail: modules are not loaded";
    EnableProtectedConfigs "enable-protected-configs", Choice(&["no", "yes", "local"]), "no", Startup,
        "Who may CONFIG SET dir and dbfilename";
    HashMaxListpackEntries "hash-max-listpack-entries" / "hash-max-ziplist-entries", Integer(0, LONG), "512",
        Anytime, "Fields up to which a hash is stored packed";
    HashMaxListpackValue "hash-max-listpack-value" / "hash-max-ziplist-value", Memory(0, LONG), "64", Anytime,
        "Bytes of a field or value up to which a hash is stored packed";
    HeapProfiling "heap-profiling", Bool, "yes", Anytime,
        "Sample one allocation per 4 MiB allocated, for DIAG PROFILE HEAP and ALLOCS";
    HistoryOnDisk "history-on-disk", Choice(&["auto", "yes", "no"]), "auto", Startup,
        "Keep the history of figures (DIAG HISTORY) in the folder strand-history; auto: if save points or the append-only file are on";
    HllSparseMaxBytes "hll-sparse-max-bytes", Memory(0, LONG), "3000", Anytime,
        "Bytes up to which a HyperLogLog is stored sparsely";
    HttpEtagMax "http-etag-max", Memory(0, LONG), "64mb", Anytime,
        "Largest value in bytes to which HTTP gives an entity tag; the tag costs one pass over the value";
    HttpKeepAlive "http-keepalive", Integer(0, INT), "75", Anytime,
        "Seconds after which an idle HTTP connection is closed. Idle: no request arrives, or a request or response does not \
         advance. 0: never";
    HttpMaxBody "http-max-body", Memory(0, LONG), "512mb", Anytime, "Most bytes in the body of an HTTP request";
    HttpPort "http-port", Integer(0, 65535), "8379", Anytime,
        "TCP port of HTTP; other machines are served only with a password or with protected-mode no; 0 is none";
    HttpUpdatePrefix "http-update-prefix", Text, "doc:", Anytime,
        "Prefix of the keys of documents that POST /v1/update writes; the document's id follows";
    Hz "hz", Integer(0, INT), "10", Anytime, "Rounds of background work a second (1 to 500)";
    IgnoreWarnings "ignore-warnings", Text, "", Anytime,
        "Startup warnings to suppress", no effect: "Strand has no warning that can be suppressed";
    IoDriver "io-driver", Choice(&["auto", "epoll", "io_uring"]), "auto", Startup,
        "How sockets are read and written. auto: a connection begins with epoll while its worker has at most four. When there \
         are more, connections move to io_uring and stay there. Where the kernel does not allow io_uring, epoll is used";
    IoThreads "io-threads", Integer(1, 128), "1", Startup,
        "Threads for reading and writing sockets", no effect: OWN_THREADS;
    IoThreadsDoReads "io-threads-do-reads", Bool, "no", Startup,
        "Let the I/O threads (io-threads) read and parse, too", no effect: OWN_THREADS;
    JemallocBgThread "jemalloc-bg-thread", Bool, "yes", Anytime,
        "Give freed memory back by a thread of its own", no effect: OWN_PURGING;
    KeyLoadDelay "key-load-delay", Integer(i32::MIN as i64, INT), "0", Anytime,
        "Pause in microseconds for each key that is loaded; for tests";
    LatencyMonitorThreshold "latency-monitor-threshold", Integer(0, LONG), "0", Anytime,
        "Milliseconds from which LATENCY records an event; 0 is never";
    LatencyTracking "latency-tracking", Bool, "yes", Anytime,
        "Keep the latencies of each command";
    LatencyTrackingInfoPercentiles "latency-tracking-info-percentiles", Percentiles, "50 99 99.9", Anytime,
        "Percentiles that INFO latencystats shows";
    LazyfreeLazyEviction "lazyfree-lazy-eviction", Bool, "no", Anytime,
        "Free evicted values in the background", no effect: ALWAYS_LAZY;
    LazyfreeLazyExpire "lazyfree-lazy-expire", Bool, "no", Anytime,
        "Free expired values in the background", no effect: ALWAYS_LAZY;
    LazyfreeLazyServerDel "lazyfree-lazy-server-del", Bool, "no", Anytime,
        "Free replaced values in the background", no effect: ALWAYS_LAZY;
    LazyfreeLazyUserDel "lazyfree-lazy-user-del", Bool, "no", Anytime,
        "Free in the background the values that DEL removes", no effect: ALWAYS_LAZY;
    LazyfreeLazyUserFlush "lazyfree-lazy-user-flush", Bool, "no", Anytime,
        "Free in the background the values that FLUSHALL and FLUSHDB remove", no effect: ALWAYS_LAZY;
    LfuDecayTime "lfu-decay-time", Integer(0, INT), "1", Anytime,
        "Minutes after which the access counter of a key falls by one; 0 is never";
    LfuLogFactor "lfu-log-factor", Integer(0, INT), "10", Anytime,
        "Logarithmic factor of the LFU counter; with a larger factor, the counter needs more accesses to grow by one";
    ListCompressDepth "list-compress-depth", Integer(0, INT), "0", Anytime,
        "Nodes at each end of a list that stay uncompressed; 0: no node is compressed", no effect: LISTS_BY_BYTES;
    ListMaxListpackSize "list-max-listpack-size" / "list-max-ziplist-size", Integer(i32::MIN as i64, INT), "-2", Anytime,
        "Most elements in a node of a list; -1 to -5: most bytes, 4 to 64 KiB",
        no effect: LISTS_BY_BYTES;
    LoadingProcessEventsIntervalBytes "loading-process-events-interval-bytes", Integer(1024, INT), "2097152", Anytime,
        "Bytes that are loaded between two rounds in which clients are served",
        no effect: FOR_TESTS;
    LogFormat "log-format", Choice(&["text", "json"]), "text", Startup, "Lines of the log as text or as JSON objects";
    LogLevels "log-levels", LogLevels, "", Anytime,
        "Log levels of parts of the program, such as strand_search=debug,strand::driver=trace";
    LogFile "logfile", Text, "", Startup, "File to log to; empty is the standard error";
    LoginFailuresMax "login-failures-max", Integer(0, INT), "20", Anytime,
        "After this number of failed logins from one address, each further login from there waits, for 5 seconds at most. \
         One failure is forgotten each second. 0: logins never wait";
    LoginTimeout "login-timeout", Integer(0, INT), "60", Anytime,
        "Seconds in which a client must log in, and in which its first request (HTTP: the head of each request) must \
         arrive. After that the client is disconnected. 0: no limit";
    LogLevel "loglevel", Choice(&["debug", "verbose", "notice", "warning"]), "notice", Anytime,
        "Lowest level that is logged";
    MasterAuth "masterauth", Text, "", Anytime, "Password for the primary";
    MasterUser "masteruser", Text, "", Anytime, "User for the primary";
    MaxClients "maxclients", Integer(1, u32::MAX as i64), "10000", Anytime, "Connections at the same time";
    MaxMemory "maxmemory", Memory(0, LONG), "0", Anytime,
        "Most memory in use; 0 is no limit";
    MaxMemoryClients "maxmemory-clients", MemoryOrPercent, "0", Anytime,
        "Most memory for the requests and replies of all clients, in bytes or in percent of maxmemory; 0 is no limit";
    MaxMemoryEvictionTenacity "maxmemory-eviction-tenacity", Integer(0, 100), "10", Anytime,
        "Bounds the keys that one command evicts (10: 16 keys); a background thread evicts the rest";
    MaxMemoryPolicy "maxmemory-policy", Choice(POLICIES), "noeviction", Anytime,
        "What to evict at the memory limit; with an lfu policy OBJECT FREQ works, and OBJECT IDLETIME does not";
    MaxMemorySamples "maxmemory-samples", Integer(1, INT), "5", Anytime,
        "Keys that are examined for each evicted key";
    MinReplicasMaxLag "min-replicas-max-lag" / "min-slaves-max-lag", Integer(0, INT), "10", Anytime,
        "Seconds after which a silent replica does not count";
    MinReplicasToWrite "min-replicas-to-write" / "min-slaves-to-write", Integer(0, INT), "0", Anytime,
        "Replicas below which no writes are served";
    NoAppendfsyncOnRewrite "no-appendfsync-on-rewrite", Bool, "no", Anytime,
        "Do not sync the append-only file while it is rewritten";
    NotifyKeyspaceEvents "notify-keyspace-events", KeyspaceEvents, "", Anytime,
        "Keyspace events that are published, each class as a letter";
    OomScoreAdj "oom-score-adj", Choice(&["no", "yes", "relative", "absolute"]), "no", Anytime,
        "Set the process's oom_score_adj: yes and relative add to the value at the start, absolute replaces it";
    OomScoreAdjValues "oom-score-adj-values", OomScores, "0 200 800", Anytime,
        "oom_score_adj of a primary and of a replica. The third value has no effect: Strand has no saving process";
    OtlpEndpoint "otlp-endpoint", HttpAddress, "", Anytime,
        "OpenTelemetry collector, as http://HOST:PORT, that figures and slow commands are sent to; empty is none";
    Pack4Port "pack4-port", Integer(0, 65535), "0", Anytime,
        "TCP port for RESP in frames, each after its length in four bytes; 0 is none";
    PidFile "pidfile", Text, "", Startup, "File that the process id is written to; empty is none";
    Port "port", Integer(0, 65535), "6379", Anytime,
        "TCP port for RESP. 0 at the start: any free port, which is printed; but no port if tls-port, pack4-port, \
         tls-pack4-port or unixsocket is set. CONFIG SET port 0 closes the port";
    ProcTitleTemplate "proc-title-template", Text, "{title} {listen-addr} {server-mode}", Anytime,
        "Title of the process", no effect: NO_TITLE;
    PropagationErrorBehavior "propagation-error-behavior", Choice(&["ignore", "panic", "panic-on-replicas"]), "ignore", Anytime,
        "What to do when a replicated command fails",
        no effect: "a failed command of the stream is logged, and the stream goes on";
    ProtectedMode "protected-mode", Bool, "yes", Anytime,
        "Without a password, serve clients of this machine only";
    ProtoMaxBulkLen "proto-max-bulk-len", Memory(MB, LONG), "512mb", Anytime, "Longest string in bytes";
    RdbDelSyncFiles "rdb-del-sync-files", Bool, "no", Anytime,
        "Delete snapshots made for replicas only", no effect: SYNC_BY_FILE;
    RdbKeySaveDelay "rdb-key-save-delay", Integer(i32::MIN as i64, INT), "0", Anytime,
        "Pause in microseconds for each key that is saved; for tests";
    RdbSaveIncrementalFsync "rdb-save-incremental-fsync", Bool, "yes", Anytime,
        "Sync a snapshot in parts while it is written";
    RdbChecksum "rdbchecksum", Bool, "yes", Startup,
        "Put a checksum at the end of snapshots";
    RdbCompression "rdbcompression", Bool, "yes", Anytime, "Compress strings in snapshots";
    ReplBacklogSize "repl-backlog-size", Memory(1, LONG), "1mb", Anytime,
        "Bytes of changes kept for replicas that come back";
    ReplBacklogTtl "repl-backlog-ttl", Integer(0, LONG), "3600", Anytime,
        "Seconds without replicas after which the kept changes are freed; 0 is never";
    ReplDisableTcpNodelay "repl-disable-tcp-nodelay", Bool, "no", Anytime,
        "Send fewer packets to replicas, with up to 40 ms of delay", no effect: "packets to replicas are never delayed";
    ReplDisklessLoad "repl-diskless-load", Choice(&["disabled", "on-empty-db", "swapdb"]), "disabled", Anytime,
        "Load a primary's snapshot from the socket", no effect: "a snapshot is loaded when all of it has arrived";
    ReplDisklessSync "repl-diskless-sync", Bool, "yes", Anytime,
        "Send snapshots to replicas without a file", no effect: SYNC_BY_FILE;
    ReplDisklessSyncDelay "repl-diskless-sync-delay", Integer(0, INT), "5", Anytime,
        "Seconds to wait for more replicas before a snapshot is sent without a file", no effect: SYNC_BY_FILE;
    ReplDisklessSyncMaxReplicas "repl-diskless-sync-max-replicas", Integer(0, INT), "0", Anytime,
        "Replicas that end the wait for more replicas (repl-diskless-sync-delay); 0 is no limit", no effect: SYNC_BY_FILE;
    ReplPingReplicaPeriod "repl-ping-replica-period" / "repl-ping-slave-period", Integer(1, INT), "10", Anytime,
        "Seconds between two pings to replicas";
    ReplTimeout "repl-timeout", Integer(1, INT), "60", Anytime,
        "Seconds after which a silent primary or replica is gone";
    ReplicaAnnounceIp "replica-announce-ip" / "slave-announce-ip", Text, "", Anytime,
        "Address that is announced to the primary";
    ReplicaAnnouncePort "replica-announce-port" / "slave-announce-port", Integer(0, 65535), "0", Anytime,
        "Port that is announced to the primary";
    ReplicaAnnounced "replica-announced", Bool, "yes", Anytime,
        "Announce this replica to Sentinel";
    ReplicaIgnoreDiskWriteErrors "replica-ignore-disk-write-errors", Bool, "no", Anytime,
        "As a replica, go on when the disk fails", no effect: "the stream goes on when the disk fails";
    ReplicaIgnoreMaxmemory "replica-ignore-maxmemory" / "slave-ignore-maxmemory", Bool, "yes", Anytime,
        "As a replica, leave evicting to the primary";
    ReplicaLazyFlush "replica-lazy-flush" / "slave-lazy-flush", Bool, "no", Anytime,
        "Free old data in the background before a full synchronization", no effect: ALWAYS_LAZY;
    ReplicaPriority "replica-priority" / "slave-priority", Integer(0, INT), "100", Anytime,
        "Which replica Sentinel promotes first; 0 is never";
    ReplicaReadOnly "replica-read-only" / "slave-read-only", Bool, "yes", Anytime,
        "As a replica, refuse writes";
    ReplicaServeStaleData "replica-serve-stale-data" / "slave-serve-stale-data", Bool, "yes", Anytime,
        "As a replica: serve the present data while the primary cannot be reached";
    ReplicaOf "replicaof" / "slaveof", Primary, "", Startup,
        "Primary to be a replica of: host and port, or `no one`";
    RequirePass "requirepass", Text, "", Anytime, "Password of the default user; empty is none";
    SanitizeDumpPayload "sanitize-dump-payload", Choice(&["no", "yes", "clients"]), "no", Anytime,
        "Whose RESTORE payloads are checked completely", no effect: ALWAYS_CHECKED;
    Save "save", SavePoints, "3600 1 300 100 60 10000", Anytime,
        "When to write a snapshot: after this number of seconds, if at least this number of keys changed";
    ServerCpulist "server_cpulist", Text, "", Startup, "Cores for the main thread", no effect: OF_THE_SYSTEM;
    SetMaxIntsetEntries "set-max-intset-entries", Integer(0, LONG), "512", Anytime,
        "Integers up to which a set is stored as sorted integers";
    SetProcTitle "set-proc-title", Bool, "yes", Startup, "Set the title of the process", no effect: NO_TITLE;
    Shards "shards", Integer(0, 65536), "0", Startup,
        "Number of shards; each has its own lock. Rounded up to a power of two. 0: 256 for each worker, but at most \
         4,096, or 64 for each worker if that is more";
    ShutdownOnSigint "shutdown-on-sigint", Flags(SHUTDOWN), "default", Anytime,
        "Options of the SHUTDOWN that SIGINT starts";
    ShutdownOnSigterm "shutdown-on-sigterm", Flags(SHUTDOWN), "default", Anytime,
        "Options of the SHUTDOWN that SIGTERM starts";
    ShutdownTimeout "shutdown-timeout", Integer(0, INT), "10", Anytime,
        "Seconds that SHUTDOWN waits for replicas";
    SlowlogLogSlowerThan "slowlog-log-slower-than", Integer(-1, LONG), "10000", Anytime,
        "Microseconds from which a command is in SLOWLOG; below 1000 every command is timed; -1 is never";
    SlowlogMaxLen "slowlog-max-len", Integer(0, LONG), "128", Anytime, "Most slow commands that SLOWLOG keeps";
    SnapshotMemoryBudget "snapshot-memory-budget", Memory(0, LONG), "128mb", Anytime,
        "Limit of the memory in which a snapshot keeps old versions of changed records; at the limit, writes wait \
         until some of these versions are on the disk";
    SocketMarkId "socket-mark-id", Integer(0, u32::MAX as i64), "0", Startup,
        "Mark of the sockets, for packet filters", no effect: OF_THE_SYSTEM;
    StopWritesOnBgsaveError "stop-writes-on-bgsave-error", Bool, "yes", Anytime,
        "Refuse writes after a snapshot has failed";
    StreamNodeMaxBytes "stream-node-max-bytes", Memory(0, LONG), "4096", Anytime,
        "Bytes of a node of a stream; 0 is no limit";
    StreamNodeMaxEntries "stream-node-max-entries", Integer(0, LONG), "100", Anytime,
        "Entries of a node of a stream; 0 is no limit";
    Supervised "supervised", Choice(&["upstart", "systemd", "auto", "no"]), "no", Startup,
        "Tell systemd when the server is ready; auto: if NOTIFY_SOCKET is set";
    SyslogEnabled "syslog-enabled", Bool, "no", Startup, "Log to the system log", no effect: NO_SYSLOG;
    SyslogFacility "syslog-facility", Choice(FACILITIES), "local0", Startup,
        "Facility of the system log",
        no effect: NO_SYSLOG;
    SyslogIdent "syslog-ident", Text, "redis", Startup, "Name in the system log", no effect: NO_SYSLOG;
    TcpBacklog "tcp-backlog", Integer(0, INT), "511", Startup, "Connections waiting to be accepted";
    TcpKeepAlive "tcp-keepalive", Integer(0, INT), "300", Anytime,
        "Seconds after which a silent peer is probed; 0 is never";
    Timeout "timeout", Integer(0, INT), "0", Anytime, "Seconds after which an idle client is closed; 0 is never";
    TlsAuthClients "tls-auth-clients", Choice(&["no", "yes", "optional"]), "yes", Anytime,
        "Whether TLS clients must show a certificate";
    TlsCaCertDir "tls-ca-cert-dir", Text, "", Anytime,
        "Folder of PEM files with the CA certificates that client certificates are checked against";
    TlsCaCertFile "tls-ca-cert-file", Text, "", Anytime,
        "PEM file with the CA certificates that client certificates are checked against";
    TlsCertFile "tls-cert-file", Text, "", Anytime,
        "PEM file of the server's certificate and the certificates between it and a root";
    TlsCiphers "tls-ciphers", Text, "", Anytime,
        "Cipher suites of TLS 1.2 by OpenSSL's names, separated by colons; empty is all";
    TlsCiphersuites "tls-ciphersuites", Text, "", Anytime,
        "Cipher suites of TLS 1.3, separated by colons; empty is all";
    TlsClientCertFile "tls-client-cert-file", Text, "", Anytime,
        "PEM file of the certificate that a connection to a primary shows; empty is tls-cert-file";
    TlsClientKeyFile "tls-client-key-file", Text, "", Anytime,
        "PEM file of the private key of tls-client-cert-file";
    TlsClientKeyFilePass "tls-client-key-file-pass", Text, "", Anytime,
        "Password of an encrypted tls-client-key-file";
    TlsCluster "tls-cluster", Bool, "no", Anytime, "TLS between nodes", no effect: NO_CLUSTER;
    TlsDhParamsFile "tls-dh-params-file", Text, "", Anytime,
        "File of Diffie-Hellman parameters", no effect: "keys are exchanged over elliptic curves only";
    TlsHttpPort "tls-http-port", Integer(0, 65535), "0", Anytime,
        "TCP port of HTTP over TLS; other machines are served as at http-port; 0 is none";
    TlsKeyFile "tls-key-file", Text, "", Anytime, "PEM file of the private key of tls-cert-file";
    TlsKeyFilePass "tls-key-file-pass", Text, "", Anytime, "Password of an encrypted tls-key-file";
    TlsPack4Port "tls-pack4-port", Integer(0, 65535), "0", Anytime,
        "TCP port for RESP in frames over TLS; 0 is none";
    TlsPort "tls-port", Integer(0, 65535), "0", Anytime, "TCP port for RESP over TLS; 0 is none";
    TlsPreferServerCiphers "tls-prefer-server-ciphers", Bool, "no", Anytime,
        "Choose cipher suites in the server's order, not in the client's";
    TlsProtocols "tls-protocols", Text, "", Anytime,
        "TLSv1.2, TLSv1.3, or both with a space between them; empty is both";
    TlsReplication "tls-replication", Bool, "no", Anytime, "Connect to a primary with TLS";
    TlsSessionCacheSize "tls-session-cache-size", Integer(1, INT), "20480", Anytime,
        "TLS sessions that are kept for resumption";
    TlsSessionCacheTimeout "tls-session-cache-timeout", Integer(0, INT), "300", Anytime,
        "Seconds for which a TLS session is kept";
    TlsSessionCaching "tls-session-caching", Bool, "yes", Anytime, "Keep TLS sessions for resumption";
    TrackingTableMaxKeys "tracking-table-max-keys", Integer(0, LONG), "1000000", Anytime,
        "Most keys that client tracking remembers; 0 is no limit";
    UnixSocket "unixsocket", Text, "", Startup, "File of a Unix socket to listen on for RESP; empty is none";
    UnixSocketPerm "unixsocketperm", Octal(0, 0o777), "0", Startup,
        "Permissions of the Unix socket; 0: as the umask gives them";
    UseExitOnPanic "use-exit-on-panic", Bool, "no", Anytime, "Exit instead of aborting", no effect: FOR_TESTS;
    WatchdogPeriod "watchdog-period", Integer(0, INT), "100", Anytime,
        "If one turn of a worker takes longer than this number of milliseconds, the log and DIAG DOCTOR show the worker's stack; 0: never";
    Workers "workers", Integer(0, 256), "0", Startup, "Threads that serve connections; 0 is one for each core";
    ZsetMaxListpackEntries "zset-max-listpack-entries" / "zset-max-ziplist-entries", Integer(0, LONG), "128", Anytime,
        "Members up to which a sorted set is stored packed";
    ZsetMaxListpackValue "zset-max-listpack-value" / "zset-max-ziplist-value", Memory(0, LONG), "64", Anytime,
        "Bytes of a member up to which a sorted set is stored packed";
}

/// Finds an option by its name or former name, in upper or lower case.
pub fn find(name: &[u8]) -> Option<Opt> {
    ALL.iter().copied().find(|o| {
        let spec = o.spec();
        let is = |n: &str| name.eq_ignore_ascii_case(n.as_bytes());
        is(spec.name) || spec.alias.is_some_and(is)
    })
}

impl Opt {
    /// The option's row in the table of options.
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

    /// The page docs/configuration.md. A test checks it, and `make pages` writes it.
    fn page() -> String {
        let mut page = String::from(
            "# Configuration\n\n\
             Made from the table of options by `make pages`. [config-file.md](config-file.md) explains the file. An option \
             stands in the configuration file (`strand serve FILE`), on the \
             command line (`--maxmemory 2gb`), or in `CONFIG SET` where it may change at any time. Debian's redis.conf is \
             understood as it is. At the start, the log names each option that has no effect here \
             and is not at its default, with the reason.\n\n\
             | Option | Default | Values | Changes | |\n|---|---|---|---|---|\n",
        );
        let cell = |text: &str| text.replace('|', "\\|");
        for o in OPTIONS {
            let alias = o.alias.map_or(String::new(), |alias| format!(" (`{alias}`)"));
            let default = if o.default.is_empty() { "\"\"" } else { o.default };
            let change = match o.change {
                Change::Anytime => "at any time",
                Change::Protected => "at any time, where `enable-protected-configs` allows it",
                Change::Startup => "at the start",
            };
            let no_effect = o.no_effect.map_or(String::new(), |why| format!(". **No effect:** {why}"));
            let (values, help) = (values(o.kind), o.help);
            let text = cell(&format!("{help}{no_effect}"));
            page +=
                &format!("| `{}`{alias} | `{}` | {values} | {change} | {text}. |\n", o.name, cell(default));
        }
        page
    }
    fn values(kind: ValueType) -> String {
        let range = |least: i64, most: i64, unit: &str| match (least, most) {
            (i64::MIN, _) | (_, i64::MAX | INT) => format!("{unit} from {least}"),
            _ => format!("{unit}, {least} to {most}"),
        };
        let words =
            |words: &[&str]| words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ");
        match kind {
            Integer(least, most) => range(least, most, "a number"),
            Memory(least, most) => range(least, most, "bytes"),
            MemoryOrPercent => "bytes, or percent of `maxmemory`".into(),
            Octal(least, most) => format!("octal, {least:o} to {most:o}"),
            Bool => "`yes`, `no`".into(),
            Choice(all) => words(all),
            Flags(all) => format!("one or more of {}", words(all)),
            Text => "a word".into(),
            FileName => "the name of a file".into(),
            Words => "words".into(),
            OutputLimits => "class, hard limit, soft limit, seconds".into(),
            SavePoints => "seconds and changes, in pairs".into(),
            KeyspaceEvents => "letters".into(),
            Percentiles => "numbers from 0 to 100".into(),
            OomScores => "three numbers from -2000 to 2000".into(),
            Primary => "a host and a port, or `no one`".into(),
            LogLevels => "`part=level`, several with commas".into(),
            HttpAddress => "`http://HOST:PORT`, perhaps with a path".into(),
        }
    }

    // This test reads the page from the sources. The engine itself reads no files.
    #[allow(clippy::disallowed_methods)]
    #[test]
    fn the_page_of_options_is_current() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/configuration.md");
        if std::env::var_os("STRAND_WRITE_PAGES").is_some() {
            std::fs::write(path, page()).expect("docs is there");
        }
        let written = std::fs::read_to_string(path).expect("docs/configuration.md is there");
        assert!(written == page(), "docs/configuration.md is stale: make pages");
    }

    #[test]
    fn names_and_former_names_are_found_whatever_their_case() {
        assert_eq!(find(b"PORT"), Some(Opt::Port));
        assert_eq!(find(b"hash-max-ziplist-value"), Some(Opt::HashMaxListpackValue));
        assert_eq!(find(b"foo"), None);
    }
}
