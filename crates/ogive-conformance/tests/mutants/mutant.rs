//! The oracle with one fault.

use crate::fault::Fault::{self, *};
use ogive_backend::tensor::{BF16, Error, F32, Q8_0, Result, Shape, Tensor};
use ogive_backend::*;
use ogive_conformance::Oracle;
use std::collections::BTreeMap;
use std::sync::Mutex;

/// The oracle with a fault.
#[derive(Debug)]
pub(crate) struct Mutant {
    fault: Fault,
    recorded: Mutex<BTreeMap<String, Tensor>>,
}

impl Mutant {
    pub(crate) fn new(fault: Fault) -> Self {
        Self { fault, recorded: Mutex::default() }
    }

    fn is(&self, fault: Fault) -> bool {
        self.fault == fault
    }

    /// The plan of a step like this one but for an edit.
    fn edited(&self, plan: &Plan, edit: impl FnOnce(&mut Batch)) -> Result<Plan> {
        let mut batch = plan.batch().clone();
        edit(&mut batch);
        Oracle.plan(batch)
    }

    fn edited_spec(&self, spec: &AttnSpec) -> AttnSpec {
        let mut spec = spec.clone();
        let fault = self.fault;
        spec.options.retain(|o| match o {
            AttnOption::Window(_) => fault != IgnoresWindow,
            AttnOption::Ahead(_) => fault != IgnoresAhead,
            AttnOption::Chunk(_) => fault != IgnoresChunk,
            AttnOption::Causal => fault != IgnoresCausal,
            AttnOption::Mutual => fault != IgnoresMutual,
            AttnOption::SoftCap(_) => fault != IgnoresSoftCap,
            AttnOption::Sinks(_) => fault != IgnoresSinks,
            AttnOption::Alibi(_) => fault != IgnoresAlibi,
            AttnOption::Mask(_) => fault != IgnoresMask,
            _ => fault != IgnoresUnknownOption,
        });
        if fault == CapsFirst {
            spec.options.sort_by_key(|o| !matches!(o, AttnOption::SoftCap(_)));
        }
        spec
    }

    /// Heads of the last extent in another order.
    fn reorder(x: &Tensor, heads: usize, order: impl Fn(usize) -> usize) -> Result<Tensor> {
        let flat = x.clone().reshape([x.shape().first(), x.shape().len() / x.shape().first().max(1)])?;
        let parts = Oracle.split(&flat, Axis::Cols, &vec![flat.shape().cols() / heads; heads])?;
        let parts: Vec<&Tensor> = (0..heads).map(|i| &parts[order(i)]).collect();
        Oracle.concat(&parts, Axis::Cols)
    }

    /// `x` with zeros after the first `n` rows or columns.
    fn kept(x: &Tensor, axis: Axis, n: usize) -> Result<Tensor> {
        let all = if axis == Axis::Rows { x.shape().first() } else { x.shape().cols() };
        let parts = Oracle.split(x, axis, &[n, all - n])?;
        let lost = Oracle.mul(parts[1].clone(), &Oracle.upload(&[0.0], [1].into())?)?;
        Oracle.concat(&[&parts[0], &lost], axis)
    }

    /// What attention over the cache reads.
    fn read(&self, layer: usize, cache: &Cache, plan: &Plan) -> Result<(Tensor, Option<Tensor>)> {
        match self.fault {
            ReadsTheFirstTable => {
                let first = |b: &mut Batch| {
                    for tables in b.spans.iter_mut().map(|s| &mut s.tables) {
                        (1..tables.len()).for_each(|i| tables[i] = tables[0].clone());
                    }
                };
                self.gather_kv(layer, cache, &self.edited(plan, first)?)
            }
            ReadsTheFirstLayer => self.gather_kv(0, cache, plan),
            IgnoresSharing if matches!(cache.spec().layers.get(layer), Some(LayerCache::Shares(_))) => {
                let (k, v) = self.gather_kv(layer, cache, plan)?;
                Ok((Self::kept(&k, Axis::Cols, 0)?, v.map(|v| Self::kept(&v, Axis::Cols, 0)).transpose()?))
            }
            _ => self.gather_kv(layer, cache, plan),
        }
    }

