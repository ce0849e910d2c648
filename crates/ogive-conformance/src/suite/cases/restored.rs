//! What a cache gives back can be stored again and is the same to the bit: elsewhere, later, in another cache.
//!
//! Saved sessions rest on it: rows come out by `gather_kv` and go in by `store_kv`, through single precision. An element
//! that rounds what it has rounded would change a text from one saving to the next.

use super::cache::one;
use super::{Case, up};
use crate::suite::Options;
use crate::suite::lab::Lab;
use ogive_backend::tensor::{Format, Result};
use ogive_backend::{Backend, Batch, BlockTable, CacheSpec, LayerCache};

const ROWS: usize = 37;
const DIMS: [usize; 2] = [64, 32];

pub(super) fn add(cases: &mut Vec<Case>, options: &Options) {
    for &element in &options.elements {
        let name = format!("store_kv/stored-again/{}-cache", element.name);
        cases.push(Case::new(name, move |lab| rows(lab, element)));
    }
    cases.push(Case::new("write_state/written-again", states));
}

fn rows(lab: &mut Lab<'_>, element: &'static Format) -> Result<()> {
    let b = lab.subject();
    // As large and as small as half precision goes, and rows of zeros.
    for size in [1.0, 3e-5, 2e3, 1e-9, 0.0] {
        let [k, v] = DIMS.map(|dim| {
            let values = lab.random.normal(ROWS * dim);
            let mut values: Vec<f32> = values.iter().map(|x| x * size).collect();
            // Of a block with a scale, what is no number makes all of it none.
            if element.block_len > 1 {
                values[dim + 7] = f32::NAN;
            }
            values
        });
        let found = lab.guarded("stored, gathered, stored again", || {
            let spec = |block_len| {
                let blocks = ROWS.div_ceil(block_len) + 2;
                CacheSpec::new(vec![LayerCache::full(DIMS[0], DIMS[1])], block_len, blocks, 0)
                    .element(element)
            };
            let first = gathered(&*b, &spec(1), [&k, &v], &[one(ROWS)])?;
            // In other blocks, backwards, and in two parts, the second in the middle of a block.
            let blocks = (0..ROWS.div_ceil(5) as u32).rev().collect();
            let table = BlockTable { first: 0, blocks };
            let part = |past: usize, n: usize| {
                let mut batch = Batch::default();
                batch.push(&vec![0; n], past, vec![table.clone()], [0, 1]);
                batch
            };
            let again = gathered(&*b, &spec(5), [&first[0], &first[1]], &[part(0, 13), part(13, ROWS - 13)])?;
            Ok((first, again))
        });
        if let Some((first, again)) = found {
            for (what, (first, again)) in ["keys", "values"].iter().zip(first.iter().zip(&again)) {
                lab.same_bits(&format!("{what} of size {size:e}"), again, first);
            }
            if element.block_len > 1 {
                for (given, first) in [&k, &v].into_iter().zip(&first) {
                    lab.same_bits(
                        &format!("as the format packs size {size:e}"),
                        first,
                        &packed(element, given)?,
                    );
                }
            }
        }
    }
    Ok(())
}

/// What is left of the values once the format has packed them.
fn packed(element: &'static Format, values: &[f32]) -> Result<Vec<f32>> {
    let (mut bytes, mut out) = (vec![0; element.row_bytes(values.len())], vec![0.0; values.len()]);
    element.encode_row(values, &mut bytes)?;
    element.decode_row(&bytes, &mut out);
    Ok(unsigned(out))
}

/// Without what may be lost: the sign of a zero that something was rounded to, and which of many what is no number was.
fn unsigned(values: Vec<f32>) -> Vec<f32> {
    values.into_iter().map(|x| if x.is_nan() { f32::NAN } else { x + 0.0 }).collect()
}

/// Stores rows step by step in a new cache, and reads them all after the last.
fn gathered(b: &dyn Backend, spec: &CacheSpec, rows: [&[f32]; 2], steps: &[Batch]) -> Result<[Vec<f32>; 2]> {
    let cache = b.new_cache(spec)?;
    let (mut at, mut out) = (0, [Vec::new(), Vec::new()]);
    for (i, step) in steps.iter().enumerate() {
        let (plan, n) = (b.plan(step.clone())?, step.tokens.len());
        let part = |side: usize| {
            let dim = DIMS[side];
            up(b, &rows[side][at * dim..(at + n) * dim], &[n, dim])
        };
        b.store_kv(0, &part(0)?, Some(&part(1)?), &cache, &plan)?;
        at += n;
        if i + 1 == steps.len() {
            let (k, v) = b.gather_kv(0, &cache, &plan)?;
            out = [b.download(&k)?, v.map_or(Ok(Vec::new()), |v| b.download(&v))?].map(unsigned);
        }
    }
    Ok(out)
}

fn states(lab: &mut Lab<'_>) -> Result<()> {
    const LEN: usize = 19;
    let (b, state) = (lab.subject(), lab.random.normal(LEN));
    let found = lab.guarded("written, read, written elsewhere", || {
        let cache = b.new_cache(&CacheSpec::new(vec![LayerCache::State { len: LEN }], 4, 0, 4))?;
        let plan = |slots| {
            let mut batch = Batch::default();
            batch.push(&[0], 1, Vec::new(), slots);
            b.plan(batch)
        };
        b.write_state(0, &up(&*b, &state, &[1, LEN])?, &cache, &plan([0, 1])?)?;
        let read = b.download(&b.read_state(0, &cache, &plan([1, 0])?)?)?;
        b.write_state(0, &up(&*b, &read, &[1, LEN])?, &cache, &plan([3, 2])?)?;
        b.download(&b.read_state(0, &cache, &plan([2, 3])?)?)
    });
    if let Some(again) = found {
        lab.same_bits("the state", &again, &state);
    }
    Ok(())
}
