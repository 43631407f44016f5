//! MONITOR: this client gets every command from now on.

use super::{DONE, Outcome, Session};
use crate::Now;
use crate::monitors::Caller;
use crate::session::session_command::{Kind, kind_of};
use std::sync::atomic::Ordering::Relaxed;
use strand_commands::spec::CommandSpec;
use strand_keyspace::types::string::parse_int;

impl Session {
    pub(super) fn monitor(&mut self) -> Outcome {
        if self.in_exec {
            return Err("ERR MONITOR isn't allowed for DENY BLOCKING client".into());
        }
        // As in redis-server, a client in MONITOR gets no reply.
        if self.watches() {
            return DONE;
        }
        self.reply().ok();
        self.client.watches.store(true, Relaxed);
        self.tell_output_limit();
        self.engine.monitors.add(&self.client);
        DONE
    }
    /// True when the client is in MONITOR.
    pub(in crate::session) fn watches(&self) -> bool {
        self.client.watches.load(Relaxed)
    }
    /// Ends MONITOR, for RESET or at the end of the session. Lines that arrived before come before the reply.
    pub(in crate::session) fn end_watching(&mut self) {
        if self.client.watches.swap(false, Relaxed) {
            self.engine.monitors.remove(self.client.id);
            self.take_post();
            self.tell_output_limit();
        }
    }
    /// Sends the current command, which is about to run, to the MONITOR clients, once. EXEC is sent when it is done.
    #[cold]
    pub(in crate::session) fn tell_monitors(&mut self, spec: &CommandSpec, now: Now) {
        if std::mem::replace(&mut self.retry.is_in_monitors, true) || kind_of(spec) == Kind::Exec {
            return;
        }
        let args = self.argv.args();
        // As in redis-server, SELECT is shown with its new database.
        let selected = match kind_of(spec) {
            Kind::Select => parse_int(args.at(1)).and_then(|db| usize::try_from(db).ok()),
            _ => None,
        };
        let db = selected.filter(|db| *db < self.engine.keyspace.databases()).unwrap_or(self.db);
        self.engine.tell_monitors(spec, args, db, Caller::Client(&self.client), now);
    }
}
