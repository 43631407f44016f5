//! RDB files: a header, records, a checksum.
//!
//! [`FileReader::next`] yields the records in order: [`Event::Key`], then the parts of its value, and so on up to
//! [`Event::End`]. The checksum is compared before [`Event::End`]. Data after the file (the commands of an
//! append-only file, a replication stream) stays in the source: [`FileReader::into_source`].

use std::io::Read;

use crate::primitive as p;
use crate::source::{ReadSource, Source};
use crate::value::{ModuleId, StreamEntries, ValueKind, ValuePart, ValueReader, skip_module_aux};
use crate::{Dialect, Error, Result, Text};

/// Record types other than keys.
pub(crate) mod opcode {
    /// Valkey 9: a slot that was being imported.
    pub const SLOT_IMPORT: u8 = 243;
    pub const SLOT_INFO: u8 = 244;
    pub const FUNCTION: u8 = 245;
    pub const FUNCTION_PRE_GA: u8 = 246;
    pub const MODULE_AUX: u8 = 247;
    pub const IDLE: u8 = 248;
    pub const FREQ: u8 = 249;
    pub const AUX: u8 = 250;
    pub const RESIZE_DB: u8 = 251;
    pub const EXPIRE_TIME_MS: u8 = 252;
    pub const EXPIRE_TIME: u8 = 253;
    pub const SELECT_DB: u8 = 254;
    pub const EOF: u8 = 255;
}

/// The lowest version whose files have a checksum.
const VERSION_CHECKSUM_MIN: u16 = 5;

