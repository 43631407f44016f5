//! Containers that were recorded whole and are listed in [`parts`] now.

use super::{Job, join, view};
use crate::ImportError;
use crate::container::Kind;
use crate::source::parts;
use crate::versions::damaged;
use std::collections::BTreeMap;

/// Parts of containers that are recorded whole, by their paths, until they are loaded.
#[derive(Default)]
pub(super) struct Divided(BTreeMap<Vec<u8>, Vec<u8>>);

impl Divided {
    /// The part at `path`, once.
    pub(super) fn take(&mut self, path: &[u8]) -> Option<Vec<u8>> {
        self.0.remove(path)
    }
    /// The part at `path`.
    pub(super) fn get(&self, path: &[u8]) -> Option<&Vec<u8>> {
        self.0.get(path)
    }
}

impl Job<'_> {
    /// What is recorded in parts is listed in parts.
    pub(super) fn keep_parts(&mut self, path: &[u8], known: &[u8]) {
        if parts::has_parts(view(known)) {
            self.source.keep_parts(self.within.path(path));
        }
    }

    /// Divides what is known of the container, where it is listed in parts. True when there was something to divide: until
    /// all parts are recorded, the record of the whole says what the server holds.
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

    /// True when a source that makes no parts has a folder that is called as a part.
    pub(super) fn has_reserved(&self, listing: &[u8]) -> bool {
        let is_reserved = |name: &[u8]| parts::number(name).is_some();
        let folders = |kind| kind == Kind::Container;
        !self.source.makes_parts() && view(listing).iter().any(|e| folders(e.kind) && is_reserved(e.name))
    }
}
