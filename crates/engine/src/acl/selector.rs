//! [`Selector`]: a set of commands with the keys and channels that they may use.

use super::commands::{ACL_TABLE, CommandSet, category, members};
use super::rule::{RuleError, c_text, has_blanks};
use crate::pubsub::Topic;
use crate::session::SessionCommand;
use std::collections::BTreeMap;
use strand_commands::glob;
use strand_commands::spec::{Access, CommandSpec};
use strand_wire::args::Args;

/// Maximum number of key patterns of a user, and of channel patterns of a selector.
pub(crate) const PATTERNS_MAX: usize = 10_000;
/// Maximum number of arguments of a SUBSCRIBE that checks its channels before it begins.
pub(crate) const CHANNELS_AT_ONCE_MAX: usize = 1024;
/// Maximum number of first arguments that a selector allows for one command.
pub(crate) const FIRST_ARGUMENTS_MAX: usize = 10_000;

/// A set of commands with the keys and channels that they may use.
#[derive(Clone, Debug)]
pub(crate) struct Selector {
    pub(super) commands: CommandSet,
    /// True when all commands are allowed (`+@all` without a later exclusion), so the set need not be checked.
    pub(super) all_commands: bool,
    /// The allowed first arguments of commands that are not in the set, by command number.
    pub(super) first_arguments: BTreeMap<usize, Vec<Vec<u8>>>,
    pub(super) all_keys: bool,
    pub(super) keys: Vec<KeyPattern>,
    /// The cost of matching a key against all key patterns.
    pub(super) match_cost: MatchCost,
    pub(super) all_channels: bool,
    pub(super) channels: Vec<Vec<u8>>,
}

/// A key pattern with its allowed access.
#[derive(Clone, Debug)]
pub(super) struct KeyPattern {
    pub(super) pattern: Vec<u8>,
    pub(super) access: Access,
}

/// The cost of matching a key against patterns, in pattern elements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct MatchCost {
    /// Elements tried per key, whatever its length.
    pub(crate) per_key: usize,
    /// Number of pattern elements that are tried per byte of a key.
    pub(crate) per_byte: usize,
}

impl MatchCost {
    fn of(pattern: &[u8]) -> MatchCost {
        let (per_key, per_byte) = glob::effort(pattern);
        MatchCost { per_key: per_key + COMPARISON_STEPS, per_byte }
    }
    pub(super) fn and(self, more: MatchCost) -> MatchCost {
        MatchCost {
            per_key: self.per_key.saturating_add(more.per_key),
            per_byte: self.per_byte.saturating_add(more.per_byte),
        }
    }
}

/// Elements that matching one pattern costs besides the pattern's own elements.
const COMPARISON_STEPS: usize = 8;
/// Elements between two calls of `may_continue`: about 100 us.
pub(super) const STEPS_PER_CHECK: usize = 32 * 1024;

/// Asks at intervals whether to continue a check.
pub(super) struct PacedCheck<'a> {
    left: usize,
    may_continue: &'a mut dyn FnMut() -> bool,
}

impl<'a> PacedCheck<'a> {
    pub(super) fn new(may_continue: &'a mut dyn FnMut() -> bool) -> PacedCheck<'a> {
        PacedCheck { left: STEPS_PER_CHECK, may_continue }
    }
    #[inline]
    fn spend(&mut self, steps: usize) -> bool {
        match self.left.checked_sub(steps) {
            Some(left) => {
                self.left = left;
                true
            }
            None => {
                self.left = STEPS_PER_CHECK;
                (self.may_continue)()
            }
        }
    }
}

impl Selector {
    /// A selector without commands and keys, and with all channels or none.
    pub(super) fn new(all_channels: bool) -> Selector {
        Selector {
            commands: CommandSet::new(false),
            all_commands: false,
            first_arguments: BTreeMap::new(),
            all_keys: false,
            keys: Vec::new(),
            match_cost: MatchCost::default(),
            all_channels,
            channels: Vec::new(),
        }
    }
    /// A selector that allows everything.
    pub(super) fn unrestricted() -> Selector {
        let mut all = Selector::new(true);
        all.set_all_commands(true);
        all.all_keys = true;
        all
    }
    /// True when the selector allows everything.
    pub(super) fn is_unrestricted(&self) -> bool {
        self.all_commands && self.all_keys && self.all_channels
    }

