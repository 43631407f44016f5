//! The command line of `strand cli`: those options of redis-cli that apply to Strand.
//!
//! [`CliArgs`] are the arguments as given. [`Options`] are derived from them, from the environment and from the
//! kind of the standard output.

use crate::format::{Delimiters, OutputFormat};
use crate::help::Rows;
use crate::tls::TlsOptions;
use clap::Args;
use percent_encoding::percent_decode_str;
use std::ffi::OsString;
use std::io::IsTerminal;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::Duration;

/// Maximum pause between two commands (`-i`), in seconds.
const INTERVAL_S_MAX: f64 = 1e9;

/// The arguments of `strand cli`.
#[derive(Args, Clone, Debug)]
#[command(disable_help_flag = true, args_override_self = true)]
pub struct CliArgs {
    /// The server's name or address
    #[arg(short = 'h', value_name = "HOST", default_value = "127.0.0.1")]
    host: String,
    /// The server's port
    #[arg(short = 'p', value_name = "PORT", default_value_t = 6379, value_parser = port_of)]
    port: u16,
    /// The server's Unix socket, instead of a host and a port
    #[arg(short = 's', value_name = "PATH")]
    socket: Option<PathBuf>,
    /// The server as a URI: redis://user:password@host:port/database (rediss: with TLS)
    #[arg(short = 'u', value_name = "URI")]
    uri: Option<String>,
    /// The password; the environment variable REDISCLI_AUTH is safer
    #[arg(short = 'a', long = "pass", value_name = "PASSWORD", allow_hyphen_values = true)]
    password: Option<OsString>,
    /// The user to log in as
    #[arg(long, value_name = "NAME")]
    user: Option<OsString>,
    /// Ask for the password at the terminal
    #[arg(long)]
    askpass: bool,
    /// Do not warn about passwords on the command line
    #[arg(long)]
    no_auth_warning: bool,
    /// The database
    #[arg(short = 'n', value_name = "DB", allow_hyphen_values = true)]
    database: Option<i64>,
    /// Run the command this many times; a negative number means forever
    #[arg(short = 'r', value_name = "COUNT", allow_hyphen_values = true)]
    repeat: Option<i64>,
    /// Pause this many seconds after each run (-r), page (--scan, --bigkeys) or line (--stat, --latency)
    #[arg(short = 'i', value_name = "SECONDS")]
    interval: Option<f64>,
    /// Speak RESP2
    #[arg(short = '2', conflicts_with = "resp3")]
    resp2: bool,
    /// Speak RESP3
    #[arg(short = '3')]
    resp3: bool,
    /// Take the last argument from the standard input
    #[arg(short = 'x', conflicts_with = "tag")]
    stdin: bool,
    /// Take the argument that is TAG from the standard input
    #[arg(short = 'X', value_name = "TAG")]
    tag: Option<OsString>,
    /// The text between the parts of a reply (--raw); default: a line feed
    #[arg(short = 'd', value_name = "DELIMITER", allow_hyphen_values = true)]
    delimiter: Option<OsString>,
    /// The text after each reply (--raw); default: a line feed
    #[arg(short = 'D', value_name = "DELIMITER", allow_hyphen_values = true)]
    reply_delimiter: Option<OsString>,
    /// Accepted for compatibility with redis-cli: there is no cluster to follow
    #[arg(short = 'c', hide = true)]
    cluster: bool,
    /// Exit with 1 when the command fails
    #[arg(short = 'e')]
    exit_code: bool,
    /// Show bytes unchanged (the default when the output is not a terminal)
    #[arg(long)]
    raw: bool,
    /// Show replies for a person, even when the output is not a terminal
    #[arg(long, overrides_with = "raw")]
    no_raw: bool,
    /// The arguments are quoted strings: "\x00" is a byte
    #[arg(long)]
    quoted_input: bool,
    /// Show replies as comma-separated values
    #[arg(long)]
    csv: bool,
    /// Show replies as JSON (RESP3, unless -2 is given)
    #[arg(long)]
    json: bool,
    /// Show replies as JSON in ASCII
    #[arg(long)]
    quoted_json: bool,
    /// Show push messages of the server (RESP3): yes or no; default: yes at a terminal
    #[arg(long, value_name = "YES|NO")]
    show_pushes: Option<String>,
    /// Show the load of the server, one line per second
    #[arg(long, help_heading = "Modes")]
    stat: bool,
    /// Measure round trips
    #[arg(long, help_heading = "Modes")]
    latency: bool,
    /// Measure round trips, one line every 15 seconds (-i)
    #[arg(long, help_heading = "Modes")]
    latency_history: bool,
    /// Send RESP commands from the standard input
    #[arg(long, help_heading = "Modes")]
    pipe: bool,
    /// With --pipe: give up when no reply arrives for this many seconds; 0: never
    #[arg(long, value_name = "SECONDS", default_value_t = 30, help_heading = "Modes")]
    pipe_timeout: u64,
    /// Find the keys with the most elements
    #[arg(long, help_heading = "Modes")]
    bigkeys: bool,
    /// Find the keys that use the most memory
    #[arg(long, help_heading = "Modes")]
    memkeys: bool,
    /// Like --memkeys, with this number of elements sampled per key; 0: all
    #[arg(long, value_name = "COUNT", help_heading = "Modes")]
    memkeys_samples: Option<u64>,
    /// Find the most used keys (maxmemory-policy allkeys-lfu or volatile-lfu)
    #[arg(long, help_heading = "Modes")]
    hotkeys: bool,
    /// List keys with SCAN
    #[arg(long, help_heading = "Modes")]
    scan: bool,
    /// Write the server's data to an RDB file; -: to the standard output
    #[arg(long, value_name = "FILE", help_heading = "Modes")]
    rdb: Option<PathBuf>,
    /// Write the server's functions, and no keys, to an RDB file; -: to the standard output
    #[arg(long, value_name = "FILE", help_heading = "Modes")]
    functions_rdb: Option<PathBuf>,
    /// Show the commands that the server sends to its replicas
    #[arg(long, alias = "slave", help_heading = "Modes")]
    replica: bool,
    /// With --scan, --bigkeys, --memkeys, --hotkeys: only keys that match
    #[arg(long, value_name = "PATTERN", help_heading = "Modes")]
    pattern: Option<OsString>,
    /// Like --pattern, as a quoted string
    #[arg(long, value_name = "PATTERN", help_heading = "Modes")]
    quoted_pattern: Option<OsString>,
    /// Run a Lua script: strand cli --eval FILE key ... , argument ...
    #[arg(long, value_name = "FILE", help_heading = "Modes")]
    eval: Option<PathBuf>,
    /// Print this help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
    /// The command and its arguments; without a command, an editor opens or commands are read from the standard
    /// input
    #[arg(value_name = "COMMAND", trailing_var_arg = true)]
    command: Vec<OsString>,
    // This field is the last, because its heading applies to all options after it.
    #[command(flatten)]
    tls: TlsOptions,
}

