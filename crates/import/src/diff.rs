//! The diff: a merge over the sorted offset lists of two containers.
//!
//! [`diff`] walks the recorded and the listed container side by side. It yields one [`Change`] for each name in either
//! container. It borrows from both blobs and allocates nothing, whatever their number of entries. The caller descends
//! into child containers. A child with equal tokens in both containers is unchanged, and need not be opened.

use crate::container::{Container, Entry, EntryKind};
use std::cmp::Ordering;

/// How the entry of one name differs between the old container (as recorded) and the new one (as listed).
#[derive(Clone, Copy, Debug)]
pub enum Change<'a> {
    /// Only the new container has the entry.
    Added(Entry<'a>),
    /// Only the old container has the entry. If the new container has an entry of this name but of the other kind, an
    /// `Added` follows.
    Removed(Entry<'a>),
    /// Both containers have the entry. The tokens differ, or a token is unknown.
    Updated {
        /// The recorded entry.
        old: Entry<'a>,
        /// The listed entry.
        new: Entry<'a>,
    },
    /// Both containers have the entry. The tokens are equal and the metadata differs, so the bytes need not be read.
    Metadata {
        /// The recorded entry.
        old: Entry<'a>,
        /// The listed entry.
        new: Entry<'a>,
    },
    /// Both containers have the entry, and nothing differs.
    Unchanged {
        /// The recorded entry.
        old: Entry<'a>,
        /// The listed entry.
        new: Entry<'a>,
    },
}

/// Compares two containers. Changes come in the order of names.
pub fn diff<'a>(old: Container<'a>, new: Container<'a>) -> Diff<'a> {
    Diff { old, new, old_at: 0, new_at: 0, pending: None }
}

/// The iterator of [`diff`].
#[derive(Clone, Debug)]
pub struct Diff<'a> {
    old: Container<'a>,
    new: Container<'a>,
    old_at: usize,
    new_at: usize,
    /// The new entry of a name that changed its kind: the `Removed` was returned, and the `Added` is returned next.
    pending: Option<Entry<'a>>,
}

impl<'a> Iterator for Diff<'a> {
    type Item = Change<'a>;

    fn next(&mut self) -> Option<Change<'a>> {
        if let Some(entry) = self.pending.take() {
            return Some(Change::Added(entry));
        }
        let old = (self.old_at < self.old.len()).then(|| self.old.entry(self.old_at));
        let new = (self.new_at < self.new.len()).then(|| self.new.entry(self.new_at));
        let order = match (&old, &new) {
            (Some(old), Some(new)) => old.name.cmp(new.name),
            (Some(_), None) => Ordering::Less,
            _ => Ordering::Greater,
        };
        self.old_at += usize::from(order.is_le());
        self.new_at += usize::from(order.is_ge());
        match (order, old, new) {
            (Ordering::Less, Some(old), _) => Some(Change::Removed(old)),
            (Ordering::Equal, Some(old), Some(new)) => Some(self.compare(old, new)),
            (_, _, new) => new.map(Change::Added),
        }
    }
}

impl<'a> Diff<'a> {
    fn compare(&mut self, old: Entry<'a>, new: Entry<'a>) -> Change<'a> {
        if old.kind != new.kind {
            self.pending = Some(new);
            return Change::Removed(old);
        }
        if new.token.is_empty() || old.token != new.token {
            Change::Updated { old, new }
        } else if !old.same_metadata(&new) {
            Change::Metadata { old, new }
        } else {
            Change::Unchanged { old, new }
        }
    }
}

impl<'a> Change<'a> {
    /// The new entry, or the old entry if the new container has none.
    pub fn entry(&self) -> Entry<'a> {
        match *self {
            Change::Added(entry) | Change::Removed(entry) => entry,
            Change::Updated { new, .. } | Change::Metadata { new, .. } | Change::Unchanged { new, .. } => new,
        }
    }
    /// The recorded (old) entry, if there is one.
    pub fn recorded(&self) -> Option<Entry<'a>> {
        match *self {
            Change::Added(_) => None,
            Change::Removed(old)
            | Change::Updated { old, .. }
            | Change::Metadata { old, .. }
            | Change::Unchanged { old, .. } => Some(old),
        }
    }
    /// True when the change is about a child container.
    pub fn is_container(&self) -> bool {
        self.entry().kind == EntryKind::Container
    }
    /// True when the new container does not have the entry.
    pub fn is_removed(&self) -> bool {
        matches!(self, Change::Removed(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::container::ContainerBuilder;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    /// Name to (is a container, token, metadata).
    type Model = BTreeMap<Vec<u8>, (bool, u8, u8)>;

    fn build(model: &Model) -> Vec<u8> {
        let mut builder = ContainerBuilder::new(1);
        // Backwards, so that the order of writing is not the order of names.
        for (name, (container, token, meta)) in model.iter().rev() {
            let kind = if *container { EntryKind::Container } else { EntryKind::Document };
            let token = if *token == 0 { vec![] } else { vec![*token] };
            let note = [*meta, 1];
            builder
                .push(kind, name, 5, &token, [(&b"m"[..], &[*meta][..]), (&b"~n"[..], &note[..])])
                .unwrap();
        }
        builder.finish().unwrap()
    }

    fn expected(old: &Model, new: &Model) -> Vec<String> {
        let mut names: Vec<_> = old.keys().chain(new.keys()).collect();
        names.sort();
        names.dedup();
        let mut out = Vec::new();
        for name in names {
            let verdict = match (old.get(name), new.get(name)) {
                (None, _) => "added",
                (Some(_), None) => "removed",
                (Some(o), Some(n)) if o.0 != n.0 => {
                    out.push(format!("removed {name:?}"));
                    "added"
                }
                (Some(o), Some(n)) if n.1 == 0 || o.1 != n.1 => "updated",
                (Some(o), Some(n)) if o.2 != n.2 => "metadata",
                _ => "unchanged",
            };
            out.push(format!("{verdict} {name:?}"));
        }
        out
    }

    fn found(old: &Model, new: &Model) -> Vec<String> {
        let (old, new) = (build(old), build(new));
        diff(Container::parse(&old).unwrap(), Container::parse(&new).unwrap())
            .map(|change| {
                let verdict = match change {
                    Change::Added(_) => "added",
                    Change::Removed(_) => "removed",
                    Change::Updated { .. } => "updated",
                    Change::Metadata { .. } => "metadata",
                    Change::Unchanged { .. } => "unchanged",
                };
                format!("{verdict} {:?}", change.entry().name)
            })
            .collect()
    }

    fn model() -> impl Strategy<Value = Model> {
        let name = proptest::collection::vec(1u8..5, 1..3);
        proptest::collection::btree_map(name, (any::<bool>(), 0u8..3, 0u8..2), 0..12)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]
        #[test]
        fn agrees_with_a_map(old in model(), new in model()) {
            prop_assert_eq!(found(&old, &new), expected(&old, &new));
        }
    }

    #[test]
    fn notes_are_not_compared() {
        let one = |note: &[u8]| {
            let mut builder = ContainerBuilder::new(1);
            builder.push(EntryKind::Document, b"x", 0, b"t", [(&b"~digest"[..], note)]).unwrap();
            builder.finish().unwrap()
        };
        let (old, new) = (one(b"1"), one(b"22"));
        let changes: Vec<_> =
            diff(Container::parse(&old).unwrap(), Container::parse(&new).unwrap()).collect();
        assert!(matches!(changes[..], [Change::Unchanged { .. }]));
    }
}
