//! [`Importers`]: which connection imports into which dataset, so that two importers never mix, and what it tells of its run.
//!
//! A connection holds a dataset until it is gone; nobody has to let go. What is left of connections that are gone is cleared
//! when somebody asks for the same dataset, or when [`HOLDS_MAX`] are written down.

use crate::clients::Clients;
use parking_lot::Mutex;
use std::collections::BTreeMap;

/// Most datasets that are held at once. One connection more is refused as if its dataset were held.
pub(crate) const HOLDS_MAX: usize = 10_000;
/// Most bytes of a report.
pub(crate) const REPORT_BYTES_MAX: usize = 4096;

/// Names and values, one after the other.
pub(crate) type Report = Vec<Vec<u8>>;

/// Who holds a dataset, and what it told last.
struct Claim {
    client: u64,
    report: Report,
}

/// Dataset by database and name, and the client that holds it.
#[derive(Default)]
pub(crate) struct Importers {
    held: Mutex<BTreeMap<(usize, Vec<u8>), Claim>>,
}

impl Importers {
    /// Gives the dataset to `client`, unless another client holds it.
    pub(crate) fn hold(&self, clients: &Clients, db: usize, dataset: &[u8], client: u64) -> bool {
        let mut held = self.held.lock();
        if held.len() >= HOLDS_MAX {
            held.retain(|_, holder| clients.get(holder.client).is_some());
        }
        let key = (db, dataset.to_vec());
        match held.get(&key) {
            Some(holder) if holder.client != client && clients.get(holder.client).is_some() => false,
            None if held.len() >= HOLDS_MAX => false,
            _ => {
                held.insert(key, Claim { client, report: Report::new() });
                true
            }
        }
    }

    /// Takes down what `client` tells of its run; false when it does not hold the dataset.
    pub(crate) fn report(&self, db: usize, dataset: &[u8], client: u64, report: Report) -> bool {
        let mut held = self.held.lock();
        match held.get_mut(&(db, dataset.to_vec())) {
            Some(holder) if holder.client == client => {
                holder.report = report;
                true
            }
            _ => false,
        }
    }

    /// The client that imports into the dataset now, and what it told last.
    pub(crate) fn status(&self, clients: &Clients, db: usize, dataset: &[u8]) -> Option<(u64, Report)> {
        let held = self.held.lock();
        let holder = held.get(&(db, dataset.to_vec()))?;
        clients.get(holder.client).is_some().then(|| (holder.client, holder.report.clone()))
    }
}
