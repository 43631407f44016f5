//! [`Block`]: some entries of a stream in one listpack, like a node in Redis.
//!
//! The ID of a block is the ID of its first entry. The listpack starts with the *master entry*: number of
//! live entries, number of deleted entries, number of fields, names of the fields, 0. The entries follow. The
//! items of an entry are: flags; milliseconds and sequence number, each as the difference from the block's
//! ID; the values (if the entry's fields differ from the master's: their number, and each field with its
//! value); and last the number of the items before this one, for walks backwards. A deleted entry is only
//! marked. It stays until its block is removed.

use super::id::Id;
use super::listpack::{self, Appender, HEAD_BYTES, Item};

/// The flag of a deleted entry.
const DELETED: i64 = 1;
/// Flag: the entry has the fields of the master entry, and only its values are stored.
const SAME_FIELDS: i64 = 2;
/// Number of items at the start of an entry: flags, milliseconds, sequence number.
const ENTRY_HEAD_ITEMS: i64 = 3;

/// Some entries of a stream, in one allocation.
#[derive(Debug, Clone)]
pub(super) struct Block {
    list: Vec<u8>,
}

/// Where an entry is in its block.
#[derive(Clone, Copy, Debug)]
pub(super) struct EntryRange {
    /// Offset of the entry's flags in the block.
    at: usize,
    flags: i64,
    pub(super) id: Id,
    /// Number of fields of the entry.
    pairs: usize,
    /// Offset of the first value or, if the fields are stored too, of the first field.
    values: usize,
    /// Offset of the first field in the master entry.
    fields: usize,
}

/// A borrowed view of one entry.
#[derive(Clone, Copy, Debug)]
pub struct StreamEntry<'a> {
    list: &'a [u8],
    place: EntryRange,
}

impl<'a> StreamEntry<'a> {
    pub(super) fn new(block: &'a Block, place: EntryRange) -> StreamEntry<'a> {
        StreamEntry { list: &block.list, place }
    }
    /// The ID of the entry.
    pub fn id(&self) -> Id {
        self.place.id
    }
    /// Number of fields of the entry.
    pub fn len(&self) -> usize {
        self.place.pairs
    }
    /// True when the entry has no fields. No command creates such an entry.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// The fields with their values, in the order in which the command gave them.
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
    /// A block without entries. Its master entry has `fields`, the fields of the entry that is pushed first.
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
    /// A block from a stored listpack. `None` when an entry is incomplete, when the entries are not in ascending
    /// order, or when the counts in the master entry are wrong.
    pub(super) fn from_bytes(master: Id, list: Vec<u8>) -> Option<Block> {
        if !listpack::check(&list) {
            return None;
        }
        let block = Block { list };
        let (mut live, mut dead, mut last) = (0, 0, None);
        let mut at = block.first()?;
        while at < listpack::end(&block.list) {
            let (place, next) = block.place(master, at)?;
            // Only live entries must be in order, because XSETID may set the last ID to an ID before a
            // deleted entry.
            let in_order = place.is_deleted() || last.map_or(place.id >= master, |last| place.id > last);
            // The last item of the entry must lead back to its flags.
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
    /// The bytes of the block's listpack.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.list
    }
    pub(super) fn heap_bytes(&self) -> usize {
        self.list.capacity()
    }
    /// Number of entries that are not deleted.
    pub(super) fn live(&self) -> u64 {
        self.number(0)
    }
    /// Number of deleted entries that are still stored.
    pub(super) fn dead(&self) -> u64 {
        self.number(1)
    }
    /// Frees the spare room, because no further entry will be added.
    pub(super) fn close(&mut self) {
        self.list.shrink_to_fit();
    }
    /// Appends an entry.
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
    /// Marks the entries at these places as deleted. They must not be deleted already, and must be in ascending order.
    pub(super) fn delete(&mut self, places: &[EntryRange]) {
        let (live, dead) = (self.live() as i64, self.dead() as i64);
        let many = places.len() as i64;
        // Begin at the end, because an item that changes its size moves the items after it. The counts at the start change
        // their sizes. Flags do so only in a restored block that stores them with more bytes than needed.
        for place in places.iter().rev() {
            listpack::replace_int(&mut self.list, place.at, place.flags | DELETED);
        }
        if let Some(at) = listpack::skip(&self.list, HEAD_BYTES) {
            listpack::replace_int(&mut self.list, at, dead + many);
        }
        listpack::replace_int(&mut self.list, HEAD_BYTES, live - many);
    }
    /// The place of the entry `id`, unless it is deleted.
    pub(super) fn find(&self, master: Id, id: Id) -> Option<EntryRange> {
        let mut all = self.ascend(master).filter(|place| !place.is_deleted());
        all.find(|place| place.id >= id).filter(|place| place.id == id)
    }
    /// The places of all entries in order, including deleted ones.
    pub(super) fn ascend(&self, master: Id) -> impl Iterator<Item = EntryRange> + use<'_> {
        let mut at = self.first().unwrap_or(usize::MAX);
        std::iter::from_fn(move || {
            let (place, next) = self.place(master, at)?;
            at = next;
            Some(place)
        })
    }
    /// The places of all entries in reverse order, including deleted ones.
    pub(super) fn descend(&self, master: Id) -> impl Iterator<Item = EntryRange> + use<'_> {
        let mut end = listpack::end(&self.list);
        std::iter::from_fn(move || {
            let at = self.back_to_flags(listpack::before(&self.list, end)?)?;
            end = at;
            Some(self.place(master, at)?.0)
        })
    }

    /// The number in the item with the index `skip`.
    fn number(&self, skip: usize) -> u64 {
        let mut at = HEAD_BYTES;
        for _ in 0..skip {
            at = listpack::skip(&self.list, at).unwrap_or(usize::MAX);
        }
        listpack::int(&self.list, at).map_or(0, |(n, _)| n as u64)
    }
    /// The number of fields in the master entry, and the offset of the first of these fields.
    fn master(&self) -> Option<(usize, usize)> {
        let at = listpack::skip(&self.list, listpack::skip(&self.list, HEAD_BYTES)?)?;
        let (number, fields) = listpack::int(&self.list, at)?;
        Some((usize::try_from(number).ok()?, fields))
    }
    /// Offset of the block's first entry.
    fn first(&self) -> Option<usize> {
        let (number, mut at) = self.master()?;
        for _ in 0..=number {
            at = listpack::skip(&self.list, at)?;
        }
        Some(at)
    }
    /// The entry whose flags are at offset `at`, and the offset of the next entry.
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
    /// The offset of an entry's flags, from the offset `at` of the entry's last item. `None` at the end of the
    /// master entry.
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
