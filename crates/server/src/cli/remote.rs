//! The options that say how a bucket is reached, the same for `strand import` and `strand diff`.

use clap::Args;
use strand_import::RemoteOptions;

/// How a bucket is reached, beside what the environment and ~/.aws say.
#[derive(Debug, Args)]
#[command(next_help_heading = "Reaching a bucket")]
pub struct RemoteArgs {
    /// The S3-compatible server of s3://bucket/prefix; else AWS_ENDPOINT_URL, else the cloud's own
    #[arg(long, value_name = "URL")]
    pub endpoint: Option<String>,
    /// The bucket's region; else AWS_REGION, else the profile's, else us-east-1
    #[arg(long, value_name = "NAME")]
    pub region: Option<String>,
    /// The profile in ~/.aws that has the credentials; else AWS_PROFILE
    #[arg(long, value_name = "NAME")]
    pub profile: Option<String>,
    /// Ask for a public bucket's objects, without credentials
    #[arg(long, conflicts_with = "profile")]
    pub anonymous: bool,
}

impl From<RemoteArgs> for RemoteOptions {
    fn from(args: RemoteArgs) -> RemoteOptions {
        let RemoteArgs { endpoint, region, profile, anonymous } = args;
        RemoteOptions { endpoint, region, profile, anonymous }
    }
}
