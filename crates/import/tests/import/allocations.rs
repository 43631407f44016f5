//! Promise 4: comparing two containers of 10,000 entries allocates four times at most, whatever is in them. A run that
//! finds nothing new allocates a few times for each file.

use crate::fake::{Fake, counts};
use crate::files::Tree;
use strand_import::container::{Container, ContainerBuilder, EntryKind};
use strand_import::diff::{Change, diff};

const ENTRIES: usize = 10_000;
/// The maximum number of allocations for building both containers and comparing them.
const ALLOCATIONS_MAX: u64 = 4;

/// Builds one container. The name and the values of entry `i` are written into `text`, so that only the container
/// allocates.
fn build(updated: usize) -> Vec<u8> {
    let mut builder = ContainerBuilder::with_capacity(1, ENTRIES, ENTRIES * 160);
    let mut text = *b"message-00000000.eml";
    for i in 0..ENTRIES {
        let i = (i * 7919) % ENTRIES;
        let mut digits = i + updated.min(1) * usize::from(i.is_multiple_of(100)) * 1_000_000;
        for at in (8..16).rev() {
            text[at] = b'0' + (digits % 10) as u8;
            digits /= 10;
        }
        let token = [(i % 251) as u8 ^ u8::from(i < updated); 32];
        let value = &text[8..16];
        let pairs: [(&[u8], &[u8]); 5] = [
            (b"owner", value),
            (b"group", value),
            (b"mode", b"0644"),
            (b"type", value),
            (b"~digest", &token[..16]),
        ];
        builder.push(EntryKind::Document, &text, i as u64, &token, pairs).expect("within the limits");
    }
    builder.finish().expect("names differ")
}

#[test]
fn ten_thousand_entries_a_side_with_five_pairs_each() {
    let mut verdicts = [0usize; 4];
    let mut whole = || {
        let (old, new) = (build(0), build(50));
        let compared = allocation_counter::measure(|| {
            let (old, new) = (Container::parse(&old).expect("built"), Container::parse(&new).expect("built"));
            for change in diff(old, new) {
                let at = match change {
                    Change::Added(_) => 0,
                    Change::Removed(_) => 1,
                    Change::Updated { .. } | Change::Metadata { .. } => 2,
                    Change::Unchanged { .. } => 3,
                };
                verdicts[at] += 1;
            }
        });
        assert_eq!(compared.count_total, 0, "checking and comparing allocates nothing");
    };
    let info = allocation_counter::measure(&mut whole);
    println!("{} allocations for building and comparing, {} bytes", info.count_total, info.bytes_total);
    assert!(info.count_total <= ALLOCATIONS_MAX, "{} allocations", info.count_total);
    // 100 names differ. One of the first 50 tokens belongs to such a name.
    assert_eq!(verdicts, [100, 100, 49, 9851]);
}

#[test]
fn an_unchanged_folder_costs_few_allocations_per_file() {
    const FILES: u64 = 2_000;
    // Measured: 10 allocations per file.
    const PER_FILE_MAX: u64 = 12;
    let (tree, fake) = (Tree::new(&[]), Fake::start());
    (0..FILES).for_each(|i| tree.write(&format!("{:02}/{i:06}.bin", i / 100), i.to_le_bytes()));
    assert_eq!(counts(&fake.import(tree.path())).0[0], FILES);
    let mut unchanged = 0;
    // The counter counts the allocations of this thread only. The run uses this thread, and the server another one.
    let info = allocation_counter::measure(|| unchanged = fake.import(tree.path()).unchanged);
    println!("{} allocations for {FILES} unchanged files", info.count_total);
    assert_eq!(unchanged, FILES);
    assert!(info.count_total <= FILES * PER_FILE_MAX, "{} allocations", info.count_total);
}
