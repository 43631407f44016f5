//! `cargo xtask tidy`: checks rules of this tree that the compiler does not know. Each finding names file and line.

mod allowances;
mod errors;
mod prose;

use allowances::LONG_FILES;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// For each crate of Strand, the crates of Strand that it may depend on, dev-dependencies aside. ARCHITECTURE.md has
/// the reasons.
const EDGES: &[(&str, &[&str])] = &[
    ("strand-chain", &[]),
    ("strand-digest", &[]),
    ("strand-banana", &["strand-chain"]),
    ("strand-dial", &[]),
    ("strand-diag", &[]),
    ("strand-pages", &[]),
    ("strand-ring", &["strand-chain"]),
    ("strand-wire", &["strand-chain"]),
    ("strand-rdb", &["strand-wire"]),
    ("strand-aof", &["strand-chain", "strand-rdb", "strand-wire"]),
    ("strand-keyspace", &["strand-chain", "strand-diag"]),
    ("strand-commands", &["strand-chain", "strand-digest", "strand-wire", "strand-keyspace", "strand-rdb"]),
    ("strand-lua", &[]),
    ("strand-script", &["strand-chain", "strand-lua", "strand-wire"]),
    (
        "strand-engine",
        &[
            "strand-aof",
            "strand-chain",
            "strand-wire",
            "strand-rdb",
            "strand-keyspace",
            "strand-commands",
            "strand-script",
            "strand-search",
            "strand-diag",
        ],
    ),
    ("strand-search", &["strand-chain", "strand-wire", "strand-keyspace", "strand-commands", "strand-diag"]),
    ("strand-import", &["strand-chain", "strand-dial", "strand-wire", "strand-diag"]),
    ("strand-cli", &["strand-chain", "strand-commands", "strand-dial", "strand-wire"]),
    ("strand-http", &["strand-chain", "strand-digest", "strand-wire"]),
    (
        "strand-server",
        &[
            "strand-aof",
            "strand-chain",
            "strand-cli",
            "strand-dial",
            "strand-wire",
            "strand-rdb",
            "strand-keyspace",
            "strand-commands",
            "strand-engine",
            "strand-search",
            "strand-import",
            "strand-http",
            "strand-diag",
            "strand-pages",
            "strand-ring",
        ],
    ),
    ("strand-testkit", &["strand-chain", "strand-wire", "strand-commands"]),
    ("strand-bench", &["strand-chain", "strand-wire", "strand-testkit"]),
    ("xtask", &[]),
];

/// Maximum number of lines of a source file that is not in [`LONG_FILES`].
const FILE_LINES_MAX: usize = 600;
/// Maximum number of characters of a line in source files.
const LINE_CHARS_MAX: usize = 140;
/// The only crates that may contain `unsafe`.
const UNSAFE_CRATES: [&str; 4] = ["crates/chain/", "crates/lua/", "crates/pages/", "crates/ring/"];

/// Runs every rule, and prints the findings.
pub fn run() -> ExitCode {
    let root =
        Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the workspace").to_path_buf();
    let mut findings = Vec::new();
    edges(&root, &mut findings);
    sources(&root, &mut findings);
    prose::documents(&root, &mut findings);
    findings.iter().for_each(|f| eprintln!("tidy: {f}"));
    if findings.is_empty() {
        println!("tidy: nothing found");
        return ExitCode::SUCCESS;
    }
    eprintln!("tidy: {} findings", findings.len());
    ExitCode::FAILURE
}

/// Checks that each crate depends only on what [`EDGES`] allows, inherits the lints, and states its invariant in
/// lib.rs.
fn edges(root: &Path, findings: &mut Vec<String>) {
    let allowed: BTreeMap<&str, &[&str]> = EDGES.iter().copied().collect();
    let mut manifests: Vec<PathBuf> =
        vec![root.join("bindings/banana/Cargo.toml"), root.join("xtask/Cargo.toml")];
    manifests
        .extend(list(&root.join("crates")).into_iter().map(|d| d.join("Cargo.toml")).filter(|m| m.exists()));
    for manifest in manifests {
        let display_path = display_path(root, &manifest);
        let text = read(&manifest);
        let (mut section, mut name) = (String::new(), String::new());
        for (n, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.starts_with('[') {
                section = line.trim_matches(['[', ']']).into();
            } else if section == "package" && line.starts_with("name") {
                name = line.split('"').nth(1).unwrap_or_default().into();
                if !allowed.contains_key(name.as_str()) {
                    findings.push(format!(
                        "{display_path}:{}: crate {name} is not in tidy's table of edges",
                        n + 1
                    ));
                }
            } else if section.ends_with("dependencies") && !section.ends_with("dev-dependencies") {
                let on = line.split(['.', '=', ' ']).next().unwrap_or_default();
                let ours = on.starts_with("strand-");
                if ours && !allowed.get(name.as_str()).is_some_and(|a| a.contains(&on)) {
                    findings.push(format!("{display_path}:{}: {name} must not know {on}", n + 1));
                }
            }
        }
        if !text.contains("[lints]\nworkspace = true") {
            findings.push(format!("{display_path}: does not inherit the workspace's lints"));
        }
        if !text.contains("license.workspace = true") {
            findings.push(format!("{display_path}: does not inherit the licence"));
        }
        let lib = manifest.with_file_name("src").join("lib.rs");
        if lib.exists() && !read(&lib).contains("**Invariant:**") {
            findings.push(format!(
                "{}: a crate says in lib.rs what it must not know (`**Invariant:**`)",
                self::display_path(root, &lib)
            ));
        }
    }
}