/// The port that a text names.
fn port_of(text: &str) -> Result<u16, InvalidPort> {
    text.parse().map_err(|_| InvalidPort)
}

/// A text is no port.
#[derive(Debug, thiserror::Error)]
#[error("expected a port from 0 to 65535")]
struct InvalidPort;

/// The server to connect to.
#[derive(Clone, Debug)]
pub struct Target {
    /// Name or address of the host.
    pub host: String,
    /// Port of the server.
    pub port: u16,
    /// Path of a Unix socket, instead of host and port.
    pub socket: Option<PathBuf>,
    /// The database to select first.
    pub database: i64,
    /// The user to log in as. `None`: the default user.
    pub user: Option<Vec<u8>>,
    /// The password to log in with. `None`: no login.
    pub password: Option<Vec<u8>>,
    /// The TLS options, if TLS is used.
    pub tls: Option<TlsOptions>,
}

/// What the client does.
#[derive(Clone, Debug)]
pub enum CliMode {
    /// Runs the command of the command line. Without one, reads commands from a person or from the standard input.
    Commands(Vec<Vec<u8>>),
    /// Runs the script in this file, with these words.
    Eval(PathBuf, Vec<Vec<u8>>),
    /// Shows the load, line by line.
    Stat,
    /// Measures round trips. True: prints a line per interval.
    Latency(bool),
    /// Sends RESP from the standard input. The number is the timeout without a reply, in seconds.
    Pipe(u64),
    /// Finds the keys with the most elements.
    BigKeys,
    /// Finds the keys that use the most memory, with this number of sampled elements per key.
    MemoryKeys(Option<u64>),
    /// Finds the most used keys.
    HotKeys,
    /// Lists all keys.
    Scan,
    /// Writes the server's snapshot to this file.
    Snapshot(PathBuf),
    /// Writes the server's functions to this file.
    Functions(PathBuf),
    /// Shows the commands that the server sends to its replicas.
    Replica,
}

