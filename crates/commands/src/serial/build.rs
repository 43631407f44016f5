//! [`Serial`]: the form of one type in Redis's files. [`ValueBuilder`]: makes a value of any type from the parts that
//! were read from a DUMP payload or an RDB file.

use strand_chain::Blob;
use strand_keyspace::types::string::{Str, parse_int};
use strand_keyspace::{Collection, Settings, Value};
use strand_rdb::Text;
use strand_rdb::digest::ValueDigest;
use strand_rdb::value::{ValueKind, ValuePart};
use strand_rdb::write::Writer;

/// Why the parts make no value: the collection is empty, an element occurs twice, or Strand does not have the type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadValue(pub &'static str);

/// A collection without elements. When Redis loads a file, it skips the key.
pub(super) const EMPTY: BadValue = BadValue("the collection has no elements");
/// A part that belongs to another type of value. Readers never return one.
pub(super) const MISPLACED: BadValue = BadValue("a part belongs to another type of value");

/// A type that has a form in Redis's files.
pub(super) trait Serial: Collection {
    /// The kind of the value that a reader returns for this type.
    const KIND: ValueKind;
    /// Makes a value of this type.
    type Builder: Builder<Value = Self>;

    /// The type number of the form in which [`Serial::write`] encodes the value.
    fn value_type(&self) -> u8;
    /// Encodes the value, without its type number.
    fn write(&self, writer: &mut Writer<'_>);
    /// Adds the value to a digest.
    fn add_to(&self, digest: &mut ValueDigest);
}

/// A value of one type under construction.
pub(super) trait Builder: Default {
    /// The type of the value.
    type Value;

    /// Adds a part.
    ///
    /// # Errors
    /// Fails if the value has this element already, or cannot have it.
    fn add_part(&mut self, part: ValuePart<'_>, settings: &Settings) -> Result<(), BadValue>;
    /// Ends the building and returns the value, which may be empty.
    ///
    /// # Errors
    /// Fails if a part is missing.
    fn finish(self, settings: &Settings) -> Result<Self::Value, BadValue>;
}

/// A value under construction.
#[derive(Debug)]
pub struct ValueBuilder(Form);

/// Generates [`Form`] and the methods of [`ValueBuilder`] from the list of collection types.
macro_rules! forms {
    ($($(#[$doc:meta])* $variant:ident($collection:ty),)*) => {
        #[derive(Debug)]
        enum Form {
            Str(Str),
            $($variant(<$collection as Serial>::Builder),)*
        }

        impl ValueBuilder {
            /// A builder of a value of this kind.
            ///
            /// # Errors
            /// Fails if Strand does not have values of this kind.
            pub fn new(kind: ValueKind) -> Result<ValueBuilder, BadValue> {
                if kind == ValueKind::String {
                    return Ok(ValueBuilder(Form::Str(Str::Int(0))));
                }
                $(if kind == <$collection>::KIND {
                    return Ok(ValueBuilder(Form::$variant(Default::default())));
                })*
                Err(BadValue("Strand does not support this type of value"))
            }

            /// Adds a part.
            ///
            /// # Errors
            /// Fails if the value has this element already, or cannot have it.
            pub fn add(&mut self, part: ValuePart<'_>, settings: &Settings) -> Result<(), BadValue> {
                match &mut self.0 {
                    Form::Str(value) => {
                        let ValuePart::String(text) = part else { return Err(MISPLACED) };
                        *value = string(text);
                        Ok(())
                    }
                    $(Form::$variant(builder) => builder.add_part(part, settings),)*
                }
            }

            /// Ends the building and returns the value.
            ///
            /// # Errors
            /// Fails if the value is a collection without elements.
            pub fn finish(self, settings: &Settings) -> Result<Value, BadValue> {
                match self.0 {
                    Form::Str(value) => Ok(Value::Str(value)),
                    $(Form::$variant(builder) => collection(builder.finish(settings)?),)*
                }
            }
        }
    };
}
strand_keyspace::collections!(forms);

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
