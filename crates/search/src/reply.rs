//! The reply of FT.SEARCH: RediSearch's flat array in RESP2 and its map in RESP3.
//!
//! Documents are loaded one at a time while the reply is written (of a past version, [`PAST_BATCH`] at a time). So only some
//! documents are in memory besides the reply, and cancelling takes no longer than loading them. The number of results is
//! known only at the end, so the results are written to a separate buffer.

use crate::error::SearchError;
use crate::exec::{Hit, SortValue};
use crate::follow::to_blob;
use crate::meter::Meter;
use crate::options::SearchOptions;
use crate::versions::PastSearch;
use strand_chain::{Blob, Chain};
use strand_commands::call::LaneCall;
use strand_keyspace::{Bytes, Collection, HashValue, Keyspace, ValueRef};
use strand_wire::digits::Digits;
use strand_wire::reply::{Protocol, Reply};

/// Maximum number of fields of a hash that are copied under the lock of the hash's shard. A larger hash is cloned: the
/// clone shares the segments of the hash.
const COPIED_FIELDS_MAX: usize = 64;
/// Number of steps counted for loading a document, without its fields.
const LOAD_STEPS: usize = 64;
/// Number of documents of a past version that are loaded before one look into the present index.
const PAST_BATCH: usize = 256;
/// Number of steps counted for writing a field.
const FIELD_STEPS: usize = 8;

/// The loaded fields of one result.
enum Document {
    /// The fields as pairs of name and value.
    Fields(Vec<(Blob, Blob)>),
    /// All fields of a large hash, in a clone of the hash.
    Large(HashValue),
    /// No fields: the search is of a past version, and the key was written since that version.
    Changed,
}

/// Reads the documents of `page` and writes the reply. A document that was deleted since the search is not in the
/// reply. In a search of a past version, a document that was written or deleted since the version is in the reply
/// without fields.
///
/// # Errors
/// When the request must stop. Then nothing was written.
pub(crate) fn write(
    keyspace: &Keyspace,
    options: &SearchOptions<'_>,
    past: Option<&PastSearch<'_>>,
    total: usize,
    page: Vec<Hit>,
    meter: &Meter,
    call: &mut LaneCall<'_>,
) -> Result<(), SearchError> {
    let with_fields = !options.no_content && options.fields.as_ref().is_none_or(|f| !f.is_empty());
    let rows = Rows { options, with_fields, meter };
    let (found, mut written) = (page.len(), 0);
    let mut body = Chain::new();
    if let Some(past) = past.filter(|_| with_fields) {
        written = rows.of_past(keyspace, past, page, &mut body, call)?;
    } else {
        let mut part = call.reply.part(&mut body);
        for hit in page {
            meter.step(LOAD_STEPS)?;
            let document = match with_fields {
                false => Some(Document::Fields(Vec::new())),
                true => load(keyspace, &hit.key, options, call.now_ms),
            };
            let Some(document) = document else { continue };
            rows.row(&hit, &document, &mut part)?;
            written += 1;
            if part.exceeds_limit() {
                // Stop: the reply is over its limit, so no client will read the rest.
                break;
            }
        }
    }
    let reply = &mut *call.reply;
    let total = total - (found - written).min(total);
    match reply.protocol() {
        Protocol::Resp2 => {
            let shown = [options.with_scores, options.with_sort_keys, with_fields];
            reply.array(1 + written * (1 + shown.iter().filter(|b| **b).count()));
            reply.int(total as i64);
            reply.raw(body);
        }
        Protocol::Resp3 => {
            reply.map(5);
            reply.simple("attributes");
            reply.array(0);
            reply.simple("total_results");
            reply.int(total as i64);
            reply.simple("format");
            reply.simple("STRING");
            reply.simple("results");
            reply.array(written);
            reply.raw(body);
            reply.simple("warning");
            reply.array(0);
        }
    }
    Ok(())
}

fn load(keyspace: &Keyspace, key: &[u8], options: &SearchOptions<'_>, now_ms: i64) -> Option<Document> {
    let key = keyspace.key(key);
    let mut locked = keyspace.lock(&[key.hash], now_ms);
    let mut db = locked.db(0);
    let ValueRef::Hash(hash) = db.peek(&key)?.value() else { return None };
    Some(match &options.fields {
        None if hash.len() > COPIED_FIELDS_MAX => Document::Large(hash.clone()),
        None => Document::Fields(hash.iter().map(|(f, v)| (to_blob(f), to_blob(v))).collect()),
        Some(fields) => {
            let found = fields.iter().filter_map(|(source, shown)| hash.get(source).map(|v| (shown, v)));
            Document::Fields(found.map(|(shown, v)| (Blob::from(&shown[..]), to_blob(v))).collect())
        }
    })
}

/// How the rows of results are written.
struct Rows<'a> {
    options: &'a SearchOptions<'a>,
    with_fields: bool,
    meter: &'a Meter,
}

