//! The fuzzer's seed corpus, replayed on every run of the tests. `cargo test -p ogive-vision --test corpus -- --ignored` writes
//! the seeds anew: small files of `tests/data`, whole and with lies in them.

#[path = "common/touch.rs"]
mod touch;

use std::path::{Path, PathBuf};
use touch::touch;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/image")
}

/// Name, bytes, and whether there is an image in them.
fn seeds() -> Vec<(String, Vec<u8>, bool)> {
    let read = |name: &str| {
        std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)).unwrap()
    };
    let whole =
        ["dot.png", "grey.png", "bits.png", "palette.png", "alpha.png", "deep.png", "grey.jpg", "turned.jpg"];
    let whole = whole.into_iter().chain(["full.jpg", "lossy.webp", "lossless.webp"]);
    let mut seeds: Vec<_> = whole.map(|name| (name.to_owned(), read(name), true)).collect();
    let mut lie = |name: &str, bytes: Vec<u8>| seeds.push((name.to_owned(), bytes, false));
    for name in ["grey.png", "turned.jpg", "lossy.webp"] {
        let bytes = read(name);
        lie(&format!("half-{name}"), bytes[..bytes.len() / 2].to_vec());
    }
    // Sizes in the heads: of a PNG file, whose checksum is wrong then, of a JPEG file and of a WebP file.
    let mut png = read("grey.png");
    png[16..24].fill(0x7f);
    lie("large.png", png);
    let mut jpeg = read("grey.jpg");
    let frame = jpeg.windows(2).position(|pair| pair == [0xff, 0xc0]).unwrap();
    jpeg[frame + 5..frame + 9].fill(0xff);
    lie("large.jpg", jpeg);
    let mut webp = read("lossless.webp");
    webp[21..25].fill(0xff);
    lie("large.webp", webp);
    lie("empty", Vec::new());
    lie("other.gif", b"GIF89a\x01\0\x01\0\0\0\0;".to_vec());
    seeds
}

#[test]
fn every_seed_behaves() {
    for (name, bytes, whole) in seeds() {
        assert_eq!(touch(&bytes), whole, "{name}");
    }
}

#[test]
fn every_file_of_the_corpus_is_harmless() {
    // A packaged crate has no folder beside it: then there are the seeds as they would be written.
    let Ok(files) = std::fs::read_dir(folder()) else { return };
    let read = files.map(|file| touch(&std::fs::read(file.unwrap().path()).unwrap()));
    let read: Vec<bool> = read.collect();
    let whole = read.iter().filter(|whole| **whole).count();
    assert!(whole >= 11 && read.len() - whole >= 8, "{whole} of {}", read.len());
}

#[test]
#[ignore = "writes the corpus"]
fn write_the_corpus() {
    std::fs::create_dir_all(folder()).unwrap();
    for (name, bytes, _) in seeds() {
        std::fs::write(folder().join(name), bytes).unwrap();
    }
}
