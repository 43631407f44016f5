//! [`User`]: a name, passwords and rights, and the check of a command.

use super::commands::ACL_TABLE;
use super::password::{PASSWORD_BYTES_MAX, PasswordDigest};
use super::rule::{RuleError, c_text};
use super::selector::{MatchCost, PATTERNS_MAX, PacedCheck, Selector};
use crate::config::text::split_words;
use crate::pubsub::Topic;
use smallvec::SmallVec;
use std::sync::Arc;
use strand_commands::call::KeyRights;
use strand_commands::introspect::key_accesses;
use strand_commands::spec::{Access, CommandSpec, FindKeys, Flags, KeySpec};
use strand_wire::args::Args;

/// Maximum number of passwords of a user. A login compares each of them.
pub(crate) const PASSWORDS_MAX: usize = 1_000;
/// Maximum number of selectors of a user besides the root. Each may be checked for each command.
pub(crate) const SELECTORS_MAX: usize = 1_000;

/// The immutable state of a user. A change makes a new one.
#[derive(Clone, Debug)]
pub(crate) struct User {
    name: Vec<u8>,
    /// The id stays when the user changes. A user that is removed and created again gets a new id.
    id: u64,
    pub(super) on: bool,
    pub(super) no_password: bool,
    pub(super) sanitize: Option<bool>,
    pub(super) passwords: Vec<PasswordDigest>,
    /// The root selector, then the selectors in parentheses.
    pub(super) selectors: Vec<Selector>,
}

/// Up to this cost, the cost of a check is estimated from the bytes of all arguments. Above it, the keys are found
/// and only their bytes count.
const CHEAP_STEPS: usize = 4 * 1024;

/// How far [`User::check_channels`] has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ChannelCheck {
    /// The index of the selector that is being checked. No earlier selector allows everything.
    selector: usize,
    /// The selector allows the channels before this argument.
    pub(crate) checked: usize,
    /// The last argument that an earlier selector did not allow.
    denied: Option<usize>,
}

/// Why a user may not run a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Denied {
    /// The user may not run the command.
    Command,
    /// The user may not access the key in this argument.
    Key(usize),
    /// The user may not use the channel in this argument.
    Channel(usize),
    /// The check was stopped, because no client waits for the reply any more.
    Interrupted,
}

impl User {
    /// A new user, without rights and without a login.
    pub(super) fn new(name: &[u8], id: u64, all_channels: bool) -> User {
        User {
            name: name.to_vec(),
            id,
            on: false,
            no_password: false,
            sanitize: None,
            passwords: Vec::new(),
            selectors: vec![Selector::new(all_channels)],
        }
    }
    /// A user with all rights and without a password.
    pub(super) fn unrestricted(name: &[u8], id: u64) -> User {
        let selectors = vec![Selector::unrestricted()];
        User { on: true, no_password: true, selectors, ..User::new(name, id, true) }
    }
    pub(super) fn with_id(self, id: u64) -> User {
        User { id, ..self }
    }
    pub(crate) fn name(&self) -> &[u8] {
        &self.name
    }
    pub(crate) fn id(&self) -> u64 {
        self.id
    }
    /// True when the user is enabled.
    pub(crate) fn is_on(&self) -> bool {
        self.on
    }
    /// True when every password is accepted.
    pub(crate) fn needs_no_password(&self) -> bool {
        self.no_password
    }
    /// True when the user has all rights. Checks can then be skipped.
    pub(crate) fn is_unrestricted(&self) -> bool {
        self.selectors.iter().any(Selector::is_unrestricted)
    }
    /// True when the user may log in with this password. `None`: the password is too long.
    pub(super) fn accepts_password(&self, given: Option<&PasswordDigest>) -> bool {
        self.on && (self.no_password || given.is_some_and(|d| d.is_one_of(&self.passwords)))
    }

    /// Applies one rule. New selectors get `all_channels` from `acl-pubsub-default`.
    pub(super) fn apply(&mut self, rule: &[u8], all_channels: bool) -> Result<(), RuleError> {
        let name = c_text(rule);
        let is = |word: &str| name.eq_ignore_ascii_case(word.as_bytes());
        if rule.is_empty() {
        } else if is("on") || is("off") {
            self.on = is("on");
        } else if is("skip-sanitize-payload") || is("sanitize-payload") {
            self.sanitize = Some(is("sanitize-payload"));
        } else if is("nopass") || is("resetpass") {
            self.no_password = is("nopass");
            self.passwords.clear();
        } else if is("clearselectors") {
            self.selectors.truncate(1);
        } else if is("reset") {
            let fresh = User::new(&self.name, self.id, all_channels);
            *self = User { sanitize: Some(true), ..fresh };
        } else {
            return match *rule {
                [b'>' | b'#', ..] => self.add_password(rule),
                [b'<' | b'!', ..] => self.remove_password(rule),
                [b'(', ref inside @ .., b')'] => self.add_selector(inside, all_channels),
                _ => self.selectors[0].apply(rule).and_then(|()| self.within_limits()),
            };
        }
        Ok(())
    }

