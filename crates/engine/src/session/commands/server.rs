//! TIME SHUTDOWN BGREWRITEAOF BGSAVE LASTSAVE LOLWUT.

use super::connection::REDIS_VERSION;
use super::{DONE, Outcome, SYNTAX, Session};
use crate::persist::RewriteStart;
use crate::scripts::busy_text;
use crate::session::phases::ParkReason;
use crate::session::run::NextStep;
use crate::session::state::ShutdownOutcome;
use crate::{Engine, Now, ShutdownRequest, system_text};
use strand_commands::errors;
use strand_keyspace::types::string::parse_int;
use strand_wire::args::Args;
use strand_wire::reply::{ErrorText, Reply};

impl Session {
    pub(super) fn shutdown(&mut self, args: Args<'_>, now: Now) -> Outcome {
        // The outcome may be of an earlier SHUTDOWN, if the user has lost the right to SHUTDOWN during the wait.
        let former = self.shutdown.take().filter(|_| self.retry.is_retry);
        let outcome = match former {
            Some(outcome) => outcome,
            None => match shutdown_request(args)? {
                Some(request) => self.begin_shutdown(request)?,
                None if self.engine.give_up_end() => return self.ok(),
                None => return Err("ERR No shutdown in progress.".into()),
            },
        };
        match outcome.get() {
            Some(true) => Ok(NextStep::Stop(self.close())),
            Some(false) => Err(SHUTDOWN_FAILED.into()),
            None => {
                self.shutdown = Some(outcome);
                Ok(NextStep::Park(ParkReason::Shutdown, now.mono_us + LOOK_AT_SHUTDOWN_EVERY_US))
            }
        }
    }
    fn begin_shutdown(&self, request: ShutdownRequest) -> Result<ShutdownOutcome, ErrorText> {
        if !request.nosave
            && let Some(is_function) = self.engine.long_locks.is_busy(None)
        {
            return Err(busy_text(is_function).into());
        }
        let outcome = ShutdownOutcome::default();
        if let Some(ended) = self.engine.end_at_once(request) {
            if ended.is_ok() {
                self.engine.stop(request);
            }
            _ = outcome.set(ended.is_ok());
            return Ok(outcome);
        }
        // A thread of its own, because a helper thread would keep other commands waiting.
        let (result, wake) = (outcome.clone(), self.client.wake_handle().clone());
        let begun = self.engine.end_on_thread(request, move |engine, ended| {
            if ended.is_ok() {
                engine.stop(request);
            }
            _ = result.set(ended.is_ok());
            wake.wake();
        });
        begun.map_err(|why| {
            self.engine
                .host
                .warn(&format!("Cannot shut down: the system cannot start a thread: {}", system_text(&why)));
            SHUTDOWN_FAILED
        })?;
        Ok(outcome)
    }
    pub(super) fn bgsave(&mut self, args: Args<'_>, now: Now) -> Outcome {
        let is = |word: &str| args.len() == 2 && args.is(1, word);
        if is("CANCEL") {
            let text = self.engine.cancel_bgsave()?;
            self.reply().simple(text);
            return DONE;
        }
        if args.len() > 1 && !is("SCHEDULE") {
            return Err(SYNTAX.into());
        }
        if self.engine.persist.aof.is_rewriting() {
            if !is("SCHEDULE") {
                return Err(OTHER_CHILD.into());
            }
            self.engine.schedule_bgsave();
            self.reply().simple("Background saving scheduled");
            return DONE;
        }
        self.engine.bgsave(now)?;
        self.reply().simple("Background saving started");
        DONE
    }
    pub(super) fn bgrewriteaof(&mut self, now: Now) -> Outcome {
        let began = self.engine.bgrewriteaof(now)?;
        self.reply().simple(match began {
            RewriteStart::Running => "Background append only file rewriting started",
            RewriteStart::Scheduled => "Background append only file rewriting scheduled",
        });
        DONE
    }
    pub(super) fn last_save(&mut self) -> Outcome {
        let at_s = self.engine.persist.last_save_s();
        self.reply().int(at_s);
        DONE
    }
    pub(super) fn lolwut(&mut self, args: Args<'_>) -> Outcome {
        if args.is(1, "VERSION")
            && let Some(version) = args.get(2)
        {
            parse_int(version).ok_or(errors::NOT_AN_INTEGER)?;
        }
        let art = strand(&mut self.rng);
        let text = format!("{art}Strand {}. Redis ver. {REDIS_VERSION}\n", env!("CARGO_PKG_VERSION"));
        self.reply().verbatim("txt", text.as_bytes());
        DONE
    }
}

