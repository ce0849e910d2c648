//! Filling layers from a weight file.

use crate::backend::{Backend, Weight};
use crate::tensor::{Error, HostWeight, Result, Source, Tensor, Unpacked, WeightInfo, optional};
use crate::{Embedding, LayerNorm, Linear, LowRank, RmsNorm, mlp::fixed, updates::Updates};
use std::fmt::Display;
use std::sync::{Arc, Mutex, PoisonError};

/// A place in a weight file, and the backend its weights go to.
///
/// # Errors
/// A method that reads a tensor fails where the file has none of that name, which [`optional`](Self::optional) turns into `None`; where its
/// shape is not what was asked for, which is an error of its own; and where the backend cannot take it.
#[derive(Clone, Debug)]
pub struct Loader<'a> {
    source: &'a dyn Source,
    backend: &'a dyn Backend,
    context: Option<usize>,
    prefix: String,
    /// Of this place and all others of the file.
    unpacked: Arc<Mutex<Vec<(WeightInfo, Unpacked)>>>,
    /// What the context came to, of all places.
    means: Arc<Mutex<Vec<u64>>>,
    /// What was found out about the file.
    notes: Arc<Mutex<Vec<String>>>,
    /// What became of adapters' updates.
    pub(crate) updates: Arc<Mutex<Updates>>,
}

impl<'a> Loader<'a> {
    /// The root of a file.
    pub fn new(source: &'a dyn Source, backend: &'a dyn Backend) -> Self {
        Self {
            source,
            backend,
            context: None,
            prefix: String::new(),
            unpacked: Arc::default(),
            means: Arc::default(),
            notes: Arc::default(),
            updates: Arc::default(),
        }
    }

    /// The same for contexts of up to so many tokens: some ways of stretching rotary positions depend on it.
    #[must_use]
    pub fn for_context(self, tokens: usize) -> Self {
        Self { context: Some(tokens), ..self }
    }

    /// The longest context that was asked for, if the caller said. Each is taken for a model of its own
    /// ([`context_means`](Self::context_means)); who knows better uses [`context_as`](Self::context_as).
    pub fn context(&self) -> Option<usize> {
        self.context_as(|tokens| tokens as u64)
    }

    /// The same where of the context only this counts: of two with the same number the model is the same.
    pub fn context_as(&self, means: impl FnOnce(usize) -> u64) -> Option<usize> {
        if let Some(tokens) = self.context {
            self.means.lock().unwrap_or_else(PoisonError::into_inner).push(means(tokens));
        }
        self.context
    }

    /// What the context came to so far, wherever it was asked for; nothing where the model is the same for all. What was computed with
    /// a model is good for another one of the same file if this is the same.
    pub fn context_means(&self) -> Vec<u64> {
        self.means.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Where the weights go.
    pub fn backend(&self) -> &'a dyn Backend {
        self.backend
    }

    /// The place `name` below this one.
    #[must_use]
    pub fn at(&self, name: impl Display) -> Self {
        Self { prefix: format!("{}{name}.", self.prefix), ..self.clone() }
    }

    /// The place `name` below this one, or this one itself where `weight` is right here: checkpoints that were saved
    /// without a head leave the prefix out.
    ///
    /// # Errors
    /// If the weight is there and cannot be read.
    pub fn at_or_here(&self, name: &str, weight: &str) -> Result<Self> {
        Ok(if self.optional(self.host(weight))?.is_some() { self.clone() } else { self.at(name) })
    }