/// Checks that modules have documentation, that files and lines are not too long, that no words such as left-over
/// marks are in the code, and that `unsafe` is only in [`UNSAFE_CRATES`].
fn sources(root: &Path, findings: &mut Vec<String>) {
    let mut files = Vec::new();
    walk(&root.join("crates"), &mut files);
    walk(&root.join("xtask"), &mut files);
    walk(&root.join("bindings"), &mut files);
    files.retain(|file| file.extension().is_some_and(|e| e == "rs"));
    prose::words(root, &files, findings);
    prose::comments(root, &files, findings);
    errors::string_errors(root, &files, findings);
    for file in &files {
        let (path, text) = (display_path(root, file), read(file));
        if !text.starts_with("//!") && !text.starts_with("#![") {
            findings.push(format!("{path}:1: a module opens with its role (`//!`)"));
        }
        if is_beside_its_folder(file) {
            findings.push(format!("{path}:1: a module with a folder is `mod.rs` in this folder"));
        }
        let lines = text.lines().count();
        let limit =
            LONG_FILES.iter().find(|(name, _)| *name == path).map_or(FILE_LINES_MAX, |(_, limit)| *limit);
        if lines > limit {
            findings.push(format!("{path}: {lines} lines; at most {limit}, 450 as a rule"));
        }
        for (n, line) in text.lines().enumerate() {
            if line.chars().count() > LINE_CHARS_MAX {
                findings.push(format!("{path}:{}: longer than {LINE_CHARS_MAX} characters", n + 1));
            }
            // Each word is written in two parts, so that the rule does not find the word in this file.
            for word in [
                concat!("todo", "!("),
                concat!("FIX", "ME"),
                concat!("XX", "X "),
                concat!("STARTING ", "VERSION"),
            ] {
                if line.contains(word) {
                    findings.push(format!("{path}:{}: `{word}` is left", n + 1));
                }
            }
            if line.contains(concat!("#[", "ignore")) {
                findings.push(format!("{path}:{}: an ignored test proves nothing", n + 1));
            }
            let code = line.split("//").next().unwrap_or_default();
            let says_unsafe = [concat!("unsafe", " {"), concat!("unsafe", " fn"), concat!("unsafe", " impl")];
            let in_tests = path.contains("/tests/") || path.contains("/benches/");
            let allowed = in_tests || UNSAFE_CRATES.iter().any(|c| path.starts_with(c));
            if says_unsafe.iter().any(|w| code.contains(w)) && !allowed {
                findings.push(format!("{path}:{}: `unsafe` may appear only in {UNSAFE_CRATES:?}", n + 1));
            }
        }
    }
}

/// True for `x.rs` beside a folder `x` with further modules. The root of an integration test must lie beside its folder.
fn is_beside_its_folder(file: &Path) -> bool {
    let in_tests = file.parent().is_some_and(|dir| dir.ends_with("tests") && !dir.ends_with("src/tests"));
    !in_tests && list(&file.with_extension("")).iter().any(|f| f.extension().is_some_and(|e| e == "rs"))
}

fn walk(dir: &Path, out: &mut Vec<PathBuf>) {
    for entry in list(dir) {
        if entry.is_dir() {
            if entry.file_name().is_some_and(|n| n != "target") {
                walk(&entry, out);
            }
        } else {
            out.push(entry);
        }
    }
}

fn list(dir: &Path) -> Vec<PathBuf> {
    let mut out: Vec<PathBuf> =
        fs::read_dir(dir).map(|d| d.flatten().map(|e| e.path()).collect()).unwrap_or_default();
    out.sort();
    out
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

fn display_path(root: &Path, path: &Path) -> String {
    path.strip_prefix(root).unwrap_or(path).display().to_string()
}
