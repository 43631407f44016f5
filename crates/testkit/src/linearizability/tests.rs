//! The checker accepts the replies that an atomic key can give, and no others.

use super::*;
use fastrand::Rng;

fn call(operation: Operation, reply: Value, invoked_ns: u64, returned_ns: u64) -> Call {
    let sent = (PIPELINES.fetch_add(1, Relaxed), 0);
    Call { operation, reply: Some(reply), invoked_ns, returned_ns, sent }
}

/// Makes one pipeline of these calls.
fn pipeline<const N: usize>(mut calls: [Call; N]) -> [Call; N] {
    let pipeline = PIPELINES.fetch_add(1, Relaxed);
    for (place, call) in calls.iter_mut().enumerate() {
        call.sent = (pipeline, place);
    }
    calls
}

fn set(text: &str, invoked_ns: u64, returned_ns: u64) -> Call {
    call(Operation::Set(text.into()), Value::Simple(b"OK".to_vec()), invoked_ns, returned_ns)
}

fn get(text: &str, invoked_ns: u64, returned_ns: u64) -> Call {
    call(Operation::Get, Value::Bulk(text.into()), invoked_ns, returned_ns)
}

#[track_caller]
fn accepted(history: &[Call]) {
    assert!(check(history).is_ok(), "{:?}", check(history));
}

/// Asserts that the check rejects the history at the call with number `index`.
#[track_caller]
fn rejected(history: &[Call], index: usize) {
    match check(history) {
        Err(Rejection::Wrong { call, .. }) => assert_eq!(*call, history[index]),
        other => panic!("{other:?}"),
    }
}

#[test]
fn calls_that_overlap_may_have_any_order() {
    accepted(&[set("a", 0, 10), set("b", 0, 10), get("a", 20, 30), get("a", 40, 50)]);
    accepted(&[set("a", 0, 10), set("b", 0, 10), get("b", 20, 30)]);
    accepted(&[set("a", 0, 1), set("b", 2, 20), get("a", 3, 4), get("b", 5, 6), get("b", 7, 8)]);
    // A call may overlap another call that returns at the instant at which the first call starts.
    accepted(&[set("a", 0, 1), set("b", 2, 5), get("a", 5, 6)]);
    accepted(&[]);
}

#[test]
fn a_blocked_pop_ends_with_an_element_that_no_other_call_took() {
    let push = |text: &str, len, from, to| call(Operation::RPush(text.into()), Value::Int(len), from, to);
    let took = |text: &str, from, to| call(Operation::BlPop(5), Value::Bulk(text.into()), from, to);
    let nothing = |from, to| call(Operation::BlPop(5), Value::Null, from, to);
    accepted(&[took("a", 0, 20), push("a", 1, 10, 15), nothing(30, 40)]);
    accepted(&[took("a", 0, 20), took("b", 1, 20), push("b", 1, 10, 12), push("a", 1, 13, 15)]);
    rejected(&[took("a", 0, 20), push("a", 1, 10, 15), took("a", 12, 30)], 2);
    rejected(&[took("a", 0, 5), push("a", 1, 10, 15)], 0);
    rejected(&[push("a", 1, 0, 5), nothing(10, 20)], 1);
    rejected(&[took("b", 0, 30), push("a", 1, 1, 5), push("b", 2, 6, 9)], 0);
}

#[test]
fn a_transaction_happens_at_one_moment() {
    let text = |text: &str| Value::Bulk(text.into());
    let exec = |operations: Vec<Operation>, replies, from, to| {
        call(Operation::Exec(operations), Value::Array(replies), from, to)
    };
    let push_and_count = vec![Operation::RPush("a".into()), Operation::LLen, Operation::BlPop(5)];
    let seen = |first, count| vec![Value::Int(first), Value::Int(count), text("a")];
    accepted(&[exec(push_and_count.clone(), seen(1, 1), 0, 5)]);
    let other = |from, to| call(Operation::RPush("x".into()), Value::Int(2), from, to);
    rejected(&[exec(push_and_count.clone(), seen(1, 2), 0, 9), other(0, 9)], 0);
    // A blocked call is served after the transaction, not inside it.
    let waits = call(Operation::BlPop(5), text("b"), 0, 9);
    let two = vec![Operation::RPush("a".into()), Operation::RPush("b".into()), Operation::LPop];
    accepted(&[waits.clone(), exec(two.clone(), vec![Value::Int(1), Value::Int(2), text("a")], 1, 8)]);
    rejected(&[waits, exec(two, vec![Value::Int(1), Value::Int(1), text("b")], 1, 8)], 1);
}

#[test]
fn calls_of_a_pipeline_keep_their_order() {
    let absent = |from, to| call(Operation::Get, Value::Null, from, to);
    accepted(&[set("a", 0, 10), absent(0, 11)]);
    rejected(&pipeline([set("a", 0, 10), absent(0, 11)]), 1);
    accepted(&pipeline([absent(0, 10), set("a", 0, 11), get("a", 0, 12)]));
    // Calls of other clients may take effect between two calls of one pipeline.
    let [first, second] = pipeline([set("a", 0, 10), get("b", 0, 11)]);
    accepted(&[first.clone(), second, set("b", 5, 6)]);
    let [_, third] = pipeline([set("a", 0, 10), get("b", 0, 11)]);
    rejected(&[first, set("b", 12, 13), third], 2);
}

