//! [`Effects`]: the effects of one transaction, as commands in RESP, in the order of the changes.
//!
//! The commands are deterministic, because they name results: an absolute time instead of a duration, the chosen
//! element instead of a random choice.

use super::Removal;
use strand_chain::{Blob, Chain};

/// Minimum length of an argument that is shared instead of copied.
const SHARED_BYTES_MIN: usize = 4096;
const MULTI: &[u8] = b"*1\r\n$5\r\nMULTI\r\n";
const EXEC: &[u8] = b"*1\r\n$4\r\nEXEC\r\n";

/// An argument of an effect.
#[derive(Clone, Copy, Debug)]
pub enum Arg<'a> {
    /// Bytes that are copied into the effect.
    Bytes(&'a [u8]),
    /// A blob, which is shared if it is large and copied otherwise.
    Blob(&'a Blob),
}

impl<'a> From<&'a [u8]> for Arg<'a> {
    fn from(bytes: &'a [u8]) -> Arg<'a> {
        Arg::Bytes(bytes)
    }
}
impl<'a, const N: usize> From<&'a [u8; N]> for Arg<'a> {
    fn from(bytes: &'a [u8; N]) -> Arg<'a> {
        Arg::Bytes(bytes)
    }
}

impl Arg<'_> {
    fn len(&self) -> usize {
        match self {
            Arg::Bytes(bytes) => bytes.len(),
            Arg::Blob(blob) => blob.len(),
        }
    }
}

/// The arguments of a command as the client has sent them.
#[derive(Clone, Copy, Debug)]
pub enum SentArgs<'a, I> {
    /// The number of arguments, and all arguments encoded in RESP, each with its header.
    Encoded(usize, &'a [u8]),
    /// The arguments of the effect, one by one.
    Args(I),
}

/// Encoded commands. Large arguments are not in `bytes` but in `blobs`.
#[derive(Debug, Default)]
pub(crate) struct Encoded {
    pub(crate) bytes: Vec<u8>,
    /// Large arguments, each with the index in `bytes` before which it belongs. The indices ascend.
    pub(crate) blobs: Vec<(usize, Blob)>,
    blob_bytes: usize,
}

impl Encoded {
    pub(crate) fn len(&self) -> usize {
        self.bytes.len() + self.blob_bytes
    }
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.blobs.clear();
        self.blob_bytes = 0;
    }
    /// Moves all encoded commands to the end of `out`, and keeps the allocations of this buffer.
    pub(crate) fn move_to(&mut self, out: &mut Chain) {
        let mut at = 0;
        for (place, blob) in self.blobs.drain(..) {
            out.push_slice(&self.bytes[at..place]);
            out.push_blob(blob);
            at = place;
        }
        out.push_slice(&self.bytes[at..]);
        self.clear();
    }
    #[inline]
    fn header(&mut self, mark: u8, n: usize) {
        let digit = |n: usize| b'0' + (n % 10) as u8;
        match n {
            0..10 => self.bytes.extend_from_slice(&[mark, digit(n), b'\r', b'\n']),
            10..100 => self.bytes.extend_from_slice(&[mark, digit(n / 10), digit(n), b'\r', b'\n']),
            100..1000 => {
                self.bytes.extend_from_slice(&[mark, digit(n / 100), digit(n / 10), digit(n), b'\r', b'\n']);
            }
            _ => self.long_header(mark, n),
        }
    }
    #[cold]
    fn long_header(&mut self, mark: u8, n: usize) {
        let mut digits = [0; 20];
        let mut at = digits.len();
        let mut left = n;
        loop {
            at -= 1;
            digits[at] = b'0' + (left % 10) as u8;
            left /= 10;
            if left == 0 {
                break;
            }
        }
        self.bytes.push(mark);
        self.bytes.extend_from_slice(&digits[at..]);
        self.bytes.extend_from_slice(b"\r\n");
    }
    pub(super) fn command<'a>(&mut self, args: impl ExactSizeIterator<Item = Arg<'a>>) {
        self.header(b'*', args.len());
        for arg in args {
            self.header(b'$', arg.len());
            match arg {
                Arg::Blob(blob) if blob.len() >= SHARED_BYTES_MIN => {
                    self.blobs.push((self.bytes.len(), blob.clone()));
                    self.blob_bytes += blob.len();
                }
                Arg::Blob(blob) => self.bytes.extend_from_slice(blob),
                Arg::Bytes(bytes) => self.bytes.extend_from_slice(bytes),
            }
            self.bytes.extend_from_slice(b"\r\n");
        }
    }
    fn sent<'a>(&mut self, sent: SentArgs<'a, impl ExactSizeIterator<Item = Arg<'a>>>) {
        match sent {
            SentArgs::Args(args) => self.command(args),
            SentArgs::Encoded(args, bytes) => {
                self.header(b'*', args);
                self.bytes.extend_from_slice(bytes);
            }
        }
    }
    fn truncate(&mut self, bytes: usize, blobs: usize) {
        self.bytes.truncate(bytes);
        self.blob_bytes -= self.blobs.drain(blobs..).map(|(_, blob)| blob.len()).sum::<usize>();
    }
}

