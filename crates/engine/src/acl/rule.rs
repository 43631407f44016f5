//! [`RuleError`]: why a rule cannot be applied, in redis-server's words.

/// Why a rule cannot be applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RuleError {
    /// No such command or category.
    Unknown,
    /// Not a rule, or a pattern with blanks.
    Syntax,
    /// A key pattern after `~*`.
    AllKeysAlready,
    /// A channel pattern after `&*`.
    AllChannelsAlready,
    /// The user does not have the password to remove.
    NoSuchPassword,
    /// Not 64 hexadecimal digits.
    BadHash,
    /// `+config|get|port`.
    FirstArgumentOfSubcommand,
    /// A limit of Strand: its object and its value.
    TooMany(&'static str, usize),
    /// A password over the length limit, in bytes.
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
