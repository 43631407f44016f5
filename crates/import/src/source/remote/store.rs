//! Settings of the client for S3-compatible servers: from the options, the environment, and a profile of the AWS SDKs.

use super::{ANSWER_TIMEOUT, BACKOFF_FIRST, BACKOFF_MAX, CONNECT_TIMEOUT, RETRIES_MAX, RETRY_TIMEOUT};
use super::{RemoteOptions, profile};
use crate::source::text_with_causes;
use object_store::aws::{AmazonS3, AmazonS3Builder, AmazonS3ConfigKey, AwsCredential, AwsCredentialProvider};
use object_store::{BackoffConfig, ClientOptions, CredentialProvider, RetryConfig};
use std::io;
use std::pin::Pin;
use std::sync::Arc;

/// The region of a bucket by default.
pub(super) const REGION: &str = "us-east-1";

/// A builder for the client of `bucket`, with the settings of the options, the environment and the profile.
///
/// # Errors
/// When the user names a profile that does not exist.
pub(super) fn builder(bucket: &str, options: &RemoteOptions) -> io::Result<AmazonS3Builder> {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let name = options.profile.clone().or_else(|| variable("AWS_PROFILE"));
    let profile = profile::load(name.as_deref())?;
    let setting = |name: &str| profile.get(name).cloned();
    // A profile from the command line takes precedence over the environment.
    let has_key = variable("AWS_ACCESS_KEY_ID").is_some();
    let from_profile = options.profile.is_some() || !has_key;
    let key_of_profile =
        setting("aws_access_key_id").zip(setting("aws_secret_access_key")).filter(|_| from_profile);
    let takes_key_of_environment = has_key && key_of_profile.is_none();
    let environment = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    let mut builder = from_environment(environment, takes_key_of_environment).with_bucket_name(bucket);
    if let Some((id, secret)) = key_of_profile {
        builder = builder.with_access_key_id(id).with_secret_access_key(secret);
        if let Some(token) = setting("aws_session_token").filter(|token| !token.is_empty()) {
            builder = builder.with_token(token);
        }
    }
    let region = options.region.clone().or_else(|| variable("AWS_REGION"));
    let region = region.or_else(|| variable("AWS_DEFAULT_REGION")).or_else(|| setting("region"));
    let endpoint = options.endpoint.clone().or_else(|| variable("AWS_ENDPOINT_URL_S3"));
    let endpoint = endpoint.or_else(|| variable("AWS_ENDPOINT_URL")).or_else(|| setting("endpoint_url"));
    let is_plain = endpoint.as_deref().is_some_and(|e| e.starts_with("http://"));
    if let Some(endpoint) = endpoint {
        builder = builder.with_endpoint(endpoint.trim_end_matches('/'));
    }
    let client = client_options(is_plain);
    let backoff = BackoffConfig { init_backoff: BACKOFF_FIRST, max_backoff: BACKOFF_MAX, base: 2.0 };
    Ok(builder
        .with_region(region.unwrap_or_else(|| REGION.to_owned()))
        .with_skip_signature(options.anonymous)
        .with_client_options(client)
        .with_retry(RetryConfig { backoff, max_retries: RETRIES_MAX, retry_timeout: RETRY_TIMEOUT }))
}

/// Makes the client. When it has no credentials, its error says where they are expected.
pub(super) fn build(builder: AmazonS3Builder) -> object_store::Result<AmazonS3> {
    let credentials = builder.clone().build()?.credentials().clone();
    builder.with_credentials(Arc::new(Explained(credentials))).build()
}

/// Gets credentials. Without any elsewhere, the library asks a service of the machine or the container. The error of
/// this service alone would not tell a user at a desk what is missing.
#[derive(Debug)]
struct Explained(AwsCredentialProvider);

impl CredentialProvider for Explained {
    type Credential = AwsCredential;

    fn get_credential<'a, 'b>(
        &'a self,
    ) -> Pin<Box<dyn Future<Output = object_store::Result<Arc<AwsCredential>>> + Send + 'b>>
    where
        'a: 'b,
        Self: 'b,
    {
        Box::pin(async move {
            self.0.get_credential().await.map_err(|error| {
                let text = format!(
                    "no credentials were found: expected AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile that has them \
                     (--profile or AWS_PROFILE), or --anonymous for a public bucket. This machine has none either: {}",
                    text_with_causes(&error)
                );
                object_store::Error::Generic { store: "S3", source: text.into() }
            })
        })
    }
}

/// A builder with the variables of the environment that have a value. Key, secret and session token belong together, so
/// all three are taken or none of them.
fn from_environment(environment: impl Iterator<Item = (String, String)>, takes_key: bool) -> AmazonS3Builder {
    let settings = environment.filter_map(|(name, value)| {
        let key: AmazonS3ConfigKey =
            name.starts_with("AWS_").then(|| name.to_ascii_lowercase().parse().ok())??;
        let is_of_key = matches!(
            key,
            AmazonS3ConfigKey::AccessKeyId | AmazonS3ConfigKey::SecretAccessKey | AmazonS3ConfigKey::Token
        );
        (!value.is_empty() && (takes_key || !is_of_key)).then_some((key, value))
    });
    settings.fold(AmazonS3Builder::new(), |builder, (key, value)| builder.with_config(key, value))
}

/// The options of an HTTP client for the server. `is_plain`: the server has no TLS.
pub(super) fn client_options(is_plain: bool) -> ClientOptions {
    ClientOptions::new()
        .with_timeout(ANSWER_TIMEOUT)
        .with_connect_timeout(CONNECT_TIMEOUT)
        .with_allow_http(is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_credentials_the_error_says_where_they_are_expected() {
        let runtime = super::super::runtime().expect("a runtime");
        // Nothing listens at port 1.
        let builder = AmazonS3Builder::new()
            .with_bucket_name("b")
            .with_metadata_endpoint("http://127.0.0.1:1")
            .with_retry(RetryConfig { max_retries: 0, ..RetryConfig::default() });
        let store = build(builder.clone()).expect("a client");
        let error = runtime.block_on(store.credentials().get_credential()).expect_err("there are none");
        let text = error.to_string();
        for part in
            ["no credentials were found", "AWS_ACCESS_KEY_ID", "--profile", "--anonymous", "127.0.0.1:1"]
        {
            assert!(text.contains(part), "{part}: {text}");
        }
        let store = build(builder.with_access_key_id("id").with_secret_access_key("s")).expect("a client");
        let found = runtime.block_on(store.credentials().get_credential()).expect("they are there");
        assert_eq!(found.key_id, "id");
    }

    #[test]
    fn key_secret_and_token_come_from_one_place() {
        let settings = |takes_key: bool, token: &str| {
            let variables = [
                ("AWS_ACCESS_KEY_ID", "id"),
                ("AWS_SECRET_ACCESS_KEY", "secret"),
                ("AWS_SESSION_TOKEN", token),
                ("AWS_REGION", "r"),
            ];
            let variables = variables.iter().map(|(name, value)| (name.to_string(), value.to_string()));
            let builder = from_environment(variables, takes_key);
            [AmazonS3ConfigKey::AccessKeyId, AmazonS3ConfigKey::Token, AmazonS3ConfigKey::Region]
                .map(|key| builder.get_config_value(&key))
        };
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(settings(true, "token"), [some("id"), some("token"), some("r")]);
        assert_eq!(settings(true, ""), [some("id"), None, some("r")], "an empty variable counts as unset");
        assert_eq!(settings(false, "token"), [None, None, some("r")]);
    }
}
