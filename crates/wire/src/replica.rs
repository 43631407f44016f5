//! What a primary sends that is no reply of RESP: lines, and the header of a snapshot. For servers and clients that act as
//! a replica.

use strand_chain::Chain;

/// Maximum length in bytes of a line of a primary.
pub const LINE_BYTES_MAX: usize = 64 << 10;
/// Length in bytes of the mark at the end of a snapshot whose length the primary does not know before.
pub const MARK_BYTES: usize = 40;

/// The line is longer than [`LINE_BYTES_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineTooLong;

/// Takes the next line from `input`, without its end. Skips empty lines, with which a primary shows that it lives.
/// `None` when the line has not arrived whole.
///
/// # Errors
/// The line is too long.
pub fn take_line(input: &mut Chain) -> Result<Option<Vec<u8>>, LineTooLong> {
    while let Some(at) = input.find(b'\n', LINE_BYTES_MAX) {
        let mut line = vec![0; at + 1];
        input.peek(&mut line);
        input.advance(at + 1);
        let line = line.trim_ascii_end();
        if !line.is_empty() {
            return Ok(Some(line.to_vec()));
        }
    }
    if input.len() >= LINE_BYTES_MAX { Err(LineTooLong) } else { Ok(None) }
}

/// How the end of a snapshot is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SnapshotEnd {
    /// After this number of bytes.
    After(u64),
    /// At this mark, which follows the snapshot.
    Mark([u8; MARK_BYTES]),
}

impl SnapshotEnd {
    /// Parses the line before a snapshot: `$LENGTH` or `$EOF:MARK`. `None` for another line.
    pub fn parse(line: &str) -> Option<SnapshotEnd> {
        let text = line.strip_prefix('$')?;
        match text.strip_prefix("EOF:") {
            Some(mark) => mark.as_bytes().try_into().ok().map(SnapshotEnd::Mark),
            None => text.parse().ok().map(SnapshotEnd::After),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_before_a_snapshot_is_parsed() {
        let mark = "0123456789abcdef0123456789abcdef01234567";
        let marked = SnapshotEnd::Mark(mark.as_bytes().try_into().expect("forty bytes"));
        assert_eq!(SnapshotEnd::parse(&format!("$EOF:{mark}")), Some(marked));
        assert_eq!(SnapshotEnd::parse("$123"), Some(SnapshotEnd::After(123)));
        for bad in ["", "$", "$-1", "$EOF:12", "+OK", "-ERR no"] {
            assert!(SnapshotEnd::parse(bad).is_none(), "{bad:?}");
        }
    }
    #[test]
    fn lines_are_taken_when_they_are_whole_and_empty_ones_are_skipped() {
        let mut input = Chain::new();
        input.push_slice(b"\n\r\n+OK\r\nrest");
        assert_eq!(take_line(&mut input), Ok(Some(b"+OK".to_vec())));
        assert_eq!((take_line(&mut input), input.len()), (Ok(None), 4));
        input.push_slice(&vec![b'x'; LINE_BYTES_MAX]);
        assert_eq!(take_line(&mut input), Err(LineTooLong));
    }
}
