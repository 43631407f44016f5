//! Append-only files, as Redis has them: which files belong together, which commands are in one, is it whole?
//!
//! [`manifest`] names the files of one append-only file: a base, and increments behind it. [`reader`] reads the commands
//! of one file. [`check`] reads a file and keeps nothing but counts. What the commands mean, and where the files lie, is
//! the business of others.
//!
//! **Invariant:** knows no keyspace, no files by name, no sockets, no clocks: only bytes.

pub mod check;
pub mod manifest;
pub mod reader;
mod words;
