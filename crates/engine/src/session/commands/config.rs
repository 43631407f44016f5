//! CONFIG GET SET RESETSTAT REWRITE HELP.

use super::{ARGS_AT_ONCE_MAX, DONE, Outcome, SYNTAX, Session};
use crate::Engine;
use crate::acl::PASSWORD_BYTES_MAX;
use crate::config::{OPTIONS, Opt, SetError, find};
use crate::session::run::Next;
use strand_commands::{glob, introspect};
use strand_keyspace::types::string::parse_int;
use strand_wire::args::Args;
use strand_wire::reply::Reply;

impl Session {
    pub(super) fn config_get(&mut self, args: Args<'_>) -> Outcome {
        if args.len() > ARGS_AT_ONCE_MAX {
            return Ok(Next::Detach);
        }
        let engine = self.engine.clone();
        get(&engine, args, &mut self.reply());
        DONE
    }
    pub(super) fn config_set(&mut self, args: Args<'_>) -> Outcome {
        let names = args.skip(2).iter().step_by(2);
        if names.filter_map(find).any(is_tls) {
            // Certificates are read from the disk.
            return Ok(Next::Detach);
        }
        let engine = self.engine.clone();
        set(&engine, args)?;
        self.refresh_settings();
        self.ok()
    }
    pub(super) fn config_reset_stat(&mut self) -> Outcome {
        self.engine.stats.reset();
        self.engine.memory.reset_stat();
        self.engine.keyspace.reset_totals();
        self.ok()
    }
    pub(super) fn config_rewrite(&mut self) -> Outcome {
        // It waits for the disk.
        Ok(Next::Detach)
    }
    pub(super) fn config_help(&mut self) -> Outcome {
        introspect::help(&mut self.reply(), "CONFIG", HELP);
        DONE
    }
}

/// Refuses a `requirepass` that is longer than a password may be.
fn check_password(pairs: &[(&[u8], &[u8])]) -> Result<(), Vec<u8>> {
    let too_long = |(name, password): &(&[u8], &[u8])| {
        name.eq_ignore_ascii_case(b"requirepass") && password.len() > PASSWORD_BYTES_MAX
    };
    match pairs.iter().any(too_long) {
        false => Ok(()),
        true => Err(format!(
            "ERR CONFIG SET failed (possibly related to argument 'requirepass') - at most {PASSWORD_BYTES_MAX} bytes"
        )
        .into()),
    }
}

/// CONFIG GET, here or on a helper thread.
pub(super) fn get(engine: &Engine, args: Args<'_>, reply: &mut Reply<'_>) {
    let names = || OPTIONS.iter().flat_map(|spec| std::iter::once(spec.name).chain(spec.alias));
    let names_max = names().count();
    // A name comes back as it was asked for; only patterns answer with the names of the table.
    let mut found: Vec<(&[u8], Opt)> = Vec::new();
    let mut add = |name, option| {
        if found.iter().all(|(known, _)| !known.eq_ignore_ascii_case(name)) {
            found.push((name, option));
        }
        found.len() == names_max
    };
    'asked: for asked in args.skip(2).iter() {
        if !asked.iter().any(|b| b"[*?".contains(b)) {
            if find(asked).is_some_and(|option| add(asked, option)) {
                break;
            }
            continue;
        }
        for name in names().filter(|name| glob::matches(asked, name.as_bytes(), true)) {
            if find(name.as_bytes()).is_some_and(|option| add(name.as_bytes(), option)) {
                break 'asked;
            }
        }
    }
    reply.map(found.len());
    for (name, option) in found {
        reply.bulk(name);
        reply.bulk(&engine.config.text(option));
    }
}

