//! What the tests share: running under the emulator, compiling, launching, comparing.

pub(crate) mod compare;
pub(crate) mod gpu;
pub(crate) mod nvrtc;
pub(crate) mod run;

pub(crate) use compare::{Random, close, halves, halves_to_f32, to_bf16};
pub(crate) use gpu::{Arg, Gpu, args};
pub(crate) use run::{everywhere, everywhere_since, in_all_settings, source};
