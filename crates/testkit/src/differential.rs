//! The differential runner: sends equal commands to two servers and compares the replies under each command's
//! [`Policy`].

use crate::client::Client;
use crate::compare::Policy;
use crate::process::Server;
use crate::quoting;
use std::io;
use std::path::Path;
use std::time::Duration;
use strand_wire::client::{Value, encode_command};

/// Maximum number of checks whether redis-server has removed expired keys.
const EXPIRY_CHECKS_MAX: usize = 1_000;
/// Pause between two of these checks.
const EXPIRY_CHECK_PAUSE: Duration = Duration::from_millis(5);

/// How a request is written to the socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// Each request is sent by one write.
    Whole,
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
        let context = |e: io::Error, who: &str| {
            io::Error::new(e.kind(), format!("{who} at `{}`: {e}", quoting::join(args)))
        };
        let mut request = Vec::new();
        encode_command(&mut request, args);
        if self.delivery == Delivery::Bytewise {
            self.ours.send_bytewise(&request).map_err(|e| context(e, "strand"))?;
        } else {
            self.ours.send(args).map_err(|e| context(e, "strand"))?;
        }
        self.theirs.send(args).map_err(|e| context(e, "redis-server"))?;
        let ours = self.ours.reply().map_err(|e| context(e, "strand"))?;
        let theirs = self.theirs.reply().map_err(|e| context(e, "redis-server"))?;
        if policy.accepts(&ours, &theirs) {
            return Ok(None);
        }
        Ok(Some(Difference { command: quoting::join(args), ours, theirs }))
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
                // In these commands, `$` stands for the key.
                for question in [
                    &["TYPE", "$"][..],
                    &["OBJECT", "ENCODING", "$"],
                    &["GET", "$"],
                    &["HGETALL", "$"],
                    &["SMEMBERS", "$"],
                    &["LRANGE", "$", "0", "-1"],
                    &["ZRANGE", "$", "0", "-1", "WITHSCORES"],
                    &["XINFO", "STREAM", "$", "FULL", "COUNT", "0"],
                    &["PEXPIRETIME", "$"],
                ] {
                    let mut args = words(question);
                    args.iter_mut().filter(|arg| *arg == b"$").for_each(|arg| arg.clone_from(&key));
                    out.extend(self.compare(&args, Policy::of(&args))?);
                }
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
