//! A sequence as bytes: saved here, loaded in another process, gone on with as if nothing had been in between.
//!
//! The cache is saved and not only the tokens, because reading a prompt again is what people want to be spared. Should the
//! pages not fit the engine that loads (another block length with a window, no pages free), the tokens are enough: the
//! sequence is then computed anew when it goes on, and what it draws is the same.
//!
//! # The format, versions 1 and 2
//!
//! All numbers are little-endian; a *count* is 8 bytes.
//!
//! | field | bytes |
//! |---|---|
//! | `OGIVESES` | 8 |
//! | version | 4 |
//! | the model, by the number that whoever saved gave it | 8 |
//! | [`Digest`] of the cache's layers, as [`layout`] lists them | 8 |
//! | the cache's element by name, behind a count | |
//! | a note of whoever saved, behind a count | |
//! | the chain's [state](crate::sampler::Chain::state), behind a count | |
//! | tokens, behind a count | 4 each |
//! | in version 2, vectors in place of tokens, behind a count: below | |
//! | tokens whose rows are in the cache | 8 |
//! | the first token that is there, for each group behind their count | 8 each |
//! | rows: below | |
//! | states: for each layer that has one, its numbers in single precision | 4 each |
//! | [`Digest`] of all before | 8 |
//!
//! Rows come in chunks of 256 tokens, counted from token 0. In each chunk there are, layer by layer, the rows of the
//! tokens that the layer's group has: one byte, 0 if they are packed in the cache's element and 1 if in single precision, then
//! all keys, then all values. Vectors have the number of their first token, their rows and the numbers in each (8 bytes each), 4 bytes of
//! which the lowest bit says whether rows see each other to both sides and the next whether they have places, the number of blocks behind which
//! something is added to them (8), the vectors, what is added, and three places of 4 bytes for each row. Version 1 is written where there are
//! none. States are there where any token is in the cache.

mod input;
mod rows;
mod vectors;

use crate::backend::{BlockTable, CacheSpec, LayerCache};
use crate::engine::Seq;
use crate::inputs::{self, Placed};
use crate::pool::Held;
use crate::request::SeqId;
use crate::sampler::Chain;
use crate::tensor::{Error, ErrorKind, F32, Result};
use crate::{Digest, Engine};
use input::{DOING, Input, damaged};
use std::io::{self, Read, Write};
use std::ops::Range;

const MAGIC: &[u8; 8] = b"OGIVESES";
/// Of sessions without vectors in place of tokens, and of those with some.
const VERSIONS: [u32; 2] = [1, 2];

/// What was loaded beside the sequence.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Loaded {
    /// The sequence: it waits, to be [resumed](Engine::resume).
    pub id: SeqId,
    /// The note it was saved with.
    pub note: Vec<u8>,
    /// How many of its tokens need not be computed again.
    pub cached: usize,
}

/// What a file begins with, checked.
struct Head {
    note: Vec<u8>,
    chain: Vec<u8>,
    tokens: Vec<u32>,
    inputs: Vec<Placed>,
    /// Tokens whose rows are there.
    past: usize,
    /// From where on, for each group.
    firsts: Vec<usize>,
}

/// Adds up what is written.
struct Output<'w> {
    to: &'w mut dyn Write,
    digest: Digest,
}

impl Output<'_> {
    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        self.digest.push(bytes);
        self.to.write_all(bytes).map_err(failed)
    }

    fn count(&mut self, n: usize) -> Result<()> {
        self.put(&(n as u64).to_le_bytes())
    }

    fn counted(&mut self, bytes: &[u8]) -> Result<()> {
        self.count(bytes.len())?;
        self.put(bytes)
    }
}

fn failed(e: io::Error) -> Error {
    Error::new("saving a session", ErrorKind::Io(e))
}

