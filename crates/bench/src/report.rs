//! [`Report`]: rows of measured figures, as a table for reading and as JSON for programs.

use crate::machine::Machine;
use std::fmt::Write;
use std::time::Duration;

/// A table: a title, column names, and rows.
#[derive(Debug, Default)]
pub struct Report {
    title: String,
    columns: Vec<String>,
    rows: Vec<ReportRow>,
}

/// One row: the cells for reading, the exact numbers for JSON, and the command that measures the row again.
#[derive(Clone, Debug, Default)]
pub struct ReportRow {
    /// The cells of the row, one for each column.
    pub cells: Vec<String>,
    /// Named numbers, only for JSON.
    pub figures: Vec<(String, f64)>,
    /// The command that measures this row again.
    pub reproduce: String,
}

impl ReportRow {
    /// A row that has only its first cells yet.
    pub fn new(cells: &[&str], reproduce: String) -> ReportRow {
        ReportRow { cells: cells.iter().map(|c| c.to_string()).collect(), figures: Vec::new(), reproduce }
    }

    /// Appends a cell.
    pub fn cell(&mut self, text: impl Into<String>) {
        self.cells.push(text.into());
    }

    /// Appends a number for JSON.
    pub fn figure(&mut self, name: impl Into<String>, value: f64) {
        self.figures.push((name.into(), value));
    }
}

impl Report {
    /// An empty report.
    pub fn new(title: &str, columns: &[&str]) -> Report {
        Report {
            title: title.into(),
            columns: columns.iter().map(|c| c.to_string()).collect(),
            rows: Vec::new(),
        }
    }

    /// True while the report has no row.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Adds a row and prints it at once to stderr, to show the progress of a long run.
    ///
    /// # Panics
    /// When the number of cells differs from the number of columns.
    pub fn row(&mut self, row: ReportRow) {
        assert_eq!(row.cells.len(), self.columns.len(), "{row:?}");
        eprintln!("  {}", row.cells.join("  "));
        self.rows.push(row);
    }

    /// The table in Markdown, which is also readable in a terminal.
    pub fn table(&self) -> String {
        let width = |i: usize| {
            let cells = self.rows.iter().map(|r| &r.cells[i]).chain([&self.columns[i]]);
            cells.map(|c| c.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.columns.len()).map(width).collect();
        let line = |cells: &[String]| {
            let padded: Vec<String> = cells.iter().zip(&widths).map(|(c, w)| format!("{c:<w$}")).collect();
            format!("| {} |\n", padded.join(" | "))
        };
        let mut out = format!("{}\n\n{}", self.title, line(&self.columns));
        out += &line(&widths.iter().map(|w| "-".repeat(*w)).collect::<Vec<_>>());
        self.rows.iter().for_each(|r| out += &line(&r.cells));
        out.push_str("\nReproduce a row:\n");
        for row in &self.rows {
            let _ = writeln!(out, "  {}: {}", row.cells[0], row.reproduce);
        }
        out
    }

    /// A JSON object: the title, the names of the columns, and the rows. A row's cells are strings, its figures
    /// numbers.
    pub fn json(&self) -> String {
        let object = |row: &ReportRow| {
            let names = self.columns.iter().map(String::as_str).chain(["reproduce"]);
            let values = row.cells.iter().map(String::as_str).chain([row.reproduce.as_str()]);
            let texts = names.zip(values).map(|(n, v)| format!("{}:{}", quote(n), quote(v)));
            let numbers = row.figures.iter().map(|(n, v)| format!("{}:{}", quote(n), number(*v)));
            let (texts, numbers): (Vec<_>, Vec<_>) = (texts.collect(), numbers.collect());
            format!("{{{},\"figures\":{{{}}}}}", texts.join(","), numbers.join(","))
        };
        let rows = self.rows.iter().map(object).collect::<Vec<_>>().join(",\n");
        let columns = self.columns.iter().map(|c| quote(c)).collect::<Vec<_>>().join(",");
        format!("{{\"title\":{},\"columns\":[{columns}],\"rows\":[{rows}]}}", quote(&self.title))
    }
}

/// Prints the reports of one run, with the machine before them and the elapsed time after them.
pub fn print(machine: &Machine, reports: &[Report], elapsed: Duration, as_json: bool) {
    let reports = reports.iter().filter(|r| !r.is_empty());
    let seconds = elapsed.as_secs_f64();
    if as_json {
        let all = reports.map(Report::json).collect::<Vec<_>>().join(",\n");
        let machine = machine.json();
        println!("{{\"machine\":{machine},\"elapsed_s\":{},\n\"reports\":[{all}]}}", number(seconds));
    } else {
        println!("{}\n", machine.line());
        reports.for_each(|r| println!("{}", r.table()));
        println!("Took {seconds:.0} s.");
    }
}

/// Writes `text` as a JSON string.
pub fn quote(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if (c as u32) < 0x20 => {
                let _ = write!(out, "\\u{:04x}", c as u32);
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// Writes a number for JSON. A value that is not finite becomes null.
fn number(value: f64) -> String {
    if value.is_finite() { format!("{}", (value * 1000.0).round() / 1000.0) } else { "null".into() }
}

/// Writes a count with separated thousands: `1,346,000`.
pub fn grouped(value: f64) -> String {
    let digits = format!("{:.0}", value.abs());
    let mut out = String::from(if value <= -0.5 { "-" } else { "" });
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// The median of `values`.
///
/// # Panics
/// When there is no value.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_prints_as_table_and_as_json() {
        let mut report = Report::new("T", &["what", "ratio"]);
        let mut row = ReportRow::new(&["say \"hi\""], "make x".into());
        row.cell("1.5");
        row.figure("ratio_exact", 1.4999);
        row.figure("none", f64::NAN);
        report.row(row);
        assert!(report.table().contains("| say \"hi\" | 1.5   |"), "{}", report.table());
        assert_eq!(
            report.json(),
            "{\"title\":\"T\",\"columns\":[\"what\",\"ratio\"],\
             \"rows\":[{\"what\":\"say \\\"hi\\\"\",\"ratio\":\"1.5\",\"reproduce\":\"make x\",\
             \"figures\":{\"ratio_exact\":1.5,\"none\":null}}]}"
        );
    }

    #[test]
    fn numbers_are_shown_for_people() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(
            [0.4, 999.0, 1000.0, 1_346_017.2, -1234.0].map(grouped),
            ["0", "999", "1,000", "1,346,017", "-1,234"]
        );
    }
}
