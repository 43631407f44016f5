//! PING ECHO SELECT AUTH HELLO RESET QUIT.

use super::{DONE, Outcome, SYNTAX, Session};
use crate::acl::DEFAULT_USER;
use crate::session::ReplyMode;
use crate::session::permit::Login;
use crate::session::phases::ParkReason;
use crate::session::run::NextStep;
use crate::{Engine, Now};
use strand_commands::errors;
use strand_keyspace::types::string::parse_int;
use strand_wire::args::Args;
use strand_wire::reply::{ErrorText, Protocol, Reply};

/// The version of Redis whose behaviour clients may expect.
pub(crate) const REDIS_VERSION: &str = "7.0.15";

const NO_PASSWORD_SET: &str = "ERR AUTH <password> called without any password configured for the default user. Are you \
    sure your configuration is correct?";
const HELLO_NEEDS_AUTH: &str = "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO \
    AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol version at the same time";
pub(super) const BAD_NAME: &str = "ERR Client names cannot contain spaces, newlines or special characters.";

impl Session {
    pub(super) fn ping(&mut self, args: Args<'_>) -> Outcome {
        if args.len() <= 2 && self.is_in_subscriber_mode() {
            let mut reply = self.reply();
            reply.array(2);
            reply.bulk(b"pong");
            reply.bulk(args.get(1).unwrap_or_default());
        } else {
            ping(args, &mut self.reply())?;
        }
        DONE
    }
    pub(super) fn echo(&mut self, args: Args<'_>) -> Outcome {
        echo(args, &mut self.reply())?;
        DONE
    }
    pub(super) fn select(&mut self, args: Args<'_>) -> Outcome {
        self.db = database_to_select(&self.engine, args)?;
        self.ok()
    }
    pub(super) fn auth(&mut self, args: Args<'_>, now: Now) -> Outcome {
        let (user, password) = match args.len() {
            2 if !self.settings.default_password => return Err(NO_PASSWORD_SET.into()),
            2 => (DEFAULT_USER, args.at(1)),
            3 => (args.at(1), args.at(2)),
            _ => return Err(SYNTAX.into()),
        };
        match self.log_in(user, password, args.at(0), now)? {
            Login::Done => self.ok(),
            Login::Later(at_us) => Ok(NextStep::Park(ParkReason::Logins, at_us)),
        }
    }
    pub(super) fn hello(&mut self, args: Args<'_>, now: Now) -> Outcome {
        let mut protocol = self.protocol;
        if let Some(version) = args.get(1) {
            protocol = match parse_int(version) {
                Some(2) => Protocol::Resp2,
                Some(3) => Protocol::Resp3,
                Some(_) => return Err("NOPROTO unsupported protocol version".into()),
                None => return Err("ERR Protocol version is not an integer or out of range".into()),
            };
        }
        let (mut login, mut name) = (None, None);
        let mut i = 2;
        while i < args.len() {
            let more = args.len() - i - 1;
            if args.is(i, "AUTH") && more >= 2 {
                login = Some((args.at(i + 1), args.at(i + 2)));
                i += 3;
            } else if args.is(i, "SETNAME") && more >= 1 {
                name = Some(valid_name(args.at(i + 1)).ok_or(BAD_NAME)?);
                i += 2;
            } else {
                return Err([b"ERR Syntax error in HELLO option '", args.at(i), b"'"].concat());
            }
        }
        if let Some((user, password)) = login
            && let Login::Later(at_us) = self.log_in(user, password, args.at(0), now)?
        {
            return Ok(NextStep::Park(ParkReason::Logins, at_us));
        }
        if !self.identity.authenticated {
            return Err(HELLO_NEEDS_AUTH.into());
        }
        if let Some(name) = name {
            self.client.set_texts(|t| t.name = name);
        }
        self.protocol = protocol;
        self.update_guard();
        let id = self.client.id as i64;
        let role = if self.engine.following.is_on() { "replica" } else { "master" };
        let mut reply = self.reply();
        reply.map(7);
        reply.bulk(b"server");
        reply.bulk(b"redis");
        reply.bulk(b"version");
        reply.bulk(REDIS_VERSION.as_bytes());
        reply.bulk(b"proto");
        reply.int(if protocol == Protocol::Resp3 { 3 } else { 2 });
        reply.bulk(b"id");
        reply.int(id);
        reply.bulk(b"mode");
        reply.bulk(b"standalone");
        reply.bulk(b"role");
        reply.bulk(role.as_bytes());
        reply.bulk(b"modules");
        reply.array(0);
        DONE
    }
    pub(super) fn reset(&mut self) -> Outcome {
        if !self.unsubscribe_some() {
            return Ok(NextStep::Yield);
        }
        self.end_transaction();
        self.end_tracking();
        self.leave_monitor();
        self.flags.no_touch = false;
        self.db = 0;
        self.protocol = Protocol::Resp2;
        let default = self.engine.acl.default_user();
        self.set_user(default, !self.settings.password);
        // CLIENT REPLY SKIP still holds for this command.
        if self.replies.reply_mode != ReplyMode::Skip {
            self.replies.reply_mode = ReplyMode::On;
        }
        self.client.set_texts(|t| t.name.clear());
        self.end_service();
        self.reply().simple("RESET");
        DONE
    }
    pub(super) fn quit(&mut self) -> Outcome {
        if !self.unsubscribe_some() {
            return Ok(NextStep::Yield);
        }
        // Messages that arrived before come before the end of the connection.
        self.take_messages();
        self.reply().ok();
        Ok(NextStep::Stop(self.close()))
    }
}

/// The database that `SELECT index` selects.
pub(crate) fn database_to_select(engine: &Engine, args: Args<'_>) -> Result<usize, ErrorText> {
    let db = parse_int(args.at(1)).ok_or(errors::NOT_AN_INTEGER)?;
    if i32::try_from(db).is_err() {
        let text = format!("ERR value is out of range, value must between {} and {}", i32::MIN, i32::MAX);
        return Err(text.into());
    }
    let db = usize::try_from(db).ok().filter(|db| *db < engine.keyspace.databases());
    db.ok_or_else(|| errors::DB_INDEX_OUT_OF_RANGE.into())
}

/// Checks the name of a client or a library: printable ASCII without blanks. `None` when it is not valid.
pub(super) fn valid_name(name: &[u8]) -> Option<String> {
    let valid = name.iter().all(|b| (b'!'..=b'~').contains(b));
    valid.then(|| String::from_utf8_lossy(name).into_owned())
}

/// PING of a client that is not in subscriber mode.
pub(super) fn ping(args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), ErrorText> {
    match args.len() {
        1 => reply.simple("PONG"),
        2 => reply.bulk_blob(&args.blob(1)),
        _ => return Err("ERR wrong number of arguments for 'ping' command".into()),
    }
    Ok(())
}

pub(super) fn echo(args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), ErrorText> {
    reply.bulk_blob(&args.blob(1));
    Ok(())
}
