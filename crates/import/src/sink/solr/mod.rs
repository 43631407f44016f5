//! [`Solr`]: sends documents to a collection of Solr, in batches.
//!
//! A batch is streamed while it is filled, and kept until the collection has accepted it. Up to
//! [`BATCHES_UNDER_WAY_MAX`] batches wait for their answers. Each document has a key, so a batch that is sent twice
//! puts each document once. A batch that is not accepted is sent again with growing pauses ([`attempts`]). A batch that
//! is refused because of its documents is halved until the refused document is found. That document is returned as
//! rejected.

mod attempts;
mod request;

use super::lines::sink_error;
use super::outlet::{Feed, Receipt};
use super::update::{self, ChangeKind, Envelope};
use super::{FieldNames, Notices, Rejected, SolrTarget};
use crate::ImportError;
use crate::fields::Fields;
use request::{Client, Pending};
use std::collections::{HashSet, VecDeque};
use std::ops::Range;
use std::time::Instant;

/// A batch is closed when it has this number of bytes.
pub const BATCH_BYTES_MAX: usize = 1 << 20;
/// A batch is closed when it has this number of documents.
pub const BATCH_DOCUMENTS_MAX: usize = 1000;
/// Maximum number of batches whose responses are awaited, besides the batch that is being filled.
pub const BATCHES_UNDER_WAY_MAX: usize = 2;
/// Bytes that are buffered before they are sent as one chunk.
const CHUNK_BYTES: usize = 16 << 10;

/// A put or a delete in a batch.
#[derive(Clone, Debug)]
struct Step {
    kind: ChangeKind,
    bytes: Range<usize>,
    /// For a put: the document's position in the container. `None` for a delete.
    put: Option<usize>,
    id: String,
}

/// Documents that are sent together.
#[derive(Debug, Default)]
struct Batch {
    bytes: Vec<u8>,
    steps: Vec<Step>,
}

impl Batch {
    /// The message with these steps of the batch.
    fn message(&self, steps: Range<usize>, mut envelope: Envelope) -> Vec<u8> {
        let mut message = Vec::with_capacity(self.bytes.len() / 2);
        for step in &self.steps[steps] {
            envelope.begin_change(step.kind, &mut message);
            message.extend_from_slice(&self.bytes[step.bytes.clone()]);
        }
        envelope.end(&mut message);
        message
    }
}

/// The batch that is being filled. Its first chunks are sent already.
struct OpenBatch {
    batch: Batch,
    envelope: Envelope,
    pending: Pending,
    chunk: Vec<u8>,
}

/// A collection of Solr.
pub(super) struct Solr {
    client: Client,
    target: SolrTarget,
    dataset: String,
    notices: Notices,
    open_batch: Option<OpenBatch>,
    in_flight: VecDeque<(Batch, Pending)>,
    /// Keys of all documents with a change that is not accepted yet. A further change of such a document waits until
    /// its last change is accepted, because batches may be accepted in another order.
    ids: HashSet<String>,
    rejected: Vec<Rejected>,
}

impl Solr {
    /// Opens the collection. Sends nothing to the servers yet.
    pub(super) fn open(target: &SolrTarget, dataset: &str, notices: Notices) -> Result<Solr, ImportError> {
        let client = Client::open(&target.servers).map_err(|error| sink_error("Solr", error))?;
        Ok(Solr {
            client,
            target: target.clone(),
            dataset: dataset.to_owned(),
            notices,
            open_batch: None,
            in_flight: VecDeque::new(),
            ids: HashSet::new(),
            rejected: Vec::new(),
        })
    }

    fn envelope(&self) -> Envelope {
        Envelope::new(Some(self.target.commit_within))
    }

