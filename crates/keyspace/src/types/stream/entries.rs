//! [`Entries`]: the entries of a stream by ID, and their counters. Consumer groups are in [`super::group`].
//!
//! A block is split or removed where redis-server would split or remove a node. Clients can see this: approximate
//! trimming removes whole blocks and returns the number of entries in them.

use super::block::{Block, EntryRange, StreamEntry};
use super::id::Id;
use super::map::SharedMap;
use crate::Settings;
use std::ops::Bound;
use std::sync::atomic::Ordering::Relaxed;
use triomphe::Arc;

/// Number of blocks that [`Entries::radix_nodes`] visits: 512 take 10 us.
const COUNTED_BLOCKS_MAX: usize = 512;

/// Maximum number of bytes of all fields and values of one entry, and of one block.
pub const BLOCK_BYTES_MAX: usize = 1 << 30;
/// Heap bytes per block in addition to its listpack: a reference count and the block itself.
const BLOCK_HEAD_BYTES: usize = 8 + size_of::<Block>();
/// Number of bytes of an ID in Redis's radix tree.
const ID_BYTES: usize = 16;

/// Why an entry was not added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotAdded {
    /// The entry's ID is not above the last ID of the stream.
    IdTooSmall,
    /// The entry's fields and values have more than [`BLOCK_BYTES_MAX`] bytes.
    TooLarge,
}

/// How far a trim removes the oldest entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trim {
    /// Until this number of entries is left (MAXLEN).
    MaxLen(u64),
    /// All entries with an ID below this one (MINID).
    MinId(Id),
}

/// The entries of a stream by ID, with their counters.
#[derive(Debug, Clone, Default)]
pub struct Entries {
    /// The blocks, by the ID of their first entry.
    blocks: SharedMap<Id, Arc<Block>>,
    /// Heap bytes of all blocks, without the nodes of the map.
    block_bytes: usize,
    len: u64,
    last_id: Id,
    first_id: Id,
    max_deleted_id: Id,
    added: u64,
}