    /// What `name` below this place is called from the root of the file, for messages.
    pub fn name(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    /// The tensor of exactly this name below this place, as the file has it.
    ///
    /// # Errors
    /// If the file has none of this name, or cannot give it ([`Source::get`]).
    pub fn tensor(&self, name: &str) -> Result<HostWeight> {
        self.source.get(&self.name(name))
    }

    /// `name.weight`, as the file has it.
    ///
    /// # Errors
    /// As [`tensor`](Self::tensor).
    pub fn host(&self, name: &str) -> Result<HostWeight> {
        self.tensor(&format!("{name}.weight"))
    }

    /// Hands a weight to the backend.
    ///
    /// # Errors
    /// If the backend cannot take it ([`Backend::upload_weight`]); the error names it.
    pub fn weight(&self, host: &HostWeight) -> Result<Weight> {
        let weight = self.backend.upload_weight(host);
        let weight = weight.map_err(|e| e.within(&format!("loading `{}`", host.name)))?;
        if let Some(unpacked) = weight.unpacked() {
            let info = WeightInfo::new(&*host.name, host.shape, host.format);
            self.unpacked.lock().unwrap_or_else(PoisonError::into_inner).push((info, unpacked.clone()));
        }
        Ok(weight)
    }

    /// The weights so far that are kept in single precision and not as packed as the file has them, wherever in the file they are: each
    /// as often as it went to the backend.
    pub fn unpacked(&self) -> Vec<(WeightInfo, Unpacked)> {
        self.unpacked.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Keeps a line for whoever loads the model: what the file has otherwise than its settings say, and what is made of that.
    pub fn note(&self, line: impl Into<String>) {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner).push(line.into());
    }

    /// The lines so far, wherever in the file they were [noted](Self::note).
    pub fn notes(&self) -> Vec<String> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// `name.weight`, packed, `name.bias` if there is one, and the update of an adapter, `name.lora_A.weight` and `name.lora_B.weight`, if one
    /// lies over the file ([`Source`]).
    ///
    /// # Errors
    /// If there are not as many biases as outputs, or an update does not fit; else as [all that read](Self#errors).
    pub fn linear(&self, name: &str) -> Result<Linear> {
        self.with_bias(name, self.host(name)?)
    }

    /// The same where the file has `[in, out]`, as GPT-2's do.
    ///
    /// # Errors
    /// As [`linear`](Self::linear).
    pub fn linear_transposed(&self, name: &str) -> Result<Linear> {
        self.with_bias(name, self.host(name)?.transposed()?)
    }

    pub(crate) fn with_bias(&self, name: &str, host: HostWeight) -> Result<Linear> {
        let bias = self.optional(self.numbers(&format!("{name}.bias")))?;
        if let Some(b) = &bias
            && b.shape().len() != host.shape[1]
        {
            let why = format!("{} biases for {} outputs", b.shape().len(), host.shape[1]);
            return Err(Error::invalid(&host.name, why));
        }
        let update = match self.update(name, host.shape)? {
            Some([down, up]) => Some(Box::new(LowRank { down: self.weight(&down)?, up: self.weight(&up)? })),
            None => None,
        };
        Ok(Linear { update, ..Linear::new(self.weight(&host)?, bias) })
    }

    /// An error that names the tensor, if there is not as much of something as the settings need.
    pub(crate) fn fits(&self, name: &str, found: usize, wanted: usize) -> Result<()> {
        match found == wanted {
            true => Ok(()),
            false => {
                let why = format!("{found} in place of {wanted}; do weights and config belong together?");
                Err(Error::invalid(&self.name(name), why))
            }
        }
    }

    /// Matrices `name` of `n` experts: one stacked tensor, `name.weight` or, as some models have it, `name`; or `0.name.weight`,
    /// `1.name.weight`, ...
    ///
    /// # Errors
    /// If there are not `n` experts, or not all of one shape; else as [all that read](Self#errors).
    pub fn stacked(&self, name: &str, n: usize) -> Result<Weight> {
        let stack = match self.optional(self.host(name))? {
            Some(host) => Some(host),
            None => self.optional(self.tensor(name))?,
        };
        let host = match stack {
            Some(host) => host,
            None => {
                let parts = (0..n).map(|e| self.at(e).host(name)).collect::<Result<Vec<_>>>()?;
                HostWeight::stack(self.name(&format!("{name}.weight")), &parts)?
            }
        };
        if host.shape[0] != n {
            return Err(Error::invalid(
                &host.name,
                format!("{} experts, where {n} are configured", host.shape[0]),
            ));
        }
        self.weight(&host)
    }

    /// Matrices that each of `n` experts has below each other in the one stacked tensor `name.weight`: cut into so many outputs each,
    /// and the parts of all experts stacked.
    ///
    /// # Errors
    /// If there are not `n` experts, or not so many outputs in all; else as [all that read](Self#errors).
    pub fn stacked_parts<const N: usize>(
        &self,
        name: &str,
        n: usize,
        outputs: [usize; N],
    ) -> Result<[Weight; N]> {
        self.parts_of_stack(&self.host(name)?, n, outputs)
    }

    /// The same of a stacked tensor that was read already.
    ///
    /// # Errors
    /// As [`stacked_parts`](Self::stacked_parts).
    pub fn parts_of_stack<const N: usize>(
        &self,
        host: &HostWeight,
        n: usize,
        outputs: [usize; N],
    ) -> Result<[Weight; N]> {
        let rows = outputs.iter().try_fold(0usize, |sum, n| sum.checked_add(*n));
        // Where there are no bytes, nothing bounds the shape.
        if host.shape[0] != n || rows != Some(host.shape[1]) || host.bytes.is_empty() {
            let why = format!("{:?} is not {n} experts whose parts have {outputs:?} outputs", host.shape);
            return Err(Error::invalid(&host.name, format!("{why}; do weights and config belong together?")));
        }
        let each = host.shape[1];
        let flat = host.regrouped(1)?;
        let mut from = 0;
        let part = |outputs: usize| {
            let begin = from;
            from += outputs;
            let of = |e: usize| flat.rows(e * each + begin..e * each + begin + outputs);
            let parts = (0..n).map(of).collect::<Result<Vec<_>>>()?;
            self.weight(&HostWeight::stack(host.name.clone(), &parts)?)
        };
        let parts = outputs.map(part);
        fixed(&host.name, parts.into_iter().collect::<Result<_>>()?)
    }

    /// A small tensor as numbers: `[cols]`, or `[rows, cols]`.
    ///
    /// # Errors
    /// Those of [all that read](Self#errors); the shape is not looked at.
    pub fn numbers(&self, name: &str) -> Result<Tensor> {
        self.upload(&self.tensor(name)?)
    }

    /// A small weight as numbers: `[cols]`, or `[experts * rows, cols]`.
    ///
    /// # Errors
    /// If the backend cannot take it ([`Backend::upload`]).
    pub fn upload(&self, host: &HostWeight) -> Result<Tensor> {
        let [experts, rows, cols] = host.shape;
        let shape = if experts * rows == 1 { [cols].into() } else { [experts * rows, cols].into() };
        self.backend.upload(&host.to_vec(), shape)
    }

    /// `name.weight` and `name.bias` as a norm's factors and summands; the first BERT checkpoints call them `gamma` and
    /// `beta`.
    ///
    /// # Errors
    /// If there are no factors; else as [all that read](Self#errors).
    pub fn layer_norm(&self, name: &str, eps: f32) -> Result<LayerNorm> {
        let leaf = |leaf: &str| self.optional(self.numbers(&format!("{name}.{leaf}")));
        let weight = match leaf("gamma")? {
            Some(gamma) => gamma,
            None => self.numbers(&format!("{name}.weight"))?,
        };
        let bias = leaf("bias")?;
        Ok(LayerNorm { weight, bias: if bias.is_some() { bias } else { leaf("beta")? }, eps })
    }

    /// `name.weight` as a norm's factors.
    ///
    /// # Errors
    /// Those of [all that read](Self#errors); how many factors there are is not looked at.
    pub fn rms_norm(&self, name: &str, eps: f32) -> Result<RmsNorm> {
        Ok(RmsNorm { weight: self.numbers(&format!("{name}.weight"))?, eps })
    }

    /// The same where the file keeps the factors less one, as Gemma's do.
    ///
    /// # Errors
    /// As [`rms_norm`](Self::rms_norm).
    pub fn rms_norm_less_one(&self, name: &str, eps: f32) -> Result<RmsNorm> {
        let host = self.host(name)?;
        let factors: Vec<f32> = host.to_vec().iter().map(|w| 1.0 + w).collect();
        Ok(RmsNorm { weight: self.backend.upload(&factors, [factors.len()].into())?, eps })
    }

    /// The taps of a convolution over time by which each of so many channels is convolved alone: `name.weight`, as
    /// [`causal_conv`](Backend::causal_conv) takes them. `[width, channels]`
    ///
    /// # Errors
    /// If there are other channels, or none of the taps; else as [all that read](Self#errors).
    pub fn taps(&self, name: &str, channels: usize) -> Result<Tensor> {
        let host = self.host(name)?;
        let [outputs, inputs, width] = host.shape;
        // Where there are no bytes, nothing bounds the shape.
        if outputs.saturating_mul(inputs) != channels || host.bytes.is_empty() {
            let why = format!("{:?} is not taps of {channels} channels", host.shape);
            return Err(Error::invalid(&host.name, format!("{why}; do weights and config belong together?")));
        }
        let taps = host.to_vec();
        let turned: Vec<f32> =
            (0..width).flat_map(|tap| taps.iter().skip(tap).step_by(width).copied()).collect();
        self.backend.upload(&turned, [width, channels].into())
    }

    /// One number, to add or multiply by. `[1]`
    ///
    /// # Errors
    /// If the backend cannot take it ([`Backend::upload`]).
    pub fn constant(&self, value: f32) -> Result<Tensor> {
        self.backend.upload(&[value], [1].into())
    }

    /// `name.weight` as a table of token vectors.
    ///
    /// # Errors
    /// Those of [all that read](Self#errors); the shape is not looked at.
    pub fn embedding(&self, name: &str) -> Result<Embedding> {
        self.table(name, &self.host(name)?)
    }

    /// The same of a table whose rows are looked up and that is no head, so that no backend lays it anew for products.
    ///
    /// # Errors
    /// As [`embedding`](Self::embedding).
    pub fn lookup(&self, name: &str) -> Result<Embedding> {
        self.table(name, &self.host(name)?.looked_up())
    }

    fn table(&self, name: &str, host: &HostWeight) -> Result<Embedding> {
        Ok(Embedding { weight: self.weight(host)?, name: self.name(&format!("{name}.weight")) })
    }

    /// `name.weight` as a table of position vectors. A model has none beyond them, so a longer context is refused here and
    /// not by the first text that needs it.
    ///
    /// # Errors
    /// If the [context](Self::context) that was asked for is longer than the table; else as [all that read](Self#errors).
    pub fn positions(&self, name: &str) -> Result<Embedding> {
        self.positions_behind(name, 0)
    }

    /// The same of a table whose first `unused` rows no token has: RoBERTa counts from behind that of padding.
    ///
    /// # Errors
    /// As [`positions`](Self::positions), and if it has no more rows.
    pub fn positions_behind(&self, name: &str, unused: usize) -> Result<Embedding> {
        let host = self.host(name)?;
        let (host, places) = (host.rows(unused..host.shape[1])?, host.shape[1].saturating_sub(unused));
        let Some(context) = self.context.filter(|c| *c > places) else { return self.table(name, &host) };
        let why =
            format!("the model has learned {places} positions, and a context of {context} was asked for");
        Err(Error::invalid(&host.name, why))
    }

    /// The output head as [`own_head`](Self::own_head) has it; the embedding where the file has no head.
    ///
    /// # Errors
    /// As [`own_head`](Self::own_head).
    pub fn head(&self, name: &str, embed: &Embedding, tied: bool) -> Result<Linear> {
        Ok(self.own_head(name, embed, tied)?.unwrap_or_else(|| embed.tied()))
    }

    /// The output head `name.weight`, the embedding where `tied` says so; `None` where the file has no head, as those of models that
    /// were saved for vectors of texts. Logits by the embedding would look right there and mean nothing.
    ///
    /// A file may have a head though `tied` is said. Where that is no copy of the embedding it was trained by itself, and counts, as in
    /// transformers since 5.0; it is [noted](Self::note).
    ///
    /// # Errors
    /// If the head has not as many biases as outputs; else as [all that read](Self#errors), but for a head that is missing.
    pub fn own_head(&self, name: &str, embed: &Embedding, tied: bool) -> Result<Option<Linear>> {
        self.head_within(name, embed, tied, usize::MAX)
    }

    /// The same of a head that may be for more tokens than `embed` is: it ends where that does.
    ///
    /// # Errors
    /// As [`own_head`](Self::own_head).
    pub fn own_head_cut(&self, name: &str, embed: &Embedding, tied: bool) -> Result<Option<Linear>> {
        self.head_within(name, embed, tied, embed.rows())
    }

    fn head_within(&self, name: &str, embed: &Embedding, tied: bool, most: usize) -> Result<Option<Linear>> {
        let head = self.optional(self.host(name))?;
        let own = |head: HostWeight| match head.shape[1].checked_sub(most) {
            // Biases and updates are cut with it.
            Some(rest @ 1..) => Ok(self.linear_parts(name, &[most, rest])?.into_iter().next()),
            _ => self.with_bias(name, head).map(Some),
        };
        if !tied {
            return head.map_or(Ok(None), own);
        }
        let Some(head) = head else { return Ok(Some(embed.tied())) };
        if head.is_copy_of(&self.source.get(&embed.name)?) {
            head.bytes.release();
            return Ok(Some(embed.tied()));
        }
        self.note(format!(
            "`{}` is used and not the embedding, from which it differs, though the settings say that the two are one",
            self.name(&format!("{name}.weight"))
        ));
        own(head)
    }

    /// Turns "there is none" into `None`; other errors stay errors.
    ///
    /// # Errors
    /// That of `found`, unless it says that something [is missing](Error::is_missing).
    pub fn optional<T>(&self, found: Result<T>) -> Result<Option<T>> {
        optional(found)
    }
}
