//! Mixtures of experts: routing, and experts of every format.
//!
//! Which experts were chosen only their maker can read, so choices show in what comes out: experts are random, and no two
//! choices give the same sum.

use super::{Case, up};
use crate::suite::Options;
use crate::suite::lab::{Host, Lab, Work};
use crate::suite::random::{Random, gain};
use ogive_backend::tensor::{F32, Format, HostWeight, MXFP4, Q8_0, Result, Scale};
use ogive_backend::{Activation, Backend, Experts, Gating, RouterSpec, Scoring, Weight};

/// A router without its tensors.
#[derive(Clone, Copy)]
struct Router {
    experts: usize,
    k: usize,
    scoring: Scoring,
    /// Groups, how many are chosen, by how many of their best.
    groups: [usize; 3],
    normalise: bool,
    scale: f32,
    biased: bool,
}

const PLAIN: Router = Router {
    experts: 8,
    k: 2,
    scoring: Scoring::Softmax,
    groups: [1, 1, 1],
    normalise: true,
    scale: 1.0,
    biased: false,
};

impl Router {
    fn spec(&self, b: &dyn Backend, bias: &[f32]) -> Result<RouterSpec> {
        let [n, top, best] = self.groups;
        let mut spec = RouterSpec::new(self.k, self.scoring).grouped(n, top, best);
        spec.scale = self.scale;
        spec.normalise = self.normalise;
        if self.biased {
            spec = spec.biased(up(b, &bias[..self.experts], &[self.experts])?);
        }
        Ok(spec)
    }
}

/// Weights without their bytes.
#[derive(Clone, Copy)]
struct Stack {
    format: &'static Format,
    activation: Activation,
    gated: bool,
    /// Which of gate, up and down have factors beside their elements.
    scaled: [bool; 3],
    /// Which order the columns of each are in: 0 is none, and others are equal where these are.
    ordered: [usize; 3],
    biased: bool,
    gating: Gating,
}

impl Stack {
    fn of(format: &'static Format) -> Self {
        Self {
            format,
            activation: Activation::Silu,
            gated: true,
            scaled: [false; 3],
            ordered: [0; 3],
            biased: false,
            gating: Gating::Product,
        }
    }

    /// Gate, up or down.
    fn weight(&self, lab: &mut Lab<'_>, which: usize, shape: [usize; 3]) -> Result<HostWeight> {
        let mut w = lab.random.weight(shape, self.format)?;
        let [experts, rows, cols] = shape;
        if self.scaled[which] {
            let tile = [3, 5];
            let tiles = experts * rows.div_ceil(tile[0]) * cols.div_ceil(tile[1]);
            let values: Vec<f32> = (0..tiles).map(|_| lab.random.between(0.5, 2.0)).collect();
            w = w.with_scale(Scale { values: values.into(), tile })?;
        }
        if self.ordered[which] > 0 {
            let name = format!("order {} of {cols}", self.ordered[which]);
            w = w.with_input_perm(Random::new(lab.options.seed, &name).order(cols).into())?;
        }
        Ok(w)
    }
}

/// What gates are activated with.
pub(super) const ACTIVATIONS: [(&str, Activation); 4] = [
    ("silu", Activation::Silu),
    ("gelu", Activation::Gelu),
    ("gelu-tanh", Activation::GeluTanh),
    ("quick-gelu", Activation::QuickGelu),
];

/// The same experts with another weight for `up`.
fn with_up(mut experts: Experts, up: Weight) -> Experts {
    experts.up = up;
    experts
}

