//! How steps are split, and that their bits do not hang on it.

use super::*;
use crate::device::Device;
use crate::launch::tests::on;
use crate::ops::attend::attend_cache;
use crate::{Compute, CudaBackend};
use ogive_backend::tensor::{Result, Tensor};
use ogive_backend::{Backend, Batch, BlockTable, Cache, CacheSpec, Estimate, LayerCache, Plan, StepKey};
use ogive_tensor::{HostWeight, Q8_0};
use ptx_emulator_launcher::{Nvrtc, test_name};

#[test]
fn the_grid_is_that_of_the_key() {
    let spec = AttnSpec::causal(32, 8, 128);
    let of = |seen, n, longest| Split::of(&spec, seen, [8, 4], n, longest, PARTS).map(|s| s.chunks);
    assert_eq!((of(u32::MAX, 1, 1), of(u32::MAX, 1, 1024)), (Some(4), Some(16)));
    // Whatever a step is recorded at, the record is right for all that replay it.
    for seen in [1, 64, 100, 300, 4000, u32::MAX] {
        for n in [1, 2, 3, 16, 17, 32, 33] {
            for longest in 1..=4200 {
                let of_bucket = of(seen, n, StepKey::bucket(longest));
                assert_eq!(of(seen, n, longest), of_bucket, "{n} rows of {longest}, {seen} seen");
            }
        }
    }
    assert_eq!((of(u32::MAX, 1, 2048), of(u32::MAX, 1, 32_768)), (Some(32), Some(128)));
    // A short row beside a long one, that begins and ends within chunks.
    assert_eq!(
        (of(u32::MAX, 1, 4096), of(300, 1, 32_768), of(4000, 1, 32_768)),
        (Some(33), Some(6), Some(33))
    );
    assert_eq!((of(u32::MAX, 16, 1024), of(u32::MAX, 17, 1024)), (Some(16), None));
    assert_eq!((of(u32::MAX, 32, 4096), of(u32::MAX, 33, 4096)), (Some(33), None));
    assert_eq!((of(u32::MAX, 0, 1024), of(u32::MAX, usize::MAX, 1024)), (None, None));
    assert_eq!(of(u32::MAX, 1, 1 << 24), None);
}

/// Long contexts fill a device, whatever the parts of all rows and heads would take.
#[test]
fn parts_fit_their_place() {
    // Llama 3 70B and 8B, DeepSeek's latent rows: heads, key heads, elements, tiles and heads of a tile.
    let models = [(64, 8, 128, [8, 8]), (32, 8, 128, [8, 4]), (128, 1, 512, [64, 2])];
    for (heads, kv_heads, dim, tiles) in models {
        let spec = AttnSpec::causal(heads, kv_heads, dim);
        for (n, longest) in
            [1, 2, 3, 4, 8, 32].into_iter().flat_map(|n| (9..=21).map(move |bits| (n, 1 << bits)))
        {
            let Some(split) = Split::of(&spec, u32::MAX, tiles, n, longest, PARTS) else {
                let most = if longest > SHORT { BLOCKS } else { SHORT_BLOCKS };
                assert!(n * tiles[0] > most, "{n} rows of {longest}");
                continue;
            };
            let bytes = split.parts(tiles[1]) * 4 * (dim + 2);
            assert!(bytes <= PARTS, "{n} rows of {longest}: {bytes} bytes");
            let slices: Vec<_> = split.slices(n, tiles[0]).collect();
            let mut seen = vec![0; n * tiles[0]];
            for [[row, tile], [rows, of_row]] in &slices {
                assert!(rows * of_row <= split.slice[0] * split.slice[1]);
                // Blocks of a launch that is one of several.
                let blocks = rows * of_row * split.chunks;
                assert!(slices.len() == 1 || blocks >= 1024, "{n} rows of {longest}: {blocks} blocks");
                (*row..row + rows)
                    .for_each(|r| (*tile..tile + of_row).for_each(|t| seen[r * tiles[0] + t] += 1));
            }
            assert!(seen.iter().all(|count| *count == 1), "{n} rows of {longest}");
        }
    }
}

const BLOCK: usize = 16;
/// Blocks of a sequence.
const TABLE: usize = 40;

fn numbers(salt: usize, n: usize) -> Vec<f32> {
    (0..n).map(|i| ((i + salt) * 7919 % 1009) as f32 / 504.0 - 1.0).collect()
}

/// Some sequences' keys and values.
struct Held<'a> {
    b: &'a CudaBackend,
    spec: AttnSpec,
    cache: Cache,
    latent: bool,
}

