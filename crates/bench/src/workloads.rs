//! The speed rows of `make versus`: name, kind of request, pipeline, bytes of a value. `make bisect` counts instructions of
//! the same rows.

use crate::load::{RequestKind, Workload};

/// Number of connections in each row.
pub const CONNECTIONS: usize = 32;

/// A row of the table of speeds.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Name of the row in tables and on command lines.
    pub name: &'static str,
    operation: RequestKind,
    pipeline: usize,
    value_bytes: usize,
}

impl Row {
    /// The workload of this row on a server with `keys` keys.
    pub fn load(&self, keys: u64) -> Workload {
        let Row { operation, pipeline, value_bytes, .. } = *self;
        Workload { operation, pipeline, connections: CONNECTIONS, keys, value_bytes }
    }
}

const fn row(name: &'static str, operation: RequestKind, pipeline: usize, value_bytes: usize) -> Row {
    Row { name, operation, pipeline, value_bytes }
}

/// All rows, in the order of the table.
pub const WORKLOADS: &[Row] = &[
    row("GET p30", RequestKind::Get, 30, 256),
    row("SET p30", RequestKind::Set, 30, 256),
    row("20% SET p30", RequestKind::Mixed, 30, 256),
    row("INCR p30", RequestKind::Incr, 30, 256),
    row("HSET p30", RequestKind::Hset, 30, 256),
    row("HSET 10 B p30", RequestKind::Hset, 30, 10),
    row("GET p1", RequestKind::Get, 1, 256),
    row("SET p1", RequestKind::Set, 1, 256),
    row("MGET 100 p1", RequestKind::Mget100, 1, 256),
    row("PING p30", RequestKind::Ping, 30, 256),
    row("MSET 10 p30", RequestKind::Mset10, 30, 3),
    row("LPUSH p30", RequestKind::Lpush, 30, 3),
    row("RPUSH p30", RequestKind::Rpush, 30, 3),
    row("LPOP p30", RequestKind::Lpop, 30, 3),
    row("RPOP p30", RequestKind::Rpop, 30, 3),
    row("LRANGE_100 p30", RequestKind::Lrange(100), 30, 3),
    row("LRANGE_300 p30", RequestKind::Lrange(300), 30, 3),
    row("LRANGE_500 p30", RequestKind::Lrange(500), 30, 3),
    row("LRANGE_600 p30", RequestKind::Lrange(600), 30, 3),
    row("LRANGE_100 p1", RequestKind::Lrange(100), 1, 3),
    row("SADD p30", RequestKind::Sadd, 30, 3),
    row("SPOP p30", RequestKind::Spop, 30, 3),
    row("ZADD p30", RequestKind::Zadd, 30, 3),
    row("ZPOPMIN p30", RequestKind::ZpopMin, 30, 3),
    row("XADD p30", RequestKind::Xadd, 30, 3),
    row("EVALSHA get p30", RequestKind::EvalGet, 30, 256),
    row("EVALSHA get p1", RequestKind::EvalGet, 1, 256),
    row("MULTI of 10", RequestKind::Multi10, 1, 3),
];
