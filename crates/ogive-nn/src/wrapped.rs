//! What a model around another passes on to it: what it computes before its texts are pooled.
//!
//! A macro, as a trait's own methods cannot be inherited: a method that is added to [`Model`](crate::Model) is passed on here, for all who wrap one.

/// Methods of [`Model`](crate::Model) that the model in this field has.
macro_rules! as_wrapped {
    ($model:ident) => {
        fn cache_layout(&self) -> Vec<$crate::backend::LayerCache> {
            self.$model.cache_layout()
        }

        fn hidden(&self, s: &$crate::Step<'_>) -> $crate::tensor::Result<$crate::tensor::Tensor> {
            self.$model.hidden(s)
        }

        fn head(
            &self,
            s: &$crate::Step<'_>,
            hidden: $crate::tensor::Tensor,
        ) -> $crate::tensor::Result<$crate::tensor::Tensor> {
            self.$model.head(s, hidden)
        }

        fn vocab(&self) -> Option<usize> {
            self.$model.vocab()
        }

        fn takes_vectors(&self) -> Option<usize> {
            self.$model.takes_vectors()
        }

        fn causal(&self) -> bool {
            self.$model.causal()
        }
    };
}
pub(crate) use as_wrapped;
