//! [`Transaction`]: publishes all changes of a run at once. The changes are queued at the server after MULTI, on a
//! second connection. At the end of the run EXEC applies them. A run that ends before EXEC changes nothing.

use super::strand::{BYTES_UNDER_WAY_MAX, COMMANDS_UNDER_WAY_MAX};
use crate::connection::{Connection, Target, refused};
use crate::versions::unexpected;
use crate::{ImportError, OptionError};
use std::collections::{BTreeSet, VecDeque};
use strand_wire::client::Value;

/// Maximum number of commands in one transaction.
pub(super) const COMMANDS_MAX: usize = 4_000_000;

/// Commands that wait for EXEC.
#[derive(Debug)]
pub(super) struct Transaction {
    connection: Connection,
    queued: usize,
    /// The positions of the COPY commands among the commands of the transaction.
    copies: Vec<usize>,
    /// The number of bytes of each command that the server has not acknowledged yet.
    under_way: VecDeque<usize>,
    bytes_under_way: usize,
    /// Containers that this run has forgotten. The server still has them.
    forgotten: BTreeSet<Vec<u8>>,
    /// Containers that this run records.
    stored: BTreeSet<Vec<u8>>,
}

impl Transaction {
    /// Connects and sends MULTI.
    pub(super) fn begin(target: &Target<'_>) -> Result<Transaction, ImportError> {
        let mut connection = Connection::open(target)?;
        connection.call(&["MULTI"])?;
        Ok(Transaction {
            connection,
            queued: 0,
            copies: Vec::new(),
            under_way: VecDeque::new(),
            bytes_under_way: 0,
            forgotten: BTreeSet::new(),
            stored: BTreeSet::new(),
        })
    }

    /// Adds a command.
    pub(super) fn queue<T: AsRef<[u8]>>(&mut self, args: &[T]) -> Result<(), ImportError> {
        if self.queued >= COMMANDS_MAX {
            return Err(OptionError::AtomicTooLarge { commands_max: COMMANDS_MAX }.into());
        }
        while self.under_way.len() >= COMMANDS_UNDER_WAY_MAX || self.bytes_under_way >= BYTES_UNDER_WAY_MAX {
            self.acknowledge()?;
        }
        let bytes = self.connection.send(args)?;
        self.queued += 1;
        self.bytes_under_way += bytes;
        self.under_way.push_back(bytes);
        Ok(())
    }

    /// Adds a COPY. If the document does not exist when EXEC runs the COPY, the run fails as for a refused command.
    pub(super) fn queue_copy(&mut self, args: &[&[u8]]) -> Result<(), ImportError> {
        self.queue(args)?;
        self.copies.push(self.queued - 1);
        Ok(())
    }

    fn acknowledge(&mut self) -> Result<(), ImportError> {
        let reply = self.connection.receive()?;
        self.bytes_under_way -= self.under_way.pop_front().expect("only called with replies to come");
        match reply {
            Value::Simple(_) => Ok(()),
            Value::Error(text) => Err(refused(&["MULTI"], &text)),
            other => Err(unexpected(&other)),
        }
    }

    /// Waits until the server has acknowledged every queued command.
    pub(super) fn settle(&mut self) -> Result<(), ImportError> {
        while !self.under_way.is_empty() {
            self.acknowledge()?;
        }
        Ok(())
    }

    /// Notes that the container `name` will be recorded.
    pub(super) fn note_stored(&mut self, name: &[u8]) {
        self.forgotten.remove(name);
        self.stored.insert(name.to_vec());
    }

    /// Notes that the container `name` will be forgotten.
    pub(super) fn note_forgotten(&mut self, name: &[u8]) {
        self.stored.remove(name);
        self.forgotten.insert(name.to_vec());
    }

    /// True when EXEC will delete the container `name`.
    pub(super) fn has_forgotten(&self, name: &[u8]) -> bool {
        self.forgotten.contains(name)
    }

    /// Publishes all changes. If EXEC ran but one of its commands failed, returns the error and the names of the
    /// containers that EXEC recorded. These records are wrong: they do not say what the server has.
    pub(super) fn publish(mut self) -> Result<(), (ImportError, BTreeSet<Vec<u8>>)> {
        let records_are_valid = |error| (error, BTreeSet::new());
        self.settle().map_err(records_are_valid)?;
        self.connection.send(&["EXEC"]).map_err(records_are_valid)?;
        match self.connection.receive_container().map_err(records_are_valid)? {
            Value::Array(replies) => {
                let is_copy = |at: usize| self.copies.binary_search(&at).is_ok();
                let mut errors = replies.iter().enumerate().filter_map(|(at, reply)| match reply {
                    Value::Error(text) => Some(&text[..]),
                    Value::Int(0) if is_copy(at) => Some(&b"a document to copy was deleted meanwhile"[..]),
                    _ => None,
                });
                match errors.next() {
                    None => Ok(()),
                    Some(text) => {
                        let number = 1 + errors.count();
                        let text = [format!("{number} changes: ").as_bytes(), text].concat();
                        Err((refused(&["EXEC"], &text), self.stored))
                    }
                }
            }
            Value::Error(text) => Err(records_are_valid(refused(&["EXEC"], &text))),
            other => Err(records_are_valid(unexpected(&other))),
        }
    }
}
