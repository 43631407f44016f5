//! `--rdb`, `--functions-rdb` and `--replica`: the client acts as a replica. It gets the server's snapshot, and with
//! `--replica` shows the commands that follow. The options are redis-cli's, and so are the texts.

use crate::client::write_stdout;
use crate::connection::{Connection, ConnectionError};
use crate::format::{self, OutputFormat};
use crate::interrupts::Interrupts;
use crate::options::Options;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;
use strand_wire::client::Value;
use strand_wire::replica::{MARK_BYTES, SnapshotEnd};

/// `--replica` waits this long for commands before it looks whether a person has pressed Ctrl-C.
const WAIT: Duration = Duration::from_millis(200);

/// Writes the server's snapshot to a file, with `only_functions` without the keys. `-` stands for the standard output.
///
/// # Errors
/// When the server refuses, the connection ends, or the file cannot be written. The file then has a part of the
/// snapshot.
pub(crate) fn save_snapshot(
    connection: &mut Connection,
    path: &Path,
    only_functions: bool,
) -> Result<(), ConnectionError> {
    tell(connection, "capa", "eof")?;
    tell(connection, "rdb-only", "1")?;
    if only_functions && let Some(error) = tell(connection, "rdb-filter-only", "functions")? {
        // Without the filter the server would send all keys.
        return Err(ConnectionError::ErrorReply(error));
    }
    let end = sync(connection)?;
    let name = path.display();
    match end {
        SnapshotEnd::After(bytes) => complain!("SYNC sent to master, writing {bytes} bytes to '{name}'"),
        SnapshotEnd::Mark(_) => {
            complain!("SYNC sent to master, writing bytes of bulk transfer until EOF marker to '{name}'");
        }
    }
    let written = match path.as_os_str() == "-" {
        true => copy(connection, &end, &mut io::stdout().lock())?,
        false => {
            let failed = |error| ConnectionError::File { path: path.to_owned(), error };
            let mut file = File::create(path).map_err(failed)?;
            let written = copy(connection, &end, &mut file)?;
            file.sync_all().map_err(failed)?;
            written
        }
    };
    match end {
        SnapshotEnd::After(_) => complain!("Transfer finished with success."),
        SnapshotEnd::Mark(_) => complain!("Transfer finished with success after {written} bytes"),
    }
    Ok(())
}

/// Tells the server about this replica. Shows and returns the server's error, if it replies with one.
fn tell(connection: &mut Connection, option: &str, value: &str) -> Result<Option<String>, ConnectionError> {
    complain!("sending REPLCONF {option} {value}");
    let Value::Error(text) = connection.ask(&["REPLCONF", option, value])? else { return Ok(None) };
    let text = String::from_utf8_lossy(&text).into_owned();
    complain!("REPLCONF {option} error: {text}");
    Ok(Some(text))
}

/// Shows the commands that the server sends to its replicas, until the connection ends or a person presses Ctrl-C.
///
/// # Errors
/// When the server refuses, or the connection ends.
pub(crate) fn show_stream(
    connection: &mut Connection,
    options: &Options,
    interrupts: &Interrupts,
) -> Result<(), ConnectionError> {
    let end = sync(connection)?;
    match end {
        SnapshotEnd::After(bytes) => {
            complain!("SYNC with master, discarding {bytes} bytes of bulk transfer...");
        }
        SnapshotEnd::Mark(_) => {
            complain!("SYNC with master, discarding bytes of bulk transfer until EOF marker...")
        }
    }
    copy(connection, &end, &mut io::sink())?;
    complain!("SYNC done. Logging commands from master.");
    connection.wait_at_most(Some(WAIT)).map_err(ConnectionError::Io)?;
    while !interrupts.pressed() {
        match connection.buffered()? {
            Some(command) => {
                let mut out = Vec::new();
                format::reply(&mut out, &command, OutputFormat::Csv, false, &options.delimiters);
                write_stdout(&out);
            }
            None => _ = connection.fill()?,
        }
    }
    Ok(())
}

/// Sends SYNC. Returns where the snapshot ends.
fn sync(connection: &mut Connection) -> Result<SnapshotEnd, ConnectionError> {
    connection.send(&["SYNC"])?;
    let line = connection.line()?;
    let text = String::from_utf8_lossy(&line);
    let refused = || ConnectionError::ErrorReply(format!("SYNC with master failed: {text}"));
    SnapshotEnd::parse(&text).ok_or_else(refused)
}

/// Copies the snapshot without its mark. Returns its length in bytes.
fn copy(connection: &mut Connection, end: &SnapshotEnd, out: &mut dyn Write) -> Result<u64, ConnectionError> {
    // The last bytes may be the mark, so they are held back.
    let (mut written, mut held) = (0, Vec::new());
    let mut write = |bytes: &[u8]| {
        written += bytes.len() as u64;
        out.write_all(bytes).map_err(ConnectionError::Output)
    };
    match end {
        SnapshotEnd::After(bytes) => {
            let mut left = *bytes;
            while left > 0 {
                let part = connection.take_bytes(usize::try_from(left).unwrap_or(usize::MAX))?;
                left -= part.len() as u64;
                write(&part)?;
            }
        }
        SnapshotEnd::Mark(mark) => {
            while held != mark {
                held.extend(connection.take_bytes(usize::MAX)?);
                let sure = held.len().saturating_sub(MARK_BYTES);
                write(&held[..sure])?;
                held.drain(..sure);
            }
        }
    }
    out.flush().map_err(ConnectionError::Output)?;
    Ok(written)
}
