//! What sequences remember. The model says what each cache layer holds, the caller how much of it and in which
//! elements, the backend where.
//!
//! A *cache layer* is an entry of the model's list, not a block of the model: a block that has a convolution and a scan
//! owns two. Layers of one *group* share a block table, so a window can give pages back without touching the layers
//! that need every token.

use ogive_tensor::{Error, F32, Format, Result};
use std::any::Any;

/// What one cache layer holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LayerCache {
    /// A row of keys and a row of values for each token, in pages.
    Paged {
        /// Elements of a token's keys, all heads.
        k_dim: usize,
        /// Elements of a token's values; 0 where values are part of the keys (latent attention).
        v_dim: usize,
        /// Tokens that are ever looked at again, if not all.
        window: Option<usize>,
        /// Which block table it uses.
        group: usize,
    },
    /// So many numbers for each sequence, always in single precision.
    State {
        /// How many.
        len: usize,
    },
    /// Nothing of its own: reads what that earlier layer stored.
    Shares(usize),
}

impl LayerCache {
    /// All tokens, in group 0.
    pub fn full(k_dim: usize, v_dim: usize) -> Self {
        Self::Paged { k_dim, v_dim, window: None, group: 0 }
    }
    /// The last `window` tokens, in `group`.
    pub fn windowed(k_dim: usize, v_dim: usize, window: usize, group: usize) -> Self {
        Self::Paged { k_dim, v_dim, window: Some(window), group }
    }
    /// The same in another group; states and shared layers stay as they are.
    #[must_use]
    pub fn in_group(self, to: usize) -> Self {
        match self {
            Self::Paged { k_dim, v_dim, window, .. } => Self::Paged { k_dim, v_dim, window, group: to },
            other => other,
        }
    }
}

/// The window of each group of `layers`: `None` where some layer needs every token.
pub fn group_windows(layers: &[LayerCache]) -> Vec<Option<usize>> {
    let mut groups: Vec<Option<Option<usize>>> = Vec::new();
    for layer in layers {
        if let LayerCache::Paged { window, group, .. } = layer {
            groups.resize((*group + 1).max(groups.len()), None);
            let widest = |had: Option<usize>| had.zip(*window).map(|(a, b)| a.max(b));
            groups[*group] = Some(groups[*group].map_or(*window, widest));
        }
    }
    groups.into_iter().map(Option::flatten).collect()
}

/// How much cache to reserve, and of what.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CacheSpec {
    /// What each layer holds.
    pub layers: Vec<LayerCache>,
    /// What keys and values are kept in.
    pub element: &'static Format,
    /// Tokens in a block.
    pub block_len: usize,
    /// Blocks of each group.
    pub blocks: Vec<usize>,
    /// Places for states: two for each sequence that runs.
    pub slots: usize,
}

impl CacheSpec {
    /// Single precision, the same number of blocks in every group.
    pub fn new(layers: Vec<LayerCache>, block_len: usize, blocks: usize, slots: usize) -> Self {
        let groups = group_windows(&layers).len();
        Self { layers, element: &F32, block_len, blocks: vec![blocks; groups], slots }
    }

    /// Keys and values kept in another format.
    #[must_use]
    pub fn element(self, element: &'static Format) -> Self {
        Self { element, ..self }
    }

    /// Another number of blocks for each group.
    #[must_use]
    pub fn blocks(self, blocks: Vec<usize>) -> Self {
        Self { blocks, ..self }
    }

    /// The window of each group: `None` where some layer needs every token.
    pub fn groups(&self) -> Vec<Option<usize>> {
        group_windows(&self.layers)
    }

    /// The layer that `layer` stores to and reads from, and what it holds.
    ///
    /// # Errors
    /// If `layer` does not exist, or shares one that is not before it.
    pub fn owner(&self, layer: usize) -> Result<(usize, LayerCache)> {
        match self.layers.get(layer) {
            Some(LayerCache::Shares(of)) if *of < layer => self.owner(*of),
            Some(LayerCache::Shares(of)) => Err(Error::invalid(
                "cache",
                format!("layer {layer} shares layer {of}, which is not before it"),
            )),
            None => {
                Err(Error::invalid("cache", format!("layer {layer} of {} does not exist", self.layers.len())))
            }
            Some(own) => Ok((layer, *own)),
        }
    }

