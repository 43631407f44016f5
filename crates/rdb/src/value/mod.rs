//! Reads a value piece by piece: one element, field or stream entry at a time.
//!
//! [`ValueReader::begin`] reads the data before the first piece and returns the kind of the value.
//! [`ValueReader::next`] yields its [`ValuePart`]s, then `None`. A value without parts is an empty collection. Redis
//! never writes one, except for streams; the loader decides whether to accept it. The other half of reading a value is
//! `ValueBuilder` in `crates/commands/src/serial/build.rs`: it makes a value of the parts.

mod hash_ttl;
mod module;
mod stream;

pub use module::ModuleId;
pub(crate) use module::skip_aux as skip_module_aux;
pub use stream::{StreamEntries, StreamId};

use crate::packed::{Cursor, PackedEntry, PackedFormat};
use crate::primitive::{self as p, take_text};
use crate::source::Source;
use crate::{Dialect, Error, Result, Text, value_type as t};
use hash_ttl::Ttl;
use stream::StreamReader;

/// The kind of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueKind {
    /// A string: one [`ValuePart::String`].
    String,
    /// A list: [`ValuePart::Element`]s from head to tail.
    List,
    /// A set: [`ValuePart::Member`]s in any order.
    Set,
    /// A sorted set: [`ValuePart::Scored`] members. Their order depends on the format.
    SortedSet,
    /// A hash: [`ValuePart::Field`]s in any order.
    Hash,
    /// A stream: entries by ID, each followed by its fields; then the stream's state, its groups and their consumers.
    Stream,
    /// A module's value. It has no parts: [`ValueReader::next`] skips the value. A loader may refuse the value by its
    /// module's name instead.
    Module(ModuleId),
}

impl ValueKind {
    /// For each kind: Redis's name and number of the type, and whether an empty value is loaded.
    fn facts(self) -> (&'static str, u32, bool) {
        match self {
            ValueKind::String => ("string", 0, true),
            ValueKind::List => ("list", 1, false),
            ValueKind::Set => ("set", 2, false),
            ValueKind::SortedSet => ("zset", 3, false),
            ValueKind::Hash => ("hash", 4, false),
            ValueKind::Module(_) => ("module", 5, true),
            ValueKind::Stream => ("stream", 6, true),
        }
    }
    /// Redis's name of the type.
    pub fn type_name(self) -> &'static str {
        self.facts().0
    }
    /// Redis's number of the type, which is part of every digest.
    pub(crate) fn number(self) -> u32 {
        self.facts().1
    }
    /// True when a value without parts is loaded. An empty collection of any other kind is skipped.
    pub(crate) fn may_be_empty(self) -> bool {
        self.facts().2
    }
}

