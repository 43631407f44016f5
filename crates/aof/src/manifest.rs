//! [`Manifest`]: the files of one append-only file, in the order of loading.
//!
//! A manifest is text with one line per file: `file NAME seq N type T`. The base (`b`) holds the data of one
//! moment, and increments (`i`) hold the commands after it. History files (`h`) are obsolete and about to be
//! removed. All files are in the folder of the manifest: a name cannot lead out of it.

use crate::words;

/// Maximum length of a line in bytes, including its line feed.
const LINE_BYTES_MAX: usize = 1024;
/// Maximum length of a file's name as [`Manifest::text`] writes it, with quotes and escapes. With this bound
/// the line never exceeds [`LINE_BYTES_MAX`].
const QUOTED_NAME_BYTES_MAX: usize = LINE_BYTES_MAX - 64;
/// Maximum number of lines. Each failed rewrite leaves one more increment, and a successful rewrite replaces
/// all increments by a base.
const LINES_MAX: usize = 100_000;
/// Maximum size of a manifest, in bytes.
pub const BYTES_MAX: u64 = 8 << 20;

/// One file that a manifest lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// The file's name in the folder of the manifest.
    pub name: String,
    /// The sequence number of the file among the files of its type. The first file has number 1.
    pub seq: u64,
}

/// The files of one append-only file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Manifest {
    /// The base file: the data of one moment.
    pub base: Option<File>,
    /// The files with the commands after the base, in order.
    pub increments: Vec<File>,
    /// Obsolete files, which are to be removed.
    pub history: Vec<File>,
}

/// The reason why a text is not a manifest.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("line {line} ({text:?}): {problem}")]
pub struct InvalidManifest {
    /// The number of the invalid line, from 1; 0: the text has no line.
    pub line: usize,
    /// The invalid line, or its start.
    pub text: String,
    /// What is wrong with the line.
    pub problem: ManifestProblem,
}

/// The error in a manifest, see [`InvalidManifest`].
#[derive(Clone, Copy, Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum ManifestProblem {
    /// The manifest lists no file.
    #[error("Found an empty AOF manifest")]
    Empty,
    /// A line is longer than 1024 bytes.
    #[error("The AOF manifest file contains too long line")]
    LongLine,
    /// The manifest has more than 100,000 lines.
    #[error("the AOF manifest has more than {LINES_MAX} lines")]
    ManyLines,
    /// A line is not a list of name-value pairs, or a required pair is missing.
    #[error("Invalid AOF manifest file format")]
    Format,
    /// A line names a file by a path, not only by a file name.
    #[error("File can't be a path, just a filename")]
    Path,
    /// The manifest names a second base.
    #[error("Found duplicate base file information")]
    SecondBase,
    /// An increment whose sequence number is not larger than that of the previous increment.
    #[error("Found a non-monotonic sequence number")]
    Order,
    /// A line has an unknown file type.
    #[error("Unknown AOF file type")]
    Type,
}

impl Manifest {
    /// Parses a manifest.
    ///
    /// # Errors
    /// The first invalid line.
    pub fn parse(text: &[u8]) -> Result<Manifest, InvalidManifest> {
        let mut manifest = Manifest::default();
        if text.is_empty() {
            return Err(InvalidManifest { line: 0, text: String::new(), problem: ManifestProblem::Empty });
        }
        let mut rest = text;
        for line in 1.. {
            if rest.is_empty() {
                break;
            }
            let end = rest.iter().take(LINE_BYTES_MAX).position(|b| *b == b'\n');
            let shown = &rest[..end.unwrap_or(rest.len().min(LINE_BYTES_MAX))];
            let invalid = |problem| {
                let text = String::from_utf8_lossy(shown).trim().to_string();
                InvalidManifest { line, text, problem }
            };
            if line > LINES_MAX {
                return Err(invalid(ManifestProblem::ManyLines));
            }
            let is_comment = shown.first() == Some(&b'#');
            let end = match end {
                Some(end) => end,
                // A comment line at the end of the text may lack its line feed, as in redis-server.
                None if is_comment && shown.len() == rest.len() => rest.len() - 1,
                None => return Err(invalid(ManifestProblem::LongLine)),
            };
            if !is_comment {
                manifest.add_line(shown).map_err(invalid)?;
            }
            rest = &rest[end + 1..];
        }
        Ok(manifest)
    }
    /// Encodes the manifest as text.
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
    /// The number of the latest base; 0: there is no base.
    pub fn base_seq(&self) -> u64 {
        self.base.as_ref().map_or(0, |file| file.seq)
    }
    /// The number of the latest increment; 0: there is no increment.
    pub fn increment_seq(&self) -> u64 {
        self.increments.last().map_or(0, |file| file.seq)
    }
    /// A new file whose number follows `seq`, and whose name no file of this manifest has. Files in the history keep their
    /// names until they are removed, so `names` of a number may be in use there.
    pub fn next_file(&self, seq: u64, names: impl Fn(u64) -> String) -> File {
        let is_used = |name: &String| self.to_load().chain(&self.history).any(|file| file.name == *name);
        let mut seq = seq + 1;
        while is_used(&names(seq)) {
            seq += 1;
        }
        File { name: names(seq), seq }
    }
    /// The files of the history that may be removed: a damaged manifest may also name one of them as a file to load.
    pub fn removable(&self) -> Vec<File> {
        let is_loaded = |file: &File| self.to_load().any(|loaded| loaded.name == file.name);
        self.history.iter().filter(|file| !is_loaded(file)).cloned().collect()
    }
    /// The base and the increments, in the order of loading.
    pub fn to_load(&self) -> impl DoubleEndedIterator<Item = &File> {
        self.base.iter().chain(&self.increments)
    }

