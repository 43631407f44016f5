//! CLIENT KILL, by address and by options.

use super::client::known_type;
use super::{DONE, Outcome, SYNTAX, Session};
use crate::clients::Client;
use crate::session::run::NextStep;
use crate::{Engine, Now};
use strand_keyspace::types::string::parse_int;
use strand_wire::args::Args;
use strand_wire::reply::ErrorText;

/// The filters of CLIENT KILL. A client must match all filters that are given.
#[derive(Default)]
struct Filter<'a> {
    addr: Option<&'a [u8]>,
    laddr: Option<&'a [u8]>,
    id: Option<u64>,
    kind: Option<&'static str>,
    user: Option<&'a [u8]>,
    /// The minimum age of the connection in seconds.
    age_s: Option<u64>,
    /// True: do not kill the caller (SKIPME).
    skip_me: bool,
}

impl Filter<'_> {
    fn takes(&self, client: &Client, me: u64, now: Now) -> bool {
        self.addr.is_none_or(|a| a == client.peer.addr.as_bytes())
            && self.laddr.is_none_or(|a| a == client.peer.laddr.as_bytes())
            && self.id.is_none_or(|id| id == client.id)
            && self.kind.is_none_or(|kind| kind == client.class())
            && self.user.is_none_or(|user| String::from_utf8_lossy(user) == client.texts().user)
            && self.age_s.is_none_or(|age_s| client.age_s(now) >= age_s)
            && !(self.skip_me && client.id == me)
    }
}

impl Session {
    pub(super) fn client_kill(&mut self, args: Args<'_>, now: Now) -> Outcome {
        // The old form names an address, may kill the caller, and fails for an unknown address.
        let old_form = args.len() == 3;
        let filter = match old_form {
            true => Filter { addr: Some(args.at(2)), ..Filter::default() },
            false => parse(args, &self.engine)?,
        };
        let (mut killed, mut me) = (0, false);
        for client in self.engine.clients.all() {
            if filter.takes(&client, self.client.id, now) && !client.is_killed() {
                killed += 1;
                match client.id == self.client.id {
                    true => me = true,
                    false => client.kill(),
                }
            }
        }
        match old_form {
            true if killed == 0 => return Err("ERR No such client".into()),
            true => self.reply().ok(),
            false => self.reply().int(killed),
        }
        // A caller that kills itself still gets its reply.
        if me { Ok(NextStep::Stop(self.close())) } else { DONE }
    }
}

fn parse<'a>(args: Args<'a>, engine: &Engine) -> Result<Filter<'a>, ErrorText> {
    let mut filter = Filter { skip_me: true, ..Filter::default() };
    let mut i = 2;
    while i < args.len() {
        let value = args.get(i + 1).ok_or(SYNTAX)?;
        if args.is(i, "ID") {
            let id = parse_int(value).filter(|id| *id > 0).ok_or("ERR client-id should be greater than 0")?;
            filter.id = Some(id as u64);
        } else if args.is(i, "TYPE") {
            filter.kind = Some(known_type(value)?);
        } else if args.is(i, "ADDR") {
            filter.addr = Some(value);
        } else if args.is(i, "LADDR") {
            filter.laddr = Some(value);
        } else if args.is(i, "USER") {
            if engine.acl.get(value).is_none() {
                return Err([b"ERR No such user '", value, b"'"].concat());
            }
            filter.user = Some(value);
        } else if args.is(i, "MAXAGE") {
            let age_s = parse_int(value).ok_or("ERR maxage is not an integer or out of range")?;
            let age_s =
                u64::try_from(age_s).ok().filter(|s| *s > 0).ok_or("ERR maxage should be greater than 0")?;
            filter.age_s = Some(age_s);
        } else if args.is(i, "SKIPME") {
            filter.skip_me = match value.eq_ignore_ascii_case(b"yes") {
                true => true,
                false if value.eq_ignore_ascii_case(b"no") => false,
                false => return Err(SYNTAX.into()),
            };
        } else {
            return Err(SYNTAX.into());
        }
        i += 2;
    }
    Ok(filter)
}
