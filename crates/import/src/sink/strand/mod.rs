//! [`Strand`]: sends the changes of a dataset to a Strand server, as pipelined commands and in bounded memory.
//!
//! Commands are sent until [`BYTES_UNDER_WAY_MAX`] bytes or [`COMMANDS_UNDER_WAY_MAX`] commands wait for replies. Then
//! half of the replies are read before more is sent. If the server refuses one document, the run continues, and
//! [`Sink::drain`] returns a [`Rejected`]. Any other refusal ends the run. In a dry run nothing is sent.

mod copying;

use super::transaction::Transaction;
use super::{Place, Records, Rejected, Sink};
use crate::connection::{Connection, Target, refused};
use crate::container::{ContainerBuilder, ContainerDigest};
use crate::document::EXTRACTOR_VERSION;
use crate::fields::{FIELDS, Fields};
use crate::index::{self, TextIndex};
use crate::versions::{self, COMMAND, unexpected};
use crate::{ImportError, ImportOptions};
use copying::Copying;
use std::collections::{BTreeMap, HashSet, VecDeque};
use strand_wire::client::Value;

/// Maximum number of bytes of commands that wait for replies.
pub const BYTES_UNDER_WAY_MAX: usize = 4 << 20;
/// Maximum number of commands that wait for replies. Their replies (a number each) fit into the socket's buffers, so
/// server and importer never wait for each other.
pub const COMMANDS_UNDER_WAY_MAX: usize = 1024;

/// A command that waits for its reply, and the data to handle the reply.
#[derive(Debug)]
enum Awaited {
    /// HSET of a whole document.
    Replaced { index: usize, held: bool, present: u32, key: Vec<u8> },
    /// HREPLACE NX of a key that should be free. If the key exists, the HSET of [`Awaited::TypeChecked`] follows.
    Placed { index: usize, pairs: Vec<Vec<u8>>, key: Vec<u8> },
    /// HSET whose reply shows whether the key is a hash. If it is, HREPLACE follows.
    TypeChecked { index: usize, pairs: Vec<Vec<u8>>, key: Vec<u8> },
    /// HSET whose reply shows whether the key is still a hash. If it is, COPY from the key `from` follows.
    TypeCheckedForCopy { copy: Copying, from: Vec<u8> },
    /// COPY. HSET and HDEL of the fields that depend on the path follow.
    Copied(Copying),
    /// COPY to the stash. A reply of 0 is ignored: [`Sink::holds`] asks later whether the stash has the document.
    Stashed,
    /// A change of one field, or the removal of the fields that a document lacks.
    Changed { index: usize },
    /// UNLINK.
    Removed,
    /// IMPORT.VERSION REPORT.
    Reported,
    /// IMPORT.VERSION SET or DEL.
    Version(&'static str),
}

/// Maximum number of keys in one UNLINK.
const UNLINKED_KEYS_MAX: u32 = 512;

/// A dataset on a server.
#[derive(Debug)]
pub(crate) struct Strand {
    connection: Connection,
    into: String,
    dataset: Vec<u8>,
    awaited: VecDeque<(usize, Awaited)>,
    bytes_under_way: usize,
    rejected: Vec<Rejected>,
    /// The transaction that publishes all changes of the run at once. `None` without `--atomic`.
    transaction: Option<Transaction>,
    /// The number that HOLD replied. `None` in a dry run, which sends no change.
    hold: Option<String>,
    /// True when the hold was renewed, because the database was flushed or swapped.
    is_flushed: bool,
    /// Number of versions that the text indexes keep, as digits. `None` when no index can follow the documents, because
    /// they are not in database 0.
    keep: Option<String>,
}

impl Records for Strand {
    fn read(&mut self, names: &[Vec<u8>]) -> Result<Vec<Option<Vec<u8>>>, ImportError> {
        let mut found = versions::read(&mut self.connection, &self.into, names)?;
        if let Some(transaction) = &self.transaction {
            let gone = names.iter().zip(&mut found).filter(|(name, _)| transaction.has_forgotten(name));
            gone.for_each(|(_, found)| *found = None);
        }
        Ok(found)
    }

