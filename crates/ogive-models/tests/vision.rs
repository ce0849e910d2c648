//! Towers, and models with images in their prompts, against transformers' (`cargo xtask golden gemma3-vision` and so on).
#![allow(clippy::print_stdout)]

mod common;
#[path = "common/vision.rs"]
mod vision;

use common::*;
use ogive_conformance::Oracle;
use ogive_nn::backend::Backend;
use ogive_nn::tensor::{Config, F16, F32, HostWeight, Result, WeightInfo};
use ogive_nn::{Loader, Source};
use serde_json::Value;
use std::{collections::BTreeSet, sync::Mutex};
use vision::*;

/// The largest difference from transformers' results in single precision.
const EXACT: f32 = 2e-5;

#[test]
fn towers_make_the_rows_that_transformers_makes() {
    let mut failed = Vec::new();
    for (backend, b) in exact_backends() {
        for (name, folder) in seeing() {
            for (i, (got, image)) in seen(&folder, &*b).iter().zip(images(&folder)).enumerate() {
                assert_eq!(got.deeper.len(), image.deeper.len(), "{name}, image {i}");
                let pairs = got.deeper.iter().zip(&image.deeper).chain([(&got.values, &image.rows)]);
                for (got, want) in pairs {
                    let error = worst(&matrix(got, want.ncols()), want);
                    println!("{name:20} {backend:8} image {i} {error:.1e}");
                    if error.is_nan() || error > EXACT {
                        failed.push(format!("{name} on {backend}, image {i}: rows are off by {error:.1e}"));
                    }
                }
            }
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[test]
fn logits_with_images_are_those_of_transformers() {
    let mut failed = Vec::new();
    for (backend, b) in exact_backends() {
        for (name, folder) in seeing() {
            let (model, seen) = (load(&folder, &*b), seen(&folder, &*b));
            for prompt in prompts(&folder) {
                // Rows that see each other must be in one step.
                let mutual = seen.iter().any(|of| of.mutual);
                for chunk in [prompt.ids.len(), if mutual { prompt.ids.len() } else { 7 }] {
                    let got = logits_of(&*b, &*model, &prompt, &seen, &F32, chunk);
                    let error = worst(&got, &prompt.logits);
                    println!("{name:20} {backend:8} {:8} {chunk:3} {error:.1e}", prompt.name);
                    if error.is_nan() || error > EXACT {
                        failed.push(format!("{name} on {backend}, {}: off by {error:.1e}", prompt.name));
                    }
                }
            }
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

/// As programs have them that do not choose: weights are BF16, so what they multiply is rounded to it, and the cache is of halves.
#[test]
fn what_is_seen_by_default_is_near() {
    const HALVES: f64 = 3e-4;
    let b = ogive_cpu::CpuBackend::builder().build().unwrap();
    let mut failed = Vec::new();
    for (name, folder) in seeing() {
        let (model, seen) = (load(&folder, &b), seen(&folder, &b));
        for (i, (got, image)) in seen.iter().zip(images(&folder)).enumerate() {
            let drift = nmse(&matrix(&got.values, got.dim), &image.rows);
            println!("{name:20} image {i} nmse {drift:.1e}");
            if !(1e-7..=HALVES).contains(&drift) {
                failed.push(format!("{name}, image {i}: nmse {drift:.1e}"));
            }
        }
        for prompt in prompts(&folder) {
            let got = logits_of(&b, &*model, &prompt, &seen, &F16, prompt.ids.len());
            let drift = nmse(&got, &prompt.logits);
            println!("{name:20} {:8} nmse {drift:.1e}", prompt.name);
            if !(1e-7..=HALVES).contains(&drift) {
                failed.push(format!("{name}, {}: nmse {drift:.1e}", prompt.name));
            }
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[test]
fn patches_of_another_grid_are_refused() {
    for (name, folder) in seeing() {
        let tower = tower(&folder, &Oracle);
        let image = images(&folder).remove(0);
        let [rows, cols] = image.grid;
        let grids =
            [[0, 0], [rows, 0], [rows + 1, cols], [usize::MAX, 2], [1, rows * cols], [rows * cols, 1]];
        for grid in grids {
            let seen = tower.see(&Oracle as &dyn Backend, &image.patches, grid);
            // A strip is a grid where neither blocks nor learned places need another.
            let strip = grid[0] == 1 || grid[1] == 1;
            assert!(seen.is_err() || (strip && name == "pixtral"), "{name}: {grid:?} is seen");
        }
        let fewer = &image.patches[1..];
        assert!(tower.see(&Oracle, fewer, image.grid).is_err(), "{name}: fewer numbers");
        assert!(tower.see(&Oracle, &[], image.grid).is_err(), "{name}: none");
    }
}

/// Every number of the settings in turn as 0, as another and as one beyond counting: what is not refused when the tower is loaded is refused when it is
/// to see, or changes nothing that could not be computed.
#[test]
fn false_settings_are_errors_and_no_panics() {
    for (name, folder) in seeing() {
        let image = images(&folder).remove(0);
        let (mut refused, mut tried) = (0, 0);
        for path in numbers(&ogive_weights::open(&folder).unwrap().config.0, "") {
            for value in [0, 1, 3, 1 << 20, u64::MAX >> 1, u64::MAX] {
                let change = |c: &mut Config| *c.0.pointer_mut(&path).unwrap() = value.into();
                let tower = tower_with(&folder, &Oracle, change);
                let seen = tower.and_then(|tower| tower.see(&Oracle, &image.patches, image.grid));
                (tried, refused) = (tried + 1, refused + usize::from(seen.is_err()));
            }
        }
        println!("{name}: {refused} of {tried} refused");
        assert!(refused > 15, "{name}: {refused} of {tried}");
    }
}

/// Pointers to all numbers below `value` that a tower may read.
fn numbers(value: &Value, path: &str) -> Vec<String> {
    match value {
        Value::Object(map) => {
            let own = map.iter().filter(|(key, _)| *key != "text_config");
            own.flat_map(|(key, value)| numbers(value, &format!("{path}/{key}"))).collect()
        }
        Value::Array(list) => {
            list.iter().enumerate().flat_map(|(i, value)| numbers(value, &format!("{path}/{i}"))).collect()
        }
        Value::Number(_) => vec![path.to_owned()],
        _ => Vec::new(),
    }
}

/// Every tensor that the tower reads in turn with one row or column fewer, and with none.
#[test]
fn weights_of_another_shape_are_errors_and_no_panics() {
    for (name, folder) in seeing() {
        let image = images(&folder).remove(0);
        let file = ogive_weights::open(&folder).unwrap();
        let source =
            Shorter { of: file.source, name: String::new(), cut: Cut::Rows(0), asked: Mutex::default() };
        let see = |source: &Shorter| {
            let loader = Loader::new(source, &Oracle);
            let tower = ogive_models::registry().tower(&file.architecture, &file.config, &loader)?;
            tower.see(&Oracle, &image.patches, image.grid)
        };
        see(&source).unwrap();
        let own = source.asked.into_inner().unwrap();
        let mut source = Shorter { asked: Mutex::default(), ..source };
        let (mut refused, mut tried) = (0, 0);
        for own in own {
            source.name = own;
            for cut in [Cut::Rows(1), Cut::Cols(1), Cut::Rows(usize::MAX), Cut::Cols(usize::MAX)] {
                source.cut = cut;
                (tried, refused) = (tried + 1, refused + usize::from(see(&source).is_err()));
            }
        }
        println!("{name}: {refused} of {tried} refused");
        // One is left: the last matrix may have fewer outputs, of which an engine says that they do not fit its model.
        assert!(tried > 90 && refused + 1 >= tried, "{name}: {refused} of {tried}");
    }
}

#[derive(Clone, Copy, Debug)]
enum Cut {
    Rows(usize),
    Cols(usize),
}

/// A file one of whose tensors is shorter or narrower.
#[derive(Debug)]
struct Shorter {
    of: Box<dyn Source>,
    name: String,
    cut: Cut,
    /// What was asked for and is there.
    asked: Mutex<BTreeSet<String>>,
}

impl Source for Shorter {
    fn get(&self, name: &str) -> Result<HostWeight> {
        let host = self.of.get(name)?;
        self.asked.lock().unwrap().insert(name.to_owned());
        if name != self.name {
            return Ok(host);
        }
        let [experts, rows, cols] = host.shape;
        let (kept_rows, kept_cols) = match self.cut {
            Cut::Rows(n) => (rows.saturating_sub(n), cols),
            Cut::Cols(n) => (rows, cols.saturating_sub(n)),
        };
        let of = |e: usize, r: usize| (e * rows + r) * cols..(e * rows + r) * cols + kept_cols;
        let values = host.to_vec();
        let kept = (0..experts).flat_map(|e| (0..kept_rows).map(move |r| (e, r)));
        let kept: Vec<f32> = kept.flat_map(|(e, r)| values[of(e, r)].to_vec()).collect();
        HostWeight::from_f32(name, [experts, kept_rows, kept_cols], &kept)
    }
    fn tensors(&self) -> Vec<WeightInfo> {
        self.of.tensors()
    }
}
