//! What KEYS, SCAN, HSCAN, SSCAN and ZSCAN share: the options ([`ScanOptions`]), the cursor, the [`Filter`] of MATCH,
//! and the reply ([`CollectedElements`]).
//!
//! While a shard is locked, matching a pattern takes at most as long as looking up the keys. A match that takes longer
//! is done on the lane, while no shard is locked.

use crate::parse;
use crate::{errors, glob};
use strand_chain::Chain;
use strand_keyspace::RecordRef;
use strand_keyspace::types::Bytes;
use strand_wire::args::Args;
use strand_wire::reply::{Protocol, Reply};

/// The default of the option COUNT.
const SCAN_COUNT: usize = 10;

/// The options of SCAN and HSCAN.
#[derive(Debug)]
pub(super) struct ScanOptions<'a> {
    /// The pattern of the option MATCH.
    pub(super) filter: Filter<'a>,
    /// The number of the option COUNT. A call with a large COUNT runs on the lane.
    pub(super) count: usize,
    /// The type of the option TYPE, which only SCAN has.
    pub(super) type_name: Option<&'a [u8]>,
    /// True when the option NOVALUES was given, which only HSCAN has.
    pub(super) no_values: bool,
}

/// The command that the options belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ScanOf {
    /// SCAN: TYPE is allowed.
    Keys,
    /// HSCAN: NOVALUES is allowed.
    Fields,
    /// SSCAN and ZSCAN, which have neither TYPE nor NOVALUES.
    Members,
}

const NO_VALUES_ELSEWHERE: &str = "ERR NOVALUES option can only be used in HSCAN";

impl<'a> ScanOptions<'a> {
    /// Reads the options after the cursor. The last of a repeated option counts.
    pub(super) fn parse(args: Args<'a>, of: ScanOf) -> Result<ScanOptions<'a>, &'static str> {
        let mut options =
            ScanOptions { filter: Filter(None), count: SCAN_COUNT, type_name: None, no_values: false };
        let mut at = 0;
        while at < args.len() {
            if args.is(at, "NOVALUES") {
                if of != ScanOf::Fields {
                    return Err(NO_VALUES_ELSEWHERE);
                }
                options.no_values = true;
                at += 1;
                continue;
            }
            let Some(value) = args.get(at + 1) else { return Err(errors::SYNTAX) };
            if args.is(at, "COUNT") {
                let count = parse::integer(value)?;
                if count < 1 {
                    return Err(errors::SYNTAX);
                }
                options.count = usize::try_from(count).unwrap_or(usize::MAX);
            } else if args.is(at, "MATCH") {
                options.filter = Filter::new(value);
            } else if of == ScanOf::Keys && args.is(at, "TYPE") {
                options.type_name = Some(value);
            } else {
                return Err(errors::SYNTAX);
            }
            at += 2;
        }
        Ok(options)
    }
    /// True when TYPE is not given, or names the type of this record.
    pub(super) fn is_of_type(&self, record: &RecordRef<'_>) -> bool {
        let of_type = |name: &[u8]| name.eq_ignore_ascii_case(record.value().type_name().as_bytes());
        self.type_name.is_none_or(of_type)
    }
}

/// Pattern elements that a call may try while a shard is locked. Each visited key or field adds the number below,
/// which takes as long as looking it up. A match that needs more is done on the lane, while no shard is locked.
pub(super) const STEPS_PER_CALL: usize = 1024;
const STEPS_PER_ELEMENT: usize = 32;
/// A pattern with more bytes is never matched while a shard is locked.
pub(super) const PATTERN_BYTES_LOCKED_MAX: usize = 4096;
/// Pattern elements tried between two pauses of a long match: about 100 us.
const STEPS_PER_PAUSE: usize = 32 * 1024;

/// A glob pattern that texts must match. `None`: every text passes.
#[derive(Debug)]
pub(super) struct Filter<'a>(Option<glob::Pattern<'a>>);

