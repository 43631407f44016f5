//! `strand jobs`: the datasets of a server and their failed documents, and the service for scheduled imports.

use super::access::{ServerArgs, text_of};
use super::display::{print_line, printable, safe, seconds};
use super::import::exit_code;
use super::json;
use crate::jobs::ServiceError;
use crate::jobs::client::{self, AskError};
use crate::jobs::config::LISTEN;
use clap::{Args, Subcommand};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use strand_cli::TlsOptions;
use strand_import::datasets;
use strand_import::filter::ByteSize;
use strand_import::jobs::{DefinitionError, is_name};

/// Text of `strand jobs --help` below the options.
const AFTER_HELP: &str = "\
Without --service, list and errors ask a server about its datasets. To read failed documents again: strand import SOURCE \
--into NAME --retry-failed

With --service, and in all other subcommands, strand asks a service that `strand jobs serve FILE` runs. The variable \
STRAND_JOBS_TOKEN has the service's token.

Exit codes: 0 done; 1 stopped by an error, or (run --wait) the run did not finish; 2 wrong usage.";

/// Interval of checks whether a run is over.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Options of `strand jobs`.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct JobsArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: JobsCommand,
    /// The server to ask, or to import into; and the user.
    #[command(flatten)]
    pub server: ServerArgs,
    /// The service to ask [default for subcommands that ask only a service: 127.0.0.1:8390]
    #[arg(long, value_name = "HOST:PORT")]
    pub service: Option<String>,
    /// The database of the datasets
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    pub db: u32,
    /// Print one JSON object a line
    #[arg(long)]
    pub json: bool,
    /// The options of TLS, for list and errors.
    #[command(flatten)]
    pub tls: TlsOptions,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum JobsCommand {
    /// List the datasets of a server with their numbers of documents, or with --service the jobs of a service
    List,
    /// List the failed documents of a dataset, or of a service's job, with the reasons
    Errors {
        /// The dataset or job
        #[arg(value_name = "NAME")]
        dataset: String,
    },
    /// Run the service: jobs by interval, by cron and on demand, within one memory budget (docs/jobs.md describes FILE)
    Serve {
        /// The definitions, in TOML
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
    /// Add a job to the service, or replace its definition
    Add(Box<AddArgs>),
    /// Run a job now. A job that is running runs once more afterwards
    Run {
        /// The job
        #[arg(value_name = "JOB")]
        name: String,
        /// Wait until the run has ended
        #[arg(long)]
        wait: bool,
    },
    /// Read only the documents of a job that failed before
    Retry {
        /// The job
        #[arg(value_name = "JOB")]
        name: String,
        /// Wait until the run has ended
        #[arg(long)]
        wait: bool,
    },
    /// Pause a job's run, and start no further run
    Pause {
        /// The job
        #[arg(value_name = "JOB")]
        name: String,
    },
    /// Continue a paused job
    Resume {
        /// The job
        #[arg(value_name = "JOB")]
        name: String,
    },
    /// End a job's run. The next run continues from there
    Cancel {
        /// The job
        #[arg(value_name = "JOB")]
        name: String,
    },
    /// Remove a job from the service. Its documents stay
    Remove {
        /// The job
        #[arg(value_name = "JOB")]
        name: String,
    },
}

impl JobsCommand {
    /// The name of the job that the service is asked about.
    fn job(&self) -> Option<&str> {
        match self {
            JobsCommand::List | JobsCommand::Errors { .. } | JobsCommand::Serve { .. } => None,
            JobsCommand::Add(add) => Some(&add.name),
            JobsCommand::Run { name, .. }
            | JobsCommand::Retry { name, .. }
            | JobsCommand::Pause { name }
            | JobsCommand::Resume { name }
            | JobsCommand::Cancel { name }
            | JobsCommand::Remove { name } => Some(name),
        }
    }
}

/// Options of `strand jobs add`.
#[derive(Debug, Args)]
pub struct AddArgs {
    /// The job: letters, digits, dots, hyphens and underscores
    #[arg(value_name = "JOB")]
    pub name: String,
    /// The source, as for strand import
    #[arg(value_name = "SOURCE")]
    pub source: String,
    /// The dataset [default: the job's name]
    #[arg(long, value_name = "NAME")]
    pub into: Option<String>,
    /// Send to this sink instead of --server
    #[arg(long, value_name = "SINK")]
    pub to: Option<String>,
    /// Start a run this long after the start of the last one: 90s, 10m, 2h, 1d
    #[arg(long, value_name = "TIME", conflicts_with = "cron")]
    pub every: Option<String>,
    /// Start runs by cron's five fields, in this machine's time zone
    #[arg(long, value_name = "FIELDS")]
    pub cron: Option<String>,
    /// Also start a run when the folder has changed and then been quiet for this time
    #[arg(long, value_name = "TIME")]
    pub watch: Option<String>,
    /// Delay each start by a random time up to this
    #[arg(long, value_name = "TIME")]
    pub jitter: Option<String>,
    /// Of two waiting jobs, the one with the higher priority starts first
    #[arg(long, value_name = "NUMBER", allow_negative_numbers = true)]
    pub priority: Option<i32>,
    /// Read at most SIZE bytes a second
    #[arg(long, value_name = "SIZE")]
    pub rate: Option<String>,
    /// Further options of strand import, after --
    #[arg(last = true, value_name = "OPTION")]
    pub options: Vec<String>,
}

/// Queries the server or the service, and prints. Returns the exit code of the process.
pub fn run(args: JobsArgs) -> ExitCode {
    let is_service = args.service.is_some();
    match &args.command {
        JobsCommand::List | JobsCommand::Errors { .. } if !is_service => ask_server(args),
        _ if let Some(why) = idle_option(&args) => fail(args.json, &why, 2),
        _ => match ask_service(&args) {
            Ok(code) => code,
            Err(error) => fail(args.json, &error.to_string(), 1),
        },
    }
}

/// Why a request to the service fails, or the service itself.
#[derive(Debug, thiserror::Error)]
enum JobsError {
    #[error(transparent)]
    Definition(#[from] DefinitionError),
    #[error(transparent)]
    Ask(#[from] AskError),
    #[error(transparent)]
    Serve(#[from] ServiceError),
    #[error("the job {0} is paused, so its run does not begin: first run `strand jobs resume {0}`")]
    Paused(String),
    #[error("the job {0} was paused meanwhile. Its run waits for `strand jobs resume {0}`")]
    PausedMeanwhile(String),
}

/// Prints an error, also as JSON if that is wanted. Returns the exit code of the process.
fn fail(is_json: bool, error: &str, code: u8) -> ExitCode {
    let text = safe(error);
    if is_json {
        json::print_error(&text, code);
    }
    say!("strand jobs: {text}");
    ExitCode::from(code)
}

/// What is wrong with an option that the subcommand does not use. `add` writes `--server` and `--db` into the job's
/// definition.
fn idle_option(args: &JobsArgs) -> Option<String> {
    if args.service.is_some() && matches!(args.command, JobsCommand::Serve { .. }) {
        return Some("--service has no effect here: listen in FILE is the address of the service".to_owned());
    }
    let is_add = matches!(args.command, JobsCommand::Add(_));
    let server = args.server.server.as_ref().map(|_| "--server");
    let db = (args.db != 0).then_some("--db");
    if let Some(option) = server.or(db).filter(|_| !is_add) {
        return Some(format!(
            "{option} has no effect here: it belongs to a job (strand jobs add NAME SOURCE {option} …)"
        ));
    }
    let user = args.server.user.as_ref().map(|_| "--user");
    let password = args.server.password.as_ref().map(|_| "--password");
    let tls = args.tls.is_on().then_some("--tls").or_else(|| args.tls.idle_option());
    let option = user.or(password).or(tls)?;
    Some(format!(
        "{option} has no effect here: it belongs to the options of a job (strand jobs add NAME SOURCE -- {option} …)"
    ))
}

/// True when the subcommand of this name refuses the option with this id of clap, as [`idle_option`] does.
pub fn is_refused(subcommand: &str, option: &str) -> bool {
    match (subcommand, option) {
        ("list" | "errors", _) | (_, "json") | ("add", "server" | "db") => false,
        (_, "service") => subcommand == "serve",
        _ => true,
    }
}

fn ask_service(args: &JobsArgs) -> Result<ExitCode, JobsError> {
    let (address, token) =
        (args.service.as_deref().unwrap_or(LISTEN), std::env::var("STRAND_JOBS_TOKEN").ok());
    let definition = match &args.command {
        JobsCommand::Add(add) => definition_of(add, args.server.server.as_deref(), args.db),
        _ => Value::Null,
    };
    if let Some(name) = args.command.job()
        && !is_name(name)
    {
        return Err(DefinitionError::Name(name.to_owned()).into());
    }
    let ask = |method, path: &str, body| client::ask(address, token.as_deref(), method, path, body);
    let post = |name: &str, verb: &str| ask("POST", &format!("/v1/jobs/{name}/{verb}"), None);
    let get = |name: &str| ask("GET", &format!("/v1/jobs/{name}"), None);
    // Look first, because a run of a paused job would stay in the queue after the error.
    if let JobsCommand::Run { name, wait: true } | JobsCommand::Retry { name, wait: true } = &args.command
        && get(name)?["state"] == "paused"
    {
        return Err(JobsError::Paused(name.clone()));
    }
    let (name, mut job, wait) = match &args.command {
        JobsCommand::Serve { file } => {
            crate::jobs::serve(file)?;
            return Ok(ExitCode::SUCCESS);
        }
        JobsCommand::List => {
            let all = ask("GET", "/v1/jobs", None)?;
            for job in all["jobs"].as_array().into_iter().flatten() {
                print_job(job, args.json);
            }
            return Ok(ExitCode::SUCCESS);
        }
        JobsCommand::Errors { dataset } => {
            let reply = ask("GET", &format!("/v1/jobs/{dataset}/errors"), None)?;
            for document in reply["failed"].as_array().into_iter().flatten() {
                let part = |key: &str| document[key].as_str().unwrap_or_default().to_owned();
                match args.json {
                    true => json::print_failed(part("path").as_bytes(), &part("reason")),
                    false => print_line(&format!("{}: {}", safe(&part("path")), safe(&part("reason")))),
                }
            }
            return Ok(ExitCode::SUCCESS);
        }
        JobsCommand::Add(add) => {
            (&add.name, ask("PUT", &format!("/v1/jobs/{}", add.name), Some(&definition))?, false)
        }
        JobsCommand::Run { name, wait } => (name, post(name, "run")?, *wait),
        JobsCommand::Retry { name, wait } => (name, post(name, "retry")?, *wait),
        JobsCommand::Pause { name } => (name, post(name, "pause")?, false),
        JobsCommand::Resume { name } => (name, post(name, "resume")?, false),
        JobsCommand::Cancel { name } => (name, post(name, "cancel")?, false),
        JobsCommand::Remove { name } => (name, ask("DELETE", &format!("/v1/jobs/{name}"), None)?, false),
    };
    // The number of the run that the user waits for. The reply was made before this run could start, so a run that is under
    // way goes first.
    let mut awaited = runs_of(&job) + 1 + u64::from(!job["started_ms"].is_null());
    while wait && job["state"] != "idle" && runs_of(&job) < awaited {
        if job["state"] == "paused" {
            return Err(JobsError::PausedMeanwhile(name.clone()));
        }
        std::thread::sleep(POLL_INTERVAL);
        job = get(name)?;
        // A run that was ended to free memory starts again.
        if runs_of(&job) == awaited && job["last"]["outcome"] == "made room for others" {
            awaited += 1;
        }
    }
    print_job(&job, args.json);
    // The number is lower if the run was cancelled before it began.
    let is_done = !wait || runs_of(&job) >= awaited && job["last"]["outcome"] == "done";
    Ok(if is_done { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Number of the job's runs that have ended.
fn runs_of(job: &Value) -> u64 {
    job["runs"].as_u64().unwrap_or(0)
}

/// The path from the root. The service has another working folder than this process.
fn absolute(path: &str) -> String {
    let absolute = std::path::absolute(path).ok().and_then(|path| path.into_os_string().into_string().ok());
    absolute.unwrap_or_else(|| path.to_owned())
}

/// The source with the path from the root, if it is a folder or a file of this machine.
fn absolute_source(source: &str) -> String {
    match source.strip_prefix("restic:") {
        Some(repository) => format!("restic:{}", absolute(repository)),
        None if source.contains("://") => source.to_owned(),
        None => absolute(source),
    }
}

/// The sink with the path from the root, if it is a file.
fn absolute_sink(sink: &str) -> String {
    match sink.split_once(':') {
        Some((format @ ("ndjson" | "xml" | "file"), path)) if !path.is_empty() && path != "-" => {
            format!("{format}:{}", absolute(path))
        }
        _ => sink.to_owned(),
    }
}

fn definition_of(add: &AddArgs, server: Option<&str>, db: u32) -> Value {
    let mut definition = json!({"source": absolute_source(&add.source)});
    let to = add.to.as_deref().map(absolute_sink);
    let texts = [
        ("into", &add.into),
        ("to", &to),
        ("every", &add.every),
        ("cron", &add.cron),
        ("watch", &add.watch),
        ("jitter", &add.jitter),
        ("rate", &add.rate),
    ];
    for (key, value) in texts {
        if let Some(value) = value {
            definition[key] = value.as_str().into();
        }
    }
    if let Some(server) = server {
        definition["server"] = server.into();
    }
    if let Some(priority) = add.priority {
        definition["priority"] = priority.into();
    }
    let mut options = add.options.clone();
    if db != 0 {
        options.extend(["--db".to_owned(), db.to_string()]);
    }
    if !options.is_empty() {
        definition["options"] = options.into();
    }
    definition
}

fn print_job(job: &Value, is_json: bool) {
    if is_json {
        return print_line(&job.to_string());
    }
    if job.is_null() {
        return;
    }
    let text = |value: &Value| safe(value.as_str().unwrap_or_default());
    let mut line = format!("{}: {}", text(&job["name"]), text(&job["state"]));
    if let Some(waits) = job["waits"].as_str() {
        line += &format!(" ({})", safe(waits));
    }
    if let (Some(done), Some(listed)) = (job["progress"]["done"].as_u64(), job["progress"]["listed"].as_u64())
    {
        let progress = &job["progress"];
        let path = progress["path"].as_str().unwrap_or_default();
        line += &progress_text(done, listed, progress["remaining_milliseconds"].as_u64(), path);
    }
    line += &forecast_text(&job["forecast"], &Value::Null);
    if let Some(held) = job["held_bytes"].as_u64().filter(|held| *held > 0) {
        line += &format!(", holds {}", ByteSize(held));
    }
    let last = &job["last"];
    if let Some(outcome) = last["outcome"].as_str() {
        line += &format!("; last: {outcome} in {:.1} s", last["seconds"].as_f64().unwrap_or(0.0));
        let number = |key: &str| last["summary"][key].as_u64().unwrap_or(0);
        if last["summary"].is_object() {
            let [added, updated, removed, failed] = ["added", "updated", "removed", "failed"].map(number);
            line += &format!(", {added} added, {updated} updated, {removed} removed, {failed} failed");
            line += &cache_text(&last["summary"]["cache"]);
        }
        line += &forecast_text(&last["forecast"], last);
        if let Some(error) = last["error"].as_str() {
            line += &format!(": {}", safe(error));
        }
    }
    print_line(&line);
}

/// What a run did with its cache, as text. Empty for a run without a cache.
fn cache_text(cache: &Value) -> String {
    if !cache.is_object() {
        return String::new();
    }
    let number = |key: &str| cache[key].as_u64().unwrap_or(0);
    let [hits, texts, misses] = ["hits", "texts", "misses"].map(number);
    let [from, stored] = ["hit_bytes", "stored_bytes"].map(|key| ByteSize(number(key)));
    let mut text = format!(
        "; cache: {hits} parts ({from}) and {texts} texts from it, {misses} parts from the source, {stored} stored"
    );
    if let Some(why) = cache["aside"].as_str() {
        text += &format!(", the cache is not used: {}", safe(why));
    }
    text
}

/// The progress of a run, as text.
fn progress_text(done: u64, listed: u64, rest_ms: Option<u64>, path: &str) -> String {
    let left = rest_ms.map(|ms| format!("about {} left, ", seconds(Duration::from_millis(ms))));
    let (left, path) = (left.unwrap_or_default(), printable(path.as_bytes()));
    format!(", {done} documents done, {listed} listed so far, {left}at {path}")
}

/// The forecast of a run's cost, and beside it the figures of the run `last`.
fn forecast_text(forecast: &Value, last: &Value) -> String {
    if !forecast.is_object() {
        return String::new();
    }
    let [documents, removed, bytes] =
        ["documents", "removed", "bytes"].map(|key| forecast[key].as_u64().unwrap_or(0));
    let time = forecast["seconds"].as_f64().unwrap_or(0.0);
    let mut line = format!(
        "; forecast: {documents} documents ({}) to read, {removed} to remove, {time:.1} s",
        ByteSize(bytes)
    );
    let summary = &last["summary"];
    if summary.is_object() {
        let [documents, removed, bytes] =
            ["opened", "removed", "bytes_read"].map(|key| summary[key].as_u64().unwrap_or(0));
        let time = summary["seconds"].as_f64().unwrap_or(0.0);
        line +=
            &format!("; actual: {documents} documents ({}), {removed} removed, {time:.1} s", ByteSize(bytes));
    }
    line
}

fn ask_server(args: JobsArgs) -> ExitCode {
    let access = match args.server.access(&args.tls) {
        Ok(access) => access,
        Err(error) => return fail(args.json, &error.to_string(), 2),
    };
    let target = access.target(args.db);
    let done = match &args.command {
        JobsCommand::Errors { dataset } => {
            let dataset = datasets::errors(&target, dataset, &mut |path, reason| match args.json {
                true => json::print_failed(path, reason),
                false => print_line(&format!("{}: {}", printable(path), safe(reason))),
            });
            dataset.map(|dataset| print_dataset(&dataset, args.json))
        }
        _ => datasets::list(&target).map(|all| all.iter().for_each(|d| print_dataset(d, args.json))),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(args.json, &text_of(&error, target.tls.is_some()), exit_code(&error)),
    }
}

fn print_dataset(dataset: &datasets::Dataset, is_json: bool) {
    if is_json {
        return json::print_dataset(dataset);
    }
    let datasets::Dataset { name, containers, documents, failed, interrupted, running } = dataset;
    let mut line =
        format!("{}: {documents} documents in {containers} containers, {failed} failed", safe(name));
    if running.is_some() {
        let number = |name| dataset.report_value(name).and_then(|text| text.parse::<u64>().ok());
        line += ", an import runs";
        if let (Some(done), Some(listed)) = (number("done"), number("listed")) {
            line += &progress_text(
                done,
                listed,
                number("remaining_milliseconds"),
                dataset.report_value("path").unwrap_or_default(),
            );
        }
    } else if *interrupted > 0 {
        line += ", the last run was cut short";
    }
    print_line(&line);
}
