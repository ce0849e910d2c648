//! Attention over the cache: store, then attend, for sequences of several lengths side by side.

use super::sequences::{Sequences, together};
use super::{Case, owned, up};
use crate::suite::Options;
use crate::suite::lab::Lab;
use ogive_backend::tensor::{Error, F16, F32, Format, Result, Tensor};
use ogive_backend::{AttnOption, AttnSpec, Backend, Batch, CacheSpec, LayerCache};
use std::sync::Arc;

/// An attention layer and what its sequences go through.
#[derive(Clone)]
pub(super) struct Setting {
    pub(super) heads: usize,
    pub(super) kv_heads: usize,
    pub(super) k_dim: usize,
    pub(super) v_dim: usize,
    pub(super) block_len: usize,
    pub(super) element: &'static Format,
    pub(super) options: &'static [Choice],
    /// Steps: which sequence gets how many tokens, and rows of nobody.
    pub(super) steps: &'static [(&'static [(usize, usize)], usize)],
}

/// An attention option without its tensors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Choice {
    Causal,
    Mutual,
    Window(usize),
    Ahead(usize),
    Chunk(usize),
    SoftCap,
    Sinks,
    Alibi,
    Mask,
}

use Choice::*;

/// Prompts of several lengths, chunks, decoding alone and together, padding.
pub(super) const MIXED: &[(&[(usize, usize)], usize)] = &[
    (&[(0, 5), (1, 1)], 0),
    (&[(1, 3), (0, 2), (2, 19)], 2),
    (&[(0, 1), (1, 1), (2, 1)], 5),
    (&[(2, 1)], 0),
    (&[(3, 9)], 0),
    (&[(1, 17), (0, 1)], 0),
    (&[(0, 1), (1, 1), (2, 1)], 0),
];

/// As short as steps can be that are more than one row, with another sequence, a past and rows of nobody.
pub(super) const FEW: &[(&[(usize, usize)], usize)] =
    &[(&[(0, 5), (1, 1)], 0), (&[(1, 3), (0, 2)], 2), (&[(0, 1), (1, 1)], 1)];

pub(super) const BASE: Setting = Setting {
    heads: 4,
    kv_heads: 2,
    k_dim: 32,
    v_dim: 32,
    block_len: 3,
    element: &F32,
    options: &[Causal],
    steps: MIXED,
};

/// A stranger's element under a name that is known, in as many bytes, but with another decoder.
static IMPOSTOR: Format = Format {
    name: "bf16",
    block_len: 1,
    block_bytes: 2,
    decode: |bytes, out| (F16.decode)(bytes, out),
    encode: Some(|values, importance, bytes| {
        if let Some(encode) = F16.encode {
            encode(values, importance, bytes);
        }
    }),
};

