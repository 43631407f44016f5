//! CONFIG with its subcommands GET, SET, RESETSTAT, REWRITE and HELP.

use super::{ARGS_AT_ONCE_MAX, DONE, Outcome, SYNTAX, Session};
use crate::acl::PASSWORD_BYTES_MAX;
use crate::config::{Change, OPTIONS, Opt, OptionSpec, SetError, find, nearest, text};
use crate::persist::IS_LOADING;
use crate::session::run::NextStep;
use crate::{Engine, system_text};
use strand_commands::{glob, introspect};
use strand_keyspace::types::string::parse_int;
use strand_wire::args::Args;
use strand_wire::reply::{ErrorText, Reply};

impl Session {
    pub(super) fn config_get(&mut self, args: Args<'_>) -> Outcome {
        if args.len() > ARGS_AT_ONCE_MAX {
            return Ok(NextStep::Detach);
        }
        let engine = self.engine.clone();
        get(&engine, args, &mut self.reply())?;
        DONE
    }
    pub(super) fn config_set(&mut self, args: Args<'_>) -> Outcome {
        let is_local = self.client.peer.local;
        let names = args.skip(2).iter().step_by(2);
        if waits_for_the_disk(names, may_set_protected(&self.engine, is_local)) {
            return Ok(NextStep::Detach);
        }
        let engine = self.engine.clone();
        set(&engine, args, is_local)?;
        self.refresh_settings();
        self.ok()
    }
    pub(super) fn config_reset_stat(&mut self) -> Outcome {
        reset_stat(&self.engine.clone(), &mut self.reply());
        DONE
    }
    pub(super) fn config_rewrite(&mut self) -> Outcome {
        // Apply these options on a helper thread, because applying them waits for the disk.
        Ok(NextStep::Detach)
    }
    pub(super) fn config_help(&mut self) -> Outcome {
        introspect::help(&mut self.reply(), "CONFIG", HELP);
        DONE
    }
}

/// Runs CONFIG RESETSTAT on any thread.
pub(super) fn reset_stat(engine: &Engine, reply: &mut Reply<'_>) {
    engine.stats.reset();
    engine.memory.reset_stat();
    engine.keyspace.reset_totals();
    engine.persist.reset_totals();
    engine.replication.reset_totals();
    reply.ok();
}

/// Refuses a `requirepass` over the length limit of passwords.
fn check_password(pairs: &[(&[u8], &[u8])]) -> Result<(), ErrorText> {
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

/// CONFIG GET, on a worker or a helper thread.
pub(super) fn get(engine: &Engine, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), ErrorText> {
    let names_of = |spec: &'static OptionSpec| std::iter::once(spec.name).chain(spec.alias);
    let names = || OPTIONS.iter().filter(|spec| !spec.is_hidden()).flat_map(names_of);
    let names_max = OPTIONS.iter().flat_map(names_of).count();
    // A plain name is returned as the client wrote it. A pattern returns the names of the table.
    let mut found: Vec<(&[u8], Opt)> = Vec::new();
    let mut add = |name, option| {
        if found.iter().all(|(known, _)| !known.eq_ignore_ascii_case(name)) {
            found.push((name, option));
        }
        found.len() == names_max
    };
    let mut steps_left = glob::NAME_STEPS_MAX;
    'asked: for asked in args.skip(2).iter() {
        if !asked.iter().any(|b| b"[*?".contains(b)) {
            if find(asked).is_some_and(|option| add(asked, option)) {
                break;
            }
            continue;
        }
        let pattern = glob::Pattern::new(asked, true);
        for name in names() {
            match pattern.matches_name(name, &mut steps_left) {
                Ok(true) if find(name.as_bytes()).is_some_and(|option| add(name.as_bytes(), option)) => {
                    break 'asked;
                }
                Ok(_) => {}
                Err(why) => return Err(why.into()),
            }
        }
    }
    reply.map(found.len());
    for (name, option) in found {
        reply.bulk(name);
        reply.bulk(&engine.config.text(option));
    }
    Ok(())
}

/// True when CONFIG SET may change protected options. `is_local`: the client is on this machine.
fn may_set_protected(engine: &Engine, is_local: bool) -> bool {
    match engine.config.number(Opt::EnableProtectedConfigs) {
        0 => false,
        1 => true,
        _ => is_local,
    }
}

