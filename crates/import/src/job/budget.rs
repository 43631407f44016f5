//! The deletion budget: a source that has lost most of its documents is asked about before anything is removed.
//!
//! A mount that is not there looks like an empty folder. So a run that has a record to compare with first walks over the
//! listings alone, counts what would be removed of what is held, and stops when that is more than [`MaxDelete`] allows.

use super::{Job, Level, join, view};
use crate::ImportError;
use crate::container::{Container, Kind};
use crate::diff::{Change, diff};
use crate::versions::{self, DIGEST_NOTE, INNER_NOTE};

/// So few documents may always be removed.
pub const DELETES_ALWAYS_ALLOWED: u64 = 100;

/// How much of a dataset one run may remove.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MaxDelete {
    /// So many documents.
    Documents(u64),
    /// So many hundredths of the documents that are held; up to [`DELETES_ALWAYS_ALLOWED`] documents in any case.
    Percent(u8),
}

impl Default for MaxDelete {
    fn default() -> MaxDelete {
        MaxDelete::Percent(20)
    }
}

impl std::str::FromStr for MaxDelete {
    type Err = String;
    fn from_str(text: &str) -> Result<MaxDelete, String> {
        let expected = || "a number of documents, or 0% to 100%".to_owned();
        match text.strip_suffix('%') {
            Some(number) => match number.parse() {
                Ok(percent @ 0..=100) => Ok(MaxDelete::Percent(percent)),
                _ => Err(expected()),
            },
            None => text.parse().map(MaxDelete::Documents).map_err(|_| expected()),
        }
    }
}

/// What a run would do to the documents that are held.
#[derive(Clone, Copy, Debug, Default)]
struct Plan {
    held: u64,
    removed: u64,
}

impl MaxDelete {
    fn allows(self, plan: Plan) -> bool {
        match self {
            MaxDelete::Documents(most) => plan.removed <= most,
            MaxDelete::Percent(percent) => {
                let share = u128::from(plan.held) * u128::from(percent);
                plan.removed <= DELETES_ALWAYS_ALLOWED || u128::from(plan.removed) * 100 <= share
            }
        }
    }
}

impl Job<'_> {
    /// Stops a run that would remove more than it may. `old` and `new` are the root's.
    pub(super) fn check_deletions(
        &mut self,
        old: Container<'_>,
        new: Container<'_>,
        below: Level,
    ) -> Result<(), ImportError> {
        let max = self.options.max_delete;
        if max == MaxDelete::Percent(100) {
            return Ok(());
        }
        let mut plan = Plan::default();
        self.plan(&[], old, new, below, &mut plan)?;
        match max.allows(plan) {
            true => Ok(()),
            false => Err(ImportError::TooManyDeletions { removed: plan.removed, held: plan.held }),
        }
    }

    /// Adds what would become of the container's documents, and of those below.
    fn plan(
        &mut self,
        path: &[u8],
        old: Container<'_>,
        new: Container<'_>,
        below: Level,
        plan: &mut Plan,
    ) -> Result<(), ImportError> {
        for change in diff(old, new) {
            let Some(recorded) = change.recorded() else { continue };
            let removed = matches!(change, Change::Removed(_));
            if recorded.kind == Kind::Document {
                let inner = recorded.get(INNER_NOTE).map_or(0, |note| super::nested::counts(note).0);
                let held = inner + u64::from(recorded.get(DIGEST_NOTE).is_some());
                plan.held += held;
                plan.removed += if removed { held } else { 0 };
                continue;
            }
            // A tree that is unchanged: how many documents it holds the root says.
            if matches!(change, Change::Unchanged { .. }) && !recorded.token.is_empty() {
                plan.held += recorded.size;
                continue;
            }
            let child = join(path, recorded.name);
            let Some(known) = self.recorded(&child, recorded.token)? else { continue };
            let deeper = below.below(&child, known.len())?;
            if deeper.depth > super::DEPTH_MAX {
                continue;
            }
            // What cannot be listed is not removed either.
            let listed = match removed {
                true => None,
                false => match self.source.list(self.within.path(&child), false) {
                    Ok(listing) => Some(listing.blob),
                    Err(_) => continue,
                },
            };
            let nothing = crate::container::Builder::new(0).finish().expect("nothing in it");
            self.plan(&child, view(&known), view(listed.as_ref().unwrap_or(&nothing)), deeper, plan)?;
        }
        Ok(())
    }

    /// The record of a container, or the tree that its parent's record names; `None` where nothing is known.
    fn recorded(&mut self, path: &[u8], token: &[u8]) -> Result<Option<Vec<u8>>, ImportError> {
        let recorded = versions::recorded(&mut self.sender.connection, &self.options.into, path)?;
        if recorded.is_some() || token.len() <= size_of::<crate::container::Digest>() {
            return Ok(recorded);
        }
        self.source.recall(token, 0).map_err(ImportError::List)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budgets_are_read_and_kept() {
        assert_eq!("20%".parse(), Ok(MaxDelete::default()));
        assert_eq!("0".parse(), Ok(MaxDelete::Documents(0)));
        for bad in ["", "x", "101%", "-1", "1.5%"] {
            assert!(bad.parse::<MaxDelete>().is_err(), "{bad:?}");
        }
        let plan = |held, removed| Plan { held, removed };
        assert!(
            MaxDelete::Percent(20).allows(plan(1000, 200)) && !MaxDelete::Percent(20).allows(plan(1000, 201))
        );
        assert!(
            MaxDelete::Percent(0).allows(plan(100, 100)) && !MaxDelete::Percent(0).allows(plan(101, 101))
        );
        assert!(MaxDelete::Documents(3).allows(plan(9, 3)) && !MaxDelete::Documents(3).allows(plan(9, 4)));
    }
}
