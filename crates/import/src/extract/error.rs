//! [`ExtractError`]: why a document could not be read, or not all of it.

use super::pdf::VARIABLE;
use std::io;
use std::time::Duration;

/// Why a document could not be read, or not all of it. The text becomes the reason of a failed document.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ExtractError {
    /// The extraction was stopped after this time.
    #[error("the extraction took more than {:.0} s", .0.as_secs_f64().ceil())]
    Timeout(Duration),
    /// The zip of an office file is damaged, or goes beyond a bound.
    #[error("the office file cannot be unpacked: {0}")]
    Zip(io::Error),
    /// An office file has none of the parts that hold text.
    #[error("the office file has no part with text")]
    NoText,
    /// The XML of an office file is damaged.
    #[error("{part}: the XML is damaged at byte {offset}: {error}")]
    Xml {
        /// The name of the part in the zip.
        part: String,
        /// The place in the part.
        offset: u64,
        /// The parser's error.
        error: quick_xml::Error,
    },
    /// The cells of a spreadsheet share too many strings.
    #[error("the shared strings of the spreadsheet have more than {bytes_max} bytes")]
    Strings {
        /// The bound.
        bytes_max: usize,
    },
    /// A document with the name of a JSON file is not JSON.
    #[error("the document is not valid JSON: {0}")]
    Json(serde_json::Error),
    /// A document with the name of a table cannot be divided into rows.
    #[error("the document is not a table: {0}")]
    Table(csv::Error),
    /// No program reads PDF on this machine.
    #[error(
        "{program} is not installed: install Debian's poppler-utils, or name the program that reads PDF by {VARIABLE}"
    )]
    NoPdfReader {
        /// The program.
        program: String,
    },
    /// The program that reads PDF cannot be started.
    #[error("{program} cannot be started: {error}")]
    PdfStart {
        /// The program.
        program: String,
        /// The operating system's error.
        error: io::Error,
    },
    /// The program that reads PDF gave no answer, for this reason.
    #[error("{program} gave no answer: {reason}")]
    Pdf {
        /// The program.
        program: String,
        /// Why there is no answer.
        reason: String,
    },
    /// The program that reads PDF refused the document.
    #[error("{program} cannot read the document: {complaint}")]
    PdfRefused {
        /// The program.
        program: String,
        /// The program's error output, or how the program ended where there is none.
        complaint: String,
    },
    /// The process that extracts documents cannot be started.
    #[error("the extractor cannot be started: {0}")]
    Start(io::Error),
    /// Two processes in a row died while they extracted this document.
    #[error("the extractor crashed twice on this document ({how}; its limit is {memory_mib} MiB of memory)")]
    Died {
        /// How the process ended.
        how: String,
        /// The bound on the memory of the process.
        memory_mib: u64,
    },
    /// Two processes in a row answered with bytes that are not an answer.
    #[error("the extractor answered this document twice with invalid bytes: {problem}")]
    InvalidAnswer {
        /// What is wrong with the second answer.
        problem: String,
    },
    /// The process that extracts documents reports this error text.
    #[error("{reason}")]
    Reported {
        /// The text.
        reason: String,
        /// What [`ExtractError::may_pass`] returned in that process.
        may_pass: bool,
    },
}

impl ExtractError {
    /// True when the cause may be the machine or its programs: the same bytes may be extracted at another time.
    pub(crate) fn may_pass(&self) -> bool {
        use ExtractError::{Died, InvalidAnswer, NoPdfReader, Pdf, PdfStart, Reported, Start, Timeout};
        matches!(
            self,
            Reported { may_pass: true, .. }
                | Timeout(_)
                | NoPdfReader { .. }
                | PdfStart { .. }
                | Pdf { .. }
                | Start(_)
                | Died { .. }
                | InvalidAnswer { .. }
        )
    }
}