    /// Applies one ACL rule to the selector.
    pub(super) fn apply(&mut self, rule: &[u8]) -> Result<(), RuleError> {
        let name = c_text(rule);
        let is = |word: &str| name.eq_ignore_ascii_case(word.as_bytes());
        if is("allkeys") || is("~*") {
            self.set_all_keys(true);
        } else if is("resetkeys") {
            self.set_all_keys(false);
        } else if is("allchannels") || is("&*") {
            self.set_all_channels(true);
        } else if is("resetchannels") {
            self.set_all_channels(false);
        } else if is("allcommands") || is("+@all") {
            self.set_all_commands(true);
        } else if is("nocommands") || is("-@all") {
            self.set_all_commands(false);
        } else {
            return match *name {
                [b'~' | b'%', ..] => self.add_keys(rule),
                [b'&', ..] => self.add_channels(&rule[1..]),
                [sign @ (b'+' | b'-'), b'@', ref name @ ..] => self.change_category(name, sign == b'+'),
                [b'+', ref name @ ..] => self.allow(name),
                [b'-', ref name @ ..] => {
                    self.change(ACL_TABLE.find(name).ok_or(RuleError::Unknown)?, false);
                    Ok(())
                }
                _ => Err(RuleError::Syntax),
            };
        }
        Ok(())
    }

    fn set_all_keys(&mut self, all: bool) {
        self.all_keys = all;
        self.keys.clear();
        self.match_cost = MatchCost::default();
    }
    fn set_all_channels(&mut self, all: bool) {
        self.all_channels = all;
        self.channels.clear();
    }
    fn set_all_commands(&mut self, all: bool) {
        self.commands = CommandSet::new(all);
        self.all_commands = all;
        self.first_arguments.clear();
    }
    fn change(&mut self, id: usize, on: bool) {
        self.commands.change(id, on);
        self.all_commands &= on;
        self.first_arguments.remove(&id);
    }
    fn change_category(&mut self, name: &[u8], on: bool) -> Result<(), RuleError> {
        let category = category(name).ok_or(RuleError::Unknown)?;
        members(category).for_each(|id| self.change(id, on));
        Ok(())
    }

    /// `+command`, `+container|subcommand`, `+command|first-argument`.
    fn allow(&mut self, name: &[u8]) -> Result<(), RuleError> {
        let Some(bar) = memrchr(b'|', name) else {
            self.change(ACL_TABLE.find(name).ok_or(RuleError::Unknown)?, true);
            return Ok(());
        };
        let (command, argument) = (&name[..bar], &name[bar + 1..]);
        let id = ACL_TABLE.find(command).ok_or(RuleError::Unknown)?;
        let row = &ACL_TABLE.rows()[id];
        if row.is_subcommand {
            return Err(RuleError::FirstArgumentOfSubcommand);
        }
        // In a file a blank or a line end would split the rule into two rules or two users.
        if argument.is_empty() || has_blanks(argument) {
            return Err(RuleError::Syntax);
        }
        if !row.subcommands.is_empty() {
            self.change(ACL_TABLE.find(name).ok_or(RuleError::Unknown)?, true);
            return Ok(());
        }
        let allowed = self.first_arguments.entry(id).or_default();
        if allowed.len() == FIRST_ARGUMENTS_MAX {
            return Err(RuleError::TooMany("first arguments", FIRST_ARGUMENTS_MAX));
        }
        if !allowed.iter().any(|known| known.eq_ignore_ascii_case(argument)) {
            allowed.push(argument.to_vec());
        }
        Ok(())
    }

    /// `~pattern`, `%R~pattern`, `%W~pattern`, `%RW~pattern`.
    fn add_keys(&mut self, rule: &[u8]) -> Result<(), RuleError> {
        if self.all_keys {
            return Err(RuleError::AllKeysAlready);
        }
        let mut access = Access { read: rule[0] == b'~', write: rule[0] == b'~' };
        let mut pattern = &rule[1..];
        if rule[0] == b'%' {
            while let [letter, rest @ ..] = pattern {
                pattern = rest;
                match letter.to_ascii_uppercase() {
                    b'R' if !access.read => access.read = true,
                    b'W' if !access.write => access.write = true,
                    b'~' => break,
                    _ => return Err(RuleError::Syntax),
                }
            }
        }
        // A key pattern without read and write access. redis-server accepts it and crashes when it shows the user.
        if has_blanks(pattern) || !(access.read || access.write) {
            return Err(RuleError::Syntax);
        }
        if let Some(known) = self.keys.iter_mut().find(|known| known.pattern == pattern) {
            known.access.read |= access.read;
            known.access.write |= access.write;
            return Ok(());
        }
        if self.keys.len() == PATTERNS_MAX {
            return Err(RuleError::TooMany("key patterns", PATTERNS_MAX));
        }
        self.match_cost = self.match_cost.and(MatchCost::of(pattern));
        self.keys.push(KeyPattern { pattern: pattern.to_vec(), access });
        Ok(())
    }

