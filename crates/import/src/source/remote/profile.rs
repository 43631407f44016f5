//! Reads the files of the AWS SDKs with credentials and settings: `~/.aws/credentials` and `~/.aws/config`.
//!
//! The credentials in them are used if the environment has none. `AWS_SHARED_CREDENTIALS_FILE`, `AWS_CONFIG_FILE` and
//! `AWS_PROFILE` are obeyed. Only settings of the profile itself count: roles and single sign-on are not supported.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::PathBuf;

/// Largest file in bytes that is read.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The settings of one profile, by their names in lower case.
pub(super) type Profile = BTreeMap<String, String>;

/// The settings of the profile `name` in both files. A setting in the credentials file overrides the other file.
pub(super) fn load(name: &str) -> Profile {
    let file = |variable: &str, below: &str| {
        let named = std::env::var_os(variable).map(PathBuf::from);
        let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(below));
        named.or_else(home).and_then(|path| read(path).ok()).unwrap_or_default()
    };
    let mut profile = parse(&file("AWS_CONFIG_FILE", ".aws/config"), name, true);
    profile.extend(parse(&file("AWS_SHARED_CREDENTIALS_FILE", ".aws/credentials"), name, false));
    profile
}

fn read(path: PathBuf) -> std::io::Result<String> {
    let mut text = Vec::new();
    std::fs::File::open(path)?.take(FILE_BYTES_MAX).read_to_end(&mut text)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// The settings below `[name]`. In the file `config` they are below `[profile name]`, except for `[default]`.
fn parse(text: &str, name: &str, is_config: bool) -> Profile {
    let mut profile = Profile::new();
    let mut is_ours = false;
    for line in text.lines() {
        // An indented line belongs to the setting above it. No setting that is used here has such lines.
        if line.starts_with(['#', ';', ' ', '\t']) || line.trim().is_empty() {
            continue;
        }
        if let Some(header) = line.trim().strip_prefix('[').and_then(|l| l.split(']').next()) {
            let mut words = header.split_whitespace();
            let of = match (words.next(), words.next()) {
                (Some("profile"), Some(of)) if is_config => of,
                (Some("default"), None) => "default",
                (Some(of), None) if !is_config => of,
                _ => "",
            };
            is_ours = of == name;
        } else if let (true, Some((key, value))) = (is_ours, line.split_once('=')) {
            profile.insert(key.trim().to_ascii_lowercase(), value.trim().to_owned());
        }
    }
    profile
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_named_profile_counts() {
        let credentials = "# mine\n[default]\naws_access_key_id = A\naws_secret_access_key=S=1\n\n[work]\nAWS_ACCESS_KEY_ID=W\n";
        let default = parse(credentials, "default", false);
        assert_eq!(default["aws_access_key_id"], "A");
        assert_eq!(default["aws_secret_access_key"], "S=1");
        assert_eq!(parse(credentials, "work", false)["aws_access_key_id"], "W");
        assert!(parse(credentials, "none", false).is_empty());
        let config = "[default]\nregion = eu-1\n[profile work]\nregion=eu-2\ns3 =\n  addressing_style = path\n[work]\nregion=no\n";
        assert_eq!(parse(config, "default", true)["region"], "eu-1");
        assert_eq!(parse(config, "work", true)["region"], "eu-2");
        assert_eq!(parse(config, "work", true).len(), 2);
        for odd in ["[", "[]", "=", "[default", "x=1", "\u{0}"] {
            assert!(parse(odd, "default", false).is_empty(), "{odd:?}");
        }
    }
}
