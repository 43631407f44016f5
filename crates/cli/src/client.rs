//! [`Client`]: runs commands one after another and shows replies as they arrive. Reconnects when the connection is
//! lost. Follows the state that commands change: the database, the database before MULTI, the subscriptions.

use crate::connection::{Connection, ConnectionError};
use crate::format::{self, OutputFormat};
use crate::help::{self, Rows};
use crate::interrupts::{CHECK_INTERVAL, Interrupts};
use crate::options::Options;
use std::io::{ErrorKind, Write, stdout};
use std::process::exit;
use std::thread::sleep;
use strand_wire::client::Value;

/// Commands and subcommands that reply with a text for people.
const VERBATIM: &[(&str, &str)] = &[
    ("info", ""),
    ("lolwut", ""),
    ("debug", "htstats"),
    ("debug", "htstats-key"),
    ("debug", "client-eviction"),
    ("memory", "malloc-stats"),
    ("memory", "doctor"),
    ("cluster", "nodes"),
    ("cluster", "info"),
    ("client", "list"),
    ("client", "info"),
    ("latency", "graph"),
    ("latency", "doctor"),
    ("proxy", "info"),
];

/// A command did not run. The reason has been printed.
#[derive(Debug)]
pub struct Failed;

/// Runs commands on a connection, and opens the connection when there is none.
pub struct Client {
    /// The options that the user gave.
    pub options: Options,
    connection: Option<Connection>,
    /// True when a failure must not end the process: a person types the commands, or they come from the standard
    /// input.
    is_interactive: bool,
    /// The selected database.
    database: i64,
    /// The database to select after a reconnect.
    wanted_database: i64,
    /// The database that was selected before MULTI; `Some` between MULTI and EXEC.
    database_before_multi: Option<i64>,
    speaks_resp3: bool,
    interrupts: Interrupts,
}

impl Client {
    /// A client without a connection.
    pub fn new(options: Options) -> Client {
        let database = options.target.database;
        Client {
            options,
            connection: None,
            is_interactive: false,
            database: 0,
            wanted_database: database,
            database_before_multi: None,
            speaks_resp3: false,
            interrupts: Interrupts::default(),
        }
    }
    /// From now on failures are printed, and the next command reconnects.
    pub fn set_interactive(&mut self) {
        self.is_interactive = true;
    }
    /// The rows of the command table, for help.
    pub fn rows(&self) -> Rows {
        self.options.rows
    }
    /// The prompt.
    pub fn prompt(&self) -> String {
        if self.connection.is_none() {
            return "not connected> ".into();
        }
        let target = &self.options.target;
        let mut prompt = match &target.socket {
            Some(path) => format!("redis {}", path.display()),
            None if target.host.contains(':') => format!("[{}]:{}", target.host, target.port),
            None => format!("{}:{}", target.host, target.port),
        };
        if self.database != 0 {
            prompt.push_str(&format!("[{}]", self.database));
        }
        if self.database_before_multi.is_some() {
            prompt.push_str("(TX)");
        }
        prompt + "> "
    }
    /// Connects to another server.
    pub fn connect_to(&mut self, host: String, port: u16) {
        self.options.target.host = host;
        self.options.target.port = port;
        self.options.target.socket = None;
        // Ignore the error: it has been printed, and the next command connects again.
        let _ = self.connect();
    }
    /// Connects, logs in, selects the database and agrees on the protocol. Failures are printed.
    ///
    /// # Errors
    /// When there is no connection. A failed login leaves the connection open.
    pub fn connect(&mut self) -> Result<&mut Connection, Failed> {
        self.open()?;
        self.connection.as_mut().ok_or(Failed)
    }
    /// Does what [`Client::connect`] does, for work that must not run as another user or in another database.
    ///
    /// # Errors
    /// When there is no connection, or when the server refuses AUTH or SELECT.
    pub fn connect_as_wanted(&mut self) -> Result<&mut Connection, Failed> {
        match self.open()? {
            true => self.connection.as_mut().ok_or(Failed),
            false => Err(Failed),
        }
    }

