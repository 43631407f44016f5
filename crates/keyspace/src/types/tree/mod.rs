//! [`Tree`]: a counted B+tree of packed pages. It is the large form of lists and sorted sets.
//!
//! An **element** is a byte string. Its first bytes are in a page (`inline`: at most [`STRING_BYTES_MAX`],
//! preferably at most an eighth of a page). If the element is long, the rest is in a blob (`outside`), which
//! replies can share. The elements of a page follow each other, with an overhead of one byte each. A page that
//! would become larger than [`Layout::PAGE_BYTES`] is split. A short element needs no allocation.
//!
//! The caller defines the *meaning* of an element. An element of a list is just its bytes. An element of a sorted
//! set is its score, then its member. A search in an ordered tree gets a [`SeekTarget`]: a closure that says whether an
//! element is before the wanted place. Inner nodes have *separators*, which [`Layout::separator`] makes from the
//! elements on both sides. The closure is called with separators too, so it must look only at bytes that a
//! separator contains.
//!
//! | operation | cost |
//! |---|---|
//! | [`Tree::get`], [`Tree::replace`], [`Tree::partition_point`] | O(log n) |
//! | [`Tree::insert`], [`Tree::insert_ordered`], [`Tree::remove`] | O(log n), and moves at most half a page |
//! | [`Tree::push_front`], [`Tree::push_back`], removal at the ends | O(log n) with a base of 64; usually moves nothing |
//! | [`Tree::iter`], [`Tree::iter_back`] | O(log n) to start anywhere, then O(1) per element |
//! | [`Tree::remove_range`] | O(log n + pages); returns whole nodes, which the caller frees |
//! | `clone` | O(1), a snapshot; nodes are shared by count, and a write copies the shared nodes on its path |
//! | [`Tree::len`], [`Tree::heap_bytes`], [`Tree::parts`] | O(1), kept up to date |
//! | [`Tree::into_pieces`] | one piece at a time, about 64 pages each |
//!
//! This module: the tree. `node`: growth and shrinking. `page`, `leaf`: the layout of elements in memory. `cursor`:
//! iteration. Left out: finding an element by its bytes when its place in the order is not known. A sorted set has
//! a table for that.

mod cursor;
mod leaf;
mod node;
mod page;
#[cfg(test)]
mod tests;

pub(crate) use cursor::Iter;
pub(crate) use leaf::{Element, NewElement};
pub(crate) use page::{Page, STRING_BYTES_MAX, Strings};

use leaf::Leaf;
use node::{ByIndex, ByOrder, Child, Node, Removed};
use std::marker::PhantomData;
use std::ops::Range;
use strand_chain::Blob;
use triomphe::Arc;

/// Approximate bytes per allocation, which is a page or its list of blobs.
const BYTES_PER_PART: usize = 2048;

/// The properties of a tree's elements.
pub(crate) trait Layout {
    /// A page that would become larger than this is split.
    const PAGE_BYTES: usize;
    /// Makes the separator of two neighbouring elements: an element that, in the tree's order, is above `left` and
    /// not above `right`. Writes its inline bytes, as few as possible, to `out`, and returns its blob, if it has
    /// one. A tree that is never searched by order writes nothing.
    fn separator(left: Element<'_>, right: Element<'_>, out: &mut Vec<u8>) -> Option<Blob>;
    /// The score of a separator: a number that is the first criterion of the tree's order. An element with a lower
    /// score is before one with a higher score. A tree without scores returns 0 for all elements.
    fn score(separator: Element<'_>) -> f64 {
        let _ = separator;
        0.0
    }
}

/// A place in an ordered tree: before the first element for which `before` is false.
pub(crate) struct SeekTarget<F> {
    /// The [`Layout::score`] at the place, if the caller knows it. Then a node is first searched by the scores of
    /// its children, which is faster.
    pub(crate) score: Option<f64>,
    /// True for all elements up to the place, and false for the elements after it. Also called with separators.
    pub(crate) before: F,
}

/// A tree of elements: see the module. Methods that take an index panic when there is no element with that index.
#[derive(Debug)]
pub(crate) struct Tree<L> {
    /// The root node. `None` while the tree is empty.
    root: Option<Child>,
    layout: PhantomData<L>,
}

impl<L> Clone for Tree<L> {
    fn clone(&self) -> Tree<L> {
        Tree { root: self.root.clone(), layout: PhantomData }
    }
}

/// A part of a tree's memory. Dropping it frees the memory.
#[derive(Debug)]
pub struct DetachedNode {
    _node: Node,
}

/// A page that a search will read.
pub(crate) struct FoundPage<'a>(&'a Leaf);

impl FoundPage<'_> {
    /// Prefetches the head of the page.
    pub(crate) fn prefetch_head(&self) {
        self.0.page().prefetch(1);
    }
    /// Prefetches the data that the search will read. Reads the head of the page, which must have been prefetched
    /// before.
    pub(crate) fn prefetch(&self) {
        self.0.page().prefetch_search();
    }
}

/// The nodes that [`Tree::remove_range`] removed as a whole. Dropping this value frees them.
#[derive(Debug, Default)]
pub(crate) struct Cut(Removed);

