//! Adapters: low-rank updates of a model's matrices (LoRA, Hu et al. 2021, <https://arxiv.org/abs/2106.09685>), kept apart from the model.
//!
//! They come as PEFT writes them, or as llama.cpp's converter does, for models from files of either kind: names and orders of rows are Hugging
//! Face's here, whatever they were. The model's own weights stay as they are, packed or not. What an adapter does to a matrix `NAME` lies
//! beside it, as two matrices `NAME.lora_A` and `NAME.lora_B`, the second with the update's factor in it.

mod gguf;
mod peft;

use crate::open::{Checkpoint, is_gguf};
use ogive_tensor::{Error, F32, HostWeight, Result, Source, WeightInfo};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// What the names of an update's two matrices end in, behind that of the matrix which they change.
const DOWN: &str = ".lora_A.weight";
const UP: &str = ".lora_B.weight";

/// What is added to a matrix: `factor` times `up · down`.
#[derive(Clone, Debug)]
struct Update {
    /// `[1, rank, in]`
    down: HostWeight,
    /// `[1, out, rank]`
    up: HostWeight,
    factor: f32,
}

/// By the names of the matrices, without `.weight`.
type Updates = BTreeMap<String, Update>;

impl Update {
    /// Checks that the two fit each other.
    fn new(name: &str, down: HostWeight, up: HostWeight, factor: f32) -> Result<Self> {
        let ([a, rank, _], [b, out, of]) = (down.shape, up.shape);
        if [a, b] != [1; 2] || rank == 0 || out == 0 || of != rank || down.bytes.is_empty() {
            let why = format!("an update by {:?} and {:?} is none of a matrix", down.shape, up.shape);
            return Err(Error::invalid(name, why));
        }
        if !factor.is_finite() {
            return Err(Error::invalid(name, format!("an update cannot be taken {factor} times")));
        }
        Ok(Self { down, up, factor })
    }
}

impl Checkpoint {
    /// The same with an adapter (LoRA) over it, whose updates count `strength` times: 1 is as it was trained. Several lie over each other. `path`
    /// is a folder that PEFT saved (or the `adapter_model.safetensors` in one), or an adapter's GGUF file.
    ///
    /// The [source](Checkpoint::source) has the updates' matrices among its tensors then, and says which of them no model
    /// [asked for](Source::unused).
    ///
    /// # Errors
    /// If nothing is there or it is no adapter; if it is of another kind than LoRA, or has something else beside its updates (biases, whole
    /// layers, new tokens); if it changes a matrix that the model does not have; if the model has factors in its weights that were not there
    /// when the adapter was trained (Falcon-H1's GGUF files); and unless `strength` is a number.
    pub fn adapted(self, path: impl AsRef<Path>, strength: f32) -> Result<Self> {
        let path = path.as_ref();
        let within = |e: Error| e.within(&format!("reading the adapter {}", path.display()));
        let updates =
            is_gguf(path).and_then(|is| if is { gguf::read(path, &self) } else { peft::read(path) });
        let updates = updates.and_then(|updates| over(updates, &self, strength)).map_err(within)?;
        Ok(Self { source: Box::new(Adapted { base: self.source, updates, asked: Mutex::default() }), ..self })
    }
}

/// The updates under the names that this model has for their matrices, `strength` times.
fn over(updates: Updates, model: &Checkpoint, strength: f32) -> Result<Updates> {
    if let Some(gguf) = &model.gguf {
        gguf::without_factors(gguf)?;
    }
    let names: HashSet<String> = model.source.tensors().into_iter().map(|t| t.name).collect();
    let has = |name: &str| names.contains(&format!("{name}.weight"));
    let mut found = Updates::new();
    for (name, update) in updates {
        // Models that were saved without a head have no prefix.
        let short = name.split_once('.').map(|(_, rest)| rest).filter(|short| !has(&name) && has(short));
        let own = short.unwrap_or(&name);
        if !has(own) {
            let why =
                "the adapter changes this matrix, which the model does not have; was it trained on another?";
            return Err(Error::invalid(&name, why));
        }
        let update = Update::new(own, update.down, update.up, update.factor * strength)?;
        found.insert(own.to_owned(), update);
    }
    if found.is_empty() {
        return Err(Error::invalid("adapter", "it changes no matrix"));
    }
    Ok(found)
}

