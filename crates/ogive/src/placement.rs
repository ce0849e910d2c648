//! A model over several machines: which layers each gets.
//!
//! The last layers go to the GPU, and with them what turns their output into logits: so a step begins on the CPU and ends on the
//! device, and what comes back is a token. How many fit is found by loading the model on backends that only count, split as it would
//! be: there is no second idea of what a layer takes.

use crate::memory::{self, Memory, On};
use crate::nn::{Loader, is_head, is_layer_table, is_token_table};
use crate::tensor::Error as ModelError;
use crate::weights::Checkpoint;
use crate::{Error, Options, Result, model};
use ogive_engine::backend::{Backend, Estimate, Split, is_of_tower, layer_of};
use std::{fmt, str::FromStr, sync::Arc};

/// How many of a model's layers GPUs get; the others stay on the CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum GpuLayers {
    /// As many as fit, with a session's cache and what steps need.
    Auto,
    /// The last so many; more than there are means all.
    Count(usize),
}

impl FromStr for GpuLayers {
    type Err = Error;

    fn from_str(s: &str) -> Result<Self> {
        let wrong = || Error::Device(format!("`{s}` layers on the GPU: a number, auto or all"));
        match s {
            "auto" => Ok(Self::Auto),
            "all" => Ok(Self::Count(usize::MAX)),
            n => n.parse().map(Self::Count).map_err(|_| wrong()),
        }
    }
}

impl fmt::Display for GpuLayers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Count(usize::MAX) => f.write_str("all"),
            Self::Count(n) => write!(f, "{n}"),
        }
    }
}

/// What a device's pool may have lost by cutting small pieces from large ones, and by keeping pieces of other sizes.
pub(crate) const SLACK: u64 = 8 << 20;

/// What a placement needs to know of a checkpoint.
#[derive(Debug)]
pub(crate) struct Layers<'a> {
    checkpoint: &'a Checkpoint,
    options: &'a Options,
    /// How many there are.
    pub(crate) count: usize,
    /// Whether the table of tokens is the head too.
    tied: bool,
}

/// Who gets what: parts in the order of a step, each layer's part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Homes {
    /// Whether the first part is the CPU.
    pub(crate) cpu: bool,
    parts: usize,
    layers: Vec<usize>,
}

impl Homes {
    /// The last `gpu` of `count` equal layers over GPUs with so much room for layers, each as many as its share.
    pub(crate) fn new(count: usize, gpu: usize, room: &[u64]) -> Self {
        Self::by(&vec![1; count], gpu, room)
    }

    /// The same of layers that take so many bytes: the fullest GPU has as little of its room taken as there is a way to, so that equal ones
    /// get equal shares, and layers find room wherever there is any for them in their order.
    fn by(bytes: &[u64], gpu: usize, room: &[u64]) -> Self {
        let count = bytes.len();
        let (gpu, cpu) = (gpu.min(count), gpu < count);
        let own = &bytes[count - gpu..];
        let room: Vec<f64> = room.iter().map(|r| (*r).max(1) as f64).collect();
        let largest = room.iter().copied().fold(1.0, f64::max);
        // What is taken at most, as a part of the room: at `enough` the largest has room for everything.
        let (mut too_little, mut enough) = (0.0, own.iter().map(|b| *b as f64).sum::<f64>() / largest);
        let mut layers = fill(own, &room, enough);
        loop {
            let part = too_little + (enough - too_little) / 2.0;
            if part <= too_little || part >= enough {
                break;
            }
            match fill(own, &room, part) {
                None => too_little = part,
                filled => (layers, enough) = (filled, part),
            }
        }
        let last = room.len().saturating_sub(1);
        let gpus = layers.unwrap_or_else(|| vec![last; gpu]);
        let layers = (0..count - gpu).map(|_| 0).chain(gpus.into_iter().map(|g| g + usize::from(cpu)));
        Self { cpu, parts: room.len() + usize::from(cpu), layers: layers.collect() }
    }

    /// How each part takes memory, the CPU before these GPUs if it is one.
    pub(crate) fn with_cpu(&self, gpus: &[On]) -> Vec<On> {
        self.cpu.then(On::default).into_iter().chain(gpus.iter().cloned()).collect()
    }

