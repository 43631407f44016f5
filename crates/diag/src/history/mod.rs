//! [`History`]: figures over time, in three resolutions and bounded memory. [`Recorder`] feeds it.
//!
//! A row is one moment: one value for each series. Rows of one second are kept for 15 minutes, rows of 15 seconds
//! for a day, rows of 5 minutes for 30 days. Coarser rows are computed from the rows of one second as they arrive.
//!
//! Rows keep the order in which they were recorded, and each has the time of the wall clock. So a clock that goes
//! back loses no row and reorders none. Two rows may have equal times.
//!
//! Memory: 4 bytes per value, 8 bytes for the time of a row. With [`SERIES_MAX`] series, all rows together take
//! [`BYTES_MAX`].

mod file;
mod recorder;
mod rows;

pub use file::{HEADER, Loaded};
pub use recorder::{Figure, FigureKind, Recorder};
use rows::{Pending, Rows};

/// For each level, the number of seconds that one row covers.
pub const STEPS_S: [u64; LEVELS] = [1, 15, 300];
/// Number of levels of the history.
pub const LEVELS: usize = 3;
/// Maximum number of rows of each level: 15 minutes, a day, 30 days.
pub const ROWS_MAX: [usize; LEVELS] = [900, 5760, 8640];
/// Maximum number of series. Figures of further series are not kept. A server with 16 workers in a control group has
/// 118.
pub const SERIES_MAX: usize = 124;
/// Maximum length of a series' name, and of its unit, in bytes.
pub const NAME_BYTES_MAX: usize = 64;
/// Maximum size of all rows in bytes. A level drops whole blocks of rows, so it may hold up to one block more
/// than its maximum number of rows.
pub const BYTES_MAX: usize = (ROWS_MAX[0] + ROWS_MAX[1] + ROWS_MAX[2] + LEVELS * rows::BLOCK_ROWS)
    * (size_of::<i64>() + SERIES_MAX * size_of::<f32>())
    + 64 * 1024;

/// How the values of finer rows combine into a coarser row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fold {
    /// The coarser row gets the mean of the finer values.
    Mean,
    /// The coarser row gets the largest of the finer values.
    Max,
}

/// The name and kind of a series, without its values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Series {
    /// The name: words separated by dots, the group first.
    pub name: String,
    /// The unit: `bytes`, `1/s`, `us`, `share`, `cores`, `count` and others.
    pub unit: String,
    /// How values of the series combine into a coarser row.
    pub fold: Fold,
}

/// The time of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// Milliseconds since 1970. The clock may go back.
    pub unix_ms: i64,
    /// Milliseconds of a clock that never goes back.
    pub mono_ms: u64,
}

/// The result of a query.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    /// The seconds that one row covers.
    pub step_s: u64,
    /// Time of each row in milliseconds since 1970, in the order of recording.
    pub times: Vec<i64>,
    /// For each requested series, the value in every row; NaN when the row has none.
    pub columns: Vec<Vec<f32>>,
}

/// A query for rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The first moment to return, in milliseconds since 1970.
    pub from_ms: i64,
    /// The last moment to return, in milliseconds since 1970.
    pub to_ms: i64,
    /// Minimum number of seconds that a row covers; `None`: the finest level that reaches back to `from_ms`.
    pub step_s: Option<u64>,
    /// Maximum number of rows to return. The rows are made coarser until they fit.
    pub rows_max: usize,
}

/// Figures over time, see the module.
#[derive(Debug, Default)]
pub struct History {
    series: Vec<Series>,
    levels: [Rows; LEVELS],
    pending: [Pending; LEVELS],
    /// Number of figures that were dropped: see [`History::refused`].
    refused: u64,
}

