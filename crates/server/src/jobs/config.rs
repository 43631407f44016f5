//! [`Config`]: the TOML file of `strand jobs serve`.

use serde_json::{Map, Value};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use strand_import::filter::ByteSize;
use strand_import::jobs::Definition;
use strand_import::jobs::board::SourceLimit;
use strand_import::jobs::ledger::BUDGET_BYTES_MIN;

/// Default address of the service.
pub const LISTEN: &str = "127.0.0.1:8390";
/// The default budget of memory, in bytes.
const MEMORY: u64 = 256 << 20;
/// Maximum length of the file, in bytes.
const FILE_BYTES_MAX: u64 = 16 << 20;

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
    /// A description of the error in the file.
    pub fn read(path: &Path) -> Result<Config, String> {
        let shown = path.display();
        let size = std::fs::metadata(path).map_err(|error| format!("{shown}: {error}"))?.len();
        if size > FILE_BYTES_MAX {
            return Err(format!("{shown}: larger than {}", ByteSize(FILE_BYTES_MAX)));
        }
        let text = std::fs::read_to_string(path).map_err(|error| format!("{shown}: {error}"))?;
        let parsed: Value = toml::from_str(&text).map_err(|error| format!("{shown}: {error}"))?;
        let Value::Object(table) = parsed else { return Err(format!("{shown}: no table")) };
        Config::parse(table).map_err(|error| format!("{shown}: {error}"))
    }

    fn parse(mut table: Map<String, Value>) -> Result<Config, String> {
        let mut take = |key: &str| table.remove(key);
        let listen = text(take("listen"), "listen")?.unwrap_or_else(|| LISTEN.to_owned());
        let listen: SocketAddr =
            listen.parse().map_err(|_| format!("listen: {listen:?} is no address and port"))?;
        let memory = size(take("memory"), "memory")?.unwrap_or(MEMORY);
        if memory < BUDGET_BYTES_MIN {
            return Err(format!("memory: less than {}", ByteSize(BUDGET_BYTES_MIN)));
        }
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let running = count(take("running"), "running")?.unwrap_or(2 * cores);
        let state = text(take("state"), "state")?
            .ok_or("state: the folder for what has to outlive the service is missing")?;
        let token = text(take("token"), "token")?;
        if token.is_none() && !listen.ip().is_loopback() {
            return Err("listen: only with a token beyond this machine".to_owned());
        }
        let limits = tables(take("limit"), "limit")?.into_iter().map(limit).collect::<Result<_, _>>()?;
        let parse = |given| Definition::parse(given).map_err(|error| error.to_string());
        let jobs = tables(take("job"), "job")?.into_iter().map(parse).collect::<Result<_, _>>()?;
        match table.keys().next() {
            Some(odd) => Err(format!("{odd:?} is no key of this file")),
            None => Ok(Config { listen, memory, running, state: state.into(), token, limits, jobs }),
        }
    }
}

fn limit(mut table: Map<String, Value>) -> Result<SourceLimit, String> {
    let source = text(table.remove("source"), "source")?.ok_or("limit: source is missing")?;
    let running = count(table.remove("running"), "running")?.unwrap_or(usize::MAX);
    let rate = size(table.remove("rate"), "rate")?;
    match table.keys().next() {
        Some(odd) => Err(format!("limit: {odd:?} is no key of a limit")),
        None if rate.is_some() && running == usize::MAX => Err("limit: a rate needs running".to_owned()),
        None => Ok(SourceLimit { source, running, rate }),
    }
}

fn tables(value: Option<Value>, key: &str) -> Result<Vec<Map<String, Value>>, String> {
    let Some(value) = value else { return Ok(Vec::new()) };
    let table = |one: &Value| one.as_object().cloned();
    let tables: Option<Vec<_>> = value.as_array().and_then(|list| list.iter().map(table).collect());
    tables.ok_or_else(|| format!("{key}: expected [[{key}]]"))
}

fn text(value: Option<Value>, key: &str) -> Result<Option<String>, String> {
    match value {
        None => Ok(None),
        Some(Value::String(text)) if !text.is_empty() => Ok(Some(text)),
        Some(_) => Err(format!("{key}: expected a text")),
    }
}

fn size(value: Option<Value>, key: &str) -> Result<Option<u64>, String> {
    let text = text(value, key)?;
    let size = text.map(|text| text.parse::<ByteSize>().map(|size| size.0)).transpose();
    size.map_err(|error| format!("{key}: {error}"))
}

fn count(value: Option<Value>, key: &str) -> Result<Option<usize>, String> {
    let Some(value) = value else { return Ok(None) };
    let number = value.as_u64().filter(|number| (1..=10_000).contains(number));
    number
        .map(|number| Some(number as usize))
        .ok_or_else(|| format!("{key}: expected a number from 1 to 10000"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Config, String> {
        match toml::from_str(text).unwrap() {
            Value::Object(table) => Config::parse(table),
            _ => unreachable!("TOML is a table"),
        }
    }

    #[test]
    fn a_file_with_everything() {
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
    fn what_is_wrong_is_said() {
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
        ] {
            let error = parse(text).err().unwrap_or_default();
            assert!(error.contains(word), "{text}: {error}");
        }
    }
}
