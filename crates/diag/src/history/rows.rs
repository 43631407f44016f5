//! [`Rows`]: the rows of one level in blocks; the oldest block is dropped. [`Pending`]: rows that are being
//! combined into a coarser row.

use super::{Fold, Series, Stamp};
use std::collections::VecDeque;

/// Number of rows in a block. A block has the columns of the series that existed when it was started, so a
/// new series does not change older rows.
pub(super) const BLOCK_ROWS: usize = 64;

#[derive(Debug)]
struct Block {
    columns: usize,
    times: Vec<i64>,
    /// The values of all rows, row after row.
    values: Vec<f32>,
}

impl Block {
    fn new(columns: usize) -> Block {
        Block {
            columns,
            times: Vec::with_capacity(BLOCK_ROWS),
            values: Vec::with_capacity(BLOCK_ROWS * columns),
        }
    }
    fn row(&self, at: usize) -> &[f32] {
        &self.values[at * self.columns..(at + 1) * self.columns]
    }
}

/// The rows of one level, see the module.
#[derive(Debug, Default)]
pub(super) struct Rows {
    blocks: VecDeque<Block>,
    len: usize,
}

impl Rows {
    /// Adds a row. At least `rows_max - 1` earlier rows are kept.
    pub(super) fn push(&mut self, time: i64, row: &[f32], rows_max: usize) {
        let fits = |block: &Block| block.times.len() < BLOCK_ROWS && block.columns >= row.len();
        if !self.blocks.back().is_some_and(fits) {
            if let Some(last) = self.blocks.back_mut() {
                // A block that ended before it was full, because a series was added, has spare memory.
                last.times.shrink_to_fit();
                last.values.shrink_to_fit();
            }
            self.blocks.push_back(Block::new(row.len()));
        }
        if let Some(block) = self.blocks.back_mut() {
            block.times.push(time);
            block.values.extend_from_slice(row);
            block.values.resize(block.times.len() * block.columns, f32::NAN);
            self.len += 1;
        }
        while let Some(first) = self.blocks.front()
            && self.len - first.times.len() >= rows_max
        {
            self.len -= first.times.len();
            self.blocks.pop_front();
        }
    }
    pub(super) fn len(&self) -> usize {
        self.len
    }
    pub(super) fn iter(&self) -> impl Iterator<Item = (i64, &[f32])> {
        self.blocks
            .iter()
            .flat_map(|block| block.times.iter().enumerate().map(|(i, time)| (*time, block.row(i))))
    }
    pub(super) fn newest(&self) -> Option<(i64, &[f32])> {
        let block = self.blocks.back()?;
        let at = block.times.len().checked_sub(1)?;
        Some((block.times[at], block.row(at)))
    }
    pub(super) fn oldest(&self) -> Option<i64> {
        self.blocks.front()?.times.first().copied()
    }
    pub(super) fn bytes(&self) -> usize {
        let block =
            |b: &Block| b.times.capacity() * size_of::<i64>() + b.values.capacity() * size_of::<f32>();
        self.blocks.iter().map(block).sum::<usize>() + self.blocks.capacity() * size_of::<Block>()
    }
}

/// What is needed to combine a column's values: their sum, maximum and number.
#[derive(Clone, Copy, Debug)]
struct Sum {
    sum: f64,
    most: f32,
    count: u32,
}

/// Rows that are being combined into a coarser row, see the module.
#[derive(Debug, Default)]
pub(super) struct Pending {
    /// The time of the newest row that was added. Its monotonic time decides to which coarser row it belongs.
    newest: Option<Stamp>,
    sums: Vec<Sum>,
}

impl Pending {
    /// Adds a row to the ones being combined.
    pub(super) fn add(&mut self, at: Stamp, row: &[f32]) {
        self.newest = Some(at);
        if self.sums.len() < row.len() {
            self.sums.resize(row.len(), Sum { sum: 0.0, most: f32::NEG_INFINITY, count: 0 });
        }
        for (sum, value) in self.sums.iter_mut().zip(row).filter(|(_, value)| !value.is_nan()) {
            sum.sum += f64::from(*value);
            sum.most = sum.most.max(*value);
            sum.count += 1;
        }
    }
    /// Takes the combined row, if a row at `at` would belong to a later combined row.
    pub(super) fn take_before(
        &mut self,
        at: Stamp,
        step_s: u64,
        series: &[Series],
    ) -> Option<(i64, Vec<f32>)> {
        let step = |stamp: Stamp| stamp.mono_ms / 1000 / step_s;
        if self.newest.is_none_or(|newest| step(newest) == step(at)) {
            return None;
        }
        self.take(series)
    }
    /// Takes the combined row, made from all rows added since the last one was taken.
    pub(super) fn take(&mut self, series: &[Series]) -> Option<(i64, Vec<f32>)> {
        let time = self.newest.take()?.unix_ms;
        let fold = |(sum, series): (&Sum, &Series)| match (sum.count, series.fold) {
            (0, _) => f32::NAN,
            (n, Fold::Mean) => (sum.sum / f64::from(n)) as f32,
            (_, Fold::Max) => sum.most,
        };
        let row = self.sums.iter().zip(series).map(fold).collect();
        self.sums.clear();
        Some((time, row))
    }
    pub(super) fn bytes(&self) -> usize {
        self.sums.capacity() * size_of::<Sum>()
    }
}