pub(super) fn add(cases: &mut Vec<Case>, options: &Options) {
    let sigmoid = Router { scoring: Scoring::Sigmoid, ..PLAIN };
    let mixer = Router { scoring: Scoring::SparseMixer { within: 0.6 }, normalise: false, ..PLAIN };
    let routers = [
        ("softmax", PLAIN),
        ("softmax-unnormalised", Router { normalise: false, scale: 2.5, ..PLAIN }),
        ("sigmoid", sigmoid),
        ("sigmoid-unnormalised", Router { normalise: false, ..sigmoid }),
        ("scaled", Router { scale: 16.0, ..PLAIN }),
        ("biased", Router { biased: true, ..sigmoid }),
        ("groups", Router { experts: 12, groups: [4, 2, 1], k: 3, ..PLAIN }),
        (
            "groups-by-two-best-biased",
            Router { experts: 16, groups: [4, 2, 2], k: 4, biased: true, scale: 2.5, ..sigmoid },
        ),
        (
            "sparse-mixer",
            Router { scoring: Scoring::SparseMixer { within: 0.02 }, normalise: false, ..PLAIN },
        ),
        ("sparse-mixer-near", Router { experts: 40, k: 3, ..mixer }),
        ("sparse-mixer-normalised", Router { normalise: true, scale: 2.5, ..mixer }),
        ("one-of-one", Router { experts: 1, k: 1, ..PLAIN }),
        ("all", Router { experts: 5, k: 5, ..PLAIN }),
        ("many", Router { experts: 128, k: 8, ..PLAIN }),
    ];
    for (name, router) in routers {
        cases.push(Case::new(format!("moe/{name}"), move |lab| {
            for n in [1, 3, 17] {
                let logits: Vec<f32> =
                    lab.random.normal(n * router.experts).iter().map(|v| 2.0 * v).collect();
                mixture(lab, &format!("{n} rows"), router, Stack::of(&F32), logits)?;
            }
            Ok(())
        }));
    }

    cases.push(Case::new("moe/ties", move |lab| {
        let grouped = Router { groups: [4, 2, 1], ..PLAIN };
        for (what, router, row) in [
            ("all equal", PLAIN, [1.0; 8]),
            ("the last equal", PLAIN, [0.0, 0.0, 0.0, 2.0, 1.0, 1.0, 1.0, 1.0]),
            ("signs of zero", PLAIN, [-0.0, 0.0, -1.0, -0.0, 0.0, -0.0, 0.0, 0.0]),
            ("equal logits of a mixer", mixer, [0.0, -1.0, 2.0, 2.0, 1.0, 2.0, 0.0, -0.0]),
            ("logits of a mixer below 0", mixer, [-1.0, -1.5, -2.0, -3.0, -1.0, -9.0, -1.6, -1.59]),
            ("nothing but zeros for a mixer", mixer, [0.0; 8]),
            ("equal sigmoids", sigmoid, [3.0, 1.0, 3.0, 3.0, 1.0, 3.0, 1.0, 1.0]),
            ("equal groups", grouped, [1.0, 0.0, 1.0, 0.0, 1.0, 0.0, 1.0, 0.0]),
            ("scores that underflow", sigmoid, [-200.0; 8]),
            ("no number", sigmoid, [f32::NAN, 1.0, -f32::NAN, 3.0, 0.0, -1.0, 2.0, f32::NAN]),
            (
                "no number in a group",
                Router { groups: [4, 2, 1], ..sigmoid },
                [1.0, -f32::NAN, 2.0, 0.0, 0.5, 0.1, -1.0, f32::NAN],
            ),
        ] {
            mixture(lab, what, router, Stack::of(&F32), row.repeat(3))?;
        }
        Ok(())
    }));

    for &format in &options.formats {
        cases.push(Case::new(format!("moe/{}", format.name), move |lab| {
            let router = Router { experts: 4, ..PLAIN };
            for n in [1, 9] {
                let logits = lab.random.normal(n * router.experts);
                mixture(lab, &format!("{n} rows"), router, Stack::of(format), logits)?;
            }
            Ok(())
        }));
    }

    for &format in options.formats.iter().filter(|f| [&F32, &Q8_0].contains(*f)) {
        for (name, activation) in ACTIVATIONS {
            cases.push(Case::new(format!("moe/{name}/{}", format.name), move |lab| {
                let router = Router { experts: 4, ..PLAIN };
                // Few rows, and so many that each expert has some dozens.
                for n in [2, 70] {
                    let logits = lab.random.normal(n * router.experts);
                    let stack = Stack { activation, ..Stack::of(format) };
                    mixture(lab, &format!("{n} rows"), router, stack, logits)?;
                }
                Ok(())
            }));
        }
        cases.push(Case::new(format!("moe/scale-and-permutation/{}", format.name), move |lab| {
            let router = Router { experts: 4, ..PLAIN };
            for (scaled, ordered) in
                [([true; 3], [0; 3]), ([false; 3], [1, 1, 2]), ([false, true, false], [1, 0, 2])]
            {
                for n in [1, 9] {
                    let logits = lab.random.normal(n * router.experts);
                    let stack = Stack { scaled, ordered, ..Stack::of(format) };
                    let what = format!("{n} rows, scales {scaled:?}, orders {ordered:?}");
                    mixture(lab, &what, router, stack, logits)?;
                }
            }
            Ok(())
        }));
    }

    for &format in &options.formats {
        cases.push(Case::new(format!("moe/ungated/{}", format.name), move |lab| {
            let router = Router { experts: 4, ..PLAIN };
            for n in [1, 9] {
                let logits = lab.random.normal(n * router.experts);
                let stack = Stack { gated: false, activation: Activation::ReluSquared, ..Stack::of(format) };
                mixture(lab, &format!("{n} rows"), router, stack, logits)?;
            }
            Ok(())
        }));
    }

    for &format in options.formats.iter().filter(|f| [&F32, &Q8_0].contains(*f)) {
        cases.push(Case::new(format!("moe/ungated-scale-and-permutation/{}", format.name), move |lab| {
            let router = Router { experts: 4, ..PLAIN };
            for (scaled, ordered) in [([true; 3], [0; 3]), ([false; 3], [0, 1, 2]), ([false; 3], [0, 0, 1])] {
                for n in [1, 9, 70] {
                    let logits = lab.random.normal(n * router.experts);
                    let stack = Stack { gated: false, scaled, ordered, ..Stack::of(format) };
                    let what = format!("{n} rows, scales {scaled:?}, orders {ordered:?}");
                    mixture(lab, &what, router, stack, logits)?;
                }
            }
            Ok(())
        }));
        cases.push(Case::new(format!("moe/ungated-one-of-one/{}", format.name), move |lab| {
            // A single expert may have its columns in an order of its own.
            let router = Router { experts: 1, k: 1, ..PLAIN };
            for (ordered, n) in [([0; 3], 3), ([0, 1, 2], 1), ([0, 1, 2], 70)] {
                let stack =
                    Stack { gated: false, activation: Activation::ReluSquared, ordered, ..Stack::of(format) };
                mixture(lab, &format!("{n} rows, orders {ordered:?}"), router, stack, vec![0.3; n])?;
            }
            Ok(())
        }));
    }

    for &format in options.formats.iter().filter(|f| [&F32, &Q8_0, &MXFP4].contains(*f)) {
        let clamped = Gating::Clamped { limit: 0.6 };
        for (name, biased, gating) in [
            ("biases", true, Gating::Product),
            ("clamped", false, clamped),
            ("biases-clamped", true, clamped),
        ] {
            cases.push(Case::new(format!("moe/{name}/{}", format.name), move |lab| {
                let router = Router { experts: 4, ..PLAIN };
                for n in [1, 9, 70] {
                    let logits = lab.random.normal(n * router.experts);
                    let stack =
                        Stack { biased, gating, activation: Activation::QuickGelu, ..Stack::of(format) };
                    mixture(lab, &format!("{n} rows"), router, stack, logits)?;
                }
                Ok(())
            }));
        }
        cases.push(Case::new(format!("moe/biases-and-permutation/{}", format.name), move |lab| {
            let router = Router { experts: 4, ..PLAIN };
            for (ordered, n) in [([1, 1, 2], 1), ([1, 0, 2], 9)] {
                let logits = lab.random.normal(n * router.experts);
                let stack = Stack { biased: true, gating: clamped, ordered, ..Stack::of(format) };
                mixture(lab, &format!("{n} rows, orders {ordered:?}"), router, stack, logits)?;
            }
            Ok(())
        }));
    }

    cases.push(Case::new("moe/refused", |lab| {
        let w = |lab: &mut Lab<'_>, shape| lab.random.weight(shape, &F32);
        let (up_w, down_w, odd) = (w(lab, [4, 6, 3])?, w(lab, [4, 3, 6])?, w(lab, [4, 5, 3])?);
        let logits = |b: &dyn Backend| up(b, &[1.0; 8], &[2, 4]);
        let soft = |k| RouterSpec::new(k, Scoring::Softmax);
        for (what, spec) in [
            ("more than there are", soft(5)),
            ("none", soft(0)),
            ("groups that do not divide", soft(1).grouped(3, 1, 1)),
            ("no groups", soft(1).grouped(0, 0, 1)),
            ("groups without a best", soft(1).grouped(2, 1, 0)),
            ("more groups than there are", soft(1).grouped(2, 3, 1)),
            ("more than the open groups have", soft(3).grouped(2, 1, 1)),
        ] {
            lab.refuses(&format!("route, {what}"), logits, |b, x| b.route(&x, &spec));
        }
        lab.refuses("route, too few biases", logits, |b, x| {
            b.route(&x, &soft(1).biased(up(b, &[1.0; 3], &[3])?))
        });
        let setup = |b: &dyn Backend| {
            let [gate, down, odd] = [&up_w, &down_w, &odd].map(|w| b.upload_weight(w));
            let (gate, down) = (gate?, down?);
            let experts = Experts::new([gate.clone(), gate, down], Activation::Silu);
            let routing = b.route(&logits(b)?, &soft(2))?;
            Ok((up(b, &[1.0; 6], &[2, 3])?, routing, experts, odd?))
        };
        lab.refuses("experts, other columns", setup, |b, (x, routing, e, _)| {
            b.experts(&x.reshape([3, 2])?, &routing, &e)
        });
        lab.refuses("experts, more rows than routed", setup, |b, (x, routing, e, _)| {
            let x = b.concat(&[&x, &x], ogive_backend::Axis::Rows)?;
            b.experts(&x, &routing, &e)
        });
        lab.refuses("experts of other sizes", setup, |b, (x, routing, e, odd)| {
            b.experts(&x, &routing, &with_up(e, odd))
        });
        lab.refuses("moe, experts of other sizes", setup, |b, (x, _, e, odd)| {
            b.moe(&x, &logits(b)?, &soft(2), &with_up(e, odd))
        });
        for (what, wide) in [("of another width", [6, 5, 3]), ("of another", [6, 6, 2])] {
            lab.refuses(&format!("experts, biases {what}"), setup, |b, (x, routing, e, _)| {
                let [gate, upward, down] = wide.map(|width| up(b, &[0.5; 24][..4 * width], &[4, width]));
                b.experts(&x, &routing, &e.biased([gate?, upward?, down?]))
            });
        }
        lab.refuses("experts, too few biases", setup, |b, (x, routing, e, _)| {
            let few = |width: usize| up(b, &[0.5; 18][..3 * width], &[3, width]);
            b.experts(&x, &routing, &e.biased([few(6)?, few(6)?, few(3)?]))
        });
        for limit in [0.0, -1.0, f32::INFINITY, f32::NAN] {
            lab.refuses(&format!("experts, a limit of {limit}"), setup, |b, (x, routing, e, _)| {
                b.experts(&x, &routing, &e.gating(Gating::Clamped { limit }))
            });
        }
        let ungated = |b: &dyn Backend, down: &HostWeight| {
            let (x, routing, e, _) = setup(b)?;
            Ok((x, routing, Experts::ungated([e.up, b.upload_weight(down)?], Activation::Silu)))
        };
        lab.refuses(
            "ungated experts of other sizes",
            |b| ungated(b, &up_w),
            |b, (x, routing, e)| b.experts(&x, &routing, &e),
        );
        lab.refuses(
            "biases of ungated experts",
            |b| ungated(b, &down_w),
            |b, (x, routing, e)| {
                let of = |width: usize| up(b, &[0.5; 24][..4 * width], &[4, width]);
                b.experts(&x, &routing, &e.biased([of(6)?, of(6)?, of(3)?]))
            },
        );
        lab.refuses(
            "a limit of ungated experts",
            |b| ungated(b, &down_w),
            |b, (x, routing, e)| b.experts(&x, &routing, &e.gating(Gating::Clamped { limit: 1.0 })),
        );
        lab.refuses("fewer experts than logits choose from", setup, |b, (x, _, e, _)| {
            let wide = up(b, &[0.0, 0.0, 0.0, 0.0, 9.0, 0.0, 0.0, 0.0, 0.0, 9.0], &[2, 5])?;
            b.moe(&x, &wide, &soft(1), &e)
        });
        Ok(())
    }));
}