/// One piece of a value.
#[derive(Debug)]
pub enum ValuePart<'a> {
    /// The whole string.
    String(Text<'a>),
    /// The next element of a list.
    Element(Text<'a>),
    /// A member of a set.
    Member(Text<'a>),
    /// A member of a sorted set. The score is never NaN.
    Scored {
        /// The member of the sorted set.
        member: Text<'a>,
        /// The member's score.
        score: f64,
    },
    /// A field of a hash.
    Field {
        /// The field's name.
        field: Text<'a>,
        /// The field's value.
        value: Text<'a>,
        /// Expiry time of the field, unix milliseconds.
        expires_at_ms: Option<i64>,
    },
    /// An entry of a stream. [`ValuePart::EntryField`] follows `fields` times. IDs ascend.
    Entry {
        /// The ID of the stream entry.
        id: StreamId,
        /// Number of fields of the entry, at least one.
        fields: u64,
    },
    /// Entries of a stream in Redis's form: a listpack with the ID of its first entry. Its content is not checked.
    StreamNode {
        /// The ID on which the entries' IDs are based.
        id: StreamId,
        /// The listpack: the master entry, then the entries.
        listpack: Text<'a>,
    },
    /// A field of the latest entry.
    EntryField {
        /// The field's name.
        field: Text<'a>,
        /// The field's value.
        value: Text<'a>,
    },
    /// The state of the stream, after all entries.
    Stream(StreamState),
    /// A consumer group. Its pending entries follow, then its consumers.
    Group {
        /// The group's name.
        name: Text<'a>,
        /// The ID of the last entry that was delivered to the group.
        last_id: StreamId,
        /// Number of entries that the group has read; `None` when unknown.
        entries_read: Option<u64>,
    },
    /// An entry that was delivered to a consumer of the latest group and not acknowledged. IDs ascend.
    Pending {
        /// The entry's ID; the entry itself may have been deleted.
        id: StreamId,
        /// Time of the last delivery, unix milliseconds.
        delivered_at_ms: i64,
        /// Number of times that the entry was delivered.
        deliveries: u64,
    },
    /// A consumer of the latest group. Its pending IDs follow.
    Consumer {
        /// The consumer's name.
        name: Text<'a>,
        /// Time of the consumer's last attempt to read, unix milliseconds.
        seen_at_ms: i64,
        /// Time of the consumer's last successful read; `None`: never.
        active_at_ms: Option<i64>,
    },
    /// A pending entry of the latest consumer. IDs ascend.
    ConsumerPending {
        /// The entry's ID, which should be in the group's list.
        id: StreamId,
    },
}

/// The state of a stream besides its entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamState {
    /// Number of entries of the stream. If the entries were returned one by one, their number equals this.
    pub length: u64,
    /// The latest ID that the stream has given out, at least the ID of the last entry.
    pub last_id: StreamId,
    /// The ID of the first entry, as recorded or, in older formats, as found; zero when there is no entry.
    pub first_id: StreamId,
    /// The largest ID of an entry that was ever deleted.
    pub max_deleted_id: StreamId,
    /// Number of entries that were ever added.
    pub entries_added: u64,
    /// True when the three fields above were recorded. Otherwise (Redis 5.0 to 6.2) they were derived, like the
    /// numbers of entries read by groups. With entries in nodes, the first ID is then unknown.
    pub counted: bool,
}

/// How the entries of a packed blob form parts.
#[derive(Clone, Copy, Debug)]
enum Role {
    Element,
    Member,
    Scored,
    Field,
    /// Triples of field, value, and expiry in milliseconds (0: none).
    FieldWithTtl,
}

/// How the strings of an unpacked value form parts.
#[derive(Clone, Copy, Debug)]
enum Plain {
    Element,
    Member,
    ScoredText,
    ScoredBinary,
    Field,
    FieldWithTtl(Ttl),
}

#[derive(Debug)]
enum State {
    Done,
    String,
    Plain { left: u64, plain: Plain },
    Packed { cursor: Cursor, role: Role, more: Nodes },
    Nodes(Nodes),
    Stream,
    Module,
}

/// The nodes of a quicklist that are not read yet.
#[derive(Clone, Copy, Debug)]
struct Nodes {
    left: u64,
    /// True when each node starts with the type of its container (quicklist 2).
    with_container: bool,
}

const NO_NODES: Nodes = Nodes { left: 0, with_container: false };

/// Reads values one after another and reuses its memory.
#[derive(Debug)]
pub struct ValueReader {
    state: State,
    stream: StreamReader,
    elements_hint: u64,
    blob: Vec<u8>,
    first_buffer: Vec<u8>,
    second_buffer: Vec<u8>,
}

impl ValueReader {
    /// A reader without a value.
    pub fn new(entries: StreamEntries) -> ValueReader {
        ValueReader {
            state: State::Done,
            stream: StreamReader::new(entries),
            elements_hint: 0,
            blob: Vec::new(),
            first_buffer: Vec::new(),
            second_buffer: Vec::new(),
        }
    }

    /// Starts a value of type `value_type`. Its bytes are next in `source`. Forgets the previous value.
    pub fn begin(&mut self, value_type: u8, dialect: Dialect, source: &mut impl Source) -> Result<ValueKind> {
        self.elements_hint = 0;
        self.state = State::Done;
        let (kind, state) = match (value_type, dialect) {
            (t::STRING, _) => (ValueKind::String, State::String),
            (t::LIST, _) => (ValueKind::List, self.plain(source, Plain::Element)?),
            (t::SET, _) => (ValueKind::Set, self.plain(source, Plain::Member)?),
            (t::ZSET, _) => (ValueKind::SortedSet, self.plain(source, Plain::ScoredText)?),
            (t::ZSET_2, _) => (ValueKind::SortedSet, self.plain(source, Plain::ScoredBinary)?),
            (t::HASH, _) => (ValueKind::Hash, self.plain(source, Plain::Field)?),
            (t::HASH_2, Dialect::Valkey) => {
                (ValueKind::Hash, self.plain(source, Plain::FieldWithTtl(Ttl::Valkey))?)
            }
            (t::HASH_METADATA_PRE_GA, Dialect::Redis) => {
                (ValueKind::Hash, self.plain(source, Plain::FieldWithTtl(Ttl::Absolute))?)
            }
            (t::HASH_METADATA, Dialect::Redis) => {
                let ttl = Ttl::relative(p::i64_le(source)?)?;
                (ValueKind::Hash, self.plain(source, Plain::FieldWithTtl(ttl))?)
            }
            (t::MODULE_PRE_GA, _) => return Err(Error::PreReleaseModule),
            (t::MODULE_2, _) => (ValueKind::Module(ModuleId(p::length(source)?)), State::Module),
            (t::HASH_ZIPMAP, _) => (ValueKind::Hash, self.packed(source, PackedFormat::Zipmap, Role::Field)?),
            (t::HASH_ZIPLIST, _) => {
                (ValueKind::Hash, self.packed(source, PackedFormat::Ziplist, Role::Field)?)
            }
            (t::HASH_LISTPACK, _) => {
                (ValueKind::Hash, self.packed(source, PackedFormat::Listpack, Role::Field)?)
            }
            (t::HASH_LISTPACK_EX_PRE_GA, Dialect::Redis) => {
                (ValueKind::Hash, self.packed(source, PackedFormat::Listpack, Role::FieldWithTtl)?)
            }
            (t::HASH_LISTPACK_EX, Dialect::Redis) => {
                // Skip the smallest expiry, which can also be computed from the fields.
                p::i64_le(source)?;
                (ValueKind::Hash, self.packed(source, PackedFormat::Listpack, Role::FieldWithTtl)?)
            }
            (t::LIST_ZIPLIST, _) => {
                (ValueKind::List, self.packed(source, PackedFormat::Ziplist, Role::Element)?)
            }
            (t::LIST_QUICKLIST, _) => (ValueKind::List, State::Nodes(nodes(source, false)?)),
            (t::LIST_QUICKLIST_2, _) => (ValueKind::List, State::Nodes(nodes(source, true)?)),
            (t::SET_INTSET, _) => (ValueKind::Set, self.packed(source, PackedFormat::Intset, Role::Member)?),
            (t::SET_LISTPACK, _) => {
                (ValueKind::Set, self.packed(source, PackedFormat::Listpack, Role::Member)?)
            }
            (t::ZSET_ZIPLIST, _) => {
                (ValueKind::SortedSet, self.packed(source, PackedFormat::Ziplist, Role::Scored)?)
            }
            (t::ZSET_LISTPACK, _) => {
                (ValueKind::SortedSet, self.packed(source, PackedFormat::Listpack, Role::Scored)?)
            }
            (t::STREAM | t::STREAM_2 | t::STREAM_3, _) => {
                self.stream.begin(value_type, source)?;
                (ValueKind::Stream, State::Stream)
            }
            _ => return Err(Error::UnknownType(value_type)),
        };
        self.state = state;
        Ok(kind)
    }

    /// Number of elements, members or fields that the value announces; 0 when unknown. The input may lie, so do not
    /// allocate memory for this number.
    pub fn elements_hint(&self) -> u64 {
        self.elements_hint
    }

    /// The next part; `None` at the end of the value and after it.
    pub fn next(&mut self, source: &mut impl Source) -> Result<Option<ValuePart<'_>>> {
        loop {
            match &mut self.state {
                State::Done => return Ok(None),
                State::String => {
                    self.state = State::Done;
                    return Ok(Some(ValuePart::String(p::string(source, &mut self.first_buffer)?)));
                }
                State::Plain { left: 0, .. } => self.state = State::Done,
                State::Plain { left, plain } => {
                    *left -= 1;
                    let plain = *plain;
                    return self.plain_part(plain, source).map(Some);
                }
                State::Packed { cursor, more, .. } if cursor.at_end(&self.blob) => {
                    let more = *more;
                    cursor.next(&self.blob)?;
                    self.state = State::Nodes(more);
                }
                State::Packed { cursor, role, .. } => {
                    return packed_part(cursor, *role, &self.blob).map(Some);
                }
                State::Nodes(Nodes { left: 0, .. }) => self.state = State::Done,
                State::Nodes(nodes) => {
                    let more = Nodes { left: nodes.left - 1, ..*nodes };
                    if more.with_container && plain_container(source)? {
                        self.state = State::Nodes(more);
                        return Ok(Some(ValuePart::Element(p::string(source, &mut self.first_buffer)?)));
                    }
                    p::string_into(source, &mut self.blob)?;
                    let form =
                        if more.with_container { PackedFormat::Listpack } else { PackedFormat::Ziplist };
                    let cursor = Cursor::new(form, &self.blob)?;
                    self.state = State::Packed { cursor, role: Role::Element, more };
                }
                State::Stream => {
                    let part = self.stream.next(source)?;
                    if part.is_none() {
                        self.state = State::Done;
                    }
                    return Ok(part);
                }
                State::Module => {
                    self.state = State::Done;
                    module::skip(source)?;
                }
            }
        }
    }

    fn plain(&mut self, source: &mut impl Source, plain: Plain) -> Result<State> {
        let left = p::length(source)?;
        self.elements_hint = left;
        Ok(State::Plain { left, plain })
    }

    fn packed(&mut self, source: &mut impl Source, form: PackedFormat, role: Role) -> Result<State> {
        p::string_into(source, &mut self.blob)?;
        let cursor = Cursor::new(form, &self.blob)?;
        Ok(State::Packed { cursor, role, more: NO_NODES })
    }

    fn plain_part(&mut self, plain: Plain, source: &mut impl Source) -> Result<ValuePart<'_>> {
        let ttl = match plain {
            Plain::FieldWithTtl(ttl) => ttl.before(source)?,
            _ => None,
        };
        p::string_into(source, &mut self.first_buffer)?;
        Ok(match plain {
            Plain::Element => ValuePart::Element(take_text(&mut self.first_buffer)),
            Plain::Member => ValuePart::Member(take_text(&mut self.first_buffer)),
            Plain::ScoredText => scored(take_text(&mut self.first_buffer), p::text_double(source)?)?,
            Plain::ScoredBinary => scored(take_text(&mut self.first_buffer), p::binary_double(source)?)?,
            Plain::Field => {
                let value = p::string(source, &mut self.second_buffer)?;
                ValuePart::Field { field: take_text(&mut self.first_buffer), value, expires_at_ms: None }
            }
            Plain::FieldWithTtl(form) => {
                p::string_into(source, &mut self.second_buffer)?;
                let expires_at_ms = form.after(source)?.or(ttl);
                ValuePart::Field {
                    field: take_text(&mut self.first_buffer),
                    value: take_text(&mut self.second_buffer),
                    expires_at_ms,
                }
            }
        })
    }
}

