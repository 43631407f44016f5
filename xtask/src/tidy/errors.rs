//! The rule for errors: a public function of a library crate must return an error type, not a `String`, so that callers
//! can distinguish errors.

use super::allowances::TEXT_ERRORS;
use super::{display_path, read};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Maximum number of lines of a signature.
const SIGNATURE_LINES_MAX: usize = 12;

/// Reports crates that have more public functions with a `String` as their error than their allowance.
pub(super) fn string_errors(root: &Path, sources: &[PathBuf], findings: &mut Vec<String>) {
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for file in sources {
        let path = display_path(root, file);
        // Skip the server, because it is a program whose functions nobody calls from outside.
        if !path.contains("/src/") || path.starts_with("crates/server/") || path.starts_with("xtask/") {
            continue;
        }
        let text = read(file);
        for line in lines_of(&text) {
            let folder = path.split_inclusive('/').take(2).collect();
            found.entry(folder).or_default().push(format!("{path}:{line}"));
        }
    }
    for (folder, places) in &found {
        let limit = TEXT_ERRORS.iter().find(|(name, _)| name == folder).map_or(0, |(_, limit)| *limit);
        if places.len() > limit {
            findings.push(format!(
                "{folder}: {} public functions fail with a String, at most {limit} may: use a type of `thiserror`; they \
                 are {}",
                places.len(),
                places.join(" ")
            ));
        }
    }
    for (folder, limit) in TEXT_ERRORS {
        let count = found.get(*folder).map_or(0, Vec::len);
        if count < *limit {
            println!(
                "tidy: {folder} has {count} functions that fail with a String; lower its allowance of {limit}"
            );
        }
    }
}

/// The first lines of the public functions that fail with a `String`.
fn lines_of(text: &str) -> Vec<usize> {
    let lines: Vec<&str> = text.lines().collect();
    let begins = |line: &str| {
        let line = line.trim_start();
        ["pub fn ", "pub async fn ", "pub const fn "].iter().any(|start| line.starts_with(start))
    };
    let fails = |at: &usize| {
        let end = lines[*at..].iter().take(SIGNATURE_LINES_MAX).position(|line| line.ends_with(['{', ';']));
        let last = lines[*at + end.unwrap_or(0)].trim_end_matches(['{', ';', ' ']);
        last.contains("Result<") && last.ends_with(", String>")
    };
    (0..lines.len()).filter(|at| begins(lines[*at])).filter(fails).map(|at| at + 1).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_with_a_string_error_are_found() {
        let text = "pub fn a() -> Result<(), String> {\n}\n\
                    pub fn b() -> Result<String, io::Error> {\n}\n\
                    fn c() -> Result<(), String> {\n}\n    pub async fn d(\n    x: u8,\n    ) -> Result<Vec<u8>, String> {\n\
                    pub fn e(f: fn() -> Result<(), String>) -> u8 {\n";
        assert_eq!(lines_of(text), [1, 7]);
    }
}
