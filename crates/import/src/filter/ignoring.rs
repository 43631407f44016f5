//! [`Ignoring`]: a source without the files that its `.gitignore` files exclude.
//!
//! The rules are git's. A `.gitignore` applies to everything below its folder. A deeper `.gitignore` overrides a higher
//! one. In one `.gitignore` the last matching line counts. Nothing in an excluded folder can be included again. `.git`
//! is always excluded. If a `.gitignore` cannot be read, its folder fails: without the rules too much would be
//! imported.

use super::{EXCLUDE_FILE_BYTES_MAX, GLOBS_MAX};
use crate::container::{Container, ContainerBuilder, ContainerDigest, EntryKind, digest};
use crate::source::read::read;
use crate::source::{ListError, Listing, Source, Tokens, delegates_to_source, parts};
use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// The name of the files whose rules are applied.
const FILE: &[u8] = b".gitignore";
/// The folder in which git keeps its own files.
const GIT: &[u8] = b".git";

/// A source that obeys the `.gitignore` files in it.
pub struct Ignoring {
    source: Box<dyn Source>,
    /// The rules of the folder that was listed last and of all folders above it: paths and rules, the root first.
    ancestors: Vec<(Vec<u8>, Rc<Rules>)>,
}

/// The rules of one folder.
#[derive(Debug)]
struct Rules {
    /// The rules in the folder's `.gitignore`. `None` when it has no such file.
    own: Option<Gitignore>,
    /// The digest of the rules of this folder and of all folders above it.
    digest: ContainerDigest,
}

impl Ignoring {
    /// `source` without the ignored files.
    pub fn new(source: Box<dyn Source>) -> Ignoring {
        Ignoring { source, ancestors: Vec::new() }
    }

    /// Makes `ancestors` end at `path`, whose listing is `blob`. Lists folders above `path` whose rules are not known.
    fn load_rules(&mut self, path: &[u8], blob: &[u8]) -> Result<(), ListError> {
        let is_above = |at: &[u8]| at.is_empty() || path.starts_with(at) && path.get(at.len()) == Some(&b'/');
        self.ancestors.retain(|(at, _)| is_above(at) && at.len() < path.len());
        let names = path.split(|b| *b == b'/').filter(|name| !name.is_empty());
        let mut above = vec![Vec::new()];
        above.extend(names.scan(Vec::new(), |at: &mut Vec<u8>, name| {
            *at = crate::job::join(at, name);
            Some(at.clone())
        }));
        for (depth, at) in above.iter().enumerate() {
            if self.ancestors.get(depth).is_some_and(|(led, _)| led == at) {
                continue;
            }
            self.ancestors.truncate(depth);
            let listed = if at == path { None } else { Some(self.source.list(at, false)?.blob) };
            let rules = self.rules(at, listed.as_deref().unwrap_or(blob));
            let shown = || PathBuf::from(OsStr::from_bytes(&crate::job::join(at, FILE)));
            let rules = rules.map_err(|error| ListError::Io { path: shown(), error })?;
            self.ancestors.push((at.clone(), Rc::new(rules)));
        }
        Ok(())
    }

    fn rules(&mut self, path: &[u8], blob: &[u8]) -> io::Result<Rules> {
        let above = self.ancestors.last().map_or(ContainerDigest::default(), |(_, rules)| rules.digest);
        let container = Container::parse(blob).map_err(|error| io::Error::other(error.to_string()))?;
        // In a folder that is listed in parts, `.gitignore` is in one of the parts, and applies to the whole folder.
        let part = parts::name_of(parts::part_of(FILE));
        let listed;
        let (path, container) = match container.find(&part).filter(|entry| entry.kind == EntryKind::Container)
        {
            Some(_) => {
                let part = crate::job::join(path, &part);
                listed =
                    self.source.list(&part, false).map_err(|error| io::Error::other(error.to_string()))?;
                let container = Container::parse(&listed.blob);
                (part, container.map_err(|error| io::Error::other(error.to_string()))?)
            }
            None => (path.to_vec(), container),
        };
        let path = &path[..];
        let Some(entry) = container.find(FILE).filter(|entry| entry.kind == EntryKind::Document) else {
            return Ok(Rules { own: None, digest: above });
        };
        let (mut text, source) = (Vec::new(), &mut self.source);
        let opened = || source.open(path, &entry);
        let done = read(opened, &mut text, |_, size| size <= EXCLUDE_FILE_BYTES_MAX);
        let done = done.map_err(|error| io::Error::other(error.to_string()))?;
        if !done.whole {
            return Err(io::Error::other(format!("it has more than {EXCLUDE_FILE_BYTES_MAX} bytes")));
        }
        let mut builder = GitignoreBuilder::new("");
        let lines = String::from_utf8_lossy(&text);
        for (number, line) in lines.trim_start_matches('\u{feff}').lines().enumerate() {
            if number >= GLOBS_MAX {
                return Err(io::Error::other(format!("it has more than {GLOBS_MAX} lines")));
            }
            // A line that is not a glob matches nothing, as for git.
            let _ = builder.add_line(None, &as_git_reads(line));
        }
        let own = builder.build().map_err(|error| io::Error::other(error.to_string()))?;
        Ok(Rules { own: Some(own), digest: digest(&[&above[..], path, b"\0", &text].concat()) })
    }