/// The effects of a transaction so far.
#[derive(Debug, Default)]
pub(crate) struct Effects {
    pub(crate) encoded: Encoded,
    /// Commands that follow the effects and that only replicas get.
    pub(super) for_replicas: Encoded,
    /// The databases of the first and of the last recorded command. The stream selects the first one before the effects
    /// if another one is selected there.
    first_db: usize,
    db: usize,
    commands: usize,
    /// Number of changes of the current command for which no effect is recorded yet.
    changes: u64,
    /// True when the current command names its own effects.
    names_own_effects: bool,
    /// True when the recorded commands are independent of each other, so that they need no MULTI.
    are_independent: bool,
    /// Arguments of all calls of [`Effects::record_removal`]. When a command is undone, these effects are recorded
    /// again.
    removals: Vec<Removed>,
}

/// What expiry or eviction has removed, of which key.
#[derive(Debug)]
struct Removed {
    db: usize,
    key: Vec<u8>,
    removal: Removal,
}

/// A position between two recorded effects.
#[derive(Clone, Copy, Debug, Default)]
pub struct EffectsMark {
    bytes: usize,
    blobs: usize,
    db: usize,
    commands: usize,
    removals: usize,
}

impl Effects {
    /// Begins a command.
    pub(crate) fn begin(&mut self) {
        debug_assert_eq!(self.changes, 0, "a change without an effect, before this command");
        self.changes = 0;
        self.names_own_effects = false;
    }
    /// Notes that the current command changed something.
    #[inline]
    pub(crate) fn changed(&mut self) {
        self.changes += 1;
    }
    /// Ends the current command. If it changed something and named no effect, the command as the client sent it is
    /// recorded.
    #[inline]
    pub(crate) fn end<'a, I>(&mut self, db: usize, sent: impl FnOnce() -> SentArgs<'a, I>)
    where
        I: ExactSizeIterator<Item = Arg<'a>>,
    {
        if self.changes > 0 && !self.names_own_effects {
            self.add_sent(db, sent());
        }
        self.changes = 0;
    }
    /// Declares that the current command names its own effects by [`Effects::record_own`]. Its changes so far need no
    /// effect.
    pub(crate) fn begin_own(&mut self) {
        self.names_own_effects = true;
        self.changes = 0;
    }
    /// Records an effect that the current command names. Then the command as the client sent it is not recorded.
    pub(crate) fn record_own<'a>(&mut self, db: usize, args: impl ExactSizeIterator<Item = Arg<'a>>) {
        self.begin_own();
        self.add(db, args);
    }
    /// Records an effect that does not belong to the current command, such as the expiry of a key.
    pub(crate) fn add<'a>(&mut self, db: usize, args: impl ExactSizeIterator<Item = Arg<'a>>) {
        self.add_sent(db, SentArgs::Args(args));
    }
    #[inline]
    fn add_sent<'a>(&mut self, db: usize, sent: SentArgs<'a, impl ExactSizeIterator<Item = Arg<'a>>>) {
        self.select(db);
        self.encoded.sent(sent);
        self.commands += 1;
    }
    /// Records what expiry or eviction has removed of a key. The effect stays when the command that found the expiry is
    /// undone.
    pub(crate) fn record_removal(&mut self, db: usize, key: &[u8], removal: &Removal) {
        self.removals.push(Removed { db, key: key.to_vec(), removal: removal.clone() });
        self.add_removal(db, key, removal);
    }
    /// Records what expiry has removed of a key whose former record comes back when the command is undone.
    pub(crate) fn add_removal(&mut self, db: usize, key: &[u8], removal: &Removal) {
        self.select(db);
        removal.encode(key, &mut self.encoded);
        self.commands += 1;
    }
    /// Adds a command that changes nothing and that only replicas get. Replicas run it after the effects.
    pub(crate) fn add_for_replicas<'a>(&mut self, args: impl ExactSizeIterator<Item = Arg<'a>>) {
        self.for_replicas.command(args);
    }
    /// Declares that the recorded commands are independent of each other.
    pub(crate) fn mark_independent(&mut self) {
        self.are_independent = true;
    }
    pub(crate) fn mark(&self) -> EffectsMark {
        let (bytes, blobs) = (self.encoded.bytes.len(), self.encoded.blobs.len());
        EffectsMark { bytes, blobs, db: self.db, commands: self.commands, removals: self.removals.len() }
    }
    /// Drops the effects of commands after `mark`, because the commands were undone. The effects of
    /// [`Effects::record_removal`] stay.
    pub(crate) fn forget_since(&mut self, mark: EffectsMark) {
        let EffectsMark { bytes, blobs, db, commands, removals } = mark;
        self.encoded.truncate(bytes, blobs);
        (self.db, self.commands, self.changes) = (db, commands, 0);
        for Removed { db, key, removal } in self.removals.split_off(removals) {
            self.record_removal(db, &key, &removal);
        }
    }
    /// Ends the effects of a transaction. Returns false when there is nothing for the journal.
    pub(crate) fn close(&self) -> bool {
        debug_assert_eq!(self.changes, 0, "a change without an effect, at the end of a transaction");
        self.commands > 0 || self.for_replicas.len() > 0
    }
    /// The databases of the first and of the last command. `None` when there is no command.
    pub(crate) fn databases(&self) -> Option<(usize, usize)> {
        (self.commands > 0).then_some((self.first_db, self.db))
    }
    fn is_wrapped(&self) -> bool {
        self.commands > 1 && !self.are_independent
    }
    /// True when no effect is recorded yet.
    pub(crate) fn is_empty(&self) -> bool {
        self.encoded.len() == 0 && self.removals.is_empty()
    }
    /// Bytes that the effects take in the journal, without the command that selects their first database and without the
    /// commands for replicas.
    pub(crate) fn len(&self) -> usize {
        self.encoded.len() + if self.is_wrapped() { MULTI.len() + EXEC.len() } else { 0 }
    }
    /// Moves the effects to the end of `out`. Several effects become one MULTI/EXEC, unless they are independent.
    pub(crate) fn put(&mut self, out: &mut Chain) {
        let is_wrapped = self.is_wrapped();
        if is_wrapped {
            out.push_slice(MULTI);
        }
        self.encoded.move_to(out);
        if is_wrapped {
            out.push_slice(EXEC);
        }
    }
    /// Removes all effects, and keeps the allocations.
    pub(crate) fn reset(&mut self) {
        let Effects {
            encoded,
            for_replicas,
            first_db,
            db,
            commands,
            changes,
            names_own_effects,
            are_independent,
            removals,
        } = self;
        encoded.clear();
        for_replicas.clear();
        removals.clear();
        (*first_db, *db, *commands, *changes) = (0, 0, 0, 0);
        (*names_own_effects, *are_independent) = (false, false);
    }
    fn select(&mut self, db: usize) {
        if self.commands == 0 {
            self.first_db = db;
        } else if self.db != db {
            self.encoded.bytes.extend(select(db));
        }
        self.db = db;
    }
}

