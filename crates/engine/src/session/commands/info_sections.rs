//! The sections of INFO, with redis-server's field names where a field has a counterpart here.

use super::connection::REDIS_VERSION;
use crate::config::Opt;
use crate::following;
use crate::importers::COUNTED;
use crate::memory::Purpose;
use crate::pubsub::Namespace;
use crate::replication;
use crate::stats::Stat;
use crate::{Engine, Now};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::atomic::Ordering::Relaxed;
use strand_keyspace::Keys;

/// What the sections of INFO are made from.
pub(super) struct Facts<'a> {
    pub(super) engine: &'a Engine,
    pub(super) now: Now,
    /// The databases with keys. `None` when no section counts them.
    pub(super) keys: Option<BTreeMap<usize, Keys>>,
}

/// Redis's LRU clock counts seconds in 24 bits.
pub(super) const LRU_CLOCK_MASK: i64 = (1 << 24) - 1;

/// One line per field. Writing to a string does not fail.
macro_rules! fields {
    ($out:expr, $title:literal, $($name:literal: $value:expr),* $(,)?) => {{
        $out.push_str(concat!("# ", $title, "\r\n"));
        lines!($out, $($name: $value),*);
    }};
}

/// The lines of [`fields`] without the title.
macro_rules! lines {
    ($out:expr, $($name:literal: $value:expr),* $(,)?) => {{
        $(write!($out, concat!($name, ":{}\r\n"), $value).expect("a string takes everything");)*
    }};
}

pub(super) fn server(f: &Facts<'_>, out: &mut String) {
    let (engine, facts) = (f.engine, &f.engine.facts);
    let uptime_s = f.now.mono_us.saturating_sub(engine.started.mono_us) / 1_000_000;
    fields!(out, "Server",
        "redis_version": REDIS_VERSION,
        "strand_version": env!("CARGO_PKG_VERSION"),
        "redis_git_sha1": "00000000",
        "redis_git_dirty": 0,
        "redis_mode": "standalone",
        "os": facts.os,
        "arch_bits": usize::BITS,
        "monotonic_clock": "POSIX clock_gettime",
        "multiplexing_api": engine.host.multiplexing_api(),
        "process_id": facts.pid,
        "process_supervised": "no",
        "run_id": engine.run_id,
        "tcp_port": engine.config.port(),
        "server_time_usec": f.now.unix_us,
        "uptime_in_seconds": uptime_s,
        "uptime_in_days": uptime_s / 86_400,
        "hz": engine.config.hz(),
        "configured_hz": engine.config.hz(),
        "lru_clock": (f.now.unix_us / 1_000_000) & LRU_CLOCK_MASK,
        "executable": facts.executable,
        "config_file": facts.config_file,
        "io_threads_active": 0,
        "workers": facts.workers,
        "shards": engine.keyspace.shards(),
    );
    if let Some(left_ms) = engine.ends_in_ms(f.now) {
        lines!(out, "shutdown_in_milliseconds": left_ms);
    }
}

pub(super) fn clients(f: &Facts<'_>, out: &mut String) {
    let clients = f.engine.clients.all();
    fields!(out, "Clients",
        "connected_clients": clients.len().saturating_sub(f.engine.replication.len()),
        "cluster_connections": 0,
        "maxclients": f.engine.config.maxclients(),
        "client_recent_max_input_buffer": clients.iter().map(|c| c.input_bytes()).max().unwrap_or(0),
        "client_recent_max_output_buffer": clients.iter().map(|c| c.output_bytes()).max().unwrap_or(0),
        "blocked_clients": f.engine.clients.blocked_len(),
        "tracking_clients": f.engine.tracking.clients_len(),
        "clients_in_timeout_table": f.engine.clients.blocked_with_timeout_len(),
    );
}

