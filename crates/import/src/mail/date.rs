//! Dates of mail: from the text of a `Date` field to seconds since 1970.
//!
//! [`parse`] reads the forms of RFC 5322 with its obsolete parts, of RFC 850, of C's `asctime`, and some that mail
//! programs write beside them (`Jan 1, 2024 10:00 AM`, `2024-01-01 10:00:00 +0000`). A date counts only if every word of
//! it is understood: no date is better than a wrong one.

use crate::calendar::{self, digits};

/// The years that a date may have. RFC 5322 allows none before 1900.
const YEARS: std::ops::RangeInclusive<i64> = 1900..=9999;
/// The months, in lower case. The first three letters are enough.
const MONTHS: [&str; 12] = [
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
];
/// Zones with a name that is not used for another offset, and their minutes east of Greenwich. RFC 5322, section 4.3:
/// every other name means that the offset is not known, and then the time counts as a time of Greenwich.
const ZONES: [(&str, i64); 17] = [
    ("est", -300),
    ("edt", -240),
    ("cst", -360),
    ("cdt", -300),
    ("mst", -420),
    ("mdt", -360),
    ("pst", -480),
    ("pdt", -420),
    ("cet", 60),
    ("cest", 120),
    ("met", 60),
    ("mest", 120),
    ("west", 60),
    ("eet", 120),
    ("eest", 180),
    ("jst", 540),
    ("kst", 540),
];
/// Zones whose names have several words, by their first words, and their minutes east of Greenwich in winter. Behind
/// them stands one of [`SEASONS`]. Mail programs of Windows write these names.
const REGIONS: [(&str, i64); 10] = [
    ("eastern", -300),
    ("central", -360),
    ("mountain", -420),
    ("pacific", -480),
    ("w europe", 60),
    ("central europe", 60),
    ("central european", 60),
    ("romance", 60),
    ("gmt", 0),
    ("greenwich", 0),
];
/// The last words of a zone's name, and the minutes that they add.
const SEASONS: [(&str, i64); 3] = [(" standard time", 0), (" daylight time", 60), (" summer time", 60)];
/// The names of Greenwich's time before which an offset may stand, as in `GMT+0200`.
const GREENWICH: [&str; 3] = ["gmt", "utc", "ut"];
/// Maximum number of words in a date.
const WORDS_MAX: usize = 16;

/// The parts of a date that were found so far.
#[derive(Default)]
struct Parts {
    year: Option<i64>,
    month: Option<i64>,
    day: Option<i64>,
    /// Hours, minutes and seconds.
    time: Option<[i64; 3]>,
    /// True: `PM` follows the time. False: `AM` does.
    afternoon: Option<bool>,
    /// The words of the zone's name, in lower case and without full stops.
    zone_words: Vec<String>,
    /// The minutes east of Greenwich as a number. They count before the name: a name beside them only explains them.
    minutes: Option<i64>,
}

/// Seconds since 1970 of the date `text`. `None` when the date cannot be read with certainty.
pub(super) fn parse(text: &str) -> Option<i64> {
    let plain = joined_times(&without_comments(text)?);
    let mut parts = Parts::default();
    let is_end = |c: char| c.is_ascii_whitespace() || matches!(c, ',' | '\0' | '\u{a0}');
    let words = plain.split(is_end).filter(|word| !word.is_empty());
    // The French and the Spanish Tuesday are written as March.
    let ends_with_comma =
        plain.trim_start().find([',', ' ']).is_some_and(|at| plain.trim_start().as_bytes()[at] == b',');
    for (number, word) in words.enumerate() {
        let is_weekday = number == 0 && is_alphabetic(word) && (month(word).is_none() || ends_with_comma);
        if number >= WORDS_MAX || !(is_weekday || parts.add(word)) {
            return None;
        }
    }
    parts.seconds()
}

