//! The codec against files and payloads of real servers, against redis-server itself, and against damage.

#[path = "../common/mod.rs"]
mod common;
mod damage;
mod files;
mod live;
mod manifest;
mod payloads;