impl<'a> Filter<'a> {
    /// The pattern `*` alone counts as none, so that it passes the empty key, which the matcher would refuse.
    pub(super) fn new(pattern: &'a [u8]) -> Filter<'a> {
        Filter((pattern != b"*").then(|| glob::Pattern::new(pattern, false)))
    }
    /// The pattern: `*` when every text passes.
    pub(super) fn pattern(&self) -> &'a [u8] {
        self.0.as_ref().map_or(b"*", glob::Pattern::bytes)
    }
    /// True when `text` passes the filter. `None` when this needs more steps than are left.
    pub(super) fn passes_within(&self, text: &[u8], steps_left: &mut usize) -> Option<bool> {
        let Some(pattern) = &self.0 else { return Some(true) };
        if pattern.bytes().len() > PATTERN_BYTES_LOCKED_MAX {
            return None;
        }
        *steps_left += STEPS_PER_ELEMENT;
        pattern.matches_counted(text, |steps| {
            let is_enough = steps <= *steps_left;
            *steps_left = steps_left.saturating_sub(steps);
            is_enough
        })
    }
    /// True when `text` passes the filter. Calls `may_continue` now and then. `None` when `may_continue` returns false.
    pub(super) fn passes_in_slices(&self, text: &[u8], may_continue: &dyn Fn() -> bool) -> Option<bool> {
        let Some(pattern) = &self.0 else { return Some(true) };
        let mut tried = 0;
        pattern.matches_counted(text, |steps| {
            tried += steps;
            if tried < STEPS_PER_PAUSE {
                return true;
            }
            tried = 0;
            may_continue()
        })
    }
}

/// How long a match may take.
enum MatchBudget<'a> {
    /// This number of steps is left. When a match needs more, the call ends.
    Within(usize),
    /// A match runs to its end, unless this function returns false. It is called now and then.
    Interruptible(&'a dyn Fn() -> bool),
}

/// Encoded elements of a reply. They are collected first, because their number comes before them in the reply.
pub(super) struct CollectedElements<'a> {
    encoded: Chain,
    protocol: Protocol,
    /// Maximum number of bytes of the reply: see [`Reply::bounded`].
    bytes_max: usize,
    count: usize,
    budget: MatchBudget<'a>,
    /// True when a match was stopped, so that elements are missing.
    is_match_stopped: bool,
}

