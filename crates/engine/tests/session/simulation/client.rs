//! A simulated client. It sends pipelines over a [`Wire`], reads replies in pieces, and records what it saw.

use super::plan;
use super::world::{Fault, Shared};
use fastrand::Rng;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use strand_chain::Chain;
use strand_engine::{LaneDone, Wake};
use strand_testkit::linearizability::{Call, Request, Step};
use strand_wire::client::{ReplyParser, Value, encode_command};

/// Maximum number of commands in a pipeline.
const PIPELINE_MAX: usize = 3;

/// The bytes between a client and its session, and the means to wake the session.
pub struct Wire {
    pub to_server: Mutex<VecDeque<u8>>,
    pub to_client: Mutex<VecDeque<u8>>,
    pub done: Mutex<Option<LaneDone>>,
    /// The client has closed the connection.
    pub closed: AtomicBool,
    pub woken: AtomicBool,
    /// True when wakes do not arrive (a planted bug).
    pub deaf: bool,
}

impl Wake for Wire {
    fn queue(&self) {
        self.woken.store(!self.deaf, Relaxed);
    }
}

impl Wire {
    pub fn new(deaf: bool) -> Arc<Wire> {
        Arc::new(Wire {
            to_server: Mutex::default(),
            to_client: Mutex::default(),
            done: Mutex::default(),
            closed: AtomicBool::new(false),
            woken: AtomicBool::new(false),
            deaf,
        })
    }
}

/// A call whose reply is incomplete.
struct Pending {
    step: Step,
    invoked_ns: u64,
    pipeline: u64,
    place: usize,
    /// The replies so far.
    replies: Vec<Value>,
    /// The number of replies to expect.
    of: usize,
}

pub struct Client {
    /// The connection's number.
    pub number: u32,
    pub wire: Arc<Wire>,
    pending: VecDeque<Pending>,
    input: Chain,
    parser: ReplyParser,
    /// Steps that the client still has to do.
    pub left: usize,
    /// Steps to do before those of the plan, in reverse order.
    script: Vec<Step>,
}

impl Client {
    pub fn new(number: u32, wire: Arc<Wire>, left: usize, mut script: Vec<Step>) -> Client {
        script.reverse();
        let (input, parser) = (Chain::new(), ReplyParser::new());
        Client { number, wire, pending: VecDeque::new(), input, parser, left, script }
    }
    /// True when the client has no further steps and waits for nothing.
    pub fn is_done(&self) -> bool {
        self.left == 0 && self.pending.is_empty()
    }
    pub fn is_waiting(&self) -> bool {
        !self.pending.is_empty()
    }
    pub fn can_send(&self) -> bool {
        self.pending.is_empty() && self.left > 0
    }
    /// A text that says what the client waits for, to explain why a seed is stuck.
    pub fn waits_for(&self) -> String {
        let steps: Vec<&Step> = self.pending.iter().map(|pending| &pending.step).collect();
        format!("client {} for {steps:?}", self.number)
    }
    /// Sends the client's next pipeline.
    pub fn send(&mut self, rng: &mut Rng, shared: &Shared, pipeline: u64) {
        let invoked_ns = shared.unix_ns();
        let length = rng.usize(1..=PIPELINE_MAX).min(self.left);
        self.left -= length;
        let mut bytes = Vec::new();
        for place in 0..length {
            let step = self.script.pop().unwrap_or_else(|| plan::step(rng));
            let mut requests = step.requests();
            if shared.fault == Some(Fault::TornTransaction) && requests.len() > 1 {
                // The checker takes the calls of a pipeline as one after the other.
                requests.pop();
                requests.remove(0);
            }
            requests.iter().for_each(|request| encode_command(&mut bytes, request));
            let (replies, of) = (Vec::new(), requests.len());
            self.pending.push_back(Pending { step, invoked_ns, pipeline, place, replies, of });
        }
        self.wire.to_server.lock().extend(bytes);
    }
    /// Reads a piece of the received bytes. Returns the calls that are complete.
    pub fn read(&mut self, rng: &mut Rng, shared: &Shared) -> Vec<Call<Request>> {
        let mut bytes = self.wire.to_client.lock();
        let n = if bytes.is_empty() { return Vec::new() } else { rng.usize(1..=bytes.len()) };
        let piece: Vec<u8> = bytes.drain(..n).collect();
        drop(bytes);
        self.input.push_slice(&piece);
        let mut answered = Vec::new();
        while let Some(reply) = self.parser.next(&mut self.input).expect("replies are RESP") {
            let pending = self.pending.front_mut().expect("nothing comes unasked");
            pending.replies.push(reply);
            if pending.replies.len() < pending.of {
                continue;
            }
            let mut pending = self.pending.pop_front().expect("it was there");
            let is_torn = shared.fault == Some(Fault::TornTransaction);
            let reply = match pending.step {
                Step::Exec(_) if is_torn => Value::Array(pending.replies),
                _ => pending.replies.pop().expect("one has come"),
            };
            let reply = pending.step.seen(reply);
            answered.push(Call {
                operation: Request { client: self.number, step: pending.step },
                reply: Some(reply),
                invoked_ns: pending.invoked_ns,
                returned_ns: shared.unix_ns(),
                sent: (pending.pipeline, pending.place),
            });
        }
        answered
    }
    /// Closes the connection. Nobody knows whether its pending calls took effect. Pending calls that change nothing are
    /// dropped from the history.
    pub fn hang_up(&mut self) -> Vec<Call<Request>> {
        self.wire.closed.store(true, Relaxed);
        let lost = |pending: Pending| Call {
            operation: Request { client: self.number, step: pending.step },
            reply: None,
            invoked_ns: pending.invoked_ns,
            returned_ns: u64::MAX,
            sent: (pending.pipeline, pending.place),
        };
        let pending = self.pending.drain(..).filter(|pending| pending.step.may_change());
        pending.map(lost).collect()
    }
}
