//! The nodes of a [`super::Tree`]: how an element is inserted, and how a range of elements is removed.
//!
//! All leaves have the same depth. Per child, an inner node keeps the number of elements below the child, their
//! bytes, and a *separator*. A separator is an element that, in the tree's order, is above every element to the
//! left of its child, and not above any element below its child. The separator of the first child has no meaning.
//! Separators stay valid when elements are removed.

use super::leaf::{Element, Leaf, NewElement};
use super::{Layout, SeekTarget};
use smallvec::SmallVec;
use std::iter;
use std::ops::Range;
use strand_chain::Blob;
use triomphe::Arc;

/// Maximum number of children of an inner node.
pub(super) const CHILDREN_MAX: usize = 64;
/// A node is *thin* when it is filled below its full size divided by this number. A thin node may be merged with a
/// neighbour.
const THIN_PART: usize = 4;
/// A thin node is merged with a neighbour if both together fill at most this percentage of one node.
const JOINED_PERCENT_MAX: usize = 75;
/// Number of bytes of the allocation of an inner node.
const INNER_BYTES: usize = size_of::<Inner>() + size_of::<usize>();

/// A part of a tree. Trees share it by a reference count.
#[derive(Clone, Debug)]
pub(super) enum Node {
    Leaf(Arc<Leaf>),
    Inner(Arc<Inner>),
}

impl Node {
    /// True when both are the same allocation.
    pub(super) fn is_same(&self, other: &Node) -> bool {
        match (self, other) {
            (Node::Leaf(a), Node::Leaf(b)) => Arc::ptr_eq(a, b),
            (Node::Inner(a), Node::Inner(b)) => Arc::ptr_eq(a, b),
            (Node::Leaf(_), Node::Inner(_)) | (Node::Inner(_), Node::Leaf(_)) => false,
        }
    }
}

/// A node, with the sums over the elements below it.
#[derive(Clone, Debug)]
pub(super) struct Child {
    pub(super) node: Node,
    /// Number of elements in the node or below it.
    pub(super) len: usize,
    /// Heap bytes of the node and everything below it.
    pub(super) bytes: usize,
}

/// A node with children.
#[derive(Debug)]
pub(super) struct Inner {
    pub(super) children: Vec<Child>,
    /// The separators, one per child.
    separators: Leaf,
    /// The [`Layout::score`] of each separator. A search compares all 64 scores in parallel and counts the
    /// lower ones. That takes a third of the time of a binary search, in which each step waits for the one
    /// before.
    scores: Vec<f64>,
    len: usize,
    /// Number of heap bytes of all children.
    bytes: usize,
}

impl Clone for Inner {
    fn clone(&self) -> Inner {
        let mut children = Vec::with_capacity(self.children.len() + 1);
        children.extend_from_slice(&self.children);
        let mut scores = Vec::with_capacity(self.scores.len() + 1);
        scores.extend_from_slice(&self.scores);
        Inner { children, separators: self.separators.clone(), scores, len: self.len, bytes: self.bytes }
    }
}

/// A separator that is about to be inserted into a node.
#[derive(Default)]
pub(super) struct Separator {
    inline: Vec<u8>,
    outside: Option<Blob>,
    score: f64,
}

/// Nodes that were removed as a whole. The caller frees them.
pub(super) type Removed = SmallVec<[Child; 1]>;

/// Finds where to insert a new element.
pub(super) trait Seek {
    /// Index of the child of `inner` below which to insert the element.
    fn child(&mut self, inner: &Inner) -> usize;
    /// Index in `leaf` at which to insert the element.
    fn slot(&mut self, leaf: &Leaf) -> usize;
}

/// Inserts before the element with this index in the tree or the node.
pub(super) struct ByIndex(pub(super) usize);

impl Seek for ByIndex {
    fn child(&mut self, inner: &Inner) -> usize {
        if self.0 == inner.len {
            self.0 = inner.children.last().map_or(0, |last| last.len);
            return inner.children.len() - 1;
        }
        let (child, start) = inner.child_of(self.0);
        self.0 -= start;
        child
    }
    fn slot(&mut self, _: &Leaf) -> usize {
        self.0
    }
}

/// Inserts at this place in the order of elements.
pub(super) struct ByOrder<F>(pub(super) SeekTarget<F>);

impl<F: FnMut(Element<'_>) -> bool> Seek for ByOrder<F> {
    fn child(&mut self, inner: &Inner) -> usize {
        inner.child_before(&mut self.0)
    }
    fn slot(&mut self, leaf: &Leaf) -> usize {
        leaf.page().prefetch_search();
        leaf.partition_point(0, &mut self.0.before)
    }
}

