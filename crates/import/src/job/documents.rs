//! A folder's own documents. Each document is kept, flagged, read and sent, or removed. The new container gets the
//! entries of the documents that stay.
//!
//! [`Job::documents`] is the entry. The bytes of a document decide what happens to it, or its text where a cache has
//! the text.

use super::failed::{self, Mode};
use super::moves::Moved;
use super::nested::{self, Nested};
use super::{Child, ERROR_NOTE, Job, join, record_error, view};
use crate::cache::texts::{self, Text};
use crate::container::{Builder, Container, ContainerError, Digest, Entry, Kind, digest};
use crate::diff::{Change, diff};
use crate::document::{EXTRACTOR_VERSION, FileFacts, Reading, extract, place_text};
use crate::extract::{Content, DOCUMENT_BYTES_MAX};
use crate::mail::MESSAGE_BYTES_MAX;
use crate::sink::Rejected;
use crate::source::{self, AT_NOTE, FLAGS_KEY, Tokens};
use crate::versions::{DIGEST_NOTE, INNER_NOTE, MAYBE_NOTE};
use crate::{ImportError, Outcome};

/// The note of a document with fields of its own names. The document's hash is replaced as a whole.
pub(super) const MORE_NOTE: &[u8] = b"~more";

/// The document's entry in the new container.
struct Record<'a> {
    token: &'a [u8],
    size: u64,
    digest: Option<&'a [u8]>,
    error: Option<&'a str>,
    /// True when it is unknown whether the server has the document.
    maybe: bool,
    /// The numbers of documents and failures in it, when it is an archive.
    inner: Option<&'a [u8]>,
    /// True when the document's hash has fields that are not in the list of fields.
    more: bool,
}

/// A document's place: its id, and its old and new entries.
#[derive(Clone, Copy)]
struct DocumentPlace<'a> {
    container: &'a [u8],
    path: &'a [u8],
    old: Option<Entry<'a>>,
    new: Entry<'a>,
    nested: Option<&'a nested::Opened>,
    /// A document that leaves another place, and that may have moved here.
    moved: Option<&'a Moved>,
}

impl DocumentPlace<'_> {
    /// True when the server holds the document for certain.
    fn is_held(&self) -> bool {
        self.old.is_some_and(|old| old.get(DIGEST_NOTE).is_some())
    }
    /// The note about the documents in it, for the new record.
    fn inner(&self) -> Option<&[u8]> {
        match self.nested {
            Some(opened) => opened.note.as_deref(),
            None => self.old.and_then(|old| old.get(INNER_NOTE)),
        }
    }
}

