//! The datasets of a server: how many documents each dataset has, and which documents failed.
//!
//! Everything is read from the recorded containers ([`crate::versions`]); no source is asked.

use crate::connection::{Connection, Target};
use crate::container::{Container, Kind};
use crate::job::{ERROR_NOTE, join};
use crate::versions::{COMMAND, DIGEST_NOTE, recorded, recorded_name, unexpected};
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
    /// Number of documents that the server holds, as far as the recorded containers tell.
    pub documents: u64,
    /// Number of documents that failed.
    pub failed: u64,
    /// True when the last run was cut short, or is not over yet.
    pub interrupted: bool,
    /// The last report of the import that runs into the dataset now: names and values, as in `IMPORT.STATUS`.
    pub running: Option<Vec<(String, String)>>,
}

impl Dataset {
    /// The value of `name` in the last report of the import that runs now.
    pub fn told(&self, name: &str) -> Option<&str> {
        self.running.as_ref()?.iter().find(|(told, _)| told == name).map(|(_, value)| &value[..])
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
    names.iter().map(|name| look(&mut connection, name, &mut |_, _| ())).collect()
}

/// Passes each failed document of the dataset `name` to `tell`, with the reason, in the order of the paths.
///
/// # Errors
/// [`ImportError`], also when there is no such dataset.
pub fn errors(
    target: &Target<'_>,
    name: &str,
    tell: &mut dyn FnMut(&[u8], &str),
) -> Result<Dataset, ImportError> {
    let mut connection = Connection::open(target)?;
    let dataset = look(&mut connection, name.as_bytes(), tell)?;
    if dataset.containers == 0 && !dataset.interrupted {
        return Err(OptionError::NoDataset(name.to_owned()).into());
    }
    Ok(dataset)
}

fn look(
    connection: &mut Connection,
    name: &[u8],
    tell: &mut dyn FnMut(&[u8], &str),
) -> Result<Dataset, ImportError> {
    let shown = String::from_utf8_lossy(name).into_owned();
    let running = report(connection.call(&[b"IMPORT.STATUS", name])?)?;
    let mut paths = strings(connection.call(&[COMMAND.as_bytes(), b"LIST", name])?)?;
    let mut dataset = Dataset { name: shown, running, ..Dataset::default() };
    // Only the names of intents end in a slash, and an intent exists only while a run is under way or was cut short.
    let recorded_paths = paths.len();
    paths.retain(|path| !path.ends_with(b"/"));
    dataset.interrupted = paths.len() < recorded_paths;
    let root = recorded_name(b"");
    let mut letters: Vec<(Vec<u8>, String)> = Vec::new();
    for path in &paths {
        let path = if *path == root { &[][..] } else { path };
        let Some(blob) = recorded(connection, &dataset.name, path)? else { continue };
        dataset.containers += 1;
        let container = Container::parse(&blob).expect("checked when it was read");
        for entry in container.iter().filter(|entry| entry.kind == Kind::Document) {
            dataset.documents += u64::from(entry.get(DIGEST_NOTE).is_some());
            if let Some(reason) = entry.get(ERROR_NOTE) {
                dataset.failed += 1;
                letters.push((join(path, entry.name), String::from_utf8_lossy(reason).into_owned()));
            }
        }
    }
    letters.sort();
    letters.iter().for_each(|(path, reason)| tell(path, reason));
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
