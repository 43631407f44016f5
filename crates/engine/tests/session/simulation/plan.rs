//! The steps of the clients. They use few keys of all kinds, so that calls meet.

use fastrand::Rng;
use strand_testkit::linearizability::{Operation, Step};

/// Number of keys in a simulation.
pub const KEYS: usize = 4;
/// The fields of the hashes.
const FIELDS: [&[u8]; 2] = [b"f", b"g"];
/// A command with more arguments than this runs on a helper thread.
const LONG: usize = 4200;

/// A text that no other step uses. The text is a number.
fn text(rng: &mut Rng) -> Vec<u8> {
    rng.u32(1..1_000_000).to_string().into_bytes()
}

fn key(rng: &mut Rng) -> usize {
    rng.usize(..KEYS)
}

/// Up to `most` different keys.
fn keys(rng: &mut Rng, most: usize) -> Vec<usize> {
    let mut all: Vec<usize> = (0..KEYS).collect();
    rng.shuffle(&mut all);
    all.truncate(rng.usize(1..=most));
    all
}

fn two(rng: &mut Rng) -> (usize, usize) {
    let from = key(rng);
    (from, (from + rng.usize(1..KEYS)) % KEYS)
}

/// A command that is too long for a worker.
fn long_part(rng: &mut Rng) -> Step {
    match rng.u8(0..3) {
        0 => Step::MSet(pairs(rng, KEYS), LONG / 2),
        1 => Step::MGet(keys(rng, KEYS), LONG),
        _ => Step::Del(keys(rng, 2), LONG),
    }
}

fn pairs(rng: &mut Rng, most: usize) -> Vec<(usize, Vec<u8>)> {
    keys(rng, most).into_iter().map(|key| (key, text(rng))).collect()
}

/// One of the two fields of every hash.
fn field(rng: &mut Rng) -> Vec<u8> {
    FIELDS[rng.usize(..FIELDS.len())].to_vec()
}

/// A random TTL in milliseconds.
fn ms(rng: &mut Rng) -> u32 {
    rng.u32(1..12)
}

/// A random timeout of a wait in milliseconds. 0 means forever.
fn wait_ms(rng: &mut Rng) -> u32 {
    if rng.u8(0..4) == 0 { 0 } else { ms(rng) }
}

/// The next step of a client.
pub fn step(rng: &mut Rng) -> Step {
    match rng.u8(0..40) {
        0..14 => part(rng),
        14..18 => Step::Pop(keys(rng, 2), wait_ms(rng)),
        18..20 => {
            let (from, to) = two(rng);
            Step::MoveWaiting(from, to, wait_ms(rng))
        }
        20..24 => Step::Exec((0..rng.usize(1..5)).map(|_| part(rng)).collect()),
        24..26 => Step::Exec(vec![Step::Pop(keys(rng, 2), 5), part(rng)]),
        26..29 => Step::Script((0..rng.usize(1..4)).map(|_| part(rng)).collect(), rng.bool()),
        29..32 => Step::Watch(keys(rng, 2)),
        32 => Step::Unwatch,
        33 => Step::FlushDb,
        // Outside of a transaction, this step is several commands. See docs/differences.md.
        34 => Step::Exec(vec![part(rng), long_part(rng), part(rng)]),
        _ => Step::One(key(rng), Operation::RPush(text(rng))),
    }
}

/// A command that may be part of a transaction or a script.
fn part(rng: &mut Rng) -> Step {
    let key = key(rng);
    let one = |operation| Step::One(key, operation);
    match rng.u8(0..32) {
        0..3 => one(Operation::Get),
        3 => one(Operation::Set(text(rng))),
        4 => one(Operation::SetNx(text(rng))),
        5 => one(Operation::GetSet(text(rng))),
        6 => one(Operation::Append(text(rng))),
        7..9 => one(Operation::Incr),
        9 => one(Operation::Del),
        10 => one(Operation::HSet(field(rng), text(rng))),
        11 => one(Operation::HGet(field(rng))),
        12..15 => one(Operation::RPush(text(rng))),
        15..17 => one(Operation::LPop),
        17 => one(Operation::LLen),
        18..20 => Step::SetFor(key, text(rng), ms(rng)),
        20 => Step::ExpireIn(key, ms(rng)),
        21 => Step::Persist(key),
        22 => Step::MSet(pairs(rng, 3), 0),
        23..25 => Step::MGet(keys(rng, KEYS), 0),
        25 => Step::Del(keys(rng, 2), 0),
        26..28 => {
            let (from, to) = two(rng);
            Step::Rename(from, to)
        }
        28 => Step::HSetFor(key, field(rng), text(rng), ms(rng)),
        29 => one(Operation::HGet(field(rng))),
        _ => {
            let (from, to) = two(rng);
            Step::Move(from, to)
        }
    }
}

/// Steps that serve every client that waits without a timeout.
pub fn rescue() -> Vec<Step> {
    let gives = |key| [Step::Del(vec![key], 0), Step::One(key, Operation::RPush(b"rescue".to_vec()))];
    (0..KEYS).flat_map(gives).collect()
}

/// Steps that read all keys at the end.
pub fn last_looks() -> Vec<Step> {
    let looks = |key| {
        let hash = FIELDS.map(|field| Operation::HGet(field.to_vec()));
        [Operation::Get, Operation::LLen].into_iter().chain(hash).map(move |look| Step::One(key, look))
    };
    (0..KEYS).flat_map(looks).collect()
}
