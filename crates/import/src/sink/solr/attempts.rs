//! Batches that were not taken. They are sent again, in parts if a document is to blame.
//!
//! The server's answer decides. 400, 409 and 413 are about the documents, so the batch is halved. 401, 403 and 404 are
//! about the collection, and end the run. Every other failure may pass, so the sink waits, with pauses that double, up to
//! the target's patience. If a server fails again and again on a batch, and takes a message without documents, then a
//! document is to blame too.

use super::request::Answer;
use super::{Batch, Solr};
use crate::sink::Rejected;
use crate::sink::lines::sink_error;
use crate::sink::update::{self, Envelope, Kind};
use crate::{ImportError, SinkError};
use std::ops::Range;
use std::time::{Duration, Instant};

/// The pause before a batch is sent again for the first time. It doubles with each further attempt.
const PAUSE_FIRST: Duration = Duration::from_millis(100);
/// The longest pause before a batch is sent again.
const PAUSE_MAX: Duration = Duration::from_secs(15);
/// After this number of failures the sink asks whether the documents are to blame.
const FAILURES_UNTIL_PROBE: u32 = 4;

/// The result of sending one message.
enum Verdict {
    Taken,
    /// The server refused the message because of its documents.
    Refused(String),
    /// The server may accept the message later.
    Failed(String),
}

/// The end of all attempts to send one message.
enum Sent {
    Taken,
    /// The server refused the message because of its documents.
    Refused(String),
}

impl Solr {
    /// Sends the batch until each step is accepted or refused. `answer` is the response to the whole batch.
    pub(super) fn deliver(&mut self, batch: &Batch, answer: Answer) -> Result<(), ImportError> {
        let mut answer = Some(answer);
        let whole = 0..batch.steps.len();
        let mut parts = vec![whole];
        while let Some(part) = parts.pop() {
            let Sent::Refused(reason) = self.send_until_judged(batch, part.clone(), answer.take())? else {
                continue;
            };
            if part.len() > 1 {
                let middle = part.start + part.len() / 2;
                parts.extend([middle..part.end, part.start..middle]);
                continue;
            }
            let Some((index, was_added)) = batch.steps[part.start].about else {
                return Err(self.refused(format!("a delete was refused: {reason}")));
            };
            // When the collection refuses an update, it keeps the document that the update was to replace.
            self.rejected.push(Rejected { index, reason, was_added, stays: !was_added });
        }
        Ok(())
    }

    /// Commits the documents that were put, so that every search sees them.
    pub(super) fn commit(&mut self) -> Result<(), ImportError> {
        match self.repeat(None, &mut |_| b"<commit/>".to_vec(), 0)? {
            Sent::Taken => Ok(()),
            Sent::Refused(reason) => Err(self.refused(reason)),
        }
    }

    fn send_until_judged(
        &mut self,
        batch: &Batch,
        part: Range<usize>,
        answer: Option<Answer>,
    ) -> Result<Sent, ImportError> {
        let envelope = self.envelope();
        let documents = part.len();
        self.repeat(answer, &mut |_| batch.message(part.clone(), envelope.clone()), documents)
    }

    /// Sends the message until it is accepted, or refused because of its documents. Returns the reason of a refusal.
    fn repeat(
        &mut self,
        mut answer: Option<Answer>,
        message: &mut dyn FnMut(u32) -> Vec<u8>,
        documents: usize,
    ) -> Result<Sent, ImportError> {
        let (begun, mut pause) = (Instant::now(), PAUSE_FIRST);
        for failures in 1u32.. {
            let said = answer.take().unwrap_or_else(|| self.client.send(message(failures)));
            let reason = match self.judge(said)? {
                Verdict::Taken => return Ok(Sent::Taken),
                Verdict::Refused(reason) => return Ok(Sent::Refused(reason)),
                Verdict::Failed(reason) => reason,
            };
            if failures % FAILURES_UNTIL_PROBE == 0 && documents > 0 && self.takes_others()? {
                return Ok(Sent::Refused(reason));
            }
            if begun.elapsed() >= self.target.patience {
                return Err(
                    self.refused(format!("{reason}; tried {failures} times, the next run goes on from here"))
                );
            }
            self.client.next_server();
            let pause_now = pause.mul_f64(0.75 + fastrand::f64() / 2.0);
            self.notices.tell(&format!(
                "{} does not take documents ({reason}); sent again in {:.1} s",
                self.client.shown(),
                pause_now.as_secs_f64()
            ));
            std::thread::sleep(pause_now);
            pause = (pause * 2).min(PAUSE_MAX);
        }
        unreachable!("patience ends before numbers do")
    }

    /// True when the server accepts a message without a document: the delete of a document that cannot exist.
    fn takes_others(&mut self) -> Result<bool, ImportError> {
        let (mut probe, mut envelope) = (Vec::new(), Envelope::new(None));
        envelope.step(Kind::Delete, &mut probe);
        update::delete(&mut probe, &format!("{}:\u{fffd}", self.dataset));
        envelope.end(&mut probe);
        let said = self.client.send(probe);
        Ok(matches!(self.judge(said)?, Verdict::Taken))
    }

    fn judge(&self, answer: Answer) -> Result<Verdict, ImportError> {
        match answer {
            Ok((200..300, _)) => Ok(Verdict::Taken),
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
