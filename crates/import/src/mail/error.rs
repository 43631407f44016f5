//! [`MailError`]: why a message is a dead letter.

use super::cost::STEPS_MAX;
use std::io;

/// Why a message is a dead letter. The text is the reason that the dead letter has.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MailError {
    /// There is nothing but white space.
    #[error("the file is empty")]
    Empty,
    /// The file has zeros where header fields are expected.
    #[error("the file is binary, not mail")]
    Binary,
    /// The first line is no header field.
    #[error("there is no header field")]
    NoHeader,
    /// The parser found no header field that it can read.
    #[error("no header field could be read")]
    Unreadable,
    /// The file has more than one message.
    #[error("a mailbox of several messages; only files of one message are read")]
    SeveralMessages,
    /// Parsing would take too many steps.
    #[error("the message has so many multipart headers that parsing it takes more than {STEPS_MAX} steps")]
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
    #[error("the parser failed")]
    Panic,
}
