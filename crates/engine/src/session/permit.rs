//! The session's user: who it is, what it may not, and how it logs in.

use super::run::Next;
use super::{OUTPUT_BYTES_MAX, Session, UNAUTHENTICATED_OUTPUT_BYTES_MAX};
use crate::acl::{Denial, Denied, Reason, TABLE, User};
use crate::clients::Client;
use crate::config::Opt;
use crate::tracking::Mode;
use crate::{Engine, Now};
use std::sync::Arc;
use strand_commands::cost::LONG_ELEMENTS;
use strand_commands::spec::{CommandSpec, Flags};
use strand_wire::args::Args;

const NO_KEY: &str = "NOPERM this user has no permissions to access one of the keys used as arguments";
const NO_CHANNEL: &str =
    "NOPERM this user has no permissions to access one of the channels used as arguments";
const WRONG_PASSWORD: &str = "WRONGPASS invalid username-password pair or user is disabled.";

/// So much of a key that was denied is kept for the log.
const SHOWN_BYTES_MAX: usize = 4096;
/// Elements of key patterns tried that count as one element of work.
const STEPS_PER_ELEMENT: usize = 32;
/// A check that may take more of them runs on a helper thread, together with its command.
const STEPS_AT_ONCE: usize = LONG_ELEMENTS * STEPS_PER_ELEMENT;

impl Engine {
    /// Notes that `user` was denied a command; the error reply.
    pub(crate) fn deny(
        &self,
        client: &Client,
        user: &User,
        spec: &'static CommandSpec,
        denied: Denied,
        args: Args<'_>,
        now: Now,
    ) -> Vec<u8> {
        let name = &TABLE.rows()[TABLE.id(spec)].name;
        let (reason, object, text) = match denied {
            Denied::Command => {
                let text = format!("NOPERM this user has no permissions to run the '{name}' command");
                (Reason::Command, name.clone().into_bytes(), text)
            }
            Denied::Key(at) => (Reason::Key, shown(args.at(at)), NO_KEY.into()),
            Denied::Channel(at) => (Reason::Channel, shown(args.at(at)), NO_CHANNEL.into()),
            Denied::Unfinished => return b"ERR the client is gone".to_vec(),
        };
        self.note_denial(client, reason, object, user.name().to_vec(), now);
        text.into_bytes()
    }
    fn note_denial(&self, client: &Client, reason: Reason, object: Vec<u8>, username: Vec<u8>, now: Now) {
        let client = client.line(&self.stats.ids, now);
        let entries_max = self.config.number(Opt::AclLogMaxLen) as usize;
        let denial = Denial { reason, object, username, client, at_ms: now.unix_ms() };
        self.acl.log.lock().add(denial, entries_max);
    }
}

/// So much of a name as is kept for the log.
fn shown(name: &[u8]) -> Vec<u8> {
    name[..name.len().min(SHOWN_BYTES_MAX)].to_vec()
}

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
        if user.id() != self.identity.user.id() {
            self.end_service();
        }
        self.identity.user = user;
        self.identity.authenticated = authenticated;
        self.limits_changed();
    }
    /// What a service keeps for this client (streams) is the user's, who may be another one from here on.
    pub(super) fn end_service(&mut self) {
        if std::mem::take(&mut self.flags.uses_service) {
            self.engine.host.client_gone(self.client.id);
        }
    }
    /// Users or settings have changed: takes the user as it is now. False when it is gone.
    pub(super) fn refresh_user(&mut self) -> bool {
        let now = self.engine.acl.current(&self.identity.user);
        let found = now.is_some();
        self.identity.user = now.unwrap_or_else(|| self.engine.acl.default_user());
        self.identity.authenticated &= found;
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
        let waited = self.identity.login_at_us.is_some_and(|at| at <= now.mono_us);
        if !waited {
            let failures_max = engine.config.number(Opt::LoginFailuresMax) as u64;
            let wait_us = engine.acl.logins.wait_us(from, failures_max, now.mono_us);
            if wait_us > 0 || self.identity.login_at_us.is_some() {
                return Ok(Login::Later(*self.identity.login_at_us.get_or_insert(now.mono_us + wait_us)));
            }
        }
        self.identity.login_at_us = None;
        if let Some(user) = engine.acl.authenticate(name, password) {
            self.set_user(user, true);
            return Ok(Login::Done);
        }
        engine.acl.logins.failed(from, now.mono_us);
        engine.host.login_failed(&self.client.peer, engine.acl.get(name).map(|_| name));
        self.publish();
        engine.note_denial(&self.client, Reason::Auth, word.to_vec(), name.to_vec(), now);
        Err(WRONG_PASSWORD.into())
    }

    /// Keeps the command in hand from running when its user may not run it.
    #[cold]
    pub(super) fn denied(&mut self, spec: &'static CommandSpec, now: Now) -> Option<Next> {
        let args = self.argv.args();
        let denied = self.identity.user.check(spec, args, &mut || true).err()?;
        self.last_command = self.engine.stats.ids.of(spec);
        self.publish();
        let text = self.engine.deny(&self.client, &self.identity.user, spec, denied, args, now);
        Some(self.reject(spec, &text))
    }
    /// True when the check of the command in hand is too much for a worker.
    pub(super) fn is_long_check(&mut self, spec: &'static CommandSpec) -> bool {
        let steps = self.identity.user.steps(spec, self.argv.args());
        self.meter.work_left -= (steps.min(STEPS_AT_ONCE) / STEPS_PER_ELEMENT) as isize;
        steps > STEPS_AT_ONCE && spec.exec.on_keys().is_some()
    }

    /// True when the command in hand has to be shown to the gate for the user's sake.
    #[inline]
    pub(super) fn is_guarded(&self) -> bool {
        self.identity.guarded
    }
    /// To be called when the user, its rights or the session's authentication changed.
    pub(super) fn guard(&mut self) {
        self.identity.guarded = !self.identity.authenticated
            || !self.identity.user.is_all_powerful()
            || self.queue.is_some()
            || self.only_listens()
            || self.client.tracked.mode() != Mode::OFF;
        self.output.bytes_max = match self.must_log_in() {
            true => UNAUTHENTICATED_OUTPUT_BYTES_MAX,
            false => OUTPUT_BYTES_MAX,
        };
    }
    /// True when the job that is out is an administrator's, whose answer is awaited although its user is gone: it may be the
    /// command that removed it.
    pub(super) fn awaits_admin(&self) -> bool {
        matches!(&self.state, super::State::OnLane { spec, .. } if spec.flags.has(Flags::ADMIN))
    }
}
