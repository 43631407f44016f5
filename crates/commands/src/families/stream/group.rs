//! XGROUP.

use super::add::change_existing;
use super::{ids, no_group_at, wrong_subcommand_arguments};
use crate::call::Call;
use crate::events::named;
use crate::families::collection;
use crate::introspect;
use crate::parse;
use strand_keyspace::types::stream::{Entries, Group, StreamValue};
use strand_keyspace::{Changed, Settings};
use strand_wire::args::Args;
use strand_wire::reply::ErrorText;

const NO_KEY: &str = "ERR The XGROUP subcommand requires the key to exist. Note that for CREATE you may want to use the \
                      MKSTREAM option to create an empty stream automatically.";
/// Maximum number of arguments of XGROUP CREATE: with both options.
const CREATE_ARGUMENTS_MAX: usize = 8;
/// Maximum number of arguments of XGROUP SETID: with the option ENTRIESREAD.
const SET_ID_ARGUMENTS_MAX: usize = 7;

/// The options of CREATE and SETID, which follow the ID.
struct Options {
    make: bool,
    entries_read: Option<u64>,
}

impl Options {
    fn parse(args: Args<'_>, creates: bool) -> Result<Options, ErrorText> {
        let mut options = Options { make: false, entries_read: None };
        let mut at = 5;
        while at < args.len() {
            if creates && args.is(at, "MKSTREAM") {
                options.make = true;
                at += 1;
            } else if args.is(at, "ENTRIESREAD") && at + 1 < args.len() {
                let n = parse::integer(args.at(at + 1))?;
                if n < -1 {
                    return Err("ERR value for ENTRIESREAD must be positive or -1".into());
                }
                options.entries_read = u64::try_from(n).ok();
                at += 2;
            } else {
                return Err(wrong_subcommand_arguments(args));
            }
        }
        Ok(options)
    }
}

/// `XGROUP CREATE key group id|$ [MKSTREAM] [ENTRIESREAD n]`. Reply: OK.
pub(crate) fn xgroup_create(call: &mut Call<'_, '_>) {
    match create(call) {
        Ok(()) => call.reply.ok(),
        Err(text) => call.reply.error_bytes(&text),
    }
}

fn create(call: &mut Call<'_, '_>) -> Result<(), ErrorText> {
    let args = call.args;
    let options = Options::parse(args, true)?;
    let change = |stream: &mut StreamValue, _: &Settings| {
        // If one of these steps fails, no stream must be created.
        let done = (|| {
            if args.len() > CREATE_ARGUMENTS_MAX {
                return Err(wrong_subcommand_arguments(args));
            }
            let last_id = match args.at(4) {
                b"$" => stream.entries().last_id(),
                id => ids::strict(id, 0)?,
            };
            match stream.create_group(args.at(3), last_id, options.entries_read) {
                true => Ok(()),
                false => Err(b"BUSYGROUP Consumer Group name already exists".to_vec()),
            }
        })();
        let changed = Changed::beside(done.is_ok());
        Ok((done, changed))
    };
    let done = match options.make {
        true => collection::update(call, change).map(Some),
        false => change_existing(call, change),
    };
    done.map_err(|text| text.into_owned().into_bytes())?.unwrap_or(Err(NO_KEY.into()))
}

/// `XGROUP SETID key group id|$ [ENTRIESREAD n]`: sets the ID up to which a group has read. Reply: OK.
pub(crate) fn xgroup_setid(call: &mut Call<'_, '_>) {
    let args = call.args;
    let set = Options::parse(args, false).and_then(|options| {
        change_group(call, |group, entries| {
            if args.len() > SET_ID_ARGUMENTS_MAX {
                return Err(wrong_subcommand_arguments(args));
            }
            let last_id = match args.at(4) {
                b"$" => entries.last_id(),
                id => ids::any(id, 0)?,
            };
            group.set_last_id(last_id);
            group.set_entries_read(options.entries_read);
            Ok(((), true))
        })
    });
    match set {
        Ok(()) => {
            // The group may have entries to read now.
            call.txn.db(call.db).signal_waiters(&call.keys[0]);
            call.reply.ok()
        }
        Err(text) => call.reply.error_bytes(&text),
    }
}

