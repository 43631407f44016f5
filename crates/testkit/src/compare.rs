//! [`Policy`]: how the replies of two servers to one command are compared.

use strand_wire::client::Value;

/// What must be equal in the replies of two servers to one command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Every byte of both replies must be equal, but the elements of sets and maps of RESP3 may be in any order.
    Exact,
    /// The elements must be equal, but in any order and at every depth, because no server promises the order of a set.
    AnyOrder,
    /// The pairs of names and values must be equal, but in any order, because no server promises the order of a hash.
    Pairs,
    /// The kind of reply and the number of elements must be equal.
    Shape,
    /// Only the kinds of the replies must be equal.
    Kind,
    /// If both scans finish in one call, the elements must be equal in any order. Otherwise only the kinds must be
    /// equal, because each server has its own cursors.
    Scan,
    /// Like [`Policy::Scan`], for elements that are pairs.
    ScanPairs,
    /// The elements, and also the words within texts, must be equal in any order: redis-server keeps a user's
    /// commands in a hash table.
    Words,
    /// Only the lengths of texts must be equal, for random texts.
    Length,
    /// Entries of ACL LOG must be equal, except their age and their connection.
    Denials,
    /// Replies of XPENDING and XINFO must be equal, except times and ages.
    Timeless,
    /// Integers may differ by at most this much. Everything else is exact.
    Near(i64),
}

impl Policy {
    /// The policy for the replies to a command.
    pub fn of(args: &[Vec<u8>]) -> Policy {
        let name = args.first().map(|n| n.to_ascii_uppercase()).unwrap_or_default();
        let sub = args.get(1).map(|n| n.to_ascii_uppercase()).unwrap_or_default();
        match (name.as_slice(), sub.as_slice()) {
            (b"HKEYS" | b"HVALS" | b"KEYS" | b"SMEMBERS" | b"SINTER" | b"SUNION" | b"SDIFF", _) => {
                Policy::AnyOrder
            }
            (b"HGETALL", _) | (b"CONFIG", b"GET") => Policy::Pairs,
            // SSCAN returns a small set whole, even for a cursor that no server returned.
            (b"SSCAN", _) if args.get(2).is_some_and(|cursor| cursor != b"0") => Policy::Kind,
            (b"HSCAN", _) if args.iter().any(|arg| arg.eq_ignore_ascii_case(b"NOVALUES")) => Policy::Scan,
            (b"HSCAN" | b"ZSCAN", _) => Policy::ScanPairs,
            (b"SCAN" | b"SSCAN", _) => Policy::Scan,
            (b"ACL", b"GENPASS") => Policy::Length,
            (b"ACL", b"LOG") => Policy::Denials,
            // These replies are random, or differ between servers. OBJECT REFCOUNT differs because Redis does not
            // share a small integer created by COPY; see docs/differences.md.
            (b"HRANDFIELD" | b"SRANDMEMBER" | b"ZRANDMEMBER" | b"RANDOMKEY" | b"TIME" | b"LOLWUT", _)
            | (b"MEMORY", b"USAGE")
            | (b"OBJECT", b"REFCOUNT") => Policy::Shape,
            // Memory figures differ between servers, and so does the time of the last save.
            (b"MEMORY", b"DOCTOR" | b"MALLOC-STATS" | b"STATS") | (b"LASTSAVE", _) => Policy::Kind,
            // HELP is prose, and Strand has its own.
            (_, b"HELP") if args.len() == 2 => Policy::Kind,
            (b"XPENDING" | b"XINFO", _) => Policy::Timeless,
            (b"TTL" | b"EXPIRETIME", _) => Policy::Near(2),
            // Redis keeps one object for all keys that hold one small integer, so these keys have one idle time. The
            // idle times of both servers then differ.
            (b"OBJECT", b"IDLETIME") => Policy::Kind,
            (b"PTTL" | b"PEXPIRETIME", _) => Policy::Near(2_000),
            _ => Policy::Exact,
        }
    }

    /// True when the reply `ours` is acceptable beside the reply `theirs`.
    pub fn accepts(self, ours: &Value, theirs: &Value) -> bool {
        match self {
            Policy::Exact
            | Policy::AnyOrder
            | Policy::Pairs
            | Policy::Words
            | Policy::Denials
            | Policy::Timeless => is_equal(&self.comparable(ours), &self.comparable(theirs)),
            Policy::Shape => shape(ours) == shape(theirs),
            Policy::Kind => shape(ours).0 == shape(theirs).0,
            Policy::Scan | Policy::ScanPairs => match (end_of_scan(ours), end_of_scan(theirs)) {
                (Some(ours), Some(theirs)) if self == Policy::Scan => Policy::AnyOrder.accepts(ours, theirs),
                (Some(ours), Some(theirs)) => Policy::Pairs.accepts(ours, theirs),
                _ => Policy::Kind.accepts(ours, theirs),
            },
            Policy::Length => match (ours, theirs) {
                (Value::Bulk(a), Value::Bulk(b)) => a.len() == b.len(),
                _ => is_equal(ours, theirs),
            },
            Policy::Near(by) => match (ours, theirs) {
                (Value::Int(a), Value::Int(b)) if *a >= 0 && *b >= 0 => a.abs_diff(*b) <= by as u64,
                _ => is_equal(ours, theirs),
            },
        }
    }

