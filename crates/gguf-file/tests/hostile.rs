//! Lying files: each says one thing that is not so, and the error says which.

mod common;

use common::encode::Encoder;
use common::samples;
use gguf_file::{Error, GgmlType, Gguf, Value};

const F32: u32 = GgmlType::F32 as u32;
const Q4_K: u32 = GgmlType::Q4_K as u32;

/// The message of the error that opening these bytes must give.
fn refused(e: &Encoder) -> String {
    match Gguf::from_bytes(e.done()) {
        Ok(_) => panic!("the file opened: {:?}", String::from_utf8_lossy(&e.out)),
        Err(e) => e.to_string(),
    }
}

fn assert_says(message: &str, parts: &[&str]) {
    for part in parts {
        assert!(message.contains(part), "`{part}` is not in: {message}");
    }
}

#[test]
fn what_is_no_gguf_file() {
    for (bytes, says) in [
        (&b""[..], "not a GGUF file: it is empty"),
        (b"GG", "not a GGUF file"),
        (b"a\n\0\xffz", "begins with \"a\\n\\x00\\xff\","),
        (b"<html>", "begins with \"<htm\""),
        (b"GGUF\x04\0\0\0", "version 4 is unknown"),
        (b"GGUF\0\0\0\0", "version 0 is unknown"),
        (b"GGUF\x03\0\0", "the version"),
        (b"GGUF\x03\0\0\0\0\0", "the tensor count"),
    ] {
        assert_says(&Gguf::from_bytes(bytes).unwrap_err().to_string(), &[says]);
    }
}

#[test]
fn counts_that_the_file_cannot_hold() {
    assert_says(&refused(&Encoder::v3(u64::MAX, 0)), &["the tensor count", "truncated"]);
    assert_says(&refused(&Encoder::v3(0, 1 << 40)), &["the metadata count", "truncated"]);
    for (id, name) in [(0, "u8"), (4, "u32"), (7, "bool"), (8, "string"), (9, "array"), (12, "f64")] {
        for count in [u64::MAX, 1 << 61, 1 << 40, 100] {
            let mut e = Encoder::v3(0, 1);
            e.string(b"list").u32(9).u32(id).count(count).raw(&[0; 32]);
            assert_says(&refused(&e), &["reading list", "truncated"]);
        }
        assert_ne!(name, "");
    }
    let mut e = Encoder::v3(0, 1);
    e.string(b"text").u32(8).count(u64::MAX - 3);
    assert_says(&refused(&e), &["reading text", "18446744073709551612 bytes"]);
    let mut e = Encoder::v3(0, 1);
    e.count(1 << 50).raw(&[b'k'; 40]);
    assert_says(&refused(&e), &["a metadata key"]);
}

#[test]
fn keys_and_values_the_format_does_not_know() {
    let mut e = Encoder::v3(0, 1);
    e.string(b"odd").u32(13).raw(&[0; 8]);
    assert_says(&refused(&e), &["`odd`", "value type 13 is unknown"]);

    let mut e = Encoder::v3(0, 1);
    e.string(b"odd").u32(9).u32(99).count(0);
    assert_says(&refused(&e), &["`odd`", "value type 99 is unknown"]);

    let mut e = Encoder::v3(0, 1);
    e.string(b"truth").u32(7).raw(&[2]);
    assert_says(&refused(&e), &["`truth`", "stored as 2"]);

    let mut e = Encoder::v3(0, 1);
    e.string(b"truths").u32(9).u32(7).count(3).raw(&[0, 1, 255]);
    assert_says(&refused(&e), &["`truths`", "stored as 255"]);

    let mut e = Encoder::v3(0, 1);
    e.string(b"\xff\xfekey").u32(0).raw(&[0; 8]);
    assert_says(&refused(&e), &["a metadata key at byte 24", "not UTF-8"]);

    let mut e = Encoder::v3(0, 2);
    e.key("twice", &1u8.into()).key("twice", &2u8.into());
    assert_says(&refused(&e), &["metadata key `twice`", "twice"]);
}

#[test]
fn arrays_nest_to_a_limit() {
    assert!(Gguf::from_bytes(samples::nested(16)).is_ok());
    for depth in [17, 18, 1000, 100_000] {
        let error = Gguf::from_bytes(samples::nested(depth)).unwrap_err().to_string();
        assert_says(&error, &["`deep`", "more than 16 deep"]);
    }
}

#[test]
fn alignments_that_are_none() {
    for bad in [0u32, 3, 33, u32::MAX] {
        let mut e = Encoder::v3(0, 1);
        e.key("general.alignment", &bad.into());
        assert_says(&refused(&e), &["`general.alignment`", &bad.to_string(), "power of two"]);
    }
    let mut e = Encoder::v3(0, 1);
    e.key("general.alignment", &"32".into());
    assert_says(&refused(&e), &["`general.alignment`", "string"]);
    let mut e = Encoder::v3(0, 1);
    e.key("general.alignment", &(-32i32).into());
    assert_says(&refused(&e), &["`general.alignment`", "-32"]);
    // Allowed, large as it is, as long as nothing has to lie behind it.
    let mut e = Encoder::v3(0, 1);
    e.key("general.alignment", &(1u32 << 31).into());
    assert_eq!(Gguf::from_bytes(e.done()).expect("it opens").alignment(), 1 << 31);
    let mut e = Encoder::v3(1, 1);
    e.key("general.alignment", &(1u32 << 31).into()).tensor("far", &[1], F32, 0).raw(&[0; 64]);
    assert_says(&refused(&e), &["`far`", "past the end"]);
}

