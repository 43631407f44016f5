//! Lua's patterns (`lstrlib.c` of Lua 5.1) with a budget. Matching in C cannot be stopped, and one `string.find`
//! may run for hours.
//!
//! A [`Matcher`] is one pattern on one subject. It counts each step. [`Stop::Budget`] means that the owner of the
//! budget wants matching to end. Recursion has a limit of its own, so no pattern overflows the stack.

/// Maximum number of captures of a pattern, as in Lua.
pub const CAPTURES_MAX: usize = 32;
/// Maximum recursion of the matcher: nested quantifiers and captures.
const DEPTH_MAX: usize = 200;
/// Number of steps between two checks of the budget.
const STEPS_PER_CHECK: u32 = 1024;

const ESCAPE: u8 = b'%';

/// Why matching ended without a result.
#[derive(Debug, PartialEq, Eq)]
pub enum Stop {
    /// The pattern is malformed. Holds Lua's text.
    Malformed(String),
    /// The budget of the match is used up.
    Budget,
}

type MatchResult<T> = Result<T, Stop>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CaptureLen {
    Open,
    Position,
    Bytes(usize),
}

/// A capture, as the script sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capture<'s> {
    /// The capture is a part of the subject.
    Text(&'s [u8]),
    /// `()`: a position, counted from 1.
    Position(usize),
}

/// Matches one pattern against one subject.
pub struct Matcher<'s, 'b> {
    subject: &'s [u8],
    pattern: &'s [u8],
    captures: [(usize, CaptureLen); CAPTURES_MAX],
    level: usize,
    depth: usize,
    steps: u32,
    /// Counts steps. Returns false when matching must stop.
    budget: &'b mut dyn FnMut(u32) -> bool,
}

