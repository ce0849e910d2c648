//! Damaged sessions: flipped, cut, stretched, with a checksum that is wrong and with one that is right. And the fuzzer's
//! seeds, replayed; `cargo test -p ogive-engine --test saved_damage -- --ignored` writes them anew.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

#[path = "common/touch.rs"]
mod touch;

use ogive_engine::backend::Vectors;
use ogive_engine::sampler::SamplerParams;
use ogive_engine::{Placed, Request};
use std::fs;
use std::path::{Path, PathBuf};
use touch::{DIM, MODEL, engine, sealed, touch, touch_both};

/// A session of so many tokens.
fn session(prompt: usize, n: usize, note: &[u8]) -> Vec<u8> {
    session_with(&[], prompt, n, note)
}

/// The same with two images in it: one in a grid, with more for a later block, and one whose rows see each other.
fn seeing() -> Vec<u8> {
    let numbers = |n: usize| (0..n * DIM).map(|i| i as f32).collect::<Vec<_>>();
    let grid = Vectors::new(numbers(4), DIM).unwrap().deeper(vec![numbers(4).into()]).unwrap();
    let grid = grid.places(vec![[0; 3], [0, 0, 1], [0, 1, 0], [0, 1, 1]]).unwrap();
    let other = Vectors::new(numbers(3), DIM).unwrap().mutual();
    session_with(&[Placed::new(1, grid), Placed::new(6, other)], 10, 2, b"")
}

fn session_with(inputs: &[Placed], prompt: usize, n: usize, note: &[u8]) -> Vec<u8> {
    let mut e = engine();
    let chain = SamplerParams { mirostat: 2, ..SamplerParams::default() }.build().unwrap();
    let prompt: Vec<u32> = (0..prompt as u32).map(|i| i * 5 % 8).collect();
    let id = e.add(Request::new(prompt, n).inputs(inputs).chain(chain).keep()).unwrap();
    if n < 100 {
        assert_eq!(e.follow(id).count(), n);
    }
    let mut out = Vec::new();
    e.save(id, MODEL, note, &mut out).unwrap();
    out
}

/// Name, bytes, whether they load.
fn seeds() -> Vec<(&'static str, Vec<u8>, bool)> {
    let good = session(5, 4, b"{}");
    let changed = |at: usize, bytes: &[u8]| {
        let mut bad = good.clone();
        bad[at..at + bytes.len()].copy_from_slice(bytes);
        sealed(&bad)
    };
    let images = seeing();
    // Behind the fixed fields, the element's name, an empty note, the chain's state and the tokens: the images, their count first.
    let at =
        |bytes: &[u8], from: usize| u64::from_le_bytes(bytes[from..from + 8].try_into().unwrap()) as usize;
    let chain = 28 + 11 + 8;
    let tokens = chain + 8 + at(&images, chain);
    let first = tokens + 8 + 4 * at(&images, tokens) + 8;
    let blind = |at: usize, bytes: &[u8]| {
        let mut bad = images.clone();
        bad[at..at + bytes.len()].copy_from_slice(bytes);
        sealed(&bad)
    };
    // Behind the fixed fields, the element's name (8 + 3) and the note (8 + 2).
    let chain = 28 + 11 + 10;
    vec![
        ("small", good.clone(), true),
        ("unread", session(5, 100, b""), true),
        ("long", session(290, 1, b"a note"), true),
        ("empty", Vec::new(), false),
        ("cut", good[..good.len() / 2].to_vec(), false),
        (
            "flipped",
            {
                let mut bad = good.clone();
                bad[good.len() / 2] ^= 4;
                bad
            },
            false,
        ),
        ("next-version", changed(8, &[3]), false),
        ("other-model", changed(12, &[9]), false),
        ("huge-element", changed(28, &[255; 8]), false),
        ("huge-note", changed(39, &[255; 7]), false),
        ("huge-chain", changed(chain, &[255; 4]), false),
        ("longer", [&*good, &[0; 9]].concat(), false),
        ("images", images.clone(), true),
        ("image-beyond-its-tokens", blind(first, &[9]), false),
        ("image-of-many-rows", blind(first + 8, &[255; 7]), false),
        ("image-of-no-rows", blind(first + 8, &[0]), false),
        ("image-of-wide-rows", blind(first + 16, &[5]), false),
        ("image-of-another-kind", blind(first + 24, &[8]), false),
        ("image-with-many-depths", blind(first + 28, &[255; 5]), false),
        ("image-in-an-older-version", blind(8, &[1]), false),
    ]
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/session")
}

#[test]
fn every_seed_behaves() {
    for (name, bytes, loads) in seeds() {
        assert_eq!(touch(&bytes), loads, "{name}");
    }
}

#[test]
fn every_file_of_the_corpus_is_harmless() {
    // Absent where the crate is tested from its package alone.
    let Ok(entries) = fs::read_dir(folder()) else {
        println!("skipped: fuzz/corpus/session not found");
        return;
    };
    let files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    assert!(files.len() >= seeds().len(), "only {} files", files.len());
    files.iter().for_each(|file| touch_both(&fs::read(file).unwrap()));
}

#[test]
fn damage_never_loads_and_never_panics() {
    damage(&session(9, 6, b"{\"held\":\"\"}"));
    damage(&seeing());
}

fn damage(good: &[u8]) {
    let mut state = 1u64;
    let mut below = |n: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % n
    };
    for bit in 0..good.len() * 8 {
        // All of the header, and a part of the rest.
        if bit > 400 * 8 && bit % 37 != 0 {
            continue;
        }
        let mut bad = good.to_vec();
        bad[bit / 8] ^= 1 << (bit % 8);
        assert!(!touch(&bad), "bit {bit}");
        touch(&sealed(&bad));
    }
    for len in 0..good.len() {
        assert!(!touch(&good[..len]), "{len} bytes");
    }
    for _ in 0..300 {
        let mut bad = good.to_vec();
        for _ in 0..=below(4) {
            let (at, len) = (below(bad.len()), below(9));
            match below(3) {
                0 => bad[at..].iter_mut().take(len).for_each(|b| *b = [0, 255][len % 2]),
                1 => drop(bad.drain(at..(at + len).min(good.len() / 2).max(at))),
                _ => bad.splice(at..at, (0..len as u8).map(|b| b * 31)).for_each(drop),
            }
        }
        touch_both(&bad);
    }
}

#[test]
#[ignore = "writes the corpus"]
fn write_the_corpus() {
    fs::create_dir_all(folder()).unwrap();
    for (name, bytes, _) in seeds() {
        fs::write(folder().join(name), bytes).unwrap();
    }
}
