//! [`SharedMap`]: an ordered map. A clone costs one pointer. A write copies the nodes on the path to the change.
//!
//! It is a B+tree whose nodes are shared by reference counts. A stream keeps its ordered data in such maps: blocks
//! of entries, pending entries, groups, consumers. Keys and values are plain Rust values. ([`crate::types::tree`]
//! does not fit, because its elements are packed byte strings.) Appends in ascending order fill every node. A node
//! that shrinks below a quarter is merged with a neighbour that has room.

use smallvec::SmallVec;
use std::borrow::Borrow;
use std::ops::Bound;
use triomphe::Arc;

/// Maximum number of pairs in a leaf, and of children in an inner node.
const NODE_MAX: usize = 64;
/// A node with fewer pairs or children than this may be merged with a neighbour.
const JOIN_BELOW: usize = NODE_MAX / 4;
/// A node with fewer is merged with a neighbour if both nodes together have at most this many pairs or children.
const JOINED_MAX: usize = NODE_MAX * 3 / 4;
/// Number of bytes of the reference count of a node.
const COUNT_BYTES: usize = 8;

/// An ordered map from `K` to `V`.
#[derive(Debug, Clone)]
pub(crate) struct SharedMap<K, V> {
    root: Option<Arc<Node<K, V>>>,
    len: usize,
    nodes: usize,
    /// Number of bytes of all nodes, including spare room.
    bytes: usize,
}

#[derive(Debug, Clone)]
enum Node<K, V> {
    Leaf(Vec<(K, V)>),
    Inner(Vec<Child<K, V>>),
}

#[derive(Debug, Clone)]
struct Child<K, V> {
    /// No key in `node` is lower. Not used in the first child: all keys below the second child's `low` are there.
    low: K,
    node: Arc<Node<K, V>>,
}

/// The sums of a map. A change of a node updates them.
struct Sums<'a> {
    nodes: &'a mut usize,
    bytes: &'a mut usize,
}

/// If a full node was split: its new right sibling, with the lowest key in it.
type Split<K, V> = Option<(K, Arc<Node<K, V>>)>;

impl<K, V> Default for SharedMap<K, V> {
    fn default() -> SharedMap<K, V> {
        SharedMap { root: None, len: 0, nodes: 0, bytes: 0 }
    }
}

