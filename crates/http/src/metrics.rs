//! `/metrics`: INFO in Prometheus's text format (0.0.4).
//!
//! Every field of INFO that is a number becomes `strand_<field>`; commands, error codes and databases become labels. INFO reads
//! counters and sums that are kept anyway and the list of clients, so a scrape costs the same however much data there is.

use crate::body::ResponseBody;
use crate::exchange::{Context, Request, Response};
use crate::problem::Problem;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use std::fmt::Write;
use std::rc::Rc;

/// Fields that only grow; the others are gauges.
const COUNTERS: [&str; 17] = [
    "client_idle_disconnections",
    "client_output_buffer_limit_disconnections",
    "client_query_buffer_limit_disconnections",
    "evicted_clients",
    "evicted_keys",
    "expired_keys",
    "keyspace_hits",
    "keyspace_misses",
    "rejected_connections",
    "total_commands_processed",
    "total_connections_received",
    "total_error_replies",
    "total_eviction_exceeded_time",
    "total_net_input_bytes",
    "total_net_output_bytes",
    "total_reads_processed",
    "uptime_in_seconds",
];

/// Fields that say what other fields say, or that are no measurement.
const LEFT_OUT: [&str; 6] =
    ["arch_bits", "process_id", "redis_git_dirty", "redis_git_sha1", "server_time_usec", "uptime_in_days"];

/// `GET /metrics`
pub async fn metrics(context: Rc<Context>, _: Request, _: Vec<u8>) -> Result<Response, Problem> {
    context.session.command(&[b"INFO", b"everything"]);
    let info = context.session.line().await?.unwrap_or_default();
    let mut response = Response::new(ResponseBody::whole(exposition(&String::from_utf8_lossy(&info))));
    let media = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, media);
    Ok(response)
}

/// The text for the text of INFO.
fn exposition(info: &str) -> String {
    let mut out = String::new();
    let mut labelled: Vec<(String, &str, &str, String)> = Vec::new();
    let mut version = "";
    for line in info.lines() {
        let Some((name, value)) = line.split_once(':') else { continue };
        if name == "strand_version" {
            version = value;
        } else if let Some(command) = name.strip_prefix("cmdstat_") {
            for (field, series) in [
                ("calls", "commands_total"),
                ("rejected_calls", "commands_rejected_total"),
                ("failed_calls", "commands_failed_total"),
            ] {
                labelled.push((series.into(), "command", command, part(value, field)));
            }
        } else if let Some(code) = name.strip_prefix("errorstat_") {
            labelled.push(("errors_total".into(), "code", code, part(value, "count")));
        } else if name.strip_prefix("db").is_some_and(|n| n.parse::<u32>().is_ok()) {
            for field in ["keys", "expires"] {
                labelled.push((format!("db_{field}"), "db", &name[2..], part(value, field)));
            }
        } else if is_name(name) && !LEFT_OUT.contains(&name) && value.parse::<f64>().is_ok_and(f64::is_finite)
        {
            let is_counter = COUNTERS.contains(&name) || name.starts_with("used_cpu_");
            // Writing to a string does not fail.
            let suffix = if is_counter { "_total" } else { "" };
            let kind = if is_counter { "counter" } else { "gauge" };
            let name = name.trim_start_matches("total_");
            let _ = writeln!(out, "# TYPE strand_{name}{suffix} {kind}\nstrand_{name}{suffix} {value}");
        }
    }
    let _ = writeln!(out, "# TYPE strand_build_info gauge\nstrand_build_info{{version=\"{version}\"}} 1");
    labelled.sort_by(|a, b| a.0.cmp(&b.0));
    let mut before = "";
    for (series, label, value, n) in &labelled {
        if series != before {
            let kind = if series.ends_with("_total") { "counter" } else { "gauge" };
            let _ = writeln!(out, "# TYPE strand_{series} {kind}");
            before = series;
        }
        let value = value.replace('\\', "\\\\").replace('"', "\\\"");
        let _ = writeln!(out, "strand_{series}{{{label}=\"{value}\"}} {n}");
    }
    out
}

/// The number after `name=`.
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

    #[test]
    fn numbers_become_series_and_names_labels() {
        let text = exposition(
            "# Server\r\nstrand_version:0.1.0\r\nredis_mode:standalone\r\nprocess_id:7\r\n\r\n# Memory\r\nused_memory:1024\r\n\
            used_memory_human:1.00K\r\nmem_fragmentation_ratio:1.25\r\n# Stats\r\ntotal_commands_processed:12\r\n\
            # Commandstats\r\ncmdstat_client|list:calls=2,usec=0,usec_per_call=0.00,rejected_calls=1,failed_calls=0\r\n\
            cmdstat_get:calls=3,usec=0,usec_per_call=0.00,rejected_calls=0,failed_calls=0\r\n\
            errorstat_ERR:count=4\r\n# Keyspace\r\ndb0:keys=5,expires=1,avg_ttl=0\r\n",
        );
        for line in [
            "# TYPE strand_used_memory gauge\nstrand_used_memory 1024\n",
            "strand_mem_fragmentation_ratio 1.25\n",
            "# TYPE strand_commands_processed_total counter\nstrand_commands_processed_total 12\n",
            "strand_commands_total{command=\"client|list\"} 2\nstrand_commands_total{command=\"get\"} 3\n",
            "strand_commands_rejected_total{command=\"client|list\"} 1\n",
            "strand_errors_total{code=\"ERR\"} 4\n",
            "strand_db_keys{db=\"0\"} 5\n",
            "strand_build_info{version=\"0.1.0\"} 1\n",
        ] {
            assert!(text.contains(line), "{line} in {text}");
        }
        assert!(!text.contains("human") && !text.contains("process_id") && !text.contains("mode"));
        let types: Vec<&str> = text.lines().filter(|l| l.starts_with("# TYPE")).collect();
        let distinct: std::collections::HashSet<&&str> = types.iter().collect();
        assert_eq!(types.len(), distinct.len(), "each series is declared once");
        assert!(COUNTERS.is_sorted() && LEFT_OUT.is_sorted());
    }
}
