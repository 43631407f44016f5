//! Finds and loads an append-only file. The server already answers, with LOADING except for commands that report on
//! its state.

use super::replay::run_other;
use super::{Names, manifest_path};
use crate::config::Opt;
use crate::folder::Folder;
use crate::host::OpenedFile;
use crate::persist::{Damage, DataError, ManifestProblem};
use crate::{Engine, Now, StartError, TABLE, system_text};
use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use strand_aof::check::starts_as_rdb;
use strand_aof::manifest::{self, File, Manifest};
use strand_aof::reader::{Commands, Item};
use strand_commands::replay::{Replay, RunOther};
use strand_wire::args::Argv;

/// Commands between two readings of the clock.
const COMMANDS_PER_CLOCK_READ: u64 = 1024;
/// Time between two log lines about the progress.
const LOGGED_US: u64 = 5_000_000;
/// Number of bytes at the start of a file that decide how the file is read.
const HEAD_BYTES: u64 = 6;

/// An append-only file that was found and is ready to be loaded.
pub struct FoundAof {
    pub(super) folder: Arc<dyn Folder>,
    pub(super) manifest: Manifest,
    files: Vec<(File, OpenedFile)>,
    total_bytes: u64,
    pub(super) base_bytes: u64,
    /// True when the file is the single file of Redis before 7. After loading it is moved into the folder.
    is_legacy: bool,
}

impl FoundAof {
    fn of(folder: Arc<dyn Folder>, manifest: Manifest) -> FoundAof {
        let (total_bytes, base_bytes) = (0, 0);
        FoundAof { folder, manifest, files: Vec::new(), total_bytes, base_bytes, is_legacy: false }
    }
    /// Bytes of all files of the append-only file.
    pub fn total_bytes(&self) -> u64 {
        self.total_bytes
    }
}

/// A file and its place among all loaded files.
struct LoadedFile<'a> {
    name: &'a str,
    /// The file's name, as an argument for `strand check aof`.
    checked: String,
    /// Number of bytes of the files before this one.
    bytes_before: u64,
    /// Number of bytes of all files.
    total_bytes: u64,
    is_last: bool,
}

