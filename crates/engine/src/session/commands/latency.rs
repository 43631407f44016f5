//! LATENCY: long durations, by event and by command.

use super::{ARGS_AT_ONCE_MAX, DONE, Outcome, Session};
use crate::session::run::NextStep;
use crate::timing::{Event, SAMPLES_MAX, Series, Spread, doctor, graph};
use crate::{Engine, Now, TABLE};
use strand_commands::introspect;
use strand_wire::args::Args;
use strand_wire::reply::{ErrorText, Reply};

/// Maximum number of names of one LATENCY HISTOGRAM: several times the number of commands. A name has a few bytes in
/// the request, but its histogram has hundreds in the reply.
const NAMES_MAX: usize = 1024;

impl Session {
    /// `LATENCY DOCTOR`
    pub(super) fn latency_doctor(&mut self) -> Outcome {
        let text = doctor(&self.engine.stats.events, self.engine.slow_log.slow_us());
        self.reply().verbatim("txt", text.as_bytes());
        DONE
    }
    /// `LATENCY GRAPH event`
    pub(super) fn latency_graph(&mut self, args: Args<'_>, now: Now) -> Outcome {
        let Some((event, series)) = self.latency_series(args) else {
            return Err([b"ERR No samples available for event '", args.at(2), b"'"].concat());
        };
        self.reply().verbatim("txt", graph(event, &series, now.unix_s()).as_bytes());
        DONE
    }
    /// `LATENCY HISTOGRAM [command ...]`
    pub(super) fn latency_histogram(&mut self, args: Args<'_>) -> Outcome {
        match args.len() - 2 {
            names if names > NAMES_MAX => {
                Err(format!("ERR too many command names: expected at most {NAMES_MAX}").into())
            }
            names if names > 0 && args.len() <= ARGS_AT_ONCE_MAX => {
                let engine = self.engine.clone();
                histogram(&engine, args, &mut self.reply())?;
                DONE
            }
            _ => Ok(NextStep::Detach),
        }
    }
    /// `LATENCY HISTORY event`
    pub(super) fn latency_history(&mut self, args: Args<'_>) -> Outcome {
        let samples = self.latency_series(args).map(|(_, series)| series.samples).unwrap_or_default();
        debug_assert!(samples.len() <= SAMPLES_MAX);
        let mut reply = self.reply();
        reply.array(samples.len());
        for sample in samples {
            reply.array(2);
            reply.int(sample.unix_s);
            reply.int(sample.took_ms as i64);
        }
        DONE
    }
    /// `LATENCY RESET [event ...]`. Reply: the number of events that were reset.
    pub(super) fn latency_reset(&mut self, args: Args<'_>) -> Outcome {
        if args.len() > ARGS_AT_ONCE_MAX {
            return Ok(NextStep::Detach);
        }
        reset(&self.engine.clone(), args, &mut self.reply());
        DONE
    }
    pub(super) fn latency_help(&mut self) -> Outcome {
        introspect::help(&mut self.reply(), "LATENCY", HELP);
        DONE
    }
    /// The samples of the named event.
    fn latency_series(&self, args: Args<'_>) -> Option<(Event, Series)> {
        let event = Event::named(args.at(2))?;
        Some((event, self.engine.stats.events.of(event)?))
    }
    /// `LATENCY LATEST`
    pub(super) fn latency_latest(&mut self) -> Outcome {
        let engine = self.engine.clone();
        let all = Event::ALL.into_iter().filter_map(|event| Some((event, engine.stats.events.of(event)?)));
        let all: Vec<_> = all.collect();
        let mut reply = self.reply();
        reply.array(all.len());
        for (event, series) in all {
            let last = series.samples.back();
            reply.array(4);
            reply.bulk(event.name().as_bytes());
            reply.int(last.map_or(0, |sample| sample.unix_s));
            reply.int(last.map_or(0, |sample| sample.took_ms as i64));
            reply.int(series.most_ms as i64);
        }
        DONE
    }
}

/// Runs LATENCY RESET on any thread.
pub(super) fn reset(engine: &Engine, args: Args<'_>, reply: &mut Reply<'_>) {
    let named = args.skip(2);
    let is_meant = |event: &Event| named.is_empty() || named.iter().any(|n| n == event.name().as_bytes());
    let events = &engine.stats.events;
    let reset = Event::ALL.into_iter().filter(is_meant).filter(|event| events.reset(*event)).count();
    reply.int(reset as i64);
}

/// LATENCY HISTOGRAM of the named commands with their subcommands, or of all commands. Adding up the counts of one
/// command takes some microseconds.
pub(super) fn histogram(engine: &Engine, args: Args<'_>, reply: &mut Reply<'_>) -> Result<(), ErrorText> {
    let stats = &engine.stats;
    let mut found: Vec<(u32, Spread)> = Vec::new();
    let mut add = |id| found.extend(stats.histograms.of(id).map(|spread| (id, spread)));
    match args.len() {
        2 => (0..stats.ids.len()).for_each(add),
        _ => {
            for name in args.skip(2).iter() {
                let Some(command) = TABLE.lookup_full_name(name) else { continue };
                add(stats.ids.of(command.spec));
                command.spec.subcommands.iter().for_each(|sub| add(stats.ids.of(sub)));
            }
        }
    }
    reply.map(found.len());
    for (id, spread) in found {
        reply.bulk(stats.ids.name(id).as_bytes());
        reply.map(2);
        reply.bulk(b"calls");
        reply.int(spread.total() as i64);
        reply.bulk(b"histogram_usec");
        let steps = spread.cumulative_us();
        reply.map(steps.len());
        for (us, calls) in steps {
            reply.int(us as i64);
            reply.int(calls as i64);
        }
    }
    Ok(())
}

const HELP: &[&str] = &[
    "DOCTOR",
    "    Return a report about slow events.",
    "GRAPH <event>",
    "    Return a picture of the samples of an event.",
    "HISTORY <event>",
    "    Return the samples of an event: Unix time and milliseconds.",
    "LATEST",
    "    Return for each event its name, its last sample and its longest sample.",
    "RESET [<event> ...]",
    "    Remove the samples of these events, or of all events.",
    "HISTOGRAM [<command> ...]",
    "    Return a histogram of the times of these commands, or of all commands.",
];