impl History {
    /// The series, ordered by number.
    pub fn series(&self) -> &[Series] {
        &self.series
    }
    /// Number of figures that were dropped, because the history had [`SERIES_MAX`] series already, or because the name
    /// or the unit of a new series had more than [`NAME_BYTES_MAX`] bytes.
    pub fn refused(&self) -> u64 {
        self.refused
    }
    /// The number of the series with this name. A new name gets a new series with this unit and this fold. `None` when
    /// the new series is refused: see [`History::refused`].
    pub fn series_number_or_insert(&mut self, name: &str, unit: &str, fold: Fold) -> Option<usize> {
        if let Some(at) = self.series.iter().position(|series| series.name == name) {
            return Some(at);
        }
        if self.series.len() >= SERIES_MAX || name.len() > NAME_BYTES_MAX || unit.len() > NAME_BYTES_MAX {
            self.refused += 1;
            return None;
        }
        self.series.push(Series { name: name.into(), unit: unit.into(), fold });
        Some(self.series.len() - 1)
    }
    /// Adds a row of one second: the value of each series, by number; NaN when it has none. Returns which levels
    /// have a new row.
    pub fn push(&mut self, at: Stamp, row: &[f32]) -> [bool; LEVELS] {
        let row = &row[..row.len().min(self.series.len())];
        let mut grown = [false; LEVELS];
        for level in 1..LEVELS {
            let pending = &mut self.pending[level];
            if let Some((time, folded)) = pending.take_before(at, STEPS_S[level], &self.series) {
                self.levels[level].push(time, &folded, ROWS_MAX[level]);
                grown[level] = true;
            }
            pending.add(at, row);
        }
        self.levels[0].push(at.unix_ms, row, ROWS_MAX[0]);
        grown[0] = true;
        grown
    }
    /// The newest row of a level: its time and its values.
    pub fn newest(&self, level: usize) -> Option<(i64, &[f32])> {
        self.levels.get(level)?.newest()
    }
    /// Number of rows that a level holds.
    pub fn len(&self, level: usize) -> usize {
        self.levels.get(level).map_or(0, Rows::len)
    }
    /// True when no level holds a row.
    pub fn is_empty(&self) -> bool {
        (0..LEVELS).all(|level| self.len(level) == 0)
    }
    /// Number of bytes that the history takes: the rows of all levels, the rows in progress, and the names of the
    /// series.
    pub fn bytes(&self) -> usize {
        let names = self.series.iter().map(|s| size_of::<Series>() + s.name.len() + s.unit.len());
        let rows = self.levels.iter().map(Rows::bytes);
        names.chain(rows).chain(self.pending.iter().map(Pending::bytes)).sum()
    }
    /// The rows of a span, for the series with these numbers.
    pub fn read(&self, span: Span, series: &[usize]) -> Table {
        let level = self.level_for(&span);
        let step_s = span.step_s.unwrap_or(0).max(STEPS_S[level]);
        let within =
            || self.levels[level].iter().filter(|(time, _)| (span.from_ms..=span.to_ms).contains(time));
        let rows = within().count();
        // The number of steps to join so that the rows fit.
        let wanted = span.rows_max.max(1);
        let own = (rows as u64 * STEPS_S[level] / step_s.max(1)).max(1) as usize;
        let step_s = if own > wanted { step_s * own.div_ceil(wanted) as u64 } else { step_s };
        let mut table = Table { step_s, times: Vec::new(), columns: vec![Vec::new(); series.len()] };
        let mut group = Pending::default();
        let mut bucket = None;
        let step_ms = (step_s * 1000) as i64;
        let mut close = |group: &mut Pending| {
            let Some((time, folded)) = group.take(&self.series) else { return };
            table.times.push(time);
            for (column, at) in table.columns.iter_mut().zip(series) {
                column.push(folded.get(*at).copied().unwrap_or(f32::NAN));
            }
        };
        for (time, values) in within() {
            // Return rows of the level's own length as they are, even when two fall into one step because a
            // row was late.
            let own = step_s == STEPS_S[level];
            if own || bucket != Some(time.div_euclid(step_ms)) {
                close(&mut group);
            }
            bucket = Some(time.div_euclid(step_ms));
            group.add(Stamp { unix_ms: time, mono_ms: 0 }, values);
        }
        close(&mut group);
        table
    }
    /// The level from which the rows of a span are read.
    fn level_for(&self, span: &Span) -> usize {
        if let Some(step_s) = span.step_s {
            return (0..LEVELS).rev().find(|level| STEPS_S[*level] <= step_s).unwrap_or(0);
        }
        let oldest = |level: usize| self.levels[level].oldest();
        let covers = |level: &usize| oldest(*level).is_some_and(|time| time <= span.from_ms);
        // If no level reaches back far enough, use the one that reaches back farthest.
        let farthest = || (0..LEVELS).filter(|l| oldest(*l).is_some()).min_by_key(|l| (oldest(*l), *l));
        (0..LEVELS).find(covers).or_else(farthest).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests;
