//! Imports the documents of one folder. Each document is left as it is, gets new flags, is read and sent, is copied
//! from its old place, or is removed. [`Job::documents`] is the entry. It also builds the folder's new container.

use super::failed::{self, ImportMode};
use super::moves::Departure;
use super::nested::{self, Nested};
use super::{Child, ERROR_NOTE, Job, join, record_error, view};
use crate::cache::texts::{self, Text};
use crate::container::{
    Container, ContainerBuilder, ContainerDigest, ContainerError, Entry, EntryKind, digest,
};
use crate::diff::{Change, diff};
use crate::document::{EXTRACTOR_VERSION, FileFacts, Reading, extract, place_text};
use crate::extract::{Content, DOCUMENT_BYTES_MAX};
use crate::mail::{MESSAGE_BYTES_MAX, MailError};
use crate::sink::Rejected;
use crate::source::{self, FLAGS_KEY, LOCATION_NOTE, Tokens};
use crate::summary::short_reason;
use crate::versions::{self, DIGEST_NOTE, INNER_NOTE, MAYBE_NOTE};
use crate::{ImportError, Outcome};
use std::collections::HashMap;

/// The note of a document whose hash has fields outside of the list of fields. The hash is replaced as a whole.
pub(super) const EXTRA_FIELDS_NOTE: &[u8] = b"~more";

/// The document's entry in the new container.
struct Record<'a> {
    token: &'a [u8],
    size: u64,
    digest: Option<&'a [u8]>,
    error: Option<&'a str>,
    /// The value of [`MAYBE_NOTE`], when it is not certain that the server has the document.
    maybe: Option<&'a [u8]>,
    /// The value of [`INNER_NOTE`], if the document is an archive.
    inner: Option<&'a [u8]>,
    /// True when the document's hash has fields that are not in the list of fields.
    has_extra_fields: bool,
}

/// A document's place: its id, and its old and new entries.
#[derive(Clone, Copy)]
struct DocumentPlace<'a> {
    container: &'a [u8],
    path: &'a [u8],
    old: Option<Entry<'a>>,
    new: Entry<'a>,
    nested: Option<&'a nested::Opened>,
    /// A document that was removed or replaced at another place, and that may have moved here.
    moved: Option<&'a Departure>,
    /// What was known of the container before the run.
    known: Container<'a>,
}

impl DocumentPlace<'_> {
    /// True when the server certainly holds the document.
    fn is_held(&self) -> bool {
        self.old.is_some_and(|old| old.get(DIGEST_NOTE).is_some())
    }
    /// True when the server certainly does not hold the document.
    fn is_missing(&self) -> bool {
        self.old.is_none_or(|old| old.get(DIGEST_NOTE).is_none() && old.get(MAYBE_NOTE).is_none())
    }
    /// How a document counts that was sent or copied.
    fn outcome(&self) -> Outcome<'static> {
        if was_present(self.known, self.new.name) { Outcome::Updated } else { Outcome::Added }
    }
    /// The value of [`INNER_NOTE`] for the new record. `None` when the document is not an archive.
    fn inner(&self) -> Option<&[u8]> {
        match self.nested {
            Some(opened) => opened.note.as_deref(),
            None => self.old.and_then(|old| old.get(INNER_NOTE)),
        }
    }
}

