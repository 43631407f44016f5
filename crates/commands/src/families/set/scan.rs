//! SSCAN, on the worker and on the lane.

use super::send;
use crate::call::{Call, LaneCall};
use crate::families::element_scan::{self, Scanned};
use crate::families::scan::{CollectedElements, ScanOptions};
use strand_keyspace::SetValue;

/// `SSCAN key cursor [MATCH pattern] [COUNT n]`. Reply: the next cursor (0 at the end) and members.
pub(crate) fn sscan(call: &mut Call<'_, '_>) {
    element_scan::scan::<SetValue>(call);
}

/// SSCAN on the lane.
pub(crate) fn sscan_long(call: &mut LaneCall<'_>) {
    element_scan::scan_long::<SetValue>(call);
}

impl Scanned for SetValue {
    fn scan_into(
        &self,
        from: u64,
        count: usize,
        options: &ScanOptions<'_>,
        found: &mut CollectedElements<'_>,
    ) -> (u64, usize) {
        let mut visited = 0;
        let next = self.scan(from, count, &mut |member| {
            visited += 1;
            if found.wants(&options.filter, member.bytes(&mut [0; 20])) {
                found.encode(|reply| send(reply, member));
            }
        });
        (next, visited)
    }
}

#[cfg(test)]
mod tests {
    use crate::fixture::Fixture;

    #[test]
    fn small_sets_come_whole_and_large_ones_in_steps() {
        let mut f = Fixture::new();
        f.script(&[
            ("SADD s 2 1 13", ":3|"),
            ("SSCAN s 0", "*2|$1|0|*3|$1|1|$1|2|$2|13|"),
            ("SSCAN s 0 MATCH 1* COUNT 1", "*2|$1|0|*2|$1|1|$2|13|"),
            ("SSCAN s x", "-ERR invalid cursor|"),
            ("SSCAN s 0 FOO", "-ERR syntax error|"),
            ("SSCAN none 0 FOO", "*2|$1|0|*0|"),
        ]);
        for n in 0..1000 {
            f.run(&format!("SADD big member:{n}"));
        }
        for long in [false, true] {
            f.all_long = long;
            let (mut cursor, mut seen, mut calls) = (String::from("0"), std::collections::BTreeSet::new(), 0);
            while calls == 0 || cursor != "0" {
                let reply = f.run(&format!("SSCAN big {cursor} COUNT 50"));
                let parts: Vec<&str> = reply.split('|').collect();
                cursor = parts[2].into();
                seen.extend(parts.iter().filter(|p| p.starts_with("member:")).map(|p| p.to_string()));
                calls += 1;
                assert!(calls <= 1000, "no end");
            }
            assert!(seen.len() == 1000 && calls > 5, "{} in {calls}", seen.len());
        }
    }
}