#[test]
fn a_stale_read_is_rejected() {
    rejected(&[set("a", 0, 1), set("b", 2, 3), get("a", 4, 5)], 2);
    // A new value that one client has seen cannot disappear, even while its SET is still pending.
    rejected(&[set("a", 0, 1), set("b", 2, 20), get("b", 3, 4), get("a", 5, 6)], 3);
    rejected(&[get("never written", 0, 1)], 0);
}

#[test]
fn a_lost_update_is_rejected() {
    let incr = |n, from, to| call(Operation::Incr, Value::Int(n), from, to);
    accepted(&[incr(2, 0, 10), incr(1, 0, 10)]);
    rejected(&[incr(1, 0, 10), incr(1, 0, 11)], 1);
    let append = |text: &str, len, from, to| call(Operation::Append(text.into()), Value::Int(len), from, to);
    accepted(&[append("x", 2, 0, 10), append("y", 1, 0, 10), get("yx", 11, 12)]);
    rejected(&[append("x", 1, 0, 10), append("y", 2, 0, 10), get("y", 11, 12)], 2);
    let swap = |text: &str, old: Value, from, to| call(Operation::GetSet(text.into()), old, from, to);
    rejected(&[swap("a", Value::Null, 0, 10), swap("b", Value::Null, 0, 11)], 1);
}

#[test]
fn only_one_setnx_wins() {
    let setnx = |text: &str, won, from, to| call(Operation::SetNx(text.into()), Value::Int(won), from, to);
    accepted(&[setnx("a", 0, 0, 10), setnx("b", 1, 0, 10), get("b", 11, 12)]);
    rejected(&[setnx("a", 1, 0, 10), setnx("b", 1, 0, 11)], 1);
    rejected(&[setnx("a", 0, 0, 10)], 0);
    let del = |n, from, to| call(Operation::Del, Value::Int(n), from, to);
    accepted(&[setnx("a", 1, 0, 10), setnx("b", 1, 0, 11), del(1, 2, 3)]);
    rejected(&[setnx("a", 1, 0, 1), del(1, 2, 10), del(1, 2, 11)], 2);
}

#[test]
fn fields_and_types_are_modelled() {
    let hset = |v: &str, n, from, to| call(Operation::HSet("f".into(), v.into()), Value::Int(n), from, to);
    let hget = |reply, from, to| call(Operation::HGet("f".into()), reply, from, to);
    let wrong = || Operation::Incr.apply(&State::Hash(Default::default())).1;
    accepted(&[hset("1", 1, 0, 1), hset("2", 0, 2, 3), hget(Value::Bulk(b"2".to_vec()), 4, 5)]);
    accepted(&[hset("1", 1, 0, 1), call(Operation::Get, wrong(), 2, 3), set("s", 4, 5), hget(wrong(), 6, 7)]);
    rejected(&[hset("1", 1, 0, 10), hset("2", 1, 0, 11)], 1);
    rejected(&[hset("1", 1, 0, 1), hget(Value::Null, 2, 3)], 1);
}

#[test]
fn a_call_without_reply_may_have_happened_at_any_later_time() {
    let lost = Call { reply: None, returned_ns: u64::MAX, ..set("b", 2, 0) };
    accepted(&[set("a", 0, 1), lost.clone(), get("a", 3, 4), get("b", 5, 6)]);
    accepted(&[set("a", 0, 1), lost.clone(), get("a", 3, 4)]);
    rejected(&[set("a", 0, 1), lost, get("b", 3, 4), get("a", 5, 6)], 3);
}

#[test]
fn replies_of_an_atomic_key_are_accepted_and_changed_replies_are_not() {
    for seed in 0..60 {
        let mut rng = Rng::with_seed(seed);
        let mut history = atomic_history(&mut rng);
        accepted(&history);
        let incr = history.iter().position(|c| matches!(&c.reply, Some(Value::Int(_))));
        if let Some(i) = incr {
            history[i].reply = Some(Value::Int(1_000_000));
            assert!(check(&history).is_err(), "seed {seed}");
        }
    }
}

/// A random history of calls that take effect one per microsecond. Its client sees each call last some microseconds
/// around that time.
fn atomic_history(rng: &mut Rng) -> Vec<Call> {
    let mut state = State::Absent;
    let mut one = |at: u64| {
        let text = rng.u8(b'a'..=b'e').to_string().into_bytes();
        let operation = match rng.u8(0..9) {
            0 => Operation::Get,
            1 => Operation::Set(text),
            2 => Operation::SetNx(text),
            3 => Operation::GetSet(text),
            4 => Operation::Append(text),
            5 => Operation::Incr,
            6 => Operation::Del,
            7 => Operation::HSet(b"f".to_vec(), text),
            _ => Operation::HGet(b"f".to_vec()),
        };
        let (after, reply) = operation.apply(&state);
        state = after;
        let invoked_ns = (at * 1000).saturating_sub(rng.u64(0..4000));
        call(operation, reply, invoked_ns, at * 1000 + rng.u64(1..4000))
    };
    (1..100).map(&mut one).collect()
}
