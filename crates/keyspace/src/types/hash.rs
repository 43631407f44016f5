//! [`HashValue`]: fields and values; packed in one allocation while small, a table when large.
//!
//! Redis's thresholds decide what OBJECT ENCODING says. A hash beyond them stays packed nevertheless while it is small
//! enough that looking at each field costs less than a table's look-ups in memory: HSET of one of five fields of 256 bytes
//! made 0.92 M operations per processor second as a table, 1.18 M packed (`make versus ARGS='--only "HSET p30"'`).

use super::fields::Fields;
use super::packed::Packed;
use super::{Bytes, Collection, Piece};
use crate::Settings;
use crate::segmented::INLINE_BYTES_MAX;
use std::sync::atomic::Ordering::Relaxed;

pub(crate) use super::fields::key_fields_with;

/// A hash beyond Redis's thresholds is packed up to so many fields and bytes, with fields and values of up to
/// [`INLINE_BYTES_MAX`]; longer ones are shared with replies, which a table's are.
const OUTGROWN_FIELDS_MAX: usize = 32;
const OUTGROWN_BYTES_MAX: usize = 4096;

/// A hash value. Cloning a large one is a snapshot: it shares all segments, and a segment that is written while shared is
/// copied alone.
#[derive(Debug, Clone, Default)]
pub struct HashValue(Form);

#[derive(Debug, Clone)]
enum Form {
    Packed(Packed),
    Table(Box<Fields>),
}

impl Default for Form {
    fn default() -> Form {
        Form::Packed(Packed::default())
    }
}

impl HashValue {
    /// An empty hash (packed).
    pub fn new() -> HashValue {
        HashValue::default()
    }
    /// The value of `field`.
    pub fn get(&self, field: &[u8]) -> Option<Bytes<'_>> {
        match &self.0 {
            Form::Packed(packed) => packed.get(field).map(Bytes::Slice),
            Form::Table(fields) => fields.get(field),
        }
    }
    /// Sets `field`; true when it is new. Switches to the table at the thresholds in `settings`, and never back.
    pub fn set<'v>(&mut self, field: &[u8], value: impl Into<Bytes<'v>>, settings: &Settings) -> bool {
        let value = value.into();
        let bytes_max = settings.hash_max_listpack_value.load(Relaxed);
        let entries_max = settings.hash_max_listpack_entries.load(Relaxed);
        if let Form::Packed(packed) = &mut self.0 {
            let is_outgrown = packed.is_outgrown();
            let found = packed.look(field);
            if is_outgrown && found.has(value.len()) {
                return packed.set_at(found, field, &value);
            }
            let small = field.len().max(value.len()) as u64 <= bytes_max && !is_outgrown;
            if small && packed.has_room(field.len().saturating_add(value.len())) {
                let new = packed.set_at(found, field, &value);
                if packed.len() as u64 > entries_max {
                    self.outgrow();
                }
                return new;
            }
            if packed.len() < OUTGROWN_FIELDS_MAX
                && field.len().max(value.len()) <= INLINE_BYTES_MAX
                && packed.used_bytes() + field.len() + value.len() < OUTGROWN_BYTES_MAX
            {
                let new = packed.set_at(found, field, &value);
                packed.set_outgrown();
                return new;
            }
            self.unpack();
        }
        match &mut self.0 {
            Form::Table(fields) => fields.set(field, value),
            Form::Packed(_) => unreachable!("unpacked above"),
        }
    }
    /// Removes `field`; true when it was there.
    pub fn remove(&mut self, field: &[u8]) -> bool {
        match &mut self.0 {
            Form::Packed(packed) => packed.remove(field),
            Form::Table(fields) => fields.remove(field),
        }
    }
    /// All pairs (insertion order while packed).
    pub fn iter(&self) -> impl Iterator<Item = (Bytes<'_>, Bytes<'_>)> {
        let (packed, table) = match &self.0 {
            Form::Packed(packed) => (Some(packed), None),
            Form::Table(fields) => (None, Some(fields)),
        };
        let packed = packed.into_iter().flat_map(Packed::iter);
        let packed = packed.map(|(field, value)| (Bytes::Slice(field), Bytes::Slice(value)));
        packed.chain(table.into_iter().flat_map(|fields| fields.iter()))
    }
    /// Redis's guarantee of HSCAN: calls `visit` for a slice of about `count` pairs from `cursor` on and returns the
    /// next cursor, 0 at the end. A packed hash is returned whole. Costs `count` and a segment.
    pub fn scan(&self, cursor: u64, count: usize, visit: &mut dyn FnMut(Bytes<'_>, Bytes<'_>)) -> u64 {
        match &self.0 {
            Form::Packed(_) => {
                self.iter().for_each(|(field, value)| visit(field, value));
                0
            }
            Form::Table(fields) => fields.scan(cursor, count, visit),
        }
    }
    /// A uniformly random pair; `None` when empty.
    pub fn random(&self, rng: &mut fastrand::Rng) -> Option<(Bytes<'_>, Bytes<'_>)> {
        match &self.0 {
            Form::Packed(packed) if packed.len() == 0 => None,
            Form::Packed(packed) => self.iter().nth(rng.usize(..packed.len())),
            Form::Table(fields) => fields.random(rng),
        }
    }
    /// What a packed hash does that has become too large for Redis's compact form.
    fn outgrow(&mut self) {
        match &mut self.0 {
            Form::Packed(packed)
                if packed.len() <= OUTGROWN_FIELDS_MAX && packed.used_bytes() <= OUTGROWN_BYTES_MAX =>
            {
                packed.set_outgrown();
            }
            _ => self.unpack(),
        }
    }
    fn unpack(&mut self) {
        let mut fields = Fields::new();
        for (field, value) in self.iter() {
            fields.set(&field, value);
        }
        self.0 = Form::Table(Box::new(fields));
    }
}

