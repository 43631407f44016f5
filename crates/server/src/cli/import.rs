//! `strand import`: the command line of the importer, its progress display and its exit codes.
//!
//! `strand_import::run` does the work. The last line on the standard output is the summary. All other output
//! (progress, skipped files, failed documents, errors) goes to the standard error, except the changes that a dry run
//! lists.

use super::access::{ServerArgs, text_of};
use super::display::{Display, print_line, printable, safe};
use super::extract;
use super::filters::FilterArgs;
use super::json::{self, JsonLines};
use super::remote::RemoteArgs;
use super::supervised::{self, Supervised};
use clap::{ArgAction, Args};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use strand_cli::TlsOptions;
use strand_import::filter::{ByteSize, SizeError};
use strand_import::memory::Memory;
use strand_import::source::ListError;
use strand_import::temporary;
use strand_import::{
    ArchiveLimits, Destination, ImportError, ImportMode, ImportOptions, MaxDelete, Notices, OptionError,
    Summary,
};
use tikv_jemalloc_ctl::{Access, AsName};

/// Text of `strand import --help` below the options.
const AFTER_HELP: &str = "\
The dataset becomes exactly what SOURCE holds: documents that SOURCE no longer has are removed, even when SOURCE is \
another folder than at the last run. Only what has changed since then is read and sent.

A document is a hash at NAME:path. The files in an archive (zip, tar, gz, xz, zstd, mbox, also nested) are documents too: \
the archive's path comes before their own, and their field parent names it. The archive itself is also a document. Every \
document has path, name, kind and size. Mail (RFC 5322, with or without an mbox 'From ' line) has message_id, date (Unix \
seconds), from, from_address, to, to_address, cc, subject, body and attachments, and in a Maildir flags. HTML, text, JSON, \
CSV, office files and PDF have body and a few more fields. A file counts as mail if its name ends in .eml, if it lies in a \
Maildir, or if it begins like a mail. If such a file cannot be read as mail, it is a failed document. The summary counts and \
lists failed documents, and the import continues.

Filters choose among the files of the source. They do not look into archives. If an earlier run imported a file and the \
filters now leave it out, this run removes its documents.

Exit codes: 0 done; 1 stopped by an error; 2 wrong usage; 3 (with --strict) documents failed, (with --verify) \
documents differ or failed; 4 stopped by --max-delete (the message says how many \
documents the run has removed); 5 SOURCE cannot be opened or listed; 6 another import into NAME is under way.";

/// The exit code with `--strict` when documents failed.
pub(super) const DOCUMENTS_FAILED: u8 = 3;

