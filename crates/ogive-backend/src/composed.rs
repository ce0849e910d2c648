//! Definitions that a wrapper may run on itself, to see what they are composed of. A trait's own body cannot be called by what
//! overrides it.

use crate::{AttnSpec, Backend, Cache, Experts, Plan, Rope, RouterSpec};
use ogive_tensor::{Result, Tensor};

pub(crate) fn rope_attend<B: Backend + ?Sized>(
    b: &B,
    layer: usize,
    q: Tensor,
    k: Tensor,
    v: &Tensor,
    rope: &Rope,
    cache: &Cache,
    spec: &AttnSpec,
    plan: &Plan,
) -> Result<Tensor> {
    let q = b.rope(q, rope, plan)?;
    let k = b.rope(k, rope, plan)?;
    b.store_kv(layer, &k, Some(v), cache, plan)?;
    b.attend_cache(layer, &q, cache, spec, plan)
}

pub(crate) fn moe<B: Backend + ?Sized>(
    b: &B,
    x: &Tensor,
    logits: &Tensor,
    spec: &RouterSpec,
    experts: &Experts,
) -> Result<Tensor> {
    b.experts(x, &b.route(logits, spec)?, experts)
}