impl Engine {
    /// True when the server loads its data from the append-only file. It then loads no snapshot.
    pub fn wants_aof(&self) -> bool {
        self.config.number(Opt::AppendOnly) != 0
    }
    /// Finds the append-only file without reading its data. The append-only file is the files in its folder, or a
    /// single file of Redis before 7.
    ///
    /// # Errors
    /// The problem, for the administrator. Nothing has been changed.
    pub fn find_aof(&self) -> Result<FoundAof, StartError> {
        self.find_files().map_err(StartError::Files)
    }
    fn find_files(&self) -> Result<FoundAof, DataError> {
        let names = Names::of(&self.config);
        let mut found = self.open_aof_folder()?;
        if let Some(old) = legacy_file(&*found.folder, &found.manifest, &names, self)? {
            (found.manifest, found.is_legacy) = (old, true);
        }
        self.open_files(&mut found, &names)?;
        Ok(found)
    }
    /// The files that `manifest` lists now, for loading them again.
    pub(super) fn reopen_aof(
        &self,
        folder: Arc<dyn Folder>,
        manifest: Manifest,
    ) -> Result<FoundAof, DataError> {
        let mut found = FoundAof::of(folder, manifest);
        self.open_files(&mut found, &Names::of(&self.config))?;
        Ok(found)
    }
    /// The files in the folder, which no writer has open.
    pub(super) fn find_left_files(&self) -> Result<FoundAof, DataError> {
        let mut found = self.open_aof_folder()?;
        self.open_files(&mut found, &Names::of(&self.config))?;
        Ok(found)
    }
    fn open_files(&self, found: &mut FoundAof, names: &Names) -> Result<(), DataError> {
        for file in found.manifest.to_load() {
            let opened = match found.is_legacy {
                true => self.host.open_file(&file.name).map_err(|e| std::io::Error::other(system_text(&e))),
                false => found.folder.open(&file.name),
            };
            let opened = opened
                .and_then(|opened| opened.ok_or_else(|| std::io::Error::other("the file does not exist")));
            let opened = opened.map_err(|why| DataError::OpenFile {
                folder: names.folder.clone(),
                file: file.name.clone(),
                manifest: names.manifest(),
                why,
            })?;
            found.total_bytes += opened.1;
            if found.manifest.base.as_ref() == Some(file) {
                found.base_bytes = opened.1;
            }
            found.files.push((file.clone(), opened));
        }
        Ok(())
    }
    /// Opens the folder and reads its manifest, for [`Engine::find_aof`].
    pub(super) fn open_aof_folder(&self) -> Result<FoundAof, DataError> {
        let names = Names::of(&self.config);
        let opened = self.host.open_folder(&names.folder, &names.file);
        let folder = opened.map_err(|why| DataError::UseFolder { folder: names.folder.clone(), why })?;
        let folder = folder.ok_or(DataError::NoFiles)?;
        let manifest = read_manifest(&*folder, &names)?;
        Ok(FoundAof::of(folder, manifest))
    }
    /// Loads the files into the empty keyspace.
    ///
    /// # Errors
    /// The file, the place, the problem, and advice. Everything before that place is loaded.
    pub(super) fn load_files(&self, found: &mut FoundAof, now: Now) -> Result<(), DataError> {
        let files = std::mem::take(&mut found.files);
        let (mut bytes_before, count, began_us) = (0, files.len(), self.host.mono_us());
        for (at, (file, (mut source, bytes))) in files.into_iter().enumerate() {
            let checked = match found.is_legacy {
                true => file.name.clone(),
                false => manifest_path(&self.config),
            };
            let (total_bytes, is_last) = (found.total_bytes, at + 1 == count);
            let place = LoadedFile { name: &file.name, checked, bytes_before, total_bytes, is_last };
            let good_bytes = self.load_file(&mut *source, &place, now)?;
            if std::mem::take(&mut found.is_legacy) {
                self.move_into_folder(found)?;
            }
            if good_bytes < bytes {
                drop(source);
                found.folder.cut(&file.name, good_bytes).map_err(|why| DataError::Truncate {
                    name: file.name.clone(),
                    good_bytes,
                    why,
                })?;
                found.total_bytes -= bytes - good_bytes;
            }
            bytes_before += bytes;
            let seconds = self.host.mono_us().saturating_sub(began_us) as f64 / 1e6;
            let kind = if found.manifest.base.as_ref() == Some(&file) { "base" } else { "incr" };
            self.host.log(&format!("DB loaded from {kind} file {}: {seconds:.3} seconds", file.name));
        }
        Ok(())
    }
    /// Moves the loaded single file of Redis before 7 into the folder.
    fn move_into_folder(&self, found: &FoundAof) -> Result<(), DataError> {
        let names = Names::of(&self.config);
        // The manifest comes first: after a kill in between, the next start continues here.
        let moved = write_manifest(&*found.folder, &found.manifest, &names)
            .and_then(|()| found.folder.adopt(&names.file));
        moved.map_err(|why| DataError::MoveIntoFolder {
            file: names.file.clone(),
            folder: names.folder.clone(),
            why,
        })?;
        self.host.log(&format!(
            "Successfully migrated an old-style AOF configuration ({}) into the AOF directory ({}).",
            names.file, names.folder
        ));
        Ok(())
    }
    /// Loads one file. Returns its good bytes.
    fn load_file(
        &self,
        mut source: &mut dyn Read,
        place: &LoadedFile<'_>,
        now: Now,
    ) -> Result<u64, DataError> {
        let name = place.name;
        let mut head = Vec::new();
        source
            .take(HEAD_BYTES)
            .read_to_end(&mut head)
            .map_err(|why| DataError::ReadFile { name: name.into(), why })?;
        let (buffered, offset) = match starts_as_rdb(&head) {
            false => (head, 0),
            true => {
                let mut whole = head.as_slice().chain(&mut source);
                self.load_preamble(name, &mut whole, place.bytes_before, place.total_bytes, now)?
            }
        };
        let mut commands = Commands::new(source, &buffered, offset);
        let (mut argv, mut replay) = (Argv::new(), Replay::new(&TABLE, self.facts.run_id_seed));
        let (began_us, mut logged_us, mut read) = (self.host.mono_us(), 0, 0u64);
        // The file is valid up to this offset.
        let mut good_bytes = offset;
        let ended = loop {
            let offset = commands.offset();
            if !replay.in_multi() {
                good_bytes = offset;
            }
            match commands.next(&mut argv) {
                Ok(Item::End) => break None,
                Ok(Item::Command) => {}
                Ok(Item::Timestamp(_) | Item::Annotation) => continue,
                Err(invalid) => break Some(invalid),
            }
            let run_other_command: RunOther<'_> = &mut |spec, args, db| run_other(self, spec, args, db, now);
            replay
                .command(&self.keyspace, &mut argv, now.unix_ms(), run_other_command)
                .map_err(|why| damaged(place, offset, why))?;
            read += 1;
            if read.is_multiple_of(COMMANDS_PER_CLOCK_READ) {
                self.persist.loading.loaded_bytes.store(place.bytes_before + offset, Relaxed);
                self.host.yield_now();
                let took_us = self.host.mono_us().saturating_sub(began_us);
                if took_us >= logged_us + LOGGED_US {
                    logged_us = took_us;
                    let percent =
                        (place.bytes_before + offset) as f64 * 100.0 / place.total_bytes.max(1) as f64;
                    self.host.log(&format!("loading {name}: {percent:.0} %, {read} commands of this file"));
                }
            }
        };
        self.persist.loading.loaded_bytes.store(place.bytes_before + commands.offset(), Relaxed);
        if let Some(error) = replay.first_error.take() {
            let (failed, all) = (replay.failed, replay.commands);
            self.host.warn(&format!(
                "== CRITICAL == {failed} of {all} commands in the append-only file {name} failed. The first error: \
                 {error}"
            ));
        }
        match ended {
            None if !replay.in_multi() => Ok(good_bytes),
            Some(invalid) if !invalid.is_truncated() => Err(damaged(place, invalid.offset, invalid.problem)),
            _ => self.handle_truncated_file(place, good_bytes, replay.in_multi()).map(|()| good_bytes),
        }
    }
    /// Handles a file that ends too early.
    fn handle_truncated_file(
        &self,
        place: &LoadedFile<'_>,
        good_bytes: u64,
        in_multi: bool,
    ) -> Result<(), DataError> {
        let name = place.name;
        if in_multi {
            self.host.warn(&format!("Revert incomplete MULTI/EXEC transaction from AOF file {name}"));
        }
        if !place.is_last {
            return Err(DataError::TruncatedBeforeLast { name: name.into(), checked: place.checked.clone() });
        }
        if self.config.number(Opt::AofLoadTruncated) == 0 {
            return Err(DataError::TruncatedAtEnd { name: name.into(), checked: place.checked.clone() });
        }
        self.host.warn(&format!("!!! Warning: short read while loading the AOF file {name}!!!"));
        self.host.warn(&format!("Truncating the AOF {name} at offset {good_bytes}"));
        self.host.warn(&format!("AOF {name} loaded anyway because aof-load-truncated is enabled"));
        Ok(())
    }
}

