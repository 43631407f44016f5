//! The contestants of the creep test: Strand over sockets, the `regex` crate in this process, and RE2 in a child
//! process.

use super::super::Result;
use super::texts::Subject;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use strand_testkit::process::{Program, Server};
use strand_testkit::quoting;
use strand_wire::client::Value;

/// One search: its time and its result.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sample {
    pub(super) took: Duration,
    /// Number of matching patterns.
    pub(super) matches: usize,
}

/// A regex engine with one set of patterns.
pub(super) trait Contestant {
    /// Searches `texts[order[i]]` for each i. Thread t of `threads` searches the texts at t, t + threads, t +
    /// 2 * threads and so on, one after another, and begins no search after `limit`.
    ///
    /// # Errors
    /// When a search fails.
    fn run(
        &mut self,
        texts: &[Vec<u8>],
        threads: usize,
        order: &[usize],
        limit: Duration,
    ) -> Result<Vec<Option<Sample>>>;
}

/// Name of the pattern set on the server.
pub(super) const SET: &str = "creep";

/// Strand over a socket. Every search is a request, and its time is the round trip.
pub(super) struct Strand {
    pub(super) server: Server,
}

impl Strand {
    pub(super) fn start(binary: &Path, subject: &Subject) -> Result<Strand> {
        let server = Server::measured(Program::Strand, binary, &["--workers", "1"], "0", &[])?;
        define(&server, subject, &[])?;
        Ok(Strand { server })
    }
}

/// Defines a subject's patterns on the server by RX.SET.
pub(super) fn define(server: &Server, subject: &Subject, options: &[&str]) -> Result<()> {
    let mut args: Vec<String> = vec!["RX.SET".into(), SET.into()];
    for (i, pattern) in subject.patterns.iter().enumerate() {
        args.extend(["ID".into(), i.to_string(), pattern.clone()]);
    }
    args.extend(options.iter().map(|o| o.to_string()));
    args.extend(["DEADLINE".into(), "60000".into()]);
    match server.connect()?.call(&args)? {
        Value::Simple(_) => Ok(()),
        other => Err(format!("RX.SET: {}", quoting::join(&[format!("{other:?}").into_bytes()])).into()),
    }
}

impl Contestant for Strand {
    fn run(
        &mut self,
        texts: &[Vec<u8>],
        threads: usize,
        order: &[usize],
        limit: Duration,
    ) -> Result<Vec<Option<Sample>>> {
        let server = &self.server;
        let begun = Instant::now();
        in_threads(threads, order, |t| {
            let mut client = server.connect()?;
            let mut samples = Vec::new();
            for text in order.iter().skip(t).step_by(threads) {
                let start = Instant::now();
                if start - begun >= limit {
                    break;
                }
                let reply = client.call(&[b"RX.MATCH", SET.as_bytes(), &texts[*text]])?;
                let Value::Array(found) = reply else { return Err(format!("{reply:?}").into()) };
                samples.push(Sample { took: start.elapsed(), matches: found.len() });
            }
            Ok(samples)
        })
    }
}

/// The `regex` crate in its usual form: one object for all threads.
pub(super) enum RegexCrate {
    One(regex::bytes::Regex),
    Set(regex::bytes::RegexSet),
}

impl RegexCrate {
    pub(super) fn new(subject: &Subject, unicode: bool) -> Result<RegexCrate> {
        const SIZE: usize = 1 << 28;
        let patterns = &subject.patterns;
        Ok(match &patterns[..] {
            [one] => RegexCrate::One(
                regex::bytes::RegexBuilder::new(one).unicode(unicode).size_limit(SIZE).build()?,
            ),
            _ => RegexCrate::Set(
                regex::bytes::RegexSetBuilder::new(patterns).unicode(unicode).size_limit(SIZE).build()?,
            ),
        })
    }
}

