//! Finding the row, checking arity, finding the keys. STARTING VERSION: the signatures stay, `lookup` becomes O(1).

use crate::spec::{BeginSearch, CommandSpec, FindKeys, Handler};
use crate::table::COMMANDS;
use smallvec::SmallVec;
use strand_wire::args::Args;

/// A command found in the table.
#[derive(Clone, Copy)]
pub struct Resolved {
    /// Its row (a subcommand's own row when it has one).
    pub spec: &'static CommandSpec,
    /// The row of the container, for a subcommand.
    pub container: Option<&'static CommandSpec>,
}

impl Resolved {
    /// The name as error texts and COMMAND INFO have it: `get`, `client|setname`.
    pub fn full_name(&self) -> String {
        crate::errors::full_name(self.container, self.spec)
    }
}

/// Finds the row of `name`, ASCII case aside; no subcommands.
pub fn lookup(name: &[u8]) -> Option<&'static CommandSpec> {
    COMMANDS.iter().find(|c| name.eq_ignore_ascii_case(c.name.as_bytes()))
}

/// Finds the row for `args` (down to the subcommand) and checks its arity.
///
/// # Errors
/// The whole error reply as redis-server words it (`ERR unknown command ...`, `ERR unknown subcommand ...`,
/// `ERR wrong number of arguments for 'get' command`).
pub fn resolve(args: Args<'_>) -> Result<Resolved, Vec<u8>> {
    let Some(spec) = lookup(args.at(0)) else { return Err(crate::errors::unknown_command(args)) };
    let mut found = Resolved { spec, container: None };
    if !spec.subcommands.is_empty()
        && let Some(sub) = args.get(1)
    {
        match spec.subcommands.iter().find(|c| sub.eq_ignore_ascii_case(c.name.as_bytes())) {
            Some(c) => found = Resolved { spec: c, container: Some(spec) },
            None => return Err(crate::errors::unknown_subcommand(args)),
        }
    }
    let (n, arity) = (args.len() as i32, found.spec.arity);
    if (arity > 0 && n != arity)
        || n < -arity
        || (found.container.is_none() && matches!(spec.handler, Handler::Container))
    {
        return Err(crate::errors::wrong_arity(&found));
    }
    Ok(found)
}

/// Positions of the keys in `args`, by the key specs, in their order.
///
/// # Errors
/// When the specs cannot be followed (a count of keys that is no number or more than there are).
pub fn key_positions(spec: &CommandSpec, args: Args<'_>) -> Result<SmallVec<[usize; 4]>, InvalidKeys> {
    let mut out = SmallVec::new();
    for k in spec.keys {
        let begin = match k.begin {
            BeginSearch::Index(i) => i,
            BeginSearch::Keyword(..) => return Err(InvalidKeys),
        };
        match k.find {
            FindKeys::Range { last, step, .. } => {
                let end = if last >= 0 {
                    begin + last as usize
                } else {
                    (args.len() as i32 + last).max(0) as usize
                };
                out.extend((begin..=end).step_by(step).filter(|i| *i < args.len()));
            }
            FindKeys::KeyNumber { .. } => return Err(InvalidKeys),
        }
    }
    Ok(out)
}

/// The key specs cannot be followed for these arguments.
#[derive(Clone, Copy, Debug)]
pub struct InvalidKeys;