/// CONFIG SET, on a worker, or on a helper thread if it must read files. `is_local`: the client is on this machine.
pub(super) fn set(engine: &Engine, args: Args<'_>, is_local: bool) -> Result<(), ErrorText> {
    let (args, protected_too) = (args.skip(2), may_set_protected(engine, is_local));
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
    let mut options: Vec<Opt> = Vec::new();
    for option in pairs.iter().filter_map(|(name, _)| find(name)) {
        // An option may also be given by its other name.
        if !options.contains(&option) {
            options.push(option);
        }
    }
    // The files that are being loaded are found by these options.
    let is_of_files = |option: &Opt| *option == Opt::AppendOnly || (*option == Opt::Dir && protected_too);
    if engine.persist.is_loading() && options.iter().any(is_of_files) {
        return Err(IS_LOADING.into());
    }
    let waits = waits_for_the_disk(pairs.iter().map(|(name, _)| *name), protected_too);
    // A worker never waits for this lock: a command that is refused at once takes no lock.
    let _one = waits.then(|| engine.tls_change.lock());
    let values = || options.iter().map(|option| engine.config.text(*option)).collect::<Vec<_>>();
    let before = values();
    let changed = engine.config.set(&pairs, protected_too).map_err(|error| match error {
        SetError::Unknown(name) => unknown(&name),
        SetError::Refused { name, reason } => failed(&name, &reason.to_string()),
    })?;
    let tried = values();
    if let Err((option, reason)) = apply_outside(engine, &changed) {
        let now = values();
        let back = options.iter().zip(&before).zip(tried.iter().zip(&now));
        // An option that another client has set meanwhile keeps that client's value. Nobody else has set `dir`, which
        // already has its full path, because the lock is held.
        let back = back.filter(|((option, _), (tried, now))| tried == now || **option == Opt::Dir);
        let back: Vec<(&[u8], &[u8])> =
            back.map(|((option, text), _)| (option.spec().name.as_bytes(), &text[..])).collect();
        // Setting the old values cannot fail, because they are valid.
        let _ = engine.config.set(&back, true);
        if changed.contains(&Opt::Dir) {
            // Changing back to the old folder cannot fail, because the folder is valid.
            let _ = engine.host.change_dir(&engine.config.dir());
        }
        if changed.iter().any(|option| is_tls(*option)) {
            // The host has logged the reason, if the old files are gone.
            let _ = engine.host.reload_tls(&engine.config);
        }
        if changed.iter().any(|option| is_oom_score(*option)) {
            let _ = engine.set_oom_score();
        }
        if changed.iter().any(|option| is_of_listeners(*option)) {
            let _ = engine.host.listen(&engine.config, engine.needs_password());
        }
        if changed.contains(&Opt::AppendFsync) {
            engine.update_gates();
        }
        // Another client's CONFIG SET may have applied the tried values meanwhile.
        engine.apply_config();
        return Err(failed(option.spec().name.as_bytes(), &reason));
    }
    if changed.contains(&Opt::Dir)
        && let Some(place) = engine.misplaced_aof()
    {
        engine.host.warn(&format!("The append-only file stays in {place}. {MOVE_AOF}"));
    }
    engine.apply_config();
    if changed.contains(&Opt::RequirePass) {
        engine.acl.set_default_password(|| engine.config.requirepass());
        engine.users_changed();
    }
    changed.iter().for_each(|option| engine.host.config_changed(option.spec().name));
    Ok(())
}

