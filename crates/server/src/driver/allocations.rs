//! The stacks of all sampled allocations since the start of the process, also of those that are freed.
//!
//! jemalloc could count them, too (`prof_accum:true`). But jemalloc then keeps the counts of each thread that has ended: 4 KB
//! for a commit of a text index, because a commit ends a thread of the search library. Here the counts of all threads are
//! one table.

use super::profiles::Stack;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// Maximum number of stacks that are counted one by one: about 1 MB, and 4 MB if all stacks are as long as jemalloc records.
/// Later stacks are counted together, as one without addresses.
const STACKS_MAX: usize = 4096;

/// For each stack, the number of sampled allocations and their bytes.
type Counts = HashMap<Box<[usize]>, [u64; 2]>;

/// A lock of the standard library, because its unlock takes no other lock. The unlock of `parking_lot` may, and this thread
/// may hold that lock while it allocates.
static COUNTS: Mutex<Option<Counts>> = Mutex::new(None);

/// Begins to count. A second call has no effect.
///
/// # Errors
/// When the allocator was started without sampling.
pub(super) fn count() -> Result<(), tikv_jemalloc_ctl::Error> {
    strand_pages::on_sample(|stack, bytes| {
        // This thread may hold the lock, because `stacks` allocates. Then this sample is not counted.
        if let Ok(mut counts) = COUNTS.try_lock() {
            note(counts.get_or_insert_default(), stack, bytes);
        }
    })
}

/// The stacks so far, each with the number of sampled allocations and their bytes.
pub(super) fn stacks() -> Vec<Stack> {
    let counts = COUNTS.lock().unwrap_or_else(PoisonError::into_inner);
    counts.iter().flatten().map(|(stack, counts)| (stack.to_vec(), *counts)).collect()
}

fn note(counts: &mut Counts, stack: &[usize], bytes: usize) {
    let is_full = counts.len() >= STACKS_MAX;
    let stack = if is_full && !counts.contains_key(stack) { &[] } else { stack };
    let [allocations, all_bytes] = match counts.get_mut(stack) {
        Some(known) => known,
        None => counts.entry(stack.into()).or_default(),
    };
    *allocations += 1;
    *all_bytes += bytes as u64;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_has_a_limit_and_loses_no_allocation() {
        let mut counts = HashMap::new();
        for round in 1..=2 {
            for address in 0..2 * STACKS_MAX {
                note(&mut counts, &[address, 7], 10);
            }
            assert_eq!(counts.len(), STACKS_MAX + 1, "round {round}");
            assert_eq!(counts[&[0, 7][..]], [round, 10 * round]);
            let others = STACKS_MAX as u64 * round;
            assert_eq!(counts[&[][..]], [others, 10 * others]);
        }
    }
}
