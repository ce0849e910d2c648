//! Sums, products, functions, norms; and the fused forms of them.

use super::{Case, up};
use crate::suite::lab::Lab;
use ogive_backend::tensor::{Result, Tensor};
use ogive_backend::{Activation, Backend, Xielu};

/// Numbers of xIELU that differ from each other.
pub(super) const XIELU: Activation =
    Activation::Xielu(Xielu { positive: 0.7, negative: 1.3, linear: 0.5, bound: -1e-3 });

/// Every function there is, with the range tested and how much of its value may be lost near zero.
const FUNCTIONS: [(&str, Activation, f32, f32); 11] = [
    ("silu", Activation::Silu, 100.0, 0.01),
    ("gelu", Activation::Gelu, 100.0, 1.0),
    ("gelu-tanh", Activation::GeluTanh, 100.0, 1.0),
    ("quick-gelu", Activation::QuickGelu, 47.0, 0.01),
    ("tanh", Activation::Tanh, 100.0, 0.1),
    ("exp", Activation::Exp, 80.0, 0.001),
    ("softplus", Activation::Softplus, 100.0, 0.01),
    ("sigmoid", Activation::Sigmoid, 80.0, 0.001),
    ("relu", Activation::Relu, 100.0, 0.001),
    ("relu-squared", Activation::ReluSquared, 100.0, 0.001),
    ("xielu", XIELU, 100.0, 0.01),
];

/// Operands that fit, by repeating rows or columns of either side.
const BROADCASTS: [(&[usize], &[usize]); 21] = [
    (&[4, 6], &[4, 6]),
    (&[4, 6], &[4, 1]),
    (&[4, 6], &[1, 6]),
    (&[4, 6], &[6]),
    (&[4, 6], &[1, 1]),
    (&[4, 6], &[1]),
    (&[4, 1], &[1, 6]),
    (&[1, 6], &[4, 1]),
    (&[1, 6], &[4, 6]),
    (&[4, 1], &[4, 6]),
    (&[1, 1], &[4, 6]),
    (&[6], &[4, 6]),
    (&[2, 3, 4], &[2, 3, 4]),
    (&[2, 3, 4], &[4]),
    (&[2, 3, 4], &[2, 3, 1]),
    (&[1, 4], &[2, 3, 4]),
    (&[0, 6], &[0, 6]),
    (&[0, 6], &[1, 6]),
    (&[0, 6], &[0, 1]),
    (&[1, 257], &[1, 257]),
    (&[37, 129], &[1, 129]),
];

type Binary = fn(&dyn Backend, Tensor, &Tensor) -> Result<Tensor>;

