//! A GGUF file's tensors under Hugging Face's names.
//!
//! What llama.cpp's converter writes beside an NVFP4 matrix has no name of its own: a factor for all of it or for each expert (`….scale`)
//! becomes the weight's [`Scale`], whatever the matrix is packed in now, and what activations were rounded by (`….input_scale`) is left
//! out, as they are not rounded so here. An architecture whose rules name such a tensor has it instead.

use super::translation::fill_in;
use super::{Change, Translation};
use crate::{
    bytes::bytes_of,
    formats::{Formats, fold_shape},
};
use gguf_file::{Gguf, TensorInfo};
use ogive_tensor::{Config, Error, F32, HostWeight, Result, Scale, Source, WeightInfo};
use std::{
    collections::{HashMap, HashSet, hash_map::Entry as Slot},
    fmt,
    sync::Arc,
};

/// A GGUF file as a source of weights. Tensors that have no rule keep their GGUF names.
pub struct GgufSource {
    gguf: Arc<Gguf>,
    config: Config,
    formats: Formats,
    entries: Vec<Entry>,
    by_name: HashMap<String, usize>,
    /// By a matrix's place: that of its factors.
    scales: HashMap<usize, usize>,
}

/// A tensor that can be had.
struct Entry {
    name: String,
    /// Places in the file's list of tensors.
    of: Vec<usize>,
    change: Option<Change>,
}

/// What a weight of a [`GgufSource`] is made of.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Origin {
    /// The weight's name, one of Hugging Face's where a rule gives it that.
    pub name: String,
    /// The names of the file's tensors that it is made of.
    pub of: Vec<String>,
    /// How; `None` where it is the one tensor as it is.
    pub change: Option<Change>,
}

impl GgufSource {
    /// The tensors of `gguf` by the rules of `translation`; `config` is what [`Translation::config`] gave.
    ///
    /// # Errors
    /// If two tensors would get the same name. What is wrong with a tensor is said when it is asked for.
    pub fn new(gguf: Arc<Gguf>, translation: &Translation, config: &Config) -> Result<Self> {
        Self::with_formats(gguf, translation, config, Formats::default())
    }

    pub(crate) fn with_formats(
        gguf: Arc<Gguf>,
        translation: &Translation,
        config: &Config,
        formats: Formats,
    ) -> Result<Self> {
        let translation = &translation.fitted(&gguf);
        let places: HashMap<&str, usize> =
            gguf.tensors().iter().enumerate().map(|(i, t)| (t.name(), i)).collect();
        let mut taken = HashSet::new();
        let mut entries: Vec<Entry> = Vec::with_capacity(places.len());
        for (i, tensor) in gguf.tensors().iter().enumerate() {
            let Some((rule, numbers)) = translation.rule_for(tensor.name()) else { continue };
            let mut of = vec![i];
            of.extend(rule.from.iter().skip(1).map_while(|f| places.get(&*fill_in(f, &numbers)).copied()));
            if of.len() < rule.from.len() {
                continue;
            }
            of.iter().for_each(|i| _ = taken.insert(*i));
            entries.push(Entry { name: fill_in(&rule.to, &numbers), of, change: rule.change.clone() });
        }
        let mut scales = HashMap::new();
        for (i, tensor) in gguf.tensors().iter().enumerate() {
            let Some(stem) = tensor.name().strip_suffix(".weight") else { continue };
            for beside in [".scale", ".input_scale"] {
                let place = places.get(&*format!("{stem}{beside}"));
                if let Some(place) = place.filter(|place| taken.insert(**place)) {
                    scales.extend((beside == ".scale").then_some((i, *place)));
                }
            }
        }
        for (i, tensor) in gguf.tensors().iter().enumerate().filter(|(i, _)| !taken.contains(i)) {
            entries.push(Entry { name: tensor.name().to_owned(), of: vec![i], change: None });
        }
        entries.sort_by_key(|e| e.of.first().copied());
        let mut by_name = HashMap::with_capacity(entries.len());
        for (i, entry) in entries.iter().enumerate() {
            match by_name.entry(entry.name.clone()) {
                Slot::Vacant(slot) => slot.insert(i),
                Slot::Occupied(_) => {
                    let what = "two tensors of the file get this name; the file or its translation is wrong";
                    return Err(Error::invalid(&entry.name, what));
                }
            };
        }
        Ok(Self { config: config.clone(), formats, entries, by_name, scales, gguf })
    }

    /// The file.
    pub fn gguf(&self) -> &Arc<Gguf> {
        &self.gguf
    }

    /// What each weight is made of, in the order of the file.
    pub fn origins(&self) -> Vec<Origin> {
        let origin = |entry: &Entry| Origin {
            name: entry.name.clone(),
            of: self.tensors_of(entry).map(|t| t.name().to_owned()).collect(),
            change: entry.change.clone(),
        };
        self.entries.iter().map(origin).collect()
    }