/// The command that selects a database.
pub(crate) fn select(db: usize) -> Vec<u8> {
    let number = db.to_string();
    format!("*2\r\n$6\r\nSELECT\r\n${}\r\n{number}\r\n", number.len()).into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words<'a>(line: &'a str) -> Vec<Arg<'a>> {
        line.split(' ').map(|word| Arg::Bytes(word.as_bytes())).collect()
    }
    fn sent<'a>(line: &'a str) -> SentArgs<'a, std::vec::IntoIter<Arg<'a>>> {
        SentArgs::Args(words(line).into_iter())
    }
    fn text(effects: &mut Effects) -> String {
        let mut out = Chain::new();
        let len = effects.len();
        effects.put(&mut out);
        assert_eq!(out.len(), len);
        let bytes: Vec<u8> = out.slices().flatten().copied().collect();
        let mut shown = String::from_utf8(bytes).expect("the test's words").replace("\r\n", " ");
        for digit in '0'..='9' {
            shown = shown.replace(&format!("${digit} "), "").replace(&format!("*{digit} "), "| ");
        }
        shown.trim().to_string()
    }

    #[test]
    fn one_command_stands_alone_and_several_stand_together() {
        let mut effects = Effects::default();
        effects.begin();
        effects.end(0, || sent("GET a"));
        assert!(!effects.close(), "it changed nothing");
        effects.begin();
        effects.changed();
        effects.end(0, || sent("SET a 1"));
        assert!(effects.close());
        assert_eq!(text(&mut effects), "| SET a 1");
        effects.reset();
        for (db, line) in [(0, "SET a 1"), (3, "INCR b"), (3, "INCR c")] {
            effects.begin();
            effects.changed();
            effects.end(db, || sent(line));
        }
        assert!(effects.close());
        assert_eq!(text(&mut effects), "| MULTI | SET a 1 | SELECT 3 | INCR b | INCR c | EXEC");
        assert_eq!(effects.databases(), Some((0, 3)));
    }

    #[test]
    fn command_may_record_its_own_effect_or_none() {
        let mut effects = Effects::default();
        effects.begin();
        effects.changed();
        effects.record_own(2, words("SREM s a").into_iter());
        effects.changed();
        effects.end(2, || sent("SPOP s"));
        effects.begin();
        effects.changed();
        effects.begin_own();
        effects.end(0, || sent("SPOP t"));
        assert!(effects.close());
        assert_eq!(text(&mut effects), "| SREM s a");
        assert_eq!(effects.databases(), Some((2, 2)));
    }

    #[test]
    fn effects_of_undone_commands_are_dropped() {
        let mut effects = Effects::default();
        let large = Blob::from(vec![b'x'; SHARED_BYTES_MIN]);
        effects.add(0, words("SET a 1").into_iter());
        let mark = effects.mark();
        effects.add(4, [Arg::Bytes(b"SET"), Arg::Bytes(b"k"), Arg::Blob(&large)].into_iter());
        effects.record_removal(5, b"old", &Removal::Key);
        effects.add_removal(6, b"k", &Removal::Key);
        effects.changed();
        effects.forget_since(mark);
        assert!(effects.close());
        let left = "| MULTI | SET a 1 | SELECT 5 | DEL old | EXEC";
        assert_eq!(text(&mut effects), left);
    }
}
