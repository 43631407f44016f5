//! [`ZSetValue`]: members with scores, in the order of scores and, for equal scores, of the members' bytes. A small
//! sorted set is one packed page. A large one is a tree and a table.
//!
//! In both forms an element is its score (an [`EncodedScore`] of one to nine bytes), followed by its member. A member
//! longer than [`INLINE_BYTES_MAX`] has a blob of its own. The table gives the score of a member. With the score,
//! the tree finds the member's element.

mod score;
#[cfg(test)]
mod tests;

use self::score::EncodedScore;
use super::fields::FieldPositions;
use super::stream::Id;
use super::string::parse_int;
use super::tree::{self, Element, FoundPage, Layout, NewElement, Page, SeekTarget, Strings, Tree};
use super::{Bytes, Collection, Parts, Piece, Wanted};
use crate::Settings;
use crate::extendible::{
    self, Content, ExtendibleTable, INLINE_BYTES_MAX, Item, OutsideValue, POSITION_BITS, Payload,
};
use smallvec::SmallVec;
use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;
use strand_chain::Blob;

/// Maximum size of a packed sorted set in bytes, whatever the thresholds are.
const PACKED_BYTES_MAX: usize = 1 << 28;
/// Number of pages that a look-ahead notes without an allocation: two for each of 16 members.
const PLACES_TOGETHER: usize = 32;
/// Number of segments of the table that are freed together.
const PIECE_SEGMENTS: usize = 16;

/// A sorted set. The clone of a large one is a snapshot, and costs one pointer per few hundred members.
#[derive(Clone, Debug, Default)]
pub struct ZSetValue(Form);

const _: () = assert!(size_of::<ZSetValue>() == 16);

#[derive(Clone, Debug)]
enum Form {
    Packed(Page),
    Large(Box<Large>),
}

impl Default for Form {
    fn default() -> Form {
        Form::Packed(Page::default())
    }
}

#[derive(Clone, Debug)]
struct Large {
    tree: Tree<Scored>,
    table: ExtendibleTable<OutsideScore, FieldPositions>,
}

/// The layout of a sorted set's tree: elements in the order of scores, then of members.
#[derive(Debug)]
struct Scored;

impl Layout for Scored {
    const PAGE_BYTES: usize = 4096;
    fn separator(left: Element<'_>, right: Element<'_>, out: &mut Vec<u8>) -> Option<Blob> {
        let ((low_score, low), (score, high)) = (entry(left), entry(right));
        out.extend_from_slice(&EncodedScore::whole(score));
        if low_score < score {
            return None; // The empty member comes before all others with its score.
        }
        let same = low.iter().zip(&*high).take_while(|(a, b)| a == b).count();
        if same < INLINE_BYTES_MAX {
            out.extend_from_slice(&high[..same + 1]);
            return None;
        }
        match high {
            Bytes::Shared(blob) => Some(blob.clone()),
            Bytes::Slice(bytes) => {
                out.extend_from_slice(bytes);
                None
            }
        }
    }
    fn score(separator: Element<'_>) -> f64 {
        score::read(separator.inline).0
    }
}

/// The place at which a member with this score is, or would be, in the tree.
fn place_of<'m>(member: &'m [u8], score: f64) -> SeekTarget<impl FnMut(Element<'_>) -> bool + 'm> {
    let before = move |element: Element<'_>| {
        let (other_score, other) = entry(element);
        is_before(&other, other_score, member, score)
    };
    SeekTarget { score: Some(score), before }
}

/// The score of a member that is too long for the table's heap, so the table stores the score outside, too.
#[derive(Clone, Copy, Debug)]
struct OutsideScore(f64);

impl OutsideValue for OutsideScore {
    fn heap_bytes(&self) -> usize {
        0
    }
    fn from_int(bits: i64) -> OutsideScore {
        OutsideScore(f64::from_bits(bits as u64))
    }
    fn from_bytes(_: &[u8], _: bool) -> OutsideScore {
        unreachable!("scores are stored as integers")
    }
}

/// Result of [`ZSetValue::set`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Set {
    /// The member is new in the set.
    Added,
    /// The member had another score.
    Updated,
    /// The member already had this score.
    Unchanged,
}

