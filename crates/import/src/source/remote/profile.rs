//! Reads the files of the AWS SDKs with credentials and settings: `~/.aws/credentials` and `~/.aws/config`.
//!
//! The credentials in them are used if the environment has none. `AWS_SHARED_CREDENTIALS_FILE`, `AWS_CONFIG_FILE` and
//! `AWS_PROFILE` are obeyed. Only settings of the profile itself count: roles and single sign-on are not supported. A
//! profile that the user names must exist: otherwise a mistyped name would choose other credentials.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// Largest file in bytes that is read.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The settings of one profile, by their names in lower case.
pub(super) type Profile = BTreeMap<String, String>;

/// The profile that counts when the user names none. It may be missing.
const DEFAULT: &str = "default";

/// The settings of the profile `name` in both files. A setting in the credentials file overrides the other file.
///
/// # Errors
/// When neither file has the profile, unless it is the default one.
pub(super) fn load(name: Option<&str>) -> io::Result<Profile> {
    let file = |variable: &str, below: &str| {
        let named = std::env::var_os(variable).map(PathBuf::from);
        let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(below));
        named.or_else(home).unwrap_or_else(|| PathBuf::from("~").join(below))
    };
    let config = file("AWS_CONFIG_FILE", ".aws/config");
    let credentials = file("AWS_SHARED_CREDENTIALS_FILE", ".aws/credentials");
    find(name.unwrap_or(DEFAULT), [config, credentials])
}

/// The settings of a profile in the files `config` and `credentials`.
fn find(name: &str, files: [PathBuf; 2]) -> io::Result<Profile> {
    let (mut profile, mut is_found, mut looked_in) = (Profile::new(), name == DEFAULT, Vec::new());
    for (path, is_config) in files.iter().zip([true, false]) {
        let shown = path.display();
        match read(path).map(|text| parse(&text, name, is_config)) {
            Ok(Some(settings)) => {
                is_found = true;
                profile.extend(settings);
            }
            Ok(None) => looked_in.push(shown.to_string()),
            Err(error) => looked_in.push(format!("{shown} ({error})")),
        }
    }
    let missing = || {
        let text = format!(
            "the profile {name:?} (--profile or AWS_PROFILE) is in none of these files: {}. Expected a line [profile {name}] in \
             the first file or [{name}] in the second",
            looked_in.join(", ")
        );
        io::Error::new(io::ErrorKind::NotFound, text)
    };
    is_found.then_some(profile).ok_or_else(missing)
}

fn read(path: &Path) -> io::Result<String> {
    let mut text = Vec::new();
    std::fs::File::open(path)?.take(FILE_BYTES_MAX).read_to_end(&mut text)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// The settings below `[name]`. In the file `config` they are below `[profile name]`, except for `[default]`.
/// `None` when the file does not have the profile.
fn parse(text: &str, name: &str, is_config: bool) -> Option<Profile> {
    let mut profile = None::<Profile>;
    let mut is_ours = false;
    for line in text.lines() {
        // An indented line belongs to the setting above it. No setting that is used here has such lines.
        if line.starts_with(['#', ';', ' ', '\t']) || line.trim().is_empty() {
            continue;
        }
        if let Some(header) = line.trim().strip_prefix('[').and_then(|l| l.split(']').next()) {
            is_ours = header_name(header.trim(), is_config) == Some(name);
            if is_ours {
                profile.get_or_insert_default();
            }
        } else if let (true, Some((key, value))) = (is_ours, line.split_once('=')) {
            profile.get_or_insert_default().insert(key.trim().to_ascii_lowercase(), value.trim().to_owned());
        }
    }
    profile
}

/// The profile that a header names. In the file `config` a name with spaces is in quotes.
fn header_name(header: &str, is_config: bool) -> Option<&str> {
    if !is_config || header == DEFAULT {
        return Some(header);
    }
    let name = header.strip_prefix("profile").filter(|rest| rest.starts_with([' ', '\t']))?.trim();
    let unquoted = |quote| name.strip_prefix(quote)?.strip_suffix(quote);
    unquoted('"').or_else(|| unquoted('\'')).or_else(|| (!name.contains([' ', '\t'])).then_some(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_named_profile_counts() {
        let credentials = "# mine\n[default]\naws_access_key_id = A\naws_secret_access_key=S=1\n\n[work]\nAWS_ACCESS_KEY_ID=W\n";
        let of = |text: &str, name: &str, is_config: bool| parse(text, name, is_config).expect("it is there");
        let default = of(credentials, "default", false);
        assert_eq!(default["aws_access_key_id"], "A");
        assert_eq!(default["aws_secret_access_key"], "S=1");
        assert_eq!(of(credentials, "work", false)["aws_access_key_id"], "W");
        assert_eq!(parse(credentials, "none", false), None);
        let config = "[default]\nregion = eu-1\n[profile work]\nregion=eu-2\ns3 =\n  addressing_style = path\n[work]\nregion=no\n";
        assert_eq!(of(config, "default", true)["region"], "eu-1");
        assert_eq!(of(config, "work", true)["region"], "eu-2");
        assert_eq!(of(config, "work", true).len(), 2);
        for header in ["profile \"a b\"", "profile  'a b'", "profile\t\"a b\" "] {
            assert_eq!(of(&format!("[{header}]\nregion=r\n"), "a b", true)["region"], "r", "{header}");
        }
        assert_eq!(of("[a b]\nregion=r\n", "a b", false)["region"], "r");
        for header in ["profile a b", "profilea b", "profile \"a b", "a b"] {
            assert_eq!(parse(&format!("[{header}]\nregion=r\n"), "a b", true), None, "{header}");
        }
        for odd in ["[", "[]", "=", "x=1", "\u{0}"] {
            assert_eq!(parse(odd, "default", false), None, "{odd:?}");
        }
        assert_eq!(parse("[default", "default", false), Some(Profile::new()));
    }

    #[test]
    fn a_named_profile_must_be_in_one_of_the_files() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let files = ["config", "credentials"].map(|name| folder.path().join(name));
        std::fs::write(&files[1], "[work]\n[other]\nregion=eu-1\n").expect("a writable folder");
        assert_eq!(find("work", files.clone()).expect("it is there"), Profile::new());
        assert_eq!(find("other", files.clone()).expect("it is there")["region"], "eu-1");
        assert_eq!(find("default", files.clone()).expect("it may be missing"), Profile::new());
        let error = find("typo", files.clone()).expect_err("it is missing").to_string();
        assert!(error.contains("\"typo\"") && error.contains("[profile typo]"), "{error}");
        for file in files {
            assert!(error.contains(&*file.to_string_lossy()), "{error}");
        }
    }
}
