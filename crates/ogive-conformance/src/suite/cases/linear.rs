//! Products with weights: every format, everything that may stand beside the bytes, and the fused forms.

use super::{Case, up};
use crate::suite::Options;
use crate::suite::lab::Lab;
use crate::suite::random::gain;
use ogive_backend::tensor::{BF16, Bytes, F16, F32, Format, HostWeight, Q4_0, Q4_K, Q8_0, Result, Scale};
use ogive_backend::{Activation, Axis, Backend};
use std::sync::Arc;

/// A format no backend has heard of: a block of seven elements, each `(byte - 128) / 64`, that cannot be written.
pub(super) static STRANGER: Format = Format {
    name: "stranger",
    block_len: 7,
    block_bytes: 9,
    decode: |bytes, out| {
        let scale = f32::from(bytes[0] % 16 + 1) / 8.0;
        for (o, &b) in out.iter_mut().zip(&bytes[2..]) {
            *o = scale * (f32::from(b) - 128.0) / 64.0;
        }
    },
    encode: None,
};

/// Rows of the input, rows of the weight, blocks of a row.
const SIZES: [(usize, usize, usize); 7] =
    [(1, 1, 1), (1, 37, 2), (2, 64, 1), (5, 3, 3), (9, 33, 5), (40, 66, 2), (0, 4, 1)];

/// The same where there are many rows, for which machines take other ways than for few. No extent is a whole number of anyone's tiles.
const MANY: [(usize, usize, usize); 3] = [(65, 130, 3), (129, 257, 9), (300, 64, 8)];

/// Outputs at the end that are also compared apart.
const LAST: usize = 16;

