//! How KEYS and SCAN list the keys of a database slice by slice, with no shard locked between two slices.
//!
//! A [`KeySource`] is the database itself, or the copies on which a script runs. [`walk`] visits its records. For a script,
//! [`pattern_of`] tells which names a call asks for, [`asks_for`] compares one name with that pattern, and [`run`] runs the
//! call.

use super::keyspace_wide::{keys_of, scan_of};
use super::scan::{
    self, CollectedElements, Filter, PATTERN_BYTES_LOCKED_MAX, STEPS_PER_CALL, ScanOf, ScanOptions,
};
use crate::spec::CommandSpec;
use strand_keyspace::types::Bytes;
use strand_keyspace::{RecordRef, ScanCursor};
use strand_wire::args::Args;
use strand_wire::reply::Reply;

/// Keys (or fields) that KEYS and a long SCAN visit between two pauses. A shard is locked for one segment of them.
pub(super) const SLICE_KEYS: usize = 512;

/// Where a listing finds the keys of a database.
pub trait KeySource {
    /// Visits about `count` records from `cursor` on. `visit` returns false when the record does not belong to the listing.
    /// Returns the next cursor; 0 at the end. `None`: the listing must stop.
    fn step(
        &mut self,
        cursor: ScanCursor,
        count: usize,
        visit: &mut dyn FnMut(&RecordRef<'_>) -> bool,
    ) -> Option<ScanCursor>;
    /// Called between two slices, and now and then during a long match. False: the listing must stop.
    fn may_continue(&self) -> bool;
}

/// Visits about `count` keys of the source from the cursor on, in slices, and encodes those whose records are `wanted` and
/// that pass `filter`. Returns the next cursor: 0 at the end, or when the listing must stop. A key that takes long to match
/// is matched between two slices, while no shard is locked.
pub(super) fn walk(
    source: &mut dyn KeySource,
    found: &mut CollectedElements<'_>,
    from: ScanCursor,
    count: usize,
    filter: &Filter<'_>,
    wanted: impl Fn(&RecordRef<'_>) -> bool,
) -> ScanCursor {
    let (mut cursor, mut left) = (from, count);
    while !found.is_over() {
        let (mut visited, mut steps_left, mut hard) = (0, STEPS_PER_CALL, Vec::new());
        let next = source.step(cursor, left.min(SLICE_KEYS), &mut |record| {
            visited += 1;
            let passes = wanted(record).then(|| filter.passes_within(record.key(), &mut steps_left));
            match passes {
                Some(Some(true)) => found.encode_bytes(record.key_bytes()),
                Some(None) => hard.push(record.key_bytes().to_blob()),
                Some(Some(false)) | None => return false,
            }
            true
        });
        let Some(next) = next else { return 0 };
        cursor = next;
        for key in hard {
            match filter.passes_in_slices(&key, &|| source.may_continue()) {
                Some(true) => found.encode_bytes(Bytes::Shared(&key)),
                Some(false) => {}
                None => return 0,
            }
        }
        left = left.saturating_sub(visited.max(1));
        if cursor == 0 || left == 0 {
            return cursor;
        }
        if !source.may_continue() {
            return 0;
        }
    }
    0
}

/// The pattern of the keys that a call of KEYS or SCAN asks for. `None`: the call is of another command, its reply depends
/// on more than the names of keys (TYPE), or its arguments are wrong.
pub fn pattern_of<'a>(spec: &CommandSpec, args: Args<'a>) -> Option<&'a [u8]> {
    match spec.name {
        "keys" => args.get(1),
        "scan" => {
            scan::cursor(args.at(1)).ok()?;
            let options = ScanOptions::parse(args.skip(2), ScanOf::Keys).ok()?;
            options.type_name.is_none().then(|| options.filter.pattern())
        }
        _ => None,
    }
}

/// True when a listing with this pattern asks for `name`. Also true when the comparison would take long, so that a shard may
/// be locked meanwhile.
pub fn asks_for(pattern: &[u8], name: &[u8]) -> bool {
    if pattern.len() > PATTERN_BYTES_LOCKED_MAX {
        return true;
    }
    let mut steps_left = STEPS_PER_CALL;
    Filter::new(pattern).passes_within(name, &mut steps_left).unwrap_or(true)
}

/// Runs a call for which [`pattern_of`] has a pattern, on the keys of `source`. If the source stops the listing, the reply
/// is not complete.
pub fn run(spec: &CommandSpec, args: Args<'_>, source: &mut dyn KeySource, reply: &mut Reply<'_>) {
    match spec.name {
        "keys" => keys_of(source, args, reply),
        _ => scan_of(source, args, reply),
    }
}
