//! Eviction: which records are evicted, which stay, and which keys are noted for followers. Also the hit
//! ratio on a skewed trace, beside exact LRU and Redis's sampling.

use std::collections::{BTreeSet, HashMap};
use strand_keyspace::{Evictor, Keyspace, Order, Policy, Str, Value};

const NOW_MS: i64 = 1_700_000_000_000;

fn policy(order: Order) -> Policy {
    Policy { expiring_only: false, order, samples: 5 }
}
fn expiring(order: Order) -> Policy {
    Policy { expiring_only: true, ..policy(order) }
}
fn keyspace(shards: usize) -> Keyspace {
    Keyspace::new(shards, 3, [1, 2, 3, 4])
}
fn put(keyspace: &Keyspace, db: usize, key: &str, expire_at_ms: Option<i64>, now_ms: i64) {
    let key = keyspace.key(key.as_bytes());
    let mut locked = keyspace.lock(&[key.hash], now_ms);
    locked.db(db).insert(&key, Value::Str(Str::Raw(b"a value".as_slice().into())), expire_at_ms);
}
fn get(keyspace: &Keyspace, key: &str, now_ms: i64) -> bool {
    let key = keyspace.key(key.as_bytes());
    keyspace.lock(&[key.hash], now_ms).db(0).get(&key).is_some()
}
fn has(keyspace: &Keyspace, db: usize, key: &str) -> bool {
    let key = keyspace.key(key.as_bytes());
    keyspace.lock(&[key.hash], NOW_MS).db(db).peek(&key).is_some()
}

#[test]
fn volatile_ttl_evicts_the_earliest_expiry_first() {
    let (keyspace, mut evictor) = (keyspace(16), Evictor::new(1));
    for i in 0..200 {
        put(&keyspace, 0, &format!("ttl{i}"), Some(NOW_MS + 100_000 + i * 1000), NOW_MS);
        put(&keyspace, 0, &format!("for ever {i}"), None, NOW_MS);
    }
    for _ in 0..10 {
        let evicted = keyspace.evict(&mut evictor, expiring(Order::SoonestToExpire), 1, u64::MAX, NOW_MS);
        assert_eq!((evicted.records, evicted.none_left), (1, false));
    }
    let left: Vec<bool> = (0..200).map(|i| has(&keyspace, 0, &format!("ttl{i}"))).collect();
    assert!(left[..10].iter().all(|left| !left) && left[10..].iter().all(|left| *left), "{left:?}");
    let rest = keyspace.evict(&mut evictor, expiring(Order::SoonestToExpire), 1000, u64::MAX, NOW_MS);
    assert!(rest.records >= 30, "{rest:?}");
    assert_eq!(keyspace.evicted_total(), 10 + rest.records as u64);
}

#[test]
fn eviction_follows_the_policy_and_reports_when_none_is_left() {
    let (keyspace, mut evictor) = (keyspace(8), Evictor::new(1));
    assert!(keyspace.evict(&mut evictor, policy(Order::Random), 1, 1, NOW_MS).none_left);
    for i in 0..1000 {
        put(&keyspace, i % 3, &format!("key{i}"), None, NOW_MS);
    }
    put(&keyspace, keyspace.system_db(0), "version", None, NOW_MS);
    for order in [Order::LeastRecent, Order::LeastFrequent, Order::Random, Order::SoonestToExpire] {
        let evicted = keyspace.evict(&mut evictor, expiring(order), 10, u64::MAX, NOW_MS);
        assert_eq!((evicted.records, evicted.none_left), (0, true), "{order:?}");
    }
    put(&keyspace, 1, "expiring", Some(NOW_MS + 1), NOW_MS);
    let evicted = keyspace.evict(&mut evictor, expiring(Order::LeastRecent), 10, u64::MAX, NOW_MS);
    assert_eq!((evicted.records, evicted.none_left, has(&keyspace, 1, "expiring")), (1, true, false));
    let mut calls = 0;
    while !keyspace.evict(&mut evictor, policy(Order::LeastRecent), 7, u64::MAX, NOW_MS).none_left {
        calls += 1;
        assert!(calls < 1000);
    }
    assert!((0..3).all(|db| keyspace.is_empty(db)));
    assert!(has(&keyspace, keyspace.system_db(0), "version"), "what belongs to the data is not evicted");
}

