//! [`Tree`]: a counted B+tree of packed pages. It is the large form of lists and sorted sets.
//!
//! An **element** is a byte string. It has bytes in its page (`inline`, at most [`STRING_BYTES_MAX`], preferably
//! at most an eighth of a page) and, if it is long, a blob after them (`outside`), which replies can share.
//! Elements lie side by side in pages of [`Layout::PAGE_BYTES`], with one byte of overhead each. A short element
//! needs no allocation.
//!
//! The caller defines the *meaning* of an element. A list's element is its bytes. A sorted set's element is its
//! score, then its member. An ordered tree needs one thing of its [`Layout`]: [`Layout::separator`]. All searches
//! take a closure that says whether an element lies before the wanted place ([`Place`]). The closure sees
//! separators too, so it must look only at bytes that a separator contains.
//!
//! | operation | cost |
//! |---|---|
//! | [`Tree::get`], [`Tree::replace`], [`Tree::partition_point`] | O(log n) |
//! | [`Tree::insert`], [`Tree::insert_ordered`], [`Tree::remove`] | O(log n), and moves half a page at most |
//! | [`Tree::push_front`], [`Tree::push_back`], removal at the ends | O(log n) with a base of 64; usually moves nothing |
//! | [`Tree::iter`], [`Tree::iter_back`] | O(log n) to start anywhere, then O(1) an element |
//! | [`Tree::remove_range`] | O(log n + pages); whole nodes that were cut off are returned, to be freed elsewhere |
//! | `clone` | O(1), a snapshot; nodes are shared by count, and the first write to a shared node copies it and its path |
//! | [`Tree::len`], [`Tree::heap_bytes`], [`Tree::parts`] | O(1), kept current |
//! | [`Tree::into_pieces`] | one piece at a time, about 64 pages each |
//!
//! Here: the tree. `node`: growth and shrinking. `page`, `leaf`: the layout of elements in memory. `cursor`:
//! iteration. Left out: finding an element other than by its place in the order. A sorted set has a table for
//! that.

mod cursor;
mod leaf;
mod node;
mod page;
#[cfg(test)]
mod tests;

pub(crate) use cursor::Iter;
pub(crate) use leaf::{Element, New};
pub(crate) use page::{Page, STRING_BYTES_MAX, Strings};

use leaf::Leaf;
use node::{ByIndex, ByOrder, Child, Node, Removed};
use std::marker::PhantomData;
use std::ops::Range;
use strand_chain::Blob;
use triomphe::Arc;

/// Approximate bytes of one allocation: a page, or its list of long parts.
const BYTES_PER_PART: usize = 2048;

/// The properties of a tree's elements.
pub(crate) trait Layout {
    /// A page is split when it would become larger than this.
    const PAGE_BYTES: usize;
    /// A separator of two neighbours: an element that, in the tree's order, is above `left` and not above `right`.
    /// Writes its inline bytes, as short as possible, and returns its long part, if any. A tree that is never
    /// searched by order writes nothing.
    fn separator(left: Element<'_>, right: Element<'_>, out: &mut Vec<u8>) -> Option<Blob>;
    /// The leading number of the tree's order: an element with a lower number lies before an element with a higher
    /// one. A tree without this number returns 0 for all elements.
    fn score(separator: Element<'_>) -> f64 {
        let _ = separator;
        0.0
    }
}

/// A place in an ordered tree: in front of the first element for which `before` is false.
pub(crate) struct Place<F> {
    /// [`Layout::score`] of the place, if the search has one. A node is then searched by its children's scores
    /// first.
    pub(crate) score: Option<f64>,
    /// True for a first part of the elements and false for the rest. It is also called with separators.
    pub(crate) before: F,
}

/// The tree. Methods that take an index panic when there is no element with this index.
#[derive(Debug)]
pub(crate) struct Tree<L> {
    /// `None` while the tree is empty.
    root: Option<Child>,
    layout: PhantomData<L>,
}

impl<L> Clone for Tree<L> {
    fn clone(&self) -> Tree<L> {
        Tree { root: self.root.clone(), layout: PhantomData }
    }
}

/// A part of a tree's memory, freed on drop.
#[derive(Debug)]
pub struct Piece {
    _node: Node,
}

