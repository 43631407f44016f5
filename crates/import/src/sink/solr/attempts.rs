//! Sends batches again that were not accepted: in halves if a document is the cause.
//!
//! The HTTP status decides. 400, 409, 413 and 422 are about the documents, so the batch is halved. 401, 403, 404, 405
//! and 415 are about the collection, and end the run. Every other failure may pass, so the batch is sent again after a
//! pause. The pause doubles with each attempt. After the target's patience the run fails, also if the server takes
//! requests and does not respond. If the server fails
//! repeatedly on a batch but accepts a message without documents, a document is assumed to be the cause.

use super::request::Answer;
use super::{Batch, Solr};
use crate::sink::Rejected;
use crate::sink::lines::sink_error;
use crate::sink::update::{self, ChangeKind, Envelope};
use crate::{ImportError, SinkError};
use std::ops::Range;
use std::time::{Duration, Instant};

/// The pause before a batch is sent again for the first time. It doubles with each further attempt.
const PAUSE_FIRST: Duration = Duration::from_millis(100);
/// Maximum pause before a batch is sent again.
const PAUSE_MAX: Duration = Duration::from_secs(15);
/// After each further number of failures the sink checks whether the server accepts a message without documents.
const FAILURES_UNTIL_PROBE: u32 = 4;

/// The result of sending one message.
enum Verdict {
    Accepted,
    /// The server refused the message because of its documents.
    Refused(String),
    /// The server may accept the message later.
    Failed(String),
}

/// The end of all attempts to send one message.
enum Sent {
    Accepted,
    /// The server refused the message because of its documents.
    Refused(String),
}

impl Solr {
    /// Sends the batch until each step is accepted or refused. `answer` is the response to the whole batch, for which the
    /// sink has waited since `begun`.
    pub(super) fn deliver(
        &mut self,
        batch: &Batch,
        answer: Answer,
        begun: Instant,
    ) -> Result<(), ImportError> {
        let mut answer = Some((answer, begun));
        let whole = 0..batch.steps.len();
        let mut parts = vec![whole];
        while let Some(part) = parts.pop() {
            let Sent::Refused(reason) =
                self.send_until_accepted_or_refused(batch, part.clone(), answer.take())?
            else {
                continue;
            };
            if part.len() > 1 {
                let middle = part.start + part.len() / 2;
                parts.extend([middle..part.end, part.start..middle]);
                continue;
            }
            let Some(index) = batch.steps[part.start].put else {
                let id = &batch.steps[part.start].id;
                return Err(self.refused(format!("the delete of {id:?} was refused: {reason}")));
            };
            // When the collection refuses an update, it keeps the old document. A new document may be there, too: the
            // server may fail after it stored the document, or an earlier run that was killed may have sent it.
            self.rejected.push(Rejected { index, reason, document_may_remain: true });
        }
        Ok(())
    }

    /// Commits the documents that were put, so that every search sees them.
    pub(super) fn commit(&mut self) -> Result<(), ImportError> {
        match self.send_repeatedly(None, &mut |_| b"<commit/>".to_vec(), 0)? {
            Sent::Accepted => Ok(()),
            Sent::Refused(reason) => Err(self.refused(reason)),
        }
    }

    fn send_until_accepted_or_refused(
        &mut self,
        batch: &Batch,
        part: Range<usize>,
        answer: Option<(Answer, Instant)>,
    ) -> Result<Sent, ImportError> {
        let envelope = self.envelope();
        let documents = part.len();
        self.send_repeatedly(answer, &mut |_| batch.message(part.clone(), envelope.clone()), documents)
    }

    /// Sends the message until it is accepted, or refused because of its documents. `answer`: the answer to the first
    /// attempt, if it was sent already, and since when the sink has waited for it. `documents`: the number of documents in
    /// the message.
    ///
    /// # Errors
    /// When the collection refuses all messages, or does not accept this message within the target's patience.
    fn send_repeatedly(
        &mut self,
        answer: Option<(Answer, Instant)>,
        message: &mut dyn FnMut(u32) -> Vec<u8>,
        documents: usize,
    ) -> Result<Sent, ImportError> {
        let (mut answer, begun) = match answer {
            Some((answer, begun)) => (Some(answer), begun),
            None => (None, Instant::now()),
        };
        let mut pause = PAUSE_FIRST;
        for failures in 1u32.. {
            let left = self.target.patience.saturating_sub(begun.elapsed());
            let latest = answer.take().unwrap_or_else(|| self.client.send(message(failures), left));
            let reason = match self.classify(latest)? {
                Verdict::Accepted => return Ok(Sent::Accepted),
                Verdict::Refused(reason) => return Ok(Sent::Refused(reason)),
                Verdict::Failed(reason) => reason,
            };
            let left = self.target.patience.saturating_sub(begun.elapsed());
            if failures % FAILURES_UNTIL_PROBE == 0 && documents > 0 && self.accepts_other_messages(left)? {
                return Ok(Sent::Refused(reason));
            }
            if begun.elapsed() >= self.target.patience {
                return Err(self.refused(format!(
                    "{reason}. Gave up after {failures} attempts. The next run continues here"
                )));
            }
            self.client.next_server();
            let left = self.target.patience.saturating_sub(begun.elapsed());
            let pause_now = pause.mul_f64(0.75 + fastrand::f64() / 2.0).min(left);
            self.notices.notify(&format!(
                "{} does not accept documents ({reason}); the batch is sent again in {:.1} s",
                self.client.shown(),
                pause_now.as_secs_f64()
            ));
            std::thread::sleep(pause_now);
            pause = (pause * 2).min(PAUSE_MAX);
        }
        unreachable!("patience ends before numbers do")
    }

    /// True when the server accepts a message without a document: the delete of a document that cannot exist, because
    /// no path is empty. A message without a change would say nothing about the index. `limit`: how long the sink waits.
    fn accepts_other_messages(&mut self, limit: Duration) -> Result<bool, ImportError> {
        let (mut probe, mut envelope) = (Vec::new(), Envelope::new(None));
        envelope.begin_change(ChangeKind::Delete, &mut probe);
        update::delete(&mut probe, &update::id(&self.dataset, b""));
        envelope.end(&mut probe);
        let answer = self.client.send(probe, limit);
        Ok(matches!(self.classify(answer)?, Verdict::Accepted))
    }

    fn classify(&self, answer: Answer) -> Result<Verdict, ImportError> {
        match answer {
            Ok((200..300, _)) => Ok(Verdict::Accepted),
            Ok((status @ (400 | 409 | 413 | 422), text)) => Ok(Verdict::Refused(format!("{status}: {text}"))),
            Ok((status @ (401 | 403 | 404 | 405 | 415), text)) => {
                Err(self.refused(format!("{status}: {text}")))
            }
            Ok((status, text)) => Ok(Verdict::Failed(format!("{status}: {text}"))),
            Err(error) => Ok(Verdict::Failed(error.to_string())),
        }
    }

    fn refused(&self, reason: String) -> ImportError {
        sink_error(&self.client.shown(), SinkError::Refused(reason))
    }
}