impl ZSetValue {
    /// An empty sorted set, which is packed.
    pub fn new() -> ZSetValue {
        ZSetValue::default()
    }
    /// True while the set has its small form, which clients see as a listpack.
    pub fn is_packed(&self) -> bool {
        matches!(self.0, Form::Packed(_))
    }
    /// The score of `member`.
    pub fn score(&self, member: &[u8]) -> Option<f64> {
        match &self.0 {
            Form::Packed(page) => find(page, member).map(|(_, score)| score),
            Form::Large(large) => large.score(member),
        }
    }
    /// True when one of the two was cloned from the other and neither was changed since. Compares small sorted sets by
    /// content. May return false for large ones that are equal.
    pub fn is_same(&self, other: &ZSetValue) -> bool {
        match (&self.0, &other.0) {
            (Form::Packed(_), Form::Packed(_)) => {
                self.len() == other.len()
                    && self
                        .iter(0)
                        .zip(other.iter(0))
                        .all(|(a, b)| *a.0 == *b.0 && a.1.to_bits() == b.1.to_bits())
            }
            // It is enough to compare the tables, because each change of a score or a member changes the table.
            (Form::Large(a), Form::Large(b)) => a.table.shares_all_with(&b.table),
            (Form::Packed(_), Form::Large(_)) | (Form::Large(_), Form::Packed(_)) => false,
        }
    }
    /// The rank of `member` and its score.
    pub fn rank(&self, member: &[u8]) -> Option<(usize, f64)> {
        match &self.0 {
            Form::Packed(page) => find(page, member),
            Form::Large(large) => {
                let score = large.score(member)?;
                Some((large.place(score, member), score))
            }
        }
    }
    /// The member with this rank, and the member's score.
    pub fn get(&self, rank: usize) -> Option<(Bytes<'_>, f64)> {
        match &self.0 {
            Form::Packed(page) => (rank < page.len()).then(|| packed_entry(page.get(rank).0)),
            Form::Large(large) => large.tree.get(rank).map(member_first),
        }
    }
    /// The rank of the first member for which `before` returns false. `before` should return true for all members
    /// up to some rank and false after it. If it does not, a packed set returns the first member for which it is
    /// false, as redis-server does.
    pub fn partition_point(&self, mut before: impl FnMut(&[u8], f64) -> bool) -> usize {
        match &self.0 {
            Form::Packed(page) => {
                let found = page.iter(0).position(|(bytes, _)| {
                    let (member, score) = packed_entry(bytes);
                    !before(&member, score)
                });
                found.unwrap_or(page.len())
            }
            Form::Large(large) => {
                let before = |element: Element<'_>| {
                    let (score, member) = entry(element);
                    before(&member, score)
                };
                large.tree.partition_point(SeekTarget { score: None, before })
            }
        }
    }
    /// Members and scores, starting at rank `from`.
    ///
    /// # Panics
    /// Panics if `from` is larger than [`ZSetValue::len`].
    pub fn iter(&self, from: usize) -> Iter<'_> {
        Iter(match &self.0 {
            Form::Packed(page) => Walk::Packed(page.iter(from)),
            Form::Large(large) => Walk::Tree(large.tree.iter(from)),
        })
    }
    /// Members and scores before rank `from`, in reverse order.
    ///
    /// # Panics
    /// Panics if `from` is larger than [`ZSetValue::len`].
    pub fn iter_back(&self, from: usize) -> Iter<'_> {
        Iter(match &self.0 {
            Form::Packed(page) => Walk::Packed(page.iter_back(from)),
            Form::Large(large) => Walk::Tree(large.tree.iter_back(from)),
        })
    }
    /// Sets the score of `member`. The score must not be NaN. At the thresholds in `settings` the set changes to
    /// its large form, and it never changes back.
    pub fn set<'m>(&mut self, member: impl Into<Bytes<'m>>, score: f64, settings: &Settings) -> Set {
        // Adding 0.0 changes minus zero to zero. redis-server's listpack stores no minus zero, but its skip list
        // does.
        self.set_as(member.into(), score, score + 0.0, settings)
    }
    /// Like [`ZSetValue::set`], but a score of minus zero stays minus zero in the packed form, too. For sorted sets
    /// that are replies.
    pub fn set_exact<'m>(&mut self, member: impl Into<Bytes<'m>>, score: f64, settings: &Settings) -> Set {
        self.set_as(member.into(), score, score, settings)
    }
    /// `packed_score` is the score to store if the set is packed.
    fn set_as(&mut self, member: Bytes<'_>, score: f64, packed_score: f64, settings: &Settings) -> Set {
        if let Form::Packed(page) = &mut self.0 {
            let found = find(page, &member);
            match found {
                Some((_, old)) if old == score => return Set::Unchanged,
                Some((at, _)) => page.remove(at..at + 1, true),
                None => {
                    let entries_max = settings.zset_max_listpack_entries.load(Relaxed);
                    let bytes_max = settings.zset_max_listpack_value.load(Relaxed);
                    let is_small = (page.len() as u64) < entries_max
                        && member.len() as u64 <= bytes_max
                        && member.len() <= INLINE_BYTES_MAX
                        && page.used_bytes() + member.len() < PACKED_BYTES_MAX;
                    if !is_small {
                        self.unpack();
                        return self.set_large(member, score);
                    }
                }
            }
            let at = page.partition_point(0, |_, bytes, _| {
                let (other, other_score) = packed_entry(bytes);
                is_before(&other, other_score, &member, score)
            });
            page.insert(at, [&EncodedScore::of(packed_score), &member], false, page.used_bytes() / 8);
            return if found.is_some() { Set::Updated } else { Set::Added };
        }
        self.set_large(member, score)
    }
    /// Removes `member`. Returns its score if it existed.
    pub fn remove(&mut self, member: &[u8]) -> Option<f64> {
        match &mut self.0 {
            Form::Packed(page) => {
                let (at, score) = find(page, member)?;
                page.remove(at..at + 1, false);
                Some(score)
            }
            Form::Large(large) => large.remove(member),
        }
    }
    /// Removes the members whose ranks are in `range`.
    ///
    /// # Panics
    /// Panics if `range` exceeds the set.
    pub fn remove_range(&mut self, range: Range<usize>) {
        match &mut self.0 {
            Form::Packed(page) => page.remove(range, false),
            Form::Large(large) => large.remove_range(range),
        }
    }
    /// A random member, all with equal chance. `None` when the set is empty.
    pub fn random(&self, rng: &mut fastrand::Rng) -> Option<(Bytes<'_>, f64)> {
        if self.is_empty() { None } else { self.get(rng.usize(..self.len())) }
    }
    /// ZSCAN with Redis's guarantee: calls `visit` for about `count` members, starting at `cursor`. Returns the
    /// next cursor; 0 at the end. A packed set is visited whole, in its order.
    pub fn scan(&self, cursor: u64, count: usize, visit: &mut dyn FnMut(Bytes<'_>, f64)) -> u64 {
        match &self.0 {
            Form::Packed(_) => {
                self.iter(0).for_each(|(member, score)| visit(member, score));
                0
            }
            Form::Large(large) => large.scan(cursor, count, visit),
        }
    }
    fn set_large(&mut self, member: Bytes<'_>, score: f64) -> Set {
        match &mut self.0 {
            Form::Large(large) => large.set(member, score),
            Form::Packed(_) => unreachable!("unpacked before"),
        }
    }
    fn unpack(&mut self) {
        let mut large = Large { tree: Tree::new(), table: ExtendibleTable::new(0, FieldPositions) };
        for (member, score) in self.iter(0) {
            large.set(member, score);
        }
        self.0 = Form::Large(Box::new(large));
    }
}

