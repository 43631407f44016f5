//! ACL and its subcommands. All but the smallest run on a helper thread, because users, rules and logs may be many.

use super::{DONE, Outcome, Session};
use crate::acl::{
    ACL_TABLE, CATEGORIES, Denied, RuleError, User, c_text, category, has_blanks, members, merge_selectors,
};
use crate::{Engine, Now, system_text};
use strand_commands::dispatch::{self, Resolved};
use strand_commands::{errors, introspect};
use strand_keyspace::types::string::parse_int;
use strand_wire::args::Args;
use strand_wire::reply::{ErrorText, Reply};

/// Maximum number of bits of ACL GENPASS.
const GENPASS_BITS_MAX: i64 = 4096;
const GENPASS_BITS: i64 = 256;
/// Number of entries of ACL LOG when the client gives no count.
const LOG_ENTRIES: i64 = 10;

const NO_ACL_FILE: &str = "ERR This Redis instance is not configured to use an ACL file. You may want to specify users via \
    the ACL SETUSER command and then issue a CONFIG REWRITE (assuming you have a Redis configuration file set) in order to \
    store users in the Redis configuration.";
const NOT_SAVED: &str =
    "ERR There was an error trying to save the ACLs. Please check the server logs for more information";

impl Session {
    pub(super) fn acl_whoami(&mut self) -> Outcome {
        let user = self.identity.user.clone();
        self.reply().bulk(user.name());
        DONE
    }
    pub(super) fn acl_genpass(&mut self, args: Args<'_>) -> Outcome {
        let bits = match args.len() {
            2 => GENPASS_BITS,
            3 => parse_int(args.at(2)).ok_or(errors::NOT_AN_INTEGER)?,
            _ => return Err(wrong_subcommand(args)),
        };
        if !(1..=GENPASS_BITS_MAX).contains(&bits) {
            return Err(format!(
                "ERR ACL GENPASS argument must be the number of bits for the output password, a positive number up \
                 to {GENPASS_BITS_MAX}"
            )
            .into());
        }
        let digits = (bits as usize).div_ceil(4);
        let mut bytes = [0; GENPASS_BITS_MAX as usize / 8];
        let random = self.engine.host.random_bytes(&mut bytes[..digits.div_ceil(2)]);
        random.map_err(|why| format!("ERR cannot read random bytes: {}", system_text(&why)))?;
        let hex: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
        self.reply().bulk(&hex.as_bytes()[..digits]);
        DONE
    }
    pub(super) fn acl_help(&mut self) -> Outcome {
        introspect::help(&mut self.reply(), "ACL", HELP);
        DONE
    }
}

/// Runs `ACL GETUSER`.
pub(super) fn get_user(engine: &Engine, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), ErrorText> {
    match engine.acl.get(args.at(2)) {
        Some(user) => describe(&user, reply),
        None => reply.null(),
    }
    Ok(())
}

/// Runs `ACL LIST`.
pub(super) fn list(engine: &Engine, reply: &mut Reply<'_>) -> Result<(), ErrorText> {
    let users = engine.acl.all();
    reply.array(users.len());
    users.iter().for_each(|user| reply.bulk(&user.line()));
    Ok(())
}

/// Runs `ACL USERS`.
pub(super) fn users(engine: &Engine, reply: &mut Reply<'_>) -> Result<(), ErrorText> {
    let users = engine.acl.all();
    reply.array(users.len());
    users.iter().for_each(|user| reply.bulk(user.name()));
    Ok(())
}

/// Runs `ACL LOAD`.
pub(super) fn load(engine: &Engine, reply: &mut Reply<'_>) -> Result<(), ErrorText> {
    let file = acl_file(engine)?;
    engine.load_acl_file(&file).map_err(|text| [b"ERR ", &text[..]].concat())?;
    engine.users_removed();
    reply.ok();
    Ok(())
}

