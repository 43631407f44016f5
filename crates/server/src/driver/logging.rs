//! The log: lines to the standard error or a file, at redis-server's levels, which can change while the server
//! runs.

use super::disk::is_at;
use super::log_lines::{Json, own_warning};
use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};
use strand_engine::Config;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::writer::BoxMakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry, fmt, reload};

/// A handle to the level of the log.
#[derive(Clone)]
pub struct LogLevel(reload::Handle<Targets, Registry>);

impl LogLevel {
    /// Sets `loglevel` and `log-levels`, the levels of single targets: `target=level`, separated by commas.
    pub fn set(&self, name: &str, targets: &str) {
        // This fails only when the log is gone.
        let _ = self.0.modify(|old| *old = filter(name, targets));
    }
}

/// Starts the log with `loglevel` and `log-levels`, as lines or JSON. It goes to `logfile` (appended; empty: the
/// standard error).
///
/// # Errors
/// When the file cannot be opened.
pub fn start(config: &Config) -> io::Result<LogLevel> {
    let out: Box<dyn Write + Send> = match config.logfile().as_str() {
        "" => Box::new(io::stderr()),
        path => Box::new(LogFile::open(Path::new(path))?),
    };
    let is_json = config.log_format() == "json";
    let writer = BoxMakeWriter::new(Mutex::new(Tee(LineWriter::new(out, is_json))));
    let levels = filter(&config.loglevel(), &config.log_levels());
    let (levels, handle) = reload::Layer::new(levels);
    let plain = fmt::layer().with_writer(writer).with_ansi(false).with_target(false);
    let lines = if is_json { plain.event_format(Json).boxed() } else { plain.boxed() };
    // This fails only in tests, which start several logs in one process. The first log then stays in use.
    let _ = tracing_subscriber::registry().with(levels).with(lines).try_init();
    Ok(LogLevel(handle))
}

/// The levels of `loglevel` and `log-levels`. The values of both options have been checked.
fn filter(name: &str, targets: &str) -> Targets {
    let words = targets.split([',', ' ']);
    let pairs = words.filter_map(|word| {
        let (target, level) = word.split_once('=')?;
        Some((target, level.parse::<LevelFilter>().ok()?))
    });
    Targets::new().with_default(level(name)).with_targets(pairs)
}

/// Time between two looks at the place of the log file.
const LOOK_PAUSE: Duration = Duration::from_secs(1);

/// The file `logfile`. Like redis-server's, it is found by its name: after log rotation has renamed or removed the file, a
/// new file is created.
struct LogFile {
    path: PathBuf,
    file: File,
    looked_at: Instant,
}

impl LogFile {
    fn open(path: &Path) -> io::Result<LogFile> {
        // The working folder may change later.
        let path = std::path::absolute(path)?;
        let file = OpenOptions::new().create(true).append(true).open(&path)?;
        Ok(LogFile { path, file, looked_at: Instant::now() })
    }
}

impl Write for LogFile {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if self.looked_at.elapsed() >= LOOK_PAUSE {
            self.looked_at = Instant::now();
            // When the new file cannot be opened, the old file still gets the lines.
            if !is_at(&self.file, &self.path)
                && let Ok(new) = LogFile::open(&self.path)
            {
                *self = new;
            }
        }
        self.file.write(line)
    }
    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// The latest lines of the log.
static TAIL: Mutex<VecDeque<u8>> = Mutex::new(VecDeque::new());
/// Maximum number of bytes in `TAIL`.
const TAIL_BYTES_MAX: usize = 128 << 10;

/// Writes whole lines to a log that may fail, for example because the disk is full. After a line that was cut, the next
/// line still begins at the start of a line. When writing works again, the log says how many lines it lacks.
struct LineWriter<W> {
    out: W,
    /// True when lines are JSON objects.
    is_json: bool,
    /// Lines that were lost or cut since the last line that was written.
    lost: u64,
    /// True while the log ends inside a line.
    is_cut: bool,
}

