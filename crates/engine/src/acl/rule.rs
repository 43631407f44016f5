//! [`RuleError`]: why a rule cannot be applied, in redis-server's words.

/// Why a rule cannot be applied. The text comes after the name of the rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RuleError {
    /// No command or category has this name.
    #[error("Unknown command or category name in ACL")]
    Unknown,
    /// The text is not a rule, or a pattern contains blanks.
    #[error("Syntax error")]
    Syntax,
    /// A key pattern follows `~*`.
    #[error("{}", already("allkeys", "resetkeys", "patterns"))]
    AllKeysAlready,
    /// A channel pattern follows `&*`.
    #[error("{}", already("allchannels", "resetchannels", "channels"))]
    AllChannelsAlready,
    /// The user does not have the password to remove.
    #[error("The password you are trying to remove from the user does not exist")]
    NoSuchPassword,
    /// The text is not 64 hexadecimal digits.
    #[error(
        "The password hash must be exactly 64 characters and contain only lowercase hexadecimal characters"
    )]
    BadHash,
    /// A subcommand with a first argument, such as `+config|get|port`.
    #[error("Allowing first-arg of a subcommand is not supported")]
    FirstArgumentOfSubcommand,
    /// The rule would exceed a limit of Strand: what is limited, and the maximum.
    #[error("There may be at most {1} {0}")]
    TooMany(&'static str, usize),
    /// The password exceeds this maximum length in bytes.
    #[error("A password may have at most {0} bytes")]
    LongPassword(usize),
}

fn already(flag: &str, reset: &str, list: &str) -> String {
    format!(
        "Adding a pattern after the * pattern (or the '{flag}' flag) is not valid and does not have any effect. Try \
         '{reset}' to start with an empty list of {list}"
    )
}

/// The part of a rule that C's string functions see: the bytes before the first zero byte.
pub(crate) fn c_text(rule: &[u8]) -> &[u8] {
    rule.split(|b| *b == 0).next().unwrap_or_default()
}

/// True for text with C's blanks or zero bytes, which names and patterns may not contain.
pub(crate) fn has_blanks(text: &[u8]) -> bool {
    text.iter().any(|b| matches!(b, b' ' | b'\t'..=b'\r' | 0))
}
