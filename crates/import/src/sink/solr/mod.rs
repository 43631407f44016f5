//! [`Solr`]: a collection. It is sent batches of whole documents.
//!
//! A batch is streamed while it is made, and kept until the collection has taken it. Up to [`BATCHES_UNDER_WAY_MAX`]
//! batches wait for their answers. Each document has a key. So a batch that is sent twice puts each document once. A
//! batch that is not taken is sent again with growing pauses ([`attempts`]). A refused batch is cut in
//! halves until the guilty document is found. That document is returned as rejected.

mod attempts;
mod request;

use super::lines::sink_error;
use super::outlet::Feed;
use super::update::{self, Envelope, Kind};
use super::{Names, Notices, Rejected, SolrTarget};
use crate::ImportError;
use crate::fields::Fields;
use request::{Client, Pending};
use std::collections::{HashSet, VecDeque};
use std::ops::Range;

/// A batch is closed when it has this number of bytes.
pub const BATCH_BYTES_MAX: usize = 1 << 20;
/// A batch is closed when it has this number of documents.
pub const BATCH_DOCUMENTS_MAX: usize = 1000;
/// Maximum number of batches whose responses are awaited, besides the batch that is being filled.
pub const BATCHES_UNDER_WAY_MAX: usize = 2;
/// Bytes that are gathered before the connection gets them as one chunk.
const CHUNK_BYTES: usize = 16 << 10;

/// A put or a delete in a batch.
#[derive(Clone, Debug)]
struct Step {
    kind: Kind,
    bytes: Range<usize>,
    /// For a put: the position in the container, and whether it is an addition.
    about: Option<(usize, bool)>,
    id: String,
}

/// Documents that are sent together.
#[derive(Debug, Default)]
struct Batch {
    bytes: Vec<u8>,
    steps: Vec<Step>,
}

impl Batch {
    /// The steps as one message.
    fn message(&self, steps: Range<usize>, mut envelope: Envelope) -> Vec<u8> {
        let mut message = Vec::with_capacity(self.bytes.len() / 2);
        for step in &self.steps[steps] {
            envelope.step(step.kind, &mut message);
            message.extend_from_slice(&self.bytes[step.bytes.clone()]);
        }
        envelope.end(&mut message);
        message
    }
}

/// The batch that is being filled. Its first chunks are sent already.
struct Making {
    batch: Batch,
    envelope: Envelope,
    pending: Pending,
    chunk: Vec<u8>,
}

/// A collection.
pub(super) struct Solr {
    client: Client,
    target: SolrTarget,
    dataset: String,
    notices: Notices,
    making: Option<Making>,
    under_way: VecDeque<(Batch, Pending)>,
    /// Keys of all documents whose changes are not accepted yet. A document is changed again only after its last change
    /// was accepted.
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
            making: None,
            under_way: VecDeque::new(),
            ids: HashSet::new(),
            rejected: Vec::new(),
        })
    }

    fn envelope(&self) -> Envelope {
        Envelope::new(Some(self.target.commit_within))
    }

    /// Adds a step. `write` writes its element.
    fn step(
        &mut self,
        kind: Kind,
        id: String,
        about: Option<(usize, bool)>,
        write: impl FnOnce(&mut Vec<u8>, &str),
    ) -> Result<(), ImportError> {
        if self.ids.contains(&id) {
            self.settle_all()?;
        }
        if self.making.is_none() {
            while self.under_way.len() >= BATCHES_UNDER_WAY_MAX {
                self.settle_oldest()?;
            }
            let (envelope, pending) = (self.envelope(), self.client.begin());
            self.making = Some(Making { batch: Batch::default(), envelope, pending, chunk: Vec::new() });
        }
        let making = self.making.as_mut().expect("just begun");
        making.envelope.step(kind, &mut making.chunk);
        let from = making.batch.bytes.len();
        write(&mut making.batch.bytes, &id);
        making.chunk.extend_from_slice(&making.batch.bytes[from..]);
        making.batch.steps.push(Step { kind, bytes: from..making.batch.bytes.len(), about, id: id.clone() });
        self.ids.insert(id);
        if making.chunk.len() >= CHUNK_BYTES {
            making.pending.push(std::mem::take(&mut making.chunk));
        }
        if making.batch.bytes.len() >= BATCH_BYTES_MAX || making.batch.steps.len() >= BATCH_DOCUMENTS_MAX {
            self.close();
        }
        Ok(())
    }

    /// Ends the batch that is being filled.
    fn close(&mut self) {
        if let Some(mut making) = self.making.take() {
            making.envelope.end(&mut making.chunk);
            making.pending.push(making.chunk);
            making.pending.end();
            self.under_way.push_back((making.batch, making.pending));
        }
    }

    fn settle_all(&mut self) -> Result<(), ImportError> {
        self.close();
        while !self.under_way.is_empty() {
            self.settle_oldest()?;
        }
        Ok(())
    }

    /// Waits for the oldest batch, until all of its steps are accepted or refused.
    fn settle_oldest(&mut self) -> Result<(), ImportError> {
        let Some((batch, pending)) = self.under_way.pop_front() else { return Ok(()) };
        let answer = pending.answer();
        self.deliver(&batch, answer)?;
        batch.steps.iter().for_each(|step| {
            self.ids.remove(&step.id);
        });
        Ok(())
    }

    /// The name of a field in Solr. `None` when the field is not wanted.
    fn name<'a>(&'a self, name: &'a str) -> Option<std::borrow::Cow<'a, str>> {
        match &self.target.names {
            Names::Plain => Some(name.into()),
            Names::Dynamic => Some(format!("{name}{}", dynamic_ending(name)).into()),
            Names::Listed(pairs) => {
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
    fn is_published_at_end(&self) -> bool {
        false
    }

    fn put(&mut self, path: &[u8], fields: &Fields, held: bool, index: usize) -> Result<(), ImportError> {
        let id = update::id(&self.dataset, path);
        let named: Vec<_> =
            fields.present().filter_map(|(name, value)| Some((self.name(name)?, value))).collect();
        let named: Vec<_> = named.into_iter().map(|(name, value)| (name.into_owned(), value)).collect();
        self.step(Kind::Put, id, Some((index, !held)), |out, id| update::put(out, id, named.into_iter()))
    }

    fn delete(&mut self, path: &[u8]) -> Result<(), ImportError> {
        self.step(Kind::Delete, update::id(&self.dataset, path), None, update::delete)
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