fn damaged(place: &LoadedFile<'_>, offset: u64, damage: impl Into<Damage>) -> DataError {
    let (name, checked) = (place.name.into(), place.checked.clone());
    DataError::Damaged { name, offset, damage: damage.into(), checked }
}

/// Reads the manifest. Without a manifest file, the manifest is empty.
fn read_manifest(folder: &dyn Folder, names: &Names) -> Result<Manifest, DataError> {
    let read = || {
        let Some((source, _)) = folder.open(&names.manifest())? else {
            return Ok(Manifest::default());
        };
        let mut text = Vec::new();
        source.take(manifest::BYTES_MAX + 1).read_to_end(&mut text)?;
        if text.len() as u64 > manifest::BYTES_MAX {
            return Err(ManifestProblem::TooLong);
        }
        Ok(Manifest::parse(&text)?)
    };
    read().map_err(|why| DataError::Manifest { path: names.manifest_path(), why })
}

/// A manifest with only the single file of Redis before 7, which is yet to be moved into the folder. `None`: there is
/// no such file.
fn legacy_file(
    folder: &dyn Folder,
    manifest: &Manifest,
    names: &Names,
    engine: &Engine,
) -> Result<Option<Manifest>, DataError> {
    let failed = |why: String| {
        let (file, folder) = (names.file.clone(), names.folder.clone());
        DataError::FindOldFile { file, folder, why }
    };
    if engine.host.open_file(&names.file).map_err(|e| failed(system_text(&e)))?.is_none() {
        return Ok(None);
    }
    let is_half_moved = manifest.increments.is_empty()
        && manifest.base.as_ref().is_some_and(|base| base.name == names.file)
        && folder.open(&names.file).map_err(|e| failed(e.to_string()))?.is_none();
    if manifest.to_load().next().is_some() && !is_half_moved {
        return Ok(None);
    }
    let base = Some(File { name: names.file.clone(), seq: 1 });
    Ok(Some(Manifest { base, ..Manifest::default() }))
}

/// Replaces the manifest in the folder, and syncs the folder.
pub(super) fn write_manifest(folder: &dyn Folder, manifest: &Manifest, names: &Names) -> std::io::Result<()> {
    replace_manifest(folder, manifest, names)?;
    folder.sync()
}

/// Replaces the manifest in the folder. Until the next [`Folder::sync`] a crash may bring the old manifest back.
pub(super) fn replace_manifest(
    folder: &dyn Folder,
    manifest: &Manifest,
    names: &Names,
) -> std::io::Result<()> {
    folder.replace(&names.manifest(), false, &mut |out| out.write_all(manifest.text().as_bytes()))
}