    /// Adds a step to the open batch. `write` appends the step's element.
    fn step(
        &mut self,
        kind: ChangeKind,
        id: String,
        put: Option<usize>,
        write: impl FnOnce(&mut Vec<u8>, &str),
    ) -> Result<(), ImportError> {
        if self.ids.contains(&id) {
            self.settle_all()?;
        }
        if self.open_batch.is_none() {
            while self.in_flight.len() >= BATCHES_UNDER_WAY_MAX {
                self.settle_oldest()?;
            }
            let (envelope, pending) = (self.envelope(), self.client.begin());
            self.open_batch =
                Some(OpenBatch { batch: Batch::default(), envelope, pending, chunk: Vec::new() });
        }
        let open_batch = self.open_batch.as_mut().expect("just begun");
        open_batch.envelope.begin_change(kind, &mut open_batch.chunk);
        let from = open_batch.batch.bytes.len();
        write(&mut open_batch.batch.bytes, &id);
        open_batch.chunk.extend_from_slice(&open_batch.batch.bytes[from..]);
        open_batch.batch.steps.push(Step {
            kind,
            bytes: from..open_batch.batch.bytes.len(),
            put,
            id: id.clone(),
        });
        self.ids.insert(id);
        if open_batch.chunk.len() >= CHUNK_BYTES {
            open_batch.pending.push(std::mem::take(&mut open_batch.chunk), self.target.patience);
        }
        if open_batch.batch.bytes.len() >= BATCH_BYTES_MAX
            || open_batch.batch.steps.len() >= BATCH_DOCUMENTS_MAX
        {
            self.close();
        }
        Ok(())
    }

    /// Ends the open batch.
    fn close(&mut self) {
        if let Some(mut open_batch) = self.open_batch.take() {
            open_batch.envelope.end(&mut open_batch.chunk);
            open_batch.pending.push(open_batch.chunk, self.target.patience);
            open_batch.pending.end();
            self.in_flight.push_back((open_batch.batch, open_batch.pending));
        }
    }

    fn settle_all(&mut self) -> Result<(), ImportError> {
        self.close();
        while !self.in_flight.is_empty() {
            self.settle_oldest()?;
        }
        Ok(())
    }

    /// Waits until all steps of the oldest batch are accepted or refused.
    fn settle_oldest(&mut self) -> Result<(), ImportError> {
        let Some((batch, pending)) = self.in_flight.pop_front() else { return Ok(()) };
        let begun = Instant::now();
        let answer = pending.answer(self.target.patience);
        self.deliver(&batch, answer, begun)?;
        batch.steps.iter().for_each(|step| {
            self.ids.remove(&step.id);
        });
        Ok(())
    }

    /// The name of a field in Solr. `None` when the field is not wanted.
    fn name<'a>(&'a self, name: &'a str) -> Option<std::borrow::Cow<'a, str>> {
        match &self.target.names {
            FieldNames::Plain => Some(name.into()),
            FieldNames::Dynamic => Some(format!("{name}{}", dynamic_ending(name)).into()),
            FieldNames::Listed(pairs) => {
                pairs.iter().find(|(ours, _)| ours == name).map(|(_, theirs)| theirs.as_str().into())
            }
        }
    }
}

/// The suffix of Solr's dynamic field for the document's field `name`.
fn dynamic_ending(name: &str) -> &'static str {
    match name {
        "subject" | "title" | "body" | "from" | "to" | "cc" | "attachments" | "columns" => "_t",
        "size" | "date" | "rows" => "_l",
        _ => "_s",
    }
}

impl Feed for Solr {
    fn receipt(&self) -> Receipt {
        Receipt::WhenSettled
    }

    fn put(&mut self, path: &[u8], fields: &Fields, index: usize) -> Result<(), ImportError> {
        let id = update::id(&self.dataset, path);
        let named: Vec<_> =
            fields.present().filter_map(|(name, value)| Some((self.name(name)?, value))).collect();
        let named: Vec<_> = named.into_iter().map(|(name, value)| (name.into_owned(), value)).collect();
        self.step(ChangeKind::Put, id, Some(index), |out, id| update::put(out, id, named.into_iter()))
    }

    fn delete(&mut self, path: &[u8]) -> Result<(), ImportError> {
        self.step(ChangeKind::Delete, update::id(&self.dataset, path), None, update::delete)
    }

    fn settle(&mut self) -> Result<Vec<Rejected>, ImportError> {
        self.settle_all()?;
        Ok(std::mem::take(&mut self.rejected))
    }

    fn finish(&mut self) -> Result<(), ImportError> {
        self.settle_all()?;
        if self.target.commit { self.commit() } else { Ok(()) }
    }
}