pub(super) fn memory(f: &Facts<'_>, out: &mut String) {
    let engine = f.engine;
    let ledger = engine.ledger();
    let m = ledger.facts;
    let memory = &engine.memory;
    let (peak, startup, limit) =
        (memory.peak_bytes(m.used_bytes), memory.startup_bytes(), memory.configured_bytes());
    let share = |purpose: Purpose| ledger.share(purpose);
    let dataset = share(Purpose::Data).min(m.used_bytes);
    let vm_bytes = memory.charged(Purpose::Scripts);
    let (scripts, scripts_bytes) = engine.scripts.size();
    let functions = engine.scripts.functions.read();
    let (lazy_pending, lazy_freed) = memory.lazily_freed();
    let backlog_bytes = engine.replication.backlog_bytes();
    let ratio = |a: u64, b: u64| format!("{:.2}", if b == 0 { 0.0 } else { a as f64 / b as f64 });
    let percent = |a: u64, b: u64| format!("{:.2}%", if b == 0 { 0.0 } else { a as f64 * 100.0 / b as f64 });
    fields!(out, "Memory",
        "used_memory": m.used_bytes,
        "used_memory_human": human(m.used_bytes),
        "used_memory_rss": m.rss_bytes,
        "used_memory_rss_human": human(m.rss_bytes),
        "used_memory_peak": peak,
        "used_memory_peak_human": human(peak),
        "used_memory_peak_perc": percent(m.used_bytes, peak),
        "used_memory_overhead": m.used_bytes - dataset,
        "used_memory_startup": startup,
        "used_memory_dataset": dataset,
        "used_memory_dataset_perc": percent(dataset, m.used_bytes.saturating_sub(startup).max(dataset)),
        "used_memory_indexes": share(Purpose::Indexes),
        "used_memory_trigrams": share(Purpose::Trigrams),
        "used_memory_regexes": share(Purpose::Regexes),
        "used_memory_clients": share(Purpose::Clients),
        "used_memory_replication": share(Purpose::Replication),
        "used_memory_jobs": share(Purpose::Jobs),
        "used_memory_lua": vm_bytes,
        "used_memory_lua_human": human(vm_bytes),
        "used_memory_vm_total": vm_bytes,
        "used_memory_vm_total_human": human(vm_bytes),
        "used_memory_scripts_eval": scripts_bytes,
        "number_of_cached_scripts": scripts,
        "number_of_functions": functions.len(),
        "number_of_libraries": functions.libraries.len(),
        "used_memory_functions": functions.code_bytes(),
        "used_memory_scripts": scripts_bytes + functions.code_bytes(),
        "used_memory_scripts_human": human((scripts_bytes + functions.code_bytes()) as u64),
        "used_memory_garbage": share(Purpose::Garbage),
        "used_memory_journal": share(Purpose::Journal),
        "used_memory_snapshots": share(Purpose::Snapshots),
        "used_memory_history": share(Purpose::History),
        "used_memory_statistics": share(Purpose::Statistics),
        "used_memory_profiler": share(Purpose::Profiler),
        "used_memory_other": ledger.other_bytes(),
        "allocator_allocated": m.allocated_bytes(),
        "mem_kept_ready": m.ready_bytes,
        "allocator_active": m.active_bytes,
        "allocator_resident": m.resident_bytes,
        "total_system_memory": m.system_bytes,
        "total_system_memory_human": human(m.system_bytes),
        "maxmemory": limit,
        "maxmemory_human": human(limit),
        "maxmemory_policy": engine.config.choice(Opt::MaxMemoryPolicy),
        "allocator_frag_ratio": ratio(m.active_bytes, m.allocated_bytes()),
        "allocator_frag_bytes": m.active_bytes.saturating_sub(m.allocated_bytes()),
        "allocator_rss_ratio": ratio(m.resident_bytes, m.active_bytes),
        "allocator_rss_bytes": m.resident_bytes.saturating_sub(m.active_bytes),
        "rss_overhead_ratio": ratio(m.rss_bytes, m.resident_bytes),
        "rss_overhead_bytes": m.rss_bytes as i64 - m.resident_bytes as i64,
        "mem_fragmentation_ratio": ratio(m.rss_bytes, m.used_bytes),
        "mem_fragmentation_bytes": m.rss_bytes as i64 - m.used_bytes as i64,
        "mem_not_counted_for_evict": engine.uncounted_bytes(),
        "mem_total_replication_buffers": share(Purpose::Replication),
        "mem_replication_backlog": backlog_bytes,
        "mem_clients_slaves": share(Purpose::Replication).saturating_sub(backlog_bytes),
        "mem_clients_normal": share(Purpose::Clients),
        "mem_aof_buffer": engine.persist.aof.pending_bytes(engine.keyspace.journal().tail()),
        "mem_allocator": engine.facts.allocator,
        "active_defrag_running": 0,
        "lazyfree_pending_objects": lazy_pending,
        "lazyfreed_objects": lazy_freed,
    );
}

pub(super) fn persistence(f: &Facts<'_>, out: &mut String) {
    out.push_str("# Persistence\r\n");
    crate::persist::info(f.engine, f.now, out);
}

