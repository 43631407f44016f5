//! TIME SHUTDOWN LOLWUT.

use super::connection::REDIS_VERSION;
use super::{DONE, Outcome, SYNTAX, Session};
use crate::session::run::Next;
use crate::{Now, ShutdownRequest};
use strand_commands::errors;
use strand_keyspace::types::string::parse_int;
use strand_wire::args::Args;

impl Session {
    pub(super) fn time(&mut self, now: Now) -> Outcome {
        let mut reply = self.reply();
        reply.array(2);
        reply.bulk_int(now.unix_us.div_euclid(1_000_000));
        reply.bulk_int(now.unix_us.rem_euclid(1_000_000));
        DONE
    }
    pub(super) fn shutdown(&mut self, args: Args<'_>) -> Outcome {
        let (mut request, mut save, mut no_save, mut abort) =
            (ShutdownRequest::default(), false, false, false);
        for i in 1..args.len() {
            match () {
                () if args.is(i, "NOW") => request.now = true,
                () if args.is(i, "FORCE") => request.force = true,
                () if args.is(i, "SAVE") => save = true,
                () if args.is(i, "NOSAVE") => no_save = true,
                () if args.is(i, "ABORT") => abort = true,
                () => return Err(SYNTAX.into()),
            }
        }
        if (save && no_save) || (abort && args.len() > 2) {
            return Err(SYNTAX.into());
        }
        if abort {
            return Err("ERR No shutdown in progress.".into());
        }
        if save && !request.force {
            // Nothing can be saved, and the client asked not to lose it.
            return Err("ERR Errors trying to SHUTDOWN. Check logs.".into());
        }
        self.engine.host.shutdown(request);
        Ok(Next::Stop(self.close()))
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

/// Columns and rows of the picture.
const COLUMNS: usize = 60;
const ROWS: usize = 7;

/// Two threads winding round each other.
fn strand(rng: &mut fastrand::Rng) -> String {
    let middle = (ROWS - 1) as f64 / 2.0;
    let (phase, pace) = (rng.f64() * std::f64::consts::TAU, 0.15 + rng.f64() * 0.15);
    let row_of =
        |x: usize, shift: f64| (middle + middle * (phase + x as f64 * pace + shift).sin()).round() as usize;
    let ink = |y: usize, x: usize| match () {
        () if row_of(x, std::f64::consts::PI) == y => '.',
        () if row_of(x, 0.0) == y => 'o',
        () => ' ',
    };
    let row = |y: usize| (0..COLUMNS).map(|x| ink(y, x)).collect::<String>().trim_end().to_string() + "\n";
    (0..ROWS).map(row).collect()
}