    fn tensors_of<'a>(&'a self, entry: &'a Entry) -> impl Iterator<Item = &'a TensorInfo> {
        entry.of.iter().filter_map(|&i| self.gguf.tensors().get(i))
    }

    /// The factors of a tensor, if it has some, held to it by what the file says of both.
    fn factors(&self, place: usize, of: &WeightInfo) -> Result<Option<&TensorInfo>> {
        let Some(tensor) = self.scales.get(&place).and_then(|scale| self.gguf.tensors().get(*scale)) else {
            return Ok(None);
        };
        let (scale, experts) = (info(tensor, &self.formats)?, of.shape[0]);
        if !std::ptr::eq(scale.format, &F32) || scale.shape != [1, 1, experts] {
            let why = format!(
                "one F32 for each of {experts} matrices of `{}` is needed and this is {:?} {}",
                of.name, scale.shape, scale.format.name
            );
            return Err(Error::invalid(&scale.name, why));
        }
        Ok(Some(tensor))
    }

    /// A tensor as the file has it, with its factors.
    fn read(&self, place: usize) -> Result<HostWeight> {
        let tensor = self.gguf.tensors().get(place).ok_or_else(|| Error::missing("a tensor"))?;
        let weight = read(&self.gguf, tensor, &self.formats)?;
        let Some(scale) = self.factors(place, &info(tensor, &self.formats)?)? else { return Ok(weight) };
        let scale = read(&self.gguf, scale, &self.formats)?;
        let [_, rows, cols] = weight.shape;
        let values = scale.to_vec();
        if let Some(v) = values.iter().find(|v| !v.is_finite()) {
            let why = format!("a factor is {v}, and all of a matrix would be; is the download complete?");
            return Err(Error::invalid(&scale.name, why));
        }
        weight.with_scale(Scale { values: values.into(), tile: [rows.max(1), cols.max(1)] })
    }

    fn info(&self, entry: &Entry) -> Result<WeightInfo> {
        let mut of = self.tensors_of(entry).map(|t| info(t, &self.formats)).collect::<Result<Vec<_>>>()?;
        for (place, info) in entry.of.iter().zip(&of) {
            self.factors(*place, info)?;
        }
        let made = match &entry.change {
            Some(change) => change.info(&of, &self.config)?,
            None => of.pop().ok_or_else(|| Error::missing(&entry.name))?,
        };
        Ok(WeightInfo::new(&*entry.name, made.shape, made.format))
    }
}

impl Source for GgufSource {
    fn get(&self, name: &str) -> Result<HostWeight> {
        let entry =
            self.by_name.get(name).and_then(|&i| self.entries.get(i)).ok_or_else(|| Error::missing(name))?;
        let mut of = Vec::with_capacity(entry.of.len());
        for place in &entry.of {
            of.push(self.read(*place).map_err(|e| e.within(name))?);
        }
        let made = match &entry.change {
            Some(change) => {
                let made = change.apply(&of, &self.config).map_err(|e| e.within(name))?;
                // What it was made of has been read, and mostly is not read again.
                of.iter().for_each(|w| w.bytes.release());
                made
            }
            None => of.pop().ok_or_else(|| Error::missing(name))?,
        };
        Ok(made.named(name))
    }

    fn tensors(&self) -> Vec<WeightInfo> {
        self.entries.iter().filter_map(|e| self.info(e).ok()).collect()
    }

    fn left_out(&self) -> Vec<String> {
        self.entries.iter().filter(|e| self.info(e).is_err()).map(|e| e.name.clone()).collect()
    }
}

impl fmt::Debug for GgufSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GgufSource")
            .field("gguf", &self.gguf)
            .field("tensors", &self.entries.len())
            .finish_non_exhaustive()
    }
}

/// What the file says of a tensor.
fn info(tensor: &TensorInfo, formats: &Formats) -> Result<WeightInfo> {
    let name = tensor.name();
    let ty = tensor.known_type().map_err(|e| Error::other("reading a tensor", e))?;
    let format = formats.find(ty.name()).ok_or_else(|| formats.unknown(name, ty.name()))?;
    Ok(WeightInfo::new(name, fold_shape(name, &tensor.shape())?, format))
}

/// A tensor as the file has it, under its GGUF name.
pub(crate) fn read(gguf: &Gguf, tensor: &TensorInfo, formats: &Formats) -> Result<HostWeight> {
    let WeightInfo { name, shape, format, .. } = info(tensor, formats)?;
    let data = gguf.data(tensor).map_err(|e| Error::other("reading a tensor", e))?;
    HostWeight::new(name, shape, format, bytes_of(&data.owner, data.range)?)
}
