//! [`RuleError`]: why a rule cannot be applied, in redis-server's words.

/// Why a rule cannot be applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RuleError {
    /// No such command or category.
    Unknown,
    /// Not a rule, or a pattern with blanks.
    Syntax,
    /// A key pattern behind `~*`.
    AllKeysAlready,
    /// A channel pattern behind `&*`.
    AllChannelsAlready,
    /// A password that the user does not have is to be removed.
    NoSuchPassword,
    /// Not 64 hexadecimal digits.
    BadHash,
    /// `+config|get|port`.
    FirstArgumentOfSubcommand,
    /// A limit of Strand's own: of what, and how many.
    TooMany(&'static str, usize),
    /// A password longer than any may be, in bytes.
    LongPassword(usize),
}

impl RuleError {
    /// What the client is told behind the name of the rule.
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

/// The part of a rule that C's string functions see: up to the first zero byte.
pub(crate) fn c_text(rule: &[u8]) -> &[u8] {
    rule.split(|b| *b == 0).next().unwrap_or_default()
}

/// Blanks as C has them, and zero bytes: not in names, not in patterns.
pub(crate) fn has_blanks(text: &[u8]) -> bool {
    text.iter().any(|b| matches!(b, b' ' | b'\t'..=b'\r' | 0))
}
