//! `strand profile`: where a running server allocates memory or spends processor time, as a file for `go tool
//! pprof`.

use super::access::ServerArgs;
use super::display::{print_line, safe};
use super::doctor::text;
use super::error::CliError;
use clap::{Args, ValueEnum};
use std::fs::OpenOptions;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use strand_cli::TlsOptions;

/// Text of `strand profile --help` below the options.
const AFTER_HELP: &str = "Show a profile: go tool pprof -top FILE
Compare two profiles: go tool pprof -top -diff_base OLD NEW
Show memory by purpose: go tool pprof -tags FILE";

/// How long processor time is sampled without `--seconds`, and the longest time that the server allows.
const CPU_S_DEFAULT: u64 = 10;
const CPU_S_MAX: u64 = 300;

/// Options of `strand profile`.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct ProfileArgs {
    /// Which profile to take
    #[arg(value_enum)]
    pub kind: ProfileKind,
    /// How the server is reached.
    #[command(flatten)]
    pub server: ServerArgs,
    /// The file to write; it must not exist yet [default: strand-heap.pb.gz, -allocs or -cpu, in the current folder]
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Only for cpu: how many seconds processor time is sampled, 1 to 300 [default: 10]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=CPU_S_MAX))]
    pub seconds: Option<u64>,
    /// Print the stacks as text instead of writing a file: one line per stack, the largest first
    #[arg(long, conflicts_with = "output")]
    pub folded: bool,
    /// The options of TLS.
    #[command(flatten)]
    pub tls: TlsOptions,
}

/// The profiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ProfileKind {
    /// Memory that is in use
    Heap,
    /// All memory that was ever allocated
    Allocs,
    /// Processor time
    Cpu,
}

/// Takes a profile and writes it. Returns the exit code of the process.
pub fn run(args: ProfileArgs) -> ExitCode {
    match take(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            say!("strand profile: {}", safe(&why.to_string()));
            why.exit_code()
        }
    }
}

fn take(args: ProfileArgs) -> Result<(), CliError> {
    if args.seconds.is_some() && args.kind != ProfileKind::Cpu {
        return Err(CliError::IdleSeconds);
    }
    let seconds = args.seconds.unwrap_or(CPU_S_DEFAULT);
    let mut connection = args.server.access(&args.tls)?.connect()?;
    let mut ask = |words: &[&str]| text(&mut connection, words);
    let started;
    let mut words = match args.kind {
        ProfileKind::Heap => vec!["DIAG", "PROFILE", "HEAP"],
        ProfileKind::Allocs => vec!["DIAG", "PROFILE", "ALLOCS"],
        ProfileKind::Cpu => {
            let number = ask(&["DIAG", "PROFILE", "CPU", "START", "SECONDS", &seconds.to_string()])?;
            started = String::from_utf8_lossy(&number).into_owned();
            std::thread::sleep(Duration::from_secs(seconds));
            vec!["DIAG", "PROFILE", "CPU", "STOP", &started]
        }
    };
    if args.folded {
        words.push("FOLDED");
    }
    let bytes = ask(&words)?;
    if args.folded {
        String::from_utf8_lossy(&bytes).lines().for_each(|line| print_line(&safe(line)));
        return Ok(());
    }
    let name = match args.kind {
        ProfileKind::Heap => "strand-heap.pb.gz",
        ProfileKind::Allocs => "strand-allocs.pb.gz",
        ProfileKind::Cpu => "strand-cpu.pb.gz",
    };
    let output = args.output.clone().unwrap_or_else(|| name.into());
    let file = OpenOptions::new().write(true).create_new(true).open(&output);
    file.and_then(|mut file| file.write_all(&bytes))
        .map_err(|error| CliError::Write { path: output.clone(), error })?;
    print_line(&format!("{}: {} bytes; go tool pprof -top {0}", output.display(), bytes.len()));
    Ok(())
}
