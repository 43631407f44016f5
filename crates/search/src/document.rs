//! What a hash becomes in an index: [`Fields`] maps the fields of a schema to the fields of a tantivy document.
//!
//! A schema field becomes up to three tantivy fields: exact words or tags, stems, and a column for sorting. The document
//! stores no values. This module leaves out when documents are read and written: see [`crate::follow`] and
//! [`crate::index`].

use crate::error::lossy;
use crate::schema::{FieldKind, Schema, parse_number};
use crate::tokenizer::{lower, push_lower};
use strand_chain::Blob;
use tantivy::TantivyDocument;
use tantivy::schema::{
    BytesOptions, Field, IndexRecordOption, NumericOptions, TextFieldIndexing, TextOptions,
};

/// Maximum length of a key that is indexed, in bytes. A tantivy term has at most 64 KiB.
pub(crate) const INDEXED_KEY_BYTES_MAX: usize = 60 * 1024;
/// Maximum length of a value kept for sorting, in bytes. A longer value is truncated.
pub(crate) const SORT_VALUE_BYTES_MAX: usize = 4096;
/// Maximum length of the indexed part of a TEXT or TAG value, in bytes. Searches do not find what follows this part.
pub(crate) const INDEXED_VALUE_BYTES_MAX: usize = 16 << 20;

/// Name of the column with the keys.
pub(crate) const KEY: &str = "key";
/// Name of the column with the documents' numbers. Each document that is written gets the next number. If a key's
/// document has the same number at two moments, the key was not written in between.
pub(crate) const NUMBER: &str = "number";
/// Name of the column with the expiry times (unix milliseconds).
pub(crate) const EXPIRE: &str = "expire";

/// The values of one hash that an index needs: read while the shard is locked, indexed after it is unlocked.
#[derive(Debug)]
pub(crate) struct DocumentValues {
    pub(crate) expire_at_ms: Option<i64>,
    /// When the first of the schema's fields expires. The document must then be read again.
    pub(crate) field_expires_at_ms: Option<i64>,
    /// The values of the schema's fields, in the order of the schema.
    pub(crate) values: Vec<Option<Blob>>,
}

/// The tantivy fields for each schema field, by the field's number.
#[derive(Debug)]
pub(crate) struct Fields {
    pub(crate) key: Field,
    expire: Field,
    pub(crate) number: Field,
    pub(crate) words: Vec<Option<Field>>,
    pub(crate) stems: Vec<Option<Field>>,
    pub(crate) tags: Vec<Option<Field>>,
    pub(crate) numbers: Vec<Option<Field>>,
    sorts: Vec<Option<Field>>,
}

impl Fields {
    /// The tantivy schema for `schema`, and its fields.
    pub(crate) fn of(schema: &Schema) -> (tantivy::schema::Schema, Fields) {
        let mut builder = tantivy::schema::Schema::builder();
        let key = builder.add_bytes_field(KEY, BytesOptions::default().set_indexed().set_fast());
        let expire = builder.add_i64_field(EXPIRE, NumericOptions::default().set_fast());
        let number = builder.add_u64_field(NUMBER, NumericOptions::default().set_fast());
        let indexed = |tokenizer: &str, option, norms| {
            let indexing = TextFieldIndexing::default()
                .set_tokenizer(tokenizer)
                .set_index_option(option)
                .set_fieldnorms(norms);
            TextOptions::default().set_indexing_options(indexing)
        };
        let mut fields = Fields {
            key,
            expire,
            number,
            words: Vec::new(),
            stems: Vec::new(),
            tags: Vec::new(),
            numbers: Vec::new(),
            sorts: Vec::new(),
        };
        for (i, spec) in schema.fields.iter().enumerate() {
            let (mut words, mut stems, mut tags, mut numbers, mut sorts) = (None, None, None, None, None);
            let is_searched = !spec.no_index;
            match spec.kind {
                FieldKind::Text { no_stem, .. } if is_searched => {
                    let exact = indexed("words", IndexRecordOption::WithFreqsAndPositions, true);
                    words = Some(builder.add_text_field(&format!("w{i}"), exact));
                    stems = (!no_stem).then(|| {
                        builder.add_text_field(
                            &format!("z{i}"),
                            indexed("stems", IndexRecordOption::WithFreqs, true),
                        )
                    });
                }
                FieldKind::Tag { .. } if is_searched => {
                    tags =
                        Some(builder.add_text_field(
                            &format!("t{i}"),
                            indexed("raw", IndexRecordOption::Basic, false),
                        ));
                }
                FieldKind::Numeric => {
                    // A number is stored only in a column, because ranges scan the column and sorting reads it.
                    numbers =
                        Some(builder.add_f64_field(&number_column(i), NumericOptions::default().set_fast()));
                }
                _ => {}
            }
            if spec.sortable && spec.kind != FieldKind::Numeric {
                sorts = Some(builder.add_text_field(&sort_column(i), TextOptions::default().set_fast("raw")));
            }
            fields.words.push(words);
            fields.stems.push(stems);
            fields.tags.push(tags);
            fields.numbers.push(numbers);
            fields.sorts.push(sorts);
        }
        (builder.build(), fields)
    }

