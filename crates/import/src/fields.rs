//! [`Fields`]: a document's fields at the server.
//!
//! A document has values for some fields of the fixed list [`FIELDS`]. A mail or a text has no other fields. So the
//! importer replaces a document by setting the fields that have a value and deleting the other fields of the list, and
//! the hash exists at every moment. A JSON document has extra fields with names of its own. Its hash is replaced as a
//! whole.

/// Every field of a document, in the order of writing. A field without a value is not stored.
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
    /// Fields outside of the list, with names from the document.
    extra: Vec<(String, Vec<u8>)>,
}

impl Fields {
    /// Sets the value of `name`. An empty value means no value.
    ///
    /// # Panics
    /// When `name` is not one of [`FIELDS`].
    pub fn set(&mut self, name: &str, value: Vec<u8>) {
        let at = FIELDS.iter().position(|f| *f == name).expect("a field of the list");
        self.values[at] = Some(value).filter(|v| !v.is_empty());
    }
    /// Does what [`Fields::set`] does, with text.
    pub fn set_text(&mut self, name: &str, value: &str) {
        self.set(name, value.as_bytes().to_vec());
    }
    /// The value of `name`.
    pub fn get(&self, name: &str) -> Option<&[u8]> {
        let at = FIELDS.iter().position(|f| *f == name)?;
        self.values[at].as_deref()
    }
    /// Sets the value of a field outside of the list, unless it has a value already.
    pub fn set_extra(&mut self, name: &str, value: Vec<u8>) {
        if !value.is_empty() && self.extra.iter().all(|(existing, _)| existing != name) {
            self.extra.push((name.to_owned(), value));
        }
    }
    /// The number of fields outside of the list.
    pub fn extra_len(&self) -> usize {
        self.extra.len()
    }
    /// Appends the fields that are `wanted`, in the format that [`Fields::decode`] reads.
    pub(crate) fn encode(&self, into: &mut Vec<u8>, wanted: impl Fn(&str) -> bool) {
        for (name, value) in self.present().filter(|(name, _)| wanted(name)) {
            put(into, name.as_bytes());
            put(into, value);
        }
    }
    /// Reads what [`Fields::encode`] wrote. `None` when the bytes are not a list of fields.
    pub(crate) fn decode(mut rest: &[u8]) -> Option<Fields> {
        let mut fields = Fields::default();
        while !rest.is_empty() {
            let name = std::str::from_utf8(take(&mut rest)?).ok()?;
            fields.set_any(name, take(&mut rest)?.to_vec());
        }
        Some(fields)
    }
    /// Sets the fields that have a value in `other`.
    pub(crate) fn add(&mut self, other: Fields) {
        for (name, value) in other.present() {
            self.set_any(name, value.to_vec());
        }
    }
    fn set_any(&mut self, name: &str, value: Vec<u8>) {
        match FIELDS.contains(&name) {
            true => self.set(name, value),
            false => self.set_extra(name, value),
        }
    }
    /// The fields that have a value.
    pub fn present(&self) -> impl Iterator<Item = (&str, &[u8])> {
        let listed = FIELDS.iter().zip(&self.values);
        let listed = listed.filter_map(|(name, value)| Some((*name, value.as_deref()?)));
        listed.chain(self.extra.iter().map(|(name, value)| (name.as_str(), &value[..])))
    }
    /// The fields that have no value.
    pub fn absent(&self) -> impl Iterator<Item = &'static str> {
        FIELDS.iter().zip(&self.values).filter(|(_, value)| value.is_none()).map(|(name, _)| *name)
    }
}

/// Appends the length of `part` as four bytes, and `part`.
///
/// # Panics
/// When `part` has 4 GiB or more. Documents are bounded far below.
pub(crate) fn put(bytes: &mut Vec<u8>, part: &[u8]) {
    bytes.extend_from_slice(&u32::try_from(part.len()).expect("parts are shorter than 4 GiB").to_le_bytes());
    bytes.extend_from_slice(part);
}

/// Removes what [`put`] wrote from the beginning of `bytes`, and returns the part. `None` when `bytes` ends too early.
pub(crate) fn take<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (len, rest) = bytes.split_first_chunk::<4>()?;
    let (part, rest) = rest.split_at_checked(u32::from_le_bytes(*len) as usize)?;
    *bytes = rest;
    Some(part)
}