    /// Attention over what was read.
    fn attended(&self, q: &Tensor, k: &Tensor, v: &Tensor, spec: &AttnSpec, plan: &Plan) -> Result<Tensor> {
        let y = self.attend(q, k, v, spec, plan)?;
        if !self.is(ForgetsBeyond128) || spec.v_dim <= 128 {
            return Ok(y);
        }
        let shape = y.shape();
        let heads = y.reshape([shape.first() * spec.heads, spec.v_dim])?;
        Self::kept(&heads, Axis::Cols, 128)?.reshape([shape.first(), shape.cols()])
    }

    /// What a fused operator knows of the options.
    fn fused(&self, spec: &AttnSpec) -> AttnSpec {
        let mut spec = spec.clone();
        let other = |o: &AttnOption| matches!(o, AttnOption::Causal | AttnOption::Other(_));
        spec.options.retain(|o| !self.is(FusesCausalOnly) || other(o));
        spec
    }

    /// `x` scaled by very little more than one.
    fn nudge(x: Tensor) -> Result<Tensor> {
        Oracle.mul(x, &Oracle.upload(&[1.0 + f32::EPSILON], [1].into())?)
    }
}

impl Backend for Mutant {
    fn facts(&self) -> Facts {
        Oracle.facts()
    }
    fn upload(&self, values: &[f32], shape: Shape) -> Result<Tensor> {
        Oracle.upload(values, shape)
    }
    fn download(&self, x: &Tensor) -> Result<Vec<f32>> {
        let wrong =
            |e| if self.is(CallsForeignInvalid) { Error::invalid("download", "cannot be read") } else { e };
        Oracle.download(x).map_err(wrong)
    }
    fn upload_weight(&self, w: &HostWeight) -> Result<Weight> {
        let mut w = w.clone();
        if self.is(IgnoresWeightScale) || w.shape[0] > 1 && self.is(IgnoresScaleOfStacks) {
            w.scale = None;
        }
        if self.is(IgnoresInputPermutation) || w.shape[0] > 1 && self.is(IgnoresOrderOfStacks) {
            w.input_perm = None;
        }
        Oracle.upload_weight(&w)
    }
    fn new_cache(&self, spec: &CacheSpec) -> Result<Cache> {
        let exact = self.is(RoundsNothingIntoTheCache);
        if self.is(KnowsElementsByName) && *spec.element == BF16 {
            return Oracle.new_cache(&spec.clone().element(&BF16));
        }
        Oracle.new_cache(&if exact { spec.clone().element(&F32) } else { spec.clone() })
    }
    fn plan(&self, batch: Batch) -> Result<Plan> {
        let wrong = |_| Oracle.plan(Batch::default());
        if self.is(PlansAnything) { Oracle.plan(batch).or_else(wrong) } else { Oracle.plan(batch) }
    }
    fn embed(&self, table: &Weight, ids: Ids, plan: &Plan) -> Result<Tensor> {
        if !self.is(ClampsIds) {
            return Oracle.embed(table, ids, plan);
        }
        let last = table.shape()[1] as u32 - 1;
        let plan = self.edited(plan, |b| b.tokens.iter_mut().for_each(|t| *t = (*t).min(last)))?;
        Oracle.embed(table, ids, &plan)
    }
    fn linear(&self, x: &Tensor, w: &Weight) -> Result<Tensor> {
        let y = Oracle.linear(x, w);
        match self.fault {
            PanicsOnWrongShapes => Ok(y.expect("told to")),
            DependsOnTheBatch if x.shape().rows() > 7 => Self::nudge(y?),
            SpreadsNan if Oracle.download(x)?.iter().any(|v| v.is_nan()) => {
                Oracle.mul(y?, &Oracle.upload(&[f32::NAN], [1].into())?)
            }
            LosesPrecision => Oracle.mul(y?, &Oracle.upload(&[1.0001], [1].into())?),
            LosesRowsPast64 if x.shape().rows() > 64 => Self::kept(&y?, Axis::Rows, 64),
            LosesTheLastOutputs if w.shape()[1] > 1000 && w.format() == &Q8_0 => {
                Self::kept(&y?, Axis::Cols, w.shape()[1] - 3)
            }
            _ => y,
        }
    }
    fn rms_norm(&self, x: &Tensor, w: &Tensor, eps: f32) -> Result<Tensor> {
        Oracle.rms_norm(x, w, if self.is(ForgetsEpsilon) { 0.0 } else { eps })
    }
    fn layer_norm(&self, x: &Tensor, w: &Tensor, b: Option<&Tensor>, eps: f32) -> Result<Tensor> {
        Oracle.layer_norm(x, w, b, eps)
    }
    fn add(&self, x: Tensor, y: &Tensor) -> Result<Tensor> {
        Oracle.add(x, y)
    }
    fn mul(&self, x: Tensor, y: &Tensor) -> Result<Tensor> {
        Oracle.mul(x, y)
    }
    fn sum(&self, x: &Tensor) -> Result<Tensor> {
        match x.shape().cols() {
            0 if self.is(SumsNothing) => Oracle.upload(&[], [0, 1].into()),
            _ => Oracle.sum(x),
        }
    }
    fn activate(&self, x: Tensor, f: Activation) -> Result<Tensor> {
        let approximate = self.is(TakesGeluForItsApproximation) && f == Activation::Gelu;
        Oracle.activate(x, if approximate { Activation::GeluTanh } else { f })
    }
    fn split(&self, x: &Tensor, axis: Axis, sizes: &[usize]) -> Result<Vec<Tensor>> {
        Oracle.split(x, axis, sizes)
    }
    fn concat(&self, xs: &[&Tensor], axis: Axis) -> Result<Tensor> {
        Oracle.concat(xs, axis)
    }
    fn rope(&self, x: Tensor, rope: &Rope, plan: &Plan) -> Result<Tensor> {
        let mut rope = rope.clone();
        if self.is(SwapsRopeLayouts) {
            rope.layout =
                if rope.layout == RopeLayout::Pairs { RopeLayout::Halves } else { RopeLayout::Pairs };
        }
        if self.is(IgnoresRopeFactor) {
            rope.factor = 1.0;
        }
        Oracle.rope(x, &rope, plan)
    }
    fn store_kv(
        &self,
        layer: usize,
        k: &Tensor,
        v: Option<&Tensor>,
        cache: &Cache,
        plan: &Plan,
    ) -> Result<()> {
        Oracle.store_kv(layer, k, v, cache, plan)?;
        let nobody = plan.batch().row_counts().last().copied().unwrap_or(0);
        if !self.is(StoresRowsOfNobody) || nobody == 0 {
            return Ok(());
        }
        // Into the first blocks, as one does whose tables are padded with zeros.
        let rows = |x: &Tensor| -> Result<Tensor> {
            let first = x.shape().first();
            Ok(Oracle.split(x, Axis::Rows, &[first - nobody, nobody])?.swap_remove(1))
        };
        let mut stray = Batch::default();
        stray.push(&vec![0; nobody], 0, vec![BlockTable { first: 0, blocks: (0..8).collect() }], [0, 1]);
        let v = v.map(rows).transpose()?;
        Oracle.store_kv(layer, &rows(k)?, v.as_ref(), cache, &Oracle.plan(stray)?)
    }
    fn gather_kv(&self, layer: usize, cache: &Cache, plan: &Plan) -> Result<(Tensor, Option<Tensor>)> {
        Oracle.gather_kv(layer, cache, plan)
    }
    fn attend(&self, q: &Tensor, k: &Tensor, v: &Tensor, spec: &AttnSpec, plan: &Plan) -> Result<Tensor> {
        let (heads, kv) = (spec.heads, spec.kv_heads);
        if self.is(MisindexesGroupedHeads)
            && kv > 0
            && heads % kv == 0
            && q.shape().len().is_multiple_of(heads)
        {
            let group = heads / kv;
            let q = Self::reorder(q, heads, |p| p % group * kv + p / group)?;
            let y = Oracle.attend(&q, k, v, spec, plan)?;
            return Self::reorder(&y, heads, |h| h % kv * group + h / kv);
        }
        let y = Oracle.attend(q, k, v, &self.edited_spec(spec), plan)?;
        let cut = self.is(DependsOnHowAPromptIsCut) && plan.batch().spans.iter().any(|s| s.len > 100);
        if cut { Self::nudge(y) } else { Ok(y) }
    }
    fn copy_blocks(&self, cache: &Cache, plan: &Plan) -> Result<()> {
        if self.is(CopiesBlocksBackwards) {
            return Oracle.copy_blocks(cache, &self.edited(plan, |b| b.copies.reverse())?);
        }
        Oracle.copy_blocks(cache, plan)
    }
    fn read_state(&self, layer: usize, cache: &Cache, plan: &Plan) -> Result<Tensor> {
        if self.is(StartsFromAnOldState) {
            let old = |b: &mut Batch| b.spans.iter_mut().for_each(|s| s.past = s.past.max(1));
            return Oracle.read_state(layer, cache, &self.edited(plan, old)?);
        }
        if self.is(ReadsTheFirstState) {
            let first = |b: &mut Batch| {
                (1..b.spans.len()).for_each(|i| b.spans[i].slots[0] = b.spans[0].slots[0]);
            };
            return Oracle.read_state(layer, cache, &self.edited(plan, first)?);
        }
        Oracle.read_state(layer, cache, plan)
    }
    fn write_state(&self, layer: usize, state: &Tensor, cache: &Cache, plan: &Plan) -> Result<()> {
        if self.is(WritesTheSlotItReads) {
            // In both: a backend that updates in place and does not notice while nothing is run again.
            let same = |b: &mut Batch| b.spans.iter_mut().for_each(|s| s.slots[1] = s.slots[0]);
            Oracle.write_state(layer, state, cache, &self.edited(plan, same)?)?;
        }
        Oracle.write_state(layer, state, cache, plan)
    }
    fn route(&self, logits: &Tensor, spec: &RouterSpec) -> Result<Routing> {
        let (mut logits, mut spec) = (logits.clone(), spec.clone());
        match (self.fault, spec.bias.take()) {
            (AddsBiasToScores, Some(bias)) => logits = Oracle.add(logits, &bias)?,
            (IgnoresRouterBias, _) => {}
            (_, bias) => spec.bias = bias,
        }
        if self.is(IgnoresGroups) {
            spec.groups = [1, 1];
        }
        if self.is(TiesToTheHigherIndex) {
            let rising: Vec<f32> = (0..logits.shape().cols()).map(|e| 1e-5 * e as f32).collect();
            logits = Oracle.add(logits, &Oracle.upload(&rising, [rising.len()].into())?)?;
        }
        Oracle.route(&logits, &spec)
    }
    fn experts(&self, x: &Tensor, routing: &Routing, experts: &Experts) -> Result<Tensor> {
        let mut experts = experts.clone();
        if self.is(KnowsSiluOnly) {
            experts.activation = Activation::Silu;
        }
        if self.is(IgnoresBiasesOfExperts) {
            experts.bias = None;
        }
        if self.is(ClampsNoGates) {
            experts.gating = Gating::Product;
        }
        if self.is(GatesByItself) && experts.gate.is_none() {
            experts.gate = Some(experts.up.clone());
        }
        Oracle.experts(x, routing, &experts)
    }
    fn outputs(&self, x: &Tensor, plan: &Plan) -> Result<Tensor> {
        if self.is(SortsOutputs) {
            return Oracle.outputs(x, &self.edited(plan, |b| b.outputs.sort_unstable())?);
        }
        Oracle.outputs(x, plan)
    }