/// The cache's layers as bytes, 41 each: a kind (0 pages, 1 a state, 2 another's), then `k_dim`, `v_dim`, the window (all
/// ones for none) and the group; for the others the length of the state or the number of the layer, and zeros.
fn layout(layers: &[LayerCache]) -> Vec<u8> {
    let mut out = Vec::new();
    for layer in layers {
        let (kind, fields) = match *layer {
            LayerCache::Paged { k_dim, v_dim, window, group } => {
                (0, [k_dim as u64, v_dim as u64, window.map_or(u64::MAX, |w| w as u64), group as u64, 0])
            }
            LayerCache::State { len } => (1, [len as u64, 0, 0, 0, 0]),
            LayerCache::Shares(of) => (2, [of as u64, 0, 0, 0, 0]),
            // A kind that is younger than this format.
            _ => (255, [0; 5]),
        };
        out.push(kind);
        out.extend(fields.iter().flat_map(|f| f.to_le_bytes()));
    }
    out
}

/// Layers with pages, in order.
fn paged_layers(spec: &CacheSpec) -> Vec<usize> {
    (0..spec.layers.len()).filter(|l| rows::paged(spec, *l).is_ok()).collect()
}

/// Layers with states, in order, and how long those are.
fn state_layers(spec: &CacheSpec) -> Vec<(usize, usize)> {
    let len = |(i, layer): (usize, &LayerCache)| match layer {
        LayerCache::State { len } => Some((i, *len)),
        _ => None,
    };
    spec.layers.iter().enumerate().filter_map(len).collect()
}

/// The chunks of `0..past`.
fn chunks(past: usize) -> impl Iterator<Item = Range<usize>> {
    (0..past).step_by(rows::CHUNK).map(move |a| a..(a + rows::CHUNK).min(past))
}

impl Engine {
    /// Writes a sequence as it is: its tokens, the rows and states that the cache holds of them, and its chain's state.
    /// `model` is a number by which its model is known again, `note` whatever else the caller wants to find there. The
    /// format is documented in the source, at `saved`; it takes about as many bytes as the sequence does of the cache.
    ///
    /// # Errors
    /// If there is no such sequence, or writing fails.
    pub fn save(&self, id: SeqId, model: u64, note: &[u8], to: &mut dyn Write) -> Result<()> {
        let none = || Error::missing(&format!("saving a session: sequence {id}"));
        let seq = self.seqs.get(&id).ok_or_else(none)?;
        let spec = self.cache.spec();
        let mut out = Output { to, digest: Digest::new() };
        out.put(MAGIC)?;
        let [plain, seeing] = VERSIONS;
        out.put(&if seq.inputs.is_empty() { plain } else { seeing }.to_le_bytes())?;
        out.put(&model.to_le_bytes())?;
        out.put(&Digest::of(&layout(&spec.layers)).to_le_bytes())?;
        out.counted(spec.element.name.as_bytes())?;
        out.counted(note)?;
        out.counted(&self.chain_state(id).unwrap_or_default())?;
        out.count(seq.tokens.len())?;
        let tokens: Vec<u8> = seq.tokens.iter().flat_map(|t| t.to_le_bytes()).collect();
        out.put(&tokens)?;
        if !seq.inputs.is_empty() {
            vectors::write(&mut out, &seq.inputs)?;
        }
        out.count(seq.past)?;
        let first = |group: usize| seq.held.tables.get(group).map_or(0, |t| t.first * spec.block_len);
        out.count(spec.blocks.len())?;
        for group in 0..spec.blocks.len() {
            out.count(first(group))?;
        }
        for chunk in chunks(seq.past) {
            for &layer in &paged_layers(spec) {
                let (group, _) = rows::paged(spec, layer)?;
                let range = chunk.start.max(first(group))..chunk.end;
                let Some(table) = seq.held.tables.get(group).filter(|_| !range.is_empty()) else { continue };
                let [k, v] = rows::read(&*self.backend, &self.cache, layer, table, &range)?;
                let (mut packed, mut other) = (rows::pack(spec.element, &k), rows::pack(spec.element, &v));
                if !std::ptr::eq(packed.0, other.0) {
                    (packed, other) = (rows::pack(&F32, &k), rows::pack(&F32, &v));
                }
                out.put(&[u8::from(!std::ptr::eq(packed.0, spec.element))])?;
                out.put(&packed.1)?;
                out.put(&other.1)?;
            }
        }
        if let Some(slots) = seq.held.slots.filter(|_| seq.past > 0) {
            for (layer, _) in state_layers(spec) {
                let state = rows::read_state(&*self.backend, &self.cache, layer, slots)?;
                let bytes: Vec<u8> = state.iter().flat_map(|x| x.to_le_bytes()).collect();
                out.put(&bytes)?;
            }
        }
        let sum = out.digest.value();
        out.put(&sum.to_le_bytes())?;
        out.to.flush().map_err(failed)
    }

