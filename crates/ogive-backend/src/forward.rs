//! The lists of methods that make wrapping a backend a line or two. Without them every wrapper (plain, trace, a
//! stranger's fusion) would repeat three dozen signatures, and break with each new one.
//!
//! A wrapper has one method of its own, `fn around<T>(&self, name: &'static str, f: impl FnOnce(&Inner) ->
//! Result<T>) -> Result<T>`, which every forwarded call goes through: it may count, time or fail.

/// Writes methods that go through `self.around(name, ..)`. Used by the two lists below.
#[doc(hidden)]
#[macro_export]
macro_rules! forward_methods {
    ($(fn $name:ident($($arg:ident: $ty:ty),*) -> $ret:ty;)*) => {
        $(fn $name(&self, $($arg: $ty),*) -> $crate::tensor::Result<$ret> {
            self.around(stringify!($name), |b| b.$name($($arg),*))
        })*
    };
}

/// Writes a wrapper's required methods, each through `self.around(name, |inner| ..)`.
#[macro_export]
macro_rules! forward_required {
    () => {
        $crate::forward_required_but_products!();
        $crate::forward_methods! {
            fn linear(x: &$crate::tensor::Tensor, w: &$crate::Weight) -> $crate::tensor::Tensor;
            fn experts(x: &$crate::tensor::Tensor, routing: &$crate::Routing, experts: &$crate::Experts) -> $crate::tensor::Tensor;
        }
    };
}

/// The same without `linear` and `experts`, for a wrapper that has products of weights its own way.
#[macro_export]
macro_rules! forward_required_but_products {
    () => {
        fn facts(&self) -> $crate::Facts {
            let mut facts = self.around("facts", |b| Ok(b.facts())).unwrap_or_default();
            // The wrapper may override what the backend inside leaves to its definition, and a trace would go round it.
            facts.composed = &[];
            facts
        }
        $crate::forward_methods! {
            fn upload(values: &[f32], shape: $crate::tensor::Shape) -> $crate::tensor::Tensor;
            fn download(x: &$crate::tensor::Tensor) -> Vec<f32>;
            fn upload_weight(w: &$crate::HostWeight) -> $crate::Weight;
            fn new_cache(spec: &$crate::CacheSpec) -> $crate::Cache;
            fn plan(batch: $crate::Batch) -> $crate::Plan;
            fn embed(table: &$crate::Weight, ids: $crate::Ids, plan: &$crate::Plan) -> $crate::tensor::Tensor;
            fn rms_norm(x: &$crate::tensor::Tensor, w: &$crate::tensor::Tensor, eps: f32) -> $crate::tensor::Tensor;
            fn layer_norm(x: &$crate::tensor::Tensor, w: &$crate::tensor::Tensor, b: Option<&$crate::tensor::Tensor>, eps: f32) -> $crate::tensor::Tensor;
            fn add(x: $crate::tensor::Tensor, y: &$crate::tensor::Tensor) -> $crate::tensor::Tensor;
            fn mul(x: $crate::tensor::Tensor, y: &$crate::tensor::Tensor) -> $crate::tensor::Tensor;
            fn sum(x: &$crate::tensor::Tensor) -> $crate::tensor::Tensor;
            fn activate(x: $crate::tensor::Tensor, f: $crate::Activation) -> $crate::tensor::Tensor;
            fn split(x: &$crate::tensor::Tensor, axis: $crate::Axis, sizes: &[usize]) -> Vec<$crate::tensor::Tensor>;
            fn concat(xs: &[&$crate::tensor::Tensor], axis: $crate::Axis) -> $crate::tensor::Tensor;
            fn rope(x: $crate::tensor::Tensor, rope: &$crate::Rope, plan: &$crate::Plan) -> $crate::tensor::Tensor;
            fn store_kv(layer: usize, k: &$crate::tensor::Tensor, v: Option<&$crate::tensor::Tensor>, cache: &$crate::Cache, plan: &$crate::Plan) -> ();
            fn gather_kv(layer: usize, cache: &$crate::Cache, plan: &$crate::Plan) -> ($crate::tensor::Tensor, Option<$crate::tensor::Tensor>);
            fn attend(q: &$crate::tensor::Tensor, k: &$crate::tensor::Tensor, v: &$crate::tensor::Tensor, spec: &$crate::AttnSpec, plan: &$crate::Plan) -> $crate::tensor::Tensor;
            fn copy_blocks(cache: &$crate::Cache, plan: &$crate::Plan) -> ();
            fn read_state(layer: usize, cache: &$crate::Cache, plan: &$crate::Plan) -> $crate::tensor::Tensor;
            fn write_state(layer: usize, state: &$crate::tensor::Tensor, cache: &$crate::Cache, plan: &$crate::Plan) -> ();
            fn route(logits: &$crate::tensor::Tensor, spec: &$crate::RouterSpec) -> $crate::Routing;
            fn outputs(x: &$crate::tensor::Tensor, plan: &$crate::Plan) -> $crate::tensor::Tensor;
        }
    };
}

