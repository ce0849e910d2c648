//! A backend made of backends: each has some of a model's layers, with their part of the cache, and only activations go from one to the
//! next.
//!
//! A weight's name says which part has it, so a model is split without knowing it. Everything else follows: a product is computed where its
//! weight is, attention where its layer's cache is, the rest where its operands are. What lies elsewhere is brought there by a
//! download and an upload, which every backend has; a path between two devices is a thing of theirs ([`Backend::bring`]). A step that comes again is run in pieces, one for each stay on a part, so that parts record theirs.

mod held;
mod operators;
mod pieces;
mod replay;

use crate::{Backend, Cache, CacheSpec, Facts, HostWeight, LayerCache};
use held::Placed;
use ogive_tensor::{Error, Result};
use pieces::Pieces;
use replay::Kinds;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Says which part a weight goes to, by its name.
pub type Place = Arc<dyn Fn(&str) -> usize + Send + Sync>;

/// Several backends that compute one model together.
pub struct Split {
    parts: Vec<Arc<dyn Backend>>,
    place: Place,
    /// The model's layers, by which cache layers are shared out.
    layers: usize,
    /// The part of each layer.
    homes: Vec<usize>,
    /// Makes handles of one split strangers to another.
    id: u64,
    /// The steps that came.
    kinds: Kinds,
    /// The one that is learned or run in pieces now.
    run: Pieces,
}

impl fmt::Debug for Split {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Split")
            .field("parts", &self.parts)
            .field("homes", &self.homes)
            .finish_non_exhaustive()
    }
}

/// Behind [`Cache::data`]: a cache of every part, with nothing in the layers that others have.
#[derive(Debug)]
struct Shared {
    id: u64,
    caches: Vec<Cache>,
    homes: Vec<usize>,
}

/// The number of the layer that a weight belongs to: the first part of its name that is one (`model.layers.7.mlp.up_proj`). What
/// [lets a model see](is_of_tower) has layers of its own, which do not count, nor do numbers of streams before and behind all layers (Gemma 3n's).
#[must_use]
pub fn layer_of(name: &str) -> Option<usize> {
    let of_streams = |part: &str| ["altup_projections", "altup_unembed_projections"].contains(&part);
    if is_of_tower(name) || name.split('.').any(of_streams) {
        return None;
    }
    name.split('.').find_map(|part| part.parse().ok())
}

/// Whether a weight belongs to what lets a model see or hear, by Hugging Face's names (`model.vision_tower.…`, `visual.…`).
#[must_use]
pub fn is_of_tower(name: &str) -> bool {
    let tower = |part: &str| part == "visual" || part.starts_with("vision") || part.starts_with("audio");
    name.split('.').any(tower)
}

