//! Append-only files in Redis's format: which files belong together, which commands a file contains, and whether it
//! is complete.
//!
//! [`manifest`] lists the files of one append-only file: a base, and increments after it. [`reader`] reads the
//! commands of one file. [`check`] reads a file and keeps only counts. Running the commands and finding the files
//! is left to other crates.
//!
//! **Invariant:** this crate knows no keyspace, no file system, no sockets and no clocks, only bytes.

pub mod check;
pub mod manifest;
pub mod reader;
mod words;
