//! [`Report`]: rows of measured figures, as a table for people and as JSON for programs.

use std::fmt::Write;

/// A table: a title, column names, rows of cells, and the command that reproduces each row.
#[derive(Debug, Default)]
pub struct Report {
    title: String,
    columns: Vec<String>,
    rows: Vec<(Vec<String>, String)>,
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

    /// Adds a row and prints it at once on stderr, so that a long run shows where it is.
    ///
    /// # Panics
    /// When the number of cells is not that of the columns.
    pub fn row(&mut self, cells: Vec<String>, reproduce: &str) {
        assert_eq!(cells.len(), self.columns.len());
        eprintln!("  {}", cells.join("  "));
        self.rows.push((cells, reproduce.into()));
    }

    /// The table in Markdown, which is also what a terminal shows well.
    pub fn table(&self) -> String {
        let width = |i: usize| {
            self.rows
                .iter()
                .map(|r| r.0[i].chars().count())
                .chain([self.columns[i].chars().count()])
                .max()
                .unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.columns.len()).map(width).collect();
        let line = |cells: &[String]| {
            let padded: Vec<String> = cells.iter().zip(&widths).map(|(c, w)| format!("{c:<w$}")).collect();
            format!("| {} |\n", padded.join(" | "))
        };
        let mut out = format!("{}\n\n{}", self.title, line(&self.columns));
        out += &line(&widths.iter().map(|w| "-".repeat(*w)).collect::<Vec<_>>());
        self.rows.iter().for_each(|(cells, _)| out += &line(cells));
        out.push_str("\nReproduce a row:\n");
        for (cells, reproduce) in &self.rows {
            let _ = writeln!(out, "  {}: {reproduce}", cells[0]);
        }
        out
    }

    /// The rows as a JSON array of objects, `reproduce` included.
    pub fn json(&self) -> String {
        let object = |(cells, reproduce): &(Vec<String>, String)| {
            let names = self.columns.iter().map(String::as_str).chain(["reproduce"]);
            let values = cells.iter().map(String::as_str).chain([reproduce.as_str()]);
            let pairs: Vec<String> =
                names.zip(values).map(|(n, v)| format!("{}:{}", quote(n), quote(v))).collect();
            format!("{{{}}}", pairs.join(","))
        };
        format!("[{}]\n", self.rows.iter().map(object).collect::<Vec<_>>().join(",\n"))
    }
}

fn quote(text: &str) -> String {
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

/// The middle value.
///
/// # Panics
/// When there is none.
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
        let mut r = Report::new("T", &["what", "ratio"]);
        r.row(vec!["say \"hi\"".into(), "1.5".into()], "make x");
        assert!(r.table().contains("| say \"hi\" | 1.5   |"), "{}", r.table());
        assert_eq!(r.json(), "[{\"what\":\"say \\\"hi\\\"\",\"ratio\":\"1.5\",\"reproduce\":\"make x\"}]\n");
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
    }
}