impl<'s, 'b> Matcher<'s, 'b> {
    /// A matcher for `pattern`, given without a leading `^`, which the caller handles.
    pub fn new(
        subject: &'s [u8],
        pattern: &'s [u8],
        budget: &'b mut dyn FnMut(u32) -> bool,
    ) -> Matcher<'s, 'b> {
        let captures = [(0, CaptureLen::Open); CAPTURES_MAX];
        Matcher { subject, pattern, captures, level: 0, depth: 0, steps: 0, budget }
    }
    /// Matches the pattern at offset `at`. Returns the end of the match.
    ///
    /// # Errors
    /// When the pattern is malformed, or the budget is used up.
    pub fn match_at(&mut self, at: usize) -> MatchResult<Option<usize>> {
        self.level = 0;
        self.depth = 0;
        self.step()?;
        self.run(at, 0)
    }
    /// Number of steps that the budget has not counted yet. When the caller is done with this matcher, it adds them to
    /// the budget, because a script may make a new matcher for each short match.
    pub fn uncounted_steps(&self) -> usize {
        self.steps as usize
    }
    /// Number of captures of the last match. 0 means that the whole match is the only capture.
    pub fn captures(&self) -> usize {
        self.level
    }
    /// Capture `i` of the match `start..end`; capture 0 of a pattern without captures is the match.
    ///
    /// # Errors
    /// When there is no such capture.
    pub fn capture(&self, i: usize, start: usize, end: usize) -> MatchResult<Capture<'s>> {
        if i >= self.level {
            return match i {
                0 => Ok(Capture::Text(&self.subject[start..end])),
                _ => Err(malformed("invalid capture index")),
            };
        }
        match self.captures[i] {
            (_, CaptureLen::Open) => Err(malformed("unfinished capture")),
            (at, CaptureLen::Position) => Ok(Capture::Position(at + 1)),
            (at, CaptureLen::Bytes(n)) => Ok(Capture::Text(&self.subject[at..at + n])),
        }
    }

    fn step(&mut self) -> MatchResult<()> {
        self.steps += 1;
        if self.steps < STEPS_PER_CHECK {
            return Ok(());
        }
        let steps = std::mem::take(&mut self.steps);
        if (self.budget)(steps) { Ok(()) } else { Err(Stop::Budget) }
    }
    fn run(&mut self, s: usize, p: usize) -> MatchResult<Option<usize>> {
        if self.depth == DEPTH_MAX {
            return Err(malformed("pattern too complex"));
        }
        self.depth += 1;
        let found = self.run_items(s, p);
        self.depth -= 1;
        found
    }
    fn run_items(&mut self, mut s: usize, mut p: usize) -> MatchResult<Option<usize>> {
        loop {
            self.step()?;
            let Some(&c) = self.pattern.get(p) else { return Ok(Some(s)) };
            match c {
                b'(' if self.pattern.get(p + 1) == Some(&b')') => {
                    return self.start_capture(s, p + 2, CaptureLen::Position);
                }
                b'(' => return self.start_capture(s, p + 1, CaptureLen::Open),
                b')' => return self.end_capture(s, p + 1),
                b'$' if p + 1 == self.pattern.len() => return Ok((s == self.subject.len()).then_some(s)),
                ESCAPE if self.pattern.get(p + 1) == Some(&b'b') => match self.match_balanced(s, p + 2)? {
                    Some(end) => (s, p) = (end, p + 4),
                    None => return Ok(None),
                },
                ESCAPE if self.pattern.get(p + 1) == Some(&b'f') => {
                    p += 2;
                    if self.pattern.get(p) != Some(&b'[') {
                        return Err(malformed("missing '[' after '%f' in pattern"));
                    }
                    let end = self.class_end(p)?;
                    let before = if s == 0 { 0 } else { self.subject[s - 1] };
                    let here = self.subject.get(s).copied().unwrap_or(0);
                    if self.in_set(before, p, end - 1) || !self.in_set(here, p, end - 1) {
                        return Ok(None);
                    }
                    p = end;
                }
                ESCAPE if self.pattern.get(p + 1).is_some_and(u8::is_ascii_digit) => {
                    match self.back_reference(s, self.pattern[p + 1])? {
                        Some(end) => (s, p) = (end, p + 2),
                        None => return Ok(None),
                    }
                }
                _ => {
                    let end = self.class_end(p)?;
                    let is_match = self.matches_item(s, p, end);
                    match self.pattern.get(end) {
                        Some(b'?') => {
                            if is_match && let Some(found) = self.run(s + 1, end + 1)? {
                                return Ok(Some(found));
                            }
                            p = end + 1;
                        }
                        Some(b'*') => return self.match_greedy(s, p, end, 0),
                        Some(b'+') => return self.match_greedy(s, p, end, 1),
                        Some(b'-') => return self.match_lazy(s, p, end),
                        _ if is_match => (s, p) = (s + 1, end),
                        _ => return Ok(None),
                    }
                }
            }
        }
    }
    /// Tries the item as often as possible, then less and less often, but at least `min` times.
    fn match_greedy(&mut self, s: usize, p: usize, end: usize, min: usize) -> MatchResult<Option<usize>> {
        let mut n = 0;
        while self.matches_item(s + n, p, end) {
            self.step()?;
            n += 1;
        }
        loop {
            if n < min {
                return Ok(None);
            }
            if let Some(found) = self.run(s + n, end + 1)? {
                return Ok(Some(found));
            }
            if n == 0 {
                return Ok(None);
            }
            n -= 1;
        }
    }
    /// Tries the item as rarely as possible, then more and more often.
    fn match_lazy(&mut self, mut s: usize, p: usize, end: usize) -> MatchResult<Option<usize>> {
        loop {
            if let Some(found) = self.run(s, end + 1)? {
                return Ok(Some(found));
            }
            if !self.matches_item(s, p, end) {
                return Ok(None);
            }
            s += 1;
        }
    }
    fn start_capture(&mut self, s: usize, p: usize, len: CaptureLen) -> MatchResult<Option<usize>> {
        if self.level == CAPTURES_MAX {
            return Err(malformed("too many captures"));
        }
        self.captures[self.level] = (s, len);
        self.level += 1;
        let found = self.run(s, p)?;
        if found.is_none() {
            self.level -= 1;
        }
        Ok(found)
    }
    fn end_capture(&mut self, s: usize, p: usize) -> MatchResult<Option<usize>> {
        let open = (0..self.level).rev().find(|i| self.captures[*i].1 == CaptureLen::Open);
        let Some(i) = open else { return Err(malformed("invalid pattern capture")) };
        self.captures[i].1 = CaptureLen::Bytes(s - self.captures[i].0);
        let found = self.run(s, p)?;
        if found.is_none() {
            self.captures[i].1 = CaptureLen::Open;
        }
        Ok(found)
    }
    fn match_balanced(&mut self, s: usize, p: usize) -> MatchResult<Option<usize>> {
        let (Some(&open), Some(&close)) = (self.pattern.get(p), self.pattern.get(p + 1)) else {
            return Err(malformed("unbalanced pattern"));
        };
        if self.subject.get(s) != Some(&open) {
            return Ok(None);
        }
        let mut depth = 1;
        for at in s + 1..self.subject.len() {
            self.step()?;
            let c = self.subject[at];
            if c == close {
                depth -= 1;
                if depth == 0 {
                    return Ok(Some(at + 1));
                }
            } else if c == open {
                depth += 1;
            }
        }
        Ok(None)
    }
    fn back_reference(&mut self, s: usize, digit: u8) -> MatchResult<Option<usize>> {
        let i = usize::from(digit).checked_sub(usize::from(b'1'));
        let Some((at, CaptureLen::Bytes(n))) = i.filter(|i| *i < self.level).map(|i| self.captures[i]) else {
            return Err(malformed("invalid capture index"));
        };
        let text = &self.subject[at..at + n];
        Ok(self.subject[s..].starts_with(text).then_some(s + n))
    }
    /// The end of the single-character class that starts at offset `p` of the pattern.
    fn class_end(&self, p: usize) -> MatchResult<usize> {
        let end = p + 1;
        match self.pattern[p] {
            ESCAPE if end == self.pattern.len() => Err(malformed("malformed pattern (ends with '%')")),
            ESCAPE => Ok(end + 1),
            b'[' => {
                let mut p = end;
                if self.pattern.get(p) == Some(&b'^') {
                    p += 1;
                }
                // A `]` at the start of a set is a member of the set.
                loop {
                    match self.pattern.get(p) {
                        None => return Err(malformed("malformed pattern (missing ']')")),
                        Some(&ESCAPE) => p += 2,
                        Some(_) => p += 1,
                    }
                    if self.pattern.get(p) == Some(&b']') {
                        return Ok(p + 1);
                    }
                }
            }
            _ => Ok(end),
        }
    }
    fn matches_item(&self, s: usize, p: usize, end: usize) -> bool {
        let Some(&c) = self.subject.get(s) else { return false };
        match self.pattern[p] {
            b'.' => true,
            ESCAPE => in_class(c, self.pattern[p + 1]),
            b'[' => self.in_set(c, p, end - 1),
            literal => literal == c,
        }
    }
    /// Whether `c` is in the set from the `[` at offset `p` to the `]` at offset `close`.
    fn in_set(&self, c: u8, p: usize, close: usize) -> bool {
        let set = self.pattern;
        let (mut p, mut inside) = (p + 1, true);
        if set[p] == b'^' {
            (p, inside) = (p + 1, false);
        }
        while p < close {
            if set[p] == ESCAPE && p + 1 < close {
                if in_class(c, set[p + 1]) {
                    return inside;
                }
                p += 2;
            } else if p + 2 < close && set[p + 1] == b'-' {
                if (set[p]..=set[p + 2]).contains(&c) {
                    return inside;
                }
                p += 3;
            } else {
                if set[p] == c {
                    return inside;
                }
                p += 1;
            }
        }
        !inside
    }
}

