//! [`History`]: figures over time, in three resolutions, in bounded memory; [`Recorder`] feeds it.
//!
//! A row is one moment: a value for each series. Rows of one second are kept for 15 minutes, rows of 15 seconds for a
//! day, rows of 5 minutes for 30 days. Coarser rows are made of the rows of one second as these come.
//!
//! Rows lie in the order in which they were taken, each with the wall clock's time. So a clock that goes back loses
//! nothing and reorders nothing: two rows may have the same time.
//!
//! Memory: a value takes 4 bytes and the time of a row 8. With [`SERIES_MAX`] series all rows take [`BYTES_MAX`].

mod file;
mod recorder;
mod rows;

pub use file::{HEADER, Loaded};
pub use recorder::{Figure, Kind, Recorder};
use rows::{Pending, Rows};

/// Seconds of a row, for each level.
pub const STEPS_S: [u64; LEVELS] = [1, 15, 300];
/// Number of levels.
pub const LEVELS: usize = 3;
/// Rows of each level that are kept: 15 minutes, a day, 30 days.
pub const ROWS_MAX: [usize; LEVELS] = [900, 5760, 8640];
/// Most series. A figure without a series left is not kept.
pub const SERIES_MAX: usize = 112;
/// Longest name of a series, in bytes.
pub const NAME_BYTES_MAX: usize = 64;
/// What all rows take at most, in bytes. A level drops whole blocks, so it may hold one block more than its rows.
pub const BYTES_MAX: usize = (ROWS_MAX[0] + ROWS_MAX[1] + ROWS_MAX[2] + LEVELS * rows::BLOCK_ROWS)
    * (size_of::<i64>() + SERIES_MAX * size_of::<f32>())
    + 64 * 1024;

/// How the values of finer rows become one of a coarser row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fold {
    /// Their mean.
    Mean,
    /// The largest.
    Most,
}

/// What is kept of a figure, beside its values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Series {
    /// The name: words with dots between, the group first.
    pub name: String,
    /// The unit: `bytes`, `1/s`, `us`, `share`, `cores`, `count` and the like.
    pub unit: String,
    /// How it becomes coarser.
    pub fold: Fold,
}

/// When a row was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// Milliseconds since 1970; may go back.
    pub unix_ms: i64,
    /// Milliseconds of a clock that does not.
    pub mono_ms: u64,
}

/// Rows that were asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    /// Seconds of a row.
    pub step_s: u64,
    /// Milliseconds since 1970 of each row, in the order in which they were taken.
    pub times: Vec<i64>,
    /// The values of each series that was asked for, a row each; NaN where there is none.
    pub columns: Vec<Vec<f32>>,
}

/// Which rows are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Milliseconds since 1970.
    pub from_ms: i64,
    /// Milliseconds since 1970; that moment belongs to it.
    pub to_ms: i64,
    /// Seconds of a row at least; `None`: of the finest level that goes back far enough.
    pub step_s: Option<u64>,
    /// Most rows: they are made coarser until they fit.
    pub rows_max: usize,
}

/// See the module.
#[derive(Debug, Default)]
pub struct History {
    series: Vec<Series>,
    levels: [Rows; LEVELS],
    pending: [Pending; LEVELS],
    /// Figures for which no series was left.
    refused: u64,
}

impl History {
    /// The series, in the order of their numbers.
    pub fn series(&self) -> &[Series] {
        &self.series
    }
    /// Figures that were not kept because there were [`SERIES_MAX`] others.
    pub fn refused(&self) -> u64 {
        self.refused
    }
    /// The number of the series with this name; it is made when there is none. `None` when there are too many.
    pub fn number(&mut self, name: &str, unit: &str, fold: Fold) -> Option<usize> {
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
    /// Takes a row of one second: a value for each series, by number; NaN where there is none. Which levels have a new row.
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
    /// Rows of a level.
    pub fn len(&self, level: usize) -> usize {
        self.levels.get(level).map_or(0, Rows::len)
    }
    /// True when no row was taken yet.
    pub fn is_empty(&self) -> bool {
        (0..LEVELS).all(|level| self.len(level) == 0)
    }
    /// Bytes that it holds.
    pub fn bytes(&self) -> usize {
        let names = self.series.iter().map(|s| size_of::<Series>() + s.name.len() + s.unit.len());
        let rows = self.levels.iter().map(Rows::bytes);
        names.chain(rows).chain(self.pending.iter().map(Pending::bytes)).sum()
    }
    /// The rows of a span, of the series with these numbers.
    pub fn read(&self, span: Span, series: &[usize]) -> Table {
        let level = self.level_for(&span);
        let step_s = span.step_s.unwrap_or(0).max(STEPS_S[level]);
        let within =
            || self.levels[level].iter().filter(|(time, _)| (span.from_ms..=span.to_ms).contains(time));
        let rows = within().count();
        // As many steps in one as make the rows fit.
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
            // Rows of this level's own step are never joined: a late row is still a row.
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
    /// The level that answers for a span.
    fn level_for(&self, span: &Span) -> usize {
        if let Some(step_s) = span.step_s {
            return (0..LEVELS).rev().find(|level| STEPS_S[*level] <= step_s).unwrap_or(0);
        }
        let oldest = |level: usize| self.levels[level].oldest();
        let covers = |level: &usize| oldest(*level).is_some_and(|time| time <= span.from_ms);
        // When nothing goes back so far, what goes back farthest answers.
        let farthest = || (0..LEVELS).filter(|l| oldest(*l).is_some()).min_by_key(|l| (oldest(*l), *l));
        (0..LEVELS).find(covers).or_else(farthest).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests;