    fn add_channels(&mut self, pattern: &[u8]) -> Result<(), RuleError> {
        if self.all_channels {
            return Err(RuleError::AllChannelsAlready);
        }
        if has_blanks(pattern) {
            return Err(RuleError::Syntax);
        }
        if self.channels.iter().any(|known| known == pattern) {
            return Ok(());
        }
        if self.channels.len() == PATTERNS_MAX {
            return Err(RuleError::TooMany("channel patterns", PATTERNS_MAX));
        }
        self.channels.push(pattern.to_vec());
        Ok(())
    }

    /// True when the selector allows the command with this number, keys and channels aside.
    #[inline]
    pub(super) fn allows_command(&self, id: usize, args: Args<'_>) -> bool {
        if self.all_commands || self.commands.has(id) {
            return true;
        }
        let Some(allowed) = self.first_arguments.get(&id) else { return false };
        args.get(1).is_some_and(|first| allowed.iter().any(|a| c_text(first).eq_ignore_ascii_case(a)))
    }
    /// True when the selector allows all of `access` to `key`.
    pub(super) fn allows_key(&self, key: &[u8], access: Access) -> bool {
        self.allows_key_paced(key, access, &mut PacedCheck::new(&mut || true)).unwrap_or(false)
    }
    /// True when the selector allows this channel, or exactly this channel pattern.
    pub(super) fn allows_channel(&self, topic: Topic, name: &[u8]) -> bool {
        let fits = |known: &Vec<u8>| match topic {
            Topic::Pattern => known == name,
            Topic::Channel | Topic::Shard => glob::matches(known, name, false),
        };
        self.all_channels || self.channels.iter().any(fits)
    }
    /// The first channel argument that the selector does not allow.
    pub(super) fn denied_channel(&self, spec: &CommandSpec, args: Args<'_>) -> Option<usize> {
        if self.all_channels {
            return None;
        }
        let channels = SessionCommand::of_row(spec)?.channels?;
        let end = if channels.all { args.len() } else { args.len().min(2) };
        (1..end).find(|at| !self.allows_channel(channels.topic, args.at(*at)))
    }
    /// True when one pattern allows all of `access` to every key that begins with `prefix`. A star at the end of a
    /// pattern matches any rest, so a pattern that matches the prefix matches all these keys.
    pub(super) fn allows_all(&self, prefix: &[u8], access: Access) -> bool {
        let is_open = |pattern: &[u8]| match pattern {
            // An escaped star, or a star that may be in a character class, does not match any rest.
            [.., b'\\', b'*'] => false,
            [.., b'*'] => !pattern.contains(&b'['),
            _ => false,
        };
        let serves = |p: &&KeyPattern| (!access.read || p.access.read) && (!access.write || p.access.write);
        let mut serving = self.keys.iter().filter(serves);
        // A lone star matches every key except the empty key, which no pattern matches.
        let takes = |p: &KeyPattern| p.pattern == b"*" || glob::matches(&p.pattern, prefix, false);
        self.all_keys || serving.any(|p| is_open(&p.pattern) && takes(p))
    }
    /// Does what [`Selector::allows_key`] does. `None` when `pace` stopped the check.
    pub(super) fn allows_key_paced(
        &self,
        key: &[u8],
        access: Access,
        pace: &mut PacedCheck<'_>,
    ) -> Option<bool> {
        if self.all_keys {
            return Some(true);
        }
        for p in &self.keys {
            if !pace.spend(COMPARISON_STEPS) {
                return None;
            }
            let serves = (!access.read || p.access.read) && (!access.write || p.access.write);
            if serves && glob::matches_counted(&p.pattern, key, false, |steps| pace.spend(steps))? {
                return Some(true);
            }
        }
        Some(false)
    }
}

fn memrchr(byte: u8, text: &[u8]) -> Option<usize> {
    text.iter().rposition(|b| *b == byte)
}
