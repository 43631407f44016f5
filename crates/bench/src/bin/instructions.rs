//! Counts the instructions that the server executes for one request of a row of `make versus`, under valgrind's
//! callgrind. `make bisect` compares commits by this count.
//!
//! Times differ by several percent from run to run. Two counts of `SET p30` on two cores with a load of 17 differed
//! by 0.04 % (31,355 and 31,343, a debug build). Only the worker's thread counts, in user space: what other threads
//! do depends on the time that a run takes. With all threads, two counts differed by 11 %.
//!
//! The server runs twice: once with [`WARM_UP`] requests, once with more. The difference of both counts is the
//! cost of the additional requests, without the start, the fill and the end.

use regex::Regex;
use std::error::Error;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use strand_bench::fill::{self, Content};
use strand_bench::load;
use strand_bench::options::Options;
use strand_bench::workloads::{Row, WORKLOADS};
use strand_testkit::process::{Program, Server};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const USAGE: &str =
    "usage: instructions --strand BINARY --only ROW [--keys N] [--requests N] [--at-most INSTRUCTIONS]";

/// Requests of the first run: they create the row's own keys, and make the server allocate its buffers.
const WARM_UP: u64 = 5_000;
/// Requests that are counted, unless `--requests` says otherwise. callgrind needs about two seconds for
/// 50,000 requests.
const REQUESTS: u64 = 50_000;
/// Number of keys, unless `--keys` gives another. The number of instructions hardly depends on the number of
/// keys.
const KEYS: u64 = 10_000;
/// The seed of the requests. Each run sends the same bytes.
const SEED: u64 = 30;
/// The script that starts the server under callgrind. In it, the word BINARY stands for the server's binary,
/// and OUT for the path of the files with counts.
const SCRIPT: &str = include_str!("../callgrind.py");

/// Prefix of the names of the files with counts.
const OUT: &str = "count";

/// Prints the number of instructions per request. Fails when it is above `--at-most`.
fn main() -> Result<ExitCode> {
    let (mut requests, mut at_most) = (REQUESTS, u64::MAX);
    let defaults =
        Options { strand: PathBuf::new(), keys: KEYS, seconds: 0.0, rounds: 1, only: None, json: false };
    let options = defaults.read(std::env::args().skip(1), USAGE, |option, values| {
        match option {
            "--requests" => requests = values.of(option)?,
            "--at-most" => at_most = values.of(option)?,
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    let row = find(options.only.as_deref())?;
    let few = run(&options.strand, row, options.keys, WARM_UP)?;
    let many = run(&options.strand, row, options.keys, WARM_UP + requests)?;
    let count = many.instructions.saturating_sub(few.instructions) / (many.requests - few.requests).max(1);
    println!("{count} instructions a request of {}", row.name);
    Ok(if count > at_most { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn find(only: Option<&str>) -> Result<&'static Row> {
    let names = || WORKLOADS.iter().map(|row| row.name).collect::<Vec<_>>().join("\", \"");
    let only = only.ok_or(USAGE)?;
    let found = WORKLOADS.iter().find(|row| row.name == only);
    Ok(found.ok_or_else(|| format!("no speed row is named \"{only}\"; there are \"{}\"", names()))?)
}

/// Writes the script that runs `strand` under callgrind. Returns the script's path.
fn callgrind_script(directory: &Path, strand: &Path) -> Result<PathBuf> {
    let (script, strand) = (directory.join("callgrind.py"), fs::canonicalize(strand)?);
    let text = SCRIPT.replace("\"BINARY\"", &format!("{strand:?}"));
    fs::write(&script, text.replace("\"OUT\"", &format!("{:?}", directory.join(OUT))))?;
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755))?;
    Ok(script)
}

/// The counts of one run of the server.
struct Total {
    /// Instructions of the worker, from its start to its end.
    instructions: u64,
    /// Requests that the server executed.
    requests: u64,
}

fn run(strand: &Path, row: &Row, keys: u64, requests: u64) -> Result<Total> {
    let directory = tempfile::tempdir()?;
    let program = callgrind_script(directory.path(), strand)?;
    // Use epoll, because valgrind does not know every request of io_uring.
    let options = ["--workers", "1", "--io-driver", "epoll"];
    let server = Server::started_by(&program, Program::Strand, &options)?;
    fill::keys(&server, keys, Content::Bytes(256))?;
    let requests = load::run_requests(&server, row.load(keys), requests, SEED)?;
    let log = server.shut_down()?;
    Ok(Total {
        instructions: worker_instructions(directory.path())?.ok_or(format!("no count: {log}"))?,
        requests,
    })
}

/// The largest number of instructions of any thread. With 15,000 requests or more, this thread is the worker. `None`
/// when callgrind has written no file.
fn worker_instructions(directory: &Path) -> Result<Option<u64>> {
    let total = Regex::new(r"(?m)^totals: (\d+)")?;
    let mut most = None;
    for file in fs::read_dir(directory)? {
        let file = file?;
        if file.file_name().to_string_lossy().starts_with(OUT) {
            let text = fs::read_to_string(file.path())?;
            most = most.max(total.captures(&text).and_then(|found| found[1].parse().ok()));
        }
    }
    Ok(most)
}
