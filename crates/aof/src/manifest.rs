//! [`Manifest`]: the files of one append-only file, in the order in which they are loaded.
//!
//! A manifest is text, a line a file: `file NAME seq N type T`. The base (`b`) holds the data of one moment, increments (`i`)
//! hold the commands since. Files of history (`h`) are of no use any more and about to be removed. All lie in the folder
//! of the manifest: a name never leads out of it.

use crate::words;

/// No line is longer, its line feed included.
const LINE_BYTES_MAX: usize = 1024;
/// No manifest has more lines: each rewrite that fails leaves one more increment, and a base takes all of them away.
const LINES_MAX: usize = 100_000;
/// A manifest is no larger than its lines.
pub const BYTES_MAX: u64 = 8 << 20;

/// One file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// Its name, in the folder of the manifest.
    pub name: String,
    /// Its number among its like, 1 or more.
    pub seq: u64,
}

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Manifest {
    /// The data of one moment.
    pub base: Option<File>,
    /// Commands since, in their order.
    pub increments: Vec<File>,
    /// To be removed.
    pub history: Vec<File>,
}

/// Why a text is no manifest.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("line {line} ({text:?}): {problem}")]
pub struct NoManifest {
    /// The first is 1; 0: there is no line.
    pub line: usize,
    /// The line, or its beginning.
    pub text: String,
    /// What is wrong with it.
    pub problem: Problem,
}

/// See [`NoManifest`].
#[derive(Clone, Copy, Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum Problem {
    /// There is no file in it.
    #[error("Found an empty AOF manifest")]
    Empty,
    /// A line above the limit.
    #[error("The AOF manifest file contains too long line")]
    LongLine,
    /// More lines than the limit.
    #[error("the AOF manifest has too many lines")]
    ManyLines,
    /// No pairs of a name and a value, or not all that are needed.
    #[error("Invalid AOF manifest file format")]
    Format,
    /// A name that leads elsewhere.
    #[error("File can't be a path, just a filename")]
    Path,
    /// A second base.
    #[error("Found duplicate base file information")]
    SecondBase,
    /// An increment that is not behind the one before.
    #[error("Found a non-monotonic sequence number")]
    Order,
    /// A type that is none of the three.
    #[error("Unknown AOF file type")]
    Type,
}

impl Manifest {
    /// Reads a manifest.
    ///
    /// # Errors
    /// The first line that is wrong.
    pub fn parse(text: &[u8]) -> Result<Manifest, NoManifest> {
        let mut manifest = Manifest::default();
        if text.is_empty() {
            return Err(NoManifest { line: 0, text: String::new(), problem: Problem::Empty });
        }
        let mut rest = text;
        for line in 1.. {
            if rest.is_empty() {
                break;
            }
            let end = rest.iter().take(LINE_BYTES_MAX).position(|b| *b == b'\n');
            let shown = &rest[..end.unwrap_or(rest.len().min(LINE_BYTES_MAX))];
            let wrong = |problem| {
                let text = String::from_utf8_lossy(shown).trim().to_string();
                NoManifest { line, text, problem }
            };
            if line > LINES_MAX {
                return Err(wrong(Problem::ManyLines));
            }
            let is_comment = shown.first() == Some(&b'#');
            let end = match end {
                Some(end) => end,
                // A comment may be cut, as in redis-server.
                None if is_comment && shown.len() == rest.len() => rest.len() - 1,
                None => return Err(wrong(Problem::LongLine)),
            };
            if !is_comment {
                manifest.add_line(shown).map_err(wrong)?;
            }
            rest = &rest[end + 1..];
        }
        Ok(manifest)
    }
    /// The text.
    pub fn text(&self) -> String {
        let kinds = [(self.base.as_slice(), 'b'), (&self.history, 'h'), (&self.increments, 'i')];
        let mut out = String::new();
        for (files, kind) in kinds {
            for File { name, seq } in files {
                out.push_str(&format!("file {} seq {seq} type {kind}\n", words::quote(name.as_bytes())));
            }
        }
        out
    }
    /// The number of the latest base; 0: there was none.
    pub fn base_seq(&self) -> u64 {
        self.base.as_ref().map_or(0, |file| file.seq)
    }
    /// The number of the latest increment; 0: there was none.
    pub fn increment_seq(&self) -> u64 {
        self.increments.last().map_or(0, |file| file.seq)
    }
    /// The base and the increments, in the order in which they are loaded.
    pub fn to_load(&self) -> impl DoubleEndedIterator<Item = &File> {
        self.base.iter().chain(&self.increments)
    }

