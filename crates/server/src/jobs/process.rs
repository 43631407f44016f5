//! [`Process`]: the process of a job's run.

use super::Service;
use crate::cli::access::PASSWORD_VARIABLE;
use crate::cli::supervised::{SOURCE_VARIABLE, TO_VARIABLE};
use rustix::fd::OwnedFd;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde_json::{Map, Value};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use strand_import::jobs::{RunReport, without_password};

/// Maximum length of a line of a run's output, in bytes.
const LINE_BYTES_MAX: u64 = 1 << 20;

/// A run in progress.
pub(super) struct Process {
    stdin: ChildStdin,
    /// A descriptor of this process. It refers to this process even after another process got the same number.
    handle: OwnedFd,
}

impl Process {
    /// Starts a run. `service` receives the reports and the end of the run.
    pub(super) fn start(
        binary: &Path,
        words: &[String],
        name: String,
        service: Arc<Service>,
    ) -> io::Result<Process> {
        let mut command = Command::new(binary);
        add_arguments(&mut command, words);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        // Use one arena of the allocator, so that all threads reuse the memory that any thread has freed.
        command.env("_RJEM_MALLOC_CONF", "narenas:1,dirty_decay_ms:200,muzzy_decay_ms:0");
        let mut child = command.spawn()?;
        let pid = Pid::from_child(&child);
        let stdin = child.stdin.take().expect("the command asks for a pipe");
        let stdout = child.stdout.take().expect("the command asks for a pipe");
        let handle = match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(handle) => handle,
            Err(error) => {
                child.kill()?;
                child.wait()?;
                return Err(error.into());
            }
        };
        std::thread::Builder::new().name("job".to_owned()).stack_size(128 << 10).spawn(move || {
            let code = follow(child, stdout, &name, &service);
            service.run_ended(&name, code);
        })?;
        Ok(Process { stdin, handle })
    }

    pub(super) fn grant(&mut self) {
        // Ignore an error: a process that is gone needs no grant, and its end is reported separately.
        let _ = self.stdin.write_all(b"grant\n");
    }
    pub(super) fn stop(&mut self) {
        self.signal(Signal::STOP);
    }
    pub(super) fn resume(&mut self) {
        self.signal(Signal::CONT);
    }
    pub(super) fn kill(&mut self) {
        self.signal(Signal::KILL);
    }
    fn signal(&self, signal: Signal) {
        // Ignore an error: the process is gone, and its end is reported separately.
        let _ = pidfd_send_signal(&self.handle, signal);
    }
}

/// Adds the arguments. Passwords go into the environment: of the source, the last word, of the sink, and of `--password`.
fn add_arguments(command: &mut Command, words: &[String]) {
    // A variable of the service must not choose the source of all its jobs.
    command.env_remove(SOURCE_VARIABLE).env_remove(TO_VARIABLE);
    let mut words = words.iter();
    while let Some(word) = words.next() {
        if word == "--password"
            && let Some(password) = words.next()
        {
            command.env(PASSWORD_VARIABLE, password);
        } else if let Some(password) = word.strip_prefix("--password=") {
            command.env(PASSWORD_VARIABLE, password);
        } else if word == "--to"
            && let Some(to) = words.next()
        {
            command.arg(word);
            add_url(command, TO_VARIABLE, to);
        } else if words.as_slice().is_empty() {
            add_url(command, SOURCE_VARIABLE, word);
        } else {
            command.arg(word);
        }
    }
}

/// Adds an argument that may be a URL. If it has a password, the variable gets the whole URL.
fn add_url(command: &mut Command, variable: &str, url: &str) {
    let shown = without_password(url);
    if shown != url {
        command.env(variable, url);
    }
    command.arg(shown);
}

/// Reads the reports of the run until the run ends, and returns the exit code of the run's process.
fn follow(mut child: Child, stdout: ChildStdout, name: &str, service: &Service) -> Option<i32> {
    each_report(BufReader::new(stdout), name, |report| service.report(name, report));
    child.wait().ok().and_then(|status| status.code())
}

