//! The rules for prose: everything that a document or a comment names exists, some pages have a maximum length, and
//! prose avoids words that make readers stumble.
//!
//! A test in `crates/bench/src/page.rs` compares the figures of README with docs/benchmarks.md.

use super::allowances::BANNED_WORDS;
use super::{display_path, list, read, walk};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Words that stand for a noun that the reader must look for. Repeat the noun instead.
const BANNED: [&str; 10] = [
    "so many",
    "so few",
    "whoever",
    "whomever",
    "whichever",
    "it has told",
    "all the same",
    "by and by",
    "so to speak",
    "the like",
];

/// The file that lists [`BANNED`].
const BANNED_LIST: &str = "xtask/src/tidy/prose.rs";

/// Pages with a maximum length, in lines.
const PAGE_LINES_MAX: [(&str, usize); 2] = [("README.md", 120), ("ARCHITECTURE.md", 200)];

/// A text in backquotes that begins with one of these is taken as a path.
const PATH_PREFIXES: [&str; 11] = [
    "crates/",
    "docs/",
    "examples/",
    "xtask/",
    "fuzz/",
    "scripts/",
    "tests/",
    "bindings/",
    "packaging/",
    ".ci/",
    ".github/",
];

/// Reports paths, links and Makefile targets that documents name and that do not exist. Also reports pages that are
/// too long.
pub(super) fn documents(root: &Path, findings: &mut Vec<String>) {
    let targets = makefile_targets(root);
    for file in markdown(root) {
        let (path, text) = (display_path(root, &file), read(&file));
        if let Some((_, limit)) = PAGE_LINES_MAX.iter().find(|(page, _)| *page == path) {
            let lines = text.lines().count();
            if lines > *limit {
                findings.push(format!("{path}: {lines} lines; at most {limit}"));
            }
        }
        let folder = file.parent().unwrap_or(root);
        let mut in_fence = false;
        for (n, line) in text.lines().enumerate() {
            let at = format!("{path}:{}", n + 1);
            if line.trim_start().starts_with("```") {
                in_fence = !in_fence;
                continue;
            }
            for quoted in line.split('`').skip(1).step_by(2) {
                let named = quoted.split('#').next().unwrap_or_default();
                let is_path = PATH_PREFIXES.iter().any(|p| named.starts_with(p))
                    && !named.contains([' ', '*', '<', '{']);
                if is_path && !root.join(named).exists() {
                    findings.push(format!("{at}: `{named}` does not exist"));
                }
                check_target(&targets, quoted, &at, findings);
            }
            if in_fence || line.starts_with("    ") {
                check_target(&targets, line, &at, findings);
            }
            for (link, _) in line.split("](").skip(1).filter_map(|rest| rest.split_once(')')) {
                let (page, anchor) = link.split_once('#').unwrap_or((link, ""));
                let target = if page.is_empty() { file.clone() } else { folder.join(page) };
                let is_here = !link.contains(':');
                if is_here && (!target.exists() || !anchor.is_empty() && !has_anchor(&read(&target), anchor))
                {
                    findings.push(format!("{at}: the link `{link}` leads nowhere"));
                }
            }
        }
    }
}

/// Reports paths and Makefile targets that comments or the Makefile name and that do not exist.
pub(super) fn comments(root: &Path, sources: &[PathBuf], findings: &mut Vec<String>) {
    let targets = makefile_targets(root);
    let makefile = root.join("Makefile");
    for file in sources.iter().chain([&makefile]) {
        let path = display_path(root, file);
        for (n, line) in read(file).lines().enumerate() {
            if *file != makefile && !line.trim_start().starts_with("//") {
                continue;
            }
            let at = format!("{path}:{}", n + 1);
            for word in line.split_whitespace() {
                let named = word.trim_matches(|c: char| !c.is_ascii_alphanumeric() && c != '/');
                let is_path = PATH_PREFIXES.iter().any(|prefix| named.starts_with(prefix));
                let is_plain = named.bytes().all(|b| b.is_ascii_alphanumeric() || b"/._-".contains(&b))
                    && !named.contains("...");
                // A comment may name a path relative to its crate.
                let crates_own =
                    file.ancestors().any(|folder| folder.starts_with(root) && folder.join(named).exists());
                if is_path && is_plain && !crates_own {
                    findings.push(format!("{at}: `{named}` does not exist"));
                }
            }
            for quoted in line.split('`').skip(1).step_by(2) {
                check_target(&targets, quoted, &at, findings);
            }
        }
    }
}