    /// True when the entry `name` of the last folder in `ancestors` is excluded.
    fn is_ignored(&self, path: &[u8], name: &[u8], is_folder: bool) -> bool {
        let whole = crate::job::join(path, name);
        for (at, rules) in self.ancestors.iter().rev() {
            let below = if at.is_empty() { &whole[..] } else { &whole[at.len() + 1..] };
            let matched =
                rules.own.as_ref().map(|own| own.matched(Path::new(OsStr::from_bytes(below)), is_folder));
            match matched {
                Some(Match::Ignore(_)) => return true,
                Some(Match::Whitelist(_)) => return false,
                _ => {}
            }
        }
        false
    }
}

/// The line in the syntax of the library. For git, braces are plain characters. The library reads `{a,b}` as a choice.
/// Git knows the classes of POSIX (`[[:alpha:]]`). The library does not.
fn as_git_reads(line: &str) -> String {
    const CLASSES: [(&str, &str); 6] = [
        ("[:alpha:]", "a-zA-Z"),
        ("[:digit:]", "0-9"),
        ("[:alnum:]", "a-zA-Z0-9"),
        ("[:lower:]", "a-z"),
        ("[:upper:]", "A-Z"),
        ("[:xdigit:]", "0-9a-fA-F"),
    ];
    let mut out = String::with_capacity(line.len());
    let mut is_escaped = false;
    for c in line.chars() {
        if matches!(c, '{' | '}') && !is_escaped {
            out.push('\\');
        }
        is_escaped = c == '\\' && !is_escaped;
        out.push(c);
    }
    CLASSES.iter().fold(out, |line, (class, range)| line.replace(class, range))
}

impl Source for Ignoring {
    fn tokens(&self) -> Tokens {
        self.source.tokens()
    }

    fn list(&mut self, path: &[u8], distrust: bool) -> Result<Listing, ListError> {
        let mut listing = self.source.list(path, distrust)?;
        match parts::divide(path) {
            None => self.load_rules(path, &listing.blob)?,
            // The rules of a container apply to its parts.
            Some((above, _)) if self.ancestors.last().is_some_and(|(led, _)| led == above) => {}
            Some((above, _)) => {
                let whole = self.source.list(above, false)?;
                self.load_rules(above, &whole.blob)?;
            }
        }
        let failed = |error| ListError::Container { path: PathBuf::from(OsStr::from_bytes(path)), error };
        let all = Container::parse(&listing.blob).map_err(failed)?;
        let is_content = self.source.tokens() == Tokens::Content;
        let rules = self.ancestors.last().map_or(ContainerDigest::default(), |(_, rules)| rules.digest);
        let mut builder = ContainerBuilder::with_capacity(all.producer(), all.len(), all.blob().len());
        for entry in all.iter() {
            let is_folder = entry.kind == EntryKind::Container;
            let is_part = is_folder && parts::number(entry.name).is_some();
            if entry.name == GIT || !is_part && self.is_ignored(path, entry.name, is_folder) {
                listing.skipped.filtered += 1;
                continue;
            }
            // The token includes the rules, because a tree under other rules has other documents.
            let marked = digest(&[&rules[..], entry.token].concat());
            let token = if is_content && is_folder { &marked[..] } else { entry.token };
            builder.push(entry.kind, entry.name, entry.size, token, entry.pairs()).map_err(failed)?;
        }
        let blob = builder.finish().map_err(failed)?;
        listing.blob = blob;
        listing.refused.retain(|(name, _)| !self.is_ignored(path, name, false));
        Ok(listing)
    }

    delegates_to_source!();
}