impl Rows<'_> {
    /// Writes the results in a past version. Returns their number.
    fn of_past(
        &self,
        keyspace: &Keyspace,
        past: &PastSearch<'_>,
        page: Vec<Hit>,
        body: &mut Chain,
        call: &mut LaneCall<'_>,
    ) -> Result<usize, SearchError> {
        let mut written = 0;
        let mut part = call.reply.part(body);
        let mut page = page.into_iter().peekable();
        while page.peek().is_some() && !part.exceeds_limit() {
            let mut batch = Vec::with_capacity(PAST_BATCH);
            let mut held_bytes = 0;
            for hit in page.by_ref().take(PAST_BATCH) {
                self.meter.step(LOAD_STEPS)?;
                let document = load(keyspace, &hit.key, self.options, call.now_ms);
                let bytes = document.as_ref().map_or(0, Document::bytes);
                self.meter.hold(bytes)?;
                held_bytes += bytes;
                batch.push((hit, document));
            }
            // The look into the index comes after the documents were read: a write between the two would otherwise be
            // shown as the content of the version.
            let present = (past.refresh)()?;
            for (hit, document) in batch {
                let is_unchanged = past.is_unchanged(&present, &hit.key, self.meter)?;
                let document = document.filter(|_| is_unchanged).unwrap_or(Document::Changed);
                self.row(&hit, &document, &mut part)?;
                written += 1;
            }
            self.meter.release(held_bytes);
        }
        Ok(written)
    }

    fn row(&self, hit: &Hit, document: &Document, reply: &mut Reply<'_>) -> Result<(), SearchError> {
        match reply.protocol() {
            Protocol::Resp2 => self.flat(hit, document, reply),
            Protocol::Resp3 => self.map(hit, document, reply),
        }
    }

    fn flat(&self, hit: &Hit, document: &Document, reply: &mut Reply<'_>) -> Result<(), SearchError> {
        reply.bulk(&hit.key);
        if self.options.with_scores {
            reply.double(hit.score);
        }
        if self.options.with_sort_keys {
            sort_key(hit, reply);
        }
        if self.with_fields {
            if matches!(document, Document::Changed) {
                reply.null();
                return Ok(());
            }
            reply.array(document.len() * 2);
            self.fields(document, reply)?;
        }
        Ok(())
    }

    fn map(&self, hit: &Hit, document: &Document, reply: &mut Reply<'_>) -> Result<(), SearchError> {
        let shown = [self.options.with_scores, self.options.with_sort_keys, self.with_fields];
        reply.map(2 + shown.iter().filter(|b| **b).count());
        reply.simple("id");
        reply.bulk(&hit.key);
        if self.options.with_scores {
            reply.simple("score");
            reply.double(hit.score);
        }
        if self.options.with_sort_keys {
            reply.simple("sortkey");
            sort_key(hit, reply);
        }
        if self.with_fields {
            reply.simple("extra_attributes");
            match document {
                Document::Changed => reply.null(),
                _ => reply.map(document.len()),
            }
            self.fields(document, reply)?;
        }
        reply.simple("values");
        reply.array(0);
        Ok(())
    }

    /// Writes names and values. Stops when the reply is at its limit: such a reply is not sent.
    fn fields(&self, document: &Document, reply: &mut Reply<'_>) -> Result<(), SearchError> {
        match document {
            Document::Fields(fields) => {
                for (field, value) in fields {
                    self.meter.step(FIELD_STEPS)?;
                    reply.bulk_blob(field);
                    reply.bulk_blob(value);
                }
            }
            Document::Changed => {}
            Document::Large(hash) => {
                for (field, value) in hash.iter() {
                    if reply.exceeds_limit() {
                        break;
                    }
                    self.meter.step(FIELD_STEPS)?;
                    bulk(reply, field);
                    bulk(reply, value);
                }
            }
        }
        Ok(())
    }
}

impl Document {
    /// Memory of the loaded fields, in bytes. A large hash shares its memory with the key.
    fn bytes(&self) -> usize {
        match self {
            Document::Fields(fields) => {
                fields.iter().map(|(name, value)| name.len() + value.len() + size_of::<(Blob, Blob)>()).sum()
            }
            Document::Large(_) | Document::Changed => 0,
        }
    }
    fn len(&self) -> usize {
        match self {
            Document::Fields(fields) => fields.len(),
            Document::Large(hash) => hash.len(),
            Document::Changed => 0,
        }
    }
}

fn bulk(reply: &mut Reply<'_>, bytes: Bytes<'_>) {
    match bytes {
        Bytes::Slice(slice) => reply.bulk(slice),
        Bytes::Shared(blob) => reply.bulk_blob(blob),
    }
}

/// Writes the sort key: `#` and a number, `$` and a text, or null.
fn sort_key(hit: &Hit, reply: &mut Reply<'_>) {
    match &hit.sort {
        SortValue::Number(n) => reply.bulk(&[b"#", Digits::double(*n).as_slice()].concat()),
        SortValue::Text(t) => reply.bulk(&[b"$", &t[..]].concat()),
        SortValue::Score | SortValue::Missing => reply.null(),
    }
}
