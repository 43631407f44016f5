//! The base file: the data of one moment, as an RDB or as commands.

use crate::config::Opt;
use crate::persist::moment::Definitions;
use crate::persist::save::aux_fields;
use crate::{Engine, Now};
use std::cell::Cell;
use std::io::{self, Write};
use strand_commands::serial::file::{Saving, save};
use strand_commands::serial::{self, system};
use strand_keyspace::{RecordRef, Snapshot, SnapshotRecords, Value, ValueRef};

impl Engine {
    /// Writes the base. Calls `report_progress` after each slice with the number of keys so far.
    pub(super) fn write_base_file(
        &self,
        is_rdb: bool,
        snapshot: Snapshot<'_>,
        definitions: &Definitions,
        now: Now,
        report_progress: &dyn Fn(u64) -> io::Result<()>,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        if !is_rdb {
            return self.write_base_commands(snapshot, definitions, now, report_progress, out);
        }
        let config = &self.config;
        let flag = |option| config.number(option) != 0;
        let aux = aux_fields(self, now, true);
        let saving = Saving {
            aux: &aux,
            commands: &definitions.encoded_commands(),
            functions: &definitions.libraries(),
            compress: flag(Opt::RdbCompression),
            checksum: flag(Opt::RdbChecksum),
            lru: config.choice(Opt::MaxMemoryPolicy).ends_with("-lru"),
            // Expired records are included, because the increments refer to them.
            expiry_ms: i64::MIN,
            clock_ms: &|| self.host.now().unix_ms(),
            pause: &|| self.host.yield_now(),
            progress: report_progress,
        };
        save(Some(snapshot), &saving, out).map(drop)
    }
    /// Writes the base as commands (`aof-use-rdb-preamble no`).
    fn write_base_commands(
        &self,
        mut snapshot: Snapshot<'_>,
        definitions: &Definitions,
        now: Now,
        report_progress: &dyn Fn(u64) -> io::Result<()>,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let mut out = io::BufWriter::with_capacity(BUFFER_BYTES, out);
        if self.config.number(Opt::AofTimestampEnabled) != 0 {
            write!(out, "#TS:{}\r\n", now.unix_s())?;
        }
        for code in definitions.libraries() {
            put(&mut out, &[b"FUNCTION", b"LOAD", &code])?;
        }
        for words in definitions.commands() {
            put(&mut out, &system::echo(words).each_ref().map(Vec::as_slice))?;
        }
        let (mut slice, mut keys, selected) = (Vec::new(), 0, Cell::new(None));
        while snapshot.next(&mut slice) {
            for part in slice.drain(..) {
                let part: SnapshotRecords = part;
                for record in part.records() {
                    if part.is_system() {
                        put_dataset(part.db(), record, &selected, &mut out)?;
                    } else {
                        keys += 1;
                        self.put_record(part.db(), record, &selected, &mut out)?;
                    }
                }
                snapshot.take_back(part);
            }
            report_progress(keys)?;
        }
        out.flush()
    }
    fn put_record(
        &self,
        db: usize,
        record: RecordRef<'_>,
        selected: &Cell<Option<usize>>,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        put_select(db, selected, out)?;
        let at_ms = record.expire_at_ms().map(|at| at.to_string());
        let at_ms = at_ms.as_deref().map(str::as_bytes);
        match (record.value(), at_ms) {
            (ValueRef::Str(string), None) => {
                put(out, &[b"SET", record.key(), string.bytes(&mut Default::default())])
            }
            (ValueRef::Str(string), Some(at)) => {
                put(out, &[b"SET", record.key(), string.bytes(&mut Default::default()), b"PXAT", at])
            }
            (value, at) => {
                let copy = value.with_hidden_fields();
                let value = copy.as_ref().map_or(value, Value::view);
                let payload = serial::payload(value, &|| self.host.yield_now());
                put(out, &[b"RESTORE", record.key(), at.unwrap_or(b"0"), &payload, b"ABSTTL"])
            }
        }
    }
}

/// Selects a database, unless it is selected.
fn put_select(db: usize, selected: &Cell<Option<usize>>, out: &mut dyn Write) -> io::Result<()> {
    match selected.replace(Some(db)) == Some(db) {
        true => Ok(()),
        false => put(out, &[b"SELECT", db.to_string().as_bytes()]),
    }
}

/// Writes the containers of an imported dataset, each as an ECHO that stands for IMPORT.VERSION SET.
fn put_dataset(
    db: usize,
    record: RecordRef<'_>,
    selected: &Cell<Option<usize>>,
    out: &mut dyn Write,
) -> io::Result<()> {
    let ValueRef::Hash(containers) = record.value() else { return Ok(()) };
    put_select(db, selected, out)?;
    for (path, container) in containers.iter() {
        let words: [&[u8]; 5] = [b"IMPORT.VERSION", b"SET", record.key(), &path, &container];
        put(out, &system::import_echo(&words).each_ref().map(Vec::as_slice))?;
    }
    Ok(())
}

/// Number of bytes that are gathered before a write.
const BUFFER_BYTES: usize = 256 << 10;

/// Writes a command to `out`.
fn put(out: &mut dyn Write, args: &[&[u8]]) -> io::Result<()> {
    write!(out, "*{}\r\n", args.len())?;
    for arg in args {
        write!(out, "${}\r\n", arg.len())?;
        out.write_all(arg)?;
        out.write_all(b"\r\n")?;
    }
    Ok(())
}
