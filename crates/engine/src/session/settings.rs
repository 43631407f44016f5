//! [`SessionSettings`]: a session's copy of the configuration. The session reads it again after a change.

use crate::Engine;
use crate::config::Opt;
use strand_wire::pack4;
use strand_wire::resp::RequestLimits;

/// When `slowlog-log-slower-than` is at least this, commands of constant cost with small arguments may be timed
/// together, because each takes only one or two microseconds.
const SHARED_LAP_US_MIN: i64 = 1000;

/// A command of constant cost with at most this many bytes takes no longer than with few bytes.
const SHARED_LAP_BYTES_MAX: usize = 1 << 20;

/// The configuration values that every turn needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SessionSettings {
    generation: u64,
    /// True when a client must authenticate first.
    pub(crate) password: bool,
    /// True when the default user needs a password, or cannot log in.
    pub(crate) default_password: bool,
    /// The option `protected-mode`.
    pub(crate) protects: bool,
    pub(crate) timeout_us: u64,
    /// The option `login-timeout` in microseconds. 0: never.
    pub(crate) login_timeout_us: u64,
    pub(crate) query_bytes_max: usize,
    /// `client-output-buffer-limit`, by [`OutputClass`].
    output: [OutputLimit; 3],
    /// The hard limit of class normal. It also bounds a single reply.
    pub(crate) reply_bytes_max: usize,
    bulk_bytes_max: usize,
    /// `maxmemory-clients`, if that limit is set.
    pub(crate) clients_bytes_max: Option<u64>,
    /// Commands with more bytes than this are timed alone.
    pub(crate) shared_lap_bytes_max: usize,
}

/// The classes of `client-output-buffer-limit`, in the option's order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OutputClass {
    Normal,
    Replica,
    /// A client with subscriptions.
    PubSub,
}

impl OutputClass {
    /// The class's name in the option.
    pub(crate) fn name(self) -> &'static str {
        match self {
            OutputClass::Normal => "normal",
            OutputClass::Replica => "replica",
            OutputClass::PubSub => "pubsub",
        }
    }
}

/// The limits of one class. 0: no limit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OutputLimit {
    pub(crate) hard_bytes: usize,
    pub(crate) soft_bytes: usize,
    pub(crate) soft_us: u64,
}

/// Number of bytes of output that do not count against a limit. redis-server does not count the 16 KiB of a client's
/// fixed buffer (PROTO_REPLY_CHUNK_BYTES).
const UNCOUNTED_BYTES: u64 = 16 << 10;

/// Beyond the fixed buffer, redis-server keeps output in blocks of this many bytes: 16 KiB, made larger by its allocator.
const BLOCK_BYTES: u64 = 20_464;

/// What one block counts against a limit: its bytes, a list node of 24 bytes and a header of 16 bytes. A block counts
/// in full as soon as it has one byte.
const BLOCK_COUNTED_BYTES: u64 = BLOCK_BYTES + 40;

impl OutputLimit {
    fn of([hard, soft, soft_seconds]: [u64; 3]) -> OutputLimit {
        OutputLimit {
            hard_bytes: waiting_bytes(hard),
            soft_bytes: waiting_bytes(soft),
            soft_us: soft_seconds.saturating_mul(1_000_000),
        }
    }
}

/// Number of waiting bytes that reach a configured limit, counted in blocks as redis-server counts. 0: no limit.
fn waiting_bytes(limit: u64) -> usize {
    if limit == 0 {
        return 0;
    }
    let full_blocks = limit.div_ceil(BLOCK_COUNTED_BYTES) - 1;
    (UNCOUNTED_BYTES + full_blocks * BLOCK_BYTES + 1) as usize
}

impl SessionSettings {
    pub(crate) fn of(engine: &Engine) -> SessionSettings {
        let config = &engine.config;
        // The generation is read first, so that a change during the reading is noticed later.
        let generation = config.generation();
        let slow_us = config.number(Opt::SlowlogLogSlowerThan);
        let mut output = config.output_limits().map(OutputLimit::of);
        // As in redis-server, a replica may be sent the whole backlog.
        let backlog_bytes = config.number(Opt::ReplBacklogSize) as usize;
        let of_replicas = &mut output[OutputClass::Replica as usize].hard_bytes;
        *of_replicas = if *of_replicas == 0 { 0 } else { (*of_replicas).max(backlog_bytes) };
        let normal = &output[OutputClass::Normal as usize];
        SessionSettings {
            generation,
            password: engine.needs_password(),
            default_password: !engine.acl.default_user().needs_no_password(),
            protects: config.number(Opt::ProtectedMode) == 1,
            timeout_us: config.timeout_s() * 1_000_000,
            login_timeout_us: config.number(Opt::LoginTimeout) as u64 * 1_000_000,
            query_bytes_max: config.query_bytes_max(),
            output,
            reply_bytes_max: if normal.hard_bytes == 0 { usize::MAX } else { normal.hard_bytes },
            shared_lap_bytes_max: match slow_us {
                0..SHARED_LAP_US_MIN => 0,
                _ => SHARED_LAP_BYTES_MAX,
            },
            bulk_bytes_max: config.number(Opt::ProtoMaxBulkLen) as usize,
            clients_bytes_max: engine.clients_bytes_max(),
        }
    }
    /// The limits on the output of a client of this class.
    #[inline]
    pub(crate) fn output(&self, class: OutputClass) -> &OutputLimit {
        &self.output[class as usize]
    }
    /// True when the configuration has changed since the copy was made.
    #[inline]
    pub(crate) fn is_stale(&self, engine: &Engine) -> bool {
        self.generation != engine.config.generation()
    }
    /// The decoder's limits.
    pub(crate) fn limits(&self, authenticated: bool) -> RequestLimits {
        RequestLimits {
            bulk_bytes_max: self.bulk_bytes_max,
            authenticated: authenticated || !self.password,
            ..RequestLimits::FULL
        }
    }
    /// The longest frame: the limit on a request's bytes, less the length field.
    pub(crate) fn frame_bytes_max(&self) -> usize {
        self.query_bytes_max.saturating_sub(pack4::LENGTH_BYTES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_counts_in_blocks_as_in_redis() {
        assert_eq!(waiting_bytes(0), 0);
        // One byte beyond the fixed buffer makes the first block, which reaches every limit up to its size.
        assert_eq!((waiting_bytes(1), waiting_bytes(20_504)), (16_385, 16_385));
        // The second block reaches a limit of one byte more.
        assert_eq!(waiting_bytes(20_505), 16_384 + 20_464 + 1);
        // 100 KiB are reached with the fifth block.
        assert_eq!(waiting_bytes(100 << 10), 16_384 + 4 * 20_464 + 1);
        assert!(waiting_bytes(u64::MAX) > usize::MAX / 2);
    }
}