impl Parts {
    /// Adds the next word. False when it is not understood.
    fn add(&mut self, word: &str) -> bool {
        let word = word.strip_prefix('"').and_then(|word| word.strip_suffix('"')).unwrap_or(word);
        if let Some((date, time)) = iso(word) {
            return self.add_date(date) && (time.is_empty() || self.add_time(time));
        }
        if word.contains(':') && word.starts_with(|c: char| c.is_ascii_digit()) {
            return self.add_time(word);
        }
        if word.bytes().all(|b| b.is_ascii_digit()) {
            return self.add_number(word);
        }
        if is_alphabetic(word) {
            return self.add_name(word);
        }
        if self.time.is_none() && word.contains('-') {
            return self.add_date(word);
        }
        if self.time.is_none() && self.year.is_some() && word.split('.').count() == 3 {
            return self.add_time(&word.replace('.', ":"));
        }
        let sign = word.find(['+', '-']);
        sign.is_some_and(|at| {
            let (name, offset) = word.split_at(at);
            let is_named = GREENWICH.iter().any(|zone| zone.eq_ignore_ascii_case(name));
            (name.is_empty() || is_named) && self.add_offset(offset)
        })
    }

    /// Adds `1-Jan-2024` or `2024-01-01`.
    fn add_date(&mut self, word: &str) -> bool {
        let mut names = word.split('-');
        let (Some(first), Some(second), Some(third), None) =
            (names.next(), names.next(), names.next(), names.next())
        else {
            return false;
        };
        if self.day.is_some() || self.month.is_some() || self.year.is_some() {
            return false;
        }
        let (day, year) = if first.len() == 4 { (third, first) } else { (first, third) };
        let by_number = || if first.len() == 4 { digits(second, 2) } else { None };
        self.month = month(second).or_else(by_number);
        self.day = digits(day, 2);
        self.year = full_year(year);
        self.day.is_some() && self.month.is_some() && self.year.is_some()
    }

    /// Adds `10:00`, `10:00:00` or `10:00:00.5`, perhaps with a zone or `AM` behind it.
    fn add_time(&mut self, word: &str) -> bool {
        let is_time = |c: char| c.is_ascii_digit() || matches!(c, ':' | '.');
        let (time, rest) = word.split_at(word.find(|c| !is_time(c)).unwrap_or(word.len()));
        let time = match time.split_once('.') {
            Some((whole, fraction)) if !fraction.is_empty() && !fraction.contains([':', '.']) => whole,
            Some(_) => return false,
            None => time,
        };
        let mut numbers = [0; 3];
        let mut count = 0;
        for part in time.split(':') {
            let (Some(place), Some(number)) = (numbers.get_mut(count), digits(part, 2)) else { return false };
            *place = number;
            count += 1;
        }
        if count < 2 || self.time.is_some() {
            return false;
        }
        self.time = Some(numbers);
        rest.is_empty() || self.add(rest)
    }

    /// Adds a number without a sign.
    fn add_number(&mut self, word: &str) -> bool {
        if self.day.is_none() {
            self.day = digits(word, 2);
            return self.day.is_some();
        }
        if self.month.is_some() && self.year.is_none() {
            self.year = full_year(word);
            return self.year.is_some();
        }
        // The plus in front of the zone is lost in some archives: it means a blank in the address of a page.
        self.time.is_some() && word.len() == 4 && self.add_offset(&format!("+{word}"))
    }

    /// Adds the name of a month or of a zone, or `AM` or `PM`.
    fn add_name(&mut self, word: &str) -> bool {
        if self.month.is_none() {
            self.month = month(word);
            return self.month.is_some();
        }
        if self.time.is_none() {
            return false;
        }
        let meridiem = ["am", "pm"].iter().position(|name| name.eq_ignore_ascii_case(word));
        if let Some(meridiem) = meridiem {
            return self.afternoon.replace(meridiem == 1).is_none();
        }
        self.zone_words.push(word.strip_suffix('.').unwrap_or(word).to_ascii_lowercase());
        true
    }

