//! Checks of a run's options, before anything is opened.

use super::{DATASET_BYTES_MAX, ImportMode};
use crate::error::OptionError;
use crate::filter::Filter;
use crate::sink::Destination;
use crate::{FilterOptions, ImportOptions, RemoteOptions, source};
use std::path::Path;

/// Checks the options of a source before there is a run. Reads no file, so the files of `--exclude-from` are not checked.
///
/// # Errors
/// [`OptionError`], when the run would refuse the options.
pub fn check_source(
    source: &Path,
    remote: &RemoteOptions,
    filter: &FilterOptions,
) -> Result<(), OptionError> {
    source::check_options(&[source], remote)?;
    let filter = FilterOptions { exclude_from: Vec::new(), ..filter.clone() };
    Filter::new(&filter).map(drop).map_err(OptionError::Filter)
}

/// Checks the options of a run that are not about the source.
///
/// # Errors
/// [`OptionError`].
pub(super) fn check(options: &ImportOptions) -> Result<(), OptionError> {
    let into = &options.into;
    if into.is_empty() || into.len() > DATASET_BYTES_MAX {
        return Err(OptionError::NameLength(into.clone()));
    }
    if into.contains(|c: char| c.is_whitespace() || c.is_control()) {
        return Err(OptionError::NameCharacters(into.clone()));
    }
    if into.ends_with(':') {
        return Err(OptionError::NameColon(into.clone()));
    }
    if options.to != Destination::Strand && options.atomic {
        return Err(OptionError::AtomicElsewhere);
    }
    if options.to != Destination::Strand && options.mode == ImportMode::Verify {
        return Err(OptionError::VerifyElsewhere);
    }
    if options.index && options.db != 0 && options.to == Destination::Strand {
        return Err(OptionError::IndexElsewhere(options.db));
    }
    Ok(())
}
