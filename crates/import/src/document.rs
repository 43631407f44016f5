//! Documents: the fields of a file, whatever its type.
//!
//! [`extract`] chooses by name, place and content. [`crate::mail`] reads mail, and [`crate::extract`] other documents.
//! A file that neither can read keeps its name and size.

use crate::cache::texts::Text;
use crate::container::Entry;
use crate::extract::child::Extractor;
use crate::extract::{Content, ExtractError};
use crate::fields::Fields;
use crate::mail::{self, MailError};
use crate::source::FLAGS_KEY;

/// The version of the extractors here, in [`crate::mail`] and in [`crate::extract`]. Raise the version when an
/// extractor makes other fields of a file than before. Then the next import reads every document again.
pub const EXTRACTOR_VERSION: u16 = 9;

/// The facts about a file before its bytes are read.
#[derive(Clone, Copy, Debug)]
pub struct FileFacts<'a> {
    /// The file's id: the path within the source.
    pub path: &'a [u8],
    /// The last part of the path.
    pub name: &'a [u8],
    /// Size in bytes.
    pub size: u64,
    /// The file's Maildir flags, if it lies in a Maildir.
    pub flags: Option<&'a [u8]>,
    /// The id of the archive that holds the file. `None` outside of archives.
    pub parent: Option<&'a [u8]>,
    /// The kind of archive. `None` when the file is not an archive.
    pub archive: Option<&'static str>,
}

/// True when the entry's document must be mail: see [`FileFacts::is_declared_mail`].
pub(crate) fn is_declared_mail(entry: &Entry<'_>) -> bool {
    let flags = entry.get(FLAGS_KEY);
    FileFacts { path: &[], name: entry.name, size: 0, flags, parent: None, archive: None }.is_declared_mail()
}

impl FileFacts<'_> {
    /// True when the file must be mail: its name ends in `.eml`, or it is in a Maildir. If it is not mail, it becomes a
    /// failed document.
    pub fn is_declared_mail(&self) -> bool {
        let extension = self.name.len().checked_sub(4).map(|at| &self.name[at..]);
        self.flags.is_some() || extension.is_some_and(|e| e.eq_ignore_ascii_case(b".eml"))
    }
    /// True when the name ends in `.mbox`: a mailbox, which may hold many messages.
    fn is_mailbox(&self) -> bool {
        let extension = self.name.len().checked_sub(5).map(|at| &self.name[at..]);
        extension.is_some_and(|e| e.eq_ignore_ascii_case(b".mbox"))
    }
    /// True when the file is read as mail, because of its name, its place or its beginning.
    pub fn is_mail(&self, beginning: &[u8]) -> bool {
        self.archive.is_none() && (self.is_declared_mail() || mail::looks_like_mail(beginning))
    }
}

/// How a document's bytes are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading<'a> {
    /// The bytes are not read. The document has only name and size.
    Not,
    /// As one mail.
    Mail(&'a [u8]),
    /// As a document of this kind.
    Other(Content, &'a [u8]),
}

/// Returns the fields of a file's document. If not all of the file could be read, also returns the reason. The document
/// then has name and size at least.
///
/// # Errors
/// The reason why the file becomes a failed document.
pub(crate) fn extract(
    facts: &FileFacts<'_>,
    reading: Reading<'_>,
    extractor: &mut Extractor,
) -> Result<(Fields, Option<ExtractError>), MailError> {
    let mut fields = Fields::default();
    set_place(facts, &mut fields);
    let kind = match reading {
        Reading::Not => "file",
        Reading::Mail(_) => "mail",
        Reading::Other(content, _) => content.kind(),
    };
    fields.set_text("kind", facts.archive.unwrap_or(kind));
    let mut failure = None;
    match reading {
        Reading::Not => {}
        Reading::Mail(bytes) => {
            if facts.is_mailbox() && mail::has_more_messages(bytes) {
                return Err(MailError::SeveralMessages);
            }
            mail::extract(bytes, &mut fields)?;
        }
        Reading::Other(content, bytes) => {
            failure = extractor.extract(content, bytes, facts.path, &mut fields).err();
        }
    }
    Ok((fields, failure))
}

/// Returns the fields of a file's document from its cached text. The fields are equal to those of [`extract`].
pub(crate) fn place_text(facts: &FileFacts<'_>, text: Text) -> Fields {
    let Text { mut fields, .. } = text;
    set_place(facts, &mut fields);
    fields
}

/// Sets the fields that describe the place of a document.
fn set_place(facts: &FileFacts<'_>, fields: &mut Fields) {
    fields.set("path", facts.path.to_vec());
    fields.set("name", facts.name.to_vec());
    fields.set("size", facts.size.to_string().into_bytes());
    fields.set("parent", facts.parent.unwrap_or_default().to_vec());
    fields.set("flags", facts.flags.unwrap_or_default().to_vec());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fields::FIELDS;

    fn facts(name: &str) -> FileFacts<'_> {
        FileFacts {
            path: name.as_bytes(),
            name: name.as_bytes(),
            size: 3,
            flags: None,
            parent: None,
            archive: None,
        }
    }

    #[test]
    fn other_files_keep_their_name_and_size() {
        let fields = extract(&facts("notes.bin"), Reading::Not, &mut Extractor::default()).unwrap().0;
        let present: Vec<_> =
            fields.present().map(|(n, v)| (n, String::from_utf8_lossy(v).into_owned())).collect();
        let expected = [("path", "notes.bin"), ("name", "notes.bin"), ("kind", "file"), ("size", "3")];
        assert_eq!(present, expected.map(|(n, v)| (n, v.to_owned())));
        assert_eq!(fields.absent().count() + present.len(), FIELDS.len());
    }

    #[test]
    fn a_mailbox_of_several_messages_is_not_a_message() {
        let one = "From a@b.example Mon Jan  6 10:00:00 2025\nSubject: s\n\nFrom here on\n";
        let read =
            |text: &str| extract(&facts("x.mbox"), Reading::Mail(text.as_bytes()), &mut Extractor::default());
        assert!(read(one).is_ok());
        let two = format!("{one}\n{one}");
        assert!(matches!(read(&two), Err(MailError::SeveralMessages)));
    }

    #[test]
    fn a_file_is_mail_by_its_name_or_in_a_maildir() {
        assert!(
            facts("a.EML").is_declared_mail()
                && !facts("eml").is_declared_mail()
                && !facts("a.txt").is_declared_mail()
        );
        assert!(FileFacts { flags: Some(b""), ..facts("x") }.is_declared_mail());
        assert!(facts("a.txt").is_mail(b"From: a@b.example\n\nhi") && !facts("a.txt").is_mail(b"hi"));
    }
}
