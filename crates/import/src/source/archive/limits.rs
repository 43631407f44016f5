//! The bounds on archives. They hold whatever an archive claims about itself.

/// Maximum depth of archives in archives.
pub const DEPTH_MAX: usize = 16;
/// Maximum number of entries that an archive and all in it may list together.
pub const ENTRIES_MAX: u64 = 100_000;
/// Largest ratio of an entry's unpacked bytes to its packed bytes. Holds beyond [`RATIO_FREE_BYTES`].
pub const RATIO_MAX: u64 = 100;
/// Unpacked bytes of an entry that are allowed at any ratio.
pub const RATIO_FREE_BYTES: u64 = 1 << 20;
/// Maximum number of bytes that an archive and all in it may unpack to together.
pub const BYTES_MAX: u64 = 16 << 30;
/// Largest directory of a zip in bytes.
pub const ZIP_DIRECTORY_BYTES_MAX: u64 = 64 << 20;
/// Largest extended header of a tar in bytes.
pub const TAR_HEADER_BYTES_MAX: u64 = 1 << 20;
/// Memory that unpacking an xz stream may take in bytes.
pub const XZ_MEMORY_BYTES_MAX: u64 = 64 << 20;
/// Largest window of a zstd stream, as a power of two.
pub const ZSTD_WINDOW_LOG_MAX: u32 = 27;
