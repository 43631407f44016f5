//! [`Block`]: some entries of a stream in one listpack, as Redis's nodes are.
//!
//! The block's ID is its first entry's. The listpack begins with the *master entry*: live entries, deleted entries, number
//! of fields, the fields' names, 0. Then each entry: flags, milliseconds and sequence number less those of the block's ID,
//! the values (or, when its fields are others than the master's: their number, and each field with its value), and last
//! the number of items in front, to walk backwards. A deleted entry stays, marked, until its block goes.

use super::id::Id;
use super::listpack::{self, Appender, HEAD_BYTES, Item};

/// The entry is deleted.
const DELETED: i64 = 1;
/// The entry has the master's fields: only values are stored.
const SAME_FIELDS: i64 = 2;
/// Flags, milliseconds, sequence number.
const ENTRY_HEAD_ITEMS: i64 = 3;

/// Entries in one allocation.
#[derive(Debug, Clone)]
pub(super) struct Block {
    list: Vec<u8>,
}

/// Where an entry lies in its block.
#[derive(Clone, Copy, Debug)]
pub(super) struct EntryRange {
    /// Its flags.
    at: usize,
    flags: i64,
    pub(super) id: Id,
    /// Pairs of field and value.
    pairs: usize,
    /// The first value (or field).
    values: usize,
    /// The item of the master's first field.
    fields: usize,
}

/// One entry, where it lies.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    list: &'a [u8],
    place: EntryRange,
}

impl<'a> Entry<'a> {
    pub(super) fn new(block: &'a Block, place: EntryRange) -> Entry<'a> {
        Entry { list: &block.list, place }
    }
    /// Its ID.
    pub fn id(&self) -> Id {
        self.place.id
    }
    /// Pairs of field and value.
    pub fn len(&self) -> usize {
        self.place.pairs
    }
    /// True when it has no field; no command makes such an entry.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Fields and values in the order in which they were given.
    pub fn pairs(&self) -> impl Iterator<Item = (Item<'a>, Item<'a>)> + use<'a> {
        let (list, EntryRange { flags, values, mut fields, pairs, .. }) = (self.list, self.place);
        let mut at = values;
        let take = move |from: &mut usize| {
            let (item, next) = listpack::read(list, *from)?;
            *from = next;
            Some(item)
        };
        (0..pairs).map_while(move |_| match flags & SAME_FIELDS != 0 {
            true => Some((take(&mut fields)?, take(&mut at)?)),
            false => Some((take(&mut at)?, take(&mut at)?)),
        })
    }
}

