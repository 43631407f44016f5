//! Walks over an [`ExtendibleTable`] in hash order, one segment at a time: scans, expiry, random items.

use super::*;

/// Maximum number of segments drawn for a random item. If all draws fail, the last drawn segment that has items is
/// used. A draw succeeds with a chance of about 1/4.
const DRAWS_MAX: usize = 64;
/// Number of random buckets tried in a segment before its items are counted instead.
const BUCKETS_TRIED_MAX: usize = 64;

impl<V: OutsideValue, P: Positions> ExtendibleTable<V, P> {
    /// Visits items of the segment at `from`, in no particular order: the first `items_max` items at or after
    /// `from`, and all further items at the last item's position. Returns the number of items, and the position at
    /// which to continue (`None`: at the end of the table).
    pub(crate) fn scan_step(
        &self,
        from: u64,
        items_max: usize,
        visit: &mut dyn FnMut(Item<'_, V>),
    ) -> (usize, Option<u64>) {
        let Some(i) = self.segment_of(from) else { return (0, None) };
        let segment = &self.segments[i];
        let end = segment.start + self.range_of(segment);
        if from <= segment.start && segment.table.len() <= items_max {
            segment.items().for_each(visit);
            return (segment.table.len(), self.inside(end));
        }
        let placed = segment.items().map(|item| (self.position_of(&item), item.start() as u32));
        let mut items: Vec<(u64, u32)> = placed.filter(|(position, _)| *position >= from).collect();
        let items_max = items_max.max(1);
        let mut next = end;
        if items.len() > items_max {
            let last = items.select_nth_unstable_by_key(items_max - 1, |item| item.0).1.0;
            items.retain(|(position, _)| *position <= last);
            next = last + 1;
        }
        let visited = items.len();
        items.into_iter().for_each(|(_, start)| visit(segment.item(start as usize)));
        (visited, self.inside(next))
    }
    /// The position of an item of this table.
    pub(crate) fn position_of(&self, item: &Item<'_, V>) -> u64 {
        item.position(|key| self.positions.position(key))
    }
    /// Bytes of all items in the segment at `from`. `None` when some of these items have outside values.
    pub(crate) fn inline_bytes_at(&self, from: u64) -> Option<usize> {
        self.segments[self.segment_of(from)?].inline_bytes()
    }
    /// No item of the table expires before this time (unix milliseconds).
    #[inline]
    pub(crate) fn expiry_ms(&self) -> i64 {
        self.expiry_ms
    }
    /// The start of the next segment, if no item of the segment at `from` has an expiry. `Some(None)`: that segment
    /// is the last one.
    pub(crate) fn without_expiry(&self, from: u64) -> Option<Option<u64>> {
        let Some(i) = self.segment_of(from) else { return Some(None) };
        let segment = &self.segments[i];
        (segment.expiry_ms == i64::MAX).then(|| self.inside(segment.start + self.range_of(segment)))
    }
    /// Visits the items with an expiry of the segment at `from`, always in one order while the table does not change. Returns
    /// the number of places looked at, and the start of the next segment. `None`: they may be many, and none was visited.
    pub(crate) fn visit_few_expiring(
        &self,
        from: u64,
        visit: &mut dyn FnMut(Item<'_, V>),
    ) -> Option<(usize, Option<u64>)> {
        let segment = &self.segments[self.segment_of(from)?];
        segment.few_expiring(|key| self.positions.position(key))?.for_each(visit);
        Some((segment.few_places(), self.inside(segment.start + self.range_of(segment))))
    }
    /// Lists the items with an expiry of the segment at `from`, if they are few, and recomputes the time at which the first of
    /// them expires. Call this when a walk found few of them, or less than it looked for.
    pub(crate) fn list_expiring_at(&mut self, from: u64) {
        let Some(i) = self.segment_of(from) else { return };
        // A copy of the segment would cost more than the list saves.
        if self.segments[i].is_unique() {
            let positions = self.positions.clone();
            self.counted(i, |segment| segment.list_expiring(|key| positions.position(key)));
        }
    }
    /// Finds the first segment at or after `from` in which something may have expired at `now_ms`, and removes its
    /// expired items. Calls `gone` with the key, the position and the outside value of each removed item. An item
    /// of which only a part expired (a field of a hash) stays, and its key is added to `in_part`. With `stay`, all
    /// expired items stay, and their keys are added to `in_part`. Returns the number of items looked at, and the
    /// position at which to continue (`None`: at the end of the table). Adds the expiries of the removed items to
    /// `expiries_ms`.
    pub(crate) fn expire_step(
        &mut self,
        from: u64,
        now_ms: i64,
        stay: bool,
        gone: &mut impl FnMut(&[u8], u64, Option<V>),
        in_part: &mut Vec<Vec<u8>>,
        expiries_ms: &mut i128,
    ) -> (usize, Option<u64>) {
        let mut next = Some(from);
        while let Some(position) = next {
            let Some(i) = self.segment_of(position) else { return (0, None) };
            let end = self.segments[i].start + self.range_of(&self.segments[i]);
            next = self.inside(end);
            if self.segments[i].expiry_ms > now_ms {
                continue;
            }
            let (mut looked_at, mut removed, mut rest_ms) = (0, 0, i64::MAX);
            let positions = self.positions.clone();
            self.counted(i, |segment| {
                let due = |item: &Item<'_, V>| {
                    looked_at += 1;
                    let expiry_ms = item.expiry_ms();
                    let mut due = expiry_ms <= now_ms;
                    let key_expiry_ms = match item.content() {
                        Content::Outside(value) => value.key_expiry_ms(expiry_ms),
                        _ => expiry_ms,
                    };
                    if due && (stay || key_expiry_ms > now_ms) {
                        in_part.push(item.key().to_vec());
                        due = false;
                    }
                    if due {
                        *expiries_ms += i128::from(key_expiry_ms);
                    }
                    rest_ms = if due { rest_ms } else { rest_ms.min(expiry_ms) };
                    due
                };
                let position_of = |key: &[u8]| positions.position(key);
                segment.remove_all(due, position_of, |key, position, value| {
                    removed += 1;
                    gone(key, position, value);
                });
                segment.expiry_ms = rest_ms;
                segment.forget_expired();
            });
            self.len -= removed;
            self.shrink(i);
            if next.is_none() {
                self.raise_expiry();
            }
            return (looked_at, next);
        }
        self.raise_expiry();
        (0, None)
    }
    /// A random item. All items are equally likely.
    pub(crate) fn random(&self, rng: &mut fastrand::Rng) -> Option<Item<'_, V>> {
        // Each directory entry has SEGMENT_ITEMS_MAX tickets. A segment with several entries spreads its items over
        // the tickets of all these entries. So every item has one ticket. A draw of a ticket without an item is
        // repeated.
        let mut segment = None;
        for _ in 0..DRAWS_MAX {
            let candidate = match self.directory.is_empty() {
                true => self.segments.first()?,
                false => &self.segments[self.directory[rng.usize(..self.directory.len())] as usize],
            };
            let items = candidate.table.len();
            let tickets = SEGMENT_ITEMS_MAX << (self.depth - candidate.depth);
            if items == 0 {
                continue;
            }
            segment = Some(candidate);
            if rng.usize(..tickets) < items {
                break;
            }
        }
        let segment = segment.or_else(|| self.segments.iter().find(|s| !s.table.is_empty()))?;
        for _ in 0..BUCKETS_TRIED_MAX {
            if let Some(handle) = segment.table.get_bucket(rng.usize(..segment.table.num_buckets())) {
                return Some(segment.item(handle.start()));
            }
        }
        segment.items().nth(rng.usize(..segment.table.len()))
    }

    /// At the end of a walk: sets the table's expiry bound to the earliest bound of its segments.
    fn raise_expiry(&mut self) {
        self.expiry_ms = self.segments.iter().map(|s| s.expiry_ms).min().unwrap_or(i64::MAX);
    }
    fn range_of(&self, segment: &Segment<V>) -> u64 {
        1 << (POSITION_BITS - u32::from(self.base_bits + segment.depth))
    }
    /// Returns `end`, or `None` if the positions of the table end there.
    fn inside(&self, end: u64) -> Option<u64> {
        let range = 1 << (POSITION_BITS - u32::from(self.base_bits));
        (end & (range - 1) != 0).then_some(end)
    }
}
