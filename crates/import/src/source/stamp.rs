//! [`Stamp`]: a file system's facts about a file, from which its version token is made. A stamp can be trusted only
//! when the file's last change is older than a window.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;

/// The window in nanoseconds. A file that changed within the window could change again without a new time, because the
/// clock of a file system ticks every 1 to 10 ms. Such a file is listed again after the window.
pub const RACY_WINDOW_FINE_NS: i64 = 50_000_000;
/// The window in nanoseconds for times without a fraction: the file system may store whole seconds. FAT stores every
/// second second.
pub const RACY_WINDOW_COARSE_NS: i64 = 2_100_000_000;

/// A file system's facts about a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// Size in bytes.
    pub size: u64,
    /// Time of the last change of the bytes, in nanoseconds since 1970.
    pub mtime_ns: i64,
    /// Time of the last change of bytes, name or permissions, in nanoseconds since 1970. No program can set this time.
    pub ctime_ns: i64,
    /// The file's inode number.
    pub inode: u64,
}

/// A stamp as bytes.
pub type StampToken = [u8; 32];

/// A token must fit into an entry.
const _: () = assert!(size_of::<StampToken>() <= crate::container::TOKEN_BYTES_MAX);

impl Stamp {
    /// The stamp from metadata of the standard library.
    pub fn of(meta: &Metadata) -> Stamp {
        Stamp {
            size: meta.size(),
            mtime_ns: nanoseconds(meta.mtime(), meta.mtime_nsec()),
            ctime_ns: nanoseconds(meta.ctime(), meta.ctime_nsec()),
            inode: meta.ino(),
        }
    }
    /// The stamp from the result of `fstat` or `fstatat`.
    pub fn of_stat(stat: &rustix::fs::Stat) -> Stamp {
        Stamp {
            size: u64::try_from(stat.st_size).unwrap_or_default(),
            mtime_ns: nanoseconds(stat.st_mtime, stat.st_mtime_nsec as i64),
            ctime_ns: nanoseconds(stat.st_ctime, stat.st_ctime_nsec as i64),
            inode: stat.st_ino,
        }
    }
    /// The version token. In a Maildir the token does not include the ctime: a message's bytes never change there, and
    /// a change of its flags is a rename, which sets the ctime.
    pub fn token(&self, in_maildir: bool) -> StampToken {
        let ctime_ns = if in_maildir { 0 } else { self.ctime_ns };
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&self.size.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.mtime_ns.to_le_bytes());
        bytes[16..24].copy_from_slice(&ctime_ns.to_le_bytes());
        bytes[24..].copy_from_slice(&self.inode.to_le_bytes());
        bytes
    }
    /// Nanoseconds after `now_ns` during which a change of the file may leave its token equal. 0 when the token can be
    /// trusted. A ctime in the future (two clocks differ) counts as now.
    pub fn racy_for_ns(&self, now_ns: i64) -> i64 {
        // A program may set the mtime to any time. Only the ctime is always the time of the last change.
        let window_ns = match self.ctime_ns % 1_000_000_000 {
            0 => RACY_WINDOW_COARSE_NS,
            _ => RACY_WINDOW_FINE_NS,
        };
        self.ctime_ns.saturating_add(window_ns).saturating_sub(now_ns).clamp(0, window_ns)
    }
}

/// The part of a token that stays equal when the file is renamed: everything except the ctime. `None` when `token` is
/// not the token of a [`Stamp`].
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
    fn every_stat_field_is_in_the_token_except_ctime_in_a_maildir() {
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
    fn both_system_calls_return_the_same_stamp() {
        let file = std::fs::File::open("/proc/self/exe").expect("this program");
        let stat = rustix::fs::fstat(&file).expect("open");
        assert_eq!(Stamp::of(&file.metadata().expect("open")), Stamp::of_stat(&stat));
    }
}
