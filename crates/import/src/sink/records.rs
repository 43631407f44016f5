//! [`Stored`]: the records of a dataset in a local file, for a sink that stores no records.
//!
//! Each dataset has one redb file for each destination. A run locks the file, so a second importer is refused. A crash
//! never damages the file.

use super::{Destination, FieldNames, SolrTarget};
use crate::container::{Container, ContainerError};
use crate::versions::outdated;
use crate::{ImportError, ImportMode, ImportOptions, OptionError};
use redb::{
    Database, DatabaseError, ReadableDatabase, ReadableTable, Table, TableDefinition, TableError,
    WriteTransaction,
};
use std::fmt::Write;
use std::ops::Bound;
use std::path::{Path, PathBuf};

const CONTAINERS: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("containers");
/// Changes of containers that count when the run has ended. `None`: the container is removed. The rows of a run that was
/// cut short do not count.
const LATER: TableDefinition<'_, &[u8], Option<&[u8]>> = TableDefinition::new("later");
/// Has one row: [`FIELDS`].
const SETTINGS: TableDefinition<'_, &str, &str> = TableDefinition::new("settings");
/// The names of the fields that the destination's documents have, as [`fields_text`] writes them.
const FIELDS: &str = "fields";
/// Number of containers that are changed at a time when the names of fields have changed.
const OUTDATED_AT_A_TIME: usize = 64;
/// Maximum number of bytes of the file that redb caches in memory.
const CACHE_BYTES: usize = 4 << 20;

/// The records of one dataset.
pub(super) struct Stored {
    /// `None` when there are no records: then each run sends all documents.
    file: Option<File>,
}

struct File {
    database: Database,
    /// The transaction with the changes that are not on the disk yet.
    open: Option<WriteTransaction>,
    path: PathBuf,
    /// True in a dry run, which changes nothing. So the rows of [`LATER`] are those of a run that was cut short.
    is_dry_run: bool,
    /// True in a dry run when the names of fields have changed since the last run.
    has_other_fields: bool,
}

impl Stored {
    /// Opens or creates the records. For a file or the standard output there are records only if the options name a
    /// folder for records. A dry run does not create records.
    pub(super) fn open(options: &ImportOptions) -> Result<Stored, ImportError> {
        let folder = match (&options.state, &options.to) {
            (Some(folder), _) => folder.clone(),
            (None, Destination::Solr(_)) => default_folder()?,
            _ => return Ok(Stored { file: None }),
        };
        let path = folder.join(file_name(&options.into, &options.to));
        if options.dry_run && !path.exists() {
            return Ok(Stored { file: None });
        }
        std::fs::create_dir_all(&folder).map_err(|error| state_error(&folder, error))?;
        let opened = crate::database::open(&path, CACHE_BYTES);
        let database = opened.map_err(|error| match error {
            DatabaseError::DatabaseAlreadyOpen => ImportError::Busy { dataset: options.into.clone() },
            error => state_error(&path, error),
        })?;
        let is_dry_run = options.dry_run;
        let mut file = File { database, open: None, path, is_dry_run, has_other_fields: false };
        let fields = match &options.to {
            Destination::Solr(target) => Some(fields_text(&target.names)),
            _ => None,
        };
        file.compare_fields(fields.as_deref()).map_err(|error| state_error(&file.path, error))?;
        if file.has_other_fields && options.mode == ImportMode::RetryFailed {
            return Err(OptionError::RetryOfOtherFields.into());
        }
        if !is_dry_run {
            file.begin_run(fields.as_deref()).map_err(|error| state_error(&file.path, error))?;
            file.has_other_fields = false;
        }
        Ok(Stored { file: Some(file) })
    }

    /// Reads the container called `name`.
    pub(super) fn get(&mut self, name: &[u8]) -> Result<Option<Vec<u8>>, ImportError> {
        let Some(file) = &self.file else { return Ok(None) };
        let Some(blob) = file.get(name).map_err(|error| state_error(&file.path, error))? else {
            return Ok(None);
        };
        let is_damaged = |error: ContainerError| {
            let why = format!("the container {:?}: {error}", String::from_utf8_lossy(name));
            ImportError::DamagedRecords { path: file.path.clone(), why }
        };
        let container = Container::parse(&blob).map_err(is_damaged)?;
        match file.has_other_fields {
            true => outdated(container).map(Some).map_err(is_damaged),
            false => Ok(Some(blob)),
        }
    }

