//! The options for reaching a source, shared by `strand import` and `strand diff`.

use clap::Args;
use std::path::{Path, PathBuf};
use strand_import::cache::limits::{self, CacheLimits, LimitsError};
use strand_import::source::remote::versions::{Moment, parse_moment};
use strand_import::{CacheOptions, RemoteOptions};

/// How to reach a source, in addition to the environment and ~/.aws.
#[derive(Debug, Args)]
#[command(next_help_heading = "Reaching a bucket")]
pub struct RemoteArgs {
    /// The S3-compatible server of s3://bucket/prefix; else AWS_ENDPOINT_URL_S3, else AWS_ENDPOINT_URL, else the
    /// profile's endpoint_url, else the cloud's own
    #[arg(long, value_name = "URL")]
    pub endpoint: Option<String>,
    /// The bucket's region; else AWS_REGION, else AWS_DEFAULT_REGION, else the profile's, else us-east-1
    #[arg(long, value_name = "NAME")]
    pub region: Option<String>,
    /// The profile in ~/.aws that has the credentials; else AWS_PROFILE
    #[arg(long, value_name = "NAME")]
    pub profile: Option<String>,
    /// Read a public bucket, without credentials
    #[arg(long, conflicts_with = "profile")]
    pub anonymous: bool,
    /// The state of a bucket with versions at this time (2026-11-22T20:00:00Z, or seconds since 1970)
    #[arg(long, value_name = "TIME", value_parser = parse_moment)]
    pub as_of: Option<Moment>,
    /// The file with the password of a restic repository; else RESTIC_PASSWORD_FILE, else RESTIC_PASSWORD
    #[arg(long, value_name = "FILE", help_heading = "Reaching a restic repository")]
    pub password_file: Option<PathBuf>,
    /// Folders and prefixes with more documents than this are listed in parts, with a temporary file [default: 100000]
    #[arg(long, value_name = "NUMBER", help_heading = "Cache")]
    pub list_cutoff: Option<usize>,
    /// Keep what is read from remote sources and mounts, and the texts extracted from it, in this folder. A version
    /// that is in the folder is not read again
    #[arg(long, value_name = "FOLDER", help_heading = "Cache")]
    pub cache: Option<PathBuf>,
    /// A file like /etc/cachefilesd.conf: how much of the disk the cache may fill, and optionally its folder. By
    /// default, when less than 7% of blocks or files is free, old parts are removed until 10% is free; below 3% nothing
    /// is stored
    #[arg(long, value_name = "FILE", help_heading = "Cache", value_parser = read_config)]
    pub cache_config: Option<CacheConfig>,
}

/// The content of a file in the syntax of cachefilesd.conf.
#[derive(Clone, Debug)]
pub struct CacheConfig(CacheLimits, Option<PathBuf>);

fn read_config(file: &str) -> Result<CacheConfig, LimitsError> {
    limits::read_config(Path::new(file)).map(|(limits, folder)| CacheConfig(limits, folder))
}

/// The folder of a cache when the configuration names no folder.
fn default_folder() -> PathBuf {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let below_home = || set("HOME").map(|home| home.join(".cache"));
    set("XDG_CACHE_HOME").or_else(below_home).unwrap_or_else(std::env::temp_dir).join("strand")
}

impl From<RemoteArgs> for RemoteOptions {
    fn from(args: RemoteArgs) -> RemoteOptions {
        let RemoteArgs {
            endpoint,
            region,
            profile,
            anonymous,
            as_of,
            password_file,
            list_cutoff,
            cache,
            cache_config,
        } = args;
        let (limits, configured) = match cache_config {
            Some(CacheConfig(limits, folder)) => (limits, Some(folder.unwrap_or_else(default_folder))),
            None => (CacheLimits::default(), None),
        };
        let cache = cache.or(configured).map(|folder| CacheOptions { folder, limits });
        RemoteOptions { endpoint, region, profile, anonymous, as_of, password_file, list_cutoff, cache }
    }
}
