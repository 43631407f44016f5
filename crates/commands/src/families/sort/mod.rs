//! SORT and SORT_RO: the sorted elements of a list, set or sorted set, or the values at keys whose names are made
//! from the elements.
//!
//! The value is cloned, and the clone is sorted. (A clone shares the parts of a large value.) BY and GET read keys
//! whose names are made from the data ([`Keys`]). If these keys are few, they are all read at one moment, with
//! their shards locked by [`elements`]. If they are many, they are read on the lane, in slices ([`long`]).

mod long;
mod options;

pub(crate) use long::{sort_long, sort_ro_long};
pub(crate) use options::destination;

use super::collection;
use super::string;
use crate::call::Call;
use crate::cost::{ELEMENT_BYTES, LONG_ELEMENTS};
use crate::errors;
use crate::parse::Text;
use crate::strtod;
use options::{By, Get, Pattern, SortOptions};
use std::cmp::Ordering;
use std::ops::Range;
use strand_chain::Blob;
use strand_keyspace::types::Bytes;
use strand_keyspace::types::list::End;
use strand_keyspace::{
    AsValue, Collection, Db, Key, KeyHash, Keyspace, ListValue, Member, RecordRef, SetValue, StrRef, Txn,
    Value, ValueRef, ZSetValue,
};
use strand_wire::args::Args;
use strand_wire::reply::Reply;

/// Number of keys that are read together, and of elements between two pauses.
const SLICE: usize = 128;
/// Number of comparisons between two pauses of sorting: about 50 us.
const PAUSE_COMPARISONS: usize = 1024;

const NO_NUMBER: &str = "ERR One or more scores can't be converted into double";

/// `SORT key [BY pattern] [LIMIT offset count] [GET pattern ...] [ASC|DESC] [ALPHA] [STORE destination]`. Reply:
/// the elements, or the values that GET finds (null for a missing one); with STORE the number of elements stored.
pub(crate) fn sort(call: &mut Call<'_, '_>) {
    at_once(call, true);
}

/// `SORT_RO`: like SORT, without STORE.
pub(crate) fn sort_ro(call: &mut Call<'_, '_>) {
    at_once(call, false);
}

/// The cost of a call: the elements visited, and the keys looked up for them. If these keys are few, this also
/// locks their shards, which then stay locked. If somebody else holds one of these shards, the result makes the
/// call long.
pub(crate) fn elements(args: Args<'_>, txn: &mut Txn<'_>, db: usize, key: &Key<'_>) -> usize {
    let Ok(mut options) = SortOptions::parse(args, true, None) else { return 0 };
    options.in_script = txn.runs_script();
    let keyspace = txn.keyspace();
    let mut database = txn.db(db);
    let Some(source) = database.peek(key).and_then(|record| Source::of(record.value())) else { return 0 };
    let elements = options.cost(&source);
    if elements > LONG_ELEMENTS || !options.reads_keys() {
        return elements;
    }
    let hashes = options.hashes(&source, keyspace);
    if txn.try_lock_more(&hashes) { elements } else { usize::MAX }
}

fn at_once(call: &mut Call<'_, '_>, stores: bool) {
    let mut options = match SortOptions::parse(call.args, stores, call.rights) {
        Ok(options) => options,
        Err(text) => return call.reply.error(&text),
    };
    options.in_script = call.txn.runs_script();
    let keyspace = call.txn.keyspace();
    let mut db = call.txn.db(call.db);
    let value = match read(&mut db, &call.keys[0]) {
        Ok(value) => value,
        Err(text) => return call.reply.error(&text),
    };
    let mut keys = LockedKeys { keyspace, db };
    match options.store {
        None => {
            if let Err(text) = reply(&options, value.as_ref(), &mut keys, call.reply) {
                call.reply.error(&text);
            }
        }
        Some(at) => match list(&options, value.as_ref(), &mut keys) {
            Ok(list) => {
                call.reply.int(list.len() as i64);
                store(&mut call.txn.db(call.db), &keyspace.key(call.args.at(at)), list);
            }
            Err(text) => call.reply.error(&text),
        },
    }
}

