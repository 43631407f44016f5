//! CLIENT and its subcommands, except KILL.

use super::connection::{BAD_NAME, valid_name};
use super::{ARGS_AT_ONCE_MAX, DONE, Outcome, SYNTAX, Session};
use crate::session::ReplyMode;
use crate::session::run::NextStep;
use crate::{Engine, Now};
use strand_commands::errors;
use strand_commands::introspect;
use strand_keyspace::types::string::parse_int;
use strand_wire::args::Args;
use strand_wire::reply::{ErrorText, Reply};

/// The values of TYPE. No client of this server is a master.
const TYPES: [&str; 5] = ["normal", "slave", "replica", "pubsub", "master"];

/// With more clients than this, CLIENT LIST runs on a helper thread, because each client's line takes about a
/// microsecond.
const LISTED_AT_ONCE_MAX: usize = 200;

/// Maximum number of milliseconds of CLIENT PAUSE. A longer pause would overflow the clock's arithmetic.
const PAUSE_MS_MAX: i64 = i64::MAX / 4_000;

impl Session {
    pub(super) fn client_id(&mut self) -> Outcome {
        let id = self.client.id as i64;
        self.reply().int(id);
        DONE
    }
    pub(super) fn client_get_name(&mut self) -> Outcome {
        let name = self.client.texts().name;
        match name.is_empty() {
            true => self.reply().null(),
            false => self.reply().bulk(name.as_bytes()),
        }
        DONE
    }
    pub(super) fn client_set_name(&mut self, args: Args<'_>) -> Outcome {
        let name = valid_name(args.at(2)).ok_or(BAD_NAME)?;
        self.client.set_texts(|t| t.name = name);
        self.ok()
    }
    pub(super) fn client_set_info(&mut self, args: Args<'_>) -> Outcome {
        let is_name = args.is(2, "LIB-NAME");
        if !is_name && !args.is(2, "LIB-VER") {
            return Err([b"ERR Unrecognized option '", args.at(2), b"'"].concat());
        }
        let Some(text) = valid_name(args.at(3)) else {
            let attribute = args.at(2).to_ascii_lowercase();
            return Err([
                b"ERR ",
                &attribute[..],
                b" cannot contain spaces, newlines or special characters.",
            ]
            .concat());
        };
        self.client.set_texts(|t| *(if is_name { &mut t.lib_name } else { &mut t.lib_ver }) = text);
        self.ok()
    }
    pub(super) fn client_info(&mut self, args: Args<'_>, now: Now) -> Outcome {
        self.update_client_info_for_command(args);
        let line = self.client.line(&self.engine.stats.ids, now) + "\n";
        self.reply().verbatim("txt", line.as_bytes());
        DONE
    }
    pub(super) fn client_list(&mut self, args: Args<'_>, now: Now) -> Outcome {
        self.update_client_info_for_command(args);
        if self.engine.clients.len() > LISTED_AT_ONCE_MAX || args.len() > ARGS_AT_ONCE_MAX {
            return Ok(NextStep::Detach);
        }
        let engine = self.engine.clone();
        list(&engine, args, now, &mut self.reply())?;
        DONE
    }
    pub(super) fn client_no_evict(&mut self, args: Args<'_>) -> Outcome {
        self.flags.no_evict = on_or_off(args, 2)?;
        self.ok()
    }
    pub(super) fn client_no_touch(&mut self, args: Args<'_>) -> Outcome {
        self.flags.no_touch = on_or_off(args, 2)?;
        self.ok()
    }
    pub(super) fn client_reply(&mut self, args: Args<'_>) -> Outcome {
        if args.is(2, "ON") {
            self.replies.reply_mode = ReplyMode::On;
            return self.ok();
        }
        if args.is(2, "OFF") {
            self.replies.reply_mode = ReplyMode::Off;
        } else if !args.is(2, "SKIP") {
            return Err(SYNTAX.into());
        } else if self.replies.reply_mode != ReplyMode::Off {
            self.replies.reply_mode = ReplyMode::SkipNext;
        }
        DONE
    }
    pub(super) fn client_pause(&mut self, args: Args<'_>, now: Now) -> Outcome {
        let all = match args.len() {
            3 => true,
            4 if args.is(3, "ALL") => true,
            4 if args.is(3, "WRITE") => false,
            4 => return Err("ERR CLIENT PAUSE mode must be WRITE or ALL".into()),
            _ => return Err(wrong_arguments(args)),
        };
        let ms = parse_int(args.at(2)).filter(|ms| *ms <= PAUSE_MS_MAX);
        let ms = ms.ok_or("ERR timeout is not an integer or out of range")?;
        let ms = u64::try_from(ms).map_err(|_| "ERR timeout is negative")?;
        self.engine.pause.begin(now.mono_us + ms * 1000, all, now.mono_us);
        self.ok()
    }
    pub(super) fn client_unpause(&mut self) -> Outcome {
        self.engine.pause.end();
        self.engine.clients.wake_all();
        self.ok()
    }
    pub(super) fn client_unblock(&mut self, args: Args<'_>) -> Outcome {
        if args.len() > 4 {
            return Err(wrong_arguments(args));
        }
        if args.len() > 3 && !args.is(3, "TIMEOUT") && !args.is(3, "ERROR") {
            return Err("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR".into());
        }
        let id = parse_int(args.at(2)).ok_or(errors::NOT_AN_INTEGER)?;
        let with_error = args.get(3).is_some_and(|word| word.eq_ignore_ascii_case(b"ERROR"));
        let client = u64::try_from(id).ok().and_then(|id| self.engine.clients.get(id));
        let unblocked = client.is_some_and(|client| client.unblock(with_error));
        self.reply().int(i64::from(unblocked));
        DONE
    }
    pub(super) fn client_help(&mut self) -> Outcome {
        introspect::help(&mut self.reply(), "CLIENT", HELP);
        DONE
    }
}

