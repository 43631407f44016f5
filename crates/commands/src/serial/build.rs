//! [`ValueBuilder`]: makes a value from the parts that were read from a DUMP payload or an RDB file.

use super::list;
use super::stream::StreamBuilder;
use super::zset::ZSetBuilder;
use strand_chain::Blob;
use strand_keyspace::types::string::{Str, parse_int};
use strand_keyspace::{Collection, HashValue, ListValue, SetValue, Settings, Value};
use strand_rdb::Text;
use strand_rdb::value::{ValueKind, ValuePart};

/// Why the parts make no value: the collection is empty, an element occurs twice, or Strand does not have the type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadValue(pub &'static str);

/// A value under construction.
#[derive(Debug)]
pub struct ValueBuilder(Form);

#[derive(Debug)]
enum Form {
    Str(Str),
    Hash(HashValue),
    Set(SetValue),
    List(ListValue),
    ZSet(ZSetBuilder),
    Stream(Box<StreamBuilder>),
}

/// A collection without elements. When Redis loads a file, it skips the key.
pub(super) const EMPTY: BadValue = BadValue("the collection has no elements");
/// A part that belongs to another type of value. Readers never return one.
pub(super) const MISPLACED: BadValue = BadValue("a part belongs to another type of value");

impl ValueBuilder {
    /// A builder of a value of this kind.
    ///
    /// # Errors
    /// Fails if Strand does not have values of this kind.
    pub fn new(kind: ValueKind) -> Result<ValueBuilder, BadValue> {
        Ok(ValueBuilder(match kind {
            ValueKind::String => Form::Str(Str::Int(0)),
            ValueKind::Hash => Form::Hash(HashValue::new()),
            ValueKind::Set => Form::Set(SetValue::new()),
            ValueKind::List => Form::List(ListValue::new()),
            ValueKind::SortedSet => Form::ZSet(ZSetBuilder::default()),
            ValueKind::Stream => Form::Stream(Box::default()),
            ValueKind::Module(_) => {
                return Err(BadValue("Strand does not support this type of value"));
            }
        }))
    }

    /// Adds a part.
    ///
    /// # Errors
    /// Fails if the value has this element already, or cannot have it.
    pub fn add(&mut self, part: ValuePart<'_>, settings: &Settings) -> Result<(), BadValue> {
        match (&mut self.0, part) {
            (Form::Str(value), ValuePart::String(text)) => *value = string(text),
            (Form::Hash(hash), ValuePart::Field { field, value, expires_at_ms }) => {
                let new = match value {
                    Text::Owned(bytes) => hash.set(&field, &Blob::from(bytes), settings),
                    value => hash.set(&field, &*value, settings),
                };
                if !new {
                    return Err(BadValue("the hash has a field twice"));
                }
                if expires_at_ms.is_some() {
                    hash.set_expiry(&field, expires_at_ms, settings);
                }
            }
            (Form::Set(set), ValuePart::Member(member)) => {
                if !set.add(&member, settings) {
                    return Err(BadValue("the set has a member twice"));
                }
            }
            (Form::List(list), ValuePart::Element(element)) => list::add(list, element),
            (Form::ZSet(zset), ValuePart::Scored { member, score }) => zset.add(member, score, settings)?,
            (Form::Stream(stream), part) => stream.add(part)?,
            _ => return Err(MISPLACED),
        }
        Ok(())
    }

    /// Ends the building and returns the value.
    ///
    /// # Errors
    /// Fails if the value is a collection without elements.
    pub fn finish(self, settings: &Settings) -> Result<Value, BadValue> {
        match self.0 {
            Form::Str(value) => Ok(Value::Str(value)),
            Form::Hash(hash) => collection(hash),
            Form::Set(set) => collection(set),
            Form::List(list) => collection(list),
            Form::ZSet(zset) => collection(zset.finish(settings)),
            Form::Stream(stream) => collection(stream.finish()?),
        }
    }
}

fn collection<T: Collection>(value: T) -> Result<Value, BadValue> {
    if value.is_empty() && !T::STAYS_WHEN_EMPTY {
        return Err(EMPTY);
    }
    Ok(value.into_value())
}

fn string(text: Text<'_>) -> Str {
    match text {
        Text::Owned(bytes) if parse_int(&bytes).is_none() => Str::Raw(Blob::from(bytes)),
        text => Str::from_slice(&text),
    }
}