fn nodes(source: &mut impl Source, with_container: bool) -> Result<Nodes> {
    Ok(Nodes { left: p::length(source)?, with_container })
}

/// True when the next node of a quicklist 2 is a single element.
fn plain_container(source: &mut impl Source) -> Result<bool> {
    match p::length(source)? {
        1 => Ok(true),
        2 => Ok(false),
        other => Err(Error::unexpected("list node container 1 or 2", other)),
    }
}

fn packed_part<'a>(cursor: &mut Cursor, role: Role, blob: &'a [u8]) -> Result<ValuePart<'a>> {
    const ODD: Error = Error::Corrupt("a packed collection that ends inside a pair");
    let mut take = || cursor.next(blob)?.ok_or(ODD);
    let first = take()?;
    Ok(match role {
        Role::Element => ValuePart::Element(first.text()),
        Role::Member => ValuePart::Member(first.text()),
        Role::Scored => {
            let score = match take()? {
                PackedEntry::Int(n) => n as f64,
                PackedEntry::Bytes(text) => p::parse_double(text)?,
            };
            scored(first.text(), score)?
        }
        Role::Field => ValuePart::Field { field: first.text(), value: take()?.text(), expires_at_ms: None },
        Role::FieldWithTtl => {
            let value = take()?.text();
            let expires_at_ms = match take()? {
                PackedEntry::Int(0) => None,
                PackedEntry::Int(at) if at > 0 => Some(at),
                _ => return Err(hash_ttl::INVALID_EXPIRY),
            };
            ValuePart::Field { field: first.text(), value, expires_at_ms }
        }
    })
}

fn scored(member: Text<'_>, score: f64) -> Result<ValuePart<'_>> {
    if score.is_nan() {
        return Err(Error::Corrupt("a sorted set with the score NaN"));
    }
    Ok(ValuePart::Scored { member, score })
}
