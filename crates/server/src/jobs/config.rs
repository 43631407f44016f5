//! [`Config`]: the TOML file of `strand jobs serve`.

use serde_json::{Map, Value};
use std::collections::HashSet;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use strand_import::filter::{ByteSize, SizeError};
use strand_import::jobs::board::SourceLimit;
use strand_import::jobs::ledger::BUDGET_BYTES_MIN;
use strand_import::jobs::{Definition, DefinitionError};

/// Default address of the service.
pub const LISTEN: &str = "127.0.0.1:8390";
/// The default budget of memory, in bytes.
const MEMORY_BYTES_DEFAULT: u64 = 256 << 20;
/// Maximum length of the file, in bytes.
const FILE_BYTES_MAX: u64 = 16 << 20;
/// Maximum number of imports that run at once.
const COUNT_MAX: u64 = 10_000;

/// The content of the configuration file.
pub struct Config {
    /// Address on which the service listens.
    pub listen: SocketAddr,
    /// Memory that all jobs together may use, in bytes.
    pub memory: u64,
    /// Maximum number of jobs running at once.
    pub running: usize,
    /// The folder for persistent state.
    pub state: PathBuf,
    /// The token that a request must carry.
    pub token: Option<String>,
    /// The limits on reading from sources.
    pub limits: Vec<SourceLimit>,
    /// The jobs that the file defines.
    pub jobs: Vec<Definition>,
}

impl Config {
    /// Reads the file.
    ///
    /// # Errors
    /// When the file cannot be read, or something in it is wrong.
    pub fn read(path: &Path) -> Result<Config, JobsFileError> {
        let failed = |error| JobsFileError { path: path.to_owned(), error };
        let bytes = std::fs::metadata(path).map_err(|error| failed(ContentError::Io(error)))?.len();
        if bytes > FILE_BYTES_MAX {
            return Err(failed(ContentError::TooLarge));
        }
        let text = std::fs::read_to_string(path).map_err(|error| failed(ContentError::Io(error)))?;
        let table = toml::from_str(&text).map_err(|error| failed(ContentError::toml(&text, &error)))?;
        Config::parse(table).map_err(failed)
    }

    fn parse(mut table: Map<String, Value>) -> Result<Config, ContentError> {
        let mut take = |key: &str| table.remove(key);
        let listen = text(take("listen"), "listen")?.unwrap_or_else(|| LISTEN.to_owned());
        let Ok(listen) = listen.parse::<SocketAddr>() else { return Err(ContentError::Address(listen)) };
        let memory = size(take("memory"), "memory")?.unwrap_or(MEMORY_BYTES_DEFAULT);
        if memory < BUDGET_BYTES_MIN {
            return Err(ContentError::Memory(memory));
        }
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let running = count(take("running"), "running")?.unwrap_or(2 * cores);
        let state = text(take("state"), "state")?.ok_or(ContentError::NoState)?;
        let token = text(take("token"), "token")?;
        if token.is_none() && !listen.ip().is_loopback() {
            return Err(ContentError::NoToken(listen));
        }
        let limits = tables(take("limit"), "limit")?.into_iter().map(limit).collect::<Result<_, _>>()?;
        let parse = |(at, given): (usize, Map<String, Value>)| {
            let name = given.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
            definition(given).map_err(|error| ContentError::Job { number: at + 1, name, error })
        };
        let jobs = tables(take("job"), "job")?.into_iter().enumerate();
        let jobs = jobs.map(parse).collect::<Result<Vec<Definition>, _>>()?;
        let mut names = HashSet::new();
        if let Some(twice) = jobs.iter().find(|job| !names.insert(job.name.as_str())) {
            return Err(ContentError::Twice { name: twice.name.clone() });
        }
        match table.into_iter().next() {
            Some((key, _)) => Err(ContentError::Key { key }),
            None => Ok(Config { listen, memory, running, state: state.into(), token, limits, jobs }),
        }
    }
}

/// Reads the definition of a job, and checks its options as `strand import` does.
///
/// # Errors
/// [`DefinitionError`].
pub fn definition(given: Map<String, Value>) -> Result<Definition, DefinitionError> {
    let definition = Definition::parse(given)?;
    crate::cli::check_import(definition.arguments(false, definition.rate))
        .map_err(DefinitionError::Import)?;
    Ok(definition)
}

/// Why the file of the jobs cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {error}", path = path.display())]
pub struct JobsFileError {
    path: PathBuf,
    error: ContentError,
}

