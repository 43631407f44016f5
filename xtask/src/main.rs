//! Project chores: `cargo xtask tidy` checks what the compiler does not, `cargo xtask sbom` lists what is in the binary.

mod sbom;
mod tidy;

use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["tidy"] => tidy::run(),
        ["sbom"] => sbom::run(),
        _ => {
            eprintln!(
                "usage: cargo xtask tidy   dependency edges, module docs, dead paths, links and make targets in documents, \
                 file sizes, banned words, licences\n       cargo xtask sbom   what the strand binary is made of, as \
                 CycloneDX in JSON"
            );
            ExitCode::from(2)
        }
    }
}