impl Contestant for RegexCrate {
    fn run(
        &mut self,
        texts: &[Vec<u8>],
        threads: usize,
        order: &[usize],
        limit: Duration,
    ) -> Result<Vec<Option<Sample>>> {
        let (this, begun) = (&*self, Instant::now());
        in_threads(threads, order, |t| {
            let search = |text: &usize| {
                let start = Instant::now();
                let matches = match this {
                    RegexCrate::One(regex) => usize::from(regex.is_match(&texts[*text])),
                    RegexCrate::Set(set) => set.matches(&texts[*text]).iter().count(),
                };
                Sample { took: start.elapsed(), matches }
            };
            let mine = order.iter().skip(t).step_by(threads);
            Ok(mine.take_while(|_| begun.elapsed() < limit).map(search).collect())
        })
    }
}

/// Runs `each` on `threads` threads, and puts the samples of all threads into the order of the texts.
fn in_threads(
    threads: usize,
    order: &[usize],
    each: impl Fn(usize) -> Result<Vec<Sample>> + Sync,
) -> Result<Vec<Option<Sample>>> {
    let each = &each;
    let parts: Vec<Vec<Sample>> = thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|t| scope.spawn(move || each(t))).collect();
        let joined =
            running.into_iter().map(|r| r.join().unwrap_or_else(|_| Err("a thread panicked".into())));
        joined.collect::<Result<_>>()
    })?;
    Ok((0..order.len()).map(|i| parts[i % threads].get(i / threads).copied()).collect())
}

/// RE2 in a small C++ program, which runs as a child process.
pub(super) struct Re2 {
    child: Child,
    /// Number of texts that the C++ program has received.
    texts: usize,
}

impl Re2 {
    /// Compiles the C++ program into a new folder. The error says what to install.
    pub(super) fn build() -> Result<PathBuf> {
        let binary = tempfile::Builder::new().prefix("strand-creep-").tempdir()?.keep().join("re2");
        let args = ["-O2", "-x", "c++", "-", "-pthread", "-lre2", "-o"];
        let spawned =
            Command::new("g++").args(args).arg(&binary).stdin(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let missing = "RE2 is not installed: apt-get install g++ libre2-dev";
        let mut child = spawned.map_err(|_| missing)?;
        let mut input = child.stdin.take().ok_or(missing)?;
        input.write_all(include_bytes!("re2.cc"))?;
        drop(input);
        let done = child.wait_with_output()?;
        if !done.status.success() {
            let why = String::from_utf8_lossy(&done.stderr);
            return Err(if why.contains("re2/re2.h") { missing.into() } else { why.into_owned().into() });
        }
        Ok(binary)
    }

    pub(super) fn start(binary: &Path, subject: &Subject) -> Result<Re2> {
        let mut child = Command::new(binary).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let input = child.stdin.as_mut().ok_or("no input")?;
        for pattern in &subject.patterns {
            // Remove the flag that turns Unicode off, because RE2 reads bytes and does not know this flag.
            let pattern = pattern.replace("(?-u)", "").replace("(?s-u)", "(?s)");
            write!(input, "P {}\n{pattern}\n", pattern.len())?;
        }
        Ok(Re2 { child, texts: 0 })
    }
}

impl Contestant for Re2 {
    fn run(
        &mut self,
        texts: &[Vec<u8>],
        threads: usize,
        order: &[usize],
        limit: Duration,
    ) -> Result<Vec<Option<Sample>>> {
        let input = self.child.stdin.as_mut().ok_or("no input")?;
        for text in &texts[self.texts..] {
            writeln!(input, "T {}", text.len())?;
            input.write_all(text)?;
        }
        self.texts = texts.len();
        let numbers: Vec<String> = order.iter().map(usize::to_string).collect();
        writeln!(input, "R {threads} {} {} {}", limit.as_millis(), order.len(), numbers.join(" "))?;
        input.flush()?;
        let mut lines = BufReader::new(self.child.stdout.as_mut().ok_or("no output")?).lines();
        (0..order.len())
            .map(|_| {
                let line = lines.next().ok_or("RE2's program ended")??;
                let (ns, matches) = line.split_once(' ').ok_or("two numbers")?;
                let ns: i64 = ns.parse()?;
                let sample =
                    Sample { took: Duration::from_nanos(ns.unsigned_abs()), matches: matches.parse()? };
                Ok((ns >= 0).then_some(sample))
            })
            .collect()
    }
}

impl Drop for Re2 {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