#[test]
fn dimensions_that_make_no_sense() {
    for (dims, ty, says) in [
        (&[u64::MAX, 2][..], F32, "more elements than can be counted"),
        (&[1 << 32, 1 << 31], F32, "more elements than can be counted"),
        (&[1 << 62], F32, "more bytes than can be counted"),
        (&[1 << 61], F32, "past the end"),
        (&[1, 1, 1, 1, 1], F32, "5 dimensions"),
        (&[128, 2], Q4_K, "no whole number of Q4_K blocks of 256"),
        (&[], Q4_K, "no whole number of Q4_K blocks"),
    ] {
        let mut e = Encoder::v3(1, 0);
        e.tensor("odd", dims, ty, 0).pad(32).raw(&[0; 256]);
        assert_says(&refused(&e), &["`odd`", says]);
    }
    let mut e = Encoder::v3(1, 0);
    e.string(b"odd").u32(u32::MAX).raw(&[0; 64]);
    assert_says(&refused(&e), &["`odd`", "4294967295 dimensions"]);
}

#[test]
fn tensors_that_lie_where_they_cannot() {
    let mut e = Encoder::v3(1, 0);
    e.tensor("off", &[1], F32, 4).pad(32).raw(&[0; 64]);
    assert_says(&refused(&e), &["`off`", "offset 4", "alignment 32"]);

    for offset in [64, 1 << 40, u64::MAX - 31] {
        let mut e = Encoder::v3(1, 0);
        e.tensor("far", &[1], F32, offset).pad(32).raw(&[0; 64]);
        assert_says(&refused(&e), &["`far`", "past the end", "truncated"]);
    }

    // The same place twice, and one inside another; in file order and not.
    for (a, b) in [(0, 0), (0, 32), (32, 0)] {
        let mut e = Encoder::v3(2, 0);
        e.tensor("a", &[12], F32, a).tensor("b", &[12], F32, b).pad(32).raw(&[0; 96]);
        assert_says(&refused(&e), &["overlap", "`a`", "`b`"]);
    }

    let mut e = Encoder::v3(2, 0);
    e.tensor("same", &[1], F32, 0).tensor("same", &[1], F32, 32).pad(32).raw(&[0; 64]);
    assert_says(&refused(&e), &["tensor `same`", "twice"]);

    let mut e = Encoder::v3(1, 0);
    e.string(b"\xc0name").u32(0).raw(&[0; 32]);
    assert_says(&refused(&e), &["a tensor's name", "not UTF-8"]);
}

#[test]
fn gaps_and_any_order_are_allowed() {
    let mut e = Encoder::v3(2, 0);
    e.tensor("b", &[1], F32, 128).tensor("a", &[1], F32, 0).pad(32);
    let start = e.out.len();
    e.raw(&[0; 132]);
    e.out[start] = 1;
    e.out[start + 128] = 2;
    let file = Gguf::from_bytes(e.done()).expect("it opens");
    assert_eq!(file.data_of("a").expect("a").bytes(), [1, 0, 0, 0]);
    assert_eq!(file.data_of("b").expect("b").bytes(), [2, 0, 0, 0]);
}

#[test]
fn unknown_element_types_harm_only_their_tensor() {
    let mut e = Encoder::v3(3, 1);
    e.key("answer", &42u8.into());
    e.tensor("new", &[100, 7], 1000, 0).tensor("old", &[2], F32, 64).tensor("repacked", &[256], 31, 96);
    e.pad(32).raw(&[9; 128]);
    let file = Gguf::from_bytes(e.done()).expect("it opens");
    assert_eq!(file.metadata().u32("answer").expect("42"), 42);
    assert_eq!(file.data_of("old").expect("data").bytes(), [9; 8]);
    let new = file.tensor("new").expect("it is there");
    assert_eq!((new.type_id(), new.ggml_type(), new.byte_len()), (1000, None, None));
    let error = file.data(new).unwrap_err();
    assert!(matches!(&error, Error::UnknownType { name, type_id: 1000, .. } if name == "new"));
    assert_says(&error.to_string(), &["`new`", "element type 1000", "Q4_K (12)", "MXFP4 (39)"]);
    assert_says(&file.data_of("repacked").unwrap_err().to_string(), &["`repacked`", "type 31", "withdrawn"]);
    assert_says(&file.raw_data(new).unwrap_err().to_string(), &["`new`"]);
    assert_says(&file.data_of("none").unwrap_err().to_string(), &["no tensor `none`"]);
}

#[test]
fn a_description_of_another_file_is_no_way_out_of_this_one() {
    let mut e = Encoder::v3(1, 0);
    e.tensor("big", &[1000], F32, 0).pad(32).raw(&[0; 4000]);
    let large = Gguf::from_bytes(e.done()).expect("it opens");
    let small = Gguf::from_bytes(samples::small()).expect("it opens");
    let foreign = large.tensor("big").expect("it is there");
    assert!(matches!(small.data(foreign), Err(Error::NoSuchTensor { .. })));
}

#[test]
fn strings_that_are_no_text_keep_their_bytes() {
    let bytes = b"\xe2\x96\xffx".to_vec();
    let mut e = Encoder::v3(0, 1);
    e.key("piece", &Value::String(bytes.clone().into()));
    let file = Gguf::from_bytes(e.done()).expect("it opens");
    let meta = file.metadata();
    assert_eq!(meta.bytes("piece").expect("bytes"), bytes);
    assert_says(&meta.str("piece").unwrap_err().to_string(), &["`piece`", "not UTF-8", "bytes"]);
}
