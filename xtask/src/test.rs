//! `cargo xtask test`: builds all tests of the workspace, then runs as many test binaries side by side as there are
//! cores.
//!
//! `cargo test` runs one binary after another. Most of Strand's test binaries wait for servers and disks half of the
//! time: one after another they took 278 s on two cores and used 1.0 of the cores (`time cargo test --workspace`,
//! warm). Side by side they take half of that.
//!
//! [`TestBinary`] is a binary that cargo built, and [`Outcome`] is the result of running it. A binary that fails
//! prints all of its output, and its panics are printed again at the end, because a log may keep only its end.
//! `--slowest` measures each test and prints the slowest. Documentation tests are left out:
//! no crate has one (`doctest = false`).
//!
//! `cargo-nextest` is not used, because it starts a process for each test (1,500 processes here) and must be
//! installed first.

use serde_json::Value;
use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek};
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Test binaries that start first, because they take longest (16 to 84 s). The other binaries run beside them and end
/// earlier.
const FIRST: &[&str] = &["server", "import", "differential", "strand_keyspace", "strand_search", "session"];
/// Binaries whose tests wait for servers and other programs more than they compute. They run twice as many tests at
/// once as there are cores: on two cores `server` then takes 57 s in place of 80, `differential` 36 s in place of 53.
const WAITING: &[&str] = &["server", "import", "differential"];
/// Prefixes of the environment variables that describe the package to a program that `cargo run` starts.
const PACKAGE_VARIABLES: &[&str] =
    &["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_", "CARGO_CRATE_", "CARGO_PRIMARY_"];
/// A test binary that takes longer than this is killed.
const BINARY_SECONDS_MAX: u64 = 900;
/// Time between two checks whether a binary has ended.
const CHECK_INTERVAL: Duration = Duration::from_millis(20);
/// Number of panics that are printed at the end.
const PANICS_MAX: usize = 20;
/// Number of lines of a panic, and of characters of such a line, that are printed at the end.
const PANIC_LINES: usize = 6;
const PANIC_LINE_CHARS: usize = 400;
/// Begins the last line of a test binary that ran to its end.
const RESULT: &str = "test result: ";
/// Number of tests that `--slowest` prints.
const SLOWEST: usize = 10;