    /// Takes a sequence in that [`save`](Self::save) wrote: `len` bytes. It waits, to be [resumed](Self::resume) with a
    /// chain, which [`chain_state`](Self::chain_state) can bring to where the saved one stood.
    ///
    /// # Errors
    /// If the bytes are no saved session, of another version or damaged; if `model` is another number than it was saved
    /// with, or the cache is laid out otherwise or keeps another element; if it is too long for the context here.
    /// Nothing has changed then.
    pub fn load(&mut self, model: u64, from: &mut dyn Read, len: u64) -> Result<Loaded> {
        // Its pages may be wanted.
        self.drop_next();
        let mut input = Input::new(from, len);
        let Head { note, chain, tokens, inputs, past, firsts } = self.read_head(model, &mut input)?;
        let mut held = Held::default();
        if past > 0 {
            held = self.pool.place(past, &firsts).unwrap_or_default();
        }
        if let Err(e) = self.read_cache(input, &held, past, &firsts) {
            self.pool.release(&mut held);
            return Err(e);
        }
        // What must be together is not cut where it was saved, unless the file says so.
        if !held.any() || inputs::floor(&inputs, past) < past {
            self.pool.release(&mut held);
        }
        let cached = if held.any() { past } else { 0 };
        let mut seq = Seq::waiting(tokens, Chain::greedy());
        (seq.held, seq.past, seq.saved_chain, seq.inputs) = (held, cached, Some(chain), inputs);
        Ok(Loaded { id: self.insert(seq), note, cached })
    }

    /// Reads what [`load`](Self::load) would take in, to its end and its checksum, and gives its note and what stands in place of its tokens: for
    /// who has to give a sequence up before there is room for another.
    ///
    /// # Errors
    /// Those of [`load`](Self::load), but for a device's.
    pub fn would_load(&self, model: u64, from: &mut dyn Read, len: u64) -> Result<(Vec<u8>, Vec<Placed>)> {
        let mut input = Input::new(from, len);
        let head = self.read_head(model, &mut input)?;
        self.read_cache(input, &Held::default(), head.past, &head.firsts)?;
        Ok((head.note, head.inputs))
    }

    /// Where a sequence's chain stands, for [`Chain::restore`]: of one that was loaded, where it stood when it was saved.
    pub fn chain_state(&self, id: SeqId) -> Option<Vec<u8>> {
        let seq = self.seqs.get(&id)?;
        Some(seq.saved_chain.clone().unwrap_or_else(|| seq.chain.state()))
    }

    /// All that stands before rows and states.
    fn read_head(&self, model: u64, input: &mut Input<'_>) -> Result<Head> {
        let version = self.check_header(model, input)?;
        let (note, chain) = (input.counted()?, input.counted()?);
        let tokens = self.read_tokens(input)?;
        let inputs = if version == VERSIONS[1] {
            vectors::read(input, self.model.takes_vectors())?
        } else {
            Vec::new()
        };
        self.check_inputs(DOING, &inputs, tokens.len())?;
        let groups = self.cache.spec().blocks.len();
        let past = input.u64()?;
        let past = usize::try_from(past).ok().filter(|p| *p <= tokens.len());
        let past = past.ok_or_else(|| damaged("more tokens are in its cache than it has"))?;
        if input.count(8)? != groups {
            return Err(damaged("it has other groups of layers than its model"));
        }
        let mut firsts = Vec::with_capacity(groups);
        for _ in 0..groups {
            let first = usize::try_from(input.u64()?).ok().filter(|first| *first <= past);
            firsts.push(first.ok_or_else(|| damaged("its pages begin after its end"))?);
        }
        Ok(Head { note, chain, tokens, inputs, past, firsts })
    }