    /// Opens a connection and logs in. Returns false when the server refuses AUTH or SELECT.
    fn open(&mut self) -> Result<bool, Failed> {
        (self.connection, self.database_before_multi, self.database, self.speaks_resp3) =
            (None, None, 0, false);
        let connection = Connection::open(&self.options.target).map_err(|text| {
            complain!("{text}");
            Failed
        })?;
        self.connection = Some(connection);
        self.log_in().map_err(|error| self.drop_connection(&error))
    }
    /// Sends AUTH, SELECT and HELLO. Returns false at the first refusal of AUTH or SELECT.
    fn log_in(&mut self) -> Result<bool, ConnectionError> {
        let (target, resp3) = (self.options.target.clone(), self.options.resp3);
        let Some(connection) = &mut self.connection else { return Ok(false) };
        if let Some(password) = &target.password {
            let args: Vec<&[u8]> = match &target.user {
                Some(user) => vec![b"AUTH", user, password],
                None => vec![b"AUTH", password],
            };
            if let Value::Error(text) = connection.ask(&args)? {
                complain!("AUTH failed: {}", String::from_utf8_lossy(&text));
                return Ok(false);
            }
        }
        if !self.select()? {
            return Ok(false);
        }
        let Some(connection) = &mut self.connection else { return Ok(false) };
        if let Some(must) = resp3 {
            match connection.ask(&["HELLO", "3"])? {
                Value::Error(text) if must => complain!("HELLO 3 failed: {}", String::from_utf8_lossy(&text)),
                Value::Error(_) => {}
                _ => self.speaks_resp3 = true,
            }
        }
        Ok(true)
    }
    /// Selects the wanted database. Returns false when the server refuses.
    fn select(&mut self) -> Result<bool, ConnectionError> {
        let wanted = self.wanted_database;
        let Some(connection) = &mut self.connection else { return Ok(false) };
        if wanted == self.database {
            return Ok(true);
        }
        if let Value::Error(text) = connection.ask(&["SELECT", &wanted.to_string()])? {
            complain!("SELECT {wanted} failed: {}", String::from_utf8_lossy(&text));
            return Ok(false);
        }
        self.database = wanted;
        Ok(true)
    }

    /// Runs a command `repeat` times and shows the replies.
    ///
    /// # Errors
    /// When sending or receiving fails. The failure has been printed.
    pub fn run(&mut self, args: &[Vec<u8>], repeat: i64) -> Result<(), Failed> {
        if help::is_help(args) {
            self.options.rows.print(&args[1..]);
            return Ok(());
        }
        if self.connection.is_none() {
            self.connect()?;
        }
        let mut runs_left = repeat;
        while runs_left != 0 {
            runs_left -= i64::from(runs_left > 0);
            match self.run_once(args) {
                Ok(()) => {}
                Err(error) => return Err(self.drop_connection(&error)),
            }
            if let Some(interval) = self.options.interval {
                sleep(interval);
            }
        }
        Ok(())
    }

    /// Prints why the connection ended, and forgets the connection. The next command reconnects.
    fn drop_connection(&mut self, error: &ConnectionError) -> Failed {
        complain!("Error: {error}");
        self.connection = None;
        Failed
    }

    /// Sends a command and shows its reply, or all replies of MONITOR and SUBSCRIBE.
    fn run_once(&mut self, args: &[Vec<u8>]) -> Result<(), ConnectionError> {
        let is = |i: usize, word: &str| args.get(i).is_some_and(|a| a.eq_ignore_ascii_case(word.as_bytes()));
        let verbatim = VERBATIM.iter().any(|(name, sub)| is(0, name) && (sub.is_empty() || is(1, sub)));
        let Some(connection) = &mut self.connection else { return Err(ConnectionError::Closed) };
        connection.send(args)?;
        if is(0, "monitor") {
            return self.show_replies_until(verbatim, |reply| matches!(reply, Value::Error(_)));
        }
        if is(0, "subscribe") || is(0, "psubscribe") || is(0, "ssubscribe") {
            if self.options.output_format != OutputFormat::Raw {
                write_stdout(b"Reading messages... (press Ctrl-C to quit)\n");
            }
            return self.show_replies_until(verbatim, |reply| matches!(reply, Value::Error(_)));
        }
        let reply = match self.next_reply() {
            // The server obeys SHUTDOWN by closing the connection.
            Err(_) if is(0, "shutdown") => {
                self.connection = None;
                return Ok(());
            }
            reply => reply?,
        };
        if !self.is_interactive
            && self.options.fails_on_errors
            && let Value::Error(text) = &reply
        {
            complain!("{}", String::from_utf8_lossy(text));
            exit(1);
        }
        self.show(&reply, verbatim);
        self.track_state(args, &reply)
    }

    /// Shows replies until `ends` returns true for a reply. At the prompt, Ctrl-C ends this, too: as in redis-cli, the
    /// client then connects again.
    fn show_replies_until(
        &mut self,
        verbatim: bool,
        ends: impl Fn(&Value) -> bool,
    ) -> Result<(), ConnectionError> {
        if self.is_interactive {
            self.interrupts.catch();
        }
        let shown = self.show_until(verbatim, ends);
        self.interrupts.release();
        shown
    }
    fn show_until(&mut self, verbatim: bool, ends: impl Fn(&Value) -> bool) -> Result<(), ConnectionError> {
        loop {
            let reply = match self.reply_or_interrupt() {
                Ok(Some(reply)) => reply,
                Ok(None) => {
                    write_stdout(b"\n");
                    // Ignore the error: it has been printed, and the next command connects again.
                    let _ = self.connect();
                    return Ok(());
                }
                Err(error) if self.is_interactive => return Err(error),
                Err(error) => {
                    complain!("Error: {error}");
                    exit(1);
                }
            };
            self.show(&reply, verbatim);
            if ends(&reply) {
                return Ok(());
            }
        }
    }

