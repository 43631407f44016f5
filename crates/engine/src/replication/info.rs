//! Replication in INFO and ROLE.

use super::{Phase, Replica};
use crate::Engine;
use std::sync::Arc;

/// The figures of INFO's section `replication`.
pub(crate) struct ReplicationFigures {
    /// The replicas, the oldest first.
    pub(crate) replicas: Vec<Arc<Replica>>,
    /// The offset of the end of the stream. 0 while replication is off.
    pub(crate) offset: u64,
    pub(crate) is_on: bool,
    /// The number of the backlog's first byte. The stream's first byte is 1.
    pub(crate) first_byte: u64,
    pub(crate) backlog_bytes: usize,
    /// Number of replicas that have acknowledged within `min-replicas-max-lag` seconds, if the options demand some.
    pub(crate) near_replicas: Option<usize>,
}

/// The figures as they are now.
pub(crate) fn figures(engine: &Engine) -> ReplicationFigures {
    let is_on = engine.replication.is_on();
    let offset = if is_on { engine.stream_end() } else { 0 };
    let state = engine.replication.state.lock();
    ReplicationFigures {
        replicas: state.replicas.clone(),
        offset,
        is_on,
        first_byte: if is_on { state.start() + 1 } else { 0 },
        backlog_bytes: state.backlog.len(),
        near_replicas: engine.near_replicas(&state),
    }
}

/// The lines of INFO about the replicas: name and value.
pub(crate) fn replica_lines(figures: &ReplicationFigures, now_us: u64) -> Vec<(String, String)> {
    let state = |phase| match phase {
        Phase::Waiting => "wait_bgsave",
        Phase::Loading => "send_bulk",
        Phase::Online | Phase::Gone => "online",
    };
    let line = |(i, replica): (usize, &Arc<Replica>)| {
        let (ip, port) = (replica.ip(), replica.facts.port);
        let is_online = replica.phase() == Phase::Online;
        let (offset, lag_s) = (replica.acked(false), if is_online { replica.lag_s(now_us) } else { 0 });
        let state = state(replica.phase());
        (format!("slave{i}"), format!("ip={ip},port={port},state={state},offset={offset},lag={lag_s}"))
    };
    figures.replicas.iter().enumerate().map(line).collect()
}