impl Job<'_> {
    /// Works on the folder's own documents. Returns the new container, of which the sink has acknowledged every change.
    pub(super) fn documents(
        &mut self,
        path: &[u8],
        old: Container<'_>,
        new: Container<'_>,
        children: &[Child],
        nested: &Nested,
        reread: bool,
    ) -> Result<Vec<u8>, ImportError> {
        let mut builder = Builder::with_capacity(EXTRACTOR_VERSION, new.len(), new.blob().len() * 2);
        let reread = reread || old.producer() != EXTRACTOR_VERSION;
        let retry = self.options.mode == Mode::RetryFailed;
        let moved = self.moved(old, new, path)?;
        let mut children = children.iter();
        // The source is told some documents ahead which documents will be read, and in which order.
        let will_read = |change: &Change<'_>| {
            let is_changed = matches!(change, Change::Added(_) | Change::Updated { .. });
            let is_there = !matches!(change, Change::Removed(_));
            !change.is_container() && (is_changed || is_there && reread)
        };
        let (mut ahead, mut asked) = (diff(old, new).filter(will_read), 0usize);
        for change in diff(old, new) {
            if will_read(&change) {
                while asked < self.source.ahead()
                    && let Some(next) = ahead.next()
                {
                    self.ask_for(path, &next.entry());
                    asked += 1;
                }
                asked = asked.saturating_sub(1);
            }
            let entry = change.entry();
            let child = join(path, entry.name);
            if entry.kind == Kind::Container {
                if !matches!(change, Change::Removed(_)) {
                    let child = children.next().expect("one for each container of the listing");
                    let pushed = builder.push(Kind::Container, entry.name, child.documents, &child.token, []);
                    pushed.map_err(record_error(path))?;
                }
                continue;
            }
            if matches!(change, Change::Removed(_)) {
                continue;
            }
            let (old, nested) = (change.recorded(), nested.get(entry.name));
            let moved = moved.get(entry.name).filter(|moved| nested::may_be(nested, moved));
            let place = DocumentPlace { container: path, path: &child, old, new: entry, nested, moved };
            match change {
                Change::Added(_) | Change::Updated { .. }
                    if let Some(moved) = moved.filter(|moved| moved.is_certainly(&entry)) =>
                {
                    self.reports.read += u64::from(self.within.parent().is_none());
                    self.copy(place, moved, entry.token, &mut builder)
                }
                Change::Unchanged { old, .. }
                    if !reread && nested.is_none() && !(retry && failed::has_failed(&old)) =>
                {
                    self.keep(place, old, &mut builder)
                }
                Change::Metadata { old, .. } if !reread && place.is_held() && self.sink.changes_fields() => {
                    self.flag(place, old, &mut builder)
                }
                _ => self.read(place, reread, &mut builder),
            }?;
        }
        let rejected = self.sink.drain()?;
        // Removals follow the additions, because a moved document is copied from its old place.
        for change in diff(old, new) {
            if let Change::Removed(entry) = change
                && entry.kind == Kind::Document
            {
                self.remove_document(path, &join(path, entry.name), entry)?;
            }
        }
        self.drain()?;
        let blob = builder.finish().map_err(record_error(path))?;
        if rejected.is_empty() {
            return Ok(blob);
        }
        self.reject(path, view(&blob), &rejected).map_err(record_error(path))
    }

    /// Tells the source that the document will be read soon, unless the cache has its text.
    fn ask_for(&mut self, container: &[u8], entry: &Entry<'_>) {
        let container = self.within.path(container);
        let version = texts::version(&*self.source, container, entry);
        let is_there = version.is_some_and(|v| self.source.cache().is_some_and(|cache| cache.has(v, 0)));
        if !is_there {
            self.source.prefetch(container, entry);
        }
    }

    /// Keeps the record of an unchanged document. A dead letter stays a dead letter.
    fn keep(
        &mut self,
        place: DocumentPlace<'_>,
        old: Entry<'_>,
        builder: &mut Builder,
    ) -> Result<(), ImportError> {
        let error = old.get(ERROR_NOTE).map(String::from_utf8_lossy);
        match &error {
            None => self.count(place.path, Outcome::Unchanged),
            Some(reason) => self.fail(place.path, reason),
        }
        let record = Record {
            token: place.new.token,
            size: old.size,
            digest: old.get(DIGEST_NOTE),
            error: error.as_deref(),
            maybe: false,
            inner: place.inner(),
            more: place.old.is_some_and(|old| old.get(MORE_NOTE).is_some()),
        };
        push(builder, place, &record)
    }

    /// Changes the field of the Maildir flags, without reading the message.
    fn flag(
        &mut self,
        place: DocumentPlace<'_>,
        old: Entry<'_>,
        builder: &mut Builder,
    ) -> Result<(), ImportError> {
        let flags = place.new.get(FLAGS_KEY).unwrap_or_default();
        self.sink.set_field(place.path, "flags", flags, builder.len())?;
        self.count(place.path, Outcome::Updated);
        let record = Record {
            token: place.new.token,
            size: old.size,
            digest: old.get(DIGEST_NOTE),
            error: None,
            maybe: false,
            inner: place.inner(),
            more: place.old.is_some_and(|old| old.get(MORE_NOTE).is_some()),
        };
        push(builder, place, &record)
    }

    /// Copies the document at the server from where it was before.
    fn copy(
        &mut self,
        place: DocumentPlace<'_>,
        moved: &Moved,
        token: &[u8],
        builder: &mut Builder,
    ) -> Result<(), ImportError> {
        let parent = self.within.parent().map(<[u8]>::to_vec);
        let mut fields = vec![("path", place.path), ("name", place.new.name)];
        fields.extend(place.new.get(FLAGS_KEY).map(|flags| ("flags", flags)));
        fields.extend(parent.as_deref().map(|parent| ("parent", parent)));
        self.sink.copy(&moved.at, place.path, &fields, place.is_held(), builder.len())?;
        self.has_moved(&place.new);
        self.summary.moved += 1;
        self.count(place.path, if place.is_held() { Outcome::Updated } else { Outcome::Added });
        let record = Record {
            token,
            size: moved.size,
            digest: Some(&moved.digest),
            error: None,
            maybe: false,
            inner: place.inner(),
            more: moved.more,
        };
        push(builder, place, &record)
    }

    /// Reads a document that is new, or that has a new token. Its bytes decide.
    fn read(
        &mut self,
        place: DocumentPlace<'_>,
        reread: bool,
        builder: &mut Builder,
    ) -> Result<(), ImportError> {
        let mut buffer = std::mem::take(&mut self.buffer);
        let done = self.read_into(place, reread, builder, &mut buffer);
        self.buffer = buffer;
        self.reports.read += u64::from(self.within.parent().is_none());
        done
    }

    fn read_into(
        &mut self,
        place: DocumentPlace<'_>,
        reread: bool,
        builder: &mut Builder,
        buffer: &mut Vec<u8>,
    ) -> Result<(), ImportError> {
        self.report(place.path)?;
        let flags = place.new.get(FLAGS_KEY);
        let parent = self.within.parent().map(<[u8]>::to_vec);
        let mut facts = FileFacts {
            path: place.path,
            name: place.new.name,
            size: place.new.size,
            flags,
            parent: parent.as_deref(),
            archive: place.nested.and_then(|nested| nested.kind),
        };
        let _loan = self.options.memory.for_document(self.source.size(&place.new), place.path);
        let version = texts::version(&*self.source, self.within.path(place.container), &place.new);
        // An archive's own document has only name and size, so the archive is not read for it.
        let version = version.filter(|_| facts.archive.is_none());
        let text = version.and_then(|version| self.source.cache()?.text(version));
        let (mut is_mail, mut content) = (false, None);
        let (token, digest);
        if let Some(text) = &text {
            facts.size = text.size;
            token = place.new.token.to_vec();
            digest = text.digest;
        } else {
            self.summary.opened += 1;
            let (source, container) = (&mut self.source, self.within.path(place.container));
            let meter = Some(&self.meter).filter(|_| self.within.parent().is_none());
            let read = source::read::read(
                || {
                    let object = source.open(container, &place.new)?;
                    Ok(match meter {
                        Some(meter) => meter.on(object),
                        None => object,
                    })
                },
                buffer,
                |beginning, size| {
                    is_mail = facts.is_mail(beginning);
                    content = match is_mail || facts.archive.is_some() || size > DOCUMENT_BYTES_MAX {
                        true => None,
                        false => Content::of(facts.name, beginning),
                    };
                    is_mail && size <= MESSAGE_BYTES_MAX || content.is_some()
                },
            );
            self.summary.bytes_read = self.meter.bytes();
            let done = match read {
                Ok(done) => done,
                // The server keeps the document as it is. The next run tries again.
                Err(error) => return self.dead(place, &[], &error.to_string(), true, builder),
            };
            // The file was written a moment ago. Its content is sent, and the next run looks at the file again.
            let young = done.stat.is_young && done.stat.token != place.new.token;
            token = if young { Vec::new() } else { done.stat.token.clone() };
            facts.size = done.stat.size;
            if is_mail && !done.whole {
                let reason = format!("the message has {} bytes, more than {MESSAGE_BYTES_MAX}", facts.size);
                return self.dead(place, &token, &reason, false, builder);
            }
            digest = match self.source.tokens() {
                Tokens::Content => self::digest(&done.stat.token),
                Tokens::Stamps if is_mail || content.is_some() => self::digest(buffer),
                Tokens::Stamps => file_digest(facts.size),
            };
        }
        let token = &token[..];
        let held = place.old.and_then(|old| old.get(DIGEST_NOTE)) == Some(&digest[..]);
        if let Some(moved) = place.moved.filter(|moved| moved.digest == digest && !held) {
            return self.copy(place, moved, token, builder);
        }
        // The bytes belong to the version that the listing named, so the text is kept under that version.
        let version = version.filter(|_| text.is_none() && token == place.new.token);
        // A document is sent again when it is read again because something in it failed.
        let is_retried = self.options.mode == Mode::RetryFailed
            && place.old.is_some_and(|old| old.get(ERROR_NOTE).is_some());
        let same_metadata = place.old.is_some_and(|old| old.same_metadata(&place.new));
        let is_kept = held && !reread && !is_retried && (same_metadata || self.sink.changes_fields());
        let mut error = place.nested.and_then(|nested| nested.error.clone());
        let mut fields = None;
        if is_kept {
            // The reader fails in the same way on the same bytes.
            let is_read = content.is_some() || text.is_some();
            let before = place.old.and_then(|old| old.get(ERROR_NOTE)).filter(|_| is_read);
            error = error.or_else(|| before.map(|reason| String::from_utf8_lossy(reason).into_owned()));
        } else {
            let reading = match content {
                Some(content) => Reading::Other(content, buffer),
                None if is_mail => Reading::Mail(buffer),
                None => Reading::Not,
            };
            let extracted = match text {
                Some(text) => Ok((place_text(&facts, text), None)),
                None => extract(&facts, reading, &mut self.extractor),
            };
            match extracted {
                Ok((extracted, failure)) => {
                    if let (Some(version), Some(cache), None) = (version, self.source.cache(), &failure) {
                        let bytes = Text::encode(facts.size, &digest, &extracted);
                        bytes.iter().for_each(|bytes| cache.keep(version, 0, bytes));
                    }
                    fields = Some(extracted);
                    error = error.or_else(|| failure.map(|failure| failure.to_string()));
                }
                Err(error) => return self.dead(place, token, &error.to_string(), false, builder),
            }
        }
        let error = error.as_deref();
        let names_fields = fields.as_ref().is_some_and(|fields| fields.more_len() > 0);
        let named_fields = place.old.is_some_and(|old| old.get(MORE_NOTE).is_some());
        let record = Record {
            token,
            size: facts.size,
            digest: Some(&digest),
            error,
            maybe: false,
            inner: place.inner(),
            more: names_fields || is_kept && named_fields,
        };
        let Some(fields) = fields else {
            if same_metadata {
                self.count(place.path, error.map_or(Outcome::Unchanged, Outcome::Failed));
            } else {
                let flags = flags.unwrap_or_default();
                self.sink.set_field(place.path, "flags", flags, builder.len())?;
                self.count(place.path, Outcome::Updated);
            }
            return push(builder, place, &record);
        };
        if self.options.mode == Mode::Verify {
            let outcome = self.sink.difference(place.path, &fields)?;
            let outcome = outcome.as_deref().or(error);
            self.count(place.path, outcome.map_or(Outcome::Unchanged, Outcome::Failed));
            return push(builder, place, &record);
        }
        self.sink.replace(place.path, &fields, place.is_held(), named_fields, builder.len())?;
        let outcome = if place.is_held() { Outcome::Updated } else { Outcome::Added };
        self.count(place.path, error.map_or(outcome, Outcome::Failed));
        push(builder, place, &record)
    }

    /// Records a dead letter. With `keep` the server keeps the document, which may still be right. Else the document is
    /// removed.
    fn dead(
        &mut self,
        place: DocumentPlace<'_>,
        token: &[u8],
        reason: &str,
        keep: bool,
        builder: &mut Builder,
    ) -> Result<(), ImportError> {
        let held = place.old.and_then(|old| old.get(DIGEST_NOTE));
        let maybe = place.old.is_some_and(|old| old.get(MAYBE_NOTE).is_some());
        if !keep && (held.is_some() || maybe) {
            self.sink.remove(place.path)?;
        }
        self.fail(place.path, reason);
        let digest = held.filter(|_| keep);
        push(
            builder,
            place,
            &Record {
                token,
                size: place.new.size,
                digest,
                error: Some(reason),
                maybe: keep && maybe,
                inner: place.inner(),
                more: place.old.is_some_and(|old| old.get(MORE_NOTE).is_some()),
            },
        )
    }

    pub(super) fn remove_document(
        &mut self,
        container: &[u8],
        path: &[u8],
        old: Entry<'_>,
    ) -> Result<(), ImportError> {
        let held = old.get(DIGEST_NOTE).is_some();
        self.leaves(path)?;
        if held || old.get(MAYBE_NOTE).is_some() {
            self.sink.remove(path)?;
        }
        if held && self.options.mode == Mode::Verify {
            self.fail(path, "the server has it, the source does not");
        } else if held {
            self.progress.removed_from(container, old.name, old.token);
            self.count(path, Outcome::Removed);
        }
        Ok(())
    }

    /// Builds the container again. Documents that the server refused become dead letters, which the next run tries
    /// again.
    fn reject(
        &mut self,
        path: &[u8],
        built: Container<'_>,
        rejected: &[Rejected],
    ) -> Result<Vec<u8>, ContainerError> {
        let mut builder = Builder::with_capacity(EXTRACTOR_VERSION, built.len(), built.blob().len() * 2);
        for (i, entry) in built.iter().enumerate() {
            let Some(refusal) = rejected.iter().find(|r| r.index == i) else {
                builder.push(entry.kind, entry.name, entry.size, entry.token, entry.pairs())?;
                continue;
            };
            match refusal.was_added {
                true => self.summary.added -= 1,
                false => self.summary.updated -= 1,
            }
            self.fail(&join(path, entry.name), &refusal.reason);
            let pairs = entry.pairs().filter(|(key, _)| *key != DIGEST_NOTE);
            let error = std::iter::once((ERROR_NOTE, refusal.reason.as_bytes()));
            let maybe = refusal.stays.then_some((MAYBE_NOTE, &b"1"[..]));
            builder.push(entry.kind, entry.name, entry.size, &[], pairs.chain(error).chain(maybe))?;
        }
        builder.finish()
    }
}

fn push(builder: &mut Builder, place: DocumentPlace<'_>, record: &Record<'_>) -> Result<(), ImportError> {
    let notes = [
        (FLAGS_KEY, place.new.get(FLAGS_KEY)),
        (AT_NOTE, place.new.get(AT_NOTE)),
        (DIGEST_NOTE, record.digest),
        (ERROR_NOTE, record.error.map(str::as_bytes)),
        (MAYBE_NOTE, record.maybe.then_some(&b"1"[..])),
        (INNER_NOTE, record.inner),
        (MORE_NOTE, record.more.then_some(&b"1"[..])),
    ];
    let pairs = notes.into_iter().filter_map(|(key, value)| Some((key, value?)));
    let pushed = builder.push(Kind::Document, place.new.name, record.size, record.token, pairs);
    pushed.map_err(record_error(place.container))
}

/// The digest of a file that is not read. Its document has only the size, so only the size can differ.
fn file_digest(size: u64) -> Digest {
    digest(format!("file of {size} bytes").as_bytes())
}
