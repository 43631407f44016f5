//! MEMORY STATS, DOCTOR, PURGE, MALLOC-STATS. All run on a helper thread, because they ask every client or the
//! allocator.

use crate::Engine;
use crate::memory::Purpose;
use strand_wire::reply::{ErrorText, Reply};

/// Below this much memory DOCTOR reports nothing, as in redis-server.
const EXAMINED_BYTES_MIN: u64 = 5 << 20;
/// DOCTOR reports a peak when the ratio of the peak to the used memory is above this.
const PEAK_RATIO_MAX: f64 = 1.5;
/// DOCTOR reports that pages are held in excess when the ratio of held pages to allocated bytes is above this.
const FRAGMENTATION_RATIO_MAX: f64 = 1.4;
/// DOCTOR reports clients whose requests and replies take more than this number of bytes per client.
const CLIENT_BYTES_MAX: u64 = 200 << 10;

/// Runs MEMORY DOCTOR.
pub(super) fn doctor(engine: &Engine, reply: &mut Reply<'_>) -> Result<(), ErrorText> {
    reply.verbatim("txt", remarks(engine).as_bytes());
    Ok(())
}

/// Runs MEMORY MALLOC-STATS.
pub(super) fn malloc_stats(engine: &Engine, reply: &mut Reply<'_>) -> Result<(), ErrorText> {
    reply.verbatim("txt", engine.host.allocator_report().as_bytes());
    Ok(())
}

/// Runs MEMORY PURGE.
pub(super) fn purge(engine: &Engine, reply: &mut Reply<'_>) -> Result<(), ErrorText> {
    engine.host.purge_memory();
    reply.ok();
    Ok(())
}

fn ratio(a: u64, b: u64) -> f64 {
    if b == 0 { 0.0 } else { a as f64 / b as f64 }
}

/// Runs MEMORY STATS.
pub(super) fn stats(engine: &Engine, reply: &mut Reply<'_>) -> Result<(), ErrorText> {
    let (ledger, memory) = (engine.ledger(), &engine.memory);
    let facts = ledger.facts;
    let used = facts.used_bytes;
    let share = |purpose: Purpose| ledger.share(purpose);
    let (peak, startup) = (memory.peak_bytes(used), memory.startup_bytes());
    let data = share(Purpose::Data).min(used);
    let keys: u64 = engine.keyspace.in_use().values().map(|keys| keys.all as u64).sum();
    let grown = used.saturating_sub(startup).max(data);
    let backlog = engine.replication.backlog_bytes();
    let whole = [
        ("peak.allocated", peak),
        ("total.allocated", used),
        ("startup.allocated", startup),
        ("replication.backlog", backlog),
        ("clients.slaves", share(Purpose::Replication).saturating_sub(backlog)),
        ("clients.normal", share(Purpose::Clients)),
        ("cluster.links", 0),
        ("aof.buffer", share(Purpose::Journal)),
        ("lua.caches", share(Purpose::Scripts)),
        ("functions.caches", 0),
        ("indexes", share(Purpose::Indexes)),
        ("trigrams", share(Purpose::Trigrams)),
        ("regexes", share(Purpose::Regexes)),
        ("jobs", share(Purpose::Jobs)),
        ("garbage", share(Purpose::Garbage)),
        ("snapshots", share(Purpose::Snapshots)),
        ("history", share(Purpose::History)),
        ("statistics", share(Purpose::Statistics)),
        ("profiler", share(Purpose::Profiler)),
        ("overhead.total", used - data),
        ("keys.count", keys),
        ("keys.bytes-per-key", data.checked_div(keys).unwrap_or(0)),
        ("dataset.bytes", data),
        ("allocator.allocated", facts.allocated_bytes()),
        ("kept.ready", facts.ready_bytes),
        ("allocator.active", facts.active_bytes),
        ("allocator.resident", facts.resident_bytes),
    ];
    let parts = [
        ("dataset.percentage", ratio(data, grown) * 100.0),
        ("peak.percentage", ratio(used, peak) * 100.0),
        ("allocator-fragmentation.ratio", ratio(facts.active_bytes, facts.allocated_bytes())),
        ("allocator-rss.ratio", ratio(facts.resident_bytes, facts.active_bytes)),
        ("rss-overhead.ratio", ratio(facts.rss_bytes, facts.resident_bytes)),
        ("fragmentation", ratio(facts.rss_bytes, used)),
    ];
    let differences = [
        ("allocator-fragmentation.bytes", facts.active_bytes, facts.allocated_bytes()),
        ("allocator-rss.bytes", facts.resident_bytes, facts.active_bytes),
        ("rss-overhead.bytes", facts.rss_bytes, facts.resident_bytes),
        ("fragmentation.bytes", facts.rss_bytes, used),
        ("other.bytes", used, used.saturating_add_signed(-ledger.other_bytes())),
    ];
    let in_use = engine.keyspace.in_use().into_iter().filter(|(_, keys)| keys.all > 0);
    let databases: Vec<usize> = in_use.map(|(db, _)| db).collect();
    reply.map(whole.len() + databases.len() + parts.len() + differences.len());
    for (name, bytes) in whole {
        if name == "overhead.total" {
            databases.iter().for_each(|db| database(engine, *db, reply));
        }
        reply.bulk(name.as_bytes());
        reply.int(bytes as i64);
    }
    for (name, part) in parts {
        reply.bulk(name.as_bytes());
        reply.double(part);
    }
    for (name, a, b) in differences {
        reply.bulk(name.as_bytes());
        reply.int(a as i64 - b as i64);
    }
    Ok(())
}

