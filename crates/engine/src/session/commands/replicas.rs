//! REPLCONF PSYNC SYNC ROLE: the commands with which replicas follow this server ([`crate::replication`]). REPLICAOF: this
//! server follows another one ([`crate::following`]).

use super::{DONE, Outcome, SYNTAX, Session};
use crate::following;
use crate::replication::{
    self, Facts, FailoverPhase, FailoverRequest, Outgrown, Phase, Replica, SnapshotParts, Taken,
};
use crate::session::phases::ParkReason;
use crate::session::run::NextStep;
use crate::session::settings::OutputClass;
use crate::tracking::TrackingFlags;
use crate::{Engine, Framing, Now, system_text};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use strand_commands::errors;
use strand_keyspace::types::string::parse_int;
use strand_wire::args::Args;
use strand_wire::inline;
use strand_wire::reply::{ErrorText, Reply};

/// Maximum length in bytes of the address that a replica tells.
const IP_BYTES_MAX: usize = 255;

/// Time between two looks whether this server has become a primary.
const TAKE_OVER_EVERY_US: u64 = 1_000;

/// The replica's part of a session.
#[derive(Default)]
pub(in crate::session) struct ReplicaSession {
    facts: Facts,
    /// The stream, from PSYNC on.
    stream: Option<Arc<Replica>>,
    /// True when this server becomes a primary because the client has asked for it (`PSYNC id offset FAILOVER`).
    is_taking_over: bool,
}

/// `FAILOVER [TO host port [FORCE]] [ABORT] [TIMEOUT milliseconds]`: a replica takes over from this server.
pub(super) fn failover(engine: &Engine, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), ErrorText> {
    if args.len() == 2 && args.is(1, "ABORT") {
        engine.abort_failover(None, "by FAILOVER ABORT")?;
        reply.ok();
        return Ok(());
    }
    let mut request = FailoverRequest::default();
    let mut at = 1;
    while at < args.len() {
        if args.is(at, "TIMEOUT") && at + 1 < args.len() && request.timeout_ms.is_none() {
            let ms = parse_int(args.at(at + 1)).ok_or(errors::NOT_AN_INTEGER)?;
            let ms = u64::try_from(ms).ok().filter(|ms| *ms > 0);
            request.timeout_ms = Some(ms.ok_or("ERR FAILOVER timeout must be greater than 0")?);
            at += 1;
        } else if args.is(at, "TO") && at + 2 < args.len() && request.target.is_none() {
            let port = parse_int(args.at(at + 2)).ok_or(errors::NOT_AN_INTEGER)?;
            let host = String::from_utf8_lossy(args.at(at + 1)).into_owned();
            // No replica listens at a port that does not exist.
            request.target = Some((host, u16::try_from(port).unwrap_or(0)));
            at += 2;
        } else if args.is(at, "FORCE") && !request.force {
            request.force = true;
        } else {
            return Err(SYNTAX.into());
        }
        at += 1;
    }
    let Some(engine) = engine.me() else { return Err("ERR the server stops".into()) };
    engine.begin_failover(request)?;
    reply.ok();
    Ok(())
}

/// `REPLICAOF host port`: this server follows that one. `REPLICAOF NO ONE`: it follows no other.
pub(super) fn replica_of(engine: &Engine, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), ErrorText> {
    if engine.failover_phase() != FailoverPhase::Off {
        return Err("ERR REPLICAOF not allowed while failing over.".into());
    }
    if args.is(1, "NO") && args.is(2, "ONE") {
        engine.stop_following();
        reply.ok();
        return Ok(());
    }
    let port = parse_int(args.at(2)).and_then(|port| u16::try_from(port).ok());
    let port = port.ok_or("ERR Invalid master port")?;
    let host = std::str::from_utf8(args.at(1)).map_err(|_| "ERR Invalid master host")?;
    let Some(engine) = engine.me() else { return Err("ERR the server stops".into()) };
    let is_new = engine.follow(host, port, None);
    let is_new = is_new.map_err(|why| format!("ERR cannot follow {host}:{port}: {}", system_text(&why)))?;
    match is_new {
        true => reply.ok(),
        false => reply.simple("OK Already connected to specified master"),
    }
    Ok(())
}

/// The value of `REPLCONF rdb-filter-only`: the names of the parts that the replica wants.
fn snapshot_parts(value: &[u8]) -> Result<SnapshotParts, ErrorText> {
    let names = inline::words(value).ok_or("ERR Missing rdb-filter-only values")?;
    match names.iter().find(|name| !name.eq_ignore_ascii_case(b"functions")) {
        Some(name) => Err([b"ERR Unsupported rdb-filter-only option: ", &name[..]].concat()),
        None => Ok(SnapshotParts { data: false, functions: !names.is_empty() }),
    }
}