    /// The next reply. `None` when Ctrl-C was pressed, which is caught only at the prompt.
    fn reply_or_interrupt(&mut self) -> Result<Option<Value>, ConnectionError> {
        let connection = self.connection.as_mut().ok_or(ConnectionError::Closed)?;
        if !self.is_interactive {
            return connection.reply().map(Some);
        }
        connection.wait_at_most(Some(CHECK_INTERVAL)).map_err(ConnectionError::Io)?;
        let reply = loop {
            match connection.buffered()? {
                Some(reply) => break Some(reply),
                None if self.interrupts.pressed() => break None,
                None => connection.fill()?,
            };
        };
        connection.wait_at_most(None).map_err(ConnectionError::Io)?;
        Ok(reply)
    }

    /// Reads the next reply. Push messages that arrive before the reply are shown or dropped.
    fn next_reply(&mut self) -> Result<Value, ConnectionError> {
        loop {
            let reply = self.connection.as_mut().ok_or(ConnectionError::Closed)?.reply()?;
            match &reply {
                Value::Push(parts) if self.options.shows_pushes => self.show_push(parts, &reply),
                Value::Push(_) => {}
                _ => return Ok(reply),
            }
        }
    }

    fn show_push(&self, parts: &[Value], push: &Value) {
        let keys = match parts {
            [Value::Bulk(kind), Value::Array(keys)]
                if kind == b"invalidate" && self.options.output_format == OutputFormat::Standard =>
            {
                keys
            }
            _ => return self.show(push, false),
        };
        let mut text = b"-> invalidate: ".to_vec();
        for (i, key) in keys.iter().enumerate() {
            if let Value::Bulk(key) = key {
                text.extend_from_slice(if i > 0 { b", '" } else { b"'" });
                text.extend_from_slice(key);
                text.push(b'\'');
            }
        }
        text.push(b'\n');
        write_stdout(&text);
    }

    fn show(&self, reply: &Value, verbatim: bool) {
        let mut out = Vec::new();
        format::reply(&mut out, reply, self.options.output_format, verbatim, &self.options.delimiters);
        write_stdout(&out);
    }

    /// Updates the database, transaction and protocol of this client after a command that changes them.
    fn track_state(&mut self, args: &[Vec<u8>], reply: &Value) -> Result<(), ConnectionError> {
        let name = args.first().map(|a| a.to_ascii_lowercase()).unwrap_or_default();
        let failed = matches!(reply, Value::Error(_));
        match (name.as_slice(), args.len()) {
            (b"select", 2) if !failed => {
                let number = String::from_utf8_lossy(&args[1]).trim().parse().unwrap_or(self.database);
                (self.database, self.wanted_database) = (number, number);
            }
            (b"auth", 2 | 3) => {
                self.select()?;
            }
            (b"multi", 1) if !failed => self.database_before_multi = Some(self.database),
            (b"exec", 1) => {
                // EXEC did not run the queued commands, so the database is the one before MULTI.
                if let Some(previous) = self.database_before_multi.take()
                    && matches!(reply, Value::Error(_) | Value::Null)
                {
                    (self.database, self.wanted_database) = (previous, previous);
                }
            }
            (b"discard", 1) if !failed => {
                if let Some(previous) = self.database_before_multi.take() {
                    (self.database, self.wanted_database) = (previous, previous);
                }
            }
            (b"reset", 1) if !failed => {
                (self.database_before_multi, self.database, self.wanted_database) = (None, 0, 0);
                self.speaks_resp3 = false;
            }
            (b"hello", _) if !failed => self.speaks_resp3 = args.get(1).is_some_and(|v| v == b"3"),
            _ => {}
        }
        Ok(())
    }
}

/// Writes to the standard output. If this fails, the process ends. A reader that has closed the output knows why, so
/// only other errors are printed.
pub fn write_stdout(bytes: &[u8]) {
    let mut out = stdout().lock();
    if let Err(error) = out.write_all(bytes).and_then(|()| out.flush()) {
        if error.kind() != ErrorKind::BrokenPipe {
            complain!("strand: cannot write the output: {error}");
        }
        exit(1);
    }
}