/// Reports folders in which more lines of sources (comments and texts) and documents have banned words than the folder's
/// allowance.
pub(super) fn words(root: &Path, sources: &[PathBuf], findings: &mut Vec<String>) {
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for file in sources.iter().chain(&markdown(root)) {
        let path = display_path(root, file);
        if path == BANNED_LIST {
            continue;
        }
        for (n, line) in read(file).lines().enumerate() {
            let line = line.trim_start().to_ascii_lowercase();
            if BANNED.iter().any(|word| has_word(&line, word)) {
                found.entry(folder_of(&path)).or_default().push(format!("{path}:{}", n + 1));
            }
        }
    }
    for (folder, places) in &found {
        let limit = BANNED_WORDS.iter().find(|(name, _)| name == folder).map_or(0, |(_, limit)| *limit);
        if places.len() > limit {
            findings.push(format!(
                "{folder}: {} lines have one of {BANNED:?}, at most {limit} may: say the noun; they are {}",
                places.len(),
                places.join(" ")
            ));
        }
    }
    for (folder, limit) in BANNED_WORDS {
        let count = found.get(*folder).map_or(0, Vec::len);
        if count < *limit {
            println!("tidy: {folder} has {count} lines with banned words; lower its allowance of {limit}");
        }
    }
}

/// The folder of a path, such as `crates/engine/` for `crates/engine/src/lib.rs`.
fn folder_of(path: &str) -> String {
    path.split_inclusive('/').take(2).collect()
}

/// True when a heading of the document `text` has this anchor: in lower case, without punctuation, with dashes for
/// spaces.
fn has_anchor(text: &str, anchor: &str) -> bool {
    let of_heading = |heading: &str| -> String {
        let kept = heading.trim().chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        kept.map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() }).collect()
    };
    text.lines().any(|line| line.starts_with('#') && of_heading(line.trim_start_matches('#')) == anchor)
}

/// True when `line` has `word` as a whole word.
fn has_word(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + word.len()..].chars().next();
        !before.is_some_and(char::is_alphanumeric) && !after.is_some_and(char::is_alphanumeric)
    })
}

/// Reports a make command that names a target which the Makefile does not have.
fn check_target(targets: &BTreeSet<String>, command: &str, at: &str, findings: &mut Vec<String>) {
    if let Some(target) = make_target(command)
        && !targets.contains(target)
    {
        findings.push(format!("{at}: the Makefile has no target `{target}`"));
    }
}

/// The target of a make command, such as `test` for `PORT=1 make test`.
fn make_target(command: &str) -> Option<&str> {
    let mut words = command.split_whitespace().skip_while(|word| word.contains('=') || *word == "$");
    if words.next() != Some("make") {
        return None;
    }
    words.next().filter(|word| word.bytes().all(|b| b.is_ascii_lowercase() || b == b'-'))
}

fn makefile_targets(root: &Path) -> BTreeSet<String> {
    let text = read(&root.join("Makefile"));
    let names = text.lines().filter_map(|line| line.split_once(':')).map(|(name, _)| name);
    names
        .filter(|name| name.bytes().all(|b| b.is_ascii_lowercase() || b == b'-'))
        .map(str::to_owned)
        .collect()
}

/// All documents. A template (`NAME.in.md`) is left out, because the page that is made from it is checked.
fn markdown(root: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = list(root).into_iter().filter(|path| path.is_file()).collect();
    for folder in ["docs", ".github", "bindings", "crates", "packaging"] {
        walk(&root.join(folder), &mut files);
    }
    files.retain(|file| {
        let name = file.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name.ends_with(".md") && !name.ends_with(".in.md")
    });
    files
}