    fn missing<'a>(
        &mut self,
        path: &[u8],
        names: &[&'a [u8]],
    ) -> Result<Option<HashSet<&'a [u8]>>, ImportError> {
        versions::missing(&mut self.connection, &self.into, path, names).map(Some)
    }

    fn store(&mut self, name: &[u8], blob: &[u8]) -> Result<(), ImportError> {
        let dataset = self.dataset.clone();
        if let Some(transaction) = &mut self.transaction {
            transaction.note_stored(name);
        }
        let mut args = vec![COMMAND.as_bytes(), b"SET", &dataset, name, blob];
        let hold = self.hold.clone();
        args.extend(hold.iter().flat_map(|number| [&b"HOLD"[..], number.as_bytes()]));
        self.send(&args, Awaited::Version("SET"))
    }

    fn forget(&mut self, names: &[&[u8]]) -> Result<(), ImportError> {
        let dataset = self.dataset.clone();
        if let Some(transaction) = &mut self.transaction {
            names.iter().for_each(|name| transaction.note_forgotten(name));
        }
        let mut args = vec![COMMAND.as_bytes(), b"DEL", &dataset];
        args.extend_from_slice(names);
        self.send(&args, Awaited::Version("DEL"))
    }
}

impl Sink for Strand {
    fn can_set_fields(&self) -> bool {
        true
    }

    fn is_flushed(&mut self, error: &ImportError) -> bool {
        let may_ask = matches!(error, ImportError::Refused { .. }) && self.transaction.is_none();
        if may_ask && !self.is_flushed {
            self.is_flushed = self.renew_hold().unwrap_or(false);
        }
        self.is_flushed
    }

    fn ensure_index(&mut self) -> Result<TextIndex, ImportError> {
        index::ensure(&mut self.connection, &self.into, self.hold.is_none())
    }

    /// Deletes the fields that the document lacks. If the server has the document, the HDEL is sent at once. Otherwise
    /// it is sent only if the reply to HSET shows that the key existed.
    fn replace(
        &mut self,
        path: &[u8],
        fields: &Fields,
        held: bool,
        may_have_extra_fields: bool,
        index: usize,
    ) -> Result<(), ImportError> {
        let key = self.key(path);
        if self.transaction.is_some() {
            return self.replace_in_transaction(&key, fields, held, index);
        }
        if may_have_extra_fields || fields.extra_len() > 0 {
            return self.replace_whole(key, fields, held, index);
        }
        let mut args: Vec<&[u8]> = vec![b"HSET", &key];
        let mut present = 0u32;
        for (name, value) in fields.present() {
            args.extend([name.as_bytes(), value]);
            present |= 1 << field_index(name);
        }
        self.send(&args, Awaited::Replaced { index, held, present, key: key.clone() })?;
        if held { self.delete_absent(&key, present, index) } else { Ok(()) }
    }

    fn can_copy(&self) -> bool {
        self.hold.is_some()
    }

