//! What is collected of products and of experts, against sums made by hand.

use ogive_backend::tensor::{Result, Tensor};
use ogive_backend::{Activation, Backend, Collect, Experts, Gating, HostWeight, RouterSpec, Scoring, Weight};
use ogive_conformance::Oracle;
use std::sync::Arc;

/// Numbers between -1 and 1 that are the same on every run.
fn numbers(seed: u32, n: usize) -> Vec<f32> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1 << 23) as f32 - 1.0
    };
    (0..n).map(|_| next()).collect()
}

fn weight(b: &dyn Backend, name: &str, seed: u32, shape: [usize; 3]) -> (Vec<f32>, Weight) {
    let values = numbers(seed, shape.iter().product());
    let host = HostWeight::from_f32(name, shape, &values).unwrap();
    (values, b.upload_weight(&host).unwrap())
}

fn near(found: &[f64], wanted: &[f64]) {
    assert_eq!(found.len(), wanted.len());
    for (f, w) in found.iter().zip(wanted) {
        assert!((f - w).abs() <= 1e-5 * w.abs().max(1e-3), "{found:?} and not {wanted:?}");
    }
}

fn squares<'a>(rows: impl Iterator<Item = &'a [f32]>, cols: usize) -> Vec<f64> {
    let mut sums = vec![0.0; cols];
    for row in rows {
        sums.iter_mut().zip(row).for_each(|(sum, v)| *sum += f64::from(*v).powi(2));
    }
    sums
}

#[test]
fn products_are_given_what_is_summed() -> Result<()> {
    let b = Collect::new(Arc::new(Oracle));
    let values = numbers(1, 3 * 8);
    let x = b.upload(&values, [3, 8].into())?;
    let of = |name| weight(&b, name, 2, [1, 5, 8]).1;
    let (one, many, gate, up, heads) = (of("one"), of("many"), of("gate"), of("up"), of("heads"));
    let want = squares(values.chunks(8), 8);
    let plain = Oracle.linear(&x, &one)?;
    assert_eq!(b.download(&b.linear(&x, &one)?)?, b.download(&plain)?);
    b.linear(&x, &one)?;
    b.linear_many(&x, &[&many, &one])?;
    b.linear_gated(&x, &gate, &up, Activation::Silu)?;
    // Another part of the same tensor is given the same, and counts for nothing.
    b.linear(&x, &of("up"))?;
    b.linear_each(&x.clone().reshape([3, 1, 8])?, &[heads])?;
    let found = b.found();
    assert_eq!(found.keys().collect::<Vec<_>>(), ["gate", "many", "one", "up"]);
    for (name, times) in [("gate", 1), ("many", 1), ("one", 3), ("up", 1)] {
        assert_eq!(found[name].counts, [3 * times as u64], "{name}");
        near(&found[name].sums, &want.iter().map(|v| v * f64::from(times)).collect::<Vec<_>>());
    }
    Ok(())
}

