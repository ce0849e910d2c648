//! Updates of adapters (LoRA) that lie over a file, as a [`Loader`] meets them: read beside their matrices, or passed over with these.
//!
//! An update of a matrix that nobody reads is passed over where its layer is loaded, by name, and not wherever one is left at the end: only the layer
//! knows that the matrix means nothing, and any other that is left is one that the model reads otherwise and would go without.

use crate::Loader;
use crate::tensor::{Error, HostWeight, Result};
use std::sync::PoisonError;

/// What became of updates.
#[derive(Debug, Default)]
pub(crate) struct Updates {
    /// Ranks of those that were read.
    ranks: Vec<usize>,
    /// Matrices of those that were passed over.
    passed: Vec<String>,
}

impl Loader<'_> {
    /// The ranks of the updates so far that adapters have for matrices, wherever in the file those are.
    pub fn ranks_of_updates(&self) -> Vec<usize> {
        self.updates.lock().unwrap_or_else(PoisonError::into_inner).ranks.clone()
    }

    /// The matrices so far whose updates were [passed over](Self::pass_over), wherever in the file they are, as the file calls them.
    pub fn updates_passed_over(&self) -> Vec<String> {
        self.updates.lock().unwrap_or_else(PoisonError::into_inner).passed.clone()
    }

    /// Passes over what an adapter adds to the matrix `name`, if anything: for matrices that a file has and the model does nothing with, as
    /// keys' and values' of layers that attend to those of others. Training leaves no trace there, but adapters are made with all matrices of a name.
    ///
    /// # Errors
    /// If the update is there and cannot be read.
    pub fn pass_over(&self, name: &str) -> Result<()> {
        if self.optional(self.host(&format!("{name}.lora_A")))?.is_some() {
            self.updates.lock().unwrap_or_else(PoisonError::into_inner).passed.push(self.name(name));
        }
        Ok(())
    }

    /// What an adapter adds to the matrix `name` of this shape, if anything: the flat matrix and the tall one.
    pub(crate) fn update(
        &self,
        name: &str,
        [experts, out, cols]: [usize; 3],
    ) -> Result<Option<[HostWeight; 2]>> {
        let Some(down) = self.optional(self.host(&format!("{name}.lora_A")))? else { return Ok(None) };
        let up = self.host(&format!("{name}.lora_B"))?;
        let rank = down.shape[1];
        if experts != 1 || rank == 0 || down.shape != [1, rank, cols] || up.shape != [1, out, rank] {
            let why = format!(
                "updates of {:?} and {:?} do not fit a matrix of {out} outputs and {cols} inputs; was the adapter trained on this model?",
                down.shape, up.shape
            );
            return Err(Error::invalid(&self.name(name), why));
        }
        self.updates.lock().unwrap_or_else(PoisonError::into_inner).ranks.push(rank);
        Ok(Some([down, up]))
    }
}
