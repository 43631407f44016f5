//! Whole imports against a small server in this process ([`fake`]), which can close the
//! connection at any command. crates/server/tests has the tests with the real server.

mod allocations;
mod archives;
mod bounds;
mod budget;
mod cache;
mod changes;
mod doubtful;
mod extraction;
mod failed_in_archives;
mod failures;
mod fake;
mod files;
mod filters;
mod git;
mod interruptions;
mod listings;
mod moves;
mod nested;
mod odd_archives;
mod parts;
mod proof;
mod refused;
mod restic;
mod retry;
mod solr;
