//! MONITOR: clients that get every command of all clients.
//!
//! A command is sent once, after its gates, with its arguments except passwords ([`crate::slowlog`]). The line is made
//! once and shared by all receivers. It waits in the receivers' inboxes, which are bounded.

use crate::clients::Client;
use crate::pubsub::Frame;
use crate::slowlog::is_secret;
use crate::{Engine, Now};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use strand_commands::spec::{CommandSpec, Flags};
use strand_wire::args::Args;
use strand_wire::quote::quoted;

/// Maximum number of bytes of arguments in a line of MONITOR.
const LINE_BYTES_MAX: usize = 1 << 20;
/// Maximum number of waiting bytes for a MONITOR client when `client-output-buffer-limit normal` sets no limit.
pub(crate) const OUTPUT_BYTES_MAX: usize = 64 << 20;

/// The clients in MONITOR.
#[derive(Default)]
pub(crate) struct Monitors {
    watching: Mutex<Vec<Arc<Client>>>,
    len: AtomicUsize,
}

impl Monitors {
    /// True when a client is in MONITOR.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        self.len.load(Relaxed) > 0
    }
    /// Adds a client that enters MONITOR.
    pub(crate) fn add(&self, client: &Arc<Client>) {
        let mut watching = self.watching.lock();
        watching.push(client.clone());
        self.len.store(watching.len(), Relaxed);
    }
    /// Removes a client that leaves MONITOR.
    pub(crate) fn remove(&self, id: u64) {
        let mut watching = self.watching.lock();
        watching.retain(|client| client.id != id);
        self.len.store(watching.len(), Relaxed);
    }
}

/// The caller of a command.
#[derive(Clone, Copy)]
pub(crate) enum Caller<'a> {
    /// A client.
    Client(&'a Client),
    /// A script.
    Script,
}

impl Engine {
    /// Sends a called command to the clients in MONITOR.
    #[cold]
    pub(crate) fn send_to_monitors(
        &self,
        spec: &CommandSpec,
        args: Args<'_>,
        db: usize,
        caller: Caller<'_>,
        now: Now,
    ) {
        // As in redis-server, administrators' commands are not shown.
        if spec.flags.has(Flags::ADMIN) {
            return;
        }
        let later_us = self.host.mono_us().saturating_sub(now.mono_us);
        let unix_us = now.unix_us.saturating_add_unsigned(later_us);
        let who = match caller {
            Caller::Client(client) => client.peer.shown_in_monitor(),
            Caller::Script => "lua".into(),
        };
        let frame = Frame::line(&line(unix_us, db, &who, args));
        self.monitors.watching.lock().iter().for_each(|client| client.push_frame(frame.clone()));
    }
}

/// A line: time, database, caller, and the quoted arguments.
fn line(unix_us: i64, db: usize, who: &str, args: Args<'_>) -> Vec<u8> {
    let (s, us) = (unix_us.div_euclid(1_000_000), unix_us.rem_euclid(1_000_000));
    let mut out = format!("+{s}.{us:06} [{db} {who}]").into_bytes();
    let mut left = LINE_BYTES_MAX;
    for i in 0..args.len() {
        if left == 0 {
            let more = format!(" ... ({} more arguments)", args.len() - i);
            out.extend_from_slice(more.as_bytes());
            break;
        }
        let whole = if is_secret(args, i) { b"(redacted)" } else { args.at(i) };
        let shown = &whole[..whole.len().min(left)];
        // An empty argument counts as one byte.
        left = left.saturating_sub(shown.len().max(1));
        out.push(b' ');
        quoted(&mut out, shown);
        if shown.len() < whole.len() {
            let more = format!("... ({} more bytes)", whole.len() - shown.len());
            out.extend_from_slice(more.as_bytes());
        }
    }
    out.extend_from_slice(b"\r\n");
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use strand_wire::args::Argv;

    #[test]
    fn a_line_is_what_redis_says_and_bounded() {
        let argv = Argv::from_slices(&[&b"SET"[..], b"a b\"\\", b"\x00\xff\n\r\t\x07\x08\x1f"]);
        let text = String::from_utf8(line(1_700_000_000_000_007, 3, "1.2.3.4:5", argv.args())).expect("text");
        assert_eq!(
            text,
            "+1700000000.000007 [3 1.2.3.4:5] \"SET\" \"a b\\\"\\\\\" \"\\x00\\xff\\n\\r\\t\\a\\b\\x1f\"\r\n"
        );
        let argv = Argv::from_slices(&[b"SET".to_vec(), vec![b'x'; 2 << 20], b"k".to_vec()]);
        let long = line(0, 0, "lua", argv.args());
        assert!(
            long.ends_with(b"x\"... (1048579 more bytes) ... (1 more arguments)\r\n") && long.len() < 2 << 20
        );
        let argv = Argv::from_slices(&["hello", "2", "auth", "user", "secret"]);
        let text = String::from_utf8(line(0, 0, "lua", argv.args())).expect("text");
        assert!(text.ends_with("\"hello\" \"2\" \"auth\" \"(redacted)\" \"(redacted)\"\r\n"), "{text}");
    }
}
