//! [`Json`]: log lines as JSON objects (`log-format json`).

use serde_json::{Map, Value, json};
use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{self, FormatTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// Formats a log line as one JSON object: `time_ms`, `level`, `target`, `thread`, `message`, and all other fields.
pub struct Json;

/// The fields of a log event.
struct Fields(Map<String, Value>);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.insert(field.name().into(), format!("{value:?}").into());
    }
    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name().into(), value.into());
    }
    fn record_i64(&mut self, field: &Field, value: i64) {
        self.0.insert(field.name().into(), value.into());
    }
    fn record_u64(&mut self, field: &Field, value: u64) {
        self.0.insert(field.name().into(), value.into());
    }
    fn record_bool(&mut self, field: &Field, value: bool) {
        self.0.insert(field.name().into(), value.into());
    }
}

/// A warning of the log itself as a line, in the format of the other lines.
pub fn own_warning(is_json: bool, text: &str) -> String {
    if is_json {
        let line = json!({"time_ms": time_ms(), "level": "WARN", "target": module_path!(), "message": text});
        return format!("{line}\n");
    }
    let mut line = String::new();
    // Writing to a string cannot fail.
    let _ = time::SystemTime.format_time(&mut Writer::new(&mut line));
    format!("{line}  WARN {text}\n")
}

fn time_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |t| t.as_millis() as u64)
}

impl<S, N> FormatEvent<S, N> for Json
where
    S: Subscriber + for<'l> LookupSpan<'l>,
    N: for<'w> FormatFields<'w> + 'static,
{
    fn format_event(&self, _: &FmtContext<'_, S, N>, mut out: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let mut fields = Fields(Map::new());
        event.record(&mut fields);
        let thread = std::thread::current();
        let about = event.metadata();
        for (name, value) in [
            ("time_ms", json!(time_ms())),
            ("level", json!(about.level().as_str())),
            ("target", json!(about.target())),
            ("thread", json!(thread.name())),
        ] {
            fields.0.insert(name.into(), value);
        }
        writeln!(out, "{}", Value::Object(fields.0))
    }
}