impl Session {
    /// `REPLCONF option value [option value ...]`: what a replica tells about itself, and its acknowledgements. `ACK` and
    /// `GETACK` have no reply.
    pub(super) fn replconf(&mut self, args: Args<'_>, now: Now) -> Outcome {
        if args.len().is_multiple_of(2) {
            return Err(SYNTAX.into());
        }
        for at in (1..args.len()).step_by(2) {
            let value = args.at(at + 1);
            if args.is(at, "ACK") {
                let in_file = (at + 3 < args.len() && args.is(at + 2, "FACK")).then(|| args.at(at + 3));
                self.acknowledge_stream(value, in_file, now);
                return DONE;
            }
            if args.is(at, "GETACK") {
                return DONE;
            }
            let facts = &mut self.replica.get_or_insert_default().facts;
            if args.is(at, "LISTENING-PORT") {
                let port = parse_int(value).ok_or(errors::NOT_AN_INTEGER)?;
                facts.port = u16::try_from(port).unwrap_or_default();
            } else if args.is(at, "IP-ADDRESS") {
                if value.len() > IP_BYTES_MAX {
                    let bytes = value.len();
                    return Err(format!(
                        "ERR REPLCONF ip-address provided by replica instance is too long: {bytes} bytes"
                    )
                    .into());
                }
                facts.ip = Some(String::from_utf8_lossy(value).into_owned());
            } else if args.is(at, "CAPA") {
                facts.knows_ids |= value.eq_ignore_ascii_case(b"psync2");
            } else if args.is(at, "RDB-ONLY") {
                let only = parse_int(value).ok_or(errors::NOT_AN_INTEGER)?;
                if !(0..=1).contains(&only) {
                    return Err("ERR value is out of range, value must between 0 and 1".into());
                }
                facts.wants_snapshot_only = only == 1;
            } else if args.is(at, "RDB-FILTER-ONLY") {
                facts.parts = snapshot_parts(value)?;
            } else {
                return Err([b"ERR Unrecognized REPLCONF option: ", args.at(at)].concat());
            }
        }
        // A reply would be a part of the stream.
        if self.is_replica() { DONE } else { self.ok() }
    }
    fn acknowledge_stream(&mut self, offset: &[u8], in_file: Option<&[u8]>, now: Now) {
        let number = |text: &[u8]| parse_int(text).and_then(|offset| u64::try_from(offset).ok());
        let (Some(stream), Some(offset)) = (self.stream(), number(offset)) else { return };
        stream.acknowledge(offset, in_file.and_then(number), now.mono_us);
        self.engine.acknowledged();
        self.engine.replicas_changed();
    }
    /// `PSYNC replicationid offset` and `SYNC`: this connection gets the stream from now on. Reply: `+CONTINUE`, or
    /// `+FULLRESYNC` and then a snapshot (after SYNC only the snapshot).
    pub(super) fn psync(&mut self, args: Args<'_>, now: Now) -> Outcome {
        // As in redis-server, a replica gets no second stream, and a client in MONITOR counts as a replica.
        if self.is_replica() || self.is_monitor() {
            return DONE;
        }
        if args.len() > 3 && args.is(3, "FAILOVER") && self.takes_over(args)? {
            return Ok(NextStep::Park(ParkReason::Replicas, now.mono_us + TAKE_OVER_EVERY_US));
        }
        if self.engine.has_lost_primary() {
            return Err("NOMASTERLINK Can't SYNC while not connected with my master".into());
        }
        if self.is_subscriber() || self.client.tracked.mode() != TrackingFlags::OFF {
            return Err("ERR SYNC and PSYNC need a connection without subscriptions and tracking".into());
        }
        if self.replies.len() > 0 {
            return Err("ERR SYNC and PSYNC are invalid with pending output".into());
        }
        if self.client.peer.framing != Framing::Resp {
            return Err("ERR SYNC and PSYNC need a connection without frames".into());
        }
        let resumed = match args.len() {
            1 => None,
            _ => Some((args.at(1), parse_int(args.at(2)).ok_or(errors::NOT_AN_INTEGER)?)),
        };
        let mut facts = self.replica.get_or_insert_default().facts.clone();
        facts.is_silent = resumed.is_none();
        let bytes_max = self.settings.output(OutputClass::Replica).hard_bytes;
        let stream = Replica::new(self.client.clone(), facts, bytes_max);
        self.replica.get_or_insert_default().stream = Some(stream.clone());
        self.client.is_replica.store(true, Relaxed);
        self.update_guard();
        let (engine, totals) = (self.engine.clone(), &self.engine.replication.totals);
        if let Some((id, offset)) = resumed {
            if engine.resume_replica(&stream, id, offset) {
                totals.partial_ok.fetch_add(1, Relaxed);
                self.take_stream();
                return DONE;
            }
            totals.partial_err.fetch_add(u64::from(id != b"?"), Relaxed);
        }
        engine.host.log(&format!("Full resync requested by replica {}", stream.name()));
        engine.sync_replica(&stream);
        DONE
    }
    /// `PSYNC id offset FAILOVER`: this server becomes a primary. True while it is still a replica.
    fn takes_over(&mut self, args: Args<'_>) -> Result<bool, ErrorText> {
        let engine = self.engine.clone();
        let client = self.replica.get_or_insert_default();
        if !client.is_taking_over {
            engine.become_primary_for(args.at(1))?;
            client.is_taking_over = true;
        }
        Ok(engine.following.is_on())
    }
    /// `ROLE`. Reply: `master`, the offset of the stream, and the address, port and offset of each replica. Of a replica:
    /// `slave`, the primary's host and port, the state of the connection, and the offset.
    pub(super) fn role(&mut self) -> Outcome {
        if let Some((host, port, state, offset)) = following::role(&self.engine) {
            let mut reply = self.reply();
            reply.array(5);
            reply.bulk(b"slave");
            reply.bulk(host.as_bytes());
            reply.int(port.into());
            reply.bulk(state.as_bytes());
            reply.int(offset);
            return DONE;
        }
        let figures = replication::figures(&self.engine);
        let online: Vec<_> =
            figures.replicas.iter().filter(|replica| replica.phase() == Phase::Online).collect();
        let mut reply = self.reply();
        reply.array(3);
        reply.bulk(b"master");
        reply.int(figures.offset as i64);
        reply.array(online.len());
        for replica in online {
            reply.array(3);
            reply.bulk(replica.ip().as_bytes());
            reply.bulk(replica.facts.port.to_string().as_bytes());
            reply.bulk(replica.acked(false).to_string().as_bytes());
        }
        DONE
    }

