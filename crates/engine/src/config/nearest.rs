//! Suggestions for unknown words: the nearest option name.

use super::table::OPTIONS;

/// Words other than options that may begin a line of a configuration file.
pub(super) const DIRECTIVES: [&str; 5] = ["include", "user", "rename-command", "loadmodule", "sentinel"];
/// Words with more bytes get no suggestion.
const WORD_BYTES_MAX: usize = 64;

/// The nearest option, former name or directive, if its distance is at most a third of the length of `word`.
pub fn nearest(word: &[u8]) -> Option<&'static str> {
    if word.len() > WORD_BYTES_MAX {
        return None;
    }
    let word = word.to_ascii_lowercase();
    let names = OPTIONS.iter().filter(|o| !o.is_hidden()).flat_map(|o| [Some(o.name), o.alias]).flatten();
    let names = names.chain(DIRECTIVES);
    let distances = names.map(|name| (distance(&word, name.as_bytes()), name));
    // Among equally near names, take the first.
    let (edits, name) = distances.min_by_key(|(edits, _)| *edits)?;
    (edits <= word.len() / 3).then_some(name)
}

/// The edit distance: the number of inserted, removed, replaced, or swapped neighbouring bytes that turn `a` into
/// `b`.
fn distance(a: &[u8], b: &[u8]) -> usize {
    let mut before: Vec<usize> = Vec::new();
    let mut above: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i; b.len() + 1];
        for j in 1..=b.len() {
            let replaced = above[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            row[j] = replaced.min(above[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                row[j] = row[j].min(before[j - 2] + 1);
            }
        }
        before = std::mem::replace(&mut above, row);
    }
    above[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_are_told_from_other_words() {
        for (word, name) in [
            ("maxmemroy", Some("maxmemory")),
            ("MaxMemory-Policies", Some("maxmemory-policy")),
            ("apendonly", Some("appendonly")),
            ("time-out", Some("timeout")),
            ("hash-max-ziplist-entrys", Some("hash-max-ziplist-entries")),
            ("includ", Some("include")),
            ("por", Some("port")),
            ("foo", None),
            ("x", None),
            ("", None),
            ("vm-enabled", None),
        ] {
            assert_eq!(nearest(word.as_bytes()), name, "{word}");
        }
        assert_eq!(nearest(&[b'a'; WORD_BYTES_MAX + 1]), None);
    }

    #[test]
    fn a_swap_counts_as_one_edit() {
        for (a, b, edits) in
            [("", "ab", 2), ("ab", "ba", 1), ("abc", "abd", 1), ("abc", "c", 2), ("ab", "ab", 0)]
        {
            assert_eq!(distance(a.as_bytes(), b.as_bytes()), edits, "{a} {b}");
        }
    }
}
