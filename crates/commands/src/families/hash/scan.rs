//! HSCAN, on the worker and on the lane.

use super::send;
use crate::call::{Call, LaneCall};
use crate::families::element_scan::{self, Scanned};
use crate::families::scan::{CollectedElements, ScanOf, ScanOptions};
use strand_keyspace::HashValue;

/// `HSCAN key cursor [MATCH pattern] [COUNT n] [NOVALUES]`. Reply: the next cursor (0 at the end), and a flat array of
/// fields and values; with NOVALUES only fields.
pub(crate) fn hscan(call: &mut Call<'_, '_>) {
    element_scan::scan::<HashValue>(call);
}

/// HSCAN on the lane.
pub(crate) fn hscan_long(call: &mut LaneCall<'_>) {
    element_scan::scan_long::<HashValue>(call);
}

impl Scanned for HashValue {
    const OPTIONS: ScanOf = ScanOf::Fields;

    fn scan_into(
        &self,
        from: u64,
        count: usize,
        options: &ScanOptions<'_>,
        found: &mut CollectedElements<'_>,
    ) -> (u64, usize) {
        let mut visited = 0;
        let next = self.scan(from, count, &mut |field, value| {
            visited += 1;
            if found.wants(&options.filter, &field) {
                found.encode(|reply| send(reply, field));
                if !options.no_values {
                    found.encode(|reply| send(reply, value));
                }
            }
        });
        (next, visited)
    }
}

#[cfg(test)]
mod tests {
    use crate::fixture::Fixture;

    #[test]
    fn a_small_hash_is_scanned_whole() {
        let mut f = Fixture::new();
        f.script(&[
            ("HSET h a 1", ":1|"),
            ("HSCAN h 0", "*2|$1|0|*2|$1|a|$1|1|"),
            ("HSCAN h 0 MATCH b*", "*2|$1|0|*0|"),
            ("HSCAN h 0 COUNT 1 MATCH a", "*2|$1|0|*2|$1|a|$1|1|"),
            ("HSCAN h 0 NOVALUES", "*2|$1|0|*1|$1|a|"),
            ("HSCAN h 0 novalues COUNT 5 NOVALUES", "*2|$1|0|*1|$1|a|"),
            ("HSCAN h 0 MATCH NOVALUES", "*2|$1|0|*0|"),
            ("SADD s a", ":1|"),
            ("SSCAN s 0 NOVALUES", "-ERR NOVALUES option can only be used in HSCAN|"),
            ("SCAN 0 NOVALUES", "-ERR NOVALUES option can only be used in HSCAN|"),
            ("HSCAN none 0 FOO", "*2|$1|0|*0|"),
            ("HSCAN none x", "-ERR invalid cursor|"),
            ("HSCAN h 0 FOO", "-ERR syntax error|"),
            ("HSCAN h 0 TYPE hash", "-ERR syntax error|"),
            ("HSCAN h 0 COUNT 0", "-ERR syntax error|"),
            ("HSCAN h 0 COUNT", "-ERR syntax error|"),
            ("HSCAN h 0 COUNT x", "-ERR value is not an integer or out of range|"),
        ]);
    }

    #[test]
    fn a_large_hash_is_scanned_to_the_end() {
        for all_long in [false, true] {
            scan_to_the_end(all_long);
        }
    }

    fn scan_to_the_end(all_long: bool) {
        let mut f = Fixture::new();
        f.all_long = all_long;
        for n in 0..1000 {
            f.run(&format!("HSET h field:{n} {n}"));
        }
        let (mut cursor, mut seen, mut calls) = (String::from("0"), std::collections::BTreeSet::new(), 0);
        loop {
            let reply = f.run(&format!("HSCAN h {cursor} COUNT 50"));
            let parts: Vec<&str> = reply.split('|').collect();
            cursor = parts[2].into();
            seen.extend(parts.iter().filter(|p| p.starts_with("field:")).map(|p| p.to_string()));
            calls += 1;
            assert!(calls <= 1000, "no end");
            if cursor == "0" {
                break;
            }
        }
        assert_eq!(seen.len(), 1000);
    }

    #[test]
    fn scan_with_a_large_count_runs_in_slices() {
        let mut f = Fixture::new();
        for n in 0..5000 {
            f.run(&format!("HSET h field:{n} {n}"));
        }
        f.pauses.take();
        let reply = f.run("HSCAN h 0 COUNT 4500");
        let seen = reply.matches("|field:").count();
        assert!((4500..4600).contains(&seen) && !reply.starts_with("*2|$1|0|"), "{seen}");
        assert!(f.pauses.take() >= 4500 / 512);
        let reply = f.run("HSCAN h 0 COUNT 9223372036854775807 MATCH field:1*");
        assert!(reply.starts_with("*2|$1|0|*2222|"), "{reply:.40}");
        let reply = f.run("HSCAN h 0 NOVALUES COUNT 9223372036854775807 MATCH field:1*");
        assert!(reply.starts_with("*2|$1|0|*1111|"), "{reply:.40}");
        assert!(f.pauses.take() >= 2 * (5000 / 512));
        assert_eq!(f.run("HSCAN h 0 COUNT 5000 FOO"), "-ERR syntax error|");
        assert_eq!(f.run("HSCAN none 0 COUNT 5000 FOO"), "*2|$1|0|*0|");
    }
}