/// Why the tests cannot run.
#[derive(Debug, thiserror::Error)]
enum TestError {
    /// A program cannot be started or read.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// Cargo could not build the tests. Cargo has printed why.
    #[error("the tests do not build")]
    Build,
    /// A line of cargo's output is not the JSON that cargo documents.
    #[error("cargo's list of binaries: {0}")]
    Json(#[from] serde_json::Error),
}

/// A test binary that cargo built.
#[derive(Debug, PartialEq, Eq)]
struct TestBinary {
    /// The name of the target, as in `cargo test --test NAME`.
    name: String,
    program: PathBuf,
    /// The folder of the package, where cargo runs tests.
    folder: PathBuf,
    /// True for a benchmark, which has no harness: it measures briefly, and writes no [`RESULT`].
    is_bench: bool,
}

/// The result of running a test binary.
struct Outcome {
    name: String,
    took: Duration,
    is_passed: bool,
    output: String,
}

/// Runs the tests. `args`: optionally `--slowest`, then the options that select packages for cargo (`-p
/// strand-engine`). Without such options all packages are tested.
pub fn run(args: &[&str]) -> ExitCode {
    let (is_slowest, selection) = match args {
        ["--slowest", rest @ ..] => (true, rest),
        all => (false, all),
    };
    let selection = if selection.is_empty() { &["--workspace"] } else { selection };
    let outcomes = match build(selection) {
        Ok(binaries) => run_all(ordered(binaries), is_slowest),
        Err(error) => {
            eprintln!("test: {error}");
            return ExitCode::FAILURE;
        }
    };
    let (mut passed, mut failed) = (0, 0);
    for outcome in &outcomes {
        let (p, f) = counts(&outcome.output);
        // A binary that was killed, or that exited with a failure, counts as failed even when no test reports it.
        (passed, failed) = (passed + p, failed + f.max(u64::from(!outcome.is_passed)));
    }
    if is_slowest {
        for (seconds, test) in slowest(&outcomes) {
            println!("{seconds:9.3} s  {test}");
        }
    }
    let failures = outcomes.iter().filter(|outcome| !outcome.is_passed);
    for panic in failures.flat_map(|outcome| panics(&outcome.output)).take(PANICS_MAX) {
        println!("{panic}");
    }
    println!("{passed} passed, {failed} failed");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// A command that runs cargo without the variables of [`PACKAGE_VARIABLES`]. `cargo xtask` sets these variables for
/// the package `xtask`. The build script of `ring` reads them, so with them cargo built `ring` and all crates above
/// it again: 3 minutes for each `make test`, although everything was built.
fn cargo() -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    for (name, _) in std::env::vars_os() {
        if PACKAGE_VARIABLES.iter().any(|begin| name.as_encoded_bytes().starts_with(begin.as_bytes())) {
            cargo.env_remove(name);
        }
    }
    cargo
}

/// Builds the tests and lists their binaries.
fn build(selection: &[&str]) -> Result<Vec<TestBinary>, TestError> {
    let output = cargo()
        .args(["test", "--no-run", "--quiet", "--message-format", "json-render-diagnostics"])
        .args(selection)
        .stderr(Stdio::inherit())
        .output()?;
    if !output.status.success() {
        return Err(TestError::Build);
    }
    binaries(&String::from_utf8_lossy(&output.stdout))
}

/// The test binaries in cargo's messages: one JSON object per line.
fn binaries(messages: &str) -> Result<Vec<TestBinary>, TestError> {
    let mut list = Vec::new();
    for line in messages.lines() {
        let message: Value = serde_json::from_str(line)?;
        let is_test = message["profile"]["test"] == true;
        let (program, manifest) = (message["executable"].as_str(), message["manifest_path"].as_str());
        if let (true, Some(program), Some(manifest)) = (is_test, program, manifest) {
            list.push(TestBinary {
                name: message["target"]["name"].as_str().unwrap_or(program).to_owned(),
                program: program.into(),
                folder: PathBuf::from(manifest).parent().map(PathBuf::from).unwrap_or_default(),
                is_bench: message["target"]["kind"][0] == "bench",
            });
        }
    }
    Ok(list)
}

/// The binaries in the order in which they start: first those of [`FIRST`], then the others in cargo's order.
fn ordered(mut list: Vec<TestBinary>) -> VecDeque<TestBinary> {
    list.sort_by_key(|binary| FIRST.iter().position(|name| *name == binary.name).unwrap_or(FIRST.len()));
    list.into()
}

/// Runs the binaries, as many at once as there are cores. Prints a line for each binary, and the output of each
/// binary that failed.
fn run_all(list: VecDeque<TestBinary>, is_slowest: bool) -> Vec<Outcome> {
    let (list, outcomes) = (Mutex::new(list), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..cores() {
            scope.spawn(|| {
                loop {
                    let next = list.lock().expect("nobody panics with it").pop_front();
                    let Some(binary) = next else { return };
                    let outcome = run_binary(binary, is_slowest);
                    let mut outcomes = outcomes.lock().expect("nobody panics with it");
                    report(&outcome);
                    outcomes.push(outcome);
                }
            });
        }
    });
    outcomes.into_inner().expect("nobody panics with it")
}

fn cores() -> usize {
    thread::available_parallelism().map_or(1, |cores| cores.get())
}

fn report(outcome: &Outcome) {
    let (name, seconds) = (&outcome.name, outcome.took.as_secs_f64());
    if outcome.is_passed {
        let (passed, _) = counts(&outcome.output);
        println!("ok   {name}: {passed} tests in {seconds:.1} s");
    } else {
        println!("FAIL {name} after {seconds:.1} s:\n{}", outcome.output);
    }
}