    /// Stores the container called `name`.
    pub(super) fn put(&mut self, name: &[u8], blob: &[u8]) -> Result<(), ImportError> {
        self.change(|file| {
            let transaction = file.transaction()?;
            transaction.open_table(LATER)?.remove(name)?;
            transaction.open_table(CONTAINERS)?.insert(name, blob)?;
            Ok(())
        })
    }

    /// Removes the containers called `names`.
    pub(super) fn delete(&mut self, names: &[&[u8]]) -> Result<(), ImportError> {
        self.change(|file| {
            let mut table = file.transaction()?.open_table(CONTAINERS)?;
            names.iter().try_for_each(|name| table.remove(*name).map(|_| ()))?;
            Ok(())
        })
    }

    /// Stores the container called `name`, or removes it, at the next [`Stored::apply_later`]. Until then only this run
    /// reads it.
    pub(super) fn change_later(&mut self, name: &[u8], blob: Option<&[u8]>) -> Result<(), ImportError> {
        self.change(|file| {
            file.transaction()?.open_table(LATER)?.insert(name, blob)?;
            Ok(())
        })
    }

    /// Makes the changes of [`Stored::change_later`].
    pub(super) fn apply_later(&mut self) -> Result<(), ImportError> {
        self.change(|file| {
            let transaction = file.transaction()?;
            let (later, mut containers) =
                (transaction.open_table(LATER)?, transaction.open_table(CONTAINERS)?);
            for row in later.iter()? {
                let (name, blob) = row?;
                match blob.value() {
                    Some(blob) => containers.insert(name.value(), blob)?,
                    None => containers.remove(name.value())?,
                };
            }
            drop((later, containers));
            transaction.delete_table(LATER)?;
            Ok(())
        })
    }

    /// Waits until all changes are on the disk.
    pub(super) fn commit(&mut self) -> Result<(), ImportError> {
        self.change(|file| match file.open.take() {
            Some(open) => Ok(open.commit()?),
            None => Ok(()),
        })
    }

    fn change(
        &mut self,
        change: impl FnOnce(&mut File) -> Result<(), redb::Error>,
    ) -> Result<(), ImportError> {
        let Some(file) = &mut self.file else { return Ok(()) };
        change(file).map_err(|error| state_error(&file.path, error))
    }
}

impl File {
    /// Finds out whether the last run sent documents with other names of fields.
    fn compare_fields(&mut self, fields: Option<&str>) -> Result<(), redb::Error> {
        let Some(fields) = fields else { return Ok(()) };
        if let Some(table) = if_exists(self.database.begin_read()?.open_table(SETTINGS))? {
            self.has_other_fields = table.get(FIELDS)?.is_some_and(|before| before.value() != fields);
        }
        Ok(())
    }

    /// Drops what a run that was cut short left in [`LATER`], and records the names of the fields that this run sends. If
    /// earlier runs sent other names, every container becomes outdated in the same transaction. So this run sends every
    /// document again, and if this run is cut short, so does the next one.
    fn begin_run(&mut self, fields: Option<&str>) -> Result<(), redb::Error> {
        let transaction = self.database.begin_write()?;
        let mut has_changed = transaction.delete_table(LATER)?;
        if let Some(fields) = fields {
            let is_equal =
                transaction.open_table(SETTINGS)?.insert(FIELDS, fields)?.map(|old| old.value() == fields);
            has_changed |= is_equal != Some(true);
            // Without former names, the file is new, or an earlier version made it, which recorded no names.
            if is_equal == Some(false) {
                outdate_all(&mut transaction.open_table(CONTAINERS)?)?;
            }
        }
        match has_changed {
            true => Ok(transaction.commit()?),
            false => Ok(transaction.abort()?),
        }
    }

    fn transaction(&mut self) -> Result<&mut WriteTransaction, redb::Error> {
        if self.open.is_none() {
            self.open = Some(self.database.begin_write()?);
        }
        Ok(self.open.as_mut().expect("just begun"))
    }

