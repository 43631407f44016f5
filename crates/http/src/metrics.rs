//! `/metrics`: INFO in Prometheus's text format (0.0.4), or in OpenMetrics if the client asks for it.
//!
//! Every numeric field of INFO becomes `strand_<field>`. Commands, error codes and databases become labels. INFO
//! reads existing counters, existing sums and the list of clients, so a scrape does not become slower with more
//! data.

use crate::body::ResponseBody;
use crate::exchange::{Context, Request, Response};
use crate::problem::Problem;
use hyper::header::{ACCEPT, CONTENT_TYPE, HeaderValue};
use serde_json::Value;
use std::collections::HashMap;
use std::fmt::Write;
use std::rc::Rc;
use tokio::task::yield_now;

/// Fields of INFO that only grow. All other fields are gauges, also `search_documents_added` and its neighbours: they are
/// sums over the text indexes that exist, and shrink with each dropped index.
const COUNTERS: [&str; 32] = [
    "aof_rewrites",
    "client_idle_disconnections",
    "client_output_buffer_limit_disconnections",
    "client_query_buffer_limit_disconnections",
    "evicted_clients",
    "evicted_keys",
    "expire_cycle_cpu_milliseconds",
    "expired_keys",
    "expired_subkeys",
    "expired_time_cap_reached_count",
    "keyspace_hits",
    "keyspace_misses",
    "lazyfreed_objects",
    "rdb_saves",
    "regex_bytes",
    "regex_cache_clears",
    "regex_cache_resets",
    "regex_give_ups",
    "regex_greps",
    "regex_greps_indexed",
    "regex_quits",
    "regex_searches",
    "rejected_connections",
    "total_commands_processed",
    "total_connections_received",
    "total_error_replies",
    "total_eviction_exceeded_time",
    "total_forks",
    "total_net_input_bytes",
    "total_net_output_bytes",
    "total_reads_processed",
    "uptime_in_seconds",
];

/// Fields of INFO that are left out, because they repeat other fields or are not measurements.
const OMITTED: [&str; 8] = [
    "arch_bits",
    "master_replid",
    "master_replid2",
    "process_id",
    "redis_git_dirty",
    "redis_git_sha1",
    "server_time_usec",
    "uptime_in_days",
];

/// The series of the error codes.
const ERRORS: &str = "errors_total";

const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Answers `GET /metrics`
pub async fn metrics(context: Rc<Context>, request: Request, _: Vec<u8>) -> Result<Response, Problem> {
    let accepted =
        request.parts.headers.get(ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    let is_open = accepted.contains("application/openmetrics-text");
    context.session.command(&[b"INFO", b"everything"]);
    let info = context.session.line().await?.unwrap_or_default();
    let slow = match is_open {
        true => exemplars(&context).await,
        false => HashMap::new(),
    };
    let text = exposition(&String::from_utf8_lossy(&info), is_open, &slow).await;
    let mut response = Response::new(ResponseBody::whole(text));
    let media = if is_open { OPEN_METRICS } else { PROMETHEUS };
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(media));
    Ok(response)
}

/// Number of slow commands that are read for exemplars.
const SLOW_COMMANDS_READ: &[u8] = b"128";

/// The newest slow command per command name, as an exemplar: trace, duration, time. Empty when the user may not run
/// DIAG SLOWLOG.
async fn exemplars(context: &Context) -> HashMap<String, String> {
    context.session.command(&[b"DIAG", b"SLOWLOG", SLOW_COMMANDS_READ]);
    let Ok(log) = context.session.line().await else { return HashMap::new() };
    let log: Value = serde_json::from_slice(&log.unwrap_or_default()).unwrap_or_default();
    let mut found = HashMap::new();
    for entry in log["slow"].as_array().into_iter().flatten().rev() {
        if let (Some(name), Some(trace)) = (entry["args"][0].as_str(), entry["trace_id"].as_str()) {
            let (us, at) =
                (entry["executing_us"].as_u64().unwrap_or(0), entry["unix_s"].as_i64().unwrap_or(0));
            let exemplar = format!("# {{{}}} {us} {at}", label("trace_id", trace));
            found.insert(name.to_lowercase(), exemplar);
        }
    }
    found
}

