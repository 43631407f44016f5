//! [`Fields`]: what a document is at the server.
//!
//! A set of values for the fixed list [`FIELDS`]: a document's hash never has a field outside it, so writing the present
//! ones and deleting the absent ones replaces a document without a moment in which it is gone.

/// Every field a document can have, in the order they are written. A field without a value is not stored.
pub const FIELDS: [&str; 16] = [
    "path",
    "name",
    "kind",
    "size",
    "parent",
    "message_id",
    "date",
    "from",
    "from_address",
    "to",
    "to_address",
    "cc",
    "subject",
    "body",
    "attachments",
    "flags",
];

/// The fields of one document.
#[derive(Debug, Default)]
pub struct Fields {
    values: [Option<Vec<u8>>; FIELDS.len()],
}

impl Fields {
    /// Gives `name` a value; an empty one means none.
    ///
    /// # Panics
    /// When `name` is not one of [`FIELDS`].
    pub fn set(&mut self, name: &str, value: Vec<u8>) {
        let at = FIELDS.iter().position(|f| *f == name).expect("a field of the list");
        self.values[at] = Some(value).filter(|v| !v.is_empty());
    }
    /// As [`Fields::set`], from text.
    pub fn set_text(&mut self, name: &str, value: &str) {
        self.set(name, value.as_bytes().to_vec());
    }
    /// The value of `name`.
    pub fn get(&self, name: &str) -> Option<&[u8]> {
        let at = FIELDS.iter().position(|f| *f == name)?;
        self.values[at].as_deref()
    }
    /// The fields that have a value.
    pub fn present(&self) -> impl Iterator<Item = (&'static str, &[u8])> {
        FIELDS.iter().zip(&self.values).filter_map(|(name, value)| Some((*name, value.as_deref()?)))
    }
    /// The fields that have none.
    pub fn absent(&self) -> impl Iterator<Item = &'static str> {
        FIELDS.iter().zip(&self.values).filter(|(_, value)| value.is_none()).map(|(name, _)| *name)
    }
}
