//! [`DataError`]: why data is not loaded from files, or not written to them.

use crate::system_text;
use std::io;
use strand_aof::{manifest, reader};
use strand_commands::replay::ReplayError;
use strand_commands::serial::file::RdbProblem;

/// Why data is not loaded from files, or not written to them. The texts name the file, the place and what helps.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DataError {
    /// A script has run for long and has some of the data.
    #[error("a script is busy and holds some of the data")]
    Busy,
    /// The host of this engine has no files.
    #[error("the host keeps no files")]
    NoFiles,
    /// The snapshot cannot be opened.
    #[error("cannot open the snapshot {name}: {why}")]
    OpenSnapshot {
        /// The snapshot's name.
        name: String,
        /// The system's error.
        why: io::Error,
    },
    /// The snapshot is damaged, or belongs to another program or version.
    #[error(
        "cannot load the snapshot {name}: at offset {offset}: {problem}. The file is left as it is. `strand check rdb \
         {name}` shows what is in the file. To start without the file, move it away or give another dbfilename"
    )]
    Snapshot {
        /// The snapshot's name.
        name: String,
        /// Number of bytes read until the problem was found.
        offset: u64,
        /// What is wrong.
        problem: RdbProblem,
    },
    /// The RDB at the start of an append-only file is damaged.
    #[error(
        "Error reading the RDB preamble of the AOF file {name}: at offset {offset}: {problem}. The file is left as it \
         is. `strand check aof {manifest}` shows what is in the file"
    )]
    Preamble {
        /// The file's name.
        name: String,
        /// Number of bytes read until the problem was found.
        offset: u64,
        /// What is wrong.
        problem: RdbProblem,
        /// The manifest's path.
        manifest: String,
    },
    /// The folder of the append-only file cannot be opened.
    #[error("cannot use the folder {folder} (appenddirname): {why}")]
    UseFolder {
        /// The value of `appenddirname`.
        folder: String,
        /// The system's error.
        why: io::Error,
    },
    /// The manifest is damaged or cannot be read.
    #[error(
        "cannot use the manifest {path}: {why}. Nothing is changed. `strand check aof {path}` shows what is damaged; \
         move the folder away to start without the data"
    )]
    Manifest {
        /// The manifest's path.
        path: String,
        /// What is wrong.
        why: ManifestProblem,
    },
    /// The system does not say whether there is an append-only file of Redis before 7.
    #[error("cannot look for the append-only file {file} in the working folder and in {folder}: {why}")]
    FindOldFile {
        /// The value of `appendfilename`.
        file: String,
        /// The value of `appenddirname`.
        folder: String,
        /// The system's text.
        why: String,
    },
    /// A file that the manifest names cannot be opened.
    #[error(
        "cannot open {folder}/{file}, which {manifest} names: {why}. Nothing is changed. Put the file back, or give \
         another appenddirname to start without the data; `strand check aof {folder}/{manifest}` shows which \
         files are complete"
    )]
    OpenFile {
        /// The value of `appenddirname`.
        folder: String,
        /// The file's name.
        file: String,
        /// The manifest's name.
        manifest: String,
        /// The system's error.
        why: io::Error,
    },
    /// An append-only file cannot be read.
    #[error("cannot read the append-only file {name}: {why}")]
    ReadFile {
        /// The file's name.
        name: String,
        /// The system's error.
        why: io::Error,
    },
    /// An append-only file is damaged.
    #[error(
        "Bad file format reading the append only file {name}: at offset {offset}: {damage}. Nothing is changed. Make a \
         copy of {}; {}",
        if checked == name { "the file" } else { "the folder" },
        damage.remedy(checked, *offset)
    )]
    Damaged {
        /// The file's name.
        name: String,
        /// Where the damage is, in bytes from the start of the file.
        offset: u64,
        /// What is wrong.
        damage: Damage,
        /// The argument for `strand check aof`.
        checked: String,
    },
    /// A file other than the last one ends inside a command.
    #[error(
        "cannot load the append-only file: {name} ends inside a command and is not the last file, so commands are \
         missing. Nothing is changed. `strand check aof {checked}` shows which files are complete"
    )]
    TruncatedBeforeLast {
        /// The file's name.
        name: String,
        /// The argument for `strand check aof`.
        checked: String,
    },
    /// The last file ends inside a command, and `aof-load-truncated` is off.
    #[error(
        "Unexpected end of file reading the append only file {name}. Make a copy of the folder, then use `strand check \
         aof --fix {checked}`, or set aof-load-truncated to yes"
    )]
    TruncatedAtEnd {
        /// The file's name.
        name: String,
        /// The argument for `strand check aof`.
        checked: String,
    },
    /// The last file cannot be cut to its whole commands.
    #[error("cannot cut the append-only file {name} to its {good_bytes} good bytes: {why}")]
    Truncate {
        /// The file's name.
        name: String,
        /// Number of bytes up to the end of the last whole command.
        good_bytes: u64,
        /// The system's error.
        why: io::Error,
    },
    /// The file of Redis before 7 cannot be moved into the folder.
    #[error("cannot move the append-only file {file} into the folder {folder}: {why}")]
    MoveIntoFolder {
        /// The value of `appendfilename`.
        file: String,
        /// The value of `appenddirname`.
        folder: String,
        /// The system's error.
        why: io::Error,
    },
    /// The append-only file cannot be opened for writing.
    #[error("cannot open the append-only file in the folder {folder}: {}", system_text(why))]
    OpenToWrite {
        /// The value of `appenddirname`.
        folder: String,
        /// The system's error.
        why: io::Error,
    },
    /// The system refuses a thread or a file.
    #[error("the system cannot start a thread or open a file: {}", system_text(.0))]
    System(io::Error),
    /// The thread that loads the data panicked.
    #[error("loading the data failed inside the server, see its log")]
    Panicked,
}

/// What is wrong with a manifest.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ManifestProblem {
    /// The system cannot read the file.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The file is longer than a manifest may be.
    #[error("the manifest has more than {} bytes", manifest::BYTES_MAX)]
    TooLong,
    /// A line of the file is no line of a manifest.
    #[error(transparent)]
    Format(#[from] manifest::InvalidManifest),
}

/// What is wrong with the content of an append-only file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Damage {
    /// The bytes are no commands.
    #[error(transparent)]
    Bytes(#[from] reader::ReadProblem),
    /// A command may not be in an append-only file.
    #[error(transparent)]
    Command(#[from] ReplayError),
}

impl Damage {
    /// What to do after making a copy. `checked`: the argument for `strand check aof`.
    fn remedy(&self, checked: &str, offset: u64) -> String {
        match self {
            Damage::Bytes(_) => format!(
                "`strand check aof {checked}` shows how many bytes are valid, `strand check aof --fix {checked}` cuts off \
                 the rest"
            ),
            Damage::Command(_) => format!(
                "then remove this command from the file, or, in the last file, cut off the rest with `truncate --size={offset}` \
                 (`strand check aof {checked}` does not see this fault: it checks only the format)"
            ),
        }
    }
}
