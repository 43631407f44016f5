//! Containers that the server has recorded in one piece, and that the source now lists in [`parts`].

use super::{Job, join, view};
use crate::ImportError;
use crate::source::parts;
use crate::versions::damaged;
use std::collections::BTreeMap;

/// The parts of containers that were recorded in one piece, by the paths of the parts. Loading a part removes it here.
#[derive(Default)]
pub(super) struct Divided(BTreeMap<Vec<u8>, Vec<u8>>);

impl Divided {
    /// Removes and returns the part at `path`.
    pub(super) fn take(&mut self, path: &[u8]) -> Option<Vec<u8>> {
        self.0.remove(path)
    }
    /// The part at `path`.
    pub(super) fn get(&self, path: &[u8]) -> Option<&Vec<u8>> {
        self.0.get(path)
    }
}

impl Job<'_> {
    /// Makes the source list the container at `path` in parts if it is recorded in parts.
    pub(super) fn keep_parts(&mut self, path: &[u8], known: &[u8]) {
        if parts::has_parts(view(known)) {
            self.source.keep_parts(self.archive.path(path));
        }
    }

    /// Divides the known container into parts if the listing is in parts. Returns true when the container was divided.
    /// The undivided record stays at the server until all parts are recorded.
    pub(super) fn divide(
        &mut self,
        path: &[u8],
        known: &mut Vec<u8>,
        listing: &[u8],
    ) -> Result<bool, ImportError> {
        if !parts::has_parts(view(listing)) {
            return Ok(false);
        }
        let split = parts::split(view(known)).map_err(|error| damaged(&self.options.into, path, error))?;
        let Some((rest, divided)) = split else { return Ok(false) };
        for (part, blob) in divided {
            self.divided.0.insert(join(path, &parts::name_of(part)), blob);
        }
        *known = rest;
        Ok(true)
    }

    /// Why a container of a source that makes no parts fails: a folder or document in it has a name that is reserved
    /// for parts.
    pub(super) fn reserved(&self, listing: &[u8]) -> Option<String> {
        let mut names = view(listing).iter().map(|entry| entry.name).filter(|_| !self.source.makes_parts());
        let name = names.find(|name| parts::number(name).is_some())?;
        Some(format!("{:?}: {}", String::from_utf8_lossy(name), parts::RESERVED))
    }
}
