//! [`CacheLimits`]: how much of a disk a cache may fill. The terms are those of Linux's FS-Cache.
//!
//! Three shares of the disk's blocks, and three shares of its files, bound the cache. While more than *run* is free,
//! the cache grows freely. When less than *cull* is free, it removes the objects that were unused the longest, until
//! *run* is free again. While less than *stop* is free, it stores nothing. The names and the file's syntax are those of
//! `/etc/cachefilesd.conf`.

use rustix::fs::StatVfs;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Largest configuration file in bytes that is read.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The three shares of one resource that stay free, in percent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shares {
    /// Culling ends when at least this share is free.
    pub run: u8,
    /// Culling begins when less than this share is free.
    pub cull: u8,
    /// Nothing is stored while less than this share is free.
    pub stop: u8,
}

impl Shares {
    /// The shares in Debian's `/etc/cachefilesd.conf`.
    pub const DEBIAN: Shares = Shares { run: 10, cull: 7, stop: 3 };
    /// The shares that cachefilesd uses by default.
    pub const CACHEFILESD: Shares = Shares { run: 7, cull: 5, stop: 1 };

    fn check(self, letter: char) -> Result<(), ContentError> {
        match self.stop < self.cull && self.cull < self.run && self.run < 100 {
            true => Ok(()),
            false => Err(ContentError::Order { letter, shares: self }),
        }
    }
}

/// How much of a disk a cache may fill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheLimits {
    /// The shares of the disk's space.
    pub blocks: Shares,
    /// The shares of the files that the disk may have.
    pub files: Shares,
    /// False: the cache never culls, and only stops storing below *stop*.
    pub culls: bool,
}

impl Default for CacheLimits {
    fn default() -> CacheLimits {
        CacheLimits { blocks: Shares::DEBIAN, files: Shares::DEBIAN, culls: true }
    }
}

/// Why a file of limits cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LimitsError {
    /// The file cannot be read.
    #[error("--cache-config {}: {why}", file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// The error.
        why: std::io::Error,
    },
    /// A line is wrong, or the limits contradict each other.
    #[error("--cache-config {}: {why}", file.display())]
    Content {
        /// The file.
        file: PathBuf,
        /// The line, and what is wrong with it.
        why: ContentError,
    },
}

/// What is wrong with the content of a file of limits.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ContentError {
    /// A command that needs a share has something else.
    #[error(
        "line {line}: {command} {value:?} is not a share of the disk: expected a percentage of 0% to 99%, as 7%"
    )]
    Share {
        /// The number of the line, from 1.
        line: usize,
        /// The command.
        command: String,
        /// The text after the command.
        value: String,
    },
    /// The command `dir` has no folder.
    #[error("line {line}: dir has no folder: expected dir PATH")]
    Dir {
        /// The number of the line, from 1.
        line: usize,
    },
    /// The line begins with an unknown command.
    #[error(
        "line {line}: {command:?} is not a command of cachefilesd.conf: expected dir, brun, bcull, bstop, frun, fcull, \
         fstop or nocull"
    )]
    Command {
        /// The number of the line, from 1.
        line: usize,
        /// The word.
        command: String,
    },
    /// The three shares of one resource contradict each other.
    #[error(
        "expected {letter}stop < {letter}cull < {letter}run < 100%, not {stop}%, {cull}%, {run}%",
        stop = shares.stop, cull = shares.cull, run = shares.run
    )]
    Order {
        /// `b` for blocks, `f` for files.
        letter: char,
        /// The shares.
        shares: Shares,
    },
}

/// Reads a file in the syntax of `/etc/cachefilesd.conf`. Returns the limits, and the folder of `dir` if there is one.
///
/// # Errors
/// [`LimitsError`] has the file, the line's number and what is wrong.
pub fn read_config(file: &Path) -> Result<(CacheLimits, Option<PathBuf>), LimitsError> {
    let failed = |why| LimitsError::Read { file: file.into(), why };
    let mut text = String::new();
    let opened = std::fs::File::open(file).map_err(failed)?;
    opened.take(FILE_BYTES_MAX).read_to_string(&mut text).map_err(failed)?;
    parse(&text).map_err(|why| LimitsError::Content { file: file.into(), why })
}

