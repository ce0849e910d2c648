//! The writer: what it refuses, and that nothing half-written has the final name.

mod common;

use std::fs;
use std::path::Path;

use gguf_file::{Array, Error, GgmlType, Gguf, GgufWriter, Value};

/// A writer of two tensors of 8 and 4 bytes, and one without elements between them.
fn two() -> GgufWriter {
    let mut writer = GgufWriter::new();
    writer.set("key", "value");
    writer.tensor("a", &[2], GgmlType::F32).expect("valid");
    writer.tensor("void", &[0, 5], GgmlType::F32).expect("valid");
    writer.tensor("b", &[4], GgmlType::I8).expect("valid");
    writer
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("the folder can be listed");
    entries.map(|e| e.expect("an entry").file_name().into_string().expect("text")).collect()
}

#[test]
fn the_name_comes_last() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("model.gguf");
    let mut data = two().create(&path).expect("it can be created");
    assert!(!path.exists());
    assert_eq!(names(folder.path()).len(), 1, "the temporary file lies beside");
    data.write_data("a", &[1; 8]).expect("in turn").write_data("b", &[2; 4]).expect("in turn");
    assert!(!path.exists());
    data.finish().expect("all is written");
    assert_eq!(names(folder.path()), ["model.gguf"]);
    let file = Gguf::open(&path).expect("it opens");
    assert_eq!(file.data_of("b").expect("b").bytes(), [2; 4]);
    assert!(file.data_of("void").expect("void").bytes().is_empty());
}

#[test]
fn what_is_not_finished_leaves_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("model.gguf");
    let mut data = two().create(&path).expect("it can be created");
    data.write_data("a", &[1; 8]).expect("in turn");
    drop(data);
    assert!(names(folder.path()).is_empty());

    let mut data = two().create(&path).expect("it can be created");
    data.append(&[1; 3]).expect("a part");
    let message = data.finish().expect_err("data are missing").to_string();
    assert!(message.contains("`a` 3 of 8 bytes"), "{message}");
    assert!(names(folder.path()).is_empty());
}

#[test]
fn an_old_file_stays_until_the_new_one_is_whole_and_mapped_data_stay_after() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("model.gguf");
    let write = |byte: u8| {
        let mut data = two().create(&path).expect("it can be created");
        data.write_data("a", &[byte; 8]).expect("in turn").write_data("b", &[byte; 4]).expect("in turn");
        data
    };
    write(1).finish().expect("all is written");
    let old = Gguf::open(&path).expect("it opens").data_of("a").expect("a");
    let data = write(2);
    assert_eq!(Gguf::open(&path).expect("the old one").data_of("a").expect("a").bytes(), [1; 8]);
    data.finish().expect("all is written");
    assert_eq!(Gguf::open(&path).expect("the new one").data_of("a").expect("a").bytes(), [2; 8]);
    assert_eq!(old.bytes(), [1; 8]);
}

#[test]
fn data_out_of_turn_or_of_the_wrong_size_are_refused() {
    let mut out = Vec::new();
    let writer = two();
    let mut data = writer.write_to(&mut out).expect("valid");
    let says = |error: Option<Error>, part: &str| {
        let message = error.expect("it is refused").to_string();
        assert!(message.contains(part), "`{part}` is not in: {message}");
    };
    says(data.write_data("b", &[0; 4]).err(), "`b` are given where those of `a` are due");
    says(data.write_data("a", &[0; 7]).err(), "takes 8 bytes, but 7");
    says(data.write_data("a", &[0; 9]).err(), "takes 8 bytes, but 9");
    says(data.append(&[0; 9]).err(), "takes 8 more bytes");
    data.append(&[1; 5]).expect("a part");
    says(data.write_data("a", &[0; 8]).err(), "5 bytes of `a` are written already");
    says(data.append(&[0; 4]).err(), "takes 3 more bytes");
    data.append(&[2; 3]).expect("the rest");
    assert_eq!(data.next_tensor().expect("b is due").name(), "b");
    data.write_data("b", &[3; 4]).expect("in turn");
    says(data.append(&[0]).err(), "all tensors are written");
    data.finish().expect("refusals did no harm");
    let file = Gguf::from_bytes(out).expect("it opens");
    assert_eq!(file.data_of("a").expect("a").bytes(), [1, 1, 1, 1, 1, 2, 2, 2]);
}

