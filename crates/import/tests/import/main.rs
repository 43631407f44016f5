//! The importer as a whole: against a small server of its own kind in this process ([`fake`]), which can lose the
//! connection at any command. The real server is tested with in crates/server/tests.

mod allocations;
mod archives;
mod bounds;
mod budget;
mod cache;
mod changes;
mod extraction;
mod failures;
mod fake;
mod files;
mod filters;
mod git;
mod interruptions;
mod listings;
mod moves;
mod nested;
mod parts;
mod proof;
mod restic;
mod retry;
