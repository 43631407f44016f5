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
    /// `client-output-buffer-limit` of class normal, and of class pubsub.
    output: [OutputLimit; 2],
    /// The hard limit of class normal. It also bounds a single reply.
    pub(crate) reply_bytes_max: usize,
    bulk_bytes_max: usize,
    /// `maxmemory-clients`, if that limit is set.
    pub(crate) clients_bytes_max: Option<u64>,
    /// Commands with more bytes than this are timed alone.
    pub(crate) shared_lap_bytes_max: usize,
}

/// One class of `client-output-buffer-limit`. 0: no limit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OutputLimit {
    pub(crate) hard_bytes: usize,
    pub(crate) soft_bytes: usize,
    pub(crate) soft_us: u64,
}

/// Number of bytes of output that do not count against a limit. redis-server does not count the 16 KiB of a client's
/// fixed buffer (PROTO_REPLY_CHUNK_BYTES).
const UNCOUNTED_BYTES: u64 = 16 << 10;

impl OutputLimit {
    fn of([hard, soft, soft_seconds]: [u64; 3]) -> OutputLimit {
        let bytes = |limit: u64| if limit == 0 { 0 } else { limit.saturating_add(UNCOUNTED_BYTES) as usize };
        OutputLimit {
            hard_bytes: bytes(hard),
            soft_bytes: bytes(soft),
            soft_us: soft_seconds.saturating_mul(1_000_000),
        }
    }
}

impl SessionSettings {
    pub(crate) fn of(engine: &Engine) -> SessionSettings {
        let config = &engine.config;
        // The generation is read first, so that a change during the reading is noticed later.
        let generation = config.generation();
        let slow_us = config.number(Opt::SlowlogLogSlowerThan);
        let [normal, _, pubsub] = config.output_limits().map(OutputLimit::of);
        SessionSettings {
            generation,
            password: engine.needs_password(),
            default_password: !engine.acl.default_user().needs_no_password(),
            protects: config.number(Opt::ProtectedMode) == 1,
            timeout_us: config.timeout_s() * 1_000_000,
            login_timeout_us: config.number(Opt::LoginTimeout) as u64 * 1_000_000,
            query_bytes_max: config.number(Opt::ClientQueryBufferLimit) as usize,
            output: [normal, pubsub],
            reply_bytes_max: if normal.hard_bytes == 0 { usize::MAX } else { normal.hard_bytes },
            shared_lap_bytes_max: match slow_us {
                0..SHARED_LAP_US_MIN => 0,
                _ => SHARED_LAP_BYTES_MAX,
            },
            bulk_bytes_max: config.number(Opt::ProtoMaxBulkLen) as usize,
            clients_bytes_max: engine.clients_bytes_max(),
        }
    }
    /// The limits on output for the client. A client with subscriptions is in class pubsub.
    #[inline]
    pub(crate) fn output(&self, subscribed: bool) -> &OutputLimit {
        &self.output[usize::from(subscribed)]
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
