//! Gemma 3n's vocabulary: the tokens that layers have inputs for.
//!
//! The table of layers' inputs ends before that of tokens: what stands behind are tokens of images and sounds. They are cut off table and head, so that
//! they are refused and never drawn. GGUF files of llama.cpp's converter have inputs for all, with zeros where there are none: a file does not say where
//! those begin, so they are counted from the end. No input that was trained is all zeros.

use crate::head::Head;
use ogive_nn::tensor::{Error, HostWeight, Result};
use ogive_nn::{Config, Embedding, Loader};

/// How many rows are looked at for zeros: twice as many as the released models have tokens of images and sounds.
const MOST_PADDED: usize = 512;

/// The table of tokens and the head, of those of the `inputs` tokens whose inputs are not zeros at the end. `root` is where the head is.
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
    // Where inputs end before tokens, none of them stands for another's.
    let rows = match inputs < table.shape[1] {
        true => inputs,
        false => unpadded(&model.host("embed_tokens_per_layer")?).min(table.shape[1]),
    };
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

/// How many rows a table has before those of zeros at its end; all where it has nothing but those, or one row of them is beyond what is looked at.
fn unpadded(table: &HostWeight) -> usize {
    let [_, rows, cols] = table.shape;
    if table.bytes.is_empty() {
        return rows;
    }
    let mut row = vec![0.0; cols];
    let mut is_zero = |i: usize| {
        table.decode_row(i, &mut row);
        row.iter().all(|v| *v == 0.0)
    };
    let padded = (0..rows).rev().take(MOST_PADDED + 1).take_while(|i| is_zero(*i)).count();
    if padded < rows && padded <= MOST_PADDED { rows - padded } else { rows }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_zeros_at_the_end_are_counted() {
        let of = |rows: &[usize], n: usize| {
            let mut values = vec![0.0; n * 2];
            rows.iter().for_each(|row| values[row * 2 + 1] = 1.0);
            unpadded(&HostWeight::from_f32("table", [1, n, 2], &values).unwrap())
        };
        assert_eq!([of(&[0, 2], 3), of(&[0, 2], 5), of(&[1], 4), of(&[], 4), of(&[], 0)], [3, 3, 2, 4, 0]);
        let most = MOST_PADDED + 1;
        assert_eq!([of(&[0], most), of(&[0], most + 1)], [1, most + 1]);
    }
}