/// Number of lines of INFO that are converted before other tasks run.
const LINES_A_TURN: usize = 32;

/// Converts the text of INFO. `slow` has the exemplars by command. With `is_open` (OpenMetrics), the declaration of a
/// counter lacks the suffix of its series.
async fn exposition(info: &str, is_open: bool, slow: &HashMap<String, String>) -> String {
    let mut out = String::new();
    let mut labelled: Vec<(String, String, String)> = Vec::new();
    let mut version = "";
    // Writing to a string cannot fail.
    let declare = |out: &mut String, series: &str, about: &str| {
        let (kind, name) = match series.strip_suffix("_total") {
            Some(name) if is_open => ("counter", name),
            Some(_) => ("counter", series),
            None => ("gauge", series),
        };
        let _ = writeln!(out, "# HELP strand_{name} {about}\n# TYPE strand_{name} {kind}");
    };
    for (i, line) in info.lines().enumerate() {
        if i % LINES_A_TURN == LINES_A_TURN - 1 {
            yield_now().await;
        }
        let Some((name, value)) = line.split_once(':') else { continue };
        if name == "strand_version" {
            version = value;
        } else if let Some(command) = name.strip_prefix("cmdstat_") {
            for (field, series) in [
                ("calls", "commands_total"),
                ("usec", "commands_microseconds_total"),
                ("rejected_calls", "commands_rejected_total"),
                ("failed_calls", "commands_failed_total"),
            ] {
                labelled.push((series.into(), label("command", command), part(value, field)));
            }
        } else if let Some(command) = name.strip_prefix("latency_percentiles_usec_") {
            for (percent, us) in value.split(',').filter_map(|p| p.strip_prefix('p')?.split_once('=')) {
                if us.parse::<f64>().is_ok() {
                    let labels = format!("{},{}", label("command", command), label("percentile", percent));
                    labelled.push(("command_latency_microseconds".into(), labels, us.into()));
                }
            }
        } else if name.starts_with("importstat_") {
            imports(value, &mut labelled);
        } else if let Some(code) = name.strip_prefix("errorstat_") {
            labelled.push((ERRORS.into(), label("code", code), part(value, "count")));
        } else if name.strip_prefix("db").is_some_and(|n| n.parse::<u32>().is_ok()) {
            for field in ["keys", "expires"] {
                labelled.push((format!("db_{field}"), label("db", &name[2..]), part(value, field)));
            }
        } else if is_name(name) && !OMITTED.contains(&name) && value.parse::<f64>().is_ok_and(f64::is_finite)
        {
            let is_counter = COUNTERS.contains(&name) || name.starts_with("used_cpu_");
            // Only a counter may end with `_total`.
            let series = name.trim_start_matches("total_").trim_end_matches("_total");
            let series = format!("{series}{}", if is_counter { "_total" } else { "" });
            declare(&mut out, &series, &format!("{name} of INFO"));
            let _ = writeln!(out, "strand_{series} {value}");
        }
    }
    declare(&mut out, "build_info", "the version");
    let _ = writeln!(out, "strand_build_info{{version=\"{version}\"}} 1");
    labelled.sort_by(|a, b| a.0.cmp(&b.0));
    sum_equal_errors(&mut labelled);
    let mut before = "";
    for (i, (series, labels, n)) in labelled.iter().enumerate() {
        if i % LINES_A_TURN == LINES_A_TURN - 1 {
            yield_now().await;
        }
        if series != before {
            declare(&mut out, series, about(series));
            before = series;
        }
        let _ = write!(out, "strand_{series}{{{labels}}} {n}");
        // Add an exemplar only to this series, because only this series counts microseconds, as the exemplar's value
        // does.
        let command = labels.strip_prefix("command=\"").and_then(|name| name.strip_suffix('"'));
        let exemplar =
            command.filter(|_| series == "commands_microseconds_total").and_then(|name| slow.get(name));
        if let Some(exemplar) = exemplar {
            let _ = write!(out, " {exemplar}");
        }
        out.push('\n');
    }
    if is_open {
        out.push_str("# EOF\n");
    }
    out
}