/// The argument that is read from the standard input.
#[derive(Clone, Debug)]
pub enum FromStdin {
    /// No argument is read from the standard input.
    None,
    /// The text from the standard input becomes an additional last argument.
    Last,
    /// The text from the standard input replaces the argument that equals this tag.
    Tag(Vec<u8>),
}

/// The options of `strand cli`, derived from its arguments.
#[derive(Clone, Debug)]
pub struct Options {
    /// The server to connect to.
    pub target: Target,
    /// What the client does: run commands, or one of the special modes.
    pub mode: CliMode,
    /// The format of replies.
    pub output_format: OutputFormat,
    /// The delimiters of the raw format.
    pub delimiters: Delimiters,
    /// Whether to request RESP3. `Some(false)`: only if the server supports it (--json).
    pub resp3: Option<bool>,
    /// Whether to show push messages.
    pub shows_pushes: bool,
    /// Number of runs of the command; a negative number means forever.
    pub repeat: i64,
    /// The pause after each repetition.
    pub interval: Option<Duration>,
    /// Whether to exit with 1 after an error reply.
    pub fails_on_errors: bool,
    /// Whether the arguments are quoted strings.
    pub quoted_input: bool,
    /// Which argument is read from the standard input.
    pub from_stdin: FromStdin,
    /// The pattern that keys must match; `None`: all keys.
    pub pattern: Option<Vec<u8>>,
    /// The rows of the commands that help knows.
    pub rows: Rows,
}

fn bytes(text: OsString) -> Vec<u8> {
    text.as_bytes().to_vec()
}

