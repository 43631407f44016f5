//! The differential runner: sends equal commands to two servers and compares the replies under each command's
//! [`Policy`].

use crate::client::Client;
use crate::compare::Policy;
use crate::dataset;
use crate::process::Server;
use crate::quoting;
use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;
use strand_wire::client::{Value, encode_command};

/// Maximum number of checks whether redis-server has removed expired keys.
const EXPIRY_CHECKS_MAX: usize = 1_000;
/// Pause between two of these checks.
const EXPIRY_CHECK_PAUSE: Duration = Duration::from_millis(5);

/// Maximum number of requests that [`Delivery::Pipelined`] sends before it reads the replies.
pub const PIPELINE_MAX: usize = 16;
/// Requests of one write have at most this many bytes, except a single larger request. They fit into the socket's
/// buffers, so a server whose replies nobody reads yet cannot block the write.
const WRITE_BYTES_MAX: usize = 32 << 10;

/// How a request is written to the socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// Each request is sent by one write, after the reply to the request before it.
    Whole,
    /// Up to [`PIPELINE_MAX`] requests are sent by one write.
    Pipelined,
    /// Each byte is sent by a write of its own.
    Bytewise,
}

/// One difference between the servers.
#[derive(Debug)]
pub struct Difference {
    /// The command, quoted for redis-cli.
    pub command: String,
    /// Strand's reply.
    pub ours: Value,
    /// redis-server's reply.
    pub theirs: Value,
}

/// Two connections that receive equal commands.
#[derive(Debug)]
pub struct Pair {
    ours: Client,
    theirs: Client,
    delivery: Delivery,
}

impl Pair {
    /// Connects to both servers, selects the protocol (2 or 3) and database 0, and empties both.
    ///
    /// # Errors
    /// When a server does not reply.
    pub fn open(ours: &Server, theirs: &Server, protocol: u8, delivery: Delivery) -> io::Result<Pair> {
        let mut pair = Pair { ours: ours.connect()?, theirs: theirs.connect()?, delivery };
        for client in [&mut pair.ours, &mut pair.theirs] {
            client.keep_null_kinds();
            client.call(&["HELLO", &protocol.to_string()])?;
            client.call(&["FLUSHALL"])?;
        }
        Ok(pair)
    }

    /// Sends `args` to both servers. Returns the difference under `policy`, if any.
    ///
    /// # Errors
    /// When a server closes the connection.
    pub fn compare(&mut self, args: &[Vec<u8>], policy: Policy) -> io::Result<Option<Difference>> {
        Ok(self.compare_in_one_write(&[(args, policy)])?.pop())
    }

    /// Sends `commands` to both servers as the delivery says. Returns the first difference in the replies.
    ///
    /// # Errors
    /// When a server closes the connection.
    pub fn first_difference(&mut self, commands: &[&[Vec<u8>]]) -> io::Result<Option<Difference>> {
        let length_max = if self.delivery == Delivery::Pipelined { PIPELINE_MAX } else { 1 };
        let mut left = commands;
        while !left.is_empty() {
            let mut bytes = 0;
            let fits = |args: &&&[Vec<u8>]| {
                bytes += args.iter().map(Vec::len).sum::<usize>();
                bytes <= WRITE_BYTES_MAX
            };
            let length = left.iter().take(length_max).take_while(fits).count().max(1);
            let (now, later) = left.split_at(length);
            let now: Vec<_> = now.iter().map(|args| (*args, Policy::of(args))).collect();
            let mut found = self.compare_in_one_write(&now)?;
            if !found.is_empty() {
                return Ok(Some(found.swap_remove(0)));
            }
            left = later;
        }
        Ok(None)
    }

    /// Sends all `commands` to both servers by one write, then reads the replies. Returns all differences.
    fn compare_in_one_write(&mut self, commands: &[(&[Vec<u8>], Policy)]) -> io::Result<Vec<Difference>> {
        let named = |e: io::Error, who: &str, args: &[Vec<u8>]| {
            io::Error::new(e.kind(), format!("{who} at `{}`: {e}", quoting::join(args)))
        };
        let first = commands.first().map_or(&[][..], |(args, _)| args);
        let mut requests = Vec::new();
        commands.iter().for_each(|(args, _)| encode_command(&mut requests, args));
        let sent = match self.delivery {
            Delivery::Bytewise => self.ours.send_bytewise(&requests),
            Delivery::Whole | Delivery::Pipelined => self.ours.stream().write_all(&requests),
        };
        sent.map_err(|e| named(e, "strand", first))?;
        self.theirs.stream().write_all(&requests).map_err(|e| named(e, "redis-server", first))?;
        let mut found = Vec::new();
        for (args, policy) in commands {
            let ours = self.ours.reply().map_err(|e| named(e, "strand", args))?;
            let theirs = self.theirs.reply().map_err(|e| named(e, "redis-server", args))?;
            if !policy.accepts(&ours, &theirs) {
                found.push(Difference { command: quoting::join(args), ours, theirs });
            }
        }
        Ok(found)
    }

