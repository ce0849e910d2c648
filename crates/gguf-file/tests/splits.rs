//! Split files: parts that belong together open as one; parts that do not are told apart.

mod common;

use std::fs;
use std::path::{Path, PathBuf};

use common::encode::Encoder;
use gguf_file::{Error, GgmlType, Gguf, split_file_name};

/// Part `no`, from 0, of `count`, with a tensor `name` of one element, `no`, and `total` tensors announced.
fn part(no: u16, count: u16, total: i32, name: &str) -> Vec<u8> {
    let mut e = Encoder::v3(1, 4);
    e.key("split.no", &no.into()).key("split.count", &count.into()).key("split.tensors.count", &total.into());
    e.key("who", &format!("part {no}").into());
    e.tensor(name, &[1], GgmlType::I32.id(), 0).pad(32).raw(&i32::from(no).to_le_bytes()).done()
}

/// Three good parts in a folder; gives the paths.
fn three(folder: &Path) -> Vec<PathBuf> {
    (0..3u16)
        .map(|no| {
            let path = folder.join(split_file_name("m", u64::from(no) + 1, 3));
            fs::write(&path, part(no, 3, 3, &format!("t{no}"))).expect("it can be written");
            path
        })
        .collect()
}

fn message(path: &Path) -> String {
    Gguf::open(path).expect_err("it does not open").to_string()
}

#[test]
fn the_first_part_opens_all() {
    let folder = tempfile::tempdir().expect("a folder");
    let paths = three(folder.path());
    for file in [Gguf::open(&paths[0]), Gguf::open_in_memory(&paths[0])] {
        let file = file.expect("it opens");
        assert_eq!((file.parts(), file.tensors().len()), (3, 3));
        assert_eq!(file.metadata().str("who").expect("a string"), "part 0");
        for no in 0..3i32 {
            let t = file.tensor(&format!("t{no}")).expect("it is there");
            assert_eq!(t.part() as i32, no);
            assert_eq!(file.data(t).expect("data").bytes(), no.to_le_bytes());
        }
        let bytes: u64 = paths.iter().map(|p| p.metadata().expect("size").len()).sum();
        assert_eq!(file.byte_len(), bytes);
    }
}

#[test]
fn data_outlive_the_file_and_its_name() {
    let folder = tempfile::tempdir().expect("a folder");
    let paths = three(folder.path());
    let data = Gguf::open(&paths[0]).expect("it opens").data_of("t2").expect("data");
    drop(folder);
    assert_eq!(data.bytes(), 2i32.to_le_bytes());
}

#[test]
fn other_parts_name_the_first() {
    let folder = tempfile::tempdir().expect("a folder");
    let paths = three(folder.path());
    let message = message(&paths[1]);
    assert!(message.contains("part 2 of 3") && message.contains("`m-00001-of-00003.gguf`"), "{message}");
}

#[test]
fn a_missing_part_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let paths = three(folder.path());
    fs::remove_file(&paths[2]).expect("it can be removed");
    let error = Gguf::open(&paths[0]).expect_err("a part is missing");
    assert!(error.to_string().contains("m-00003-of-00003.gguf"), "{error}");
    assert!(matches!(error.kind(), Error::Io { .. }));
}

#[test]
fn a_part_that_stands_for_another_is_found_out() {
    // A copy, and where links can be made a cycle: part 3 is part 1 again.
    let folder = tempfile::tempdir().expect("a folder");
    let paths = three(folder.path());
    fs::copy(&paths[1], &paths[2]).expect("it can be copied");
    let text = message(&paths[0]);
    assert!(text.contains("00003-of-00003") && text.contains("says it is part 2 of 3"), "{text}");
    #[cfg(unix)]
    {
        fs::remove_file(&paths[2]).expect("it can be removed");
        std::os::unix::fs::symlink(&paths[0], &paths[2]).expect("it can be linked");
        let text = message(&paths[0]);
        assert!(text.contains("says it is part 1 of 3"), "{text}");
    }
}

#[test]
fn parts_of_other_splits_and_whole_files_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let paths = three(folder.path());
    for (bytes, says) in [
        (part(1, 4, 3, "t1"), "says it is part 2 of 4"),
        (part(7, 3, 3, "t1"), "part 7 (from 0) of 3"),
        (common::samples::small(), "the file is whole"),
        (part(1, 3, 3, "t0"), "tensor `t0` stands in the file twice"),
        (b"nonsense".to_vec(), "not a GGUF file"),
    ] {
        fs::write(&paths[1], bytes).expect("it can be written");
        let text = message(&paths[0]);
        assert!(text.contains(says), "`{says}` is not in: {text}");
    }
}

#[test]
fn the_number_of_tensors_must_be_the_announced_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let paths = three(folder.path());
    fs::write(&paths[0], part(0, 3, 4, "t0")).expect("it can be written");
    let text = message(&paths[0]);
    assert!(text.contains("4 tensors are announced") && text.contains("have 3"), "{text}");
    fs::write(&paths[0], part(0, 3, -1, "t0")).expect("it can be written");
    assert!(message(&paths[0]).contains("`split.tensors.count` is -1"));
}

#[test]
fn a_first_part_under_another_name_cannot_find_the_rest() {
    let folder = tempfile::tempdir().expect("a folder");
    let paths = three(folder.path());
    for name in ["model.gguf", "m-00001-of-00002.gguf", "m-1-of-3.gguf"] {
        let other = folder.path().join(name);
        fs::copy(&paths[0], &other).expect("it can be copied");
        let text = message(&other);
        assert!(text.contains("must be called `NAME-00001-of-00003.gguf`"), "{text}");
    }
}

#[test]
fn a_huge_count_costs_nothing() {
    let mut e = Encoder::v3(0, 2);
    e.key("split.no", &0u8.into()).key("split.count", &u64::MAX.into());
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join(split_file_name("m", 1, u64::MAX));
    fs::write(&path, e.done()).expect("it can be written");
    assert!(message(&path).contains("00002-of-18446744073709551615"));
}

#[test]
fn parts_in_memory() {
    let parts = || (0..3u16).map(|no| part(no, 3, 3, &format!("t{no}")));
    let file = Gguf::from_parts(parts()).expect("it opens");
    assert_eq!(file.data_of("t1").expect("data").bytes(), 1i32.to_le_bytes());
    let refused = |parts: Vec<Vec<u8>>| Gguf::from_parts(parts).expect_err("it does not open").to_string();
    assert!(refused(parts().take(2).collect()).contains("3 parts but 2 were given"));
    assert!(refused(parts().skip(1).collect()).contains("open the first part"));
    assert!(refused(parts().chain([part(2, 3, 3, "x")]).collect()).contains("more parts were given"));
    assert!(refused(vec![]).contains("no parts"));
    assert!(refused(vec![common::samples::small(), part(1, 3, 3, "x")]).contains("more parts"));
    let first = part(0, 3, 3, "t0");
    assert!(Gguf::read(&first[..]).expect_err("one of three").to_string().contains("3 parts"));
}

#[test]
fn a_split_into_one_is_whole() {
    let file = Gguf::from_bytes(part(0, 1, 1, "t0")).expect("it opens");
    assert_eq!((file.parts(), file.tensors().len()), (1, 1));
}