/// Runs `ACL SAVE`.
pub(super) fn save(engine: &Engine, reply: &mut Reply<'_>) -> Result<(), ErrorText> {
    let file = acl_file(engine)?;
    engine.host.write_acl_file(&file, &|| engine.acl.text()).map_err(|_| NOT_SAVED)?;
    reply.ok();
    Ok(())
}

fn acl_file(engine: &Engine) -> Result<String, ErrorText> {
    Some(engine.config.aclfile()).filter(|f| !f.is_empty()).ok_or(NO_ACL_FILE.into())
}

/// Runs `ACL CAT [category]`.
pub(super) fn cat(args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), ErrorText> {
    let names: Vec<&str> = match args.len() {
        2 => CATEGORIES.to_vec(),
        3 => match category(args.at(2)) {
            Some(found) => members(found).map(|id| ACL_TABLE.rows()[id].name.as_str()).collect(),
            None => return Err([b"ERR Unknown category '", quoted(args.at(2)), b"'"].concat()),
        },
        _ => return Err(wrong_subcommand(args)),
    };
    reply.array(names.len());
    names.into_iter().for_each(|name| reply.bulk(name.as_bytes()));
    Ok(())
}

/// Runs `ACL SETUSER`.
pub(super) fn set_user(engine: &Engine, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), ErrorText> {
    let (name, rules) = (args.at(2), args.skip(3));
    if has_blanks(name) {
        return Err("ERR Usernames can't contain spaces or null characters".into());
    }
    let rules = merge_selectors(rules.iter()).map_err(|at| {
        [b"ERR Unmatched parenthesis in acl selector starting at '", c_text(rules.at(at)), b"'."].concat()
    })?;
    engine.acl.set_user(name, &rules, engine.all_channels_by_default()).map_err(|(rule, error)| {
        if let RuleError::TooMany("users", _) = error {
            return format!("ERR {error}").into();
        }
        [b"ERR Error in ACL SETUSER modifier '", c_text(&rule), b"': ", error.to_string().as_bytes()].concat()
    })?;
    engine.users_changed();
    reply.ok();
    Ok(())
}

/// Runs `ACL DELUSER`.
pub(super) fn delete_users(engine: &Engine, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), ErrorText> {
    let names = args.skip(2);
    if names.iter().any(|name| name == crate::acl::DEFAULT_USER) {
        return Err("ERR The 'default' user cannot be removed".into());
    }
    let deleted = engine.acl.delete(names.iter());
    if deleted > 0 {
        engine.users_removed();
    }
    reply.int(deleted as i64);
    Ok(())
}

fn describe(user: &User, reply: &mut Reply<'_>) {
    reply.map(6);
    reply.bulk(b"flags");
    let flags = user.flags();
    reply.set(flags.len());
    flags.iter().for_each(|flag| reply.bulk(flag.as_bytes()));
    reply.bulk(b"passwords");
    let digests = user.password_digests();
    reply.array(digests.len());
    digests.iter().for_each(|hex| reply.bulk(hex.as_bytes()));
    let (root, more) = user.selectors();
    describe_selector(root, reply);
    reply.bulk(b"selectors");
    reply.array(more.len());
    for selector in more {
        reply.map(3);
        describe_selector(selector, reply);
    }
}

fn describe_selector(selector: &crate::acl::Selector, reply: &mut Reply<'_>) {
    let parts = [
        ("commands", selector.command_rules()),
        ("keys", selector.key_rules().join(&b' ')),
        ("channels", selector.channel_rules().join(&b' ')),
    ];
    for (name, rules) in parts {
        reply.bulk(name.as_bytes());
        reply.bulk(&rules);
    }
}