impl Job<'_> {
    /// Imports the folder's own documents. Returns the new container when the sink has acknowledged every change.
    pub(super) fn documents(
        &mut self,
        path: &[u8],
        old: Container<'_>,
        new: Container<'_>,
        children: &[Child],
        nested: &Nested,
        reread: bool,
    ) -> Result<Vec<u8>, ImportError> {
        let retry = self.options.mode == ImportMode::RetryFailed;
        // A retry opens only failed documents, so it changes no attachments of others.
        let is_known = retry && !old.is_empty();
        let attachments = if is_known { versions::has_attachments(old) } else { self.attachments };
        let producer = versions::producer(attachments);
        let mut builder = ContainerBuilder::with_capacity(producer, new.len(), new.blob().len() * 2);
        let reread = reread || versions::extractor(old) != EXTRACTOR_VERSION;
        let moved = self.find_moves(old, new, path)?;
        let mut children = children.iter();
        // The source gets to know the next documents that will be read, in the order of reading, so it can fetch them.
        let will_read = |change: &Change<'_>| {
            let is_changed = matches!(change, Change::Added(_) | Change::Updated { .. });
            let exists = !matches!(change, Change::Removed(_));
            !change.is_container() && (is_changed || exists && reread)
        };
        let (mut next_reads, mut prefetched) = (diff(old, new).filter(will_read), 0usize);
        for change in diff(old, new) {
            if will_read(&change) {
                while prefetched < self.source.prefetch_max()
                    && let Some(next) = next_reads.next()
                {
                    self.prefetch(path, &next.entry());
                    prefetched += 1;
                }
                prefetched = prefetched.saturating_sub(1);
            }
            let entry = change.entry();
            let child = join(path, entry.name);
            if entry.kind == EntryKind::Container {
                if !matches!(change, Change::Removed(_)) {
                    let child = children.next().expect("one for each container of the listing");
                    let error =
                        child.error.as_deref().map(|reason| (ERROR_NOTE, short_reason(reason).as_bytes()));
                    let pushed =
                        builder.push(EntryKind::Container, entry.name, child.documents, &child.token, error);
                    pushed.map_err(record_error(path))?;
                }
                continue;
            }
            if matches!(change, Change::Removed(_)) {
                continue;
            }
            let (known, old, nested) = (old, change.recorded(), nested.get(entry.name));
            let moved = moved.get(entry.name).filter(|moved| nested::matches_move(nested, moved));
            let place =
                DocumentPlace { container: path, path: &child, old, new: entry, nested, moved, known };
            match change {
                Change::Added(_) | Change::Updated { .. }
                    if let Some(moved) = moved.filter(|moved| moved.has_same_bytes_as(&entry)) =>
                {
                    self.reports.read += u64::from(self.archive.id().is_none());
                    self.copy(place, moved, entry.token, &mut builder)
                }
                Change::Unchanged { old, .. }
                    if !reread && nested.is_none() && !(retry && failed::has_failed(&old)) =>
                {
                    self.keep(place, old, &mut builder)
                }
                Change::Metadata { old, .. } if !reread && place.is_held() && self.sink.can_set_fields() => {
                    self.flag(place, old, &mut builder)
                }
                _ => self.read(place, reread, &mut builder),
            }?;
        }
        let rejected = self.sink.drain()?;
        // Removals follow the additions: a moved document is copied from its old place before it is removed there.
        for change in diff(old, new) {
            if let Change::Removed(entry) = change
                && entry.kind == EntryKind::Document
            {
                self.remove_document(path, &join(path, entry.name), entry)?;
            }
        }
        self.remove_in_place_of_folders(path, old, new)?;
        self.drain()?;
        let blob = builder.finish().map_err(record_error(path))?;
        if rejected.is_empty() {
            return Ok(blob);
        }
        self.reject(path, old, view(&blob), &rejected).map_err(record_error(path))
    }

    /// Lets the source fetch a document that will be read soon, unless the cache has the document's text.
    fn prefetch(&mut self, container: &[u8], entry: &Entry<'_>) {
        let container = self.archive.path(container);
        let version = texts::version(&*self.source, container, entry);
        let is_cached = version.is_some_and(|v| self.source.cache().is_some_and(|cache| cache.has(v, 0)));
        if !is_cached {
            self.source.prefetch(container, entry);
        }
    }

    /// Copies the record of an unchanged document to the new container. A failed document stays a failed document.
    fn keep(
        &mut self,
        place: DocumentPlace<'_>,
        old: Entry<'_>,
        builder: &mut ContainerBuilder,
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
            maybe: None,
            inner: place.inner(),
            has_extra_fields: place.old.is_some_and(|old| old.get(EXTRA_FIELDS_NOTE).is_some()),
        };
        push(builder, place, &record)
    }

    /// Sets the field `flags` of a message in a Maildir, without reading the message.
    fn flag(
        &mut self,
        place: DocumentPlace<'_>,
        old: Entry<'_>,
        builder: &mut ContainerBuilder,
    ) -> Result<(), ImportError> {
        let flags = place.new.get(FLAGS_KEY).unwrap_or_default();
        self.sink.set_field(place.path, "flags", flags, builder.len())?;
        self.count(place.path, Outcome::Updated);
        let record = Record {
            token: place.new.token,
            size: old.size,
            digest: old.get(DIGEST_NOTE),
            error: None,
            maybe: None,
            inner: place.inner(),
            has_extra_fields: place.old.is_some_and(|old| old.get(EXTRA_FIELDS_NOTE).is_some()),
        };
        push(builder, place, &record)
    }

    /// Makes the server copy the document from its old place.
    fn copy(
        &mut self,
        place: DocumentPlace<'_>,
        moved: &Departure,
        token: &[u8],
        builder: &mut ContainerBuilder,
    ) -> Result<(), ImportError> {
        let parent = self.archive.id().map(<[u8]>::to_vec);
        let mut fields = vec![("path", place.path), ("name", place.new.name)];
        fields.extend(place.new.get(FLAGS_KEY).map(|flags| ("flags", flags)));
        fields.extend(parent.as_deref().map(|parent| ("parent", parent)));
        self.sink.copy(&moved.place, place.path, &fields, place.is_held(), builder.len())?;
        self.note_copied(&place.new);
        self.summary.moved += 1;
        self.count(place.path, place.outcome());
        let record = Record {
            token,
            size: moved.size,
            digest: Some(&moved.digest),
            error: None,
            maybe: None,
            inner: place.inner(),
            has_extra_fields: moved.has_extra_fields,
        };
        push(builder, place, &record)
    }

    /// Reads a document, and sends it if its bytes or its place differ from the record.
    fn read(
        &mut self,
        place: DocumentPlace<'_>,
        reread: bool,
        builder: &mut ContainerBuilder,
    ) -> Result<(), ImportError> {
        let mut buffer = std::mem::take(&mut self.buffer);
        let done = self.read_into(place, reread, builder, &mut buffer);
        self.buffer = buffer;
        self.reports.read += u64::from(self.archive.id().is_none());
        done
    }

    fn read_into(
        &mut self,
        place: DocumentPlace<'_>,
        reread: bool,
        builder: &mut ContainerBuilder,
        buffer: &mut Vec<u8>,
    ) -> Result<(), ImportError> {
        self.report(place.path)?;
        let flags = place.new.get(FLAGS_KEY);
        let parent = self.archive.id().map(<[u8]>::to_vec);
        let mut facts = FileFacts {
            path: place.path,
            name: place.new.name,
            size: place.new.size,
            flags,
            parent: parent.as_deref(),
            archive: place.nested.and_then(|nested| nested.kind),
        };
        let _loan = self.options.memory.for_document(self.source.size(&place.new), place.path);
        let version = texts::version(&*self.source, self.archive.path(place.container), &place.new);
        // The document of an archive file has only name and size, so the cache has no text for it.
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
            let is_candidate = self.may_be_archive(&place.new);
            let (source, container) = (&mut self.source, self.archive.path(place.container));
            let meter = Some(&self.meter).filter(|_| self.archive.id().is_none());
            let read = source::read::read(
                || {
                    let object = source.open(container, &place.new)?;
                    Ok(match meter {
                        Some(meter) => meter.wrap(object),
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
                // The server keeps the old document. The next run reads the file again, unless the bytes of the archive
                // are the cause. The token of the new bytes is not recorded beside an old document.
                Err(error) => {
                    let lasts = place.is_missing() && self.lasts_in_archive(&error);
                    let token = if lasts { place.new.token } else { &[] };
                    return self.record_failure(place, token, &error.to_string(), true, builder);
                }
            };
            // A file that was written a moment ago may change again without a new token. Send its content, and record
            // an empty token, so that the next run reads the file again.
            // An archive was opened before this read, so it is unknown whether its documents are those of these bytes.
            let has_changed = done.stat.token != place.new.token;
            let is_doubtful = has_changed && (done.stat.is_young || is_candidate);
            token = if is_doubtful { Vec::new() } else { done.stat.token.clone() };
            facts.size = done.stat.size;
            if is_mail && !done.whole {
                let size = facts.size;
                let reason = format!("the message has {size} bytes, more than {MESSAGE_BYTES_MAX}");
                return self.record_failure(place, &token, &reason, false, builder);
            }
            digest = match self.source.tokens() {
                Tokens::Content => self::digest(&done.stat.token),
                Tokens::Stamps if is_mail || content.is_some() => self::digest(buffer),
                Tokens::Stamps => file_digest(facts.archive.unwrap_or("file"), facts.size),
            };
        }
        let token = &token[..];
        let held = place.old.and_then(|old| old.get(DIGEST_NOTE)) == Some(&digest[..]);
        if let Some(moved) = place.moved.filter(|moved| moved.digest == digest && !held) {
            return self.copy(place, moved, token, builder);
        }
        // Cache the text only if the bytes still have the token of the listing: the cache key is made of that token.
        let version = version.filter(|_| text.is_none() && token == place.new.token);
        // A retry sends the document even if its bytes are unchanged.
        let is_retried = self.options.mode == ImportMode::RetryFailed
            && place.old.is_some_and(|old| old.get(ERROR_NOTE).is_some());
        let same_metadata = place.old.is_some_and(|old| old.same_metadata(&place.new));
        // The run before could not read the document, so it does not know whether the extraction fails. Or it could not
        // open an archive, so the document may have another kind.
        let is_opened_now =
            place.nested.is_some_and(|nested| nested.kind.is_some() && nested.error.is_none());
        let was_unread = place
            .old
            .is_some_and(|old| old.get(ERROR_NOTE).is_some() && (old.token.is_empty() || is_opened_now));
        let is_kept =
            held && !reread && !is_retried && !was_unread && (same_metadata || self.sink.can_set_fields());
        let mut error = place.nested.and_then(|nested| nested.error.clone());
        let mut fields = None;
        if is_kept {
            // Equal bytes mostly give an equal failure, so keep the recorded reason. A retry extracts them again.
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
                // The server's document was made of the same bytes, and may have their text.
                Ok((_, Some(failure))) if held && failure.may_pass() => {
                    return self.record_failure(place, token, &failure.to_string(), true, builder);
                }
                Ok((extracted, failure)) => {
                    if let (Some(version), Some(cache), None) = (version, self.source.cache(), &failure) {
                        let bytes = Text::encode(facts.size, &digest, &extracted);
                        bytes.iter().for_each(|bytes| cache.keep(version, 0, bytes));
                    }
                    fields = Some(extracted);
                    error = error.or_else(|| failure.map(|failure| failure.to_string()));
                }
                // The document may be fine, so it stays at the server, and the next run tries again.
                Err(error @ (MailError::Stack { .. } | MailError::Panic)) => {
                    return self.record_failure(place, &[], &error.to_string(), true, builder);
                }
                Err(error) => return self.record_failure(place, token, &error.to_string(), false, builder),
            }
        }
        let error = error.as_deref();
        let names_fields = fields.as_ref().is_some_and(|fields| fields.extra_len() > 0);
        // Nothing is known about the fields of a doubtful document.
        let may_have = |old: Entry<'_>| old.get(EXTRA_FIELDS_NOTE).is_some() || old.get(MAYBE_NOTE).is_some();
        let named_fields = place.old.is_some_and(may_have);
        let record = Record {
            token,
            size: facts.size,
            digest: Some(&digest),
            error,
            maybe: None,
            inner: place.inner(),
            has_extra_fields: names_fields || is_kept && named_fields,
        };
        let Some(fields) = fields else {
            if same_metadata {
                self.count(place.path, error.map_or(Outcome::Unchanged, Outcome::Failed));
            } else {
                let flags = flags.unwrap_or_default();
                self.sink.set_field(place.path, "flags", flags, builder.len())?;
                self.count(place.path, error.map_or(Outcome::Updated, Outcome::Failed));
            }
            return push(builder, place, &record);
        };
        if self.options.mode == ImportMode::Verify {
            let outcome = self.sink.difference(place.path, &fields)?;
            let outcome = outcome.as_deref().or(error);
            self.count(place.path, outcome.map_or(Outcome::Unchanged, Outcome::Failed));
            return push(builder, place, &record);
        }
        self.sink.replace(place.path, &fields, place.is_held(), named_fields, builder.len())?;
        self.count(place.path, error.map_or(place.outcome(), Outcome::Failed));
        push(builder, place, &record)
    }

    /// Records a failed document. `keep`: the server keeps its document, which may still be right. Otherwise the server's
    /// document is removed.
    fn record_failure(
        &mut self,
        place: DocumentPlace<'_>,
        token: &[u8],
        reason: &str,
        keep: bool,
        builder: &mut ContainerBuilder,
    ) -> Result<(), ImportError> {
        let held = place.old.and_then(|old| old.get(DIGEST_NOTE));
        let maybe = place.old.and_then(|old| old.get(MAYBE_NOTE));
        if !keep && (held.is_some() || maybe.is_some()) {
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
                maybe: maybe.filter(|_| keep),
                inner: place.inner(),
                has_extra_fields: place.old.is_some_and(|old| old.get(EXTRA_FIELDS_NOTE).is_some()),
            },
        )
    }

    /// Removes documents that a run that was cut short may have sent in the place of folders.
    pub(super) fn remove_in_place_of_folders(
        &mut self,
        path: &[u8],
        old: Container<'_>,
        new: Container<'_>,
    ) -> Result<(), ImportError> {
        let is_doubtful = |e: &Entry<'_>| e.kind == EntryKind::Container && e.get(MAYBE_NOTE).is_some();
        for folder in old.iter().filter(is_doubtful) {
            if new.find(folder.name).is_none_or(|now| now.kind == EntryKind::Container) {
                let document = join(path, folder.name);
                let is_present = versions::is_present(&folder);
                if is_present {
                    self.check_document()?;
                }
                self.sink.remove(&document)?;
                if is_present && self.options.mode != ImportMode::Verify {
                    self.progress.removed_from(path, folder.name, b"");
                    self.count(&document, Outcome::Removed);
                }
            }
        }
        Ok(())
    }

    /// Removes the document of the recorded entry `old` from the sink, and counts it.
    pub(super) fn remove_document(
        &mut self,
        container: &[u8],
        path: &[u8],
        old: Entry<'_>,
    ) -> Result<(), ImportError> {
        let held = versions::may_be_lost(&old);
        if held {
            self.check_document()?;
        }
        self.stash_before_change(path)?;
        if held || old.get(MAYBE_NOTE).is_some() {
            self.sink.remove(path)?;
        }
        if held && self.options.mode == ImportMode::Verify {
            self.fail(path, "the server has it, the source does not");
        } else if held {
            self.progress.removed_from(container, old.name, old.token);
            self.count(path, Outcome::Removed);
        }
        Ok(())
    }

    /// Builds the container again. Documents that the server refused become failed documents. The next run sends them
    /// again. `old`: what was known before the run.
    fn reject(
        &mut self,
        path: &[u8],
        old: Container<'_>,
        built: Container<'_>,
        rejected: &[Rejected],
    ) -> Result<Vec<u8>, ContainerError> {
        let mut builder =
            ContainerBuilder::with_capacity(built.producer(), built.len(), built.blob().len() * 2);
        let rejected: HashMap<usize, &Rejected> = rejected.iter().map(|r| (r.index, r)).collect();
        for (i, entry) in built.iter().enumerate() {
            let Some(refusal) = rejected.get(&i) else {
                builder.push(entry.kind, entry.name, entry.size, entry.token, entry.pairs())?;
                continue;
            };
            // A document whose content could not be extracted is counted as failed already.
            if entry.get(ERROR_NOTE).is_none() {
                match was_present(old, entry.name) {
                    true => self.summary.updated -= 1,
                    false => self.summary.added -= 1,
                }
                self.fail(&join(path, entry.name), &refusal.reason);
            }
            let replaced = |key: &[u8]| {
                key == DIGEST_NOTE || key == ERROR_NOTE || key == MAYBE_NOTE && refusal.document_may_remain
            };
            let pairs = entry.pairs().filter(|(key, _)| !replaced(key));
            let error = std::iter::once((ERROR_NOTE, short_reason(&refusal.reason).as_bytes()));
            let maybe = refusal.document_may_remain.then_some((MAYBE_NOTE, versions::UNKNOWN));
            builder.push(entry.kind, entry.name, entry.size, &[], pairs.chain(error).chain(maybe))?;
        }
        builder.finish()
    }
}