impl<K: Ord + Clone, V: Clone> SharedMap<K, V> {
    /// Number of pairs in the map.
    pub(crate) fn len(&self) -> usize {
        self.len
    }
    /// Bytes of the nodes, without the memory to which keys and values point.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.bytes
    }
    /// Number of allocations for the map's nodes.
    pub(crate) fn parts(&self) -> usize {
        2 * self.nodes
    }
    /// The value of `key` in the map.
    pub(crate) fn get<Q: Ord + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        let mut node = self.root.as_deref()?;
        loop {
            match node {
                Node::Inner(children) => node = &children[child_of(children, key)].node,
                Node::Leaf(pairs) => return Some(&pairs[find(pairs, key).ok()?].1),
            }
        }
    }
    /// The value of `key`, for writing. Shared nodes on the path to it are copied first.
    pub(crate) fn get_mut<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
    {
        // Look first, because a missing key needs no copies.
        self.get(key)?;
        let mut node = unshared(self.root.as_mut()?, &mut self.bytes);
        loop {
            match node {
                Node::Inner(children) => {
                    let at = child_of(children, key);
                    node = unshared(&mut children[at].node, &mut self.bytes);
                }
                Node::Leaf(pairs) => {
                    let at = find(pairs, key).ok()?;
                    return Some(&mut pairs[at].1);
                }
            }
        }
    }
    /// Sets `key` to `value`. Returns the former value.
    pub(crate) fn insert(&mut self, key: K, value: V) -> Option<V> {
        let mut sums = Sums { nodes: &mut self.nodes, bytes: &mut self.bytes };
        let root = self.root.get_or_insert_with(|| sums.add(Node::Leaf(Vec::new())));
        let low = key.clone();
        let (former, split) = insert(root, key, value, &mut sums);
        if let Some((split_low, right)) = split {
            let left = std::mem::replace(root, right.clone());
            let children = vec![Child { low, node: left }, Child { low: split_low, node: right }];
            *root = sums.add(Node::Inner(children));
        }
        self.len += usize::from(former.is_none());
        former
    }
    /// Removes `key` from the map. Returns its value.
    pub(crate) fn remove<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        self.get(key)?;
        let mut sums = Sums { nodes: &mut self.nodes, bytes: &mut self.bytes };
        let root = self.root.as_mut()?;
        let removed = remove(root, key, &mut sums);
        self.len -= usize::from(removed.is_some());
        // Replace a root that has one child by that child. Drop an empty root.
        loop {
            let lower = match &**root {
                Node::Leaf(pairs) if pairs.is_empty() => None,
                Node::Inner(children) if children.len() == 1 => Some(children[0].node.clone()),
                _ => break,
            };
            sums.drop(root);
            match lower {
                Some(node) => *root = node,
                None => {
                    self.root = None;
                    break;
                }
            }
        }
        removed
    }
    /// The pair with the lowest key.
    pub(crate) fn first(&self) -> Option<(&K, &V)> {
        self.iter().next()
    }
    /// The pair with the highest key.
    pub(crate) fn last(&self) -> Option<(&K, &V)> {
        let mut node = self.root.as_deref()?;
        loop {
            match node {
                Node::Inner(children) => node = &children.last()?.node,
                Node::Leaf(pairs) => return pairs.last().map(|(k, v)| (k, v)),
            }
        }
    }
    /// All pairs, with ascending keys.
    pub(crate) fn iter(&self) -> Ascending<'_, K, V> {
        let mut pairs = Ascending { above: SmallVec::new(), leaf: &[] };
        if let Some(root) = &self.root {
            pairs.descend(root);
        }
        pairs
    }
    /// The pairs starting at `low`, with ascending keys.
    pub(crate) fn ascend<Q: Ord + ?Sized>(&self, low: Bound<&Q>) -> Ascending<'_, K, V>
    where
        K: Borrow<Q>,
    {
        let (Bound::Included(key) | Bound::Excluded(key)) = low else { return self.iter() };
        let mut pairs = Ascending { above: SmallVec::new(), leaf: &[] };
        let mut next = self.root.as_deref();
        while let Some(node) = next.take() {
            match node {
                Node::Inner(children) => {
                    let at = child_of(children, key);
                    pairs.above.push(&children[at + 1..]);
                    next = Some(&children[at].node);
                }
                Node::Leaf(all) => {
                    let start = match find(all, key) {
                        Ok(at) => at + usize::from(matches!(low, Bound::Excluded(_))),
                        Err(at) => at,
                    };
                    pairs.leaf = &all[start..];
                }
            }
        }
        pairs
    }
    /// The pairs starting at `high`, with descending keys.
    pub(crate) fn descend<Q: Ord + ?Sized>(&self, high: Bound<&Q>) -> Descending<'_, K, V>
    where
        K: Borrow<Q>,
    {
        let mut pairs = Descending { above: SmallVec::new(), leaf: &[] };
        let (Bound::Included(key) | Bound::Excluded(key)) = high else {
            if let Some(root) = &self.root {
                pairs.descend(root);
            }
            return pairs;
        };
        let mut next = self.root.as_deref();
        while let Some(node) = next.take() {
            match node {
                Node::Inner(children) => {
                    let at = child_of(children, key);
                    pairs.above.push(&children[..at]);
                    next = Some(&children[at].node);
                }
                Node::Leaf(all) => {
                    let end = match find(all, key) {
                        Ok(at) => at + usize::from(matches!(high, Bound::Included(_))),
                        Err(at) => at,
                    };
                    pairs.leaf = &all[..end];
                }
            }
        }
        pairs
    }
    /// Passes each pair to `take`, in ascending order of keys, but skips pairs in nodes that another map shares.
    pub(crate) fn into_each(self, take: &mut dyn FnMut(K, V)) {
        fn each<K, V>(node: Arc<Node<K, V>>, take: &mut dyn FnMut(K, V)) {
            match Arc::try_unwrap(node) {
                Ok(Node::Inner(children)) => children.into_iter().for_each(|child| each(child.node, take)),
                Ok(Node::Leaf(pairs)) => pairs.into_iter().for_each(|(key, value)| take(key, value)),
                Err(_) => {}
            }
        }
        if let Some(root) = self.root {
            each(root, take);
        }
    }
    /// Passes each leaf to `hand_out`. A node that another map shares is passed as a whole.
    pub(crate) fn into_pieces(self, hand_out: &mut dyn FnMut(Box<dyn Send>))
    where
        K: Send + Sync + 'static,
        V: Send + Sync + 'static,
    {
        fn take<K: Send + Sync + 'static, V: Send + Sync + 'static>(
            node: Arc<Node<K, V>>,
            hand_out: &mut dyn FnMut(Box<dyn Send>),
        ) {
            match Arc::try_unwrap(node) {
                Ok(Node::Inner(children)) => {
                    children.into_iter().for_each(|child| take(child.node, hand_out));
                }
                Ok(leaf) => hand_out(Box::new(leaf)),
                Err(shared) => hand_out(Box::new(shared)),
            }
        }
        if let Some(root) = self.root {
            take(root, hand_out);
        }
    }
}