    fn add_line(&mut self, line: &[u8]) -> Result<(), ManifestProblem> {
        let words = words::split(line).ok_or(ManifestProblem::Format)?;
        if words.len() < 6 || !words.len().is_multiple_of(2) {
            return Err(ManifestProblem::Format);
        }
        let (mut name, mut seq, mut kind) = (None, 0, None);
        for pair in words.chunks_exact(2) {
            let (key, value) = (&pair[0], &pair[1]);
            // Ignore unknown keys, because they belong to later versions.
            if key.eq_ignore_ascii_case(b"file") {
                name = Some(String::from_utf8(value.clone()).map_err(|_| ManifestProblem::Format)?);
            } else if key.eq_ignore_ascii_case(b"seq") {
                seq = std::str::from_utf8(value)
                    .ok()
                    .and_then(|n| n.parse().ok())
                    .ok_or(ManifestProblem::Format)?;
            } else if key.eq_ignore_ascii_case(b"type") {
                kind = value.first().copied();
            }
        }
        let (Some(name), Some(kind)) = (name, kind) else { return Err(ManifestProblem::Format) };
        if seq == 0 {
            return Err(ManifestProblem::Format);
        }
        if !is_file_name(&name) {
            return Err(ManifestProblem::Path);
        }
        if words::quote(name.as_bytes()).len() > QUOTED_NAME_BYTES_MAX {
            return Err(ManifestProblem::LongLine);
        }
        let last = self.increment_seq();
        let file = File { name, seq };
        match kind {
            b'b' if self.base.is_some() => return Err(ManifestProblem::SecondBase),
            b'b' => self.base = Some(file),
            b'h' => self.history.push(file),
            b'i' if file.seq <= last => return Err(ManifestProblem::Order),
            b'i' => self.increments.push(file),
            _ => return Err(ManifestProblem::Type),
        }
        Ok(())
    }
}

/// True when the name stays in the manifest's folder.
fn is_file_name(name: &str) -> bool {
    !matches!(name, "" | "." | "..") && !name.contains(['/', '\\', '\0'])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(text: &str) -> (usize, ManifestProblem) {
        let invalid = Manifest::parse(text.as_bytes()).expect_err("no manifest");
        (invalid.line, invalid.problem)
    }

    #[test]
    fn a_manifest_survives_parsing_and_printing() {
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
    fn a_new_file_has_a_name_of_its_own_and_a_loaded_file_stays() {
        let text =
            "file b.2 seq 2 type b\nfile i.1 seq 1 type h\nfile i.2 seq 2 type h\nfile b.2 seq 2 type h\n";
        let manifest = Manifest::parse(text.as_bytes()).expect("a manifest");
        let new = |kind: &'static str, seq| manifest.next_file(seq, |seq| format!("{kind}.{seq}"));
        assert_eq!(new("i", manifest.increment_seq()), File { name: "i.3".into(), seq: 3 });
        assert_eq!(new("b", manifest.base_seq()), File { name: "b.3".into(), seq: 3 });
        let names: Vec<String> = manifest.removable().into_iter().map(|file| file.name).collect();
        assert_eq!(names, ["i.1", "i.2"]);
    }

    #[test]
    fn a_name_whose_escapes_would_not_fit_a_line_is_refused() {
        let with = |name: &str| Manifest::parse(format!("file {name} seq {} type i\n", u64::MAX).as_bytes());
        let escaped = |n: usize| "\x1d".repeat(n);
        let manifest = with(&escaped(200)).expect("it fits");
        assert_eq!(Manifest::parse(manifest.text().as_bytes()), Ok(manifest));
        assert_eq!(with(&escaped(300)).map_err(|wrong| wrong.problem), Err(ManifestProblem::LongLine));
    }

    #[test]
    fn an_invalid_manifest_names_the_line() {
        let line = "file a seq 1 type b\n";
        for (text, line, expected) in [
            ("", 0, ManifestProblem::Empty),
            ("\n", 1, ManifestProblem::Format),
            ("file a seq 1 type b", 1, ManifestProblem::LongLine),
            ("file a seq 1\n", 1, ManifestProblem::Format),
            ("file a seq 0 type b\n", 1, ManifestProblem::Format),
            ("file a seq x type b\n", 1, ManifestProblem::Format),
            ("file a seq 1 type b more\n", 1, ManifestProblem::Format),
            ("file \"a seq 1 type b\n", 1, ManifestProblem::Format),
            ("file ../a seq 1 type b\n", 1, ManifestProblem::Path),
            ("file .. seq 1 type b\n", 1, ManifestProblem::Path),
            ("file /etc/passwd seq 1 type b\n", 1, ManifestProblem::Path),
            ("file \"a\\x00b\" seq 1 type b\n", 1, ManifestProblem::Path),
            ("file a seq 1 type x\n", 1, ManifestProblem::Type),
            (&format!("{line}{line}"), 2, ManifestProblem::SecondBase),
            ("file a seq 2 type i\n# between\nfile b seq 2 type i\n", 3, ManifestProblem::Order),
            (
                &format!("{line}file {} seq 1 type i\n", "x".repeat(LINE_BYTES_MAX)),
                2,
                ManifestProblem::LongLine,
            ),
        ] {
            assert_eq!(problem(text), (line, expected), "{text}");
        }
    }
}