impl Collection for ZSetValue {
    const TYPE_NAME: &'static str = "zset";

    #[inline]
    fn len(&self) -> usize {
        match &self.0 {
            Form::Packed(page) => page.len(),
            Form::Large(large) => large.tree.len(),
        }
    }
    fn encoding(&self) -> &'static str {
        match &self.0 {
            Form::Packed(_) => "listpack",
            Form::Large(_) => "skiplist",
        }
    }
    fn heap_bytes(&self) -> usize {
        match &self.0 {
            Form::Packed(page) => page.heap_bytes(),
            Form::Large(large) => size_of::<Large>() + large.tree.heap_bytes() + large.table.heap_bytes(),
        }
    }
    fn parts(&self) -> usize {
        match &self.0 {
            Form::Packed(_) => 1,
            Form::Large(large) => large.tree.parts() + large.table.parts(),
        }
    }
    fn walk_texts(
        &self,
        cursor: u64,
        count: usize,
        visit: &mut dyn FnMut(Option<Bytes<'_>>, Bytes<'_>),
    ) -> u64 {
        self.scan(cursor, count, &mut |member, _| visit(None, member))
    }
    fn serves(&self) -> Option<Range<Wanted>> {
        Some(Wanted::ZSet..Wanted::After(Id::MIN))
    }
    fn is_unchanged(&self, since: &ZSetValue) -> bool {
        self.is_same(since)
    }
    fn into_pieces(self, hand_out: &mut dyn FnMut(Piece)) {
        match self.0 {
            Form::Packed(_) => {}
            Form::Large(large) => {
                large.tree.into_pieces().for_each(|pages| hand_out(Box::new(pages)));
                let segments = large.table.into_pieces(PIECE_SEGMENTS);
                segments.for_each(|segments| hand_out(Box::new(segments)));
            }
        }
    }
    #[inline]
    fn prefetch(&self, step: usize) -> bool {
        match &self.0 {
            Form::Packed(page) if step == 0 => page.prefetch(2 * strand_chain::CACHE_LINE_BYTES),
            Form::Large(large) if step == 0 => strand_chain::prefetch(&**large, size_of::<Large>()),
            Form::Packed(_) | Form::Large(_) => {}
        }
        false
    }
    /// The member is the last argument of ZADD (of one member), ZREM and ZSCORE.
    fn prefetch_parts(&self, parts: &[Parts<'_>]) -> bool {
        let Form::Large(large) = &self.0 else { return false };
        let members = parts.iter().filter(|part| !part.third.is_empty()).map(|part| part.last);
        let is_far = large.table.prefetch_all(members, strand_chain::CACHE_LINE_BYTES);
        if is_far {
            large.prefetch_places(parts);
        }
        is_far
    }
}

