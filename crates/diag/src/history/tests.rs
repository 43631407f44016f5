//! The history's limits, levels and file, and clocks that go back.

use super::*;
use std::io::Cursor;

fn second(s: u64) -> Stamp {
    Stamp { unix_ms: 1_000_000_000 + s as i64 * 1000, mono_ms: s * 1000 }
}

fn all(history: &History, step_s: Option<u64>) -> Table {
    let numbers: Vec<usize> = (0..history.series().len()).collect();
    history.read(Span { from_ms: i64::MIN, to_ms: i64::MAX, step_s, rows_max: usize::MAX }, &numbers)
}

#[test]
fn three_levels_keep_their_rows_in_bounded_memory() {
    let mut history = History::default();
    (0..SERIES_MAX + 5)
        .for_each(|i| _ = history.series_number_or_insert(&format!("series.{i}"), "count", Fold::Mean));
    assert_eq!((history.series().len(), history.refused()), (SERIES_MAX, 5));
    let row = [1.5f32; SERIES_MAX];
    // 31 days with a row every 5 seconds. The finest level does not need every second.
    (0..31 * 86_400 / 5).for_each(|i| _ = history.push(second(i * 5), &row));
    for (level, most) in ROWS_MAX.into_iter().enumerate() {
        let kept = history.len(level);
        assert!((most..most + rows::BLOCK_ROWS).contains(&kept), "{level}: {kept}");
    }
    let bytes = history.bytes();
    assert!(bytes <= BYTES_MAX && BYTES_MAX < 8_000_000, "{bytes} of {BYTES_MAX}");
    assert!(bytes > BYTES_MAX * 9 / 10, "the bound says what it takes: {bytes} of {BYTES_MAX}");
}

#[test]
fn coarser_rows_are_means_or_the_largest() {
    let mut history = History::default();
    history.series_number_or_insert("mean", "count", Fold::Mean);
    history.series_number_or_insert("most", "us", Fold::Max);
    for s in 0..31 {
        let missing = if s < 15 { f32::NAN } else { s as f32 };
        history.push(second(s), &[s as f32, missing]);
    }
    let fine = all(&history, Some(1));
    assert_eq!((fine.times.len(), fine.columns[0][30], fine.columns[1][0].is_nan()), (31, 30.0, true));
    let coarse = all(&history, Some(15));
    assert_eq!((coarse.step_s, coarse.times.len()), (15, 2));
    assert_eq!(coarse.columns[0], [7.0, 22.0]);
    assert!(coarse.columns[1][0].is_nan() && coarse.columns[1][1] == 29.0);
    // A query for a length between those of two levels reads the finer level. Its rows are joined until they
    // have this length.
    let joined = all(&history, Some(10));
    assert_eq!((joined.step_s, joined.times.len(), joined.columns[0][1]), (10, 4, 14.5));
    let span = Span { from_ms: i64::MIN, to_ms: i64::MAX, step_s: Some(1), rows_max: 8 };
    assert!(history.read(span, &[0]).times.len() <= 9);
}

#[test]
fn the_finest_level_that_reaches_back_serves_a_query() {
    let mut history = History::default();
    history.series_number_or_insert("a", "count", Fold::Mean);
    (0..3000).for_each(|s| _ = history.push(second(s), &[s as f32]));
    let ask = |from: u64| {
        let span = Span { from_ms: second(from).unix_ms, to_ms: i64::MAX, step_s: None, rows_max: 10_000 };
        history.read(span, &[0]).step_s
    };
    assert_eq!([ask(2900), ask(1000), ask(14)], [1, 15, 15]);
    assert_eq!(ask(0), 15, "the second row of 15 seconds goes back farthest");
    let nothing = History::default();
    assert!(all(&nothing, None).times.is_empty());
}

#[test]
fn a_clock_that_goes_back_loses_no_row() {
    let mut recorder = Recorder::default();
    let figure = |value| [Figure::rate("ops", "1/s", value)];
    for s in 0..10u64 {
        // After 5 seconds the wall clock goes back by an hour.
        let back = if s < 5 { 0 } else { 3_600_000 };
        let at = Stamp { unix_ms: second(s).unix_ms - back, ..second(s) };
        recorder.record(at, &figure(s as f64 * 100.0));
    }
    assert_eq!(recorder.clock_jumps(), 1);
    let table = all(recorder.history(), Some(1));
    assert_eq!(table.times.len(), 10);
    assert!(table.columns[0][1..].iter().all(|v| *v == 100.0), "{:?}", table.columns[0]);
    // The monotonic clock does not move, and the counter was reset.
    assert_eq!(recorder.record(second(9), &figure(5.0)), [false; LEVELS]);
    recorder.record(second(11), &figure(50.0));
    assert_eq!(all(recorder.history(), Some(1)).columns[0][10], 25.0);
}

#[test]
fn a_file_restores_the_coarse_rows() {
    let mut history = History::default();
    history.series_number_or_insert("a", "bytes", Fold::Mean);
    (0..700).for_each(|s| _ = history.push(second(s), &[s as f32]));
    let mut file = Vec::new();
    history.save(&mut file).expect("writing to a vector cannot fail");
    // Append rows that have one more series than those in the file.
    history.series_number_or_insert("b", "us", Fold::Max);
    let before = history.len(1);
    (700..=720).for_each(|s| _ = history.push(second(s), &[s as f32, 1.0]));
    assert_eq!(history.len(1), before + 2);
    file.extend(history.names_record());
    file.extend(history.row_record(1).expect("there is one"));
    let mut again = History::default();
    // Load the file in a server whose first series has another name.
    again.series_number_or_insert("z", "count", Fold::Mean);
    let loaded = again.load(&mut Cursor::new(&file)).expect("memory is read");
    assert_eq!((loaded.rows, loaded.bytes, loaded.is_cut), (before + 3, file.len() as u64, false));
    let (old, new) = (all(&history, Some(15)), all(&again, Some(15)));
    assert_eq!(new.columns[1][..before], old.columns[0][..before]);
    assert!(new.columns[0][0].is_nan() && new.columns[2][before] == 1.0);
    assert_eq!(again.series()[1], history.series()[0]);
    // Cut the file anywhere, or change any byte: everything before the damage is read, and loading does not
    // fail.
    for cut in (0..file.len()).step_by(7) {
        let mut part = History::default();
        let loaded = part.load(&mut Cursor::new(&file[..cut])).expect("memory is read");
        assert!(
            loaded.bytes <= cut as u64 && loaded.is_cut == (loaded.bytes < cut as u64 || cut < 8),
            "{cut}"
        );
        let mut bad = file.clone();
        bad[cut] ^= 0x40;
        let loaded = History::default().load(&mut Cursor::new(&bad)).expect("memory is read");
        assert!(loaded.is_cut && loaded.bytes <= cut as u64, "{cut}: {loaded:?}");
        assert_eq!(loaded.is_foreign, cut < HEADER.len(), "{cut}: {loaded:?}");
    }
}
