//! [`Definition`]: the source, the sink and the times of a job, read from JSON. The service converts TOML files to
//! JSON.

use super::DefinitionError;
use super::schedule::{self, Trigger};
use crate::filter::ByteSize;
use croner::errors::CronError;
use serde_json::{Map, Value};
use std::time::Duration;

/// Longest name of a job in bytes.
pub const NAME_BYTES_MAX: usize = 128;
/// Maximum number of options of one job.
pub const OPTIONS_MAX: usize = 256;
/// The keys of a definition.
pub(super) const KEYS: [&str; 12] = [
    "name", "source", "into", "server", "to", "every", "cron", "watch", "jitter", "priority", "rate",
    "options",
];
/// Minimum time between the starts of two runs of a job with `every`.
pub(super) const EVERY_MIN: Duration = Duration::from_millis(10);
/// Maximum of `jitter` in days. A longer delay is a slip of the pen: the job might not run for years.
pub(super) const JITTER_DAYS_MAX: u64 = 365;
/// Options of `strand import` that a job refuses: the service sets them, or they make no sense for a job.
const OPTIONS_REFUSED: [&str; 12] = [
    "--into",
    "--server",
    "--to",
    "--json",
    "--quiet",
    "--verbose",
    "--dry-run",
    "--retry-failed",
    "--verify",
    "--rate",
    "--supervised",
    "--help",
];

/// The definition of a job.
#[derive(Clone, Debug, PartialEq)]
pub struct Definition {
    /// The job's name.
    pub name: String,
    /// The source, as for `strand import`.
    pub source: String,
    /// The dataset. Default: the job's name.
    pub into: String,
    /// The address of the Strand server that gets the documents.
    pub server: Option<String>,
    /// A sink other than a Strand server.
    pub to: Option<String>,
    /// The times at which the job is due.
    pub trigger: Trigger,
    /// The quiet time. The job is also due when its folder has changed and then has not changed for this time. `None`:
    /// the folder is not watched.
    pub watch: Option<Duration>,
    /// Each due time is delayed by a random time up to this maximum.
    pub jitter: Duration,
    /// Among waiting jobs, the job with the highest priority is served first. Default: 0.
    pub priority: i32,
    /// Maximum number of bytes of the source that are read per second. `None`: no limit.
    pub rate: Option<u64>,
    /// Further options of `strand import`.
    pub options: Vec<String>,
    /// The JSON from which the definition was read.
    pub given: Map<String, Value>,
}