/// A source with an adapter over it.
#[derive(Debug)]
struct Adapted {
    base: Box<dyn Source>,
    updates: Updates,
    /// Names of matrices whose updates were asked for.
    asked: Mutex<BTreeSet<String>>,
}

impl Adapted {
    fn update<'n>(&self, name: &'n str) -> Option<(&'n str, bool, &Update)> {
        let (matrix, is_up) = match name.strip_suffix(DOWN) {
            Some(matrix) => (matrix, false),
            None => (name.strip_suffix(UP)?, true),
        };
        Some((matrix, is_up, self.updates.get(matrix)?))
    }
}

impl Source for Adapted {
    fn get(&self, name: &str) -> Result<HostWeight> {
        let Some((matrix, is_up, update)) = self.update(name) else { return self.base.get(name) };
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).insert(matrix.to_owned());
        // What an adapter below this one does to the same matrix.
        let below = ogive_tensor::optional(self.base.get(name))?;
        if !is_up {
            return Ok(match below {
                None => update.down.clone().named(name),
                Some(below) => one_below_the_other(name, [&below, &update.down])?,
            });
        }
        let [_, out, rank] = update.up.shape;
        let own = update.up.to_vec().into_iter().map(|v| v * update.factor).collect();
        match below {
            None => HostWeight::from_f32(name, [1, out, rank], &own as &Vec<f32>),
            Some(below) => beside_each_other(name, [(below.shape, below.to_vec()), (update.up.shape, own)]),
        }
    }

    fn tensors(&self) -> Vec<WeightInfo> {
        let mut all = self.base.tensors();
        let known: HashSet<String> = all.iter().map(|t| t.name.clone()).collect();
        for (matrix, Update { down, up, .. }) in &self.updates {
            // What lies over another adapter's update is one with it.
            for (leaf, of, format) in [(DOWN, down, down.format), (UP, up, &F32)] {
                let name = format!("{matrix}{leaf}");
                if !known.contains(&name) {
                    all.push(WeightInfo::new(name, of.shape, format));
                }
            }
        }
        all
    }

    fn left_out(&self) -> Vec<String> {
        self.base.left_out()
    }

    fn unused(&self) -> Vec<String> {
        let asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        let own = self.updates.keys().filter(|name| !asked.contains(*name)).cloned();
        self.base.unused().into_iter().chain(own).collect()
    }
}

/// Two flat matrices as one.
fn one_below_the_other(name: &str, [a, b]: [&HostWeight; 2]) -> Result<HostWeight> {
    if a.shape[2] != b.shape[2] {
        let why = format!("two adapters change it, as one of {} and of {} inputs", a.shape[2], b.shape[2]);
        return Err(Error::invalid(name, why));
    }
    let shape = [1, a.shape[1] + b.shape[1], a.shape[2]];
    HostWeight::from_f32(name, shape, &[a.to_vec(), b.to_vec()].concat())
}

/// Two tall matrices as one.
fn beside_each_other(name: &str, [a, b]: [([usize; 3], Vec<f32>); 2]) -> Result<HostWeight> {
    let ([_, rows, m], [_, others, n]) = (a.0, b.0);
    if rows != others {
        let why = format!("two adapters change it, as one of {rows} and of {others} outputs");
        return Err(Error::invalid(name, why));
    }
    let all: Vec<f32> =
        a.1.chunks_exact(m).zip(b.1.chunks_exact(n)).flat_map(|(a, b)| a.iter().chain(b)).copied().collect();
    HostWeight::from_f32(name, [1, rows, m + n], &all)
}