pub(super) fn add(cases: &mut Vec<Case>, options: &Options) {
    let formats = || options.formats.iter().copied().chain([&STRANGER]);
    for format in formats().filter(|f| [&F32, &F16, &BF16, &Q8_0, &Q4_K, &STRANGER].contains(f)) {
        for (n, rows, blocks) in many(format) {
            cases.push(Case::new(format!("linear/many-rows/{}/{n}", format.name), move |lab| {
                let cols = blocks * format.block_len;
                if n * rows * cols > lab.options.largest {
                    lab.skip("the options leave out products so large");
                    return Ok(());
                }
                let w = lab.random.weight([1, rows, cols], format)?;
                product(lab, "", &w, n);
                // The fused forms where few rows end, and no more often: they are slow where machines are played.
                if n == MANY[0].0 {
                    several(lab, format, [n, cols], &[17, rows])?;
                    gated(lab, format, Activation::Silu, [n, rows, cols])?;
                }
                Ok(())
            }));
        }
    }
    for format in formats() {
        cases.push(Case::new(format!("linear/{}", format.name), move |lab| {
            for (n, rows, blocks) in sizes(format) {
                let cols = blocks * format.block_len;
                let w = lab.random.weight([1, rows, cols], format)?;
                product(lab, "", &w, n);
                if format.block_len > 1 {
                    let w = lab.random.weight_of_any_bytes([1, rows, cols], format)?;
                    product(lab, "any bytes, ", &w, n);
                }
            }
            Ok(())
        }));
        cases.push(Case::new(format!("linear/{}/part-of-a-file", format.name), move |lab| {
            for offset in [1, 3, 4, 31] {
                let w = lab.random.weight([1, 18, 2 * format.block_len], format)?;
                let mut file = vec![0xa5; offset];
                file.extend_from_slice(&w.bytes);
                file.extend([0x5a; 7]);
                let part = Bytes::new(Arc::new(file), offset..offset + w.bytes.len())?;
                let w = HostWeight::new("part", w.shape, format, part)?;
                product(lab, &format!("at byte {offset}, "), &w, 3);
                product(lab, &format!("rows at byte {offset}, "), &w.rows(5..14)?, 3);
            }
            Ok(())
        }));
        cases.push(Case::new(format!("linear/{}/scale-and-permutation", format.name), move |lab| {
            for (rows, blocks, tile) in
                [(1, 1, [1, 1]), (37, 3, [3, 5]), (130, 2, [128, 128]), (5, 2, [1, 1000])]
            {
                let cols = blocks * format.block_len;
                let plain = lab.random.weight([1, rows, cols], format)?;
                let tiles = rows.div_ceil(tile[0]) * cols.div_ceil(tile[1]);
                let values = (0..tiles).map(|_| lab.random.between(0.5, 2.0)).collect::<Vec<_>>();
                let scaled = plain.clone().with_scale(Scale { values: values.into(), tile })?;
                let order: Arc<[u32]> = lab.random.order(cols).into();
                product(lab, &format!("tiles of {tile:?}, "), &scaled, 4);
                product(lab, "permuted, ", &plain.with_input_perm(order.clone())?, 4);
                product(lab, "both, ", &scaled.with_input_perm(order)?, 4);
            }
            Ok(())
        }));
    }

    cases.push(Case::new("linear/heads-and-vectors", |lab| {
        let w = lab.random.weight([1, 5, 12], &F32)?;
        for dims in [&[2, 3, 12][..], &[12]] {
            let x = lab.random.normal(dims.iter().product());
            lab.same(&format!("{dims:?}"), lab.exact(), &|b| {
                Ok(vec![b.linear(&up(b, &x, dims)?, &b.upload_weight(&w)?)?])
            });
        }
        Ok(())
    }));

    cases.push(Case::new("linear/wide", |lab| {
        for format in [&F32, &Q8_0] {
            let w = lab.random.weight([1, 32_003, 64], format)?;
            product(lab, "a vocabulary, ", &w, 2);
        }
        let w = lab.random.weight([1, 3, 11_008], &Q4_0)?;
        product(lab, "a long row, ", &w, 3);
        Ok(())
    }));

    cases.push(Case::new("linear/refused", |lab| {
        let w = lab.random.weight([1, 4, 32], &Q8_0)?;
        let stack = lab.random.weight([2, 4, 32], &Q8_0)?;
        let setup = |w: HostWeight, cols: usize| {
            move |b: &dyn Backend| Ok((up(b, &vec![1.0; 2 * cols], &[2, cols])?, b.upload_weight(&w)?))
        };
        lab.refuses("too few columns", setup(w.clone(), 31), |b, (x, w)| b.linear(&x, &w));
        lab.refuses("too many columns", setup(w.clone(), 64), |b, (x, w)| b.linear(&x, &w));
        lab.refuses("a stack of two", setup(stack, 32), |b, (x, w)| b.linear(&x, &w));
        lab.refuses("linear_many, too few columns", setup(w.clone(), 31), |b, (x, w)| {
            b.linear_many(&x, &[&w])
        });
        lab.refuses("linear_gated, too few columns", setup(w.clone(), 31), |b, (x, w)| {
            b.linear_gated(&x, &w, &w, Activation::Silu)
        });
        lab.refuses("linear_each, other heads", setup(w.clone(), 32), |b, (x, w)| {
            b.linear_each(&x.reshape([1, 2, 32])?, &[w.clone(), w.clone(), w])
        });
        let wider = lab.random.weight([1, 6, 32], &Q8_0)?;
        let setup_each = |b: &dyn Backend| {
            Ok((up(b, &[1.0; 128], &[2, 2, 32])?, [b.upload_weight(&w)?, b.upload_weight(&wider)?]))
        };
        // Together they have as many as two of five would.
        lab.refuses("linear_each, heads of other outputs", setup_each, |b, (x, ws)| b.linear_each(&x, &ws));
        let mut lying = w.clone();
        lying.shape = [1, 5, 32];
        lab.refuses("bytes that do not fill the shape", |_| Ok(()), |b, ()| b.upload_weight(&lying));
        let mut lying = w;
        lying.input_perm = Some(Arc::from([32; 32]));
        lab.refuses("a permutation past the columns", |_| Ok(()), |b, ()| b.upload_weight(&lying));
        Ok(())
    }));

    for format in formats() {
        cases.push(Case::new(format!("linear_many/{}", format.name), move |lab| {
            for (n, _, blocks) in sizes(format) {
                several(lab, format, [n, blocks * format.block_len], &[1, 17, 64])?;
            }
            Ok(())
        }));
        cases.push(Case::new(format!("linear_gated/{}", format.name), move |lab| {
            for f in [Activation::Silu, Activation::GeluTanh, Activation::Gelu, Activation::QuickGelu] {
                for (n, rows, blocks) in sizes(format) {
                    gated(lab, format, f, [n, rows, blocks * format.block_len])?;
                }
            }
            Ok(())
        }));
    }

    cases.push(Case::new("linear_many/mixed-formats", |lab| {
        let ws = [&F32, &Q8_0, &Q4_0].map(|f| lab.random.weight([1, 24, 64], f));
        let ws = ws.into_iter().collect::<Result<Vec<_>>>()?;
        let x = lab.random.normal(3 * 64);
        lab.defined("f32, q8_0 and q4_0", lab.product(&Q4_0, 1.0), &|b| {
            let ws = ws.iter().map(|w| b.upload_weight(w)).collect::<Result<Vec<_>>>()?;
            b.linear_many(&up(b, &x, &[3, 64])?, &ws.iter().collect::<Vec<_>>())
        });
        Ok(())
    }));

    cases.push(Case::new("linear_many/permuted", |lab| {
        let cols = 96;
        let orders: [Arc<[u32]>; 2] = [(); 2].map(|()| lab.random.order(cols).into());
        // Which order each weight has; the last is none.
        for mix in [[0, 0, 0], [0, 1, 0], [1, 2, 1], [2, 0, 0]] {
            let own = |(format, which): (_, usize)| {
                let w = lab.random.weight([1, 24, cols], format)?;
                orders.get(which).map_or(Ok(w.clone()), |order| w.clone().with_input_perm(order.clone()))
            };
            let ws = [&Q8_0, &Q4_0, &Q8_0].into_iter().zip(mix).map(own).collect::<Result<Vec<_>>>()?;
            for n in [1, 5, 40] {
                let x = lab.random.normal(n * cols);
                let limit = lab.product(&Q4_0, ws.iter().map(gain).fold(0.0, f64::max));
                let what = format!("orders {mix:?} [{n}, {cols}]");
                lab.defined(&what, limit, &|b| {
                    let ws = ws.iter().map(|w| b.upload_weight(w)).collect::<Result<Vec<_>>>()?;
                    b.linear_many(&up(b, &x, &[n, cols])?, &ws.iter().collect::<Vec<_>>())
                });
                let limit = lab.product(&Q4_0, 0.3 * gain(&ws[0]) * gain(&ws[1])).times(4.0);
                lab.defined(&format!("{what}, gated"), limit, &|b| {
                    let (gate, upward) = (b.upload_weight(&ws[0])?, b.upload_weight(&ws[1])?);
                    Ok(vec![b.linear_gated(&up(b, &x, &[n, cols])?, &gate, &upward, Activation::Silu)?])
                });
            }
        }
        Ok(())
    }));

    cases.push(Case::new("linear_each", |lab| {
        for format in [&F32, &Q8_0] {
            for (n, heads, rows, blocks) in [(1, 1, 5, 1), (3, 4, 7, 2), (9, 2, 33, 1)] {
                let cols = blocks * 32;
                let ws = (0..heads)
                    .map(|_| lab.random.weight([1, rows, cols], format))
                    .collect::<Result<Vec<_>>>()?;
                let x = lab.random.normal(n * heads * cols);
                let what = format!("{} [{n}, {heads}, {cols}] to {rows}", format.name);
                lab.defined(&what, lab.product(format, 1.0), &|b| {
                    let ws = ws.iter().map(|w| b.upload_weight(w)).collect::<Result<Vec<_>>>()?;
                    Ok(vec![b.linear_each(&up(b, &x, &[n, heads, cols])?, &ws)?])
                });
            }
        }
        Ok(())
    }));
}

