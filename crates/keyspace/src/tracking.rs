//! Keyspace events for whoever follows the data (the text index): which tracked keys were touched since last asked.

/// What happened in one shard since the last [`crate::Keyspace::take_touched`].
#[derive(Debug, Default)]
pub struct Touched {
    /// Keys of database 0 under a tracked prefix that were written, expired, evicted or deleted; each once.
    pub keys: Vec<Vec<u8>>,
    /// True when database 0 was flushed or swapped: everything may have changed.
    pub flushed: bool,
}
