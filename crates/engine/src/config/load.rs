//! Reads configuration text line by line into a [`Config`]: files, standard input, the command line.
//!
//! An invalid line stops the reading with an error that names the place ([`ConfigError`]). A valid line without
//! effect in this version is recorded ([`Note`]), for one report at the start.

use super::error::{ConfigLineError, ValueError};
use super::nearest::{DIRECTIVES, nearest};
use super::table::{OptionSpec, find};
use super::text::{UnbalancedQuotes, split_words};
use super::value::Value;
use super::{Config, Opt, default_value};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Deepest nesting of included files.
pub const INCLUDE_DEPTH_MAX: usize = 16;
/// Maximum number of files in total, includes counted. Without a bound, two files that include each other twice would
/// be read forever.
pub const FILES_MAX: usize = 1000;
/// Maximum number of characters of a line or a word in a message.
const SHOWN_CHARS_MAX: usize = 100;
/// Options that redis-server 7.0 accepts and ignores.
const DEPRECATED: [&str; 3] =
    ["list-max-ziplist-entries", "list-max-ziplist-value", "lua-replicate-commands"];

/// Configuration text and its origin.
#[derive(Clone, Debug)]
pub struct ConfigText {
    /// The name in messages: a path, or another description.
    pub name: String,
    /// The text: any bytes but zeros.
    pub text: Vec<u8>,
    /// True for a file: messages then have line numbers.
    pub is_numbered: bool,
}

/// The error for an invalid line of a configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {reason}")]
pub struct ConfigError {
    /// Where the line is.
    pub place: SourceLine,
    /// Why the line is invalid.
    pub reason: ConfigLineError,
}

/// A line of a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceLine {
    /// The name of the source: [`ConfigText::name`].
    pub source: Arc<str>,
    /// The line number from 1. 0: the source as a whole.
    pub line: usize,
}

/// A `user` line.
#[derive(Clone, Debug)]
pub(crate) struct UserLine {
    /// Where the line is.
    pub(crate) place: SourceLine,
    /// The user's name and its rules.
    pub(crate) words: Vec<Vec<u8>>,
}

/// An option that was given and has no effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// The last place where the option was given.
    pub place: SourceLine,
    /// The option's name.
    pub name: String,
    /// Why the option has no effect.
    pub why: &'static str,
    /// True when the given value is the default, so that the line changes nothing, also in redis-server.
    pub is_default: bool,
}

impl fmt::Display for SourceLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}", self.source),
            line => write!(f, "{}:{line}", self.source),
        }
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} has no effect: {}", self.place, self.name, self.why)
    }
}

/// Returns the files of an `include`. A pattern may match several.
pub type Include<'a> = &'a mut dyn FnMut(&str) -> Result<Vec<ConfigText>, String>;

