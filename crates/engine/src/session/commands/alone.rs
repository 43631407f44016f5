//! FAILOVER MODULE: the replies of a server without cluster and modules.

use super::{DONE, Outcome, SYNTAX, Session};
use strand_commands::{errors, introspect};
use strand_keyspace::types::string::parse_int;
use strand_wire::args::Args;

pub(crate) const NO_CLUSTER: &str = "ERR This instance has cluster support disabled";
pub(super) const NOT_LOADED: &str = "ERR Error loading the extension. Please check the server logs.";
pub(super) const NOT_UNLOADED: &str = "ERR Error unloading module: no such module with that name";

const MODULE_HELP: &[&str] = &[
    "LIST",
    "    Return a list of loaded modules.",
    "LOAD <path> [<arg> ...]",
    "    Load a module library from <path>, passing to it any optional arguments.",
    "LOADEX <path> [[CONFIG NAME VALUE] [CONFIG NAME VALUE]] [ARGS ...]",
    "    Load a module library from <path>, while passing it module configurations and optional arguments.",
    "UNLOAD <name>",
    "    Unload a module.",
];

impl Session {
    /// `FAILOVER [TO host port [FORCE]] [ABORT] [TIMEOUT milliseconds]`: an error, because replicas cannot become primaries from here.
    pub(super) fn failover(&mut self, args: Args<'_>) -> Outcome {
        if args.len() == 2 && args.is(1, "ABORT") {
            return Err("ERR No failover in progress.".into());
        }
        if self.engine.following.is_on() {
            return Err("ERR FAILOVER is not valid when server is a replica.".into());
        }
        let (mut timeout, mut host, mut force) = (false, false, false);
        let mut at = 1;
        while at < args.len() {
            if args.is(at, "TIMEOUT") && at + 1 < args.len() && !timeout {
                if parse_int(args.at(at + 1)).ok_or(errors::NOT_AN_INTEGER)? <= 0 {
                    return Err("ERR FAILOVER timeout must be greater than 0".into());
                }
                timeout = true;
                at += 1;
            } else if args.is(at, "TO") && at + 2 < args.len() && !host {
                parse_int(args.at(at + 2)).ok_or(errors::NOT_AN_INTEGER)?;
                host = true;
                at += 2;
            } else if args.is(at, "FORCE") && !force {
                force = true;
            } else {
                return Err(SYNTAX.into());
            }
            at += 1;
        }
        Err("ERR FAILOVER requires connected replicas.".into())
    }
    /// `MODULE LIST`. Reply: none.
    pub(super) fn module_list(&mut self) -> Outcome {
        self.reply().array(0);
        DONE
    }
    /// `MODULE HELP`. Reply: the subcommands.
    pub(super) fn module_help(&mut self) -> Outcome {
        introspect::help(&mut self.reply(), "MODULE", MODULE_HELP);
        DONE
    }
}