impl<L: Layout> Tree<L> {
    /// An empty tree, without an allocation.
    pub(crate) fn new() -> Tree<L> {
        Tree { root: None, layout: PhantomData }
    }
    /// Number of elements in the tree.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.root.as_ref().map_or(0, |root| root.len)
    }
    /// True when there is no element.
    pub(crate) fn is_empty(&self) -> bool {
        self.root.is_none()
    }
    /// Heap bytes of the tree, blobs included. Memory that clones share counts in full in each clone.
    #[inline]
    pub(crate) fn heap_bytes(&self) -> usize {
        self.root.as_ref().map_or(0, |root| root.bytes)
    }
    /// Approximate number of allocations of the tree.
    pub(crate) fn parts(&self) -> usize {
        1 + self.heap_bytes() / BYTES_PER_PART
    }
    /// True when both share their root: one was cloned from the other and neither was written since.
    pub(crate) fn is_same(&self, other: &Tree<L>) -> bool {
        match (&self.root, &other.root) {
            (Some(a), Some(b)) => a.node.is_same(&b.node),
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        }
    }
    /// The element with index `i`. `None` past the end.
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
    /// The index of the first element after `place`.
    pub(crate) fn partition_point(&self, mut place: SeekTarget<impl FnMut(Element<'_>) -> bool>) -> usize {
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
    /// The page in which [`Tree::partition_point`] would end. Prefetches the page's node, and does not read the
    /// page.
    pub(crate) fn page_at(
        &self,
        mut place: SeekTarget<impl FnMut(Element<'_>) -> bool>,
    ) -> Option<FoundPage<'_>> {
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
    pub(crate) fn push_front(&mut self, new: NewElement<'_>) {
        self.add(&mut ByIndex(0), new, true);
    }
    /// Adds an element at the end.
    #[inline]
    pub(crate) fn push_back(&mut self, new: NewElement<'_>) {
        self.add(&mut ByIndex(self.len()), new, true);
    }
    /// Inserts an element before the element with index `i`. Only for trees without an order. In an ordered tree,
    /// the separators decide to which of two pages an element belongs, and an index does not tell.
    pub(crate) fn insert(&mut self, i: usize, new: NewElement<'_>) {
        assert!(i <= self.len(), "a position in the tree");
        self.add(&mut ByIndex(i), new, i == 0 || i == self.len());
    }
    /// Inserts an element at a place of an ordered tree.
    pub(crate) fn insert_ordered(
        &mut self,
        place: SeekTarget<impl FnMut(Element<'_>) -> bool>,
        new: NewElement<'_>,
    ) {
        self.add(&mut ByOrder(place), new, false);
    }
    /// Replaces the element with index `i`. In an ordered tree the new element must belong at the same place.
    pub(crate) fn replace(&mut self, i: usize, new: NewElement<'_>) {
        assert!(i < self.len(), "an element that is there");
        let Some(root) = &mut self.root else { return };
        root.change(i, |leaf, at| leaf.replace(at, new, 0));
    }
    /// Removes the element with index `i`.
    pub(crate) fn remove(&mut self, i: usize) {
        self.remove_range(i..i + 1);
    }
    /// Removes the first element after a place. Faster than [`Tree::remove`], because it does not count the
    /// elements before the place. Returns false and removes nothing in two cases: when the element may be in the
    /// next page, and when it is the only element of its page.
    pub(crate) fn remove_ordered(&mut self, mut place: SeekTarget<impl FnMut(Element<'_>) -> bool>) -> bool {
        let Some(root) = &mut self.root else { return false };
        let is_removed = root.cut_ordered::<L>(&mut place);
        root.lower();
        is_removed
    }
    /// Removes the elements of `range`. Returns the nodes that were removed as a whole, so that the caller frees
    /// them.
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
    /// Splits the memory of the tree into pieces, to be freed one after the other.
    pub(crate) fn into_pieces(self) -> impl Iterator<Item = DetachedNode> {
        pieces(self.root.into_iter().map(|root| root.node).collect())
    }

    fn add(&mut self, seek: &mut impl node::Seek, new: NewElement<'_>, at_end: bool) {
        let Some(root) = &mut self.root else {
            let mut leaf = Leaf::default();
            leaf.insert(0, new, 0);
            self.root = Some(Child::of_leaf(leaf));
            return;
        };
        // The page of a tree with one page takes no spare room.
        let at_end = at_end && root.is_inner();
        if let Some((separator, right)) = root.insert::<L>(seek, new, at_end) {
            let left = self.root.take();
            self.root = left.map(|left| Child::above(left, right, separator));
        }
    }
}

impl Cut {
    /// Number of heap bytes of the tree's nodes.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.0.iter().map(|child| child.bytes).sum()
    }
    /// Like [`Tree::into_pieces`], for the removed nodes.
    pub(crate) fn into_pieces(self) -> impl Iterator<Item = DetachedNode> {
        pieces(self.0.into_iter().map(|child| child.node).collect())
    }
}

/// Takes nodes apart. Each piece is a leaf, or an inner node with all its leaves.
fn pieces(mut nodes: Vec<Node>) -> impl Iterator<Item = DetachedNode> {
    std::iter::from_fn(move || {
        loop {
            let node = nodes.pop()?;
            let Node::Inner(inner) = node else { return Some(DetachedNode { _node: node }) };
            let is_low = inner.children.iter().all(|child| matches!(child.node, Node::Leaf(_)));
            if is_low {
                return Some(DetachedNode { _node: Node::Inner(inner) });
            }
            match Arc::try_unwrap(inner) {
                Ok(inner) => nodes.extend(inner.children.into_iter().map(|child| child.node)),
                // Another tree shares this node. Dropping this reference frees no memory, so the reference counts as
                // one piece of the work.
                Err(shared) => return Some(DetachedNode { _node: Node::Inner(shared) }),
            }
        }
    })
}
