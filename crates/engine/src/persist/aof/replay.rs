//! [`Replayer`]: the commands of a file, run one after the other on the data that nobody else sees yet.
//!
//! No key expires meanwhile: a file speaks of keys as they were. What has expired goes when the loading is done.

use crate::session::replay_scripting;
use crate::{Engine, Now};
use strand_chain::Chain;
use strand_commands::dispatch;
use strand_commands::run::{self, Context};
use strand_commands::spec::{CommandSpec, Exec, SessionCommand};
use strand_keyspace::types::string::parse_int;
use strand_keyspace::{KeyHash, Txn};
use strand_wire::args::{Args, Argv};
use strand_wire::reply::{Protocol, Reply};

/// Replies are of no use; one that is longer is cut.
const REPLY_BYTES_MAX: usize = 1 << 20;
/// So much of an error is shown.
const SHOWN_BYTES_MAX: usize = 200;

/// Runs the commands of one file.
pub(super) struct Replayer<'e> {
    engine: &'e Engine,
    now: Now,
    /// The database that is selected.
    pub(super) db: usize,
    /// The commands since MULTI.
    queue: Option<Vec<(&'static CommandSpec, Argv)>>,
    rng: fastrand::Rng,
    out: Chain,
    /// Commands run.
    pub(super) commands: u64,
    /// Commands that replied with an error, and the first such reply.
    pub(super) failed: u64,
    pub(super) first_error: Option<String>,
}

impl<'e> Replayer<'e> {
    pub(super) fn new(engine: &'e Engine, now: Now) -> Replayer<'e> {
        Replayer {
            engine,
            now,
            db: 0,
            queue: None,
            rng: fastrand::Rng::with_seed(engine.facts.run_id_seed),
            out: Chain::new(),
            commands: 0,
            failed: 0,
            first_error: None,
        }
    }
    /// True between MULTI and EXEC.
    pub(super) fn in_multi(&self) -> bool {
        self.queue.is_some()
    }
    /// Runs a command, or keeps it until EXEC; its arguments may be taken.
    ///
    /// # Errors
    /// Why it is none that may stand in a file.
    pub(super) fn command(&mut self, argv: &mut Argv) -> Result<(), String> {
        let args = argv.args();
        let found = dispatch::resolve(args).map_err(|text| shown(&text))?;
        let spec = found.spec;
        match (spec.exec, &mut self.queue) {
            (Exec::Session(SessionCommand::Multi), Some(_)) => Err("MULTI inside MULTI".into()),
            (Exec::Session(SessionCommand::Multi), none) => {
                *none = Some(Vec::new());
                Ok(())
            }
            (Exec::Session(SessionCommand::Exec), queue) => {
                let Some(queue) = queue.take() else { return Err("EXEC without MULTI".into()) };
                queue.iter().try_for_each(|(spec, argv)| self.run(spec, argv.args()))
            }
            (_, Some(queue)) => {
                queue.push((spec, std::mem::take(argv)));
                Ok(())
            }
            (_, None) => self.run(spec, args),
        }
    }

    fn run(&mut self, spec: &'static CommandSpec, args: Args<'_>) -> Result<(), String> {
        self.commands += 1;
        if run::handler(spec).is_some() {
            let error = match exact_trim_with_limit(spec, args) {
                None => self.run_on_data(spec, args),
                Some(limit) => {
                    let kept = (0..args.len()).filter(|at| !(limit..limit + 2).contains(at));
                    let kept: Vec<&[u8]> = kept.map(|at| args.at(at)).collect();
                    self.run_on_data(spec, Argv::from_slices(&kept).args())
                }
            };
            self.note(error);
            return Ok(());
        }
        match spec.exec {
            Exec::Session(SessionCommand::Select) => self.select(args),
            Exec::Session(command) => {
                let mut reply = Reply::new(&mut self.out, Protocol::Resp2);
                match replay_scripting(self.engine, command, args, &mut reply) {
                    Some(Ok(())) => {}
                    Some(Err(text)) => self.note(Some(shown(&text))),
                    None if changes_nothing(command) => {}
                    None => return Err(format!("{} cannot be run from a file", spec.name)),
                }
                self.out = Chain::new();
                Ok(())
            }
            // Indexes and sets of patterns: what cannot be made again is logged.
            Exec::Service(_) => {
                let words: Vec<&[u8]> = args.iter().collect();
                self.engine.define(&words, self.now);
                Ok(())
            }
            _ => Err(format!("{} cannot be run from a file", spec.name)),
        }
    }
    fn run_on_data(&mut self, spec: &'static CommandSpec, args: Args<'_>) -> Option<String> {
        let keyspace = &*self.engine.keyspace;
        let now_ms = self.now.unix_ms();
        let mut txn: Txn<'_> = match run::needs_all_shards(spec) {
            true => keyspace.lock_all(now_ms),
            false => {
                let keys = dispatch::keys_to_lock(spec, args);
                let hashes: smallvec::SmallVec<[KeyHash; 4]> =
                    keys.iter().map(|at| keyspace.key(args.at(*at)).hash).collect();
                keyspace.lock(&hashes, now_ms)
            }
        };
        txn.set_replaying();
        let context = Context {
            db: self.db,
            protocol: Protocol::Resp2,
            reply_bytes_max: REPLY_BYTES_MAX,
            rng: &mut self.rng,
            rights: None,
            client: 0,
        };
        let error = run::whole(spec, args, &mut txn, &mut self.out, context);
        drop(txn);
        let text = error.map(|_| {
            let mut line = vec![0; self.out.len().min(SHOWN_BYTES_MAX)];
            self.out.peek(&mut line);
            shown(line.trim_ascii())
        });
        let bytes = self.out.len();
        self.out.advance(bytes);
        text
    }
    fn select(&mut self, args: Args<'_>) -> Result<(), String> {
        let databases = self.engine.keyspace.databases();
        let db = parse_int(args.at(1)).and_then(|db| usize::try_from(db).ok()).filter(|db| *db < databases);
        self.db =
            db.ok_or_else(|| format!("SELECT {}; the server has {databases} databases", shown(args.at(1))))?;
        Ok(())
    }
    fn note(&mut self, error: Option<String>) {
        if let Some(text) = error {
            self.failed += 1;
            self.first_error.get_or_insert(text);
        }
    }
}

