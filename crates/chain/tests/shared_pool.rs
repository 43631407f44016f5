//! Blocks pass from thread to thread through the list of all threads. The only test of its process, because other
//! tests' threads would take blocks out of that list.

use strand_chain::{Chain, pooled_bytes};

const BLOCK_BYTES: usize = 16 << 10;
/// Maximum size of the list of free blocks that all threads share, in bytes.
const SHARED_BYTES_MAX: usize = 16 * 32 * BLOCK_BYTES;
/// Maximum size of one thread's own list of free blocks, in bytes.
const OWN_BYTES_MAX: usize = 64 * BLOCK_BYTES;

#[test]
fn blocks_that_one_thread_frees_serve_another() {
    let (tell, told) = std::sync::mpsc::channel();
    let (end, ended) = std::sync::mpsc::channel::<()>();
    let freeing = std::thread::spawn(move || {
        let mut chain = Chain::new();
        // Append short slices, because a long slice would be a blob of its own and no block.
        while chain.len() < 2 * SHARED_BYTES_MAX {
            chain.push_slice(&[b'x'; BLOCK_BYTES / 4]);
        }
        drop(chain);
        tell.send(()).expect("the test waits");
        let _ = ended.recv();
    });
    told.recv().expect("the thread has freed its blocks");
    let pooled = pooled_bytes();
    let own = pooled - SHARED_BYTES_MAX;
    assert!(own > 0 && own <= OWN_BYTES_MAX, "the list of all threads is full, the rest is freed: {pooled}");
    let mut chain = Chain::new();
    chain.push_slice(b"a block for this thread");
    assert_eq!(pooled_bytes(), pooled - BLOCK_BYTES, "the block comes from the other thread");
    drop(chain);
    assert_eq!(pooled_bytes(), pooled);
    drop(end);
    freeing.join().expect("no panic");
    assert_eq!(pooled_bytes(), pooled - own, "the list of a thread ends with it");
}
