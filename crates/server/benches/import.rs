//! Measures an import from end to end: the 2,500 messages of the archive into a real `strand serve`, with the text
//! index and without.
//!
//! Prints messages per second, also those of the parsing library alone, the importer's peak memory, and the cost of
//! importing the unchanged archive again (which must open nothing). Without an index it is imported into several datasets, and
//! the fastest import counts, as the fastest round of the library does. The importer runs in this process, the server
//! is a child. Without the archive, and under `cargo test`, the project's samples are used. `cargo bench -p
//! strand-server --bench import`, `-- --json` for one line of JSON.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;
use strand_import::{ImportOptions, Silent, Summary};
use strand_testkit::process::Server;

/// Number of rounds of the parsing library, and of imports without an index. The fastest counts.
const ROUNDS: usize = 5;

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
    let parsed_per_s = parser_alone(&source);
    for index in [true, false] {
        let server = Server::strand(Path::new(env!("CARGO_BIN_EXE_strand")), &[], None).expect("it starts");
        let import = |dataset: &str| {
            let options = ImportOptions {
                address: server.address.to_string(),
                index,
                ..ImportOptions::new(&source, dataset)
            };
            strand_import::run(&options, &mut Silent).expect("nothing goes wrong")
        };
        let before_kb = peak_kb(true);
        let mut first = import("mail");
        let peak_kb = peak_kb(false).saturating_sub(before_kb);
        for round in 1..if index { 1 } else { ROUNDS } {
            let other = import(&format!("mail{round}"));
            first = if other.took < first.took { other } else { first };
        }
        let second = import("mail");
        assert_eq!(second.opened, 0, "the same import again opens no document");
        report(&first, &second, index, peak_kb, parsed_per_s, has("--json"));
    }
}

/// Messages per second of the parsing library on one thread: header fields and texts, from bytes in memory.
fn parser_alone(source: &Path) -> f64 {
    let (mut folders, mut messages) = (vec![source.to_path_buf()], Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("the folder is readable") {
            let entry = entry.expect("the folder is readable");
            match entry.file_type().expect("it has a type").is_dir() {
                true => folders.push(entry.path()),
                false => messages.push(std::fs::read(entry.path()).expect("the file is readable")),
            }
        }
    }
    let parser = mail_parser::MessageParser::default();
    let mut least_s = f64::MAX;
    for _ in 0..ROUNDS {
        let started = Instant::now();
        let mut bytes = 0;
        for message in messages.iter().filter_map(|message| parser.parse(message)) {
            let texts = (0..message.text_body_count()).filter_map(|at| message.body_text(at));
            bytes += message.subject().map_or(0, str::len) + texts.map(|text| text.len()).sum::<usize>();
        }
        assert!(bytes > 0, "the messages have texts");
        least_s = least_s.min(started.elapsed().as_secs_f64());
    }
    messages.len() as f64 / least_s
}

fn report(first: &Summary, second: &Summary, index: bool, peak_kb: u64, parsed_per_s: f64, json: bool) {
    let seconds = first.took.as_secs_f64();
    let per_s = first.opened as f64 / seconds;
    let mb_per_s = first.bytes_read as f64 / seconds / 1e6;
    let share = per_s / parsed_per_s * 100.0;
    let again_ms = second.took.as_secs_f64() * 1e3;
    if json {
        println!(
            "{{\"bench\":\"import\",\"index\":{index},\"messages\":{},\"per_s\":{per_s:.0},\"mb_per_s\":{mb_per_s:.1},\
             \"parser_per_s\":{parsed_per_s:.0},\"peak_growth_kb\":{peak_kb},\"again_ms\":{again_ms:.1},\"again_opened\":{}}}",
            first.opened, second.opened
        );
    } else {
        let with = if index { "with the text index" } else { "without an index" };
        println!("import of {} messages, {with}", first.opened);
        println!("  first  {per_s:>8.0} messages/s, {mb_per_s:.1} MB/s, peak memory grows by {peak_kb} kB");
        println!("  parser {parsed_per_s:>8.0} messages/s alone: the import reaches {share:.0} %");
        println!("  again  {again_ms:>8.1} ms, {} documents opened", second.opened);
    }
}

/// This process's peak resident memory in kB. `reset` first sets the peak to the current value.
fn peak_kb(reset: bool) -> u64 {
    if reset {
        // Not every system allows this. Without the reset, the growth is understated, but the peak is not.
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
