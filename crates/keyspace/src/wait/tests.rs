//! Tests of waiters: whose turn it is, how many waiters are served, and which waiters are woken.

use super::*;
use crate::types::{Bytes, Changed};
use crate::{ListValue, StrRef};
use parking_lot::Mutex;
use std::sync::atomic::AtomicUsize;

/// A waiter that takes one element of the list when it is served.
#[derive(Debug, Default)]
struct Taker {
    answers: Mutex<Vec<WaiterOutcome>>,
    served: AtomicUsize,
    woken: AtomicUsize,
    events: Mutex<Vec<(Vec<u8>, u32, WaitEvent)>>,
}

impl Waiter for Taker {
    fn serve(&self, txn: &mut Txn<'_>, key: &Key<'_>, tag: u32, event: WaitEvent) -> WaiterOutcome {
        self.served.fetch_add(1, Relaxed);
        self.events.lock().push((key.bytes.to_vec(), tag, event));
        let answer = self.answers.lock().pop().unwrap_or(WaiterOutcome::Done);
        if answer == WaiterOutcome::Done {
            let _ = txn.db(0).change(key, |list: &mut ListValue| {
                list.remove(0..1);
                ((), Changed::Yes)
            });
        }
        answer
    }
    fn wake(&self) {
        self.woken.fetch_add(1, Relaxed);
    }
}

fn waits(space: &Keyspace, key: &[u8], wanted: Wanted, taker: &Arc<Taker>, tag: u32) -> Registration {
    let key = space.key(key);
    let registration = Registration { wanted, place_number: space.next_place_number() };
    space.lock(&[key.hash], 0).db(0).wait(&key, registration.clone(), taker.clone(), tag);
    registration
}
fn push(space: &Keyspace, key: &[u8], elements: usize) {
    let key = space.key(key);
    let pushed = space.lock(&[key.hash], 0).db(0).change_or_create(&key, |list: &mut ListValue| {
        (0..elements).for_each(|_| list.push(crate::types::list::End::Back, Bytes::Slice(b"x")));
        ((), Changed::Yes)
    });
    assert!(pushed.is_ok());
}
fn len(space: &Keyspace, key: &[u8]) -> usize {
    let key = space.key(key);
    let mut txn = space.lock(&[key.hash], 0);
    txn.db(0).read::<ListValue>(&key).expect("a list").map_or(0, crate::Collection::len)
}

#[test]
fn number_of_waiters_asked_equals_number_served() {
    let space = Keyspace::new(4, 1, [1, 2, 3, 4]);
    let takers: Vec<Arc<Taker>> = (0..10_000).map(|_| Arc::default()).collect();
    let asked = |takers: &[Arc<Taker>]| takers.iter().map(|t| t.served.load(Relaxed)).sum::<usize>();
    for taker in &takers {
        waits(&space, b"k", Wanted::List, taker, 7);
        // The key never has what these registrations wait for.
        waits(&space, b"k", Wanted::ZSet, taker, 8);
        waits(&space, b"k", Wanted::After(Id::MIN), taker, 9);
    }
    push(&space, b"k", 3);
    assert_eq!((asked(&takers), asked(&takers[..3])), (3, 3));
    assert_eq!(takers[0].events.lock()[..], [(b"k".to_vec(), 7, WaitEvent::Ready)]);
    assert_eq!(takers.iter().map(|t| t.woken.load(Relaxed)).sum::<usize>(), 3);
    assert_eq!(len(&space, b"k"), 0);
    push(&space, b"other", 1);
    assert_eq!(asked(&takers), 3);
}

#[test]
fn waiter_woken_to_fetch_blocks_later_waiters_until_it_leaves() {
    let space = Keyspace::new(4, 1, [1, 2, 3, 4]);
    let (fetching, left, behind): (Arc<Taker>, Arc<Taker>, Arc<Taker>) = Default::default();
    left.answers.lock().push(WaiterOutcome::Left);
    fetching.answers.lock().extend([WaiterOutcome::AlreadyWoken, WaiterOutcome::WokenToFetch]);
    waits(&space, b"k", Wanted::List, &left, 0);
    let registration = waits(&space, b"k", Wanted::List, &fetching, 0);
    waits(&space, b"k", Wanted::List, &behind, 0);
    push(&space, b"k", 1);
    push(&space, b"k", 1);
    let woken = [&left, &fetching, &behind].map(|t| t.woken.load(Relaxed));
    assert_eq!((woken, len(&space, b"k")), ([0, 1, 0], 2), "woken once");
    // The waiter that was woken to fetch the data leaves instead.
    space.pass_place_on(0, b"k", registration, 0);
    assert_eq!((behind.woken.load(Relaxed), len(&space, b"k")), (1, 1));
}

#[test]
fn keys_are_served_in_the_order_in_which_they_changed_and_values_of_other_types_serve_nobody() {
    let space = Keyspace::new(8, 1, [1, 2, 3, 4]);
    let taker: Arc<Taker> = Arc::default();
    let names: Vec<Vec<u8>> = (0..20).map(|i| format!("k{i}").into_bytes()).collect();
    names.iter().for_each(|name| drop(waits(&space, name, Wanted::List, &taker, 0)));
    let mut txn = space.lock_all(0);
    for name in names.iter().rev() {
        let key = space.key(name);
        txn.db(0).set_str(&key, StrRef::Int(1), None);
        assert!(txn.db(0).delete(&key));
        let mut list = ListValue::default();
        list.push(crate::types::list::End::Back, Bytes::Slice(b"x"));
        txn.db(0).insert(&key, crate::types::AsValue::into_value(list), None);
    }
    assert_eq!(taker.served.load(Relaxed), 0, "nobody before the end");
    drop(txn);
    let order: Vec<Vec<u8>> = taker.events.lock().iter().map(|(key, ..)| key.clone()).collect();
    assert_eq!(order, names.into_iter().rev().collect::<Vec<_>>());
    waits(&space, b"s", Wanted::List, &taker, 0);
    let key = space.key(b"s");
    space.lock(&[key.hash], 0).db(0).set_str(&key, StrRef::Int(1), None);
    assert_eq!(taker.served.load(Relaxed), 20);
}
