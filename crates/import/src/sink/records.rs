//! [`Stored`]: the records of a dataset in a local file, for a sink that stores no records.
//!
//! Each dataset has one redb file for each destination. A run locks the file, so a second importer is refused. A crash
//! never damages the file.

use super::{Destination, SolrTarget};
use crate::container::Container;
use crate::versions::damaged;
use crate::{ImportError, ImportOptions, OptionError};
use redb::{Database, DatabaseError, ReadableDatabase, TableDefinition, TableError, WriteTransaction};
use std::fmt::Write;
use std::path::{Path, PathBuf};

const CONTAINERS: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("containers");
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
    dataset: String,
    path: PathBuf,
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
        let opened = redb::Builder::new().set_cache_size(CACHE_BYTES).create(&path);
        let database = opened.map_err(|error| match error {
            DatabaseError::DatabaseAlreadyOpen => ImportError::Busy { dataset: options.into.clone() },
            error => state_error(&path, error),
        })?;
        Ok(Stored { file: Some(File { database, open: None, dataset: options.into.clone(), path }) })
    }

    /// Reads the container called `name`.
    pub(super) fn get(&mut self, name: &[u8]) -> Result<Option<Vec<u8>>, ImportError> {
        let Some(file) = &self.file else { return Ok(None) };
        let found = file.get(name).map_err(|error| state_error(&file.path, error))?;
        if let Some(blob) = &found {
            Container::parse(blob).map_err(|error| damaged(&file.dataset, name, error))?;
        }
        Ok(found)
    }

    pub(super) fn put(&mut self, name: &[u8], blob: &[u8]) -> Result<(), ImportError> {
        self.change(|file| {
            file.transaction()?.open_table(CONTAINERS)?.insert(name, blob)?;
            Ok(())
        })
    }

    pub(super) fn delete(&mut self, names: &[&[u8]]) -> Result<(), ImportError> {
        self.change(|file| {
            let mut table = file.transaction()?.open_table(CONTAINERS)?;
            names.iter().try_for_each(|name| table.remove(*name).map(|_| ()))?;
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
    fn transaction(&mut self) -> Result<&mut WriteTransaction, redb::Error> {
        if self.open.is_none() {
            self.open = Some(self.database.begin_write()?);
        }
        Ok(self.open.as_mut().expect("just begun"))
    }

    fn get(&self, name: &[u8]) -> Result<Option<Vec<u8>>, redb::Error> {
        use redb::ReadableTable;
        let copy = |found: redb::AccessGuard<'_, &[u8]>| found.value().to_vec();
        if let Some(open) = &self.open {
            return Ok(open.open_table(CONTAINERS)?.get(name)?.map(copy));
        }
        match self.database.begin_read()?.open_table(CONTAINERS) {
            Ok(table) => Ok(table.get(name)?.map(copy)),
            Err(TableError::TableDoesNotExist(_)) => Ok(None),
            Err(error) => Err(error.into()),
        }
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
    ImportError::State { path: path.to_path_buf(), error: Box::new(error.into()) }
}