/// Options of `strand import`.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct ImportArgs {
    /// The folder or Maildir to import; or git+file:///path/of/repository@main; or restic:/path/of/repository@latest;
    /// or s3://bucket/prefix; or the URL of an archive or another file
    #[arg(value_name = "SOURCE")]
    pub source: PathBuf,
    /// The dataset: documents become hashes at NAME:path, and the text index is named NAME
    #[arg(long, value_name = "NAME")]
    pub into: String,
    /// The server to send to, and the user.
    #[command(flatten)]
    pub server: ServerArgs,
    /// Send elsewhere: file:out.ndjson or file:out.xml; ndjson:PATH or xml:PATH ('-' is the standard output, '--to -'
    /// is NDJSON there); or solr+http://host:8983,other:8983/solr/collection, with ?commitWithin=MILLISECONDS,
    /// names=dynamic, fields=subject:title_t,body:body_t, commit=true, patience=SECONDS
    #[arg(long, value_name = "SINK")]
    pub to: Option<Destination>,
    /// With --to: the folder for the records of what was sent. Default for Solr: $XDG_STATE_HOME/strand. For files
    /// there is no default, and without records every run writes all documents
    #[arg(long, value_name = "FOLDER", requires = "to")]
    pub state: Option<PathBuf>,
    /// The database to import into. Any database but 0 needs --no-index
    #[arg(long, value_name = "NUMBER", default_value_t = 0, conflicts_with = "to")]
    pub db: u32,
    /// Print what would change, and change nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Publish all changes at one moment, at the end. Until then readers see the dataset as it was, and a run that
    /// fails changes nothing. The server keeps the changes in memory meanwhile
    #[arg(long, conflicts_with = "to")]
    pub atomic: bool,
    /// Keep the state of the text indexes at the last NUMBER versions of the dataset, for FT.SEARCH VERSION and
    /// FT.CHANGES (0 to 64)
    #[arg(long, value_name = "NUMBER", conflicts_with = "to", default_value_t = strand_import::KEEP_VERSIONS,
        value_parser = clap::value_parser!(u8).range(0..=i64::from(strand_import::KEEP_VERSIONS_MAX)))]
    pub keep_versions: u8,
    /// Exit with 3 if a document failed
    #[arg(long)]
    pub strict: bool,
    /// Show before the run what the run will read and how long it will take, and after the run what it did. This lists
    /// the source twice
    #[arg(long)]
    pub forecast: bool,
    /// Read only the documents that failed before (strand jobs errors NAME lists them)
    #[arg(long, conflicts_with = "verify")]
    pub retry_failed: bool,
    /// Compare every document with the server's, and change nothing. Exit with 3 if a document differs
    #[arg(long)]
    pub verify: bool,
    /// Ask the server for every document, also in folders of git and restic that have not changed, and store what the
    /// server has lost
    #[arg(long, conflicts_with_all = ["to", "verify", "retry_failed"])]
    pub recheck: bool,
    /// Do not create the text index
    #[arg(long = "no-index", action = ArgAction::SetFalse, conflicts_with = "to")]
    pub index: bool,
    /// Import the attachments of mails as documents too
    #[arg(long)]
    pub attachments: bool,
    /// Stop before any change if more documents than this would be removed: a number, or a share of the dataset (a
    /// share also allows 100 documents, unless SOURCE is empty)
    #[arg(long, value_name = "NUMBER or SHARE", default_value = "20%")]
    pub max_delete: MaxDelete,
    /// Limits for an archive and all archives in it. Limits that you leave out keep their defaults
    #[arg(
        long,
        value_name = "NAME=VALUE,...",
        default_value = "depth=16,entries=100000,ratio=100,bytes=16GiB"
    )]
    pub archive_limits: ArchiveLimits,
    /// Wait for another running import into NAME. Without this, another import is an error
    #[arg(long)]
    pub wait: bool,
    /// Read at most SIZE bytes of SOURCE a second
    #[arg(long, value_name = "SIZE", value_parser = byte_rate)]
    pub rate: Option<ByteSize>,
    /// Add a line of JSON to FILE for each HTTP request: method, host, status, bytes, time. With --json, the summary
    /// has the sums
    #[arg(long, value_name = "FILE")]
    pub log_requests: Option<PathBuf>,
    /// Talk to strand jobs serve
    #[arg(long, hide = true, conflicts_with_all = ["json", "quiet", "verbose"])]
    pub supervised: bool,
    /// Print one JSON object a line: containers, changes (with --verbose unchanged documents too), and a summary
    #[arg(long, conflicts_with = "quiet")]
    pub json: bool,
    /// Print no progress, only the summary, failed documents and errors
    #[arg(long, short, conflicts_with = "verbose")]
    pub quiet: bool,
    /// Print each change, and what the run read
    #[arg(long, short)]
    pub verbose: bool,
    // Last, because their headings apply to all options after them.
    #[command(flatten)]
    pub filters: FilterArgs,
    #[command(flatten)]
    pub remote: RemoteArgs,
    /// The options of TLS.
    #[command(flatten)]
    pub tls: TlsOptions,
}

/// Parses a rate: bytes per second, at least 1.
fn byte_rate(text: &str) -> Result<ByteSize, RateError> {
    match text.parse() {
        Ok(ByteSize(0)) => Err(RateError::Zero),
        parsed => parsed.map_err(RateError::Size),
    }
}