    /// Both servers count an expired key until a sweep removes it, and a busy machine delays the sweep. Waits for
    /// the sweeps.
    fn await_expiry(&mut self, all: &[Vec<u8>]) -> io::Result<()> {
        for server in [&mut self.ours, &mut self.theirs] {
            for _ in 0..EXPIRY_CHECKS_MAX {
                let Value::Array(keys) = server.call(all)? else { break };
                if server.call(&words(&["DBSIZE"]))? == Value::Int(keys.len() as i64) {
                    break;
                }
                std::thread::sleep(EXPIRY_CHECK_PAUSE);
            }
        }
        Ok(())
    }

    /// Compares all data in databases 0 to 2: keys, types, encodings, values, expiry times.
    ///
    /// # Errors
    /// When a server closes the connection.
    pub fn compare_data(&mut self) -> io::Result<Vec<Difference>> {
        let mut out = Vec::new();
        for db in 0..3 {
            out.extend(self.compare(&words(&["SELECT", &db.to_string()]), Policy::Exact)?);
            let all = words(&["KEYS", "*"]);
            self.await_expiry(&all)?;
            out.extend(self.compare(&words(&["DBSIZE"]), Policy::Exact)?);
            out.extend(self.compare(&all, Policy::AnyOrder)?);
            let Value::Array(keys) = self.theirs.call(&all)? else { continue };
            for key in keys {
                let Value::Bulk(key) = key else { continue };
                let questions = dataset::questions(&key);
                // In one write: a sequence of commands leaves many keys.
                let questions: Vec<_> = questions.iter().map(|args| (&args[..], Policy::of(args))).collect();
                out.extend(self.compare_in_one_write(&questions)?);
            }
        }
        out.extend(self.compare(&words(&["SELECT", "0"]), Policy::Exact)?);
        Ok(out)
    }

    /// Runs a corpus file, which has one command per line and `#` comments. A `~` before a command compares elements
    /// in any order, `^` also compares the words of texts in any order, and `?` compares only the shape.
    ///
    /// # Errors
    /// When the file cannot be read, a line is not a command, or a server closes the connection.
    pub fn run_corpus(&mut self, file: &Path) -> io::Result<(usize, Vec<Difference>)> {
        let text = std::fs::read_to_string(file)?;
        let (mut count, mut out) = (0, Vec::new());
        for (number, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (policy, command) = match line.split_at_checked(1) {
                Some(("~", rest)) => (Some(Policy::AnyOrder), rest),
                Some(("^", rest)) => (Some(Policy::Words), rest),
                Some(("?", rest)) => (Some(Policy::Shape), rest),
                _ => (None, line),
            };
            let args = quoting::split(command).map_err(|e| {
                io::Error::new(io::ErrorKind::InvalidData, format!("{}:{}: {e}", file.display(), number + 1))
            })?;
            count += 1;
            out.extend(self.compare(&args, policy.unwrap_or_else(|| Policy::of(&args)))?);
        }
        Ok((count, out))
    }
}

/// Converts words to arguments.
pub fn words(args: &[&str]) -> Vec<Vec<u8>> {
    args.iter().map(|a| a.as_bytes().to_vec()).collect()
}

/// The first differences as text, for the message of an assertion.
pub fn describe(differences: &[Difference]) -> String {
    let mut text = format!("{} differences\n", differences.len());
    for d in differences.iter().take(20) {
        text += &format!(
            "  {}\n    strand:       {}\n    redis-server: {}\n",
            d.command,
            text_of(&d.ours),
            text_of(&d.theirs)
        );
    }
    text
}

/// A reply as readable text, truncated.
fn text_of(value: &Value) -> String {
    let shown = |kind: &str, bytes: &[u8]| {
        format!("{kind}{:?}", String::from_utf8_lossy(&bytes[..bytes.len().min(200)]))
    };
    let all = |open: &str, items: &[Value], close: &str| {
        format!("{open}{}{close}", items.iter().take(40).map(text_of).collect::<Vec<_>>().join(", "))
    };
    match value {
        Value::Simple(b) => shown("+", b),
        Value::Error(b) => shown("-", b),
        Value::Bulk(b) => shown("", b),
        Value::Array(items) => all("[", items, "]"),
        Value::Set(items) => all("~[", items, "]"),
        Value::Push(items) => all(">[", items, "]"),
        other => format!("{other:?}"),
    }
}