fn mixture(lab: &mut Lab<'_>, what: &str, router: Router, stack: Stack, logits: Vec<f32>) -> Result<()> {
    let Stack { format, activation, gated, gating, biased, .. } = stack;
    let (dim, hidden) =
        if format.block_len == 1 { (24, 10) } else { (format.block_len, 2 * format.block_len) };
    let (e, n) = (router.experts, logits.len() / router.experts);
    let wide = [e, hidden, dim];
    let (gate, upward) = (stack.weight(lab, 0, wide)?, stack.weight(lab, 1, wide)?);
    let down = stack.weight(lab, 2, [e, dim, hidden])?;
    let (x, bias) = (lab.random.normal(n * dim), lab.random.normal(e));
    let biases = [hidden, hidden, dim].map(|width| lab.random.normal(e * width));
    let shares: Work<'_> =
        &|b| Ok(vec![b.route(&up(b, &logits, &[n, e])?, &router.spec(b, &bias)?)?.weights]);
    // The order of a row's experts is nobody's business.
    let sorted = |hosts: Vec<Host>| -> Vec<Host> {
        let sort = |mut h: Host| {
            h.values.chunks_mut(router.k).for_each(|row| row.sort_by(f32::total_cmp));
            h
        };
        hosts.into_iter().map(sort).collect()
    };
    if let (Some(got), Some(want)) = (lab.on_subject(what, shares), lab.on_oracle(what, shares)) {
        lab.compare(&format!("{what}, shares"), lab.exact(), &sorted(got), &sorted(want));
    }
    // Products in a row have the errors of all; a square has those of what is squared twice.
    let size = 0.2 * gain(if gated { &gate } else { &upward }) * gain(&upward) * gain(&down);
    lab.defined(what, lab.product(format, size).times(6.0), &|b| {
        let [gate, upward, down] = [&gate, &upward, &down].map(|w| b.upload_weight(w));
        let (gate, upward, down) = (gate?, upward?, down?);
        let mut experts = match gated {
            true => Experts::new([gate, upward, down], activation).gating(gating),
            false => Experts::ungated([upward, down], activation),
        };
        if biased {
            let of = |which: usize, width: usize| up(b, &biases[which], &[e, width]);
            experts = experts.biased([of(0, hidden)?, of(1, hidden)?, of(2, dim)?]);
        }
        let (x, logits, spec) = (up(b, &x, &[n, dim])?, up(b, &logits, &[n, e])?, router.spec(b, &bias)?);
        let routing = b.route(&logits, &spec)?;
        Ok(vec![b.experts(&x, &routing, &experts)?, b.moe(&x, &logits, &spec, &experts)?])
    });
    Ok(())
}