impl<'a> Held<'a> {
    fn new(b: &'a CudaBackend, spec: AttnSpec, latent: bool, sequences: usize) -> Self {
        let layer =
            LayerCache::full(spec.kv_heads * spec.k_dim, if latent { 0 } else { spec.kv_heads * spec.v_dim });
        let cache = b.new_cache(&CacheSpec::new(vec![layer], BLOCK, TABLE * sequences, 2)).unwrap();
        Self { b, spec, cache, latent }
    }

    /// So many rows of each sequence after so many.
    fn batch(parts: &[(usize, usize)]) -> Batch {
        let mut batch = Batch::default();
        for (i, (past, rows)) in parts.iter().enumerate() {
            let blocks = (i * TABLE..(i + 1) * TABLE).map(|j| j as u32).collect();
            batch.push(&vec![0; *rows], *past, vec![BlockTable { first: 0, blocks }], [0, 1]);
        }
        batch
    }

    /// Stores them.
    fn store(&self, parts: &[(usize, usize)]) -> Result<Plan> {
        let batch = Self::batch(parts);
        let (b, n, plan) = (self.b, batch.tokens.len(), self.b.plan(batch)?);
        let side = |salt, dim| b.upload(&numbers(salt + parts[0].0, n * dim), [n, dim].into());
        let v = if self.latent { None } else { Some(side(2, self.spec.kv_heads * self.spec.v_dim)?) };
        b.store_kv(0, &side(1, self.spec.kv_heads * self.spec.k_dim)?, v.as_ref(), &self.cache, &plan)?;
        Ok(plan)
    }

    fn attend(&self, q: &Tensor, plan: &Plan, parts: usize) -> Result<Tensor> {
        let (d, compute) = (&self.b.device, self.b.compute);
        attend_cache(d, compute, 0, q, &self.cache, &self.spec, plan, self.latent, parts)
    }

    fn bits(&self, x: &Tensor) -> Vec<u32> {
        self.b.download(x).unwrap().into_iter().map(f32::to_bits).collect()
    }
}

/// In one launch, in one for some rows, for some heads of a row and for each block: the same bits.
fn slices_and_whole() {
    let b = CudaBackend::new().unwrap();
    let latent = AttnSpec::new(5, 1, 40, 24).with(ogive_backend::AttnOption::Causal);
    for (spec, latent) in [(AttnSpec::causal(9, 3, 32), false), (latent, true)] {
        let pasts = [600, 0, 299, 256, 511];
        let held = Held::new(&b, spec, latent, pasts.len());
        held.store(&pasts.map(|past| (0, past))).unwrap();
        let plan = held.store(&pasts.map(|past| (past, 1))).unwrap();
        let width = held.spec.heads * held.spec.k_dim;
        let q = b.upload(&numbers(3, pasts.len() * width), [pasts.len(), width].into()).unwrap();
        let whole = held.bits(&held.attend(&q, &plan, PARTS).unwrap());
        assert!(whole.iter().any(|v| f32::from_bits(*v).abs() > 1e-3));
        // Parts of a block: 16 chunks, no more than eight heads.
        let of_block = 8 * 16 * 4 * (held.spec.v_dim + 2);
        for blocks in [0, 1, 2, 3, 6] {
            let sliced = held.bits(&held.attend(&q, &plan, blocks * of_block).unwrap());
            assert!(sliced == whole, "{} key heads, {blocks} blocks", held.spec.kv_heads);
        }
    }
}

#[test]
fn slices_give_the_bits_of_the_whole() {
    on(test_name!(), Nvrtc::V11, "sm_61", slices_and_whole);
    on(test_name!(), Nvrtc::V12, "sm_80", slices_and_whole);
    on(test_name!(), Nvrtc::V13, "sm_90", slices_and_whole);
}

/// A recorded step has as many launches, whatever its contexts' lengths.
#[test]
fn slices_are_replayed() {
    on(test_name!(), Nvrtc::V12, "sm_80", || {
        let tell = |b: &CudaBackend, parts: usize| {
            let held = Held::new(b, AttnSpec::causal(8, 4, 16), false, 2);
            held.store(&[(0, 508), (0, 300)]).unwrap();
            let q = b.upload(&numbers(9, 2 * 128), [2, 128].into()).unwrap();
            let step = |i: usize| {
                let plan = held.store(&[(508 + i, 1), (300 + i, 1)])?;
                let mut f = |plan: &_| held.attend(&q, plan, parts);
                let y = match StepKey::of(1, plan.batch()) {
                    Some(key) => b.replay(&key, &plan, &mut f)?,
                    None => f(&plan)?,
                };
                Ok::<_, ogive_tensor::Error>(held.bits(&y))
            };
            (0..8).map(|i| step(i).unwrap()).collect::<Vec<_>>()
        };
        let (with, without) =
            (CudaBackend::new().unwrap(), CudaBackend::builder().graphs(false).build().unwrap());
        assert_eq!(tell(&with, 1), tell(&without, PARTS));
        assert!(with.graphs().replayed >= 4, "{:?}", with.graphs());
    });
}