impl Child {
    pub(super) fn of_leaf(leaf: Leaf) -> Child {
        Child { len: leaf.len(), bytes: leaf.heap_bytes(), node: Node::Leaf(Arc::new(leaf)) }
    }
    /// A new node above two neighbours.
    pub(super) fn above(left: Child, right: Child, separator: Separator) -> Child {
        let mut inner = Inner::with_room(2);
        inner.insert(0, left, Separator::default());
        inner.insert(1, right, separator);
        Child::of_inner(inner)
    }
    fn of_inner(inner: Inner) -> Child {
        Child { len: inner.len, bytes: inner.heap_bytes(), node: Node::Inner(Arc::new(inner)) }
    }

    /// Adds an element. `at_end`: the element is added at an end of the tree, where more are likely to follow, so
    /// its page gets all its room at once. If the node was full, it is split, and its new right neighbour is
    /// returned with that neighbour's separator.
    pub(super) fn insert<L: Layout>(
        &mut self,
        seek: &mut impl Seek,
        new: NewElement<'_>,
        at_end: bool,
    ) -> Option<(Separator, Child)> {
        let split = self.insert_uncounted::<L>(seek, new, at_end);
        self.recount();
        split
    }
    fn insert_uncounted<L: Layout>(
        &mut self,
        seek: &mut impl Seek,
        new: NewElement<'_>,
        at_end: bool,
    ) -> Option<(Separator, Child)> {
        match &mut self.node {
            Node::Leaf(leaf) => insert_into_leaf::<L>(leaf, seek, new, at_end),
            Node::Inner(inner) => {
                let at = seek.child(inner);
                let inner = Arc::make_mut(inner);
                let split = inner.with_child(at, |child| child.insert_uncounted::<L>(seek, new, at_end));
                split.and_then(|(separator, right)| {
                    inner.insert(at + 1, right, separator);
                    inner.split_when_full(at + 1)
                })
            }
        }
    }
    /// Lets `change` write to the leaf that has element `i`. `change` also gets the index of the element within the
    /// leaf.
    pub(super) fn change<R>(&mut self, i: usize, change: impl FnOnce(&mut Leaf, usize) -> R) -> R {
        let result = self.change_uncounted(i, change);
        self.recount();
        result
    }
    fn change_uncounted<R>(&mut self, i: usize, change: impl FnOnce(&mut Leaf, usize) -> R) -> R {
        match &mut self.node {
            Node::Leaf(leaf) => change(Arc::make_mut(leaf), i),
            Node::Inner(inner) => {
                let (at, start) = inner.child_of(i);
                Arc::make_mut(inner).with_child(at, |child| child.change_uncounted(i - start, change))
            }
        }
    }
    /// Removes the elements of `range`, but not all elements of the node. `at_end`: see [`Child::insert`].
    pub(super) fn cut<L: Layout>(&mut self, range: Range<usize>, at_end: bool, removed: &mut Removed) {
        self.cut_uncounted::<L>(range, at_end, removed);
        self.recount();
    }
    fn cut_uncounted<L: Layout>(&mut self, range: Range<usize>, at_end: bool, removed: &mut Removed) {
        match &mut self.node {
            Node::Leaf(leaf) => Arc::make_mut(leaf).remove(range, at_end),
            Node::Inner(inner) => Arc::make_mut(inner).cut::<L>(range, at_end, removed),
        }
    }
    /// Removes elements from the node: see [`super::Tree::remove_ordered`].
    pub(super) fn cut_ordered<L: Layout>(
        &mut self,
        place: &mut SeekTarget<impl FnMut(Element<'_>) -> bool>,
    ) -> bool {
        let is_cut = self.cut_ordered_uncounted::<L>(place);
        self.recount();
        is_cut
    }
    fn cut_ordered_uncounted<L: Layout>(
        &mut self,
        place: &mut SeekTarget<impl FnMut(Element<'_>) -> bool>,
    ) -> bool {
        match &mut self.node {
            Node::Leaf(leaf) => {
                leaf.page().prefetch_search();
                let at = leaf.partition_point(0, &mut place.before);
                // If the place is at the end of the page, the wanted element may be the first of the next
                // page. A page must not become empty.
                if at == leaf.len() || leaf.len() == 1 {
                    return false;
                }
                Arc::make_mut(leaf).remove(at..at + 1, false);
                true
            }
            Node::Inner(inner) => {
                let at = inner.child_before(place);
                let inner = Arc::make_mut(inner);
                let is_cut = inner.with_child(at, |child| child.cut_ordered_uncounted::<L>(place));
                if is_cut {
                    inner.join_when_thin::<L>(at);
                }
                is_cut
            }
        }
    }
    /// True when the node has children.
    pub(super) fn is_inner(&self) -> bool {
        matches!(self.node, Node::Inner(_))
    }
    /// While the node has a single child, replaces the node by that child.
    pub(super) fn lower(&mut self) {
        while let Node::Inner(inner) = &self.node
            && inner.children.len() == 1
            && let Some(only) = inner.children.first().cloned()
        {
            *self = only;
        }
    }

    fn recount(&mut self) {
        (self.len, self.bytes) = self.counted();
    }
    /// Number of elements and heap bytes, read from the node itself.
    #[inline]
    fn counted(&self) -> (usize, usize) {
        match &self.node {
            Node::Leaf(leaf) => (leaf.len(), leaf.heap_bytes()),
            Node::Inner(inner) => (inner.len, inner.heap_bytes()),
        }
    }
    /// How far the node is filled, and its full size: in bytes for a leaf, in children for an inner node.
    fn fill<L: Layout>(&self) -> (usize, usize) {
        match &self.node {
            Node::Leaf(leaf) => (leaf.fill(), L::PAGE_BYTES),
            Node::Inner(inner) => (inner.children.len(), CHILDREN_MAX),
        }
    }
    fn is_thin<L: Layout>(&self) -> bool {
        let (fill, full) = self.fill::<L>();
        fill < full / THIN_PART
    }
    /// Appends the content of the right neighbour to this node. `separator` is the neighbour's separator. The
    /// caller updates the counts.
    fn join(&mut self, right: Child, separator: Separator) {
        match (&mut self.node, right.node) {
            (Node::Leaf(left), Node::Leaf(right)) => Arc::make_mut(left).append(&right),
            (Node::Inner(left), Node::Inner(right)) => {
                let left = Arc::make_mut(left);
                let others = (1..right.children.len()).map(|i| right.separator(i));
                for (child, separator) in right.children.iter().zip(iter::once(separator).chain(others)) {
                    left.insert(left.children.len(), child.clone(), separator);
                }
            }
            _ => unreachable!("all leaves are equally deep"),
        }
    }
}

fn insert_into_leaf<L: Layout>(
    leaf: &mut Arc<Leaf>,
    seek: &mut impl Seek,
    new: NewElement<'_>,
    at_end: bool,
) -> Option<(Separator, Child)> {
    let at = seek.slot(leaf);
    let leaf = Arc::make_mut(leaf);
    let fill = leaf.fill_with(&new);
    if fill <= L::PAGE_BYTES || leaf.len() == 0 {
        // The allocator's size classes are a fifth apart, so room beyond a full page would waste memory.
        let spare = if at_end { L::PAGE_BYTES.saturating_sub(fill) } else { 0 };
        leaf.insert(at, new, spare);
        return None;
    }
    // At an end of the page, keep the full page and begin a new one. So elements that are added in order fill every
    // page.
    let split_at = if at == leaf.len() || at == 0 { at } else { leaf.page().middle() };
    let mut right = leaf.split_off(split_at);
    if at == 0 || (at <= split_at && split_at < leaf.len() + right.len() && right.len() > 0) {
        leaf.insert(at, new, 0);
    } else {
        right.insert(at - split_at, new, 0);
    }
    let mut inline = Vec::new();
    let outside = L::separator(leaf.get(leaf.len() - 1), right.get(0), &mut inline);
    let score = L::score(Element { inline: &inline, outside: outside.as_ref() });
    Some((Separator { inline, outside, score }, Child::of_leaf(right)))
}

impl Inner {
    fn with_room(children: usize) -> Inner {
        Inner {
            children: Vec::with_capacity(children),
            separators: Leaf::default(),
            scores: Vec::with_capacity(children),
            len: 0,
            bytes: 0,
        }
    }
    fn heap_bytes(&self) -> usize {
        let children = self.children.capacity() * size_of::<Child>();
        let scores = self.scores.capacity() * size_of::<f64>();
        INNER_BYTES + children + scores + self.separators.heap_bytes() + self.bytes
    }
    /// Index of the child below which element `i` is, and the index of that child's first element.
    #[inline]
    pub(super) fn child_of(&self, i: usize) -> (usize, usize) {
        debug_assert!(i < self.len, "an element that is there");
        if i < self.len / 2 {
            let mut start = 0;
            for (at, child) in self.children.iter().enumerate() {
                if i - start < child.len {
                    return (at, start);
                }
                start += child.len;
            }
        }
        let mut start = self.len;
        for (at, child) in self.children.iter().enumerate().rev() {
            start -= child.len;
            if i >= start {
                return (at, start);
            }
        }
        (0, 0)
    }
    /// Index of the last child whose separator is before the place. The first child if there is none.
    #[inline]
    pub(super) fn child_before(&self, place: &mut SeekTarget<impl FnMut(Element<'_>) -> bool>) -> usize {
        let Some(score) = place.score else {
            return self.separators.partition_point(1, &mut place.before) - 1;
        };
        let others = &self.scores[1..];
        let lower = others.iter().map(|other| usize::from(*other < score)).sum::<usize>();
        match others.get(lower) {
            Some(next) if *next == score => self.separators.partition_point(1 + lower, &mut place.before) - 1,
            _ => lower,
        }
    }
    fn separator(&self, i: usize) -> Separator {
        let element = self.separators.get(i);
        let (inline, outside) = (element.inline.to_vec(), element.outside.cloned());
        Separator { inline, outside, score: self.scores[i] }
    }
    /// Lets `change` write to a child, and updates the sums. The sums of the child stay in registers meanwhile.
    /// Writing the sums to memory one by one and reading them back as a pair took a fifth of a push (perf, LPUSH at
    /// pipeline 30).
    #[inline]
    fn with_child<R>(&mut self, at: usize, change: impl FnOnce(&mut Child) -> R) -> R {
        let child = &mut self.children[at];
        let result = change(child);
        let (len, bytes) = child.counted();
        self.len = self.len + len - child.len;
        self.bytes = self.bytes + bytes - child.bytes;
        (child.len, child.bytes) = (len, bytes);
        result
    }
    fn insert(&mut self, at: usize, child: Child, separator: Separator) {
        self.len += child.len;
        self.bytes += child.bytes;
        let room = self.children.len() / 4 + 1;
        if self.children.len() == self.children.capacity() {
            let room = room.min(CHILDREN_MAX + 1 - self.children.len());
            self.children.reserve_exact(room);
            self.scores.reserve_exact(room);
        }
        self.children.insert(at, child);
        self.scores.insert(at, separator.score);
        let new = NewElement { head: &separator.inline, body: &[], outside: separator.outside };
        self.separators.insert(at, new, self.separators.fill() / 4);
    }
    fn remove(&mut self, at: usize) -> Child {
        let child = self.children.remove(at);
        self.len -= child.len;
        self.bytes -= child.bytes;
        self.separators.remove(at..at + 1, false);
        self.scores.remove(at);
        child
    }
    /// Splits a node with too many children. `added` is the index of the child just added: at an end of the node,
    /// the split is there. Elsewhere it is in the middle.
    fn split_when_full(&mut self, added: usize) -> Option<(Separator, Child)> {
        let len = self.children.len();
        if len <= CHILDREN_MAX {
            return None;
        }
        let at = match added {
            1 => 1,
            last if last + 1 == len => last,
            _ => len / 2,
        };
        let separator = self.separator(at);
        let mut right = Inner::with_room(len - at + 1);
        right.children.extend(self.children.drain(at..));
        right.scores.extend(self.scores.drain(at..));
        right.separators = self.separators.split_off(at);
        for child in &right.children {
            right.len += child.len;
            right.bytes += child.bytes;
        }
        self.len -= right.len;
        self.bytes -= right.bytes;
        Some((separator, Child::of_inner(right)))
    }
    /// Removes elements from the node: see [`Child::cut`].
    fn cut<L: Layout>(&mut self, range: Range<usize>, at_end: bool, removed: &mut Removed) {
        let (from, to) = (range.start, range.end);
        let (first, mut start) = self.child_of(from);
        let mut at = first;
        while start < to {
            let len = self.children[at].len;
            let end = start + len;
            if from <= start && end <= to {
                removed.push(self.remove(at));
            } else {
                let (low, high) = (from.max(start) - start, to.min(end) - start);
                self.with_child(at, |child| child.cut_uncounted::<L>(low..high, at_end, removed));
                at += 1;
            }
            start = end;
        }
        // Of the children that the range touches, at most two are left, because the children between them
        // were removed.
        for at in [first + 1, first] {
            self.join_when_thin::<L>(at);
        }
    }
    /// Merges the child at `at` with a neighbour that has room, if the child exists and is thin.
    fn join_when_thin<L: Layout>(&mut self, at: usize) {
        if self.children.get(at).is_none_or(|child| !child.is_thin::<L>()) {
            return;
        }
        for left in [at.wrapping_sub(1), at] {
            let Some([a, b]) = self.children.get(left..=left.saturating_add(1)) else { continue };
            let ((a, full), (b, _)) = (a.fill::<L>(), b.fill::<L>());
            if (a + b) * 100 <= full * JOINED_PERCENT_MAX {
                let separator = self.separator(left + 1);
                let right = self.remove(left + 1);
                return self.with_child(left, |child| child.join(right, separator));
            }
        }
    }
}