    /// Sets the only password. With an empty password the user needs none. Callers refuse a password that is too
    /// long; here it would leave the user without a valid password.
    pub(super) fn set_password(&mut self, password: &[u8]) {
        self.no_password = password.is_empty();
        self.passwords.clear();
        if !self.no_password {
            self.passwords.extend(PasswordDigest::of(password));
        }
    }
    fn add_password(&mut self, rule: &[u8]) -> Result<(), RuleError> {
        let digest = digest(rule)?;
        if !self.passwords.contains(&digest) {
            if self.passwords.len() == PASSWORDS_MAX {
                return Err(RuleError::TooMany("passwords", PASSWORDS_MAX));
            }
            self.passwords.push(digest);
        }
        self.no_password = false;
        Ok(())
    }
    fn remove_password(&mut self, rule: &[u8]) -> Result<(), RuleError> {
        let digest = digest(rule)?;
        let at = self.passwords.iter().position(|d| *d == digest).ok_or(RuleError::NoSuchPassword)?;
        self.passwords.remove(at);
        Ok(())
    }
    fn add_selector(&mut self, rules: &[u8], all_channels: bool) -> Result<(), RuleError> {
        let mut selector = Selector::new(all_channels);
        // As in redis-server, an open quote makes the list empty.
        for rule in split_words(c_text(rules)).unwrap_or_default() {
            // In an ACL file, the selector would end at this parenthesis.
            if rule.ends_with(b")") {
                return Err(RuleError::Syntax);
            }
            selector.apply(&rule)?;
        }
        if self.selectors.len() > SELECTORS_MAX {
            return Err(RuleError::TooMany("selectors", SELECTORS_MAX));
        }
        self.selectors.push(selector);
        self.within_limits()
    }
    fn within_limits(&self) -> Result<(), RuleError> {
        match self.key_patterns() > PATTERNS_MAX {
            true => Err(RuleError::TooMany("key patterns", PATTERNS_MAX)),
            false => Ok(()),
        }
    }
    fn key_patterns(&self) -> usize {
        self.selectors.iter().map(|s| s.keys.len()).sum()
    }

    /// The maximum number of pattern elements that the check of a command tries, from the number and length of its
    /// keys.
    pub(crate) fn steps(&self, spec: &CommandSpec, args: Args<'_>) -> usize {
        let match_cost = self.selectors.iter().fold(MatchCost::default(), |sum, s| sum.and(s.match_cost));
        if match_cost == MatchCost::default() || spec.keys.is_empty() {
            return 0;
        }
        let many = |k: &KeySpec| !matches!(k.find, FindKeys::Range { last: 0, .. });
        let keys = if spec.keys.iter().any(many) { args.len() } else { spec.keys.len() };
        let steps = |bytes: usize| {
            keys.saturating_mul(match_cost.per_key).saturating_add(bytes.saturating_mul(match_cost.per_byte))
        };
        let at_most = steps(args.iter().map(<[u8]>::len).sum());
        if at_most <= CHEAP_STEPS || match_cost.per_byte == 0 {
            return at_most;
        }
        let keys = key_accesses(spec, args);
        steps(keys.iter().map(|(at, _)| args.at(*at).len()).sum())
    }

    /// True when a selector allows the command, with any keys.
    pub(crate) fn may_call(&self, spec: &'static CommandSpec, args: Args<'_>) -> bool {
        let id = ACL_TABLE.id(spec);
        spec.flags.has(Flags::NO_AUTH) || self.selectors.iter().any(|s| s.allows_command(id, args))
    }
    /// Checks a command. Calls `may_continue` now and then to ask whether the client still waits.
    ///
    /// # Errors
    /// As in redis-server: the command when no selector allows it, else the last denied channel or key.
    pub(crate) fn check(
        &self,
        spec: &'static CommandSpec,
        args: Args<'_>,
        may_continue: &mut dyn FnMut() -> bool,
    ) -> Result<(), Denied> {
        self.check_with(spec, args, true, may_continue)
    }
    /// Does what [`User::check`] does, for a command that checks its channels itself.
    ///
    /// # Errors
    /// As [`User::check`].
    pub(crate) fn check_without_channels(
        &self,
        spec: &'static CommandSpec,
        args: Args<'_>,
    ) -> Result<(), Denied> {
        self.check_with(spec, args, false, &mut || true)
    }
    fn check_with(
        &self,
        spec: &'static CommandSpec,
        args: Args<'_>,
        checks_channels: bool,
        may_continue: &mut dyn FnMut() -> bool,
    ) -> Result<(), Denied> {
        let (id, for_all) = (ACL_TABLE.id(spec), spec.flags.has(Flags::NO_AUTH));
        let mut pace = PacedCheck::new(may_continue);
        let mut keys: Option<SmallVec<[(usize, Access); 4]>> = None;
        let mut why = Denied::Command;
        for selector in &self.selectors {
            if !for_all && !selector.allows_command(id, args) {
                continue;
            }
            if checks_channels && let Some(at) = selector.denied_channel(spec, args) {
                why = why.max(Denied::Channel(at));
                continue;
            }
            if selector.all_keys || spec.keys.is_empty() {
                return Ok(());
            }
            let keys = keys.get_or_insert_with(|| key_accesses(spec, args));
            let mut denied = None;
            for (at, access) in keys.iter() {
                match selector.allows_key_paced(args.at(*at), *access, &mut pace) {
                    Some(true) => {}
                    Some(false) => {
                        denied = Some(*at);
                        break;
                    }
                    None => return Err(Denied::Interrupted),
                }
            }
            match denied {
                None => return Ok(()),
                Some(at) => why = why.max(Denied::Key(at)),
            }
        }
        Err(why)
    }