fn parse(text: &str) -> Result<(CacheLimits, Option<PathBuf>), ContentError> {
    let mut limits = CacheLimits { blocks: Shares::CACHEFILESD, files: Shares::CACHEFILESD, culls: true };
    let mut folder = None;
    for (number, text) in text.lines().enumerate() {
        let (line, text) = (number + 1, text.trim());
        if text.is_empty() || text.starts_with('#') {
            continue;
        }
        let (name, value) = text.split_once([' ', '\t']).unwrap_or((text, ""));
        let value = value.trim();
        let share = || {
            let number_of = value.strip_suffix('%').and_then(|digits| digits.parse::<u8>().ok());
            let wrong = || ContentError::Share { line, command: name.to_owned(), value: value.to_owned() };
            number_of.ok_or_else(wrong)
        };
        match name {
            "dir" if value.is_empty() => return Err(ContentError::Dir { line }),
            "dir" => folder = Some(PathBuf::from(value)),
            "brun" => limits.blocks.run = share()?,
            "bcull" => limits.blocks.cull = share()?,
            "bstop" => limits.blocks.stop = share()?,
            "frun" => limits.files.run = share()?,
            "fcull" => limits.files.cull = share()?,
            "fstop" => limits.files.stop = share()?,
            "nocull" => limits.culls = false,
            // These commands are only for the kernel's cache.
            "tag" | "secctx" | "culltable" | "debug" | "resume_thresholds" => {}
            _ => return Err(ContentError::Command { line, command: name.to_owned() }),
        }
    }
    limits.blocks.check('b')?;
    limits.files.check('f')?;
    Ok((limits, folder))
}

/// How much of a disk is free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Free {
    /// Blocks that are free for this user, and all blocks.
    pub blocks: (u64, u64),
    /// Files that are free, and all files. Both are 0 if the file system has no limit of files.
    pub files: (u64, u64),
}

impl Free {
    /// The numbers that the system reports.
    pub fn of(stat: &StatVfs) -> Free {
        Free { blocks: (stat.f_bavail, stat.f_blocks), files: (stat.f_favail, stat.f_files) }
    }
    /// True when the free share of blocks, or of files, is smaller than the share that `which` chooses.
    pub fn is_below(&self, limits: &CacheLimits, which: impl Fn(Shares) -> u8) -> bool {
        let below = |(free, all): (u64, u64), shares: Shares| {
            all > 0 && u128::from(free) * 100 < u128::from(all) * u128::from(which(shares))
        };
        below(self.blocks, limits.blocks) || below(self.files, limits.files)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_of_cachefilesd_is_understood() {
        let shipped = "# a comment\n\ndir /var/cache/fscache\ntag mycache\nbrun 10%\nbcull 7%\nbstop 3%\nfrun 10%\n\
                       fcull 7%\nfstop 3%\n# secctx x\nculltable 12\n";
        let (limits, folder) = parse(shipped).unwrap();
        assert_eq!((limits, folder), (CacheLimits::default(), Some(PathBuf::from("/var/cache/fscache"))));
        let (unsaid, folder) = parse("nocull\nfstop 2%\n").unwrap();
        assert_eq!(unsaid.files, Shares { stop: 2, ..Shares::CACHEFILESD });
        assert!(!unsaid.culls && folder.is_none() && unsaid.blocks == Shares::CACHEFILESD);
        for (bad, expected) in [
            ("brun 10", "line 1: brun"),
            ("\nbcull x%", "line 2: bcull"),
            ("brun 300%", "not a share"),
            ("bcull 8%", "bstop < bcull < brun"),
            ("fstop 5%", "fstop < fcull"),
            ("brun 100%", "< 100%"),
            ("dir", "line 1: dir has no folder"),
            ("colour red", "\"colour\""),
        ] {
            let error = parse(bad).unwrap_err().to_string();
            assert!(error.contains(expected), "{bad:?}: {error}");
        }
        assert!(read_config(Path::new("/no/such/file")).unwrap_err().to_string().contains("/no/such/file"));
    }

    #[test]
    fn both_resources_count_and_files_may_be_uncounted() {
        let limits = CacheLimits::default();
        let free = |blocks, files| Free { blocks: (blocks, 1000), files: (files, 1000) };
        assert!(!free(30, 30).is_below(&limits, |s| s.stop));
        assert!(free(29, 500).is_below(&limits, |s| s.stop) && free(500, 29).is_below(&limits, |s| s.stop));
        assert!(free(69, 500).is_below(&limits, |s| s.cull) && !free(70, 70).is_below(&limits, |s| s.cull));
        let uncounted = Free { blocks: (500, 1000), files: (0, 0) };
        assert!(!uncounted.is_below(&limits, |s| s.run));
    }
}
