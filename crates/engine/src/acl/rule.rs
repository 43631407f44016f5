//! [`RuleError`]: why a rule cannot be applied, in redis-server's words.

/// Why a rule cannot be applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RuleError {
    /// No command or category has this name.
    Unknown,
    /// The text is not a rule, or a pattern contains blanks.
    Syntax,
    /// A key pattern follows `~*`.
    AllKeysAlready,
    /// A channel pattern follows `&*`.
    AllChannelsAlready,
    /// The user does not have the password to remove.
    NoSuchPassword,
    /// The text is not 64 hexadecimal digits.
    BadHash,
    /// A subcommand with a first argument, such as `+config|get|port`.
    FirstArgumentOfSubcommand,
    /// The rule would exceed a limit of Strand: what is limited, and the maximum.
    TooMany(&'static str, usize),
    /// The password exceeds this maximum length in bytes.
    LongPassword(usize),
}

impl RuleError {
    /// The error text after the name of the rule.
    pub(crate) fn text(self) -> String {
        match self {
            RuleError::Unknown => "Unknown command or category name in ACL".into(),
            RuleError::Syntax => "Syntax error".into(),
            RuleError::AllKeysAlready => already("allkeys", "resetkeys", "patterns"),
            RuleError::AllChannelsAlready => already("allchannels", "resetchannels", "channels"),
            RuleError::NoSuchPassword => {
                "The password you are trying to remove from the user does not exist".into()
            }
            RuleError::BadHash => {
                "The password hash must be exactly 64 characters and contain only lowercase hexadecimal \
                 characters"
                    .into()
            }
            RuleError::FirstArgumentOfSubcommand => {
                "Allowing first-arg of a subcommand is not supported".into()
            }
            RuleError::TooMany(what, most) => format!("There may be at most {most} {what}"),
            RuleError::LongPassword(bytes) => format!("A password may have at most {bytes} bytes"),
        }
    }
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