    /// The layers of a part, in words.
    pub(crate) fn describe(&self, part: usize) -> String {
        let mut own = self.layers.iter().enumerate().filter(|(_, home)| **home == part).map(|(i, _)| i);
        let head = if part + 1 == self.parts { " and the head" } else { "" };
        match (own.next(), own.next_back()) {
            (Some(first), Some(last)) => format!("layers {first} to {last}{head}"),
            (Some(one), None) => format!("layer {one}{head}"),
            _ => format!("no layers{head}"),
        }
    }
}

/// Whether a weight that belongs to no layer is used before all of them, and not behind; `tied`: the table of tokens is the head too.
fn is_before(name: &str, tied: bool) -> bool {
    let has = |parts: &[&str]| parts.iter().any(|part| name.contains(part));
    // Inputs of layers are cut from a table of their own, by rows of tokens, and from the embeddings, of which streams are made, too.
    let made =
        ["per_layer_model_projection", "per_layer_model.language_model_projection", "altup_projections"];
    // The table of tokens is looked up first, and where it is the head it is read last. What unites streams is no table.
    let table = has(&["embed", "wte", "wpe"]) && !has(&["unembed"]) && !is_of_tower(name) && !is_head(name);
    is_layer_table(name) || has(&made) || table && !tied
}

/// The GPU of each layer where they take no more than a part of their room, each filled before the next; `None` where that is too little.
fn fill(bytes: &[u64], room: &[f64], part: f64) -> Option<Vec<usize>> {
    let (mut gpu, mut taken) = (0, 0.0);
    let place = |bytes: &u64| {
        let bytes = *bytes as f64;
        while taken + bytes > room.get(gpu)? * part {
            (gpu, taken) = (gpu + 1, 0.0);
        }
        taken += bytes;
        Some(gpu)
    };
    bytes.iter().map(place).collect()
}

impl<'a> Layers<'a> {
    pub(crate) fn of(checkpoint: &'a Checkpoint, options: &'a Options) -> Self {
        let tensors = checkpoint.source.tensors();
        let count =
            tensors.iter().filter_map(|t| layer_of(&t.name)).max().map_or(0, |last| last.saturating_add(1));
        // A false number in a name is no reason to count that far: there is a tensor for each layer, at least.
        let count = count.min(tensors.len());
        let named = |is: fn(&str) -> bool| {
            let found = tensors.iter().find(|t| is(&t.name))?;
            Some(checkpoint.source.get(&found.name))
        };
        let tied = match named(is_head) {
            None => true,
            // A checkpoint may store the embedding once more, or a head of its own whatever its configuration says.
            Some(head) if checkpoint.config.bool_or("tie_word_embeddings", false).unwrap_or(false) => {
                let table = named(is_token_table);
                table.is_none_or(|table| matches!((head, table), (Ok(h), Ok(t)) if h.is_copy_of(&t)))
            }
            Some(_) => false,
        };
        Self { checkpoint, options, count, tied }
    }

    /// What the model takes where one device has all of it.
    pub(crate) fn whole(&self, on: &On) -> Result<Memory> {
        memory::of_checkpoint(self.checkpoint, self.options, on)
    }

    /// The backend that has layers as `homes` say.
    pub(crate) fn split(&self, parts: Vec<Arc<dyn Backend>>, homes: &Homes) -> Result<Split> {
        let (last, tied) = (parts.len().saturating_sub(1), self.tied);
        let place = move |name: &str| if is_before(name, tied) { 0 } else { last };
        Ok(Split::new(parts, homes.layers.clone(), place)?)
    }

    /// What each layer takes, and what is before and behind them, by loading the model once with a part for each.
    fn bytes(&self, on: &On) -> Result<Bytes> {
        let counters: Vec<_> =
            (0..self.count + 2).map(|_| Arc::new(Estimate::of(on.sizes.clone()))).collect();
        let parts = counters.iter().map(|c| Arc::clone(c) as Arc<dyn Backend>).collect();
        let homes = Homes { cpu: false, parts: counters.len(), layers: (1..=self.count).collect() };
        let (split, Checkpoint { config, architecture, source, .. }) =
            (self.split(parts, &homes)?, self.checkpoint);
        let limits = model::limits_of_all(config, self.options)?;
        let loader = Loader::new(&**source, &split).for_context(limits.context);
        let model = self.options.registry.build(architecture, config, &loader)?;
        split.new_cache(&limits.cache_spec(model.cache_layout())?)?;
        // Layers of one GPU share what they are cut from, so each counts without it.
        let mut all = counters.iter().map(|c| c.packed_bytes().saturating_add(c.reserved_bytes()));
        let before = all.next().unwrap_or(0);
        Ok(Bytes { before, layers: all.by_ref().take(self.count).collect(), behind: all.next().unwrap_or(0) })
    }

