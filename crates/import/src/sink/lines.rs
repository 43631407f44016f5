//! [`TextFile`]: writes documents to a file or the standard output, as NDJSON or XML.
//!
//! A line of NDJSON is `{"fields":{...},"id":"NAME:path","op":"put"}` or `{"id":"NAME:path","op":"delete"}`. The XML
//! has Solr's update messages in one element `update`. A file has no name until all documents are on the disk. Some
//! file systems know no files without a name. There the file has a temporary name until then.

use super::outlet::{Feed, Receipt};
use super::update::{self, ChangeKind, Envelope};
use super::{Format, Rejected};
use crate::fields::Fields;
use crate::{ImportError, SinkError};
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use serde_json::{Map, Value};
use std::fs::{File, Permissions};
use std::io::{BufWriter, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

/// Bytes that are buffered before they are written.
const BUFFER_BYTES: usize = 64 << 10;

/// A file or the standard output.
pub(super) struct TextFile {
    format: Format,
    out: Option<BufWriter<Out>>,
    envelope: Envelope,
    dataset: String,
    /// The file's name, for messages.
    shown: String,
    buffer: Vec<u8>,
}

enum Out {
    Stdout(std::io::Stdout),
    /// A pipe or a device. It is written without a temporary file.
    Direct(File),
    /// A file without a name, and the path that the file gets at the end. A run that is killed leaves nothing, unless
    /// the kill comes between the two last steps of [`Out::publish`].
    Unnamed(File, PathBuf),
    /// A temporary file, and the path to which the file is renamed at the end.
    Temporary(NamedTempFile, PathBuf),
}

impl TextFile {
    /// Opens `path`, or the standard output. In a dry run nothing is opened.
    pub(super) fn open(
        format: Format,
        path: Option<&Path>,
        dataset: &str,
        dry_run: bool,
    ) -> Result<TextFile, ImportError> {
        let shown = path.map_or("the standard output".to_owned(), |path| path.display().to_string());
        let out = match path {
            _ if dry_run => None,
            None => Some(Out::Stdout(std::io::stdout())),
            Some(path) => Some(open_file(path).map_err(|error| sink_error(&shown, error))?),
        };
        let out = out.map(|out| BufWriter::with_capacity(BUFFER_BYTES, out));
        let mut this = TextFile {
            format,
            out,
            envelope: Envelope::new(None),
            dataset: dataset.to_owned(),
            shown,
            buffer: Vec::new(),
        };
        if format == Format::Xml {
            this.buffer.extend_from_slice(update::DECLARATION);
            this.write()?;
        }
        Ok(this)
    }

    /// Writes the buffer.
    fn write(&mut self) -> Result<(), ImportError> {
        let written = self.out.as_mut().map_or(Ok(()), |out| out.write_all(&self.buffer));
        self.buffer.clear();
        self.buffer.shrink_to(2 * BUFFER_BYTES);
        written.map_err(|error| sink_error(&self.shown, error))
    }

    fn line(&mut self, line: Map<String, Value>) -> Result<(), ImportError> {
        self.buffer = Value::Object(line).to_string().into_bytes();
        self.buffer.push(b'\n');
        self.write()
    }
}

impl Feed for TextFile {
    fn receipt(&self) -> Receipt {
        match self.out.as_ref().map(BufWriter::get_ref) {
            None | Some(Out::Unnamed(..) | Out::Temporary(..)) => Receipt::AtTheEnd,
            Some(_) => Receipt::ByTheEnd,
        }
    }

    fn put(&mut self, path: &[u8], fields: &Fields, _index: usize) -> Result<(), ImportError> {
        let id = update::id(&self.dataset, path);
        match self.format {
            Format::Ndjson => {
                let fields = fields.present().map(|(name, value)| (name.to_owned(), lossy(value)));
                self.line(Map::from_iter([
                    ("op".to_owned(), "put".into()),
                    ("id".to_owned(), id.into()),
                    ("fields".to_owned(), Value::Object(fields.collect())),
                ]))
            }
            Format::Xml => {
                self.envelope.begin_change(ChangeKind::Put, &mut self.buffer);
                update::put(&mut self.buffer, &id, fields.present());
                self.write()
            }
        }
    }

    fn delete(&mut self, path: &[u8]) -> Result<(), ImportError> {
        let id = update::id(&self.dataset, path);
        match self.format {
            Format::Ndjson => {
                self.line(Map::from_iter([("op".to_owned(), "delete".into()), ("id".to_owned(), id.into())]))
            }
            Format::Xml => {
                self.envelope.begin_change(ChangeKind::Delete, &mut self.buffer);
                update::delete(&mut self.buffer, &id);
                self.write()
            }
        }
    }

    fn settle(&mut self) -> Result<Vec<Rejected>, ImportError> {
        Ok(Vec::new())
    }

    fn finish(&mut self) -> Result<(), ImportError> {
        if self.format == Format::Xml {
            self.envelope.end(&mut self.buffer);
            self.write()?;
        }
        let Some(out) = self.out.take() else { return Ok(()) };
        let published = out.into_inner().map_err(|error| error.into_error()).and_then(Out::publish);
        published.map_err(|error| sink_error(&self.shown, error))
    }
}

fn open_file(path: &Path) -> std::io::Result<Out> {
    if std::fs::metadata(path).is_ok_and(|existing| !existing.is_file()) {
        return File::options().write(true).open(path).map(Out::Direct);
    }
    // If the path is a link, the file that the link names is replaced, and the link stays.
    let path = &std::fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
    let existing = std::fs::metadata(path).ok().map(|existing| existing.permissions());
    let folder = folder_of(path);
    // The process's umask removes some of the permissions of a new file.
    let permissions = existing.clone().unwrap_or_else(|| Permissions::from_mode(0o666));
    if let Some(file) = unnamed_file(folder, &permissions) {
        if let Some(existing) = existing {
            file.set_permissions(existing)?;
        }
        return Ok(Out::Unnamed(file, path.to_path_buf()));
    }
    let made = temporary_name().permissions(permissions).tempfile_in(folder);
    let file = made.map_err(|error| {
        // The library adds the path of the temporary file to the system's text. That path says nothing to the user.
        let text = error.to_string();
        let reason = text.split_once(" at path ").map_or(&text[..], |(reason, _)| reason);
        std::io::Error::new(error.kind(), format!("cannot create a file in {}: {reason}", folder.display()))
    })?;
    if let Some(existing) = existing {
        file.as_file().set_permissions(existing)?;
    }
    Ok(Out::Temporary(file, path.to_path_buf()))
}

/// A file in `folder` without a name. `None` where the file system knows no such files, as on NFS, or where the file
/// could not get a name later.
fn unnamed_file(folder: &Path, permissions: &Permissions) -> Option<File> {
    let flags = OFlags::WRONLY | OFlags::TMPFILE | OFlags::CLOEXEC;
    let mode = Mode::from_raw_mode(permissions.mode() & 0o777);
    let file: File = rustix::fs::open(folder, flags, mode).ok()?.into();
    open_path(&file).exists().then_some(file)
}

/// The path of an open file in /proc.
fn open_path(file: &File) -> PathBuf {
    format!("/proc/self/fd/{}", file.as_raw_fd()).into()
}

/// The builder of temporary files beside the sink's file.
pub(crate) fn temporary_name() -> tempfile::Builder<'static, 'static> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(".strand-");
    builder
}

