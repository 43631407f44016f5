//! Reads users from text (the ACL file, `user` lines of the configuration) and writes them.
//!
//! An ACL file has a line `user NAME rule ...` for each user, with single blanks and without quotes or comments. It
//! is applied as a whole or not at all. `user` lines of the configuration file use that file's quotes.

use super::password::PASSWORD_BYTES_MAX;
use super::rule::{RuleError, has_blanks};
use super::user::User;
use super::{Acl, DEFAULT_USER};
use crate::config::{SourceLine, text};
use std::collections::BTreeMap;
use std::sync::Arc;
use strand_wire::reply::ErrorText;

/// A rule that cannot be applied, and why.
type RuleProblem = (Vec<u8>, RuleError);

/// The text after the errors of an ACL file.
const NOTHING_CHANGED: &[u8] =
    b"WARNING: ACL errors detected, no change to the previously active ACL rules was performed";

/// Joins the words of a rule in parentheses that was split at blanks: `(+get ~a)`.
///
/// # Errors
/// The index of the word whose parenthesis is never closed.
pub(crate) fn merge_selectors<'a>(words: impl Iterator<Item = &'a [u8]>) -> Result<Vec<Vec<u8>>, usize> {
    let mut out = Vec::new();
    // The index and the text of the rule whose parenthesis is open.
    let mut open: Option<(usize, Vec<u8>)> = None;
    for (i, word) in words.enumerate() {
        if word.starts_with(b"(") && !word.ends_with(b")") {
            open = Some((i, word.to_vec()));
        } else if let Some((_, rule)) = &mut open {
            rule.push(b' ');
            rule.extend_from_slice(word);
            if word.ends_with(b")") {
                out.extend(open.take().map(|(_, rule)| rule));
            }
        } else {
            out.push(word.to_vec());
        }
    }
    open.map_or(Ok(out), |(at, _)| Err(at))
}

impl Acl {
    /// Applies the text of an ACL file, or changes nothing. `name` is the file's name, for errors.
    ///
    /// # Errors
    /// All errors of the text, in redis-server's words.
    pub(crate) fn load(&self, text: &[u8], name: &str, all_channels: bool) -> Result<(), ErrorText> {
        let (mut users, mut errors): (BTreeMap<Vec<u8>, User>, Vec<u8>) = (BTreeMap::new(), Vec::new());
        for (i, line) in text.split(|b| *b == b'\n').enumerate() {
            let line = trim(line, b" \t\r\n");
            if line.is_empty() {
                continue;
            }
            match user_of(line, all_channels) {
                Err(LineError::At(text)) => {
                    errors.extend(format!("{name}:{}", i + 1).bytes().chain(text));
                }
                Err(LineError::BadName(user)) => {
                    errors.extend(format!("'{name}:{}: username '", i + 1).bytes().chain(user));
                    errors.extend(b"' contains invalid characters. ");
                }
                Ok((user, _)) if users.contains_key(user.name()) => {
                    errors.extend(b"WARNING: Duplicate user '".iter().chain(user.name()));
                    errors.extend(format!("' found on line {}. ", i + 1).bytes());
                }
                Ok((user, rule_errors)) => {
                    for (rule, error) in rule_errors {
                        errors.extend(format!("{name}:{}: ", i + 1).bytes());
                        if error == RuleError::Unknown {
                            errors.extend(b"Error in applying operation '".iter().chain(&rule));
                            errors.extend(b"': ");
                        }
                        errors.extend(format!("{error}. ").bytes());
                    }
                    users.insert(user.name().to_vec(), user);
                }
            }
        }
        if !errors.is_empty() {
            errors.extend_from_slice(NOTHING_CHANGED);
            return Err(errors);
        }
        if users.len() > super::USERS_MAX {
            return Err(format!("There may be at most {} users", super::USERS_MAX).into());
        }
        self.replace(users.into_values().collect());
        Ok(())
    }
    /// All users, in the form of an ACL file.
    pub(crate) fn text(&self) -> Vec<u8> {
        self.all().iter().flat_map(|user| user.line().into_iter().chain([b'\n'])).collect()
    }
    /// Applies a `user` line of the configuration: the name and its rules. Each user may have one line.
    ///
    /// # Errors
    /// What is wrong with the line.
    pub(crate) fn configure(&self, words: &[Vec<u8>], all_channels: bool) -> Result<(), UsersError> {
        let (name, rules) = words.split_first().ok_or(UsersError::NoName)?;
        let user = || lossy(name);
        if has_blanks(name) {
            return Err(UsersError::BlanksInName { user: user() });
        }
        let mut rules = merge_selectors(rules.iter().map(|r| r.as_slice()))
            .map_err(|at| UsersError::UnmatchedParenthesis { user: user(), word: lossy(&rules[at]) })?;
        if name == DEFAULT_USER {
            rules.insert(0, b"reset".to_vec());
        } else if self.get(name).is_some() {
            return Err(UsersError::Duplicate { user: user() });
        }
        self.set_user(name, &rules, all_channels).map_err(|(rule, error)| UsersError::Rule {
            user: user(),
            rule: lossy(&rule),
            error,
        })
    }
}

