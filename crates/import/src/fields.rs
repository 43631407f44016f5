//! [`Fields`]: what a document is at the server.
//!
//! A set of values for the fixed list [`FIELDS`]: the hash of a mail or a text has no field outside it, so writing the present
//! ones and deleting the absent ones replaces a document without a moment in which it is gone. What names its fields itself
//! (JSON) has more; its hash is replaced as a whole.

/// Every field a document can have, in the order they are written. A field without a value is not stored.
pub const FIELDS: [&str; 19] = [
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
    "title",
    "columns",
    "rows",
    "body",
    "attachments",
    "flags",
];

/// The fields of one document.
#[derive(Debug, Default)]
pub struct Fields {
    values: [Option<Vec<u8>>; FIELDS.len()],
    /// Fields that the document names itself.
    more: Vec<(String, Vec<u8>)>,
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
    /// Gives a field that is not of the list a value. The first value of a name counts.
    pub fn set_more(&mut self, name: &str, value: Vec<u8>) {
        if !value.is_empty() && self.more.iter().all(|(there, _)| there != name) {
            self.more.push((name.to_owned(), value));
        }
    }
    /// How many fields are not of the list.
    pub fn more_len(&self) -> usize {
        self.more.len()
    }
    /// The fields that have a value.
    pub fn present(&self) -> impl Iterator<Item = (&str, &[u8])> {
        let listed = FIELDS.iter().zip(&self.values);
        let listed = listed.filter_map(|(name, value)| Some((*name, value.as_deref()?)));
        listed.chain(self.more.iter().map(|(name, value)| (name.as_str(), &value[..])))
    }
    /// The fields that have none.
    pub fn absent(&self) -> impl Iterator<Item = &'static str> {
        FIELDS.iter().zip(&self.values).filter(|(_, value)| value.is_none()).map(|(name, _)| *name)
    }
}
