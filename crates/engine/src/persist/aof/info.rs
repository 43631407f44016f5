//! `INFO persistence`: redis-server's fields of the append-only file.

use super::AofMode;
use crate::{Engine, Now};
use std::fmt::Display;

/// Adds the fields about the append-only file to INFO.
pub(in crate::persist) fn info(engine: &Engine, now: Now, line: &mut dyn FnMut(&str, &dyn Display)) {
    let aof = &engine.persist.aof;
    let status = aof.status.lock();
    let is_on = aof.mode() != AofMode::Off;
    let word = |ok| if ok { "ok" } else { "err" };
    line("aof_enabled", &u8::from(is_on));
    line("aof_rewrite_in_progress", &u8::from(status.rewriting.is_some()));
    line("aof_rewrite_scheduled", &u8::from(status.scheduled));
    line("aof_last_rewrite_time_sec", &status.last_rewrite_s);
    line("aof_current_rewrite_time_sec", &status.rewriting.map_or(-1, |began| now.unix_s() - began.unix_s()));
    line("aof_last_bgrewrite_status", &word(status.last_rewrite_ok));
    line("aof_rewrites", &status.rewrites);
    line("aof_rewrites_consecutive_failures", &status.failures);
    line("aof_last_write_status", &word(status.write_error.is_none()));
    line("aof_last_cow_size", &status.last_kept_bytes);
    line("module_fork_in_progress", &0);
    line("module_fork_last_cow_size", &0);
    if is_on {
        line("aof_current_size", &status.bytes);
        line("aof_base_size", &status.rewritten_bytes);
        line("aof_pending_rewrite", &u8::from(status.scheduled));
        let tail = engine.keyspace.journal().tail();
        line("aof_buffer_length", &tail.saturating_sub(status.written));
        line("aof_pending_bio_fsync", &u8::from(aof.syncs.is_pending()));
        line("aof_delayed_fsync", &aof.syncs.late());
    }
}
