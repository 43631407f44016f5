//! The days of the calendar, and times in the form of RFC 3339.

/// The years that this module knows.
const YEARS: std::ops::RangeInclusive<i64> = 1..=9999;

/// The number of days from 1970 to a day. `None` when there is no such day.
pub(crate) fn day(year: i64, month: i64, day: i64) -> Option<i64> {
    let exists =
        YEARS.contains(&year) && (1..=12).contains(&month) && (1..=days_of(year, month)).contains(&day);
    exists.then(|| days_since_1970(year, month, day))
}

/// Reads a time in the form of RFC 3339: seconds since 1970 and nanoseconds. Digits after the ninth of a fraction are
/// ignored. The zone must be there: a time without it means another moment on each machine.
pub(crate) fn rfc_3339(text: &str) -> Option<(i64, u32)> {
    let (date, rest) = text.split_once(['T', 't', ' '])?;
    let [year, month, of_month] = numbers(date, '-', [4, 2, 2])?;
    let (time, rest) = rest.split_at(rest.find(|c: char| !c.is_ascii_digit() && c != ':')?);
    let [hour, minute, second] = numbers(time, ':', [2, 2, 2])?;
    let (fraction, zone) = match rest.strip_prefix('.') {
        Some(rest) => rest.split_at(rest.find(|c: char| !c.is_ascii_digit()).filter(|at| *at > 0)?),
        None => ("", rest),
    };
    let (east, offset) = match zone {
        "Z" | "z" => (1, [0, 0]),
        _ => {
            let ahead = zone.strip_prefix('+').map(|offset| (1, offset));
            let (east, offset) = ahead.or_else(|| Some((-1, zone.strip_prefix('-')?)))?;
            (east, numbers(offset, ':', [2, 2])?)
        }
    };
    // A minute with a leap second has the second 60.
    let is_time = hour < 24 && minute < 60 && second <= 60 && offset[0] < 24 && offset[1] < 60;
    let days = day(year, month, of_month).filter(|_| is_time)?;
    let minutes = hour * 60 + minute - east * (offset[0] * 60 + offset[1]);
    let fraction = fraction.bytes().chain(std::iter::repeat(b'0')).take(9);
    let nanoseconds = fraction.fold(0, |sum, digit| sum * 10 + u32::from(digit - b'0'));
    Some((days * 86_400 + minutes * 60 + second, nanoseconds))
}

/// A number of one to `len_max` digits.
pub(crate) fn digits(word: &str, len_max: usize) -> Option<i64> {
    let is_number = (1..=len_max).contains(&word.len()) && word.bytes().all(|b| b.is_ascii_digit());
    is_number.then(|| word.parse().ok())?
}

/// The numbers of `text` between separators. Each has the number of digits that `lens` says.
fn numbers<const N: usize>(text: &str, separator: char, lens: [usize; N]) -> Option<[i64; N]> {
    let mut words = text.split(separator);
    let mut found = [0; N];
    for (number, len) in found.iter_mut().zip(lens) {
        *number = words.next().filter(|word| word.len() == len).and_then(|word| digits(word, len))?;
    }
    words.next().is_none().then_some(found)
}

/// The number of days of the month.
fn days_of(year: i64, month: i64) -> i64 {
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    match month {
        2 => 28 + i64::from(is_leap),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// The number of days from 1970 to a day, which lies after the year 0.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    // Years begin in March here, so that the leap day is the last day of its year.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let day_of_year = (153 * month + 2) / 5 + day - 1;
    365 * year + year / 4 - year / 100 + year / 400 + day_of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_day_has_the_number_after_the_day_before_it() {
        let mut number = days_since_1970(1, 1, 1);
        for year in 1..=2400 {
            for month in 1..=12 {
                for of_month in 1..=days_of(year, month) {
                    assert_eq!(day(year, month, of_month), Some(number), "{year}-{month}-{of_month}");
                    number += 1;
                }
            }
        }
        assert_eq!(day(1970, 1, 1), Some(0));
        for (year, month, of_month) in [(0, 1, 1), (10_000, 1, 1), (2026, 0, 1), (2026, 13, 1), (2026, 2, 29)]
        {
            assert_eq!(day(year, month, of_month), None, "{year}-{month}-{of_month}");
        }
    }

    #[test]
    fn times_of_rfc_3339_are_read() {
        for (text, seconds, nanoseconds) in [
            ("1970-01-01T00:01:00Z", 60, 0),
            ("1970-01-01t00:01:00z", 60, 0),
            ("1970-01-01 00:01:00+00:00", 60, 0),
            ("1970-01-01T01:01:00.9+01:00", 60, 900_000_000),
            ("1969-12-31T18:31:00-05:30", 60, 0),
            ("1970-01-01T00:01:00.0012345678912Z", 60, 1_234_567),
            ("1969-12-31T23:59:59.25Z", -1, 250_000_000),
            ("2016-12-31T23:59:60Z", 1_483_228_800, 0),
            ("2024-02-29T00:00:00Z", 1_709_164_800, 0),
            ("0001-01-01T00:00:00Z", -62_135_596_800, 0),
        ] {
            assert_eq!(rfc_3339(text), Some((seconds, nanoseconds)), "{text}");
        }
    }

    #[test]
    fn what_is_no_time_of_rfc_3339_is_none() {
        for text in [
            "",
            "Z",
            "2026-01-01",
            "2026-02-30T00:00:00Z",
            "2026-02-29T00:00:00Z",
            "2026-04-31T00:00:00Z",
            "2026-00-01T00:00:00Z",
            "2026-13-01T00:00:00Z",
            "0000-01-01T00:00:00Z",
            "2026-01-01T24:00:00Z",
            "2026-01-01T00:60:00Z",
            "2026-01-01T00:00:61Z",
            "2026-01-01T00:00:00",
            "2026-01-01T00:00:00.5",
            "2026-01-01T00:00:00.Z",
            "2026-01-01T00:00Z",
            "2026-01-01T00:00:00Zjunk",
            "2026-01-01T00:00:00Z ",
            "2026-01-01T00:00:00+0100",
            "2026-01-01T00:00:00+24:00",
            "2026-01-01T00:00:00+00:60",
            "2026-01-01T00:00:00\u{2212}01:00",
            "2026-1-1T0:0:0Z",
            "26-01-01T00:00:00Z",
            "+026-01-01T00:00:00Z",
            "2026-01-01T00:00:00:00Z",
        ] {
            assert_eq!(rfc_3339(text), None, "{text}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_text_panics(text in "[ -~é]{0,40}|[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]{0,12}[Z+é-][0-9:]{0,6}") {
            rfc_3339(&text);
        }
    }
}
