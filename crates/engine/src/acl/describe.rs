//! Users as text: rules that recreate them.
//!
//! A selector keeps its allowed commands as a set, not as the original rules. The shown rules are found as in
//! redis-server 7.0: first the best category repeatedly, then the remaining commands one by one.

use super::commands::{ACL_TABLE, CATEGORIES, CommandSet, members};
use super::selector::Selector;
use super::user::User;
use strand_commands::spec::Access;

impl User {
    /// The words of the user's flags, in redis-server's order.
    pub(crate) fn flags(&self) -> Vec<&'static str> {
        let mut out = vec![if self.on { "on" } else { "off" }];
        out.extend(self.no_password.then_some("nopass"));
        out.extend(self.sanitize.map(|on| if on { "sanitize-payload" } else { "skip-sanitize-payload" }));
        out
    }
    /// The digests of the user's passwords in hexadecimal.
    pub(crate) fn password_digests(&self) -> Vec<String> {
        self.passwords.iter().map(|d| d.hex()).collect()
    }
    /// The root selector, and the selectors in parentheses.
    pub(crate) fn selectors(&self) -> (&Selector, &[Selector]) {
        self.selectors.split_first().expect("every user has rules of its own")
    }
    /// The words of the user's line in an ACL file: `user`, the name, the rules.
    pub(crate) fn words(&self) -> Vec<Vec<u8>> {
        let mut out = vec![b"user".to_vec(), self.name().to_vec()];
        out.extend(self.flags().into_iter().map(Vec::from));
        out.extend(self.password_digests().into_iter().map(|hex| format!("#{hex}").into()));
        let (root, more) = self.selectors();
        out.extend(root.words());
        out.extend(more.iter().map(|s| [b"(", &s.words().join(&b' ')[..], b")"].concat()));
        out
    }
    /// The user's line in an ACL file, without the line end.
    pub(crate) fn line(&self) -> Vec<u8> {
        self.words().join(&b' ')
    }
}

impl Selector {
    fn words(&self) -> Vec<Vec<u8>> {
        let mut out = self.key_rules();
        if !self.all_channels {
            out.push(b"resetchannels".to_vec());
        }
        out.extend(self.channel_rules());
        out.push(self.command_rules());
        out
    }
    /// The key patterns of the selector, written as rules.
    pub(crate) fn key_rules(&self) -> Vec<Vec<u8>> {
        if self.all_keys {
            return vec![b"~*".to_vec()];
        }
        let rule = |p: &super::selector::KeyPattern| {
            let sign: &[u8] = match p.access {
                Access::READ => b"%R~",
                Access::WRITE => b"%W~",
                // `~*` means all keys, to which no pattern can be added.
                _ if *p.pattern == *b"*" && self.keys.len() > 1 => b"%RW~",
                _ => b"~",
            };
            [sign, &p.pattern].concat()
        };
        self.keys.iter().map(rule).collect()
    }
    /// The selector's channel patterns as rules.
    pub(crate) fn channel_rules(&self) -> Vec<Vec<u8>> {
        match self.all_channels {
            true => vec![b"&*".to_vec()],
            false => self.channels.iter().map(|c| [b"&", &c[..]].concat()).collect(),
        }
    }
    /// The commands of the selector, written as rules.
    pub(crate) fn command_rules(&self) -> Vec<u8> {
        let all = self.commands.has_future();
        let mut out: Vec<Vec<u8>> = vec![if all { b"+@all".to_vec() } else { b"-@all".to_vec() }];
        // The set of the rules so far, and the commands that are left to describe.
        let (mut given, mut left) = (CommandSet::new(all), self.commands.clone());
        let mut applied = vec![false; CATEGORIES.len()];
        while let Some(best) = best_category(&left, &applied, all) {
            out.push(format!("{}@{}", sign(!all), CATEGORIES[best]).into());
            members(best).for_each(|id| given.change(id, !all));
            members(best).for_each(|id| left.change(id, all));
            applied[best] = true;
        }
        for id in ACL_TABLE.in_order() {
            let (row, on) = (&ACL_TABLE.rows()[id], self.commands.has(id));
            if on != given.has(id) {
                out.push(format!("{}{}", sign(on), row.name).into());
                given.change(id, on);
            }
            for first in self.first_arguments.get(&id).into_iter().flatten().filter(|_| !on) {
                out.push([b"+", row.name.as_bytes(), b"|", first].concat());
            }
        }
        out.join(&b' ')
    }
}

fn sign(on: bool) -> char {
    if on { '+' } else { '-' }
}

/// The best category for the next rule: its rule sets the fewest commands wrongly. Among several such categories, the
/// rule that sets the most commands rightly is best. `None` when no category sets more commands rightly than wrongly.
/// `all`: the rules begin with `+@all` and remove commands.
fn best_category(left: &CommandSet, applied: &[bool], all: bool) -> Option<usize> {
    let mut best: Option<(usize, usize, usize)> = None;
    for category in (0..CATEGORIES.len()).filter(|c| !applied[*c]) {
        let (on, off) = left.count(category);
        let (right, wrong) = if all { (off, on) } else { (on, off) };
        let better = best.is_none_or(|(_, most_right, fewest_wrong)| {
            wrong < fewest_wrong || wrong == fewest_wrong && right > most_right
        });
        if right > wrong && better {
            best = Some((category, right, wrong));
        }
    }
    best.map(|(category, ..)| category)
}
