//! [`Recorder`]: turns figures, read once a second, into rows of a [`History`].

use super::{Fold, History, LEVELS, Stamp};
use std::borrow::Cow;
use std::collections::HashMap;

/// How a figure is recorded over time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FigureKind {
    /// A counter that only grows. The history records its growth per second; a coarser row has the mean.
    Rate,
    /// A current value. A coarser row has the mean.
    Gauge,
    /// A current value. A coarser row has the largest value.
    Peak,
}

/// The current value of a figure.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// Name of the figure's series.
    pub name: Cow<'static, str>,
    /// Unit of the figure's series. For a rate: the unit after division by time.
    pub unit: &'static str,
    /// How the figure is recorded.
    pub kind: FigureKind,
    /// The figure's value now.
    pub value: f64,
}

impl Figure {
    /// A figure from a counter. Its growth per second is recorded.
    pub fn rate(name: impl Into<Cow<'static, str>>, unit: &'static str, value: f64) -> Figure {
        Figure { name: name.into(), unit, kind: FigureKind::Rate, value }
    }
    /// A figure with a current value. The mean is kept in coarser rows.
    pub fn gauge(name: impl Into<Cow<'static, str>>, unit: &'static str, value: f64) -> Figure {
        Figure { name: name.into(), unit, kind: FigureKind::Gauge, value }
    }
    /// A figure with a current value. The maximum is kept in coarser rows.
    pub fn peak(name: impl Into<Cow<'static, str>>, unit: &'static str, value: f64) -> Figure {
        Figure { name: name.into(), unit, kind: FigureKind::Peak, value }
    }
}

/// A [`History`] and the last value of each counter, from which rates are computed.
#[derive(Debug, Default)]
pub struct Recorder {
    history: History,
    numbers: HashMap<Cow<'static, str>, usize>,
    /// The last value of each counter, by the number of its series.
    last: Vec<Option<f64>>,
    last_at: Option<Stamp>,
    clock_jumps: u64,
    row: Vec<f32>,
}

/// The wall clock counts as having jumped when, between two rows, it advanced by this much more or less than
/// the monotonic clock.
const JUMP_MS_MIN: i64 = 1_000;

impl Recorder {
    /// The recorded history.
    pub fn history(&self) -> &History {
        &self.history
    }
    /// The history, for loading a file.
    pub fn history_mut(&mut self) -> &mut History {
        &mut self.history
    }
    /// Number of jumps of the wall clock, forwards and back.
    pub fn clock_jumps(&self) -> u64 {
        self.clock_jumps
    }
    /// Records the figures at `at`. Returns which levels have a new row. A moment that is not later than the last
    /// one is ignored.
    pub fn record(&mut self, at: Stamp, figures: &[Figure]) -> [bool; LEVELS] {
        let passed_ms = match self.last_at {
            Some(last) if at.mono_ms <= last.mono_ms => return [false; LEVELS],
            Some(last) => {
                let passed_ms = at.mono_ms - last.mono_ms;
                let jump_ms = (at.unix_ms - last.unix_ms).saturating_sub_unsigned(passed_ms);
                self.clock_jumps += u64::from(jump_ms.abs() >= JUMP_MS_MIN);
                Some(passed_ms)
            }
            None => None,
        };
        self.last_at = Some(at);
        self.row.clear();
        for figure in figures {
            let Some(number) = self.series_number_or_insert(figure) else { continue };
            let value = match (figure.kind, self.last[number].replace(figure.value), passed_ms) {
                // A counter that is smaller than before was reset, and has grown by at least its new value
                // since.
                (FigureKind::Rate, Some(last), Some(ms)) if figure.value < last => {
                    figure.value * 1000.0 / ms as f64
                }
                (FigureKind::Rate, Some(last), Some(ms)) => (figure.value - last) * 1000.0 / ms as f64,
                (FigureKind::Rate, ..) => f64::NAN,
                _ => figure.value,
            };
            if self.row.len() <= number {
                self.row.resize(number + 1, f32::NAN);
            }
            self.row[number] = value as f32;
        }
        self.row.resize(self.history.series().len(), f32::NAN);
        self.history.push(at, &self.row)
    }
    fn series_number_or_insert(&mut self, figure: &Figure) -> Option<usize> {
        if let Some(number) = self.numbers.get(&figure.name) {
            return Some(*number);
        }
        let fold = if figure.kind == FigureKind::Peak { Fold::Max } else { Fold::Mean };
        let number = self.history.series_number_or_insert(&figure.name, figure.unit, fold)?;
        self.numbers.insert(figure.name.clone(), number);
        self.last.resize(self.last.len().max(number + 1), None);
        Some(number)
    }
}