impl Definition {
    /// Reads a definition.
    ///
    /// # Errors
    /// [`DefinitionError`] names the key and says what was expected.
    pub fn parse(given: Map<String, Value>) -> Result<Definition, DefinitionError> {
        if let Some(odd) = given.keys().find(|key| !KEYS.contains(&key.as_str())) {
            return Err(DefinitionError::Key { key: odd.clone() });
        }
        let text = |key: &'static str| match given.get(key) {
            None => Ok(None),
            Some(Value::String(text)) if !text.is_empty() => Ok(Some(text.clone())),
            Some(_) => Err(DefinitionError::Text { key }),
        };
        let needed = |key: &'static str| text(key)?.ok_or(DefinitionError::Missing { key });
        let time = |key: &'static str| {
            let read =
                |value: String| schedule::duration(&value).ok_or(DefinitionError::Duration { key, value });
            text(key)?.map(read).transpose()
        };
        let name = needed("name")?;
        if !is_name(&name) {
            return Err(DefinitionError::Name(name));
        }
        let source = needed("source")?;
        if source.starts_with('-') {
            return Err(DefinitionError::Source(source));
        }
        let (server, to) = (text("server")?, text("to")?);
        if server.is_some() && to.is_some() {
            return Err(DefinitionError::Destinations);
        }
        let trigger = match (time("every")?, text("cron")?) {
            (Some(_), Some(_)) => return Err(DefinitionError::Times),
            (Some(every), None) if every < EVERY_MIN => return Err(DefinitionError::TooOften),
            (Some(every), None) => Trigger::Every(every),
            (None, Some(value)) => schedule::cron(&value).map_err(|error| wrong_cron(value, error))?,
            (None, None) => Trigger::Demand,
        };
        let watch = time("watch")?;
        if watch.is_some() && (source.contains("://") || source.starts_with("restic:")) {
            return Err(DefinitionError::Watch(source));
        }
        let jitter = time("jitter")?.unwrap_or(Duration::ZERO);
        if jitter > Duration::from_hours(24 * JITTER_DAYS_MAX) {
            return Err(DefinitionError::Jitter);
        }
        let priority = match given.get("priority") {
            None => 0,
            Some(number) => {
                number.as_i64().and_then(|n| i32::try_from(n).ok()).ok_or(DefinitionError::Priority)?
            }
        };
        let rate = text("rate")?.map(|text| text.parse::<ByteSize>().map(|size| size.0)).transpose();
        let rate = rate.map_err(DefinitionError::Rate)?;
        if rate == Some(0) {
            return Err(DefinitionError::ZeroRate);
        }
        Ok(Definition {
            into: text("into")?.unwrap_or_else(|| name.clone()),
            server,
            to,
            options: options(given.get("options"))?,
            name,
            source,
            trigger,
            watch,
            jitter,
            priority,
            rate,
            given,
        })
    }

    /// What one job alone may fill: the dataset, with its server and its database or its sink.
    pub(super) fn place(&self) -> (&str, Option<&str>, Option<&str>, &str) {
        let after =
            self.options.iter().position(|option| option == "--db").and_then(|at| self.options.get(at + 1));
        let inside = self.options.iter().find_map(|option| option.strip_prefix("--db="));
        let db = inside.or(after.map(String::as_str)).unwrap_or("0");
        (&self.into, self.server.as_deref(), self.to.as_deref(), db)
    }

    /// The arguments of `strand` that run the job. `rate` is the lowest limit of bytes per second that the job has.
    pub fn arguments(&self, retry: bool, rate: Option<u64>) -> Vec<String> {
        let mut words: Vec<String> =
            ["import", "--supervised", "--into", &self.into].map(String::from).into();
        let mut pair = |option: &str, value: &Option<String>| {
            if let Some(value) = value {
                words.extend([option.to_owned(), value.clone()]);
            }
        };
        pair("--server", &self.server);
        pair("--to", &self.to);
        pair("--rate", &rate.map(|rate| rate.to_string()));
        words.extend(retry.then(|| "--retry-failed".to_owned()));
        // A retry reads only failed documents, so --recheck does not apply.
        let applies = |option: &&String| !retry || *option != "--recheck";
        words.extend(self.options.iter().filter(applies).cloned());
        words.extend(["--".to_owned(), self.source.clone()]);
        words
    }
}