    /// The rest. Where `held` has no place for it, it is read all the same: the checksum is at its end.
    fn read_cache(&self, mut input: Input<'_>, held: &Held, past: usize, firsts: &[usize]) -> Result<()> {
        let spec = self.cache.spec();
        self.read_rows(&mut input, spec, held, past, firsts)?;
        if past > 0 {
            for (layer, n) in state_layers(spec) {
                let bytes = input.bytes(n.checked_mul(4).ok_or_else(|| damaged("a state has no end"))?)?;
                if let Some(slots) = held.slots {
                    let state = rows::unpack(&F32, &bytes, n);
                    rows::write_state(&*self.backend, &self.cache, layer, slots, &state)?;
                }
            }
        }
        input.end()
    }

    /// Checks what it begins with, and gives the version of its format.
    fn check_header(&self, model: u64, input: &mut Input<'_>) -> Result<u32> {
        let spec = self.cache.spec();
        let wrong = |why: String| Err(Error::invalid(DOING, why));
        if input.bytes(8).map_or(true, |magic| magic != MAGIC) {
            return wrong("this is not a saved session".into());
        }
        let version = input.u32()?;
        if !VERSIONS.contains(&version) {
            let [plain, seeing] = VERSIONS;
            return wrong(format!(
                "it is of version {version} of the format, and this program reads versions {plain} and {seeing}; save it again"
            ));
        }
        let (saved, digest) = (input.u64()?, input.u64()?);
        if saved != model || digest != Digest::of(&layout(&spec.layers)) {
            let why = "it was saved with another model, or at another context of one that turns positions by its context";
            return wrong(format!("{why}; open the model that it was saved with, as it was"));
        }
        let (element, own) = (input.counted()?, spec.element.name);
        if element != own.as_bytes() {
            let element: String = String::from_utf8_lossy(&element).chars().take(32).collect();
            let why = format!("its keys and values are kept in {element:?}, and here in {own:?}");
            return wrong(format!("{why}; open the model with the same cache element"));
        }
        Ok(version)
    }

    fn read_tokens(&self, input: &mut Input<'_>) -> Result<Vec<u32>> {
        let (count, context) = (input.count(4)?, self.limits.context);
        if count > context {
            let why = format!("it has {count} tokens, more than the context of {context}");
            return Err(Error::invalid(DOING, format!("{why}; ask for a longer context")));
        }
        let bytes = input.bytes(4 * count)?;
        let tokens: Vec<u32> = bytes.as_chunks().0.iter().map(|word| u32::from_le_bytes(*word)).collect();
        let known =
            |token: &u32| self.model.vocab().is_none_or(|n| usize::try_from(*token).is_ok_and(|t| t < n));
        if tokens.is_empty() || !tokens.iter().all(known) {
            return Err(damaged("it has no tokens, or some that the model does not know"));
        }
        Ok(tokens)
    }

    /// Reads the rows of all tokens, and stores those that `held` has a place for.
    fn read_rows(
        &self,
        input: &mut Input<'_>,
        spec: &CacheSpec,
        held: &Held,
        past: usize,
        firsts: &[usize],
    ) -> Result<()> {
        let layers = paged_layers(spec);
        let mut bytes = Vec::new();
        for chunk in chunks(past) {
            for &layer in &layers {
                let (group, dims) = rows::paged(spec, layer)?;
                let first = firsts.get(group).copied().unwrap_or(0);
                let range = chunk.start.max(first)..chunk.end;
                if range.is_empty() {
                    continue;
                }
                let format = match input.bytes(1)?.first() {
                    Some(0) => spec.element,
                    Some(1) => &F32,
                    _ => return Err(damaged("its rows are in a format that there is not")),
                };
                let table = held.tables.get(group);
                let wanted =
                    range.start.max(table.map_or(past, |t: &BlockTable| t.first * spec.block_len))..range.end;
                let mut sides = [Vec::new(), Vec::new()];
                for (side, dim) in sides.iter_mut().zip(dims) {
                    input.fill(range.len() * format.row_bytes(dim), &mut bytes)?;
                    if !wanted.is_empty() {
                        *side = rows::unpack(format, &bytes, range.len() * dim);
                        side.drain(..(wanted.start - range.start) * dim);
                    }
                }
                if let Some(table) = table.filter(|_| !wanted.is_empty()) {
                    rows::write(&*self.backend, &self.cache, layer, table, &wanted, &sides)?;
                }
            }
        }
        Ok(())
    }
}
