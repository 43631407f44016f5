//! [`Policy`]: how the replies of two servers to the same command are compared.

use strand_wire::client::Value;

/// What must agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Every byte.
    Exact,
    /// The elements, in any order, at every depth (hash order is nobody's promise).
    AnyOrder,
    /// The same kind of reply, and the same number of elements.
    Shape,
    /// The same kind of reply.
    Kind,
    /// In any order where both scans are complete in one call; else only the kind: cursors are each server's own.
    Scan,
    /// Integers that differ by at most this much, everything else exactly.
    Near(i64),
}

impl Policy {
    /// The policy a command's replies call for.
    pub fn of(args: &[Vec<u8>]) -> Policy {
        let name = args.first().map(|n| n.to_ascii_uppercase()).unwrap_or_default();
        let sub = args.get(1).map(|n| n.to_ascii_uppercase()).unwrap_or_default();
        match (name.as_slice(), sub.as_slice()) {
            (b"HGETALL" | b"HKEYS" | b"HVALS" | b"KEYS", _) | (b"CONFIG", b"GET") => Policy::AnyOrder,
            (b"HSCAN" | b"SCAN", _) => Policy::Scan,
            // Redis does not share a small integer that COPY made; that is in docs/differences.md.
            (b"HRANDFIELD" | b"RANDOMKEY" | b"TIME" | b"LOLWUT", _)
            | (b"MEMORY", b"USAGE")
            | (b"OBJECT", b"REFCOUNT") => Policy::Shape,
            (b"TTL" | b"EXPIRETIME", _) => Policy::Near(2),
            // Redis keeps one object for all keys that hold the same small integer, and its idle time with it.
            (b"OBJECT", b"IDLETIME") => Policy::Kind,
            // HELP is prose, and ours is our own.
            (_, b"HELP") if args.len() == 2 => Policy::Kind,
            (b"PTTL" | b"PEXPIRETIME", _) => Policy::Near(2_000),
            _ => Policy::Exact,
        }
    }

    /// True when `ours` will do where the other server said `theirs`.
    pub fn accepts(self, ours: &Value, theirs: &Value) -> bool {
        match self {
            Policy::Exact => same(ours, theirs),
            Policy::AnyOrder => same(&sorted(ours.clone()), &sorted(theirs.clone())),
            Policy::Shape => shape(ours) == shape(theirs),
            Policy::Kind => shape(ours).0 == shape(theirs).0,
            Policy::Scan if ends(ours) && ends(theirs) => Policy::AnyOrder.accepts(ours, theirs),
            Policy::Scan => Policy::Kind.accepts(ours, theirs),
            Policy::Near(by) => match (ours, theirs) {
                (Value::Int(a), Value::Int(b)) if *a >= 0 && *b >= 0 => a.abs_diff(*b) <= by as u64,
                _ => same(ours, theirs),
            },
        }
    }
}

/// True for a scan's last reply (and for what is no scan's reply at all).
fn ends(value: &Value) -> bool {
    !matches!(value, Value::Array(items) if items.first().is_some_and(|c| *c != Value::Bulk(b"0".to_vec())))
}

/// Equality in which a NaN equals a NaN.
fn same(a: &Value, b: &Value) -> bool {
    a == b || format!("{a:?}") == format!("{b:?}")
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
    fn each_policy_tells_equal_from_different() {
        let (ab, ba) = (Value::Array(vec![bulk("a"), bulk("b")]), Value::Array(vec![bulk("b"), bulk("a")]));
        assert!(!Policy::Exact.accepts(&ab, &ba));
        assert!(Policy::AnyOrder.accepts(&ab, &ba));
        assert!(!Policy::AnyOrder.accepts(&ab, &Value::Array(vec![bulk("a"), bulk("a")])));
        assert!(Policy::Shape.accepts(&bulk("x"), &bulk("y")));
        assert!(!Policy::Shape.accepts(&bulk("x"), &Value::Int(1)));
        assert!(Policy::Near(2).accepts(&Value::Int(9), &Value::Int(11)));
        assert!(!Policy::Near(2).accepts(&Value::Int(8), &Value::Int(11)));
        let scan = |cursor: &str, key: &str| Value::Array(vec![bulk(cursor), Value::Array(vec![bulk(key)])]);
        assert!(Policy::Scan.accepts(&scan("7", "a"), &scan("0", "b")));
        assert!(!Policy::Scan.accepts(&scan("0", "a"), &scan("0", "b")));
        assert!(!Policy::Near(2).accepts(&Value::Int(-1), &Value::Int(-2)), "codes below zero are exact");
    }
}
