//! The words Ogive's other crates speak: shapes, opaque tensors, weights and their formats, sources and settings, and
//! the error type. Nothing here computes, and nothing here knows a machine.
//!
//! Host arrays are [`ndarray`]'s, half-precision numbers [`half`]'s.

mod bytes;
mod config;
mod error;
mod format;
mod shape;
mod source;
mod tensor;
mod weight;

pub use bytes::Bytes;
pub use config::Config;
pub use error::{Error, ErrorKind, Result, optional};
pub use format::*;
pub use shape::Shape;
pub use source::{Source, WeightInfo};
pub use tensor::Tensor;
pub use weight::{HostWeight, Scale, Shard};

pub use half;
pub use ndarray;
pub use serde_json;