impl<K, V> Node<K, V> {
    fn len(&self) -> usize {
        match self {
            Node::Leaf(pairs) => pairs.len(),
            Node::Inner(children) => children.len(),
        }
    }
    fn heap_bytes(&self) -> usize {
        let inside = match self {
            Node::Leaf(pairs) => pairs.capacity() * size_of::<(K, V)>(),
            Node::Inner(children) => children.capacity() * size_of::<Child<K, V>>(),
        };
        COUNT_BYTES + size_of::<Node<K, V>>() + inside
    }
}

impl Sums<'_> {
    fn add<K, V>(&mut self, node: Node<K, V>) -> Arc<Node<K, V>> {
        *self.nodes += 1;
        *self.bytes += node.heap_bytes();
        Arc::new(node)
    }
    fn drop<K, V>(&mut self, node: &Node<K, V>) {
        *self.nodes -= 1;
        *self.bytes -= node.heap_bytes();
    }
    /// Lets `change` write to the node, and updates the sum of bytes.
    fn change<K: Clone, V: Clone, R>(
        &mut self,
        node: &mut Arc<Node<K, V>>,
        change: impl FnOnce(&mut Node<K, V>, &mut Sums<'_>) -> R,
    ) -> R {
        let node = unshared(node, self.bytes);
        *self.bytes -= node.heap_bytes();
        let result = change(node, self);
        *self.bytes += node.heap_bytes();
        result
    }
}

/// The node, for writing. If a clone shares the node, it is copied first. A copy has no spare room.
fn unshared<'n, K: Clone, V: Clone>(node: &'n mut Arc<Node<K, V>>, bytes: &mut usize) -> &'n mut Node<K, V> {
    let before = node.heap_bytes();
    let node = Arc::make_mut(node);
    *bytes = *bytes - before + node.heap_bytes();
    node
}

/// Index of the child in which `key` would be.
fn child_of<K: Borrow<Q>, V, Q: Ord + ?Sized>(children: &[Child<K, V>], key: &Q) -> usize {
    children[1..].partition_point(|child| child.low.borrow() <= key)
}

fn find<K: Borrow<Q>, V, Q: Ord + ?Sized>(pairs: &[(K, V)], key: &Q) -> Result<usize, usize> {
    // Check the end first, because entries are usually added in ascending order.
    match pairs.last() {
        Some((last, _)) if last.borrow() < key => Err(pairs.len()),
        _ => pairs.binary_search_by(|(k, _)| k.borrow().cmp(key)),
    }
}

fn insert<K: Ord + Clone, V: Clone>(
    node: &mut Arc<Node<K, V>>,
    key: K,
    value: V,
    sums: &mut Sums<'_>,
) -> (Option<V>, Split<K, V>) {
    sums.change(node, |node, sums| match node {
        Node::Leaf(pairs) => match find(pairs, &key) {
            Ok(at) => (Some(std::mem::replace(&mut pairs[at].1, value)), None),
            Err(at) => {
                let right = put(pairs, at, (key, value));
                (None, right.map(|pairs| (pairs[0].0.clone(), sums.add(Node::Leaf(pairs)))))
            }
        },
        Node::Inner(children) => {
            let at = child_of(children, &key);
            let (former, split) = insert(&mut children[at].node, key, value, sums);
            let Some((low, node)) = split else { return (former, None) };
            let right = put(children, at + 1, Child { low, node });
            (former, right.map(|children| (children[0].low.clone(), sums.add(Node::Inner(children)))))
        }
    })
}

/// Inserts `item` at `at`. Splits a full node, and returns its upper part. At an append, the lower part stays full.
fn put<T>(items: &mut Vec<T>, at: usize, item: T) -> Option<Vec<T>> {
    if items.len() < NODE_MAX {
        items.insert(at, item);
        return None;
    }
    if at == items.len() {
        return Some(vec![item]);
    }
    let middle = items.len() / 2;
    let mut right = items.split_off(middle);
    match at.checked_sub(middle) {
        Some(at) if at > 0 => right.insert(at, item),
        _ => items.insert(at, item),
    }
    items.shrink_to(JOINED_MAX);
    Some(right)
}