/// Writes a wrapper's provided methods too, all but `replay` and `bucket`: those decide how a step runs, which a
/// wrapper may not want decided below it.
#[macro_export]
macro_rules! forward_provided {
    () => {
        $crate::forward_provided_but_products!();
        $crate::forward_methods! {
            fn linear_many(x: &$crate::tensor::Tensor, ws: &[&$crate::Weight]) -> Vec<$crate::tensor::Tensor>;
            fn linear_each(x: &$crate::tensor::Tensor, ws: &[$crate::Weight]) -> $crate::tensor::Tensor;
            fn linear_gated(x: &$crate::tensor::Tensor, gate: &$crate::Weight, up: &$crate::Weight, f: $crate::Activation) -> $crate::tensor::Tensor;
            fn moe(x: &$crate::tensor::Tensor, logits: &$crate::tensor::Tensor, spec: &$crate::RouterSpec, experts: &$crate::Experts) -> $crate::tensor::Tensor;
        }
    };
}

/// The same without `linear_many`, `linear_each`, `linear_gated` and `moe`.
#[macro_export]
macro_rules! forward_provided_but_products {
    () => {
        $crate::forward_methods! {
            fn add_rms_norm(residual: $crate::tensor::Tensor, x: &$crate::tensor::Tensor, w: &$crate::tensor::Tensor, eps: f32) -> ($crate::tensor::Tensor, $crate::tensor::Tensor);
            fn gated(gate: $crate::tensor::Tensor, up: &$crate::tensor::Tensor, f: $crate::Activation) -> $crate::tensor::Tensor;
            fn attend_cache(layer: usize, q: &$crate::tensor::Tensor, cache: &$crate::Cache, spec: &$crate::AttnSpec, plan: &$crate::Plan) -> $crate::tensor::Tensor;
            fn attend_latent(layer: usize, q: &$crate::tensor::Tensor, cache: &$crate::Cache, spec: &$crate::AttnSpec, plan: &$crate::Plan) -> $crate::tensor::Tensor;
            fn rope_attend(layer: usize, q: $crate::tensor::Tensor, k: $crate::tensor::Tensor, v: &$crate::tensor::Tensor, rope: &$crate::Rope, cache: &$crate::Cache, spec: &$crate::AttnSpec, plan: &$crate::Plan) -> $crate::tensor::Tensor;
            fn causal_conv(layer: usize, x: &$crate::tensor::Tensor, w: &$crate::tensor::Tensor, cache: &$crate::Cache, plan: &$crate::Plan) -> $crate::tensor::Tensor;
            fn selective_scan(layer: usize, x: &$crate::tensor::Tensor, dt: &$crate::tensor::Tensor, a: &$crate::tensor::Tensor, b_in: &$crate::tensor::Tensor, c: &$crate::tensor::Tensor, cache: &$crate::Cache, plan: &$crate::Plan) -> $crate::tensor::Tensor;
            fn linear_attention(layer: usize, q: &$crate::tensor::Tensor, k: &$crate::tensor::Tensor, v: &$crate::tensor::Tensor, g: &$crate::tensor::Tensor, beta: Option<&$crate::tensor::Tensor>, cache: &$crate::Cache, plan: &$crate::Plan) -> $crate::tensor::Tensor;
            fn argmax(x: &$crate::tensor::Tensor) -> Vec<u32>;
            fn top_k(x: $crate::tensor::Tensor, k: usize) -> $crate::tensor::Tensor;
            fn bring(x: &$crate::tensor::Tensor, from: &dyn $crate::Backend, place: Option<$crate::tensor::Tensor>) -> $crate::tensor::Tensor;
            fn best(x: &$crate::tensor::Tensor, k: usize) -> Vec<Vec<(u32, f32)>>;
        }
    };
}
