//! Models that also see, the images that transformers was shown, and prompts with these in them.
#![allow(dead_code, clippy::unwrap_used)]

use crate::common::{ids, npy};
use ndarray::Array2;
use ogive_engine::Limits;
use ogive_nn::backend::{Backend, Batch, BlockTable, Input, Vectors};
use ogive_nn::tensor::{Config, Format, Result};
use ogive_nn::{Loader, Model, Step, Tower};
use std::path::{Path, PathBuf};
use std::{ops::Range, sync::Arc};

/// What a tower was given and what it made of it.
pub(crate) struct Image {
    pub(crate) patches: Vec<f32>,
    pub(crate) grid: [usize; 2],
    pub(crate) rows: Array2<f32>,
    pub(crate) deeper: Vec<Array2<f32>>,
}

/// Rows of an image in a text.
pub(crate) struct Part {
    pub(crate) at: usize,
    pub(crate) image: usize,
    pub(crate) rows: Range<usize>,
}

/// A text, what of images stands where in it, and its logits.
pub(crate) struct Prompt {
    pub(crate) name: String,
    pub(crate) ids: Vec<u32>,
    pub(crate) images: Vec<Part>,
    pub(crate) logits: Array2<f32>,
}

/// The models that `cargo xtask golden` makes and that see, by name; beside the folder that `OGIVE_GOLDEN` names if it is set.
pub(crate) fn seeing() -> Vec<(String, PathBuf)> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let folder = std::env::var_os("OGIVE_GOLDEN").map_or(here, PathBuf::from).with_file_name("vision");
    let all = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut all: Vec<_> =
        all.map(|path| (path.file_name().unwrap().to_string_lossy().into_owned(), path)).collect();
    all.sort();
    assert!(!all.is_empty());
    all
}

fn golden(folder: &Path) -> serde_json::Value {
    serde_json::from_str(&std::fs::read_to_string(folder.join("golden.json")).unwrap()).unwrap()
}

pub(crate) fn images(folder: &Path) -> Vec<Image> {
    let image = |of: &serde_json::Value| {
        let read = |file: &serde_json::Value| npy(&folder.join(file.as_str().unwrap()));
        let grid = ids(&of["grid"]);
        Image {
            patches: read(&of["patches"]).into_iter().collect(),
            grid: [grid[0] as usize, grid[1] as usize],
            rows: read(&of["rows"]),
            deeper: of["deeper"].as_array().unwrap().iter().map(read).collect(),
        }
    };
    golden(folder)["images"].as_array().unwrap().iter().map(image).collect()
}

pub(crate) fn prompts(folder: &Path) -> Vec<Prompt> {
    let part = |of: &serde_json::Value| {
        let [at, image, from, to] = ids(of)[..] else { panic!("{of}") };
        Part { at: at as usize, image: image as usize, rows: from as usize..to as usize }
    };
    let prompt = |of: &serde_json::Value| Prompt {
        name: of["name"].as_str().unwrap().into(),
        ids: ids(&of["ids"]),
        images: of["images"].as_array().unwrap().iter().map(part).collect(),
        logits: npy(&folder.join(of["logits"].as_str().unwrap())),
    };
    golden(folder)["cases"].as_array().unwrap().iter().map(prompt).collect()
}

/// The tower of the model in `folder`, with settings as `change` leaves them.
pub(crate) fn tower_with(
    folder: &Path,
    b: &dyn Backend,
    change: impl FnOnce(&mut Config),
) -> Result<Box<dyn Tower>> {
    let mut file = ogive_weights::open(folder).unwrap();
    change(&mut file.config);
    ogive_models::registry().tower(&file.architecture, &file.config, &Loader::new(&*file.source, b))
}

pub(crate) fn tower(folder: &Path, b: &dyn Backend) -> Box<dyn Tower> {
    tower_with(folder, b, |_| ()).unwrap_or_else(|e| panic!("{}: {e}", folder.display()))
}

/// What it makes of all images.
pub(crate) fn seen(folder: &Path, b: &dyn Backend) -> Vec<Arc<Vectors>> {
    let tower = tower(folder, b);
    let see = |image: &Image| Arc::new(tower.see(b, &image.patches, image.grid).unwrap());
    images(folder).iter().map(see).collect()
}

/// Rows as transformers has them.
pub(crate) fn matrix(values: &[f32], dim: usize) -> Array2<f32> {
    Array2::from_shape_vec((values.len() / dim, dim), values.to_vec()).unwrap()
}

/// The logits of a prompt with what was seen in it, in steps of `chunk` rows.
pub(crate) fn logits_of(
    b: &dyn Backend,
    model: &dyn Model,
    prompt: &Prompt,
    seen: &[Arc<Vectors>],
    element: &'static Format,
    chunk: usize,
) -> Array2<f32> {
    let n = prompt.ids.len();
    let spec = Limits::new(n).element(element).cache_spec(model.cache_layout()).unwrap();
    let blocks = n.div_ceil(spec.block_len);
    let groups = spec.blocks.len();
    let cache = b.new_cache(&spec.blocks(vec![blocks; groups])).unwrap();
    let table = BlockTable { first: 0, blocks: (0..blocks as u32).collect() };
    let placed: Vec<_> = prompt.images.iter().map(|part| (part.at, part_of(part, seen))).collect();
    let places = places(n, &placed);
    let (mut all, mut past, mut slots) = (Vec::new(), 0, [0, 1]);
    for tokens in prompt.ids.chunks(chunk) {
        let (mut batch, end) = (Batch::default(), past + tokens.len());
        batch.push(tokens, past, vec![table.clone(); groups], slots);
        batch.place(0, &places[past..end]);
        for (at, of) in &placed {
            let (from, to) = (past.max(*at), end.min(at + of.rows()));
            if from < to {
                batch.inputs.push(Input::new(from - past, from - at..to - at, Arc::clone(of)));
            }
        }
        batch.want_all();
        let plan = b.plan(batch).unwrap();
        let logits = model.logits(&Step::new(b, &plan, &cache)).unwrap();
        all.extend(b.download(&logits).unwrap());
        past = end;
        slots.reverse();
    }
    matrix(&all, all.len() / n)
}

fn part_of(part: &Part, seen: &[Arc<Vectors>]) -> Arc<Vectors> {
    let whole = &seen[part.image];
    if part.rows == (0..whole.rows()) {
        Arc::clone(whole)
    } else {
        Arc::new(whole.part(part.rows.clone()).unwrap())
    }
}

/// Where each of `n` rows stands: tokens one after the other, rows of an image where it has them, and what follows behind the furthest.
fn places(n: usize, placed: &[(usize, Arc<Vectors>)]) -> Vec<[u32; 3]> {
    let (mut places, mut next) = (Vec::new(), 0u32);
    let mut placed = placed.iter().peekable();
    while places.len() < n {
        match placed.next_if(|(at, _)| *at == places.len()) {
            Some((_, of)) => {
                places.extend((0..of.rows()).map(|row| of.place(row).map(|at| next + at)));
                next += of.advance() as u32;
            }
            None => {
                places.push([next; 3]);
                next += 1;
            }
        }
    }
    places
}