pub(super) fn stats(f: &Facts<'_>, out: &mut String) {
    let stats = &f.engine.stats;
    let (ops, [input, output, replication_input, replication_output]) = {
        let rates = stats.rates.lock();
        let of_bytes = [
            &rates.input_bytes,
            &rates.output_bytes,
            &rates.replication_input_bytes,
            &rates.replication_output_bytes,
        ];
        (rates.commands.per_second(), of_bytes.map(|rate| format!("{:.2}", rate.per_second() / 1024.0)))
    };
    let (keys, items) = f.engine.tracking.remembered();
    let (over_us, over_now_us) = f.engine.memory.over_us(f.now.mono_us);
    let totals = &f.engine.replication.totals;
    fields!(out, "Stats",
        "total_connections_received": stats.get(Stat::Connections),
        "total_commands_processed": stats.get(Stat::Commands),
        "instantaneous_ops_per_sec": ops.round() as u64,
        "total_net_input_bytes": stats.get(Stat::InputBytes),
        "total_net_output_bytes": stats.get(Stat::OutputBytes),
        "total_net_repl_input_bytes": totals.input_bytes.load(Relaxed),
        "total_net_repl_output_bytes": totals.output_bytes.load(Relaxed),
        "instantaneous_input_kbps": input,
        "instantaneous_output_kbps": output,
        "instantaneous_input_repl_kbps": replication_input,
        "instantaneous_output_repl_kbps": replication_output,
        "rejected_connections": stats.get(Stat::Rejected),
        "expired_keys": f.engine.keyspace.expired_total(),
        "expired_subkeys": f.engine.keyspace.expired_fields_total(),
        "expired_time_cap_reached_count": stats.get(Stat::ExpireCapReached),
        "expire_cycle_cpu_milliseconds": stats.get(Stat::ExpireCycleUs) / 1000,
        "keyspace_hits": stats.get(Stat::KeyspaceHits),
        "keyspace_misses": stats.get(Stat::KeyspaceMisses),
        "evicted_keys": f.engine.keyspace.evicted_total(),
        "evicted_clients": stats.get(Stat::ClientEvictions),
        "total_eviction_exceeded_time": over_us / 1000,
        "current_eviction_exceeded_time": over_now_us / 1000,
        "pubsub_channels": f.engine.pubsub.channels_len(Namespace::Channel),
        "pubsub_patterns": f.engine.pubsub.patterns_len(),
        "pubsubshard_channels": f.engine.pubsub.channels_len(Namespace::Shard),
        "tracking_total_keys": keys,
        "tracking_total_items": items,
        "tracking_total_prefixes": f.engine.pubsub.prefixes_len(),
        "sync_full": totals.full.load(Relaxed),
        "sync_partial_ok": totals.partial_ok.load(Relaxed),
        "sync_partial_err": totals.partial_err.load(Relaxed),
        "slave_expires_tracked_keys": f.engine.following.own_keys.len(),
        "latest_fork_usec": 0,
        "total_forks": 0,
        "total_error_replies": stats.get(Stat::Errors),
        "total_reads_processed": stats.get(Stat::Reads),
        "client_query_buffer_limit_disconnections": stats.get(Stat::QueryLimitCloses),
        "client_output_buffer_limit_disconnections": stats.get(Stat::OutputLimitCloses),
        "client_idle_disconnections": stats.get(Stat::IdleCloses),
    );
}

pub(super) fn replication(f: &Facts<'_>, out: &mut String) {
    let figures = replication::figures(f.engine);
    fields!(out, "Replication",
        "role": if f.engine.following.is_on() { "slave" } else { "master" },
    );
    for (name, value) in following::fields(f.engine, f.now.mono_us).unwrap_or_default() {
        write!(out, "{name}:{value}\r\n").expect("a string takes everything");
    }
    lines!(out, "connected_slaves": figures.replicas.len());
    if let Some(near) = figures.near_replicas {
        lines!(out, "min_slaves_good_slaves": near);
    }
    for (name, value) in replication::replica_lines(&figures, f.now.mono_us) {
        write!(out, "{name}:{value}\r\n").expect("a string takes everything");
    }
    // The offset is the number of the first byte that the second id does not have.
    let (second_id, second_offset) = match f.engine.second_replication_id() {
        Some((id, end)) => (id, (end + 1).to_string()),
        None => ("0".repeat(40), "-1".to_owned()),
    };
    lines!(out,
        "master_failover_state": f.engine.failover_phase().name(),
        "master_replid": f.engine.replication_id.lock(),
        "master_replid2": second_id,
        "master_repl_offset": figures.offset,
        "second_repl_offset": second_offset,
        "repl_backlog_active": u8::from(figures.is_on),
        "repl_backlog_size": f.engine.config.number(Opt::ReplBacklogSize),
        "repl_backlog_first_byte_offset": figures.first_byte,
        "repl_backlog_histlen": figures.backlog_bytes,
    );
}

pub(super) fn cpu(f: &Facts<'_>, out: &mut String) {
    let cpu = f.engine.host.cpu();
    let seconds = |us: u64| format!("{}.{:06}", us / 1_000_000, us % 1_000_000);
    fields!(out, "CPU",
        "used_cpu_sys": seconds(cpu.system_us),
        "used_cpu_user": seconds(cpu.user_us),
        "used_cpu_sys_children": seconds(0),
        "used_cpu_user_children": seconds(0),
    );
}