pub(super) fn add(cases: &mut Vec<Case>, options: &Options) {
    let options_and_names: [(&str, &[Choice]); 12] = [
        ("causal", &[Causal]),
        ("bidirectional", &[]),
        ("mutual", &[Causal, Mutual]),
        ("mutual-window", &[Causal, Mutual, Window(4), Alibi, SoftCap]),
        ("window", &[Causal, Window(4)]),
        ("window-of-one", &[Causal, Window(1)]),
        ("chunks", &[Causal, Chunk(5)]),
        ("soft-cap", &[Causal, SoftCap]),
        ("sinks", &[Causal, Sinks]),
        ("alibi", &[Causal, Alibi]),
        ("mask", &[Causal, Mask]),
        ("everything", &[Causal, Window(7), Alibi, SoftCap, Mask, Sinks]),
    ];
    for (name, choices) in options_and_names {
        for &element in &options.elements {
            let setting = Setting { options: choices, element, ..BASE };
            cases.push(Case::new(format!("attend_cache/{name}/{}-cache", element.name), move |lab| {
                story(lab, &setting)
            }));
        }
    }
    let shapes: [(&str, Setting); 9] = [
        ("bidirectional-around", Setting { options: &[Window(4), Ahead(2)], ..BASE }),
        ("heads/one", Setting { heads: 1, kv_heads: 1, ..BASE }),
        ("heads/no-groups", Setting { heads: 3, kv_heads: 3, ..BASE }),
        ("heads/groups-of-7", Setting { heads: 14, kv_heads: 2, ..BASE }),
        ("heads/all-share-one", Setting { heads: 8, kv_heads: 1, ..BASE }),
        ("dims/values-narrower", Setting { v_dim: 16, ..BASE }),
        ("dims/values-wider", Setting { k_dim: 24, v_dim: 40, ..BASE }),
        ("dims/odd", Setting { k_dim: 5, v_dim: 3, ..BASE }),
        ("dims/128", Setting { k_dim: 128, v_dim: 128, ..BASE }),
    ];
    for (name, setting) in shapes {
        cases.push(Case::new(format!("attend_cache/{name}"), move |lab| story(lab, &setting)));
    }
    // As Gemma has them.
    for &element in &options.elements {
        let setting = Setting {
            k_dim: 256,
            v_dim: 256,
            heads: 2,
            kv_heads: 1,
            block_len: 16,
            steps: FEW,
            element,
            ..BASE
        };
        cases.push(Case::new(format!("attend_cache/dims/256/{}-cache", element.name), move |lab| {
            story(lab, &setting)
        }));
    }
    for block_len in [1, 3, 16, 64] {
        for choices in [&[Causal][..], &[Causal, Window(5)]] {
            let window = if choices.len() > 1 { "/window" } else { "" };
            let setting = Setting { block_len, options: choices, ..BASE };
            cases.push(Case::new(format!("attend_cache/blocks-of-{block_len}{window}"), move |lab| {
                story(lab, &setting)
            }));
        }
    }
    cases.push(Case::new("attend_cache/element-of-a-known-name", |lab| {
        let setting = Setting { element: &IMPOSTOR, block_len: 16, steps: FEW, ..BASE };
        match lab.subject().new_cache(&setting.cache()) {
            Ok(_) => story(lab, &setting),
            Err(_) => {
                lab.skip("the backend keeps nothing in an element that it does not know");
                Ok(())
            }
        }
    }));
    cases.push(Case::new("attend_cache/long", |lab| {
        const LONG: &[(&[(usize, usize)], usize)] =
            &[(&[(0, 300), (1, 257)], 0), (&[(0, 1), (1, 1)], 0), (&[(0, 260), (1, 1)], 3), (&[(0, 1)], 0)];
        for options in
            [&[Causal][..], &[Causal, Window(40)], &[Causal, Mutual], &[Causal, Mutual, Window(40)]]
        {
            story(lab, &Setting { block_len: 16, k_dim: 16, v_dim: 16, steps: LONG, options, ..BASE })?;
        }
        Ok(())
    }));
}

/// The numbers of one step: queries, keys, values, and what options need.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) batch: Batch,
    pub(super) q: Vec<f32>,
    pub(super) k: Vec<f32>,
    pub(super) v: Vec<f32>,
    mask: Vec<f32>,
}

impl Setting {
    /// What is behind it may be gone.
    pub(super) fn window(&self) -> Option<usize> {
        self.options.iter().find_map(|o| if let Window(w) | Chunk(w) = o { Some(*w) } else { None })
    }

    /// One layer with as much room as the steps can need.
    pub(super) fn cache(&self) -> CacheSpec {
        let (k, v) = (self.kv_heads * self.k_dim, self.kv_heads * self.v_dim);
        let layer = self.window().map_or(LayerCache::full(k, v), |w| LayerCache::windowed(k, v, w, 0));
        let tokens: usize = self.steps.iter().flat_map(|(work, _)| work.iter().map(|(_, n)| n)).sum();
        CacheSpec::new(vec![layer], self.block_len, tokens / self.block_len + 8, 16).element(self.element)
    }

