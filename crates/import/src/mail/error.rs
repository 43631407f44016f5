//! [`MailError`]: why a message cannot be imported.

use super::cost::STEPS_MAX;
use std::io;

/// Why a message cannot be imported. The text becomes the reason of the failed document.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MailError {
    /// The file has only white space.
    #[error("the file is empty")]
    Empty,
    /// The file does not begin with a header field, and has a zero in its first 4096 bytes.
    #[error("the file is binary, not mail")]
    Binary,
    /// The first line is not a header field.
    #[error("there is no header field")]
    NoHeader,
    /// The parser could not read any header field.
    #[error("no header field could be read")]
    Unreadable,
    /// The file has more than one message.
    #[error("a mailbox of several messages; only files of one message are read")]
    SeveralMessages,
    /// Parsing would take too many steps.
    #[error(
        "the message has too many multipart headers, encoded words or parameters: parsing the message takes more than \
         {STEPS_MAX} steps"
    )]
    Costly,
    /// The stack for parsing a message of this size cannot be allocated.
    #[error("no memory to parse {bytes} bytes: {error}")]
    Stack {
        /// The size of the message.
        bytes: usize,
        /// The operating system's error.
        error: io::Error,
    },
    /// The parser panicked.
    #[error("the mail parser panicked on this message")]
    Panic,
}
