//! [`Iter`]: walks over a tree from any position, forwards or backwards.

use super::leaf::{Element, Leaf};
use super::node::{Child, Inner, Node};
use smallvec::SmallVec;

/// Depth of a tree with 64^4 pages. For a deeper tree, the path is allocated.
const DEPTH: usize = 4;

/// A position in a tree, between two elements.
#[derive(Clone)]
struct Cursor<'a> {
    /// The inner nodes on the path from the root to the leaf, each with the index of the next node on the path.
    path: SmallVec<[(&'a Inner, usize); DEPTH]>,
    leaf: &'a Leaf,
    /// Index in the leaf of the element after the position. The next two fields are the offset of this element's bytes,
    /// and the number of blobs before the element.
    at: usize,
    offset: usize,
    outside: usize,
}

impl<'a> Cursor<'a> {
    /// The position before element `i`. When `i` is the number of elements, the position at the end.
    fn new(root: &'a Child, mut i: usize) -> Cursor<'a> {
        let (mut path, mut child) = (SmallVec::new(), root);
        loop {
            match &child.node {
                Node::Leaf(leaf) => {
                    let (offset, outside) = (leaf.page().offset(i), leaf.outside_before(i));
                    return Cursor { path, leaf, at: i, offset, outside };
                }
                Node::Inner(inner) => {
                    let (at, start) = match i < child.len {
                        true => inner.child_of(i),
                        false => {
                            let last = inner.children.len() - 1;
                            (last, child.len - inner.children[last].len)
                        }
                    };
                    path.push((&**inner, at));
                    (i, child) = (i - start, &inner.children[at]);
                }
            }
        }
    }
    fn next(&mut self) -> Option<Element<'a>> {
        while self.at == self.leaf.len() {
            self.leave(|at, len| (at + 1 < len).then_some(at + 1), |_| 0, |_| 0)?;
        }
        let (inline, has_more) = self.leaf.page().at(self.at, self.offset);
        let outside = has_more.then(|| self.leaf.outside(self.outside));
        self.at += 1;
        self.offset += inline.len();
        self.outside += usize::from(has_more);
        Some(Element { inline, outside })
    }
    fn previous(&mut self) -> Option<Element<'a>> {
        while self.at == 0 {
            self.leave(|at, _| at.checked_sub(1), |inner| inner.children.len() - 1, Leaf::len)?;
        }
        self.at -= 1;
        self.offset -= self.leaf.page().bytes_of(self.at);
        let (inline, has_more) = self.leaf.page().at(self.at, self.offset);
        self.outside -= usize::from(has_more);
        Some(Element { inline, outside: has_more.then(|| self.leaf.outside(self.outside)) })
    }
    /// Moves to a neighbouring leaf: goes up the path until `beside` returns a sibling, and then down to a
    /// leaf along `entry`.
    fn leave(
        &mut self,
        beside: impl Fn(usize, usize) -> Option<usize>,
        entry: impl Fn(&Inner) -> usize,
        at: impl Fn(&Leaf) -> usize,
    ) -> Option<()> {
        let mut node = loop {
            let (inner, child) = self.path.last_mut()?;
            if let Some(other) = beside(*child, inner.children.len()) {
                *child = other;
                break &inner.children[other].node;
            }
            self.path.pop();
        };
        loop {
            match node {
                Node::Inner(inner) => {
                    let child = entry(inner);
                    self.path.push((&**inner, child));
                    node = &inner.children[child].node;
                }
                Node::Leaf(leaf) => {
                    self.leaf = leaf;
                    self.at = at(leaf);
                    self.offset = leaf.page().offset(self.at);
                    self.outside = leaf.outside_before(self.at);
                    return Some(());
                }
            }
        }
    }
}

/// Iterator over the elements from a position on, forwards or backwards.
#[derive(Clone)]
pub(crate) struct Iter<'a> {
    cursor: Option<Cursor<'a>>,
    forwards: bool,
}

impl<'a> Iter<'a> {
    pub(super) fn new(root: Option<&'a Child>, from: usize, forwards: bool) -> Iter<'a> {
        Iter { cursor: root.map(|root| Cursor::new(root, from)), forwards }
    }
}

impl<'a> Iterator for Iter<'a> {
    type Item = Element<'a>;
    #[inline]
    fn next(&mut self) -> Option<Element<'a>> {
        let cursor = self.cursor.as_mut()?;
        // At either end of the tree the path is empty, so a step back from there would use the wrong leaf.
        let next = if self.forwards { cursor.next() } else { cursor.previous() };
        if next.is_none() {
            self.cursor = None;
        }
        next
    }
}
