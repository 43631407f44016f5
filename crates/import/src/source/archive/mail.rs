//! The attachments of a mail, as members of an archive.

use super::bytes::archive_error;
use crate::mail::{Body, MESSAGE_BYTES_MAX, MailError, cost, with_line_feeds};
use mail_parser::{MimeHeaders, PartType};
use std::io;

/// MIME subtypes of signatures. They are not imported as attachments.
const SIGNATURES: [&str; 3] = ["pgp-signature", "pkcs7-signature", "x-pkcs7-signature"];

/// The name and the bytes of each attachment of a message.
pub(super) fn attachments(message: &[u8]) -> io::Result<Vec<(Vec<u8>, Vec<u8>)>> {
    if message.len() as u64 > MESSAGE_BYTES_MAX {
        return Err(archive_error(format!("the message has more than {MESSAGE_BYTES_MAX} bytes")));
    }
    let message = &*with_line_feeds(message);
    cost::check(message).map_err(archive_error)?;
    let mut found = Vec::new();
    crate::mail::with_stack(message.len(), || {
        crate::mail::with_parsed(message, |parsed| {
            for (number, part) in Body::in_short(parsed).attachments(parsed) {
                let kind = part.content_type().and_then(|c| c.subtype()).unwrap_or_default();
                if SIGNATURES.iter().any(|s| kind.eq_ignore_ascii_case(s)) {
                    continue;
                }
                let (extension, bytes) = match &part.body {
                    PartType::Message(nested) => (".eml", nested.raw_message().to_vec()),
                    _ => ("", part.contents().to_vec()),
                };
                // Replace slashes, so that a name makes no folders.
                let name =
                    part.attachment_name().map(|name| name.replace(['/', '\0'], "_")).unwrap_or_default();
                let name = match name.trim() {
                    "" | "." | ".." => format!("part-{}{extension}", number + 1),
                    name => name.to_owned(),
                };
                found.push((name.into_bytes(), bytes));
            }
        })
    })
    .map_err(|error| match error {
        // The mail may be fine.
        MailError::Stack { .. } | MailError::Panic => io::Error::other(error),
        error => archive_error(error),
    })?;
    Ok(found)
}
