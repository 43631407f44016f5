//! MODULE: the replies of a server without modules.

use super::{DONE, Outcome, Session};
use strand_commands::introspect;

pub(crate) const NO_CLUSTER: &str = "ERR This instance has cluster support disabled";
pub(super) const NOT_LOADED: &str = "ERR Error loading the extension. Please check the server logs.";
pub(super) const NOT_UNLOADED: &str = "ERR Error unloading module: no such module with that name";

const MODULE_HELP: &[&str] = &[
    "LIST",
    "    Return an empty list.",
    "LOAD <path> [<arg> ...]",
    "    Always fails: Strand loads no modules.",
    "LOADEX <path> [[CONFIG NAME VALUE] [CONFIG NAME VALUE]] [ARGS ...]",
    "    Always fails: Strand loads no modules.",
    "UNLOAD <name>",
    "    Always fails: there is no module.",
];

impl Session {
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