    fn get(&self, name: &[u8]) -> Result<Option<Vec<u8>>, redb::Error> {
        if let Some(open) = &self.open {
            return find(Some(&open.open_table(LATER)?), &open.open_table(CONTAINERS)?, name);
        }
        let snapshot = self.database.begin_read()?;
        let later = if self.is_dry_run { None } else { if_exists(snapshot.open_table(LATER))? };
        match if_exists(snapshot.open_table(CONTAINERS))? {
            Some(containers) => find(later.as_ref(), &containers, name),
            None => Ok(None),
        }
    }
}

/// A table that the database may lack.
fn if_exists<T>(opened: Result<T, TableError>) -> Result<Option<T>, redb::Error> {
    match opened {
        Ok(table) => Ok(Some(table)),
        Err(TableError::TableDoesNotExist(_)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The container `name`, as `later` and otherwise `containers` has it.
fn find(
    later: Option<&impl ReadableTable<&'static [u8], Option<&'static [u8]>>>,
    containers: &impl ReadableTable<&'static [u8], &'static [u8]>,
    name: &[u8],
) -> Result<Option<Vec<u8>>, redb::Error> {
    if let Some(later) = later
        && let Some(found) = later.get(name)?
    {
        return Ok(found.value().map(<[u8]>::to_vec));
    }
    Ok(containers.get(name)?.map(|found| found.value().to_vec()))
}

/// Outdates every container of the table.
fn outdate_all(table: &mut Table<'_, &[u8], &[u8]>) -> Result<(), redb::Error> {
    let mut after: Bound<Vec<u8>> = Bound::Unbounded;
    loop {
        let from = after.as_ref().map(Vec::as_slice);
        let mut some = Vec::new();
        for found in table.range::<&[u8]>((from, Bound::Unbounded))?.take(OUTDATED_AT_A_TIME) {
            let (name, blob) = found?;
            some.push((name.value().to_vec(), blob.value().to_vec()));
        }
        let Some((last, _)) = some.last() else { return Ok(()) };
        after = Bound::Excluded(last.clone());
        for (name, blob) in some {
            // A damaged container stays as it is. The run that needs it reports the damage.
            if let Ok(outdated) = Container::parse(&blob).and_then(outdated) {
                table.insert(name.as_slice(), outdated.as_slice())?;
            }
        }
    }
}

/// The names of fields as a text. Different names have different texts.
fn fields_text(names: &FieldNames) -> String {
    match names {
        FieldNames::Plain => "ours".into(),
        FieldNames::Dynamic => "dynamic".into(),
        FieldNames::Listed(pairs) => pairs.iter().map(|(ours, theirs)| format!("{ours}:{theirs},")).collect(),
    }
}

/// The default folder of records, by the XDG specification.
fn default_folder() -> Result<PathBuf, ImportError> {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let base = variable("XDG_STATE_HOME").or_else(|| variable("HOME").map(|home| home.join(".local/state")));
    Ok(base.ok_or(OptionError::NoStateFolder)?.join("strand"))
}

/// The name of the file for this dataset and this destination: letters and digits of the dataset's name, and a digest
/// that makes the file name unique.
fn file_name(dataset: &str, to: &Destination) -> String {
    let place = match to {
        Destination::Strand => "strand".to_owned(),
        Destination::Lines { path, .. } => {
            let absolute =
                path.as_deref().map(|path| std::path::absolute(path).unwrap_or_else(|_| path.into()));
            format!("lines {absolute:?}")
        }
        Destination::Solr(SolrTarget { servers, .. }) => {
            servers.iter().fold("solr".to_owned(), |mut text, server| {
                let (host, port) = (server.host_str().unwrap_or_default(), server.port_or_known_default());
                let _ = write!(text, " {host}:{port:?}{}", server.path());
                text
            })
        }
    };
    let digest = blake3::hash(format!("{dataset}\0{place}").as_bytes());
    let plain: String = dataset.chars().filter(char::is_ascii_alphanumeric).take(32).collect();
    format!("{plain}-{}.redb", &digest.to_hex()[..16])
}

fn state_error(path: &Path, error: impl Into<redb::Error>) -> ImportError {
    let path = path.to_path_buf();
    match error.into() {
        redb::Error::Corrupted(why) => ImportError::DamagedRecords { path, why },
        error => ImportError::State { path, error: Box::new(error) },
    }
}