fn in_class(c: u8, class: u8) -> bool {
    let is = match class.to_ascii_lowercase() {
        b'a' => c.is_ascii_alphabetic(),
        b'c' => c.is_ascii_control(),
        b'd' => c.is_ascii_digit(),
        b'l' => c.is_ascii_lowercase(),
        b'p' => c.is_ascii_punctuation(),
        b's' => c.is_ascii_whitespace() || c == 0x0b,
        b'u' => c.is_ascii_uppercase(),
        b'w' => c.is_ascii_alphanumeric(),
        b'x' => c.is_ascii_hexdigit(),
        b'z' => c == 0,
        _ => return class == c,
    };
    is != class.is_ascii_uppercase()
}

fn malformed(text: &str) -> Stop {
    Stop::Malformed(text.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(subject: &str, pattern: &str) -> Option<(usize, usize)> {
        let mut budget = |_| true;
        let mut matcher = Matcher::new(subject.as_bytes(), pattern.as_bytes(), &mut budget);
        (0..=subject.len()).find_map(|at| matcher.match_at(at).expect("no error").map(|end| (at, end)))
    }

    #[test]
    fn quantifiers_sets_and_anchors() {
        assert_eq!(find("hello", "l+"), Some((2, 4)));
        assert_eq!(find("hello", "l-o"), Some((2, 5)));
        assert_eq!(find("key=val", "(%w+)=(%w*)$"), Some((0, 7)));
        assert_eq!(find("a]b", "[]]"), Some((1, 2)));
        assert_eq!(find("f(a(b)c)d", "%b()"), Some((1, 8)));
        assert_eq!(find("THE (quick) fox", "%f[%a]%a+"), Some((0, 3)));
        assert_eq!(find("abab", "(ab)%1"), Some((0, 4)));
        assert_eq!(find("x-y", "[a-]"), Some((1, 2)));
    }

    #[test]
    fn a_bomb_ends_with_its_budget_and_deep_patterns_with_an_error() {
        let (subject, pattern) = ("a".repeat(400), "a*a*a*a*b");
        let mut left = 100i64;
        let mut budget = |steps: u32| {
            left -= i64::from(steps / STEPS_PER_CHECK);
            left > 0
        };
        let mut matcher = Matcher::new(subject.as_bytes(), pattern.as_bytes(), &mut budget);
        assert_eq!(matcher.match_at(0), Err(Stop::Budget));
        let pattern = "a-".repeat(10_000);
        let mut budget = |_| true;
        let mut matcher = Matcher::new(subject.as_bytes(), pattern.as_bytes(), &mut budget);
        assert_eq!(matcher.match_at(0), Err(malformed("pattern too complex")));
    }
}
