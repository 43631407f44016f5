//! [`Importers`]: for each dataset, the connection that imports into it, and the last report of this connection. Two
//! importers never share a dataset.
//!
//! The numbers in the reports are added up by dataset ([`Importers::totals`]).
//!
//! A connection holds a dataset until the connection ends. No command releases the dataset. Entries of ended
//! connections are removed when a client asks for their dataset, or when there are [`HOLDS_MAX`] entries.

use crate::clients::Clients;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of held datasets. Further claims are refused as if the dataset were held.
pub(crate) const HOLDS_MAX: usize = 10_000;
/// Maximum number of bytes of a report.
pub(crate) const REPORT_BYTES_MAX: usize = 4096;
/// Maximum number of words of a report. An empty word takes memory, too.
pub(crate) const REPORT_WORDS_MAX: usize = 256;

/// The numbers of a report that are counted, in the order of [`Totals::counted`].
pub(crate) const COUNTED: [&str; 9] = [
    "added",
    "updated",
    "removed",
    "failed",
    "opened",
    "bytes_read",
    "containers",
    "cache_hits",
    "cache_misses",
];

/// Alternating names and values.
pub(crate) type Report = Vec<Vec<u8>>;

/// The holder of a dataset, and its last report.
struct Claim {
    client: u64,
    report: Report,
    /// The numbers of [`COUNTED`] in the last report.
    counted: [u64; COUNTED.len()],
}

/// An import that runs now.
pub(crate) struct Status {
    pub(crate) dataset: Vec<u8>,
    /// The number of the importing client.
    pub(crate) client: u64,
    /// The client's last report.
    pub(crate) report: Report,
}

/// What all imports into a dataset did since the start of the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    /// Number of connections that held the dataset.
    pub(crate) runs: u64,
    /// The sums of the numbers that [`COUNTED`] names.
    pub(crate) counted: [u64; COUNTED.len()],
}

/// The holders by database and dataset name.
#[derive(Default)]
pub(crate) struct Importers {
    held: Mutex<BTreeMap<(usize, Vec<u8>), Claim>>,
    /// The totals of at most [`HOLDS_MAX`] datasets. Further datasets are not counted.
    totals: Mutex<BTreeMap<(usize, Vec<u8>), Totals>>,
}

impl Importers {
    /// Gives the dataset to `client`, unless another client holds it. Returns whether `client` holds the dataset now.
    pub(crate) fn hold(&self, clients: &Clients, db: usize, dataset: &[u8], client: u64) -> bool {
        let mut held = self.held.lock();
        if held.len() >= HOLDS_MAX {
            held.retain(|_, holder| clients.get(holder.client).is_some());
        }
        let key = (db, dataset.to_vec());
        match held.get(&key) {
            Some(holder) if holder.client != client && clients.get(holder.client).is_some() => false,
            None if held.len() >= HOLDS_MAX => false,
            Some(holder) if holder.client == client => true,
            _ => {
                let counted = [0; COUNTED.len()];
                held.insert(key.clone(), Claim { client, report: Report::new(), counted });
                drop(held);
                self.count(key, |totals| totals.runs += 1);
                true
            }
        }
    }

    /// Records a report of `client` about its run. False when the client does not hold the dataset.
    pub(crate) fn report(&self, db: usize, dataset: &[u8], client: u64, report: Report) -> bool {
        let mut held = self.held.lock();
        let key = (db, dataset.to_vec());
        let Some(holder) = held.get_mut(&key).filter(|holder| holder.client == client) else { return false };
        let (reported, before) = (counted(&report), holder.counted);
        (holder.report, holder.counted) = (report, reported);
        drop(held);
        self.count(key, |totals| {
            for ((total, reported), before) in totals.counted.iter_mut().zip(reported).zip(before) {
                *total = total.saturating_add(reported.saturating_sub(before));
            }
        });
        true
    }

    /// The totals by database and dataset, and whether an import runs now.
    pub(crate) fn totals(&self, clients: &Clients) -> Vec<(usize, Vec<u8>, Totals, bool)> {
        let totals: Vec<_> = self.totals.lock().iter().map(|(key, totals)| (key.clone(), *totals)).collect();
        let held = self.held.lock();
        let runs = |key: &(usize, Vec<u8>)| held.get(key).is_some_and(|h| clients.get(h.client).is_some());
        totals.into_iter().map(|(key, totals)| (key.0, key.1.clone(), totals, runs(&key))).collect()
    }

    fn count(&self, key: (usize, Vec<u8>), add: impl FnOnce(&mut Totals)) {
        let mut totals = self.totals.lock();
        if totals.len() < HOLDS_MAX || totals.contains_key(&key) {
            add(totals.entry(key).or_default());
        }
    }

    /// The imports that run now into the datasets of database `db`, by name. `named`: only into these datasets.
    pub(crate) fn status(
        &self,
        clients: &Clients,
        db: usize,
        named: Option<&BTreeSet<&[u8]>>,
    ) -> Vec<Status> {
        let held = self.held.lock();
        let status = |((_, dataset), claim): (&(usize, Vec<u8>), &Claim)| {
            clients.get(claim.client).is_some().then(|| Status {
                dataset: dataset.clone(),
                client: claim.client,
                report: claim.report.clone(),
            })
        };
        match named {
            Some(named) => {
                let claims = named.iter().filter_map(|name| held.get_key_value(&(db, name.to_vec())));
                claims.filter_map(status).collect()
            }
            None => held.range((db, Vec::new())..(db + 1, Vec::new())).filter_map(status).collect(),
        }
    }
}

/// The numbers of a report that are counted. A missing or invalid number counts as 0.
fn counted(report: &Report) -> [u64; COUNTED.len()] {
    let number = |name: &str| {
        let pair = report.chunks_exact(2).find(|pair| pair[0] == name.as_bytes())?;
        std::str::from_utf8(&pair[1]).ok()?.parse().ok()
    };
    COUNTED.map(|name| number(name).unwrap_or(0))
}
