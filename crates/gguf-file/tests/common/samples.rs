//! Small files that between them hold everything the format has. The tests and the fuzzer's seed corpus use them.

use gguf_file::{Array, GgmlType, StringArray, Value};

use super::encode::Encoder;

/// One value of each type, and arrays of each, nested too.
pub(crate) fn values() -> Vec<(&'static str, Value)> {
    let strings: StringArray = [&b"a"[..], b"", b"\xff\xfe", "\u{2581}the".as_bytes()].into_iter().collect();
    let nested = Array::Array(vec![
        Array::I16(vec![-1, 2]),
        Array::Array(vec![Array::from_iter(["x", "y"]), Array::F64(vec![])]),
    ]);
    vec![
        ("u8", 200u8.into()),
        ("i8", (-100i8).into()),
        ("u16", 60_000u16.into()),
        ("i16", (-30_000i16).into()),
        ("u32", 4_000_000_000u32.into()),
        ("i32", (-2_000_000_000i32).into()),
        ("f32", 1.5f32.into()),
        ("bool", true.into()),
        ("string", "text".into()),
        ("bytes", Value::String(vec![0xc3, 0x28].into())),
        ("u64", u64::MAX.into()),
        ("i64", i64::MIN.into()),
        ("f64", (-0.1f64).into()),
        ("a.u8", vec![1u8, 255].into()),
        ("a.i8", vec![-1i8].into()),
        ("a.u16", vec![1u16, 65_535].into()),
        ("a.i16", vec![i16::MIN, 7].into()),
        ("a.u32", vec![1u32, 2, 3].into()),
        ("a.i32", vec![-1i32, 1].into()),
        ("a.f32", vec![0.25f32, -8.0].into()),
        ("a.bool", vec![true, false, true].into()),
        ("a.string", strings.into()),
        ("a.nested", nested.into()),
        ("a.u64", vec![1u64 << 40].into()),
        ("a.i64", vec![-1i64 << 40].into()),
        ("a.f64", vec![1e300f64].into()),
    ]
}

/// The values of [`values`] and three tensors, of 6 `F32`, 32 `Q8_0` and no elements.
pub(crate) fn full(version: u32, big: bool) -> Vec<u8> {
    let values = values();
    let mut e = Encoder::new(version, big, 3, values.len() as u64);
    values.iter().for_each(|(key, v)| {
        e.key(key, v);
    });
    e.tensor("plain", &[3, 2], GgmlType::F32.id(), 0);
    e.tensor("blocks", &[32], GgmlType::Q8_0.id(), 32);
    e.tensor("empty", &[4, 0], GgmlType::F16.id(), 96);
    e.pad(32);
    for x in plain() {
        e.raw(&if big { x.to_be_bytes() } else { x.to_le_bytes() });
    }
    e.pad(32).raw(&blocks()).pad(32).done()
}

/// The elements of `plain`.
pub(crate) fn plain() -> [f32; 6] {
    [0.0, 1.0, -2.5, 3.25, f32::MAX, f32::MIN_POSITIVE]
}

/// The bytes of `blocks`.
pub(crate) fn blocks() -> [u8; 34] {
    std::array::from_fn(|i| i as u8)
}

/// A small file: three keys, two tensors.
pub(crate) fn small() -> Vec<u8> {
    let mut e = Encoder::v3(2, 3);
    e.key("general.alignment", &16u32.into());
    e.key("names", &Value::Array(Array::from_iter(["a", "bc"])));
    e.key("deep", &Value::Array(Array::Array(vec![Array::U8(vec![1]), Array::Bool(vec![true])])));
    e.tensor("x", &[2], GgmlType::F16.id(), 0).tensor("y", &[1, 3], GgmlType::I32.id(), 16);
    e.pad(16).raw(&[1, 2, 3, 4]).pad(16).raw(&[7; 12]).pad(16).done()
}

/// One key with arrays in arrays, `depth` deep.
pub(crate) fn nested(depth: u32) -> Vec<u8> {
    let mut e = Encoder::v3(0, 1);
    e.string(b"deep").u32(9);
    for _ in 1..depth {
        e.u32(9).count(1);
    }
    e.u32(0).count(1).raw(&[5]).done()
}

/// The files of the seed corpus: name and bytes, and whether they open.
pub(crate) fn seeds() -> Vec<(&'static str, Vec<u8>, bool)> {
    let mut unknown = Encoder::v3(1, 0);
    unknown.tensor("new", &[8], 1000, 0).pad(32).raw(&[0; 32]);
    let mut part = Encoder::v3(0, 3);
    part.key("split.no", &0u16.into())
        .key("split.count", &2u16.into())
        .key("split.tensors.count", &0i32.into());
    let mut lying = Encoder::v3(u64::MAX, u64::MAX);
    lying.raw(&[0; 64]);
    vec![
        ("small", small(), true),
        ("empty", Encoder::v3(0, 0).done(), true),
        ("full-v1-little", full(1, false), true),
        ("full-v1-big", full(1, true), true),
        ("full-v2-little", full(2, false), true),
        ("full-v3-little", full(3, false), true),
        ("full-v3-big", full(3, true), true),
        ("nested-16", nested(16), true),
        ("nested-17", nested(17), false),
        ("unknown-type", unknown.done(), true),
        ("one-part-of-two", part.done(), false),
        ("lying-counts", lying.done(), false),
    ]
}
