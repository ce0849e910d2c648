//! Gemma 3n's vocabulary: the tokens that layers have inputs for.
//!
//! The table of layers' inputs ends before that of tokens: what stands behind are tokens of images and sounds. They are cut off table and head, so that
//! they are refused and never drawn.

use crate::head::Head;
use ogive_nn::tensor::{Error, Result};
use ogive_nn::{Config, Embedding, Loader};

/// The table of tokens and the head, of those tokens that there are so many `inputs` for. `root` is where the head is.
///
/// # Errors
/// If the head is for fewer tokens than there are; else as [all that read](Loader#errors).
pub(crate) fn vocabulary(
    c: &Config,
    root: &Loader<'_>,
    model: &Loader<'_>,
    inputs: usize,
) -> Result<(Embedding, Head)> {
    let table = model.host("embed_tokens")?;
    let rows = inputs.min(table.shape[1]);
    let text = if rows < table.shape[1] { table.rows(0..rows)? } else { table };
    let embed = Embedding { weight: model.weight(&text)?, name: model.name("embed_tokens.weight") };
    let tied = c.bool_or("tie_word_embeddings", true)?;
    let head = root.own_head_cut("lm_head", &embed, tied)?.map_or(Head::Missing, Head::Of);
    match &head {
        Head::Of(head) if head.weight.shape()[1] != embed.rows() => {
            let (own, rows) = (head.weight.shape()[1], embed.rows());
            let why = format!("a head of its own for {own} tokens, where the text has {rows}");
            Err(Error::unsupported("lm_head.weight", why))
        }
        _ => Ok((embed, head)),
    }
}
