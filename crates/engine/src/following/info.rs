//! Following in INFO and ROLE.

use super::{Phase, State};
use crate::Engine;
use crate::config::Opt;

/// The fields of INFO about the primary. `None` when this server follows no other.
pub(crate) fn fields(engine: &Engine, now_us: u64) -> Option<Vec<(&'static str, String)>> {
    let state = engine.following.state.lock();
    let (host, port) = shown_primary(engine, &state)?;
    let seconds = |since_us: u64| now_us.saturating_sub(since_us) / 1_000_000;
    let is_up = state.phase == Phase::Connected;
    let is_syncing = state.phase == Phase::Snapshot;
    let offset = state.position.offset;
    let read_offset = if is_up { offset.max(state.read_offset) } else { offset };
    let mut fields = vec![
        ("master_host", host),
        ("master_port", port.to_string()),
        ("master_link_status", if is_up { "up" } else { "down" }.into()),
        ("master_last_io_seconds_ago", if is_up { seconds(state.heard_us).to_string() } else { "-1".into() }),
        ("master_sync_in_progress", u8::from(is_syncing).to_string()),
        ("slave_read_repl_offset", read_offset.to_string()),
        ("slave_repl_offset", offset.to_string()),
    ];
    if is_syncing {
        let all = state.snapshot_bytes_all;
        let here = state.snapshot_bytes;
        let left = all.map_or(-1, |all| all.saturating_sub(here) as i64);
        fields.extend([
            ("master_sync_total_bytes", all.map_or(-1, |all| all as i64).to_string()),
            ("master_sync_read_bytes", here.to_string()),
            ("master_sync_left_bytes", left.to_string()),
            ("master_sync_last_io_seconds_ago", seconds(state.heard_us).to_string()),
        ]);
    }
    if !is_up {
        let down = state.down_since_us.map_or("-1".into(), |since_us| seconds(since_us).to_string());
        fields.push(("master_link_down_since_seconds", down));
    }
    fields.extend([
        ("slave_priority", engine.config.number(Opt::ReplicaPriority).to_string()),
        ("slave_read_only", engine.config.number(Opt::ReplicaReadOnly).to_string()),
        ("replica_announced", engine.config.number(Opt::ReplicaAnnounced).to_string()),
    ]);
    Some(fields)
}

/// The primary whose stream does not arrive: its host, its port, and since when (on the clock of [`Now::mono_us`]). `None`
/// for the time: it never did. `None`: all is well, a snapshot arrives, or this server follows no other.
///
/// [`Now::mono_us`]: crate::Now::mono_us
pub(crate) fn unreachable_primary(engine: &Engine) -> Option<(String, u16, Option<u64>)> {
    let state = engine.following.state.lock();
    let (host, port) = state.primary.clone()?;
    matches!(state.phase, Phase::Down | Phase::Connecting).then_some((host, port, state.down_since_us))
}

/// What ROLE replies about the primary: host, port, state and offset. `None` when this server follows no other.
pub(crate) fn role(engine: &Engine) -> Option<(String, u16, &'static str, i64)> {
    let state = engine.following.state.lock();
    let (host, port) = shown_primary(engine, &state)?;
    let (text, offset) = match state.phase {
        Phase::Down => ("connect", -1),
        Phase::Connecting => ("connecting", -1),
        Phase::Snapshot => ("sync", -1),
        Phase::Connected => ("connected", state.position.offset as i64),
    };
    Some((host, port, text, offset))
}

/// The primary that INFO and ROLE show. REPLICAOF NO ONE may wait for a script that writes. Until then, this server is a
/// replica without a connection.
fn shown_primary(engine: &Engine, state: &State) -> Option<(String, u16)> {
    let former = || state.former.clone().filter(|_| engine.following.is_on());
    state.primary.clone().or_else(former)
}
