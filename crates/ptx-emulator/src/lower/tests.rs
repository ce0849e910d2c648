//! Kernels lowered and run.