/// Why no options can be derived from the arguments.
#[derive(Debug, thiserror::Error)]
pub enum OptionsError {
    /// The time between two runs is negative or too long.
    #[error("-i {0} is not a pause: expected 0 to {INTERVAL_S_MAX} seconds")]
    Interval(f64),
    /// A quote in a pattern is not closed.
    #[error("Invalid quoted string specified for --quoted-pattern.")]
    Pattern,
    /// The URI is neither `redis://` nor `rediss://`.
    #[error("Invalid URI scheme")]
    Scheme,
    /// The port in the URI is not a port number.
    #[error("Invalid port '{0}' in the URI: expected a number from 0 to 65535")]
    Port(String),
    /// The database in the URI is not a number.
    #[error("Invalid database '{0}' in the URI: expected a number")]
    Database(String),
    /// No password can be read from the terminal.
    #[error(transparent)]
    Terminal(#[from] std::io::Error),
}

impl CliArgs {
    /// Derives the options.
    ///
    /// # Errors
    /// The first invalid argument.
    pub fn resolve(self, rows: Rows) -> Result<Options, OptionsError> {
        let at_terminal = std::io::stdout().is_terminal() || std::env::var_os("FAKETTY").is_some();
        let shows_pushes = match self.show_pushes.as_deref() {
            None => at_terminal,
            Some(word) if word.starts_with(['y', 'Y']) => true,
            Some(word) if word.starts_with(['n', 'N']) => false,
            Some(word) => {
                complain!("Unknown --show-pushes value '{word}' (valid: '[y]es', '[n]o')");
                at_terminal
            }
        };
        let form = if self.quoted_json {
            OutputFormat::QuotedJson
        } else if self.json {
            OutputFormat::Json
        } else if self.csv {
            OutputFormat::Csv
        } else if self.no_raw {
            OutputFormat::Standard
        } else if self.raw || !at_terminal {
            OutputFormat::Raw
        } else {
            OutputFormat::Standard
        };
        let is_json = matches!(form, OutputFormat::Json | OutputFormat::QuotedJson);
        let interval = match self.interval {
            Some(s) if !(0.0..INTERVAL_S_MAX).contains(&s) => {
                return Err(OptionsError::Interval(s));
            }
            Some(s) if s > 0.0 => Some(Duration::from_secs_f64(s)),
            _ => None,
        };
        let pattern = match (self.quoted_pattern.clone(), self.pattern.clone()) {
            (Some(text), _) => Some(unquoted(text.as_bytes()).ok_or(OptionsError::Pattern)?),
            (None, pattern) => pattern.map(bytes),
        };
        let delimiter = |given: &Option<OsString>| given.clone().map_or_else(|| b"\n".to_vec(), bytes);
        let delimiters =
            Delimiters { parts: delimiter(&self.delimiter), replies: delimiter(&self.reply_delimiter) };
        let from_stdin = match self.tag.clone() {
            Some(tag) => FromStdin::Tag(bytes(tag)),
            None if self.stdin => FromStdin::Last,
            None => FromStdin::None,
        };
        Ok(Options {
            output_format: form,
            delimiters,
            resp3: if self.resp3 { Some(true) } else { (is_json && !self.resp2).then_some(false) },
            shows_pushes,
            repeat: self.repeat.unwrap_or(1),
            interval,
            fails_on_errors: self.exit_code,
            quoted_input: self.quoted_input,
            from_stdin,
            pattern,
            rows,
            mode: self.mode(),
            target: self.target()?,
        })
    }

    fn mode(&self) -> CliMode {
        let words = || self.command.iter().cloned().map(bytes).collect();
        if self.latency || self.latency_history {
            CliMode::Latency(self.latency_history)
        } else if self.pipe {
            CliMode::Pipe(self.pipe_timeout)
        } else if self.bigkeys {
            CliMode::BigKeys
        } else if self.memkeys || self.memkeys_samples.is_some() {
            CliMode::MemoryKeys(self.memkeys_samples)
        } else if self.hotkeys {
            CliMode::HotKeys
        } else if self.stat {
            CliMode::Stat
        } else if self.scan {
            CliMode::Scan
        } else if let Some(file) = &self.rdb {
            CliMode::Snapshot(file.clone())
        } else if let Some(file) = &self.functions_rdb {
            CliMode::Functions(file.clone())
        } else if self.replica {
            CliMode::Replica
        } else {
            match &self.eval {
                Some(file) => CliMode::Eval(file.clone(), words()),
                None => CliMode::Commands(words()),
            }
        }
    }

