//! [`Listings`]: keeps the listings that the plan made of a remote source, so that the run need not list folders again.
//!
//! If a listing equals the container's record, only its digest is kept: the run makes the listing from the record. So
//! an unchanged bucket needs almost no memory here. Other listings take up to [`LISTINGS_KEPT_BYTES_MAX`] bytes
//! together.

use super::{Job, view};
use crate::container::{Container, ContainerBuilder, ContainerDigest, ContainerError, EntryKind, NOTE};
use crate::source::{ListError, Listing, Skipped};
use std::collections::BTreeMap;

/// Maximum number of bytes of listings that a plan keeps for the run.
pub const LISTINGS_KEPT_BYTES_MAX: usize = 16 << 20;
/// Bytes that a kept listing needs in addition to its path and its blob.
const KEPT_BYTES: usize = 128;

/// The listings that a plan made.
#[derive(Default)]
pub(super) struct Listings {
    by_path: BTreeMap<Vec<u8>, Kept>,
    /// Bytes of all kept listings.
    bytes: usize,
}

enum Kept {
    Whole(Listing),
    /// The listing has this digest. [`listing_of`] makes the listing from the container's record.
    AsRecorded(ContainerDigest, Skipped),
}

impl Kept {
    fn bytes(&self, path: &[u8]) -> usize {
        let blob_bytes = match self {
            Kept::Whole(listing) => listing.blob.len(),
            Kept::AsRecorded(..) => 0,
        };
        KEPT_BYTES + path.len() + blob_bytes
    }
}

impl Listings {
    /// Removes and returns the listing of the container at `path`. `recorded` is the container's record. `None` when no
    /// listing was kept, or when the record has changed since.
    pub(super) fn take(&mut self, path: &[u8], recorded: &[u8]) -> Option<Listing> {
        let kept = self.by_path.remove(path)?;
        self.bytes -= kept.bytes(path);
        match kept {
            Kept::Whole(listing) => Some(listing),
            Kept::AsRecorded(digest, skipped) => {
                let blob = listing_of(view(recorded)).ok().filter(|blob| view(blob).digest() == digest)?;
                Some(Listing { blob, skipped, racy_for_ns: 0, refused: Vec::new() })
            }
        }
    }

    /// Keeps a listing if there is room. A newer listing of a path replaces the older listing.
    fn keep(&mut self, path: &[u8], kept: Kept) {
        if let Some(before) = self.by_path.remove(path) {
            self.bytes -= before.bytes(path);
        }
        let bytes = kept.bytes(path);
        if self.bytes + bytes <= LISTINGS_KEPT_BYTES_MAX {
            self.bytes += bytes;
            self.by_path.insert(path.to_vec(), kept);
        }
    }
}

impl Job<'_> {
    /// Lists a container, and keeps the listing for the run if the source is remote. `recorded` is the container's
    /// record, unless a run was cut short in the container.
    pub(super) fn list_ahead(&mut self, path: &[u8], recorded: Option<&[u8]>) -> Result<Vec<u8>, ListError> {
        let listing = self.source.list(self.archive.path(path), false)?;
        if !self.source.is_remote() || listing.racy_for_ns != 0 {
            return Ok(listing.blob);
        }
        let blob = listing.blob.clone();
        let is_plain = |listing: &Listing| {
            let mut pairs = view(&listing.blob).iter().flat_map(|entry| entry.pairs());
            listing.refused.is_empty() && pairs.all(|(key, _)| key.first() != Some(&NOTE))
        };
        let as_recorded = recorded.filter(|_| is_plain(&listing)).and_then(|recorded| {
            let (made, listed) = (listing_of(view(recorded)).ok()?, listing_of(view(&blob)).ok()?);
            (made == listed).then(|| Kept::AsRecorded(view(&made).digest(), listing.skipped))
        });
        self.listings.keep(path, as_recorded.unwrap_or(Kept::Whole(listing)));
        Ok(blob)
    }
}

/// The listing that an unchanged source would return for the container of `record`: the record's entries without notes,
/// and its containers without tokens and sizes.
fn listing_of(record: Container<'_>) -> Result<Vec<u8>, ContainerError> {
    let mut builder = ContainerBuilder::with_capacity(0, record.len(), record.blob().len());
    for entry in record.iter() {
        match entry.kind {
            EntryKind::Document => {
                let pairs = entry.pairs().filter(|(key, _)| key.first() != Some(&NOTE));
                builder.push(EntryKind::Document, entry.name, entry.size, entry.token, pairs)?;
            }
            EntryKind::Container => builder.push(EntryKind::Container, entry.name, 0, &[], [])?,
        }
    }
    builder.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn container(producer: u16, entries: &[(EntryKind, &str, &str)]) -> Vec<u8> {
        let mut builder = ContainerBuilder::new(producer);
        for (kind, name, token) in entries {
            let note: (&[u8], &[u8]) = (b"~digest", b"of what was sent");
            let pairs = [(&b"flags"[..], &b"S"[..])].into_iter().chain((producer > 0).then_some(note));
            let pairs = pairs.filter(|_| *kind == EntryKind::Document);
            let size = if *kind == EntryKind::Document { 9 } else { 0 };
            builder.push(*kind, name.as_bytes(), size, token.as_bytes(), pairs).unwrap();
        }
        builder.finish().unwrap()
    }

    #[test]
    fn a_listing_equal_to_the_record_is_rebuilt_from_the_record() {
        use EntryKind::{Container as Folder, Document as File};
        let record = container(7, &[(File, "a", "1"), (File, "c", "2"), (Folder, "b", "digest")]);
        let listing = container(0, &[(File, "a", "1"), (Folder, "b", ""), (File, "c", "2")]);
        let made = listing_of(view(&record)).unwrap();
        assert_eq!(made, listing);
        let keep = |listings: &mut Listings| {
            let skipped = Skipped { links: 3, ..Skipped::default() };
            listings.keep(b"at", Kept::AsRecorded(view(&made).digest(), skipped));
        };
        let mut listings = Listings::default();
        keep(&mut listings);
        let taken = listings.take(b"at", &record).unwrap();
        assert_eq!((taken.blob, taken.skipped.links, taken.refused.len()), (listing, 3, 0));
        assert!(listings.take(b"at", &record).is_none(), "a listing is taken once");
        // When the record has other documents than the kept listing, the container must be listed again.
        for other in [&[(File, "a", "1"), (File, "c", "3"), (Folder, "b", "digest")][..], &[]] {
            keep(&mut listings);
            assert!(listings.take(b"at", &container(7, other)).is_none());
        }
        assert_eq!(listings.bytes, 0);
    }

    #[test]
    fn listings_are_kept_up_to_their_limit() {
        let mut listings = Listings::default();
        let blob = vec![0; 1 << 20];
        for i in 0..20u8 {
            let listing = Listing {
                blob: blob.clone(),
                skipped: Skipped::default(),
                racy_for_ns: 0,
                refused: Vec::new(),
            };
            listings.keep(&[i], Kept::Whole(listing));
        }
        assert_eq!(listings.by_path.len(), 15, "each takes a little more than its blob");
        assert!(listings.bytes <= LISTINGS_KEPT_BYTES_MAX);
        assert!(listings.take(&[3], &[]).is_some() && listings.take(&[19], &[]).is_none());
    }
}
