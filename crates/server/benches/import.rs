//! Import, end to end: the 2,500 messages of the archive into a real `strand serve`, with the text index and
//! without.
//!
//! Prints messages per second, the importer's peak memory, and the cost of importing the unchanged archive again
//! (which must open nothing). The importer runs in this process, the server is a child. Without the archive, and
//! under `cargo test`, the project's samples are used. `cargo bench -p strand-server --bench import`, `-- --json`
//! for one line of JSON.

use std::path::{Path, PathBuf};
use std::process::Command;
use strand_import::{ImportOptions, Silent, Summary};
use strand_testkit::process::Server;

fn main() {
    let has = |flag: &str| std::env::args().any(|a| a == flag);
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let archive = root.join("../shared/data/mail-easy-ham-1.tar.gz");
    let folder = Scratch::new();
    let source = if has("--bench") && archive.exists() {
        let done = Command::new("tar").arg("xzf").arg(&archive).arg("-C").arg(&folder.0).status();
        assert!(done.expect("tar runs").success());
        folder.0.clone()
    } else {
        root.join("examples/mail")
    };
    for index in [true, false] {
        let server = Server::strand(Path::new(env!("CARGO_BIN_EXE_strand")), &[], None).expect("it starts");
        let import = || {
            let options = ImportOptions {
                address: server.address.to_string(),
                index,
                ..ImportOptions::new(&source, "mail")
            };
            strand_import::run(&options, &mut Silent).expect("nothing goes wrong")
        };
        let before_kb = peak_kb(true);
        let first = import();
        let peak_kb = peak_kb(false).saturating_sub(before_kb);
        let second = import();
        assert_eq!(second.opened, 0, "the same import again opens no document");
        report(&first, &second, index, peak_kb, has("--json"));
    }
}

fn report(first: &Summary, second: &Summary, index: bool, peak_kb: u64, json: bool) {
    let seconds = first.took.as_secs_f64();
    let per_s = first.opened as f64 / seconds;
    let mb_per_s = first.bytes_read as f64 / seconds / 1e6;
    let again_ms = second.took.as_secs_f64() * 1e3;
    if json {
        println!(
            "{{\"bench\":\"import\",\"index\":{index},\"messages\":{},\"per_s\":{per_s:.0},\"mb_per_s\":{mb_per_s:.1},\
             \"peak_growth_kb\":{peak_kb},\"again_ms\":{again_ms:.1},\"again_opened\":{}}}",
            first.opened, second.opened
        );
    } else {
        let with = if index { "with the text index" } else { "without an index" };
        println!("import of {} messages, {with}", first.opened);
        println!("  first  {per_s:>8.0} messages/s, {mb_per_s:.1} MB/s, peak memory grows by {peak_kb} kB");
        println!("  again  {again_ms:>8.1} ms, {} documents opened", second.opened);
    }
}

/// This process's peak resident memory in kB. `reset` first sets the peak to the current value.
fn peak_kb(reset: bool) -> u64 {
    if reset {
        // Not allowed everywhere. Without it the growth is understated, never the peak.
        let _ = std::fs::write("/proc/self/clear_refs", "5");
    }
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|l| l.strip_prefix("VmHWM:")).unwrap_or_default();
    line.trim().trim_end_matches(" kB").parse().unwrap_or(0)
}

/// A temporary folder, removed when dropped.
struct Scratch(PathBuf, #[expect(dead_code, reason = "removes the folder when dropped")] tempfile::TempDir);

impl Scratch {
    fn new() -> Scratch {
        let made = tempfile::Builder::new().prefix("strand-import-bench-").tempdir();
        let made = made.expect("the temporary folder is writable");
        Scratch(made.path().to_path_buf(), made)
    }
}
