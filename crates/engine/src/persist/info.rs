//! `INFO persistence`: redis-server's fields of the RDB side.

use crate::{Engine, Now};
use std::fmt::Write;
use std::sync::atomic::Ordering::Relaxed;

/// Adds the section's lines after its title.
pub(crate) fn info(engine: &Engine, now: Now, out: &mut String) {
    let persist = &engine.persist;
    let state = persist.state.lock();
    let background = state.running.as_ref().filter(|running| running.background);
    let (keys_done, keys_total) = match &state.running {
        Some(running) => (running.keys_done.load(Relaxed), running.keys_total),
        None => persist.aof.rewritten_keys(),
    };
    let kept = state.running.as_ref().and_then(|running| running.load.as_ref());
    let (kept, kept_peak) = kept.map_or((0, 0), |load| (load.bytes(), load.peak_bytes()));
    let changes = engine.keyspace.changes().saturating_sub(state.saved_changes);
    let percent =
        |part: u64, all: u64| format!("{:.2}", if all == 0 { 0.0 } else { part as f64 * 100.0 / all as f64 });
    let mut line = |name: &str, value: &dyn std::fmt::Display| {
        write!(out, "{name}:{value}\r\n").expect("a string takes everything");
    };
    line("loading", &u8::from(persist.is_loading()));
    line("async_loading", &0);
    line("current_cow_peak", &kept_peak);
    line("current_cow_size", &kept);
    line("current_cow_size_age", &0);
    line("current_fork_perc", &percent(keys_done, keys_total));
    line("current_save_keys_processed", &keys_done);
    line("current_save_keys_total", &keys_total);
    line("rdb_changes_since_last_save", &changes);
    line("rdb_bgsave_in_progress", &u8::from(background.is_some()));
    line("rdb_last_save_time", &state.last_save_s);
    line("rdb_last_bgsave_status", &if state.last_ok { "ok" } else { "err" });
    line("rdb_last_bgsave_time_sec", &state.last_duration_s);
    line("rdb_current_bgsave_time_sec", &background.map_or(-1, |b| now.unix_s() - b.began.unix_s()));
    line("rdb_saves", &state.saves);
    line("rdb_last_cow_size", &state.last_kept_bytes);
    line("rdb_last_load_keys_expired", &state.expired_keys);
    line("rdb_last_load_keys_loaded", &state.loaded_keys);
    drop(state);
    super::aof::info(engine, now, &mut line);
    if !persist.is_loading() {
        return;
    }
    let loading = &persist.loading;
    let (total, loaded) = (loading.total_bytes.load(Relaxed), loading.loaded_bytes.load(Relaxed));
    let started_s = loading.started_s.load(Relaxed);
    let elapsed_s = (now.unix_s() - started_s).max(0) as u64;
    let left_s = match loaded {
        0 => 1,
        _ => elapsed_s as u128 * u128::from(total.saturating_sub(loaded)) / u128::from(loaded),
    };
    line("loading_start_time", &started_s);
    line("loading_total_bytes", &total);
    line("loading_rdb_used_mem", &loading.used_mem.load(Relaxed));
    line("loading_loaded_bytes", &loaded);
    line("loading_loaded_perc", &percent(loaded, total));
    line("loading_eta_seconds", &left_s);
}
