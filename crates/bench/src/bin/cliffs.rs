//! `make cliffs`: the command line of [`strand_bench::cliffs`].

use std::path::PathBuf;
use std::time::Instant;
use strand_bench::cliffs::{self, Options, Result};
use strand_bench::load;
use strand_bench::machine::Machine;
use strand_bench::report;
use strand_testkit::process::raise_open_files;

const USAGE: &str = "usage: cliffs --strand BINARY [--only NAME] [--scale FACTOR] [--json]";

fn main() -> Result<()> {
    let mut options = Options { strand: PathBuf::new(), only: None, scale: 1.0 };
    let mut json = false;
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or(format!("{arg} wants a value; {USAGE}"));
        match arg.as_str() {
            "--strand" => options.strand = value()?.into(),
            "--only" => options.only = Some(value()?),
            "--scale" => options.scale = value()?.parse()?,
            "--json" => json = true,
            _ => return Err(format!("unknown argument {arg}; {USAGE}").into()),
        }
    }
    if options.strand.as_os_str().is_empty() || options.scale <= 0.0 {
        return Err(USAGE.into());
    }
    let (machine, start) = (Machine::here(&options.strand), Instant::now());
    load::pin_to(1)?;
    raise_open_files()?;
    let reports = cliffs::run(&options)?;
    report::print(&machine, &reports, start.elapsed(), json);
    Ok(())
}
