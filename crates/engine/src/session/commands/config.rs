//! CONFIG GET SET RESETSTAT REWRITE HELP.

use super::{DONE, Outcome, SYNTAX, Session};
use crate::config::{OPTIONS, Opt, SetError, find};
use strand_commands::{glob, introspect};
use strand_wire::args::Args;

impl Session {
    pub(super) fn config_get(&mut self, args: Args<'_>) -> Outcome {
        // A name comes back as it was asked for; only patterns answer with the names of the table.
        let mut found: Vec<(&[u8], Opt)> = Vec::new();
        let mut add = |name, option| {
            if found.iter().all(|(known, _)| !known.eq_ignore_ascii_case(name)) {
                found.push((name, option));
            }
        };
        for asked in args.skip(2).iter() {
            if !asked.iter().any(|b| b"[*?".contains(b)) {
                find(asked).into_iter().for_each(|option| add(asked, option));
                continue;
            }
            for name in OPTIONS.iter().flat_map(|spec| std::iter::once(spec.name).chain(spec.alias)) {
                if glob::matches(asked, name.as_bytes(), true) {
                    find(name.as_bytes()).into_iter().for_each(|option| add(name.as_bytes(), option));
                }
            }
        }
        let engine = self.engine.clone();
        let mut reply = self.reply();
        reply.map(found.len());
        for (name, option) in found {
            reply.bulk(name);
            reply.bulk(&engine.config.text(option));
        }
        DONE
    }
    pub(super) fn config_set(&mut self, args: Args<'_>) -> Outcome {
        let args = args.skip(2);
        if !args.len().is_multiple_of(2) {
            return Err(SYNTAX.into());
        }
        let pairs: Vec<(&[u8], &[u8])> =
            (0..args.len()).step_by(2).map(|i| (args.at(i), args.at(i + 1))).collect();
        let changed = self.engine.config.set(&pairs).map_err(|error| match error {
            SetError::Unknown(name) => {
                [b"ERR Unknown option or number of arguments for CONFIG SET - '", &name[..], b"'"].concat()
            }
            SetError::Refused { name, reason } => {
                let head: &[u8] = b"ERR CONFIG SET failed (possibly related to argument '";
                [head, &name[..], b"') - ", reason.as_bytes()].concat()
            }
        })?;
        self.engine.apply_config();
        changed.iter().for_each(|option| self.engine.host.config_changed(option.spec().name));
        self.refresh_settings();
        self.ok()
    }
    pub(super) fn config_reset_stat(&mut self) -> Outcome {
        self.engine.stats.reset();
        self.ok()
    }
    pub(super) fn config_rewrite(&mut self) -> Outcome {
        if self.engine.facts.config_file.is_empty() {
            return Err("ERR The server is running without a config file".into());
        }
        let config = &self.engine.config;
        let written = self.engine.host.rewrite_config(&|old| config.rewrite(old));
        written.map_err(|why| format!("ERR Rewriting config file: {why}"))?;
        self.ok()
    }
    pub(super) fn config_help(&mut self) -> Outcome {
        introspect::help(&mut self.reply(), "CONFIG", HELP);
        DONE
    }
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
