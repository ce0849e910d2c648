//! Typed access to metadata: what converts, what does not, and what the errors say.

use gguf_file::{Array, Error, Metadata, StringArray, Value};

fn sample() -> Metadata {
    let mut meta = Metadata::new();
    meta.set("small", 7u8).set("negative", -1i64).set("huge", u64::MAX).set("text", "hello");
    meta.set("half", 0.5f32).set("wide", 1e300f64).set("third", 1.0f64 / 3.0).set("inf", f64::INFINITY);
    meta.set("yes", true).set("one", 1u8);
    meta.set("layers", vec![4u8, 8]).set("mixed", vec![1i32, -1]).set("scores", vec![0.5f64, -2.0]);
    meta.set("none", Vec::<i64>::new()).set("flags", vec![true, false]);
    meta.set("words", Value::Array(Array::from_iter(["a", "b"])));
    meta
}

#[test]
fn integers_convert_where_they_fit() {
    let meta = sample();
    assert_eq!(meta.u8("small").unwrap(), 7);
    assert_eq!(meta.u16("small").unwrap(), 7);
    assert_eq!(meta.u32("small").unwrap(), 7);
    assert_eq!(meta.i32("small").unwrap(), 7);
    assert_eq!(meta.usize("small").unwrap(), 7);
    assert_eq!(meta.i64("negative").unwrap(), -1);
    assert_eq!(meta.i32("negative").unwrap(), -1);
    assert_eq!(meta.u64("huge").unwrap(), u64::MAX);
    for error in [meta.u64("negative").unwrap_err(), meta.opt_u32("negative").unwrap_err()] {
        assert!(matches!(&error, Error::OutOfRange { key, value, .. } if key == "negative" && value == "-1"));
    }
    let message = meta.i64("huge").unwrap_err().to_string();
    assert_eq!(message, "metadata key `huge` is 18446744073709551615, which does not fit an integer (i64)");
}

#[test]
fn floats_integers_and_bools_stay_apart() {
    let meta = sample();
    assert_eq!(meta.f32("half").unwrap(), 0.5);
    assert_eq!(meta.f64("half").unwrap(), 0.5);
    assert_eq!(meta.f32("third").unwrap(), 1.0 / 3.0);
    assert_eq!(meta.f32("inf").unwrap(), f32::INFINITY);
    assert!(matches!(meta.f32("wide"), Err(Error::OutOfRange { .. })));
    assert!(matches!(meta.f32("small"), Err(Error::WrongType { .. })));
    assert!(matches!(meta.u32("half"), Err(Error::WrongType { .. })));
    assert!(meta.bool("yes").unwrap());
    assert!(matches!(meta.bool("one"), Err(Error::WrongType { .. })));
    assert!(matches!(meta.u8("yes"), Err(Error::WrongType { .. })));
}

#[test]
fn missing_is_none_but_wrong_is_an_error() {
    let meta = sample();
    assert_eq!(meta.opt_u32("absent").unwrap(), None);
    assert_eq!(meta.opt_str("absent").unwrap(), None);
    assert_eq!(meta.opt_array_of_str("absent").unwrap(), None);
    assert_eq!(meta.u32("absent").unwrap_err().to_string(), "metadata key `absent` is missing");
    let message = meta.opt_u32("text").unwrap_err().to_string();
    assert_eq!(message, "metadata key `text` holds string, where an integer (u32) is expected");
    let message = meta.opt_str("words").unwrap_err().to_string();
    assert_eq!(message, "metadata key `words` holds an array of 2 string, where a string is expected");
}

#[test]
fn arrays_convert_as_their_elements_do() {
    let meta = sample();
    assert_eq!(*meta.array_of_u32("layers").unwrap(), [4, 8]);
    assert_eq!(*meta.array_of_i32("mixed").unwrap(), [1, -1]);
    assert!(matches!(meta.array_of_u64("mixed"), Err(Error::OutOfRange { .. })));
    assert!(matches!(meta.array_of_u32("scores"), Err(Error::WrongType { .. })));
    assert_eq!(*meta.array_of_f32("scores").unwrap(), [0.5, -2.0]);
    assert_eq!(meta.array_of_bool("flags").unwrap(), [true, false]);
    let words: Vec<_> = meta.array_of_str("words").unwrap().iter_str().map(Result::unwrap).collect();
    assert_eq!(words, ["a", "b"]);
    assert!(matches!(meta.array_of_str("layers"), Err(Error::WrongType { .. })));
    // An empty list is empty whatever its announced type.
    assert!(meta.array_of_str("none").unwrap().is_empty());
    assert!(meta.array_of_f32("none").unwrap().is_empty());
    assert!(meta.array_of_bool("none").unwrap().is_empty());
    assert_eq!(meta.array("layers").unwrap().as_u8(), Some(&[4, 8][..]));
    assert_eq!(meta.array("layers").unwrap().as_u32(), None);
}

#[test]
fn keys_keep_their_order_through_setting_and_removing() {
    let mut meta = Metadata::new();
    meta.set("a", 1u8).set("b", 2u8).set("c", 3u8).set("a", 4u8);
    assert_eq!(meta.iter().map(|(k, _)| k).collect::<Vec<_>>(), ["a", "b", "c"]);
    assert_eq!(meta.remove("a"), Some(Value::U8(4)));
    assert_eq!(meta.remove("a"), None);
    assert_eq!((meta.u8("b").unwrap(), meta.u8("c").unwrap(), meta.len()), (2, 3, 2));
    meta.set("a", 5u8);
    assert_eq!(meta.iter().map(|(k, _)| k).collect::<Vec<_>>(), ["b", "c", "a"]);
    assert!(meta.contains("a") && !meta.is_empty());
}

#[test]
fn string_arrays_give_each_string_back() {
    let strings: StringArray = [&b""[..], b"x", b"\xff", b""].into_iter().collect();
    assert_eq!(strings.len(), 4);
    assert_eq!(strings.iter().collect::<Vec<_>>(), [&b""[..], b"x", b"\xff", b""]);
    assert_eq!(strings.iter().next_back(), Some(&b""[..]));
    assert_eq!((strings.get(1), strings.get_str(1)), (Some(&b"x"[..]), Some("x")));
    assert_eq!((strings.get(2), strings.get_str(2)), (Some(&b"\xff"[..]), None));
    assert_eq!(strings.get(4), None);
    assert_eq!(strings.get(usize::MAX), None);
}

#[test]
fn values_print_for_people() {
    let meta = sample();
    let shown = |key: &str| meta.get(key).expect("it is there").to_string();
    assert_eq!(shown("text"), "\"hello\"");
    assert_eq!(shown("words"), "[\"a\", \"b\"]");
    assert_eq!(shown("mixed"), "[1, -1]");
    assert_eq!(Value::from((0..10u32).collect::<Vec<_>>()).to_string(), "[0, 1, 2, 3, 4, 5, ... 10 in all]");
}
