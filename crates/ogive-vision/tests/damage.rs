//! Damaged files and images of extreme proportions: an error or an image, never a panic, and never more memory than is stated.

#[path = "common/touch.rs"]
mod touch;

use ogive_vision::Image;
use std::path::Path;
use touch::{prepare, processors, touch};

/// The files of `tests/data`.
fn files() -> Vec<(String, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let paths = folder.read_dir().unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = paths
        .filter(|path| path.extension().is_some_and(|end| end != "json"))
        .map(|path| (path.file_name().unwrap().to_str().unwrap().to_owned(), std::fs::read(path).unwrap()))
        .filter(|(_, bytes)| bytes.len() < 4000)
        .collect();
    files.sort();
    assert_eq!(files.len(), 15);
    files
}

#[test]
fn cut_off_files_are_refused() {
    for (name, bytes) in files() {
        for len in (0..bytes.len() - 12).step_by(1 + bytes.len() / 97) {
            let e = Image::decode(&bytes[..len]).map(|_| ());
            let e = e.expect_err(&format!("{name} with {len} of {} bytes", bytes.len())).to_string();
            assert!(e.contains("is it complete?") || e.contains("convert it"), "{name}, {len}: {e}");
        }
    }
}

#[test]
fn changed_bytes_are_harmless() {
    let mut read = 0;
    for (_, mut bytes) in files() {
        for at in (0..bytes.len()).step_by(1 + bytes.len() / 151) {
            for change in [0xff, 0x01, 0x80] {
                bytes[at] ^= change;
                read += usize::from(touch(&bytes));
                bytes[at] ^= change;
            }
        }
    }
    // JPEG and WebP know no sums of their pixels.
    assert!(read > 100, "{read}");
}

#[test]
fn other_files_are_named() {
    let said = |bytes: &[u8]| Image::decode(bytes).unwrap_err().to_string();
    assert_eq!(
        said(b"GIF89a\x01\0\x01\0\0\0\0;"),
        "image: this is a Gif file, and PNG, JPEG and WebP are read; convert it to one of them"
    );
    assert!(said(b"hello").contains("of no kind that is known here"));
    assert!(said(b"").contains("of no kind that is known here"));
    let none = Image::open("no/such.png").unwrap_err().to_string();
    assert!(none.starts_with("image no/such.png: "), "{none}");
}

#[test]
fn what_claims_to_be_large_is_refused_first() {
    let (_, mut png) = files().into_iter().find(|(name, _)| name == "grey.png").unwrap();
    png[16..24].copy_from_slice(&[0, 0, 0xff, 0xff, 0, 0, 0xff, 0xff]);
    // The head's checksum is wrong then, so that it is made anew.
    let sum = crc(&png[12..29]).to_be_bytes();
    png[29..33].copy_from_slice(&sum);
    let e = Image::decode(&png).unwrap_err().to_string();
    assert!(e.contains("65535 x 65535 pixels are too many") && e.contains("make it smaller"), "{e}");
}

/// PNG's checksum.
fn crc(bytes: &[u8]) -> u32 {
    let step = |crc: u32, _| if crc & 1 == 1 { 0xedb8_8320 ^ crc >> 1 } else { crc >> 1 };
    !bytes.iter().fold(!0, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), step))
}

#[test]
fn extreme_proportions() {
    let sizes = [(1, 20_000), (20_000, 1), (1, 65_535), (65_535, 1), (65_535, 3), (2, 401), (1, 1), (3, 2)];
    for (width, height) in sizes {
        let image = Image::new(width, height, vec![200; width * height * 3]).unwrap();
        processors().iter().for_each(|processor| prepare(processor, &image));
    }
    // All families but Qwen's, which has a limit, read long and narrow ones.
    let image = Image::new(20_000, 1, vec![200; 60_000]).unwrap();
    let read = processors().iter().filter(|processor| processor.prepare(&image).is_ok()).count();
    assert_eq!(read, processors().len() - 2);
}
