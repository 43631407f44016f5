//! The command families: one module of handlers for each group of the table.
//!
//! A handler has three steps: parse the arguments, call a keyspace operation, write the reply. It sees only a
//! [`crate::call::Call`] or [`crate::call::LaneCall`]: no socket, no session, no clock.

pub(crate) mod bitmap;
pub(crate) mod collection;
pub(crate) mod conditional;
pub(crate) mod dataset_versions;
pub(crate) mod dump;
mod element_scan;
pub(crate) mod expiry;
mod first_pop;
pub(crate) mod generic;
pub(crate) mod geo;
pub(crate) mod hash;
pub(crate) mod hyperloglog;
pub(crate) mod import_version;
pub(crate) mod keyspace_wide;
pub(crate) mod list;
pub mod listing;
pub(crate) mod memory;
mod scan;
pub(crate) mod set;
pub(crate) mod sort;
pub(crate) mod stream;
pub(crate) mod string;
pub(crate) mod zset;