/// Runs a binary to its end, but at most for [`BINARY_SECONDS_MAX`].
fn run_binary(binary: TestBinary, is_slowest: bool) -> Outcome {
    let from = Instant::now();
    let mut command = Command::new(&binary.program);
    command.current_dir(&binary.folder).env("CARGO_MANIFEST_DIR", &binary.folder);
    if WAITING.contains(&binary.name.as_str()) {
        command.arg(format!("--test-threads={}", 2 * cores()));
    }
    if is_slowest {
        // The stable toolchain hides the option that measures each test. Set the variable for the binary alone,
        // because with it cargo would build everything again.
        command.args(["-Zunstable-options", "--report-time"]).env("RUSTC_BOOTSTRAP", "1");
    }
    let (is_passed, output) = match run_to_end(&mut command) {
        Ok((true, output)) if !binary.is_bench && !output.lines().any(|line| line.starts_with(RESULT)) => {
            (false, output + "\nended: without a result\n")
        }
        Ok(ended) => ended,
        Err(error) => (false, format!("{}: {error}", binary.program.display())),
    };
    Outcome { name: binary.name, took: from.elapsed(), is_passed, output }
}

/// Whether a command succeeded, and what it wrote to both outputs. The outputs go to a file, because a server that a
/// test left behind would keep a pipe open.
fn run_to_end(command: &mut Command) -> io::Result<(bool, String)> {
    let mut file = unnamed_file()?;
    let mut child =
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file.try_clone()?).spawn()?;
    let is_passed = wait(&mut child)?;
    let mut bytes = Vec::new();
    file.rewind()?;
    file.read_to_end(&mut bytes)?;
    let mut output = String::from_utf8_lossy(&bytes).into_owned();
    if is_passed.is_none() {
        output.push_str(&format!("\nended: it took more than {BINARY_SECONDS_MAX} s\n"));
    }
    Ok((is_passed.unwrap_or(false), output))
}

/// A new file that is deleted when its last handle is closed.
fn unnamed_file() -> io::Result<File> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let name = format!("strand-test-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let path = std::env::temp_dir().join(name);
    let file = OpenOptions::new().read(true).append(true).create_new(true).open(&path)?;
    std::fs::remove_file(&path)?;
    Ok(file)
}

/// Whether the child succeeded. `None` when the child ran too long and was killed.
fn wait(child: &mut Child) -> io::Result<Option<bool>> {
    let end = Instant::now() + Duration::from_secs(BINARY_SECONDS_MAX);
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status.success()));
        }
        if Instant::now() >= end {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        thread::sleep(CHECK_INTERVAL);
    }
}

/// The tests that passed and failed: the sum of the lines `test result: ok. 5 passed; 0 failed; ...`.
fn counts(output: &str) -> (u64, u64) {
    let number = |line: &str, what: &str| -> u64 {
        let words: Vec<&str> = line.split([' ', ';']).collect();
        let at = words.iter().position(|word| *word == what);
        at.and_then(|at| words.get(at.checked_sub(1)?)?.parse().ok()).unwrap_or(0)
    };
    let lines = output.lines().filter(|line| line.starts_with(RESULT));
    lines.fold((0, 0), |(passed, failed), line| {
        (passed + number(line, "passed"), failed + number(line, "failed"))
    })
}

/// The beginning of each panic in the output.
fn panics(output: &str) -> Vec<String> {
    let lines: Vec<&str> = output.lines().collect();
    let starts = (0..lines.len()).filter(|at| lines[*at].contains(" panicked at "));
    let begin = |at: usize| {
        let shown = lines[at..].iter().take(PANIC_LINES);
        let shown: Vec<String> = shown.map(|line| line.chars().take(PANIC_LINE_CHARS).collect()).collect();
        shown.join("\n")
    };
    starts.map(begin).collect()
}

