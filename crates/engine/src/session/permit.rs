//! The session's user: its rights and its login.

use super::run::NextStep;
use super::subscriptions::checks_channels_in_slices;
use super::{OUTPUT_BYTES_MAX, Session, State, UNAUTHENTICATED_OUTPUT_BYTES_MAX};
use crate::acl::{ACL_TABLE, ChannelCheck, Denial, DenialContext, Denied, Reason, User};
use crate::clients::Client;
use crate::config::Opt;
use crate::tracking::TrackingFlags;
use crate::{Engine, Now};
use std::sync::Arc;
use strand_commands::cost::LONG_ELEMENTS;
use strand_commands::spec::{CommandSpec, Flags};
use strand_wire::args::Args;
use strand_wire::reply::ErrorText;

const NO_KEY: &str = "NOPERM this user has no permissions to access one of the keys used as arguments";
const NO_CHANNEL: &str =
    "NOPERM this user has no permissions to access one of the channels used as arguments";
const WRONG_PASSWORD: &str = "WRONGPASS invalid username-password pair or user is disabled.";
const NO_WAIT_IN_EXEC: &str =
    "ERR too many failed logins: a login must wait now, and inside MULTI it cannot. Log in outside MULTI";

/// Maximum number of bytes of a user's name in the server's log.
const LOGGED_NAME_BYTES_MAX: usize = 128;
/// Maximum number of bytes of a denied key that the log keeps.
const SHOWN_BYTES_MAX: usize = 4096;
/// Number of tried elements of key patterns that cost as much as one element of work.
const STEPS_PER_ELEMENT: usize = 32;
/// A check that may try more pattern elements than this runs on a helper thread, together with its command if the command
/// may run there.
pub(super) const STEPS_AT_ONCE: usize = LONG_ELEMENTS * STEPS_PER_ELEMENT;

/// A command that its user may not run.
pub(crate) struct DeniedCommand<'a> {
    pub(crate) spec: &'static CommandSpec,
    pub(crate) args: Args<'a>,
    pub(crate) denied: Denied,
    pub(crate) context: DenialContext,
}

impl Engine {
    /// Records a denied command of `user`. Returns the text of the error reply.
    pub(crate) fn deny(&self, client: &Client, user: &User, command: DeniedCommand<'_>, now: Now) -> Vec<u8> {
        let DeniedCommand { spec, args, denied, context } = command;
        let name = &ACL_TABLE.rows()[ACL_TABLE.id(spec)].name;
        let (reason, object, text) = match denied {
            Denied::Command => {
                let text = format!("NOPERM this user has no permissions to run the '{name}' command");
                (Reason::Command, name.clone().into_bytes(), text)
            }
            Denied::Key(at) => (Reason::Key, cut_name(args.at(at)), NO_KEY.into()),
            Denied::Channel(at) => (Reason::Channel, cut_name(args.at(at)), NO_CHANNEL.into()),
            Denied::Interrupted => return b"ERR the client is gone".to_vec(),
        };
        self.note_denial(client, (reason, context), object, user.name().to_vec(), now);
        text.into_bytes()
    }
    fn note_denial(
        &self,
        client: &Client,
        (reason, context): (Reason, DenialContext),
        object: Vec<u8>,
        username: Vec<u8>,
        now: Now,
    ) {
        let client = client.line(&self.stats.ids, now);
        let entries_max = self.config.number(Opt::AclLogMaxLen) as usize;
        let denial = Denial { reason, context, object, username, client, at_ms: now.unix_ms() };
        self.acl.log.lock().add(denial, entries_max);
    }
}

/// The part of a denied key or channel that the log keeps.
fn cut_name(name: &[u8]) -> Vec<u8> {
    name[..name.len().min(SHOWN_BYTES_MAX)].to_vec()
}

/// The progress of a login.
pub(super) enum Login {
    /// The session now acts for the user.
    Done,
    /// The login may be tried at this time, on the clock of [`Now::mono_us`].
    Later(u64),
}

impl Session {
    /// From now on the session acts for `user`.
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
    /// Ends the state (streams) that a service keeps for this client. It belongs to the old user.
    pub(super) fn end_service(&mut self) {
        if std::mem::take(&mut self.flags.uses_service) {
            self.engine.host.client_gone(self.client.id);
        }
    }
    /// Reads the user again after a change of users or settings. False when the user was removed.
    pub(super) fn refresh_user(&mut self) -> bool {
        let now = self.engine.acl.current(&self.identity.user);
        let found = now.is_some();
        if now.as_ref().is_none_or(|user| !Arc::ptr_eq(user, &self.identity.user)) {
            // A SUBSCRIBE between two slices needs the rights of the new rules for all its channels.
            self.progress.check = ChannelCheck::default();
            self.retry.is_granted = false;
        }
        self.identity.user = now.unwrap_or_else(|| self.engine.acl.default_user());
        self.identity.authenticated &= found;
        found
    }