impl Split {
    /// Layer `i` goes to the part `homes[i]`; what belongs to no layer goes where `place` says, by its name. Parts are
    /// numbered in the order in which a step goes through them.
    ///
    /// # Errors
    /// If there are no parts, or a layer's is none of them.
    pub fn new(
        parts: Vec<Arc<dyn Backend>>,
        homes: Vec<usize>,
        place: impl Fn(&str) -> usize + Send + Sync + 'static,
    ) -> Result<Self> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        if let Some(part) = homes.iter().find(|part| **part >= parts.len()) {
            return Err(Error::invalid("split", format!("a layer is of part {part} of {}", parts.len())));
        }
        if parts.is_empty() {
            return Err(Error::invalid("split", "there are no parts"));
        }
        let (layers, id) = (homes.len(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let (kinds, run) = (Kinds::default(), Pieces::default());
        Ok(Self { parts, place: Arc::new(place), layers, homes, id, kinds, run })
    }

    /// The same split of other backends, as many.
    ///
    /// # Errors
    /// If there are fewer or more.
    pub fn with_parts(&self, parts: Vec<Arc<dyn Backend>>) -> Result<Self> {
        if parts.len() != self.parts.len() {
            let why = format!("{} parts in the place of {}", parts.len(), self.parts.len());
            return Err(Error::invalid("split", why));
        }
        let place = Arc::clone(&self.place);
        Self::new(parts, self.homes.clone(), move |name| place(name))
    }

    /// The backends, in order.
    pub fn parts(&self) -> &[Arc<dyn Backend>] {
        &self.parts
    }

    /// The part that has each layer.
    pub fn homes(&self) -> &[usize] {
        &self.homes
    }

    /// The part that a weight of this name goes to.
    fn part(&self, name: &str) -> Result<usize> {
        let of_layer = layer_of(name).and_then(|layer| self.homes.get(layer).copied());
        let part = of_layer.unwrap_or_else(|| (self.place)(name));
        if part < self.parts.len() {
            return Ok(part);
        }
        Err(Error::invalid(name, format!("it is to be of part {part} of {}", self.parts.len())))
    }

    /// The part of each cache layer. Models have as many for each layer, so they are shared out in proportion; were one wrong, its
    /// attention would be computed elsewhere, and no less right.
    fn cache_homes(&self, spec: &CacheSpec) -> Result<Vec<usize>> {
        let count = spec.layers.len().max(1);
        let home = |layer: usize| {
            let (owner, _) = spec.owner(layer)?;
            Ok(self.homes.get(owner.saturating_mul(self.layers) / count).copied().unwrap_or(0))
        };
        (0..spec.layers.len()).map(home).collect()
    }

    fn cache(&self, spec: &CacheSpec) -> Result<Cache> {
        let homes = self.cache_homes(spec)?;
        let mut caches = Vec::with_capacity(self.parts.len());
        for (part, backend) in self.parts.iter().enumerate() {
            let layers = spec.layers.iter().zip(&homes).map(|(layer, home)| match *layer {
                own if *home == part => own,
                // Groups are counted by their layers, so the layer stays; a row of it has no elements.
                LayerCache::Paged { window, group, .. } => {
                    LayerCache::Paged { k_dim: 0, v_dim: 0, window, group }
                }
                LayerCache::State { .. } => LayerCache::State { len: 0 },
                other => other,
            });
            let own = CacheSpec { layers: layers.collect(), ..spec.clone() };
            caches.push(backend.new_cache(&own)?);
        }
        Ok(Cache::new(spec.clone(), Shared { id: self.id, caches, homes }))
    }

    /// The part that has a cache layer, and its cache.
    fn layer<'a>(&self, layer: usize, cache: &'a Cache) -> Result<(usize, &'a Cache)> {
        let shared = self.shared(cache)?;
        let none =
            || Error::invalid("cache", format!("layer {layer} of {} does not exist", shared.homes.len()));
        let part = shared.homes.get(layer).copied().ok_or_else(none)?;
        Ok((part, shared.caches.get(part).ok_or_else(none)?))
    }

    fn shared<'a>(&self, cache: &'a Cache) -> Result<&'a Shared> {
        cache
            .data::<Shared>()
            .ok()
            .filter(|shared| shared.id == self.id)
            .ok_or_else(|| Error::foreign("cache"))
    }

    fn take_weight(&self, w: &HostWeight) -> Result<crate::Weight> {
        let part = self.part(&w.name)?;
        let weight = self.backend(part)?.upload_weight(w)?;
        let unpacked = weight.unpacked().cloned();
        Ok(crate::Weight::new(w, Placed { id: self.id, part, weight }).with_unpacked(unpacked))
    }

    fn describe(&self) -> Facts {
        let facts: Vec<Facts> = self.parts.iter().map(|b| b.facts()).collect();
        let layers = |part: usize| self.homes.iter().filter(|home| **home == part).count();
        let each = facts
            .iter()
            .enumerate()
            .map(|(i, f)| format!("{} layers on {}: {}", layers(i), f.name, f.description));
        let mut all = Facts::new("split", each.collect::<Vec<_>>().join("; "));
        all.memory = facts.iter().map(|f| f.memory).sum();
        all.exact = facts.iter().all(|f| f.exact);
        all
    }
}