/// Clones the value at `key`.
fn read(db: &mut Db<'_, '_>, key: &Key<'_>) -> Result<Option<Value>, Text> {
    match db.get(key).map(|record| record.value()) {
        None => Ok(None),
        Some(value) if Source::of(value).is_some() => Ok(Some(value.to_value())),
        Some(_) => Err(errors::WRONG_TYPE.into()),
    }
}

fn store(db: &mut Db<'_, '_>, key: &Key<'_>, list: ListValue) {
    if list.is_empty() {
        db.delete(key);
    } else {
        db.insert(key, Value::List(list), None);
    }
}

/// Writes the result as the reply.
fn reply(
    options: &SortOptions<'_>,
    value: Option<&Value>,
    keys: &mut dyn Keys,
    reply: &mut Reply<'_>,
) -> Result<(), Text> {
    let elements = sorted(options, value, keys)?;
    reply.array(elements.len() * options.gets.len().max(1));
    found(options, &elements, keys, &mut |found| {
        match found {
            LookedUp::Nothing => reply.null(),
            LookedUp::Int(n) => reply.bulk_int(n),
            LookedUp::Bytes(bytes) => collection::send(reply, bytes),
            LookedUp::Str(s) => string::write(reply, s),
        }
        !reply.exceeds_limit()
    });
    Ok(())
}

/// The result as a list, for STORE. Where GET finds nothing, the list has an empty string.
fn list(options: &SortOptions<'_>, value: Option<&Value>, keys: &mut dyn Keys) -> Result<ListValue, Text> {
    let elements = sorted(options, value, keys)?;
    let mut list = ListValue::new();
    found(options, &elements, keys, &mut |found| {
        let buffer = &mut [0; 20];
        let bytes = match found {
            LookedUp::Nothing => Bytes::Slice(b""),
            LookedUp::Int(n) => Bytes::Slice(Member::Int(n).bytes(buffer)),
            LookedUp::Bytes(bytes) => bytes,
            LookedUp::Str(StrRef::Blob { blob, .. }) => Bytes::Shared(blob),
            LookedUp::Str(s) => Bytes::Slice(s.bytes(buffer)),
        };
        list.push(End::Back, bytes);
        true
    });
    Ok(list)
}

