//! [`ImportError`]: why a run stops before its end.
//!
//! `Error::source` returns `None`, because the text of an error already includes its cause.

use crate::connection::REPLY_TIMEOUT;
use crate::container::ContainerError;
use crate::filter::FilterError;
use crate::job::{CONTAINERS_HELD_BYTES_MAX, DATASET_BYTES_MAX, DEPTH_MAX};
use crate::source::ListError;
use std::io;
use std::path::PathBuf;
use strand_dial::DialError;
use strand_wire::resp::ProtocolError;

/// Why a run stopped before its end. What the run has recorded stays, and the next run continues from there.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImportError {
    /// An option is wrong, contradicts another option, or does not fit the dataset.
    #[error(transparent)]
    Options(#[from] OptionError),
    /// The source does not exist or cannot be opened.
    #[error("cannot open the source {path}: {error}", path = path.display())]
    Source {
        /// The source's name as the user gave it.
        path: PathBuf,
        /// The error of the operating system, of the repository or of the server.
        error: io::Error,
    },
    /// The root could not be listed (a folder below it is a failed document instead).
    #[error("cannot list {0}")]
    List(ListError),
    /// Nothing accepts connections at the address, or the server does not complete the TLS handshake.
    #[error("cannot connect to {address}: {error}")]
    Connect {
        /// `host:port`, or the path of a Unix socket.
        address: String,
        /// Why there is no connection.
        error: DialError,
    },
    /// The connection to the server broke.
    #[error("lost the server at {address}: {reason}")]
    Lost {
        /// `host:port`.
        address: String,
        /// How the connection broke.
        reason: Loss,
    },
    /// The sink does not accept what the run sends.
    #[error("cannot write to {sink}: {reason}")]
    Sink {
        /// The file, or the collection.
        sink: String,
        /// What is wrong.
        reason: SinkError,
    },
    /// The file of the records cannot be read or written.
    #[error("cannot read or write the records in {path}: {error}", path = path.display())]
    State {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        error: Box<redb::Error>,
    },
    /// The file with the records of a destination that keeps none itself is damaged.
    #[error(
        "the records in {} are damaged: {why}. Delete this file and import again. That import sends every document again, and \
         does not remove documents that SOURCE has lost since the last import",
        path.display()
    )]
    DamagedRecords {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// Another importer of the dataset is at work.
    #[error("another import into {dataset:?} is under way: --wait waits for its end")]
    Busy {
        /// The dataset.
        dataset: String,
    },
    /// The peer does not speak RESP.
    #[error("the server at {address} does not speak the Redis protocol: {error}")]
    Protocol {
        /// `host:port`.
        address: String,
        /// The error at the place where the reply stops being valid RESP.
        error: ProtocolError,
    },
    /// The server answered with an error that is not about one document.
    #[error("the server refused {command}: {text}")]
    Refused {
        /// The first words of the refused command.
        command: String,
        /// The error text of the server.
        text: String,
    },
    /// A recorded container cannot be read.
    #[error(
        "the record of the folder {path:?} in the dataset {dataset:?} is damaged: {error}. Delete the record with \
         IMPORT.VERSION DEL. The next import then sends every document of this folder"
    )]
    Damaged {
        /// The dataset.
        dataset: String,
        /// The path of the container in the dataset.
        path: String,
        /// What is wrong.
        error: ContainerError,
    },
    /// More documents would be removed than the options allow. Nothing was changed, unless an archive had lost the
    /// documents: the run knows of this loss only when it opens the archive.
    #[error(
        "stopped by --max-delete: {removed} of {held} documents would be removed, and the run has removed {}. Check that \
         SOURCE is complete. To allow the removal, use --max-delete {removed} or 100%",
        match gone { 0 => "none".to_owned(), gone => gone.to_string() }
    )]
    TooManyDeletions {
        /// Documents that would be removed.
        removed: u64,
        /// Documents that the server holds of the dataset.
        held: u64,
        /// Documents that the run had removed when it stopped.
        gone: u64,
    },
    /// The source has lost documents after the run had made its plan, and the options do not allow to remove more of them.
    #[error(
        "stopped by --max-delete: SOURCE lost documents during the run. The run has removed {gone} of {held} documents. \
         Check that SOURCE is complete, and run again"
    )]
    LostMeanwhile {
        /// Documents that the run had removed when it stopped.
        gone: u64,
        /// Documents that the server held of the dataset before the run.
        held: u64,
    },
    /// What the server has recorded, or what the source lists, goes beyond a bound of the run.
    #[error("stopped at {path:?}: {bound}")]
    TooMuch {
        /// The path of the container at which the bound was exceeded.
        path: String,
        /// The bound that was exceeded.
        bound: Bound,
    },
    /// The new container of a folder cannot be built.
    #[error("cannot record the folder {path:?}: {error}")]
    Record {
        /// The path of the folder.
        path: String,
        /// What is wrong.
        error: ContainerError,
    },
}