/// True when the server had the key of the document `name` before the run, as far as the records tell. `old`: what was
/// known of the container. It may have a folder of this name, and a document of a run that was cut short in its place.
fn was_present(old: Container<'_>, name: &[u8]) -> bool {
    old.find(name).is_some_and(|old| versions::is_present(&old))
}

/// Adds the document's entry, with its notes, to the new container.
fn push(
    builder: &mut ContainerBuilder,
    place: DocumentPlace<'_>,
    record: &Record<'_>,
) -> Result<(), ImportError> {
    let notes = [
        (FLAGS_KEY, place.new.get(FLAGS_KEY)),
        (LOCATION_NOTE, place.new.get(LOCATION_NOTE)),
        (DIGEST_NOTE, record.digest),
        (ERROR_NOTE, record.error.map(|reason| short_reason(reason).as_bytes())),
        (MAYBE_NOTE, record.maybe),
        (INNER_NOTE, record.inner),
        (EXTRA_FIELDS_NOTE, record.has_extra_fields.then_some(&b"1"[..])),
    ];
    let pairs = notes.into_iter().filter_map(|(key, value)| Some((key, value?)));
    let pushed = builder.push(EntryKind::Document, place.new.name, record.size, record.token, pairs);
    pushed.map_err(record_error(place.container))
}

/// The digest of a file whose content is not read. Only a change of the kind or the size changes the digest.
fn file_digest(kind: &str, size: u64) -> ContainerDigest {
    digest(format!("{kind} of {size} bytes").as_bytes())
}
