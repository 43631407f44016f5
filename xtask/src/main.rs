//! Project chores: `cargo xtask tidy` checks what the compiler does not, `cargo xtask test` runs test binaries side by side, `cargo
//! xtask sbom` lists what is in the binary.

mod sbom;
mod test;
mod tidy;

use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["tidy"] => tidy::run(),
        ["sbom"] => sbom::run(),
        ["test", rest @ ..] => test::run(rest),
        _ => {
            eprintln!(
                "usage: cargo xtask tidy   dependency edges, module docs, dead paths, links and make targets in documents, \
                 file sizes, banned words, licences\n       cargo xtask test [--slowest] [CARGO OPTIONS]   all tests, or those of \
                 `-p CRATE`, as many binaries at once as there are cores; the slowest tests\n       cargo xtask sbom   \
                 what the strand binary is made of, as CycloneDX in JSON"
            );
            ExitCode::from(2)
        }
    }
}