impl Large {
    fn score(&self, member: &[u8]) -> Option<f64> {
        let at = self.table.locate(self.table.position(member), member)?;
        Some(score_of(self.table.at(at)))
    }
    /// The rank of a member that has this score, or that would get this score.
    fn place(&self, score: f64, member: &[u8]) -> usize {
        self.tree.partition_point(place_of(member, score))
    }
    /// For ZADD: prefetches the pages in which these members are now, and the pages into which they will move, with
    /// all loads in flight at once. (A search waits for one cache line after the other.)
    fn prefetch_places(&self, parts: &[Parts<'_>]) {
        let mut pages: SmallVec<[FoundPage<'_>; PLACES_TOGETHER]> = SmallVec::new();
        // If the third word is also the last word, the command has no score.
        for part in parts.iter().filter(|part| !std::ptr::eq(part.third, part.last)) {
            let Some(score) = number(part.third) else { continue };
            let mut find = |score| pages.extend(self.tree.page_at(place_of(part.last, score)));
            find(score);
            self.score(part.last).filter(|former| *former != score).into_iter().for_each(&mut find);
        }
        pages.iter().for_each(FoundPage::prefetch_head);
        pages.iter().for_each(FoundPage::prefetch);
    }
    fn set(&mut self, member: Bytes<'_>, score: f64) -> Set {
        let payload = Payload::Int(score.to_bits() as i64);
        let new = extendible::NewItem { key: &member, usage: None, expiry_ms: i64::MAX, payload };
        let position = self.table.position(&member);
        let done = match self.table.locate(position, &member) {
            Some(at) => {
                let old = score_of(self.table.at(at));
                if old == score {
                    return Set::Unchanged;
                }
                self.table.replace(at, new);
                self.remove_from_tree(old, &member);
                Set::Updated
            }
            None => {
                self.table.insert_new(position, new);
                Set::Added
            }
        };
        let written = EncodedScore::of(score);
        let outside = match member {
            short if short.len() <= INLINE_BYTES_MAX => None,
            Bytes::Slice(long) => Some(Blob::from(long)),
            Bytes::Shared(long) => Some(long.clone()),
        };
        let body: &[u8] = if outside.is_some() { &[] } else { &member };
        let new = NewElement { head: &written, body, outside };
        self.tree.insert_ordered(place_of(&member, score), new);
        done
    }
    fn remove(&mut self, member: &[u8]) -> Option<f64> {
        let at = self.table.locate(self.table.position(member), member)?;
        let score = score_of(self.table.at(at));
        self.table.remove_at(at);
        self.remove_from_tree(score, member);
        Some(score)
    }
    fn remove_from_tree(&mut self, score: f64, member: &[u8]) {
        let removed = self.tree.remove_ordered(place_of(member, score));
        if !removed {
            self.tree.remove(self.place(score, member));
        }
    }
    fn remove_range(&mut self, range: Range<usize>) {
        for element in self.tree.iter(range.start).take(range.len()) {
            let (_, member) = entry(element);
            if let Some(at) = self.table.locate(self.table.position(&member), &member) {
                self.table.remove_at(at);
            }
        }
        self.tree.remove_range(range);
    }
    fn scan(&self, cursor: u64, count: usize, visit: &mut dyn FnMut(Bytes<'_>, f64)) -> u64 {
        if cursor >> POSITION_BITS != 0 {
            return 0; // Past the last position.
        }
        let (mut from, mut left) = (cursor, count.max(1));
        loop {
            let mut each = |item: Item<'_, OutsideScore>| visit(Bytes::Slice(item.key()), score_of(item));
            let (visited, next) = self.table.scan_step(from, left, &mut each);
            left = left.saturating_sub(visited);
            match next {
                None => return 0,
                Some(next) if left == 0 => return next,
                Some(next) => from = next,
            }
        }
    }
}

/// Iterator over members and scores.
#[derive(Clone)]
pub struct Iter<'a>(Walk<'a>);

#[derive(Clone)]
enum Walk<'a> {
    Packed(Strings<'a>),
    Tree(tree::Iter<'a>),
}

impl<'a> Iterator for Iter<'a> {
    type Item = (Bytes<'a>, f64);
    #[inline]
    fn next(&mut self) -> Option<(Bytes<'a>, f64)> {
        match &mut self.0 {
            Walk::Packed(strings) => strings.next().map(|(bytes, _)| packed_entry(bytes)),
            Walk::Tree(elements) => elements.next().map(member_first),
        }
    }
}

/// A score in the usual notation. Only used for a prefetch. The command itself parses the score by Redis's rules.
fn number(text: &[u8]) -> Option<f64> {
    let number = match parse_int(text) {
        Some(n) => n as f64,
        None => std::str::from_utf8(text).ok()?.parse().ok()?,
    };
    (!number.is_nan()).then_some(number)
}
/// True when the first member is before the second one: by score, and for equal scores by bytes.
#[inline]
fn is_before(member: &[u8], score: f64, other: &[u8], other_score: f64) -> bool {
    score < other_score || (score == other_score && member < other)
}
/// The score and the member in an element of the tree.
#[inline]
fn entry(element: Element<'_>) -> (f64, Bytes<'_>) {
    let (score, member) = score::read(element.inline);
    (score, element.outside.map_or(Bytes::Slice(member), Bytes::Shared))
}
fn member_first(element: Element<'_>) -> (Bytes<'_>, f64) {
    let (score, member) = entry(element);
    (member, score)
}
/// The member and the score in a string of a packed set.
fn packed_entry(bytes: &[u8]) -> (Bytes<'_>, f64) {
    let (score, member) = score::read(bytes);
    (Bytes::Slice(member), score)
}
/// The index of `member` in a packed set, and the member's score.
fn find(page: &Page, member: &[u8]) -> Option<(usize, f64)> {
    page.iter(0).enumerate().find_map(|(at, (bytes, _))| {
        let (score, other) = score::read(bytes);
        (other == member).then_some((at, score))
    })
}
fn score_of(item: Item<'_, OutsideScore>) -> f64 {
    match item.content() {
        Content::Int(bits) => f64::from_bits(bits as u64),
        Content::Outside(score) => score.0,
        Content::Bytes(..) => unreachable!("scores are stored as integers"),
    }
}