/// Where `LIMIT count` stands behind an exact length or ID: redis-server writes XADD and XTRIM so when they were sent with `~`, and
/// passes over it when it loads the file; clients are refused.
fn exact_trim_with_limit(spec: &CommandSpec, args: Args<'_>) -> Option<usize> {
    if !matches!(spec.name, "xadd" | "xtrim") {
        return None;
    }
    let option = (2..args.len().min(4)).find(|at| args.is(*at, "MAXLEN") || args.is(*at, "MINID"))?;
    let is_exact = args.get(option + 1) == Some(b"=");
    (is_exact && option + 4 < args.len() && args.is(option + 3, "LIMIT")).then_some(option + 3)
}

/// Commands about a connection, or about nothing that stays.
fn changes_nothing(command: SessionCommand) -> bool {
    use SessionCommand as S;
    matches!(command, S::Ping | S::Echo | S::Publish | S::SPublish | S::Unwatch | S::Watch)
}

fn shown(bytes: &[u8]) -> String {
    bytes[..bytes.len().min(SHOWN_BYTES_MAX)].escape_ascii().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_behind_an_exact_length_is_passed_over() {
        for (line, limit) in [
            ("XADD k MAXLEN = 5 LIMIT 10 1-1 f v", Some(5)),
            ("XADD k NOMKSTREAM MINID = 5-1 LIMIT 10 1-1 f v", Some(6)),
            ("XTRIM k MAXLEN = 5 LIMIT 10", Some(5)),
            ("XADD k MAXLEN ~ 5 LIMIT 10 1-1 f v", None),
            ("XADD k MAXLEN = 5 1-1 LIMIT v", None),
            ("XADD k 1-1 MAXLEN =", None),
            ("XTRIM k MAXLEN = 5", None),
            ("SET k MAXLEN = 5 LIMIT 10", None),
        ] {
            let words: Vec<&str> = line.split(' ').collect();
            let argv = Argv::from_slices(&words);
            let spec = strand_commands::dispatch::lookup(words[0].as_bytes()).expect("a command");
            assert_eq!(exact_trim_with_limit(spec, argv.args()), limit, "{line}");
        }
    }
}
