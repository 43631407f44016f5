//! ZSCAN, on the worker and on the lane.

use crate::call::{Call, LaneCall};
use crate::families::collection::send;
use crate::families::element_scan::{self, Scanned};
use crate::families::scan::{CollectedElements, ScanOptions};
use strand_keyspace::{Member, ZSetValue};
use strand_wire::digits::Digits;

/// `ZSCAN key cursor [MATCH pattern] [COUNT n]`. Reply: the next cursor (0 at the end) and a flat array of members and
/// scores.
pub(crate) fn zscan(call: &mut Call<'_, '_>) {
    element_scan::scan::<ZSetValue>(call);
}

/// ZSCAN on the lane.
pub(crate) fn zscan_long(call: &mut LaneCall<'_>) {
    element_scan::scan_long::<ZSetValue>(call);
}

impl Scanned for ZSetValue {
    fn scan_into(
        &self,
        from: u64,
        count: usize,
        options: &ScanOptions<'_>,
        found: &mut CollectedElements<'_>,
    ) -> (u64, usize) {
        let (mut visited, is_packed) = (0, self.is_packed());
        let next = self.scan(from, count, &mut |member, score| {
            visited += 1;
            if found.wants(&options.filter, &member) {
                found.encode(|reply| send(reply, member));
                found.encode(|reply| match whole_number(score).filter(|_| is_packed) {
                    Some(n) => reply.bulk(Member::Int(n).bytes(&mut [0; 20])),
                    None => reply.bulk(Digits::double(score).as_slice()),
                });
            }
        });
        (next, visited)
    }
}

/// The score as redis-server keeps it in a listpack, if it is an integer there. ZSCAN shows such a score with all digits
/// (1e17 as `100000000000000000`).
fn whole_number(score: f64) -> Option<i64> {
    const MAX: f64 = (i64::MAX / 2) as f64;
    let n = score as i64;
    (score.abs() <= MAX && n as f64 == score).then_some(n)
}