/// Applies options outside the engine: the folder, the certificates, the listeners and the append-only file. Returns the
/// failed option and the reason.
fn apply_outside(engine: &Engine, changed: &[Opt]) -> Result<(), (Opt, String)> {
    if changed.contains(&Opt::Dir) {
        if engine.config.dir().is_empty() {
            return Err((Opt::Dir, "No such file or directory".into()));
        }
        let dir =
            engine.host.change_dir(&engine.config.dir()).map_err(|why| (Opt::Dir, system_text(&why)))?;
        // The quoted text is valid.
        let _ = engine.config.load_text(&format!("dir {}", text::quote(&dir)));
    }
    if changed.contains(&Opt::AppendFsync) {
        engine.update_gates();
    }
    // The host has logged the reason.
    if let Some(option) = changed.iter().find(|option| is_tls(**option))
        && engine.host.reload_tls(&engine.config).is_err()
    {
        return Err((*option, "Unable to update TLS configuration. Check server logs.".into()));
    }
    // The host has logged the reason.
    if let Some(option) = changed.iter().find(|option| is_oom_score(**option))
        && engine.set_oom_score().is_err()
    {
        return Err((*option, "Failed to apply new oom_score_adj configuration, check server logs.".into()));
    }
    // The host has logged the reason.
    if let Some(option) = changed.iter().find(|option| is_of_listeners(**option))
        && engine.host.listen(&engine.config, needs_password(engine, changed)).is_err()
    {
        return Err(match changed.contains(&Opt::Bind) {
            true => (Opt::Bind, "Failed to bind to specified addresses.".into()),
            false => (*option, "Unable to listen on this port. Check server logs.".into()),
        });
    }
    // The append-only file comes last, because nothing may fail after its change.
    if changed.contains(&Opt::AppendOnly)
        && let Some(engine) = engine.me()
        && let Err(why) = engine.switch_aof(engine.wants_aof(), engine.host.now())
    {
        if !engine.wants_aof() {
            return Err((Opt::AppendOnly, format!("cannot turn off the append-only file: {why}")));
        }
        engine.host.warn(&format!("Unable to turn on AOF: {why}"));
        return Err((Opt::AppendOnly, "Unable to turn on AOF. Check server logs.".into()));
    }
    Ok(())
}

/// How the append-only file moves to the new `dir`.
const MOVE_AOF: &str = "CONFIG SET appendonly no, then yes, makes a new one in dir";

/// The error for an option that does not exist.
fn unknown(name: &[u8]) -> Vec<u8> {
    let meant = nearest(name).filter(|near| find(near.as_bytes()).is_some());
    let meant = meant.map_or(String::new(), |near| format!(", did you mean '{near}'?"));
    [b"ERR Unknown option or number of arguments for CONFIG SET - '", name, b"'", meant.as_bytes()].concat()
}

fn is_tls(option: Opt) -> bool {
    option.spec().name.starts_with("tls-") && option.spec().no_effect.is_none()
}

/// True when every command needs a password after CONFIG SET of these options. `requirepass` is applied last.
fn needs_password(engine: &Engine, changed: &[Opt]) -> bool {
    match changed.contains(&Opt::RequirePass) {
        true => !engine.config.requirepass().is_empty(),
        false => engine.needs_password(),
    }
}

fn is_oom_score(option: Opt) -> bool {
    matches!(option, Opt::OomScoreAdj | Opt::OomScoreAdjValues)
}

/// True when the option says where the server listens.
fn is_of_listeners(option: Opt) -> bool {
    matches!(
        option,
        Opt::Bind
            | Opt::Port
            | Opt::TlsPort
            | Opt::Pack4Port
            | Opt::TlsPack4Port
            | Opt::HttpPort
            | Opt::TlsHttpPort
    )
}

/// True when CONFIG SET locks all shards, to begin or end the recording of changes.
pub(super) fn locks_shards(args: Args<'_>) -> bool {
    args.skip(2).iter().step_by(2).any(|name| find(name) == Some(Opt::AppendOnly))
}

/// True when CONFIG SET of these options makes the server read files. False when the command is refused at once, for an
/// unknown name or a protected option.
fn waits_for_the_disk<'n>(mut names: impl Iterator<Item = &'n [u8]>, protected_too: bool) -> bool {
    let mut waits = false;
    let is_allowed = names.all(|name| {
        let Some(option) = find(name) else { return false };
        waits |= is_tls(option) || is_of_listeners(option) || matches!(option, Opt::Dir | Opt::AppendOnly);
        protected_too || option.spec().change != Change::Protected
    });
    is_allowed && waits
}

/// Refuses a `maxclients` above the system's limit of open files.
fn check_clients(engine: &Engine, pairs: &[(&[u8], &[u8])]) -> Result<(), ErrorText> {
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

/// Runs CONFIG REWRITE on a helper thread.
pub(super) fn rewrite(engine: &Engine, reply: &mut Reply<'_>) -> Result<(), ErrorText> {
    if engine.facts.config_file.is_empty() {
        return Err("ERR The server is running without a config file".into());
    }
    if let Some(place) = engine.misplaced_aof() {
        let text = format!(
            "ERR Rewriting config file: a start with the new dir would not find the append-only file, which is in \
             {place}. {MOVE_AOF}"
        );
        return Err(text.into());
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
    "    Change options. If one of the values is refused, no option changes.",
    "RESETSTAT",
    "    Reset the counters of INFO to zero.",
    "REWRITE",
    "    Write the current values into the configuration file.",
];