/// Runs `ACL LOG [count | RESET]`.
pub(super) fn log(engine: &Engine, args: Args<'_>, now: Now, reply: &mut Reply<'_>) -> Result<(), ErrorText> {
    let count = match args.len() {
        2 => LOG_ENTRIES,
        3 if args.is(2, "RESET") => {
            engine.acl.log.lock().clear();
            reply.ok();
            return Ok(());
        }
        3 => parse_int(args.at(2)).ok_or(errors::NOT_AN_INTEGER)?,
        _ => return Err(wrong_subcommand(args)),
    };
    let entries = engine.acl.log.lock().newest(usize::try_from(count).unwrap_or(0));
    reply.array(entries.len());
    for entry in entries {
        let last = &entry.last;
        reply.map(7);
        reply.bulk(b"count");
        reply.int(entry.count as i64);
        for (name, value) in [
            ("reason", last.reason.name().as_bytes()),
            ("context", last.context.name().as_bytes()),
            ("object", &last.object),
            ("username", &last.username),
        ] {
            reply.bulk(name.as_bytes());
            reply.bulk(value);
        }
        reply.bulk(b"age-seconds");
        reply.double((now.unix_ms() - last.at_ms).max(0) as f64 / 1000.0);
        reply.bulk(b"client-info");
        reply.bulk(last.client.as_bytes());
    }
    Ok(())
}

/// Runs `ACL DRYRUN user command [arg ...]`.
pub(super) fn dry_run(engine: &Engine, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), ErrorText> {
    let user = engine.acl.get(args.at(2));
    let user = user.ok_or_else(|| [b"ERR User '", c_text(args.at(2)), b"' not found"].concat())?;
    let args = args.skip(3);
    let unknown = || [b"ERR Command '", c_text(args.at(0)), b"' not found"].concat();
    let spec = crate::TABLE.lookup(args.at(0)).ok_or_else(unknown)?;
    let found = match args.get(1) {
        Some(word) if !spec.subcommands.is_empty() => {
            Resolved { spec: dispatch::subcommand(spec, word).ok_or_else(unknown)?, container: Some(spec) }
        }
        _ => Resolved { spec, container: None },
    };
    if !found.arity_fits(args.len()) {
        return Err(errors::wrong_arity(&found));
    }
    let rights = "This user has no permissions to";
    match user.check(found.spec, args, &mut || true) {
        Ok(()) | Err(Denied::Interrupted) => reply.ok(),
        Err(Denied::Command) => {
            reply.bulk(format!("{rights} run the '{}' command", found.full_name()).as_bytes());
        }
        Err(Denied::Key(at)) => {
            reply.bulk(&[rights.as_bytes(), b" access the '", c_text(args.at(at)), b"' key"].concat());
        }
        Err(Denied::Channel(at)) => {
            reply.bulk(&[rights.as_bytes(), b" access the '", c_text(args.at(at)), b"' channel"].concat());
        }
    }
    Ok(())
}

/// The error for a wrong number of arguments of a subcommand with optional arguments.
fn wrong_subcommand(args: Args<'_>) -> Vec<u8> {
    let head: &[u8] = b"ERR unknown subcommand or wrong number of arguments for '";
    [head, quoted(args.at(1)), b"'. Try ACL HELP."].concat()
}

/// The start of a word, as long as redis-server quotes it in an error.
fn quoted(word: &[u8]) -> &[u8] {
    c_text(&word[..word.len().min(128)])
}

const HELP: &[&str] = &[
    "CAT [<category>]",
    "    List the categories of commands, or the commands of one category.",
    "DELUSER <username> [<username> ...]",
    "    Remove users; their connections are closed.",
    "DRYRUN <username> <command> [<arg> ...]",
    "    Tell whether a user may run a command, without running it.",
    "GENPASS [<bits>]",
    "    Make a password of <bits> random bits (default: 256).",
    "GETUSER <username>",
    "    Describe a user, part by part.",
    "LIST",
    "    Describe all users, each as a line of an ACL file.",
    "LOAD",
    "    Read the ACL file again.",
    "LOG [<count> | RESET]",
    "    Show the newest denials. RESET removes all entries of this log.",
    "SAVE",
    "    Write the users to the ACL file.",
    "SETUSER <username> [<rule> ...]",
    "    Create a user, or change a user by rules.",
    "USERS",
    "    List the names of all users.",
    "WHOAMI",
    "    Return the user of this connection.",
];