/// Of steps that are split, of one that is not, and of a prompt for tensor cores.
#[test]
fn estimates_count_parts() {
    on(test_name!(), Nvrtc::V12, "sm_80", || {
        let of = |compute, latent: bool, steps: &[(usize, usize)]| {
            let b = CudaBackend::builder().compute(compute).build().unwrap();
            let spec = match latent {
                true => AttnSpec::new(16, 1, 40, 24).with(ogive_backend::AttnOption::Causal),
                false => AttnSpec::causal(16, 4, 32),
            };
            let held = Held::new(&b, spec, latent, steps.len());
            // Nothing is stored before: what values are does not matter.
            let plan = held.store(steps).unwrap();
            let (n, width) = (plan.batch().tokens.len(), held.spec.heads * held.spec.k_dim);
            let q = b.upload(&numbers(3, n * width), [n, width].into()).unwrap();
            let used = b.memory_used().0;
            held.attend(&q, &plan, PARTS).unwrap();
            let taken = b.memory_used().1 - used;
            let e = Estimate::of(b.sizes());
            let (cache, plan) =
                (e.new_cache(held.cache.spec()).unwrap(), e.plan(Held::batch(steps)).unwrap());
            let q = e.upload(&numbers(3, n * width), [n, width].into()).unwrap();
            let counted = e.activations(|| match latent {
                true => e.attend_latent(0, &q, &cache, &held.spec, &plan),
                false => e.attend_cache(0, &q, &cache, &held.spec, &plan),
            });
            let (counted, result) =
                (counted.unwrap().peak, 4 * (n * held.spec.heads * held.spec.v_dim) as u64);
            assert_eq!(counted, taken, "{compute:?} {latent} {steps:?}");
            counted > 2 * result
        };
        let (single, half) = (Compute::F32, Compute::Bf16);
        assert!(of(single, false, &[(600, 1)]) && of(single, false, &[(600, 1), (10, 1), (300, 2)]));
        assert!(of(single, true, &[(600, 1)]) && of(half, false, &[(500, 4)]));
        assert!(!of(single, false, &[(50, 1); 40]) && !of(half, false, &[(500, 32)]));
    });
}

/// In one launch and in parts, of chunks and of none, of several rows: a product of the result is that of its numbers sent anew.
fn results() {
    let b = CudaBackend::builder().activations(crate::Activations::Int8).build().unwrap();
    let cols = 9 * 32;
    let mut packed = vec![0; 40 * Q8_0.row_bytes(cols)];
    Q8_0.encode_row(&numbers(4, 40 * cols), &mut packed).unwrap();
    let w = HostWeight::new("w", [1, 40, cols], &Q8_0, packed.into()).unwrap();
    let w = b.upload_weight(&w).unwrap();
    let mut seen = Vec::new();
    for (dim, parts) in [
        (32, &[(20, 1), (3, 2)][..]),
        (32, &[(600, 1), (10, 1), (300, 2)]),
        (24, &[(600, 1)]),
        (32, &[(9, 9)]),
        (32, &[(600, 1)]),
    ] {
        let held = Held::new(&b, AttnSpec::causal(9, 3, dim), false, parts.len());
        let plan = held.store(parts).unwrap();
        let (n, width) = (parts.iter().map(|(_, rows)| rows).sum(), 9 * dim);
        let q = b.upload(&numbers(3, n * width), [n, width].into()).unwrap();
        let got = held.attend(&q, &plan, PARTS).unwrap();
        seen.push(Device::codes(&got).is_some());
        if width == cols {
            let sent = b.upload(&b.download(&got).unwrap(), [n, width].into()).unwrap();
            let product = |x: &Tensor| held.bits(&b.linear(x, &w).unwrap());
            assert_eq!(product(&got), product(&sent), "{parts:?}");
        }
    }
    // Of whole groups, and few rows; where products take more than one in tiles, of one.
    let some = b.device.info.capability < (8, 0);
    assert_eq!(seen, [some, some, false, false, true]);
}

#[test]
fn results_come_rounded_on_sm_75() {
    on(test_name!(), Nvrtc::V12, "sm_75", results);
}

#[test]
fn results_come_rounded_on_sm_80() {
    on(test_name!(), Nvrtc::V12, "sm_80", results);
}