/// `XGROUP DESTROY key group`. Reply: 1, or 0 when the group is missing.
pub(crate) fn xgroup_destroy(call: &mut Call<'_, '_>) {
    let group = call.args.at(3);
    let destroyed = change_existing(call, |stream, _| {
        let destroyed = stream.remove_group(group);
        Ok((destroyed, Changed::beside(destroyed)))
    });
    if let Ok(Some(true)) = destroyed {
        // Clients that wait for entries of the group get an error.
        call.txn.db(call.db).signal_waiters(&call.keys[0]);
    }
    match destroyed {
        Ok(Some(destroyed)) => call.reply.int(destroyed.into()),
        Ok(None) => call.reply.error(NO_KEY),
        Err(text) => call.reply.error(&text),
    }
}

/// `XGROUP CREATECONSUMER key group consumer`. Reply: 1, or 0 when the consumer exists.
pub(crate) fn xgroup_createconsumer(call: &mut Call<'_, '_>) {
    let (name, now_ms) = (call.args.at(4), call.now_ms);
    let created = change_group(call, |group, _| {
        let is_new = group.create_consumer(name, now_ms).is_some();
        Ok((is_new, is_new))
    });
    if let Ok(true) = created {
        call.txn.db(call.db).report_event(&call.keys[0], named::CREATE_CONSUMER);
    }
    match created {
        Ok(created) => call.reply.int(created.into()),
        Err(text) => call.reply.error_bytes(&text),
    }
}

/// `XGROUP DELCONSUMER key group consumer`: removes the consumer and its pending entries. Reply: how many entries were
/// pending.
pub(crate) fn xgroup_delconsumer(call: &mut Call<'_, '_>) {
    let name = call.args.at(4);
    let deleted = change_group(call, |group, _| {
        let pending = group.delete_consumer(name);
        Ok((pending.unwrap_or(0), pending.is_some()))
    });
    match deleted {
        Ok(pending) => call.reply.int(pending as i64),
        Err(text) => call.reply.error_bytes(&text),
    }
}

/// `XGROUP HELP`. Reply: lines of text.
pub(crate) fn xgroup_help(call: &mut Call<'_, '_>) {
    introspect::help(
        call.reply,
        "XGROUP",
        &[
            "CREATE <key> <groupname> <id|$> [option]",
            "    Create a group that has read the stream up to this ID ($: up to the end). Options:",
            "    * MKSTREAM",
            "      If the stream is missing, create an empty stream.",
            "    * ENTRIESREAD entries_read",
            "      The number of entries that the group has read. XINFO computes the lag from this number.",
            "CREATECONSUMER <key> <groupname> <consumer>",
            "    Add a consumer to the group.",
            "DELCONSUMER <key> <groupname> <consumer>",
            "    Delete a consumer with its pending entries, and return their number.",
            "DESTROY <key> <groupname>",
            "    Delete a group with its consumers and pending entries.",
            "SETID <key> <groupname> <id|$> [ENTRIESREAD entries_read]",
            "    Set the ID up to which the group has read, and the number of entries that it has read.",
        ],
    );
}

/// Changes the group that is named by argument 3. `change` also returns whether it has changed something.
///
/// # Errors
/// Fails if the key or group is missing, and the errors of `change`.
fn change_group<R>(
    call: &mut Call<'_, '_>,
    change: impl FnOnce(&mut Group, &Entries) -> Result<(R, bool), ErrorText>,
) -> Result<R, ErrorText> {
    let (key, group) = (call.args.at(2), call.args.at(3));
    let changed = change_existing(call, |stream, _| {
        let done = stream.change_group(group, change);
        let changed = Changed::beside(matches!(done, Some(Ok((_, true)))));
        Ok((done.map(|done| done.map(|(result, _)| result)), changed))
    });
    match changed {
        Err(text) => Err(text.into_owned().into_bytes()),
        Ok(None) => Err(NO_KEY.into()),
        Ok(Some(done)) => done.unwrap_or_else(|| Err(no_group_at(key, group))),
    }
}
