//! An activation: a shape, and a buffer that only the backend that made it can open.
//!
//! No element type, stride or device shows, so a model cannot depend on any of them. Tensors are always contiguous and
//! row-major; a backend that wants another layout keeps it inside its buffer and the shape as the model sees it.

use crate::{Error, Result, Shape};
use std::{any::Any, fmt, sync::Arc};

/// An activation. Cloning shares the buffer.
#[derive(Clone)]
pub struct Tensor {
    shape: Shape,
    data: Arc<dyn Any + Send + Sync>,
}

impl Tensor {
    /// Wraps a backend's buffer. Called by backends only.
    pub fn new(shape: impl Into<Shape>, data: impl Any + Send + Sync) -> Self {
        Self { shape: shape.into(), data: Arc::new(data) }
    }

    /// The extent of each dimension.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// The same elements under another shape.
    ///
    /// # Errors
    /// Unless both have as many elements.
    pub fn reshape(mut self, shape: impl Into<Shape>) -> Result<Self> {
        let shape = shape.into();
        if shape.len() != self.shape.len() {
            return Err(Error::shape("reshape", self.shape, shape));
        }
        self.shape = shape;
        Ok(self)
    }

    /// The backend's buffer, if it is a `T`.
    ///
    /// # Errors
    /// If it is none: the tensor was made by another backend.
    pub fn data<T: Any>(&self) -> Result<&T> {
        self.data.downcast_ref().ok_or_else(|| Error::foreign("tensor"))
    }

    /// The backend's buffer for overwriting, if it is a `T` and no one else holds it. An operator that is given its
    /// input by value may so reuse it.
    pub fn data_mut<T: Any>(&mut self) -> Option<&mut T> {
        Arc::get_mut(&mut self.data)?.downcast_mut()
    }
}

impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tensor{:?}", self.shape)
    }
}
