//! [`Stamp`]: a file system's facts about a file, as a version token, and the age from which on they can be trusted.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;

/// A file whose times are younger than this could change again without a new time, because the clock of a file system
/// ticks every 1 to 10 ms. Such a file is listed again after this window.
pub const RACY_WINDOW_FINE_NS: i64 = 50_000_000;
/// The window on a file system that keeps whole seconds only (the time has no fraction). FAT keeps every second one.
pub const RACY_WINDOW_COARSE_NS: i64 = 2_100_000_000;

/// A file system's facts about a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// Size in bytes.
    pub size: u64,
    /// Time of the last change of the bytes, in nanoseconds since 1970.
    pub mtime_ns: i64,
    /// Time of the last change of bytes, name or rights, in nanoseconds since 1970. No program can set it back.
    pub ctime_ns: i64,
    /// The file's number.
    pub inode: u64,
}

/// A stamp as bytes.
pub type StampToken = [u8; 32];

/// The compiler checks that a token fits an entry.
const _: () = assert!(size_of::<StampToken>() <= crate::container::TOKEN_BYTES_MAX);

impl Stamp {
    /// The stamp from the facts of `fstat`.
    pub fn of(meta: &Metadata) -> Stamp {
        Stamp {
            size: meta.size(),
            mtime_ns: nanoseconds(meta.mtime(), meta.mtime_nsec()),
            ctime_ns: nanoseconds(meta.ctime(), meta.ctime_nsec()),
            inode: meta.ino(),
        }
    }
    /// The stamp from the facts of `fstatat`.
    pub fn of_stat(stat: &rustix::fs::Stat) -> Stamp {
        Stamp {
            size: u64::try_from(stat.st_size).unwrap_or_default(),
            mtime_ns: nanoseconds(stat.st_mtime, stat.st_mtime_nsec as i64),
            ctime_ns: nanoseconds(stat.st_ctime, stat.st_ctime_nsec as i64),
            inode: stat.st_ino,
        }
    }
    /// The version token. In a Maildir the time of the last rename is left out: a message's bytes never change there, and
    /// a change of its flags is a rename.
    pub fn token(&self, in_maildir: bool) -> StampToken {
        let ctime_ns = if in_maildir { 0 } else { self.ctime_ns };
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&self.size.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.mtime_ns.to_le_bytes());
        bytes[16..24].copy_from_slice(&ctime_ns.to_le_bytes());
        bytes[24..].copy_from_slice(&self.inode.to_le_bytes());
        bytes
    }
    /// For how many nanoseconds after `now_ns` a change of the file may leave its token unchanged. 0 when its token can
    /// be trusted. A time in the future (two clocks that disagree) counts as now.
    pub fn racy_for_ns(&self, now_ns: i64) -> i64 {
        // A program may set the mtime to any time. Only the ctime tells when a file was touched.
        let window_ns = match self.ctime_ns % 1_000_000_000 {
            0 => RACY_WINDOW_COARSE_NS,
            _ => RACY_WINDOW_FINE_NS,
        };
        self.ctime_ns.saturating_add(window_ns).saturating_sub(now_ns).clamp(0, window_ns)
    }
}

/// The part of its token that a renamed file keeps: all but the time of the rename. `None` when it is not a token of a
/// [`Stamp`].
pub fn identity(token: &[u8]) -> Option<Vec<u8>> {
    let token: &StampToken = token.try_into().ok()?;
    Some([&token[..16], &token[24..]].concat())
}

fn nanoseconds(seconds: i64, fraction: i64) -> i64 {
    seconds.saturating_mul(1_000_000_000).saturating_add(fraction)
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAMP: Stamp = Stamp { size: 1, mtime_ns: 5, ctime_ns: 3_000_000_001, inode: 9 };

    #[test]
    fn a_young_file_is_not_trusted() {
        assert_eq!(STAMP.racy_for_ns(3_000_000_001), RACY_WINDOW_FINE_NS);
        assert_eq!(STAMP.racy_for_ns(3_050_000_000), 1);
        assert_eq!(STAMP.racy_for_ns(3_050_000_001), 0);
        assert_eq!(STAMP.racy_for_ns(1), RACY_WINDOW_FINE_NS, "a clock that is behind waits one window");
        let whole_seconds = Stamp { ctime_ns: 3_000_000_000, ..STAMP };
        assert_eq!(whole_seconds.racy_for_ns(3_000_000_000), RACY_WINDOW_COARSE_NS);
    }

    #[test]
    fn every_part_is_in_the_token_but_renames_in_a_maildir() {
        let others = [
            Stamp { size: 2, ..STAMP },
            Stamp { mtime_ns: 6, ..STAMP },
            Stamp { inode: 8, ..STAMP },
            Stamp { ctime_ns: 4, ..STAMP },
        ];
        for (i, other) in others.iter().enumerate() {
            assert_ne!(other.token(false), STAMP.token(false));
            assert_eq!(other.token(true) == STAMP.token(true), i == 3);
            assert_eq!(identity(&other.token(false)) == identity(&STAMP.token(false)), i == 3);
        }
    }

    #[test]
    fn both_system_calls_tell_the_same() {
        let file = std::fs::File::open("/proc/self/exe").expect("this program");
        let stat = rustix::fs::fstat(&file).expect("open");
        assert_eq!(Stamp::of(&file.metadata().expect("open")), Stamp::of_stat(&stat));
    }
}
