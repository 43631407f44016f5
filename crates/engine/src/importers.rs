//! [`Importers`]: the connection that imports into each dataset, and the last report of its run. Two importers never share a dataset.
//!
//! A connection holds a dataset until it ends; there is no release. Entries of ended connections are removed when a
//! client asks for their dataset, or when there are [`HOLDS_MAX`] entries.

use crate::clients::Clients;
use parking_lot::Mutex;
use std::collections::BTreeMap;

/// Most held datasets. Further claims are refused as if the dataset were held.
pub(crate) const HOLDS_MAX: usize = 10_000;
/// Most bytes of a report.
pub(crate) const REPORT_BYTES_MAX: usize = 4096;

/// Alternating names and values.
pub(crate) type Report = Vec<Vec<u8>>;

/// The holder of a dataset, and its last report.
struct Claim {
    client: u64,
    report: Report,
}

/// The holders by database and dataset name.
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

    /// Records a report of `client` about its run. False when the client does not hold the dataset.
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

    /// The client that imports into the dataset now, and its last report.
    pub(crate) fn status(&self, clients: &Clients, db: usize, dataset: &[u8]) -> Option<(u64, Report)> {
        let held = self.held.lock();
        let holder = held.get(&(db, dataset.to_vec()))?;
        clients.get(holder.client).is_some().then(|| (holder.client, holder.report.clone()))
    }
}
