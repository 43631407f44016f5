//! Tests the codec with files and payloads of real servers, with redis-server itself, and with damaged input.

#[path = "../common/mod.rs"]
mod common;
mod damage;
mod files;
mod live;
mod manifest;
mod payloads;
