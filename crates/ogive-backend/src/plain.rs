//! A backend with its overrides taken off, so that the definitions run: what overrides are tested against.

use crate::Backend;
use ogive_tensor::Result;

/// Forwards the required operators and none of the provided ones.
#[derive(Clone, Debug)]
pub struct Plain<B>(pub B);

impl<B: Backend> Plain<B> {
    fn around<T>(&self, _: &'static str, f: impl FnOnce(&B) -> Result<T>) -> Result<T> {
        f(&self.0)
    }
}

impl<B: Backend> Backend for Plain<B> {
    crate::forward_required!();
}