    /// The document of the hash at `key`. `None` when the hash has none of the schema's fields.
    ///
    /// # Errors
    /// When the hash cannot be indexed.
    pub(crate) fn document(
        &self,
        schema: &Schema,
        key: &[u8],
        source: &DocumentValues,
    ) -> Result<Option<TantivyDocument>, Unindexable> {
        if source.values.iter().all(Option::is_none) {
            return Ok(None);
        }
        if key.len() > INDEXED_KEY_BYTES_MAX {
            return Err(Unindexable::LongKey(key.len()));
        }
        let mut document = TantivyDocument::new();
        document.add_bytes(self.key, key);
        if let Some(at_ms) = source.expire_at_ms {
            document.add_i64(self.expire, at_ms);
        }
        for (i, spec) in schema.fields.iter().enumerate() {
            let Some(value) = &source.values[i] else { continue };
            if let FieldKind::Numeric = spec.kind {
                let number = parse_number(value);
                let number = number.ok_or_else(|| Unindexable::NotANumber(lossy(&spec.identifier)))?;
                if let Some(field) = self.numbers[i] {
                    document.add_f64(field, number + 0.0);
                }
                continue;
            }
            let text = String::from_utf8_lossy(&value[..value.len().min(INDEXED_VALUE_BYTES_MAX)]);
            for field in [self.words[i], self.stems[i]].into_iter().flatten() {
                document.add_text(field, &text);
            }
            if let (Some(field), FieldKind::Tag { separator, case_sensitive }) = (self.tags[i], &spec.kind) {
                for tag in tags(&text, *separator) {
                    document.add_text(field, if *case_sensitive { tag.to_string() } else { lower(tag) });
                }
            }
            if let Some(field) = self.sorts[i] {
                document.add_text(field, sort_value(&text, spec.unnormalized));
            }
        }
        Ok(Some(document))
    }

    /// Bytes of the texts of a document while it waits for the writer: each field of the library has its own copy.
    pub(crate) fn text_bytes(&self, source: &DocumentValues) -> usize {
        let Fields { words, stems, tags, .. } = self;
        let copies = |i: usize| [words[i], stems[i], tags[i]].iter().flatten().count();
        let values = source.values.iter().enumerate();
        values
            .filter_map(|(i, value)| Some(copies(i) * value.as_ref()?.len().min(INDEXED_VALUE_BYTES_MAX)))
            .sum()
    }
}

/// Why a document is not indexed.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum Unindexable {
    #[error("the key has {0} bytes, and at most {INDEXED_KEY_BYTES_MAX} are possible")]
    LongKey(usize),
    #[error("the value of the field {0} is not a number")]
    NotANumber(String),
}

/// Name of a field's numeric column.
pub(crate) fn number_column(field: usize) -> String {
    format!("n{field}")
}
/// Name of the column that sorts by a SORTABLE text or tag field.
pub(crate) fn sort_column(field: usize) -> String {
    format!("s{field}")
}

/// The values of a tag field.
fn tags(text: &str, separator: u8) -> impl Iterator<Item = &str> {
    text.split(separator as char).map(str::trim).filter(|t| !t.is_empty())
}

/// The value by which a SORTABLE field sorts.
fn sort_value(text: &str, unnormalized: bool) -> String {
    let mut value = String::new();
    for c in text.chars() {
        if value.len() >= SORT_VALUE_BYTES_MAX {
            break;
        }
        if unnormalized { value.push(c) } else { push_lower(&mut value, c) }
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_split_and_trimmed() {
        assert_eq!(tags(" a, b c ,,d,", b',').collect::<Vec<_>>(), ["a", "b c", "d"]);
        assert_eq!(tags("a,b;c", b';').collect::<Vec<_>>(), ["a,b", "c"]);
        assert_eq!(tags("", b',').count(), 0);
    }

    #[test]
    fn sort_values_are_folded_and_cut() {
        assert_eq!(sort_value("ÄbC", false), "äbc");
        assert_eq!(sort_value("ÄbC", true), "ÄbC");
        assert_eq!(sort_value(&"x".repeat(9000), false).len(), SORT_VALUE_BYTES_MAX);
    }
}
