//! The output of a running importer: a progress bar on a terminal, lines elsewhere, and text made safe to print.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use std::io::{IsTerminal, Write};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use strand_import::filter::ByteSize;
use strand_import::{Forecast, Outcome, Pace, Progress};

/// Minimum time between two plain progress lines.
const LINE_EVERY: Duration = Duration::from_secs(2);

/// Progress: a bar on a terminal, a plain line from time to time elsewhere, nothing when quiet.
pub struct Display {
    into: String,
    dry_run: bool,
    prints_changes: bool,
    bar: Option<ProgressBar>,
    prints_lines: bool,
    listed: u64,
    done: u64,
    time_left: Option<Duration>,
    last_line: Instant,
}

impl Display {
    /// A display for the dataset `into`. `changes`: print each change.
    pub fn new(into: &str, quiet: bool, changes: bool, dry_run: bool) -> Display {
        let terminal = std::io::stderr().is_terminal();
        let bar = (terminal && !quiet).then(|| {
            let style =
                ProgressStyle::with_template("{prefix} [{bar:30}] {pos}/{len} documents, {rate} {wide_msg}")
                    .unwrap_or_else(|_| ProgressStyle::default_bar());
            let style = style.with_key("rate", |state: &ProgressState, out: &mut dyn std::fmt::Write| {
                let _ = write!(out, "{:.0}/s", state.per_sec());
            });
            let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr()).with_style(style);
            bar.set_prefix(into.to_owned());
            bar
        });
        Display {
            into: into.to_owned(),
            dry_run,
            prints_changes: changes,
            prints_lines: !quiet && !terminal,
            bar,
            listed: 0,
            done: 0,
            time_left: None,
            last_line: Instant::now(),
        }
    }
    /// Prints a line to the standard output, in a way that the bar does not overwrite it.
    fn print_above_bar(&self, line: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| print_line(line)),
            None => print_line(line),
        }
    }
    /// Shows on the bar which path the run has reached, and how long the rest of the run takes.
    fn show_position(&self, path: &[u8]) {
        if let Some(bar) = &self.bar {
            let place = if path.is_empty() { String::new() } else { printable(path) };
            bar.set_message(format!("{}{place}", time_left_text(self.time_left)));
        }
    }
    /// Removes the bar.
    pub fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

impl Progress for Display {
    fn listed(&mut self, path: &[u8], documents: u64) {
        self.listed += documents;
        if let Some(bar) = &self.bar {
            bar.set_length(self.listed);
        }
        self.show_position(path);
    }
    fn document(&mut self, path: &[u8], outcome: Outcome<'_>) {
        let sign = match outcome {
            Outcome::Added => "+",
            Outcome::Updated => "~",
            Outcome::Removed => "-",
            Outcome::Failed(_) => "!",
            Outcome::Unchanged => "",
        };
        if self.prints_changes && !sign.is_empty() {
            self.print_above_bar(&format!("{sign} {}", printable(path)));
        }
        if outcome != Outcome::Removed {
            self.done += 1;
            if let Some(bar) = &self.bar {
                bar.inc(1);
            }
        }
        if self.prints_lines && self.last_line.elapsed() >= LINE_EVERY {
            self.last_line = Instant::now();
            let (into, done, listed, left) =
                (&self.into, self.done, self.listed, time_left_text(self.time_left));
            say!("{into}: {done} documents done, {listed} listed so far, {left}at {}", printable(path));
        }
    }
    fn pace(&mut self, path: &[u8], pace: &Pace) {
        self.time_left = pace.remaining;
        self.show_position(path);
    }
    fn forecast(&mut self, forecast: &Forecast) {
        let Forecast { containers, documents, bytes, removed, memory_bytes, time } = *forecast;
        let (bytes, memory, seconds) = (ByteSize(bytes), ByteSize(memory_bytes), time.as_secs_f64());
        let line = format!(
            "forecast: {containers} containers, {documents} documents ({bytes}) to read, {removed} to remove, \
             {memory} of memory besides the program's own, {seconds:.1} s"
        );
        match &self.bar {
            Some(bar) => bar.suspend(|| say!("{line}")),
            None => say!("{line}"),
        }
    }
    fn index_created(&mut self, name: &str) {
        if self.dry_run {
            self.print_above_bar(&format!("+ index {name}"));
            return;
        }
        let line = format!("{name}: created the text index {name}");
        match &self.bar {
            Some(bar) => bar.suspend(|| say!("{line}")),
            None if self.prints_lines => say!("{line}"),
            None => {}
        }
    }
    fn index_over_other_keys(&mut self, name: &str) {
        self.print_above_bar(&format!(
            "{name}: the text index {name} is over other keys, so its searches find no document at {name}:*"
        ));
    }
    fn warning(&mut self, text: &str) {
        let line = format!("warning: {}", safe(text));
        match &self.bar {
            Some(bar) => bar.suspend(|| say!("{line}")),
            None => say!("{line}"),
        }
    }
}