/// Gated experts with biases and a limit, whose middle is wider than a row so that it takes three askings; plain ones; and ones that are narrow.
#[test]
fn experts_are_given_what_is_summed() -> Result<()> {
    let (n, dim, count, k) = (6, 4, 3, 2);
    for (hidden, gated, limited) in [(10, true, true), (10, true, false), (3, true, false), (4, false, false)]
    {
        let b = Collect::new(Arc::new(Oracle));
        let xs = numbers(3, n * dim);
        let (x, logits) =
            (b.upload(&xs, [n, dim].into())?, b.upload(&numbers(5, n * count), [n, count].into())?);
        let (gates, gate) = weight(&b, "gate", 7, [count, hidden, dim]);
        let (ups, up) = weight(&b, "up", 11, [count, hidden, dim]);
        let (_, down) = weight(&b, "down", 13, [count, dim, hidden]);
        let biases = [numbers(17, count * hidden), numbers(19, count * hidden), numbers(23, count * dim)];
        let widths = [hidden, hidden, dim];
        let bias = || -> Result<[Tensor; 3]> {
            let each = biases.iter().zip(widths).map(|(v, w)| b.upload(v, [count, w].into()));
            Ok(each.collect::<Result<Vec<_>>>()?.try_into().expect("three"))
        };
        let experts = match (gated, limited) {
            (true, true) => {
                let gating = Gating::Clamped { limit: 0.7 };
                Experts::new([gate, up, down], Activation::Silu).biased(bias()?).gating(gating)
            }
            (true, false) => Experts::new([gate, up, down], Activation::Silu),
            _ => Experts::ungated([up, down], Activation::Silu),
        };
        let spec = RouterSpec::new(k, Scoring::Softmax);
        let own = b.moe(&x, &logits, &spec, &experts)?;
        assert_eq!(b.download(&own)?, b.download(&Oracle.moe(&x, &logits, &spec, &experts)?)?);

        // The same by hand.
        let scores = numbers(5, n * count);
        let chosen = |e: usize| {
            (0..n).filter(move |r| {
                let row = &numbers(5, n * count)[r * count..][..count];
                (0..count).filter(|o| row[*o] > row[e] || row[*o] == row[e] && *o < e).count() < k
            })
        };
        let dot = |w: &[f32], e: usize, h: usize, r: usize| -> f32 {
            let row = &w[(e * hidden + h) * dim..][..dim];
            row.iter().zip(&xs[r * dim..][..dim]).map(|(a, b)| a * b).sum()
        };
        let silu = |v: f32| v / (1.0 + (-v).exp());
        let middle = |e: usize, r: usize| -> Vec<f32> {
            let one = |h: usize| {
                let (mut g, mut u) = (dot(&gates, e, h, r), dot(&ups, e, h, r));
                if limited {
                    g = (g + biases[0][e * hidden + h]).min(0.7);
                    u = (u + biases[1][e * hidden + h]).clamp(-0.7, 0.7) + 1.0;
                }
                if gated { silu(g) * u } else { silu(u) }
            };
            (0..hidden).map(one).collect()
        };
        assert_eq!(scores.len(), n * count);
        let found = b.found();
        assert_eq!(found.contains_key("gate"), gated);
        for e in 0..count {
            let rows: Vec<usize> = chosen(e).collect();
            for name in found.keys() {
                assert_eq!(found[name].counts[e], rows.len() as u64, "{name}");
            }
            near(
                &found["up"].sums[e * dim..][..dim],
                &squares(rows.iter().map(|r| &xs[r * dim..][..dim]), dim),
            );
            let middles: Vec<Vec<f32>> = rows.iter().map(|r| middle(e, *r)).collect();
            near(
                &found["down"].sums[e * hidden..][..hidden],
                &squares(middles.iter().map(|m| &m[..]), hidden),
            );
        }
    }
    Ok(())
}

/// More experts than bf16 has numbers for, and beside them what all rows go through: of another shape, in turn with them.
#[test]
fn many_experts_are_told_apart() -> Result<()> {
    let (count, dim, hidden) = (600, 2, 3);
    let b = Collect::new(Arc::new(Oracle));
    let experts = |name: &str, count: usize| {
        let of = |part: &str, shape| weight(&b, &format!("{name}.{part}"), 7, shape).1;
        let (up, down) = (of("up", [count, hidden, dim]), of("down", [count, dim, hidden]));
        Experts::ungated([up, down], Activation::Silu)
    };
    let (all, shared) = (experts("all", count), experts("shared", 1));
    let chosen = [0_u32, 255, 256, 257, 511, 599];
    let mut logits = vec![0.0; chosen.len() * count];
    chosen.iter().enumerate().for_each(|(row, e)| logits[row * count + *e as usize] = 9.0);
    let x = b.upload(&numbers(3, chosen.len() * dim), [chosen.len(), dim].into())?;
    let logits = b.upload(&logits, [chosen.len(), count].into())?;
    let one = b.upload(&[0.0; 6], [chosen.len(), 1].into())?;
    let spec = RouterSpec::new(1, Scoring::Softmax);
    for _ in 0..2 {
        b.moe(&x, &logits, &spec, &all)?;
        b.moe(&x, &one, &spec, &shared)?;
    }
    let found = b.found();
    for name in ["all.up", "all.down"] {
        let met = (0..count).filter(|e| found[name].counts[*e] > 0).map(|e| e as u32);
        assert!(met.eq(chosen), "{name}");
        assert!(chosen.iter().all(|e| found[name].counts[*e as usize] == 2), "{name}");
    }
    assert_eq!(found["shared.down"].counts, [2 * chosen.len() as u64]);
    Ok(())
}
