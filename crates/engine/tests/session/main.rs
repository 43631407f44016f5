//! Sessions from outside: bytes in, bytes out, and a clock that only the test moves.

mod acl;
mod blocking;
mod client;
mod config;
mod connection;
mod diag;
mod disk;
mod fixture;
mod history;
mod journal;
mod lane;
mod limits;
mod loading;
mod long;
mod memory;
mod pack4;
mod pause;
mod pressure;
mod pubsub;
mod scripts;
mod server;
mod simulation;
mod slowlog;
mod tracking;
mod transactions;
mod turns;