/// Why the server cannot start with the users of its configuration or of its ACL file. The texts about a `user` line
/// are redis-server's.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UsersError {
    /// There are `user` lines and an ACL file.
    #[error("users are declared in the configuration and an aclfile is given: it can only be one of them")]
    DeclaredTwice,
    /// A `user` line of the configuration is invalid.
    #[error("{place}: {error}")]
    Line {
        /// Where the line is.
        place: SourceLine,
        /// What is wrong with the line.
        error: Box<UsersError>,
    },
    /// `requirepass` is longer than a password may be.
    #[error("requirepass has more than {PASSWORD_BYTES_MAX} bytes")]
    LongPassword,
    /// A `user` line has no further word.
    #[error("a user line has no name")]
    NoName,
    /// The name of a user has blanks.
    #[error("user '{user}': Spaces not allowed in ACL usernames")]
    BlanksInName {
        /// The user's name.
        user: String,
    },
    /// A parenthesis is not closed.
    #[error("user '{user}': Unmatched parenthesis in '{word}'")]
    UnmatchedParenthesis {
        /// The user's name.
        user: String,
        /// The word with the open parenthesis.
        word: String,
    },
    /// Two `user` lines have this name.
    #[error("user '{user}': Duplicate user found. A user can only be defined once in config files")]
    Duplicate {
        /// The user's name.
        user: String,
    },
    /// A rule of a user is not valid.
    #[error("user '{user}': '{rule}': {error}")]
    Rule {
        /// The user's name.
        user: String,
        /// The rule.
        rule: String,
        /// What is wrong with the rule.
        error: RuleError,
    },
    /// The ACL file cannot be read, or has errors. Holds redis-server's text, which lists all errors of the file.
    #[error("{0}")]
    File(String),
}

/// What is wrong with a line of an ACL file.
enum LineError {
    /// An error with this text, which is shown after the file and the line number.
    At(Vec<u8>),
    /// The line's user name is not valid.
    BadName(Vec<u8>),
}

/// The user of a line, and the errors of its invalid rules.
fn user_of(line: &[u8], all_channels: bool) -> Result<(User, Vec<RuleProblem>), LineError> {
    let words: Vec<&[u8]> = line.split(|b| *b == b' ').collect();
    let [b"user", name, rules @ ..] = &words[..] else {
        return Err(LineError::At(b" should start with user keyword followed by the username. ".to_vec()));
    };
    if has_blanks(name) {
        return Err(LineError::BadName(name.to_vec()));
    }
    let rules = merge_selectors(rules.iter().copied())
        .map_err(|_| LineError::At(b": Unmatched parenthesis in selector definition.".to_vec()))?;
    let mut user = User::new(name, 0, all_channels);
    let (mut errors, mut has_other) = (Vec::new(), false);
    for rule in &rules {
        let rule = trim(rule, b"\t\r\n");
        let Err(error) = user.apply(rule, all_channels) else { continue };
        // Of all other errors, report only the first, because it may be the cause of the later errors.
        let is_other = error != RuleError::Unknown;
        if !(is_other && has_other) {
            errors.push((rule.to_vec(), error));
        }
        has_other |= is_other;
    }
    Ok((user, errors))
}

/// The text of a configuration file with `users` in place of its `user` lines.
pub(crate) fn rewrite_users(old: &str, users: &[Arc<User>]) -> String {
    let is_user = |line: &&str| text::first_word(line).eq_ignore_ascii_case("user");
    let mut lines = users.iter().map(|user| {
        // In a configuration file, a rule in parentheses or a list of commands is split into words at its blanks.
        user.line().split(|b| *b == b' ').map(quote_if_needed).collect::<Vec<_>>().join(" ")
    });
    let mut out = String::new();
    let mut add = |line: &str| {
        out.push_str(line);
        out.push('\n');
    };
    for line in old.lines() {
        match is_user(&line) {
            true => lines.next().iter().for_each(|l| add(l)),
            false => add(line),
        }
    }
    lines.for_each(|line| add(&line));
    out
}

/// A word of a configuration file, quoted if necessary.
fn quote_if_needed(word: &[u8]) -> String {
    match std::str::from_utf8(word) {
        Ok(plain) if word.iter().all(|b| (b'!'..=b'~').contains(b) && !b"\"'\\".contains(b)) => plain.into(),
        _ => text::quote(word),
    }
}

fn trim<'a>(mut text: &'a [u8], blanks: &[u8]) -> &'a [u8] {
    while let [first, rest @ ..] = text
        && blanks.contains(first)
    {
        text = rest;
    }
    while let [rest @ .., last] = text
        && blanks.contains(last)
    {
        text = rest;
    }
    text
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