#[test]
fn eviction_keeps_the_quota_and_recently_used_keys() {
    let (keyspace, mut evictor) = (keyspace(1), Evictor::new(1));
    (0..100).for_each(|i| put(&keyspace, 0, &format!("key{i}"), None, NOW_MS));
    let now_ms = NOW_MS + 10_000;
    assert_eq!(keyspace.evict(&mut evictor, policy(Order::LeastRecent), 3, u64::MAX, now_ms).records, 3);
    // The pool has more candidates, but all remaining records were used now.
    let left: Vec<String> =
        (0..100).map(|i| format!("key{i}")).filter(|k| get(&keyspace, k, now_ms)).collect();
    assert_eq!(left.len(), 97);
    put(&keyspace, 0, "old", None, NOW_MS);
    assert_eq!(keyspace.evict(&mut evictor, policy(Order::LeastRecent), 1, u64::MAX, now_ms).records, 1);
    assert!(!has(&keyspace, 0, "old"), "no candidate that was used since was evicted");
    // Small records release memory in steps: when the rest of their segment fits a smaller heap.
    let evicted = keyspace.evict(&mut evictor, policy(Order::LeastRecent), 90, 1, now_ms).records;
    assert!((1..50).contains(&evicted), "{evicted}");
}

#[test]
fn record_that_lost_its_expiry_is_not_evicted() {
    for order in [Order::LeastRecent, Order::LeastFrequent, Order::Random, Order::SoonestToExpire] {
        let (keyspace, mut evictor) = (keyspace(1), Evictor::new(1));
        (0..100).for_each(|i| put(&keyspace, 0, &format!("key{i}"), Some(NOW_MS + 1000), NOW_MS));
        assert_eq!(keyspace.evict(&mut evictor, expiring(order), 1, u64::MAX, NOW_MS).records, 1);
        for i in 0..100 {
            let text = format!("key{i}");
            let key = keyspace.key(text.as_bytes());
            keyspace.lock(&[key.hash], NOW_MS).db(0).set_expiry(&key, None);
        }
        let evicted = keyspace.evict(&mut evictor, expiring(order), 100, u64::MAX, NOW_MS);
        assert_eq!((evicted.records, evicted.none_left, keyspace.len(0)), (0, true, 99), "{order:?}");
    }
}

/// A hundred times as many keys without an expiry do not make an eviction dearer, also after all segments were split, and after
/// keys have got and lost their expiries.
#[test]
fn a_few_keys_with_an_expiry_are_found_among_many_without() {
    let (keyspace, mut evictor) = (keyspace(1), Evictor::new(1));
    let expiring_key = |i: usize| format!("expiring{i}");
    (0..4000).for_each(|i| put(&keyspace, 0, &expiring_key(i), Some(NOW_MS + 1_000_000), NOW_MS));
    (0..200_000).for_each(|i| put(&keyspace, 0, &format!("key{i}"), None, NOW_MS));
    (2000..4000).for_each(|i| put(&keyspace, 0, &expiring_key(i), None, NOW_MS));
    for i in 0..100_000 {
        let text = format!("key{i}");
        let key = keyspace.key(text.as_bytes());
        let mut locked = keyspace.lock(&[key.hash], NOW_MS);
        locked.db(0).set_expiry(&key, Some(NOW_MS + 1_000_000));
        locked.db(0).set_expiry(&key, None);
    }
    let (mut evicted, mut effort) = ([0, 0], [0, 0]);
    for _ in 0..10_000 {
        let call = keyspace.evict(&mut evictor, expiring(Order::LeastRecent), 1, u64::MAX, NOW_MS);
        // The first walk makes the lists, which have no room for all keys that had an expiry.
        let part = usize::from(evicted[0] >= 1000);
        evicted[part] += call.records;
        effort[part] += call.effort;
        if call.none_left || evicted[1] == 500 {
            break;
        }
    }
    assert_eq!((evicted, keyspace.len(0)), ([1000, 500], 202_500));
    // 20 for each, and 1,187 with a look at all keys.
    assert!(effort[1] < 100 * evicted[1], "{effort:?}");
    while !keyspace.evict(&mut evictor, expiring(Order::Random), 100, u64::MAX, NOW_MS).none_left {}
    assert_eq!(keyspace.len(0), 202_000, "each is found");
    put(&keyspace, 0, "later", Some(NOW_MS + 1), NOW_MS);
    let mut evict =
        || keyspace.evict(&mut evictor, expiring(Order::LeastRecent), 1, u64::MAX, NOW_MS).records;
    assert!((0..100).any(|_| evict() == 1) && !has(&keyspace, 0, "later"));
}