/// True when `name` may be the name of a job. `.` and `..` may not: in the path of a URL they mean other paths.
pub fn is_name(name: &str) -> bool {
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
    (1..=NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(is_plain) && !matches!(name, "." | "..")
}

/// Why the library refuses the value of `cron`.
fn wrong_cron(value: String, error: CronError) -> DefinitionError {
    if value.split_whitespace().count() != schedule::CRON_FIELDS {
        return DefinitionError::CronFields(value);
    }
    let why = match error {
        CronError::TimeSearchLimitExceeded => "this time never comes".to_owned(),
        CronError::InvalidPattern(why)
        | CronError::IllegalCharacters(why)
        | CronError::ComponentError(why) => why,
        error => error.to_string(),
    };
    DefinitionError::Cron { value, why }
}

fn options(given: Option<&Value>) -> Result<Vec<String>, DefinitionError> {
    let Some(given) = given else { return Ok(Vec::new()) };
    let expected = || DefinitionError::Options;
    let given = given.as_array().filter(|list| list.len() <= OPTIONS_MAX).ok_or_else(expected)?;
    let options = given.iter().map(|one| one.as_str().map(str::to_owned).ok_or_else(expected));
    let options = options.collect::<Result<Vec<_>, _>>()?;
    let name = |option: &str| option.split('=').next().unwrap_or_default().to_owned();
    let is_refused = |option: &String| {
        let short = option.starts_with('-') && !option.starts_with("--");
        option == "--" || short || OPTIONS_REFUSED.contains(&name(option).as_str())
    };
    match options.iter().find(|option| is_refused(option)) {
        Some(odd) => Err(DefinitionError::Refused(odd.clone())),
        None => Ok(options),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(json: &str) -> Result<Definition, DefinitionError> {
        Definition::parse(serde_json::from_str(json).unwrap())
    }

    #[test]
    fn a_job_becomes_a_command_line() {
        let json = r#"{"name":"m","source":"/s","to":"-","every":"10m","priority":-3,"rate":"2k","options":["--include","*.eml"]}"#;
        let job = parse(json).unwrap();
        assert_eq!((job.trigger.clone(), job.priority), (Trigger::Every(Duration::from_secs(600)), -3));
        let words = job.arguments(true, job.rate).join(" ");
        assert_eq!(
            words,
            "import --supervised --into m --to - --rate 2048 --retry-failed --include *.eml -- /s"
        );
    }

    #[test]
    fn equal_datasets_in_two_databases_are_two_places() {
        let with =
            |options: &str| parse(&format!(r#"{{"name":"m","source":"/s","options":[{options}]}}"#)).unwrap();
        let places = [r#""--db","1""#, r#""--db=2""#, r#""--db","0""#, ""].map(with);
        let places: Vec<_> = places.iter().map(Definition::place).collect();
        assert!(places[0] != places[1] && places[1] != places[2] && places[2] == places[3], "{places:?}");
    }

    #[test]
    fn an_invalid_definition_names_its_problem() {
        for (json, word) in [
            ("{}", "name is missing"),
            (r#"{"name":"a/b","source":"s"}"#, "letters"),
            (r#"{"name":"a","source":"-s"}"#, "hyphen"),
            (r#"{"name":"a","source":"s","every":"1m","cron":"* * * * *"}"#, "give every or cron, not both"),
            (r#"{"name":".","source":"s"}"#, "and not \".\" or \"..\""),
            (r#"{"name":"..","source":"s"}"#, "and not \".\" or \"..\""),
            (r#"{"name":"a","source":"s","cron":"0 0 30 2 *"}"#, "2 *\": this time never comes"),
            (r#"{"name":"a","source":"s","cron":"0 0 * *"}"#, "* *\": expected five fields, such as"),
            (r#"{"name":"a","source":"s","cron":"0 0 * * * *"}"#, "* *\": expected five fields, such as"),
            (r#"{"name":"a","source":"s","jitter":"366d"}"#, "jitter: expected at most 365d"),
            (r#"{"name":"a","source":"s","evry":"1m"}"#, "evry"),
            (r#"{"name":"a","source":"s3://b","watch":"1s"}"#, "only a folder"),
            (r#"{"name":"a","source":"s","watch":"soon"}"#, "soon"),
            (r#"{"name":"a","source":"s","options":["--json"]}"#, "--json"),
            (r#"{"name":"a","source":"s","options":["--into=x"]}"#, "--into"),
            (r#"{"name":"a","source":"s","options":["-q"]}"#, "-q"),
            (r#"{"name":"a","source":"s","options":[1]}"#, "texts"),
            (r#"{"name":"a","source":"s","priority":"x"}"#, "priority"),
        ] {
            let error = parse(json).unwrap_err();
            assert!(error.to_string().contains(word), "{json}: {error}");
        }
        for json in [
            r#"{"name":"..a","source":"s"}"#,
            r#"{"name":"...","source":"s"}"#,
            r#"{"name":"a","source":"s","jitter":"365d"}"#,
        ] {
            assert!(parse(json).is_ok(), "{json}");
        }
    }

    #[test]
    fn an_error_of_five_fields_of_cron_does_not_ask_for_five_fields() {
        for cron in ["5/10 * * * *", "60 * * * *", "0 22-2 * * *", "a * * * *", "0 0 L-x * *", "? , * * *"] {
            let error = parse(&format!(r#"{{"name":"a","source":"s","cron":"{cron}"}}"#)).unwrap_err();
            let text = error.to_string();
            let why = text.strip_prefix(&format!("cron \"{cron}\": ")).expect("the value stands first");
            assert!(!why.contains("fields") && !why.ends_with('.') && why.len() > 10, "{text}");
        }
    }
}