    fn stream(&self) -> Option<&Arc<Replica>> {
        self.replica.as_ref().and_then(|replica| replica.stream.as_ref())
    }
    /// True when the client is a replica.
    #[inline]
    pub(in crate::session) fn is_replica(&self) -> bool {
        self.replica.as_ref().is_some_and(|replica| replica.stream.is_some())
    }
    /// Appends what is ready of the stream to the output.
    pub(in crate::session) fn take_stream(&mut self) {
        let Some(stream) = self.stream() else { return };
        stream.set_bytes_max(self.settings.output(OutputClass::Replica).hard_bytes);
        match stream.take() {
            Ok(Taken { bytes, is_shared, is_last }) => {
                self.engine.count_sent_to_replica(bytes.len());
                match is_shared {
                    true => self.replies.push_target().push_links(bytes),
                    false => replication::append_to(self.replies.push_target(), &bytes),
                }
                if is_last {
                    let _ = self.close();
                }
            }
            Err(Outgrown(waiting_bytes)) => self.abort_over_output_limit(waiting_bytes as usize),
        }
    }
    /// The replica's waiting output to which the limits apply.
    pub(in crate::session) fn limited_replica_bytes(&self) -> usize {
        let unsent_bytes = self.replies.out.len();
        self.stream().map_or(unsent_bytes, |stream| stream.limited_bytes(unsent_bytes))
    }
    /// Bytes of a replica show that it lives. While it loads its snapshot, it sends empty lines.
    pub(in crate::session) fn hear_replica(&self, now: Now) {
        if let Some(stream) = self.stream() {
            stream.hear(now.mono_us);
        }
    }
    /// Ends a replica that has sent something with an error as its reply, which would be a part of the stream.
    #[cold]
    pub(in crate::session) fn disconnect_replica(&mut self, text: &[u8]) {
        let (who, text) = (&self.client.peer.addr, String::from_utf8_lossy(text));
        self.engine.host.warn(&format!("Disconnecting replica {who}: its request failed: {text}"));
        self.client.kill();
    }
    /// The session ends: it follows no longer.
    pub(in crate::session) fn leave_replication(&mut self) {
        if let Some(stream) = self.replica.take().and_then(|replica| replica.stream) {
            // The output is freed while it still counts as the replica's, so no key is evicted for it.
            drop(std::mem::take(&mut self.replies.out));
            self.engine.forget_replica(&stream);
        }
    }
}