#[test]
fn evicted_keys_are_reported_to_followers() {
    let (keyspace, mut evictor) = (keyspace(4), Evictor::new(1));
    keyspace.track(&[b"doc:".to_vec()]);
    (0..50).for_each(|i| put(&keyspace, 0, &format!("doc:{i}"), None, NOW_MS));
    (0..keyspace.shards()).for_each(|shard| drop(keyspace.take_touched(shard)));
    let evicted = keyspace.evict(&mut evictor, policy(Order::Random), 20, u64::MAX, NOW_MS).records;
    let touched: BTreeSet<Vec<u8>> =
        (0..keyspace.shards()).flat_map(|shard| keyspace.take_touched(shard).keys).collect();
    let gone: BTreeSet<Vec<u8>> = (0..50)
        .map(|i| format!("doc:{i}"))
        .filter(|key| !has(&keyspace, 0, key))
        .map(String::into_bytes)
        .collect();
    assert_eq!((evicted, &touched), (20, &gone));
}

/// Maximum number of records that one call may look at, including those of the segment in which it ends.
const EFFORT_MAX: usize = 2048 + 896 + 8;

#[test]
fn a_call_looks_at_a_bounded_number_of_records() {
    for (every, persisted) in [(1, false), (100, false), (700, false), (100_000, false), (100_000, true)] {
        let (keyspace, mut evictor) = (keyspace(16), Evictor::new(1));
        for i in 0..100_000 {
            let expiring = i % every == 0;
            let text = format!("key{i}");
            put(&keyspace, 0, &text, (expiring || persisted).then_some(NOW_MS + 1_000_000), NOW_MS);
            if persisted && !expiring {
                let key = keyspace.key(text.as_bytes());
                keyspace.lock(&[key.hash], NOW_MS).db(0).set_expiry(&key, None);
            }
        }
        let (mut calls, mut records) = (0, 0);
        loop {
            let call = keyspace.evict(&mut evictor, expiring(Order::LeastRecent), 16, u64::MAX, NOW_MS);
            assert!(call.effort <= EFFORT_MAX, "1 of {every}: {call:?}");
            (calls, records) = (calls + 1, records + call.records);
            if call.none_left || records >= 100 {
                break;
            }
            assert!(calls < 1000, "1 of {every}: {records} records in {calls} calls");
        }
        assert!(records >= 100.min(100_000 / every), "1 of {every}: {records}");
        // A segment whose records lost their expiries is opened once, not in every round.
        assert_eq!(keyspace.expiring_len(0) == 0, every == 100_000);
    }
}

#[test]
fn segments_that_lost_their_expiries_are_opened_once() {
    let (keyspace, mut evictor) = (keyspace(1), Evictor::new(1));
    for i in 0..50_000 {
        let text = format!("key{i}");
        put(&keyspace, 0, &text, Some(NOW_MS + 1_000_000), NOW_MS);
        let key = keyspace.key(text.as_bytes());
        keyspace.lock(&[key.hash], NOW_MS).db(0).set_expiry(&key, None);
    }
    let mut effort_until_found = |name: &str| {
        put(&keyspace, 0, name, Some(NOW_MS + 1), NOW_MS);
        let mut effort = 0;
        while has(&keyspace, 0, name) {
            effort += keyspace.evict(&mut evictor, expiring(Order::LeastRecent), 1, 1, NOW_MS).effort;
        }
        effort
    };
    let first: usize = (0..10).map(|i| effort_until_found(&format!("first{i}"))).sum();
    let then: usize = (0..10).map(|i| effort_until_found(&format!("then{i}"))).sum();
    assert!(first >= 50_000 && then < 10 * 2 * (900 + 150 * 8), "{first}, then {then}");
}

