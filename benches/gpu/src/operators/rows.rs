//! What is done to rows between products: norms, elements, moves, and the choice of tokens.

use super::{Bench, Sizes};
use crate::Result;
use crate::lab::{self, Sequences, tensor};
use ogive::backend::{Activation, Axis, Backend, Ids, LayerCache, Rope};
use ogive::tensor::{self, Error, F16, Q4_K, Tensor};

pub(super) fn norms(bench: &mut Bench<'_>) -> Result<()> {
    let (b, Sizes { dim, ffn, .. }) = (bench.b, bench.s);
    let w = b.upload(&lab::values(dim), [dim].into())?;
    for &rows in bench.rows() {
        let (x, y) = (tensor(b, rows, dim)?, tensor(b, rows, dim)?);
        let wide = tensor(b, rows, ffn)?;
        let n = (4 * rows * dim) as f64;
        let (case, calls) = (format!("{rows} × {dim}"), (32, None));
        // Such a norm is left to the product that reads it, and nothing reads it here.
        let left = rows == 1 && bench.run.compute.ends_with("-persistent");
        if left && bench.wants("rms_norm") {
            bench.report.note(format!("rms_norm, {case}: not measured by itself, a product computes it"));
        }
        let mut one = |name: &str, case: &str, bytes: f64, f: &mut dyn FnMut(usize) -> tensor::Result<()>| {
            if bench.wants(name) { bench.add(name, case, calls, [bytes, 0.0], f) } else { Ok(()) }
        };
        if !left {
            one("rms_norm", &case, 2.0 * n, &mut |_| b.rms_norm(&x, &w, 1e-5).map(drop))?;
        }
        one("layer_norm", &case, 2.0 * n, &mut |_| b.layer_norm(&x, &w, Some(&w), 1e-5).map(drop))?;
        // In place, as models have them: what comes out goes in again.
        let mut held = Some(tensor(b, rows, dim)?);
        one("add_rms_norm", &case, 4.0 * n, &mut |_| {
            let x = held.take().ok_or_else(|| Error::missing("add_rms_norm"))?;
            held = Some(b.add_rms_norm(x, &y, &w, 1e-5)?.0);
            Ok(())
        })?;
        let mut held = Some(tensor(b, rows, dim)?);
        one("add", &case, 3.0 * n, &mut |_| {
            let x = held.take().ok_or_else(|| Error::missing("add"))?;
            held = Some(b.add(x, &y)?);
            Ok(())
        })?;
        let mut held = Some(tensor(b, rows, ffn)?);
        one("gated", &format!("{rows} × {ffn}"), (12 * rows * ffn) as f64, &mut |_| {
            let x = held.take().ok_or_else(|| Error::missing("gated"))?;
            held = Some(b.gated(x, &wide, Activation::Silu)?);
            Ok(())
        })?;
    }
    Ok(())
}

/// Rows of the table of tokens.
pub(super) fn embed(bench: &mut Bench<'_>) -> Result<()> {
    let (b, s) = (bench.b, bench.s);
    for format in [&F16, &Q4_K] {
        let name = format!("embed {}", format.name);
        if !bench.wants(&name) {
            continue;
        }
        let table = lab::weights(b, format, [1, s.vocab, s.dim], 0)?.swap_remove(0);
        for &rows in bench.rows().iter().filter(|rows| **rows <= 512) {
            let all = Sequences::new(b, vec![LayerCache::full(s.head, s.head)], rows, 1)?;
            let (plan, bytes) = (all.plan(b, 1, 0)?, rows * (format.row_bytes(s.dim) + 4 * s.dim));
            let case = format!("{rows} × {}", s.dim);
            bench.add(&name, &case, (16, Some(&plan)), [bytes as f64, 0.0], &mut |_| {
                b.embed(&table, Ids::Tokens, &plan).map(drop)
            })?;
        }
    }
    Ok(())
}

