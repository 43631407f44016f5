//! [`Text`]: the extracted fields of a document, encoded for the cache.
//!
//! The key of a text has the version of the document's bytes and the version of the extractor. So an import into
//! another dataset or another server does not read the source again. The fields about the document's place and its
//! flags are not part of a text. A document of which a part could not be read has no text here, so the next run reads
//! it again.

use super::Version;
use crate::container::{ContainerDigest, Entry};
use crate::document::EXTRACTOR_VERSION;
use crate::fields::Fields;
use crate::source::{FLAGS_KEY, Source, Tokens};

/// Fields that depend on the document's place, and not on its bytes.
const PLACE_FIELDS: [&str; 5] = ["path", "name", "size", "parent", "flags"];
/// The version of the format of a text's bytes.
const FORMAT: u8 = 1;
/// Maximum number of bytes of a text in the cache. A document with a longer text is read again by each run.
const BYTES_MAX: usize = super::PART_BYTES_MAX;

/// The fields of a document.
#[derive(Debug, Default)]
pub(crate) struct Text {
    /// The document's size in bytes.
    pub(crate) size: u64,
    /// The document's digest, as in the record of its container.
    pub(crate) digest: ContainerDigest,
    /// The extracted fields.
    pub(crate) fields: Fields,
}

/// The cache key of a document's text. `None` when there is no cache, or when the version of the document's bytes is
/// not certain.
pub(crate) fn version(source: &dyn Source, path: &[u8], entry: &Entry<'_>) -> Option<Version> {
    source.cache()?;
    if entry.token.is_empty() {
        return None;
    }
    let bytes = match source.tokens() {
        // Equal tokens mean equal bytes, so the document's place is not part of the key.
        Tokens::Content => [&b"content\0"[..], entry.token].concat(),
        Tokens::Stamps => source.cache_name(path, entry)?,
    };
    let producer = EXTRACTOR_VERSION.to_le_bytes();
    let name = [&b"text\0"[..], &[FORMAT], &producer, &kind(entry), b"\0", &bytes].concat();
    Some(Version::new(&name, entry.token))
}

/// The facts besides the bytes from which the extractor chooses a format: whether the document is in a Maildir, and the
/// ending of its name.
pub(crate) fn kind(entry: &Entry<'_>) -> Vec<u8> {
    let dot = entry.name.iter().rposition(|b| *b == b'.');
    let in_maildir = u8::from(entry.get(FLAGS_KEY).is_some());
    let suffix = dot.map_or(&[][..], |dot| &entry.name[dot..]);
    [&[in_maildir], suffix].concat()
}

impl Text {
    /// Encodes a text. `None` when it has too many bytes for the cache.
    pub(crate) fn encode(size: u64, digest: &ContainerDigest, fields: &Fields) -> Option<Vec<u8>> {
        let mut bytes = size.to_le_bytes().to_vec();
        bytes.extend_from_slice(digest);
        fields.encode(&mut bytes, |name| !PLACE_FIELDS.contains(&name));
        (bytes.len() <= BYTES_MAX).then_some(bytes)
    }

    /// Reads what [`Text::encode`] wrote. `None` when the bytes are not an encoded text.
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
    fn texts_round_trip_and_other_bytes_are_refused() {
        let mut fields = Fields::default();
        for name in ["path", "size", "flags"] {
            fields.set_text(name, "of the place");
        }
        fields.set_text("body", "some words");
        fields.set("subject", vec![0xff, 0]);
        fields.set_extra("json.a", b"1".to_vec());
        let bytes = Text::encode(9, &[7; 16], &fields).expect("short");
        let text = Text::decode(&bytes).expect("just made");
        assert_eq!((text.size, text.digest), (9, [7; 16]));
        let mut decoded: Vec<_> = text.fields.present().collect();
        decoded.sort();
        assert_eq!(decoded, [("body", &b"some words"[..]), ("json.a", b"1"), ("subject", &[0xff, 0])]);
        for len in 0..bytes.len() {
            // Bytes that end between two fields decode to a text with fewer fields. The cache's digest finds such a
            // cut, so decoding must only not panic.
            let _ = Text::decode(&bytes[..len]);
        }
        assert!(Text::decode(&bytes[..bytes.len() - 1]).is_none() && Text::decode(&[0xff; 60]).is_none());
        fields.set("body", vec![b'x'; BYTES_MAX]);
        assert!(Text::encode(9, &[7; 16], &fields).is_none());
    }
}