#[test]
fn eviction_with_no_eligible_keys_returns_at_once() {
    let (keyspace, mut evictor) = (Keyspace::new(4096, 16, [1, 2, 3, 4]), Evictor::new(1));
    let all = |call: strand_keyspace::Evicted| (call.records, call.none_left, call.effort);
    for db in 0..16 {
        (0..1000).for_each(|i| put(&keyspace, db, &format!("key{i}"), None, NOW_MS));
    }
    let call = keyspace.evict(&mut evictor, expiring(Order::LeastRecent), 16, 1, NOW_MS);
    assert_eq!(all(call), (0, true, 0), "without opening any");
    put(&keyspace, 15, "expiring", Some(NOW_MS + 1), NOW_MS);
    let calls = (0..40).map(|_| keyspace.evict(&mut evictor, expiring(Order::LeastRecent), 16, 1, NOW_MS));
    assert_eq!(calls.map(|call| call.records).sum::<usize>(), 1);
    assert!(keyspace.evict(&mut evictor, expiring(Order::LeastRecent), 16, 1, NOW_MS).none_left);
    // `none_left` stays false while the remaining records are locked.
    put(&keyspace, 15, "expiring", Some(NOW_MS + 1), NOW_MS);
    let held = keyspace.lock_all(NOW_MS);
    assert!(!keyspace.evict(&mut evictor, expiring(Order::LeastRecent), 16, 1, NOW_MS).none_left);
    drop(held);
}

#[test]
fn expired_keys_count_as_freed_memory() {
    let (keyspace, mut evictor) = (keyspace(1), Evictor::new(1));
    for i in 0..100 {
        let text = format!("{}{i}", if i < 50 { "dead" } else { "live" });
        let key = keyspace.key(text.as_bytes());
        let value = Value::Str(Str::Raw(vec![b'v'; 100_000].into()));
        keyspace.lock(&[key.hash], NOW_MS).db(0).insert(&key, value, (i < 50).then_some(NOW_MS + 1));
    }
    let before = keyspace.data_bytes();
    let call = keyspace.evict(&mut evictor, policy(Order::LeastRecent), 1000, 250_000, NOW_MS + 10);
    assert_eq!((call.records, keyspace.len(0), keyspace.expired_total()), (0, 97, 3));
    assert!((250_000..400_000).contains(&(before - keyspace.data_bytes())));
    assert_eq!(keyspace.evicted_total(), 0);
}

#[test]
fn long_keys_go_one_at_a_time() {
    let (keyspace, mut evictor) = (keyspace(1), Evictor::new(1));
    (0..100).for_each(|i| put(&keyspace, 0, &format!("{i}{}", "k".repeat(200_000)), None, NOW_MS));
    let evict = |evictor: &mut Evictor| {
        keyspace.evict(evictor, policy(Order::LeastRecent), usize::MAX, u64::MAX, NOW_MS).records
    };
    assert_eq!(evict(&mut evictor), 4, "one for each round");
}

/// A Zipf distribution: number `i` is drawn with a chance proportional to `1 / (i + 1)^theta`.
struct Zipf(Vec<f64>);

impl Zipf {
    fn new(n: usize, theta: f64) -> Zipf {
        let mut sum = 0.0;
        Zipf(
            (0..n)
                .map(|i| {
                    sum += 1.0 / ((i + 1) as f64).powf(theta);
                    sum
                })
                .collect(),
        )
    }
    fn draw(&self, rng: &mut fastrand::Rng) -> usize {
        let at = rng.f64() * self.0[self.0.len() - 1];
        self.0.partition_point(|sum| *sum < at)
    }
}

/// A cache with exact LRU.
struct Exact {
    fits: usize,
    used: HashMap<usize, u64>,
    by_use: BTreeSet<(u64, usize)>,
}

impl Exact {
    fn access(&mut self, key: usize, at: u64) -> bool {
        let hit = self.used.insert(key, at);
        if let Some(before) = hit {
            self.by_use.remove(&(before, key));
        }
        self.by_use.insert((at, key));
        if self.used.len() > self.fits
            && let Some((_, oldest)) = self.by_use.pop_first()
        {
            self.used.remove(&oldest);
        }
        hit.is_some()
    }
}

