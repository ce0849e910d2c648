//! What files decode to, and what each family makes of images, against Pillow and transformers: `xtask/golden/images.py` wrote what is in
//! `tests/data`.
//!
//! Grids, texts and counts are equal. Levels are what a pixel has after resizing, before it is normalised: all of them are compared by two
//! sums, and where they are equal to the bit there is nothing more to say. Idefics 3's are resized in single precision there and here, so each
//! may differ by one where a sum falls beside a half.

use ogive_tensor::Config;
use ogive_vision::{Image, Processor, Tile};
use serde_json::Value;
use std::path::{Path, PathBuf};

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

fn reference(key: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(data("reference.json")).unwrap();
    let mut all: Value = serde_json::from_str(&text).unwrap();
    serde_json::from_value(all[key].take()).unwrap()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap()
}

/// The place of the `i`-th kept value among `len`.
fn place(i: usize, len: usize) -> usize {
    i * 2_654_435_761 % len
}

/// What is kept of many levels: their sum, the same with odd weights modulo 2^64, and some of them.
struct Summary {
    sum: u64,
    check: u64,
    levels: Vec<u8>,
}

impl Summary {
    fn of(levels: &[u8], count: usize) -> Self {
        let weight = |i: usize| (i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let weighed = levels.iter().enumerate().map(|(i, v)| (u64::from(*v) + 1).wrapping_mul(weight(i)));
        Self {
            sum: levels.iter().map(|v| u64::from(*v)).sum(),
            check: weighed.fold(0, u64::wrapping_add),
            levels: (0..count).map(|i| levels[place(i, levels.len())]).collect(),
        }
    }

    fn said(value: &Value) -> Self {
        Self {
            sum: value["sum"].as_u64().unwrap(),
            check: u64::from_str_radix(text(&value["check"]), 16).unwrap(),
            levels: serde_json::from_value(value["levels"].clone()).unwrap(),
        }
    }
}

/// Compares levels with what the reference has. `most` is how far they may be apart, and
/// how far their mean may be is a tenth of it.
#[track_caller]
fn compare(what: &str, levels: &[u8], said: &Value, most: u8) {
    let said = Summary::said(said);
    let got = Summary::of(levels, said.levels.len());
    let worst = got.levels.iter().zip(&said.levels).map(|(a, b)| a.abs_diff(*b)).max().unwrap();
    if most == 0 {
        assert_eq!((worst, got.sum, got.check), (0, said.sum, said.check), "{what}");
    }
    let apart = got.sum.abs_diff(said.sum) as f64 / levels.len() as f64;
    assert!(worst <= most && apart <= f64::from(most) / 10.0, "{what}: {worst} at most, {apart} in the mean");
}

#[test]
fn files_decode_as_in_pillow() {
    // JPEG leaves it to a decoder how it rounds and interpolates colours.
    let lossy = [("turned.jpg", 2), ("grey.jpg", 1), ("full.jpg", 2)];
    let files = reference("files");
    assert_eq!(files.len(), 17);
    for said in &files {
        let name = text(&said["file"]);
        let image = Image::open(data(name)).unwrap();
        assert_eq!(
            serde_json::json!([image.width(), image.height()]),
            serde_json::json!([said["width"], said["height"]]),
            "{name}"
        );
        let most = lossy.iter().find(|(lossy, _)| *lossy == name).map_or(0, |(_, most)| *most);
        compare(name, image.pixels(), said, most);
    }
}

/// The levels that a tile's values were, as its family's means and deviations say, and the values themselves.
fn levels(tile: &Tile, settings: &Value, channels_last: bool) -> Vec<u8> {
    let numbers = |key: &str| -> Vec<f32> { serde_json::from_value(settings[key].clone()).unwrap() };
    let (mean, std) = (numbers("image_mean"), numbers("image_std"));
    let level = |i: usize, value: f32| {
        let at = i % tile.patch_len;
        let channel = if channels_last { at % 3 } else { at / (tile.patch_len / 3) };
        ((value * std[channel] + mean[channel]) * 255.0).round() as u8
    };
    tile.patches.iter().enumerate().map(|(i, value)| level(i, *value)).collect()
}

/// The text of pieces and how often each stands there.
fn unfold(pieces: &Value) -> String {
    let pieces: Vec<(String, usize)> = serde_json::from_value(pieces.clone()).unwrap();
    pieces.iter().map(|(piece, times)| piece.repeat(*times)).collect()
}

fn family_agrees(family: &str, images: usize, most: u8) {
    let cases = reference("cases");
    let of = |case: &&Value| text(&case["name"]).split('-').next() == Some(family);
    let cases: Vec<_> = cases.iter().filter(of).collect();
    assert_eq!(cases.len(), images);
    for case in cases {
        let what = format!("{} of {}", text(&case["name"]), text(&case["image"]));
        let [config, settings, processor] =
            ["config", "settings", "processor"].map(|key| Config(case[key].clone()));
        let processor = Processor::load(&config, Some(&settings), Some(&processor)).unwrap().unwrap();
        let picture = processor.prepare(&Image::open(data(text(&case["image"]))).unwrap()).unwrap();

        let said = unfold(&case["text"]);
        let alike = picture.text.bytes().zip(said.bytes()).take_while(|(a, b)| a == b).count();
        assert!(picture.text == said, "{what}: the text differs behind {alike} bytes from {}", case["text"]);
        assert_eq!(picture.text.matches(processor.row_token()).count(), picture.rows(), "{what}");
        let said = case["tiles"].as_array().unwrap();
        assert_eq!(picture.tiles.len(), said.len(), "{what}");
        for (i, (tile, said)) in picture.tiles.iter().zip(said).enumerate() {
            let what = format!("{what}, tile {i}");
            assert_eq!(serde_json::json!(tile.grid), said["grid"], "{what}");
            assert_eq!(serde_json::json!(tile.patch_len), said["patch_len"], "{what}");
            assert_eq!(tile.patches.len(), tile.grid[0] * tile.grid[1] * tile.patch_len, "{what}");
            compare(&what, &levels(tile, &settings.0, family == "lfm2"), said, most);
            let values: Vec<f32> = serde_json::from_value(said["values"].clone()).unwrap();
            let got: Vec<f32> =
                (0..values.len()).map(|i| tile.patches[place(i, tile.patches.len())]).collect();
            // Normalising is to the bit, too: where a level differs, a value does by a few hundredths.
            let apart = got.iter().zip(&values).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(apart <= f32::from(most) * 0.02, "{what}: {got:?} are not {values:?}");
        }
    }
}

#[test]
fn gemma3_agrees() {
    family_agrees("gemma3", 10, 0);
}

#[test]
fn qwen2_vl_agrees() {
    family_agrees("qwen2", 6, 0);
}

#[test]
fn qwen3_vl_agrees() {
    family_agrees("qwen3", 6, 0);
}

#[test]
fn mistral3_agrees() {
    family_agrees("mistral3", 6, 0);
}

#[test]
fn pixtral_agrees() {
    family_agrees("pixtral", 4, 0);
}

#[test]
fn smolvlm_agrees() {
    family_agrees("smolvlm", 2, 1);
}

#[test]
fn idefics3_agrees() {
    family_agrees("idefics3", 8, 1);
}

#[test]
fn internvl_agrees() {
    family_agrees("internvl", 6, 0);
}

#[test]
fn lfm2_vl_agrees() {
    family_agrees("lfm2", 7, 0);
}

#[test]
fn llava_agrees() {
    family_agrees("llava", 9, 0);
}
