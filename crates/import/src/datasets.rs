//! The datasets of a server: how many documents each dataset has, and which documents failed.
//!
//! Everything is read from the recorded containers at the server ([`crate::versions`]). No source is read.

use crate::connection::{CONTAINER_REPLY_BYTES_MAX, Connection, Target};
use crate::container::Container;
use crate::job::{ERROR_NOTE, join};
use crate::versions::{self, COMMAND, recorded, recorded_name, unexpected};
use crate::{ImportError, OptionError};
use strand_wire::client::Value;

/// One dataset of a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dataset {
    /// The dataset's name.
    pub name: String,
    /// Number of recorded containers. For a git revision, only the root and the containers in which something failed
    /// are recorded.
    pub containers: u64,
    /// Number of documents that the server holds according to the recorded containers.
    pub documents: u64,
    /// Number of documents that failed.
    pub failed: u64,
    /// Number of containers that the last run had begun and not completed: it was cut short, or still runs.
    pub interrupted: u64,
    /// The last report of the import that runs into the dataset now: names and values, as in `IMPORT.STATUS`.
    pub running: Option<Vec<(String, String)>>,
}

impl Dataset {
    /// The value of `name` in the last report of the import that runs now.
    pub fn report_value(&self, name: &str) -> Option<&str> {
        self.running.as_ref()?.iter().find(|(reported, _)| reported == name).map(|(_, value)| &value[..])
    }
}

/// A server's datasets, in the order of their names.
///
/// # Errors
/// [`ImportError`].
pub fn list(target: &Target<'_>) -> Result<Vec<Dataset>, ImportError> {
    let mut connection = Connection::open(target)?;
    let mut names = strings(connection.call(&[COMMAND, "DATASETS"])?)?;
    names.sort();
    names.iter().map(|name| read_dataset(&mut connection, name, &mut |_, _| ())).collect()
}

/// Calls `on_failure` with the path and the reason of each failed document of the dataset `name`, in the order of the
/// paths.
///
/// # Errors
/// [`ImportError`], also when there is no such dataset.
pub fn errors(
    target: &Target<'_>,
    name: &str,
    on_failure: &mut dyn FnMut(&[u8], &str),
) -> Result<Dataset, ImportError> {
    let mut connection = Connection::open(target)?;
    let dataset = read_dataset(&mut connection, name.as_bytes(), on_failure)?;
    if dataset.containers == 0 && dataset.interrupted == 0 {
        return Err(OptionError::NoDataset(name.to_owned()).into());
    }
    Ok(dataset)
}

fn read_dataset(
    connection: &mut Connection,
    name: &[u8],
    on_failure: &mut dyn FnMut(&[u8], &str),
) -> Result<Dataset, ImportError> {
    let shown = String::from_utf8_lossy(name).into_owned();
    let running = report(connection.call(&[b"IMPORT.STATUS", name])?)?;
    // The names of all folders: a dataset of 60,000 folders exceeds the bound of other replies.
    let list = [COMMAND.as_bytes(), b"LIST", name];
    let mut paths = strings(connection.call_within(CONTAINER_REPLY_BYTES_MAX, &list)?)?;
    let mut dataset = Dataset { name: shown, running, ..Dataset::default() };
    // Only names of intents end in a slash. An intent exists only during a run, and after a run that was cut short.
    let recorded_paths = paths.len();
    paths.retain(|path| !path.ends_with(b"/"));
    dataset.interrupted = (recorded_paths - paths.len()) as u64;
    let root = recorded_name(b"");
    let mut failures: Vec<(Vec<u8>, String)> = Vec::new();
    for path in &paths {
        let path = if *path == root { &[][..] } else { path };
        let Some(blob) = recorded(connection, &dataset.name, path)? else { continue };
        dataset.containers += 1;
        let container = Container::parse(&blob).expect("checked when it was read");
        for entry in container.iter() {
            dataset.documents += u64::from(versions::is_present(&entry));
            // Also a folder that could not be listed.
            if let Some(reason) = entry.get(ERROR_NOTE) {
                dataset.failed += 1;
                failures.push((join(path, entry.name), String::from_utf8_lossy(reason).into_owned()));
            }
        }
    }
    failures.sort();
    failures.iter().for_each(|(path, reason)| on_failure(path, reason));
    Ok(dataset)
}

/// The report in a reply of IMPORT.STATUS for one dataset.
fn report(reply: Value) -> Result<Option<Vec<(String, String)>>, ImportError> {
    let words = match reply {
        Value::Array(datasets) if datasets.is_empty() => return Ok(None),
        Value::Array(mut datasets) => match datasets.pop().expect("it is not empty") {
            Value::Array(words) => words,
            other => return Err(unexpected(&other)),
        },
        other => return Err(unexpected(&other)),
    };
    let text = |word: &Value| match word {
        Value::Bulk(bytes) | Value::Simple(bytes) => Ok(String::from_utf8_lossy(bytes).into_owned()),
        Value::Int(number) => Ok(number.to_string()),
        other => Err(unexpected(other)),
    };
    let pair = |pair: &[Value]| Ok((text(&pair[0])?, text(&pair[1])?));
    words.chunks_exact(2).map(pair).collect::<Result<_, _>>().map(Some)
}

fn strings(value: Value) -> Result<Vec<Vec<u8>>, ImportError> {
    let (Value::Array(values) | Value::Set(values)) = value else { return Err(unexpected(&value)) };
    let bytes = |value| match value {
        Value::Bulk(bytes) | Value::Simple(bytes) => Ok(bytes.to_vec()),
        other => Err(unexpected(&other)),
    };
    values.into_iter().map(bytes).collect()
}
