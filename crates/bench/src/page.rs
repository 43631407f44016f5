//! docs/benchmarks.md, made from stored figures. `make versus ARGS=--json` and the other benchmarks print
//! `docs/figures/*.json`. This module inserts them into `docs/figures/benchmarks.in.md`.
//!
//! `make pages` writes the page. The tests fail when the page is stale, and when README.md has a figure that the
//! page does not have.

use serde_json::Value;
use std::fmt::Write;
use std::fs::read_to_string;

const DOCS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs");

/// The columns of a report on the page, by the beginning of the report's title. Reports that are not listed show
/// all columns.
const SHOWN_COLUMNS: &[(&str, &[&str])] = &[(
    "Stalls",
    &[
        "event",
        "strand net p99.9",
        "strand net due p99.9",
        "strand max",
        "strand net max",
        "strand quiet max",
        "redis net p99.9",
        "redis net max",
    ],
)];

/// The figures in README.md. For each row: its first cell in README.md; the file, the start of the title and
/// the row where the figures are stored; and their columns, in the order of README's cells.
const README_ROWS: &[(&str, &str, &str, &str, &[&str])] = &[
    ("GET, pipeline 30", "versus", "Speed", "GET p30", &["strand op/cpu-s", "redis op/cpu-s"]),
    ("SET, pipeline 30", "versus", "Speed", "SET p30", &["strand op/cpu-s", "redis op/cpu-s"]),
    ("a key of 16 bytes with a value of 64", "versus", "Memory", "memory 64 B", &["strand", "redis"]),
    (
        "longest wait of another client beside KEYS *",
        "cliffs",
        "Stalls",
        "9 KEYS *",
        &["strand net max", "redis net max"],
    ),
    (
        "longest wait beside HGETALL",
        "cliffs",
        "Stalls",
        "9 HGETALL of a huge hash",
        &["strand net max", "redis net max"],
    ),
    (
        "a request in two writes",
        "cliffs",
        "Costs",
        "2 write-write-read with Nagle on, us p50 / p99",
        &["strand", "redis-server"],
    ),
];

/// The text of docs/benchmarks.md as it should be now.
fn page() -> String {
    let template = read_to_string(format!("{DOCS}/figures/benchmarks.in.md")).expect("the template is there");
    let mut page = String::new();
    for line in template.lines() {
        match line.strip_prefix("{{").and_then(|line| line.strip_suffix("}}")) {
            Some(name) => tables(&mut page, &figures(name)),
            None => writeln!(page, "{line}").expect("a string takes everything"),
        }
    }
    page
}

fn figures(name: &str) -> Value {
    let path = format!("{DOCS}/figures/{name}.json");
    let text = read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The machine, and a table for each report.
fn tables(page: &mut String, figures: &Value) {
    let text = |value: &Value| value.as_str().unwrap_or_default().replace('|', "\\|");
    let machine = &figures["machine"];
    let facts = ["date", "commit", "cpu", "cores", "kernel", "strand", "redis"];
    let facts: Vec<String> = facts.iter().map(|name| format!("{name}: {}", text(&machine[*name]))).collect();
    writeln!(page, "{}.", facts.join("; ")).expect("a string takes everything");
    for report in figures["reports"].as_array().expect("reports is an array") {
        let title = text(&report["title"]);
        let all = report["columns"].as_array().expect("columns is an array").iter().flat_map(Value::as_str);
        let shown = SHOWN_COLUMNS.iter().find(|(beginning, _)| title.starts_with(beginning));
        let columns: Vec<&str> = shown.map_or_else(|| all.collect(), |(_, columns)| columns.to_vec());
        write!(page, "\n{}:\n\n| {} |\n|{}\n", title, columns.join(" | "), "---|".repeat(columns.len()))
            .expect("a string takes everything");
        for row in report["rows"].as_array().expect("rows is an array") {
            let cells: Vec<String> = columns.iter().map(|name| text(&row[*name])).collect();
            writeln!(page, "| {} |", cells.join(" | ")).expect("a string takes everything");
        }
    }
}

#[test]
fn the_page_of_benchmarks_is_current() {
    let path = format!("{DOCS}/benchmarks.md");
    if std::env::var_os("STRAND_WRITE_PAGES").is_some() {
        std::fs::write(&path, page()).expect("docs is there");
    }
    let written = read_to_string(&path).expect("docs/benchmarks.md is there");
    assert!(written == page(), "docs/benchmarks.md is stale: make pages");
}

#[test]
fn the_figures_in_the_readme_are_those_of_the_page_of_benchmarks() {
    let readme = read_to_string(format!("{DOCS}/../README.md")).expect("README.md is there");
    for (shown, file, title, row, columns) in README_ROWS {
        let line = readme.lines().find(|line| line.starts_with(&format!("| {shown}")));
        let line = line.unwrap_or_else(|| panic!("README.md has no row {shown}"));
        let all = figures(file);
        let reports = all["reports"].as_array().expect("reports is an array").iter();
        let rows = reports
            .filter(|report| report["title"].as_str().is_some_and(|name| name.starts_with(title)))
            .flat_map(|report| report["rows"].as_array().into_iter().flatten());
        let is_it =
            |found: &&Value| found.as_object().is_some_and(|cells| cells.values().any(|cell| cell == *row));
        let found = { rows }.find(is_it).unwrap_or_else(|| panic!("{file}.json has no {row}"));
        for column in *columns {
            let figure = found[*column].as_str();
            let figure = figure.unwrap_or_else(|| panic!("{file}.json, {row}: there is no column {column}"));
            assert!(line.contains(figure), "README.md, {shown}: {figure} was measured ({column})");
        }
    }
}