/// Calls `visit` with each report of the run of job `name` until the output ends. Skips a line that is too long, and says
/// so on standard error.
fn each_report(mut output: impl BufRead, name: &str, mut visit: impl FnMut(RunReport)) {
    let mut line = Vec::new();
    loop {
        line.clear();
        match output.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => break,
            Ok(_) => {}
        }
        if line.len() as u64 == LINE_BYTES_MAX && line.last() != Some(&b'\n') {
            say!(
                "strand jobs: job {name} wrote a line of more than {LINE_BYTES_MAX} bytes; the line is ignored"
            );
            if output.skip_until(b'\n').is_err() {
                break;
            }
        } else if let Some(report) = serde_json::from_slice(&line).ok().and_then(report) {
            visit(report);
        }
    }
}

fn report(mut line: Map<String, Value>) -> Option<RunReport> {
    let bytes = || line.get("bytes").and_then(Value::as_u64);
    let text = |key: &str| line.get(key).and_then(Value::as_str).map(str::to_owned);
    match line.get("event")?.as_str()? {
        "need" => bytes().map(RunReport::Need),
        "free" => bytes().map(RunReport::Free),
        "containers" => bytes().map(RunReport::Containers),
        "waiting" => text("what").map(RunReport::Waiting),
        "document" => Some(RunReport::Failed(text("path")?, text("reason")?)),
        "error" => {
            let requests = line.get("requests").cloned().unwrap_or_default();
            Some(RunReport::Error(text("message")?, requests))
        }
        "progress" => {
            line.remove("event");
            Some(RunReport::Progress(line))
        }
        "forecast" => {
            line.remove("event");
            Some(RunReport::Forecast(line))
        }
        "summary" => {
            line.remove("event");
            Some(RunReport::Summary(line))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The arguments, and the variables with their values (`None`: removed) of a command with these words.
    fn added(words: &[&str]) -> (Vec<String>, Vec<(String, Option<String>)>) {
        let mut command = Command::new("strand");
        add_arguments(&mut command, &words.iter().map(|word| word.to_string()).collect::<Vec<_>>());
        let text = |text: &std::ffi::OsStr| text.to_string_lossy().into_owned();
        let variables = command.get_envs().map(|(name, value)| (text(name), value.map(text)));
        (command.get_args().map(text).collect(), variables.collect())
    }

    #[test]
    fn passwords_are_in_no_argument() {
        let variable = |name: &str, value: &str| (name.to_owned(), Some(value.to_owned()));
        let (to, source) = ("solr+http://u:pw@host,b@c:1/solr/c", "https://u:p:w@host/a.zip?x=y@z");
        let (arguments, variables) = added(&["import", "--to", to, "--password", "pw", "--", source]);
        let shown =
            ["import", "--to", "solr+http://u:***@c:1/solr/c", "--", "https://u:***@host/a.zip?x=y@z"];
        assert_eq!(arguments, shown);
        let expected = [(SOURCE_VARIABLE, source), (TO_VARIABLE, to), (PASSWORD_VARIABLE, "pw")];
        assert_eq!(variables, expected.map(|(name, value)| variable(name, value)));
        let (arguments, variables) = added(&["import", "--password=pw", "--into", "a:b@c", "--", "/a:b@c"]);
        assert_eq!(arguments, ["import", "--into", "a:b@c", "--", "/a:b@c"]);
        let removed = |name: &str| (name.to_owned(), None);
        let expected = [removed(SOURCE_VARIABLE), removed(TO_VARIABLE), variable(PASSWORD_VARIABLE, "pw")];
        assert_eq!(variables, expected);
    }

    #[test]
    fn a_line_that_is_too_long_is_skipped_whole() {
        let need = |bytes: u64| format!("{{\"event\":\"need\",\"bytes\":{bytes}}}");
        // The end of the long line alone would be a report.
        let long = " ".repeat(LINE_BYTES_MAX as usize);
        let output = format!("{}\nno JSON\n{long}{}\n{}\n{}", need(1), need(2), need(3), need(4));
        let mut seen = Vec::new();
        each_report(output.as_bytes(), "mail", |report| match report {
            RunReport::Need(bytes) => seen.push(bytes),
            _ => unreachable!("only needs are sent"),
        });
        assert_eq!(seen, [1, 3, 4]);
    }
}