    /// Who gets what where the last `gpu` layers are shared out by their bytes among GPUs with so much free memory, by what is left of it
    /// beside what is before and behind all layers. `ons` says how each of them takes memory.
    pub(crate) fn homes(&self, gpu: usize, free: &[u64], ons: &[On]) -> Result<Homes> {
        match (free, ons.first()) {
            ([_, _, ..], Some(on)) => Ok(self.bytes(on)?.homes(gpu, free)),
            // One GPU has its layers however much is free.
            _ => Ok(Homes::new(self.count, gpu, free)),
        }
    }

    /// What each part takes of a model that is shared out so.
    pub(crate) fn parts(&self, homes: &Homes, ons: &[On]) -> Result<Vec<Memory>> {
        memory::of_parts(self.checkpoint, self.options, ons, |parts| self.split(parts, homes))
    }

    /// The most layers that GPUs with so much free memory hold; `None` where they hold not even one. `ons` says how each of them takes memory.
    pub(crate) fn most(&self, free: &[u64], ons: &[On]) -> Result<Option<usize>> {
        let bytes = self.bytes(ons.first().unwrap_or(&On::default()))?;
        let homes = |gpu: usize| bytes.homes(gpu, free);
        let gpus = |homes: &Homes| (usize::from(homes.cpu)..homes.parts).zip(free);
        // What layers take alone leaves few numbers to try; those are tried with all that steps take.
        let alone = |gpu: &usize| {
            let homes = homes(*gpu);
            gpus(&homes).all(|(part, free)| bytes.of(part, &homes) <= *free)
        };
        let (mut fits, mut above) = (0, (1..=self.count).rev().find(alone).unwrap_or(0) + 1);
        while above - fits > 1 {
            let gpu = fits + (above - fits) / 2;
            let homes = homes(gpu);
            let taken = self.parts(&homes, &homes.with_cpu(ons))?;
            let enough = |(part, free): (usize, &u64)| taken.get(part).is_some_and(|m| m.fits(*free));
            if gpus(&homes).all(enough) { fits = gpu } else { above = gpu }
        }
        Ok((fits > 0).then_some(fits))
    }
}

/// Bytes of a model's layers, with their cache, and of what is before and behind them.
#[derive(Clone, Debug)]
struct Bytes {
    before: u64,
    layers: Vec<u64>,
    behind: u64,
}

impl Bytes {
    /// As [`Layers::homes`].
    fn homes(&self, gpu: usize, free: &[u64]) -> Homes {
        let mut room: Vec<u64> = free.iter().map(|free| free.saturating_sub(SLACK)).collect();
        let less = |gpu: Option<&mut u64>, bytes: u64| {
            if let Some(room) = gpu {
                *room = room.saturating_sub(bytes);
            }
        };
        // Where the CPU has some layers, what is before them is its own.
        if gpu >= self.layers.len() {
            less(room.first_mut(), self.before);
        }
        less(room.last_mut(), self.behind);
        Homes::by(&self.layers, gpu, &room)
    }

    /// What a part of these homes has.
    fn of(&self, part: usize, homes: &Homes) -> u64 {
        let own = self.layers.iter().zip(&homes.layers).filter(|(_, home)| **home == part);
        let sum = own.fold(0u64, |sum, (bytes, _)| sum.saturating_add(*bytes));
        let before = if part == 0 { self.before } else { 0 };
        let behind = if part + 1 == homes.parts { self.behind } else { 0 };
        sum.saturating_add(before).saturating_add(behind)
    }
}

