//! LATENCY GRAPH and LATENCY DOCTOR: reports made from the samples.

use super::events::{Event, Events, Series};
use std::fmt::Write;

/// Number of samples that a graph shows side by side.
const COLUMNS: usize = 80;
/// Height of a latency graph in lines.
const ROWS: usize = 4;
/// The characters for the heights that one line can show.
const LEVELS: [char; 3] = ['_', 'o', '#'];

/// The samples of a kind as a graph: a column for each, with its age below.
pub(crate) fn graph(event: Event, series: &Series, now_s: i64) -> String {
    let values = || series.samples.iter().map(|sample| sample.took_ms);
    let (low, high) = (values().min().unwrap_or(0), values().max().unwrap_or(0));
    let most = series.most_ms;
    let mut text = format!("{} - high {high} ms, low {low} ms (all time high {most} ms)\n", event.name());
    text += &"-".repeat(COLUMNS);
    text.push('\n');
    let levels = LEVELS.len() * ROWS;
    let columns: Vec<(usize, Vec<char>)> = series
        .samples
        .iter()
        .map(|sample| {
            let level = (sample.took_ms - low) as usize * levels / (high - low).max(1) as usize;
            (level.min(levels - 1), ago(now_s - sample.unix_s).chars().collect())
        })
        .collect();
    for (at, part) in columns.chunks(COLUMNS).enumerate() {
        if at > 0 {
            text.push('\n');
        }
        for row in (0..ROWS).rev() {
            let ink = |level: usize| match level.checked_sub(row * LEVELS.len()) {
                None => ' ',
                Some(above) => LEVELS.get(above).copied().unwrap_or('|'),
            };
            text.extend(part.iter().map(|(level, _)| ink(*level)).chain(['\n']));
        }
        text.extend(part.iter().map(|_| ' ').chain(['\n']));
        let label_rows = part.iter().map(|(_, label)| label.len()).max().unwrap_or(0);
        for row in 0..label_rows {
            text.extend(part.iter().map(|(_, label)| label.get(row).copied().unwrap_or(' ')).chain(['\n']));
        }
    }
    text
}

/// An age in the largest unit that fits.
fn ago(seconds: i64) -> String {
    match seconds {
        ..60 => format!("{seconds}s"),
        60..3600 => format!("{}m", seconds / 60),
        3600..86_400 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// How often each kind of event was over the threshold, and how long the longest took. Empty without samples.
pub(crate) fn longest(events: &Events) -> String {
    let all = Event::ALL.into_iter().filter_map(|event| Some((event, events.of(event)?)));
    let texts = all.map(|(event, series)| {
        let times =
            if series.samples.len() == 1 { "once" } else { &format!("{} times", series.samples.len()) };
        format!("{}: {times}, the longest {} ms", event.name(), series.most_ms)
    });
    texts.collect::<Vec<_>>().join("; ")
}

/// Remarks about the samples, as text.
pub(crate) fn doctor(events: &Events, slow_us: Option<u64>) -> String {
    let threshold_ms = events.threshold_ms();
    if threshold_ms == 0 {
        return "Nothing is watched: latency-monitor-threshold is 0. CONFIG SET latency-monitor-threshold <milliseconds> \
                makes LATENCY record longer events.\n"
            .into();
    }
    let mut text = String::new();
    for event in Event::ALL {
        let Some(series) = events.of(event) else { continue };
        let n = series.samples.len() as u64;
        let mean = series.samples.iter().map(|s| s.took_ms).sum::<u64>() / n.max(1);
        let deviation = series.samples.iter().map(|s| s.took_ms.abs_diff(mean)).sum::<u64>() / n.max(1);
        let first_s = series.samples.front().map_or(0, |s| s.unix_s);
        let last_s = series.samples.back().map_or(0, |s| s.unix_s);
        let every_s = (last_s - first_s) as f64 / n as f64;
        writeln!(
            text,
            "{}: {n} times, {mean} ms on average (mean deviation {deviation} ms), every {every_s:.2} seconds. The longest \
             took {} ms. {}",
            event.name(),
            series.most_ms,
            advice(event, slow_us)
        )
        .expect("writing to a string does not fail");
    }
    match text.is_empty() {
        true => format!("Nothing has taken {threshold_ms} ms or longer.\n"),
        false => format!("This has taken {threshold_ms} ms or longer:\n{text}"),
    }
}

fn advice(event: Event, slow_us: Option<u64>) -> &'static str {
    match event {
        Event::Command if slow_us.is_none() => {
            "Set slowlog-log-slower-than to 0 or more: then SLOWLOG GET shows slow commands."
        }
        Event::Command => "SLOWLOG GET shows these commands. No other client waited for them.",
        Event::FastCommand => {
            "Commands of constant cost take microseconds. A longer time means that another program had the processor, or \
             that memory was swapped. Check what else runs on the machine."
        }
        Event::ExpireCycle => {
            "Expired keys are removed in slices. A lower active-expire-effort makes the slices smaller."
        }
        Event::CommandQueued => {
            "Long commands wait for a helper thread: more long commands run than there are cores. DIAG SLOWLOG names them."
        }
        Event::CommandParked => {
            "Commands wait for a shard that a long command holds, for memory or for the end of a pause. DIAG SLOWLOG has the causes."
        }
        Event::EvictionCycle => {
            "Clients write more than the server evicts. A lower maxmemory-eviction-tenacity lets a command evict fewer keys; a higher \
             maxmemory makes fewer evictions necessary."
        }
        Event::AofWrite | Event::AofWriteAlone | Event::AofWritePendingFsync | Event::AofWriteActiveChild => {
            "The disk of the append-only file is slow, or other programs use the disk. No client waited, unless appendfsync is always."
        }
        Event::AofFsyncAlways => {
            "With appendfsync always, a client that writes waits for the disk. A faster disk, or appendfsync everysec, shortens the wait."
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::events::Sample;
    use super::*;

    #[test]
    fn the_longest_events_are_named_in_one_line() {
        let events = Events::default();
        assert_eq!(longest(&events), "");
        events.set_threshold_ms(1);
        [(Event::Command, 3_000, 5), (Event::Command, 10_000, 6), (Event::AofWrite, 2_000, 6)]
            .into_iter()
            .for_each(|(event, took_us, unix_s)| events.note(event, took_us, unix_s));
        assert_eq!(
            longest(&events),
            "command: 2 times, the longest 10 ms; aof-write: once, the longest 2 ms"
        );
    }

    #[test]
    fn a_graph_has_a_column_for_each_sample() {
        let samples = [(0, 10), (100, 16), (7200, 22), (7201, 22)];
        let samples = samples.map(|(unix_s, took_ms)| Sample { unix_s, took_ms });
        let series = Series { samples: samples.into(), most_ms: 30 };
        let want = [
            "command - high 22 ms, low 10 ms (all time high 30 ms)",
            &"-".repeat(80),
            "  ##",
            " _||",
            " |||",
            "_|||",
            "    ",
            "2198",
            "hhss",
        ];
        let want: Vec<String> = want.iter().map(|line| format!("{line}\n")).collect();
        assert_eq!(graph(Event::Command, &series, 7209), want.concat());
    }
}
