//! MONITOR: this client is told of every command from now on.

use super::{DONE, Outcome, Session};
use crate::Now;
use crate::monitors::Caller;
use crate::session::own::{Kind, kind_of};
use std::sync::atomic::Ordering::Relaxed;
use strand_commands::spec::CommandSpec;
use strand_keyspace::types::string::parse_int;

impl Session {
    pub(super) fn monitor(&mut self) -> Outcome {
        if self.in_exec {
            return Err("ERR MONITOR isn't allowed for DENY BLOCKING client".into());
        }
        // Who watches already gets no reply, as in redis-server.
        if self.watches() {
            return DONE;
        }
        self.reply().ok();
        self.client.watches.store(true, Relaxed);
        self.tell_output_limit();
        self.engine.monitors.add(&self.client);
        DONE
    }
    /// True when it is told what others call.
    pub(in crate::session) fn watches(&self) -> bool {
        self.client.watches.load(Relaxed)
    }
    /// RESET, or the session's end. What has been told before comes before the reply.
    pub(in crate::session) fn end_watching(&mut self) {
        if self.client.watches.swap(false, Relaxed) {
            self.engine.monitors.remove(self.client.id);
            self.take_post();
            self.tell_output_limit();
        }
    }
    /// The command in hand is about to run: tells who watches, unless it did so before. EXEC is told of when it is done.
    #[cold]
    pub(in crate::session) fn tell_monitors(&mut self, spec: &CommandSpec, now: Now) {
        if std::mem::replace(&mut self.again.is_told, true) || kind_of(spec) == Kind::Exec {
            return;
        }
        let args = self.argv.args();
        // As in redis-server SELECT is shown with the database that it selects.
        let selected = match kind_of(spec) {
            Kind::Select => parse_int(args.at(1)).and_then(|db| usize::try_from(db).ok()),
            _ => None,
        };
        let db = selected.filter(|db| *db < self.engine.keyspace.databases()).unwrap_or(self.db);
        self.engine.tell_monitors(spec, args, db, Caller::Client(&self.client), now);
    }
}