/// A session looks again this often whether its SHUTDOWN has ended, in case a wake-up was lost.
const LOOK_AT_SHUTDOWN_EVERY_US: u64 = 100_000;
const SHUTDOWN_FAILED: &str = "ERR Errors trying to SHUTDOWN. Check logs.";
const OTHER_CHILD: &str = "ERR Another child process is active (AOF?): can't BGSAVE right now. Use BGSAVE SCHEDULE in order \
                           to schedule a BGSAVE whenever possible.";

/// BGREWRITEAOF within EXEC, which holds shards. As in redis-server it starts after EXEC.
pub(super) fn bgrewriteaof_inside(engine: &Engine, reply: &mut Reply<'_>) -> Result<(), ErrorText> {
    engine.schedule_bgrewriteaof();
    reply.simple("Background append only file rewriting scheduled");
    Ok(())
}

/// Runs SAVE on a helper thread.
pub(super) fn save(engine: &Engine, now: Now, reply: &mut Reply<'_>) -> Result<(), ErrorText> {
    engine.save(now)?;
    reply.ok();
    Ok(())
}

/// BGSAVE within EXEC, which holds shards. As in redis-server it starts after EXEC.
pub(super) fn bgsave_inside(engine: &Engine, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), ErrorText> {
    match args.len() {
        1 => {}
        2 if args.is(1, "SCHEDULE") => {}
        2 if args.is(1, "CANCEL") => {
            reply.simple(engine.cancel_bgsave()?);
            return Ok(());
        }
        _ => return Err(SYNTAX.into()),
    }
    engine.schedule_bgsave();
    reply.simple("Background saving scheduled");
    Ok(())
}

/// TIME.
pub(super) fn time(now: Now, reply: &mut Reply<'_>) {
    reply.array(2);
    reply.bulk_int(now.unix_us.div_euclid(1_000_000));
    reply.bulk_int(now.unix_us.rem_euclid(1_000_000));
}

/// The options of SHUTDOWN. `None`: ABORT.
fn shutdown_request(args: Args<'_>) -> Result<Option<ShutdownRequest>, ErrorText> {
    let (mut request, mut abort) = (ShutdownRequest::default(), false);
    for i in 1..args.len() {
        if args.is(i, "NOW") {
            request.now = true;
        } else if args.is(i, "FORCE") {
            request.force = true;
        } else if args.is(i, "SAVE") {
            request.save = true;
        } else if args.is(i, "NOSAVE") {
            request.nosave = true;
        } else if args.is(i, "ABORT") {
            abort = true;
        } else {
            return Err(SYNTAX.into());
        }
    }
    let has_options = request.now || request.force || request.save || request.nosave;
    if (request.save && request.nosave) || (abort && has_options) {
        return Err(SYNTAX.into());
    }
    Ok((!abort).then_some(request))
}

/// Number of columns of the picture.
const COLUMNS: usize = 60;
/// Number of rows of the picture.
const ROWS: usize = 7;

/// A picture of two threads that wind around each other.
fn strand(rng: &mut fastrand::Rng) -> String {
    let middle = (ROWS - 1) as f64 / 2.0;
    let (phase, pace) = (rng.f64() * std::f64::consts::TAU, 0.15 + rng.f64() * 0.15);
    let row_of =
        |x: usize, shift: f64| (middle + middle * (phase + x as f64 * pace + shift).sin()).round() as usize;
    let ink = |y: usize, x: usize| {
        if row_of(x, std::f64::consts::PI) == y {
            '.'
        } else if row_of(x, 0.0) == y {
            'o'
        } else {
            ' '
        }
    };
    let row = |y: usize| (0..COLUMNS).map(|x| ink(y, x)).collect::<String>().trim_end().to_string() + "\n";
    (0..ROWS).map(row).collect()
}