    /// Tries COPY with a key that no document has. The connection's user may lack the right to use COPY, or these keys.
    fn may_copy(&mut self, to_stash: bool) -> Result<bool, ImportError> {
        while !self.awaited.is_empty() {
            self.settle()?;
        }
        // No document has an empty path, or a path that begins with a slash.
        let (from, to) = (self.key(b"/"), if to_stash { self.stash_key(0) } else { self.key(b"//") });
        match self.connection.call(&[&b"COPY"[..], &from, &to]) {
            Ok(_) => Ok(true),
            Err(ImportError::Refused { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn holds(&mut self, places: &[&Place]) -> Result<Vec<bool>, ImportError> {
        let keys: Vec<Vec<u8>> = places.iter().map(|place| self.place_key(place)).collect();
        let mut are_held = versions::are_hashes(&mut self.connection, &keys)?;
        if self.transaction.is_some() {
            // In a transaction the stash is filled only at EXEC. `stash` has checked that each document is a hash, so
            // it is in the stash when EXEC runs the COPY from there.
            let is_stash = places.iter().map(|place| matches!(place, Place::Stash(_)));
            are_held.iter_mut().zip(is_stash).for_each(|(is_held, is_stash)| *is_held |= is_stash);
        }
        Ok(are_held)
    }

    fn stash(&mut self, path: &[u8], number: u32) -> Result<bool, ImportError> {
        let (from, to) = (self.key(path), self.stash_key(number));
        if self.transaction.is_some()
            && !versions::are_hashes(&mut self.connection, std::slice::from_ref(&from))?[0]
        {
            return Ok(false);
        }
        self.send(&[&b"COPY"[..], &from, &to, b"REPLACE"], Awaited::Stashed)?;
        Ok(true)
    }

    fn clear_stash(&mut self, count: u32) -> Result<(), ImportError> {
        for first in (0..count).step_by(UNLINKED_KEYS_MAX as usize) {
            let last = count.min(first.saturating_add(UNLINKED_KEYS_MAX));
            let keys: Vec<Vec<u8>> = (first..last).map(|number| self.stash_key(number)).collect();
            let mut args: Vec<&[u8]> = vec![b"UNLINK"];
            args.extend(keys.iter().map(Vec::as_slice));
            self.send(&args, Awaited::Removed)?;
        }
        Ok(())
    }

    fn copy(
        &mut self,
        from: &Place,
        path: &[u8],
        fields: &[(&str, &[u8])],
        held: bool,
        index: usize,
    ) -> Result<(), ImportError> {
        let (from, key) = (self.place_key(from), self.key(path));
        let pairs = fields.iter().map(|(name, value)| (name.as_bytes().to_vec(), value.to_vec())).collect();
        let copy = Copying { index, held, pairs, key };
        if self.transaction.is_some() {
            return self.copy_in_transaction(&from, copy);
        }
        match held {
            false => self.send_copy(&from, copy),
            true => {
                let args = copy.set_fields();
                self.send(&args, Awaited::TypeCheckedForCopy { copy, from })
            }
        }
    }

    fn set_field(&mut self, path: &[u8], field: &str, value: &[u8], index: usize) -> Result<(), ImportError> {
        let key = self.key(path);
        let awaited = Awaited::Changed { index };
        match value.is_empty() {
            true => self.send(&[&b"HDEL"[..], &key, field.as_bytes()], awaited),
            false => self.send(&[&b"HSET"[..], &key, field.as_bytes(), value], awaited),
        }
    }

    fn remove(&mut self, path: &[u8]) -> Result<(), ImportError> {
        let key = self.key(path);
        self.send(&[&b"UNLINK"[..], &key], Awaited::Removed)
    }

    fn report(&mut self, words: &[(&str, Vec<u8>)]) -> Result<(), ImportError> {
        let dataset = self.dataset.clone();
        let mut args: Vec<&[u8]> = vec![COMMAND.as_bytes(), b"REPORT", &dataset];
        args.extend(words.iter().flat_map(|(name, value)| [name.as_bytes(), value]));
        if self.hold.is_none() || self.transaction.is_none() {
            self.send(&args, Awaited::Reported)?;
            // Documents wait for the report at most. With a slow source, the buffer is full only after minutes.
            return self.connection.flush();
        }
        // Send the report outside of the transaction, so that clients see it before EXEC.
        self.connection.send(&args)?;
        self.connection.receive().map(drop)
    }

    fn drain(&mut self) -> Result<Vec<Rejected>, ImportError> {
        if let Some(transaction) = &mut self.transaction {
            transaction.settle()?;
        }
        while !self.awaited.is_empty() {
            self.settle()?;
        }
        Ok(std::mem::take(&mut self.rejected))
    }

    fn finish(&mut self, version: Option<&ContainerDigest>) -> Result<Option<String>, ImportError> {
        if let Some(transaction) = self.transaction.take() {
            transaction.publish().or_else(|(error, invalid)| {
                // EXEC has recorded containers although some of their changes failed. An empty intent makes all documents
                // of a container doubtful, so the next run does not trust the record.
                let nothing = ContainerBuilder::empty(EXTRACTOR_VERSION);
                for mut name in invalid.into_iter().filter(|name| !name.ends_with(b"/")) {
                    name.push(b'/');
                    self.connection.call(&[COMMAND.as_bytes(), b"SET", &self.dataset, &name, &nothing])?;
                }
                Err(error)
            })?;
        }
        let Some((version, hold)) = version.zip(self.hold.clone()) else { return Ok(None) };
        // In a run without changes, a report may still wait for its reply.
        while !self.awaited.is_empty() {
            self.settle()?;
        }
        let name: String = version.iter().map(|byte| format!("{byte:02x}")).collect();
        // The index must keep the version before the version is published: a client that waits for the version may
        // search it at once. Null: the index needs more calls.
        while let Some(count) = &self.keep
            && self.connection.call(&[COMMAND, "KEEP", &self.into, &name, "COUNT", count])? == Value::Null
        {
        }
        match self.connection.call(&[COMMAND, "PUBLISH", &self.into, &name, "HOLD", &hold])? {
            Value::Bulk(token) => Ok(Some(String::from_utf8_lossy(&token).into_owned())),
            other => Err(unexpected(&other)),
        }
    }

    fn difference(&mut self, path: &[u8], fields: &Fields) -> Result<Option<String>, ImportError> {
        let key = self.key(path);
        let connection = &mut self.connection;
        connection.send(&[&b"HGETALL"[..], &key])?;
        let pairs = match connection.receive_container()? {
            Value::Array(pairs) => pairs,
            Value::Error(text) if text.starts_with(b"WRONGTYPE") => {
                return Ok(Some("the key of this name at the server is not a hash".to_owned()));
            }
            Value::Error(text) => return Err(refused(&["HGETALL"], &text)),
            other => return Err(unexpected(&other)),
        };
        let mut held = BTreeMap::new();
        for pair in pairs.chunks_exact(2) {
            match pair {
                [Value::Bulk(name), Value::Bulk(value)] => held.insert(&name[..], &value[..]),
                [other, _] => return Err(unexpected(other)),
                _ => None,
            };
        }
        if held.is_empty() {
            return Ok(Some("the server does not have it".to_owned()));
        }
        for (name, value) in fields.present() {
            if held.remove(name.as_bytes()) != Some(value) {
                return Ok(Some(format!("the field {name} differs at the server")));
            }
        }
        let unexpected = held.keys().next().map(|name| String::from_utf8_lossy(name).into_owned());
        Ok(unexpected.map(|name| format!("the server has a field {name}, the source does not")))
    }
}

impl Strand {
    /// Connects, and claims the dataset for this importer until the connection closes.
    pub(crate) fn open(options: &ImportOptions) -> Result<Strand, ImportError> {
        let target = Target {
            address: &options.address,
            tls: options.tls.as_ref(),
            username: options.username.as_deref(),
            password: options.password.as_deref(),
            db: options.db,
        };
        let mut connection = Connection::open(&target)?;
        let hold = match options.dry_run {
            true => None,
            false => match connection.call(&[COMMAND, "HOLD", &options.into])? {
                Value::Int(0) => return Err(ImportError::Busy { dataset: options.into.clone() }),
                Value::Int(number) => Some(number.to_string()),
                other => return Err(unexpected(&other)),
            },
        };
        let is_atomic = options.atomic && !options.dry_run;
        let transaction = is_atomic.then(|| Transaction::begin(&target)).transpose()?;
        let (into, dataset) = (options.into.clone(), options.into.as_bytes().to_vec());
        let (awaited, rejected) = (VecDeque::new(), Vec::new());
        Ok(Strand {
            connection,
            into,
            dataset,
            awaited,
            bytes_under_way: 0,
            rejected,
            transaction,
            hold,
            is_flushed: false,
            keep: (options.db == 0).then(|| options.keep_versions.to_string()),
        })
    }

    /// Replaces the hash at `key` by the document, with one command. If another client may use the key, replaces it
    /// only if the key is free or a hash.
    fn replace_whole(
        &mut self,
        key: Vec<u8>,
        fields: &Fields,
        held: bool,
        index: usize,
    ) -> Result<(), ImportError> {
        let pairs: Vec<Vec<u8>> =
            fields.present().flat_map(|(name, value)| [name.as_bytes().to_vec(), value.to_vec()]).collect();
        let awaited = match held {
            true => Awaited::Changed { index },
            false => Awaited::Placed { index, pairs: pairs.clone(), key: key.clone() },
        };
        let mut args: Vec<&[u8]> = vec![b"HREPLACE", &key];
        args.extend((!held).then_some(&b"NX"[..]));
        args.push(b"FIELDS");
        args.extend(pairs.iter().map(Vec::as_slice));
        self.send(&args, awaited)
    }

    /// [`Sink::replace`] in a transaction. The replies arrive only at EXEC, so the key's type is checked before.
    fn replace_in_transaction(
        &mut self,
        key: &[u8],
        fields: &Fields,
        held: bool,
        index: usize,
    ) -> Result<(), ImportError> {
        if !held && !self.is_free_or_hash(key)? {
            self.rejected.push(Rejected::not_a_hash(index));
            return Ok(());
        }
        let mut args: Vec<&[u8]> = vec![b"HREPLACE", key, b"FIELDS"];
        args.extend(fields.present().flat_map(|(name, value)| [name.as_bytes(), value]));
        self.send(&args, Awaited::Changed { index })
    }

    /// Takes a new hold. Returns true when the number differs from that of the former hold.
    fn renew_hold(&mut self) -> Result<bool, ImportError> {
        let Some(former) = self.hold.take() else { return Ok(false) };
        for _ in self.awaited.drain(..) {
            self.connection.receive()?;
        }
        self.bytes_under_way = 0;
        let Value::Int(number) = self.connection.call(&[COMMAND, "HOLD", &self.into])? else {
            return Ok(false);
        };
        let number = number.to_string();
        let is_new = number != former;
        self.hold = Some(number);
        Ok(is_new)
    }

    /// True when the key does not exist or is a hash.
    fn is_free_or_hash(&mut self, key: &[u8]) -> Result<bool, ImportError> {
        let kind = self.connection.call(&[&b"TYPE"[..], key])?;
        Ok(matches!(&kind, Value::Simple(name) if *name == b"none"[..] || *name == b"hash"[..]))
    }

    fn key(&self, path: &[u8]) -> Vec<u8> {
        [&self.dataset[..], b":", path].concat()
    }

    fn send<T: AsRef<[u8]>>(&mut self, args: &[T], awaited: Awaited) -> Result<(), ImportError> {
        if self.hold.is_none() {
            return Ok(());
        }
        if let Some(transaction) = &mut self.transaction {
            return transaction.queue(args);
        }
        if self.awaited.len() >= COMMANDS_UNDER_WAY_MAX || self.bytes_under_way >= BYTES_UNDER_WAY_MAX {
            // Read half of the replies at once. Otherwise each command would be written to the socket alone.
            while self.awaited.len() > COMMANDS_UNDER_WAY_MAX / 2
                || self.bytes_under_way > BYTES_UNDER_WAY_MAX / 2
            {
                self.settle()?;
            }
        }
        let bytes = self.connection.send(args)?;
        self.bytes_under_way += bytes;
        self.awaited.push_back((bytes, awaited));
        Ok(())
    }

    /// Reads and handles one reply.
    fn settle(&mut self) -> Result<(), ImportError> {
        let reply = self.connection.receive()?;
        let (bytes, awaited) = self.awaited.pop_front().expect("only called with replies to come");
        self.bytes_under_way -= bytes;
        match (awaited, reply) {
            (Awaited::Replaced { index, .. } | Awaited::Changed { index }, Value::Error(text))
                if text.starts_with(b"WRONGTYPE") =>
            {
                // The server refuses both HSET and HDEL of a document, but the document counts once.
                if self.rejected.last().is_none_or(|r| r.index != index) {
                    self.rejected.push(Rejected::not_a_hash(index));
                }
                Ok(())
            }
            (Awaited::TypeChecked { index, .. }, Value::Error(text)) if text.starts_with(b"WRONGTYPE") => {
                self.rejected.push(Rejected::not_a_hash(index));
                Ok(())
            }
            (Awaited::TypeCheckedForCopy { copy, .. }, Value::Error(text))
                if text.starts_with(b"WRONGTYPE") =>
            {
                self.rejected.push(Rejected::not_a_hash(copy.index));
                Ok(())
            }
            (Awaited::TypeCheckedForCopy { copy, from }, Value::Int(_)) => self.send_copy(&from, copy),
            (Awaited::Copied(copy), Value::Int(copied)) => self.place_copy(&copy, copied == 1),
            // Ignore errors: an older server does not know reports.
            (Awaited::Reported, _) => Ok(()),
            (awaited, Value::Error(text)) => Err(refused(&awaited.command(), &text)),
            (Awaited::Placed { index, pairs, key }, Value::Null) => {
                let mut args: Vec<&[u8]> = vec![b"HSET", &key];
                args.extend(pairs.iter().map(Vec::as_slice));
                self.send(&args, Awaited::TypeChecked { index, pairs: pairs.clone(), key: key.clone() })
            }
            (Awaited::TypeChecked { index, pairs, key }, Value::Int(_)) => {
                let mut args: Vec<&[u8]> = vec![b"HREPLACE", &key, b"FIELDS"];
                args.extend(pairs.iter().map(Vec::as_slice));
                self.send(&args, Awaited::Changed { index })
            }
            (Awaited::Replaced { index, held: false, present, key }, Value::Int(fresh))
                if fresh < i64::from(present.count_ones()) =>
            {
                // The key existed, perhaps with fields that this document lacks.
                self.delete_absent(&key, present, index)
            }
            (Awaited::Version("SET"), Value::Simple(_)) => Ok(()),
            (Awaited::Version("SET"), other) => Err(unexpected(&other)),
            (_, Value::Int(_)) => Ok(()),
            (_, other) => Err(unexpected(&other)),
        }
    }

    fn delete_absent(&mut self, key: &[u8], present: u32, index: usize) -> Result<(), ImportError> {
        let mut args: Vec<&[u8]> = vec![b"HDEL", key];
        args.extend(FIELDS.iter().filter(|f| present & (1 << field_index(f)) == 0).map(|f| f.as_bytes()));
        if args.len() == 2 {
            return Ok(());
        }
        self.send(&args, Awaited::Changed { index })
    }
}

impl Awaited {
    fn command(&self) -> [&'static str; 2] {
        match self {
            Awaited::Replaced { .. } | Awaited::TypeChecked { .. } => ["HSET", "of a document"],
            Awaited::Placed { .. } => ["HREPLACE", "of a document"],
            Awaited::TypeCheckedForCopy { .. } => ["HSET", "of a document"],
            Awaited::Copied(_) | Awaited::Stashed => ["COPY", "of a document"],
            Awaited::Changed { .. } => ["HSET or HDEL", "of a document"],
            Awaited::Removed => ["UNLINK", "of a document"],
            Awaited::Reported => [COMMAND, "REPORT"],
            Awaited::Version(sub) => [COMMAND, sub],
        }
    }
}

fn field_index(name: &str) -> usize {
    FIELDS.iter().position(|f| *f == name).expect("a field of the list")
}

const _: () = assert!(FIELDS.len() <= 32, "the set of present fields is a u32");