/// Memory of a database's tables besides keys and values. The fields for expiries and slots are 0, because an expiry
/// is in its record and Strand has no slots.
fn database(engine: &Engine, db: usize, reply: &mut Reply<'_>) {
    let shape = engine.keyspace.shape(db);
    let main = shape.heap_bytes.saturating_sub(shape.entries_bytes);
    reply.bulk(format!("db.{db}").as_bytes());
    reply.map(3);
    for (name, bytes) in [("main", main), ("expires", 0), ("slot-to-keys", 0)] {
        reply.bulk(format!("overhead.hashtable.{name}").as_bytes());
        reply.int(bytes as i64);
    }
}

/// Remarks about the memory, as text.
fn remarks(engine: &Engine) -> String {
    let ledger = engine.ledger();
    let facts = ledger.facts;
    let used = facts.used_bytes;
    if used < EXAMINED_BYTES_MIN {
        return "The server uses too little memory for a report.\n".into();
    }
    let mut found = String::new();
    let mut note = |holds: bool, text: String| {
        if holds {
            found += &format!(" * {text}\n");
        }
    };
    let peak = engine.memory.peak_bytes(used);
    note(
        ratio(peak, used) > PEAK_RATIO_MAX,
        format!(
            "Peak: up to {peak} bytes were in use, and {used} bytes are in use now. Freed pages go back to the system slowly; \
             MEMORY PURGE gives them back at once."
        ),
    );
    let fragmentation = ratio(facts.resident_bytes, used);
    note(
        fragmentation > FRAGMENTATION_RATIO_MAX,
        format!("Fragmentation: the allocator holds {fragmentation:.2} bytes for each one given out."),
    );
    let clients = engine.clients.len() as u64;
    let buffers = ledger.share(Purpose::Clients);
    note(
        buffers.checked_div(clients).is_some_and(|each| each > CLIENT_BYTES_MAX),
        format!(
            "Clients: {buffers} bytes wait in the buffers of {clients} clients. Do they read their replies? See \
             CLIENT LIST."
        ),
    );
    let over = engine.memory.over_bytes(ledger.share(Purpose::Data));
    note(
        over > 0 && !engine.memory.is_limit_passing(),
        format!(
            "Limit: memory use exceeds maxmemory by {over} bytes. Raise maxmemory, or choose a maxmemory-policy that can \
             evict keys."
        ),
    );
    match found.is_empty() {
        true => "No problem of memory use was found.\n".into(),
        false => format!("Problems of memory use:\n{found}"),
    }
}
