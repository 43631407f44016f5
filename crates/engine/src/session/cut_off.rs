//! The end of clients because of a limit. The log names them.
//!
//! A line has the client, the limit, and what the client holds, but nothing of its requests and replies. The number of lines
//! is limited ([`crate::limited_lines`]), because hundreds of slow subscribers may be closed in one second.

use super::settings::OutputClass;
use super::{Session, Turn};
use crate::clients::Client;
use crate::config::Opt;
use crate::stats::Stat;
use crate::{Engine, monitors};
use std::fmt::{Display, Formatter, Result};

/// Maximum number of characters of a name that are logged.
const NAME_CHARS_MAX: usize = 128;

/// Why a client is closed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum CutOff {
    /// `client-output-buffer-limit`. `is_soft`: the client was over the soft limit for too long.
    Output { class: OutputClass, is_soft: bool, waiting_bytes: u64 },
    /// `client-query-buffer-limit`: the unfinished request, or the commands queued since MULTI, are too large.
    Query { held_bytes: u64 },
    /// `maxmemory-clients`. `all_bytes`: what all clients held.
    Memory { held_bytes: u64, all_bytes: u64, bytes_max: u64 },
}

impl Session {
    /// Ends the session because its hard limit of output is reached with this number of bytes.
    pub(super) fn abort_over_output_limit(&mut self, waiting_bytes: usize) {
        self.abort_over_output(waiting_bytes, false);
    }
    pub(super) fn abort_over_output(&mut self, waiting_bytes: usize, is_soft: bool) {
        self.engine.stats.add(self.slot(), Stat::OutputLimitCloses, 1);
        let waiting_bytes = waiting_bytes as u64;
        let why = CutOff::Output { class: self.output_class(), is_soft, waiting_bytes };
        self.engine.log_cut_off(&self.client, why);
        self.abort_because("the limit of output is reached");
    }
    /// Enforces `client-query-buffer-limit`: queued commands count towards it.
    pub(super) fn abort_over_query_limit(&mut self, held_bytes: usize) -> Turn {
        self.engine.stats.add(self.slot(), Stat::QueryLimitCloses, 1);
        self.engine.log_cut_off(&self.client, CutOff::Query { held_bytes: held_bytes as u64 });
        self.abort_because("the limit of requests is reached");
        Turn::Abort
    }
    /// Ends the session at once. `why` is for the log.
    pub(super) fn abort_because(&mut self, why: &'static str) {
        self.abort();
        self.abort_reason = why;
    }
}

impl Engine {
    /// Logs that this client is closed.
    #[cold]
    pub(crate) fn log_cut_off(&self, client: &Client, why: CutOff) {
        // Replicas are few, and each of them matters.
        let is_replica = matches!(why, CutOff::Output { class: OutputClass::Replica, .. });
        if !is_replica && !self.cut_offs.may_log(&*self.host) {
            return;
        }
        let line = format!("Closed client {}: {}", Who(client), self.reason(why));
        match why {
            // As in redis-server, this is no warning: the limit does its work.
            CutOff::Memory { .. } => self.host.log(&line),
            CutOff::Output { .. } | CutOff::Query { .. } => self.host.warn(&line),
        }
    }
    fn reason(&self, why: CutOff) -> String {
        match why {
            CutOff::Output { class, is_soft, waiting_bytes } => {
                let [hard, soft, seconds] = self.config.output_limits()[class as usize];
                let name = class.name();
                let limit = match is_soft {
                    true => format!("over the soft limit of {soft} bytes for more than {seconds} s"),
                    false if hard == 0 => {
                        format!("the limit of {} bytes is reached", monitors::OUTPUT_BYTES_MAX)
                    }
                    false => format!("the hard limit of {hard} bytes is reached"),
                };
                format!(
                    "more output waits than is allowed: {waiting_bytes} bytes, {limit} (client-output-buffer-limit {name})"
                )
            }
            CutOff::Query { held_bytes } => {
                let bytes_max = self.config.number(Opt::ClientQueryBufferLimit);
                format!(
                    "its unfinished request or transaction has {held_bytes} bytes, at most {bytes_max} bytes are allowed \
                     (client-query-buffer-limit)"
                )
            }
            CutOff::Memory { held_bytes, all_bytes, bytes_max } => format!(
                "it held {held_bytes} bytes, and all clients held {all_bytes} bytes, at most {bytes_max} bytes are allowed \
                 (maxmemory-clients)"
            ),
        }
    }
}

/// A client in a line.
struct Who<'c>(&'c Client);

impl Display for Who<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let (client, texts) = (self.0, self.0.texts());
        let short =
            |text: &str| text.chars().take(NAME_CHARS_MAX).collect::<String>().escape_debug().to_string();
        let (addr, class) = (&client.peer.addr, client.class());
        let (name, user) = (short(&texts.name), short(&texts.user));
        write!(f, "id={} addr={addr} name={name} user={user} class={class}", client.id)
    }
}