pub(super) fn add(cases: &mut Vec<Case>) {
    let binaries: [(&str, Binary); 2] = [("add", |b, x, y| b.add(x, y)), ("mul", |b, x, y| b.mul(x, y))];
    for (name, f) in binaries {
        cases.push(Case::new(format!("{name}/broadcast"), move |lab| {
            for (xs, ys) in BROADCASTS {
                let x = lab.random.normal(xs.iter().product());
                let y = lab.random.normal(ys.iter().product());
                lab.same(&format!("{xs:?} with {ys:?}"), lab.each(1e-3), &|b| {
                    Ok(vec![f(b, up(b, &x, xs)?, &up(b, &y, ys)?)?])
                });
                lab.same(&format!("{xs:?} with {ys:?}, held elsewhere"), lab.each(1e-3), &|b| {
                    let (x, y) = (up(b, &x, xs)?, up(b, &y, ys)?);
                    let z = f(b, x.clone(), &y)?;
                    Ok(vec![z, x, y])
                });
            }
            let x = lab.random.normal(24);
            lab.same("with itself", lab.each(1e-3), &|b| {
                let x = up(b, &x, &[4, 6])?;
                Ok(vec![f(b, x.clone(), &x)?, x])
            });
            Ok(())
        }));
        cases.push(Case::new(format!("{name}/refused"), move |lab| {
            let wrong: [(&[usize], &[usize]); 6] = [
                (&[4, 6], &[4, 3]),
                (&[4, 6], &[2, 6]),
                (&[4, 6], &[6, 4]),
                (&[2, 3], &[6]),
                (&[0, 6], &[2, 6]),
                (&[24], &[4, 6]),
            ];
            for (xs, ys) in wrong {
                let zeros = |d: &[usize]| vec![0.0; d.iter().product()];
                let setup = |b: &dyn Backend| Ok((up(b, &zeros(xs), xs)?, up(b, &zeros(ys), ys)?));
                lab.refuses(&format!("{xs:?} with {ys:?}"), setup, |b, (x, y)| f(b, x, &y));
            }
            Ok(())
        }));
    }

    for (name, f, range, floor) in FUNCTIONS {
        cases.push(Case::new(format!("activate/{name}"), move |lab| {
            let mut x = vec![0.0, -0.0, 1e-8, -1e-8, 1.0, -1.0, 20.0, -20.0, range, -range];
            x.extend(lab.random.normal(300).iter().map(|v| 3.0 * v));
            let wide: Vec<f32> = (0..91).map(|_| lab.random.between(-range, range)).collect();
            x.extend(wide);
            let limit = lab.each(floor);
            lab.same("one row", limit, &|b| Ok(vec![b.activate(up(b, &x, &[1, x.len()])?, f)?]));
            lab.same("three extents, held elsewhere", limit, &|b| {
                let x = up(b, &x[..399], &[3, 7, 19])?;
                Ok(vec![b.activate(x.clone(), f)?, x])
            });
            lab.same("no rows", limit, &|b| Ok(vec![b.activate(up(b, &[], &[0, 5])?, f)?]));
            Ok(())
        }));
        cases.push(Case::new(format!("gated/{name}"), move |lab| {
            for (rows, cols) in [(1, 1), (3, 67), (0, 8)] {
                let (gate, upward) = (lab.random.normal(rows * cols), lab.random.normal(rows * cols));
                lab.defined(&format!("[{rows}, {cols}]"), lab.each(floor), &|b| {
                    let (g, u) = (up(b, &gate, &[rows, cols])?, up(b, &upward, &[rows, cols])?);
                    Ok(vec![b.gated(up(b, &gate, &[rows, cols])?, &u, f)?, b.gated(g.clone(), &u, f)?, g, u])
                });
            }
            Ok(())
        }));
    }

    cases.push(Case::new("sum", |lab| {
        for dims in [&[1, 1][..], &[5, 1], &[3, 67], &[2, 3, 40], &[0, 5], &[3, 0], &[9], &[2, 5001]] {
            let x = lab.random.normal(dims.iter().product());
            let usual = dims.last().map_or(0.0, |&cols| (cols as f64).sqrt());
            lab.same(&format!("{dims:?}"), lab.exact().usually(usual), &|b| {
                Ok(vec![b.sum(&up(b, &x, dims)?)?])
            });
        }
        Ok(())
    }));

    cases.push(Case::new("sum/refused", |lab| {
        // Rows of nothing may be any number, and each has a sum.
        lab.refuses(
            "more rows than there is memory for",
            |_| Ok(()),
            |b, ()| b.sum(&b.upload(&[], [1 << 61, 0].into())?),
        );
        let nothing = |b: &dyn Backend| up(b, &[], &[0]);
        lab.refuses("as many, of a view", nothing, |b, x| b.sum(&x.reshape([1 << 61, 0])?));
        Ok(())
    }));

    cases.push(Case::new("rms_norm", |lab| norms(lab, |b, x, w, _, eps| Ok(vec![b.rms_norm(x, w, eps)?]))));
    cases.push(Case::new("layer_norm", |lab| {
        norms(lab, |b, x, w, shift, eps| {
            Ok(vec![b.layer_norm(x, w, Some(shift), eps)?, b.layer_norm(x, w, None, eps)?])
        })
    }));

    cases.push(Case::new("norms/refused", |lab| {
        let setup = |b: &dyn Backend| {
            Ok([up(b, &[1.0; 12], &[3, 4])?, up(b, &[1.0; 3], &[3])?, up(b, &[1.0; 4], &[4])?])
        };
        lab.refuses("rms_norm with too few factors", setup, |b, [x, w, _]| b.rms_norm(&x, &w, 1e-5));
        lab.refuses("layer_norm with too few factors", setup, |b, [x, w, _]| {
            b.layer_norm(&x, &w, None, 1e-5)
        });
        lab.refuses("layer_norm with too few shifts", setup, |b, [x, s, w]| {
            b.layer_norm(&x, &w, Some(&s), 1e-5)
        });
        lab.refuses("add_rms_norm with too few factors", setup, |b, [x, w, _]| {
            b.add_rms_norm(x.clone(), &x, &w, 1e-5)
        });
        Ok(())
    }));

    cases.push(Case::new("add_rms_norm", |lab| {
        for (rows, cols) in [(1, 1), (1, 64), (7, 65), (33, 288), (0, 16)] {
            let (r, x) = (lab.random.normal(rows * cols), lab.random.normal(rows * cols));
            let w = lab.random.normal(cols);
            lab.defined(&format!("[{rows}, {cols}]"), lab.exact(), &|b| {
                let dims = [rows, cols];
                let (x, w) = (up(b, &x, &dims)?, up(b, &w, &[cols])?);
                let (sum, normed) = b.add_rms_norm(up(b, &r, &dims)?, &x, &w, 1e-5)?;
                let held = up(b, &r, &dims)?;
                let (sum_of_held, normed_of_held) = b.add_rms_norm(held.clone(), &x, &w, 1e-5)?;
                Ok(vec![sum, normed, sum_of_held, normed_of_held, held, x])
            });
        }
        Ok(())
    }));
}

type Norm = fn(&dyn Backend, &Tensor, &Tensor, &Tensor, f32) -> Result<Vec<Tensor>>;

fn norms(lab: &mut Lab<'_>, norm: Norm) -> Result<()> {
    for dims in [&[1, 1][..], &[1, 64], &[7, 65], &[33, 288], &[3, 4, 16], &[0, 16], &[40]] {
        let cols = dims.last().copied().unwrap_or(1);
        let (w, shift) = (lab.random.normal(cols), lab.random.normal(cols));
        for (size, eps) in [(1.0, 1e-5), (1e-3, 1e-5), (1e3, 1e-6)] {
            let x: Vec<f32> =
                lab.random.normal(dims.iter().product()).iter().map(|v| size * (v + 0.3)).collect();
            lab.same(&format!("{dims:?} of size {size:e}"), lab.exact(), &|b| {
                let x = up(b, &x, dims)?;
                let mut ys = norm(b, &x, &up(b, &w, &[cols])?, &up(b, &shift, &[cols])?, eps)?;
                ys.push(x);
                Ok(ys)
            });
        }
    }
    Ok(())
}