/// Access to the keys that BY and GET name.
trait Keys {
    /// Calls `visit` with the record at each of `keys`, in order; with `None` for a missing key.
    fn visit_records(&mut self, keys: &[Vec<u8>], visit: &mut dyn FnMut(Option<RecordRef<'_>>));
    /// Pauses between two pieces of work. Returns false when nobody waits for the result any more.
    fn pause(&mut self) -> bool;
}

/// Access to keys whose shards are all locked.
struct LockedKeys<'l, 'k> {
    keyspace: &'k Keyspace,
    db: Db<'l, 'k>,
}

impl Keys for LockedKeys<'_, '_> {
    fn visit_records(&mut self, keys: &[Vec<u8>], visit: &mut dyn FnMut(Option<RecordRef<'_>>)) {
        for key in keys {
            visit(self.db.get(&self.keyspace.key(key)));
        }
    }
    fn pause(&mut self) -> bool {
        true
    }
}

/// A value that can be sorted.
#[derive(Clone, Copy)]
enum Source<'v> {
    List(&'v ListValue),
    Set(&'v SetValue),
    ZSet(&'v ZSetValue),
}

/// An element of a [`Source`].
#[derive(Clone, Copy)]
enum Element<'v> {
    Int(i64),
    Bytes(Bytes<'v>),
}

impl Element<'_> {
    fn with_bytes<R>(&self, use_them: impl FnOnce(&[u8]) -> R) -> R {
        match self {
            Element::Int(n) => use_them(Member::Int(*n).bytes(&mut [0; 20])),
            Element::Bytes(bytes) => use_them(bytes),
        }
    }
}

impl<'v> Source<'v> {
    fn of(value: ValueRef<'v>) -> Option<Source<'v>> {
        let set = || SetValue::of(value).map(Source::Set);
        let zset = || ZSetValue::of(value).map(Source::ZSet);
        ListValue::of(value).map(Source::List).or_else(set).or_else(zset)
    }
    fn len(&self) -> usize {
        match self {
            Source::List(list) => list.len(),
            Source::Set(set) => set.len(),
            Source::ZSet(zset) => zset.len(),
        }
    }
    fn heap_bytes(&self) -> usize {
        match self {
            Source::List(list) => list.heap_bytes(),
            Source::Set(set) => set.heap_bytes(),
            Source::ZSet(zset) => zset.heap_bytes(),
        }
    }
    fn is_set(&self) -> bool {
        matches!(self, Source::Set(_))
    }
    /// The elements from `from` on. They come in the order of the value, or backwards from its end.
    fn iter(self, from: usize, backwards: bool) -> Box<dyn Iterator<Item = Element<'v>> + 'v> {
        match self {
            Source::List(list) if backwards => {
                Box::new(list.iter_back(list.len() - from).map(Element::Bytes))
            }
            Source::List(list) => Box::new(list.iter(from).map(Element::Bytes)),
            Source::ZSet(zset) if backwards => {
                Box::new(zset.iter_back(zset.len() - from).map(|(member, _)| Element::Bytes(member)))
            }
            Source::ZSet(zset) => Box::new(zset.iter(from).map(|(member, _)| Element::Bytes(member))),
            Source::Set(set) => Box::new(set.iter().skip(from).map(|member| match member {
                Member::Int(n) => Element::Int(n),
                Member::Bytes(bytes) => Element::Bytes(Bytes::Slice(bytes)),
            })),
        }
    }
}

/// The weight by which an element is sorted.
enum Weight {
    Number(f64),
    /// The element itself.
    Element,
    Text(Blob),
    /// BY found no value for the element. Such elements come first.
    Nothing,
}

/// The elements that LIMIT selects, sorted. Stops early when nobody waits for them any more.
fn sorted<'v>(
    options: &SortOptions<'_>,
    value: Option<&'v Value>,
    keys: &mut dyn Keys,
) -> Result<Vec<Element<'v>>, Text> {
    let Some(source) = value.and_then(|value| Source::of(value.view())) else { return Ok(Vec::new()) };
    let window = options.window(source.len());
    let (by, alpha) = options.order(&source);
    if let By::Nothing = by {
        let backwards = options.descending && !source.is_set();
        return Ok(source.iter(window.start, backwards).take(window.len()).collect());
    }
    let mut entries: Vec<(Element<'v>, Weight)> = Vec::with_capacity(source.len());
    let mut all = source.iter(0, false);
    let mut is_number = true;
    loop {
        let slice: Vec<Element<'v>> = all.by_ref().take(SLICE).collect();
        if slice.is_empty() {
            break;
        }
        weigh(by, alpha, &slice, keys, &mut |element, weight| {
            let weight = weight.unwrap_or(Weight::Number(f64::NAN));
            is_number &= !matches!(weight, Weight::Number(n) if n.is_nan());
            entries.push((element, weight));
        });
        if !keys.pause() {
            return Ok(Vec::new());
        }
    }
    if !is_number {
        return Err(NO_NUMBER.into());
    }
    let mut left = PAUSE_COMPARISONS;
    // Elements with equal weights keep their order, even if the order is reversed.
    entries.sort_by(|a, b| {
        left -= 1;
        if left == 0 {
            left = PAUSE_COMPARISONS;
            // Sorting must complete, even if nobody waits for the result any more.
            let _ = keys.pause();
        }
        let ordering = compare(a, b);
        if options.descending { ordering.reverse() } else { ordering }
    });
    let Range { start, end } = window;
    Ok(entries[start..end].iter().map(|(element, _)| *element).collect())
}

/// Visits the elements with their weights. The weight is `None` when it must be a number and is none.
fn weigh<'v>(
    by: By<'_>,
    alpha: bool,
    elements: &[Element<'v>],
    keys: &mut dyn Keys,
    visit: &mut dyn FnMut(Element<'v>, Option<Weight>),
) {
    let By::Keys(pattern) = by else {
        for element in elements {
            let weight = match alpha {
                true => Some(Weight::Element),
                false => element.with_bytes(number).map(Weight::Number),
            };
            visit(*element, weight);
        }
        return;
    };
    let names: Vec<Vec<u8>> = elements.iter().map(|element| pattern.key(element)).collect();
    let mut elements = elements.iter();
    keys.visit_records(&names, &mut |record| {
        let Some(element) = elements.next() else { return };
        let weight = match (pattern.value(record), alpha) {
            (LookedUp::Nothing, true) => Some(Weight::Nothing),
            (LookedUp::Nothing, false) => Some(Weight::Number(0.0)),
            (LookedUp::Int(n) | LookedUp::Str(StrRef::Int(n)), false) => Some(Weight::Number(n as f64)),
            (LookedUp::Int(n), true) => Some(Weight::Text(Blob::from(Member::Int(n).bytes(&mut [0; 20])))),
            (LookedUp::Bytes(bytes), true) => Some(Weight::Text(bytes.to_blob())),
            (LookedUp::Bytes(bytes), false) => number(&bytes).map(Weight::Number),
            (LookedUp::Str(s), true) => Some(Weight::Text(s.to_blob())),
            (LookedUp::Str(s), false) => number(s.bytes(&mut [0; 20])).map(Weight::Number),
        };
        visit(*element, weight);
    });
}

/// Parses a weight: `strtod` must read the whole text, which may begin with blanks and ends at its first zero byte. An
/// empty text is 0.
fn number(text: &[u8]) -> Option<f64> {
    let text = errors::c_text(text);
    if text.is_empty() { Some(0.0) } else { strtod::parse_weight(text) }
}

fn compare(a: &(Element<'_>, Weight), b: &(Element<'_>, Weight)) -> Ordering {
    let elements = || a.0.with_bytes(|a| b.0.with_bytes(|b| a.cmp(b)));
    match (&a.1, &b.1) {
        (Weight::Number(x), Weight::Number(y)) => {
            x.partial_cmp(y).unwrap_or(Ordering::Equal).then_with(elements)
        }
        (Weight::Text(x), Weight::Text(y)) => x[..].cmp(&y[..]),
        (Weight::Nothing, Weight::Nothing) => Ordering::Equal,
        (Weight::Nothing, _) => Ordering::Less,
        (_, Weight::Nothing) => Ordering::Greater,
        _ => elements(),
    }
}

/// What a pattern of GET or BY names for one element.
enum LookedUp<'a> {
    Nothing,
    Int(i64),
    Bytes(Bytes<'a>),
    Str(StrRef<'a>),
}

fn visit_element(element: &Element<'_>, visit: &mut dyn FnMut(LookedUp<'_>) -> bool) -> bool {
    match element {
        Element::Int(n) => visit(LookedUp::Int(*n)),
        Element::Bytes(bytes) => visit(LookedUp::Bytes(*bytes)),
    }
}

/// Visits the values that GET finds for each element, or the elements themselves without GET, until `visit` returns
/// false.
fn found(
    options: &SortOptions<'_>,
    elements: &[Element<'_>],
    keys: &mut dyn Keys,
    visit: &mut dyn FnMut(LookedUp<'_>) -> bool,
) {
    let per_slice = (SLICE / options.gets.len().max(1)).max(1);
    for slice in elements.chunks(per_slice) {
        let mut may_continue = true;
        if options.gets.is_empty() {
            may_continue = slice.iter().all(|element| visit_element(element, visit));
        }
        // The answers, in the order of the reply. Some of them are known already, and the answers between them must
        // be looked up.
        let mut answers = slice.iter().flat_map(|element| options.gets.iter().map(move |get| (element, get)));
        let mut known = |visit: &mut dyn FnMut(LookedUp<'_>) -> bool| loop {
            match answers.next() {
                Some((element, Get::Element)) => may_continue = may_continue && visit_element(element, visit),
                Some((_, Get::Nothing)) => may_continue = may_continue && visit(LookedUp::Nothing),
                Some((_, Get::Keys(pattern))) => return (Some(pattern), may_continue),
                None => return (None, may_continue),
            }
        };
        let names = options.names(slice);
        keys.visit_records(&names, &mut |record| {
            if let (Some(pattern), true) = known(visit) {
                visit(pattern.value(record));
            }
        });
        let (_, may_continue) = known(visit);
        if !may_continue || !keys.pause() {
            return;
        }
    }
}

impl Pattern<'_> {
    /// The name of the key for an element.
    fn key(&self, element: &Element<'_>) -> Vec<u8> {
        element.with_bytes(|bytes| [self.prefix, bytes, self.suffix].concat())
    }
    /// The value that the pattern selects from the record at the key.
    fn value<'r>(&self, record: Option<RecordRef<'r>>) -> LookedUp<'r> {
        match (record.map(|record| record.value()), self.field) {
            (Some(ValueRef::Str(s)), None) => LookedUp::Str(s),
            (Some(ValueRef::Hash(hash)), Some(field)) => {
                hash.get(field).map_or(LookedUp::Nothing, LookedUp::Bytes)
            }
            _ => LookedUp::Nothing,
        }
    }
}

impl SortOptions<'_> {
    /// The names of the keys that GET reads for these elements, in the order of the reply.
    fn names(&self, elements: &[Element<'_>]) -> Vec<Vec<u8>> {
        let key = |element, get: &Get<'_>| match get {
            Get::Keys(pattern) => Some(pattern.key(element)),
            Get::Element | Get::Nothing => None,
        };
        elements
            .iter()
            .flat_map(|element| self.gets.iter().filter_map(move |get| key(element, get)))
            .collect()
    }
    /// The sort key of the elements, and whether they are sorted as texts. With STORE, and in a script, the elements of a
    /// set are sorted in any case, because a set has no order of its own.
    fn order(&self, source: &Source<'_>) -> (By<'_>, bool) {
        match self.by {
            By::Nothing if source.is_set() && (self.store.is_some() || self.in_script) => (By::Element, true),
            by => (by, self.alpha),
        }
    }
    /// The number of elements visited, and the maximum number of elements in the result, as far as this is known
    /// before sorting.
    fn counts(&self, source: &Source<'_>) -> (usize, usize) {
        let window = self.window(source.len());
        match self.order(source).0 {
            By::Nothing if source.is_set() => (window.end, window.len()),
            By::Nothing => (window.len(), window.len()),
            By::Element | By::Keys(_) => (source.len(), source.len()),
        }
    }
    /// The elements visited plus the keys that may be looked up. Long elements count for more.
    fn cost(&self, source: &Source<'_>) -> usize {
        let (all, wanted) = self.counts(source);
        let bytes = source.heap_bytes() as u128 * all as u128 / source.len().max(1) as u128;
        let by = if self.reads_weights() { all } else { 0 };
        let gets = wanted.saturating_mul(self.gets.iter().filter(|get| get.reads_key()).count());
        all.max((bytes as usize).div_ceil(ELEMENT_BYTES)).saturating_add(by).saturating_add(gets)
    }
    /// The hashes of all keys that BY and GET may read. If the elements must be sorted, it is not known yet which
    /// of them LIMIT selects, so the keys of all elements count.
    fn hashes(&self, source: &Source<'_>, keyspace: &Keyspace) -> Vec<KeyHash> {
        let window = self.window(source.len());
        let (by, _) = self.order(source);
        let elements: Vec<Element<'_>> = match by {
            By::Nothing => {
                let backwards = self.descending && !source.is_set();
                source.iter(window.start, backwards).take(window.len()).collect()
            }
            By::Element | By::Keys(_) => source.iter(0, false).collect(),
        };
        let mut names = self.names(&elements);
        if let By::Keys(pattern) = by {
            names.extend(elements.iter().map(|element| pattern.key(element)));
        }
        names.iter().map(|name| keyspace.key(name).hash).collect()
    }
}

#[cfg(test)]
mod tests;