/// Why a text is no rate.
#[derive(Debug, thiserror::Error)]
enum RateError {
    #[error(transparent)]
    Size(SizeError),
    #[error("expected at least 1 byte a second")]
    Zero,
}

impl ImportArgs {
    /// Checks the options of the source and of the database, as a run does, without reading a file.
    ///
    /// # Errors
    /// What is wrong, in one line.
    pub fn check(self) -> Result<(), String> {
        if self.index && self.db != 0 {
            return Err(OptionError::IndexElsewhere(self.db).to_string());
        }
        let checked = strand_import::check_source(&self.source, &self.remote.into(), &self.filters.into());
        checked.map_err(|error| error.to_string())
    }
}

/// Runs the import. Returns the exit code of the process.
pub fn run(mut args: ImportArgs) -> ExitCode {
    let is_json = args.json || args.supervised;
    let refused = |why: &str| {
        say!("strand import: {why}");
        if is_json {
            json::print_error(why, 2);
        }
        ExitCode::from(2)
    };
    if args.supervised
        && let Err(why) = supervised::take_passwords(&mut args)
    {
        return refused(&why.to_string());
    }
    let idle = args.server.given().or_else(|| args.tls.is_on().then_some("--tls"));
    if let (Some(option), Some(_)) = (idle, &args.to) {
        return refused(&format!("{option} has no effect with --to"));
    }
    let access = match args.server.access(&args.tls) {
        Ok(access) => access,
        Err(error) => {
            return refused(&safe(&error.to_string()));
        }
    };
    let mode = match (args.retry_failed, args.verify) {
        (true, _) => ImportMode::RetryFailed,
        (_, true) => ImportMode::Verify,
        _ => ImportMode::Import,
    };
    if let Some(path) = &args.log_requests
        && let Err(why) = strand_import::requests::open_log(path)
    {
        return refused(&format!("--log-requests: cannot open {}: {why}", safe(&path.display().to_string())));
    }
    let options = ImportOptions {
        source: args.source,
        into: args.into,
        to: args.to.unwrap_or_default(),
        state: args.state,
        notices: Notices(Some(Arc::new(move |what| match is_json {
            true => json::print_waiting(what),
            false => say!("waiting: {}", safe(what)),
        }))),
        wait: args.wait,
        memory: if args.supervised { supervised::memory() } else { Memory::default() },
        extractor: Some(extract::program()),
        report_every: strand_import::REPORT_EVERY,
        rate: args.rate.map(|rate| rate.0),
        address: access.address,
        tls: access.tls,
        username: access.user,
        password: access.password,
        db: args.db,
        dry_run: args.dry_run,
        atomic: args.atomic,
        keep_versions: args.keep_versions,
        index: args.index,
        attachments: args.attachments,
        recheck: args.recheck,
        max_delete: args.max_delete,
        forecast: args.forecast,
        mode,
        remote: args.remote.into(),
        filter: args.filters.into(),
        archives: args.archive_limits,
    };
    if matches!(options.to, Destination::Lines { path: None, .. }) {
        if is_json {
            return refused("--json and --to both want the standard output");
        }
        super::display::lines_to_stderr();
    }
    let result = if args.supervised {
        strand_import::run(&options, &mut Supervised::new())
    } else if args.json {
        strand_import::run(&options, &mut JsonLines { unchanged: args.verbose, removed: None })
    } else {
        let changes = args.verbose || options.dry_run;
        let mut display = Display::new(&options.into, args.quiet, changes, options.dry_run);
        let result = strand_import::run(&options, &mut display);
        display.finish();
        result
    };
    match result {
        Ok(summary) => {
            if is_json {
                json::print_summary(&summary, options.dry_run);
            } else {
                report(&summary, args.verbose, args.forecast);
            }
            let failed = (args.strict || args.verify) && summary.failed > 0;
            ExitCode::from(if failed { DOCUMENTS_FAILED } else { 0 })
        }
        Err(error) => {
            let (message, code) = (safe(&text_of(&error, options.tls.is_some())), exit_code(&error));
            if is_json {
                json::print_error(&message, code);
            }
            say!("strand import: {message}");
            ExitCode::from(code)
        }
    }
}

