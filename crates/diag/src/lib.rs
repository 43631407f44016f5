//! Counting: counters and clocks that everyone uses, so this crate depends on nothing of ours.
//!
//! **Invariant:** depends on no crate of ours; reads no data; a scrape costs the same however much data there is.
