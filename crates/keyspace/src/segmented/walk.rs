//! Walking a [`Segmented`] table in hash order, a segment at a time: scans, expiry, random items.

use super::*;

/// Segments drawn for a random item before the next best is taken; each is right with a chance of about 1/4.
const DRAWS_MAX: usize = 64;
/// Buckets tried in a segment before its items are counted through instead.
const BUCKETS_TRIED_MAX: usize = 64;

impl<T: Item> Segmented<T> {
    /// Visits at most one segment's items, in no order: those from position `from` on, the first `items_max` by position
    /// and those at the same position as the last of them. Returns how many, and where to go on (`None`: at the end).
    pub(crate) fn scan_step(
        &self,
        from: u64,
        items_max: usize,
        visit: &mut dyn FnMut(&T),
    ) -> (usize, Option<u64>) {
        let Some(i) = self.segment_of(from) else { return (0, None) };
        let segment = &self.segments[i];
        let end = segment.start + self.range_of(segment);
        if from <= segment.start && segment.table.len() <= items_max {
            segment.table.iter().for_each(visit);
            return (segment.table.len(), self.inside(end));
        }
        let mut positions: Vec<u64> = segment.table.iter().map(T::position).filter(|p| *p >= from).collect();
        let items_max = items_max.max(1);
        let (last, next) = if positions.len() <= items_max {
            (end - 1, self.inside(end))
        } else {
            let last = *positions.select_nth_unstable(items_max - 1).1;
            (last, self.inside(last + 1))
        };
        let mut visited = 0;
        for item in segment.table.iter().filter(|i| (from..=last).contains(&i.position())) {
            visit(item);
            visited += 1;
        }
        (visited, next)
    }
    /// No item expires before this (unix milliseconds).
    #[inline]
    pub(crate) fn deadline_ms(&self) -> i64 {
        self.deadline_ms
    }
    /// Finds the first segment from position `from` on in which something may have expired at `now_ms`, and moves what
    /// has to `expired`. Returns how many items it looked at, and where to go on (`None`: at the end).
    pub(crate) fn expire_step(
        &mut self,
        from: u64,
        now_ms: i64,
        expired: &mut Vec<T>,
    ) -> (usize, Option<u64>) {
        let mut next = Some(from);
        while let Some(position) = next {
            let Some(i) = self.segment_of(position) else { return (0, None) };
            let end = self.segments[i].start + self.range_of(&self.segments[i]);
            next = self.inside(end);
            if self.segments[i].deadline_ms > now_ms {
                continue;
            }
            let segment = &mut self.segments[i];
            let looked_at = segment.table.len();
            let before = expired.len();
            let mut rest_ms = i64::MAX;
            expired.extend(segment.table.extract_if(|item| {
                let deadline_ms = item.deadline_ms();
                let due = deadline_ms <= now_ms;
                rest_ms = if due { rest_ms } else { rest_ms.min(deadline_ms) };
                due
            }));
            segment.deadline_ms = rest_ms;
            self.len -= expired.len() - before;
            self.shrink(i);
            if next.is_none() {
                self.raise_deadline();
            }
            return (looked_at, next);
        }
        self.raise_deadline();
        (0, None)
    }
    /// A random item, each as likely as any other.
    pub(crate) fn random(&self, rng: &mut fastrand::Rng) -> Option<&T> {
        // A directory entry stands for SEGMENT_ITEMS_MAX tickets; a segment with several entries has its items spread
        // over theirs. So every item has one ticket, and the empty ones are drawn again.
        let mut segment = None;
        for _ in 0..DRAWS_MAX {
            let candidate = &self.segments[*rng.choice(&self.directory)? as usize];
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
        let table = &segment.or_else(|| self.segments.iter().find(|s| !s.table.is_empty()))?.table;
        for _ in 0..BUCKETS_TRIED_MAX {
            if let Some(item) = table.get_bucket(rng.usize(..table.num_buckets())) {
                return Some(item);
            }
        }
        table.iter().nth(rng.usize(..table.len()))
    }

    /// At the end of a walk: the table's bound follows those of its segments.
    fn raise_deadline(&mut self) {
        self.deadline_ms = self.segments.iter().map(|s| s.deadline_ms).min().unwrap_or(i64::MAX);
    }
    fn range_of(&self, segment: &Segment<T>) -> u64 {
        1 << (POSITION_BITS - u32::from(self.base_bits + segment.depth))
    }
    /// `end`, unless it is where the table's positions end.
    fn inside(&self, end: u64) -> Option<u64> {
        let range = 1 << (POSITION_BITS - u32::from(self.base_bits));
        (end & (range - 1) != 0).then_some(end)
    }
}
