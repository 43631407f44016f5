//! A history file: a header, then records. New records are only appended.
//!
//! A record is its length and its CRC-32C (4 bytes each, little-endian), then the payload. The first byte of the
//! payload is its kind: 1 is the list of series for the rows that follow, 2 is a row of a level. Reading stops at a
//! record that is incomplete or fails its checksum. The rest of the file is lost; everything before it is kept.
//!
//! The file has no rows of one second. They would fill most of it, but cover only the last quarter of an hour.

use super::{Fold, History, LEVELS, NAME_BYTES_MAX, ROWS_MAX, SERIES_MAX};
use crc::{CRC_32_ISCSI, Crc};
use std::io::{self, Read, Write};

/// The first bytes of a history file: format and version.
pub const HEADER: &[u8; 8] = b"strhist1";

const CRC: Crc<u32> = Crc::<u32>::new(&CRC_32_ISCSI);
/// Maximum length of a payload: a list of [`SERIES_MAX`] series with names of maximum length.
const PAYLOAD_BYTES_MAX: usize = 3 + SERIES_MAX * (3 + 2 * NAME_BYTES_MAX);
/// Bytes of a record before its payload: length and checksum.
const FRAME_BYTES: usize = 8;
const NAMES: u8 = 1;
const ROW: u8 = 2;

/// The result of reading a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Loaded {
    /// Number of rows that were read from the file.
    pub rows: usize,
    /// Number of valid bytes at the start of the file.
    pub bytes: u64,
    /// True when the file ends inside a record, or a record is damaged.
    pub is_cut: bool,
    /// True when the file begins with another [`HEADER`]: nothing of it is read.
    pub is_foreign: bool,
}

impl History {
    /// The record with the current list of series.
    pub fn names_record(&self) -> Vec<u8> {
        let mut payload = vec![NAMES];
        payload.extend((self.series.len() as u16).to_le_bytes());
        for series in &self.series {
            payload.push(u8::from(series.fold == Fold::Max));
            for text in [&series.name, &series.unit] {
                payload.push(text.len() as u8);
                payload.extend(text.as_bytes());
            }
        }
        framed(&payload)
    }
    /// The record with the newest row of a level; `None` when the level has no row.
    pub fn row_record(&self, level: usize) -> Option<Vec<u8>> {
        self.newest(level).map(|(time, row)| row_record(level, time, row))
    }
    /// Writes a whole file: the rows of all levels except the finest level, which covers only a quarter of an hour.
    ///
    /// # Errors
    /// Errors of `out`.
    pub fn save(&self, out: &mut dyn Write) -> io::Result<()> {
        out.write_all(HEADER)?;
        out.write_all(&self.names_record())?;
        for level in 1..LEVELS {
            for (time, row) in self.levels[level].iter() {
                out.write_all(&row_record(level, time, row))?;
            }
        }
        Ok(())
    }
    /// Adds the rows of a file. Call it before any new row.
    ///
    /// # Errors
    /// Errors of `from`. A damaged file is not an error.
    pub fn load(&mut self, from: &mut dyn Read) -> io::Result<Loaded> {
        let mut loaded = Loaded::default();
        let mut header = [0; HEADER.len()];
        if fill(from, &mut header)? < header.len() || header != *HEADER {
            return Ok(Loaded { is_cut: true, is_foreign: true, ..loaded });
        }
        loaded.bytes = HEADER.len() as u64;
        let mut numbers: Vec<Option<usize>> = Vec::new();
        let mut payload = Vec::new();
        loop {
            let mut frame = [0; FRAME_BYTES];
            match fill(from, &mut frame)? {
                0 => return Ok(loaded),
                FRAME_BYTES => {}
                _ => return Ok(Loaded { is_cut: true, ..loaded }),
            }
            let word =
                |at: usize| u32::from_le_bytes([frame[at], frame[at + 1], frame[at + 2], frame[at + 3]]);
            let (len, sum) = (word(0) as usize, word(4));
            if len > PAYLOAD_BYTES_MAX {
                return Ok(Loaded { is_cut: true, ..loaded });
            }
            payload.resize(len, 0);
            let whole = fill(from, &mut payload)? == len && CRC.checksum(&payload) == sum;
            let taken = whole
                && match payload.split_first() {
                    Some((&NAMES, rest)) => self.take_names(rest, &mut numbers).is_some(),
                    Some((&ROW, rest)) => {
                        self.take_row(rest, &numbers).inspect(|()| loaded.rows += 1).is_some()
                    }
                    _ => false,
                };
            if !taken {
                return Ok(Loaded { is_cut: true, ..loaded });
            }
            loaded.bytes += (FRAME_BYTES + len) as u64;
        }
    }
    fn take_names(&mut self, mut rest: &[u8], numbers: &mut Vec<Option<usize>>) -> Option<()> {
        let count = u16::from_le_bytes(*rest.split_off(..2)?.first_chunk()?);
        numbers.clear();
        for _ in 0..count {
            let fold = if *rest.split_off_first()? == 1 { Fold::Max } else { Fold::Mean };
            let mut text = || {
                let len = usize::from(*rest.split_off_first()?);
                std::str::from_utf8(rest.split_off(..len)?).ok()
            };
            let (name, unit) = (text()?, text()?);
            numbers.push(self.series_number_or_insert(name, unit, fold));
        }
        rest.is_empty().then_some(())
    }
    fn take_row(&mut self, mut rest: &[u8], numbers: &[Option<usize>]) -> Option<()> {
        let level = usize::from(*rest.split_off_first()?);
        let time = i64::from_le_bytes(*rest.split_off(..8)?.first_chunk()?);
        if !(1..LEVELS).contains(&level) || !rest.len().is_multiple_of(4) || rest.len() / 4 > numbers.len() {
            return None;
        }
        let mut row = vec![f32::NAN; self.series.len()];
        for (bytes, number) in rest.as_chunks::<4>().0.iter().zip(numbers) {
            if let Some(place) = number.and_then(|at| row.get_mut(at)) {
                *place = f32::from_le_bytes(*bytes);
            }
        }
        self.levels[level].push(time, &row, ROWS_MAX[level]);
        Some(())
    }
}

fn row_record(level: usize, time: i64, row: &[f32]) -> Vec<u8> {
    let mut payload = vec![ROW, level as u8];
    payload.extend(time.to_le_bytes());
    row.iter().for_each(|value| payload.extend(value.to_le_bytes()));
    framed(&payload)
}

fn framed(payload: &[u8]) -> Vec<u8> {
    let mut record = (payload.len() as u32).to_le_bytes().to_vec();
    record.extend(CRC.checksum(payload).to_le_bytes());
    record.extend(payload);
    record
}

/// Reads until the buffer is full or the input ends. Returns the number of bytes read.
fn fill(from: &mut dyn Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match from.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(n) => filled += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(filled)
}