/// The next record of a file.
#[derive(Debug)]
pub enum Event<'a> {
    /// A name and a value that describe the file or its server.
    Aux {
        /// The field's name.
        name: Text<'a>,
        /// The field's value.
        value: Text<'a>,
    },
    /// The database of the keys that follow.
    SelectDb(u64),
    /// The expected numbers of keys and of expiring keys of the database. Only a hint; the input may lie.
    ResizeDb {
        /// Number of keys in the database.
        keys: u64,
        /// Number of keys in the database that expire.
        expiring: u64,
    },
    /// The number of keys of a cluster slot. Only a hint.
    SlotInfo {
        /// Number of the slot.
        slot: u64,
        /// Number of keys in the slot.
        keys: u64,
        /// Number of keys in the slot that expire.
        expiring: u64,
    },
    /// A range of slots that was being imported when the file was written (Valkey 9). The keys are in the file.
    SlotImport {
        /// The first slot of the range.
        first: u64,
        /// The last slot of the range.
        last: u64,
    },
    /// A function library: its whole source code.
    Function(Text<'a>),
    /// Data of a module besides the keys. The reader has skipped it.
    ModuleAux(ModuleId),
    /// A key. The parts of its value follow, then [`Event::KeyEnd`].
    Key {
        /// The key.
        key: Text<'a>,
        /// The kind of the key's value.
        kind: ValueKind,
        /// Expiry time, unix milliseconds.
        expires_at_ms: Option<i64>,
        /// Seconds since the key's last use.
        idle_s: Option<u64>,
        /// How often the key is used, as Redis's logarithmic counter.
        freq: Option<u8>,
    },
    /// A part of the latest key's value.
    Part(ValuePart<'a>),
    /// The value of the latest key is complete.
    KeyEnd,
    /// The end of the file has been reached.
    End {
        /// True when the file has a checksum and it is correct.
        checksum_verified: bool,
    },
}

/// The attributes of a key, which the file has before the key: its use and its expiry.
#[derive(Clone, Copy, Default)]
struct KeyAttributes {
    expires_at_ms: Option<i64>,
    idle_s: Option<u64>,
    freq: Option<u8>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Records,
    Value,
    SlotRanges { left: u64 },
    Ended,
}

/// Reads one RDB file, record by record.
pub struct FileReader<R> {
    source: ReadSource<R>,
    version: u16,
    dialect: Dialect,
    state: State,
    attributes: KeyAttributes,
    /// False when a wrong checksum is ignored.
    checks_sum: bool,
    value: ValueReader,
    first_buffer: Vec<u8>,
    second_buffer: Vec<u8>,
}

impl<R: Read> FileReader<R> {
    /// Reads the header of the file in `reader`.
    ///
    /// # Errors
    /// [`Error::NotRdb`], [`Error::Version`]; [`Error::Truncated`] when the file is shorter than a header.
    pub fn new(reader: R, entries: StreamEntries) -> Result<FileReader<R>> {
        let mut source = ReadSource::new(reader);
        let header = header(&mut source)?;
        let digits = match &header {
            [b'R', b'E', b'D', b'I', b'S', digits @ ..] => &digits[..],
            [b'V', b'A', b'L', b'K', b'E', b'Y', digits @ ..] => &digits[..],
            _ => return Err(Error::NotRdb),
        };
        if !digits.iter().all(u8::is_ascii_digit) {
            return Err(Error::NotRdb);
        }
        let version = digits.iter().fold(0u16, |n, digit| n * 10 + u16::from(digit - b'0'));
        let written_by = if header[0] == b'R' { Dialect::Redis } else { Dialect::Valkey };
        let dialect = Dialect::of_version(version)
            .filter(|d| version > 0 && *d == written_by)
            .ok_or(Error::Version { version })?;
        let (value, first_buffer, second_buffer) = (ValueReader::new(entries), Vec::new(), Vec::new());
        let (state, attributes) = (State::Records, KeyAttributes::default());
        Ok(FileReader {
            source,
            version,
            dialect,
            state,
            attributes,
            checks_sum: true,
            value,
            first_buffer,
            second_buffer,
        })
    }
    /// Ignores the checksum at the end of the file, as redis-server with `rdbchecksum no`.
    pub fn ignore_checksum(&mut self) {
        self.checks_sum = false;
    }

    /// The file's RDB version.
    pub fn version(&self) -> u16 {
        self.version
    }
    /// The dialect of the file's type numbers.
    pub fn dialect(&self) -> Dialect {
        self.dialect
    }
    /// Number of bytes read so far. After an error, this is the error's approximate position.
    pub fn offset(&self) -> u64 {
        self.source.offset()
    }
    /// The number that [`ValueReader::elements_hint`] returns for the latest key.
    pub fn elements_hint(&self) -> u64 {
        self.value.elements_hint()
    }
    /// The source, positioned after the end of the RDB file.
    pub fn into_source(self) -> ReadSource<R> {
        self.source
    }

    /// The next record; `None` after [`Event::End`].
    ///
    /// # Errors
    /// The error in the file, at [`FileReader::offset`]. Further calls after an error give no meaningful records, but
    /// are harmless.
    #[expect(
        clippy::should_implement_trait,
        reason = "an event borrows from the reader, which no Iterator can say"
    )]
    pub fn next(&mut self) -> Result<Option<Event<'_>>> {
        match self.state {
            State::Ended => Ok(None),
            State::Value => match self.value.next(&mut self.source)? {
                Some(part) => Ok(Some(Event::Part(part))),
                None => {
                    self.state = State::Records;
                    Ok(Some(Event::KeyEnd))
                }
            },
            State::SlotRanges { left } if left > 0 => {
                self.state = State::SlotRanges { left: left - 1 };
                let (first, last) = self.lengths()?;
                Ok(Some(Event::SlotImport { first, last }))
            }
            State::SlotRanges { .. } | State::Records => {
                self.state = State::Records;
                self.record().map(Some)
            }
        }
    }

    /// The value of the latest key, which is of [`ValueKind::String`]. Call it at once after [`Event::Key`]: then no
    /// [`Event::Part`] and no [`Event::KeyEnd`] follow for this key.
    ///
    /// # Errors
    /// As [`FileReader::next`].
    #[inline]
    pub fn string_value(&mut self) -> Result<Text<'_>> {
        debug_assert!(self.state == State::Value, "a key comes before its value");
        self.state = State::Records;
        p::string(&mut self.source, &mut self.first_buffer)
    }

    fn record(&mut self) -> Result<Event<'_>> {
        loop {
            let source = &mut self.source;
            match p::byte(source)? {
                opcode::EXPIRE_TIME_MS => self.attributes.expires_at_ms = Some(p::i64_le(source)?),
                opcode::EXPIRE_TIME => {
                    let seconds = i32::from_le_bytes(p::array(source)?);
                    self.attributes.expires_at_ms = Some(i64::from(seconds) * 1000);
                }
                opcode::IDLE => self.attributes.idle_s = Some(p::length(source)?),
                opcode::FREQ => self.attributes.freq = Some(p::byte(source)?),
                opcode::SELECT_DB => return Ok(Event::SelectDb(p::length(source)?)),
                opcode::RESIZE_DB => {
                    let (keys, expiring) = self.lengths()?;
                    return Ok(Event::ResizeDb { keys, expiring });
                }
                opcode::SLOT_INFO => {
                    let slot = p::length(source)?;
                    let (keys, expiring) = self.lengths()?;
                    return Ok(Event::SlotInfo { slot, keys, expiring });
                }
                opcode::AUX => {
                    p::string_into(source, &mut self.first_buffer)?;
                    let value = p::string(source, &mut self.second_buffer)?;
                    return Ok(Event::Aux { name: p::take_text(&mut self.first_buffer), value });
                }
                opcode::FUNCTION => return Ok(Event::Function(p::string(source, &mut self.first_buffer)?)),
                opcode::FUNCTION_PRE_GA => return Err(Error::PreReleaseFunction),
                opcode::MODULE_AUX => return Ok(Event::ModuleAux(skip_module_aux(source)?)),
                opcode::SLOT_IMPORT if self.dialect == Dialect::Valkey => {
                    // Skip the import's name and the ranges of slots.
                    p::skip_string(source)?;
                    let left = p::length(source)?;
                    if left == 0 {
                        continue;
                    }
                    self.state = State::SlotRanges { left: left - 1 };
                    let (first, last) = self.lengths()?;
                    return Ok(Event::SlotImport { first, last });
                }
                opcode::EOF => return self.end(),
                value_type => return self.key(value_type),
            }
        }
    }

    fn key(&mut self, value_type: u8) -> Result<Event<'_>> {
        p::string_into(&mut self.source, &mut self.first_buffer)?;
        let kind = self.value.begin(value_type, self.dialect, &mut self.source)?;
        self.state = State::Value;
        let KeyAttributes { expires_at_ms, idle_s, freq } = std::mem::take(&mut self.attributes);
        Ok(Event::Key { key: p::take_text(&mut self.first_buffer), kind, expires_at_ms, idle_s, freq })
    }

    fn end(&mut self) -> Result<Event<'static>> {
        self.state = State::Ended;
        if self.version < VERSION_CHECKSUM_MIN {
            return Ok(Event::End { checksum_verified: false });
        }
        let computed = self.source.checksum();
        let stored = u64::from_le_bytes(p::array(&mut self.source)?);
        // A stored checksum of zero means that the writer has computed no checksum.
        if !self.checks_sum {
            return Ok(Event::End { checksum_verified: false });
        }
        if stored != 0 && stored != computed {
            return Err(Error::Checksum { computed, stored });
        }
        Ok(Event::End { checksum_verified: stored != 0 })
    }

    fn lengths(&mut self) -> Result<(u64, u64)> {
        Ok((p::length(&mut self.source)?, p::length(&mut self.source)?))
    }
}

/// The first bytes of a file. A file that ends within them is truncated only if it begins like an RDB file.
fn header(source: &mut impl Source) -> Result<[u8; 9]> {
    let mut header = [0; 9];
    for i in 0..header.len() {
        let begins_with =
            |magic: &[u8]| header[..i].iter().zip(magic).all(|(found, expected)| found == expected);
        let is_rdb = begins_with(b"REDIS") || begins_with(b"VALKEY");
        header[i] = match p::byte(source) {
            Err(Error::Truncated) if !is_rdb => return Err(Error::NotRdb),
            byte => byte?,
        };
    }
    Ok(header)
}