/// The remaining time of a run, as text before a path. Empty when that time is not known.
fn time_left_text(time_left: Option<Duration>) -> String {
    time_left.map_or_else(String::new, |time| format!("about {} left, ", seconds(time)))
}

/// A duration as people read it: `8 s`, `3 min 20 s`, `2 h 5 min`.
pub fn seconds(time: Duration) -> String {
    match time.as_secs() {
        s @ 0..60 => format!("{s} s"),
        s @ 60..3600 => format!("{} min {} s", s / 60, s % 60),
        s => format!("{} h {} min", s / 3600, s % 3600 / 60),
    }
}

/// True when documents go to the standard output, so that other lines must go to the standard error.
static IS_STDOUT_TAKEN: AtomicBool = AtomicBool::new(false);

/// Sends all later lines of [`print_line`] to the standard error.
pub fn lines_to_stderr() {
    IS_STDOUT_TAKEN.store(true, Ordering::Relaxed);
}

/// The first error of [`print_line`], except a closed pipe: then the reader wants no more lines.
static OUTPUT_ERROR: OnceLock<std::io::Error> = OnceLock::new();

/// Prints a line to the standard output, or to the standard error after [`lines_to_stderr`]. [`output_error`] has the
/// error.
pub fn print_line(line: &str) {
    let printed = match IS_STDOUT_TAKEN.load(Ordering::Relaxed) {
        true => writeln!(std::io::stderr(), "{line}"),
        false => writeln!(std::io::stdout(), "{line}"),
    };
    if let Err(error) = printed
        && error.kind() != std::io::ErrorKind::BrokenPipe
    {
        let _ = OUTPUT_ERROR.set(error);
    }
}

/// Prints bytes unchanged. A terminal gets text only, with control characters shown as [`safe`] shows them: the bytes may
/// come from a stranger.
pub fn print_bytes(bytes: &[u8]) {
    let mut out = std::io::stdout();
    if out.is_terminal() {
        String::from_utf8_lossy(bytes).lines().for_each(|line| print_line(&safe(line)));
        return;
    }
    if let Err(error) = out.write_all(bytes).and_then(|()| out.flush())
        && error.kind() != std::io::ErrorKind::BrokenPipe
    {
        let _ = OUTPUT_ERROR.set(error);
    }
}

/// Why a line could not be printed, for example because the disk is full.
pub fn output_error() -> Option<&'static std::io::Error> {
    OUTPUT_ERROR.get()
}

/// A path as text for display. Invalid UTF-8 is replaced, then the text is made [`safe`].
pub fn printable(path: &[u8]) -> String {
    if path.is_empty() {
        return ".".to_owned();
    }
    safe(&String::from_utf8_lossy(path))
}

/// Text from outside (from a server, a file's name) made safe for a terminal. Escapes control characters, and
/// characters that change the text direction or break lines.
pub fn safe(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
                out.extend(c.escape_default())
            }
            c if c.is_control() => out.extend(c.escape_default()),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::{printable, time_left_text};
    use std::time::Duration;

    #[test]
    fn the_remaining_time_is_shown_in_fitting_units() {
        let text = |s| time_left_text(Some(Duration::from_secs(s)));
        assert_eq!([text(0), text(59)], ["about 0 s left, ", "about 59 s left, "]);
        assert_eq!([text(200), text(7_500)], ["about 3 min 20 s left, ", "about 2 h 5 min left, "]);
        assert_eq!(super::time_left_text(None), "");
    }

    #[test]
    fn paths_are_safe_to_print() {
        assert_eq!(printable(b"a\x1b[31m\nb"), "a\\u{1b}[31m\\nb");
        assert_eq!(printable(b"caf\xe9"), "caf\u{fffd}");
        assert_eq!(printable(b""), ".");
        assert_eq!(printable("a\u{202e}fdp.exe\u{9b}1m".as_bytes()), "a\\u{202e}fdp.exe\\u{9b}1m");
    }
}