/// Removes `key`, which must exist.
fn remove<K: Ord + Clone + Borrow<Q>, V: Clone, Q: Ord + ?Sized>(
    node: &mut Arc<Node<K, V>>,
    key: &Q,
    sums: &mut Sums<'_>,
) -> Option<V> {
    sums.change(node, |node, sums| match node {
        Node::Leaf(pairs) => {
            let at = find(pairs, key).ok()?;
            let (_, value) = pairs.remove(at);
            give_back(pairs);
            Some(value)
        }
        Node::Inner(children) => {
            let at = child_of(children, key);
            let removed = remove(&mut children[at].node, key, sums);
            let left = children[at].node.len();
            if left == 0 {
                let child = children.remove(at);
                sums.drop(&child.node);
            } else if left < JOIN_BELOW {
                let joins = |at: usize| children[at].node.len() + children[at + 1].node.len() <= JOINED_MAX;
                if at + 1 < children.len() && joins(at) {
                    join(children, at, sums);
                } else if at > 0 && joins(at - 1) {
                    join(children, at - 1, sums);
                }
            }
            give_back(children);
            removed
        }
    })
}

/// Merges the child at `at` and the child after it.
fn join<K: Clone, V: Clone>(children: &mut Vec<Child<K, V>>, at: usize, sums: &mut Sums<'_>) {
    let Child { low, node: right } = children.remove(at + 1);
    sums.drop(&right);
    let right = Arc::try_unwrap(right).unwrap_or_else(|shared| (*shared).clone());
    sums.change(&mut children[at].node, |left, _| match (left, right) {
        (Node::Leaf(left), Node::Leaf(right)) => left.extend(right),
        (Node::Inner(left), Node::Inner(mut right)) => {
            // The `low` of a first child is not kept up to date, but the `low` of its node is.
            right[0].low = low;
            left.extend(right);
        }
        _ => unreachable!("all leaves are equally deep"),
    });
}

/// Frees spare room after items were removed.
fn give_back<T>(items: &mut Vec<T>) {
    if items.capacity() > 8 && items.len() * 4 <= items.capacity() {
        items.shrink_to(items.len() * 2);
    }
}

/// Pairs with ascending keys.
#[derive(Debug)]
pub(crate) struct Ascending<'a, K, V> {
    /// For each inner node on the path, the children after the child on the path.
    above: SmallVec<[&'a [Child<K, V>]; 4]>,
    leaf: &'a [(K, V)],
}

impl<'a, K, V> Ascending<'a, K, V> {
    fn descend(&mut self, mut node: &'a Node<K, V>) {
        while let Node::Inner(children) = node {
            self.above.push(&children[1..]);
            node = &children[0].node;
        }
        if let Node::Leaf(pairs) = node {
            self.leaf = pairs;
        }
    }
}

impl<'a, K, V> Iterator for Ascending<'a, K, V> {
    type Item = (&'a K, &'a V);
    fn next(&mut self) -> Option<(&'a K, &'a V)> {
        while self.leaf.is_empty() {
            let (child, rest) =
                self.above.pop()?.split_first().map_or((None, &[][..]), |(c, r)| (Some(c), r));
            if let Some(child) = child {
                self.above.push(rest);
                self.descend(&child.node);
            }
        }
        let ((key, value), rest) = self.leaf.split_first()?;
        self.leaf = rest;
        Some((key, value))
    }
}

/// Pairs with descending keys.
#[derive(Debug)]
pub(crate) struct Descending<'a, K, V> {
    /// For each inner node on the path, the children before the child on the path.
    above: SmallVec<[&'a [Child<K, V>]; 4]>,
    leaf: &'a [(K, V)],
}

impl<'a, K, V> Descending<'a, K, V> {
    fn descend(&mut self, mut node: &'a Node<K, V>) {
        while let Node::Inner(children) = node {
            let Some((last, rest)) = children.split_last() else { return };
            self.above.push(rest);
            node = &last.node;
        }
        if let Node::Leaf(pairs) = node {
            self.leaf = pairs;
        }
    }
}

impl<'a, K, V> Iterator for Descending<'a, K, V> {
    type Item = (&'a K, &'a V);
    fn next(&mut self) -> Option<(&'a K, &'a V)> {
        while self.leaf.is_empty() {
            let (child, rest) = self.above.pop()?.split_last().map_or((None, &[][..]), |(c, r)| (Some(c), r));
            if let Some(child) = child {
                self.above.push(rest);
                self.descend(&child.node);
            }
        }
        let ((key, value), rest) = self.leaf.split_last()?;
        self.leaf = rest;
        Some((key, value))
    }
}

#[cfg(test)]
mod tests;