    /// Logs in with a name and a password. After many failures the login waits first. Inside EXEC, where it cannot wait,
    /// it then fails.
    pub(super) fn log_in(
        &mut self,
        name: &[u8],
        password: &[u8],
        word: &[u8],
        now: Now,
    ) -> Result<Login, ErrorText> {
        let engine = self.engine.clone();
        let from = &self.client.peer.addr;
        let waited = self.identity.login_at_us.is_some_and(|at| at <= now.mono_us);
        if !waited {
            let failures_max = engine.config.number(Opt::LoginFailuresMax) as u64;
            let wait_us = engine.acl.logins.wait_us(from, failures_max, now.mono_us);
            if wait_us > 0 && self.in_exec() {
                return Err(NO_WAIT_IN_EXEC.into());
            }
            if wait_us > 0 || self.identity.login_at_us.is_some() {
                return Ok(Login::Later(*self.identity.login_at_us.get_or_insert(now.mono_us + wait_us)));
            }
        }
        self.identity.login_at_us = None;
        if let Some(user) = engine.acl.authenticate(name, password) {
            self.set_user(user, true);
            return Ok(Login::Done);
        }
        engine.acl.logins.record_failure(from, now.mono_us);
        self.log_failed_login(name);
        self.update_client_info();
        engine.note_denial(
            &self.client,
            (Reason::Auth, self.denial_context()),
            word.to_vec(),
            name.to_vec(),
            now,
        );
        Err(WRONG_PASSWORD.into())
    }

    /// Logs a failed login. An unknown name may be a password in the wrong place, so the log has only names of users.
    fn log_failed_login(&self, name: &[u8]) {
        let (engine, peer) = (&self.engine, &self.client.peer);
        if !engine.failed_logins.may_log(&*engine.host) {
            return;
        }
        let user = match engine.acl.get(name) {
            Some(_) => format!("user '{}'", name[..name.len().min(LOGGED_NAME_BYTES_MAX)].escape_ascii()),
            None => "unknown user".into(),
        };
        engine.host.warn(&format!("login failed: {user} at {} (client {})", peer.laddr, peer.addr));
    }

    /// Refuses the current command when its user may not run it.
    #[cold]
    pub(super) fn refuse_if_denied(&mut self, spec: &'static CommandSpec, now: Now) -> Option<NextStep> {
        let args = self.argv.args();
        let user = &self.identity.user;
        // Only outside MULTI, a long SUBSCRIBE runs in slices and checks its channels itself.
        let denied = match checks_channels_in_slices(user, spec, args) && !self.queues(spec) {
            true => user.check_without_channels(spec, args),
            false => user.check(spec, args, &mut || true),
        };
        let denied = denied.err()?;
        self.last_command = self.engine.stats.ids.of(spec);
        self.update_client_info();
        let context = self.denial_context();
        let text = self.engine.deny(
            &self.client,
            &self.identity.user,
            DeniedCommand { spec, args, denied, context },
            now,
        );
        Some(self.reject(spec, &text))
    }
    /// The context of a denial of the current command.
    pub(super) fn denial_context(&self) -> DenialContext {
        if self.queue.is_some() || self.in_exec() { DenialContext::Multi } else { DenialContext::Toplevel }
    }
    /// The work of the rights check of a command, in elements.
    pub(super) fn check_elements(&self, spec: &'static CommandSpec, args: Args<'_>) -> usize {
        self.identity.user.steps(spec, args) / STEPS_PER_ELEMENT
    }
    /// True when the rights check of the current command takes too long for a worker.
    pub(super) fn is_long_check(&mut self, spec: &'static CommandSpec) -> bool {
        let steps = self.identity.user.steps(spec, self.argv.args());
        self.meter.work_left -= (steps.min(STEPS_AT_ONCE) / STEPS_PER_ELEMENT) as isize;
        steps > STEPS_AT_ONCE
    }

    /// True when the user's state sends the current command to the gate.
    #[inline]
    pub(super) fn is_guarded(&self) -> bool {
        self.identity.guarded
    }
    /// Recomputes whether commands pass the gate, and the limit of the output. Call this when the user, the rights of the
    /// user, or the state of the session changed.
    pub(super) fn update_guard(&mut self) {
        self.identity.guarded = !self.identity.authenticated
            || !self.identity.user.is_unrestricted()
            || self.queue.is_some()
            || self.is_monitor()
            || self.is_replica()
            || self.is_in_subscriber_mode()
            || self.client.tracked.mode() != TrackingFlags::OFF;
        self.output.bytes_max = match self.must_log_in() {
            true => UNAUTHENTICATED_OUTPUT_BYTES_MAX,
            // A replica acknowledges the stream while more of the stream waits.
            false if self.is_replica() => usize::MAX,
            false => OUTPUT_BYTES_MAX,
        };
    }
    /// True when the running job, or the transaction that comes back, has an administrator's command. Its reply is
    /// awaited although the user was removed, because the command itself may have removed the user.
    pub(super) fn awaits_admin(&self) -> bool {
        match &self.state {
            State::OnLane { is_admin, .. } => *is_admin,
            State::ExecResumes(transaction) => Flags(transaction.queue.flags).has(Flags::ADMIN),
            _ => false,
        }
    }
}