impl Config {
    /// Reads configuration text: one `name value ...` per line, as in redis.conf. `include` returns included files.
    ///
    /// # Errors
    /// For the first invalid line. The options before it are set.
    pub fn load(&self, source: &ConfigText, include: Include<'_>) -> Result<(), ConfigError> {
        self.load_at_depth(source, include, 0, &mut 0)
    }
    /// Does what [`Config::load`] does, for text without includes.
    ///
    /// # Errors
    /// Like [`Config::load`].
    pub fn load_text(&self, text: &str) -> Result<(), ConfigError> {
        let source = ConfigText { name: "configuration".into(), text: text.into(), is_numbered: false };
        self.load(&source, &mut |_| Err("nothing is included here".into()))
    }
    /// Options that were given and have no effect, each once, in the order of their places.
    pub fn notes(&self) -> Vec<Note> {
        self.notes.lock().clone()
    }
    fn load_at_depth(
        &self,
        source: &ConfigText,
        include: Include<'_>,
        depth: usize,
        files: &mut usize,
    ) -> Result<(), ConfigError> {
        let name: Arc<str> = source.name.as_str().into();
        let place =
            |line| SourceLine { source: name.clone(), line: if source.is_numbered { line } else { 0 } };
        *files += 1;
        if *files > FILES_MAX {
            return Err(ConfigError { place: place(0), reason: ConfigLineError::TooManyFiles });
        }
        for (i, line) in source.text.split(|b| *b == b'\n').enumerate() {
            let failed = |reason| ConfigError { place: place(i + 1), reason };
            if line.contains(&0) {
                return Err(failed(ConfigLineError::NulByte));
            }
            let line = line.trim_ascii();
            if line.is_empty() || line.starts_with(b"#") {
                continue;
            }
            let words = split_words(line).map_err(|UnbalancedQuotes| {
                failed(ConfigLineError::UnbalancedQuotes(shown(first_word(line))))
            })?;
            let words: Vec<&[u8]> = words.iter().map(|w| w.as_slice()).collect();
            let Some((name, rest)) = words.split_first() else { continue };
            if !(name.eq_ignore_ascii_case(b"include") && rest.len() == 1) {
                self.apply_line(name, rest, place(i + 1)).map_err(failed)?;
                continue;
            }
            if depth == INCLUDE_DEPTH_MAX {
                return Err(failed(ConfigLineError::TooDeep));
            }
            let included = include(&String::from_utf8_lossy(rest[0]));
            for inner in included.map_err(|text| failed(ConfigLineError::Include(text)))? {
                self.load_at_depth(&inner, include, depth + 1, files)?;
            }
        }
        Ok(())
    }
    /// Applies one line, split into words.
    fn apply_line(&self, name: &[u8], rest: &[&[u8]], place: SourceLine) -> Result<(), ConfigLineError> {
        let Some(option) = find(name) else { return self.apply_directive(name, rest, place) };
        let spec = option.spec();
        let wrong = |error| explain(spec, name, rest, error);
        if rest.is_empty() && !spec.is_word_list() {
            return Err(wrong(ValueError::WordCount));
        }
        // As in redis-server, quotes may put all words into one.
        let split: Vec<&[u8]>;
        let rest = match rest {
            [word] if spec.is_word_list() && !word.is_empty() => {
                split = word.split(|b| *b == b' ').filter(|part| !part.is_empty()).collect();
                &split[..]
            }
            rest => rest,
        };
        let mut values = self.values.write();
        // The first line of an option whose lines add up replaces the option's default.
        let was_given = self.given[option as usize].swap(true, Relaxed);
        let before = (was_given || !spec.is_cumulative()).then_some(&values[option as usize]);
        let value = Value::parse(spec, rest, before).map_err(wrong)?;
        self.put(&mut values, option, value);
        drop(values);
        if let Some(why) = spec.no_effect {
            self.note(Note { place, name: spec.name.into(), why, is_default: self.is_default(option) });
        }
        Ok(())
    }
    /// Applies a line that does not begin with an option.
    fn apply_directive(&self, name: &[u8], rest: &[&[u8]], place: SourceLine) -> Result<(), ConfigLineError> {
        let is = |directive: &str| name.eq_ignore_ascii_case(directive.as_bytes());
        let without_effect = |why| {
            self.note(Note { place: place.clone(), name: shown(name), why, is_default: false });
            Ok(())
        };
        if is("user") && !rest.is_empty() {
            self.users
                .lock()
                .push(UserLine { place: place.clone(), words: rest.iter().map(|w| w.to_vec()).collect() });
            return Ok(());
        }
        if is("loadmodule") && !rest.is_empty() {
            return without_effect("modules are not loaded, so their commands do not exist");
        }
        if is("rename-command") {
            return Err(ConfigLineError::RenameCommand);
        }
        if is("sentinel") {
            return Err(ConfigLineError::Sentinel);
        }
        if DEPRECATED.into_iter().any(is) && rest.len() == 1 {
            return without_effect("redis-server 7.0 ignores this option, too");
        }
        if DIRECTIVES.into_iter().any(is) {
            return Err(ConfigLineError::WordCount(shown(name)));
        }
        if name.contains(&b'.') {
            return without_effect("it looks like an option of a module, and modules are not loaded");
        }
        Err(ConfigLineError::UnknownOption { name: shown(name), nearest: nearest(name) })
    }
    fn note(&self, note: Note) {
        let mut notes = self.notes.lock();
        notes.retain(|known| known.name != note.name);
        notes.push(note);
    }
    fn is_default(&self, option: Opt) -> bool {
        self.values.read()[option as usize] == default_value(option.spec())
    }
}

/// The error for an invalid line of an option.
fn explain(spec: &OptionSpec, name: &[u8], rest: &[&[u8]], error: ValueError) -> ConfigLineError {
    let line = match spec.is_secret() || rest.is_empty() {
        true => shown(name),
        false => shown(&[&[name], rest].concat().join(&b' ')),
    };
    let takes = (!error.lists_accepted_values()).then(|| spec.takes());
    ConfigLineError::Value { line, error, takes }
}

fn first_word(line: &[u8]) -> &[u8] {
    line.split(|b| b.is_ascii_whitespace()).next().unwrap_or_default()
}

/// Quotes bytes of a file for a message: bounded, and without control characters.
fn shown(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(4 * SHOWN_CHARS_MAX)]);
    let mut out = String::from("\"");
    for c in text.chars().take(SHOWN_CHARS_MAX) {
        match c.is_control() {
            true => out.extend(c.escape_default()),
            false => out.push(c),
        }
    }
    if text.chars().nth(SHOWN_CHARS_MAX).is_some() {
        out.push_str("...");
    }
    out.push('"');
    out
}