/// An error for a model that has no layers to share out.
pub(crate) fn no_layers() -> Error {
    ModelError::unsupported("gpu layers", "no weight of this model has a layer's number in its name").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_go_over_devices_by_their_memory() {
        let homes = Homes::new(8, 6, &[10, 20]);
        assert_eq!(homes, Homes { cpu: true, parts: 3, layers: vec![0, 0, 1, 1, 2, 2, 2, 2] });
        assert_eq!(homes.describe(0), "layers 0 to 1");
        assert_eq!(homes.describe(2), "layers 4 to 7 and the head");
        assert_eq!(Homes::new(4, 9, &[1, 1]), Homes { cpu: false, parts: 2, layers: vec![0, 0, 1, 1] });
        assert_eq!(Homes::new(3, 1, &[0]).layers, [0, 0, 1]);
        assert_eq!(Homes::new(2, 2, &[u64::MAX, u64::MAX]).layers, [0, 1]);
        assert_eq!(Homes::new(1, 1, &[5, 5]).describe(0), "layer 0");
        assert!(Homes::new(0, 3, &[5]).layers.is_empty());
    }

    #[test]
    fn what_is_beside_the_layers_leaves_less_room_for_them() {
        let bytes = Bytes { before: 10, layers: vec![1; 8], behind: 20 };
        let homes = |gpu: usize, free: [u64; 2]| bytes.homes(gpu, &free.map(|free| free + SLACK));
        assert_eq!(homes(8, [20, 50]).layers, [0, 0, 1, 1, 1, 1, 1, 1]);
        // What is before them is the CPU's.
        assert_eq!(homes(4, [30, 50]).layers, [0, 0, 0, 0, 1, 1, 2, 2]);
        // One that has no room beside the head has that alone.
        assert_eq!(homes(8, [200, 5]), Homes { cpu: false, parts: 2, layers: vec![0; 8] });
    }

    #[test]
    fn layers_of_many_bytes_count_for_more() {
        // Two of the whole context, and two of a window.
        let bytes = Bytes { before: 0, layers: vec![100, 100, 1, 1], behind: 0 };
        let homes = |gpu: usize, free: &[u64]| {
            bytes.homes(gpu, &free.iter().map(|free| free + SLACK).collect::<Vec<_>>()).layers
        };
        assert_eq!(homes(4, &[150, 150]), [0, 1, 1, 1]);
        assert_eq!(homes(3, &[150, 150]), [0, 1, 2, 2]);
        assert_eq!(homes(4, &[120, 120, 10]), [0, 1, 2, 2]);
        assert_eq!(homes(4, &[u64::MAX / 2; 2]), [0, 1, 1, 1]);
    }

    #[test]
    fn layers_find_room_wherever_there_is_some() {
        // A share of each would put the first layer where there is room for none.
        assert_eq!(Homes::by(&[3; 3], 3, &[2, 2, 2, 10]).layers, [3; 3]);
        assert_eq!(Homes::by(&[3; 3], 3, &[7, 2, 5]).layers, [0, 0, 2]);
        assert_eq!(Homes::by(&[1, 1, 1, 50], 4, &[60, 60]).layers, [0, 0, 0, 1]);
        // There is not enough for all: the shares are as if there was.
        assert_eq!(Homes::by(&[4; 6], 6, &[2, 4]).layers, [0, 0, 1, 1, 1, 1]);
        assert_eq!(Homes::by(&[0; 3], 3, &[5, 5]).layers, [0; 3]);
        assert_eq!(Homes::by(&[u64::MAX; 2], 2, &[1, 0]).layers, [0, 1]);
        // No other way leaves the fullest emptier: all ways of a few layers over three devices are tried.
        let mut state = 1_u64;
        let mut random = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            1 + (state >> 33) % below
        };
        for _ in 0..200 {
            let (bytes, room) = ([(); 6].map(|()| random(9)), [(); 3].map(|()| random(30)));
            let fullest = |ends: [usize; 4]| {
                let part = |i: usize| bytes[ends[i]..ends[i + 1]].iter().sum::<u64>() as f64 / room[i] as f64;
                (0..3).map(part).fold(0.0, f64::max)
            };
            let ways = (0..=6).flat_map(|a| (a..=6).map(move |b| fullest([0, a, b, 6])));
            let best = ways.fold(f64::INFINITY, f64::min);
            let layers = Homes::by(&bytes, 6, &room).layers;
            assert!(layers.is_sorted(), "{bytes:?} {room:?}: {layers:?}");
            let end = |part: usize| layers.partition_point(|l| *l < part);
            let ours = fullest([0, end(1), end(2), 6]);
            assert!(ours <= best * (1.0 + 1e-12), "{bytes:?} {room:?}: {layers:?} {ours} {best}");
        }
    }

    #[test]
    fn what_belongs_to_no_layer_is_where_it_is_used() {
        for (name, [tied, not]) in [
            ("model.embed_tokens.weight", [false, true]),
            ("transformer.wpe.weight", [false, true]),
            ("lm_head.weight", [false; 2]),
            ("gpt_neox.embed_in.weight", [false, true]),
            ("embed_out.weight", [false; 2]),
            ("model.language_model.embed_tokens_per_layer.weight", [true; 2]),
            ("model.per_layer_model_projection.weight", [true; 2]),
            ("model.language_model.per_layer_model.language_model_projection.weight", [true; 2]),
            ("model.language_model.altup_projections.1.weight", [true; 2]),
            ("model.altup_projections.weight", [true; 2]),
            ("model.altup_unembed_projections.weight", [false; 2]),
            ("model.vision_tower.patch_embed.weight", [false; 2]),
        ] {
            assert_eq!([is_before(name, true), is_before(name, false)], [tied, not], "{name}");
        }
    }

    /// Embeddings come to the first part, and to the second what its first router reads, streams turned three times, and four layers' inputs.
    #[cfg(feature = "cpu")]
    #[test]
    fn streams_are_made_where_the_first_layer_is() {
        use ogive_engine::backend::Trace;
        let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/../ogive-models/tests/golden/gemma3n");
        let options = Options::new().context(40);
        let checkpoint = options.checkpoint(golden).unwrap();
        let cpu = || Arc::new(ogive_cpu::CpuBackend::builder().threads(1).build().unwrap());
        let traces = [(); 2].map(|()| Trace::new(cpu()));
        let parts = traces.iter().map(|trace| Arc::new(trace.clone()) as Arc<dyn Backend>).collect();
        let homes = Homes { cpu: false, parts: 2, layers: vec![0, 1, 1, 1, 1] };
        let split = Layers::of(&checkpoint, &options).split(parts, &homes).unwrap();
        let model = options.backend(Arc::new(split)).open(golden).unwrap();
        traces.iter().for_each(|trace| drop(trace.take()));
        model.logits(&[1, 2, 3]).unwrap();
        let brought = traces.each_ref().map(|trace| {
            let entries = trace.take();
            entries.iter().filter(|entry| entry.operator == "bring").map(|entry| entry.calls).sum::<u64>()
        });
        assert_eq!(brought, [1, 8]);
    }

    #[test]
    fn as_many_layers_as_fit_with_what_their_steps_take() {
        let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/../ogive-models/tests/golden/qwen3");
        let options = Options::new().context(40).step_tokens(16);
        let checkpoint = options.checkpoint(golden).unwrap();
        let (layers, on) = (Layers::of(&checkpoint, &options), On { graphs: true, ..On::default() });
        assert_eq!(layers.count, 3);
        let part = |gpu: usize| {
            let homes = Homes::new(3, gpu, &[1]);
            let parts = layers.parts(&homes, &homes.with_cpu(std::slice::from_ref(&on))).unwrap();
            assert_eq!(parts.len(), if gpu < 3 { 2 } else { 1 });
            *parts.last().unwrap()
        };
        let ons = [on.clone()];
        for gpu in 1..=3 {
            // What crosses to a part, and what its graphs keep, is of that part.
            let taken = part(gpu);
            assert!(taken.working > 0 && taken.graphs > 0, "{taken:?}");
            let enough = taken.total() + SLACK;
            assert_eq!(layers.most(&[enough], &ons).unwrap(), Some(gpu));
            assert_eq!(layers.most(&[enough - 1], &ons).unwrap(), (gpu > 1).then(|| gpu - 1));
        }
        // Over two, the fuller decides.
        let most = layers.most(&[part(1).total() + SLACK + 4096; 2], &[on.clone(), on.clone()]).unwrap();
        assert!(most.is_some_and(|most| most >= 2), "{most:?}");
    }

    #[test]
    fn several_sequences_leave_room_for_fewer_layers() {
        let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/../ogive-models/tests/golden/qwen3");
        let of = |n: usize| Options::new().context(4096).step_tokens(16).sequences(n);
        let (one, three) = (of(1).estimate_memory(golden).unwrap(), of(3).estimate_memory(golden).unwrap());
        assert_eq!((three.sequences, three.context, three.cache), (3, 4096, 3 * one.cache));
        assert_eq!((one.sequences, one.weights), (1, three.weights));
        let [one_line, line] = [one, three].map(|memory| memory.to_string());
        assert!(one_line.contains(" at 4096 tokens") && line.contains(" at 3 times 4096 tokens"), "{line}");
        // A step has a row for each, and the logits of all come at once.
        let many = of(40).estimate_memory(golden).unwrap();
        assert!(many.working > 2 * one.working, "{many} {one}");
        let checkpoint = of(1).checkpoint(golden).unwrap();
        let most = |n: usize| {
            let (options, free) = (of(n), one.total() + SLACK);
            Layers::of(&checkpoint, &options).most(&[free], &[On::default()]).unwrap()
        };
        assert_eq!(most(1), Some(3));
        assert!(most(2).is_some_and(|n| n < 3), "{:?}", most(2));
        let error = of(5_000).estimate_memory(golden).unwrap_err().to_string();
        assert!(error.contains("room for 5000 sequences was asked for, and 4096 are the most"), "{error}");
    }

    #[test]
    fn a_head_that_is_the_embedding_once_more_is_none() {
        let golden =
            std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../ogive-models/tests/golden/llama"));
        let folder = tempfile::tempdir().unwrap();
        let mut file = std::fs::read(golden.join("model.safetensors")).unwrap();
        let config = std::fs::read_to_string(golden.join("config.json")).unwrap();
        let (length, rest) = file.split_first_chunk::<8>().unwrap();
        let data = 8 + u64::from_le_bytes(*length) as usize;
        let header: serde_json::Value = serde_json::from_slice(&rest[..data - 8]).unwrap();
        let place = |name: &str| {
            let offset = |i: usize| data + header[name]["data_offsets"][i].as_u64().unwrap() as usize;
            offset(0)..offset(1)
        };
        let (table, head) = (place("model.embed_tokens.weight"), place("lm_head.weight"));
        for (copied, tied) in [(false, false), (false, true), (true, false), (true, true)] {
            if copied {
                file.copy_within(table.clone(), head.start);
            }
            std::fs::write(folder.path().join("model.safetensors"), &file).unwrap();
            let mut config: serde_json::Value = serde_json::from_str(&config).unwrap();
            config["tie_word_embeddings"] = tied.into();
            std::fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
            let options = Options::new();
            let checkpoint = options.checkpoint(folder.path()).unwrap();
            assert!(checkpoint.source.tensors().iter().any(|t| t.name == "lm_head.weight"));
            assert_eq!(Layers::of(&checkpoint, &options).tied, copied && tied);
        }
    }

    #[test]
    fn layers_on_a_gpu_and_the_cpu_do_not_go_together() {
        let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/../ogive-models/tests/golden/qwen3");
        let of = |layers| Options::new().device(crate::Device::Cpu).gpu_layers(layers);
        for layers in [GpuLayers::Auto, GpuLayers::Count(0)] {
            of(layers).estimate_memory(golden).unwrap();
        }
        let options = of(GpuLayers::Count(3));
        for error in [options.estimate_memory(golden).unwrap_err(), options.open(golden).unwrap_err()] {
            let error = error.to_string();
            assert!(error.contains("3 layers on a GPU were asked for, and the device cpu"), "{error}");
        }
    }

    #[test]
    fn words_for_layers() {
        for (text, wanted) in
            [("auto", GpuLayers::Auto), ("12", GpuLayers::Count(12)), ("all", GpuLayers::Count(usize::MAX))]
        {
            assert_eq!(text.parse::<GpuLayers>().unwrap(), wanted);
            assert_eq!(wanted.to_string(), text);
        }
        assert!("-1".parse::<GpuLayers>().is_err() && "".parse::<GpuLayers>().is_err());
    }
}
