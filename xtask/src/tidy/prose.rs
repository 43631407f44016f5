//! The rules for prose: what documents name exists, pages stay short, and comments avoid words that readers stumble over.
//!
//! That README's figures are those of docs/benchmarks.md is held by a test of `crates/bench/src/page.rs`.

use super::allowances::BANNED_WORDS;
use super::{list, read, shown, walk};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Words that stand for a noun which the reader must look for. STYLE: repeat the noun.
const BANNED: [&str; 6] = ["so many", "so few", "whoever", "whomever", "whichever", "it has told"];

/// Pages that are read whole, with the lines that each may have.
const PAGE_LINES_MAX: [(&str, usize); 2] = [("README.md", 120), ("ARCHITECTURE.md", 200)];

/// What a path in backquotes begins with.
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

/// Paths, links and Makefile targets that documents name exist; pages that are read whole are short.
pub(super) fn documents(root: &Path, findings: &mut Vec<String>) {
    let targets = makefile_targets(root);
    for file in markdown(root) {
        let (path, text) = (shown(root, &file), read(&file));
        if let Some((_, most)) = PAGE_LINES_MAX.iter().find(|(page, _)| *page == path) {
            let lines = text.lines().count();
            if lines > *most {
                findings.push(format!("{path}: {lines} lines; at most {most}"));
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
                look_for_target(&targets, quoted, &at, findings);
            }
            if in_fence || line.starts_with("    ") {
                look_for_target(&targets, line, &at, findings);
            }
            for (link, _) in line.split("](").skip(1).filter_map(|rest| rest.split_once(')')) {
                let link = link.split('#').next().unwrap_or_default();
                let is_here = !link.is_empty() && !link.contains(':');
                if is_here && !folder.join(link).exists() {
                    findings.push(format!("{at}: the link `{link}` leads nowhere"));
                }
            }
        }
    }
}

/// Comments of a folder have no more lines with banned words than its allowance.
pub(super) fn words(root: &Path, sources: &[PathBuf], findings: &mut Vec<String>) {
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for file in sources {
        let path = shown(root, file);
        for (n, line) in read(file).lines().enumerate() {
            let line = line.trim_start().to_ascii_lowercase();
            if line.starts_with("//") && BANNED.iter().any(|word| has_word(&line, word)) {
                found.entry(folder_of(&path)).or_default().push(format!("{path}:{}", n + 1));
            }
        }
    }
    for (folder, places) in &found {
        let most = BANNED_WORDS.iter().find(|(name, _)| name == folder).map_or(0, |(_, most)| *most);
        if places.len() > most {
            findings.push(format!(
                "{folder}: {} comment lines have one of {BANNED:?}, at most {most} may: say the noun; they are {}",
                places.len(),
                places.join(" ")
            ));
        }
    }
    for (folder, most) in BANNED_WORDS {
        let count = found.get(*folder).map_or(0, Vec::len);
        if count < *most {
            println!("tidy: {folder} has {count} lines with banned words; lower its allowance of {most}");
        }
    }
}

/// `crates/engine/` of `crates/engine/src/lib.rs`.
fn folder_of(path: &str) -> String {
    path.split_inclusive('/').take(2).collect()
}

/// True when `word` stands in `line` by itself and not as a part of a longer word.
fn has_word(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + word.len()..].chars().next();
        !before.is_some_and(char::is_alphanumeric) && !after.is_some_and(char::is_alphanumeric)
    })
}

/// A command that calls make names a target of the Makefile.
fn look_for_target(targets: &BTreeSet<String>, command: &str, at: &str, findings: &mut Vec<String>) {
    if let Some(target) = make_target(command)
        && !targets.contains(target)
    {
        findings.push(format!("{at}: the Makefile has no target `{target}`"));
    }
}

/// `test` of `PORT=1 make test`.
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

/// The documents. Templates (`NAME.in.md`) are looked at as the pages that are made of them.
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
