//! Low-rank updates of matrices, as fine-tuning leaves them (LoRA).

use crate::backend::Weight;
use crate::tensor::{Result, Tensor};
use crate::{Step, layers::another_number};

/// What is added to a matrix: the product of a tall one and a flat one. Hu et al. 2021, <https://arxiv.org/abs/2106.09685>.
///
/// It stays beside the matrix, which may be packed: what is added is far smaller than what packing rounds away.
#[derive(Clone, Debug)]
pub struct LowRank {
    /// `[rank, in]`, PEFT's `lora_A`.
    pub down: Weight,
    /// `[out, rank]`, PEFT's `lora_B`, times the update's factor.
    pub up: Weight,
}

impl LowRank {
    /// Adds to each of `ys` what its update, if it has one, makes of `x`. `[n, in]`, and `[n, out]` of each
    pub(crate) fn add(
        s: &Step<'_>,
        x: &Tensor,
        ys: Vec<Tensor>,
        updates: &[Option<&Self>],
    ) -> Result<Vec<Tensor>> {
        let downs: Vec<&Weight> = updates.iter().flatten().map(|update| &update.down).collect();
        if downs.is_empty() {
            return Ok(ys);
        }
        let mut hs = s.backend.linear_many(x, &downs)?.into_iter();
        let add = |(y, update): (Tensor, &Option<&Self>)| {
            let Some(update) = update else { return Ok(y) };
            let h = hs.next().ok_or_else(another_number)?;
            s.backend.add(y, &s.backend.linear(&h, &update.up)?)
        };
        ys.into_iter().zip(updates).map(add).collect()
    }
}