impl Entries {
    /// Number of entries in the stream.
    pub fn len(&self) -> u64 {
        self.len
    }
    /// True when there is no entry.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
    /// The highest ID ever added, or the ID that XSETID set.
    pub fn last_id(&self) -> Id {
        self.last_id
    }
    /// The ID of the first entry. 0-0 when there is none.
    pub fn first_id(&self) -> Id {
        self.first_id
    }
    /// The highest ID of an entry that XDEL has removed.
    pub fn max_deleted_id(&self) -> Id {
        self.max_deleted_id
    }
    /// Number of entries that were ever added.
    pub fn added(&self) -> u64 {
        self.added
    }
    /// Number of blocks. XINFO shows it as `radix-tree-keys`.
    pub fn blocks(&self) -> usize {
        self.blocks.len()
    }
    /// The blocks in Redis's storage format: ID and listpack.
    pub fn raw_blocks(&self) -> impl Iterator<Item = (Id, &[u8])> {
        self.blocks.iter().map(|(id, block)| (*id, block.bytes()))
    }
    /// The entry with this ID.
    pub fn get(&self, id: Id) -> Option<StreamEntry<'_>> {
        let (master, block) = self.block_of(id)?;
        Some(StreamEntry::new(block, block.find(master, id)?))
    }
    /// The entries from `start` to `end`, oldest first.
    pub fn range(&self, start: Id, end: Id) -> impl Iterator<Item = StreamEntry<'_>> {
        self.blocks_of(start, end)
            .flat_map(|(master, block)| live(block, block.ascend(*master)))
            .skip_while(move |entry| entry.id() < start)
            .take_while(move |entry| entry.id() <= end)
    }
    /// The entries from `end` to `start`, newest first.
    pub fn range_back(&self, start: Id, end: Id) -> impl Iterator<Item = StreamEntry<'_>> {
        let blocks = self.blocks.descend(Bound::Included(&end));
        blocks
            .flat_map(|(master, block)| live(block, block.descend(*master)))
            .skip_while(move |entry| entry.id() > end)
            .take_while(move |entry| entry.id() >= start)
    }
    /// The highest ID of all entries that exist.
    pub fn last_entry_id(&self) -> Option<Id> {
        self.range_back(Id::MIN, Id::MAX).next().map(|entry| entry.id())
    }
    /// Number of entries from `start` to `end`. Stops counting at `max`. Reads the count of each block, and only
    /// the entries of the first and the last block.
    pub fn count(&self, start: Id, end: Id, max: u64) -> u64 {
        if start == Id::MIN && end == Id::MAX {
            return self.len.min(max);
        }
        let mut count = 0;
        let mut blocks = self.blocks_of(start, end).peekable();
        while let Some((master, block)) = blocks.next() {
            // If a next block may have entries up to `end`, all entries of this block are before `end`.
            let whole = *master >= start && blocks.peek().is_some();
            count += match whole {
                true => block.live(),
                false => {
                    let inside = |entry: &StreamEntry<'_>| (start..=end).contains(&entry.id());
                    live(block, block.ascend(*master)).filter(inside).count() as u64
                }
            };
            if count >= max {
                return max;
            }
        }
        count
    }
    /// Number of entries and bytes in the blocks from `start` to `end`. This is an upper bound of the cost of reading
    /// the range. Stops after more than `max` entries.
    pub fn weigh(&self, start: Id, end: Id, max: u64) -> (u64, usize) {
        let (mut entries, mut bytes) = (0, 0usize);
        for (_, block) in self.blocks_of(start, end) {
            entries += block.live();
            bytes = bytes.saturating_add(block.bytes().len());
            if entries > max {
                break;
            }
        }
        (entries, bytes)
    }
    /// Number of entries ever added with an ID up to `id`, if that is known. Redis estimates a group's
    /// `entries-read` with this number.
    pub fn distance_from_first(&self, id: Id) -> Option<u64> {
        if self.added == 0 {
            return Some(0);
        }
        if self.len == 0 && id <= self.last_id {
            return Some(self.added);
        }
        if id >= self.last_id {
            return (id == self.last_id).then_some(self.added);
        }
        if self.max_deleted_id == Id::MIN || self.max_deleted_id < self.first_id {
            if id < self.first_id {
                return Some(self.added.wrapping_sub(self.len));
            }
            if id == self.first_id {
                return Some(self.added.wrapping_sub(self.len).wrapping_add(1));
            }
        }
        None
    }
    /// True when an entry with an ID from `start` on may have been deleted.
    pub fn has_tombstone_from(&self, start: Id) -> bool {
        let deleted = self.len > 0 && self.max_deleted_id != Id::MIN && self.first_id <= self.max_deleted_id;
        deleted && start <= self.max_deleted_id
    }
    /// XINFO's `radix-tree-nodes`: number of nodes that redis-server's radix tree would have for these blocks. Visits at most
    /// [`COUNTED_BLOCKS_MAX`] blocks. If there are more, each of the others counts like the mean of those visited.
    pub fn radix_nodes(&self) -> usize {
        let (all, counted) = (self.blocks.len(), self.blocks.len().min(COUNTED_BLOCKS_MAX));
        let nodes = self.radix_nodes_of(counted);
        if counted == all { nodes } else { (nodes as u128 * all as u128 / counted as u128) as usize }
    }
    /// The number of nodes for the first blocks.
    fn radix_nodes_of(&self, blocks: usize) -> usize {
        // The tree has one node at the end of each key, one at each place where keys diverge, and one for each run
        // of bytes between two such places.
        let mut nodes = blocks;
        let mut parting: Vec<usize> = Vec::new();
        let (mut before, mut shared_before): (Option<[u8; ID_BYTES]>, usize) = (None, 0);
        let leaf = |shared: usize| usize::from(shared + 1 < ID_BYTES);
        for (id, _) in self.blocks.iter().take(blocks) {
            let key = id.to_bytes();
            if let Some(former) = before {
                let shared = former.iter().zip(&key).take_while(|(a, b)| a == b).count();
                nodes += leaf(shared.max(shared_before));
                while let Some(depth) = parting.pop_if(|depth| *depth > shared) {
                    let parent = parting.last().copied().filter(|p| *p > shared).unwrap_or(shared);
                    nodes += 1 + usize::from(depth - parent > 1);
                }
                if parting.last() != Some(&shared) {
                    parting.push(shared);
                }
                shared_before = shared;
            }
            before = Some(key);
        }
        match parting.first().copied() {
            None => nodes + 1,
            Some(root) => {
                nodes += leaf(shared_before) + usize::from(root > 0);
                let ranges = parting.windows(2).filter(|w| w[1] - w[0] > 1).count();
                nodes + parting.len() + ranges
            }
        }
    }

    /// Adds an entry.
    ///
    /// # Errors
    /// Fails if `id` is not above the last ID, or when the entry is too large.
    pub(super) fn append<'p, P>(&mut self, id: Id, pairs: P, settings: &Settings) -> Result<(), NotAdded>
    where
        P: ExactSizeIterator<Item = (&'p [u8], &'p [u8])> + Clone,
    {
        if id <= self.last_id {
            return Err(NotAdded::IdTooSmall);
        }
        let bytes: usize = pairs.clone().map(|(f, v)| f.len() + v.len()).fold(0, usize::saturating_add);
        if bytes > BLOCK_BYTES_MAX {
            return Err(NotAdded::TooLarge);
        }
        let open = self.blocks.last().filter(|(_, block)| has_room(block, bytes, settings));
        let master = match open.map(|(master, _)| *master) {
            Some(master) => master,
            None => {
                self.close_last();
                let block = Block::new(pairs.clone().map(|(field, _)| field));
                self.block_bytes += BLOCK_HEAD_BYTES + block.heap_bytes();
                self.blocks.insert(id, Arc::new(block));
                id
            }
        };
        self.change_block(master, |block| block.push(master, id, pairs));
        self.len += 1;
        self.added += 1;
        self.last_id = id;
        if self.len == 1 {
            self.first_id = id;
        }
        Ok(())
    }
    /// Deletes the entry `id`. Returns true when it existed.
    pub(super) fn delete(&mut self, id: Id) -> bool {
        let Some((master, block)) = self.block_of(id) else { return false };
        let Some(place) = block.find(master, id) else { return false };
        if block.live() == 1 {
            self.remove_block(master);
        } else {
            self.change_block(master, |block| block.delete(&[place]));
        }
        self.len -= 1;
        self.max_deleted_id = self.max_deleted_id.max(id);
        if self.len == 0 || id == self.first_id {
            self.find_first();
        }
        true
    }
    /// Removes the oldest entries and returns their number. `approximate`: removes only whole blocks. `limit`:
    /// removes at most this many entries, unless it is 0.
    pub(super) fn trim(&mut self, trim: Trim, approximate: bool, limit: u64) -> u64 {
        let mut removed = 0;
        while let Some((master, block)) = self.blocks.first() {
            let (master, live) = (*master, block.live());
            if matches!(trim, Trim::MaxLen(max) if self.len <= max) || (limit > 0 && removed + live > limit) {
                break;
            }
            let whole = match trim {
                Trim::MaxLen(max) => self.len - live >= max,
                Trim::MinId(min) => block.descend(master).next().is_some_and(|last| last.id < min),
            };
            if !whole {
                if !approximate {
                    removed += self.trim_block(master, trim);
                }
                break;
            }
            self.remove_block(master);
            self.len -= live;
            removed += live;
        }
        self.find_first();
        removed
    }
    /// For XSETID: sets the last ID and, if given, the number of entries ever added and the highest deleted ID.
    pub(super) fn set_ids(&mut self, last: Id, added: Option<u64>, max_deleted: Option<Id>) {
        self.last_id = last;
        self.added = added.unwrap_or(self.added);
        self.max_deleted_id = max_deleted.unwrap_or(self.max_deleted_id);
    }
    /// Adds a block from a stored listpack. Returns false when the listpack is malformed or does not follow the
    /// last block. `last_entry` is the ID of the last entry that exists, and becomes that of this block, if the block has one.
    /// So the blocks before, whose entries may all be deleted, are not searched for that entry.
    pub(super) fn push_raw_block(&mut self, master: Id, list: Vec<u8>, last_entry: &mut Option<Id>) -> bool {
        let after_blocks = self.blocks.last().is_none_or(|(before, _)| *before < master);
        let follows = after_blocks && last_entry.is_none_or(|last| last < master);
        let Some(block) = Block::from_bytes(master, list).filter(|_| follows && master != Id::MIN) else {
            return false;
        };
        if self.len == 0 {
            let first = block.ascend(master).find(|place| !place.is_deleted());
            self.first_id = first.map_or(Id::MIN, |place| place.id);
        }
        let in_block = block.descend(master).find(|place| !place.is_deleted()).map(|place| place.id);
        *last_entry = in_block.or(*last_entry);
        let last = in_block.unwrap_or(master);
        self.len += block.live();
        self.block_bytes += BLOCK_HEAD_BYTES + block.heap_bytes();
        self.blocks.insert(master, Arc::new(block));
        self.last_id = self.last_id.max(last);
        self.added = self.added.max(self.len);
        true
    }
    /// Number of heap bytes of the entries: see [`crate::types::Collection::heap_bytes`].
    pub(super) fn heap_bytes(&self) -> usize {
        self.blocks.heap_bytes() + self.block_bytes
    }
    /// The number of parts: see [`crate::types::Collection::parts`].
    pub(super) fn parts(&self) -> usize {
        self.blocks.parts() + 2 * self.blocks.len()
    }
    pub(super) fn into_pieces(self, hand_out: &mut dyn FnMut(Box<dyn Send>)) {
        self.blocks.into_pieces(hand_out);
    }

    /// The block in which the entry `id` would be.
    fn block_of(&self, id: Id) -> Option<(Id, &Block)> {
        self.blocks.descend(Bound::Included(&id)).next().map(|(master, block)| (*master, &**block))
    }
    /// The blocks that may have entries from `start` to `end`.
    fn blocks_of(&self, start: Id, end: Id) -> impl Iterator<Item = (&Id, &Arc<Block>)> {
        let from = self.block_of(start).map_or(start, |(master, _)| master);
        let blocks = self.blocks.ascend(Bound::Included(&from));
        blocks.take_while(move |(master, _)| **master <= end)
    }
    fn remove_block(&mut self, master: Id) {
        if let Some(block) = self.blocks.remove(&master) {
            self.block_bytes -= BLOCK_HEAD_BYTES + block.heap_bytes();
        }
    }
    /// Lets `change` write to a block. If a snapshot shares the block, it is copied first.
    fn change_block<R>(&mut self, master: Id, change: impl FnOnce(&mut Block) -> R) -> Option<R> {
        let block = self.blocks.get_mut(&master)?;
        self.block_bytes -= block.heap_bytes();
        let block = Arc::make_mut(block);
        let result = change(block);
        self.block_bytes += block.heap_bytes();
        Some(result)
    }
    /// Frees the spare room of the last block, because the next entry begins a new block.
    fn close_last(&mut self) {
        if let Some(master) = self.blocks.last().map(|(master, _)| *master) {
            self.change_block(master, Block::close);
        }
    }
    /// Deletes the oldest entries of a block and returns their number. As in Redis, the block stays even if all its
    /// entries are deleted.
    fn trim_block(&mut self, master: Id, trim: Trim) -> u64 {
        let len = self.len;
        let deleted = self.change_block(master, |block| {
            let mut places: Vec<EntryRange> = Vec::new();
            for place in block.ascend(master) {
                let done = match trim {
                    Trim::MaxLen(max) => len - places.len() as u64 <= max,
                    Trim::MinId(min) => place.id >= min,
                };
                if done {
                    break;
                }
                if !place.is_deleted() {
                    places.push(place);
                }
            }
            block.delete(&places);
            places.len() as u64
        });
        self.len -= deleted.unwrap_or(0);
        deleted.unwrap_or(0)
    }
    fn find_first(&mut self) {
        let first = self.range(Id::MIN, Id::MAX).next().map(|entry| entry.id());
        self.first_id = first.unwrap_or(Id::MIN);
    }
}

/// The entries at these places, except deleted ones.
fn live<'a>(
    block: &'a Block,
    places: impl Iterator<Item = EntryRange> + 'a,
) -> impl Iterator<Item = StreamEntry<'a>> {
    places.filter(|place| !place.is_deleted()).map(|place| StreamEntry::new(block, place))
}

/// Redis's rule: a block takes one more entry while it has fewer bytes and fewer entries than `settings` say.
fn has_room(block: &Block, bytes: usize, settings: &Settings) -> bool {
    let bytes_max = match settings.stream_node_max_bytes.load(Relaxed) {
        0 => BLOCK_BYTES_MAX,
        bytes => usize::try_from(bytes).unwrap_or(usize::MAX).min(BLOCK_BYTES_MAX),
    };
    let entries_max = settings.stream_node_max_entries.load(Relaxed);
    block.bytes().len() + bytes < bytes_max && (entries_max == 0 || block.live() + block.dead() < entries_max)
}
