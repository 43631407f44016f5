//! [`SessionSettings`]: a session's copy of the configuration, read again when it changes.

use crate::Engine;
use crate::config::Opt;
use strand_wire::pack4;
use strand_wire::resp::Limits;

/// From this `slowlog-log-slower-than` on, commands of constant cost with small arguments may be timed together: they take a
/// microsecond or two.
const SHARED_LAP_US_MIN: i64 = 1000;

/// The most bytes of a command that, at constant cost, takes no longer than others.
const SHARED_LAP_BYTES_MAX: usize = 1 << 20;

/// What every turn needs of the configuration.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SessionSettings {
    generation: u64,
    /// Whoever is not authenticated may do nothing.
    pub(crate) password: bool,
    /// The default user has a password, or none will do.
    pub(crate) default_password: bool,
    /// `protected-mode`.
    pub(crate) protects: bool,
    pub(crate) timeout_us: u64,
    /// `login-timeout`; 0 is never.
    pub(crate) login_timeout_us: u64,
    pub(crate) query_bytes_max: usize,
    /// `client-output-buffer-limit` of class normal, and of class pubsub.
    output: [OutputLimit; 2],
    /// The hard limit of class normal as the bound of a reply: one command alone must not go past it either.
    pub(crate) reply_bytes_max: usize,
    bulk_bytes_max: usize,
    /// Commands with more bytes than this are timed by themselves.
    pub(crate) shared_lap_bytes_max: usize,
}

/// One class of `client-output-buffer-limit`; 0 is no limit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OutputLimit {
    pub(crate) hard_bytes: usize,
    pub(crate) soft_bytes: usize,
    pub(crate) soft_us: u64,
}

impl OutputLimit {
    fn of([hard, soft, soft_seconds]: [u64; 3]) -> OutputLimit {
        OutputLimit {
            hard_bytes: hard as usize,
            soft_bytes: soft as usize,
            soft_us: soft_seconds.saturating_mul(1_000_000),
        }
    }
}

impl SessionSettings {
    pub(crate) fn of(engine: &Engine) -> SessionSettings {
        let config = &engine.config;
        // The generation first: a change that comes between is then seen as a change.
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
        }
    }
    /// What may wait for a client; who has subscribed to something is of class pubsub.
    #[inline]
    pub(crate) fn output(&self, subscribed: bool) -> &OutputLimit {
        &self.output[usize::from(subscribed)]
    }
    /// True when the configuration has changed since.
    #[inline]
    pub(crate) fn is_stale(&self, engine: &Engine) -> bool {
        self.generation != engine.config.generation()
    }
    /// The decoder's limits.
    pub(crate) fn limits(&self, authenticated: bool) -> Limits {
        Limits {
            bulk_bytes_max: self.bulk_bytes_max,
            authenticated: authenticated || !self.password,
            ..Limits::FULL
        }
    }
    /// The longest frame: what may be held of a request, less the length itself.
    pub(crate) fn frame_bytes_max(&self) -> usize {
        self.query_bytes_max.saturating_sub(pack4::LENGTH_BYTES)
    }
}