/// Sizes in blocks of the format; dense formats get widths that are no multiple of anything.
fn sizes(format: &Format) -> impl Iterator<Item = (usize, usize, usize)> + use<> {
    in_blocks(format, &SIZES)
}

fn many(format: &Format) -> impl Iterator<Item = (usize, usize, usize)> + use<> {
    in_blocks(format, &MANY)
}

fn in_blocks(
    format: &Format,
    sizes: &'static [(usize, usize, usize)],
) -> impl Iterator<Item = (usize, usize, usize)> + use<> {
    let dense = format.block_len == 1;
    sizes.iter().map(move |&(n, rows, blocks)| (n, rows, if dense { 1 + (blocks - 1) * 43 } else { blocks }))
}

fn product(lab: &mut Lab<'_>, what: &str, w: &HostWeight, n: usize) {
    let [_, rows, cols] = w.shape;
    let x = lab.random.normal(n * cols);
    lab.same(&format!("{what}[{n}, {cols}] to {rows}"), lab.product(w.format, gain(w)), &|b| {
        let x = up(b, &x, &[n, cols])?;
        let y = b.linear(&x, &b.upload_weight(w)?)?;
        if rows < 4 * LAST {
            return Ok(vec![y]);
        }
        // The last of many outputs weigh little in the mean of all.
        let last = b.split(&y, Axis::Cols, &[rows - LAST, LAST])?.swap_remove(1);
        Ok(vec![y, last])
    });
}

/// Several products of one input.
fn several(lab: &mut Lab<'_>, format: &'static Format, [n, cols]: [usize; 2], rows: &[usize]) -> Result<()> {
    let weight = |rows: &usize| lab.random.weight([1, *rows, cols], format);
    let ws = rows.iter().map(weight).collect::<Result<Vec<_>>>()?;
    let x = lab.random.normal(n * cols);
    let limit = lab.product(format, ws.iter().map(gain).fold(0.0, f64::max));
    lab.defined(&format!("[{n}, {cols}] to {rows:?}"), limit, &|b| {
        let ws = ws.iter().map(|w| b.upload_weight(w)).collect::<Result<Vec<_>>>()?;
        b.linear_many(&up(b, &x, &[n, cols])?, &ws.iter().collect::<Vec<_>>())
    });
    Ok(())
}

fn gated(
    lab: &mut Lab<'_>,
    format: &'static Format,
    f: Activation,
    [n, rows, cols]: [usize; 3],
) -> Result<()> {
    let [gate, upward] = [(); 2].map(|()| lab.random.weight([1, rows, cols], format));
    let (gate, upward, x) = (gate?, upward?, lab.random.normal(n * cols));
    // The product of two products has the errors of both.
    let size = 0.3 * gain(&gate) * gain(&upward);
    let limit = lab.product(format, size).times(4.0);
    lab.defined(&format!("{f:?} [{n}, {cols}] to {rows}"), limit, &|b| {
        let (gate, upward) = (b.upload_weight(&gate)?, b.upload_weight(&upward)?);
        Ok(vec![b.linear_gated(&up(b, &x, &[n, cols])?, &gate, &upward, f)?])
    });
    Ok(())
}