    /// Adds `+0100`, `+01:00`, `+100`, `+01` or `+1`.
    fn add_offset(&mut self, word: &str) -> bool {
        let digits_only = word[1..].replacen(':', "", 1);
        let is_number = digits_only.bytes().all(|b| b.is_ascii_digit());
        if self.time.is_none() || self.minutes.is_some() || !is_number {
            return false;
        }
        let number: i64 = match digits_only.len() {
            1..=4 => digits_only.parse().unwrap_or(i64::MAX),
            _ => return false,
        };
        let (hours, minutes) = if digits_only.len() < 3 { (number, 0) } else { (number / 100, number % 100) };
        let east = if word.starts_with('-') { -1 } else { 1 };
        self.minutes = Some(east * (hours * 60 + minutes));
        hours < 24 && minutes < 60
    }

    fn seconds(&self) -> Option<i64> {
        let (year, month, day) = (self.year?, self.month?, self.day?);
        let [mut hour, minute, second] = self.time?;
        if let Some(afternoon) = self.afternoon
            && hour <= 12
        {
            hour = hour % 12 + if afternoon { 12 } else { 0 };
        }
        // 24:00:00 is the end of the day. A minute with a leap second has the second 60.
        let is_time = (hour < 24 || [hour, minute, second] == [24, 0, 0]) && minute < 60 && second <= 60;
        let days = calendar::day(year, month, day).filter(|_| is_time)?;
        let zone = self.minutes.or_else(|| zone_minutes(&self.zone_words))?;
        Some(days * 86_400 + (hour * 60 + minute - zone) * 60 + second)
    }
}

/// The text with a blank in place of each comment. `None` when a comment has no end.
fn without_comments(text: &str) -> Option<String> {
    let (mut plain, mut depth, mut is_escaped) = (String::with_capacity(text.len()), 0usize, false);
    for c in text.chars() {
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' if depth > 0 => is_escaped = true,
            '(' => depth += 1,
            ')' => {
                depth = depth.checked_sub(1)?;
                plain.push(' ');
            }
            c if depth == 0 => plain.push(c),
            _ => {}
        }
    }
    // A comment that was cut off ends with the text.
    Some(plain)
}

/// The minutes east of Greenwich of the zone with this name: 0 when the name is not known or there is none. `None` when
/// a known name of one word stands among other words, because then the words contradict each other.
fn zone_minutes(words: &[String]) -> Option<i64> {
    let known = |word: &str| ZONES.iter().find(|(name, _)| *name == word).map(|(_, minutes)| *minutes);
    let [_, _, ..] = words else {
        return Some(words.first().and_then(|word| known(word)).unwrap_or(0));
    };
    let name = words.join(" ");
    let long = SEASONS.iter().find_map(|(season, more)| {
        let region = name.strip_suffix(season)?;
        REGIONS.iter().find(|(name, _)| *name == region).map(|(_, minutes)| minutes + more)
    });
    let is_known = |word: &String| known(word).is_some() || GREENWICH.contains(&&word[..]);
    long.or_else(|| (!words.iter().any(is_known)).then_some(0))
}

/// Removes the white space around colons: RFC 5322 allows it in obsolete times.
fn joined_times(text: &str) -> String {
    text.split(':').map(str::trim).collect::<Vec<_>>().join(":")
}

/// Divides `2024-01-01T10:00:00Z` at the `T`, which may be missing together with the time.
fn iso(word: &str) -> Option<(&str, &str)> {
    let is_date = |date: &str| {
        let shape: Vec<usize> = date.split('-').map(str::len).collect();
        shape == [4, 2, 2] && date.bytes().all(|b| b.is_ascii_digit() || b == b'-')
    };
    let (date, time) = word.split_once(['T', 't']).unwrap_or((word, ""));
    is_date(date).then_some((date, time))
}

fn is_alphabetic(word: &str) -> bool {
    let letters = word.strip_suffix('.').unwrap_or(word);
    !letters.is_empty() && letters.chars().all(char::is_alphabetic)
}