/// What is wrong with the file of the jobs.
#[derive(Debug, thiserror::Error)]
enum ContentError {
    #[error("{0}")]
    Io(io::Error),
    #[error("the file is too large: expected at most {}", ByteSize(FILE_BYTES_MAX))]
    TooLarge,
    #[error("line {line}: {error}")]
    Toml { line: usize, error: String },
    #[error("listen: {0:?} is not an address with a port: expected a value like {LISTEN:?}")]
    Address(String),
    #[error(
        "listen: {0} is reachable from other machines: expected a token, or an address of this machine like {LISTEN:?}"
    )]
    NoToken(SocketAddr),
    #[error("memory is {}: expected at least {}", ByteSize(*.0), ByteSize(BUDGET_BYTES_MIN))]
    Memory(u64),
    #[error("state is missing: expected the folder in which the service keeps its state")]
    NoState,
    #[error(
        "{key:?} is not a key of this file: expected listen, memory, running, state, token, [[limit]] or [[job]]"
    )]
    Key { key: String },
    #[error("limit: {key:?} is not a key of a limit: expected source, running or rate")]
    LimitKey { key: String },
    #[error("limit: source is missing: expected the source that is limited")]
    LimitSource,
    #[error("limit of {source_name:?}: a limit with rate also needs running = NUMBER")]
    LimitRate { source_name: String },
    #[error("{key}: write [[{key}]], with two brackets")]
    Tables { key: &'static str },
    #[error("{key}: expected a text")]
    Text { key: &'static str },
    #[error("{key}: {error}")]
    Size { key: &'static str, error: SizeError },
    #[error("{key}: expected a number from 1 to {COUNT_MAX}")]
    Count { key: &'static str },
    #[error("two jobs have the name {name:?}")]
    Twice { name: String },
    #[error("job {number} {name:?}: {error}")]
    Job { number: usize, name: String, error: DefinitionError },
}

impl ContentError {
    /// The library's own text shows the line, which may be the one with the token.
    fn toml(text: &str, error: &toml::de::Error) -> ContentError {
        let at = error.span().map_or(0, |span| span.start);
        let before = text.as_bytes().get(..at).unwrap_or_default();
        let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
        ContentError::Toml { line, error: error.message().to_owned() }
    }
}

fn limit(mut table: Map<String, Value>) -> Result<SourceLimit, ContentError> {
    let source = text(table.remove("source"), "source")?.ok_or(ContentError::LimitSource)?;
    let running = count(table.remove("running"), "running")?.unwrap_or(usize::MAX);
    let rate = size(table.remove("rate"), "rate")?;
    match table.into_iter().next() {
        Some((key, _)) => Err(ContentError::LimitKey { key }),
        None if rate.is_some() && running == usize::MAX => {
            Err(ContentError::LimitRate { source_name: source })
        }
        None => Ok(SourceLimit { source, running, rate }),
    }
}

fn tables(value: Option<Value>, key: &'static str) -> Result<Vec<Map<String, Value>>, ContentError> {
    let Some(value) = value else { return Ok(Vec::new()) };
    let table = |one: &Value| one.as_object().cloned();
    let tables: Option<Vec<_>> = value.as_array().and_then(|list| list.iter().map(table).collect());
    tables.ok_or(ContentError::Tables { key })
}

fn text(value: Option<Value>, key: &'static str) -> Result<Option<String>, ContentError> {
    match value {
        None => Ok(None),
        Some(Value::String(text)) if !text.is_empty() => Ok(Some(text)),
        Some(_) => Err(ContentError::Text { key }),
    }
}

fn size(value: Option<Value>, key: &'static str) -> Result<Option<u64>, ContentError> {
    let text = text(value, key)?;
    let size = text.map(|text| text.parse::<ByteSize>().map(|size| size.0)).transpose();
    size.map_err(|error| ContentError::Size { key, error })
}

fn count(value: Option<Value>, key: &'static str) -> Result<Option<usize>, ContentError> {
    let Some(value) = value else { return Ok(None) };
    let number = value.as_u64().filter(|number| (1..=COUNT_MAX).contains(number));
    number.map(|number| Some(number as usize)).ok_or(ContentError::Count { key })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Config, ContentError> {
        Config::parse(toml::from_str(text).unwrap())
    }

    #[test]
    fn a_file_with_every_key_is_parsed() {
        let text = r#"
            listen = "127.0.0.1:0"
            memory = "512M"
            running = 3
            state = "/var/lib/strand-jobs"
            [[limit]]
            source = "s3://bucket"
            running = 2
            rate = "1M"
            [[job]]
            name = "mail"
            source = "/srv/mail"
            cron = "*/5 * * * *"
            options = ["--attachments"]
        "#;
        let config = parse(text).unwrap();
        assert_eq!((config.memory, config.running, config.jobs.len()), (512 << 20, 3, 1));
        assert_eq!(config.limits[0].rate, Some(1 << 20));
    }

    #[test]
    fn invalid_files_are_errors_that_name_the_key() {
        for (text, word) in [
            ("", "state"),
            ("state = 1", "state"),
            ("state = 's'\nlisten = 'x'", "listen"),
            ("state = 's'\nlisten = '0.0.0.0:1'", "token"),
            ("state = 's'\nmemory = '1M'", "memory"),
            ("state = 's'\nrunning = 0", "running"),
            ("state = 's'\nodd = 0", "odd"),
            ("state = 's'\n[job]\nname='x'", "[[job]]"),
            ("state = 's'\n[[limit]]\nsource='x'\nrate='1M'", "running"),
            (
                "state = 's'\n[[job]]\nname='a'\nsource='x'\n[[job]]\nname='b'\nsource='-x'",
                "job 2 \"b\": source",
            ),
            ("state = 's'\n[[job]]\nname='a'\nsource='x'\n[[job]]\nname='a'\nsource='y'", "two jobs"),
        ] {
            let error = parse(text).err().map(|error| error.to_string()).unwrap_or_default();
            assert!(error.contains(word), "{text}: {error}");
        }
    }
}