    /// Does the part of [`User::check`] that [`User::check_without_channels`] leaves out, and goes on after what `check`
    /// says is done. Checks about `names_max` names. True when one selector allows the command and all its channels.
    /// False when names are left.
    ///
    /// # Errors
    /// As [`User::check`].
    pub(crate) fn check_channels(
        &self,
        spec: &'static CommandSpec,
        args: Args<'_>,
        topic: Topic,
        check: &mut ChannelCheck,
        names_max: usize,
    ) -> Result<bool, Denied> {
        let (id, mut names_left) = (ACL_TABLE.id(spec), names_max);
        while let Some(selector) = self.selectors.get(check.selector) {
            let begin = check.checked.max(1);
            let end = begin.saturating_add(names_left).min(args.len());
            if selector.allows_command(id, args) {
                let denied = (begin..end).find(|at| !selector.allows_channel(topic, args.at(*at)));
                let Some(denied) = denied else {
                    check.checked = end;
                    return Ok(end == args.len());
                };
                names_left = end - denied;
                check.denied = check.denied.max(Some(denied));
            }
            (check.selector, check.checked) = (check.selector + 1, 0);
        }
        Err(check.denied.map_or(Denied::Command, Denied::Channel))
    }
    /// True when a selector allows this channel, or exactly this channel pattern.
    pub(crate) fn may_use_channel(&self, topic: Topic, name: &[u8]) -> bool {
        self.selectors.iter().any(|s| s.allows_channel(topic, name))
    }
    /// True when the channel rules equal those of `other`.
    pub(crate) fn has_channels_of(&self, other: &User) -> bool {
        let rules = |user: &User| -> Vec<_> {
            user.selectors.iter().map(|s| (s.all_channels, s.channels.clone())).collect()
        };
        rules(self) == rules(other)
    }
    /// The maximum number of pattern elements that are tried when channels of `bytes` bytes are matched against all
    /// channel patterns.
    pub(crate) fn channel_steps(&self, bytes: usize) -> usize {
        match self.selectors.iter().any(|s| s.all_channels) {
            true => 0,
            false => {
                self.selectors.iter().map(|s| s.channels.iter().map(Vec::len).sum::<usize>()).sum::<usize>()
            }
        }
        .saturating_mul(bytes)
    }
}

fn digest(rule: &[u8]) -> Result<PasswordDigest, RuleError> {
    match rule[0] {
        b'>' | b'<' => PasswordDigest::of(&rule[1..]).ok_or(RuleError::LongPassword(PASSWORD_BYTES_MAX)),
        _ => PasswordDigest::parse(&rule[1..]).ok_or(RuleError::BadHash),
    }
}

/// A user's rights to keys that a command finds while it runs.
pub(crate) struct Rights {
    user: Arc<User>,
    /// The indexes of the selectors that allow the command.
    selectors: SmallVec<[usize; 4]>,
}

impl Rights {
    /// The rights of `user` in this call of a command. `None`: all rights.
    pub(crate) fn of(user: &Arc<User>, spec: &'static CommandSpec, args: Args<'_>) -> Option<Rights> {
        if user.is_unrestricted() {
            return None;
        }
        let id = ACL_TABLE.id(spec);
        // As in redis-server, a command that reads keys beyond its arguments needs one selector for all its accesses.
        let hidden = spec.keys.iter().any(KeySpec::has_hidden_keys);
        let keys = if hidden { key_accesses(spec, args) } else { SmallVec::new() };
        let allows = |s: &Selector| {
            s.allows_command(id, args) && keys.iter().all(|(at, access)| s.allows_key(args.at(*at), *access))
        };
        let selectors: SmallVec<[usize; 4]> =
            (0..user.selectors.len()).filter(|i| allows(&user.selectors[*i])).collect();
        let limited = !selectors.iter().any(|i| user.selectors[*i].all_keys);
        limited.then(|| Rights { user: user.clone(), selectors })
    }
}

impl KeyRights for Rights {
    fn allows(&self, key: &[u8], access: Access) -> bool {
        self.selectors.iter().any(|i| self.user.selectors[*i].allows_key(key, access))
    }
    fn allows_prefix(&self, prefix: &[u8], access: Access) -> bool {
        self.selectors.iter().any(|i| self.user.selectors[*i].allows_all(prefix, access))
    }
}