#[test]
fn what_no_reader_would_take_is_not_written() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("model.gguf");
    let mut writer = GgufWriter::new();
    assert!(writer.tensor("t", &[100], GgmlType::Q8_0).is_err(), "part of a block");
    assert!(writer.tensor("t", &[1; 5], GgmlType::F32).is_err(), "five dimensions");
    assert!(writer.tensor("t", &[u64::MAX, 3], GgmlType::F32).is_err(), "too many elements");
    writer.tensor("t", &[1], GgmlType::F32).expect("valid");
    assert!(matches!(writer.tensor("t", &[2], GgmlType::F32), Err(Error::Duplicate { .. })));

    let mut nested = Array::U8(vec![1]);
    for _ in 0..16 {
        nested = Array::Array(vec![nested]);
    }
    assert!(GgufWriter::new().set("deep", Value::Array(nested)).create(&path).is_err());
    assert!(GgufWriter::new().alignment(48).create(&path).is_err());
    let mut large = GgufWriter::new();
    for name in ["a", "b", "c"] {
        large.tensor(name, &[1 << 60], GgmlType::F32).expect("each alone can be counted");
    }
    assert!(matches!(large.create(&path), Err(e) if matches!(e.kind(), Error::BadTensor { .. })));
    assert!(names(folder.path()).is_empty(), "nothing was created");
    let refused = |place: &str| {
        let e = GgufWriter::new().create(folder.path().join(place)).err().map(|e| e.to_string());
        e.expect("nothing can be written there")
    };
    assert!(refused("none/model.gguf").ends_with("there is no such folder; make it first"));
    assert!(refused("..").ends_with("this is a folder; name a file"));
}

#[test]
#[cfg(unix)]
fn what_a_link_leads_to_is_replaced() {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, link) = (folder.path().join("model.gguf"), folder.path().join("link.gguf"));
    fs::write(&path, b"old").expect("it can be written");
    std::os::unix::fs::symlink(&path, &link).expect("links are there");
    GgufWriter::new().create(&link).expect("it can be created").finish().expect("no data are due");
    assert!(fs::symlink_metadata(&link).expect("it is there").is_symlink());
    assert!(fs::read(&path).expect("it is there").starts_with(b"GGUF"));
}

/// A writer that fails after so many bytes.
struct Full(usize);

impl std::io::Write for Full {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let some = bytes.len().min(self.0);
        self.0 -= some;
        if some == 0 { Err(std::io::ErrorKind::StorageFull.into()) } else { Ok(some) }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_failed_write_cannot_be_finished() {
    assert!(matches!(two().write_to(Full(10)), Err(Error::Io { .. })));
    let mut whole = Vec::new();
    drop(two().write_to(&mut whole).expect("valid"));
    let mut data = two().write_to(Full(whole.len() + 4)).expect("the header fits");
    assert!(matches!(data.write_data("a", &[0; 8]), Err(Error::Io { .. })));
    assert!(matches!(data.write_data("a", &[0; 8]), Err(Error::Write { .. })));
    assert!(data.finish().is_err());
}

#[test]
fn metadata_of_another_file_can_be_kept() {
    let old = Gguf::from_bytes(common::samples::full(1, true)).expect("it opens");
    let mut out = Vec::new();
    let writer = GgufWriter::with_metadata(old.metadata().clone());
    writer.write_to(&mut out).expect("valid").finish().expect("no data are due");
    let new = Gguf::from_bytes(out).expect("it opens");
    assert_eq!(new.version(), 3);
    assert!(new.metadata().iter().eq(old.metadata().iter()));
}