impl<'a> CollectedElements<'a> {
    /// Elements for `reply`. On a worker ([`Reply::counts_copies`]), a match that takes long is stopped, and the call
    /// runs again on the lane. Otherwise every match runs to its end.
    pub(super) fn new(reply: &Reply<'_>) -> CollectedElements<'a> {
        let budget = match reply.counts_copies() {
            true => MatchBudget::Within(STEPS_PER_CALL),
            false => MatchBudget::Interruptible(&|| true),
        };
        CollectedElements {
            encoded: Chain::new(),
            protocol: reply.protocol(),
            bytes_max: reply.room_left(),
            count: 0,
            budget,
            is_match_stopped: false,
        }
    }
    /// Elements for `reply`, of a call that holds no shard. A match that takes long calls `may_continue` now and then.
    pub(super) fn interruptible(
        reply: &Reply<'_>,
        may_continue: &'a dyn Fn() -> bool,
    ) -> CollectedElements<'a> {
        CollectedElements {
            budget: MatchBudget::Interruptible(may_continue),
            ..CollectedElements::new(reply)
        }
    }
    /// True when `text` passes `filter` and no match was stopped.
    pub(super) fn wants(&mut self, filter: &Filter<'_>, text: &[u8]) -> bool {
        if self.is_match_stopped {
            return false;
        }
        let passes = match &mut self.budget {
            MatchBudget::Within(steps_left) => filter.passes_within(text, steps_left),
            MatchBudget::Interruptible(may_continue) => filter.passes_in_slices(text, may_continue),
        };
        self.is_match_stopped = passes.is_none();
        passes == Some(true)
    }
    /// Encodes one element.
    pub(super) fn encode(&mut self, write: impl FnOnce(&mut Reply<'_>)) {
        write(&mut Reply::bounded(&mut self.encoded, self.protocol, self.bytes_max));
        self.count += 1;
    }
    /// Encodes one element. If it is a blob, the reply may share it.
    pub(super) fn encode_bytes(&mut self, bytes: Bytes<'_>) {
        self.encode(|reply| match bytes {
            Bytes::Slice(bytes) => reply.bulk(bytes),
            Bytes::Shared(blob) => reply.bulk_blob(blob),
        });
    }
    /// True when elements are missing: the reply exceeds the client's output limit, or a match was stopped.
    pub(super) fn is_over(&self) -> bool {
        self.encoded.len() > self.bytes_max || self.is_match_stopped
    }
    /// Writes the elements as an array.
    pub(super) fn send_array(self, reply: &mut Reply<'_>) {
        reply.array(self.count);
        reply.raw(self.encoded);
    }
    /// Writes the reply of a scan: the next cursor and the elements.
    pub(super) fn send(self, reply: &mut Reply<'_>, next: u64) {
        if self.is_match_stopped && reply.counts_copies() {
            return reply.give_up();
        }
        reply.array(2);
        reply.bulk(next.to_string().as_bytes());
        self.send_array(reply);
    }
}

/// Parses a cursor as C's `strtoul` does: a minus sign wraps around, no text is 0, a zero byte ends the number.
pub(super) fn cursor(bytes: &[u8]) -> Result<u64, &'static str> {
    let (negative, digits) = match errors::c_text(bytes) {
        [] => return Ok(0),
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        rest => (false, rest),
    };
    if digits.is_empty() {
        return Err(errors::INVALID_CURSOR);
    }
    let add = |n: u64, d: &u8| {
        if !d.is_ascii_digit() {
            return None;
        }
        n.checked_mul(10)?.checked_add(u64::from(d - b'0'))
    };
    let n = digits.iter().try_fold(0, add).ok_or(errors::INVALID_CURSOR)?;
    Ok(if negative { n.wrapping_neg() } else { n })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn match_ends_at_the_step_budget_or_when_the_client_left() {
        let (hard, text) = (format!("*{}b*", "a".repeat(100)), vec![b'a'; 50_000]);
        let filter = Filter::new(hard.as_bytes());
        let mut steps_left = 10_000;
        assert_eq!(filter.passes_within(&text, &mut steps_left), None);
        assert_eq!((steps_left, filter.passes_within(b"b", &mut 0)), (0, Some(false)));
        let asked = std::cell::Cell::new(0);
        let may_continue = || {
            asked.set(asked.get() + 1);
            asked.get() < 3
        };
        assert_eq!(filter.passes_in_slices(&text, &may_continue), None);
        assert_eq!(asked.get(), 3);

        let mut out = Chain::new();
        let mut reply = Reply::new(&mut out, Protocol::Resp2).copying(1000);
        let mut found = CollectedElements::new(&reply);
        assert!(!found.wants(&filter, &text) && !found.wants(&Filter::new(b"x*"), b"xy"), "it is over");
        found.send(&mut reply, 0);
        assert!(reply.exceeds_limit());
    }

    #[test]
    fn cursors_as_strtoul_reads_them() {
        let ok: &[(&[u8], u64)] = &[
            (b"", 0),
            (b"0", 0),
            (b"007", 7),
            (b"+1", 1),
            (b"-1", u64::MAX),
            (b"5\0x", 5),
            (b"18446744073709551615", u64::MAX),
        ];
        for (text, want) in ok {
            assert_eq!(cursor(text), Ok(*want), "{text:?}");
        }
        for text in ["x", "-", "+", " 1", "1 ", "1x", "0x1", "+-1", "18446744073709551616"] {
            assert_eq!(cursor(text.as_bytes()), Err(errors::INVALID_CURSOR), "{text:?}");
        }
    }
}