/// The number of the month with this name, or with the first letters of this name.
fn month(word: &str) -> Option<i64> {
    let lower = word.strip_suffix('.').unwrap_or(word).to_ascii_lowercase();
    if lower == "sept" {
        return Some(9);
    }
    MONTHS.iter().position(|month| lower == month[..3] || lower == *month).map(|at| at as i64 + 1)
}

/// The year that `word` names. RFC 5322, section 4.3: two digits up to 49 belong to this century, and other years of two
/// or three digits count from 1900.
fn full_year(word: &str) -> Option<i64> {
    let number = digits(word, 4)?;
    let year = match (word.len(), number) {
        (2, 0..=49) => 2000 + number,
        (2 | 3, _) => 1900 + number,
        _ => number,
    };
    YEARS.contains(&year).then_some(year)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 1 January 2024, 10:00:00 in Greenwich.
    const TEN: i64 = 1_704_103_200;

    #[test]
    fn usual_and_obsolete_dates_are_read() {
        for (text, seconds) in [
            ("Thu, 01 Jan 1970 00:00:00 +0000", 0),
            ("Mon, 01 Jan 2024 10:00:00 +0000", TEN),
            ("1 Jan 2024 10:00 GMT", TEN),
            ("Mon, 1 Jan 24 10:00:00", TEN),
            ("Mon,1 Jan 124 10:00:00 UT", TEN),
            ("Mon, 01 Jan 2024 10:00:00 (no end", TEN),
            ("Mon, 01 Jan 2024 10(comment):   00  :  00 +0000\0", TEN),
            ("Mar, 02 Jan 2024 10:00:00 +0000", TEN + 86_400),
            ("mon , 1 jan 2024  10:00:00.123  Z", TEN),
            ("(a (b\\) c)) Mon, 1 Jan (x) 2024 10:00:00 +0000 (UTC)", TEN),
            ("Mon, 01 Jan 2024 11:00:00 +0100 CET", TEN),
            ("Mon, 01 Jan 2024 11:00:00 CET", TEN),
            ("Mon, 01 Jan 2024 11:00:00+01:00", TEN),
            ("Mon, 01 Jan 2024 11:00:00 +1", TEN),
            ("Mon, 01 Jan 2024 11:00:00 +100", TEN),
            ("Mon, 01 Jan 2024 11:00:00 0100", TEN),
            ("Mon, 01 Jan 2024 12:00:00 GMT+0200", TEN),
            ("Mon, 01 Jan 2024 10:00:00 \"GMT\"", TEN),
            ("Mon, 01 Jan 2024 04:30:00 -0530", TEN),
            ("Mon, 01 Jan 2024 10:00:00 XYZ", TEN),
            ("Mon, 01 Jan 2024 10.00.00 +0000", TEN),
            ("Sat, 31 Dec 2016 23:59:60 +0000", 1_483_228_800),
            ("Sun, 31 Dec 2023 24:00:00 +0000", TEN - 36_000),
            ("20 Apr 95 10:00 MST", 798_397_200),
            ("Thu, 29 Feb 2024 00:00:00 +0000", 1_709_164_800),
            ("Thu, 01 Mar 1900 00:00:00 +0000", -2_203_891_200),
        ] {
            assert_eq!(parse(text), Some(seconds), "{text}");
        }
    }

    #[test]
    fn asctime_rfc_850_and_similar_dates_are_read() {
        for text in [
            "Mon Jan  1 10:00:00 2024",
            "Mon Jan 01 11:00:00 2024 +0100",
            "Mon Jan  1 10:00:00 GMT 2024",
            "Mon Jan  1 05:00:00 EST 2024",
            "Monday, 01-Jan-24 10:00:00 GMT",
            "Mon, 1-Jan-2024 10:00:00 GMT",
            "Mon, Jan 1 2024 10:00:00 +0000",
            "Monday, 1 January 2024 10:00:00 +0000",
            "Monday, January 1, 2024 10:00 AM",
            "Jan 1, 2024 10:00:00 am",
            "2024-01-01 10:00:00 +0000",
            "2024-01-01T11:00:00+01:00",
            "2024-01-01T10:00:00.5Z",
        ] {
            assert_eq!(parse(text), Some(TEN), "{text}");
        }
        assert_eq!(parse("Jan 1, 2024 10:00 PM"), Some(TEN + 12 * 3600));
        assert_eq!(parse("1 Jan 2024 12:00 AM"), Some(TEN - 10 * 3600));
    }

    #[test]
    fn names_of_zones_with_several_words_are_read() {
        for (zone, minutes) in [
            ("Eastern Standard Time", -300),
            ("Eastern Daylight Time", -240),
            ("central standard time", -360),
            ("Mountain Daylight Time", -360),
            ("Pacific Standard Time", -480),
            ("W. Europe Standard Time", 60),
            ("W. Europe Daylight Time", 120),
            ("Central Europe Standard Time", 60),
            ("Central European Summer Time", 120),
            ("GMT Standard Time", 0),
            ("GMT Daylight Time", 60),
            ("Greenwich Standard Time", 0),
            ("Greenwich Mean Time", 0),
            ("Coordinated Universal Time", 0),
            ("E. South America Standard Time", 0),
            ("Mitteleuropäische Zeit", 0),
            ("+0100 W. Europe Standard Time", 60),
            ("-0500 Eastern Daylight Time", -300),
            ("-0500 (Eastern Standard Time)", -300),
            ("Eastern Standard Time -0500", -300),
            ("-0500 EST Eastern Standard Time", -300),
        ] {
            let text = format!("Mon, 1 Jan 2024 10:00:00 {zone}");
            assert_eq!(parse(&text), Some(TEN - minutes * 60), "{text}");
        }
        assert_eq!(parse("Mon Jan  1 05:00:00 Eastern Standard Time 2024"), Some(TEN));
        assert_eq!(parse("Monday, January 1, 2024 5:00 AM Eastern Standard Time"), Some(TEN));
        assert_eq!(parse("Mon, 1 Jan 2024 10:00:00 EST PST"), None);
    }

    #[test]
    fn a_date_that_is_not_certain_is_none() {
        for text in [
            "",
            "yesterday",
            "Mon, 01 Jan 2024",
            "10:00:00",
            "Fri, 30 Feb 2024 10:00:00 +0000",
            "Thu, 29 Feb 2023 10:00:00 +0000",
            "Mon, 31 Jun 2024 10:00:00 +0000",
            "Mon, 00 Jan 2024 10:00:00 +0000",
            "Mon, 01 Jan 2024 25:00:00 +0000",
            "Mon, 01 Jan 2024 24:00:01 +0000",
            "Mon, 01 Jan 2024 10:61:00 +0000",
            "Mon, 01 Jan 2024 10:00:00 -2400",
            "Mon, 01 Jan 2024 10:00:00 +0060",
            "Mon, 01 Jan 2024 10:00:00 +00000",
            "Mon, 01 Jan 2024 10:00:00 +0000 +0000",
            "Mon, 01 Jan 2024 10:00:00 GMT GMT",
            "Mon, 01 Jan 0000 10:00:00 +0000",
            "Mon, 01 Jan 20240 10:00:00 +0000",
            "Mon, 01 Mai 2024 10:00:00 +0000",
            "01/02/2024 10:00:00",
            "2024-13-01 10:00:00",
            "Mon, 01 Jan 2024 1:2:3:4 +0000",
            "Mon, 01 Jan 2024 10: +0000",
            "Mon, 01 Jan 2024 10:00:00 +",
            "é-é-é",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_text_panics(text in "[ -~é]{0,40}|([A-Za-z]{1,4}|[0-9:.+T-]{1,9}|[ ,()\"é]){0,12}") {
            parse(&text);
        }
    }
}
