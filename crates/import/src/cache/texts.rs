//! [`Text`]: the fields that were extracted from a document, as bytes for a cache.
//!
//! A text is found by the version of the document's bytes and by the version of the extractor. So an import into another
//! dataset or another server does not read the source again. The document's place and its flags are no part of the
//! text. A document that could not be read whole has no text here: the next reading may do better.

use super::Version;
use crate::container::{Digest, Entry};
use crate::document::EXTRACTOR_VERSION;
use crate::fields::Fields;
use crate::source::{FLAGS_KEY, Source, Tokens};

/// Fields that depend on the document's place, and not on its bytes.
const OF_THE_PLACE: [&str; 5] = ["path", "name", "size", "parent", "flags"];
/// The version of the format of a text's bytes.
const FORMAT: u8 = 1;
/// Longest text in bytes that is kept. A document with a longer text is read again.
const BYTES_MAX: usize = super::PART_BYTES_MAX;

/// The fields of a document.
#[derive(Debug, Default)]
pub(crate) struct Text {
    /// The document's size in bytes.
    pub(crate) size: u64,
    /// The document's digest, as in the record of its container.
    pub(crate) digest: Digest,
    /// The extracted fields.
    pub(crate) fields: Fields,
}

/// The version under which the text of a document is kept. `None` where there is no cache, or where the version of the
/// bytes is not certain.
pub(crate) fn version(source: &dyn Source, path: &[u8], entry: &Entry<'_>) -> Option<Version> {
    source.cache()?;
    if entry.token.is_empty() {
        return None;
    }
    let bytes = match source.tokens() {
        // Equal tokens mean equal bytes, wherever they lie.
        Tokens::Content => [&b"content\0"[..], entry.token].concat(),
        Tokens::Stamps => source.cache_name(path, entry)?,
    };
    let producer = EXTRACTOR_VERSION.to_le_bytes();
    let name = [&b"text\0"[..], &[FORMAT], &producer, &kind(entry), b"\0", &bytes].concat();
    Some(Version::new(&name, entry.token))
}

/// The facts by which the extractor chooses, besides the bytes: whether the document lies in a Maildir, and the ending
/// of its name.
pub(crate) fn kind(entry: &Entry<'_>) -> Vec<u8> {
    let dot = entry.name.iter().rposition(|b| *b == b'.');
    let in_maildir = u8::from(entry.get(FLAGS_KEY).is_some());
    let suffix = dot.map_or(&[][..], |dot| &entry.name[dot..]);
    [&[in_maildir], suffix].concat()
}

impl Text {
    /// The text as bytes. `None` when it has too many bytes.
    pub(crate) fn encode(size: u64, digest: &Digest, fields: &Fields) -> Option<Vec<u8>> {
        let mut bytes = size.to_le_bytes().to_vec();
        bytes.extend_from_slice(digest);
        fields.encode(&mut bytes, |name| !OF_THE_PLACE.contains(&name));
        (bytes.len() <= BYTES_MAX).then_some(bytes)
    }

    /// The text from bytes. `None` when the bytes are not text.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Text> {
        let (size, rest) = bytes.split_first_chunk::<8>()?;
        let (digest, rest) = rest.split_first_chunk::<16>()?;
        let fields = Fields::decode(rest)?;
        Some(Text { size: u64::from_le_bytes(*size), digest: *digest, fields })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_what_it_was_and_nothing_else_is_one() {
        let mut fields = Fields::default();
        for name in ["path", "size", "flags"] {
            fields.set_text(name, "of the place");
        }
        fields.set_text("body", "some words");
        fields.set("subject", vec![0xff, 0]);
        fields.set_more("json.a", b"1".to_vec());
        let bytes = Text::encode(9, &[7; 16], &fields).expect("short");
        let text = Text::decode(&bytes).expect("just made");
        assert_eq!((text.size, text.digest), (9, [7; 16]));
        let mut told: Vec<_> = text.fields.present().collect();
        told.sort();
        assert_eq!(told, [("body", &b"some words"[..]), ("json.a", b"1"), ("subject", &[0xff, 0])]);
        for len in 0..bytes.len() {
            // Cut between two fields it is a shorter text; the cache's digest tells. Nothing else is taken.
            let _ = Text::decode(&bytes[..len]);
        }
        assert!(Text::decode(&bytes[..bytes.len() - 1]).is_none() && Text::decode(&[0xff; 60]).is_none());
        fields.set("body", vec![b'x'; BYTES_MAX]);
        assert!(Text::encode(9, &[7; 16], &fields).is_none());
    }
}