/// The folder of a file. `.` for a plain name.
pub(crate) fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Gives a temporary file its name.
fn rename<F>(file: NamedTempFile<F>, path: &Path) -> std::io::Result<()> {
    file.persist(path).map_err(|error| error.error)?;
    // The records will say that the file has its name, so the name must survive a power failure, too.
    File::open(folder_of(path))?.sync_all()
}

impl Out {
    fn publish(self) -> std::io::Result<()> {
        match self {
            Out::Stdout(mut out) => out.flush(),
            Out::Direct(_) => Ok(()),
            Out::Unnamed(file, path) => {
                file.sync_all()?;
                let open_path = open_path(&file);
                // A link replaces no file, so the file gets a temporary name first.
                let link = |name: &Path| {
                    let linked = rustix::fs::linkat(CWD, &open_path, CWD, name, AtFlags::SYMLINK_FOLLOW);
                    linked.map_err(std::io::Error::from)
                };
                rename(temporary_name().make_in(folder_of(&path), link)?, &path)
            }
            Out::Temporary(file, path) => {
                file.as_file().sync_all()?;
                rename(file, &path)
            }
        }
    }
}

impl Write for Out {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        match self {
            Out::Stdout(out) => out.write(bytes),
            Out::Direct(out) => out.write(bytes),
            Out::Unnamed(out, _) => out.write(bytes),
            Out::Temporary(out, _) => out.write(bytes),
        }
    }
    fn flush(&mut self) -> std::io::Result<()> {
        match self {
            Out::Stdout(out) => out.flush(),
            Out::Direct(out) => out.flush(),
            Out::Unnamed(out, _) => out.flush(),
            Out::Temporary(out, _) => out.flush(),
        }
    }
}

fn lossy(value: &[u8]) -> Value {
    String::from_utf8_lossy(value).into_owned().into()
}

pub(super) fn sink_error(sink: &str, reason: impl Into<SinkError>) -> ImportError {
    ImportError::Sink { sink: sink.to_owned(), reason: reason.into() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::TempDir;

    #[test]
    fn a_file_that_is_replaced_keeps_its_permissions_and_its_links() {
        let folder = TempDir::new("output");
        folder.write("store/out.ndjson", b"before");
        let (file, link) = (folder.path().join("store/out.ndjson"), folder.path().join("link"));
        std::fs::set_permissions(&file, Permissions::from_mode(0o622)).unwrap();
        std::os::unix::fs::symlink("store/out.ndjson", &link).unwrap();
        let mut out = open_file(&link).unwrap();
        out.write_all(b"after").unwrap();
        out.publish().unwrap();
        assert_eq!(std::fs::read(&file).unwrap(), b"after");
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o622);
        assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
    }

    #[test]
    fn a_run_leaves_its_complete_file_or_nothing() {
        let folder = TempDir::new("output");
        let path = folder.path().join("out.ndjson");
        let names = || {
            let names = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name());
            names.collect::<Vec<_>>()
        };
        let mut cut = open_file(&path).unwrap();
        cut.write_all(b"half").unwrap();
        // On NFS the file has a temporary name, and a killed run leaves that file.
        if matches!(cut, Out::Unnamed(..)) {
            std::mem::forget(cut);
            assert_eq!(names().len(), 0);
        }
        let publish = |mut out: Out, text: &str| {
            out.write_all(text.as_bytes()).unwrap();
            out.publish().unwrap();
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
            assert_eq!(names(), ["out.ndjson"]);
        };
        publish(open_file(&path).unwrap(), "first");
        publish(open_file(&path).unwrap(), "second");
        publish(Out::Temporary(temporary_name().tempfile_in(folder.path()).unwrap(), path.clone()), "third");
    }
}