    fn add_rms_norm(&self, residual: Tensor, x: &Tensor, w: &Tensor, eps: f32) -> Result<(Tensor, Tensor)> {
        let sum = self.add(residual, x)?;
        let normed = self.rms_norm(if self.is(ForgetsTheResidual) { x } else { &sum }, w, eps)?;
        Ok((sum, normed))
    }
    fn linear_each(&self, x: &Tensor, ws: &[Weight]) -> Result<Tensor> {
        if !self.is(MixesHeads) && ws.windows(2).any(|w| w[0].shape() != w[1].shape()) {
            return Err(Error::invalid("linear_each", "heads of other sizes"));
        }
        let (n, heads, dim) = (x.shape().first(), ws.len(), x.shape().cols());
        let xs = self.split(&x.clone().reshape([n, heads * dim])?, Axis::Cols, &vec![dim; heads])?;
        let ys = xs.iter().zip(ws).map(|(x, w)| self.linear(x, w)).collect::<Result<Vec<_>>>()?;
        let y = self.concat(&ys.iter().collect::<Vec<_>>(), Axis::Cols)?;
        let out = y.shape().cols() / heads;
        y.reshape([n, heads, out])
    }
    fn attend_cache(
        &self,
        layer: usize,
        q: &Tensor,
        cache: &Cache,
        spec: &AttnSpec,
        plan: &Plan,
    ) -> Result<Tensor> {
        let (k, v) = self.read(layer, cache, plan)?;
        let v = v.ok_or_else(|| Error::unsupported("attend_cache", "the layer keeps no values"))?;
        self.attended(q, &k, &v, spec, plan)
    }
    fn attend_latent(
        &self,
        layer: usize,
        q: &Tensor,
        cache: &Cache,
        spec: &AttnSpec,
        plan: &Plan,
    ) -> Result<Tensor> {
        let (k, _) = self.read(layer, cache, plan)?;
        let rest = k.shape().cols().checked_sub(spec.v_dim);
        let rest = rest.ok_or_else(|| Error::invalid("attend_latent", "values wider than keys"))?;
        let v = self.split(&k, Axis::Cols, &[spec.v_dim, rest])?.swap_remove(0);
        self.attended(q, &k, &v, &self.fused(spec), plan)
    }
    fn rope_attend(
        &self,
        layer: usize,
        q: Tensor,
        k: Tensor,
        v: &Tensor,
        rope: &Rope,
        cache: &Cache,
        spec: &AttnSpec,
        plan: &Plan,
    ) -> Result<Tensor> {
        let (mut rope, spec) = (rope.clone(), &self.fused(spec));
        match self.fault {
            RotatesHalvesOnly => rope.layout = RopeLayout::Halves,
            RotatesByNoFactor => rope.factor = 1.0,
            // Elements that stay as they are, but pairs as far apart as in a head that is rotated whole.
            RotatesWholeHeads => {
                let mut freq = rope.inv_freq.to_vec();
                freq.resize(spec.k_dim / 2, 0.0);
                rope.inv_freq = freq.into();
            }
            _ => {}
        }
        let (q, k) = (self.rope(q, &rope, plan)?, self.rope(k, &rope, plan)?);
        self.store_kv(layer, &k, Some(v), cache, plan)?;
        let first = plan.batch().spans.len() == 1 && plan.batch().spans[0].past == 0;
        if self.is(AttendsToUnroundedKeys) && first && plan.batch().row_counts()[1] == 0 {
            return self.attend(&q, &k, v, spec, plan);
        }
        self.attend_cache(layer, &q, cache, spec, plan)
    }
    fn linear_attention(
        &self,
        layer: usize,
        q: &Tensor,
        k: &Tensor,
        v: &Tensor,
        g: &Tensor,
        beta: Option<&Tensor>,
        cache: &Cache,
        plan: &Plan,
    ) -> Result<Tensor> {
        let (mut q, mut k, mut g, mut beta) = (q.clone(), k.clone(), g.clone(), beta.cloned());
        let times = |x: Tensor, factor: f32| Oracle.mul(x, &Oracle.upload(&[factor], [1].into())?);
        let ones = || Oracle.activate(times(g.clone(), 0.0)?, Activation::Exp);
        match (self.fault, k.shape().dims(), v.shape().dims()) {
            (MisindexesGroupedHeads, &[n, own, dim], &[_, heads, _]) => {
                // Key heads one after the other, and then from the first again.
                let again = |x: Tensor| {
                    let row = x.reshape([n, own * dim])?;
                    Oracle.concat(&vec![&row; heads / own], Axis::Cols)?.reshape([n, heads, dim])
                };
                (q, k) = (again(q)?, again(k)?);
            }
            (ForgetsToDecay, ..) => g = times(g, 0.0)?,
            (IgnoresBetas, ..) if beta.is_some() => beta = Some(ones()?),
            (TakesNoBetasForOnes, ..) if beta.is_none() => beta = Some(ones()?),
            (TakesKeysForQueries, ..) => q = k.clone(),
            (KnowsKeysOf64, &[n, own, dim], _) if dim > 64 => {
                k = Self::kept(&k.reshape([n * own, dim])?, Axis::Cols, 64)?.reshape([n, own, dim])?;
            }
            (ForgetsAfter64Rows, &[n, ..], _) if n > 64 => {
                // Nothing is left of the states after a row that decays so.
                let mut rows = Oracle.split(&g, Axis::Rows, &[64, 1, n - 65])?;
                rows[1] = times(rows[1].clone(), 1e6)?;
                g = Oracle.concat(&rows.iter().collect::<Vec<_>>(), Axis::Rows)?;
            }
            _ => {}
        }
        recurrent::linear_attention(self, layer, &q, &k, v, &g, beta.as_ref(), cache, plan)
    }
    fn best(&self, x: &Tensor, k: usize) -> Result<Vec<Vec<(u32, f32)>>> {
        let (mut values, cols) = (self.download(x)?, x.shape().cols().max(1));
        if self.is(TakesNanForTheLargest) {
            values.iter_mut().filter(|v| v.is_nan()).for_each(|v| *v = f32::INFINITY);
        }
        let last = |i: u32| cols as u32 - 1 - i;
        let row = |row: &mut [f32]| {
            if !self.is(BestTiesToTheHigherIndex) {
                return best_of(row, k);
            }
            row.reverse();
            best_of(row, k).into_iter().map(|(i, v)| (last(i), v)).collect()
        };
        Ok(values.chunks_mut(cols).map(row).collect())
    }
    fn top_k(&self, x: Tensor, k: usize) -> Result<Tensor> {
        let cols = x.shape().cols();
        if !self.is(KeepsTheFirst) || k >= cols {
            return Ok(x);
        }
        Ok(Oracle.split(&x, Axis::Cols, &[k, cols - k])?.swap_remove(0))
    }
    fn replay(
        &self,
        key: &StepKey,
        plan: &Plan,
        f: &mut dyn FnMut(&Plan) -> Result<Tensor>,
    ) -> Result<Tensor> {
        let mut key = key.clone();
        if self.is(ReplaysOtherModels) {
            key.model = plan.batch().positions.iter().map(|&p| u64::from(p)).sum();
        } else if !self.is(ReplaysStaleResults) {
            return f(plan);
        }
        let mut recorded = self.recorded.lock().unwrap();
        if let Some(y) = recorded.get(&format!("{key:?}")) {
            return Ok(y.clone());
        }
        let y = f(plan)?;
        recorded.insert(format!("{key:?}"), y.clone());
        Ok(y)
    }
}
