//! Language models on the CPU: threads and SIMD.
