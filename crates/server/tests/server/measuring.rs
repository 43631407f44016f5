//! Runs `make cliffs` at a thousandth of its size, to check that it still measures.

use crate::harness::STRAND;
use strand_bench::cliffs::{self, Options};

#[test]
fn an_event_is_measured_on_both_servers() {
    let row = "9 KEYS *";
    let options = Options { strand: STRAND.into(), only: Some(row.into()), scale: 0.001 };
    let [costs, stalls, creep] = cliffs::run(&options).expect("both servers start");
    assert!(costs.is_empty() && creep.is_empty());
    let json = stalls.json();
    for figure in ["strand_p99.9_us", "strand_event_ms", "redis_max_us", "redis_probes"] {
        assert!(json.contains(figure), "no {figure} in {json}");
    }
}

#[test]
fn the_creep_test_is_measured() {
    let options = Options { strand: STRAND.into(), only: Some("creep T4".into()), scale: 0.001 };
    let [costs, stalls, creep] = cliffs::run(&options).expect("the server starts");
    assert!(costs.is_empty() && stalls.is_empty());
    let json = creep.json();
    assert!(json.contains("100 times") && json.contains("\"strand_passes\":1"), "{json}");
}
