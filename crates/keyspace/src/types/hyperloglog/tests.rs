//! Values and counts are compared with those of redis-server 7.0.15, and with plain arrays of registers.

use super::*;
use proptest::prelude::*;

const SPARSE_MAX: usize = 3000;

/// The 64-bit hash FNV-1a, with which long values are compared.
fn fnv(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}
fn added(elements: impl Iterator<Item = Vec<u8>>, sparse_bytes_max: usize) -> Vec<u8> {
    let mut value = new();
    invalidate(&mut value);
    elements.for_each(|element| {
        add(&mut value, &element, sparse_bytes_max).expect("it is sound");
    });
    value
}
fn numbers(to: usize) -> impl Iterator<Item = Vec<u8>> {
    (0..to).map(|i| i.to_string().into_bytes())
}

#[test]
fn stores_and_counts_what_redis_does() {
    let golden: [(usize, usize, u64, u64); 10] = [
        (1, 21, 0x5db2e01c33707b73, 1),
        (2, 24, 0xf025e8e2dad2663a, 2),
        (10, 48, 0x77f1dfb6ec0d7ad9, 10),
        (100, 285, 0x67b325af879902d0, 99),
        (300, 687, 0x9d2113eb13274801, 301),
        (600, 1229, 0xa05f292e1bb23851, 602),
        (900, 1736, 0x9a3baab16fb7cce9, 897),
        (1000, 1897, 0x0f28a9d93d3164c9, 997),
        (5000, 12304, 0x71b59976ab1aa332, 5005),
        (100000, 12304, 0x8c615f2c02122d45, 100039),
    ];
    let (mut value, mut next) = (new(), 0);
    for (elements, len, hash, cardinality) in golden {
        for i in next..elements {
            add(&mut value, format!("element:{i}").as_bytes(), SPARSE_MAX).expect("it is sound");
        }
        next = elements;
        assert_eq!((value.len(), fnv(&value)), (len, hash), "after {elements}");
        assert_eq!(count(&value), Ok((cardinality, true)));
    }
    cache(&mut value, 7);
    assert_eq!(count(&value), Ok((7, false)));
    assert_eq!(added(numbers(0), 0), b"HYLL\x01\0\0\0\0\0\0\0\0\0\0\x80\x7f\xff");
    // Use elements of each length, so that all branches for the last bytes of the hash run.
    let lengths = added((0..40).map(|n| vec![b'x'; n]), SPARSE_MAX);
    assert_eq!((lengths.len(), fnv(&lengths)), (130, 0x5c881e15d7951ed1));
}

#[test]
fn becomes_dense_at_redis_servers_threshold() {
    let (dense, sparse) = (0xb441bf6c1d7aab1e, 0x74728b7326b5dc9d);
    for (sparse_bytes_max, hash) in [(0, dense), (20, dense), (100, dense), (3000, sparse), (100_000, sparse)]
    {
        let value = added(numbers(500), sparse_bytes_max);
        assert_eq!(fnv(&value), hash, "{sparse_bytes_max}");
        assert_eq!(count(&value), Ok((503, true)));
        let few = if sparse_bytes_max < 33 { 0xff46a58f64c6ea59 } else { 0xb00545bb2592ec8e };
        assert_eq!(fnv(&added(numbers(5), sparse_bytes_max)), few, "{sparse_bytes_max}");
    }
    let mut value = added(numbers(500), SPARSE_MAX);
    assert_eq!((make_dense(&mut value), make_dense(&mut value)), (Ok(true), Ok(false)));
    assert_eq!(fnv(&value), dense);
    for i in 500..5000 {
        let (element, mut twin) = (i.to_string(), value.clone());
        let raises = raises(&value, element.as_bytes());
        assert_eq!(add(&mut twin, element.as_bytes(), 0), Ok(raises));
        add_dense(&mut value, element.as_bytes());
        assert!(value == twin, "{element}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn registers_are_what_an_array_holds(
        raises in prop::collection::vec((prop_oneof![0..40usize, 16350..REGISTERS], 1..52u8), 1..200),
        sparse_bytes_max in prop_oneof![Just(100usize), Just(3000)],
    ) {
        let (mut value, mut twin) = (new(), registers());
        for (index, register) in raises {
            let want = twin[index] < register;
            prop_assert_eq!(raise(&mut value, index, register, sparse_bytes_max), Ok(want));
            twin[index] = twin[index].max(register);
            if form(&value) == Some(Representation::Sparse) {
                prop_assert!(value.len() <= sparse_bytes_max && twin[index] <= 32);
                prop_assert_eq!(runs(&value).map(|run| run.len).sum::<usize>(), REGISTERS);
            }
        }
        let mut read = registers();
        prop_assert_eq!(merge_into(&mut read, &value), Ok(()));
        prop_assert!(read == twin);
        prop_assert_eq!(count(&value).map(|(n, _)| n), Ok(count_of(&twin)));
        make_dense(&mut value).expect("it is sound");
        prop_assert!(dense(&value).eq(twin.iter().copied()));
        let mut other = new();
        prop_assert_eq!(raise_to(&mut other, &twin, sparse_bytes_max), Ok(()));
        make_dense(&mut other).expect("it is sound");
        prop_assert!(dense(&other).eq(twin.iter().copied()));
    }

    /// A string that a client has set may be corrupted in any way.
    #[test]
    fn no_bytes_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..60), dense in any::<bool>(), index in 0..REGISTERS) {
        bytes.splice(0..0, *b"HYLL\x01\0\0\0\0\0\0\0\0\0\0\x80");
        if dense {
            bytes[4] = 0;
            bytes.resize(DENSE_BYTES, 0xff);
        }
        prop_assert!(form(&bytes).is_some());
        let mut read = registers();
        let sound = merge_into(&mut read, &bytes).is_ok();
        prop_assert_eq!(sound, dense || runs(&bytes).map(|run| run.len).sum::<usize>() == REGISTERS);
        prop_assert_eq!(count(&bytes).is_ok(), sound);
        let before = bytes.clone();
        if raise(&mut bytes, index, 40, SPARSE_MAX).is_err() {
            prop_assert!(!sound && bytes == before);
        }
        let _ = raise(&mut bytes, index, 7, SPARSE_MAX);
        let _ = raise_to(&mut bytes, &read, SPARSE_MAX);
        let _ = make_dense(&mut bytes);
        prop_assert!(form(&bytes).is_some());
    }
}

#[test]
fn other_strings_are_no_hyperloglogs() {
    let dense = make_dense(&mut new()).map(|_| ()).map_or(0, |()| DENSE_BYTES);
    assert_eq!(dense, 12_304);
    let mut value = new();
    assert_eq!(form(&value), Some(Representation::Sparse));
    value[4] = 2;
    assert_eq!(form(&value), None);
    value[4] = 0;
    assert_eq!(form(&value), None, "too short for a dense one");
    assert_eq!((form(b""), form(b"HYLL\x01"), form(b"hyll\x01\0\0\0\0\0\0\0\0\0\0\0")), (None, None, None));
    let mut short = b"HYLL\x01\0\0\0\0\0\0\0\0\0\0\x80".to_vec();
    assert_eq!((form(&short), count(&short)), (Some(Representation::Sparse), Err(Corrupted)));
    assert_eq!(add(&mut short, b"x", SPARSE_MAX), Err(Corrupted));
}