impl Block {
    /// A block whose first entry, still to be pushed, has these fields.
    pub(super) fn new<'f>(fields: impl ExactSizeIterator<Item = &'f [u8]>) -> Block {
        let mut list = listpack::new();
        {
            let mut end = Appender::new(&mut list);
            end.int(0);
            end.int(0);
            end.int(fields.len() as i64);
            fields.for_each(|field| end.text(field));
            end.int(0);
        }
        Block { list }
    }
    /// A block that was stored as a listpack; `None` when its entries are not whole or not in ascending order, or when what
    /// it counts is not what it has.
    pub(super) fn from_bytes(master: Id, list: Vec<u8>) -> Option<Block> {
        if !listpack::check(&list) {
            return None;
        }
        let block = Block { list };
        let (mut live, mut dead, mut last) = (0, 0, None);
        let mut at = block.first()?;
        while at < listpack::end(&block.list) {
            let (place, next) = block.place(master, at)?;
            // Entries that were deleted may stand anywhere: XSETID may set the last ID back to before them.
            let in_order = place.is_deleted() || last.map_or(place.id >= master, |last| place.id > last);
            // The number of items in front must lead back to the flags.
            let back = listpack::before(&block.list, next)?;
            if !in_order || block.back_to_flags(back)? != at {
                return None;
            }
            match place.is_deleted() {
                true => dead += 1,
                false => (live, last) = (live + 1, Some(place.id)),
            }
            at = next;
        }
        let zero = listpack::before(&block.list, block.first()?)?;
        let counted = (live, dead) == (block.live(), block.dead());
        (counted && listpack::int(&block.list, zero)?.0 == 0).then_some(block)
    }
    /// The listpack.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.list
    }
    pub(super) fn heap_bytes(&self) -> usize {
        self.list.capacity()
    }
    /// Entries that are not deleted.
    pub(super) fn live(&self) -> u64 {
        self.number(0)
    }
    /// Entries that are deleted and still here.
    pub(super) fn dead(&self) -> u64 {
        self.number(1)
    }
    /// Returns room that no entry will need.
    pub(super) fn close(&mut self) {
        self.list.shrink_to_fit();
    }
    /// Adds an entry at the end.
    pub(super) fn push<'p, P>(&mut self, master: Id, id: Id, pairs: P)
    where
        P: ExactSizeIterator<Item = (&'p [u8], &'p [u8])> + Clone,
    {
        let same = self.has_fields(pairs.clone().map(|(field, _)| field));
        let number = pairs.len() as i64;
        let live = self.live() as i64 + 1;
        listpack::replace_int(&mut self.list, HEAD_BYTES, live);
        let mut end = Appender::new(&mut self.list);
        end.int(if same { SAME_FIELDS } else { 0 });
        end.int(id.ms.wrapping_sub(master.ms) as i64);
        end.int(id.seq.wrapping_sub(master.seq) as i64);
        if !same {
            end.int(number);
        }
        for (field, value) in pairs {
            if !same {
                end.text(field);
            }
            end.text(value);
        }
        end.int(ENTRY_HEAD_ITEMS + number + if same { 0 } else { number + 1 });
    }
    /// Marks these entries deleted, which are not.
    pub(super) fn delete(&mut self, places: &[EntryRange]) {
        let (live, dead) = (self.live() as i64, self.dead() as i64);
        let many = places.len() as i64;
        // From the back: the counts in front may change their sizes, flags do not.
        for place in places {
            listpack::replace_int(&mut self.list, place.at, place.flags | DELETED);
        }
        if let Some(at) = listpack::skip(&self.list, HEAD_BYTES) {
            listpack::replace_int(&mut self.list, at, dead + many);
        }
        listpack::replace_int(&mut self.list, HEAD_BYTES, live - many);
    }
    /// The entry `id`, unless it is deleted.
    pub(super) fn find(&self, master: Id, id: Id) -> Option<EntryRange> {
        let mut all = self.ascend(master).filter(|place| !place.is_deleted());
        all.find(|place| place.id >= id).filter(|place| place.id == id)
    }
    /// All entries from the first, deleted ones too.
    pub(super) fn ascend(&self, master: Id) -> impl Iterator<Item = EntryRange> + use<'_> {
        let mut at = self.first().unwrap_or(usize::MAX);
        std::iter::from_fn(move || {
            let (place, next) = self.place(master, at)?;
            at = next;
            Some(place)
        })
    }
    /// All entries from the last, deleted ones too.
    pub(super) fn descend(&self, master: Id) -> impl Iterator<Item = EntryRange> + use<'_> {
        let mut end = listpack::end(&self.list);
        std::iter::from_fn(move || {
            let at = self.back_to_flags(listpack::before(&self.list, end)?)?;
            end = at;
            Some(self.place(master, at)?.0)
        })
    }

    /// The item that is so far from the front, a count.
    fn number(&self, skip: usize) -> u64 {
        let mut at = HEAD_BYTES;
        for _ in 0..skip {
            at = listpack::skip(&self.list, at).unwrap_or(usize::MAX);
        }
        listpack::int(&self.list, at).map_or(0, |(n, _)| n as u64)
    }
    /// The number of the master's fields, and where the first one is.
    fn master(&self) -> Option<(usize, usize)> {
        let at = listpack::skip(&self.list, listpack::skip(&self.list, HEAD_BYTES)?)?;
        let (number, fields) = listpack::int(&self.list, at)?;
        Some((usize::try_from(number).ok()?, fields))
    }
    /// Where the first entry is.
    fn first(&self) -> Option<usize> {
        let (number, mut at) = self.master()?;
        for _ in 0..=number {
            at = listpack::skip(&self.list, at)?;
        }
        Some(at)
    }
    /// The entry whose flags are at `at`, and where the next one is.
    fn place(&self, master: Id, at: usize) -> Option<(EntryRange, usize)> {
        let (master_pairs, fields) = self.master()?;
        let (flags, next) = listpack::int(&self.list, at)?;
        let (ms, next) = listpack::int(&self.list, next)?;
        let (seq, next) = listpack::int(&self.list, next)?;
        let (pairs, items, values) = match flags & SAME_FIELDS != 0 {
            true => (master_pairs, master_pairs, next),
            false => {
                let (number, next) = listpack::int(&self.list, next)?;
                let number = usize::try_from(number).ok()?;
                (number, number.checked_mul(2)?, next)
            }
        };
        let mut end = values;
        for _ in 0..items {
            end = listpack::skip(&self.list, end)?;
        }
        let id = Id::new(master.ms.wrapping_add(ms as u64), master.seq.wrapping_add(seq as u64));
        let (_, next) = listpack::int(&self.list, end)?;
        Some((EntryRange { at, flags, id, pairs, values, fields }, next))
    }
    /// From the number of items in front, at `at`, to the flags; `None` at the master's end.
    fn back_to_flags(&self, mut at: usize) -> Option<usize> {
        let (items, _) = listpack::int(&self.list, at)?;
        if items <= 0 {
            return None;
        }
        for _ in 0..items {
            at = listpack::before(&self.list, at)?;
        }
        Some(at)
    }
    fn has_fields<'f>(&self, fields: impl ExactSizeIterator<Item = &'f [u8]>) -> bool {
        let Some((number, mut at)) = self.master() else { return false };
        number == fields.len()
            && fields.into_iter().all(|field| match listpack::read(&self.list, at) {
                Some((item, next)) => {
                    at = next;
                    item.is(field)
                }
                None => false,
            })
    }
}

impl EntryRange {
    pub(super) fn is_deleted(&self) -> bool {
        self.flags & DELETED != 0
    }
}