/// A cache with Redis's sampling: 5 keys per draw into a pool of 16, with a clock in seconds.
struct Sampled {
    fits: usize,
    keys: Vec<(usize, i64)>,
    places: HashMap<usize, usize>,
    pool: Vec<(i64, usize)>,
    rng: fastrand::Rng,
}

impl Sampled {
    fn access(&mut self, key: usize, now_s: i64) -> bool {
        if let Some(place) = self.places.get(&key) {
            self.keys[*place].1 = now_s;
            return true;
        }
        self.places.insert(key, self.keys.len());
        self.keys.push((key, now_s));
        while self.keys.len() > self.fits {
            for _ in 0..5 {
                let (key, used_s) = self.keys[self.rng.usize(..self.keys.len())];
                let idle = now_s - used_s;
                if (self.pool.len() == 16 && idle <= self.pool[0].0) || self.pool.iter().any(|p| p.1 == key) {
                    continue;
                }
                if self.pool.len() == 16 {
                    self.pool.remove(0);
                }
                let at = self.pool.partition_point(|p| p.0 < idle);
                self.pool.insert(at, (idle, key));
            }
            while let Some((_, key)) = self.pool.pop() {
                if let Some(place) = self.places.remove(&key) {
                    self.keys.swap_remove(place);
                    if let Some(moved) = self.keys.get(place) {
                        self.places.insert(moved.0, place);
                    }
                    break;
                }
            }
        }
        false
    }
}

/// The hits of Strand's eviction, of exact LRU, and of Redis's sampling on one trace, whose keys are five
/// times those that fit.
fn hits(fits: usize, accesses: usize, order: Order, seconds: i64) -> [usize; 3] {
    let (keyspace, mut evictor) = (keyspace(32), Evictor::new(1));
    keyspace
        .settings()
        .lfu
        .store(u64::from(order == Order::LeastFrequent), std::sync::atomic::Ordering::Relaxed);
    let zipf = Zipf::new(fits * 5, 0.99);
    let mut exact = Exact { fits, used: HashMap::new(), by_use: BTreeSet::new() };
    let mut sampled = Sampled {
        fits,
        keys: Vec::new(),
        places: HashMap::new(),
        pool: Vec::new(),
        rng: fastrand::Rng::with_seed(2),
    };
    let (mut rng, mut hits, mut held) = (fastrand::Rng::with_seed(3), [0; 3], 0);
    for i in 0..accesses {
        let number = zipf.draw(&mut rng);
        let now_ms = NOW_MS + i as i64 * seconds * 1000 / accesses as i64;
        let key = format!("key{number}");
        if get(&keyspace, &key, now_ms) {
            hits[0] += 1;
        } else {
            put(&keyspace, 0, &key, None, now_ms);
            held += 1;
            if held > fits {
                held -= keyspace.evict(&mut evictor, policy(order), 16, 1, now_ms).records;
            }
        }
        hits[1] += usize::from(exact.access(number, i as u64));
        hits[2] += usize::from(sampled.access(number, now_ms / 1000));
    }
    assert!(held <= fits + 1 && held == keyspace.len(0));
    hits
}

#[test]
fn a_skewed_trace_is_hit_as_often_as_with_redis_s_sampling() {
    // For a longer run: `HITS=200000 cargo test --release -p strand-keyspace --test eviction -- --nocapture
    // skewed`.
    let fits = std::env::var("HITS").ok().and_then(|n| n.parse().ok()).unwrap_or(4000);
    let accesses = fits * 25;
    for order in [Order::LeastRecent, Order::LeastFrequent, Order::Random] {
        let got = hits(fits, accesses, order, 1000);
        let ratio = got.map(|hits| hits as f64 / accesses as f64);
        println!(
            "{fits} keys fit, {accesses} accesses, {order:?}: {:.4}; exact LRU {:.4}, Redis's LRU {:.4}",
            ratio[0], ratio[1], ratio[2]
        );
        let worse_max = if order == Order::Random { 0.06 } else { 0.01 };
        assert!(ratio[0] > ratio[2] - worse_max, "{order:?}: {ratio:?}");
    }
}