/// A page that a search will read.
pub(crate) struct FoundPage<'a>(&'a Leaf);

impl FoundPage<'_> {
    /// Prefetches the head of the page.
    pub(crate) fn prefetch_head(&self) {
        self.0.page().prefetch(1);
    }
    /// Prefetches the data that the search will read, which the head tells.
    pub(crate) fn prefetch(&self) {
        self.0.page().prefetch_search();
    }
}

/// The nodes that [`Tree::remove_range`] cut off whole. Drop frees them.
#[derive(Debug, Default)]
pub(crate) struct Cut(Removed);

impl<L: Layout> Tree<L> {
    /// An empty tree, without an allocation.
    pub(crate) fn new() -> Tree<L> {
        Tree { root: None, layout: PhantomData }
    }
    /// Number of elements.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.root.as_ref().map_or(0, |root| root.len)
    }
    /// True when there is no element.
    pub(crate) fn is_empty(&self) -> bool {
        self.root.is_none()
    }
    /// Heap bytes, long parts included. Memory shared with clones counts in full in each clone.
    #[inline]
    pub(crate) fn heap_bytes(&self) -> usize {
        self.root.as_ref().map_or(0, |root| root.bytes)
    }
    /// Approximate number of allocations.
    pub(crate) fn parts(&self) -> usize {
        1 + self.heap_bytes() / BYTES_PER_PART
    }
    /// True when both share their root: nothing was written since one was cloned from the other.
    pub(crate) fn is_same(&self, other: &Tree<L>) -> bool {
        match (&self.root, &other.root) {
            (Some(a), Some(b)) => a.node.is_same(&b.node),
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        }
    }
    /// Element `i`. `None` past the end.
    pub(crate) fn get(&self, mut i: usize) -> Option<Element<'_>> {
        let mut child = self.root.as_ref().filter(|root| i < root.len)?;
        loop {
            match &child.node {
                Node::Leaf(leaf) => return Some(leaf.get(i)),
                Node::Inner(inner) => {
                    let (at, start) = inner.child_of(i);
                    (i, child) = (i - start, &inner.children[at]);
                }
            }
        }
    }
    /// The index of the first element after a place.
    pub(crate) fn partition_point(&self, mut place: Place<impl FnMut(Element<'_>) -> bool>) -> usize {
        let Some(mut child) = self.root.as_ref() else { return 0 };
        let mut index = 0;
        loop {
            match &child.node {
                Node::Leaf(leaf) => {
                    leaf.page().prefetch_search();
                    return index + leaf.partition_point(0, &mut place.before);
                }
                Node::Inner(inner) => {
                    let at = inner.child_before(&mut place);
                    index += inner.children[..at].iter().map(|child| child.len).sum::<usize>();
                    child = &inner.children[at];
                }
            }
        }
    }
    /// The page in which [`Tree::partition_point`] ends. The page is not read yet, and its head is prefetched.
    pub(crate) fn page_at(&self, mut place: Place<impl FnMut(Element<'_>) -> bool>) -> Option<FoundPage<'_>> {
        let mut child = self.root.as_ref()?;
        loop {
            match &child.node {
                Node::Leaf(leaf) => {
                    strand_chain::prefetch(&**leaf, size_of::<Leaf>());
                    return Some(FoundPage(leaf));
                }
                Node::Inner(inner) => child = &inner.children[inner.child_before(&mut place)],
            }
        }
    }
    /// The elements, starting at `from`.
    pub(crate) fn iter(&self, from: usize) -> Iter<'_> {
        assert!(from <= self.len(), "a position in the tree");
        Iter::new(self.root.as_ref(), from, true)
    }
    /// The elements before `from`, in reverse order.
    pub(crate) fn iter_back(&self, from: usize) -> Iter<'_> {
        assert!(from <= self.len(), "a position in the tree");
        Iter::new(self.root.as_ref(), from, false)
    }

    /// Adds an element at the start.
    #[inline]
    pub(crate) fn push_front(&mut self, new: New<'_>) {
        self.add(&mut ByIndex(0), new, true);
    }
    /// Adds an element at the end.
    #[inline]
    pub(crate) fn push_back(&mut self, new: New<'_>) {
        self.add(&mut ByIndex(self.len()), new, true);
    }
    /// Inserts an element before element `i`. For trees without an order: in an ordered tree the separators decide
    /// which of two pages an element belongs to, and an index cannot.
    pub(crate) fn insert(&mut self, i: usize, new: New<'_>) {
        assert!(i <= self.len(), "a position in the tree");
        self.add(&mut ByIndex(i), new, i == 0 || i == self.len());
    }
    /// Inserts an element at a place.
    pub(crate) fn insert_ordered(&mut self, place: Place<impl FnMut(Element<'_>) -> bool>, new: New<'_>) {
        self.add(&mut ByOrder(place), new, false);
    }
    /// Replaces element `i`. In an ordered tree the new element must have this place in the order.
    pub(crate) fn replace(&mut self, i: usize, new: New<'_>) {
        assert!(i < self.len(), "an element that is there");
        let Some(root) = &mut self.root else { return };
        root.change(i, |leaf, at| leaf.replace(at, new, 0));
    }
    /// Removes element `i`.
    pub(crate) fn remove(&mut self, i: usize) {
        self.remove_range(i..i + 1);
    }
    /// Removes the first element after a place. Unlike [`Tree::remove`] it does not count the elements before it.
    /// Returns false, and removes nothing, where it would need an index: when the element may be in the next page,
    /// or is the only one in its page.
    pub(crate) fn remove_ordered(&mut self, mut place: Place<impl FnMut(Element<'_>) -> bool>) -> bool {
        let Some(root) = &mut self.root else { return false };
        let is_removed = root.cut_ordered::<L>(&mut place);
        root.lower();
        is_removed
    }
    /// Removes the elements of `range`. Whole nodes are not freed but returned.
    pub(crate) fn remove_range(&mut self, range: Range<usize>) -> Cut {
        assert!(range.start <= range.end && range.end <= self.len(), "elements that are there");
        let mut removed = Removed::new();
        if range.len() == self.len() {
            removed.extend(self.root.take());
        } else if let Some(root) = &mut self.root
            && !range.is_empty()
        {
            let at_end = root.is_inner() && (range.start == 0 || range.end == root.len);
            root.cut::<L>(range, at_end, &mut removed);
            root.lower();
        }
        Cut(removed)
    }
    /// All memory of the tree in pieces, to be freed one after the other.
    pub(crate) fn into_pieces(self) -> impl Iterator<Item = Piece> {
        pieces(self.root.into_iter().map(|root| root.node).collect())
    }

    fn add(&mut self, seek: &mut impl node::Seek, new: New<'_>, at_end: bool) {
        let Some(root) = &mut self.root else {
            let mut leaf = Leaf::default();
            leaf.insert(0, new, 0);
            self.root = Some(Child::of_leaf(leaf));
            return;
        };
        // A tree of one page may keep its small allocation.
        let at_end = at_end && root.is_inner();
        if let Some((separator, right)) = root.insert::<L>(seek, new, at_end) {
            let left = self.root.take();
            self.root = left.map(|left| Child::above(left, right, separator));
        }
    }
}

impl Cut {
    /// Heap bytes of the nodes.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.0.iter().map(|child| child.bytes).sum()
    }
    /// As [`Tree::into_pieces`].
    pub(crate) fn into_pieces(self) -> impl Iterator<Item = Piece> {
        pieces(self.0.into_iter().map(|child| child.node).collect())
    }
}

/// Takes nodes apart. A piece is a leaf, or an inner node with its leaves.
fn pieces(mut nodes: Vec<Node>) -> impl Iterator<Item = Piece> {
    std::iter::from_fn(move || {
        loop {
            let node = nodes.pop()?;
            let Node::Inner(inner) = node else { return Some(Piece { _node: node }) };
            let is_low = inner.children.iter().all(|child| matches!(child.node, Node::Leaf(_)));
            if is_low {
                return Some(Piece { _node: Node::Inner(inner) });
            }
            match Arc::try_unwrap(inner) {
                Ok(inner) => nodes.extend(inner.children.into_iter().map(|child| child.node)),
                // Another tree shares the node, so dropping it frees nothing.
                Err(shared) => return Some(Piece { _node: Node::Inner(shared) }),
            }
        }
    })
}