/// Why an option of a run is wrong.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OptionError {
    /// The dataset's name is empty, or too long.
    #[error("--into {0:?}: a dataset's name has 1 to {DATASET_BYTES_MAX} bytes")]
    NameLength(String),
    /// The dataset's name has white space or control characters in it.
    #[error("--into {0:?}: a dataset's name has no blanks and no control characters")]
    NameCharacters(String),
    /// The dataset's name ends in a colon.
    #[error(
        "--into {0:?}: a dataset's name does not end in a colon: the colon before a document's path is added"
    )]
    NameColon(String),
    /// Only a Strand server can publish all changes of a run at one moment.
    #[error("--atomic is for a Strand server: leave out --to, or --atomic")]
    AtomicElsewhere,
    /// Only a Strand server can tell what it has.
    #[error("--verify compares with what a Strand server has: leave out --to, or --verify")]
    VerifyElsewhere,
    /// A retry would send some documents with other names of fields than the others have.
    #[error(
        "the names of fields (names=, fields=) differ from those of the last run: run the import without --retry-failed"
    )]
    RetryOfOtherFields,
    /// A text index follows only one database.
    #[error("--db {0}: a text index follows only database 0: add --no-index")]
    IndexElsewhere(u32),
    /// There are too many changes for one transaction.
    #[error(
        "--atomic: the run needs more than {commands_max} commands. Leave out --atomic, or import in several runs"
    )]
    AtomicTooLarge {
        /// Maximum number of commands of a transaction.
        commands_max: usize,
    },
    /// The choice of documents is wrong.
    #[error(transparent)]
    Filter(#[from] FilterError),
    /// No run of this version of the program is complete, so no record says which documents have failed.
    #[error(
        "this version of strand has not completed an import of {dataset:?}, so it knows no failed documents. Run without \
         --retry-failed first"
    )]
    NothingToRetry {
        /// The dataset.
        dataset: String,
    },
    /// The source does not use this option.
    #[error("{option}: {expected}")]
    OtherSource {
        /// The option.
        option: &'static str,
        /// Which sources use the option.
        expected: &'static str,
    },
    /// The server has no dataset of this name.
    #[error("the server has no dataset {0:?}")]
    NoDataset(String),
    /// No folder for the records is known.
    #[error("neither XDG_STATE_HOME nor HOME is set: name a folder by --state")]
    NoStateFolder,
}

/// How a connection broke.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Loss {
    /// The peer closed the connection.
    #[error("the server closed the connection")]
    Closed,
    /// The peer sent this error and closed the connection.
    #[error("the server closed the connection after this error: {0}")]
    Refused(String),
    /// The peer did not answer in time.
    #[error("no answer for {} s", REPLY_TIMEOUT.as_secs())]
    Silent,
    /// Another error of the operating system.
    #[error("{0}")]
    Io(io::Error),
}

/// Why a sink does not accept documents.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SinkError {
    /// The operating system refused the call.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The sink's server refused the documents, or cannot be reached. The text is the server's, or the HTTP library's.
    #[error("{0}")]
    Refused(String),
}

/// A bound of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Bound {
    /// Bytes of the containers that the run holds, from the root down to the current container.
    #[error("more than {CONTAINERS_HELD_BYTES_MAX} bytes of containers")]
    HeldBytes,
    /// Depth of the recorded containers.
    #[error("containers nested more than {DEPTH_MAX} deep")]
    Depth,
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::error::Error;

    // Each call of a sink or a source returns one of these, so they stay below clippy's limit for a pair.
    const _: () = assert!(size_of::<ImportError>() <= 96);

    #[test]
    fn an_error_shows_its_cause_once() {
        let cause = || io::Error::other("the cause");
        let errors = [
            ImportError::Source { path: "/s".into(), error: cause() },
            ImportError::Lost { address: "a:1".into(), reason: Loss::Io(cause()) },
            ImportError::Sink { sink: "-".into(), reason: cause().into() },
            ImportError::State { path: "/s".into(), error: Box::new(cause().into()) },
            OptionError::Filter(FilterError::Read { file: "/s".into(), error: cause() }).into(),
        ];
        for error in errors {
            let (mut chain, mut next) = (error.to_string(), error.source());
            while let Some(source) = next {
                chain += &source.to_string();
                next = source.source();
            }
            assert_eq!(chain.matches("the cause").count(), 1, "{chain}");
        }
    }
}
