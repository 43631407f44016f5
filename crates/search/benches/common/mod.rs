//! Runs commands of the service as a helper thread does.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};
use strand_chain::Chain;
use strand_commands::call::{Alone, LaneCall, RunsOn, ServiceOutcome, Services};
use strand_commands::spec::Exec;
use strand_commands::table::Table;
use strand_keyspace::Keyspace;
use strand_search::Search;
use strand_wire::args::Argv;
use strand_wire::client::{ReplyParser, Value};
use strand_wire::reply::{Protocol, Reply};

/// The fixed time of all commands, in Unix milliseconds.
pub const NOW_MS: i64 = 1_700_000_000_000;

static TABLE: Table = strand_commands::table!(strand_search::GROUPS);

/// The services of a process whose only service is search.
struct Only<'s>(&'s Search);

impl Services for Only<'_> {
    fn search(&self) -> &dyn Any {
        self.0
    }
    fn migrate(&self, _call: &mut LaneCall<'_>) -> ServiceOutcome {
        panic!("MIGRATE is no command of the service")
    }
}

/// Runs a command. Returns its duration and its reply, which must not be an error.
pub fn run(keyspace: &Keyspace, search: &Search, line: &[&str]) -> (Duration, Value) {
    let argv = Argv::from_slices(line);
    let Ok(Exec::Service(run)) = TABLE.resolve(argv.args()).map(|f| f.spec.exec) else {
        panic!("{line:?} is no command of a service")
    };
    let mut out = Chain::new();
    let start = Instant::now();
    run(
        &Only(search),
        &mut LaneCall {
            spec: None,
            args: argv.args(),
            client: 1,
            runs_on: RunsOn::Hard,
            db: 0,
            now_ms: NOW_MS,
            keyspace,
            long_locks: &Alone,
            reply: &mut Reply::new(&mut out, Protocol::Resp2),
            rng: &mut fastrand::Rng::with_seed(1),
            cancel: &Arc::new(AtomicBool::new(false)),
            no_touch: false,
            rights: None,
            lookups: Default::default(),
            error_is_counted: false,
            waits: false,
            yield_now: &|| {},
        },
    );
    let took = start.elapsed();
    let reply = ReplyParser::new().next(&mut out).expect("RESP").expect("one reply");
    assert!(!matches!(reply, Value::Error(_)), "{line:?}: {reply:?}");
    (took, reply)
}