/// The exit code of a run that had to stop.
pub fn exit_code(error: &ImportError) -> u8 {
    match error {
        ImportError::Options(_) => 2,
        ImportError::TooManyDeletions { .. } | ImportError::LostMeanwhile { .. } => 4,
        ImportError::Source { error, .. } | ImportError::List(ListError::Io { error, .. })
            if temporary::is_fault_of(error) =>
        {
            1
        }
        ImportError::Source { .. } | ImportError::List(_) => 5,
        ImportError::Busy { .. } => 6,
        _ => 1,
    }
}

/// Prints the result of a run.
fn report(summary: &Summary, verbose: bool, forecast: bool) {
    report_skipped(summary);
    if verbose {
        say!(
            "opened {} documents ({} bytes), listed {} folders, recorded {} of them",
            summary.opened,
            summary.bytes_read,
            summary.containers,
            summary.recorded
        );
        if summary.moved > 0 {
            say!("copied {} of the added documents at the server, because they have moved", summary.moved);
        }
        if summary.containers_skipped > 0 {
            say!("skipped {} folders whose trees are unchanged", summary.containers_skipped);
        }
    }
    report_cache(summary);
    if forecast {
        say!(
            "actual: {} containers, {} documents ({}) read, {} removed, {} of memory, {:.1} s",
            summary.containers,
            summary.opened,
            ByteSize(summary.bytes_read),
            summary.removed,
            ByteSize(crate::driver::allocator::peak_bytes()),
            summary.took.as_secs_f64()
        );
    }
    report_failed(summary);
    print_line(&summary.to_string());
}

/// Prints what the run read from the cache and stored in it, if there is a cache.
pub fn report_cache(summary: &Summary) {
    let Some(cache) = &summary.cache else { return };
    if let Some(why) = &cache.disabled_reason {
        say!("the cache is not used: {}", safe(why));
    }
    say!(
        "cache: {} parts ({}) and {} texts from it, {} parts from the source, {} stored, {} parts not stored (disk too full), {} \
         objects removed to make room",
        cache.hits,
        ByteSize(cache.hit_bytes),
        cache.texts,
        cache.misses,
        ByteSize(cache.stored_bytes),
        cache.refused,
        cache.culled
    );
}

/// Number of allocations of this process, as the allocator counts them. Allocations that threads have not reported yet
/// are missing.
pub fn allocations() -> u64 {
    let _ = tikv_jemalloc_ctl::epoch::advance();
    // 4096 is jemalloc's index for all arenas together (MALLCTL_ARENAS_ALL).
    let count = |name: &str| -> u64 {
        let name = format!("stats.arenas.4096.{name}.nrequests\0");
        name.as_bytes().name().read().unwrap_or(0)
    };
    count("small") + count("large")
}

/// Prints what the listings left out.
pub fn report_skipped(summary: &Summary) {
    let skipped = summary.skipped;
    if skipped.links + skipped.special + skipped.submodules > 0 {
        let submodules = match skipped.submodules {
            0 => String::new(),
            n => format!(", {n} submodules"),
        };
        say!(
            "skipped: {} symbolic or hard links, {} special files{submodules}",
            skipped.links,
            skipped.special
        );
    }
    if skipped.filtered > 0 {
        say!("files and folders that the filters left out: {}", skipped.filtered);
    }
}

/// Prints the failed documents and the reasons.
pub fn report_failed(summary: &Summary) {
    if summary.failed == 0 {
        return;
    }
    say!("failed:");
    for document in &summary.failed_documents {
        say!("  {}: {}", printable(&document.path), safe(&document.reason));
    }
    let unlisted = summary.failed - summary.failed_documents.len() as u64;
    if unlisted > 0 {
        say!("  and {unlisted} more");
    }
}