/// With the download that ends every step, so not as a graph.
pub(super) fn best(bench: &mut Bench<'_>) -> Result<()> {
    let (b, vocab) = (bench.b, bench.s.vocab);
    for k in [1, 40] {
        let name = if k == 1 { "argmax" } else { "best 40" };
        let wanted = bench.wants(name);
        for &rows in bench.rows().iter().filter(|rows| **rows <= 64 && wanted) {
            let x = tensor(b, rows, vocab)?;
            let (case, bytes) = (format!("{rows} × {vocab}"), (4 * rows * vocab) as f64);
            bench.eager(name, case, [bytes, 0.0], &mut || b.best(&x, k).map(drop))?;
        }
    }
    // What a recorded step ends with: the choice alone.
    let (name, wanted) = ("top_k 40", bench.wants("top_k 40"));
    for &rows in bench.rows().iter().filter(|rows| **rows <= 64 && wanted) {
        let (x, case) = (tensor(b, rows, vocab)?, format!("{rows} × {vocab}"));
        let bytes = (4 * rows * (vocab + 2 * 40)) as f64;
        bench.add(name, &case, (4, None), [bytes, 0.0], &mut |_| b.top_k(x.clone(), 40).map(drop))?;
    }
    Ok(())
}

/// Operators on elements that are no part of others: with a row for all (a scale, a bias), alone, and summed up.
pub(super) fn elements(bench: &mut Bench<'_>) -> Result<()> {
    let (b, dim) = (bench.b, bench.s.dim);
    let scale = b.upload(&vec![1.0; dim], [1, dim].into())?;
    for &rows in bench.rows() {
        let n = (4 * rows * dim) as f64;
        let case = format!("{rows} × {dim}");
        type InPlace<'a> = &'a dyn Fn(Tensor) -> tensor::Result<Tensor>;
        let each: [(&str, InPlace<'_>); 2] = [
            ("mul, a row for all", &|x| b.mul(x, &scale)),
            ("activate", &|x| b.activate(x, Activation::Gelu)),
        ];
        for (name, f) in each {
            if !bench.wants(name) {
                continue;
            }
            // What comes out goes in again, as in a model.
            let mut held = Some(tensor(b, rows, dim)?);
            bench.add(name, &case, (32, None), [2.0 * n, 0.0], &mut |_| {
                held = Some(f(held.take().ok_or_else(|| Error::missing("activations"))?)?);
                Ok(())
            })?;
        }
        if bench.wants("sum") {
            let x = tensor(b, rows, dim)?;
            bench.add("sum", &case, (32, None), [n, 0.0], &mut |_| b.sum(&x).map(drop))?;
        }
    }
    Ok(())
}

/// Operators that only move rows: cut into three and joined again, those whose logits are wanted, rotated.
pub(super) fn moves(bench: &mut Bench<'_>) -> Result<()> {
    let (b, s) = (bench.b, bench.s);
    let (dim, wide) = (s.dim, s.heads * s.head);
    let rope = Rope::new(lab::values(s.head / 2));
    for &rows in bench.rows().iter().filter(|rows| **rows <= 512) {
        let all = Sequences::new(b, vec![LayerCache::full(s.head, s.head)], rows, 1)?;
        let plan = all.plan(b, 1, 0)?;
        let x = tensor(b, rows, 3 * dim)?;
        let parts = b.split(&x, Axis::Cols, &[dim; 3])?;
        let three: Vec<&Tensor> = parts.iter().collect();
        let mut turned = Some(tensor(b, rows, wide)?.reshape([rows, s.heads, s.head])?);
        let (cut, n) = (format!("{rows} × 3 · {dim}"), (4 * rows * dim) as f64);
        let mut one = |name: &str, case: &str, bytes: f64, f: &mut dyn FnMut(usize) -> tensor::Result<()>| {
            if !bench.wants(name) {
                return Ok(());
            }
            bench.add(name, case, (16, Some(&plan)), [bytes, 0.0], f)
        };
        one("split", &cut, 6.0 * n, &mut |_| b.split(&x, Axis::Cols, &[dim; 3]).map(drop))?;
        one("concat", &cut, 6.0 * n, &mut |_| b.concat(&three, Axis::Cols).map(drop))?;
        one("outputs", &format!("{rows} × {dim}"), 2.0 * n, &mut |_| b.outputs(three[0], &plan).map(drop))?;
        one("rope", &format!("{rows} × {wide}"), (8 * rows * wide) as f64, &mut |_| {
            let x = turned.take().ok_or_else(|| Error::missing("rope"))?;
            turned = Some(b.rope(x, &rope, &plan)?);
            Ok(())
        })?;
    }
    Ok(())
}
