//! `strand diff`: what an import of one source would change after an import of another. Contacts no server.

use super::display::{Display, print_line, safe};
use super::filters::FilterArgs;
use super::import::{exit_code, report_cache, report_failed, report_skipped};
use super::json::{self, JsonLines};
use super::remote::RemoteArgs;
use clap::Args;
use std::path::PathBuf;
use std::process::ExitCode;

/// Text of `strand diff --help` below the options.
const AFTER_HELP: &str = "\
BEFORE and AFTER are sources of strand import: a folder, a Maildir, git+file:///repository@revision, s3://bucket/prefix, a URL. Each \
line is a document: '+' only AFTER has it, '-' only BEFORE has it, '~' its bytes differ. An archive is compared as one \
document.

Exit codes: 0 no difference; 1 differences; 2 wrong usage; 3 a document could not be read; 6 stopped by an error.";

/// The exit code when the comparison had to stop. (The exit code 1 means that the sources differ.)
pub(super) const EXIT_STOPPED: u8 = 6;

/// Options of `strand diff`.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct DiffArgs {
    /// The earlier source
    #[arg(value_name = "BEFORE")]
    pub before: PathBuf,
    /// The later source
    #[arg(value_name = "AFTER")]
    pub after: PathBuf,
    /// Print only the last line
    #[arg(long, short)]
    pub quiet: bool,
    /// Print one JSON object a line, and a summary at the end
    #[arg(long, conflicts_with = "quiet")]
    pub json: bool,
    // Last, because their headings apply to all options after them.
    #[command(flatten)]
    pub filters: FilterArgs,
    #[command(flatten)]
    pub remote: RemoteArgs,
}

/// Compares the sources. Returns the exit code of the process.
pub fn run(args: DiffArgs) -> ExitCode {
    let (filter, remote) = (args.filters.into(), args.remote.into());
    let result = if args.json {
        let mut lines = JsonLines { unchanged: false, removed: None };
        strand_import::compare(&args.before, &args.after, &filter, &remote, &mut lines)
    } else {
        let mut display = Display::new("diff", args.quiet, !args.quiet, true);
        let result = strand_import::compare(&args.before, &args.after, &filter, &remote, &mut display);
        display.finish();
        result
    };
    let summary = match result {
        Ok(summary) => summary,
        Err(error) => {
            let code = if exit_code(&error) == 2 { 2 } else { EXIT_STOPPED };
            let message = safe(&error.to_string());
            if args.json {
                json::print_error(&message, code);
            }
            say!("strand diff: {message}");
            return ExitCode::from(code);
        }
    };
    if args.json {
        json::print_summary(&summary, true);
    } else {
        report_skipped(&summary);
        report_cache(&summary);
        report_failed(&summary);
        let trees = match summary.containers_skipped {
            0 => String::new(),
            n => format!(", {n} trees alike"),
        };
        print_line(&format!(
            "{} added, {} updated, {} removed, {} unchanged{trees}, {} failed",
            summary.added, summary.updated, summary.removed, summary.unchanged, summary.failed
        ));
    }
    match summary.added + summary.updated + summary.removed {
        _ if summary.failed > 0 => ExitCode::from(3),
        0 => ExitCode::SUCCESS,
        _ => ExitCode::from(1),
    }
}