    /// Checks that layers share backwards, that groups have blocks and that rows are whole blocks of the element.
    ///
    /// # Errors
    /// If one of these is not so, or blocks have no tokens; the message says which.
    pub fn check(&self) -> Result<()> {
        if self.block_len == 0 || self.blocks.len() != self.groups().len() {
            let why = format!("{} block counts for {} groups", self.blocks.len(), self.groups().len());
            return Err(Error::invalid("cache", format!("blocks of {} tokens, {why}", self.block_len)));
        }
        for layer in 0..self.layers.len() {
            if let (_, LayerCache::Paged { k_dim, v_dim, .. }) = self.owner(layer)? {
                let pack = self.element.block_len;
                if pack == 0 || k_dim % pack != 0 || v_dim % pack != 0 {
                    let why = format!("rows of {k_dim} and {v_dim} elements are not whole blocks of {pack}");
                    return Err(Error::unsupported(
                        "cache",
                        format!("{}: {why}; use f16 or f32", self.element.name),
                    ));
                }
            }
        }
        Ok(())
    }

    /// Bytes the cache takes: pages of all groups and all states. `None` if that overflows.
    pub fn bytes(&self) -> Option<usize> {
        self.layers.iter().try_fold(0usize, |sum, layer| {
            let bytes = match *layer {
                LayerCache::Paged { k_dim, v_dim, group, .. } => {
                    let tokens = self.blocks.get(group)?.checked_mul(self.block_len)?;
                    let row = self.element.row_bytes(k_dim).checked_add(self.element.row_bytes(v_dim))?;
                    tokens.checked_mul(row)?
                }
                LayerCache::State { len } => self.slots.checked_mul(len)?.checked_mul(4)?,
                LayerCache::Shares(_) => 0,
            };
            sum.checked_add(bytes)
        })
    }
}

/// What all sequences remember. Written through a shared reference, as device memory is; a backend on the host locks
/// inside.
#[derive(Debug)]
pub struct Cache {
    spec: CacheSpec,
    data: Box<dyn Any + Send + Sync>,
}

impl Cache {
    /// Wraps a backend's buffers. Called by backends only.
    pub fn new(spec: CacheSpec, data: impl Any + Send + Sync) -> Self {
        Self { spec, data: Box::new(data) }
    }
    /// How it was reserved.
    pub fn spec(&self) -> &CacheSpec {
        &self.spec
    }
    /// The backend's buffers, if they are a `T`.
    ///
    /// # Errors
    /// If they are none: the cache was made by another backend.
    pub fn data<T: Any>(&self) -> Result<&T> {
        self.data.downcast_ref().ok_or_else(|| Error::foreign("cache"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ogive_tensor::{F16, Format};

    /// A stranger's, that makes no sense.
    static EMPTY: Format =
        Format { name: "empty", block_len: 0, block_bytes: 0, decode: |_, _| {}, encode: None };

    #[test]
    fn groups_take_their_widest_window() {
        let w = |window, group| LayerCache::windowed(4, 4, window, group);
        assert_eq!(group_windows(&[w(8, 1), w(16, 1), LayerCache::full(4, 4)]), [None, Some(16)]);
        assert_eq!(group_windows(&[w(8, 0), LayerCache::full(4, 4)]), [None]);
        assert_eq!(group_windows(&[LayerCache::State { len: 3 }]), []);
    }

    #[test]
    fn counts_its_bytes() {
        let layers = vec![LayerCache::full(4, 2), LayerCache::State { len: 5 }, LayerCache::Shares(0)];
        let spec = CacheSpec::new(layers, 16, 3, 2).element(&F16);
        assert_eq!(spec.bytes(), Some(16 * 3 * 6 * 2 + 2 * 5 * 4));
        assert!(CacheSpec::new(vec![LayerCache::full(4, 2)], 16, usize::MAX, 2).bytes().is_none());
        assert!(
            CacheSpec::new(vec![LayerCache::full(1 << 62, 0)], 16, 3, 2).bytes().is_none(),
            "it has wrapped"
        );
        assert!(CacheSpec::new(vec![LayerCache::Shares(0)], 16, 1, 2).check().is_err());
        assert!(CacheSpec::new(vec![LayerCache::full(4, 2)], 16, 3, 2).element(&EMPTY).check().is_err());
    }
}