    fn target(self) -> Result<Target, OptionsError> {
        let mut target = Target {
            host: self.host,
            port: self.port,
            socket: self.socket,
            database: self.database.unwrap_or(0),
            user: self.user.map(bytes),
            password: self.password.map(bytes),
            tls: self.tls.is_on().then(|| self.tls.clone()),
        };
        if let Some(uri) = &self.uri {
            target.apply_uri(uri, &self.tls)?;
        }
        if target.password.is_some() && !self.no_auth_warning {
            complain!(
                "Warning: Using a password with '-a' or '-u' option on the command line interface may not be safe."
            );
        }
        if self.askpass {
            target.password = Some(crate::terminal::ask_password()?);
        }
        if target.password.is_none() {
            target.password = std::env::var_os("REDISCLI_AUTH").map(bytes);
        }
        Ok(target)
    }
}

impl Target {
    /// Applies the parts of a URI to the options.
    fn apply_uri(&mut self, uri: &str, tls: &TlsOptions) -> Result<(), OptionsError> {
        let (scheme, rest) = uri.split_once("://").ok_or(OptionsError::Scheme)?;
        match scheme.to_ascii_lowercase().as_str() {
            "redis" => {}
            "rediss" => self.tls = Some(tls.clone()),
            _ => return Err(OptionsError::Scheme),
        }
        let decode = |text: &str| percent_decode_str(text).collect::<Vec<u8>>();
        let rest = match rest.split_once('@') {
            Some((login, rest)) => {
                match login.split_once(':') {
                    Some((user, password)) => {
                        self.user = (!user.is_empty()).then(|| decode(user));
                        self.password = Some(decode(password));
                    }
                    None => self.password = Some(decode(login)),
                }
                rest
            }
            None => rest,
        };
        // Libraries put their options into the query. As in redis-cli, the query has no effect.
        let rest = rest.split_once('?').map_or(rest, |(rest, _)| rest);
        let (authority, database) = rest.split_once('/').unwrap_or((rest, ""));
        // An IPv6 address is in brackets, because it contains colons.
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.contains(']') => (host, Some(port)),
            _ => (authority, None),
        };
        if !host.is_empty() {
            self.host = host.trim_start_matches('[').trim_end_matches(']').into();
        }
        if let Some(port) = port {
            self.port = port.parse().map_err(|_| OptionsError::Port(port.into()))?;
        }
        if !database.is_empty() {
            self.database = database.parse().map_err(|_| OptionsError::Database(database.into()))?;
        }
        Ok(())
    }
}

/// The only word in a quoted string. `None` when a quote is not closed or there is not exactly one word.
pub fn unquoted(text: &[u8]) -> Option<Vec<u8>> {
    match strand_wire::inline::words(text)?.as_slice() {
        [word] => Some(word.clone()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{CommandFactory, FromArgMatches, Parser};

    #[derive(Parser)]
    struct Only {
        #[command(flatten)]
        args: CliArgs,
    }

    fn target(args: &[&str]) -> Target {
        let all = [&["cli", "--no-auth-warning"], args].concat();
        let matches = Only::command().try_get_matches_from(all).expect("valid arguments");
        let args = Only::from_arg_matches(&matches).expect("valid arguments").args;
        args.resolve(Rows(&[])).expect("consistent options").target
    }

    #[test]
    fn a_uri_sets_user_password_host_port_and_database() {
        let t = target(&["-u", "redis://al%3Aice:s%40crt@[::1]:7000/3"]);
        assert_eq!((t.host.as_str(), t.port, t.database), ("::1", 7000, 3));
        assert_eq!((t.user.unwrap(), t.password.unwrap()), (b"al:ice".to_vec(), b"s@crt".to_vec()));
        let t = target(&["-u", "rediss://word@host"]);
        assert_eq!((t.host.as_str(), t.port, t.user, t.tls.is_some()), ("host", 6379, None, true));
        assert_eq!(t.password.unwrap(), b"word");
    }

    #[test]
    fn options_end_where_the_command_begins() {
        let all = ["cli", "-p", "7", "-a", "-x", "SET", "-n", "--raw"];
        let matches = Only::command().try_get_matches_from(all).expect("valid arguments");
        let args = Only::from_arg_matches(&matches).expect("valid arguments").args;
        assert_eq!(args.command, ["SET", "-n", "--raw"]);
        assert_eq!(args.password.as_deref(), Some("-x".as_ref()));
        assert!(!args.raw && args.port == 7);
    }
}
