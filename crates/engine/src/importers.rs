//! [`Importers`]: which connection imports into which dataset, so that two importers never mix.
//!
//! A connection holds a dataset until it is gone; nobody has to let go. What is left of connections that are gone is cleared
//! when somebody asks for the same dataset, or when [`HOLDS_MAX`] are written down.

use crate::clients::Clients;
use parking_lot::Mutex;
use std::collections::BTreeMap;

/// Most datasets that are held at once. One connection more is refused as if its dataset were held.
pub(crate) const HOLDS_MAX: usize = 10_000;

/// Dataset by database and name, and the client that holds it.
#[derive(Default)]
pub(crate) struct Importers {
    held: Mutex<BTreeMap<(usize, Vec<u8>), u64>>,
}

impl Importers {
    /// Gives the dataset to `client`, unless another client holds it.
    pub(crate) fn hold(&self, clients: &Clients, db: usize, dataset: &[u8], client: u64) -> bool {
        let mut held = self.held.lock();
        if held.len() >= HOLDS_MAX {
            held.retain(|_, holder| clients.get(*holder).is_some());
        }
        let key = (db, dataset.to_vec());
        match held.get(&key) {
            Some(holder) if *holder != client && clients.get(*holder).is_some() => false,
            None if held.len() >= HOLDS_MAX => false,
            _ => {
                held.insert(key, client);
                true
            }
        }
    }
}
