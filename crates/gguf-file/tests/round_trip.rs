//! What is written is read: arbitrary metadata and tensors, in every version and byte order.

mod common;

use common::encode::Encoder;
use common::samples;
use gguf_file::{Array, ByteOrder, Error, GgmlType, Gguf, GgufWriter, StringArray, Value};
use proptest::prelude::*;

fn string_array() -> impl Strategy<Value = StringArray> {
    prop::collection::vec(prop::collection::vec(any::<u8>(), 0..9), 0..6)
        .prop_map(|v| v.into_iter().collect())
}

fn array() -> impl Strategy<Value = Array> {
    let n = 0..5;
    let leaf = prop_oneof![
        prop::collection::vec(any::<u8>(), n.clone()).prop_map(Array::U8),
        prop::collection::vec(any::<i8>(), n.clone()).prop_map(Array::I8),
        prop::collection::vec(any::<u16>(), n.clone()).prop_map(Array::U16),
        prop::collection::vec(any::<i16>(), n.clone()).prop_map(Array::I16),
        prop::collection::vec(any::<u32>(), n.clone()).prop_map(Array::U32),
        prop::collection::vec(any::<i32>(), n.clone()).prop_map(Array::I32),
        prop::collection::vec(any::<f32>(), n.clone()).prop_map(Array::F32),
        prop::collection::vec(any::<bool>(), n.clone()).prop_map(Array::Bool),
        prop::collection::vec(any::<u64>(), n.clone()).prop_map(Array::U64),
        prop::collection::vec(any::<i64>(), n.clone()).prop_map(Array::I64),
        prop::collection::vec(any::<f64>(), n).prop_map(Array::F64),
        string_array().prop_map(Array::String),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| prop::collection::vec(inner, 0..4).prop_map(Array::Array))
}

fn value() -> impl Strategy<Value = Value> {
    prop_oneof![
        any::<u8>().prop_map(Value::U8),
        any::<i8>().prop_map(Value::I8),
        any::<u16>().prop_map(Value::U16),
        any::<i16>().prop_map(Value::I16),
        any::<u32>().prop_map(Value::U32),
        any::<i32>().prop_map(Value::I32),
        any::<f32>().prop_map(Value::F32),
        any::<bool>().prop_map(Value::Bool),
        prop::collection::vec(any::<u8>(), 0..20).prop_map(|b| Value::String(b.into())),
        any::<u64>().prop_map(Value::U64),
        any::<i64>().prop_map(Value::I64),
        any::<f64>().prop_map(Value::F64),
        array().prop_map(Value::Array),
    ]
}

/// Keys of any characters, and values.
fn metadata() -> impl Strategy<Value = Vec<(String, Value)>> {
    prop::collection::btree_map("\\PC{0,12}", value(), 0..8).prop_map(|m| m.into_iter().collect())
}

/// Tensors: dimensions, type, and a seed for the data.
fn tensors() -> impl Strategy<Value = Vec<(Vec<u64>, GgmlType, u8)>> {
    let one = (prop::collection::vec(0u64..4, 0..=4), prop::sample::select(GgmlType::ALL), any::<u8>());
    let whole_rows = one.prop_map(|(mut dims, ty, seed)| {
        match dims.first_mut() {
            Some(row) => *row *= ty.block_len(),
            None => dims.push(ty.block_len()),
        }
        (dims, ty, seed)
    });
    prop::collection::vec(whole_rows, 0..6)
}

fn data_of(dims: &[u64], ty: GgmlType, seed: u8) -> Vec<u8> {
    let len = ty.bytes_for(dims.iter().product()).expect("rows are whole");
    (0..len).map(|i| (i as u8).wrapping_mul(31).wrapping_add(seed)).collect()
}

