//! The words Ogive's other crates speak: shapes, opaque tensors, weights and their formats, sources and settings, and
//! the error type. Nothing here computes, and nothing here knows a machine.
//!
//! Host arrays are [`ndarray`]'s, half-precision numbers [`half`]'s.
//!
//! A weight stays packed, and its format is a value that says how to read it:
//!
//! ```
//! use ogive_tensor::{HostWeight, format_by_name};
//!
//! # fn main() -> ogive_tensor::Result<()> {
//! let q8_0 = format_by_name("q8_0").expect("one of the formats here");
//! let row: Vec<f32> = (0..32).map(|i| i as f32 - 16.0).collect();
//! let mut bytes = vec![0; q8_0.row_bytes(row.len())];
//! q8_0.encode_row(&row, &mut bytes)?;
//! assert_eq!(bytes.len(), 34); // a block: a scale in half precision, a byte for each of 32 elements
//!
//! let weight = HostWeight::new("output.weight", [1, 1, 32], q8_0, bytes.into())?; // [experts, rows, cols]
//! assert!(weight.to_vec().iter().zip(&row).all(|(got, was)| (got - was).abs() < 0.1));
//!
//! // A shape that the bytes do not fill is an error that says so.
//! let wrong = HostWeight::new("output.weight", [1, 2, 32], q8_0, weight.bytes.clone()).unwrap_err();
//! assert!(wrong.to_string().contains("output.weight"), "{wrong}");
//! # Ok(())
//! # }
//! ```

mod alpha;
mod bytes;
mod config;
mod error;
mod format;
pub mod normal;
mod scale;
mod shape;
mod source;
mod tensor;
mod weight;

pub use alpha::rope_theta_by_alpha;
pub use bytes::Bytes;
pub use config::Config;
pub use error::{Error, ErrorKind, Result, optional};
pub use format::*;
pub use scale::Scale;
pub use shape::Shape;
pub use source::{Source, WeightInfo};
pub use tensor::Tensor;
pub use weight::{HostWeight, Shard, Unpacked};

pub use half;
pub use ndarray;
pub use serde_json;