/// The HELP text of a series that has labels.
fn about(series: &str) -> &'static str {
    match series {
        "commands_total" => "calls of each command",
        "commands_microseconds_total" => "microseconds in which each command executed",
        "commands_rejected_total" => "calls that were refused before the command ran",
        "commands_failed_total" => "calls that ran and replied with an error",
        "command_latency_microseconds" => "percentiles of the execution time of each command",
        ERRORS => "error replies of each code",
        "db_keys" => "keys of each database",
        "db_expires" => "keys with an expiry of each database",
        "import_documents_total" => "documents by outcome",
        "import_runs_total" => "runs",
        "import_objects_opened_total" => "documents that were read",
        "import_bytes_read_total" => "bytes that were read",
        "import_containers_total" => "folders that were listed",
        "import_cache_hits_total" => "parts and texts that were read from the cache",
        "import_cache_misses_total" => "parts that were read from the source, because the cache lacked them",
        _ => "1 while an import runs, else 0",
    }
}

/// The series of one dataset, from its line of INFO.
fn imports(value: &str, labelled: &mut Vec<(String, String, String)>) {
    let text = |name: &str| value.split(',').find_map(|p| p.strip_prefix(name)?.strip_prefix('='));
    let labels = [("db", text("db")), ("dataset", text("dataset"))];
    let labels = labels.map(|(name, value)| label(name, value.unwrap_or_default())).join(",");
    for outcome in ["added", "updated", "removed", "failed"] {
        let labels = format!("{labels},{}", label("outcome", outcome));
        labelled.push(("import_documents_total".into(), labels, part(value, outcome)));
    }
    for (field, series) in [
        ("runs", "import_runs_total"),
        ("opened", "import_objects_opened_total"),
        ("bytes_read", "import_bytes_read_total"),
        ("containers", "import_containers_total"),
        ("cache_hits", "import_cache_hits_total"),
        ("cache_misses", "import_cache_misses_total"),
        ("running", "import_running"),
    ] {
        labelled.push((series.into(), labels.clone(), part(value, field)));
    }
}

/// Error codes that differ only in bytes that are no UTF-8 have equal labels: makes one series of them.
fn sum_equal_errors(labelled: &mut Vec<(String, String, String)>) {
    let number = |n: &str| n.parse::<u64>().unwrap_or(0);
    let mut sums = HashMap::<String, u64>::new();
    labelled.iter().filter(|(series, ..)| series == ERRORS).for_each(|(_, labels, n)| {
        *sums.entry(labels.clone()).or_default() += number(n);
    });
    labelled.retain_mut(|(series, labels, n)| {
        if series != ERRORS {
            return true;
        }
        let Some(sum) = sums.remove(labels) else { return false };
        *n = sum.to_string();
        true
    });
}

/// A label with its value, as Prometheus writes it.
fn label(name: &str, value: &str) -> String {
    let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    format!("{name}=\"{value}\"")
}

/// The number after `name=` in `value`; 0 when there is no number.
fn part(value: &str, name: &str) -> String {
    let found = value.split(',').find_map(|p| p.strip_prefix(name)?.strip_prefix('='));
    found.filter(|n| n.parse::<f64>().is_ok()).unwrap_or("0").into()
}

