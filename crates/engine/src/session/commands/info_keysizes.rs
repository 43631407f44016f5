//! INFO keysizes, as in Redis 8: the lengths of strings and the numbers of elements of collections, in powers of two.
//!
//! No counters are kept for this section. It reads every key on demand, on a helper thread, one segment of a shard at
//! a time. So it is shown only by name, also not by "everything".

use super::info_sections::Facts;
use std::fmt::Write;
use strand_keyspace::ValueRef;

/// For each type that has a line: its name, and the name of the line. Redis has no line for streams.
const TYPES: [(&str, &str); 5] = [
    ("string", "distrib_strings_sizes"),
    ("list", "distrib_lists_items"),
    ("set", "distrib_sets_items"),
    ("zset", "distrib_zsets_items"),
    ("hash", "distrib_hashes_items"),
];
/// Number of steps of sizes: 0, 1, 2, 4 and so on.
const STEPS: usize = usize::BITS as usize + 1;

type Counts = [[u64; STEPS]; TYPES.len()];

pub(super) fn keysizes(f: &Facts<'_>, out: &mut String) {
    out.push_str("# Keysizes\r\n");
    let keyspace = &*f.engine.keyspace;
    for (db, _) in keyspace.in_use().into_iter().filter(|(_, keys)| keys.all > 0) {
        let mut counts: Counts = [[0; STEPS]; TYPES.len()];
        for shard in 0..keyspace.shards() {
            keyspace.for_each_in_shard(shard, db, f.now.unix_ms(), &mut |record| {
                let value = record.value();
                let type_name = value.type_name();
                if let Some(line) = TYPES.iter().position(|(name, _)| *name == type_name) {
                    let size = match &value {
                        ValueRef::Str(s) => s.len(),
                        collection => collection.elements(),
                    };
                    counts[line][step_of(size)] += 1;
                }
            });
            f.engine.host.yield_now();
        }
        for ((_, name), steps) in TYPES.iter().zip(&counts) {
            let shown = steps.iter().enumerate().filter(|(_, n)| **n > 0);
            let shown: Vec<String> = shown.map(|(step, n)| format!("{}={n}", label(step))).collect();
            if !shown.is_empty() {
                write!(out, "db{db}_{name}:{}\r\n", shown.join(",")).expect("a string takes everything");
            }
        }
    }
}

/// Index of the step for a size: the step of the largest power of two up to the size.
fn step_of(size: usize) -> usize {
    size.checked_ilog2().map_or(0, |power| power as usize + 1)
}

/// The smallest size of a step as a label, such as `1K`.
fn label(step: usize) -> String {
    let Some(power) = step.checked_sub(1) else { return "0".into() };
    let units = ["", "K", "M", "G", "T", "P", "E"];
    format!("{}{}", 1u64 << (power % 10), units[power / 10])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_in_the_step_that_they_reach() {
        for (size, want) in [
            (0, "0"),
            (1, "1"),
            (3, "2"),
            (4, "4"),
            (1023, "512"),
            (1024, "1K"),
            (5 << 20, "4M"),
            (usize::MAX, "8E"),
        ] {
            assert_eq!(label(step_of(size)), want, "{size}");
        }
    }
}
