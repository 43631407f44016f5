//! The session's user: who it is, what it may not, and how it logs in.

use super::Session;
use super::run::Next;
use crate::Now;
use crate::acl::{Denial, Denied, Reason, User};
use crate::config::Opt;
use std::sync::Arc;
use strand_commands::dispatch::Resolved;
use strand_commands::spec::Flags;

const NO_KEY: &str = "NOPERM this user has no permissions to access one of the keys used as arguments";
const WRONG_PASSWORD: &str = "WRONGPASS invalid username-password pair or user is disabled.";

/// How far a login has come.
pub(super) enum Login {
    /// The session is the user's now.
    Done,
    /// It may try at this time, on the clock of [`Now::mono_us`].
    Later(u64),
}

impl Session {
    /// The session belongs to `user` from now on.
    pub(super) fn set_user(&mut self, user: Arc<User>, authenticated: bool) {
        let name = String::from_utf8_lossy(user.name()).into_owned();
        self.client.set_texts(|t| t.user = name);
        self.user = user;
        self.authenticated = authenticated;
        self.limits_changed();
    }
    /// Users or settings have changed: takes the user as it is now. False when it is gone.
    pub(super) fn refresh_user(&mut self) -> bool {
        let now = self.engine.acl.current(&self.user);
        let found = now.is_some();
        self.user = now.unwrap_or_else(|| self.engine.acl.default_user());
        self.authenticated &= found;
        found
    }

    /// Lets the session be the user's with this name, when the password is right. Who failed often waits first.
    pub(super) fn log_in(
        &mut self,
        name: &[u8],
        password: &[u8],
        word: &[u8],
        now: Now,
    ) -> Result<Login, Vec<u8>> {
        let engine = self.engine.clone();
        let from = &self.client.peer.addr;
        let waited = self.login_at_us.is_some_and(|at| at <= now.mono_us);
        if !waited {
            let failures_max = engine.config.number(Opt::LoginFailuresMax) as u64;
            let wait_us = engine.acl.logins.wait_us(from, failures_max, now.mono_us);
            if wait_us > 0 || self.login_at_us.is_some() {
                return Ok(Login::Later(*self.login_at_us.get_or_insert(now.mono_us + wait_us)));
            }
        }
        self.login_at_us = None;
        if let Some(user) = engine.acl.authenticate(name, password) {
            self.set_user(user, true);
            return Ok(Login::Done);
        }
        engine.acl.logins.failed(from, now.mono_us);
        self.note_denial(Reason::Auth, word.to_vec(), name.to_vec(), now);
        Err(WRONG_PASSWORD.into())
    }

    /// Keeps the command in hand from running when its user may not run it.
    #[cold]
    pub(super) fn denied(&mut self, found: &Resolved, now: Now) -> Option<Next> {
        let args = self.argv.args();
        let denied = self.user.check(found, args).err()?;
        let name = found.full_name();
        let (reason, object, text) = match denied {
            Denied::Command => {
                let text = format!("NOPERM this user has no permissions to run the '{name}' command");
                (Reason::Command, name.into_bytes(), text)
            }
            Denied::Key(at) => (Reason::Key, args.at(at).to_vec(), NO_KEY.into()),
        };
        self.last_command = self.engine.stats.ids.of(found.spec);
        self.note_denial(reason, object, self.user.name().to_vec(), now);
        Some(self.reject(found.spec, text.as_bytes()))
    }

    fn note_denial(&self, reason: Reason, object: Vec<u8>, username: Vec<u8>, now: Now) {
        self.publish();
        let client = self.client.line(&self.engine.stats.ids, now);
        let entries_max = self.engine.config.number(Opt::AclLogMaxLen) as usize;
        let denial = Denial { reason, object, username, client, at_ms: now.unix_ms() };
        self.engine.acl.log.lock().add(denial, entries_max);
    }

    /// True when the command in hand has to be shown to the gate for the user's sake.
    #[inline]
    pub(super) fn is_guarded(&self) -> bool {
        self.guarded
    }
    /// To be called when the user, its rights or the session's authentication changed.
    pub(super) fn guard(&mut self) {
        self.guarded = !self.authenticated || !self.user.is_all_powerful();
    }
    /// True when the job that is out is an administrator's, whose answer is awaited although its user is gone: it may be the
    /// command that removed it.
    pub(super) fn awaits_admin(&self) -> bool {
        matches!(&self.state, super::State::Parked { spec, .. } if spec.flags.has(Flags::ADMIN))
    }
}