fn is_name(name: &str) -> bool {
    name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Polls the task until it is done. This works because the task waits for nothing and only yields.
    fn polled<T>(task: impl Future<Output = T>) -> T {
        let mut task = std::pin::pin!(task);
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        loop {
            if let std::task::Poll::Ready(done) = task.as_mut().poll(&mut cx) {
                return done;
            }
        }
    }

    #[test]
    fn numbers_become_series_and_names_labels() {
        let info = "# Server\r\nstrand_version:0.1.0\r\nredis_mode:standalone\r\nprocess_id:7\r\n\r\n# Memory\r\nused_memory:1024\r\n\
            used_memory_human:1.00K\r\nmem_fragmentation_ratio:1.25\r\n# Stats\r\ntotal_commands_processed:12\r\n\
            # Commandstats\r\ncmdstat_client|list:calls=2,usec=0,usec_per_call=0.00,rejected_calls=1,failed_calls=0\r\n\
            cmdstat_get:calls=3,usec=0,usec_per_call=0.00,rejected_calls=0,failed_calls=0\r\n\
            errorstat_ERR:count=4\r\nerrorstat_\u{fffd}:count=1\r\nerrorstat_\u{fffd}:count=2\r\n\
            used_memory_vm_total:5\r\n# Keyspace\r\ndb0:keys=5,expires=1,avg_ttl=0\r\n\
            latency_percentiles_usec_get:p50=1.003,p99.9=7.5\r\n\
            importstat_0:db=0,dataset=mail,runs=2,added=7,removed=1,bytes_read=9,running=1\r\n";
        let slow = HashMap::from([("get".to_string(), "# {trace_id=\"ab\"} 12 7".to_string())]);
        let text = polled(exposition(info, false, &HashMap::new()));
        let open = polled(exposition(info, true, &slow));
        assert!(open.contains("_microseconds_total{command=\"get\"} 0 # {trace_id=\"ab\"} 12 7\n"), "{open}");
        assert!(open.ends_with("\n# EOF\n") && !text.contains("# EOF"));
        assert!(open.contains("# TYPE strand_commands counter\nstrand_commands_total{"), "{open}");
        assert!(
            text.contains("strand_command_latency_microseconds{command=\"get\",percentile=\"99.9\"} 7.5\n"),
            "{text}"
        );
        for line in [
            "# TYPE strand_used_memory gauge\nstrand_used_memory 1024\n",
            "strand_mem_fragmentation_ratio 1.25\n",
            "# TYPE strand_commands_processed_total counter\nstrand_commands_processed_total 12\n",
            "strand_commands_total{command=\"client|list\"} 2\nstrand_commands_total{command=\"get\"} 3\n",
            "strand_commands_rejected_total{command=\"client|list\"} 1\n",
            "strand_errors_total{code=\"ERR\"} 4\nstrand_errors_total{code=\"\u{fffd}\"} 3\n",
            "# TYPE strand_used_memory_vm gauge\nstrand_used_memory_vm 5\n",
            "strand_db_keys{db=\"0\"} 5\n",
            "strand_import_documents_total{db=\"0\",dataset=\"mail\",outcome=\"added\"} 7\n",
            "# TYPE strand_import_runs_total counter\nstrand_import_runs_total{db=\"0\",dataset=\"mail\"} 2\n",
            "# TYPE strand_import_running gauge\nstrand_import_running{db=\"0\",dataset=\"mail\"} 1\n",
            "strand_build_info{version=\"0.1.0\"} 1\n",
        ] {
            assert!(text.contains(line), "{line} in {text}");
        }
        assert!(!text.contains("human") && !text.contains("process_id") && !text.contains("mode"));
        let types: Vec<&str> = text.lines().filter(|l| l.starts_with("# TYPE")).collect();
        let distinct: std::collections::HashSet<&&str> = types.iter().collect();
        assert_eq!(types.len(), distinct.len(), "each series is declared once");
        assert!(COUNTERS.is_sorted() && OMITTED.is_sorted());
    }
}
