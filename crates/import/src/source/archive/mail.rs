//! The attachments of a mail, as members of an archive.

use super::bytes::refused;
use crate::mail::{MESSAGE_BYTES_MAX, cost};
use mail_parser::{MimeHeaders, PartType};
use std::io;

/// The types of signatures. Nobody reads them as attachments.
const SIGNATURES: [&str; 3] = ["pgp-signature", "pkcs7-signature", "x-pkcs7-signature"];

/// Name and bytes of each attachment.
pub(super) fn attachments(message: &[u8]) -> io::Result<Vec<(Vec<u8>, Vec<u8>)>> {
    if message.len() as u64 > MESSAGE_BYTES_MAX {
        return Err(refused(format!("the message has more than {MESSAGE_BYTES_MAX} bytes")));
    }
    cost::check(message).map_err(refused)?;
    let mut found = Vec::new();
    crate::mail::with_stack(message.len(), || {
        let Some(parsed) = crate::mail::PARSER.parse(message) else { return };
        for (number, part) in parsed.attachments().enumerate() {
            let kind = part.content_type().and_then(|c| c.subtype()).unwrap_or_default();
            if SIGNATURES.iter().any(|s| kind.eq_ignore_ascii_case(s)) {
                continue;
            }
            let (extension, bytes) = match &part.body {
                PartType::Message(nested) => (".eml", nested.raw_message().to_vec()),
                _ => ("", part.contents().to_vec()),
            };
            // Slashes in a name are replaced, so a mail makes no folders.
            let name = part.attachment_name().map(|name| name.replace(['/', '\0'], "_")).unwrap_or_default();
            let name = match name.trim() {
                "" | "." | ".." => format!("part-{}{extension}", number + 1),
                name => name.to_owned(),
            };
            found.push((name.into_bytes(), bytes));
        }
    })
    .map_err(refused)?;
    Ok(found)
}
