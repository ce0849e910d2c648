//! Ways to open: mapped, read, from memory, from a pipe; and what the errors of the file system say.

mod common;

use std::fs;
use std::sync::Arc;
use std::thread;

use common::samples;
use gguf_file::{Error, Gguf, TensorData};

#[test]
fn all_ways_give_the_same() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("small.gguf");
    fs::write(&path, samples::small()).expect("it can be written");
    let bytes: &'static [u8] = samples::small().leak();
    let files = [
        Gguf::open(&path),
        Gguf::open_in_memory(&path),
        Gguf::read(fs::File::open(&path).expect("it opens")),
        Gguf::from_bytes(samples::small()),
        Gguf::from_bytes(bytes),
    ];
    for file in files {
        let file = file.expect("it opens");
        assert_eq!((file.alignment(), file.byte_len()), (16, samples::small().len() as u64));
        assert_eq!(file.data_of("x").expect("x").bytes(), [1, 2, 3, 4]);
        assert_eq!(file.data_of("y").expect("y").bytes(), [7; 12]);
    }
}

#[test]
fn one_file_serves_many_threads_and_its_data_outlive_it() {
    let file = Arc::new(Gguf::from_bytes(samples::small()).expect("it opens"));
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let file = Arc::clone(&file);
            thread::spawn(move || file.data_of("y").expect("y"))
        })
        .collect();
    let data: Vec<TensorData> = threads.into_iter().map(|t| t.join().expect("no panic")).collect();
    drop(file);
    for TensorData { owner, range, .. } in data {
        assert_eq!(owner.as_ref()[range], [7; 12]);
    }
}

#[test]
fn errors_name_the_path_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let absent = folder.path().join("absent.gguf");
    let error = Gguf::open(&absent).expect_err("there is none");
    assert!(matches!(error.kind(), Error::Io { doing: "opening the file", .. }));
    assert_eq!(error.to_string().matches("absent.gguf").count(), 1, "{error}");

    let empty = folder.path().join("empty.gguf");
    fs::write(&empty, []).expect("it can be written");
    for error in [Gguf::open(&empty), Gguf::open_in_memory(&empty)].map(|r| r.expect_err("it is empty")) {
        assert!(matches!(error.kind(), Error::BadMagic { .. }), "{error}");
        assert_eq!(error.to_string().matches("empty.gguf").count(), 1, "{error}");
    }
    assert!(Gguf::open(folder.path()).is_err(), "a folder is no file");
}

#[cfg(target_os = "linux")]
#[test]
fn a_pipe_is_read_instead_of_mapped() {
    use std::io::Write;
    use std::os::fd::AsRawFd;

    let (reader, mut writer) = std::io::pipe().expect("a pipe");
    let thread = thread::spawn(move || writer.write_all(&samples::small()));
    let file = Gguf::open(format!("/dev/fd/{}", reader.as_raw_fd())).expect("it opens");
    thread.join().expect("no panic").expect("all is written");
    assert_eq!(file.data_of("x").expect("x").bytes(), [1, 2, 3, 4]);
}

#[test]
fn what_is_no_gguf_is_not_read_to_an_end_it_may_not_have() {
    let error = Gguf::read(std::io::repeat(b'x')).expect_err("that is none");
    assert!(matches!(error.kind(), Error::BadMagic { .. }), "{error}");
    #[cfg(unix)]
    for opened in [Gguf::open("/dev/zero"), Gguf::open_in_memory("/dev/zero")] {
        let error = opened.expect_err("that is none");
        assert!(matches!(error.kind(), Error::BadMagic { .. }), "{error}");
    }
}

/// Kilobytes of a mapped file that are in this process's memory.
#[cfg(target_os = "linux")]
fn resident(path: &std::path::Path) -> u64 {
    let maps = fs::read_to_string("/proc/self/smaps").expect("the system tells of maps");
    let name = path.to_str().expect("a name");
    let mut of_file = maps.lines().skip_while(|line| !line.ends_with(name));
    let line = of_file.find_map(|line| line.strip_prefix("Rss:")).expect("a map of the file");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

#[test]
#[cfg(target_os = "linux")]
fn released_bytes_leave_memory_and_come_back() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("large.bin");
    let written: Vec<u8> = (0..8 << 20).map(|i: u32| (i >> 8) as u8).collect();
    fs::write(&path, &written).expect("it can be written");
    let bytes = gguf_file::map_file(&path).expect("it can be mapped");
    assert!(bytes.as_ref() == written);
    assert_eq!(resident(&path), 8192);
    // Ranges need not be whole pages, nor lie inside.
    bytes.release(1_000_000..3_000_000);
    // Where the system maps in larger pieces, it takes whole ones.
    assert!(resident(&path) < 6400, "{} kB", resident(&path));
    bytes.release(0..usize::MAX);
    assert_eq!(resident(&path), 0);
    bytes.release(written.len() + 1..usize::MAX);
    #[allow(clippy::reversed_empty_ranges, reason = "it must do no harm")]
    bytes.release(5..3);
    assert!(bytes.as_ref() == written, "and they are what they were");
    // What is no map has nothing to give back.
    let read = gguf_file::read_file(&path).expect("it can be read");
    read.release(0..written.len());
    assert!(read.as_ref() == written);
}