pub(super) fn modules(_: &Facts<'_>, out: &mut String) {
    out.push_str("# Modules\r\n");
}

pub(super) fn commandstats(f: &Facts<'_>, out: &mut String) {
    out.push_str("# Commandstats\r\n");
    for (name, [calls, rejected, failed, ns]) in f.engine.stats.commands() {
        let (us, us_each) = (ns / 1000, if calls == 0 { 0.0 } else { ns as f64 / 1000.0 / calls as f64 });
        *out += &format!(
            "cmdstat_{name}:calls={calls},usec={us},usec_per_call={us_each:.2},rejected_calls={rejected},failed_calls={failed}\r\n"
        );
    }
}

pub(super) fn latencystats(f: &Facts<'_>, out: &mut String) {
    out.push_str("# Latencystats\r\n");
    let stats = &f.engine.stats;
    let percentiles = f.engine.config.text(Opt::LatencyTrackingInfoPercentiles);
    let percentiles = String::from_utf8_lossy(&percentiles).into_owned();
    let percentiles: Vec<f64> = percentiles.split_ascii_whitespace().flat_map(str::parse).collect();
    let ids = if stats.is_tracking() { 0..stats.ids.len() } else { 0..0 };
    for (id, spread) in ids.filter_map(|id| Some((id, stats.histograms.of(id)?))) {
        let shown = |p: &f64| format!("p{p}={:.3}", spread.percentile(*p) as f64 / 1000.0);
        let shown: Vec<String> = percentiles.iter().map(shown).collect();
        *out += &format!("latency_percentiles_usec_{}:{}\r\n", stats.ids.name(id), shown.join(","));
    }
}

pub(super) fn errorstats(f: &Facts<'_>, out: &mut String) {
    out.push_str("# Errorstats\r\n");
    for (code, count) in f.engine.stats.errors() {
        *out += &format!("errorstat_{code}:count={count}\r\n");
    }
}

pub(super) fn cluster(_: &Facts<'_>, out: &mut String) {
    fields!(out, "Cluster", "cluster_enabled": 0);
}

pub(super) fn keyspace(f: &Facts<'_>, out: &mut String) {
    out.push_str("# Keyspace\r\n");
    for (db, keys) in f.keys.iter().flatten() {
        if keys.all > 0 {
            let avg_ttl = keys.mean_ttl_ms(f.now.unix_ms());
            let (all, expires, subexpiry) = (keys.all, keys.expiring, keys.mortal);
            *out +=
                &format!("db{db}:keys={all},expires={expires},avg_ttl={avg_ttl},subexpiry={subexpiry}\r\n");
        }
    }
}

pub(super) fn search(f: &Facts<'_>, out: &mut String) {
    out.push_str("# Search\r\n");
    for (name, value) in f.engine.host.info_search() {
        *out += &format!("{name}:{value}\r\n");
    }
}

/// What imports did, by dataset.
pub(super) fn importstats(f: &Facts<'_>, out: &mut String) {
    out.push_str("# Importstats\r\n");
    let totals = f.engine.importers.totals(&f.engine.clients);
    for (number, (db, dataset, totals, is_running)) in totals.into_iter().enumerate() {
        *out += &format!("importstat_{number}:db={db},dataset={},runs={}", escaped(&dataset), totals.runs);
        for (name, total) in COUNTED.iter().zip(totals.counted) {
            *out += &format!(",{name}={total}");
        }
        *out += &format!(",running={}\r\n", u8::from(is_running));
    }
}

/// A name as part of a line: bytes that would end the name are in hexadecimal, after a percent sign.
fn escaped(name: &[u8]) -> String {
    let is_plain = |byte: u8| byte.is_ascii_graphic() && !b"%,=\"\\".contains(&byte);
    name.iter()
        .map(|byte| if is_plain(*byte) { char::from(*byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

/// Bytes as redis-server shortens them: `512B`, `1.47M`.
fn human(bytes: u64) -> String {
    match bytes {
        0..1024 => format!("{bytes}B"),
        _ => {
            let power = (bytes.ilog2() / 10).min(4);
            let unit = ["K", "M", "G", "T"][power as usize - 1];
            format!("{:.2}{unit}", bytes as f64 / (1u64 << (10 * power)) as f64)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::human;

    #[test]
    fn sizes_are_shortened_as_redis_does() {
        for (bytes, want) in
            [(0, "0B"), (1023, "1023B"), (1024, "1.00K"), (1_538_960, "1.47M"), (25_276_502_016, "23.54G")]
        {
            assert_eq!(human(bytes), want);
        }
    }
}