/// CONFIG SET, here or, where files must be read, on a helper thread.
pub(super) fn set(engine: &Engine, args: Args<'_>) -> Result<(), Vec<u8>> {
    let args = args.skip(2);
    if !args.len().is_multiple_of(2) {
        return Err(SYNTAX.into());
    }
    let pairs: Vec<(&[u8], &[u8])> =
        (0..args.len()).step_by(2).map(|i| (args.at(i), args.at(i + 1))).collect();
    check_clients(engine, &pairs)?;
    check_password(&pairs)?;
    let failed = |name: &[u8], reason: &str| {
        let head: &[u8] = b"ERR CONFIG SET failed (possibly related to argument '";
        [head, name, b"') - ", reason.as_bytes()].concat()
    };
    let options: Vec<Opt> = pairs.iter().filter_map(|(name, _)| find(name)).collect();
    let _one = options.iter().any(|option| is_tls(*option)).then(|| engine.tls_change.lock());
    let values = || options.iter().map(|option| engine.config.text(*option)).collect::<Vec<_>>();
    let before = values();
    let changed = engine.config.set(&pairs).map_err(|error| match error {
        SetError::Unknown(name) => {
            [b"ERR Unknown option or number of arguments for CONFIG SET - '", &name[..], b"'"].concat()
        }
        SetError::Refused { name, reason } => failed(&name, &reason),
    })?;
    let tls = changed.iter().find(|option| is_tls(**option));
    let tried = tls.map(|option| (option, values()));
    if let Some((option, tried)) = tried
        && engine.host.reload_tls(&engine.config).is_err()
    {
        let now = values();
        let back = options.iter().zip(&before).zip(tried.iter().zip(&now));
        // What somebody else has set meanwhile stays.
        let back = back.filter(|(_, (tried, now))| tried == now);
        let back: Vec<(&[u8], &[u8])> =
            back.map(|((option, text), _)| (option.spec().name.as_bytes(), &text[..])).collect();
        // They were values before.
        let _ = engine.config.set(&back);
        let reason = "Unable to update TLS configuration. Check server logs.";
        return Err(failed(option.spec().name.as_bytes(), reason));
    }
    engine.apply_config();
    if changed.contains(&Opt::RequirePass) {
        engine.acl.set_default_password(|| engine.config.requirepass());
        engine.users_changed();
    }
    changed.iter().for_each(|option| engine.host.config_changed(option.spec().name));
    Ok(())
}

fn is_tls(option: Opt) -> bool {
    option.spec().name.starts_with("tls-")
}

/// Refuses a `maxclients` that the system's limit of open files does not allow.
fn check_clients(engine: &Engine, pairs: &[(&[u8], &[u8])]) -> Result<(), Vec<u8>> {
    let named = pairs.iter().filter(|(name, _)| name.eq_ignore_ascii_case(b"maxclients"));
    let wanted = named.filter_map(|(_, text)| usize::try_from(parse_int(text)?).ok()).max().unwrap_or(0);
    let allowed = if wanted == 0 { 0 } else { engine.host.clients_max(wanted) };
    if allowed == wanted {
        return Ok(());
    }
    let text = "ERR CONFIG SET failed (possibly related to argument 'maxclients') - The operating system is not able \
                to handle the specified number of clients, try with ";
    Err(format!("{text}{allowed}").into_bytes())
}

/// CONFIG REWRITE, on a helper thread.
pub(super) fn rewrite(engine: &Engine, reply: &mut Reply<'_>) -> Result<(), Vec<u8>> {
    if engine.facts.config_file.is_empty() {
        return Err("ERR The server is running without a config file".into());
    }
    let written = engine.host.rewrite_config(&|old| engine.rewrite_config(old));
    written.map_err(|why| format!("ERR Rewriting config file: {why}"))?;
    reply.ok();
    Ok(())
}

const HELP: &[&str] = &[
    "GET <pattern> [<pattern> ...]",
    "    Return the options whose names match, with their values.",
    "SET <option> <value> [<option> <value> ...]",
    "    Change options: all of them, or none when one is refused.",
    "RESETSTAT",
    "    Set what INFO counts back to zero.",
    "REWRITE",
    "    Write the present values into the configuration file.",
];
