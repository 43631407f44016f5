//! The options that choose documents of a source, shared by `strand import` and `strand diff`.

use clap::Args;
use std::path::PathBuf;
use strand_import::FilterOptions;
use strand_import::filter::ByteSize;

/// Which documents are wanted.
#[derive(Debug, Args)]
#[command(next_help_heading = "Choosing documents")]
pub struct FilterArgs {
    /// Take only documents that match; gitignore's syntax ('*.eml', 'docs/**', '/top/*.txt'); may be given again
    #[arg(long, value_name = "GLOB")]
    pub include: Vec<String>,
    /// Leave out documents and folders that match, even if --include matches; may be given again
    #[arg(long, value_name = "GLOB")]
    pub exclude: Vec<String>,
    /// Leave out documents and folders that match a line of this file, in gitignore's syntax; may be given again
    #[arg(long, value_name = "FILE")]
    pub exclude_from: Vec<PathBuf>,
    /// Leave out .git, and what the .gitignore files in SOURCE match, as git does
    #[arg(long)]
    pub gitignore: bool,
    /// Take only documents of this file type: mail, archive, office, text, or one of ripgrep's; may be given again
    #[arg(long = "type", value_name = "NAME")]
    pub types: Vec<String>,
    /// Leave out documents of this file type; may be given again
    #[arg(long = "type-not", value_name = "NAME")]
    pub types_not: Vec<String>,
    /// Leave out documents with fewer bytes: a number, optionally followed by k, M, G or T
    #[arg(long, value_name = "SIZE")]
    pub min_size: Option<ByteSize>,
    /// Leave out documents with more bytes
    #[arg(long, value_name = "SIZE")]
    pub max_size: Option<ByteSize>,
}

impl From<FilterArgs> for FilterOptions {
    fn from(args: FilterArgs) -> FilterOptions {
        FilterOptions {
            include: args.include,
            exclude: args.exclude,
            exclude_from: args.exclude_from,
            gitignore: args.gitignore,
            types: args.types,
            types_not: args.types_not,
            min_size: args.min_size,
            max_size: args.max_size,
        }
    }
}
