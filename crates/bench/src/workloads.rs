//! The speed rows of `make versus`: name, kind of request, pipeline, bytes of a value. `make bisect` counts instructions of
//! the same rows.

use crate::load::{Operation, Workload};

/// Number of connections in each row.
pub const CONNECTIONS: usize = 32;

/// A row of the table of speeds.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Name of the row in tables and on command lines.
    pub name: &'static str,
    operation: Operation,
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

const fn row(name: &'static str, operation: Operation, pipeline: usize, value_bytes: usize) -> Row {
    Row { name, operation, pipeline, value_bytes }
}

/// All rows, in the order of the table.
pub const WORKLOADS: &[Row] = &[
    row("GET p30", Operation::Get, 30, 256),
    row("SET p30", Operation::Set, 30, 256),
    row("20% SET p30", Operation::Mixed, 30, 256),
    row("INCR p30", Operation::Incr, 30, 256),
    row("HSET p30", Operation::Hset, 30, 256),
    row("HSET 10 B p30", Operation::Hset, 30, 10),
    row("GET p1", Operation::Get, 1, 256),
    row("SET p1", Operation::Set, 1, 256),
    row("MGET 100 p1", Operation::Mget100, 1, 256),
    row("PING p30", Operation::Ping, 30, 256),
    row("MSET 10 p30", Operation::Mset10, 30, 3),
    row("LPUSH p30", Operation::Lpush, 30, 3),
    row("RPUSH p30", Operation::Rpush, 30, 3),
    row("LPOP p30", Operation::Lpop, 30, 3),
    row("RPOP p30", Operation::Rpop, 30, 3),
    row("LRANGE_100 p30", Operation::Lrange(100), 30, 3),
    row("LRANGE_300 p30", Operation::Lrange(300), 30, 3),
    row("LRANGE_500 p30", Operation::Lrange(500), 30, 3),
    row("LRANGE_600 p30", Operation::Lrange(600), 30, 3),
    row("LRANGE_100 p1", Operation::Lrange(100), 1, 3),
    row("SADD p30", Operation::Sadd, 30, 3),
    row("SPOP p30", Operation::Spop, 30, 3),
    row("ZADD p30", Operation::Zadd, 30, 3),
    row("ZPOPMIN p30", Operation::ZpopMin, 30, 3),
    row("XADD p30", Operation::Xadd, 30, 3),
    row("EVALSHA get p30", Operation::EvalGet, 30, 256),
    row("EVALSHA get p1", Operation::EvalGet, 1, 256),
    row("MULTI of 10", Operation::Multi10, 1, 3),
];