fn assert_same(file: &Gguf, keys: &[(String, Value)]) {
    let found: Vec<_> = file.metadata().iter().collect();
    assert_eq!(found.len(), keys.len());
    for ((key, value), (found_key, found_value)) in keys.iter().zip(found) {
        assert_eq!((found_key, found_value), (key.as_str(), value));
        assert_eq!(file.metadata().get(key), Some(value));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn written_files_read_the_same(keys in metadata(), tensors in tensors(), log_alignment in prop::option::of(0u32..9)) {
        let mut writer = GgufWriter::new();
        keys.iter().for_each(|(key, v)| { writer.set(key, v.clone()); });
        let mut keys = keys;
        if let Some(log) = log_alignment {
            keys.retain(|(k, _)| k != "general.alignment");
            keys.push(("general.alignment".to_owned(), (1u32 << log).into()));
            writer.alignment(1 << log);
        }
        for (i, (dims, ty, _)) in tensors.iter().enumerate() {
            writer.tensor(&format!("t{i}"), dims, *ty).expect("rows are whole");
        }
        let mut bytes = Vec::new();
        let mut out = writer.write_to(&mut bytes).expect("it is valid");
        for (dims, ty, seed) in &tensors {
            let data = data_of(dims, *ty, *seed);
            // In two pieces, to test appending.
            let (a, b) = data.split_at(data.len() / 3);
            if !data.is_empty() {
                out.append(a).expect("it fits").append(b).expect("it fits");
            }
        }
        out.finish().expect("all is written");

        let file = Gguf::from_bytes(bytes).expect("it opens");
        prop_assert_eq!((file.version(), file.byte_order()), (3, ByteOrder::Little));
        assert_same(&file, &keys);
        prop_assert_eq!(file.tensors().len(), tensors.len());
        for (i, (dims, ty, seed)) in tensors.iter().enumerate() {
            let t = file.tensor(&format!("t{i}")).expect("it is there");
            prop_assert_eq!((t.dims(), t.ggml_type()), (&dims[..], Some(*ty)));
            prop_assert_eq!(t.shape(), dims.iter().rev().copied().collect::<Vec<_>>());
            prop_assert!(t.offset().is_multiple_of(file.alignment()));
            let data = file.data(t).expect("its data");
            prop_assert_eq!(data.bytes(), &data_of(dims, *ty, *seed)[..]);
        }
    }

    #[test]
    fn every_version_and_order_reads_the_same(keys in metadata(), version in 1u32..=3, big: bool) {
        let mut e = Encoder::new(version, big, 0, keys.len() as u64);
        keys.iter().for_each(|(key, v)| { e.key(key, v); });
        let file = Gguf::from_bytes(e.done()).expect("it opens");
        prop_assert_eq!(file.version(), version);
        prop_assert_eq!(file.byte_order() == ByteOrder::Big, big);
        assert_same(&file, &keys);
    }
}

#[test]
fn both_orders_and_all_versions_hold_the_same_tensors() {
    let plain: Vec<u8> = samples::plain().iter().flat_map(|x| x.to_le_bytes()).collect();
    for (version, big) in [(1, false), (1, true), (2, false), (2, true), (3, false), (3, true)] {
        let file = Gguf::from_bytes(samples::full(version, big)).expect("it opens");
        for (key, value) in samples::values() {
            assert_eq!(file.metadata().get(key), Some(&value), "{key}");
        }
        assert_eq!(file.data_of("plain").expect("plain").bytes(), plain, "version {version}, big {big}");
        assert!(file.data_of("empty").expect("empty").bytes().is_empty());
        let blocks = file.tensor("blocks").expect("it is there");
        assert_eq!(file.raw_data(blocks).expect("raw").bytes(), samples::blocks());
        let mut want = samples::blocks();
        if big {
            want.swap(0, 1);
        }
        assert_eq!(file.data(blocks).expect("data").bytes(), want, "version {version}, big {big}");
    }
}

/// A big-endian file of two blocks.
fn big_blocks(ty: GgmlType, bytes: &[u8]) -> Gguf {
    let mut e = Encoder::new(3, true, 1, 0);
    e.tensor("t", &[2 * ty.block_len()], ty.id(), 0).pad(32).raw(bytes);
    Gguf::from_bytes(e.done()).expect("it opens")
}

/// By what stands where in the documents of the formats (and in `ogive-tensor`): halves, and the fifth bits of Q5_0 and Q5_1.
#[test]
fn blocks_of_a_big_endian_file_are_swapped_where_they_have_numbers() {
    let halves: [(GgmlType, &[usize]); 18] = [
        (GgmlType::Q4_0, &[0]),
        (GgmlType::Q4_1, &[0, 2]),
        (GgmlType::Q5_0, &[0]),
        (GgmlType::Q5_1, &[0, 2]),
        (GgmlType::Q8_0, &[0]),
        (GgmlType::Q2_K, &[80, 82]),
        (GgmlType::Q3_K, &[108]),
        (GgmlType::Q4_K, &[0, 2]),
        (GgmlType::Q5_K, &[0, 2]),
        (GgmlType::Q6_K, &[208]),
        (GgmlType::IQ4_NL, &[0]),
        (GgmlType::IQ4_XS, &[0, 2]),
        (GgmlType::IQ2_S, &[0]),
        (GgmlType::IQ3_S, &[0]),
        (GgmlType::TQ1_0, &[52]),
        (GgmlType::TQ2_0, &[64]),
        (GgmlType::MXFP4, &[]),
        (GgmlType::NVFP4, &[]),
    ];
    for &ty in GgmlType::ALL.iter().filter(|t| !t.is_plain()) {
        let size = ty.block_bytes() as usize;
        let little: Vec<u8> = (0..2 * size).map(|i| (i * 7 + i / 256) as u8).collect();
        let mut big = little.clone();
        let known = halves.iter().find(|(of, _)| *of == ty);
        for block in big.chunks_exact_mut(size) {
            known.iter().flat_map(|(_, at)| *at).for_each(|at| block.swap(*at, at + 1));
            match ty {
                GgmlType::Q5_0 => block[2..6].reverse(),
                GgmlType::Q5_1 => block[4..8].reverse(),
                _ => {}
            }
        }
        let file = big_blocks(ty, &big);
        let t = file.tensor("t").expect("it is there");
        assert_eq!(file.raw_data(t).expect("raw").bytes(), big, "{ty}");
        match file.data(t) {
            Ok(data) if known.is_some() => assert_eq!(data.bytes(), little, "{ty}"),
            Err(Error::BigEndianBlocks { name, type_name }) if known.is_none() => {
                assert_eq!((name.as_str(), type_name), ("t", ty.name()));
            }
            other => panic!("{ty}: {other:?}"),
        }
    }
}

#[test]
fn every_plain_type_of_a_big_endian_file_is_swapped() {
    for &ty in GgmlType::ALL.iter().filter(|t| t.is_plain()) {
        let width = ty.block_bytes() as usize;
        let big: Vec<u8> = (0..3 * width as u8).collect();
        let mut e = Encoder::new(3, true, 1, 0);
        e.tensor("t", &[3], ty.id(), 0).pad(32).raw(&big);
        let file = Gguf::from_bytes(e.done()).expect("it opens");
        let little: Vec<u8> = big.chunks(width).flat_map(|c| c.iter().rev().copied()).collect();
        assert_eq!(file.data_of("t").expect("data").bytes(), little, "{ty}");
        let t = file.tensor("t").expect("it is there");
        assert_eq!(file.raw_data(t).expect("raw").bytes(), big, "{ty}");
    }
}

#[test]
fn nan_keeps_its_bits() {
    let bits = 0x7fc0_1234;
    let mut out = Vec::new();
    GgufWriter::new().set("nan", f32::from_bits(bits)).write_to(&mut out).unwrap().finish().unwrap();
    let file = Gguf::read(&out[..]).expect("it opens");
    assert!(matches!(file.metadata().get("nan"), Some(Value::F32(x)) if x.to_bits() == bits));
}