    fn add_line(&mut self, line: &[u8]) -> Result<(), Problem> {
        let words = words::split(line).ok_or(Problem::Format)?;
        if words.len() < 6 || !words.len().is_multiple_of(2) {
            return Err(Problem::Format);
        }
        let (mut name, mut seq, mut kind) = (None, 0, None);
        for pair in words.chunks_exact(2) {
            let (key, value) = (&pair[0], &pair[1]);
            // Others are of later versions.
            if key.eq_ignore_ascii_case(b"file") {
                name = Some(String::from_utf8(value.clone()).map_err(|_| Problem::Format)?);
            } else if key.eq_ignore_ascii_case(b"seq") {
                seq = std::str::from_utf8(value).ok().and_then(|n| n.parse().ok()).ok_or(Problem::Format)?;
            } else if key.eq_ignore_ascii_case(b"type") {
                kind = value.first().copied();
            }
        }
        let (Some(name), Some(kind)) = (name, kind) else { return Err(Problem::Format) };
        if seq == 0 {
            return Err(Problem::Format);
        }
        if !is_file_name(&name) {
            return Err(Problem::Path);
        }
        let last = self.increment_seq();
        let file = File { name, seq };
        match kind {
            b'b' if self.base.is_some() => return Err(Problem::SecondBase),
            b'b' => self.base = Some(file),
            b'h' => self.history.push(file),
            b'i' if file.seq <= last => return Err(Problem::Order),
            b'i' => self.increments.push(file),
            _ => return Err(Problem::Type),
        }
        Ok(())
    }
}

/// True for a name that stays in its folder.
fn is_file_name(name: &str) -> bool {
    !matches!(name, "" | "." | "..") && !name.contains(['/', '\\', '\0'])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(text: &str) -> (usize, Problem) {
        let wrong = Manifest::parse(text.as_bytes()).expect_err("no manifest");
        (wrong.line, wrong.problem)
    }

    #[test]
    fn a_manifest_comes_back_as_it_was() {
        let text = "file a.1.base.rdb seq 1 type b\nfile \"b 2\" seq 2 type h\nfile a.3.incr.aof seq 3 type i\n\
                    file a.4.incr.aof seq 4 type i\n";
        let manifest = Manifest::parse(text.as_bytes()).expect("a manifest");
        assert_eq!(manifest.text(), text);
        assert_eq!((manifest.base_seq(), manifest.increment_seq()), (1, 4));
        let order: Vec<&str> = manifest.to_load().map(|file| file.name.as_str()).collect();
        assert_eq!(order, ["a.1.base.rdb", "a.3.incr.aof", "a.4.incr.aof"]);
        assert_eq!(Manifest::parse(b"# nothing\n"), Ok(Manifest::default()));
    }

    #[test]
    fn what_is_no_manifest_says_the_line() {
        let line = "file a seq 1 type b\n";
        for (text, line, expected) in [
            ("", 0, Problem::Empty),
            ("\n", 1, Problem::Format),
            ("file a seq 1 type b", 1, Problem::LongLine),
            ("file a seq 1\n", 1, Problem::Format),
            ("file a seq 0 type b\n", 1, Problem::Format),
            ("file a seq x type b\n", 1, Problem::Format),
            ("file a seq 1 type b more\n", 1, Problem::Format),
            ("file \"a seq 1 type b\n", 1, Problem::Format),
            ("file ../a seq 1 type b\n", 1, Problem::Path),
            ("file .. seq 1 type b\n", 1, Problem::Path),
            ("file /etc/passwd seq 1 type b\n", 1, Problem::Path),
            ("file \"a\\x00b\" seq 1 type b\n", 1, Problem::Path),
            ("file a seq 1 type x\n", 1, Problem::Type),
            (&format!("{line}{line}"), 2, Problem::SecondBase),
            ("file a seq 2 type i\n# between\nfile b seq 2 type i\n", 3, Problem::Order),
            (&format!("{line}file {} seq 1 type i\n", "x".repeat(LINE_BYTES_MAX)), 2, Problem::LongLine),
        ] {
            assert_eq!(problem(text), (line, expected), "{text}");
        }
    }
}
