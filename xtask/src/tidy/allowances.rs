//! Places that break a rule which is younger than they are. Numbers here may only become smaller: mend a place, then
//! lower its number. Never add an entry.

/// Files longer than the limit, with their greatest length in lines.
pub(super) const LONG_FILES: &[(&str, usize)] = &[
    ("crates/commands/src/families/keyspace_wide.rs", 640),
    ("crates/engine/tests/session/blocking.rs", 601),
    ("crates/import/src/container.rs", 649),
    ("crates/import/src/job.rs", 867),
    ("crates/keyspace/src/shard.rs", 639),
    ("crates/keyspace/src/types/stream/map.rs", 607),
    ("crates/script/src/cjson.rs", 698),
    ("crates/server/tests/server/aof.rs", 743),
    ("crates/server/tests/server/http.rs", 653),
];

/// Comment lines with a banned word, by folder. Other folders have none.
pub(super) const BANNED_WORDS: &[(&str, usize)] = &[];

/// Public functions that fail with a `String`, by crate. Other crates have none.
pub(super) const TEXT_ERRORS: &[(&str, usize)] = &[];
