//! Properties of a blob besides its bytes: sharing, growth, threads, lack of memory.

use std::collections::HashSet;
use strand_chain::{Blob, HEADER_BYTES, OutOfMemory};

#[test]
fn the_empty_blob_allocates_nothing_and_counts_nothing() {
    let mut blob = Blob::default();
    let other = blob.clone();
    assert!(blob.is_unique() && other.is_unique(), "nothing is shared that could be written");
    assert_eq!((blob.len(), blob.capacity(), blob.heap_bytes()), (0, 0, 0));
    assert_eq!(blob.make_mut(), b"");
    assert_eq!(Blob::from(&b""[..]).heap_bytes(), 0);
    blob.extend_from_slice(b"now");
    assert_eq!((&*blob, &*other), (&b"now"[..], &b""[..]));
    blob.truncate(0);
    blob.shrink_to_fit();
    assert_eq!(blob.heap_bytes(), 0);
}

#[test]
fn a_copy_has_no_spare_capacity_and_growth_is_geometric() {
    let mut blob = Blob::from("value");
    assert_eq!((blob.capacity(), blob.heap_bytes()), (5, 5 + HEADER_BYTES));
    let (mut moves, mut last, steps) = (0, 0, if cfg!(miri) { 2_000 } else { 3_000_000 });
    for _ in 0..steps {
        blob.extend_from_slice(b"x");
        if blob.capacity() != last {
            (moves, last) = (moves + 1, blob.capacity());
        }
    }
    assert!(moves < 30, "{moves} reallocations for {steps} appends");
    assert!(blob.capacity() < blob.len() * 2 + 64);
}

#[test]
fn writers_copy_shared_bytes() {
    let mut blob = Blob::from("shared");
    let other = blob.clone();
    assert!(!blob.is_unique() && blob.get_mut().is_none());
    assert_eq!(blob.as_slice().as_ptr(), other.as_slice().as_ptr());
    blob.make_mut()[0] = b'S';
    assert_eq!((&*blob, &*other), (&b"Shared"[..], &b"shared"[..]));
    assert!(blob.is_unique() && other.is_unique());
    let mut cut = other.clone();
    cut.truncate(2);
    assert_eq!((&*cut, cut.capacity(), &*other), (&b"sh"[..], 2, &b"shared"[..]));
}

#[test]
fn absurd_sizes_are_errors_and_leave_the_blob_as_it_was() {
    // Miri's allocator never fails, so use only sizes without a valid layout.
    let sizes = [usize::MAX, usize::MAX - HEADER_BYTES, isize::MAX as usize, isize::MAX as usize - 100];
    for size in sizes.into_iter().take(if cfg!(miri) { 3 } else { 4 }) {
        assert_eq!(Blob::try_with_capacity(size), Err(OutOfMemory));
        assert_eq!(Blob::try_zeroed(size), Err(OutOfMemory));
        let mut blob = Blob::from("value");
        assert_eq!(blob.try_reserve(size), Err(OutOfMemory));
        assert_eq!(blob.try_resize(size, 0), Err(OutOfMemory));
        assert_eq!(blob.try_set_capacity(size), Err(OutOfMemory));
        assert_eq!(&*blob, b"value");
    }
}

#[test]
fn handles_move_between_threads() {
    let blob = Blob::from("seen by all");
    let rounds = if cfg!(miri) { 10 } else { 10_000 };
    std::thread::scope(|scope| {
        for _ in 0..3 {
            let mut mine = blob.clone();
            scope.spawn(move || {
                for i in 0..rounds {
                    let copy = mine.clone();
                    assert_eq!(copy.len(), 11);
                    if i % 64 == 0 {
                        mine.make_mut()[0] = b's';
                    }
                }
            });
        }
    });
    assert!(blob.is_unique());
    let (send, receive) = std::sync::mpsc::channel::<Blob>();
    let last = std::thread::spawn(move || receive.iter().map(|b| b.len()).sum::<usize>());
    (0..rounds.min(100)).for_each(|_| send.send(blob.clone()).expect("the receiver runs"));
    drop((send, blob));
    assert_eq!(last.join().expect("no panic"), rounds.min(100) * 11);
}

#[test]
fn a_blob_is_a_key_and_prints_a_prefix() {
    let set: HashSet<Blob> = ["b", "a", "b"].into_iter().map(Blob::from).collect();
    assert!(set.len() == 2 && set.contains(&b"a"[..]));
    assert!(Blob::from("a") < Blob::from("b"));
    assert_eq!(format!("{:?}", Blob::from("\r\n\"")), r#"Blob(3 bytes, "\r\n\"")"#);
    assert!(format!("{:?}", Blob::from(vec![0u8; 1000])).len() < 200);
    assert_eq!(&*Blob::try_zeroed(3).expect("three bytes"), [0; 3]);
}