    /// Random numbers for each step.
    pub(super) fn numbers(&self, lab: &mut Lab<'_>) -> Vec<Step> {
        let mut sequences = Sequences::new(&mut lab.random, &self.cache(), 8);
        let mut batches: Vec<Batch> = self.steps.iter().map(|(work, n)| sequences.step(work, *n)).collect();
        // A new sequence in blocks that an old one has used.
        sequences.restart(0);
        batches.extend([sequences.step(&[(1, 1), (0, 3)], 0), sequences.step(&[(0, 1)], 1)]);
        // Two that begin alike, in the same blocks: each goes on in its own.
        sequences.begin_as(7, 1);
        batches.extend([sequences.step(&[(7, 2), (1, 1)], 0), sequences.step(&[(1, 1), (7, 1)], 0)]);
        if self.options.contains(&Mutual) {
            batches.iter_mut().for_each(together);
        }
        let mut numbers = Vec::new();
        for batch in batches {
            let n = batch.tokens.len();
            let longest = batch.spans.iter().map(|s| s.context()).max().unwrap_or(0);
            let mask = (0..n * longest).map(|i| match lab.random.below(4) {
                // Never the first column a row can see alone: every fourth is hidden, none of a row's first tokens.
                0 if i % longest > 2 => f32::NEG_INFINITY,
                _ => lab.random.between(-2.0, 2.0),
            });
            numbers.push(Step {
                mask: mask.collect(),
                q: lab.random.normal(n * self.heads * self.k_dim).iter().map(|v| 2.0 * v).collect(),
                k: lab.random.normal(n * self.kv_heads * self.k_dim),
                v: lab.random.normal(n * self.kv_heads * self.v_dim),
                batch,
            });
        }
        numbers
    }

    /// The spec with the tensors its options need.
    pub(super) fn spec(&self, b: &dyn Backend, step: &Step) -> Result<AttnSpec> {
        let n = step.batch.tokens.len();
        let mask = |b: &dyn Backend| up(b, &step.mask, &[n, step.mask.len() / n.max(1)]);
        self.spec_with(b, mask)
    }

    /// The spec of a setting that has no mask.
    pub(super) fn spec_without_mask(&self, b: &dyn Backend) -> Result<AttnSpec> {
        self.spec_with(b, |_| Err(Error::invalid("mask", "this case has none")))
    }

    fn spec_with(&self, b: &dyn Backend, mask: impl Fn(&dyn Backend) -> Result<Tensor>) -> Result<AttnSpec> {
        let mut spec = AttnSpec::new(self.heads, self.kv_heads, self.k_dim, self.v_dim);
        for choice in self.options {
            // As many values as heads, no two alike.
            let per_head = |f: fn(f32) -> f32| (0..self.heads).map(|h| f(h as f32)).collect::<Vec<_>>();
            spec = spec.with(match choice {
                Causal => AttnOption::Causal,
                Mutual => AttnOption::Mutual,
                Window(w) => AttnOption::Window(*w),
                Ahead(n) => AttnOption::Ahead(*n),
                Chunk(n) => AttnOption::Chunk(*n),
                SoftCap => AttnOption::SoftCap(3.0),
                Sinks => AttnOption::Sinks(up(b, &per_head(|h| 2.0 - h), &[self.heads])?),
                Alibi => AttnOption::Alibi(Arc::from(per_head(|h| 0.5 / (1.0 + h)))),
                Mask => AttnOption::Mask(mask(b)?),
            });
        }
        Ok(spec)
    }
}

/// Runs the steps and compares what every row of a sequence attends to.
fn story(lab: &mut Lab<'_>, setting: &Setting) -> Result<()> {
    let steps = setting.numbers(lab);
    lab.defined("all steps", lab.attended(setting.element), &|b| {
        let cache = b.new_cache(&setting.cache())?;
        steps
            .iter()
            .map(|step| {
                let n = step.batch.tokens.len();
                let plan = b.plan(step.batch.clone())?;
                let q = up(b, &step.q, &[n, setting.heads, setting.k_dim])?;
                let k = up(b, &step.k, &[n, setting.kv_heads, setting.k_dim])?;
                let v = up(b, &step.v, &[n, setting.kv_heads * setting.v_dim])?;
                b.store_kv(0, &k, Some(&v), &cache, &plan)?;
                let y = b.attend_cache(0, &q, &cache, &setting.spec(b, step)?, &plan)?;
                owned(b, &y, &step.batch)
            })
            .collect::<Result<Vec<Tensor>>>()
    });
    Ok(())
}
