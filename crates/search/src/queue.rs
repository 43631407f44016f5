//! [`Queue`]: the documents that wait for an index's indexing thread.
//!
//! The library takes up to 10,000 documents before it makes the caller wait, and a commit waits until all of them are
//! indexed: seconds, if documents are large. So a search would wait for seconds. With a short queue, the caller waits
//! instead, and [`crate::pace`] measures what indexing really costs.

use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::time::Duration;
use tantivy::TantivyDocument;
use tantivy::schema::Document;

/// Maximum number of documents that wait. Enough that the indexing thread has work while the next keys are read.
const DOCUMENTS_MAX: usize = 128;
/// No document enters while the waiting ones have this many bytes of text: some milliseconds of work.
const BYTES_MAX: usize = 64 << 10;
/// The caller waits at most this long. The library then decides: it has a limit of its own, and it reports a thread that
/// has ended.
const WAIT_MAX: Duration = Duration::from_secs(10);

/// The queue of one index.
#[derive(Debug, Default)]
pub(crate) struct Queue(Arc<State>);

#[derive(Debug, Default)]
struct State {
    waiting: Mutex<Waiting>,
    has_room: Condvar,
}

#[derive(Debug, Default)]
struct Waiting {
    documents: usize,
    bytes: usize,
}

impl Waiting {
    fn is_full(&self) -> bool {
        self.documents >= DOCUMENTS_MAX || self.bytes >= BYTES_MAX
    }
    fn is_half_empty(&self) -> bool {
        self.documents <= DOCUMENTS_MAX / 2 && self.bytes <= BYTES_MAX / 2
    }
}

impl Queue {
    /// A place for `document` with `bytes` of text. Waits until one is free.
    pub(crate) fn enter(&self, document: TantivyDocument, bytes: usize) -> QueuedDocument {
        let mut waiting = self.0.waiting.lock();
        let _ = self.0.has_room.wait_while_for(&mut waiting, |waiting| waiting.is_full(), WAIT_MAX);
        waiting.documents += 1;
        waiting.bytes += bytes;
        QueuedDocument { document, place: Place { queue: self.0.clone(), bytes } }
    }
}

/// A document in the queue. The indexing thread takes it out with [`Document::into_tantivy_document`].
#[derive(Debug)]
pub(crate) struct QueuedDocument {
    document: TantivyDocument,
    place: Place,
}

/// A place in the queue, which becomes free when this is dropped.
#[derive(Debug)]
struct Place {
    queue: Arc<State>,
    bytes: usize,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut waiting = self.queue.waiting.lock();
        let had_room = waiting.is_half_empty();
        waiting.documents -= 1;
        waiting.bytes -= self.bytes;
        if !had_room && waiting.is_half_empty() {
            self.queue.has_room.notify_all();
        }
    }
}

impl Document for QueuedDocument {
    type Value<'a> = <TantivyDocument as Document>::Value<'a>;
    type FieldsValuesIter<'a> = <TantivyDocument as Document>::FieldsValuesIter<'a>;

    fn iter_fields_and_values(&self) -> Self::FieldsValuesIter<'_> {
        self.document.iter_fields_and_values()
    }
    fn into_tantivy_document(self) -> TantivyDocument {
        drop(self.place);
        self.document
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_queue_waits_until_half_of_it_is_indexed() {
        for (documents_max, bytes) in [(DOCUMENTS_MAX, 10), (8, BYTES_MAX / 8), (1, BYTES_MAX * 100)] {
            let queue = Queue::default();
            let enter = || queue.enter(TantivyDocument::new(), bytes);
            let mut waiting: Vec<_> = (0..documents_max).map(|_| enter()).collect();
            let entered = std::thread::scope(|scope| {
                let entering = scope.spawn(enter);
                while waiting.len() > documents_max / 2 {
                    assert!(!entering.is_finished(), "{} documents wait", waiting.len());
                    waiting.pop().map(QueuedDocument::into_tantivy_document);
                }
                entering.join()
            });
            drop((entered, waiting));
            let left = queue.0.waiting.lock();
            assert_eq!(
                (left.documents, left.bytes),
                (0, 0),
                "a document that is dropped frees its place, too"
            );
        }
    }
}