    /// The value without what the policy lets differ: sorted, or without times. For [`Policy::Exact`], and for
    /// policies that need both replies, the value itself.
    pub fn comparable(self, value: &Value) -> Value {
        match self {
            Policy::AnyOrder => sorted(value.clone()),
            Policy::Pairs => sorted(in_pairs(value)),
            Policy::Words => sorted(split_words(value)),
            Policy::Denials => without_connections(value),
            Policy::Timeless => without_times(value),
            _ => value.clone(),
        }
    }
}

/// The elements of the last reply of a scan. `None` for an earlier reply. A value that is no reply of a scan is returned.
fn end_of_scan(value: &Value) -> Option<&Value> {
    match value {
        Value::Array(reply) => match &reply[..] {
            [cursor, elements] => (*cursor == Value::Bulk(b"0".to_vec())).then_some(elements),
            _ => Some(value),
        },
        _ => Some(value),
    }
}

/// Compares two values, of which NaN equals NaN, and 0 and -0 differ.
fn is_equal(a: &Value, b: &Value) -> bool {
    format!("{:?}", sets_sorted(a)) == format!("{:?}", sets_sorted(b))
}

/// The value with sorted sets and maps.
fn sets_sorted(value: &Value) -> Value {
    let all = |items: &[Value]| items.iter().map(sets_sorted).collect();
    match value {
        Value::Array(items) => Value::Array(all(items)),
        Value::Push(items) => Value::Push(all(items)),
        Value::Set(items) => sorted(Value::Set(all(items))),
        Value::Map(pairs) => {
            sorted(Value::Map(pairs.iter().map(|(k, v)| (sets_sorted(k), sets_sorted(v))).collect()))
        }
        other => other.clone(),
    }
}

/// An array of names and values in turn as an array of pairs. Other values are left as they are.
fn in_pairs(value: &Value) -> Value {
    match value {
        Value::Array(items) if items.len() % 2 == 0 => {
            Value::Map(items.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect())
        }
        other => other.clone(),
    }
}

fn sorted(value: Value) -> Value {
    let sort = |mut items: Vec<Value>| {
        items = items.into_iter().map(sorted).collect();
        items.sort_by_key(|v| format!("{v:?}"));
        items
    };
    match value {
        Value::Array(items) => Value::Array(sort(items)),
        Value::Set(items) => Value::Set(sort(items)),
        Value::Map(mut pairs) => {
            pairs.sort_by_key(|(k, v)| format!("{k:?}{v:?}"));
            Value::Map(pairs)
        }
        other => other,
    }
}

/// Splits each text into an array of words.
fn split_words(value: &Value) -> Value {
    match value {
        Value::Bulk(text) => {
            Value::Array(text.split(|b| *b == b' ').map(|w| Value::Bulk(w.into())).collect())
        }
        Value::Array(items) => Value::Array(items.iter().map(split_words).collect()),
        Value::Map(pairs) => {
            Value::Array(pairs.iter().map(|(k, v)| Value::Array(vec![k.clone(), split_words(v)])).collect())
        }
        other => other.clone(),
    }
}

/// A reply of XPENDING or XINFO in which each time is 0. A time follows its name, or is in a pending entry (ID,
/// consumer, time, deliveries, or these without the consumer).
fn without_times(value: &Value) -> Value {
    let is_time =
        |name: &Value| [&b"idle"[..], b"seen-time"].iter().any(|n| *name == Value::Bulk(n.to_vec()));
    match value {
        Value::Array(items) => {
            let at = match &items[..] {
                [Value::Bulk(_), Value::Bulk(_), Value::Int(_), Value::Int(_)] => Some(2),
                [Value::Bulk(_), Value::Int(_), Value::Int(_)] => Some(1),
                _ => None,
            };
            let named = |i: usize| i % 2 == 1 && is_time(&items[i - 1]);
            let each = items.iter().enumerate();
            let each =
                each.map(|(i, v)| if at == Some(i) || named(i) { Value::Int(0) } else { without_times(v) });
            Value::Array(each.collect())
        }
        Value::Map(pairs) => {
            let each = pairs.iter();
            let each =
                each.map(|(k, v)| (k.clone(), if is_time(k) { Value::Int(0) } else { without_times(v) }));
            Value::Map(each.collect())
        }
        other => other.clone(),
    }
}

