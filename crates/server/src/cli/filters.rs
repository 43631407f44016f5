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
    /// Leave out documents and folders that match; stronger than --include; may be given again
    #[arg(long, value_name = "GLOB")]
    pub exclude: Vec<String>,
    /// Leave out what the lines of this file name, in gitignore's syntax; may be given again
    #[arg(long, value_name = "FILE")]
    pub exclude_from: Vec<PathBuf>,
    /// Leave out what the .gitignore files in SOURCE name, as git does, and .git itself
    #[arg(long)]
    pub gitignore: bool,
    /// Take only documents of this file type: mail, archive, office, text, or one of ripgrep's; may be given again
    #[arg(long = "type", value_name = "NAME")]
    pub types: Vec<String>,
    /// Leave out documents of this file type; may be given again
    #[arg(long = "type-not", value_name = "NAME")]
    pub types_not: Vec<String>,
    /// Leave out documents with fewer bytes: a number, or one with k, M, G or T behind it
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
