//! [`Leaf`]: a page of elements, with the blobs of the long elements.

use super::page::Page;
use std::ops::Range;
use strand_chain::Blob;

/// Bytes of the allocation of a leaf: the reference count, the page's pointer, the list of blobs, and the number of
/// the blobs' bytes.
const LEAF_BYTES: usize = size_of::<Leaf>() + size_of::<usize>();
/// Bytes that a blob takes in its leaf: a pointer.
const POINTER_BYTES: usize = size_of::<Blob>();

/// A borrowed view of an element.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Element<'a> {
    /// The bytes that lie in the page. For a short element, these are all of its bytes.
    pub(crate) inline: &'a [u8],
    /// The bytes after `inline`, if the element is long.
    pub(crate) outside: Option<&'a Blob>,
}

/// An element that is about to be added: its bytes are `head`, then `body`, then `outside`.
#[derive(Debug)]
pub(crate) struct NewElement<'a> {
    /// The first part of the element's inline bytes.
    pub(crate) head: &'a [u8],
    /// The second part of the element's inline bytes.
    pub(crate) body: &'a [u8],
    /// The bytes after `body`, if the element is too long for a page.
    pub(crate) outside: Option<Blob>,
}

impl<'a> NewElement<'a> {
    /// An element that fits in a page as a whole.
    pub(crate) fn inline(head: &'a [u8], body: &'a [u8]) -> NewElement<'a> {
        NewElement { head, body, outside: None }
    }
    fn bytes(&self) -> usize {
        self.head.len() + self.body.len()
    }
}

/// A page of elements.
#[derive(Clone, Debug, Default)]
pub(super) struct Leaf {
    page: Page,
    /// The blobs of the long elements, in the order of these elements.
    outside: Vec<Blob>,
    outside_bytes: usize,
}

impl Leaf {
    pub(super) fn len(&self) -> usize {
        self.page.len()
    }
    /// Number of heap bytes of the leaf.
    pub(super) fn heap_bytes(&self) -> usize {
        let pointers = self.outside.capacity() * POINTER_BYTES;
        LEAF_BYTES + self.page.heap_bytes() + pointers + self.outside_bytes
    }
    /// Number of bytes that fill the leaf. A blob counts as a pointer.
    pub(super) fn fill(&self) -> usize {
        self.page.fill() + self.outside.len() * POINTER_BYTES
    }
    /// Number of bytes that would fill the leaf with `new` in it.
    pub(super) fn fill_with(&self, new: &NewElement<'_>) -> usize {
        self.page.fill_with(new.bytes()) + (self.outside.len() + 1) * POINTER_BYTES
    }
    pub(super) fn page(&self) -> &Page {
        &self.page
    }
    /// Element `i` of the leaf.
    pub(super) fn get(&self, i: usize) -> Element<'_> {
        let (inline, has_more) = self.page.get(i);
        self.element(i, inline, has_more)
    }
    /// Number of blobs that belong to elements before element `i`.
    pub(super) fn outside_before(&self, i: usize) -> usize {
        if self.outside.is_empty() { 0 } else { self.page.outside_before(i) }
    }
    /// The outside blob with index `i`.
    pub(super) fn outside(&self, i: usize) -> &Blob {
        &self.outside[i]
    }
    /// The first index at or after `from` for which `before` is false.
    #[inline]
    pub(super) fn partition_point(&self, from: usize, before: &mut impl FnMut(Element<'_>) -> bool) -> usize {
        self.page.partition_point(from, |i, inline, has_more| before(self.element(i, inline, has_more)))
    }
    /// Inserts an element before element `i`; see [`Page::insert`].
    #[inline]
    pub(super) fn insert(&mut self, i: usize, new: NewElement<'_>, spare: usize) {
        let has_more = new.outside.is_some();
        if let Some(blob) = new.outside {
            let at = self.outside_before(i);
            self.outside_bytes += blob.heap_bytes();
            self.outside.insert(at, blob);
        }
        self.page.insert(i, [new.head, new.body], has_more, spare);
    }
    /// Replaces element `i`.
    pub(super) fn replace(&mut self, i: usize, new: NewElement<'_>, spare: usize) {
        let has_more = new.outside.is_some();
        self.remove_outside(i..i + 1);
        if let Some(blob) = new.outside {
            let at = self.outside_before(i);
            self.outside_bytes += blob.heap_bytes();
            self.outside.insert(at, blob);
        }
        self.page.replace(i, [new.head, new.body], has_more, spare);
    }
    /// Removes elements of the leaf; see [`Page::remove`].
    #[inline]
    pub(super) fn remove(&mut self, range: Range<usize>, keep_room: bool) {
        self.remove_outside(range.clone());
        self.page.remove(range, keep_room);
    }
    /// Moves the elements from `i` on to a new leaf.
    pub(super) fn split_off(&mut self, i: usize) -> Leaf {
        let outside = self.outside.split_off(self.outside_before(i));
        let outside_bytes = outside.iter().map(Blob::heap_bytes).sum();
        self.outside_bytes -= outside_bytes;
        self.outside.shrink_to_fit();
        Leaf { page: self.page.split_off(i), outside, outside_bytes }
    }
    /// Appends the elements of another leaf.
    pub(super) fn append(&mut self, other: &Leaf) {
        self.page.append(&other.page);
        self.outside.extend_from_slice(&other.outside);
        self.outside_bytes += other.outside_bytes;
    }

    #[inline]
    fn remove_outside(&mut self, range: Range<usize>) {
        if !self.outside.is_empty() {
            let range = self.outside_before(range.start)..self.outside_before(range.end);
            self.outside_bytes -= self.outside.drain(range).map(|blob| blob.heap_bytes()).sum::<usize>();
        }
    }
    #[inline]
    fn element<'a>(&'a self, i: usize, inline: &'a [u8], has_more: bool) -> Element<'a> {
        Element { inline, outside: has_more.then(|| &self.outside[self.outside_before(i)]) }
    }
}