/// The entries of ACL LOG without the parts that differ between servers.
fn without_connections(value: &Value) -> Value {
    let own =
        |name: &Value| [&b"age-seconds"[..], b"client-info"].iter().any(|n| *name == Value::Bulk(n.to_vec()));
    let entry = |entry: &Value| match entry {
        Value::Array(items) => {
            let pairs = items.chunks(2).filter(|pair| !own(&pair[0]));
            Value::Array(pairs.flatten().cloned().collect())
        }
        Value::Map(pairs) => Value::Map(pairs.iter().filter(|(name, _)| !own(name)).cloned().collect()),
        other => other.clone(),
    };
    match value {
        Value::Array(entries) => Value::Array(entries.iter().map(entry).collect()),
        other => other.clone(),
    }
}

fn shape(value: &Value) -> (std::mem::Discriminant<Value>, usize) {
    let len = match value {
        Value::Array(items) | Value::Set(items) | Value::Push(items) => items.len(),
        Value::Map(pairs) => pairs.len(),
        _ => 0,
    };
    (std::mem::discriminant(value), len)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bulk(s: &str) -> Value {
        Value::Bulk(s.into())
    }

    #[test]
    fn each_policy_distinguishes_equal_and_different_replies() {
        let (ab, ba) = (Value::Array(vec![bulk("a"), bulk("b")]), Value::Array(vec![bulk("b"), bulk("a")]));
        assert!(!Policy::Exact.accepts(&ab, &ba));
        assert!(Policy::AnyOrder.accepts(&ab, &ba));
        assert!(!Policy::AnyOrder.accepts(&ab, &Value::Array(vec![bulk("a"), bulk("a")])));
        assert!(Policy::Shape.accepts(&bulk("x"), &bulk("y")));
        assert!(!Policy::Shape.accepts(&bulk("x"), &Value::Int(1)));
        assert!(Policy::Near(2).accepts(&Value::Int(9), &Value::Int(11)));
        assert!(!Policy::Near(2).accepts(&Value::Int(8), &Value::Int(11)));
        assert!(Policy::Words.accepts(&Value::Array(vec![bulk("a b")]), &Value::Array(vec![bulk("b a")])));
        assert!(!Policy::Words.accepts(&Value::Array(vec![bulk("a b")]), &Value::Array(vec![bulk("b b")])));
        assert!(
            Policy::Length.accepts(&bulk("ab"), &bulk("cd"))
                && !Policy::Length.accepts(&bulk("a"), &bulk("cd"))
        );
        let entry = |reason: &str, age: &str| {
            Value::Array(vec![Value::Array(
                [bulk("reason"), bulk(reason), bulk("age-seconds"), bulk(age)].into(),
            )])
        };
        assert!(Policy::Denials.accepts(&entry("key", "1"), &entry("key", "2")));
        assert!(!Policy::Denials.accepts(&entry("key", "1"), &entry("auth", "1")));
        let pending = |id: &str, ms: i64, n: i64| {
            Value::Array(vec![bulk(id), bulk("consumer"), Value::Int(ms), Value::Int(n)])
        };
        assert!(Policy::Timeless.accepts(&pending("1-1", 5, 1), &pending("1-1", 6, 1)));
        assert!(!Policy::Timeless.accepts(&pending("1-1", 5, 1), &pending("1-1", 5, 2)));
        assert!(!Policy::Timeless.accepts(&pending("1-1", 5, 1), &pending("1-2", 5, 1)));
        let scan = |cursor: &str, key: &str| Value::Array(vec![bulk(cursor), Value::Array(vec![bulk(key)])]);
        assert!(Policy::Scan.accepts(&scan("7", "a"), &scan("0", "b")));
        assert!(!Policy::Scan.accepts(&scan("0", "a"), &scan("0", "b")));
        let hash = |words: [&str; 4]| Value::Array(words.map(bulk).into());
        let last = |words| Value::Array(vec![bulk("0"), hash(words)]);
        for (other, is_equal) in [(["c", "d", "a", "b"], true), (["a", "d", "c", "b"], false)] {
            assert_eq!(Policy::Pairs.accepts(&hash(["a", "b", "c", "d"]), &hash(other)), is_equal);
            assert_eq!(Policy::ScanPairs.accepts(&last(["a", "b", "c", "d"]), &last(other)), is_equal);
            assert!(Policy::Scan.accepts(&last(["a", "b", "c", "d"]), &last(other)));
        }
        let set = |words: [&str; 2]| Value::Array(vec![Value::Set(words.map(bulk).into()), Value::Int(1)]);
        assert!(Policy::Exact.accepts(&set(["a", "b"]), &set(["b", "a"])));
        assert!(!Policy::Exact.accepts(&set(["a", "b"]), &set(["b", "b"])));
        assert!(!Policy::Near(2).accepts(&Value::Int(-1), &Value::Int(-2)), "codes below zero are exact");
    }
}