/// The error for too many arguments of a subcommand of CLIENT.
fn wrong_arguments(args: Args<'_>) -> ErrorText {
    let head: &[u8] = b"ERR unknown subcommand or wrong number of arguments for '";
    [head, args.at(1), b"'. Try CLIENT HELP."].concat()
}

/// CLIENT LIST, on a worker or a helper thread.
pub(in crate::session) fn list(
    engine: &Engine,
    args: Args<'_>,
    now: Now,
    reply: &mut Reply<'_>,
) -> Result<(), ErrorText> {
    let clients = if args.len() == 2 {
        engine.clients.all()
    } else if args.is(2, "TYPE") && args.len() == 4 {
        let class = known_type(args.at(3))?;
        let mut clients = engine.clients.all();
        clients.retain(|client| client.class() == class);
        clients
    } else if args.is(2, "ID") && args.len() > 3 {
        let mut found = Vec::new();
        for id in args.skip(3).iter() {
            let id = parse_int(id).ok_or("ERR Invalid client ID")?;
            found.extend(u64::try_from(id).ok().and_then(|id| engine.clients.get(id)));
        }
        found
    } else {
        return Err(SYNTAX.into());
    };
    let mut text = String::new();
    // A killed client is not listed, although its worker may not have closed it yet.
    for client in clients.iter().filter(|client| !client.is_killed()) {
        text += &client.line(&engine.stats.ids, now);
        text.push('\n');
    }
    reply.verbatim("txt", text.as_bytes());
    Ok(())
}

/// The name of a client type, in lower case.
pub(super) fn known_type(name: &[u8]) -> Result<&'static str, ErrorText> {
    let found = TYPES.into_iter().find(|t| name.eq_ignore_ascii_case(t.as_bytes()));
    match found.ok_or_else(|| [b"ERR Unknown client type '", name, b"'"].concat())? {
        "replica" => Ok("slave"),
        other => Ok(other),
    }
}

fn on_or_off(args: Args<'_>, i: usize) -> Result<bool, ErrorText> {
    match args.is(i, "ON") {
        true => Ok(true),
        false if args.is(i, "OFF") => Ok(false),
        false => Err(SYNTAX.into()),
    }
}

const HELP: &[&str] = &[
    "CACHING (YES|NO)",
    "    Whether the keys that the next command reads are tracked (OPTIN, OPTOUT).",
    "GETNAME",
    "    Return the name of this connection.",
    "GETREDIR",
    "    Return the id of the client that gets this client's invalidations.",
    "ID",
    "    Return the id of this connection.",
    "INFO",
    "    Return information about this connection.",
    "KILL <ip:port>",
    "    Close the connection from <ip:port>.",
    "KILL <option> <value> [<option> <value> [...]]",
    "    Close the connections that match every option:",
    "    * ADDR <ip:port>",
    "      Connections that come from this address.",
    "    * LADDR <ip:port>",
    "      Connections to this address of the server.",
    "    * ID <client-id>",
    "      The connection with this id.",
    "    * TYPE (NORMAL|MASTER|REPLICA|PUBSUB)",
    "      Connections of this type.",
    "    * MAXAGE <seconds>",
    "      Connections that are at least <seconds> seconds old.",
    "    * USER <username>",
    "      Connections that are authenticated as this user.",
    "    * SKIPME (YES|NO)",
    "      Whether this connection is spared (default: yes).",
    "LIST [TYPE (NORMAL|MASTER|REPLICA|PUBSUB) | ID <client-id> [<client-id> ...]]",
    "    Return information about all connections, or about the connections of a type or with these ids.",
    "NO-EVICT (ON|OFF)",
    "    Spare this connection when clients are closed to save memory.",
    "NO-TOUCH (ON|OFF)",
    "    ON: commands of this connection do not update the keys' times of last use.",
    "PAUSE <timeout> [WRITE|ALL]",
    "    Hold back all commands, or only writes, for <timeout> milliseconds.",
    "REPLY (ON|OFF|SKIP)",
    "    Whether replies are sent to this connection; SKIP leaves out the next reply.",
    "SETINFO (LIB-NAME|LIB-VER) <text>",
    "    Set the name or version of the library that this connection uses.",
    "SETNAME <name>",
    "    Name this connection.",
    "TRACKING (ON|OFF) [REDIRECT <id>] [BCAST] [PREFIX <prefix> [...]] [OPTIN] [OPTOUT] [NOLOOP]",
    "    Send invalidations to this connection, or to the one of REDIRECT, when keys in its cache change.",
    "TRACKINGINFO",
    "    Return how invalidations are sent for this connection.",
    "UNBLOCK <clientid> [TIMEOUT|ERROR]",
    "    End a client's wait in a blocking command.",
    "UNPAUSE",
    "    End a pause at once.",
];
