//! A bundle: all that a server knows about itself in one file, for inspection elsewhere.
//!
//! [`archive`] is the file: a tar file compressed with zstd, with a manifest of digests. [`contents`] chooses the content
//! and keeps secrets out. It leaves out the values of secret options, the digests of passwords, and the arguments of slow
//! commands. Then it searches every entry for the known secrets before anything is written. [`of_session`] makes a bundle
//! for the HTTP door. `strand bundle` and the console over a bundle are in [`crate::cli`].

pub mod archive;
pub mod contents;
pub mod of_session;
