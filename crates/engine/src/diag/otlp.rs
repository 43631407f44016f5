//! The data for an OpenTelemetry collector: a span for each slow command with its phases as child spans, and the
//! newest row of the history.
//!
//! The format is OTLP's JSON. Arguments of commands are clients' data and are left out.

use crate::Engine;
use crate::slowlog::SlowLogEntry;
use serde_json::{Value, json};
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::sync::Arc;

/// Maximum number of spans in one message.
const SPANS_MAX: usize = 512;
/// `SPAN_KIND_SERVER` and `SPAN_KIND_INTERNAL`.
const SERVER: u8 = 2;
const INTERNAL: u8 = 1;

/// The position after the slow command that was sent last.
#[derive(Clone, Copy, Debug, Default)]
pub struct OtlpCursor {
    next: u64,
}

/// The trace id of a slow command: 16 bytes in hexadecimal.
pub(crate) fn trace_id(engine: &Engine, entry: &SlowLogEntry) -> String {
    format!("{:016x}{:016x}", number(engine, entry, 1), number(engine, entry, 2))
}

/// A part of an id that is unique among all slow commands and runs.
fn number(engine: &Engine, entry: &SlowLogEntry, part: u64) -> u64 {
    BuildHasherDefault::<DefaultHasher>::default().hash_one((&engine.run_id, entry.seq, part))
}

impl Engine {
    /// Slow commands, and commands that waited for long, since the last call: the body of `POST /v1/traces`. `None`
    /// when there are none.
    pub fn otlp_traces(&self, cursor: &mut OtlpCursor) -> Option<String> {
        let mut entries: Vec<Arc<SlowLogEntry>> = self.slow_log.newest(SPANS_MAX);
        let executed = entries.len();
        for waited in self.slow_log.waited() {
            // A command that first waited and then was slow has an entry already, which includes its waits.
            let is_there = |slow: &Arc<SlowLogEntry>| slow.waits == waited.waits && slow.args == waited.args;
            if !entries[..executed].iter().any(is_there) {
                entries.push(waited);
            }
        }
        entries.retain(|entry| entry.seq >= cursor.next);
        entries.sort_by_key(|entry| entry.seq);
        cursor.next = entries.last()?.seq + 1;
        let spans: Vec<Value> = entries.iter().flat_map(|entry| self.spans(entry)).collect();
        let scope = json!([{ "scope": { "name": "strand" }, "spans": spans }]);
        Some(json!({ "resourceSpans": [{ "resource": self.resource(), "scopeSpans": scope }] }).to_string())
    }
    /// The newest figures as gauges: the body of `POST /v1/metrics`. `None` before the first sample.
    pub fn otlp_metrics(&self) -> Option<String> {
        let recorder = self.diag.recorder.lock();
        let history = recorder.history();
        let (time_ms, row) = history.newest(0)?;
        let time = (time_ms.max(0) as u64 * 1_000_000).to_string();
        let known = history.series().iter().zip(row).filter(|(_, value)| value.is_finite());
        let metrics: Vec<Value> = known
            .map(|(series, value)| {
                let points = json!([{ "timeUnixNano": time, "asDouble": value }]);
                json!({ "name": format!("strand.{}", series.name), "unit": series.unit, "gauge": { "dataPoints": points } })
            })
            .collect();
        let scope = json!([{ "scope": { "name": "strand" }, "metrics": metrics }]);
        Some(
            json!({ "resourceMetrics": [{ "resource": self.resource(), "scopeMetrics": scope }] })
                .to_string(),
        )
    }
    fn resource(&self) -> Value {
        json!({ "attributes": [
            attribute("service.name", "strand"),
            attribute("service.version", env!("CARGO_PKG_VERSION")),
            attribute("service.instance.id", &self.run_id),
        ] })
    }
    /// The span of a command, and one for each of its phases, in order.
    fn spans(&self, entry: &SlowLogEntry) -> Vec<Value> {
        let trace = trace_id(self, entry);
        let span = |part: u64| format!("{:016x}", number(self, entry, part));
        let end_us = entry.unix_us.max(0) as u64;
        let phases = [
            ("parked", entry.waits.parked_us),
            ("queued", entry.waits.queued_us),
            ("executing", entry.took_us),
        ];
        let all_us: u64 = phases.iter().map(|(_, us)| us).sum();
        let begin_us = end_us.saturating_sub(all_us);
        let command = entry.args.first().map(|name| String::from_utf8_lossy(name).to_uppercase());
        let command = command.unwrap_or_default();
        let mut attributes = vec![
            attribute("db.system.name", "redis"),
            attribute("db.operation.name", &command),
            attribute("client.address", &entry.addr),
        ];
        attributes.extend(entry.waits.reason_name().map(|on| attribute("strand.parked_on", on)));
        attributes.extend(entry.waits.holder.as_deref().map(|holder| attribute("strand.held_by", holder)));
        let ns = |us: u64| (us * 1000).to_string();
        let mut spans = vec![json!({
            "traceId": trace, "spanId": span(3), "name": command, "kind": SERVER,
            "startTimeUnixNano": ns(begin_us), "endTimeUnixNano": ns(end_us), "attributes": attributes,
        })];
        let mut at_us = begin_us;
        for (i, (name, us)) in phases.into_iter().enumerate().filter(|(_, (_, us))| *us > 0) {
            spans.push(json!({
                "traceId": trace, "spanId": span(4 + i as u64), "parentSpanId": span(3), "name": name,
                "kind": INTERNAL, "startTimeUnixNano": ns(at_us), "endTimeUnixNano": ns(at_us + us),
            }));
            at_us += us;
        }
        spans
    }
}

fn attribute(name: &str, value: &str) -> Value {
    json!({ "key": name, "value": { "stringValue": value } })
}
