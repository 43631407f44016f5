//! How KEYS and SCAN list the keys of a database slice by slice, with no shard locked between two slices.
//!
//! A [`Listing`] is one call. A [`KeySource`] is the database itself, or the copies on which a script runs. [`asks_for`]
//! compares a name with the pattern of a listing.

use super::scan::{
    CollectedElements, Filter, PATTERN_BYTES_LOCKED_MAX, STEPS_PER_CALL, ScanOf, ScanOptions, cursor,
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

/// A call of KEYS or SCAN.
#[derive(Debug)]
pub struct Listing<'a>(Kind<'a>);

#[derive(Debug)]
enum Kind<'a> {
    Keys(Filter<'a>),
    Scan(ScanCursor, ScanOptions<'a>),
}

impl<'a> Listing<'a> {
    /// The listing of a call that only asks for names of keys. `None`: the call is of another command, its reply depends on
    /// more than names (TYPE), or its arguments are wrong.
    pub fn of_names(spec: &CommandSpec, args: Args<'a>) -> Option<Listing<'a>> {
        match spec.name {
            "keys" => Some(Listing::keys(args)),
            "scan" => Listing::scan(args).ok().filter(|listing| !listing.has_type()),
            _ => None,
        }
    }
    /// The listing of `KEYS pattern`.
    pub(super) fn keys(args: Args<'a>) -> Listing<'a> {
        Listing(Kind::Keys(Filter::new(args.at(1))))
    }
    /// The listing of a call of SCAN.
    ///
    /// # Errors
    /// The text of the error reply, when the arguments are wrong.
    pub(super) fn scan(args: Args<'a>) -> Result<Listing<'a>, &'static str> {
        scan_arguments(args).map(|(from, options)| Listing(Kind::Scan(from, options)))
    }
    /// The pattern of the names: `*` when every name passes.
    pub fn pattern(&self) -> &'a [u8] {
        match &self.0 {
            Kind::Keys(filter) => filter.pattern(),
            Kind::Scan(_, options) => options.filter.pattern(),
        }
    }
    fn has_type(&self) -> bool {
        matches!(&self.0, Kind::Scan(_, options) if options.type_name.is_some())
    }
    /// Runs the call on the keys of `source`. If the source stops the listing, the reply is not complete.
    pub fn run(self, source: &mut dyn KeySource, reply: &mut Reply<'_>) {
        let mut found = CollectedElements::new(reply);
        match self.0 {
            Kind::Keys(filter) => {
                walk(source, &mut found, 0, usize::MAX, &filter, |_| true);
                found.send_array(reply);
            }
            Kind::Scan(from, options) => {
                let of_type = |record: &RecordRef<'_>| options.is_of_type(record);
                let next = walk(source, &mut found, from, options.count, &options.filter, of_type);
                found.send(reply, next);
            }
        }
    }
}

/// The cursor and the options of a call of SCAN.
pub(super) fn scan_arguments(args: Args<'_>) -> Result<(ScanCursor, ScanOptions<'_>), &'static str> {
    Ok((cursor(args.at(1))?, ScanOptions::parse(args.skip(2), ScanOf::Keys)?))
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

/// Visits about `count` keys of the source from the cursor on, in slices, and encodes those whose records are `wanted` and
/// that pass `filter`. Returns the next cursor: 0 at the end, or when the listing must stop. A key that takes long to match
/// is matched between two slices, while no shard is locked.
fn walk(
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
