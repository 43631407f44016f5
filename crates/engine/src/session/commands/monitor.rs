//! MONITOR: this client gets every command from now on.

use super::{DONE, Outcome, Session};
use crate::Now;
use crate::monitors::Caller;
use crate::session::session_command::{CommandKind, kind_of};
use std::sync::atomic::Ordering::Relaxed;
use strand_commands::spec::CommandSpec;
use strand_keyspace::types::string::parse_int;

impl Session {
    pub(super) fn monitor(&mut self) -> Outcome {
        if self.in_exec() {
            return Err("ERR MONITOR isn't allowed for DENY BLOCKING client".into());
        }
        // As in redis-server, a client in MONITOR gets no reply.
        if self.is_monitor() {
            return DONE;
        }
        self.reply().ok();
        self.client.is_monitor.store(true, Relaxed);
        self.update_inbox_limit();
        self.engine.monitors.add(&self.client);
        self.update_guard();
        DONE
    }
    /// True when the client is in MONITOR.
    pub(in crate::session) fn is_monitor(&self) -> bool {
        self.client.is_monitor.load(Relaxed)
    }
    /// Ends MONITOR, for RESET or at the end of the session. Lines that arrived before come before the reply.
    pub(in crate::session) fn leave_monitor(&mut self) {
        if self.client.is_monitor.swap(false, Relaxed) {
            self.engine.monitors.remove(self.client.id);
            self.take_messages();
            self.update_inbox_limit();
            self.update_guard();
        }
    }
    /// Sends the current command, which is about to run, to the MONITOR clients, once. EXEC is sent when it is done.
    #[cold]
    pub(in crate::session) fn send_to_monitors(&mut self, spec: &CommandSpec, now: Now) {
        if std::mem::replace(&mut self.retry.sent_to_monitors, true) || kind_of(spec) == CommandKind::Exec {
            return;
        }
        // As in redis-server, RESET is not shown to its own client, which is no longer in MONITOR.
        if kind_of(spec) == CommandKind::Reset {
            self.leave_monitor();
        }
        let args = self.argv.args();
        // As in redis-server, SELECT is shown with its new database.
        let selected = match kind_of(spec) {
            CommandKind::Select => parse_int(args.at(1)).and_then(|db| usize::try_from(db).ok()),
            _ => None,
        };
        let db = selected.filter(|db| *db < self.engine.keyspace.databases()).unwrap_or(self.db);
        self.engine.send_to_monitors(spec, args, db, Caller::Client(&self.client), now);
    }
}