/// The slowest tests with their seconds: lines such as `test expiry::a_key_ends ... ok <1.234s>`.
fn slowest(outcomes: &[Outcome]) -> Vec<(f64, String)> {
    let mut tests = Vec::new();
    for outcome in outcomes {
        for line in outcome.output.lines().filter(|line| line.starts_with("test ")) {
            let seconds = line.rsplit_once('<').and_then(|(_, time)| time.strip_suffix("s>")?.parse().ok());
            if let (Some(seconds), Some(test)) = (seconds, line.split(' ').nth(1)) {
                tests.push((seconds, format!("{} {test}", outcome.name)));
            }
        }
    }
    tests.sort_by(|a: &(f64, String), b| b.0.total_cmp(&a.0));
    tests.truncate(SLOWEST);
    tests
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn cargo_s_messages_name_the_binaries() {
        let artifact = |package: &str, name: &str, is_test: bool, executable: Option<&str>| {
            let manifest = format!("/w/{package}/Cargo.toml");
            json!({
                "reason": "compiler-artifact", "manifest_path": manifest, "target": { "name": name },
                "profile": { "test": is_test }, "executable": executable,
            })
        };
        let messages = [
            artifact("a", "library", false, None),
            artifact("a", "tool", false, Some("/t/tool")),
            artifact("a", "later", true, Some("/t/later-1")),
            artifact("b", "server", true, Some("/t/server-1")),
            json!({ "reason": "build-finished", "success": true }),
        ];
        let messages: Vec<String> = messages.iter().map(Value::to_string).collect();
        let list = ordered(binaries(&messages.join("\n")).expect("it is JSON"));
        let names: Vec<&str> = list.iter().map(|binary| binary.name.as_str()).collect();
        assert_eq!(names, ["server", "later"]);
        assert_eq!((list[0].folder.to_str(), list[0].program.to_str()), (Some("/w/b"), Some("/t/server-1")));
        assert!(binaries("no JSON").is_err());
    }

    #[test]
    fn results_are_added_up_and_times_are_sorted() {
        let output = "test a::quick ... ok <0.001s>\ntest a::slow ... ok <2.500s>\ntest a::bad ... FAILED <0.010s>\n\
                      test result: FAILED. 2 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out\n\
                      test result: ok. 40 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out\n";
        assert_eq!(counts(output), (42, 1));
        let outcome =
            Outcome { name: "a".into(), took: Duration::ZERO, is_passed: false, output: output.into() };
        assert_eq!(slowest(&[outcome])[..2], [(2.5, "a a::slow".to_owned()), (0.01, "a a::bad".to_owned())]);
    }

    #[test]
    fn panics_are_found_and_cut() {
        let long = "x".repeat(9_000);
        let output = format!(
            "test a ... ok\n\nthread 'a::b' (12) panicked at src/a.rs:3:5:\nassertion failed: {long}\n1\n2\n3\n4\n5\n"
        );
        let found = panics(&output);
        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with("thread 'a::b' (12) panicked at src/a.rs:3:5:\nassertion failed: xx"));
        assert!(found[0].ends_with("\n4") && found[0].len() < 600, "{}", found[0]);
        assert!(panics("test a ... ok\n").is_empty());
    }

    #[test]
    fn a_failed_command_is_reported_with_all_its_output() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo out; echo err >&2; exit 3"]);
        assert_eq!(run_to_end(&mut command).expect("it starts"), (false, "out\nerr\n".to_owned()));
        assert!(run_to_end(&mut Command::new("/no/such/program")).is_err());
    }

    #[test]
    fn a_binary_without_a_result_has_failed() {
        let binary = |is_bench| TestBinary {
            name: "true".into(),
            program: "true".into(),
            folder: ".".into(),
            is_bench,
        };
        let outcome = run_binary(binary(false), false);
        assert!(!outcome.is_passed && outcome.output.ends_with("without a result\n"), "{}", outcome.output);
        assert!(run_binary(binary(true), false).is_passed);
    }
}