impl Collection for HashValue {
    const TYPE_NAME: &'static str = "hash";

    fn len(&self) -> usize {
        match &self.0 {
            Form::Packed(packed) => packed.len(),
            Form::Table(fields) => fields.len(),
        }
    }
    fn encoding(&self) -> &'static str {
        match &self.0 {
            Form::Packed(packed) if !packed.is_outgrown() => "listpack",
            _ => "hashtable",
        }
    }
    fn heap_bytes(&self) -> usize {
        match &self.0 {
            Form::Packed(packed) => packed.heap_bytes(),
            Form::Table(fields) => size_of::<Fields>() + fields.heap_bytes(),
        }
    }
    fn parts(&self) -> usize {
        match &self.0 {
            Form::Packed(_) => 2,
            Form::Table(fields) => fields.parts(),
        }
    }
    fn walk_texts(
        &self,
        cursor: u64,
        count: usize,
        visit: &mut dyn FnMut(Option<Bytes<'_>>, Bytes<'_>),
    ) -> u64 {
        self.scan(cursor, count, &mut |field, value| visit(Some(field), value))
    }
    fn into_pieces(self, hand_out: &mut dyn FnMut(Piece)) {
        match self.0 {
            Form::Packed(_) => {}
            Form::Table(fields) => fields.into_pieces().for_each(|segments| hand_out(Box::new(segments))),
        }
    }
    #[inline]
    fn prefetch(&self, step: usize) -> bool {
        match (&self.0, step) {
            (Form::Packed(packed), 0) => packed.prefetch(),
            (Form::Packed(_), _) => {}
            (Form::Table(fields), 0) => strand_chain::prefetch(&**fields, size_of::<Fields>()),
            (Form::Table(fields), 1) => fields.prefetch(),
            (Form::Table(fields), _) => fields.prefetch_items(),
        }
        matches!(self.0, Form::Table(_)) && step < 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;
    use strand_chain::Blob;

    fn settings(entries: u64, bytes: u64) -> Settings {
        let settings = Settings::default();
        settings.hash_max_listpack_entries.store(entries, Relaxed);
        settings.hash_max_listpack_value.store(bytes, Relaxed);
        settings
    }
    fn pairs(hash: &HashValue) -> BTreeMap<Vec<u8>, Vec<u8>> {
        let all: Vec<_> = hash.iter().map(|(f, v)| (f.to_vec(), v.to_vec())).collect();
        let map: BTreeMap<_, _> = all.iter().cloned().collect();
        assert_eq!(map.len(), all.len(), "each field once");
        map
    }

    /// A scan in flight: the cursor, the fields that were there all along, the fields seen.
    type Scan = (u64, Vec<Vec<u8>>, Vec<Vec<u8>>);

    #[derive(Debug, Clone)]
    enum Op {
        Set(u16, usize),
        Remove(u16),
        Scan(usize),
    }
    fn op() -> impl Strategy<Value = Op> {
        prop_oneof![
            6 => (0..600u16, prop_oneof![8 => 0..20usize, 4 => 100..140usize, 1 => 1000..1050usize]).prop_map(|(f, v)| Op::Set(f, v)),
            3 => (0..600u16).prop_map(Op::Remove),
            1 => (1..40usize).prop_map(Op::Scan),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn does_what_a_map_does(ops in prop::collection::vec(op(), 1..1500), entries in 0..20u64, bytes in 0..30u64) {
            let settings = settings(entries, bytes);
            let (mut hash, mut twin) = (HashValue::new(), BTreeMap::new());
            let mut scan: Option<Scan> = None;
            for (i, op) in ops.into_iter().enumerate() {
                match op {
                    Op::Set(field, len) => {
                        let (field, value) = (format!("f{field}").into_bytes(), vec![i as u8; len]);
                        let new = twin.insert(field.clone(), value.clone()).is_none();
                        prop_assert_eq!(hash.set(&field, value.as_slice(), &settings), new);
                    }
                    Op::Remove(field) => {
                        let field = format!("f{field}").into_bytes();
                        prop_assert_eq!(hash.remove(&field), twin.remove(&field).is_some());
                        if let Some((_, there, _)) = &mut scan {
                            there.retain(|f| *f != field);
                        }
                    }
                    Op::Scan(count) => {
                        let (cursor, there, mut seen) = scan.take().unwrap_or((0, twin.keys().cloned().collect(), Vec::new()));
                        let next = hash.scan(cursor, count, &mut |f, _| seen.push(f.to_vec()));
                        match next {
                            0 => for field in &there {
                                prop_assert!(seen.contains(field), "{:?} is missing", field);
                            },
                            next => scan = Some((next, there, seen)),
                        }
                    }
                }
                prop_assert_eq!(hash.len(), twin.len());
            }
            prop_assert_eq!(&pairs(&hash), &twin);
            prop_assert_eq!(pairs(&hash.clone()), pairs(&hash));
            for (field, value) in &twin {
                prop_assert_eq!(&*hash.get(field).expect("it is there"), value.as_slice());
            }
            prop_assert!(hash.get(b"none").is_none());
            let mut rng = fastrand::Rng::with_seed(1);
            match hash.random(&mut rng) {
                None => prop_assert!(twin.is_empty()),
                Some((f, v)) => prop_assert_eq!(&twin[&*f], &*v),
            }
        }
    }

    #[test]
    fn switches_at_the_thresholds_and_not_back() {
        let settings = settings(3, 4);
        let mut hash = HashValue::new();
        for field in ["a", "b", "c"] {
            assert!(hash.set(field.as_bytes(), b"1234", &settings));
        }
        assert!(!hash.set(b"b", b"4321", &settings));
        assert_eq!(hash.encoding(), "listpack");
        assert_eq!(hash.iter().map(|(f, _)| f[0]).collect::<Vec<_>>(), b"abc");
        let mut long = hash.clone();
        assert!(!long.set(b"b", b"12345", &settings));
        assert_eq!((long.encoding(), long.len()), ("hashtable", 3));
        let mut many = hash.clone();
        assert!(many.set(b"d", b"", &settings));
        assert_eq!((many.encoding(), many.len()), ("hashtable", 4));
        assert!(many.remove(b"d") && many.remove(b"c"));
        assert_eq!(many.encoding(), "hashtable");
        assert!(hash.set(b"fffff", b"", &settings));
        assert_eq!(hash.encoding(), "hashtable");
        assert!(hash.remove(b"fffff"));
        assert_eq!(hash.encoding(), "hashtable");
    }
    #[test]
    fn stays_packed_while_it_is_cheap_to_look_through() {
        let settings = Settings::default();
        let (mut few, mut many, mut grown) = (HashValue::new(), HashValue::new(), HashValue::new());
        for i in 0..5u8 {
            few.set(&[i], &[i; 256], &settings);
        }
        assert!(matches!(few.0, Form::Packed(_)) && few.encoding() == "hashtable", "{few:?}");
        for i in 0..=OUTGROWN_FIELDS_MAX as u8 {
            many.set(&[i], &[i; 65], &settings);
            grown.set(&[i % 8], [i; 512][..65 + 30 * usize::from(i % 14)].as_ref(), &settings);
        }
        assert!(matches!(many.0, Form::Table(_)) && many.len() == OUTGROWN_FIELDS_MAX + 1);
        assert!(grown.heap_bytes() <= 2 * OUTGROWN_BYTES_MAX && grown.len() == 8);
        few.set(&[0], &[0; INLINE_BYTES_MAX + 1], &settings);
        assert!(matches!(few.0, Form::Table(_)));
        // As it was: small fields are a listpack of Redis's default size.
        let mut small = HashValue::new();
        (0..512u16).for_each(|i| assert!(small.set(&i.to_le_bytes(), b"value", &settings)));
        assert_eq!(small.encoding(), "listpack");
        small.set(&[0, 0], &[0; 65], &settings);
        assert!(matches!(small.0, Form::Table(_)));
    }
    #[test]
    fn large_values_are_shared_and_not_copied() {
        let blob = Blob::from(vec![7; 5000]);
        let mut hash = HashValue::new();
        hash.set(b"f", &blob, &Settings::default());
        match hash.get(b"f") {
            Some(Bytes::Shared(kept)) => assert_eq!(kept.as_ptr(), blob.as_ptr()),
            other => panic!("{other:?}"),
        }
    }
    #[test]
    fn a_big_hash_moves_a_segment_at_most_and_shrinks() {
        let settings = Settings::default();
        let mut hash = HashValue::new();
        for i in 0..100_000u32 {
            hash.set(&i.to_le_bytes(), &i.to_le_bytes(), &settings);
        }
        let Form::Table(fields) = &hash.0 else { panic!("a table") };
        let (shape, grown_bytes) = (fields.shape(), hash.heap_bytes());
        assert_eq!(shape.items, 100_000);
        assert!(shape.moved_max <= crate::segmented::SEGMENT_ITEMS_MAX, "{shape:?}");
        assert!(grown_bytes / 100_000 < 60, "{grown_bytes}");
        for i in 100..100_000u32 {
            assert!(hash.remove(&i.to_le_bytes()));
        }
        let Form::Table(fields) = &hash.0 else { panic!("a table") };
        assert!(fields.shape().segments <= 4, "{:?}", fields.shape());
        assert!(hash.heap_bytes() < grown_bytes / 50, "{} of {grown_bytes}", hash.heap_bytes());
        assert!(fields.shape().moved_max <= crate::segmented::SEGMENT_ITEMS_MAX);
    }
    #[test]
    fn random_fields_are_as_likely_as_each_other() {
        let (settings, mut rng) = (Settings::default(), fastrand::Rng::with_seed(11));
        for fields in [10usize, 100, 1000] {
            let mut hash = HashValue::new();
            for i in 0..fields {
                hash.set(&(i as u16).to_le_bytes(), b"", &settings);
            }
            let mut hits = vec![0f64; fields];
            for _ in 0..fields * 100 {
                let (field, _) = hash.random(&mut rng).expect("not empty");
                hits[usize::from(u16::from_le_bytes([field[0], field[1]]))] += 1.0;
            }
            // Chi squared with n-1 degrees of freedom: mean n-1, deviation sqrt(2(n-1)).
            let chi: f64 = hits.iter().map(|h| (h - 100.0).powi(2) / 100.0).sum();
            let free = fields as f64 - 1.0;
            assert!((chi - free).abs() < 5.0 * (2.0 * free).sqrt(), "{fields} fields: {chi}");
        }
    }
    #[test]
    fn an_empty_hash_and_odd_cursors() {
        let hash = HashValue::new();
        assert!(hash.is_empty() && hash.random(&mut fastrand::Rng::with_seed(1)).is_none());
        let mut big = HashValue::new();
        big.set(b"f", &[0; 1000], &Settings::default());
        assert_eq!(big.scan(u64::MAX, 10, &mut |_, _| panic!("nothing is there")), 0);
        assert_eq!(big.scan(1 << 40, 10, &mut |_, _| panic!("nothing is there")), 0);
        let mut seen = 0;
        assert_eq!(big.scan(0, 0, &mut |_, _| seen += 1), 0);
        assert_eq!(seen, 1);
    }

    #[test]
    fn a_large_hash_is_freed_in_pieces() {
        let (mut hash, settings) = (HashValue::new(), Settings::default());
        (0..50_000u32).for_each(|i| assert!(hash.set(&i.to_le_bytes(), b"value", &settings)));
        let snapshot = hash.clone();
        let mut pieces = 0;
        hash.into_pieces(&mut |_| pieces += 1);
        assert!((4..50).contains(&pieces), "{pieces}");
        assert_eq!(
            (snapshot.len(), snapshot.get(&7u32.to_le_bytes()).as_deref()),
            (50_000, Some(&b"value"[..]))
        );
        HashValue::new().into_pieces(&mut |_| panic!("a packed hash is freed quickly"));
    }
}
