//! A row of the option table: [`OptionSpec`], the [`ValueType`] of its values, and when it may [`Change`].

use super::special::LOG_LEVELS;

/// The syntax and the checks of an option's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueType {
    /// A plain decimal number from `.0` to `.1`.
    Integer(i64, i64),
    /// A number of bytes from `.0` to `.1`; units `k kb m mb g gb` are understood.
    Memory(i64, i64),
    /// A number of bytes, or a percentage of `maxmemory` (kept as a negative number).
    MemoryOrPercent,
    /// An octal number from `.0` to `.1`, for permissions.
    Octal(i64, i64),
    /// The value is `yes` or `no`.
    Bool,
    /// The value is one of these words.
    Choice(&'static [&'static str]),
    /// The value is one or more of these words.
    Flags(&'static [&'static str]),
    /// The value is any one word.
    Text,
    /// The value is the name of a file, without folders.
    FileName,
    /// The value is one or more words.
    Words,
    /// `class hard soft seconds`, once or more: client-output-buffer-limit.
    OutputLimits,
    /// `seconds changes`, any number of times: save. Lines of a file add up.
    SavePoints,
    /// Letters of classes of events: notify-keyspace-events.
    KeyspaceEvents,
    /// Numbers from 0 to 100: latency-tracking-info-percentiles.
    Percentiles,
    /// Three numbers from -2000 to 2000: oom-score-adj-values.
    OomScores,
    /// The value of replicaof: `no one`.
    Primary,
    /// `part=level`, any number of times: log-levels.
    LogLevels,
    /// `http://HOST:PORT`, perhaps with a path, or the empty word: otlp-endpoint.
    HttpAddress,
}

/// When an option may be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The option may change at any time, also by CONFIG SET.
    Anytime,
    /// At any time, by CONFIG SET only if `enable-protected-configs` allows it.
    Protected,
    /// Only in the configuration file and on the command line.
    Startup,
}

/// One option: a row of the table of options.
#[derive(Clone, Copy, Debug)]
pub struct OptionSpec {
    /// The name of the option.
    pub name: &'static str,
    /// The former name of the option, which is also accepted.
    pub alias: Option<&'static str>,
    /// The kind of the option's values.
    pub kind: ValueType,
    /// The default value of the option, as text.
    pub default: &'static str,
    /// When the option may change.
    pub change: Change,
    /// One line of help about the option, with its unit.
    pub help: &'static str,
    /// `Some`: a valid value is accepted and shown, and has no effect; the text says why. `None`: the option works.
    pub no_effect: Option<&'static str>,
}

/// Options that a CONFIG GET pattern does not show, as in redis-server. They are tools of its tests.
const HIDDEN: [&str; 5] = [
    "key-load-delay",
    "loading-process-events-interval-bytes",
    "rdb-key-save-delay",
    "use-exit-on-panic",
    "watchdog-period",
];
/// Options with values that messages must not show.
pub(crate) const SECRET: [&str; 4] =
    ["masterauth", "requirepass", "tls-client-key-file-pass", "tls-key-file-pass"];

impl OptionSpec {
    /// True when only the full name finds the option.
    pub fn is_hidden(&self) -> bool {
        HIDDEN.contains(&self.name)
    }
    /// True when messages must not show the value.
    pub fn is_secret(&self) -> bool {
        SECRET.contains(&self.name)
    }
    /// True when the value is several words.
    pub fn is_word_list(&self) -> bool {
        use ValueType::*;
        matches!(self.kind, Words | Flags(_) | OutputLimits | SavePoints | Percentiles | OomScores | Primary)
    }
    /// True when each line of a file adds to the earlier ones.
    pub fn is_cumulative(&self) -> bool {
        self.kind == ValueType::SavePoints
    }
    /// The accepted values, as text after "it takes".
    pub fn takes(&self) -> String {
        match self.kind {
            ValueType::Integer(least, most) if most >= i32::MAX.into() && least <= i32::MIN.into() => {
                "a whole number".into()
            }
            ValueType::Integer(least, most) if most >= i32::MAX.into() => {
                format!("a whole number from {least}")
            }
            ValueType::Integer(least, most) => format!("a whole number from {least} to {most}"),
            ValueType::Memory(..) => "a number of bytes, such as 1000, 100mb or 2gb".into(),
            ValueType::MemoryOrPercent => {
                "a number of bytes, such as 100mb, or a percentage, such as 5%".into()
            }
            ValueType::Octal(least, most) => format!("an octal number from {least:o} to {most:o}"),
            ValueType::Bool => "yes or no".into(),
            ValueType::Choice(words) => format!("one of {}", words.join(", ")),
            ValueType::Flags(words) => format!("one or more of {}", words.join(", ")),
            ValueType::Text => "one word, or a text in quotes".into(),
            ValueType::FileName => "the name of a file, without folders".into(),
            ValueType::Words => "one or more words".into(),
            ValueType::OutputLimits => {
                "<class> <hard limit> <soft limit> <soft seconds>, once or more".into()
            }
            ValueType::SavePoints => "<seconds> <changes>, once or more, or \"\"".into(),
            ValueType::KeyspaceEvents => "letters out of Ag$lshzxeKEtmdn, or \"\"".into(),
            ValueType::Percentiles => "numbers from 0 to 100".into(),
            ValueType::OomScores => "three whole numbers from -2000 to 2000".into(),
            ValueType::Primary => "a host and a port, or \"no one\"".into(),
            ValueType::LogLevels => {
                format!("<part>=<level>, several with commas; a level is {}", LOG_LEVELS.join(", "))
            }
            ValueType::HttpAddress => "http://HOST:PORT, perhaps with a path".into(),
        }
    }
}