impl<W: Write> LineWriter<W> {
    fn new(out: W, is_json: bool) -> LineWriter<W> {
        LineWriter { out, is_json, lost: 0, is_cut: false }
    }
    /// Writes a line, and before it what is to be said about lost lines.
    fn write_line(&mut self, line: &[u8]) -> io::Result<()> {
        let done = self.tell_lost().and_then(|()| self.write_whole(line));
        self.lost += u64::from(done.is_err());
        done
    }
    fn tell_lost(&mut self) -> io::Result<()> {
        if self.is_cut {
            self.write_whole(b"\n")?;
        }
        if self.lost > 0 {
            let lost = self.lost;
            let text =
                format!("the log could not be written: {lost} lines are missing or cut before this line");
            self.write_whole(own_warning(self.is_json, &text).as_bytes())?;
            self.lost = 0;
        }
        Ok(())
    }
    fn write_whole(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.out.write(bytes) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(wrote) => {
                    self.is_cut = bytes[wrote - 1] != b'\n';
                    bytes = &bytes[wrote..];
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }
}

/// Writes the log, and keeps the latest lines of the log in `TAIL`.
struct Tee(LineWriter<Box<dyn Write + Send>>);

impl Write for Tee {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if let Ok(mut tail) = TAIL.lock() {
            tail.extend(&line[line.len().saturating_sub(TAIL_BYTES_MAX)..]);
            let over = tail.len().saturating_sub(TAIL_BYTES_MAX);
            tail.drain(..over);
        }
        self.0.write_line(line)?;
        Ok(line.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        self.0.out.flush()
    }
}

/// The latest lines of the log.
pub fn tail() -> Vec<u8> {
    let Ok(tail) = TAIL.lock() else { return Vec::new() };
    let begin = match tail.len() < TAIL_BYTES_MAX {
        true => 0,
        // The first line may be incomplete.
        false => tail.iter().position(|byte| *byte == b'\n').map_or(0, |end| end + 1),
    };
    tail.iter().skip(begin).copied().collect()
}

/// Makes panics appear in the log, with their location. The text of a panic is Strand's own, never a client's data.
pub fn log_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let thread = std::thread::current();
        tracing::error!("panic in thread {}: {panic}", thread.name().unwrap_or("unnamed"));
    }));
}

fn level(name: &str) -> LevelFilter {
    match name {
        "debug" => LevelFilter::TRACE,
        "verbose" => LevelFilter::DEBUG,
        "warning" => LevelFilter::WARN,
        "nothing" => LevelFilter::OFF,
        _ => LevelFilter::INFO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_levels_of_targets_are_parsed() {
        let filter = filter("notice", "strand_search=trace, strand::driver::host=off");
        for (target, level, enabled) in [
            ("strand_search::query", tracing::Level::TRACE, true),
            ("strand::driver::host", tracing::Level::ERROR, false),
            ("strand::driver", tracing::Level::INFO, true),
            ("strand::driver", tracing::Level::DEBUG, false),
        ] {
            assert_eq!(filter.would_enable(target, &level), enabled, "{target} {level}");
        }
    }

    #[test]
    fn a_rotated_log_goes_on_in_a_new_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let (path, rotated) = (folder.path().join("log"), folder.path().join("log.1"));
        let read = |path: &Path| std::fs::read_to_string(path).expect("it is there");
        let mut log = LogFile::open(&path).expect("a new file");
        log.write_all(b"one\n").expect("written");
        std::fs::rename(&path, &rotated).expect("renamed");
        let mut write_late = |line: &[u8]| {
            log.looked_at = Instant::now().checked_sub(LOOK_PAUSE).expect("the machine has run for a second");
            log.write_all(line).expect("written");
        };
        write_late(b"two\n");
        assert_eq!((read(&rotated), read(&path)), ("one\n".into(), "two\n".into()));
        std::fs::remove_file(&path).expect("removed");
        write_late(b"three\n");
        write_late(b"four\n");
        assert_eq!(read(&path), "three\nfour\n");
        // Without a folder for a new file, the open file gets the lines.
        std::fs::rename(folder.path(), folder.path().with_extension("old")).expect("renamed");
        write_late(b"five\n");
        let moved = folder.path().with_extension("old");
        assert_eq!(read(&moved.join("log")), "three\nfour\nfive\n");
        std::fs::rename(moved, folder.path()).expect("renamed back");
    }

    /// A disk with this much room. With a room of 0, every write fails.
    struct Disk {
        text: Vec<u8>,
        room: usize,
    }

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let wrote = bytes.len().min(self.room);
            if wrote == 0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.room -= wrote;
            self.text.extend(&bytes[..wrote]);
            Ok(wrote)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_full_disk_cuts_lines_and_the_log_says_how_many() {
        for is_json in [false, true] {
            let mut log = LineWriter::new(Disk { text: Vec::new(), room: 6 }, is_json);
            for (line, room) in [("one\n", 6), ("two\n", 2), ("three\n", 0), ("four\n", 1)] {
                log.out.room = room;
                assert_eq!(log.write_line(line.as_bytes()).is_ok(), line == "one\n", "{line}");
            }
            log.out.room = 1000;
            assert!(log.write_line(b"five\n").is_ok() && log.write_line(b"six\n").is_ok());
            let text = String::from_utf8_lossy(&log.out.text);
            let lines: Vec<&str> = text.lines().collect();
            assert_eq!((&lines[..2], &lines[3..]), (&["one", "tw"][..], &["five", "six"][..]), "{text}");
            let lost = "the log could not be written: 3 lines are missing or cut before this line";
            assert!(lines[2].contains(lost) && lines[2].contains("WARN"), "{text}");
            assert_eq!(serde_json::from_str::<serde_json::Value>(lines[2]).is_ok(), is_json, "{text}");
        }
    }
}
