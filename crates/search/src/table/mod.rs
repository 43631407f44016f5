//! The rows of this crate's commands, each with the function that runs it.

mod regex;
mod search;

use crate::Search;
use crate::error::SearchError;
use crate::service::finish;
use strand_commands::call::{LaneCall, ServiceOutcome, Services};
use strand_commands::spec::CommandSpec;

/// The groups of rows, for the table of all commands.
pub const GROUPS: &[&[CommandSpec]] = &[regex::REGEX, search::SEARCH];

pub use search::KEEP;

/// The result of a command's function. An error is not yet written as the reply.
type Outcome = Result<(), SearchError>;

/// Runs a command on the process's search service.
///
/// # Panics
/// When the process's service is of another type.
fn serve(
    services: &dyn Services,
    call: &mut LaneCall<'_>,
    run: fn(&Search, &mut LaneCall<'_>) -> Outcome,
) -> ServiceOutcome {
    let search = services.search().downcast_ref().expect("the search service is this crate's");
    finish(run(search, call), call)
}
